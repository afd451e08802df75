//! Scores in decimal digits, as servers write them.

/// Parses a score. Returns `None` if it is no number, or one that a double cannot be.
pub(super) fn parse(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let value: f64 = text.parse().ok()?;
    let names_infinity = text.bytes().any(|byte| matches!(byte, b'n' | b'N'));
    let mut digits = text.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let is_too_large = value.is_infinite() && !names_infinity;
    let is_too_small = value == 0.0 && digits.any(|byte| matches!(byte, b'1'..=b'9'));
    (!value.is_nan() && !is_too_large && !is_too_small).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_numbers_in_the_range_of_doubles() {
        for (text, score) in [
            ("0", Some(0.0)),
            ("-1.5", Some(-1.5)),
            ("1e300", Some(1e300)),
            ("3.0000000000000001e-05", Some(3e-5)),
            ("inf", Some(f64::INFINITY)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("nan", None),
            ("1e999", None),
            ("1e-999", None),
            ("0e-999", Some(0.0)),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("1x", None),
        ] {
            assert_eq!(parse(text.as_bytes()), score, "{text}");
        }
        assert_eq!(parse(b"\xff"), None);
    }
}
