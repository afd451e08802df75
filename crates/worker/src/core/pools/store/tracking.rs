//! Client-side caching on the embedded store: enters the keys that clients read in the table that
//! workers share, and tells clients of changes.
//!
//! ```text
//!  request ──► begin_tracked: its keys into the table ──► the store
//!          ◄── reply, then settle_changes: own pushes right behind it,
//!              others' at the end of the turn or by the inbox of their worker
//! ```
//! A push is appended to a client's output between whole replies, and only by the client's own
//! worker. It comes behind the reply to the read that it is about.

mod deliver;

use crate::core::Plane;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::invalidations::{Client, Table, What};
use crate::readers::Readers;
use keyway_base::KeyspaceEvents;
use keyway_command::{Flags, Request, Verb};
use keyway_proxy::tracking::{Change, Tracking, write_everything, write_invalidation};
use keyway_proxy::{Busy, Session};
use keyway_resp::reply;
use keyway_store::{KeyEvent, NO_WORKER, Store, Waiter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The changes of one request that clients must be told of.
pub(in crate::core) struct Settlement {
    /// The events of keys.
    events: Vec<KeyEvent>,
    /// The keys that the request read for a client that caches, if there are events, and whether
    /// the client had not read them before.
    reads: BTreeMap<Box<[u8]>, bool>,
    /// True if everything may have changed.
    is_of_everything: bool,
}

/// Number of events for which memory is kept after they were told.
const EVENTS_KEPT_MAX: usize = 1024;

/// Number of targets whose session keys are kept. The sessions of others are searched for again.
const TARGETS_MAX: usize = 1024;

impl Plane {
    fn table(&mut self, pool: u16) -> &Arc<Table> {
        let plan = &self.plan;
        let tables = &mut self.store.tracking.tables;
        tables.entry(pool).or_insert_with(|| plan.invalidations.table(pool))
    }

    /// Starts a command about tracking for a client of a store.
    #[cold]
    pub(super) fn track_on_store(&mut self, store: &Store, incoming: &mut RequestContext) -> Step {
        if let Some(step) = self.answer_tracking(incoming) {
            return step;
        }
        match self.read_tracking(incoming) {
            Some(Change::On(tracking)) => self.set_store_tracking(store, incoming, Some(tracking)),
            Some(Change::Off) => self.set_store_tracking(store, incoming, None),
            None => return Step::Started,
        }
        self.answer_locally(incoming, |out| reply::simple(out, "OK"));
        Step::Started
    }

    fn set_store_tracking(
        &mut self,
        store: &Store,
        incoming: &mut RequestContext,
        tracking: Option<Box<Tracking>>,
    ) {
        if tracking.is_none() && incoming.session.tracking.is_none() {
            return;
        }
        let (id, worker) = (incoming.session.identity.id, self.worker());
        let table = Arc::clone(self.table(incoming.session.pool));
        // The watch begins before the first key is entered or read: a writer that changes the key
        // later must know that changes are watched.
        table.join(id, worker, || store.watch_changes(true));
        self.store.tracking.trackers.insert(id, incoming.key);
        let old = prefixes_of(incoming.session.tracking.as_deref());
        let new = prefixes_of(tracking.as_deref());
        table.change_prefixes(id, &old, &new);
        self.plan.clients.set_tracking(id, tracking.as_deref());
        incoming.session.tracking = tracking;
    }

    /// Forgets a client that has left.
    #[cold]
    pub(in crate::core) fn forget_tracker(&mut self, session: &mut Session) {
        let id = session.identity.id;
        if self.store.tracking.trackers.swap_remove(&id).is_none() {
            return;
        }
        let plan = Arc::clone(&self.plan);
        let Some(store) = plan.pools[session.pool as usize].kind.store() else { return };
        let table = Arc::clone(self.table(session.pool));
        let prefixes = prefixes_of(session.tracking.as_deref());
        table.change_prefixes(id, &prefixes, &BTreeSet::new());
        table.leave(id, || store.watch_changes(false));
        self.store.tracking.late.swap_remove(&(id, false));
        self.store.tracking.late.swap_remove(&(id, true));
    }

    /// Prepares tracking for a request that a client now begins: enters the keys that it is about
    /// to read.
    #[cold]
    pub(super) fn begin_tracked(&mut self, store: &Store, incoming: &mut RequestContext) {
        let command = incoming.request.command;
        if command.verb == Verb::Reset {
            return self.set_store_tracking(store, incoming, None);
        }
        self.enter_reads(incoming.session, incoming.request);
        let is_part = matches!(command.verb, Verb::Multi | Verb::Exec);
        if let Some(tracking) = incoming.session.tracking.as_deref_mut()
            && !is_part
            && !command.name.starts_with("client|")
        {
            tracking.take_caching();
        }
    }

    /// Enters the keys that a request is about to read.
    pub(super) fn enter_reads(&mut self, session: &Session, request: &Request) {
        let command = request.command;
        let Some(tracking) = session.tracking.as_deref() else { return };
        let reads = command.flags.contains(Flags::READONLY) && tracking.tracks_next();
        if !reads || !keyway_command::store_serves(command.verb) {
            return;
        }
        let mut keys = std::mem::take(&mut self.keys);
        if request.keys(&mut keys).is_ok() {
            for &index in &keys {
                let is_new = self.enter_read(session, &request.args[index as usize]);
                self.store.tracking.reads.push((index, is_new));
            }
        }
        self.keys = keys;
    }

    /// Enters a key that a client reads. Returns whether the client had not read it before.
    fn enter_read(&mut self, session: &Session, key: &[u8]) -> bool {
        let table = Arc::clone(self.table(session.pool));
        let (keys_max, random) = (self.plan.limits.tracking_keys_max as usize, self.next_random());
        let entered = table.enter(session.identity.id, key, keys_max, random);
        for (key, readers) in entered.given_up {
            self.tell_readers(&table, &readers, &key);
        }
        entered.is_new
    }

    /// Tells clients of the changes of a request, behind its reply.
    #[cold]
    pub(super) fn settle_changes(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        store: &Store,
        request: &Request,
        is_refused: bool,
    ) {
        let settlement = self.settlement_of(session.pool, store, request, is_refused);
        self.tell_changes(session, busy, settlement);
        self.serve_waiters(session.pool, store);
    }

    /// Publishes the changes of the request that was just executed. Returns the changes that
    /// clients must be told of.
    pub(super) fn settlement_of(
        &mut self,
        pool: u16,
        store: &Store,
        request: &Request,
        is_refused: bool,
    ) -> Settlement {
        let mut settlement = Settlement {
            events: std::mem::take(&mut self.store.tracking.events),
            reads: BTreeMap::new(),
            is_of_everything: is_of_everything(request.command.verb) && !is_refused,
        };
        store.take_events(self.worker(), &mut settlement.events);
        self.publish_events(pool, store, &mut settlement.events);
        // The first read of a key counts.
        for (index, is_new) in self.store.tracking.reads.drain(..).rev() {
            if !settlement.events.is_empty() {
                settlement.reads.insert(request.args[index as usize].into(), is_new);
            }
        }
        settlement
    }

    /// Does the same for a script, which alone knows the keys that it has read. None of them has
    /// changed since.
    pub(in crate::core::pools) fn settlement_of_script(
        &mut self,
        session: &Session,
        store: &Store,
        reads: BTreeSet<Box<[u8]>>,
        is_of_everything: bool,
    ) -> Settlement {
        let mut entered = BTreeMap::new();
        for key in reads {
            let is_new = self.enter_read(session, &key);
            // The first read of a key counts.
            entered.entry(key).or_insert(is_new);
        }
        let mut events = std::mem::take(&mut self.store.tracking.events);
        store.take_events(self.worker(), &mut events);
        self.publish_events(session.pool, store, &mut events);
        Settlement { events, reads: entered, is_of_everything }
    }

    /// Tells all clients that track the changed keys.
    pub(in crate::core::pools) fn tell_changes(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        settlement: Settlement,
    ) {
        let (pool, own) = (session.pool, session.identity.id);
        let Settlement { mut events, reads, is_of_everything } = settlement;
        let table = Arc::clone(self.table(pool));
        let sent_before = self.store.awaited.sent_count();
        let is_broadcast = table.has_prefixes() && !events.is_empty();
        for event in events.drain(..) {
            let is_own = changed_by_client(&event);
            self.note_changed(pool, &table, &event, is_own.then_some(own));
            let read = reads.get(&*event.key).copied();
            let mut readers = table.take(&event.key, read.map(|_| own));
            if readers.remove(own) {
                // The key expired when it was read for the first time: the reply told the client
                // so.
                let is_known = read.unwrap_or(false);
                let noloop = |tracking: &Tracking| tracking.noloop && is_own;
                let hears = |tracking: &Tracking| !tracking.bcast && !noloop(tracking);
                if !is_known && session.tracking.as_deref().is_some_and(hears) {
                    self.push_own(session, busy, &push_of(&event.key));
                }
            }
            self.tell_readers(&table, &readers, &event.key);
        }
        if is_of_everything {
            self.note_everything(&table, session, busy);
        }
        if is_of_everything || is_broadcast || self.store.awaited.sent_count() != sent_before {
            self.store.awaited.note_writer(session);
        }
        // The memory is used again, unless a script has made it large.
        events.shrink_to(EVENTS_KEPT_MAX);
        self.store.tracking.events = events;
    }

    /// Tells clients of the changes of the store's upkeep.
    pub(in crate::core) fn settle_upkeep(&mut self, pool: u16, store: &Store) {
        let mut events = std::mem::take(&mut self.store.tracking.events);
        store.take_events(NO_WORKER, &mut events);
        self.publish_events(pool, store, &mut events);
        let table = Arc::clone(self.table(pool));
        for event in events.drain(..) {
            self.note_changed(pool, &table, &event, None);
            let readers = table.take(&event.key, None);
            self.tell_readers(&table, &readers, &event.key);
        }
        self.store.tracking.events = events;
        if store.take_delayed_flush() {
            table.clear();
            self.store.tracking.flushed.insert(pool, None);
        }
        self.serve_waiters(pool, store);
    }

    /// Tells clients of the changes of a command that waited and was served.
    pub(super) fn tell_served(&mut self, pool: u16, store: &Store, waiter: &Waiter) {
        let mut events = std::mem::take(&mut self.store.tracking.events);
        store.take_events(self.worker(), &mut events);
        self.publish_events(pool, store, &mut events);
        let table = Arc::clone(self.table(pool));
        for event in events.drain(..) {
            let is_own = changed_by_client(&event);
            let client = waiter.who.client;
            self.note_changed(pool, &table, &event, is_own.then_some(client));
            let mut readers = table.take(&event.key, None);
            if is_own && waiter.who.is_noloop {
                readers.remove(client);
            }
            self.tell_readers(&table, &readers, &event.key);
        }
        self.store.tracking.events = events;
    }

    /// Removes more entries of clients that have left. Returns whether there is more to do at once.
    pub(in crate::core) fn sweep_trackers(&mut self, pool: u16) -> bool {
        self.table(pool).sweep()
    }

    /// Notes a changed key for clients that are told of prefixes.
    fn note_changed(&mut self, pool: u16, table: &Table, event: &KeyEvent, by: Option<Client>) {
        if table.has_prefixes() {
            let changed = self.store.tracking.changed.entry(pool).or_default();
            // A client that is not told of its own changes is told of a key that another client has
            // changed as well, in either order.
            let changer = changed.entry(event.key.clone()).or_insert(by);
            if *changer != by {
                *changer = None;
            }
        }
    }

    /// Tells the clients that have read a key that it has changed.
    fn tell_readers(&mut self, table: &Table, readers: &Readers, key: &[u8]) {
        if readers.is_empty() {
            return;
        }
        let push = push_of(key);
        for (client, worker) in table.present(readers) {
            self.send(client, worker, What::Changed(Arc::clone(&push)));
        }
    }
}

fn prefixes_of(tracking: Option<&Tracking>) -> BTreeSet<Vec<u8>> {
    tracking.map(|tracking| tracking.prefixes.clone()).unwrap_or_default()
}

/// Returns whether a command may change all keys.
pub(super) fn is_of_everything(verb: Verb) -> bool {
    matches!(verb, Verb::Flushall | Verb::Flushdb | Verb::Swapdb)
}

/// Returns whether the client's own request has changed the key. Otherwise the request needed room,
/// or the time of the key was up.
fn changed_by_client(event: &KeyEvent) -> bool {
    event.class != KeyspaceEvents::EXPIRED && event.class != KeyspaceEvents::EVICTED
}

fn push_of(key: &[u8]) -> Arc<[u8]> {
    push_of_keys(vec![key])
}

fn push_of_keys(keys: Vec<&[u8]>) -> Arc<[u8]> {
    let mut push = Vec::new();
    write_invalidation(&mut push, keys.into_iter());
    push.into()
}

/// Longest push that is appended although a client has no room for it, in bytes.
const SHORT: usize = 32;

/// Returns whether a push says that everything may have changed, or the key `_`, which is as short.
fn is_everything(push: &[u8]) -> bool {
    push.len() <= SHORT && push.ends_with(b"\r\n_\r\n")
}

fn everything() -> Arc<[u8]> {
    let mut push = Vec::new();
    write_everything(&mut push);
    push.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;
    use crate::core::tests::plan_with;
    use indexmap::IndexSet;
    use keyway_base::Time;
    use keyway_proxy::Identity;
    use keyway_proxy::local::ClientEntry;

    #[test]
    fn what_a_client_has_missed_follows_it_to_its_next_worker() {
        let (plan, cells) = plan_with(|_| ());
        let mut core = Core::new(Arc::clone(&plan), cells, 1);
        let identity = Identity::new(5, true, Time(0));
        let entry = |worker| ClientEntry::new(&identity, Arc::default(), worker, 0, 0);
        let here = core.plane.worker();
        plan.clients.insert(5, entry(here + 1));
        plan.clients.insert(6, entry(here));
        core.plane.store.tracking.late.extend([(5, true), (6, true), (7, true)]);
        core.tell_late();
        let (messages, missed) = plan.invalidations.take(here + 1);
        assert_eq!((messages, missed), (Vec::new(), IndexSet::from_iter([(5, true)])));
        // The message is on its way.
        assert!(core.plane.store.tracking.late.iter().eq([&(6, true)]));
    }
}
