//! BITFIELD and BITFIELD_RO: a string as an array of integers of any width.

use super::bit::parse_offset;
use super::call::{Call, Fault, Outcome, SYNTAX};
use crate::algorithms::number::parse_integer;
use keyway_base::KeyspaceEvents;
use keyway_resp::reply;
use smallvec::SmallVec;

const BAD_TYPE: Fault = Fault::Text(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
);

/// The handling of a sum that does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// One step of the command.
#[derive(Clone, Copy)]
struct Step {
    action: Action,
    overflow: Overflow,
    field: Field,
}

/// An integer within a string.
#[derive(Clone, Copy)]
struct Field {
    signed: bool,
    /// 1 to 64, 63 when unsigned.
    bits: u32,
    /// Of its first bit.
    offset: u64,
}

impl Field {
    fn parse(kind: &[u8], offset: &[u8]) -> Result<Self, Fault> {
        let (signed, bits) = match kind {
            [b'i', bits @ ..] => (true, bits),
            [b'u', bits @ ..] => (false, bits),
            _ => return Err(BAD_TYPE),
        };
        let bits_max = if signed { 64 } else { 63 };
        let bits = parse_integer(bits).filter(|bits| (1..=bits_max).contains(bits));
        let bits = bits.ok_or(BAD_TYPE)?;
        let offset = match offset {
            [b'#', index @ ..] => parse_offset(index, bits)?,
            offset => parse_offset(offset, 1)?,
        };
        Ok(Self { signed, bits: bits as u32, offset })
    }

    /// One past the last byte it touches.
    fn end_byte(self) -> usize {
        ((self.offset + u64::from(self.bits) - 1) / 8 + 1) as usize
    }

    fn bytes(self) -> std::ops::Range<usize> {
        (self.offset / 8) as usize..self.end_byte()
    }

    /// Returns the number of bits between its last bit and the end of its last byte.
    fn shift(self) -> u32 {
        (self.end_byte() as u64 * 8 - self.offset) as u32 - self.bits
    }

    fn mask(self) -> u128 {
        (1 << self.bits) - 1
    }

    /// Its value; bytes that `value` does not have are zero.
    fn get(self, value: &[u8]) -> i64 {
        let word = self
            .bytes()
            .fold(0u128, |word, at| word << 8 | u128::from(value.get(at).copied().unwrap_or(0)));
        self.extend(word >> self.shift() & self.mask())
    }

    /// Sets it in `value`, which has all its bytes.
    fn set(self, value: &mut [u8], number: i64) {
        let bytes = &mut value[self.bytes()];
        let mut word = bytes.iter().fold(0u128, |word, byte| word << 8 | u128::from(*byte));
        word &= !(self.mask() << self.shift());
        word |= (number as u128 & self.mask()) << self.shift();
        for byte in bytes.iter_mut().rev() {
            *byte = word as u8;
            word >>= 8;
        }
    }

    /// The number that the low bits of `word` are.
    fn extend(self, word: u128) -> i64 {
        let word = word & self.mask();
        let negative = self.signed && word >> (self.bits - 1) != 0;
        if negative { (word | !self.mask()) as i64 } else { word as i64 }
    }

    /// The smallest and largest number it can be.
    fn range(self) -> (i128, i128) {
        if self.signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// `number` made to fit; `None` when that fails.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = self.range();
        if (least..=most).contains(&number) {
            return Some(number as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.extend(number as u128)),
            Overflow::Saturate => Some(number.clamp(least, most) as i64),
            Overflow::Fail => None,
        }
    }
}

fn parse_steps(call: &Call<'_>) -> Result<SmallVec<[Step; 4]>, Fault> {
    let mut steps = SmallVec::new();
    let mut overflow = Overflow::Wrap;
    let mut index = 2;
    while index < call.args.len() {
        let left = call.args.len() - index - 1;
        let takes_number = match () {
            () if call.is(index, "get") && left >= 2 => false,
            () if call.is(index, "set") && left >= 3 => true,
            () if call.is(index, "incrby") && left >= 3 => true,
            () if call.is(index, "overflow") && left >= 1 => {
                overflow = match () {
                    () if call.is(index + 1, "wrap") => Overflow::Wrap,
                    () if call.is(index + 1, "sat") => Overflow::Saturate,
                    () if call.is(index + 1, "fail") => Overflow::Fail,
                    () => return Err(Fault::Text("ERR Invalid OVERFLOW type specified")),
                };
                index += 2;
                continue;
            }
            () => return Err(SYNTAX),
        };
        let field = Field::parse(call.arg(index + 1), call.arg(index + 2))?;
        let action = match takes_number {
            false => Action::Get,
            true if call.is(index, "set") => Action::Set(call.integer(index + 3)?),
            true => Action::Add(call.integer(index + 3)?),
        };
        steps.push(Step { action, overflow, field });
        index += if takes_number { 4 } else { 3 };
    }
    Ok(steps)
}

/// BITFIELD and, with `read_only`, BITFIELD_RO.
pub(super) fn bitfield(call: &Call<'_>, read_only: bool, out: &mut Vec<u8>) -> Outcome {
    let steps = parse_steps(call)?;
    let writes = steps.iter().filter(|step| step.action != Action::Get);
    let Some(end) = writes.map(|step| step.field.end_byte()).max() else {
        return call.with_key(|mut entry| {
            let value = entry.read_text()?.map_or(&b""[..], |item| item.value());
            reply::array(out, steps.len());
            steps.iter().for_each(|step| reply::integer(out, step.field.get(value)));
            Ok(())
        });
    };
    if read_only {
        return Err(Fault::Text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let _room = call.reserve_room_for(end as u64)?;
    call.with_key(|mut entry| {
        let len = entry.text()?.map_or(0, |item| item.value().len());
        let changes = entry.change_value(len.max(end), |value| {
            reply::array(out, steps.len());
            steps.iter().filter(|step| run(call, step, value, out)).count()
        })?;
        if changes > 0 || len < end {
            entry.notify(KeyspaceEvents::STRING, "setbit");
        }
        Ok(())
    })
}

/// Takes a step and appends its reply; whether that changed the value.
fn run(call: &Call<'_>, step: &Step, value: &mut [u8], out: &mut Vec<u8>) -> bool {
    let Step { action, overflow, field } = *step;
    let old = field.get(value);
    let wanted = match action {
        Action::Get => {
            reply::integer(out, old);
            return false;
        }
        // A negative number is a huge one to an unsigned field.
        Action::Set(number) if field.signed => i128::from(number),
        Action::Set(number) => i128::from(number as u64),
        Action::Add(by) => i128::from(old) + i128::from(by),
    };
    match field.fit(wanted, overflow) {
        Some(new) => {
            field.set(value, new);
            reply::integer(out, if matches!(action, Action::Set(_)) { old } else { new });
            new != old
        }
        None => {
            call.turn.protocol.null(out);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_field_reads_back_and_touches_nothing_else(
            signed: bool,
            bits in 1..=63u32,
            offset in 0..100u64,
            number: i64,
            mut value in proptest::collection::vec(any::<u8>(), 30),
        ) {
            let field = Field { signed, bits, offset };
            let before = value.clone();
            let wrapped = field.fit(i128::from(number), Overflow::Wrap);
            field.set(&mut value, number);
            prop_assert_eq!(Some(field.get(&value)), wrapped);
            for at in (0..240).filter(|at| !(offset..offset + u64::from(bits)).contains(at)) {
                let one = Field { signed: false, bits: 1, offset: at };
                prop_assert_eq!(one.get(&value), one.get(&before));
            }
        }
    }
}
