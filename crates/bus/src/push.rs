//! Versions of topics: which exist, what has changed, and which nodes have them.

use crate::compress::{COMPRESS_LEN_MAX, COMPRESS_LEN_MIN, compressed};
use crate::fault::Reason;
use crate::frame::MESSAGE_LEN_MAX;
use crate::id::NodeId;
use crate::peer::{Body, Sum};
use crate::wire::{Reader, Writer};
use keyway_base::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest name of a topic, in bytes.
pub const TOPIC_LEN_MAX: usize = 63;

/// Longest body of a topic, in bytes. A push, or the command to publish it, has more than its body.
pub const TOPIC_BODY_MAX: usize = MESSAGE_LEN_MAX - 1024;

/// Longest body that is sent as a delta. A delta is applied at once, and 64 MiB at once would hold
/// up pings for longer than the same bytes in fragments.
const DELTA_BODY_MAX: usize = 8 << 20;

/// Bytes that are summed, or freed, at once. A larger number holds up pings; a smaller one takes
/// more turns.
const PIECE_LEN: usize = 2 << 20;

/// The stamp of a version: its epoch, then its version number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The epoch, which grows when the publisher changes.
    pub epoch: u64,
    /// The version, which grows within an epoch.
    pub version: u64,
}

impl Stamp {
    pub(crate) fn write(self, out: &mut Writer<'_>) {
        out.u64(self.epoch);
        out.u64(self.version);
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Stamp { epoch: from.u64()?, version: from.u64()? })
    }
}

/// The difference of two bodies: bytes replaced in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    pub base: Stamp,
    offset: usize,
    removed: usize,
    /// The inserted bytes, shared by all queues.
    inserted: Body,
}

impl Delta {
    /// Returns the delta from `old` to `new`, if it is less than half of `new`.
    pub fn between(base: Stamp, old: &[u8], new: &[u8]) -> Option<Self> {
        if old.len().max(new.len()) > DELTA_BODY_MAX {
            return None;
        }
        let offset = same_len(old, new, false);
        let tail = same_len(&old[offset..], &new[offset..], true);
        let inserted = &new[offset..new.len() - tail];
        let removed = old.len() - tail - offset;
        let is_short = inserted.len() < new.len() / 2;
        is_short.then(|| Delta { base, offset, removed, inserted: Arc::new(inserted.to_vec()) })
    }

    pub fn apply(&self, old: &[u8], len_max: usize) -> Option<Vec<u8>> {
        let end = self.offset.checked_add(self.removed)?;
        let (before, after) = (old.get(..self.offset)?, old.get(end..)?);
        let len = before.len() + self.inserted.len() + after.len();
        (len <= len_max.min(DELTA_BODY_MAX)).then(|| [before, &self.inserted[..], after].concat())
    }
}

/// Returns how many bytes are the same at the beginning, or at the end.
fn same_len(a: &[u8], b: &[u8], at_end: bool) -> usize {
    let max = a.len().min(b.len());
    let is_same = |from: usize, to: usize| match at_end {
        true => a[a.len() - to..a.len() - from] == b[b.len() - to..b.len() - from],
        false => a[from..to] == b[from..to],
    };
    // It goes in steps first, which compare many bytes at a time.
    let mut len = 0;
    while len < max && is_same(len, (len + 4096).min(max)) {
        len = (len + 4096).min(max);
    }
    while len < max && is_same(len, len + 1) {
        len += 1;
    }
    len
}

/// The content of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Push {
    pub topic: String,
    pub stamp: Stamp,
    pub publisher: NodeId,
    pub crc: u32,
    pub form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Full(Vec<u8>),
    Delta(Delta),
    /// The topic was withdrawn.
    Gone,
}

impl Push {
    /// Reads a body: what it carries, then the facts about it, then the length of the facts. In
    /// this order the body of a topic is not copied.
    pub fn read(mut body: Vec<u8>) -> Option<Self> {
        let (rest, len) = body.split_last_chunk::<2>()?;
        let at = rest.len().checked_sub(usize::from(u16::from_le_bytes(*len)))?;
        let mut from = Reader::new(&rest[at..]);
        let topic = from.text().filter(|topic| is_topic(topic))?.to_owned();
        let stamp = Stamp::read(&mut from)?;
        let publisher = NodeId(from.u64()?);
        let crc = from.u32()?;
        let form = from.u8()?;
        let delta = match form {
            0 | 2 => None,
            1 => Some((Stamp::read(&mut from)?, from.u32()? as usize, from.u32()? as usize)),
            _ => return None,
        };
        from.end()?;
        body.truncate(at);
        let form = match delta {
            None if form == 2 && body.is_empty() => Form::Gone,
            None if form == 2 => return None,
            None => Form::Full(body),
            Some((base, offset, removed)) => {
                Form::Delta(Delta { base, offset, removed, inserted: Arc::new(body) })
            }
        };
        Some(Self { topic, stamp, publisher, crc, form })
    }
}

pub(crate) fn is_topic(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    (1..=TOPIC_LEN_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// A node's report about a topic of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedAt {
    /// The version that it has applied, or could not apply.
    pub stamp: Stamp,
    /// True if it was applied.
    pub is_good: bool,
    /// The time of the report.
    pub at: Time,
}

/// The carried bytes, compressed if that is worth it. They are made once for all receivers.
#[derive(Default)]
enum Packed {
    #[default]
    Unmade,
    No,
    Made(Body),
}

impl Packed {
    fn of(&mut self, body: &[u8], tail: &[u8], compress: bool) -> Option<Body> {
        if matches!(self, Packed::Unmade) {
            let len = body.len() + tail.len();
            let fits = compress && (COMPRESS_LEN_MIN..=COMPRESS_LEN_MAX).contains(&len);
            let packed = fits.then(|| compressed(&[body, tail].concat())).flatten();
            *self = packed.map_or(Packed::No, |packed| Packed::Made(Arc::new(packed)));
        }
        match self {
            Packed::Made(packed) => Some(Arc::clone(packed)),
            _ => None,
        }
    }
}

/// The sum of a body. That of a long body is made in pieces, and the body is not sent before.
#[derive(Clone, Copy)]
enum Crc {
    Making(Sum),
    Made(u32),
}

impl Crc {
    fn value(self, body: &[u8]) -> u32 {
        match self {
            Crc::Making(sum) => sum.of(body),
            Crc::Made(crc) => crc,
        }
    }
}

/// The latest version of a topic.
pub(crate) struct Topic {
    pub stamp: Stamp,
    /// The number of the version among all there were here.
    pub number: u64,
    pub publisher: NodeId,
    pub body: Body,
    /// Time of its withdrawal; nodes below are told.
    pub gone: Option<Time>,
    crc: Crc,
    delta: Option<Delta>,
    packed_delta: Packed,
    packed: Packed,
    /// The version that this node's user has applied, and whether it could.
    pub own: Option<(Stamp, bool)>,
    /// The reports of other nodes, if this node published it.
    pub applied: BTreeMap<NodeId, AppliedAt>,
}

/// What a child has of a topic, as far as it has told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub have: Option<Stamp>,
    /// True if a later version was sent, and is not answered yet.
    pub is_on_its_way: bool,
}

/// All topics.
#[derive(Default)]
pub(crate) struct Topics {
    pub map: BTreeMap<String, Topic>,
    /// Number of versions so far.
    count: u64,
    /// Bytes of bodies and deltas.
    len: usize,
    /// True if a version had no room since the last call of `take_was_full`.
    was_full: bool,
    /// True if older versions may still be on their way, since the last check.
    pub may_have_old: bool,
    /// True if sums are being made.
    is_summing: bool,
    /// Long bodies that are not needed any more, whose memory is freed in pieces.
    discarded: Vec<Body>,
}

/// The result of taking a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    /// The topic was withdrawn.
    Gone,
    /// It is as old as, or older than, the current one.
    Known,
    /// It is as old, with another body.
    Conflict,
    /// It is a delta to another version.
    WantsFull,
}

/// A version's body, its sum, and its delta.
struct Made {
    body: Vec<u8>,
    crc: Crc,
    delta: Option<Delta>,
    gone: Option<Time>,
}

/// Bounds of [`Topics`].
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub count: usize,
    pub len: usize,
    pub body_len: usize,
}

impl Topics {
    /// Takes a pushed version.
    pub fn take(
        &mut self,
        push: Push,
        sum: Sum,
        bounds: Bounds,
        now: Time,
    ) -> Result<Taken, Reason> {
        let known = self.map.get(&push.topic);
        match known.map(|known| (known.stamp, known)) {
            Some((stamp, known)) if stamp == push.stamp && known.crc() != push.crc => {
                return Ok(Taken::Conflict);
            }
            Some((stamp, _)) if stamp >= push.stamp => return Ok(Taken::Known),
            _ => {}
        }
        if push.form == Form::Gone {
            self.withdraw(&push.topic, push.stamp, push.publisher, bounds, now)?;
            return Ok(Taken::Gone);
        }
        let (body, delta) = match (push.form, known) {
            (Form::Gone, _) => (Vec::new(), None),
            (Form::Full(body), _) => (body, None),
            (Form::Delta(delta), Some(known)) if delta.base == known.stamp => {
                match delta.apply(&known.body, bounds.body_len) {
                    Some(body) if crc32c::crc32c(&body) == push.crc => (body, Some(delta)),
                    _ => return Ok(Taken::WantsFull),
                }
            }
            (Form::Delta(_), _) => return Ok(Taken::WantsFull),
        };
        if delta.is_none() && sum.of(&body) != push.crc {
            return Err(Reason::Checksum);
        }
        let made = Made { body, crc: Crc::Made(push.crc), delta, gone: None };
        self.put(&push.topic, push.stamp, push.publisher, made, bounds)?;
        Ok(Taken::New)
    }

    /// Makes a newer version, with its delta.
    pub fn publish(
        &mut self,
        name: &str,
        stamp: Stamp,
        publisher: NodeId,
        body: Vec<u8>,
        bounds: Bounds,
    ) -> Result<(), Reason> {
        let old = self.map.get(name).filter(|old| old.gone.is_none());
        let delta = old.and_then(|old| Delta::between(old.stamp, &old.body, &body));
        let crc = match body.len() > PIECE_LEN {
            true => Crc::Making(Sum::default()),
            false => Crc::Made(crc32c::crc32c(&body)),
        };
        self.put(name, stamp, publisher, Made { body, crc, delta, gone: None }, bounds)
    }

    /// Withdraws a topic.
    pub fn withdraw(
        &mut self,
        name: &str,
        stamp: Stamp,
        publisher: NodeId,
        bounds: Bounds,
        now: Time,
    ) -> Result<(), Reason> {
        let made = Made { body: Vec::new(), crc: Crc::Made(0), delta: None, gone: Some(now) };
        self.put(name, stamp, publisher, made, bounds)
    }

    /// Forgets topics that were withdrawn for so long. Returns their names.
    pub fn forget_gone(&mut self, after: Duration, now: Time) -> Vec<String> {
        let is_over = |topic: &&Topic| topic.gone.is_some_and(|since| now.since(since) >= after);
        if !self.map.values().any(|topic| is_over(&topic)) {
            return Vec::new();
        }
        let over = self.map.iter().filter(|(_, topic)| is_over(topic));
        let names: Vec<String> = over.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| drop(self.map.remove(name)));
        names
    }

    /// Makes room for one more topic by forgetting the one withdrawn longest ago.
    fn forget_one(&mut self) {
        let gone = self.map.iter().filter_map(|(name, topic)| Some((topic.gone?, name)));
        let oldest = gone.min().map(|(_, name)| name.clone());
        oldest.map(|name| self.map.remove(&name));
    }

    /// Keeps a newer version.
    fn put(
        &mut self,
        name: &str,
        stamp: Stamp,
        publisher: NodeId,
        made: Made,
        bounds: Bounds,
    ) -> Result<(), Reason> {
        let Made { body, crc, delta, gone } = made;
        if !self.map.contains_key(name) && self.map.len() >= bounds.count {
            self.forget_one();
        }
        let known = self.map.get(name);
        let freed = known.map_or(0, Topic::len);
        let is_one_more = known.is_none() && self.map.len() >= bounds.count;
        if body.len() > bounds.body_len {
            return Err(Reason::TooLarge);
        }
        let len = self.len - freed + body.len();
        if len > bounds.len || is_one_more {
            self.was_full = true;
            return Err(Reason::TopicsFull);
        }
        // The delta is kept if there is room for it as well.
        let delta = delta.filter(|delta| len + delta.inserted.len() <= bounds.len);
        let old = self.map.remove(name);
        let (own, applied) = match old {
            Some(old) => {
                self.discard(old.body);
                (old.own, old.applied)
            }
            None => Default::default(),
        };
        self.is_summing |= matches!(crc, Crc::Making(_));
        self.count += 1;
        let (number, body) = (self.count, Arc::new(body));
        let (packed, packed_delta) = Default::default();
        let topic = Topic {
            stamp,
            number,
            publisher,
            body,
            gone,
            crc,
            delta,
            packed_delta,
            packed,
            own,
            applied,
        };
        self.len = self.len - freed + topic.len();
        self.map.insert(name.to_owned(), topic);
        Ok(())
    }

    /// Notes which version a node has of a topic. Names that are not known here may be known later,
    /// so some are kept.
    pub fn note_held(
        &self,
        versions: &mut BTreeMap<String, Held>,
        name: &str,
        held: Held,
        bounds: Bounds,
    ) {
        if let Some(known) = versions.get_mut(name) {
            *known = held;
            return;
        }
        let is_known = |name: &str| self.map.contains_key(name);
        if versions.len() >= 2 * bounds.count {
            versions.retain(|name, _| is_known(name));
        }
        if is_known(name) || versions.len() < 2 * bounds.count {
            versions.insert(name.to_owned(), held);
        }
    }

    /// Gives up a body. If others still have it, the last of them frees its memory.
    fn discard(&mut self, body: Body) {
        if body.len() > PIECE_LEN {
            self.discarded.push(body);
        }
    }

    /// Returns whether there is work to be done in pieces: see [`Topics::go_on`].
    pub fn has_chores(&self) -> bool {
        self.is_summing || !self.discarded.is_empty()
    }

    /// Does the next piece of work that would hold up pings if it were done at once. Returns
    /// whether a version can be sent that could not before.
    pub fn go_on(&mut self) -> bool {
        if let Some(mut body) = self.discarded.pop()
            && let Some(bytes) = Arc::get_mut(&mut body)
            && bytes.len() > PIECE_LEN
        {
            bytes.truncate(bytes.len() - PIECE_LEN);
            bytes.shrink_to_fit();
            self.discarded.push(body);
        }
        if !self.is_summing {
            return false;
        }
        let Some(topic) = self.map.values_mut().find(|topic| !topic.is_summed()) else {
            self.is_summing = false;
            return false;
        };
        topic.go_on_summing();
        topic.is_summed()
    }

    /// Returns whether a version had no room since the last call.
    pub fn take_was_full(&mut self) -> bool {
        std::mem::take(&mut self.was_full)
    }
}

impl Topic {
    fn crc(&self) -> u32 {
        self.crc.value(&self.body)
    }

    /// Returns whether its sum is made, so that it can be sent.
    pub fn is_summed(&self) -> bool {
        matches!(self.crc, Crc::Made(_))
    }

    fn go_on_summing(&mut self) {
        let Crc::Making(sum) = &mut self.crc else { return };
        let end = self.body.len().min(sum.len() + PIECE_LEN);
        sum.go_on(&self.body, end);
        if end == self.body.len() {
            self.crc = Crc::Made(self.crc.value(&self.body));
        }
    }

    /// Returns the bytes of its body and its delta.
    fn len(&self) -> usize {
        self.body.len() + self.delta.as_ref().map_or(0, |delta| delta.inserted.len())
    }

    /// Returns the push for a node that has `have`: what it carries, the bytes after that, and
    /// whether the former contains both, compressed.
    pub fn push_for(
        &mut self,
        name: &str,
        have: Option<Stamp>,
        compress: bool,
    ) -> (Body, Vec<u8>, bool) {
        let tail = self.tail(name, have);
        let delta = self.delta.as_ref().filter(|delta| Some(delta.base) == have);
        let (body, packed) = match delta {
            Some(delta) => (&delta.inserted, &mut self.packed_delta),
            None => (&self.body, &mut self.packed),
        };
        match packed.of(body, &tail, compress) {
            Some(packed) => (packed, Vec::new(), true),
            None => (Arc::clone(body), tail, false),
        }
    }

    /// Returns whether a node that has `have` gets the delta, and not the whole.
    pub fn is_delta_from(&self, have: Option<Stamp>) -> bool {
        self.delta.as_ref().is_some_and(|delta| Some(delta.base) == have)
    }

    fn tail(&self, name: &str, have: Option<Stamp>) -> Vec<u8> {
        let delta = self.delta.as_ref().filter(|delta| Some(delta.base) == have);
        let mut tail = Vec::new();
        let mut out = Writer::new(&mut tail);
        out.text(name);
        self.stamp.write(&mut out);
        out.u64(self.publisher.0);
        out.u32(self.crc());
        out.u8(if self.gone.is_some() { 2 } else { u8::from(delta.is_some()) });
        if let Some(delta) = delta {
            delta.base.write(&mut out);
            out.u32(delta.offset as u32);
            out.u32(delta.removed as u32);
        }
        let len = tail.len() as u16;
        tail.extend_from_slice(&len.to_le_bytes());
        tail
    }
}

#[cfg(test)]
mod tests;
