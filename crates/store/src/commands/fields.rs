//! HEXPIRE, HTTL and their kin, HPERSIST, HGETEX, HSETEX and HGETDEL: as Redis
//! 8 has them, whose order of checks is kept.

use super::call::{Call, Fault, NOT_AN_INTEGER, Outcome};
use super::expire::{Base, Unit};
use crate::algorithms::number::parse_integer;
use crate::collections::hash::Hash;
use crate::collections::timed::TIME_MAX;
use crate::edits::hash::{self, Until};
use crate::entry::Editor;
use crate::items::Kind;
use keyway_base::KeyspaceEvents;
use keyway_resp::reply;

const NO_FIELDS: Fault =
    Fault::Text("ERR Mandatory argument FIELDS is missing or not at the right position");
const NOT_AS_MANY: Fault =
    Fault::Text("ERR The `numfields` parameter must match the number of arguments");
const NO_COUNT: Fault = Fault::Text("ERR Number of fields must be a positive integer");
const NEGATIVE_TIME: Fault = Fault::Text("ERR invalid expire time, must be >= 0");

/// The replies of HTTL, HPERSIST and HEXPIRE for a field.
const NO_FIELD: i64 = -2;
const NO_TIME: i64 = -1;
const REFUSED: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;

/// The fields named from FIELDS, which is argument `index`, to the end: where
/// the first one is.
fn fields_at(call: &Call<'_>, index: usize, no_count: Fault) -> Result<usize, Fault> {
    if !call.is(index, "fields") {
        return Err(NO_FIELDS);
    }
    let count = parse_integer(call.arg(index + 1)).filter(|count| *count > 0).ok_or(no_count)?;
    let first = index + 2;
    let given = call.args.len().saturating_sub(first);
    if usize::try_from(count) != Ok(given) {
        return Err(NOT_AS_MANY);
    }
    Ok(first)
}

/// The key must be a hash or missing, before anything else is looked at.
fn check_kind(call: &Call<'_>) -> Outcome {
    call.with_key(|mut entry| Ok(entry.look_at::<Hash<'_>>().map(drop)?))
}

/// A time as an argument tells it, in milliseconds since the epoch.
fn time(call: &Call<'_>, index: usize, base: Base, unit: Unit) -> Result<u64, Fault> {
    let count = parse_integer(call.arg(index)).ok_or(NOT_AN_INTEGER)?;
    let count = u64::try_from(count).map_err(|_| NEGATIVE_TIME)?;
    let factor = if unit == Unit::Seconds { 1000 } else { 1 };
    let from = if base == Base::Now { call.turn.now_millis } else { 0 };
    let time = count.checked_mul(factor).and_then(|millis| millis.checked_add(from));
    time.filter(|time| *time <= TIME_MAX).ok_or(Fault::ExpireTime)
}

/// When HEXPIRE may set what it is told to.
#[derive(Clone, Copy)]
enum Condition {
    None,
    IfNever,
    IfEver,
    IfLater,
    IfSooner,
}

impl Condition {
    fn parse(call: &Call<'_>, index: usize) -> Option<Self> {
        Some(match () {
            () if call.is(index, "nx") => Self::IfNever,
            () if call.is(index, "xx") => Self::IfEver,
            () if call.is(index, "gt") => Self::IfLater,
            () if call.is(index, "lt") => Self::IfSooner,
            () => return None,
        })
    }

    /// Never counts as the latest of all.
    fn allows(self, current: Option<u64>, wanted: u64) -> bool {
        match self {
            Self::None => true,
            Self::IfNever => current.is_none(),
            Self::IfEver => current.is_some(),
            Self::IfLater => current.is_some_and(|current| wanted > current),
            Self::IfSooner => current.is_none_or(|current| wanted < current),
        }
    }
}

/// When a field that is there expires.
fn time_of(editor: &mut Editor<'_, '_>, field: &[u8]) -> Option<Option<u64>> {
    let hash = editor.view::<Hash<'_>>()?;
    hash.get_timed(field).map(|(_, time)| time)
}

/// HEXPIRE, HPEXPIRE, HEXPIREAT and HPEXPIREAT.
pub(super) fn hexpire(call: &Call<'_>, base: Base, unit: Unit, out: &mut Vec<u8>) -> Outcome {
    check_kind(call)?;
    let wanted = time(call, 2, base, unit)?;
    let condition = Condition::parse(call, 3);
    let no_count = Fault::Text("ERR Parameter `numFields` should be greater than 0");
    let first = fields_at(call, 3 + usize::from(condition.is_some()), no_count)?;
    let condition = condition.unwrap_or(Condition::None);
    let has_passed = wanted <= call.turn.now_millis;
    let event = if has_passed { "hdel" } else { "hexpire" };
    reply::array(out, call.args.len() - first);
    call.with_key(|mut entry| {
        entry.edit(Kind::Hash, event, |editor| {
            for field in call.args_from(first, 1) {
                let answer = match time_of(editor, field) {
                    None => NO_FIELD,
                    Some(current) if !condition.allows(current, wanted) => REFUSED,
                    Some(_) if has_passed => {
                        hash::remove(editor, field);
                        DELETED
                    }
                    Some(_) => {
                        hash::set_time(editor, field, Some(wanted));
                        DONE
                    }
                };
                reply::integer(out, answer);
            }
        })
    })?;
    Ok(())
}

/// HTTL, HPTTL, HEXPIRETIME and HPEXPIRETIME.
pub(super) fn httl(call: &Call<'_>, base: Base, unit: Unit, out: &mut Vec<u8>) -> Outcome {
    call.with_key(|mut entry| {
        entry.read_only();
        let hash = entry.look_at::<Hash<'_>>()?;
        let first = fields_at(call, 2, NO_COUNT)?;
        reply::array(out, call.args.len() - first);
        for field in call.args_from(first, 1) {
            let answer = match hash.and_then(|hash| hash.get_timed(field)) {
                None => NO_FIELD,
                Some((_, None)) => NO_TIME,
                Some((_, Some(time))) => {
                    let from = if base == Base::Now { call.turn.now_millis } else { 0 };
                    let millis = time.saturating_sub(from);
                    (if unit == Unit::Seconds { millis.div_ceil(1000) } else { millis }) as i64
                }
            };
            reply::integer(out, answer);
        }
        Ok(())
    })
}

/// HPERSIST.
pub(super) fn hpersist(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    check_kind(call)?;
    let first = fields_at(call, 2, NO_COUNT)?;
    reply::array(out, call.args.len() - first);
    call.with_key(|mut entry| {
        entry.edit(Kind::Hash, "hpersist", |editor| {
            for field in call.args_from(first, 1) {
                let answer = match time_of(editor, field) {
                    None => NO_FIELD,
                    Some(None) => NO_TIME,
                    Some(Some(_)) => {
                        hash::set_time(editor, field, None);
                        DONE
                    }
                };
                reply::integer(out, answer);
            }
        })
    })?;
    Ok(())
}

/// The time that EX, PX, EXAT or PXAT in argument `index` tells with the next
/// one; `None` if it is none of these.
fn expiration(call: &Call<'_>, index: usize) -> Option<Result<u64, Fault>> {
    let (base, unit) = match () {
        () if call.is(index, "ex") => (Base::Now, Unit::Seconds),
        () if call.is(index, "px") => (Base::Now, Unit::Millis),
        () if call.is(index, "exat") => (Base::Epoch, Unit::Seconds),
        () if call.is(index, "pxat") => (Base::Epoch, Unit::Millis),
        () => return None,
    };
    Some(time(call, index + 1, base, unit))
}

fn write_value(call: &Call<'_>, editor: &mut Editor<'_, '_>, field: &[u8], out: &mut Vec<u8>) {
    match editor.view::<Hash<'_>>().and_then(|hash| hash.get(field)) {
        Some(value) => reply::bulk(out, value),
        None => call.turn.protocol.null(out),
    }
}

/// HGETEX.
pub(super) fn hgetex(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    check_kind(call)?;
    let (wanted, at) = match expiration(call, 2) {
        Some(time) => (Until::Time(time?), 4),
        None if call.is(2, "persist") => (Until::Ever, 3),
        None => (Until::Before, 2),
    };
    if call.args.len() < at + 2 {
        return Err(Fault::Text("ERR wrong number of arguments for 'hgetex' command"));
    }
    let first = fields_at(call, at, NO_COUNT)?;
    let event = match wanted {
        Until::Time(time) if time <= call.turn.now_millis => "hdel",
        Until::Time(_) => "hexpire",
        Until::Ever | Until::Before => "hpersist",
    };
    reply::array(out, call.args.len() - first);
    call.with_key(|mut entry| {
        entry.read();
        entry.edit(Kind::Hash, event, |editor| {
            for field in call.args_from(first, 1) {
                write_value(call, editor, field, out);
                match (wanted, time_of(editor, field)) {
                    (Until::Before, _) | (_, None) | (Until::Ever, Some(None)) => {}
                    (Until::Ever, Some(Some(_))) => hash::set_time(editor, field, None),
                    (Until::Time(_), Some(_)) if event == "hdel" => {
                        hash::remove(editor, field);
                    }
                    (Until::Time(time), Some(_)) => hash::set_time(editor, field, Some(time)),
                }
            }
        })
    })?;
    Ok(())
}

/// HGETDEL.
pub(super) fn hgetdel(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    check_kind(call)?;
    let first = fields_at(call, 2, NO_COUNT)?;
    reply::array(out, call.args.len() - first);
    call.with_key(|mut entry| {
        entry.read();
        entry.edit(Kind::Hash, "hdel", |editor| {
            for field in call.args_from(first, 1) {
                write_value(call, editor, field, out);
                hash::remove(editor, field);
            }
        })
    })?;
    Ok(())
}

/// The arguments of HSETEX.
struct Setting {
    /// Only if all fields are there, or none is.
    only_if: Option<bool>,
    until: Until,
    /// Where the first field is.
    first: usize,
}

impl Setting {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        const WRONG_NUMBER: Fault =
            Fault::Text("ERR wrong number of arguments for 'hsetex' command");
        let (mut only_if, mut until, mut index) = (None, None, 2);
        while index < call.args.len() {
            let condition = match () {
                () if call.is(index, "fxx") => Some(true),
                () if call.is(index, "fnx") => Some(false),
                () => None,
            };
            let keeps = call.is(index, "keepttl");
            let takes_time = ["ex", "px", "exat", "pxat"].iter().any(|word| call.is(index, word));
            if condition.is_some() {
                if only_if.is_some() {
                    return Err(Fault::Text(
                        "ERR Only one of FXX or FNX arguments can be specified",
                    ));
                }
                only_if = condition;
            } else if keeps || takes_time {
                if until.is_some() {
                    return Err(Fault::Text(
                        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
                    ));
                }
                until = Some(match expiration(call, index) {
                    Some(time) => Until::Time(time?),
                    None => Until::Before,
                });
                index += usize::from(takes_time);
            } else if call.is(index, "fields") && index + 1 < call.args.len() {
                let count = parse_integer(call.arg(index + 1))
                    .filter(|count| (1..=i64::from(i32::MAX)).contains(count))
                    .ok_or(Fault::Text("ERR invalid number of fields"))?;
                let first = index + 2;
                if call.args.len() - first != 2 * count as usize {
                    return Err(WRONG_NUMBER);
                }
                return Ok(Self { only_if, until: until.unwrap_or(Until::Ever), first });
            } else if call.is(index, "fields") {
                break;
            } else {
                let word = call.arg(index);
                return Err(Fault::Line([b"ERR unknown argument: ", word].concat()));
            }
            index += 1;
        }
        Err(WRONG_NUMBER)
    }
}

/// HSETEX.
pub(super) fn hsetex(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let Setting { only_if, until, first } = Setting::parse(call)?;
    let fields = || call.args_from(first, 2);
    let has_passed = matches!(until, Until::Time(time) if time <= call.turn.now_millis);
    let done = call.with_key(|mut entry| {
        if let Some(wanted) = only_if {
            let hash = entry.look_at::<Hash<'_>>()?;
            let is_there = |field: &[u8]| hash.is_some_and(|hash| hash.get(field).is_some());
            if fields().any(|field| is_there(field) != wanted) {
                return Ok::<_, Fault>(false);
            }
        }
        let until = if has_passed { Until::Ever } else { until };
        entry.edit(Kind::Hash, "hset", |editor| {
            fields().zip(call.args_from(first + 1, 2)).for_each(|(field, value)| {
                hash::set(editor, field, value, until);
            });
        })?;
        if has_passed {
            entry.edit(Kind::Hash, "hdel", |editor| {
                fields().for_each(|field| _ = hash::remove(editor, field));
            })?;
        } else if matches!(until, Until::Time(_)) {
            entry.notify(KeyspaceEvents::HASH, "hexpire");
        }
        Ok(true)
    })?;
    reply::integer(out, i64::from(done));
    Ok(())
}
