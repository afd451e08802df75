//! DUMP and RESTORE.

use super::call::{Call, Fault, NOT_AN_INTEGER, Outcome, SYNTAX};
use crate::algorithms::number::parse_integer;
use crate::dump::{self, Refusal, Value};
use crate::edits::fill;
use crate::entry::Entry;
use crate::items::{ACCESS_MASK, Encoding};
use crate::store::OUT_OF_MEMORY;
use keyway_base::KeyspaceEvents;
use keyway_rdb::payload;
use keyway_resp::reply;

const BUSY_KEY: Fault = Fault::Text("BUSYKEY Target key name already exists.");

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Form => Fault::Text("ERR Bad data format"),
            Refusal::Room => Fault::Text(OUT_OF_MEMORY),
        }
    }
}

/// DUMP.
pub(super) fn dump(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut dumped = Vec::new();
    let found = call.with_key(|mut entry| {
        entry.read_only();
        let found = entry.look_closely();
        found.map(|(item, means)| dump::write(item, means, &mut dumped)).is_some()
    });
    if found {
        payload::seal(&mut dumped);
        reply::bulk(out, &dumped);
    } else {
        call.turn.protocol.null(out);
    }
    Ok(())
}

/// The options of RESTORE.
#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        let mut options = Self::default();
        let mut index = 4;
        while index < call.args.len() {
            let takes_more = index + 1 < call.args.len();
            if call.is(index, "replace") {
                options.replace = true;
            } else if call.is(index, "absttl") {
                options.absolute = true;
            } else if call.is(index, "idletime") && takes_more && options.frequency.is_none() {
                index += 1;
                let seconds = u64::try_from(call.integer(index)?);
                let fault = Fault::Text("ERR Invalid IDLETIME value, must be >= 0");
                options.idle_seconds = Some(seconds.map_err(|_| fault)?);
            } else if call.is(index, "freq") && takes_more && options.idle_seconds.is_none() {
                index += 1;
                let frequency = u8::try_from(call.integer(index)?);
                let fault = Fault::Text("ERR Invalid FREQ value, must be >= 0 and <= 255");
                options.frequency = Some(frequency.map_err(|_| fault)?);
            } else {
                return Err(SYNTAX);
            }
            index += 1;
        }
        Ok(options)
    }
}

/// When the key is to expire.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expiry {
    Never,
    At(u64),
    /// It has already.
    Past,
}

impl Expiry {
    fn parse(call: &Call<'_>, absolute: bool) -> Result<Self, Fault> {
        let millis = parse_integer(call.arg(2)).ok_or(NOT_AN_INTEGER)?;
        let millis = u64::try_from(millis)
            .map_err(|_| Fault::Text("ERR Invalid TTL value, must be >= 0"))?;
        if millis == 0 {
            return Ok(Self::Never);
        }
        let now = call.turn.now_millis;
        let at = if absolute { millis } else { millis + now };
        // A time that Redis cannot count to has passed, as it sees it.
        Ok(if at <= now || i64::try_from(at).is_err() { Self::Past } else { Self::At(at) })
    }
}

/// RESTORE. The payload is read while nothing is locked.
pub(super) fn restore(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let options = Options::parse(call)?;
    let is_taken = |entry: &Entry<'_>| !options.replace && entry.exists();
    if call.with_key(|entry| is_taken(&entry)) {
        return Err(BUSY_KEY);
    }
    let expiry = Expiry::parse(call, options.absolute)?;
    let (bytes, version) = payload::open(call.arg(3))
        .ok_or(Fault::Text("ERR DUMP payload version or checksum are wrong"))?;
    let room = match call.store.config().memory_max {
        0 => usize::MAX,
        bound => usize::try_from(bound).unwrap_or(usize::MAX),
    };
    let value = dump::read(bytes, version, room, &|text| call.store.hash(text))?;
    let len = if expiry == Expiry::Past { 0 } else { value.bytes_len() };
    let _room = call.reserve_room_for(len as u64)?;
    let now = call.turn.now_millis;
    call.with_key(|mut entry| {
        if is_taken(&entry) {
            return Err(BUSY_KEY);
        }
        let replaces = entry.exists();
        match expiry {
            Expiry::Past => _ = entry.remove(),
            Expiry::Never => put(&mut entry, value, None, now),
            Expiry::At(millis) => put(&mut entry, value, Some(millis), now),
        }
        // An item that has expired, or whose fields have all expired, is not there.
        if !entry.exists() {
            if replaces {
                entry.notify(KeyspaceEvents::GENERIC, "del");
            }
            return Ok(());
        }
        note_use(call, &mut entry, &options);
        entry.notify(KeyspaceEvents::GENERIC, "restore");
        Ok(())
    })?;
    out.extend_from_slice(b"+OK\r\n");
    Ok(())
}

/// Puts a value into the place of whatever is there.
fn put(entry: &mut Entry<'_>, value: Value<'_>, expiry: Option<u64>, now_millis: u64) {
    if let Value::Text(text) = &value {
        return entry.set(text, Encoding::Text, expiry);
    }
    entry.rebuild(|editor| fill::fill(editor, value, now_millis));
    entry.set_expiry(expiry);
}

/// Notes how the key was used before: its frequency if the policy goes by that, else its idle time.
fn note_use(call: &Call<'_>, entry: &mut Entry<'_>, options: &Options) {
    if call.store.policy().is_lfu() {
        if let Some(frequency) = options.frequency {
            entry.set_frequency(frequency);
        }
    } else if let Some(seconds) = options.idle_seconds {
        let idle = seconds.min(ACCESS_MASK.into()) as u32;
        entry.set_access(((call.turn.now_millis / 1000) as u32).wrapping_sub(idle));
    }
}
