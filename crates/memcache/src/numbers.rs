//! Reads numbers in text commands like memcached, which uses C's functions. Clients can see their
//! habits: a sign, blanks around the number, wrapping into 32 bits.

/// Reads a signed number of 64 bits. Returns `None` if memcached refuses it.
pub(crate) fn signed(text: &[u8]) -> Option<i64> {
    if let Some(value) = short(text) {
        return Some(value as i64);
    }
    let (negative, magnitude) = long(text)?;
    match (negative, i64::try_from(magnitude)) {
        (false, value) => value.ok(),
        (true, Ok(value)) => Some(-value),
        (true, Err(_)) => (magnitude == 1 << 63).then_some(i64::MIN),
    }
}

/// Reads a signed number of 32 bits: the low half of a 64-bit number, as memcached truncates it.
pub(crate) fn signed_32(text: &[u8]) -> Option<i32> {
    signed(text).map(|value| value as i32)
}

/// Reads an unsigned number of 64 bits. A minus sign wraps around, and is refused only if the
/// result has its top bit set.
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(value) = short(text) {
        return Some(value);
    }
    let (negative, magnitude) = long(text)?;
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    (!negative || value >> 63 == 0).then_some(value)
}

/// Reads an unsigned number of 32 bits: the low half of a 64-bit number.
pub(crate) fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned(text).map(|value| value as u32)
}

/// Reads digits only, few enough not to overflow. Nearly every number has this form.
#[inline(always)]
fn short(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

/// Reads blanks, a sign, digits, and then the end or a blank.
#[cold]
fn long(text: &[u8]) -> Option<(bool, u64)> {
    let start = text.iter().position(|&byte| !is_space(byte))?;
    let (negative, digits) = match &text[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let len = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if len == 0 || digits.get(len).is_some_and(|&byte| !is_space(byte)) {
        return None;
    }
    let mut value = 0u64;
    for byte in &digits[..len] {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    Some((negative, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_numbers_are_read_as_c_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("007", Some(7)),
            ("+5", Some(5)),
            ("-5", Some(-5)),
            ("\t5\r", Some(5)),
            ("5x", None),
            ("", None),
            ("-", None),
            ("--1", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
        ] {
            assert_eq!(signed(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(signed_32(b"4294967297"), Some(1));
        assert_eq!(signed_32(b"2147483648"), Some(i32::MIN));
    }

    #[test]
    fn unsigned_numbers_wrap_and_are_refused_where_they_show_it() {
        for (text, expected) in [
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("-0", Some(0)),
            ("-18446744073709551615", Some(1)),
            ("12 ", Some(12)),
        ] {
            assert_eq!(unsigned(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(unsigned_32(b"4294967296"), Some(0));
    }
}
