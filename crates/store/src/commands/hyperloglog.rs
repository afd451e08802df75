//! HyperLogLogs, which are strings.

use super::call::{Call, Fault, Outcome};
use crate::algorithms::hyperloglog::{self, Corrupted, REGISTERS, Raising, Registers};
use crate::entry::Entry;
use crate::items::Encoding;
use crate::store::{Locked, SILENT};
use keyway_base::KeyspaceEvents;
use keyway_resp::reply;

const NO_SKETCH: Fault = Fault::Text("WRONGTYPE Key is not a valid HyperLogLog string value.");

impl From<Corrupted> for Fault {
    fn from(_: Corrupted) -> Self {
        Fault::Text("INVALIDOBJ Corrupted HLL object detected")
    }
}

fn check(value: &[u8]) -> Outcome {
    if hyperloglog::is_one(value) { Ok(()) } else { Err(NO_SKETCH) }
}

/// One taken out of its key to be changed.
struct Sketch {
    value: Vec<u8>,
    expiry: Option<u64>,
    is_new: bool,
}

impl Sketch {
    fn of(entry: &mut Entry<'_>) -> Result<Self, Fault> {
        let Some(item) = entry.text()? else {
            return Ok(Self { value: hyperloglog::empty(), expiry: None, is_new: true });
        };
        check(item.value())?;
        Ok(Self { value: item.value().to_vec(), expiry: item.expiry(), is_new: false })
    }

    /// Puts it back, changed.
    fn store(mut self, entry: &mut Entry<'_>) {
        hyperloglog::forget_count(&mut self.value);
        entry.set(&self.value, Encoding::Raw, self.expiry);
    }
}

/// Adds elements to a dense one where it is.
fn add_to_dense(call: &Call<'_>, entry: &mut Entry<'_>, len: usize) -> Result<bool, Fault> {
    let changed = entry.change_value(len, |value| {
        let mut changed = false;
        for element in call.args_from(2, 1) {
            changed |= hyperloglog::raise_dense(value, hyperloglog::register_of(element));
        }
        if changed {
            hyperloglog::forget_count(value);
        }
        changed
    })?;
    Ok(changed)
}

/// Adds elements to a sparse one, or a new one.
fn add_to_sparse(call: &Call<'_>, entry: &mut Entry<'_>) -> Result<bool, Fault> {
    let mut sketch = Sketch::of(entry)?;
    let mut changed = sketch.is_new;
    let result = call.args_from(2, 1).try_for_each(|element| {
        changed |= hyperloglog::raise(&mut sketch.value, hyperloglog::register_of(element))?;
        Ok::<_, Corrupted>(())
    });
    if changed {
        sketch.store(entry);
    } else {
        // As in Redis, which makes it a string of its own.
        entry.change_value(sketch.value.len(), |_| ())?;
    }
    if result.is_err() && changed {
        // Elements before the fault are in, of which Redis tells nobody.
        entry.notify(SILENT, "pfadd");
    }
    result?;
    Ok(changed)
}

/// PFADD.
pub(super) fn pfadd(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let changed = call.with_key(|mut entry| {
        let dense_len = match entry.text()? {
            Some(item) => {
                check(item.value())?;
                hyperloglog::is_dense(item.value()).then_some(item.value().len())
            }
            None => None,
        };
        let changed = match dense_len {
            Some(len) => add_to_dense(call, &mut entry, len)?,
            None => add_to_sparse(call, &mut entry)?,
        };
        if changed {
            entry.notify(KeyspaceEvents::STRING, "pfadd");
        }
        Ok::<_, Fault>(changed)
    })?;
    reply::integer(out, i64::from(changed));
    Ok(())
}

/// PFCOUNT: of one key, the estimate is kept in it.
pub(super) fn pfcount(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let count = match call.args.len() {
        2 => call.with_key(count_one)?,
        _ => count_all(call)?,
    };
    reply::integer(out, count as i64);
    Ok(())
}

fn count_one(mut entry: Entry<'_>) -> Result<u64, Fault> {
    let Some(item) = entry.read_text()? else { return Ok(0) };
    let value = item.value();
    check(value)?;
    let len = value.len();
    let cached = hyperloglog::cached_count(value);
    let counted = cached.map_or_else(|| hyperloglog::count(value), Ok);
    entry.change_value(len, |value| {
        if let (None, Ok(count)) = (cached, counted) {
            hyperloglog::cache_count(value, count);
        }
    })?;
    if cached.is_none() && counted.is_ok() {
        entry.notify(SILENT, "pfcount");
    }
    Ok(counted?)
}

/// Reads the keys from argument 1 on; whether one is dense.
fn merge_all(
    call: &Call<'_>,
    locked: &mut Locked<'_>,
    registers: &mut Registers,
) -> Result<bool, Fault> {
    let mut is_dense = false;
    for key in call.args_from(1, 1) {
        let mut entry = locked.entry(call.turn, key);
        let Some(item) = entry.read_text()? else { continue };
        check(item.value())?;
        hyperloglog::merge(registers, item.value())?;
        is_dense |= hyperloglog::is_dense(item.value());
    }
    Ok(is_dense)
}

fn count_all(call: &Call<'_>) -> Result<u64, Fault> {
    let mut locked = call.store.lock_keys(call.args_from(1, 1));
    let mut registers = [0; REGISTERS];
    merge_all(call, &mut locked, &mut registers)?;
    Ok(hyperloglog::count_registers(&registers))
}

/// PFMERGE.
pub(super) fn pfmerge(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut locked = call.store.lock_keys(call.args_from(1, 1));
    let mut registers = [0; REGISTERS];
    let is_dense = merge_all(call, &mut locked, &mut registers)?;
    let mut target = locked.entry(call.turn, call.arg(1));
    let mut sketch = Sketch::of(&mut target)?;
    if is_dense {
        hyperloglog::make_dense(&mut sketch.value)?;
    }
    let mut raising = Raising::new(&mut sketch.value);
    for (index, rank) in registers.iter().enumerate().filter(|(_, rank)| **rank != 0) {
        raising.raise(index, *rank)?;
    }
    sketch.store(&mut target);
    target.notify(KeyspaceEvents::STRING, "pfadd");
    out.extend_from_slice(b"+OK\r\n");
    Ok(())
}
