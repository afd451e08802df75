//! Scores of sorted sets as text, read and written as Redis 7.0 does.

use crate::algorithms::number::{INTEGER_LEN_MAX, format_integer};
use std::ffi::CString;
use std::num::FpCategory;

/// Integers below this are exact, and have no more than 17 digits.
const INTEGERS_BELOW: f64 = 1e17;
const DIGITS: i32 = 17;

/// Parses a text as the C library does. Returns the number at its start, and the number of bytes
/// that it takes. Blanks in front are skipped. A text without a number is 0.
fn strtod(text: &[u8]) -> (f64, usize) {
    let text = &text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())];
    let Ok(text) = CString::new(text) else { return (0.0, 0) };
    let mut end = std::ptr::null_mut();
    // SAFETY: the string is terminated, and `end` comes to point into it. The
    // process never leaves the C locale.
    let value = unsafe { libc::strtod(text.as_ptr(), &raw mut end) };
    (value, end as usize - text.as_ptr() as usize)
}

/// Returns whether every character is one of a plain decimal number, which the C
/// library and Rust read alike.
fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-'))
        && text.iter().any(u8::is_ascii_digit)
}

/// Returns whether a number that is not 0 stands in front of the exponent.
fn has_digit(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E' | b'p' | b'P'));
    digits.into_iter().any(|byte| matches!(byte, b'1'..=b'9'))
}

/// A score as clients give it.
pub(crate) fn parse(text: &[u8]) -> Option<f64> {
    if text.len() <= 15 && is_plain(text) {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    if text.is_empty() || text[0].is_ascii_whitespace() || text[0] == b'\x0b' {
        return None;
    }
    let (value, len) = strtod(text);
    let names_infinity = || text.iter().any(|byte| matches!(byte, b'n' | b'N'));
    let out_of_range =
        (value.is_infinite() && !names_infinity()) || (value == 0.0 && has_digit(text));
    (len == text.len() && !value.is_nan() && !out_of_range).then_some(value)
}

/// Parses a number that SORT compares by. Blanks in front are allowed, and an empty text is 0. A
/// number too large or too small for a normal double is refused.
pub(crate) fn parse_weight(text: &[u8]) -> Option<f64> {
    let terminated = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let (value, len) = strtod(text);
    let names_infinity = text.iter().any(|byte| matches!(byte, b'n' | b'N'));
    let is_in_range = match value.classify() {
        FpCategory::Nan | FpCategory::Subnormal => false,
        FpCategory::Infinite => names_infinity,
        FpCategory::Zero => !has_digit(&text[..terminated]),
        FpCategory::Normal => true,
    };
    (len == terminated && is_in_range).then_some(value)
}

/// One end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    pub(crate) score: f64,
    pub(crate) excluded: bool,
}

impl Bound {
    /// A number, behind a parenthesis if it is excluded itself.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (number, excluded) = match text {
            [b'(', number @ ..] => (number, true),
            number => (number, false),
        };
        let terminated = number.iter().position(|byte| *byte == 0).unwrap_or(number.len());
        let (score, len) = strtod(number);
        (len == terminated && !score.is_nan()).then_some(Self { score, excluded })
    }
}

/// Lets `work` see the text of a score: 17 significant digits at most, and no
/// more than needed.
pub(crate) fn with_text<R>(score: f64, work: impl FnOnce(&[u8]) -> R) -> R {
    if score.fract() == 0.0
        && score.abs() < INTEGERS_BELOW
        && !(score == 0.0 && score.is_sign_negative())
    {
        return work(format_integer(score as i64, &mut [0; INTEGER_LEN_MAX]));
    }
    if score.is_infinite() {
        return work(if score > 0.0 { b"inf" } else { b"-inf" });
    }
    work(format_general(score).as_bytes())
}

/// As [`with_text`], with every digit of larger integers: what a walk over a
/// small set shows.
pub(crate) fn with_all_digits<R>(score: f64, work: impl FnOnce(&[u8]) -> R) -> R {
    const BELOW: f64 = (i64::MAX / 2) as f64;
    if score.fract() == 0.0 && score.abs() <= BELOW {
        return work(format_integer(score as i64, &mut [0; INTEGER_LEN_MAX]));
    }
    with_text(score, work)
}

/// As the C library's `%.17g`.
fn format_general(score: f64) -> String {
    let scientific = format!("{score:.16e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent) as usize;
        return without_zeros(&format!("{score:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(decimal: &str) -> &str {
    match decimal.contains('.') {
        true => decimal.trim_end_matches('0').trim_end_matches('.'),
        false => decimal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(score: f64) -> String {
        with_text(score, |text| String::from_utf8(text.to_vec()).unwrap())
    }

    #[test]
    fn scores_print_as_redis_prints_them() {
        for (score, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_678.0, "1.2345678901234568e+17"),
            (1e-4, "0.0001"),
            (1e-5, "1.0000000000000001e-05"),
            (5e-324, "4.9406564584124654e-324"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(score), expected);
        }
    }

    #[test]
    fn what_redis_takes_for_a_score_is_one() {
        for (given, score) in [
            ("1", Some(1.0)),
            ("+1", Some(1.0)),
            ("1.", Some(1.0)),
            (".5", Some(0.5)),
            ("-.5e1", Some(-5.0)),
            ("0x10", Some(16.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e-320", Some(1e-320)),
            ("nan", None),
            ("1e400", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("1\0", None),
            (".", None),
            ("-", None),
            ("1-1", None),
            ("1e", None),
        ] {
            assert_eq!(parse(given.as_bytes()), score, "{given:?}");
        }
    }

    #[test]
    fn ends_of_ranges_are_read_more_freely_than_scores() {
        let bound = |score, excluded| Some(Bound { score, excluded });
        for (given, expected) in [
            ("(1.5", bound(1.5, true)),
            ("-inf", bound(f64::NEG_INFINITY, false)),
            ("", bound(0.0, false)),
            ("(", bound(0.0, true)),
            (" 1", bound(1.0, false)),
            ("1e400", bound(f64::INFINITY, false)),
            ("1 ", None),
            ("nan", None),
            ("((1", None),
        ] {
            assert_eq!(Bound::parse(given.as_bytes()), expected, "{given:?}");
        }
    }

    proptest! {
        #[test]
        fn a_score_reads_back_as_written(score in proptest::num::f64::NORMAL | proptest::num::f64::ZERO) {
            prop_assert_eq!(parse(text(score).as_bytes()), Some(score));
        }
    }
}
