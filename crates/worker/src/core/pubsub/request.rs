use super::shape_of;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::{Connections, Plane};
use crate::pool_worker::PoolWorker;
use keyway_base::Key;
use keyway_command::{Join, Verb};
use keyway_proxy::Session;
use keyway_proxy::pubsub::{
    Name, Outcome, Pending, PushShape, SubscriptionKind, Subscriptions, write_change, write_pong,
};
use keyway_resp::reply;
use std::sync::Arc;
use std::time::Duration;

/// Longest time that a subscription waits for its server if requests have no timeout.
const CONFIRM_MAX: Duration = Duration::from_secs(10);

impl Plane {
    /// Refuses a request that a client with subscriptions may not send, or answers it in the way of
    /// such clients. Returns `None` if the request is handled like any other.
    #[cold]
    pub(in crate::core) fn check_subscriber(
        &mut self,
        incoming: &mut RequestContext,
    ) -> Option<Step> {
        let RequestContext { key, session, busy, request } = &mut *incoming;
        let subscriptions = session.subscriptions.as_ref()?;
        if subscriptions.pending.is_some() {
            // Otherwise the session would be resumed over and over while the replies before this
            // one cannot be delivered.
            session.fence();
            self.commit_shown();
            return Some(Step::Wait);
        }
        let verb = request.command.verb;
        if verb == Verb::Reset {
            self.forget_subscriber(*key, session);
            return None;
        }
        let is_bound = subscriptions.is_subscriber() && shape_of(session) == PushShape::Array;
        if !is_bound || SubscriptionKind::of(verb).is_some() || verb == Verb::Quit {
            return None;
        }
        if verb == Verb::Ping && request.args.len() <= 2 {
            self.served(session.pool, request.command.counted());
            let message = request.args.get(1).unwrap_or_default();
            self.answer(session, busy, |out| write_pong(out, message));
            return Some(Step::Started);
        }
        if verb == Verb::Ping {
            return None;
        }
        // As with Redis, any refusal of EXEC is an abort.
        let code = match verb {
            Verb::Exec => "EXECABORT Transaction discarded because of:",
            _ => "ERR",
        };
        let text = format!(
            "{code} Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are allowed in this context",
            request.command.name
        );
        Some(self.refuse_request(incoming, &text))
    }

    /// Starts a command about channels.
    pub(in crate::core) fn pubsub(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Step {
        let verb = incoming.request.command.verb;
        if let Some((kind, subscribes)) = SubscriptionKind::of(verb) {
            return self.change(incoming, kind, subscribes);
        }
        let (pool, args) = (incoming.session.pool, incoming.request.args);
        let is_store = self.is_store(pool);
        let kind = match verb {
            Verb::Spublish | Verb::PubsubShardchannels | Verb::PubsubShardnumsub => {
                SubscriptionKind::Shard
            }
            _ => SubscriptionKind::Channel,
        };
        match verb {
            Verb::Publish | Verb::Spublish if is_store => {
                let count = self.publish(pool, kind, &args[1], &args[2]);
                self.answer_locally(incoming, |out| reply::integer(out, count as i64));
            }
            Verb::Publish | Verb::Spublish => {
                let server = self.server_of_channel(pool, kind, &args[1]);
                let shared = self.pools[usize::from(pool)].shared();
                let (Some(server), Some(shared)) = (server, shared) else {
                    let slot = self.slot_of_channel(pool, kind, &args[1]);
                    if slot.is_some_and(|slot| self.awaits_owner_of(incoming.client(), slot)) {
                        return Step::Wait;
                    }
                    return self.answer_unrouted(incoming);
                };
                let link = self.link_of(&shared, incoming.session, server);
                return self.forward(links, incoming, link);
            }
            Verb::PubsubChannels | Verb::PubsubShardchannels if args.len() > 3 => {
                let name = String::from_utf8_lossy(&args[1]);
                let text = format!(
                    "ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB \
                     HELP."
                );
                return self.refuse_request(incoming, &text);
            }
            _ if is_store => self.tell(incoming, kind),
            Verb::PubsubChannels | Verb::PubsubShardchannels => {
                return self.send_everywhere(links, incoming, Join::Union);
            }
            Verb::PubsubNumpat => {
                return self.send_everywhere(links, incoming, Join::Max);
            }
            _ => return self.send_everywhere(links, incoming, Join::Counts),
        }
        Step::Started
    }

    /// Returns the server of a command about channels inside a transaction.
    #[cold]
    pub(in crate::core) fn server_of_published(
        &mut self,
        incoming: &RequestContext,
        name: &str,
    ) -> Result<Option<u16>, String> {
        let kind = match incoming.request.command.verb {
            Verb::Publish => SubscriptionKind::Channel,
            Verb::Spublish => SubscriptionKind::Shard,
            _ => {
                return Err(format!(
                    "ERR '{name}' is refused inside MULTI: of the commands about channels a sharded \
                     pool takes PUBLISH and SPUBLISH there; send it before MULTI or after EXEC"
                ));
            }
        };
        let pool = incoming.session.pool;
        let channel = &incoming.request.args[1];
        let server = self.server_of_channel(pool, kind, channel);
        let server = match (server, self.moving_home_of(pool, channel)) {
            // All servers of a cluster send the messages to a plain channel.
            (Some(_), Some(_)) if kind == SubscriptionKind::Channel && self.has_slots(pool) => {
                return Ok(None);
            }
            (Some(_), Some(home)) => Some(home),
            (server, _) => server,
        };
        let watch = incoming.session.stateful.as_ref().and_then(|stateful| stateful.watch);
        match (server, watch) {
            (None, _) => Err(self.unrouted_words(pool, incoming.request)),
            (Some(server), Some(watch)) if watch.home != server => Err(
                "CROSSSLOT the watched keys live on another server than the channel; give them a \
                 common hash tag"
                    .to_owned(),
            ),
            _ => Ok(server),
        }
    }

    /// Answers PUBSUB on the embedded store.
    fn tell(&mut self, incoming: &mut RequestContext, kind: SubscriptionKind) {
        let plan = Arc::clone(&self.plan);
        let (channels, pool) = (&plan.channels, incoming.session.pool);
        let args = incoming.request.args;
        match incoming.request.command.verb {
            Verb::PubsubNumpat => {
                let count = channels.count(pool, SubscriptionKind::Pattern);
                self.answer_locally(incoming, |out| reply::integer(out, count as i64));
            }
            Verb::PubsubChannels | Verb::PubsubShardchannels => {
                let names = channels.names(pool, kind, args.get(2));
                self.answer_locally(incoming, |out| {
                    reply::array(out, names.len());
                    names.iter().for_each(|name| reply::bulk(out, name));
                });
            }
            _ => self.answer_locally(incoming, |out| {
                reply::array(out, 2 * (args.len() - 2));
                for name in args.from(2) {
                    reply::bulk(out, name);
                    reply::integer(out, channels.subscribers(pool, kind, name) as i64);
                }
            }),
        }
    }

    /// Subscribes or unsubscribes.
    fn change(
        &mut self,
        incoming: &mut RequestContext,
        kind: SubscriptionKind,
        subscribes: bool,
    ) -> Step {
        let RequestContext { key, session, busy, request } = incoming;
        let key = *key;
        if !busy.order.is_empty() {
            session.fence();
            return Step::Wait;
        }
        let mut subscriptions = session.subscriptions.take().unwrap_or_default();
        let mut names: Vec<Name> = request.args.from(1).map(Name::from).collect();
        let is_all = names.is_empty();
        if is_all {
            names.extend(subscriptions.names(kind).cloned());
        }
        if !self.change_counts(session.pool, &subscriptions, kind, &names, subscribes) {
            // The receivers of earlier messages are decided already.
            session.subscriptions = Some(subscriptions).filter(|them| !them.is_idle());
            self.pubsub.has_mail = true;
            self.mark_session_resuming(key, session);
            return Step::Wait;
        }
        self.served(session.pool, request.command.counted());
        Self::end_skip(session);
        let was_subscriber = subscriptions.is_subscriber();
        let out = busy.output.buf();
        if subscribes {
            let mut pending = self.begin(session.pool, key, &subscriptions, kind, names);
            if pending.is_settled() {
                self.finish(session, key, &mut subscriptions, &pending, out);
            } else {
                pending.sequence = busy.order.reserve();
                subscriptions.pending = Some(Box::new(pending));
                self.pubsub.pending.insert(key);
            }
        } else {
            let shape = shape_of(session);
            if names.is_empty() {
                let count = subscriptions.count_told(kind);
                write_change(out, shape, kind.word(false), None, count);
            }
            for name in names {
                if subscriptions.remove(kind, &name) {
                    self.remove_name(session.pool, kind, &name, key);
                }
                let count = subscriptions.count_told(kind);
                write_change(out, shape, kind.word(false), Some(&name), count);
            }
        }
        self.note_subscriber(session.pool, was_subscriber, subscriptions.is_subscriber());
        session.subscriptions = Some(subscriptions).filter(|them| !them.is_idle());
        Step::Started
    }

    /// Counts the names that are new to the client, or end for it, on the embedded store. Returns
    /// `false` if the request has to wait.
    fn change_counts(
        &mut self,
        pool: u16,
        subscriptions: &Subscriptions,
        kind: SubscriptionKind,
        names: &[Name],
        subscribes: bool,
    ) -> bool {
        if !self.is_store(pool) {
            return true;
        }
        let mut changed: Vec<&Name> =
            names.iter().filter(|name| subscriptions.contains(kind, name) != subscribes).collect();
        changed.sort_unstable();
        changed.dedup();
        let change = if subscribes { 1 } else { -1 };
        self.plan
            .channels
            .change(PoolWorker { pool, worker: self.worker() }, kind, changed, change)
            .is_ok()
    }

    /// Begins the subscriptions of a request.
    fn begin(
        &mut self,
        pool: u16,
        key: Key<Session>,
        subscriptions: &Subscriptions,
        kind: SubscriptionKind,
        names: Vec<Name>,
    ) -> Pending {
        let is_store = self.is_store(pool);
        let timeout = match is_store {
            true => CONFIRM_MAX,
            false => {
                let options = self.link_options(pool);
                options.timeout.map_or(CONFIRM_MAX, |timeout| timeout + options.connect_timeout)
            }
        };
        Pending::new(kind, self.clock.now + timeout, names, |name| {
            if is_store || subscriptions.contains(kind, name) {
                return Outcome::Fine;
            }
            // An active subscription is held, because it may end before the request's last name is
            // confirmed.
            self.pubsub.pools[pool as usize].waiters.add(kind, name, key);
            self.want(pool, kind, name)
        })
    }

    /// Makes the client a subscriber of the confirmed names, and appends the reply for each name.
    pub(super) fn finish(
        &mut self,
        session: &Session,
        key: Key<Session>,
        subscriptions: &mut Subscriptions,
        pending: &Pending,
        out: &mut Vec<u8>,
    ) {
        let (shape, kind, pool) = (shape_of(session), pending.kind, session.pool);
        for (name, outcome) in pending.names() {
            let channels = &mut self.pubsub.pools[pool as usize];
            channels.waiters.remove(kind, name, key);
            match outcome {
                Outcome::Failed(error) => {
                    out.extend_from_slice(error);
                    self.release_name(pool, kind, name);
                }
                Outcome::Fine | Outcome::Waiting => {
                    if subscriptions.add(kind, name) {
                        channels.registry.add(kind, name, key);
                    }
                    let count = subscriptions.count_told(kind);
                    write_change(out, shape, kind.word(true), Some(name), count);
                }
            }
        }
    }

    /// Counts a client that has become a subscriber, or has ceased to be one.
    pub(super) fn note_subscriber(&mut self, pool: u16, was: bool, is: bool) {
        let clients = &mut self.pubsub.pools[pool as usize].clients;
        *clients = (*clients + u64::from(is)).saturating_sub(u64::from(was));
    }

    fn remove_name(&mut self, pool: u16, kind: SubscriptionKind, name: &Name, key: Key<Session>) {
        let registry = &mut self.pubsub.pools[pool as usize].registry;
        if registry.remove(kind, name, key) {
            self.release_name(pool, kind, name);
        }
    }

    /// Ends every subscription of a client that has left or sent RESET.
    #[cold]
    pub(in crate::core) fn forget_subscriber(&mut self, key: Key<Session>, session: &mut Session) {
        let Some(mut subscriptions) = session.subscriptions.take() else { return };
        let (pool, worker) = (session.pool, self.worker());
        if let Some(pending) = subscriptions.pending.take() {
            self.pubsub.pending.swap_remove(&key);
            for (name, _) in pending.names() {
                self.pubsub.pools[pool as usize].waiters.remove(pending.kind, name, key);
                self.release_name(pool, pending.kind, name);
            }
        }
        self.note_subscriber(pool, subscriptions.is_subscriber(), false);
        for kind in SubscriptionKind::ALL {
            for name in subscriptions.names(kind) {
                self.remove_name(pool, kind, name, key);
                if self.is_store(pool) {
                    self.plan.channels.forget(PoolWorker { pool, worker }, kind, name);
                }
            }
        }
    }

    pub(super) fn is_store(&self, pool: u16) -> bool {
        self.plan.pools[pool as usize].kind.is_store()
    }
}
