//! Reads the most common requests and replies in one pass: `get` of one key, a `set` with a reply,
//! and the replies of servers to these. Everything else is left to [`crate::text`] and
//! [`crate::reply_text`]. They can read these too, with the same results, as the tests check.

use crate::outcome::Item;
use crate::{Expect, KEY_LEN_MAX, ParseLimits, Request, RequestFlags, Verb};
use keyway_base::ByteRange;

/// Largest number of digits of a number that is read here.
const DIGITS_MAX: usize = 10;

/// Reads a request that has the form that [`crate::compose_request`] writes. Returns its length, or
/// `None` for any other request; `request` is then unchanged.
#[inline(always)]
pub(crate) fn parse(buf: &[u8], limits: &ParseLimits, request: &mut Request) -> Option<usize> {
    match buf {
        [b'g', b'e', b't', b' ', ..] => get(buf, limits, request),
        [b's', b'e', b't', b' ', ..] => set(buf, limits, request),
        _ => None,
    }
}

const BEHIND_VERB: usize = 4;

#[inline(always)]
fn get(buf: &[u8], limits: &ParseLimits, request: &mut Request) -> Option<usize> {
    let end = key_end(buf, BEHIND_VERB)?;
    request.keys.push(ByteRange::new(BEHIND_VERB, end));
    let end = if buf[end] == b' ' { more_keys(buf, end, limits, request) } else { Some(end) };
    let next = end.and_then(|end| line_end(buf, end)).filter(|&next| fits(next, limits));
    if next.is_none() {
        request.keys.clear();
        return None;
    }
    request.head.asked = RequestFlags::VALUE.with(RequestFlags::FLAGS).with(RequestFlags::KEY);
    request.is_canonical = true;
    next
}

/// Returns whether a line of this length is accepted, whatever it contains.
#[inline(always)]
fn fits(len: usize, limits: &ParseLimits) -> bool {
    len <= ParseLimits::LINE_LEN_MAX || len <= limits.keys_line_len_max as usize
}

/// Reads the keys after the first, each after one blank. Returns where the last one ends.
#[inline(never)]
fn more_keys(
    buf: &[u8],
    blank: usize,
    limits: &ParseLimits,
    request: &mut Request,
) -> Option<usize> {
    let mut end = blank;
    while buf[end] == b' ' {
        let start = end + 1;
        end = key_end(buf, start)?;
        if request.keys.len() >= limits.keys_max as usize {
            return None;
        }
        request.keys.push(ByteRange::new(start, end));
    }
    Some(end)
}

fn set(buf: &[u8], limits: &ParseLimits, request: &mut Request) -> Option<usize> {
    let key_end = key_end(buf, BEHIND_VERB)?;
    let (flags, at) = number(buf, key_end)?;
    let (expiry, at) = number(buf, at)?;
    let (len, at) = number(buf, at)?;
    let start = line_end(buf, at)?;
    let end = start + len as usize;
    let next = line_end(buf, end)?;
    if len > limits.value_len_max {
        return None;
    }
    request.head.verb = Verb::Set;
    request.head.flags = flags;
    request.head.expiry = i64::from(expiry);
    request.keys.push(ByteRange::new(BEHIND_VERB, key_end));
    request.value = ByteRange::new(start, end);
    request.is_canonical = true;
    Some(next)
}

/// Returns the length of the reply at the start of `buf`, if it has a usual form and is complete.
#[inline(always)]
pub(crate) fn reply_len(buf: &[u8], expect: Expect) -> Option<usize> {
    const STORED: &[u8] = b"STORED\r\n";
    const END: &[u8] = b"END\r\n";
    match expect {
        Expect::One => buf.starts_with(STORED).then_some(STORED.len()),
        Expect::List if buf.starts_with(VALUE) => {
            let (_, end) = item(buf)?;
            buf[end..].starts_with(END).then_some(end + END.len())
        }
        Expect::List => buf.starts_with(END).then_some(END.len()),
        _ => None,
    }
}

const VALUE: &[u8] = b"VALUE ";

/// The bytes after the key of most items.
const NO_FLAGS: &[u8] = b" 0 ";

/// Returns the length of the item at the start of `buf`, if it has the usual form and is complete.
#[inline(always)]
pub(crate) fn item_len(buf: &[u8]) -> Option<usize> {
    if !buf.starts_with(VALUE) {
        return None;
    }
    value_end(buf, key_end(buf, VALUE.len())?)
}

/// Returns the length of the item of `key` with which a classic reply continues. Returns `None` if
/// it continues with anything else, or in an unusual form. `key` must be one that a line can carry.
#[inline]
pub fn text_item_len(reply: &[u8], key: &[u8]) -> Option<usize> {
    let rest = reply.strip_prefix(VALUE)?;
    let is_named = rest.len() > key.len() && rest[..key.len()] == *key;
    if !is_named { None } else { value_end(reply, VALUE.len() + key.len()) }
}

/// Returns where an item ends whose key ends at `key_end`.
#[inline(always)]
fn value_end(buf: &[u8], key_end: usize) -> Option<usize> {
    let at = match buf.get(key_end..key_end + NO_FLAGS.len())? == NO_FLAGS {
        true => key_end + NO_FLAGS.len() - 1,
        false => number(buf, key_end)?.1,
    };
    let (len, at) = number(buf, at)?;
    let start = match buf.get(at)? {
        b' ' => unique_end(buf, at + 1)?,
        _ => line_end(buf, at)?,
    };
    line_end(buf, start + len as usize)
}

/// Returns where the line ends whose last number, the unique number of the value, begins at
/// `start`.
#[inline(never)]
fn unique_end(buf: &[u8], start: usize) -> Option<usize> {
    const UNIQUE_DIGITS_MAX: usize = 20;
    let digits = buf[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_one = (1..=UNIQUE_DIGITS_MAX).contains(&digits);
    if is_one { line_end(buf, start + digits) } else { None }
}

/// Returns the item at the start of `buf`, if it has the usual form and is complete, with its
/// length.
#[inline(always)]
pub(crate) fn item(buf: &[u8]) -> Option<(Item<'_>, usize)> {
    if !buf.starts_with(VALUE) {
        return None;
    }
    let key_end = key_end(buf, VALUE.len())?;
    let (flags, at) = number(buf, key_end)?;
    let (len, at) = number(buf, at)?;
    let start = line_end(buf, at)?;
    let end = start + len as usize;
    let next = line_end(buf, end)?;
    let (key, value) = (&buf[VALUE.len()..key_end], &buf[start..end]);
    Some((Item { key, flags, value, ..Item::default() }, next))
}

/// Returns where the key that begins at `start` ends: at a blank or a control character. Returns
/// `None` if there is no key, or if it is too long.
#[inline(always)]
fn key_end(buf: &[u8], start: usize) -> Option<usize> {
    let end = start + printed_len(&buf[start..]);
    (end > start && end - start <= KEY_LEN_MAX && end < buf.len()).then_some(end)
}

/// Returns how many bytes at the start are greater than a blank.
#[inline(always)]
pub(crate) fn printed_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let mut len = 0;
    // Finds the first of eight bytes that is not greater than a blank: subtracting one more than a
    // blank from it borrows from its top bit.
    while let Some(Ok(eight)) = bytes.get(len..len + 8).map(<[u8; 8]>::try_from) {
        let eight = u64::from_le_bytes(eight);
        let found = eight.wrapping_sub(ONES * 0x21) & !eight & (ONES * 0x80);
        if found != 0 {
            return len + (found.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    len + bytes[len..].iter().take_while(|&&byte| byte > b' ').count()
}

/// Returns the number after the blank at `blank`, if it has the form that programs write, with
/// where it ends.
#[inline(always)]
fn number(buf: &[u8], blank: usize) -> Option<(u32, usize)> {
    let start = blank + 1;
    if buf.get(blank) != Some(&b' ') {
        return None;
    }
    if let Some(Ok(eight)) = buf.get(start..start + 8).map(<[u8; 8]>::try_from)
        && let Some((value, digits)) = number_of_eight(u64::from_le_bytes(eight))
    {
        return Some((value, start + digits));
    }
    any_number(buf, start)
}

/// Returns the number that the first one to seven of eight bytes form, if it has the form that
/// programs write, with its number of digits.
#[inline(always)]
fn number_of_eight(eight: u64) -> Option<(u32, usize)> {
    const ONES: u64 = u64::MAX / 255;
    const PAIRS: u64 = 0x0000_00ff_0000_00ff;
    let figures = eight ^ (ONES * u64::from(b'0'));
    // The lowest byte that is no digit exceeds 0x7f here. Its carry only reaches higher bytes.
    let others = (figures.wrapping_add(ONES * 0x76) | figures) & (ONES * 0x80);
    let digits = (others.trailing_zeros() / 8) as usize;
    let is_padded = figures & 0xff == 0 && digits > 1;
    if digits == 0 || digits == 8 || is_padded {
        return None;
    }
    // Leading zeros are added, and then neighbours are combined: to tens, to hundreds, to ten
    // thousands.
    let figures = figures << (64 - 8 * digits);
    let tens = figures.wrapping_mul(10).wrapping_add(figures >> 8);
    let high = (tens & PAIRS).wrapping_mul(100 + (1_000_000 << 32));
    let low = ((tens >> 16) & PAIRS).wrapping_mul(1 + (10_000 << 32));
    Some(((high.wrapping_add(low) >> 32) as u32, digits))
}

/// Returns the number at `start`, whatever follows it.
#[inline(never)]
fn any_number(buf: &[u8], start: usize) -> Option<(u32, usize)> {
    let (mut value, mut end) = (0u64, start);
    loop {
        let digit = buf.get(end)?.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if end - start == DIGITS_MAX {
            return None;
        }
        value = value * 10 + u64::from(digit);
        end += 1;
    }
    let is_padded = buf[start] == b'0' && end - start > 1;
    // A number that fits 32 bits with a sign means the same to every reader.
    let value = i32::try_from(value).ok()? as u32;
    (end > start && !is_padded).then_some((value, end))
}

/// Returns where the next line begins, if a line ends at `at`.
#[inline(always)]
fn line_end(buf: &[u8], at: usize) -> Option<usize> {
    (buf.get(at..at + 2)? == b"\r\n").then_some(at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn eight_bytes_at_a_time_are_the_number_that_their_figures_are(
            figures in vec(b'0'..=b'9', 0..9),
            behind in prop_oneof![any::<u8>(), 0xa0..=0xcf_u8, Just(b' '), Just(b'\r')],
            rest in any::<[u8; 9]>(),
        ) {
            let bytes = [&figures[..], &[behind][..], &rest[..]].concat();
            let eight = <[u8; 8]>::try_from(&bytes[..8]).expect("eight bytes");
            let count = eight.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let is_padded = eight[0] == b'0' && count > 1;
            let number = std::str::from_utf8(&eight[..count]).ok().and_then(|it| it.parse().ok());
            let is_one = (1..8).contains(&count) && !is_padded;
            let expected = number.filter(|_| is_one).map(|number| (number, count));
            prop_assert_eq!(number_of_eight(u64::from_le_bytes(eight)), expected);
            if expected.is_some() {
                prop_assert_eq!(any_number(&eight, 0), expected);
            }
        }
    }

    /// Reads the number after a blank digit by digit.
    fn plain_number(buf: &[u8], blank: usize) -> Option<(u32, usize)> {
        let rest = buf.get(blank..)?.strip_prefix(b" ")?;
        let len = rest.iter().position(|byte| !byte.is_ascii_digit())?;
        let text = std::str::from_utf8(&rest[..len]).ok()?;
        let is_padded = text.len() > 1 && text.starts_with('0');
        let value = text.parse::<u32>().ok().filter(|&value| value <= i32::MAX as u32)?;
        (!is_padded).then_some((value, blank + 1 + len))
    }

    fn plain_line_end(buf: &[u8], at: usize) -> Option<usize> {
        buf.get(at..)?.starts_with(b"\r\n").then_some(at + 2)
    }

    /// Reads an item, with the unique number of its value or without. Returns its parts and where
    /// it ends.
    fn plain_item(buf: &[u8], takes_unique: bool) -> Option<(&[u8], u32, &[u8], usize)> {
        let key_end = 6 + buf.strip_prefix(b"VALUE ")?.iter().position(|&byte| byte <= b' ')?;
        if !(7..=6 + KEY_LEN_MAX).contains(&key_end) {
            return None;
        }
        let (flags, at) = plain_number(buf, key_end)?;
        let (len, at) = plain_number(buf, at)?;
        let mut end = at;
        if takes_unique && buf.get(at) == Some(&b' ') {
            let digits = buf[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            end = (1..=20).contains(&digits).then_some(at + 1 + digits)?;
        }
        let start = plain_line_end(buf, end)?;
        let end = start.checked_add(len as usize)?;
        let next = plain_line_end(buf, end)?;
        Some((&buf[6..key_end], flags, &buf[start..end], next))
    }

    fn number_text() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => (0u32..11, any::<u32>()).prop_map(|(shift, it)| (it >> (shift * 3)).to_string()),
            2 => (0u64..6).prop_map(|off| (u64::from(i32::MAX as u32) - 2 + off).to_string()),
            1 => any::<u64>().prop_map(|it| it.to_string()),
            1 => "0[0-9]{1,12}",
            1 => "[0-9]{0,9}[a-z/:;.-][0-9]{0,3}",
            1 => Just(String::new()),
        ]
    }

    /// Returns a configuration with eight times the usual number of cases. They are short, and
    /// rarely reach a limit.
    fn many() -> ProptestConfig {
        let usual = ProptestConfig::default();
        ProptestConfig { cases: 8 * usual.cases, ..usual }
    }

    proptest! {
        #![proptest_config(many())]

        #[test]
        fn a_number_is_what_its_figures_are(
            before in vec(any::<u8>(), 0..3),
            blank in proptest::sample::select(vec![" ", " ", " ", "", "\r", "0"]),
            text in number_text(),
            behind in vec(prop_oneof![any::<u8>(), Just(b' '), Just(b'\r'), b'0'..=b'9'], 0..12),
        ) {
            let buf = [&before[..], blank.as_bytes(), text.as_bytes(), &behind].concat();
            prop_assert_eq!(number(&buf, before.len()), plain_number(&buf, before.len()));
            // There is no number at the end of the buffer, and missing bytes are not made up.
            prop_assert_eq!(number(&buf, buf.len()), None);
        }

        #[test]
        fn what_is_printed_ends_at_the_first_blank(
            bytes in vec(prop_oneof![20 => 33u8..=255, 1 => any::<u8>(), 1 => 31u8..35, 1 => 127u8..130], 0..40),
        ) {
            let expected = bytes.iter().position(|&byte| byte <= b' ').unwrap_or(bytes.len());
            prop_assert_eq!(printed_len(&bytes), expected);
        }

        #[test]
        fn an_item_is_read_as_it_is_told(
            key in prop_oneof![8 => "[a-z]{0,9}", 1 => "[a-z]{249,252}", 1 => "[a-z]{0,3}[ \r\n][a-z]"],
            flags in prop_oneof![3 => Just("0".to_owned()), 3 => number_text()],
            unique in proptest::sample::select(vec!["", "", " 7", " 18446744073709551615", " 123456789012345678901", " ", " x"]),
            value in vec(any::<u8>(), 0..20),
            odd in prop_oneof![6 => Just(0usize), 1 => 1usize..3],
            line_end in prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r ")],
            behind in proptest::sample::select(vec!["", "END\r\n", "END\r", "END", "STORED\r\n", "VALUE a 0 0\r\n\r\n"]),
            cut in 0usize..80,
        ) {
            let head = format!("VALUE {key} {flags} {}{unique}{line_end}", value.len() + odd);
            let whole = [head.as_bytes(), &value, line_end.as_bytes(), behind.as_bytes()].concat();
            for buf in [&whole[..], &whole[..cut.min(whole.len())]] {
                let read = item(buf).map(|(it, next)| (it.key, it.flags, it.value, next));
                prop_assert_eq!(read, plain_item(buf, false));
                let len = plain_item(buf, true).map(|it| it.3);
                prop_assert_eq!(item_len(buf), len);
                let is_plain = (1..=KEY_LEN_MAX).contains(&key.len()) && !key.contains([' ', '\r', '\n']);
                if is_plain {
                    prop_assert_eq!(text_item_len(buf, key.as_bytes()), len);
                }
                // A key that continues, or is another one, does not match.
                if !buf.contains(&b'~') {
                    prop_assert_eq!(text_item_len(buf, b"~"), None);
                    prop_assert_eq!(text_item_len(buf, &whole), None);
                }
                let list = match plain_item(buf, false) {
                    Some((.., next)) if buf[next..].starts_with(b"END\r\n") => Some(next + 5),
                    _ => buf.starts_with(b"END\r\n").then_some(5),
                };
                prop_assert_eq!(reply_len(buf, Expect::List), list);
                prop_assert_eq!(reply_len(buf, Expect::One), None);
            }
            let none = reply_len(behind.as_bytes(), Expect::List);
            prop_assert_eq!(none, behind.starts_with("END\r\n").then_some(5));
            let one = reply_len(behind.as_bytes(), Expect::One);
            prop_assert_eq!(one, behind.starts_with("STORED\r\n").then_some(8));
            prop_assert_eq!(reply_len(behind.as_bytes(), Expect::UntilNoop), None);
        }
    }

    fn parsed(bytes: &[u8], limits: &ParseLimits) -> Option<(usize, usize)> {
        let mut request = Request::default();
        let len = parse(bytes, limits, &mut request);
        assert!(len.is_some() || request.keys.is_empty(), "what was not taken leaves nothing");
        assert_eq!(request.is_canonical, len.is_some());
        len.map(|len| (len, request.keys.len()))
    }

    #[test]
    fn bounds_of_keys_lines_and_values_are_the_limits() {
        let limits = ParseLimits { value_len_max: 3, keys_max: 2, keys_line_len_max: 2100 };
        for (bytes, expected) in [
            (&b"get a\r\n"[..], Some((7, 1))),
            (b"get a b\r\n", Some((9, 2))),
            (b"get a b c\r\n", None),
            (b"get a b", None),
            (b"get a", None),
            (b"get ", None),
            (b"get  a\r\n", None),
            (b"get a\n", None),
            (b"gets a\r\n", None),
            (b"set k 0 0 3\r\nabc\r\n", Some((18, 1))),
            (b"set k 0 0 4\r\nabcd\r\n", None),
            (b"set k 0 0 3\r\nabcd\r\n", None),
            (b"set k 0 0 3\r\nabc", None),
        ] {
            assert_eq!(parsed(bytes, &limits), expected, "{}", bytes.escape_ascii());
        }
        for (len, is_taken) in [(KEY_LEN_MAX, true), (KEY_LEN_MAX + 1, false)] {
            let line = format!("get {}\r\n", "k".repeat(len));
            assert_eq!(parsed(line.as_bytes(), &limits).is_some(), is_taken);
        }
        // A line may have the length of any line, and one of keys its own length.
        for (keys_line_len_max, len, is_taken) in
            [(0, 2048, true), (0, 2049, false), (2100, 2100, true), (2100, 2101, false)]
        {
            let limits = ParseLimits { keys_max: 20, keys_line_len_max, ..limits };
            let mut line = b"get".to_vec();
            while line.len() + 2 + 201 <= len - 2 {
                line.push(b' ');
                line.extend_from_slice(&[b'k'; 200]);
            }
            line.push(b' ');
            line.resize(len - 2, b'z');
            line.extend_from_slice(b"\r\n");
            assert_eq!(parsed(&line, &limits).is_some(), is_taken, "{keys_line_len_max} {len}");
        }
        let flags = |bytes: &[u8]| {
            let mut request = Request::default();
            parse(bytes, &limits, &mut request);
            (request.head.verb, request.head.flags, request.head.expiry, request.value)
        };
        let value = ByteRange::new(13, 15);
        assert_eq!(flags(b"set k 7 90 2\r\nab\r\n"), (Verb::Set, 7, 90, ByteRange::new(14, 16)));
        assert_eq!(flags(b"set k 7 9 2\r\nab\r\n"), (Verb::Set, 7, 9, value));
    }
}
