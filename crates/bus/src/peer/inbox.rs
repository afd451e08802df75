//! Received frames of one channel of a connection: credit, and messages put together from
//! fragments.

use crate::fault::Reason;
use crate::frame::{FRAGMENT_LEN, FRAME_LEN_MAX, Frame, Head, Kind, flags};
use crate::id::NodeId;
use crate::wire::last_item_at;
use keyway_base::Time;
use std::time::Duration;

/// The receiving side of a channel.
pub(crate) struct Inbox {
    window: u64,
    received: u64,
    granted: u64,
    reported: u64,
    assembly: Assembly,
}

enum Assembly {
    None,
    Whole {
        head: Head,
        path: Vec<u8>,
        total: usize,
        /// Of a command for this node: everything before the bytes of its last argument, so that
        /// these need not be copied.
        front: Vec<u8>,
        bytes: Vec<u8>,
        sum: Sum,
        moved: Moved,
    },
    /// There was no memory for it: the rest is skipped.
    Skipped {
        seq: u64,
        left: usize,
    },
}

/// When a message in parts last went on by as much as one part has, and how far it was then. A byte
/// now and then does not count as going on.
struct Moved {
    at: Time,
    len: usize,
}

/// Bytes at the end of a message that are not summed: a push has its facts about the body there.
pub(crate) const UNSUMMED: usize = 512;

/// The crc32c of the beginning of a message, computed as it comes. Computing that of a long message
/// at once would take as long as a ping may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    crc: u32,
    len: usize,
}

impl Sum {
    /// Returns the number of bytes it covers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Continues to `end` of `bytes`.
    pub fn go_on(&mut self, bytes: &[u8], end: usize) {
        if end > self.len {
            self.crc = crc32c::crc32c_append(self.crc, &bytes[self.len..end]);
            self.len = end;
        }
    }

    /// Returns the crc32c of all of `bytes`, of which this is the sum of the beginning.
    pub fn of(self, bytes: &[u8]) -> u32 {
        match bytes.get(self.len..) {
            Some(rest) => crc32c::crc32c_append(self.crc, rest),
            None => crc32c::crc32c(bytes),
        }
    }
}

/// The result of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It is complete by itself.
    Single,
    /// It is a fragment, and not the last.
    Kept,
    /// It is the last fragment: this is the whole.
    Done { head: Head, path: Vec<u8>, front: Vec<u8>, body: Vec<u8>, sum: Sum },
    /// It is the first fragment of a message for which there is no memory.
    Refused(Reason),
}

impl Inbox {
    pub fn new(window: u32) -> Self {
        let window = u64::from(window);
        Self { window, received: 0, granted: window, reported: 0, assembly: Assembly::None }
    }

    /// Counts a frame against the credit, and keeps it if it is a fragment. `memory` is what all
    /// messages in parts may still take; `our_id` is this node's.
    pub fn accept(
        &mut self,
        frame: &Frame<'_>,
        our_id: NodeId,
        len_max: usize,
        memory: &mut usize,
        now: Time,
    ) -> Result<Part, Reason> {
        self.received += frame.len as u64;
        if self.received > self.granted {
            return Err(Reason::Credit);
        }
        if !frame.head.has(flags::FRAGMENT) {
            let is_between = !matches!(self.assembly, Assembly::None);
            return if is_between { Err(Reason::Fragments) } else { Ok(Part::Single) };
        }
        match frame.head.has(flags::FIRST) {
            true => self.begin(frame, our_id, len_max, memory, now),
            false => self.go_on(frame, memory, now),
        }
    }

    fn begin(
        &mut self,
        frame: &Frame<'_>,
        our_id: NodeId,
        len_max: usize,
        memory: &mut usize,
        now: Time,
    ) -> Result<Part, Reason> {
        let is_free = matches!(self.assembly, Assembly::None);
        let Some((total, part)) = frame.body.split_first_chunk::<4>().filter(|_| is_free) else {
            return Err(Reason::Fragments);
        };
        let total = u32::from_le_bytes(*total) as usize;
        if part.is_empty() || part.len() >= total || frame.head.has(flags::LAST) {
            return Err(Reason::Fragments);
        }
        let is_ours = frame.head.kind == Kind::Command && frame.head.dst == our_id;
        let is_split = is_ours && !frame.head.has(flags::COMPRESSED);
        let at = if is_split { last_item_at(part, total).unwrap_or(0) } else { 0 };
        // The memory is reserved at once, because moving it as it grows takes long. A peer that
        // only begins takes addresses and no memory.
        let mut bytes = Vec::new();
        let has_memory = total <= *memory && total <= len_max;
        if !has_memory || bytes.try_reserve_exact(total - at).is_err() {
            self.assembly = Assembly::Skipped { seq: frame.head.seq, left: total - part.len() };
            let reason = if total > len_max { Reason::TooLarge } else { Reason::Memory };
            return Ok(Part::Refused(reason));
        }
        *memory -= total;
        let (front, begun) = part.split_at(at);
        bytes.extend_from_slice(begun);
        let head =
            Head { flags: frame.head.flags & !(flags::FRAGMENT | flags::FIRST), ..frame.head };
        let moved = Moved { at: now, len: part.len() };
        let (path, front, sum) = (frame.path.to_vec(), front.to_vec(), Sum::default());
        self.assembly = Assembly::Whole { head, path, total, front, bytes, sum, moved };
        Ok(Part::Kept)
    }

    fn go_on(&mut self, frame: &Frame<'_>, memory: &mut usize, now: Time) -> Result<Part, Reason> {
        let part = frame.body;
        let is_last = frame.head.has(flags::LAST);
        match &mut self.assembly {
            Assembly::Whole { head, total, front, bytes, sum, moved, .. } => {
                let len = front.len() + bytes.len() + part.len();
                let fits = len <= *total && (len == *total) == is_last && !part.is_empty();
                if !fits || head.seq != frame.head.seq || head.kind != frame.head.kind {
                    return Err(Reason::Fragments);
                }
                bytes.extend_from_slice(part);
                if len >= moved.len + FRAGMENT_LEN {
                    *moved = Moved { at: now, len };
                }
                if head.kind == Kind::Push {
                    sum.go_on(bytes, bytes.len().saturating_sub(UNSUMMED));
                }
            }
            Assembly::Skipped { seq, left } => {
                let fits =
                    part.len() <= *left && (part.len() == *left) == is_last && !part.is_empty();
                if !fits || *seq != frame.head.seq {
                    return Err(Reason::Fragments);
                }
                *left -= part.len();
            }
            Assembly::None => return Err(Reason::Fragments),
        }
        if !is_last {
            return Ok(Part::Kept);
        }
        match std::mem::replace(&mut self.assembly, Assembly::None) {
            Assembly::Whole { head, path, total, front, bytes, sum, .. } => {
                *memory += total;
                Ok(Part::Done { head, path, front, body: bytes, sum })
            }
            _ => Ok(Part::Kept),
        }
    }

    /// Gives up a message in parts that has not gone on for `idle`, and frees its memory. Returns
    /// whose it is. The rest of it is skipped if it comes.
    pub fn give_up_idle(
        &mut self,
        idle: Duration,
        memory: &mut usize,
        now: Time,
    ) -> Option<(Head, Vec<u8>)> {
        // A peer without credit cannot go on.
        let may_go_on = self.granted - self.received >= FRAME_LEN_MAX as u64;
        let Assembly::Whole { head, total, front, bytes, moved, .. } = &mut self.assembly else {
            return None;
        };
        if !may_go_on {
            moved.at = now;
        }
        if now < moved.at + idle {
            return None;
        }
        let skipped = Assembly::Skipped { seq: head.seq, left: *total - front.len() - bytes.len() };
        *memory += *total;
        match std::mem::replace(&mut self.assembly, skipped) {
            Assembly::Whole { head, path, .. } => Some((head, path)),
            _ => None,
        }
    }

    /// Returns the memory of the message in parts.
    pub fn assembly_len(&self) -> usize {
        match &self.assembly {
            Assembly::Whole { total, .. } => *total,
            _ => 0,
        }
    }

    /// Returns whether it is time to report what was taken: after a quarter of the window, or
    /// anything at all when `eagerly`.
    pub fn is_credit_due(&self, eagerly: bool) -> bool {
        let unsaid = self.received - self.reported;
        unsaid >= self.window / 4
            || (eagerly && (unsaid > 0 || self.granted < self.received + self.window))
    }

    /// Returns what to report: bytes taken, and how many may have been sent. A channel that is
    /// `held` gets no more credit than it has.
    pub fn credit(&mut self, held: bool) -> (u64, u64) {
        self.reported = self.received;
        if !held {
            self.granted = self.received + self.window;
        }
        (self.received, self.granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, Parsed};
    use crate::peer::outbox::{Outbox, Version};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn fragment(flag: u16, seq: u64, body: &[u8]) -> Vec<u8> {
        let flags = flags::FRAGMENT | flag;
        let head = Head { kind: Kind::Message, flags, seq, src: NodeId(1), dst: NodeId(2), ttl: 4 };
        let mut out = Vec::new();
        frame::append(&mut out, &head, &[], [body, &[]]);
        out
    }

    fn accept(inbox: &mut Inbox, bytes: &[u8], memory: &mut usize) -> Result<Part, Reason> {
        let Ok(Parsed::Frame(frame)) = frame::parse(bytes, frame::FRAME_BODY_MAX) else { panic!() };
        inbox.accept(&frame, NodeId(1), 1000, memory, Time(0))
    }

    #[test]
    fn more_than_the_credit_is_a_fault() {
        let mut inbox = Inbox::new(100);
        let bytes = fragment(flags::FIRST, 1, &[9, 0, 0, 0, 1, 1, 1, 1]);
        let mut memory = 100;
        assert_eq!(accept(&mut inbox, &bytes, &mut memory), Ok(Part::Kept));
        assert!(inbox.is_credit_due(false));
        assert_eq!(inbox.credit(true), (48, 100));
        let more = fragment(0, 1, &[1]);
        assert_eq!(accept(&mut inbox, &more, &mut memory), Ok(Part::Kept));
        assert_eq!(accept(&mut inbox, &more, &mut memory), Err(Reason::Credit));
    }

    #[test]
    fn what_there_is_no_memory_for_is_passed_over_and_told_once() {
        let mut inbox = Inbox::new(10_000);
        let mut memory = 5;
        let first = fragment(flags::FIRST, 1, &[6, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(accept(&mut inbox, &first, &mut memory), Ok(Part::Refused(Reason::Memory)));
        assert_eq!(accept(&mut inbox, &fragment(0, 1, &[1]), &mut memory), Ok(Part::Kept));
        assert_eq!(
            accept(&mut inbox, &fragment(flags::LAST, 1, &[1]), &mut memory),
            Ok(Part::Kept)
        );
        let next = fragment(flags::FIRST, 2, &[5, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(accept(&mut inbox, &next, &mut memory), Ok(Part::Kept));
        assert_eq!((memory, inbox.assembly_len()), (0, 5));
        let done = accept(&mut inbox, &fragment(flags::LAST, 2, &[1]), &mut memory);
        assert!(matches!(done, Ok(Part::Done { body, .. }) if body == [1; 5]));
        assert_eq!(memory, 5);
        let long = fragment(flags::FIRST, 3, &[0xe9, 3, 0, 0, 1]);
        assert_eq!(accept(&mut inbox, &long, &mut 2000), Ok(Part::Refused(Reason::TooLarge)));
    }

    #[test]
    fn a_message_that_stands_still_is_given_up_unless_it_has_no_credit() {
        let idle = Duration::from_secs(30);
        let mut inbox = Inbox::new(1 << 20);
        let mut memory = 500;
        let first = fragment(flags::FIRST, 1, &[244, 1, 0, 0, 1, 1]);
        accept(&mut inbox, &first, &mut memory).unwrap();
        let before = Time(0) + Duration::from_secs(29);
        assert_eq!(inbox.give_up_idle(idle, &mut memory, before), None);
        // A byte now and then does not count as going on.
        let bytes = fragment(0, 1, &[1]);
        let Ok(Parsed::Frame(frame)) = frame::parse(&bytes, 1000) else { panic!() };
        inbox.accept(&frame, NodeId(1), 1000, &mut memory, before).unwrap();
        let given_up = inbox.give_up_idle(idle, &mut memory, Time(0) + idle).unwrap();
        assert_eq!((given_up.0.seq, memory, inbox.assembly_len()), (1, 500, 0));
        // What comes of it all the same is skipped, and the next message is accepted.
        let rest = fragment(flags::LAST, 1, &[1; 497]);
        assert_eq!(accept(&mut inbox, &rest, &mut memory), Ok(Part::Kept));
        accept(&mut inbox, &fragment(flags::FIRST, 2, &[5, 0, 0, 0, 1]), &mut memory).unwrap();
        let mut held = Inbox::new(1000);
        accept(&mut held, &first, &mut memory).unwrap();
        for seconds in [40, 80, 120] {
            let now = Time(0) + Duration::from_secs(seconds);
            assert_eq!(held.give_up_idle(idle, &mut memory, now), None);
        }
    }

    #[test]
    fn fragments_that_do_not_fit_are_a_fault() {
        let first = fragment(flags::FIRST, 1, &[6, 0, 0, 0, 1, 1]);
        for bad in [
            fragment(flags::FIRST, 1, &[6, 0, 0, 0, 1, 1]),
            fragment(0, 1, &[1, 1, 1, 1]),
            fragment(flags::LAST, 1, &[1, 1, 1]),
            fragment(0, 1, &[1, 1, 1, 1, 1]),
            fragment(0, 1, &[]),
            fragment(flags::LAST, 2, &[1, 1, 1, 1]),
        ] {
            let mut inbox = Inbox::new(10_000);
            accept(&mut inbox, &first, &mut 100).unwrap();
            assert_eq!(accept(&mut inbox, &bad, &mut 100), Err(Reason::Fragments));
        }
        assert_eq!(
            accept(&mut Inbox::new(1000), &fragment(0, 1, &[1]), &mut 100),
            Err(Reason::Fragments)
        );
    }

    #[test]
    fn the_sum_of_a_push_is_made_as_it_comes() {
        let (mut outbox, mut inbox) = (Outbox::default(), Inbox::new(1 << 20));
        outbox.set_credit(0, 1 << 20);
        let body: Vec<u8> = (0..200_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
        let head = Head::plain(Kind::Push, NodeId(1), NodeId(2));
        let version = Version { topic: "a".into(), number: 1 };
        outbox.push_version(&head, version, Arc::new(body.clone()), b"what it is".to_vec());
        let mut out = Vec::new();
        outbox.poll(&mut out, 1 << 20);
        let (mut rest, mut done) = (&out[..], None);
        while let Ok(Parsed::Frame(frame)) = frame::parse(rest, frame::FRAME_BODY_MAX) {
            if let Part::Done { body, sum, .. } =
                inbox.accept(&frame, NodeId(1), 1 << 20, &mut (1 << 20), Time(0)).unwrap()
            {
                done = Some((body, sum));
            }
            rest = &rest[frame.len..];
        }
        let (whole, sum) = done.unwrap();
        assert_eq!(whole, [&body[..], b"what it is"].concat());
        assert_eq!(sum.len, whole.len() - UNSUMMED);
        assert_eq!(sum.of(&body), crc32c::crc32c(&body));
        assert_eq!(
            sum.of(&body[..10]),
            crc32c::crc32c(&body[..10]),
            "shorter than what was summed"
        );
    }

    #[test]
    fn the_last_argument_of_a_command_for_this_node_is_apart_and_of_others_is_not() {
        let last = vec![7; 200_000];
        let mut body = Vec::new();
        let mut out = crate::wire::Writer::new(&mut body);
        out.u32(2);
        out.bytes(b"name");
        out.bytes(&last);
        for (our_id, kind, is_apart) in [
            (NodeId(2), Kind::Command, true),
            (NodeId(3), Kind::Command, false),
            (NodeId(2), Kind::Message, false),
        ] {
            let (mut outbox, mut inbox) = (Outbox::default(), Inbox::new(1 << 20));
            outbox.set_credit(0, 1 << 20);
            let head = Head { kind, ..Head::plain(Kind::Command, NodeId(1), NodeId(2)) };
            outbox.push_large(&head, &[], Arc::new(body.clone()));
            let (mut out, mut memory, mut done) = (Vec::new(), 1 << 20, None);
            outbox.poll(&mut out, 1 << 20);
            let mut rest = &out[..];
            while let Ok(Parsed::Frame(frame)) = frame::parse(rest, frame::FRAME_BODY_MAX) {
                if let Part::Done { front, body, .. } =
                    inbox.accept(&frame, our_id, 1 << 20, &mut memory, Time(0)).unwrap()
                {
                    done = Some((front, body));
                }
                rest = &rest[frame.len..];
            }
            let (front, behind) = done.unwrap();
            assert_eq!(front.is_empty(), !is_apart);
            assert!([&front[..], &behind[..]].concat() == body && memory == 1 << 20);
            assert!(!is_apart || behind == last);
        }
    }

    proptest! {
        /// Everything that is queued arrives, whatever the credit and the room.
        #[test]
        fn what_is_queued_arrives_whole_and_in_order(
            lens in prop::collection::vec(0usize..200_000, 1..6),
            rooms in prop::collection::vec(1usize..150_000, 1..20),
        ) {
            let (mut outbox, mut inbox) = (Outbox::default(), Inbox::new(140_000));
            outbox.set_credit(0, 140_000);
            for (seq, len) in lens.iter().enumerate() {
                let head = Head {
                    kind: Kind::Message, flags: 0, seq: seq as u64, src: NodeId(1), dst: NodeId(2), ttl: 4,
                };
                outbox.push_large(&head, &[], Arc::new(vec![seq as u8; *len]));
            }
            let mut got = Vec::new();
            let mut memory = 1 << 20;
            let mut rooms = rooms.iter().cycle();
            while !outbox.is_done() {
                let mut out = Vec::new();
                outbox.poll(&mut out, *rooms.next().unwrap());
                let mut rest = &out[..];
                while !rest.is_empty() {
                    let Ok(Parsed::Frame(frame)) = frame::parse(rest, frame::FRAME_BODY_MAX) else { panic!() };
                    match inbox.accept(&frame, NodeId(1), 1 << 20, &mut memory, Time(0)).unwrap() {
                        Part::Single => got.push((frame.head.seq, frame.body.to_vec())),
                        Part::Done { head, body, .. } => got.push((head.seq, body)),
                        Part::Kept => {}
                        Part::Refused(_) => panic!(),
                    }
                    rest = &rest[frame.len..];
                }
                let (taken, limit) = inbox.credit(false);
                prop_assert!(outbox.set_credit(taken, limit));
            }
            let expected: Vec<_> =
                lens.iter().enumerate().map(|(seq, len)| (seq as u64, vec![seq as u8; *len])).collect();
            prop_assert!(got == expected);
            prop_assert_eq!(memory, 1 << 20);
        }
    }
}
