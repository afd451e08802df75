//! XREAD and XREADGROUP.
//!
//! A client that waited is answered from the one stream that is ready, and by the id that the stream
//! has given last. An entry that was removed at once is not in any reply, as with Redis.

use super::{counted, no_group, write_entry, write_id, write_range};
use crate::algorithms::number::parse_integer;
use crate::collections::stream::group::{ConsumerIndex, Delivery, Group};
use crate::collections::stream::id::{ID_LEN_MAX, Id};
use crate::collections::stream::{Log, Stream};
use crate::commands::attempt::{Found, Frame, How, frame_of};
use crate::commands::call::{Call, Fault, SYNTAX};
use crate::edits::stream;
use crate::entry::Entry;
use crate::items::Kind;
use crate::store::{Locked, Patience};
use keyway_base::ByteRange;
use keyway_resp::{Protocol, reply};
use std::ops::ControlFlow;

/// Most entries that who has waited gets unless it asks for another number: an
/// id from long ago is not to bring a whole stream at some odd time.
const LIMIT_AFTER_WAIT: u64 = 1000;

/// The options of a read.
struct Options<'a> {
    /// Most entries of each stream, 0 for any number.
    limit: u64,
    /// The time to wait for entries if there are none. `None`: do not wait.
    patience: Option<Patience>,
    /// The group's name, and the consumer's.
    group: Option<(&'a [u8], &'a [u8])>,
    no_ack: bool,
    /// Where the keys start, and how many there are; as many ids follow.
    keys_at: usize,
    key_count: usize,
}

impl<'a> Options<'a> {
    fn parse(call: &Call<'a>, in_group: bool) -> Result<Self, Fault> {
        let mut options =
            Self { limit: 0, patience: None, group: None, no_ack: false, keys_at: 0, key_count: 0 };
        let mut index = 1;
        while options.keys_at == 0 {
            let more = call.args.len().saturating_sub(index + 1);
            let not_here = |text| if in_group { Ok(()) } else { Err(Fault::Text(text)) };
            match () {
                () if more >= 1 && call.is(index, "block") => {
                    options.patience = Some(parse_patience(call.arg(index + 1))?);
                    index += 2;
                }
                () if more >= 1 && call.is(index, "count") => {
                    options.limit = super::parse_limit(call, index + 1)?;
                    index += 2;
                }
                () if more >= 1 && call.is(index, "streams") => {
                    if !more.is_multiple_of(2) {
                        return Err(Fault::Text(
                            "ERR Unbalanced XREAD list of streams: for each stream key an ID or \
                             '$' must be specified.",
                        ));
                    }
                    (options.keys_at, options.key_count) = (index + 1, more / 2);
                }
                () if more >= 2 && call.is(index, "group") => {
                    not_here(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD \
                         instead.",
                    )?;
                    options.group = Some((call.arg(index + 1), call.arg(index + 2)));
                    index += 3;
                }
                () if call.is(index, "noack") => {
                    not_here(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD \
                         instead.",
                    )?;
                    options.no_ack = true;
                    index += 1;
                }
                () => return Err(SYNTAX),
            }
        }
        if in_group && options.group.is_none() {
            return Err(Fault::Text("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(options)
    }

    /// Most entries for who has waited.
    fn limit_after_wait(&self) -> u64 {
        if self.limit == 0 { LIMIT_AFTER_WAIT } else { self.limit }
    }

    /// The id behind which a stream is read; of one that is named twice the
    /// first.
    fn id_of(&self, call: &Call<'a>, key: &[u8]) -> Option<&'a [u8]> {
        let nth = self.keys(call).position(|one| one == key)?;
        Some(call.arg(self.keys_at + self.key_count + nth))
    }

    fn keys(&self, call: &Call<'a>) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
        call.args_from(self.keys_at, 1).take(self.key_count)
    }
}

fn parse_patience(text: &[u8]) -> Result<Patience, Fault> {
    match parse_integer(text) {
        None => Err(Fault::Text("ERR timeout is not an integer or out of range")),
        Some(millis) => u64::try_from(millis).map_err(|_| Fault::Text("ERR timeout is negative")),
    }
}

type Attempted = Result<(Found, Patience), Fault>;

/// There is nothing to answer with: null, unless the client wants to wait.
fn nothing(call: &Call<'_>, options: &Options<'_>, out: &mut Vec<u8>) -> Attempted {
    match options.patience {
        Some(patience) => Ok((Found::Nothing, patience)),
        None => {
            call.turn.protocol.null_array(out);
            Ok((Found::Answered, 0))
        }
    }
}

/// The group that an XREADGROUP reads for.
pub(in crate::commands) fn group_of<'a>(call: &Call<'a>) -> Option<&'a [u8]> {
    Some(Options::parse(call, true).ok()?.group?.0)
}

/// The arguments of an XREAD with the ids that `$` stands for now in its place.
pub(in crate::commands) fn settle(call: &Call<'_>) -> Frame {
    let Ok(options) = Options::parse(call, false) else { return frame_of(call) };
    let ids_at = options.keys_at + options.key_count;
    if !call.args.from(ids_at).any(|id| id == b"$") {
        return frame_of(call);
    }
    let locked = call.store.lock_keys(options.keys(call));
    let (mut frame, mut ranges) = (Vec::new(), Vec::new());
    for (word, index) in call.args.from(0).zip(0..) {
        let start = frame.len();
        if index >= ids_at && word == b"$" {
            let key = call.arg(index - options.key_count);
            let stream = locked.look_at::<&Stream>(call.turn, key).ok().flatten();
            let newest = stream.map_or(Id::ZERO, |stream| stream.log().newest());
            frame.extend_from_slice(newest.format(&mut [0; ID_LEN_MAX]));
        } else {
            frame.extend_from_slice(word);
        }
        ranges.push(ByteRange::new(start, frame.len()));
    }
    (frame.into(), ranges.into())
}

/// The head of a stream among those answered with.
fn write_key(call: &Call<'_>, key: &[u8], out: &mut Vec<u8>) {
    if call.turn.protocol == Protocol::Resp2 {
        reply::array(out, 2);
    }
    reply::bulk(out, key);
}

/// The head of an answer of some streams.
fn write_head(call: &Call<'_>, out: &mut Vec<u8>, count: usize) {
    match call.turn.protocol {
        Protocol::Resp2 => reply::array(out, count),
        protocol => protocol.map(out, count),
    }
}

/// XREAD.
pub(in crate::commands) fn xread(call: &Call<'_>, how: How<'_>, out: &mut Vec<u8>) -> Attempted {
    let options = Options::parse(call, false)?;
    if let How::Ready(key) = how {
        return xread_ready(call, &options, key, out);
    }
    let mut locked = call.store.lock_keys(options.keys(call));
    let mut after = Vec::with_capacity(options.key_count);
    for (key, nth) in options.keys(call).zip(0..) {
        let mut entry = locked.entry(call.turn, key);
        let stream: Option<&Stream> = entry.read_as()?;
        after.push(match call.arg(options.keys_at + options.key_count + nth) {
            b"$" => stream.map_or(Id::ZERO, |stream| stream.log().newest()),
            b">" => {
                return Err(Fault::Text(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option.",
                ));
            }
            text => Id::parse(text, 0).ok_or(super::INVALID_ID)?,
        });
    }
    let mut served = 0;
    let start = out.len();
    counted(
        out,
        |out, count| write_head(call, out, count),
        |out| {
            for (key, after) in options.keys(call).zip(after) {
                let Ok(Some(stream)) = locked.look_at::<&Stream>(call.turn, key) else { continue };
                if let Some(from) = after.next().filter(|from| stream.log().last() >= *from) {
                    write_key(call, key, out);
                    write_range(stream.log(), (from, Id::MAX), false, options.limit, out);
                    served += 1;
                }
            }
            served
        },
    );
    if served > 0 {
        return Ok((Found::Answered, 0));
    }
    out.truncate(start);
    nothing(call, &options, out)
}

/// Answers an XREAD that waited, now that a key may have something.
fn xread_ready(call: &Call<'_>, options: &Options<'_>, key: &[u8], out: &mut Vec<u8>) -> Attempted {
    let after = options.id_of(call, key).and_then(|text| Id::parse(text, 0));
    let locked = call.store.lock_keys(std::iter::once(key));
    let stream = locked.look_at::<&Stream>(call.turn, key).ok().flatten();
    let (Some(stream), Some(from)) = (stream, after.and_then(Id::next)) else {
        return Ok((Found::NotForIt, 0));
    };
    if stream.log().newest() < from {
        return Ok((Found::NotForIt, 0));
    }
    write_head(call, out, 1);
    write_key(call, key, out);
    write_range(stream.log(), (from, Id::MAX), false, options.limit_after_wait(), out);
    Ok((Found::Answered, 0))
}

/// The entries that a consumer asks for.
#[derive(Clone, Copy)]
enum From {
    /// `>`: what was never delivered.
    New,
    /// The entries behind an id that the consumer has not acknowledged.
    History(Id),
}

/// Reads what is wanted of a stream, whose group must be there.
fn parse_from(entry: &mut Entry<'_>, key: &[u8], group: &[u8], text: &[u8]) -> Result<From, Fault> {
    let stream: Option<&Stream> = entry.read_as()?;
    if stream.and_then(|stream| stream.group(group)).is_none() {
        let text = "No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option";
        return Err(no_group(text, [key, group]));
    }
    match text {
        b"$" => Err(Fault::Text(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
             history of this consumer by specifying a proper ID, or use the > ID to get new \
             messages. The $ ID would just return an empty result set.",
        )),
        b">" => Ok(From::New),
        text => match Id::parse(text, 0).ok_or(super::INVALID_ID)? {
            Id::MAX => Ok(From::New),
            id => Ok(From::History(id)),
        },
    }
}

/// XREADGROUP.
pub(in crate::commands) fn xreadgroup(
    call: &Call<'_>,
    how: How<'_>,
    out: &mut Vec<u8>,
) -> Attempted {
    let options = Options::parse(call, true)?;
    let (group, consumer) = options.group.unwrap_or_default();
    let no_ack = options.no_ack;
    if let How::Ready(key) = how {
        let limit = options.limit_after_wait();
        let reader = Reader { call, limit, no_ack, has_waited: true, group, consumer };
        return xreadgroup_ready(&reader, key, out);
    }
    let mut locked = call.store.lock_keys(options.keys(call));
    let mut wanted = Vec::with_capacity(options.key_count);
    for (key, nth) in options.keys(call).zip(0..) {
        let text = call.arg(options.keys_at + options.key_count + nth);
        let mut entry = locked.entry(call.turn, key);
        wanted.push(parse_from(&mut entry, key, group, text)?);
    }
    let mut served = 0;
    let start = out.len();
    let reader = Reader { call, limit: options.limit, no_ack, has_waited: false, group, consumer };
    let waits = |key: &[u8]| {
        matches!(how, How::Newcomer)
            && call.store.waiters.has_of_group(call.turn.database, key, group)
    };
    counted(
        out,
        |out, count| write_head(call, out, count),
        |out| {
            for (key, from) in options.keys(call).zip(wanted) {
                // Entries that other consumers of the group wait for are theirs.
                let is_taken = matches!(from, From::New) && waits(key);
                if !is_taken && reader.serve(&mut locked, key, from, out) {
                    served += 1;
                }
            }
            served
        },
    );
    if served > 0 {
        return Ok((Found::Answered, 0));
    }
    out.truncate(start);
    nothing(call, &options, out)
}

/// Answers an XREADGROUP that waited, now that something became of a key.
fn xreadgroup_ready(reader: &Reader<'_, '_>, key: &[u8], out: &mut Vec<u8>) -> Attempted {
    let call = reader.call;
    let mut locked = call.store.lock_keys(std::iter::once(key));
    let Ok(Some(stream)) = locked.look_at::<&Stream>(call.turn, key) else {
        return Err(Fault::Text("UNBLOCKED the stream key no longer exists"));
    };
    let Some(group) = stream.group(reader.group) else {
        return Err(Fault::Text(
            "NOGROUP the consumer group this client was blocked on no longer exists",
        ));
    };
    if stream.log().newest() <= group.last {
        return Ok((Found::NotForIt, 0));
    }
    write_head(call, out, 1);
    reader.serve(&mut locked, key, From::New, out);
    Ok((Found::Answered, 0))
}

/// Returns whether a stream has entries that the group of an XREADGROUP did not get yet.
pub(in crate::commands) fn has_undelivered(call: &Call<'_>, key: &[u8]) -> bool {
    let locked = call.store.lock_keys(std::iter::once(key));
    let Ok(Some(stream)) = locked.look_at::<&Stream>(call.turn, key) else { return false };
    let group = group_of(call).and_then(|group| stream.group(group));
    group.is_some_and(|group| stream.log().newest() > group.last)
}

/// A consumer that reads.
struct Reader<'r, 'a> {
    call: &'r Call<'a>,
    /// Most entries of each stream, 0 for any number.
    limit: u64,
    no_ack: bool,
    has_waited: bool,
    group: &'a [u8],
    consumer: &'a [u8],
}

impl Reader<'_, '_> {
    /// Answers with a stream's entries, if there is something to answer.
    fn serve(&self, locked: &mut Locked<'_>, key: &[u8], from: From, out: &mut Vec<u8>) -> bool {
        let call = self.call;
        let mut entry = locked.entry(call.turn, key);
        let event = "xgroup-createconsumer";
        let served = entry.edit(Kind::Stream, event, |editor| {
            let mut is_new = false;
            let served = stream::edit(editor, |stream| {
                stream.change_group(self.group, |log, group| {
                    if matches!(from, From::New) && !self.has_waited && log.last() <= group.last {
                        return false;
                    }
                    write_key(call, key, out);
                    let (consumer, added) = group.hear_of(self.consumer, call.turn.now_millis);
                    is_new = added;
                    match from {
                        From::New => self.deliver(log, group, consumer, out),
                        From::History(after) => self.repeat(log, group, consumer, after, out),
                    }
                    true
                })
            });
            if is_new {
                editor.touch();
            }
            call.note_silent_change();
            served.flatten().unwrap_or(false)
        });
        served.unwrap_or(false)
    }

    /// Delivers entries that no consumer of the group got yet.
    fn deliver(&self, log: &Log, group: &mut Group, consumer: ConsumerIndex, out: &mut Vec<u8>) {
        let Some(from) = group.last.next() else { return reply::array(out, 0) };
        counted(out, reply::array, |out| {
            let mut count = 0;
            let _ = log.visit((from, Id::MAX), false, |entry| {
                group.advance(log, entry.id);
                write_entry(&entry, out);
                if !self.no_ack {
                    let millis = self.call.turn.now_millis;
                    group.assign(Delivery { id: entry.id, millis, count: 1, consumer });
                }
                count += 1;
                match count == self.limit {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            count as usize
        });
    }

    /// Delivers again what a consumer has not acknowledged.
    fn repeat(
        &self,
        log: &Log,
        group: &mut Group,
        consumer: ConsumerIndex,
        after: Id,
        out: &mut Vec<u8>,
    ) {
        let Some(from) = after.next() else { return reply::array(out, 0) };
        let mut again: Vec<Delivery> = Vec::new();
        group.visit_of(consumer, (from, Id::MAX), |delivery| {
            again.push(*delivery);
            match again.len() as u64 == self.limit {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        reply::array(out, again.len());
        for delivery in again {
            match log.get(delivery.id) {
                Some(entry) => {
                    write_entry(&entry, out);
                    let (millis, count) =
                        (self.call.turn.now_millis, delivery.count.wrapping_add(1));
                    group.assign(Delivery { millis, count, ..delivery });
                }
                None => {
                    reply::array(out, 2);
                    write_id(delivery.id, out);
                    self.call.turn.protocol.null_array(out);
                }
            }
        }
    }
}
