//! Delivers invalidations to tracked clients of this worker and of others.

use super::{TARGETS_MAX, everything, is_everything, push_of_keys};
use crate::core::{Core, Plane};
use crate::invalidations::{Client, Table, Told, What};
use keyway_base::{Key, Slab};
use keyway_proxy::tracking::{write_broken, write_redirected};
use keyway_proxy::{Busy, Session};
use keyway_resp::Protocol;
use std::sync::Arc;

impl Plane {
    /// Notes that everything has changed. All clients are told at the end of the turn, once however
    /// often it happens until then. `session` is told at once.
    pub(super) fn note_everything(
        &mut self,
        table: &Table,
        session: &mut Session,
        busy: &mut Busy,
    ) {
        table.clear();
        let own = session.identity.id;
        let is_told = session.tracking.is_some() && self.can_push_own(session, busy);
        if is_told {
            self.push_own(session, busy, &everything());
        }
        let by = is_told.then_some(own);
        let flushed = self.store.tracking.flushed.entry(session.pool).or_insert(by);
        if *flushed != by {
            *flushed = None;
        }
    }

    /// Tells all clients of the pools in which everything has changed. A client that was the only
    /// one to do this has been told already.
    fn tell_everybody(&mut self) {
        for (pool, by) in std::mem::take(&mut self.store.tracking.flushed) {
            let table = Arc::clone(self.table(pool));
            let push = everything();
            for (client, worker) in table.everybody() {
                if Some(client) != by {
                    self.send(client, worker, What::Changed(Arc::clone(&push)));
                }
            }
        }
    }

    /// Returns whether a push for a client can follow the reply that was just composed.
    fn can_push_own(&self, session: &Session, busy: &Busy) -> bool {
        let tracking = session.tracking.as_deref();
        tracking.is_none_or(|tracking| tracking.redirect.is_none()) && busy.order.is_empty()
    }

    /// Tells the client whose reply was just composed.
    pub(super) fn push_own(&mut self, session: &Session, busy: &mut Busy, push: &Arc<[u8]>) {
        if session.tracking.is_none() {
            return;
        }
        if !self.can_push_own(session, busy) {
            let client = session.identity.id;
            self.store.tracking.outbox.push(Told { client, what: What::Changed(Arc::clone(push)) });
        } else if session.identity.protocol == Protocol::Resp3 {
            busy.output.buf().extend_from_slice(push);
        }
    }

    /// Sends a message on its way to a client of any worker.
    pub(super) fn send(&mut self, client: Client, worker: u16, what: What) {
        let told = Told { client, what };
        if worker == self.worker() {
            self.store.tracking.outbox.push(told);
        } else {
            let own = self.worker();
            let (wakes, number) = self.plan.invalidations.post_awaited(worker, told, own);
            self.store.awaited.note_sent(worker, number);
            if wakes {
                self.plan.post_published(worker);
            }
        }
    }

    /// Tells the clients that are told of prefixes which keys have changed in this turn.
    fn broadcast(&mut self, sessions: &Slab<Session>) {
        for (pool, changed) in std::mem::take(&mut self.store.tracking.changed) {
            let table = Arc::clone(self.table(pool));
            for told in table.broadcasts(&changed) {
                let all = push_of_keys(told.keys.iter().map(|(key, _)| *key).collect());
                for (client, worker) in told.clients {
                    let key = self.store.tracking.trackers.get(&client);
                    let session = key.and_then(|key| sessions.get(*key));
                    // A client of another worker has changed nothing here.
                    let tracking = session.and_then(|session| session.tracking.as_deref());
                    let push = if tracking.is_some_and(|tracking| tracking.noloop) {
                        let others = told.keys.iter().filter(|(_, by)| *by != Some(client));
                        let keys: Vec<&[u8]> = others.map(|(key, _)| *key).collect();
                        if keys.is_empty() {
                            continue;
                        }
                        push_of_keys(keys)
                    } else {
                        Arc::clone(&all)
                    };
                    self.send(client, worker, What::Changed(push));
                }
            }
        }
    }

    /// Delivers a message to a client of this worker.
    fn deliver_told(&mut self, sessions: &mut Slab<Session>, told: &Told) {
        match &told.what {
            What::Changed(push) => {
                let Some((key, session)) = self.tracker(sessions, told.client) else { return };
                let Some(tracking) = session.tracking.as_deref() else { return };
                match tracking.redirect {
                    Some(target) => self.tell_redirected(sessions, told.client, target, push),
                    None => self.append_push(key, session, false, push),
                }
            }
            What::Redirected { tracker, push } => match self.target(sessions, told.client) {
                Some((key, session)) => self.append_push(key, session, true, push),
                // The client has left, or another worker has it now.
                None => self.tell_redirected(sessions, *tracker, told.client, push),
            },
            What::Broken { target } => {
                let Some((key, session)) = self.tracker(sessions, told.client) else { return };
                let Some(tracking) = session.tracking.as_deref_mut() else { return };
                if tracking.redirect != Some(*target) {
                    return;
                }
                tracking.is_broken = true;
                self.plan.clients.set_tracking(told.client, session.tracking.as_deref());
                let mut push = Vec::new();
                write_broken(&mut push, *target);
                self.append_push(key, session, false, &push);
            }
        }
    }

    /// Sends the invalidation of `tracker` to the client `target`.
    fn tell_redirected(
        &mut self,
        sessions: &mut Slab<Session>,
        tracker: Client,
        target: Client,
        push: &Arc<[u8]>,
    ) {
        let worker = self.plan.clients.get(target).map(|entry| entry.worker);
        match worker {
            Some(worker) if worker == self.worker() => {
                // The session is not here while it is being handed over. The client is told later.
                match self.target(sessions, target) {
                    Some((key, session)) => self.append_push(key, session, true, push),
                    None => self.leave_for(worker, target, tracker, push),
                }
            }
            Some(worker) => self.leave_for(worker, target, tracker, push),
            None => {
                if let Some(worker) = self.plan.clients.get(tracker).map(|entry| entry.worker) {
                    let told = Told { client: tracker, what: What::Broken { target } };
                    if worker == self.worker() {
                        self.deliver_told(sessions, &told);
                    } else {
                        self.send(tracker, worker, told.what);
                    }
                }
            }
        }
    }

    /// Leaves a redirected message in a worker's inbox.
    fn leave_for(&mut self, worker: u16, client: Client, tracker: Client, push: &Arc<[u8]>) {
        let what = What::Redirected { tracker, push: Arc::clone(push) };
        if self.plan.invalidations.post(worker, Told { client, what }) {
            self.plan.post_published(worker);
        }
    }

    /// Notes that a client has missed a redirected invalidation. The client is not, or not yet, a
    /// client of this worker.
    fn miss_elsewhere(&mut self, client: Client) {
        // A client that has left misses nothing. The clients that redirect to it are told.
        let Some(worker) = self.plan.clients.worker(client) else { return };
        if worker == self.worker() {
            self.store.tracking.late.insert((client, true));
        } else if self.plan.invalidations.miss(worker, client) {
            self.plan.post_published(worker);
        }
    }

    fn tracker<'a>(
        &self,
        sessions: &'a mut Slab<Session>,
        client: Client,
    ) -> Option<(Key<Session>, &'a mut Session)> {
        let key = *self.store.tracking.trackers.get(&client)?;
        Some((key, sessions.get_mut(key)?))
    }

    /// Returns a client of this worker, which need not cache itself.
    fn target<'a>(
        &mut self,
        sessions: &'a mut Slab<Session>,
        client: Client,
    ) -> Option<(Key<Session>, &'a mut Session)> {
        let targets = &mut self.store.tracking.targets;
        let is_it = |session: &Session| session.identity.id == client;
        let known = targets.get(&client).copied();
        let known = known.filter(|key| sessions.get(*key).is_some_and(is_it));
        let found = known.or_else(|| {
            let mut all = sessions.iter();
            all.find(|(_, session)| is_it(session)).map(|(key, _)| key)
        });
        match found {
            Some(key) if targets.len() < TARGETS_MAX => drop(targets.insert(client, key)),
            Some(_) => targets.clear(),
            None => drop(targets.swap_remove(&client)),
        }
        let key = found?;
        Some((key, sessions.get_mut(key)?))
    }

    /// Appends a push to a client's output, if the client can be told and has room.
    fn append_push(
        &mut self,
        key: Key<Session>,
        session: &mut Session,
        is_redirected: bool,
        push: &[u8],
    ) {
        let protocol = session.identity.protocol;
        let is_subscriber = || session.subscriptions.as_ref().is_some_and(|it| it.is_subscriber());
        let can_be_told = protocol == Protocol::Resp3 || is_redirected && is_subscriber();
        let is_late = self.store.tracking.late.contains(&(session.identity.id, is_redirected));
        if !can_be_told || is_late || session.closing {
            return;
        }
        let busy = session.busy.get_or_insert_with(|| self.clients.busy_pool.take());
        let room = self.plan.limits.session_output_len_soft as usize;
        // A push that everything may have changed is short. It is appended as soon as another reply
        // may follow.
        let len = if is_everything(push) { 1 } else { push.len() };
        if busy.undelivered() + len > room {
            self.store.tracking.late.insert((session.identity.id, is_redirected));
        } else if is_redirected && push.starts_with(b">2\r\n$10") {
            write_redirected(busy.output.buf(), protocol, push);
        } else {
            busy.output.buf().extend_from_slice(push);
        }
        self.mark_session_dirty(key, session);
        if self.store.tracking.told.last() != Some(&key) {
            self.store.tracking.told.push(key);
        }
    }
}

impl Core {
    /// Delivers the invalidations for clients of this worker.
    #[cold]
    pub(in crate::core) fn deliver_invalidations(&mut self) {
        let Core { sessions, plane, .. } = self;
        plane.tell_everybody();
        plane.broadcast(sessions);
        let mut outbox = std::mem::take(&mut plane.store.tracking.outbox);
        outbox.drain(..).for_each(|told| plane.deliver_told(sessions, &told));
        if plane.store.tracking.outbox.is_empty() {
            plane.store.tracking.outbox = outbox;
        }
        if std::mem::take(&mut plane.store.tracking.has_mail) {
            let (messages, missed) = plane.plan.invalidations.take(plane.worker());
            plane.store.tracking.owes_word |= !messages.is_empty() || !missed.is_empty();
            messages.iter().for_each(|told| plane.deliver_told(sessions, told));
            plane.store.tracking.late.extend(missed);
        }
    }

    /// Tells the clients that have missed something, and have room for another reply, that
    /// everything has changed. Call this before their requests are read. Otherwise a client that
    /// reads slowly would get replies for as long as it likes, and never be told.
    #[inline]
    pub(crate) fn tell_late(&mut self) {
        if !self.plane.store.tracking.late.is_empty() {
            self.tell_everything_late();
        }
    }

    #[cold]
    fn tell_everything_late(&mut self) {
        let Core { sessions, plane, .. } = self;
        let room = plane.plan.limits.session_output_len_soft as usize;
        for (client, is_redirected) in std::mem::take(&mut plane.store.tracking.late) {
            let found = match is_redirected {
                true => plane.target(sessions, client),
                false => plane.tracker(sessions, client),
            };
            let Some((key, session)) = found else {
                if is_redirected {
                    plane.miss_elsewhere(client);
                }
                continue;
            };
            let undelivered = session.busy.as_ref().map_or(0, |busy| busy.undelivered());
            if undelivered >= room {
                plane.store.tracking.late.insert((client, is_redirected));
                continue;
            }
            let push = everything();
            match session.tracking.as_deref().and_then(|tracking| tracking.redirect) {
                Some(target) if !is_redirected => {
                    plane.tell_redirected(sessions, client, target, &push)
                }
                _ => plane.append_push(key, session, is_redirected, &push),
            }
        }
    }
}
