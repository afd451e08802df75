use crate::core::pools::servers::tracking::state::State;
use crate::core::{ConnectionKey, Core, Plane};
use keyway_base::{BackendFault, Key, Slab};
use keyway_proxy::tracking::{
    Tracking, is_invalidation, write_broken, write_everything, write_redirected,
};
use keyway_proxy::{Identity, Session};
use keyway_resp::Protocol;

impl Core {
    /// Takes the next connection that must end because another did, if it has not ended by itself.
    pub(crate) fn next_loss(&mut self) -> Option<(ConnectionKey, BackendFault)> {
        while let Some((index, generation, fault)) = self.plane.servers.tracking.losses.pop() {
            let connection = self.links.get(index);
            if connection.is_some_and(|connection| connection.generation == generation) {
                return Some((index, fault));
            }
        }
        None
    }

    /// Handles a change of the usable servers of a pool, and so of the servers of its keys. No
    /// server tells the clients of changes to keys that they read before.
    #[cold]
    pub(in crate::core) fn on_ring_changed(&mut self, pool: u16) {
        let Core { sessions, plane, .. } = self;
        let State { tracked, forgets, .. } = &mut plane.servers.tracking;
        let tracked = tracked.iter().map(|&bits| Key::from_bits(bits));
        let is_of_pool = |&key: &Key<Session>| sessions.get(key).is_some_and(|it| it.pool == pool);
        // Later replies of a server that has left are of the past too.
        forgets.extend(tracked.filter(is_of_pool).map(|key| (key, true)));
        self.tend_tracking();
    }

    /// Tells this worker's clients the redirected invalidations of other workers.
    pub(crate) fn deliver_redirected(&mut self) {
        if !std::mem::take(&mut self.plane.servers.tracking.has_mail) {
            return;
        }
        let Core { sessions, plane, .. } = self;
        let inbox = plane.plan.redirects.take(plane.worker());
        let overrun = inbox.overrun.into_iter().map(|target| {
            let mut everything = Vec::new();
            write_everything(&mut everything);
            (target, everything)
        });
        for (target, push) in inbox.pushes.into_iter().chain(overrun) {
            if plane.tell_target(sessions, target, &push) {
                continue;
            }
            // The client has left, or is moving from one worker to another.
            if let Some(worker) = plane.plan.clients.worker(target) {
                plane.post_push(worker, target, &push);
            }
        }
    }

    /// Tells the sessions that must forget everything.
    pub(crate) fn tell_forgetful(&mut self) {
        let Core { sessions, plane, .. } = self;
        let mut push = Vec::new();
        write_everything(&mut push);
        let mut forgets = std::mem::take(&mut plane.servers.tracking.forgets);
        forgets.dedup();
        for (key, twice) in forgets {
            plane.invalidate(sessions, key, &push);
            let Some(session) = sessions.get_mut(key) else { continue };
            let order = session.busy.as_ref().map(|busy| &busy.order);
            let next = order.filter(|order| !order.is_empty()).map(|order| order.next_index());
            if let (true, Some(reply_index), Some(tracking)) = (twice, next, &mut session.tracking)
            {
                tracking.held.hold(reply_index, &push);
            }
        }
    }
}

impl Plane {
    /// Releases the pushes that were held back behind replies that have been sent. Call this before
    /// a session's output is sent.
    #[cold]
    pub(crate) fn release_pushes(&mut self, key: Key<Session>, session: &mut Session) {
        let Some(tracking) = &mut session.tracking else { return };
        if tracking.held.is_empty() {
            return;
        }
        let busy = session.busy.get_or_insert_with(|| self.clients.busy_pool.take());
        let (order, output) = (&busy.order, &mut busy.output);
        let has_passed = |index| order.has_passed(index);
        if tracking.redirect.is_none() || tells_itself(tracking, &session.identity) {
            return tracking.held.release(has_passed, output.buf());
        }
        // The receiver of redirected invalidations does not wait for the replies of the client that
        // reads. Only pushes about all keys are held back.
        let mut released = Vec::new();
        tracking.held.release(has_passed, &mut released);
        if !released.is_empty() {
            self.servers.tracking.forget(key, false);
        }
    }

    /// Handles an invalidation from a server for the client of a link.
    #[cold]
    pub(in crate::core) fn on_push(
        &mut self,
        sessions: &mut Slab<Session>,
        session: Option<Key<Session>>,
        push: &[u8],
    ) {
        if let Some(key) = session.filter(|_| is_invalidation(push)) {
            self.invalidate(sessions, key, push);
        }
    }

    /// Sends an invalidation to a session, or to the receiver that it redirects to.
    fn invalidate(&mut self, sessions: &mut Slab<Session>, key: Key<Session>, push: &[u8]) {
        let Some(session) = sessions.get_mut(key) else { return };
        let Some(tracking) = &session.tracking else { return };
        match tracking.redirect {
            Some(_) if tells_itself(tracking, &session.identity) => {
                self.hand_push(key, session, push);
            }
            Some(target) => self.redirect(sessions, key, target, push),
            None if session.identity.protocol == Protocol::Resp3 => {
                self.hand_push(key, session, push)
            }
            None => {}
        }
    }

    /// Sends an invalidation to the receiver of another client, if it is still there.
    fn redirect(
        &mut self,
        sessions: &mut Slab<Session>,
        key: Key<Session>,
        target: u64,
        push: &[u8],
    ) {
        let Some(session) = sessions.get_mut(key) else { return };
        let Some(worker) = self.plan.clients.worker_of(target, session.pool) else {
            return self.tell_broken(key, session, target);
        };
        if worker != self.worker() || !self.tell_target(sessions, target, push) {
            self.post_push(worker, target, push);
        }
    }

    fn post_push(&self, worker: u16, target: u64, push: &[u8]) {
        if self.plan.redirects.post(worker, target, push) && worker != self.worker() {
            self.plan.post_published(worker);
        }
    }

    /// Tells a session that the receiver of its invalidations has left.
    fn tell_broken(&mut self, key: Key<Session>, session: &mut Session, target: u64) {
        let Some(tracking) = &mut session.tracking else { return };
        if !tracking.is_broken {
            tracking.is_broken = true;
            self.plan.clients.set_tracking(session.identity.id, Some(tracking));
        }
        if session.identity.protocol == Protocol::Resp3 {
            let mut push = Vec::new();
            write_broken(&mut push, target);
            self.hand_push(key, session, &push);
        }
    }

    /// Sends another client's invalidation to a client of this worker. Returns whether the client
    /// is here.
    fn tell_target(&mut self, sessions: &mut Slab<Session>, target: u64, push: &[u8]) -> bool {
        let is_it = |session: &Session| session.identity.id == target;
        let known = self.servers.tracking.targets.get(&target).copied();
        let key = known
            .filter(|&key| sessions.get(key).is_some_and(is_it))
            .or_else(|| sessions.iter().find(|(_, session)| is_it(session)).map(|(key, _)| key));
        let Some(key) = key else {
            self.servers.tracking.targets.remove(&target);
            return false;
        };
        if known != Some(key) {
            self.servers.tracking.targets.retain(|_, &mut key| sessions.get(key).is_some());
            self.servers.tracking.targets.insert(target, key);
        }
        let Some(session) = sessions.get_mut(key) else { return false };
        let protocol = session.identity.protocol;
        let is_subscriber = session.subscriptions.as_ref().is_some_and(|it| it.is_subscriber());
        if !session.closing && (protocol == Protocol::Resp3 || is_subscriber) {
            if session.streamed_reply.is_some() {
                self.keep_behind(key, protocol, push);
                return true;
            }
            let busy = session.busy.get_or_insert_with(|| self.clients.busy_pool.take());
            write_redirected(busy.output.buf(), protocol, push);
            self.mark_session_dirty(key, session);
        }
        true
    }

    /// Appends a push to a session's output between whole replies. It follows the earlier replies
    /// that wait for others.
    fn hand_push(&mut self, key: Key<Session>, session: &mut Session, push: &[u8]) {
        if session.closing {
            return;
        }
        let Some(tracking) = &mut session.tracking else { return };
        let busy = session.busy.get_or_insert_with(|| self.clients.busy_pool.take());
        if tracking.held.must_hold(&busy.order) {
            tracking.held.hold(busy.order.next_index(), push);
        } else {
            busy.output.buf().extend_from_slice(push);
        }
        self.mark_session_dirty(key, session);
    }
}

/// Returns whether a session redirects its invalidations to itself. Then they follow its replies,
/// as without a redirection.
fn tells_itself(tracking: &Tracking, identity: &Identity) -> bool {
    tracking.redirect == Some(identity.id) && identity.protocol == Protocol::Resp3
}
