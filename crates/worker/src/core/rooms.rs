//! The rooms of a worker, for which its turn calls the same few functions. A new room is listed
//! here once.

use super::pools::{cluster, memcached, routed, servers, store};
use super::pubsub::PubSub;
use super::request::{ClientMut, ClientRef};
use super::{Connections, Core, Plane, clients, observe, pending, upstream};

/// The functions that a turn calls for each room.
pub(super) trait Room {
    /// Returns whether the room has something to do before the worker sleeps.
    fn has_work(&self) -> bool;

    /// Handles mail: other workers may have left something for this one.
    fn on_mail(&mut self) {}

    /// Does what other rooms and other workers have left to it in this turn.
    #[inline]
    fn work(_core: &mut Core) {}

    /// Handles what is overdue, and notes when it has to do so next.
    fn on_deadline(_core: &mut Core) {}

    /// Forgets a client that leaves.
    #[inline]
    fn forget(_plane: &mut Plane, _links: &mut Connections, _client: ClientMut<'_>) {}

    /// Frees memory that one huge request needed: lists keep at most `kept_max` elements.
    fn trim(&mut self, _kept_max: usize) {}

    /// Frees what is kept for the next requests: no client is left.
    fn give_back(&mut self) {}
}

/// Calls one function of all rooms' states, and joins the results with an operator.
macro_rules! states {
    ($plane:expr, $verb:ident($($arg:expr),*), $join:tt) => {
        $plane.clients.$verb($($arg),*)
            $join $plane.upstream.$verb($($arg),*)
            $join $plane.pending.$verb($($arg),*)
            $join $plane.routes.$verb($($arg),*)
            $join $plane.pubsub.$verb($($arg),*)
            $join $plane.servers.$verb($($arg),*)
            $join $plane.memcached.$verb($($arg),*)
            $join $plane.cluster.$verb($($arg),*)
            $join $plane.store.$verb($($arg),*)
            $join $plane.observe.$verb($($arg),*)
    };
}

/// Calls one function of all rooms that needs more than the room's state.
macro_rules! rooms {
    ($verb:ident($($arg:expr),*)) => {
        <clients::State as Room>::$verb($($arg),*);
        <upstream::State as Room>::$verb($($arg),*);
        <pending::State as Room>::$verb($($arg),*);
        <routed::State as Room>::$verb($($arg),*);
        <PubSub as Room>::$verb($($arg),*);
        <servers::State as Room>::$verb($($arg),*);
        <memcached::State as Room>::$verb($($arg),*);
        <cluster::State as Room>::$verb($($arg),*);
        <store::State as Room>::$verb($($arg),*);
        <observe::State as Room>::$verb($($arg),*);
    };
}

impl Plane {
    /// Returns whether a room has something to do before the worker sleeps.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        states!(self, has_work(), ||)
    }

    /// Handles mail: other workers may have left something for this one. They do not say for which
    /// room.
    pub(crate) fn on_mail(&mut self) {
        states!(self, on_mail(), ;);
    }
}

impl Core {
    /// Lets each room do what others have left to it in this turn.
    #[inline]
    pub(crate) fn work_in_rooms(&mut self) {
        rooms!(work(self));
    }

    /// Lets each room handle what is overdue.
    pub(crate) fn handle_overdue(&mut self) {
        rooms!(on_deadline(self));
    }

    /// Lets each room forget a client that leaves.
    pub(super) fn forget(&mut self, mut client: ClientMut<'_>) {
        let Core { links, plane, .. } = self;
        rooms!(forget(plane, links, client.reborrow()));
    }

    /// Lets each room free memory that one huge request needed.
    pub(super) fn trim_rooms(&mut self, kept_max: usize) {
        states!(self.plane, trim(kept_max), ;);
    }

    /// Lets each room free what it keeps for the next requests.
    pub(super) fn give_back(&mut self) {
        states!(self.plane, give_back(), ;);
    }
}

impl Room for clients::State {
    #[inline]
    fn has_work(&self) -> bool {
        !self.resuming.is_empty() || !self.dirty.is_empty()
    }

    fn on_deadline(core: &mut Core) {
        core.end_pauses();
    }

    fn give_back(&mut self) {
        self.busy_pool.trim();
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

    fn forget(plane: &mut Plane, links: &mut Connections, client: ClientMut<'_>) {
        let ClientMut { key, session } = client;
        plane.end_streamed_reply(links, ClientRef { key, session });
        plane.cut_off_streaming(links, ClientMut { key, session }, None);
        plane.end_stateful(links, key, session);
    }
}

impl Room for pending::State {
    #[inline]
    fn has_work(&self) -> bool {
        self.has_due()
    }

    #[inline]
    fn work(core: &mut Core) {
        if core.has_operations_due() {
            core.continue_operations();
        }
    }

    fn trim(&mut self, kept_max: usize) {
        self.trim_scratch(kept_max);
    }

    fn give_back(&mut self) {
        self.forget_room();
    }
}

impl Room for routed::State {
    #[inline]
    fn has_work(&self) -> bool {
        self.has_steps()
    }

    #[inline]
    fn work(core: &mut Core) {
        if core.plane.routes.has_steps() {
            core.continue_routes();
        }
    }

    fn on_deadline(core: &mut Core) {
        core.release_crowded();
    }
}

impl Room for PubSub {
    #[inline]
    fn has_work(&self) -> bool {
        PubSub::has_work(self)
    }

    fn on_mail(&mut self) {
        self.has_mail = true;
    }

    fn forget(plane: &mut Plane, _links: &mut Connections, client: ClientMut<'_>) {
        if client.session.subscriptions.is_some() {
            plane.forget_subscriber(client.key, client.session);
        }
    }
}

impl Room for servers::State {
    #[inline]
    fn has_work(&self) -> bool {
        self.tracking.has_work()
    }

    fn on_mail(&mut self) {
        self.tracking.has_mail = true;
    }

    fn forget(plane: &mut Plane, links: &mut Connections, client: ClientMut<'_>) {
        plane.end_tracking(links, client.key, client.session);
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

    fn on_deadline(core: &mut Core) {
        core.send_retries();
        core.end_overdue_waits_for_maps();
    }

    fn forget(plane: &mut Plane, _links: &mut Connections, client: ClientMut<'_>) {
        plane.forget_wait(client.key);
    }

    fn trim(&mut self, kept_max: usize) {
        self.trim_requests(kept_max);
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

    #[inline]
    fn work(core: &mut Core) {
        if core.plane.store.blocking.has_work() {
            core.deliver_handouts();
        }
        if core.plane.store.tracking.has_work() {
            core.deliver_invalidations();
        }
        if core.plane.store.awaited.is_in_use() {
            core.plane.settle_awaited();
        }
    }

    fn on_deadline(core: &mut Core) {
        core.end_overdue_waits();
    }

    fn forget(plane: &mut Plane, _links: &mut Connections, client: ClientMut<'_>) {
        if plane.store.tracking.is_tracker(client.session.identity.id) {
            plane.forget_tracker(client.session);
        }
        plane.store.introduced.forget(client.session.identity.id);
    }

    fn trim(&mut self, kept_max: usize) {
        self.ahead.trim(kept_max);
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

    #[inline]
    fn work(core: &mut Core) {
        if core.plane.observe.monitoring.has_work() {
            core.deliver_monitored();
        }
    }

    fn forget(plane: &mut Plane, _links: &mut Connections, client: ClientMut<'_>) {
        let ClientMut { key, session } = client;
        if session.is_monitor {
            plane.end_monitor(key, session);
        }
        if session.has_unwritten {
            plane.forget_unwritten(key);
        }
    }
}
