//! The rooms of a worker, for which its turn calls the same few functions. A new room is listed
//! here once.

use super::pools::{cluster, memcached, routed, servers, store};
use super::{Plane, clients, observe, pending, upstream};

/// The functions that a turn calls for each room.
pub(super) trait Room {
    /// Returns whether the room has something to do before the worker sleeps.
    fn has_work(&self) -> bool;

    /// Handles mail: other workers may have left something for this one.
    fn on_mail(&mut self) {}
}

/// Calls one function of all rooms, and joins the results with an operator.
macro_rules! rooms {
    ($plane:expr, $verb:ident, $join:tt) => {
        $plane.clients.$verb()
            $join $plane.upstream.$verb()
            $join $plane.pending.$verb()
            $join $plane.store.$verb()
            $join $plane.servers.$verb()
            $join $plane.memcached.$verb()
            $join $plane.cluster.$verb()
            $join $plane.routes.$verb()
            $join $plane.observe.$verb()
    };
}

impl Plane {
    /// Returns whether a room has something to do before the worker sleeps.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        rooms!(self, has_work, ||)
    }

    /// Handles mail: other workers may have left something for this one. They do not say for which
    /// room.
    pub(crate) fn on_mail(&mut self) {
        rooms!(self, on_mail, ;);
    }
}

impl Room for clients::State {
    #[inline]
    fn has_work(&self) -> bool {
        !self.resuming.is_empty() || !self.dirty.is_empty()
    }
}

impl Room for upstream::State {
    #[inline]
    fn has_work(&self) -> bool {
        !self.dirty_links.is_empty()
            || !self.connects.is_empty()
            || !self.discards.is_empty()
            || self.streamed_replies.has_freed()
    }
}

impl Room for pending::State {
    #[inline]
    fn has_work(&self) -> bool {
        self.has_due()
    }
}

impl Room for store::State {
    #[inline]
    fn has_work(&self) -> bool {
        self.tracking.has_work() || self.blocking.has_work()
    }

    fn on_mail(&mut self) {
        self.tracking.has_mail = true;
        self.blocking.has_mail = true;
    }
}

impl Room for servers::State {
    #[inline]
    fn has_work(&self) -> bool {
        self.pubsub.has_work() || self.tracking.has_work()
    }

    fn on_mail(&mut self) {
        self.pubsub.has_mail = true;
        self.tracking.has_mail = true;
    }
}

impl Room for memcached::State {
    /// Replies and the clock start all its work.
    #[inline]
    fn has_work(&self) -> bool {
        false
    }
}

impl Room for cluster::State {
    #[inline]
    fn has_work(&self) -> bool {
        self.has_heard()
    }
}

impl Room for routed::State {
    #[inline]
    fn has_work(&self) -> bool {
        self.has_steps()
    }
}

impl Room for observe::State {
    #[inline]
    fn has_work(&self) -> bool {
        self.monitoring.has_work()
    }

    fn on_mail(&mut self) {
        self.monitoring.has_mail = true;
    }
}
