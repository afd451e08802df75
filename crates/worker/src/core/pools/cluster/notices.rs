//! Messages that sentinels publish. A message is a reason to ask all sentinels, and nothing more. A
//! sentinel that is behind, or lies, causes questions and is not believed.
//!
//! The first worker listens for all workers, on one connection to each sentinel of a pool, whatever
//! primaries the pool has. The connection is of the kind that clients' channels use, so a lost one
//! is made again in the same way.

use crate::core::{Core, Plane};
use keyway_proxy::pubsub::{Name, payload_of};
use std::time::Duration;

/// The channel of a change of the primary. All sentinels are asked when its subscription is
/// confirmed, too, because earlier messages may have been missed.
const SWITCHED: &[u8] = b"+switch-master";

/// The channels of changes of a primary, its replicas and its other sentinels that may concern
/// where requests go.
const CHANNELS: [&[u8]; 5] = [SWITCHED, b"+slave", b"+sdown", b"-sdown", b"+reboot"];

/// Pause before the worker subscribes again at a sentinel that has refused. A shorter pause causes
/// useless traffic. A longer pause leaves a repaired sentinel unheard for longer.
const LISTEN_EVERY: Duration = Duration::from_secs(10);

/// Index of the worker that listens. The first worker always exists.
const LISTENER: u16 = 0;

impl Core {
    /// Makes sure, a few times a minute, that the worker is subscribed at every sentinel.
    pub(super) fn listen_to_sentinels(&mut self) {
        let now = self.plane.clock.now;
        let state = &mut self.plane.cluster;
        if state.sentinels.is_empty() || now < state.next_listen {
            return;
        }
        state.next_listen = now + LISTEN_EVERY;
        if self.plane.worker() == LISTENER {
            let names = CHANNELS.map(Name::from);
            self.plane.pubsub.want_of_sentinels(&names, now);
        }
    }

    /// Asks about the pools about which sentinels have sent messages.
    pub(super) fn follow_notices(&mut self) {
        for pool in std::mem::take(&mut self.plane.cluster.told_about) {
            self.ask_if_due(pool);
        }
    }
}

impl Plane {
    /// Takes a message from a sentinel. Asks about the pool soon when the message names one of its
    /// primaries.
    #[cold]
    pub(in crate::core) fn hear_notice(&mut self, from: u16, frame: &[u8]) {
        let about = self.asked_about(from);
        let Some(state) = self.cluster_state(about) else { return };
        let names = &state.shared.primaries();
        let is_ours = |word: &[u8]| names.iter().any(|name| name.as_bytes() == word);
        let payload = payload_of(frame).unwrap_or_default();
        if payload.split(|byte| *byte == b' ').any(is_ours) {
            state.shared.note_notice();
            self.ask_about_soon(about);
        }
    }

    /// Notes that a sentinel's channel is subscribed from now on.
    #[cold]
    pub(in crate::core) fn note_listening(&mut self, from: u16, name: &[u8]) {
        if name == SWITCHED {
            self.ask_about_soon(self.asked_about(from));
        }
    }

    fn ask_about_soon(&mut self, pool: u16) {
        let Some(state) = self.cluster_state(pool) else { return };
        state.shared.ask_again();
        if !self.cluster.told_about.contains(&pool) {
            self.cluster.told_about.push(pool);
        }
    }
}
