//! XCLAIM and XAUTOCLAIM.

use super::{counted, no_group, parse_end, parse_id, write_entry, write_id};
use crate::algorithms::number::parse_integer;
use crate::collections::stream::block::Entry;
use crate::collections::stream::group::{ConsumerIndex, Delivery, Group};
use crate::collections::stream::id::Id;
use crate::collections::stream::{Log, Stream};
use crate::commands::call::{Call, Fault, Outcome, SYNTAX};
use crate::edits::stream;
use crate::entry;
use crate::items::Kind;
use crate::store::Mode;
use keyway_resp::reply;

/// Deliveries that XAUTOCLAIM looks at for each one that it may claim.
const ATTEMPTS_PER_ENTRY: u64 = 10;
/// Entries that it claims unless told otherwise.
const COUNT_DEFAULT: u64 = 100;
/// Most that it can be told.
const COUNT_MAX: i64 = i64::MAX / 16;

/// A claim of deliveries by a consumer.
struct Claim<'a> {
    call: Call<'a>,
    /// Milliseconds for which a delivery must have been idle.
    idle_min: u64,
    /// When it is to count as delivered.
    millis: u64,
    /// The number of deliveries that is set. `None` if one is added.
    count: Option<u64>,
    /// Only ids are answered with, and do not count as delivered.
    just_ids: bool,
    /// Found when the first delivery is claimed.
    consumer: Option<ConsumerIndex>,
    is_new: bool,
}

impl<'a> Claim<'a> {
    fn new(call: &Call<'a>, idle_min: u64) -> Self {
        Self {
            call: *call,
            idle_min,
            millis: call.turn.now_millis,
            count: None,
            just_ids: false,
            consumer: None,
            is_new: false,
        }
    }

    /// Takes a delivery over and answers with it, unless its consumer may
    /// still be at it; `is_forced` says that there was none before.
    fn take(
        &mut self,
        group: &mut Group,
        delivery: Delivery,
        is_forced: bool,
        entry: &Entry<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let now_millis = self.call.turn.now_millis;
        if !is_forced && delivery.idle(now_millis) < self.idle_min {
            return false;
        }
        let consumer = match self.consumer {
            Some(consumer) => consumer,
            None => {
                let (consumer, is_new) =
                    group.hear_of(self.call.arg(3), self.call.turn.seen_millis());
                self.is_new |= is_new;
                *self.consumer.insert(consumer)
            }
        };
        let count = match self.count {
            Some(count) => count,
            None if self.just_ids => delivery.count,
            None => delivery.count.wrapping_add(1),
        };
        group.assign(Delivery { id: delivery.id, millis: self.millis, count, consumer });
        if self.just_ids {
            write_id(delivery.id, out);
        } else {
            write_entry(entry, out);
        }
        true
    }
}

/// Lets `work` change the group that is argument 2; a consumer that it adds is
/// told of.
fn change_group<'a>(
    call: &Call<'a>,
    entry: &mut entry::Entry<'_>,
    mut claim: Claim<'a>,
    work: impl FnOnce(&mut Claim<'a>, &Log, &mut Group),
) -> Outcome {
    entry.edit(Kind::Stream, "xgroup-createconsumer", |editor| {
        stream::edit(editor, |stream| {
            stream.change_group(call.arg(2), |log, group| work(&mut claim, log, group))
        });
        if claim.is_new {
            editor.touch();
        }
        call.note_silent_change();
    })?;
    Ok(())
}

/// Sees to it that the group of argument 2 is there.
fn check_group(call: &Call<'_>, entry: &mut entry::Entry<'_>) -> Outcome {
    let (key, name) = (call.arg(1), call.arg(2));
    let stream: Option<&Stream> = entry.read_as()?;
    match stream.and_then(|stream| stream.group(name)) {
        Some(_) => Ok(()),
        None => Err(no_group("No such key '{}' or consumer group '{}'", [key, name])),
    }
}

/// The arguments of XCLAIM.
struct Options<'a> {
    claim: Claim<'a>,
    ids: Vec<Id>,
    forces: bool,
    last: Id,
}

impl<'a> Options<'a> {
    fn parse(call: &Call<'a>) -> Result<Self, Fault> {
        let idle_min =
            super::parse_millis(call, 4, "ERR Invalid min-idle-time argument for XCLAIM")?;
        let ids: Vec<Id> = call.args_from(5, 1).map_while(|text| Id::parse(text, 0)).collect();
        let mut index = 5 + ids.len();
        let claim = Claim::new(call, idle_min);
        let mut options = Self { claim, ids, forces: false, last: Id::ZERO };
        while index < call.args.len() {
            let has_value = index + 1 < call.args.len();
            let text = call.arg(index + 1);
            let value = |fault| parse_integer(text).ok_or(Fault::Text(fault));
            // An effect tells the time as it was.
            let now = if call.turn.is(Mode::EFFECT) { u64::MAX } else { call.turn.now_millis };
            // A time that cannot be is now.
            let past = |millis: i64| u64::try_from(millis).map_or(now, |millis| millis.min(now));
            index += 1;
            match () {
                () if call.is(index - 1, "force") => options.forces = true,
                () if call.is(index - 1, "justid") => options.claim.just_ids = true,
                () if has_value && call.is(index - 1, "idle") => {
                    let idle = value("ERR Invalid IDLE option argument for XCLAIM")?;
                    options.claim.millis = past((call.turn.now_millis as i64).wrapping_sub(idle));
                    index += 1;
                }
                () if has_value && call.is(index - 1, "time") => {
                    let time = value("ERR Invalid TIME option argument for XCLAIM")?;
                    options.claim.millis = past(time);
                    index += 1;
                }
                () if has_value && call.is(index - 1, "retrycount") => {
                    let count = value("ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                    options.claim.count = u64::try_from(count).ok();
                    index += 1;
                }
                () if has_value && call.is(index - 1, "lastid") => {
                    options.last = parse_id(call, index)?;
                    index += 1;
                }
                () => return Err(unrecognized(call.arg(index - 1))),
            }
        }
        Ok(options)
    }
}

fn unrecognized(option: &[u8]) -> Fault {
    let mut line = b"ERR Unrecognized XCLAIM option '".to_vec();
    super::push_text(option, &mut line);
    line.push(b'\'');
    Fault::Line(line)
}

/// XCLAIM.
pub(in crate::commands) fn xclaim(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    call.with_key(|mut entry| {
        check_group(call, &mut entry)?;
        let Options { claim, ids, forces, last } = Options::parse(call)?;
        change_group(call, &mut entry, claim, |claim, log, group| {
            group.last = group.last.max(last);
            counted(out, reply::array, |out| {
                let mut count = 0;
                for id in ids {
                    let Some(entry) = log.get(id) else {
                        group.acknowledge(id);
                        continue;
                    };
                    let found = group.delivery(id);
                    let forced = Delivery { id, millis: 0, count: 1, consumer: 0 };
                    let Some(delivery) = found.or(forces.then_some(forced)) else { continue };
                    let is_forced = found.is_none();
                    count += usize::from(claim.take(group, delivery, is_forced, &entry, out));
                }
                count
            });
        })
    })
}

/// XAUTOCLAIM.
pub(in crate::commands) fn xautoclaim(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let idle_min =
        super::parse_millis(call, 4, "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let mut next = Some(parse_end(call.arg(5), false)?);
    let mut claim = Claim::new(call, idle_min);
    let mut left = COUNT_DEFAULT;
    let mut index = 6;
    while index < call.args.len() {
        if call.is(index, "count") && index + 1 < call.args.len() {
            let count = parse_integer(call.arg(index + 1));
            let count = count.filter(|count| (1..=COUNT_MAX).contains(count));
            left = count.ok_or(Fault::Text("ERR COUNT must be > 0"))? as u64;
            index += 2;
        } else if call.is(index, "justid") {
            claim.just_ids = true;
            index += 1;
        } else {
            return Err(SYNTAX);
        }
    }
    call.with_key(|mut entry| {
        check_group(call, &mut entry)?;
        change_group(call, &mut entry, claim, |claim, log, group| {
            let mut attempts = left.saturating_mul(ATTEMPTS_PER_ENTRY);
            let (mut gone, mut claimed, mut count) = (Vec::new(), Vec::new(), 0);
            while attempts > 0 && left > 0 {
                let Some(delivery) = next.and_then(|id| group.delivery_from(id)) else { break };
                next = delivery.id.next();
                attempts -= 1;
                match log.get(delivery.id) {
                    Some(entry) => {
                        if claim.take(group, delivery, false, &entry, &mut claimed) {
                            count += 1;
                            left -= 1;
                        }
                    }
                    None => {
                        group.acknowledge(delivery.id);
                        gone.push(delivery.id);
                        left -= 1;
                    }
                }
            }
            let next = next.and_then(|id| group.delivery_from(id));
            reply::array(out, 3);
            write_id(next.map_or(Id::ZERO, |delivery| delivery.id), out);
            reply::array(out, count);
            out.extend_from_slice(&claimed);
            reply::array(out, gone.len());
            gone.into_iter().for_each(|id| write_id(id, out));
        })
    })
}
