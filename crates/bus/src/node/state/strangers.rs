//! Connections that are not accepted yet, and reports of refused ones.

use crate::peer::PeerKey;
use keyway_base::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Most refusals of strangers that are reported one by one within a second; more are counted.
const REFUSALS_TOLD: u32 = 10;

/// Connections that are not accepted, the oldest first. Some may be accepted or gone by now.
#[derive(Default)]
pub(in crate::node) struct Strangers {
    pub(in crate::node) order: VecDeque<PeerKey>,
    /// Start of the current second, the refusals reported in it, and the number of unreported ones.
    pub(in crate::node) since: Time,
    told: u32,
    pub(in crate::node) untold: u64,
}

impl Strangers {
    /// Returns whether one more refusal is to be reported.
    pub(in crate::node) fn may_tell(&mut self, now: Time) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.told = 0;
        }
        self.told += 1;
        self.told <= REFUSALS_TOLD
    }
}
