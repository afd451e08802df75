//! The number of bytes that Redis 7.0 would use for a block. Redis ends a block at a number of
//! bytes, and its approximate trimming removes whole blocks.

use crate::algorithms::number::parse_integer;

/// Bytes of a block around the names and their number.
const FRAME_LEN: usize = 13;
/// Bytes of an entry's marks.
const MARKS_LEN: usize = 2;

/// Bytes for an integer.
fn integer_len(value: i64) -> usize {
    1 + match value {
        0..=127 => 1,
        -4096..=4095 => 2,
        -0x8000..=0x7fff => 3,
        -0x80_0000..=0x7f_ffff => 4,
        -0x8000_0000..=0x7fff_ffff => 5,
        _ => 9,
    }
}

/// Bytes for a string.
fn text_len(text: &[u8]) -> usize {
    if let Some(value) = parse_integer(text) {
        return integer_len(value);
    }
    let len = match text.len() {
        len @ ..64 => 1 + len,
        len @ 64..4096 => 2 + len,
        len => 5 + len,
    };
    // The length again, to be read from behind.
    len + match len {
        ..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Bytes of a new block with these field names.
pub(crate) fn of_block<'a>(names: impl Iterator<Item = &'a [u8]>) -> usize {
    let (mut count, mut len) = (0, 0);
    for name in names {
        count += 1;
        len += text_len(name);
    }
    FRAME_LEN + integer_len(count) + len
}

/// Bytes of an entry whose id differs from its block's by `delta`; `same` says
/// that it has the block's field names.
pub(crate) fn of_entry<'a>(
    delta: (i64, i64),
    same: bool,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> usize {
    let (mut count, mut len) = (0, 0);
    for (name, value) in pairs {
        count += 1;
        len += text_len(value) + if same { 0 } else { text_len(name) };
    }
    let (elements, count_len) =
        if same { (3 + count, 0) } else { (4 + 2 * count, integer_len(count)) };
    MARKS_LEN
        + integer_len(delta.0)
        + integer_len(delta.1)
        + count_len
        + len
        + integer_len(elements)
}
