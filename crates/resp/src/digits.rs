//! Integers on the wire. Most lengths have one to three digits. One load of eight bytes reads
//! those. A plain digit loop reads the rest.

/// Outcome of reading a decimal line `[+-]digits\r\n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The number, and the index after its `\n`.
    Number(i64, usize),
    /// The line is incomplete.
    Partial,
    /// The line is no number, or does not end with `\r\n`.
    Invalid,
}

/// Largest number of digits that is accepted. Anything longer is refused at once, without waiting
/// for its end.
const DIGITS_MAX: usize = 19;

/// Reads a number of one to three digits without leading zeros. Returns it with the index after its
/// line end, or `None` for every other number, and near the end of `buf`.
#[inline(always)]
pub(crate) fn short_number(buf: &[u8], at: usize) -> Option<(i64, usize)> {
    const LINE_END: u16 = u16::from_le_bytes(*b"\r\n");
    let word = u64::from_le_bytes(*buf.get(at..)?.first_chunk()?);
    let digit = |place: u32| (word >> (8 * place) & 0xff) ^ u64::from(b'0');
    let ends = |place: u32| (word >> (8 * place)) as u16 == LINE_END;
    let mut value = digit(0);
    if value > 9 {
        return None;
    }
    if ends(1) {
        return Some((value as i64, at + 3));
    }
    if value == 0 || digit(1) > 9 {
        return None;
    }
    value = value * 10 + digit(1);
    if ends(2) {
        return Some((value as i64, at + 4));
    }
    value = value * 10 + digit(2);
    (digit(2) <= 9 && ends(3)).then_some((value as i64, at + 5))
}

/// Reads the decimal line that starts at `at`.
#[inline(always)]
pub(crate) fn number_line(buf: &[u8], at: usize) -> Line {
    match short_number(buf, at) {
        Some((value, next)) => Line::Number(value, next),
        None => long_number_line(buf, at),
    }
}

#[inline(never)]
fn long_number_line(buf: &[u8], at: usize) -> Line {
    let mut pos = at;
    let negative = match buf.get(pos) {
        Some(b'-') => {
            pos += 1;
            true
        }
        Some(_) => false,
        None => return Line::Partial,
    };
    let digits = pos;
    let mut value: u64 = 0;
    loop {
        let Some(&byte) = buf.get(pos) else { return Line::Partial };
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if pos - digits >= DIGITS_MAX {
            return Line::Invalid;
        }
        value = value * 10 + u64::from(digit);
        pos += 1;
    }
    if pos == digits || buf[pos] != b'\r' {
        return Line::Invalid;
    }
    match buf.get(pos + 1) {
        Some(b'\n') => {}
        Some(_) => return Line::Invalid,
        None => return Line::Partial,
    }
    match (i64::try_from(value), negative) {
        (Ok(value), false) => Line::Number(value, pos + 2),
        (Ok(value), true) => Line::Number(-value, pos + 2),
        (Err(_), true) if value == 1 << 63 => Line::Number(i64::MIN, pos + 2),
        (Err(_), _) => Line::Invalid,
    }
}

/// Reads the length line of a request that starts at `at`. Redis accepts no leading zeros and no
/// `-0` there: it answers them with a protocol error and closes. So a request with one must never
/// be forwarded.
#[inline(always)]
pub(crate) fn length_line(buf: &[u8], at: usize) -> Line {
    match short_number(buf, at) {
        Some((value, next)) => Line::Number(value, next),
        None => long_length_line(buf, at),
    }
}

#[inline(never)]
fn long_length_line(buf: &[u8], at: usize) -> Line {
    let line = long_number_line(buf, at);
    // A number has a byte after its first one: a digit or the line's end.
    let is_number = matches!(line, Line::Number(..));
    let is_odd = || matches!((buf[at], buf[at + 1]), (b'0', b'0'..=b'9') | (b'-', b'0'));
    if is_number && is_odd() { Line::Invalid } else { line }
}

/// Returns the number on the line with which a framed element begins. It is read like the length
/// when the element was framed. Returns `None` if that line contains no number.
#[inline]
pub fn head_number(element: &[u8]) -> Option<i64> {
    match number_line(element, 1) {
        Line::Number(value, _) => Some(value),
        Line::Partial | Line::Invalid => None,
    }
}

/// Parses a whole argument as a signed 64-bit decimal, like Redis: no blanks, no plus sign, no
/// leading zeros except `0` itself. Returns `None` for anything else, or if it does not fit.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 19 || (digits[0] == b'0' && text.len() > 1) {
        return None;
    }
    let mut value: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative {
        if value == 1 << 63 {
            return Some(i64::MIN);
        }
        i64::try_from(value).ok().map(|value| -value)
    } else {
        i64::try_from(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_redis_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("", None),
            ("-", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("01", None),
            ("-0", None),
            ("1e3", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn lengths_of_requests_are_read_as_redis_reads_them() {
        for text in ["01", "02", "00", "-0", "-01", "007", "+1", "", "-", "1x", " 1", "1 "] {
            let line = format!("{text}\r\n");
            assert_eq!(length_line(line.as_bytes(), 0), Line::Invalid, "{text}");
        }
        for (text, value) in [("0", 0), ("1", 1), ("10", 10), ("-1", -1), ("-10", -10)] {
            let line = format!("{text}\r\n");
            assert_eq!(length_line(line.as_bytes(), 0), Line::Number(value, line.len()), "{text}");
        }
        for text in ["", "0", "-", "1\r"] {
            assert_eq!(length_line(text.as_bytes(), 0), Line::Partial, "{text}");
        }
    }

    #[test]
    fn short_numbers_are_read_as_the_digit_loop_reads_them() {
        let ends = ["\r\n", "\r\n$3\r\nGET\r\n", "\rx123456", "x\r\n12345", "\n\r234567"];
        let digits = (0..1100).map(|value: i32| value.to_string());
        let odd = ["", "-1", "00", "01", "007", "+1", " 1", ":", "/", "1:", "1/"];
        for text in digits.chain(odd.map(str::to_owned)) {
            for end in ends {
                let line = format!("${text}{end}");
                let (line, what) = (line.as_bytes(), line.escape_default());
                assert_eq!(number_line(line, 1), long_number_line(line, 1), "{what}");
                assert_eq!(length_line(line, 1), long_length_line(line, 1), "{what}");
            }
        }
    }

    #[test]
    fn endless_digits_are_refused_before_their_line_ends() {
        let line = [b'1'; 64];
        assert_eq!(number_line(&line, 0), Line::Invalid);
        assert_eq!(number_line(b"12", 0), Line::Partial);
        assert_eq!(number_line(b"12\r", 0), Line::Partial);
        assert_eq!(number_line(b"12\r\n", 0), Line::Number(12, 4));
        assert_eq!(number_line(b"12\rx", 0), Line::Invalid);
        assert_eq!(number_line(b"-\r\n", 0), Line::Invalid);
    }
    #[test]
    fn every_number_that_fits_is_read_and_no_other_is() {
        let line = |text: &str| number_line(format!("{text}\r\n").as_bytes(), 0);
        for value in [i64::MAX, i64::MIN, i64::MIN + 1, 1_000, -1_000, -9, 0] {
            let text = value.to_string();
            assert_eq!(line(&text), Line::Number(value, text.len() + 2), "{text}");
        }
        for text in [
            "9223372036854775808",
            "-9223372036854775809",
            "-9999999999999999999",
            "10000000000000000000",
            "1234x",
            "1234\n",
        ] {
            assert_eq!(line(text), Line::Invalid, "{text}");
        }
        assert_eq!(number_line(b"1234x\n", 0), Line::Invalid, "two bytes end a line");
        assert_eq!(number_line(b"1234567890123456789", 0), Line::Partial, "19 digits may go on");
        assert_eq!(number_line(b"12345678901234567890", 0), Line::Invalid, "20 never do");
    }

    #[test]
    fn short_numbers_are_told_at_once_and_nothing_else_is() {
        for value in 0..1_000i64 {
            let line = format!("${value}\r\n$3\r\nGET\r\n");
            let next = value.to_string().len() + 3;
            assert_eq!(short_number(line.as_bytes(), 1), Some((value, next)), "{value}");
        }
        for text in ["00", "01", "1000", "-1", ":", "1:", "12:", "/", "1/", "12/", "1\rx", ""] {
            let line = format!("{text}\r\n$3\r\nGET\r\n");
            assert_eq!(short_number(line.as_bytes(), 0), None, "{text}");
        }
        assert_eq!(short_number(b"1\r\n", 0), None, "near the end of the buffer");
    }

    #[test]
    fn the_number_of_an_element_is_that_of_its_first_line() {
        for (element, number) in [
            (&b"$3\r\nGET\r\n"[..], Some(3)),
            (b"$-1\r\n", Some(-1)),
            (b"*0\r\n", Some(0)),
            (b":123456\r\n", Some(123_456)),
            (b"+OK\r\n", None),
            (b"$3", None),
        ] {
            assert_eq!(head_number(element), number, "{element:?}");
        }
    }
}
