//! The commonest requests and replies, each read in one pass: `get` of one key, a `set` that
//! is answered, and what a server says to these. All else is left to [`crate::text`] and
//! [`crate::reply_text`], which read these too, and alike: a law of the tests.

use crate::outcome::Item;
use crate::{Asked, Expect, KEY_LEN_MAX, ParseLimits, Request, Verb};
use keyway_base::ByteRange;

/// Most digits of a number that is read here.
const DIGITS_MAX: usize = 10;

/// Reads a request that is said as [`crate::compose_request`] would say it; how
/// long it is. `None` for any other; `request` is as it was then.
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
    request.head.asked = Asked::VALUE.with(Asked::FLAGS).with(Asked::KEY);
    request.is_canonical = true;
    next
}

/// Whether a line of this length is taken, whatever it says.
#[inline(always)]
fn fits(len: usize, limits: &ParseLimits) -> bool {
    len <= ParseLimits::LINE_LEN_MAX || len <= limits.keys_line_len_max as usize
}

/// Reads the keys behind the first, each behind one blank; where the last one ends.
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

/// How long the reply at the start of `buf` is, if it is a usual one and whole.
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

/// What stands behind the key of most items.
const NO_FLAGS: &[u8] = b" 0 ";

/// How long the item at the start of `buf` is, if it is told as usual and whole.
#[inline(always)]
pub(crate) fn item_len(buf: &[u8]) -> Option<usize> {
    if !buf.starts_with(VALUE) {
        return None;
    }
    value_end(buf, key_end(buf, VALUE.len())?)
}

/// How long the item of `key` is that a classic reply goes on with; `None` where it goes on with
/// anything else, or is told in an unusual way. The key is one that a line can carry.
#[inline]
pub fn text_item_len(reply: &[u8], key: &[u8]) -> Option<usize> {
    let rest = reply.strip_prefix(VALUE)?;
    let is_named = rest.len() > key.len() && rest[..key.len()] == *key;
    if !is_named { None } else { value_end(reply, VALUE.len() + key.len()) }
}

/// Where an item ends whose key ends at `key_end`.
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

/// Where the line ends whose last number, that of the value, begins at `start`.
#[inline(never)]
fn unique_end(buf: &[u8], start: usize) -> Option<usize> {
    const UNIQUE_DIGITS_MAX: usize = 20;
    let digits = buf[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_one = (1..=UNIQUE_DIGITS_MAX).contains(&digits);
    if is_one { line_end(buf, start + digits) } else { None }
}

/// The item at the start of `buf`, if it is told as usual and whole, and how
/// long it is.
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

/// Where the key ends that begins at `start`: at a blank or a control
/// character. `None` when there is none, or one too long.
#[inline(always)]
fn key_end(buf: &[u8], start: usize) -> Option<usize> {
    let end = start + printed_len(&buf[start..]);
    (end > start && end - start <= KEY_LEN_MAX && end < buf.len()).then_some(end)
}

/// How many bytes at the start are above a blank.
#[inline(always)]
pub(crate) fn printed_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let mut len = 0;
    // Of eight bytes at a time the first that is no more than a blank: taking
    // away one more than that borrows from its top bit.
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

/// The number behind the blank at `blank`, as it is written by machines, and
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

/// The number of one to seven digits that the first of eight bytes are, and how many, if it is
/// written by a machine.
#[inline(always)]
fn number_of_eight(eight: u64) -> Option<(u32, usize)> {
    const ONES: u64 = u64::MAX / 255;
    const PAIRS: u64 = 0x0000_00ff_0000_00ff;
    let figures = eight ^ (ONES * u64::from(b'0'));
    // The lowest byte that is no figure passes 0x7f here; what it carries is above it.
    let others = (figures.wrapping_add(ONES * 0x76) | figures) & (ONES * 0x80);
    let digits = (others.trailing_zeros() / 8) as usize;
    let is_padded = figures & 0xff == 0 && digits > 1;
    if digits == 0 || digits == 8 || is_padded {
        return None;
    }
    // Leading zeros, and then neighbours together: of ten, of a hundred, of ten thousand.
    let figures = figures << (64 - 8 * digits);
    let tens = figures.wrapping_mul(10).wrapping_add(figures >> 8);
    let high = (tens & PAIRS).wrapping_mul(100 + (1_000_000 << 32));
    let low = ((tens >> 16) & PAIRS).wrapping_mul(1 + (10_000 << 32));
    Some(((high.wrapping_add(low) >> 32) as u32, digits))
}

/// The number at `start`, whatever follows it.
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
    // What fits 32 bits with a sign means the same to every reader.
    let value = i32::try_from(value).ok()? as u32;
    (end > start && !is_padded).then_some((value, end))
}

/// Where the next line begins, if one ends at `at`.
#[inline(always)]
fn line_end(buf: &[u8], at: usize) -> Option<usize> {
    (buf.get(at..at + 2)? == b"\r\n").then_some(at + 2)
}
