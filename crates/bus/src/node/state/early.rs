//! Word that came before its sender was announced.

use crate::peer::PeerKey;
use crate::peer::outbox::Routed;
use keyway_base::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Most word that is kept, of one connection and of all.
const EARLY_MAX: (usize, usize) = (64, 256);

/// Time for which it is kept: the announcement that it needs is on its way.
const EARLY_FOR: Duration = Duration::from_secs(10);

/// Word that came before its sender was announced.
#[derive(Default)]
pub(in crate::node) struct Early {
    pub(in crate::node) kept: VecDeque<(Time, PeerKey, Routed)>,
}

impl Early {
    /// Keeps a frame, if there is room for more of that connection.
    pub(in crate::node) fn put(&mut self, from: PeerKey, routed: Routed, now: Time) -> bool {
        let own = self.kept.iter().filter(|(_, peer, _)| *peer == from).count();
        let has_room = own < EARLY_MAX.0 && self.kept.len() < EARLY_MAX.1;
        if has_room {
            self.kept.push_back((now, from, routed));
        }
        has_room
    }

    pub fn take(&mut self) -> VecDeque<(Time, PeerKey, Routed)> {
        std::mem::take(&mut self.kept)
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub fn forget(&mut self, now: Time) {
        while self.kept.front().is_some_and(|(at, ..)| now.since(*at) >= EARLY_FOR) {
            self.kept.pop_front();
        }
    }
}
