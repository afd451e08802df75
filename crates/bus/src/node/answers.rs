//! Outcomes that are waited for: acknowledgements, results of commands.

use super::Node;
use super::came::Came;
use super::items::{ARGS_MAX, ITEMS_MAX, read_items, read_result, read_split, write_items};
use super::state::Awaited;
use crate::event::Event;
use crate::fault::{Reason, SendFault};
use crate::frame::{FRAGMENT_LEN, Head, Kind, flags};
use crate::id::NodeId;
use crate::peer::{Identity, Origin};
use crate::url::by_nearness;
use crate::wire::{Reader, Writer};
use keyway_base::Time;
use std::sync::Arc;
use std::time::Duration;

impl Node {
    pub(super) fn check_waiting(&self) -> Result<(), SendFault> {
        let is_full = self.waiting.by_seq.len() >= self.settings.waiting_max;
        if is_full { Err(SendFault::TooManyWaiting) } else { Ok(()) }
    }

    pub(super) fn await_answer(&mut self, seq: u64, dst: NodeId, deadline: Time) {
        self.await_as(seq, dst, deadline, false);
    }

    fn await_as(&mut self, seq: u64, dst: NodeId, deadline: Time, is_own: bool) {
        self.waiting.by_seq.insert(seq, Awaited { dst, deadline, is_own });
        self.waiting.by_time.insert((deadline, seq));
        self.wake_at(deadline);
    }

    /// Ends the wait for a message. Returns whether the user waited for it.
    pub(super) fn end_waiting(&mut self, seq: u64, dst: NodeId, reason: Reason) -> bool {
        match self.waiting.take(seq, dst) {
            Some(awaited) if awaited.is_own => {
                self.tell(Event::Refused { id: dst, from: None, reason });
                false
            }
            Some(_) => true,
            None => {
                self.counts.late_answers += 1;
                false
            }
        }
    }

    pub(super) fn expire_waiting(&mut self, now: Time) {
        while let Some((at, seq)) = self.waiting.by_time.first().copied()
            && at <= now
        {
            self.waiting.by_time.remove(&(at, seq));
            let Some(awaited) = self.waiting.by_seq.remove(&seq) else { continue };
            if awaited.is_own {
                self.tell(Event::Refused { id: awaited.dst, from: None, reason: Reason::Timeout });
                continue;
            }
            self.counts.failed += 1;
            let (dst, by, reason) = (awaited.dst, self.id, Reason::Timeout);
            self.tell(Event::Failed { seq, dst, by, reason, maybe: true });
        }
    }

    /// Fails all waits, because the node is gone.
    pub(super) fn end_all_waiting(&mut self) {
        self.waiting.by_time.clear();
        let (by, reason) = (self.id, Reason::Leaving);
        for (seq, Awaited { dst, is_own, .. }) in std::mem::take(&mut self.waiting.by_seq) {
            if is_own {
                self.tell(Event::Refused { id: dst, from: None, reason });
                continue;
            }
            self.counts.failed += 1;
            self.tell(Event::Failed { seq, dst, by, reason, maybe: true });
        }
    }

    pub(super) fn on_ack(&mut self, head: &Head) {
        if self.end_waiting(head.seq, head.src, Reason::Unknown) {
            self.tell(Event::Acked { seq: head.seq });
        }
    }

    /// Sends a command to a node: its name, then arguments. It may be as long as a message, and one
    /// of up to 64 KiB does not wait behind messages. Ends in one [`Event::Result`] or
    /// [`Event::Failed`]. Names that begin with `bus.` are answered by the node itself: `bus.ping`,
    /// `bus.tree`, `bus.stats`, `bus.topics`, `bus.who`.
    pub fn command<T: AsRef<[u8]>>(
        &mut self,
        dst: NodeId,
        args: &[T],
        within: Duration,
        now: Time,
    ) -> Result<u64, SendFault> {
        self.ask(dst, args, now + within, false, now)
    }

    fn ask<T: AsRef<[u8]>>(
        &mut self,
        dst: NodeId,
        args: &[T],
        deadline: Time,
        is_own: bool,
        now: Time,
    ) -> Result<u64, SendFault> {
        self.check_waiting()?;
        let len: usize = args.iter().map(|arg| arg.as_ref().len() + 4).sum();
        if len + 4 > self.settings.message_len_max || args.is_empty() || args.len() > ARGS_MAX {
            return Err(SendFault::Refused(Reason::TooLarge));
        }
        let mut body = Vec::with_capacity(len + 4);
        write_items(args, &mut Writer::new(&mut body));
        let head = self.head_for(dst, Kind::Command)?;
        self.await_as(head.seq, dst, deadline, is_own);
        if dst == self.id {
            self.on_command(&head, &[], Came::Slice(&body), now);
            return Ok(head.seq);
        }
        let body = match body.len() > FRAGMENT_LEN {
            true => Came::Whole(Arc::new(body)),
            false => Came::Slice(&body),
        };
        self.pass(&head, &[], body, None, now).map_err(|reason| {
            self.waiting.take(head.seq, dst);
            SendFault::Refused(reason)
        })?;
        Ok(head.seq)
    }

    pub(super) fn on_command(&mut self, head: &Head, path: &[u8], body: Came<'_>, now: Time) {
        let args = match body {
            Came::Split(front, last) => read_split(&front, last, ARGS_MAX),
            body => read_items(Reader::new(body.bytes()), ARGS_MAX),
        };
        let args = args.filter(|args| !args.is_empty());
        let Some(args) = args else { return self.refuse(head, path, Reason::Malformed, now) };
        if !args[0].starts_with(b"bus.") {
            return self.tell(Event::Command { from: head.src, seq: head.seq, args });
        }
        match self.builtin(&args) {
            Some(items) => {
                // If it cannot be sent, the sender gets a timeout.
                let _ = self.reply(head.src, head.seq, 0, &items, now);
            }
            None => self.refuse(head, path, Reason::NoCommand, now),
        }
    }

    /// Answers an [`Event::Command`].
    pub fn reply<T: AsRef<[u8]>>(
        &mut self,
        to: NodeId,
        seq: u64,
        status: u16,
        items: &[T],
        now: Time,
    ) -> Result<(), SendFault> {
        let mut body = Vec::new();
        let mut out = Writer::new(&mut body);
        out.u16(status);
        write_items(items, &mut out);
        if body.len() > self.settings.message_len_max || items.len() > ITEMS_MAX {
            return Err(SendFault::Refused(Reason::TooLarge));
        }
        let mut head = Head {
            kind: Kind::Result,
            flags: 0,
            seq,
            src: self.id,
            dst: to,
            ttl: self.settings.ttl,
        };
        if to == self.id {
            self.on_result(&head, Came::Slice(&body), now);
            return Ok(());
        }
        if self.settings.compress
            && let Some(packed) = crate::compress::compressed(&body)
        {
            head.flags |= flags::COMPRESSED;
            body = packed;
        }
        self.pass(&head, &[], Came::Whole(Arc::new(body)), None, now).map_err(SendFault::Refused)
    }

    pub(super) fn on_result(&mut self, head: &Head, mut body: Came<'_>, now: Time) {
        let Some(awaited) = self.waiting.take(head.seq, head.src) else {
            self.counts.late_answers += 1;
            return;
        };
        let plain = self.plain_body(head, &mut body, self.settings.message_len_max);
        let result = plain.as_deref().and_then(read_result);
        match result {
            Some((_, items)) if awaited.is_own => self.dial_direct(head.src, &items, now),
            Some((status, items)) => {
                let event = Event::Result { seq: head.seq, from: head.src, status, items };
                match head.has(flags::COMPRESSED) {
                    true => self.tell_unpacked(head, body.bytes(), event),
                    false => self.tell(event),
                }
            }
            None => {
                let (dst, by, reason) = (head.src, self.id, Reason::Malformed);
                self.tell(Event::Failed { seq: head.seq, dst, by, reason, maybe: true });
            }
        }
    }

    /// Makes a connection to a node that is neither above nor below, so that messages to it go
    /// directly. The node is asked for its address through the tree. Ends in [`Event::PeerUp`] or
    /// [`Event::Refused`].
    pub fn connect_direct(
        &mut self,
        id: NodeId,
        within: Duration,
        now: Time,
    ) -> Result<(), SendFault> {
        let is_there = self.by_id.contains_key(&id)
            || self.dials.values().any(|dial| dial.origin == Origin::Direct(id));
        if is_there || id == self.id {
            return Ok(());
        }
        self.ask(id, &[b"bus.who"], now + within, true, now).map(|_| ())
    }

    fn dial_direct(&mut self, id: NodeId, items: &[Vec<u8>], now: Time) {
        let identity = items.first().and_then(|item| Identity::read(id, &mut Reader::new(item)));
        let urls = identity.map_or(Vec::new(), |identity| {
            by_nearness(&identity.urls, self.settings.place, identity.place)
        });
        if urls.is_empty() {
            return self.tell(Event::Refused { id, from: None, reason: Reason::DialFailed });
        }
        self.dial(Origin::Direct(id), urls, now);
    }
}
