//! Frames to be sent on one channel of a connection, and frames that were sent and not taken yet.

use crate::frame::{self, FRAGMENT_LEN, Frame, HEAD_LEN, Head, Kind, Parsed, flags};
use crate::id::NodeId;
use crate::settings::WINDOW_MAX;
use std::collections::VecDeque;
use std::sync::Arc;

/// A body that several queues may hold.
pub type Body = Arc<Vec<u8>>;

/// What to do if a sent frame does not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    /// Nothing: it is repeated on the next connection, or it has a timeout.
    Nobody,
    /// Tell the sender of a message or a command.
    Sender { kind: Kind, flags: u16, src: NodeId, dst: NodeId, seq: u64 },
    /// Send it again: a failure, or word of what was applied, which may come twice.
    Again(Box<Routed>),
}

/// A frame on its way through nodes, taken out of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Routed {
    pub head: Head,
    pub path: Vec<u8>,
    pub body: Body,
}

/// A version of a topic: its name, and the number of the version among all there were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub topic: Box<str>,
    pub number: u64,
}

/// A shared body: a long one, or that of a topic.
struct Large {
    head: Head,
    path: Vec<u8>,
    body: Body,
    /// Bytes after the body, in a fragment of their own if there are several.
    tail: Vec<u8>,
    at: usize,
    /// Set for a push.
    version: Option<Version>,
}

enum Entry {
    /// This many bytes of `small`, a whole frame.
    Small(u32, DeliveryState),
    Large(Box<Large>),
}

/// Memory of each entry of a queue, besides what it refers to: a queue has up to twice as many
/// places as entries.
const PLACE_LEN: usize = 2 * size_of::<Entry>();

/// Memory of a large body's entry, with the system's overhead for allocations.
const LARGE_LEN: usize = PLACE_LEN + size_of::<Large>() + 64;

/// What a queue leaves when its connection is lost.
#[derive(Default)]
pub(crate) struct Remains {
    /// Sent, and perhaps not taken.
    pub in_doubt: Vec<DeliveryState>,
    /// Not sent, or not as a whole.
    pub unsent: Vec<Routed>,
}

/// The sending side of a channel. Small frames are composed in one buffer; large bodies are cut as
/// they are sent.
#[derive(Default)]
pub(crate) struct Outbox {
    small: Vec<u8>,
    small_start: usize,
    entries: VecDeque<Entry>,
    queued_len: usize,
    /// Bytes of these that are bodies of pushes, which all queues share.
    shared_len: usize,
    /// Sent bytes of a body that is kept until its last byte was sent.
    begun_len: usize,
    /// Memory of entries besides what is queued.
    beside_len: usize,
    /// Topics with a version among the entries: at most one of each.
    topics: Vec<Box<str>>,
    /// Memory of word that senders wait for, including sent and untaken word: see [`is_word`].
    words_len: usize,
    /// Bytes sent since the beginning, and how many may be sent.
    sent: u64,
    limit: u64,
    /// Frames that end at a position which the peer has not taken yet.
    in_flight: VecDeque<(u64, DeliveryState)>,
    in_flight_len: usize,
    taken: u64,
}

impl DeliveryState {
    /// Returns the approximate memory, with its place in a queue.
    fn len(&self) -> usize {
        PLACE_LEN
            + match self {
                DeliveryState::Again(routed) => 192 + routed.body.len() + routed.path.len(),
                _ => 0,
            }
    }

    /// Returns the memory if it is word, else 0.
    fn word_len(&self) -> usize {
        if matches!(self, DeliveryState::Again(_)) { self.len() } else { 0 }
    }
}

impl Entry {
    /// Returns the approximate memory besides what is queued.
    fn beside_len(&self) -> usize {
        match self {
            Entry::Small(_, delivery) => delivery.len(),
            Entry::Large(large) => LARGE_LEN + large.path.len() + large.tail.len(),
        }
    }

    fn is_of(&self, name: &str) -> bool {
        let version = match self {
            Entry::Large(large) => large.version.as_ref(),
            Entry::Small(..) => None,
        };
        version.is_some_and(|version| *version.topic == *name)
    }
}

/// Returns the memory of a queued frame if it is word, else 0.
fn word_len(frame: &[u8], delivery: &DeliveryState) -> usize {
    let is_word = frame::kind_of(frame).is_some_and(is_word);
    if is_word { frame.len() + delivery.len() } else { 0 }
}

/// Returns whether a sender waits for a frame of that kind: word of an arrival, of a failure, or of
/// what was applied.
pub(crate) fn is_word(kind: Kind) -> bool {
    matches!(kind, Kind::Failure | Kind::Ack | Kind::Applied)
}

fn delivery(head: &Head, path: &[u8], body: &[u8]) -> DeliveryState {
    match head.kind {
        Kind::Message | Kind::Command => DeliveryState::Sender {
            kind: head.kind,
            flags: head.flags,
            src: head.src,
            dst: head.dst,
            seq: head.seq,
        },
        Kind::Failure | Kind::Applied => DeliveryState::Again(Box::new(Routed {
            head: *head,
            path: path.to_vec(),
            body: Arc::new(body.to_vec()),
        })),
        _ => DeliveryState::Nobody,
    }
}

impl Outbox {
    /// Returns the bytes that wait.
    pub fn queued_len(&self) -> usize {
        self.queued_len
    }

    /// Returns the bytes that wait, without pushes.
    pub fn own_len(&self) -> usize {
        self.queued_len - self.shared_len
    }

    /// Returns the memory that it takes, without bodies of pushes.
    pub fn held_len(&self) -> usize {
        self.own_len() + self.begun_len + self.beside_len + self.in_flight_len
    }

    /// Returns how much of that is word that senders wait for.
    pub fn words_len(&self) -> usize {
        self.words_len
    }

    /// Returns whether everything was sent, and taken by the peer.
    pub fn is_done(&self) -> bool {
        self.entries.is_empty() && self.taken == self.sent
    }

    /// Queues a frame with a body of at most [`FRAGMENT_LEN`].
    pub fn push(&mut self, head: &Head, path: &[u8], body: &[u8]) {
        let len = frame::append(&mut self.small, head, path, [body, &[]]);
        self.queued_len += len;
        let delivery = delivery(head, path, body);
        self.words_len += if is_word(head.kind) { len + delivery.len() } else { 0 };
        self.append(Entry::Small(len as u32, delivery));
    }

    /// Queues a body of any length. A long one is not copied.
    pub fn push_large(&mut self, head: &Head, path: &[u8], body: Body) {
        if body.len() <= FRAGMENT_LEN {
            return self.push(head, path, &body);
        }
        self.queued_len += body.len();
        let (head, path) = (*head, path.to_vec());
        let large = Large { head, path, body, tail: Vec::new(), at: 0, version: None };
        self.append(Entry::Large(Box::new(large)));
    }

    /// Queues a version of a topic, with a few bytes after its body, which is not copied. No
    /// version of that topic may be in the queue.
    pub fn push_version(&mut self, head: &Head, version: Version, body: Body, tail: Vec<u8>) {
        let len = body.len() + tail.len();
        self.queued_len += len;
        self.shared_len += len;
        self.topics.push(version.topic.clone());
        let version = Some(version);
        let large = Large { head: *head, path: Vec::new(), body, tail, at: 0, version };
        self.append(Entry::Large(Box::new(large)));
    }

    fn append(&mut self, entry: Entry) {
        self.beside_len += entry.beside_len();
        self.entries.push_back(entry);
    }

    /// Returns whether a version of a topic waits, or is being sent.
    pub fn has_topic(&self, name: &str) -> bool {
        self.topics.iter().any(|topic| **topic == *name)
    }

    /// Takes back a version of a topic that does not have that number, unless it was begun. Returns
    /// whether it did.
    pub fn take_back(&mut self, name: &str, number: u64) -> bool {
        if !self.has_topic(name) {
            return false;
        }
        let Some(at) = self.entries.iter().position(|entry| entry.is_of(name)) else {
            return false;
        };
        let Entry::Large(large) = &self.entries[at] else { return false };
        let is_other = large.version.as_ref().is_some_and(|version| version.number != number);
        if large.at > 0 || !is_other {
            return false;
        }
        self.queued_len -= large.len();
        self.shared_len -= large.len();
        self.beside_len -= self.entries[at].beside_len();
        self.entries.remove(at);
        self.topics.retain(|topic| **topic != *name);
        true
    }

    /// Takes back all versions that were not begun.
    pub fn take_back_all(&mut self) {
        for topic in self.topics.clone() {
            self.take_back(&topic, 0);
        }
    }

    /// Returns the version of a topic that is being sent, and its body.
    pub fn begun_version(&self) -> Option<(&Version, &Body)> {
        match self.entries.front() {
            Some(Entry::Large(large)) if large.at > 0 => {
                large.version.as_ref().map(|version| (version, &large.body))
            }
            _ => None,
        }
    }

    /// Frees memory that is not needed for what is queued. To be called now and then.
    pub fn give_back(&mut self) {
        if self.small.len() < self.small.capacity() / 4 {
            self.small.shrink_to(2 * self.small.len());
        }
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * self.entries.len());
        }
        if self.in_flight.len() < self.in_flight.capacity() / 4 {
            self.in_flight.shrink_to(2 * self.in_flight.len());
        }
    }

    /// Notes what the peer has taken, and how much may be sent. Returns whether these numbers are
    /// possible.
    pub fn set_credit(&mut self, taken: u64, limit: u64) -> bool {
        let ahead = limit.checked_sub(taken);
        let fits = ahead.is_some_and(|ahead| ahead <= u64::from(WINDOW_MAX));
        if taken > self.sent || taken < self.taken || !fits {
            return false;
        }
        self.taken = taken;
        self.limit = self.limit.max(limit);
        while self.in_flight.front().is_some_and(|(end, _)| *end <= taken) {
            if let Some((_, delivery)) = self.in_flight.pop_front() {
                self.in_flight_len -= delivery.len();
                self.words_len -= delivery.word_len();
            }
        }
        true
    }

    /// Returns whether there is a frame that may be sent now.
    pub fn is_ready(&self) -> bool {
        let len = match self.entries.front() {
            None => return false,
            Some(Entry::Small(len, _)) => *len as usize,
            Some(Entry::Large(large)) => large.next_len(),
        };
        self.sent + len as u64 <= self.limit
    }

    /// Appends frames while they have credit and `out` is shorter than `len_max`.
    pub fn poll(&mut self, out: &mut Vec<u8>, len_max: usize) {
        while out.len() < len_max && self.is_ready() {
            match self.entries.front_mut() {
                Some(Entry::Large(large)) => {
                    let (len, chunk, is_last) = large.append_next(out);
                    self.sent += len as u64;
                    self.queued_len -= chunk;
                    match large.version {
                        Some(_) => self.shared_len -= chunk,
                        None => self.begun_len += chunk,
                    }
                    if is_last {
                        self.finish_large();
                    }
                }
                _ => self.poll_small(out),
            }
        }
        if self.small_start == self.small.len() {
            self.small.clear();
            self.small_start = 0;
            self.small.shrink_to(1 << 20);
        } else if self.small_start > 256 << 10 && self.small_start > self.small.len() / 2 {
            self.small.drain(..self.small_start);
            self.small_start = 0;
        }
    }

    fn poll_small(&mut self, out: &mut Vec<u8>) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.beside_len -= entry.beside_len();
        let Entry::Small(len, delivery) = entry else { return };
        let end = self.small_start + len as usize;
        out.extend_from_slice(&self.small[self.small_start..end]);
        self.words_len -= word_len(&self.small[self.small_start..end], &delivery);
        self.small_start = end;
        self.sent += u64::from(len);
        self.queued_len -= len as usize;
        self.note(delivery);
    }

    fn finish_large(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.beside_len -= entry.beside_len();
        let Entry::Large(large) = entry else { return };
        self.begun_len = 0;
        if let Some(version) = &large.version {
            self.topics.retain(|topic| *topic != version.topic);
        }
        self.note(delivery(&large.head, &[], &[]));
    }

    fn note(&mut self, delivery: DeliveryState) {
        if delivery != DeliveryState::Nobody {
            self.in_flight_len += delivery.len();
            self.words_len += delivery.word_len();
            self.in_flight.push_back((self.sent, delivery));
        }
    }

    /// Takes out everything that is for other nodes, because the connection is gone.
    pub fn take_remains(&mut self, remains: &mut Remains) {
        remains.in_doubt.extend(self.in_flight.drain(..).map(|(_, delivery)| delivery));
        self.in_flight_len = 0;
        while let Some(entry) = self.entries.pop_front() {
            self.take_entry(entry, remains);
        }
        self.words_len = 0;
        self.forget_lens();
    }

    fn forget_lens(&mut self) {
        (self.queued_len, self.shared_len, self.begun_len, self.beside_len) = (0, 0, 0, 0);
        self.topics.clear();
    }

    /// Takes out what is for other nodes and was not begun, because the peer is leaving.
    pub fn take_unsent(&mut self, remains: &mut Remains) {
        let is_begun = matches!(self.entries.front(), Some(Entry::Large(large)) if large.at > 0);
        let begun = if is_begun { self.entries.pop_front() } else { None };
        while let Some(entry) = self.entries.pop_front() {
            self.take_entry(entry, remains);
        }
        self.forget_lens();
        if let Some(Entry::Large(large)) = &begun {
            self.queued_len = large.len() - large.at;
            match &large.version {
                Some(version) => {
                    self.shared_len = self.queued_len;
                    self.topics.push(version.topic.clone());
                }
                None => self.begun_len = large.at,
            }
        }
        begun.into_iter().for_each(|entry| self.append(entry));
    }

    fn take_entry(&mut self, entry: Entry, remains: &mut Remains) {
        let routed = match entry {
            Entry::Small(len, delivery) => {
                let end = self.small_start + len as usize;
                self.words_len -= word_len(&self.small[self.small_start..end], &delivery);
                let routed = parsed(&self.small[self.small_start..end]);
                self.small_start = end;
                routed
            }
            Entry::Large(large) => {
                Some(Routed { head: large.head, path: large.path, body: large.body })
            }
        };
        remains.unsent.extend(routed.filter(|routed| routed.head.kind.is_routed()));
    }
}

fn parsed(bytes: &[u8]) -> Option<Routed> {
    match frame::parse(bytes, frame::FRAME_BODY_MAX) {
        Ok(Parsed::Frame(Frame { head, path, body, .. })) => {
            Some(Routed { head, path: path.to_vec(), body: Arc::new(body.to_vec()) })
        }
        _ => None,
    }
}

impl Large {
    fn len(&self) -> usize {
        self.body.len() + self.tail.len()
    }

    /// Returns whether it fits into one frame.
    fn is_single(&self) -> bool {
        self.len() <= FRAGMENT_LEN
    }

    /// Returns the bytes of the next fragment: of the body, or the tail.
    fn part(&self) -> &[u8] {
        match self.body.get(self.at..).filter(|rest| !rest.is_empty()) {
            Some(rest) => &rest[..rest.len().min(FRAGMENT_LEN)],
            None => &self.tail,
        }
    }

    fn next_len(&self) -> usize {
        if self.is_single() {
            return HEAD_LEN + self.path.len() + self.len();
        }
        let extra = if self.at == 0 { self.path.len() + 4 } else { 0 };
        HEAD_LEN + extra + self.part().len()
    }

    /// Appends the next fragment. Returns the bytes of its frame, the bytes of the body in it, and
    /// whether it is the last.
    fn append_next(&mut self, out: &mut Vec<u8>) -> (usize, usize, bool) {
        if self.is_single() {
            let len = frame::append(out, &self.head, &self.path, [&self.body, &self.tail]);
            return (len, self.len(), true);
        }
        let part = self.part();
        let chunk = part.len();
        let (is_first, is_last) = (self.at == 0, self.at + chunk == self.len());
        let mut head = self.head;
        head.flags |= flags::FRAGMENT;
        head.flags |=
            if is_first { flags::FIRST } else { 0 } | if is_last { flags::LAST } else { 0 };
        let total = (self.len() as u32).to_le_bytes();
        let len = match is_first {
            true => frame::append(out, &head, &self.path, [&total, part]),
            false => frame::append(out, &head, &[], [part, &[]]),
        };
        self.at += chunk;
        (len, chunk, is_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seq: u64) -> Head {
        Head { kind: Kind::Message, flags: 0, seq, src: NodeId(1), dst: NodeId(2), ttl: 4 }
    }

    fn seqs(delivery: &[DeliveryState]) -> Vec<u64> {
        let seq = |one: &DeliveryState| match one {
            DeliveryState::Sender { seq, .. } => *seq,
            _ => panic!("{one:?}"),
        };
        delivery.iter().map(seq).collect()
    }

    #[test]
    fn nothing_is_sent_without_credit() {
        let mut outbox = Outbox::default();
        outbox.push(&head(1), &[], b"12345");
        outbox.push(&head(2), &[], b"12345");
        let mut out = Vec::new();
        outbox.poll(&mut out, 1000);
        assert!(out.is_empty());
        assert!(outbox.set_credit(0, 89));
        outbox.poll(&mut out, 1000);
        assert_eq!(out.len(), 45);
        assert!(outbox.set_credit(45, 90));
        outbox.poll(&mut out, 1000);
        assert_eq!(out.len(), 90);
        assert!(!outbox.is_done());
        assert!(!outbox.set_credit(91, 200), "more than was sent");
        assert!(outbox.set_credit(90, 200) && outbox.is_done());
        // Sent and untaken frames are remembered, so their number is bounded whatever the peer
        // says.
        let most = 90 + u64::from(WINDOW_MAX);
        assert!(!outbox.set_credit(90, u64::MAX) && !outbox.set_credit(90, most + 1));
        assert!(outbox.set_credit(90, most));
    }

    #[test]
    fn what_remains_is_told_apart_by_what_was_taken() {
        let mut outbox = Outbox::default();
        for seq in 1..=3 {
            outbox.push(&head(seq), &[], b"12345");
        }
        outbox.push_large(&head(4), &[], Arc::new(vec![1; 100_000]));
        outbox.set_credit(0, 45 * 3 + 70_000);
        let mut out = Vec::new();
        outbox.poll(&mut out, 1 << 20);
        assert_eq!(out.len(), 45 * 3 + HEAD_LEN + 4 + FRAGMENT_LEN);
        outbox.set_credit(45, 1 << 20);
        let mut remains = Remains::default();
        outbox.take_remains(&mut remains);
        assert_eq!(seqs(&remains.in_doubt), [2, 3]);
        // The large one was not sent whole: it cannot have arrived.
        assert_eq!(remains.unsent.len(), 1);
        assert_eq!((remains.unsent[0].head, remains.unsent[0].body.len()), (head(4), 100_000));
    }

    #[test]
    fn what_is_held_is_no_less_than_the_memory_it_takes() {
        let mut outbox = Outbox::default();
        // This is one more than a queue doubles at.
        for seq in 0..1025 {
            outbox.push(&head(seq), &[], b"x");
        }
        let places = |outbox: &Outbox| {
            outbox.entries.capacity() * size_of::<Entry>()
                + outbox.in_flight.capacity() * size_of::<(u64, DeliveryState)>()
        };
        assert!(outbox.held_len() >= outbox.small.len() + places(&outbox));
        outbox.set_credit(0, 1 << 20);
        outbox.poll(&mut Vec::new(), 1 << 20);
        outbox.give_back();
        assert_eq!((outbox.queued_len(), outbox.entries.capacity()), (0, 0));
        assert!(outbox.held_len() >= places(&outbox) && places(&outbox) > 0);
        // A body stays until all of it was sent.
        let mut outbox = Outbox::default();
        outbox.push_large(&head(1), &[], Arc::new(vec![1; 1 << 20]));
        outbox.set_credit(0, 500_000);
        outbox.poll(&mut Vec::new(), 1 << 20);
        assert!(outbox.queued_len() < 600_000 && outbox.held_len() >= 1 << 20);
        outbox.set_credit(0, 2 << 20);
        outbox.poll(&mut Vec::new(), 2 << 20);
        assert_eq!(outbox.held_len(), PLACE_LEN, "but for who is to be told");
        assert!(outbox.set_credit(outbox.sent, 2 << 20));
        assert_eq!(outbox.held_len(), 0);
    }

    #[test]
    fn a_queue_at_rest_gives_its_memory_back() {
        let mut outbox = Outbox::default();
        outbox.set_credit(0, 1 << 20);
        for seq in 0..1000 {
            outbox.push(&head(seq), &[], &[7; 40]);
        }
        outbox.poll(&mut Vec::new(), 1 << 20);
        assert!(outbox.set_credit(outbox.sent, 1 << 20));
        assert!(outbox.small.capacity() >= 80_000);
        outbox.give_back();
        let kept =
            [outbox.small.capacity(), outbox.entries.capacity(), outbox.in_flight.capacity()];
        assert_eq!(kept, [0; 3]);
    }

    fn push(outbox: &mut Outbox, topic: &str, number: u64, body: &Body) {
        let head = Head::plain(Kind::Push, NodeId(1), NodeId(2));
        let version = Version { topic: topic.into(), number };
        outbox.push_version(&head, version, Arc::clone(body), b"what it is".to_vec());
    }

    #[test]
    fn a_version_is_shared_and_taken_back_unless_it_was_begun() {
        let mut outbox = Outbox::default();
        let (short, long) = (Arc::new(vec![1; 30_000]), Arc::new(vec![2; 200_000]));
        push(&mut outbox, "a", 1, &short);
        push(&mut outbox, "b", 2, &long);
        assert_eq!(Arc::strong_count(&short), 2);
        assert!(outbox.held_len() < 1000 && outbox.own_len() == 0);
        assert!(!outbox.take_back("a", 1) && !outbox.take_back("c", 1), "there is no other");
        assert!(outbox.has_topic("a") && outbox.take_back("a", 3) && !outbox.has_topic("a"));
        assert_eq!((Arc::strong_count(&short), outbox.queued_len()), (1, 200_010));
        assert!(outbox.begun_version().is_none());
        outbox.set_credit(0, 70_000);
        outbox.poll(&mut Vec::new(), 1 << 20);
        assert_eq!(outbox.begun_version().unwrap().0.number, 2);
        assert!(!outbox.take_back("b", 3) && outbox.has_topic("b"));
        outbox.take_unsent(&mut Remains::default());
        assert!(outbox.has_topic("b") && outbox.held_len() < 1000);
        outbox.set_credit(0, 1 << 20);
        outbox.poll(&mut Vec::new(), 1 << 20);
        assert!(outbox.is_done() || outbox.entries.is_empty());
        assert_eq!((outbox.held_len(), outbox.topics.len(), Arc::strong_count(&long)), (0, 0, 1));
        // A short one is one frame.
        push(&mut outbox, "a", 4, &short);
        let mut out = Vec::new();
        outbox.poll(&mut out, 1 << 20);
        let Ok(Parsed::Frame(frame)) = frame::parse(&out, frame::FRAME_BODY_MAX) else { panic!() };
        assert_eq!((frame.head.flags, frame.body.len(), frame.len), (0, 30_010, out.len()));
    }

    #[test]
    fn a_large_body_goes_in_fragments_that_say_which_they_are() {
        let mut outbox = Outbox::default();
        outbox.set_credit(0, 1 << 20);
        outbox.push_large(&head(1), &[9; 8], Arc::new(vec![1; 2 * FRAGMENT_LEN + 1]));
        let mut out = Vec::new();
        outbox.poll(&mut out, 1 << 20);
        let mut rest = &out[..];
        let mut seen = Vec::new();
        while let Ok(Parsed::Frame(frame)) = frame::parse(rest, frame::FRAME_BODY_MAX) {
            seen.push((frame.head.flags, frame.body.len()));
            rest = &rest[frame.len..];
        }
        let fragment = flags::FRAGMENT;
        assert_eq!(
            seen,
            [
                (fragment | flags::FIRST, FRAGMENT_LEN + 4),
                (fragment, FRAGMENT_LEN),
                (fragment | flags::LAST, 1)
            ]
        );
        assert_eq!(outbox.queued_len(), 0);
    }
}
