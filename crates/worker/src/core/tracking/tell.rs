use super::super::{Core, LinkIndex, Plane};
use keyway_base::{BackendFault, Key, Slab, Time};
use keyway_proxy::Session;
use keyway_proxy::tracking::{is_invalidation, write_everything};
use keyway_resp::Protocol;

/// What a worker knows of the sessions that are tracked.
#[derive(Default)]
pub(crate) struct State {
    /// Those with links of their own.
    pub(super) tracked: Vec<Key<Session>>,
    /// What `CLIENT CACHING` said of the request that is being started.
    pub(in super::super) caching: Option<&'static str>,
    /// Those that are to forget everything; and once more when what is on its
    /// way now has come.
    forgets: Vec<(Key<Session>, bool)>,
    /// Links that end because another did.
    pub(crate) losses: Vec<(LinkIndex, BackendFault)>,
    /// When links on which nothing moves are asked for a sign.
    pub(super) next_ping: Time,
}

impl State {
    /// Has a session told at the end of the turn that everything may have
    /// changed; with `twice`, again when what it has asked for is answered.
    pub(super) fn forget(&mut self, key: Key<Session>, twice: bool) {
        self.forgets.push((key, twice));
    }

    /// Whether there is something to do before the worker sleeps.
    pub(crate) fn has_work(&self) -> bool {
        !self.forgets.is_empty() || !self.losses.is_empty()
    }
}

impl Core {
    /// Who may be used in a pool has changed, and so where its keys live: who
    /// has read some is told of changes to them by nobody.
    #[cold]
    pub(in super::super) fn on_ring_changed(&mut self, pool: u16) {
        let Core { sessions, plane, .. } = self;
        for index in 0..plane.tracking.tracked.len() {
            let key = plane.tracking.tracked[index];
            if sessions.get(key).is_some_and(|session| session.pool == pool) {
                // What a server that has left answers now is of the past too.
                plane.tracking.forget(key, true);
            }
        }
        self.tend_tracking();
    }

    /// Tells those that are to forget everything so.
    pub(crate) fn tell_forgetful(&mut self) {
        let Core { sessions, plane, .. } = self;
        let mut push = Vec::new();
        write_everything(&mut push);
        let mut forgets = std::mem::take(&mut plane.tracking.forgets);
        forgets.dedup();
        for (key, twice) in forgets {
            plane.invalidate(sessions, key, &push);
            let Some(session) = sessions.get_mut(key) else { continue };
            let order = session.busy.as_ref().map(|busy| &busy.order);
            let next = order.filter(|order| !order.is_empty()).map(|order| order.next_place());
            if let (true, Some(place), Some(tracking)) = (twice, next, &mut session.tracking) {
                if tracking.redirect.is_none() && session.identity.protocol == Protocol::Resp3 {
                    tracking.held.hold(place, &push);
                }
            }
        }
    }
}

impl Plane {
    /// Lets go what was held back behind replies that have left. To be called
    /// before a session's output is sent.
    #[cold]
    pub(crate) fn release_pushes(&mut self, session: &mut Session) {
        let Some(tracking) = &mut session.tracking else { return };
        if tracking.held.is_empty() {
            return;
        }
        let busy = session.busy.get_or_insert_with(|| self.busy_pool.take());
        let (order, output) = (&busy.order, &mut busy.output);
        tracking.held.release(|place| order.has_passed(place), output.buf());
    }

    /// A server tells the client of a link that keys have changed.
    #[cold]
    pub(in super::super) fn on_push(
        &mut self,
        sessions: &mut Slab<Session>,
        session: Option<Key<Session>>,
        push: &[u8],
    ) {
        if let Some(key) = session.filter(|_| is_invalidation(push)) {
            self.invalidate(sessions, key, push);
        }
    }

    /// Tells a session, or who is told in its place, of an invalidation.
    fn invalidate(&mut self, sessions: &mut Slab<Session>, key: Key<Session>, push: &[u8]) {
        let Some(session) = sessions.get_mut(key) else { return };
        let Some(tracking) = &session.tracking else { return };
        match tracking.redirect {
            Some(_) => {}
            None if session.identity.protocol == Protocol::Resp3 => {
                self.hand_push(key, session, push)
            }
            None => {}
        }
    }

    /// Hands a push to a session: between whole replies, and behind those that
    /// came before it and wait for earlier ones.
    fn hand_push(&mut self, key: Key<Session>, session: &mut Session, push: &[u8]) {
        if session.closing {
            return;
        }
        let Some(tracking) = &mut session.tracking else { return };
        let busy = session.busy.get_or_insert_with(|| self.busy_pool.take());
        if busy.order.has_early() || !tracking.held.is_empty() {
            tracking.held.hold(busy.order.next_place(), push);
        } else {
            busy.output.buf().extend_from_slice(push);
        }
        self.mark_session_dirty(key, session);
    }
}
