//! What the user has not taken yet.
//!
//! All of it has a bound, beyond which peers get no more credit; what they may still send is bounded by their
//! windows. A body that was compressed could be 255 times as much, so beyond the bound it stays as it came
//! until it is taken.

use super::Node;
use super::answers::read_result;
use crate::compress::decompressed;
use crate::event::Event;
use crate::frame::{Head, Kind};
use crate::id::NodeId;
use std::collections::VecDeque;

enum Waits {
    Event(Event),
    Packed { kind: Kind, from: NodeId, seq: u64, packed: Vec<u8>, weight: usize },
}

/// Events, and what all of them weigh.
#[derive(Default)]
pub(super) struct Events {
    queue: VecDeque<Waits>,
    len: usize,
}

impl Events {
    /// Bytes of all of them, taken apart.
    pub fn len(&self) -> usize {
        self.len
    }

    fn pop(&mut self) -> Option<Event> {
        loop {
            let (kind, from, seq, packed) = match self.queue.pop_front()? {
                Waits::Event(event) => {
                    self.len -= event.weight();
                    return Some(event);
                }
                Waits::Packed { kind, from, seq, packed, weight } => {
                    self.len -= weight;
                    (kind, from, seq, packed)
                }
            };
            // It was looked at when it came.
            let Some(body) = decompressed(&packed, usize::MAX) else { continue };
            if kind == Kind::Message {
                return Some(Event::Message { from, seq, body });
            }
            if let Some((status, items)) = read_result(&body) {
                return Some(Event::Result { seq, from, status, items });
            }
        }
    }
}

impl Node {
    /// What has happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop()?;
        if self.is_held && self.events.len() <= self.settings.inbox_len_max / 2 {
            self.is_held = false;
            self.tell_all_credit();
        }
        Some(event)
    }

    pub(super) fn tell(&mut self, event: Event) {
        let weight = event.weight();
        self.put(Waits::Event(event), weight);
    }

    /// Tells of a message or a result that came compressed as `packed`.
    pub(super) fn tell_unpacked(&mut self, head: &Head, packed: &[u8], event: Event) {
        if !self.is_held {
            return self.tell(event);
        }
        let weight = event.weight();
        let (kind, from, seq) = (head.kind, head.src, head.seq);
        self.put(Waits::Packed { kind, from, seq, packed: packed.to_vec(), weight }, weight);
    }

    fn put(&mut self, waits: Waits, weight: usize) {
        self.events.len += weight;
        self.is_held |= self.events.len > self.settings.inbox_len_max;
        self.events.queue.push_back(waits);
    }
}
