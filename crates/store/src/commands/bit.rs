//! Strings as rows of bits, the first the highest of the first byte.

use super::call::{Call, Fault, Outcome, SYNTAX};
use crate::algorithms::number::parse_integer;
use crate::items::{Encoding, STRING_LEN_MAX};
use keyway_base::KeyspaceEvents;
use keyway_resp::reply;
use std::ops::RangeInclusive;

const BAD_OFFSET: Fault = Fault::Text("ERR bit offset is not an integer or out of range");
const BAD_BIT: Fault = Fault::Text("ERR bit is not an integer or out of range");

/// `text` as the offset of a bit that a string can have.
pub(super) fn parse_offset(text: &[u8], factor: i64) -> Result<u64, Fault> {
    let offset = parse_integer(text).and_then(|offset| offset.checked_mul(factor));
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| offset >> 3 < STRING_LEN_MAX).ok_or(BAD_OFFSET)
}

/// The byte that `offset` is in, and the bit's mask there.
fn byte_and_mask(offset: u64) -> (usize, u8) {
    ((offset >> 3) as usize, 0x80 >> (offset & 7))
}

/// GETBIT.
pub(super) fn getbit(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (byte, mask) = byte_and_mask(parse_offset(call.arg(2), 1)?);
    let set = call.with_key(|mut entry| {
        let item = entry.read_text()?;
        let byte = item.and_then(|item| item.value().get(byte).copied());
        Ok::<_, Fault>(byte.is_some_and(|byte| byte & mask != 0))
    })?;
    reply::integer(out, i64::from(set));
    Ok(())
}

/// SETBIT.
pub(super) fn setbit(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (byte, mask) = byte_and_mask(parse_offset(call.arg(2), 1)?);
    let on = match parse_integer(call.arg(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(BAD_BIT),
    };
    let _room = call.reserve_room_for(byte as u64 + 1)?;
    let was = call.with_key(|mut entry| {
        let len = entry.text()?.map_or(0, |item| item.value().len());
        let was = entry.change_value(len.max(byte + 1), |value| {
            let was = value[byte] & mask != 0;
            value[byte] = value[byte] & !mask | if on { mask } else { 0 };
            was
        })?;
        if was != on || len <= byte {
            entry.notify(KeyspaceEvents::STRING, "setbit");
        }
        Ok::<_, Fault>(was)
    })?;
    reply::integer(out, i64::from(was));
    Ok(())
}

/// Returns whether the argument at `index` says that ranges count bits, not bytes.
fn counts_bits(call: &Call<'_>, index: usize) -> Result<bool, Fault> {
    match () {
        () if index >= call.args.len() || call.is(index, "byte") => Ok(false),
        () if call.is(index, "bit") => Ok(true),
        () => Err(SYNTAX),
    }
}

/// The bits from `start` to `end`, counted from the end when negative and
/// clipped to the `len` bytes there are; `None` when there are none.
fn bit_range(start: i64, end: i64, bits: bool, len: usize) -> Option<RangeInclusive<u64>> {
    let len = if bits { len as i64 * 8 } else { len as i64 };
    let from_end = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if start > end {
        return None;
    }
    let (start, end) = (start as u64, end as u64);
    Some(if bits { start..=end } else { start * 8..=end * 8 + 7 })
}

/// BITCOUNT. A missing key is answered before the range is looked at.
pub(super) fn bitcount(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let count = call.with_key(|mut entry| {
        let Some(item) = entry.read_text()? else { return Ok(0) };
        let value = item.value();
        let range = match call.args.len() {
            2 => bit_range(0, -1, false, value.len()),
            4 | 5 => {
                let (start, end) = (call.integer(2)?, call.integer(3)?);
                if start < 0 && end < 0 && start > end {
                    return Ok(0);
                }
                bit_range(start, end, counts_bits(call, 4)?, value.len())
            }
            _ => return Err(SYNTAX),
        };
        Ok(range.map_or(0, |range| count_ones(value, range)))
    })?;
    reply::integer(out, count as i64);
    Ok(())
}

/// The bytes that `range` touches, and what of the first and the last of them
/// is outside of it.
fn edges(range: &RangeInclusive<u64>) -> (RangeInclusive<usize>, u8, u8) {
    let (start, end) = (*range.start(), *range.end());
    let before = !(0xff >> (start & 7));
    let behind = 0x7f >> (end & 7);
    ((start >> 3) as usize..=(end >> 3) as usize, before, behind)
}

fn count_ones(value: &[u8], range: RangeInclusive<u64>) -> u64 {
    let (bytes, before, behind) = edges(&range);
    let outside =
        (value[*bytes.start()] & before).count_ones() + (value[*bytes.end()] & behind).count_ones();
    let inside: u64 = value[bytes].iter().map(|byte| u64::from(byte.count_ones())).sum();
    inside - u64::from(outside)
}

/// BITPOS.
pub(super) fn bitpos(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let bit = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(Fault::Text("ERR The bit argument must be 1 or 0.")),
    };
    let position = call.with_key(|mut entry| {
        // A missing string is an endless row of zeros.
        let Some(item) = entry.read_text()? else { return Ok(if bit { -1 } else { 0 }) };
        let value = item.value();
        let (start, end, bits) = match call.args.len() {
            3 => (0, -1, false),
            4 => (call.integer(3)?, -1, false),
            5 | 6 => {
                let start = call.integer(3)?;
                let bits = counts_bits(call, 5)?;
                (start, call.integer(4)?, bits)
            }
            _ => return Err(SYNTAX),
        };
        let Some(range) = bit_range(start, end, bits, value.len()) else { return Ok(-1) };
        Ok(match find_bit(value, bit, range) {
            Some(position) => position as i64,
            // Without an end, the zeros behind the string count.
            None if !bit && call.args.len() < 5 => value.len() as i64 * 8,
            None => -1,
        })
    })?;
    reply::integer(out, position);
    Ok(())
}

fn find_bit(value: &[u8], bit: bool, range: RangeInclusive<u64>) -> Option<u64> {
    let (bytes, before, behind) = edges(&range);
    // From here on, find a one among bytes in which what is outside is zero.
    let flip = if bit { 0 } else { 0xff };
    let (first, last) = (*bytes.start(), *bytes.end());
    let inside = |at: usize| {
        let mut byte = value[at] ^ flip;
        byte &= if at == first { !before } else { 0xff };
        byte & if at == last { !behind } else { 0xff }
    };
    let at = if inside(first) != 0 {
        first
    } else {
        let middle = value.get(first + 1..last).unwrap_or_default();
        let found = middle.iter().position(|byte| byte ^ flip != 0);
        found.map_or(last, |skipped| first + 1 + skipped)
    };
    let byte = inside(at);
    (byte != 0).then(|| at as u64 * 8 + u64::from(byte.leading_zeros()))
}

/// BITOP.
pub(super) fn bitop(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let combine: fn(u8, u8) -> u8 = match () {
        () if call.is(1, "and") => |one, other| one & other,
        () if call.is(1, "or") => |one, other| one | other,
        () if call.is(1, "xor") => |one, other| one ^ other,
        () if call.is(1, "not") => |one, _| !one,
        () => return Err(SYNTAX),
    };
    let negates = call.is(1, "not");
    if negates && call.args.len() != 4 {
        return Err(Fault::Text("ERR BITOP NOT must be called with a single source key."));
    }
    let sources = call.args_from(3, 1);
    let mut locked = call.store.lock_keys(call.args_from(2, 1));
    let mut result: Vec<u8> = Vec::new();
    let mut len = 0;
    for key in sources.clone() {
        let mut entry = locked.entry(call.turn, key);
        len = len.max(entry.text()?.map_or(0, |item| item.value().len()));
    }
    for (index, key) in sources.enumerate() {
        let mut entry = locked.entry(call.turn, key);
        let value = entry.read_text()?.map_or(&b""[..], |item| item.value());
        if index == 0 {
            result.extend_from_slice(value);
            result.resize(len, 0);
        } else {
            let (head, tail) = result.split_at_mut(value.len());
            head.iter_mut().zip(value).for_each(|(one, other)| *one = combine(*one, *other));
            tail.iter_mut().for_each(|one| *one = combine(*one, 0));
        }
    }
    if negates {
        result.iter_mut().for_each(|byte| *byte = combine(*byte, 0));
    }
    let _room = call.reserve_for_made(&mut locked, call.arg(2), len)?;
    let mut target = locked.entry(call.turn, call.arg(2));
    if len == 0 {
        if target.remove() {
            target.notify(KeyspaceEvents::GENERIC, "del");
        }
    } else {
        target.set(&result, Encoding::Raw, None);
        target.notify(KeyspaceEvents::STRING, "set");
    }
    reply::integer(out, len as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bit_at(value: &[u8], offset: u64) -> bool {
        value[(offset >> 3) as usize] & (0x80 >> (offset & 7)) != 0
    }

    proptest! {
        #[test]
        fn counting_and_finding_agree_with_looking_at_each_bit(
            value in proptest::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 1..40),
            ends: (u64, u64),
        ) {
            let len = value.len() as u64 * 8;
            let (one, other) = (ends.0 % len, ends.1 % len);
            let range = one.min(other)..=one.max(other);
            let ones = range.clone().filter(|offset| bit_at(&value, *offset)).count() as u64;
            prop_assert_eq!(count_ones(&value, range.clone()), ones);
            for bit in [false, true] {
                let first = range.clone().find(|offset| bit_at(&value, *offset) == bit);
                prop_assert_eq!(find_bit(&value, bit, range.clone()), first);
            }
        }
    }
}
