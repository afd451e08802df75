/// The integer that `text` is, in the one way Redis accepts: decimal digits
/// without leading zeros, blanks or plus sign.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value = 0u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 digits fit into 64 bits.
        value = value * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// Longest decimal of an `i64`, the sign included.
pub(crate) const INTEGER_LEN_MAX: usize = 20;

/// The decimal digits of `value`, in `buffer`.
pub(crate) fn format_integer(value: i64, buffer: &mut [u8; INTEGER_LEN_MAX]) -> &[u8] {
    let mut at = buffer.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_integer_reads_back_as_formatted(value: i64) {
            let mut buffer = [0; INTEGER_LEN_MAX];
            let text = format_integer(value, &mut buffer);
            prop_assert_eq!(std::str::from_utf8(text), Ok(&*value.to_string()));
            prop_assert_eq!(parse_integer(text), Some(value));
        }

        #[test]
        fn only_the_canonical_form_is_accepted(text in "[-+ 0-9x]{0,21}") {
            let canonical = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_integer(text.as_bytes()), canonical);
        }
    }

    #[test]
    fn the_ends_of_the_range_are_accepted_and_no_more() {
        for (text, value) in [
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("9999999999999999999", None),
            ("-0", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), value, "{text}");
        }
    }
}
