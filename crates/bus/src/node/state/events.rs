//! Events that the user has not taken yet.

use super::super::items::read_result;
use crate::compress::decompressed;
use crate::event::Event;
use crate::frame::Kind;
use crate::id::NodeId;
use std::collections::VecDeque;

/// An event, or a body that stays compressed until it is taken.
pub(in crate::node) enum Waits {
    Event(Event),
    Packed { kind: Kind, from: NodeId, seq: u64, packed: Vec<u8>, weight: usize },
}

/// Events, with their total size.
#[derive(Default)]
pub(in crate::node) struct Events {
    pub(in crate::node) queue: VecDeque<Waits>,
    pub(in crate::node) len: usize,
}

impl Events {
    /// Returns the total size in bytes, decompressed.
    pub fn len(&self) -> usize {
        self.len
    }

    pub(in crate::node) fn pop(&mut self) -> Option<Event> {
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
            // It was checked when it came.
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
