//! Connections that are not let in yet, and what was told of those refused.

use crate::peer::PeerKey;
use keyway_base::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Refusals of strangers that are told one by one within a second; more are counted.
const REFUSALS_TOLD: u32 = 10;

/// Who has connected and is not let in, the oldest first; some may be so no more.
#[derive(Default)]
pub(in crate::node) struct Strangers {
    pub(in crate::node) order: VecDeque<PeerKey>,
    /// Refusals that were told since then, and how many were not.
    pub(in crate::node) since: Time,
    told: u32,
    pub(in crate::node) untold: u64,
}

impl Strangers {
    /// Whether one more refusal is to be told.
    pub(in crate::node) fn may_tell(&mut self, now: Time) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.told = 0;
        }
        self.told += 1;
        self.told <= REFUSALS_TOLD
    }
}
