//! Clients of embedded stores that go to another process, or come from one.
//!
//! ```text
//!  requests are held ──► is_ready: no reply is missing ──► describe ──► the other process
//!                                                                          │
//!  its state is begun again, without replies ◄── restore ◄─────────────────┘
//!  what it had sent is read behind that
//! ```
//! A transaction, a watch, subscriptions and tracking are begun again by the requests that begin
//! them. They pass the hold.

use crate::HandedClient;
use crate::core::{Core, Plane};
use keyway_base::Key;
use keyway_memcache::Wire;
use keyway_proxy::pubsub::SubscriptionKind;
use keyway_proxy::tracking::Tracking;
use keyway_proxy::{Busy, Identity, ReplyMode, Session, WaitFor};
use keyway_resp::{Protocol, reply};
use keyway_store::Waiter;
use std::time::Duration;

/// Bytes that were received and not begun at most. A longer request is waited for.
const INPUT_LEN_MAX: usize = 64 << 20;

impl Core {
    /// Returns whether a client can go to another process now: every reply has been sent, and what
    /// it has begun can be begun again elsewhere.
    pub(crate) fn is_ready_to_go(&mut self, key: Key<Session>) -> bool {
        if !self.may_change_links(key) && !self.waits_on_store(key) {
            return false;
        }
        let waits = self.waits_on_store(key);
        let Some(session) = self.session(key) else { return false };
        let is_at_end = session.closing || session.ended || session.hung_up || session.is_cut;
        let is_moving = session.streaming.is_some()
            || session.streamed_reply.is_some()
            || session.sub_request.is_some()
            || session.sub_requests > 0
            || session.awaited != 0
            || session.has_unwritten
            || session.has_late_write;
        let is_bound = session.stateful.as_deref().is_some_and(|stateful| {
            let on_servers = stateful.watch.is_some() || !stateful.blocked_on.is_empty();
            on_servers || stateful.unsent > 0 || stateful.home.is_some()
        });
        let waits_elsewhere =
            session.waits_for.is_some_and(|waits| !matches!(waits, WaitFor::Pause | WaitFor::Hold));
        let tracking = session.tracking.as_deref();
        let is_told = tracking.is_some_and(|it| !it.held.is_empty() || it.links.is_some());
        if is_at_end || is_moving || is_bound || waits_elsewhere || is_told {
            return false;
        }
        session.busy.as_deref().is_none_or(|busy| {
            let has_all = busy.order.is_empty() || waits && busy.order.len() == 1;
            has_all && busy.output.is_empty() && busy.unparsed().len() <= INPUT_LEN_MAX
        })
    }

    /// Returns whether a client waits on an embedded store for a key, or for replicas.
    fn waits_on_store(&self, key: Key<Session>) -> bool {
        let id = self.session(key).map(|session| session.identity.id);
        let waiting = id.and_then(|id| self.plane.store.blocking.waiting.get(&id));
        let goes_on = |waiter: &Waiter| waiter.is_for_keys() || waiter.is_for_replicas();
        waiting.is_some_and(|waiting| waiting.session == key && goes_on(&waiting.waiter))
    }

    /// The place of a client among all that wait on stores; 0 if it does not wait.
    pub(crate) fn place_of_waiting(&self, key: Key<Session>) -> u64 {
        let id = self.session(key).map(|session| session.identity.id);
        let waiting = id.and_then(|id| self.plane.store.blocking.waiting.get(&id));
        waiting.map_or(0, |waiting| waiting.waiter.place())
    }

    /// Describes a client that is ready to go. It waits no more then. `None` if it was served in
    /// the meantime: its reply is on its way.
    pub(crate) fn describe(&mut self, key: Key<Session>) -> Option<HandedClient> {
        let (waits_in, waits_for) = match self.waits_on_store(key) {
            true => self.take_waiting(key)?,
            false => (Vec::new(), 0),
        };
        let session = self.sessions.get(key)?;
        let Identity { id, addr, protocol, database, reply_mode, no_evict, no_touch, .. } =
            &session.identity;
        let user = session.identity.user.as_ref().filter(|_| session.identity.authenticated);
        let entry = self.plane.plan.clients.get(*id)?;
        let stateful = session.stateful.as_deref();
        let watched = stateful.and_then(|stateful| stateful.watched.as_deref());
        let transaction = stateful.and_then(|stateful| stateful.transaction.as_ref());
        let memcached = session.memcached.unwrap_or_default();
        Some(HandedClient {
            listener: session.listener,
            id: *id,
            addr: addr.to_string(),
            laddr: entry.laddr.to_string(),
            connected_unix: entry.connected_unix,
            user: user.map(|user| user.name().to_string()),
            is_resp3: *protocol == Protocol::Resp3,
            database: *database,
            reply_mode: match reply_mode {
                ReplyMode::On => 0,
                ReplyMode::Off => 1,
                ReplyMode::SkipNext => 2,
            },
            no_evict: *no_evict,
            no_touch: *no_touch,
            told: [entry.name(), entry.lib_name(), entry.lib_ver()].map(str::to_owned),
            memcached_wire: match memcached.wire {
                None => 0,
                Some(Wire::Text) => 1,
                Some(Wire::Binary) => 2,
            },
            memcached_skip: memcached.skip,
            state: state_of(session),
            has_changed_watch: watched.is_some_and(|watched| watched.has_changed()),
            is_transaction_refused: transaction.is_some_and(|it| it.is_refused()),
            has_cache: session.tracking.as_deref().is_some_and(|tracking| !tracking.bcast),
            waits_in,
            waits_for,
            input: session.busy.as_deref().map(Busy::unparsed).unwrap_or_default().to_vec(),
        })
    }

    /// Ends the waiting of a client without a reply. Returns its request, and for how many
    /// milliseconds it still waits; 0 is for ever. `None` if it was served.
    fn take_waiting(&mut self, key: Key<Session>) -> Option<(Vec<u8>, u64)> {
        let Core { sessions, plane, .. } = self;
        let session = sessions.get_mut(key)?;
        let id = session.identity.id;
        let waiting = plane.store.blocking.waiting.get(&id)?;
        let store = plane.plan.pools[usize::from(session.pool)].kind.store()?;
        if !store.cancel(&waiting.waiter) {
            return None;
        }
        let mut request = Vec::new();
        let now = plane.clock.now;
        match waiting.waiter.is_for_replicas() {
            true => write_wait(&mut request, &waiting.waiter, now.since(waiting.since)),
            false => write_request(&mut request, waiting.waiter.words()),
        }
        let left = waiting.deadline.map_or(0, |deadline| {
            u64::try_from(deadline.since(now).as_millis()).unwrap_or(u64::MAX).max(1)
        });
        let sequence = waiting.sequence;
        plane.end_waiting(id);
        if let Some(busy) = session.busy.as_deref_mut() {
            busy.order.withdraw(sequence);
        }
        if let Some(stateful) = &mut session.stateful {
            stateful.waits_on_store = false;
        }
        session.tidy();
        session.lift_fence();
        Some((request, left))
    }

    /// Brings a client that another process has described into its state, and reads what it had
    /// sent. The client is at rest, and was sent nothing by this process.
    pub(crate) fn restore(&mut self, key: Key<Session>, client: &HandedClient) {
        if let Some(session) = self.sessions.get_mut(key)
            && let Some(memcached) = &mut session.memcached
        {
            memcached.wire = match client.memcached_wire {
                1 => Some(Wire::Text),
                2 => Some(Wire::Binary),
                _ => None,
            };
            memcached.skip = client.memcached_skip;
        }
        self.plane.is_restoring = true;
        if !client.state.is_empty() {
            self.on_client_bytes(key, &client.state);
            self.drop_replies(key);
            self.settle_state(key, client);
        }
        if !client.waits_in.is_empty() {
            self.on_client_bytes(key, &client.waits_in);
            self.wait_until(client.id, client.waits_for);
        }
        self.plane.is_restoring = false;
        if let Some(session) = self.sessions.get_mut(key) {
            session.identity.reply_mode = match client.reply_mode {
                1 => ReplyMode::Off,
                2 => ReplyMode::SkipNext,
                _ => ReplyMode::On,
            };
        }
        if !client.input.is_empty() {
            self.on_client_bytes(key, &client.input);
        }
    }

    /// Drops the replies to requests that the client has not sent.
    fn drop_replies(&mut self, key: Key<Session>) {
        if let Some(busy) = self.sessions.get_mut(key).and_then(|it| it.busy.as_deref_mut()) {
            busy.output.clear();
        }
    }

    /// Sets what no request can bring about.
    fn settle_state(&mut self, key: Key<Session>, client: &HandedClient) {
        let Core { sessions, plane, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        if let Some(stateful) = &mut session.stateful {
            if client.is_transaction_refused {
                stateful.refuse();
            }
            if let (true, Some(watched)) = (client.has_changed_watch, &stateful.watched) {
                watched.mark.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        if client.has_cache && session.tracking.is_some() {
            let redirect = session.tracking.as_deref().and_then(|tracking| tracking.redirect);
            let told = redirect.map_or((client.id, false), |target| (target, true));
            plane.store.tracking.late.insert(told);
        }
    }

    /// Has a client that waits on a store wait for as long as another process has said.
    fn wait_until(&mut self, client: u64, millis: u64) {
        let plane: &mut Plane = &mut self.plane;
        let now = plane.clock.now;
        let blocking = &mut plane.store.blocking;
        let Some(waiting) = blocking.waiting.get_mut(&client) else { return };
        let deadline = (millis > 0).then(|| now + Duration::from_millis(millis));
        if let Some(before) = std::mem::replace(&mut waiting.deadline, deadline) {
            blocking.deadlines.remove(&(before, client));
        }
        if let Some(deadline) = deadline {
            blocking.deadlines.insert((deadline, client));
            plane.note_deadline(Some(deadline));
        }
    }
}

/// Appends a WAIT that ends when one would that has lasted for some time.
fn write_wait(out: &mut Vec<u8>, waiter: &Waiter, lasted: Duration) {
    let mut words: Vec<&[u8]> = waiter.words().collect();
    let left = words.last().and_then(|millis| std::str::from_utf8(millis).ok()?.parse().ok());
    let left = left.filter(|millis: &u64| *millis > 0).map(|millis| {
        let lasted = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
        millis.saturating_sub(lasted).max(1).to_string()
    });
    if let (Some(left), Some(last)) = (&left, words.last_mut()) {
        *last = left.as_bytes();
    }
    write_request(out, words.into_iter());
}

/// Appends a request.
fn write_request<'w>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'w [u8]>) {
    reply::array(out, words.len());
    words.for_each(|word| reply::bulk(out, word));
}

/// Returns the requests that begin what a client has begun. The last ones are those after which a
/// client may say less.
fn state_of(session: &Session) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(tracking) = session.tracking.as_deref() {
        write_tracking(&mut out, tracking);
    }
    let stateful = session.stateful.as_deref();
    if let Some(watched) = stateful.and_then(|stateful| stateful.watched.as_deref()) {
        let select = |out: &mut Vec<u8>, database: u32| {
            write_request(out, [&b"SELECT"[..], database.to_string().as_bytes()].into_iter());
        };
        let mut selected = session.identity.database;
        for (database, watched_key) in watched.keys() {
            if database != selected {
                selected = database;
                select(&mut out, database);
            }
            write_request(&mut out, [&b"WATCH"[..], watched_key].into_iter());
        }
        if selected != session.identity.database {
            select(&mut out, session.identity.database);
        }
    }
    if session.is_monitor {
        write_request(&mut out, [&b"MONITOR"[..]].into_iter());
    }
    if let Some(subscriptions) = session.subscriptions.as_deref() {
        let kinds = [
            (SubscriptionKind::Channel, &b"SUBSCRIBE"[..]),
            (SubscriptionKind::Pattern, &b"PSUBSCRIBE"[..]),
            (SubscriptionKind::Shard, &b"SSUBSCRIBE"[..]),
        ];
        for (kind, verb) in kinds {
            let names: Vec<&[u8]> = subscriptions.names(kind).map(|name| &**name).collect();
            if !names.is_empty() {
                let words: Vec<&[u8]> = std::iter::once(verb).chain(names).collect();
                write_request(&mut out, words.into_iter());
            }
        }
    }
    if session.tracking.as_deref().is_some_and(|tracking| tracking.caching) {
        let is_yes = session.tracking.as_deref().is_some_and(|tracking| tracking.optin);
        let word: &[u8] = if is_yes { b"YES" } else { b"NO" };
        write_request(&mut out, [&b"CLIENT"[..], b"CACHING", word].into_iter());
    }
    if let Some(transaction) = stateful.and_then(|stateful| stateful.transaction.as_ref()) {
        write_request(&mut out, [&b"MULTI"[..]].into_iter());
        out.extend_from_slice(transaction.requests());
    }
    out
}

fn write_tracking(out: &mut Vec<u8>, tracking: &Tracking) {
    let mut words: Vec<Vec<u8>> = vec![b"CLIENT".to_vec(), b"TRACKING".to_vec(), b"ON".to_vec()];
    if let Some(redirect) = tracking.redirect {
        words.extend([b"REDIRECT".to_vec(), redirect.to_string().into_bytes()]);
    }
    let options = [
        (tracking.bcast, "BCAST"),
        (tracking.optin, "OPTIN"),
        (tracking.optout, "OPTOUT"),
        (tracking.noloop, "NOLOOP"),
    ];
    for (_, word) in options.iter().filter(|(is_set, _)| *is_set) {
        words.push(word.as_bytes().to_vec());
    }
    for prefix in tracking.prefixes.iter().filter(|prefix| !prefix.is_empty()) {
        words.extend([b"PREFIX".to_vec(), prefix.clone()]);
    }
    write_request(out, words.iter().map(Vec::as_slice));
}
