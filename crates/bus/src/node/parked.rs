//! Failures whose sender cannot be reached. They are kept for a while, and no origin has more of
//! them than others.

use super::Node;
use super::state::Kept;
use crate::frame::{Kind, path_ids};
use crate::id::NodeId;
use crate::peer::PeerKey;
use crate::peer::outbox::Routed;
use keyway_base::Time;

impl Node {
    /// Returns the node on whose account a failure is kept: the one that has passed it on, or the
    /// next one on its way back.
    pub(super) fn origin_of(&self, routed: &Routed, from: Option<PeerKey>) -> NodeId {
        let from = from.and_then(|key| self.peers.get(key)).map(|peer| peer.id());
        let whose = match routed.head.kind {
            Kind::Failure => routed.head.dst,
            _ => routed.head.src,
        };
        from.or_else(|| path_ids(&routed.path).last()).unwrap_or(whose)
    }

    pub(super) fn park(&mut self, origin: NodeId, routed: Routed, since: Time) {
        self.counts.untold_failures += self.parked.keep(origin, routed, since);
    }

    /// Gives up failures whose sender could not be reached for long.
    pub(super) fn expire_parked(&mut self, now: Time) {
        self.counts.untold_failures += self.parked.expire(now);
    }

    /// Tries failures again once there may be a way.
    pub(super) fn unpark(&mut self, now: Time) {
        if !std::mem::take(&mut self.may_unpark) {
            return;
        }
        for (_, Kept { since, origin, routed }) in std::mem::take(&mut self.parked).all {
            // If it is kept again, it keeps its age and its origin.
            if let Some(routed) = self.try_again(routed, now) {
                self.park(origin, routed, since);
            }
        }
        self.hear_early(now);
    }

    /// Gives up all kept failures.
    pub(super) fn forget_parked(&mut self) {
        self.counts.untold_failures += std::mem::take(&mut self.parked).len() as u64;
    }
}
