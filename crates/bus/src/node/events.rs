//! Events that the user has not taken yet.
//!
//! They have a bound, beyond which peers get no more credit. What peers may still send is bounded
//! by their windows. A compressed body could be 255 times as large, so beyond the bound it stays
//! compressed until it is taken.

use super::Node;
use super::state::Waits;
use crate::event::Event;
use crate::frame::Head;

impl Node {
    /// Returns whether there are events that [`Node::poll_event`] has not returned yet. The caller
    /// must not wait then.
    pub fn has_event(&self) -> bool {
        !self.events.queue.is_empty()
    }

    /// Returns the next event, the oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop()?;
        if self.is_held && self.events.len() <= self.settings.inbox_len_max / 2 {
            self.is_held = false;
            self.tell_all_credit();
        }
        Some(event)
    }

    /// Returns whether there are so many events that connections are not read any more.
    pub(super) fn is_overfull(&self) -> bool {
        self.events.len() > 2 * self.settings.inbox_len_max
    }

    pub(super) fn tell(&mut self, event: Event) {
        let weight = event.weight();
        self.put(Waits::Event(event), weight);
    }

    /// Adds an event for a message or a result that came compressed as `packed`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;
    use crate::frame::Kind;
    use crate::settings::Settings;
    use keyway_base::Time;

    fn message(seq: u64, body: Vec<u8>) -> (Head, Event) {
        let from = NodeId(2);
        let mut head = Head::plain(Kind::Message, from, NodeId(1));
        head.seq = seq;
        (head, Event::Message { from, seq, body })
    }

    #[test]
    fn beyond_the_bound_a_body_stays_as_it_came_until_it_is_taken() {
        let mut settings = Settings::of(NodeId(1));
        settings.inbox_len_max = 100_000;
        let mut node = Node::new(settings, 1, Time(0));
        let body = vec![7; 1 << 20];
        let packed = crate::compress::compressed(&body).unwrap();
        for seq in 0..10 {
            let (head, event) = message(seq, body.clone());
            node.tell_unpacked(&head, &packed, event);
        }
        // The first one was decompressed: it alone exceeds the bound.
        let kept = |waits: &Waits| match waits {
            Waits::Event(event) => event.weight(),
            Waits::Packed { packed, .. } => packed.len(),
        };
        let lens: Vec<usize> = node.events.queue.iter().map(kept).collect();
        assert!(lens[0] > 1 << 20 && lens[1..].iter().all(|len| *len < 10_000), "{lens:?}");
        assert!(node.events.len() > 10 << 20, "all of it counts");
        for seq in 0..10 {
            assert!(node.is_held);
            assert_eq!(node.poll_event(), Some(message(seq, body.clone()).1));
        }
        assert!(!node.is_held && node.events.len() == 0 && node.poll_event().is_none());
    }

    #[test]
    fn results_are_kept_packed_as_well() {
        let mut settings = Settings::of(NodeId(1));
        settings.inbox_len_max = 1;
        let mut node = Node::new(settings, 1, Time(0));
        node.tell(Event::Joined(NodeId(3)));
        let items = vec![vec![1; 5000], vec![]];
        let mut plain = vec![3, 0, 2, 0, 0, 0];
        for item in &items {
            plain.extend((item.len() as u32).to_le_bytes());
            plain.extend(item);
        }
        let head = Head::plain(Kind::Result, NodeId(2), NodeId(1));
        let event = Event::Result { seq: 0, from: NodeId(2), status: 3, items };
        node.tell_unpacked(&head, &crate::compress::compressed(&plain).unwrap(), event.clone());
        assert!(matches!(node.events.queue[1], Waits::Packed { .. }));
        assert_eq!(node.poll_event(), Some(Event::Joined(NodeId(3))));
        assert_eq!(node.poll_event(), Some(event));
    }
}
