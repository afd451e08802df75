//! Transactions on servers: MULTI, EXEC, DISCARD and WATCH.

use crate::Upstream;
use crate::core::front::queued::ForKeys;
use crate::core::pools::state::ServersState;
use crate::core::request::{RequestContext, Step};
use crate::core::upstream::bypass::{late_apart, late_link};
use crate::core::{Connection, ConnectionKey, Connections, Plane};
use keyway_base::Fault;
use keyway_command::{Across, Handling, Verb};
use keyway_proxy::{Digest, Watch, Work};
use keyway_resp::reply;
use keyway_route::{NO_KEY, Route, Spread, place, route_whole};
use keyway_topology::ServerId;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

impl Plane {
    /// Queues a command of the open transaction.
    pub(super) fn queue(&mut self, incoming: &mut RequestContext) {
        let is_queued = self.try_queue(incoming);
        if let Err(text) = is_queued {
            self.refuse_queued(incoming, &text);
        } else {
            self.answer_locally(incoming, |out| reply::simple(out, "QUEUED"));
        }
    }

    fn try_queue(&mut self, incoming: &mut RequestContext) -> Result<(), String> {
        let server = self.server_in_transaction(incoming)?;
        let ring = self.ring_number(incoming.session.pool);
        let transaction = incoming.session.stateful.as_mut().and_then(|it| it.transaction.as_mut());
        let Some(transaction) = transaction else { return Ok(()) };
        if server.is_some_and(|server| !transaction.settle_on(server, ring)) {
            return Err("CROSSSLOT the keys of this transaction live on several servers; give \
                        them a common hash tag"
                .to_owned());
        }
        let script = match incoming.request.command.verb {
            Verb::Evalsha | Verb::EvalshaRo => Digest::parse(&incoming.request.args[1]),
            _ => None,
        };
        transaction.calls_functions |=
            matches!(incoming.request.command.verb, Verb::Fcall | Verb::FcallRo);
        self.keep_queued(incoming, script)
    }

    /// Returns the server of a command inside a transaction, or `None` if any server will do.
    fn server_in_transaction(&mut self, incoming: &RequestContext) -> Result<Option<u16>, String> {
        let request = incoming.request;
        let name = request.command.name.replace('|', " ");
        let watched = incoming.session.stateful.as_ref().and_then(|stateful| stateful.watch);
        match request.handling() {
            Handling::Refused(reason) => return Err(format!("ERR '{name}' is refused: {reason}")),
            Handling::Across(across) if across != Across::Run => {
                return Err(format!(
                    "ERR '{name}' is refused inside MULTI: it concerns all servers of the pool, and \
                     a transaction runs on one; send it before MULTI or after EXEC"
                ));
            }
            Handling::Local | Handling::Transaction | Handling::Tracking => {
                use Verb::{Echo, Ping, Time, Unwatch, Wait};
                return match request.command.verb {
                    Echo | Ping | Time | Unwatch | Wait => Ok(None),
                    _ => Err(format!(
                        "ERR '{name}' is refused inside MULTI: Keyway answers it itself, and a \
                         server runs the transaction; send it before MULTI or after EXEC"
                    )),
                };
            }
            Handling::PubSub => return self.server_of_published(incoming, &name),
            // A script without keys runs on the server of the transaction.
            Handling::Across(Across::Run) if request.args.get(2) == Some(b"0") => return Ok(None),
            _ => {}
        }
        let random = self.next_random() as u32;
        let Some(Upstream { servers: pool, .. }) =
            self.plan.pools[incoming.session.pool as usize].kind.upstream()
        else {
            return Ok(None);
        };
        let Some(state) = self.pools[incoming.session.pool as usize].servers() else {
            return Ok(None);
        };
        let server = match route_whole(request, pool, state.ring(), random, &mut self.keys) {
            Route::One(server) => server,
            Route::CrossSlot(spread) => {
                let one = if matches!(spread, Spread::Slots(_)) { "have" } else { "live on" };
                return Err(format!(
                    "CROSSSLOT keys of this {} {spread}; inside MULTI all keys must {one} one: give \
                     them a common hash tag",
                    name.to_ascii_uppercase()
                ));
            }
            Route::KeysUnknown(fault) => return Err(request.keys_error(fault)),
            Route::Unrouted => return Err(self.unrouted_words(incoming.session.pool, request)),
            _ if pool.servers.len() > 1 => {
                return Err(format!("ERR '{name}' is refused inside MULTI: {NO_KEY}"));
            }
            // The command runs on the server of the transaction.
            _ if self.has_moving_homes(incoming.session.pool) => return Ok(None),
            _ => 0,
        };
        let home = self.home_of(incoming, server);
        match watched {
            Some(watch) if watch.home != home => {
                Err("CROSSSLOT the watched keys live on another server; give all keys of the \
                     transaction a common hash tag"
                    .to_owned())
            }
            _ => Ok(Some(home)),
        }
    }

    /// Returns the server that all keys of a transaction share, or their slot if that may move to
    /// another server meanwhile.
    fn home_of(&mut self, incoming: &RequestContext, server: u16) -> u16 {
        let pool = incoming.session.pool;
        self.keys.clear();
        let _ = incoming.request.keys(&mut self.keys);
        let key = self.keys.first().and_then(|&at| incoming.request.args.get(at as usize));
        key.and_then(|key| self.moving_home_of(pool, key)).unwrap_or(server)
    }

    /// Executes MULTI, EXEC, DISCARD, WATCH and UNWATCH.
    pub(in crate::core) fn transact(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Step {
        match self.begin_or_drop(links, incoming) {
            None => Step::Started,
            Some(ForKeys::Exec) => self.exec(links, incoming),
            Some(ForKeys::Watch) => self.watch(links, incoming),
        }
    }

    fn watch(&mut self, links: &mut Connections, incoming: &mut RequestContext) -> Step {
        if !incoming.session.is_quiet(incoming.busy) {
            incoming.session.fence();
            return Step::Wait;
        }
        let Some(shared) = self.pools[usize::from(incoming.session.pool)].shared() else {
            return self.answer_unrouted(incoming);
        };
        let server = match self.server_of_keys(incoming) {
            Ok(server) => server,
            Err(Route::Unrouted) if self.awaits_owner(incoming) => {
                return Step::Wait;
            }
            Err(route) => return self.refuse_route_of(incoming, route),
        };
        let home = self.home_of(incoming, server);
        let watch = Self::current_watch(links, incoming);
        // The first ring counts: later keys may be of another.
        let ring =
            watch.map_or_else(|| self.ring_number(incoming.session.pool), |watch| watch.ring);
        let index = match watch {
            Some(watch) if watch.home != home => {
                let text = "CROSSSLOT the keys watched so far live on another server; give all \
                            keys of the transaction a common hash tag";
                return self.refuse_request(incoming, text);
            }
            Some(Watch { link: Some(index), .. }) => index,
            // The time at which a watch without a reply began is unknown, and later reads come by
            // another link.
            None if Self::is_silent(incoming.session) => {
                let stateful = incoming.session.stateful.get_or_insert_default();
                stateful.watch = Some(Watch { home, ring, link: None });
                self.answer_locally(incoming, |out| reply::simple(out, "OK"));
                return Step::Started;
            }
            Some(Watch { link: None, .. }) => {
                // EXEC fails whatever happens to these keys.
                self.answer_locally(incoming, |out| reply::simple(out, "OK"));
                return Step::Started;
            }
            None => {
                let link = self.link_of(&shared, incoming.session, server);
                if self.holds_private(&links[link]) {
                    return Step::Full(link);
                }
                let has_own = self.own_link(incoming.session, server).is_some();
                let server_id = ServerId { pool: incoming.session.pool, server };
                if !has_own && let Some(late) = late_link(links, incoming.client(), server_id) {
                    return Step::Full(late);
                }
                match self.watch_link(links, incoming, server) {
                    Some(index) => index,
                    None => return Step::Started,
                }
            }
        };
        let stateful = incoming.session.stateful.get_or_insert_default();
        stateful.watch = Some(Watch { home, ring, link: Some(index) });
        self.send_private(links, incoming, index);
        incoming.session.fence();
        Step::Started
    }

    /// Returns the keys that the session watches. It leaves out the link if that is no longer the
    /// session's own.
    fn current_watch(links: &Connections, incoming: &RequestContext) -> Option<Watch> {
        let watch = incoming.session.stateful.as_ref()?.watch?;
        let is_own = |it: &Connection| it.lease == Some(incoming.key);
        let link = watch.link.filter(|&key| links.get(key).is_some_and(is_own));
        Some(Watch { link, ..watch })
    }

    /// Returns the same as [`Self::current_watch`], but also leaves out the link if its server no
    /// longer has the keys. That server does not see their changes elsewhere.
    fn standing_watch(&self, links: &Connections, incoming: &RequestContext) -> Option<Watch> {
        let watch = Self::current_watch(links, incoming)?;
        let now_at = self.server_of_home(incoming.session.pool, watch.home);
        let stands =
            |&index: &ConnectionKey| now_at.is_none_or(|at| at == links[index].server_id.server);
        Some(Watch { link: watch.link.filter(stands), ..watch })
    }

    /// Returns the link to watch keys on: the session's own, or a private link for a while.
    fn watch_link(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        server: u16,
    ) -> Option<ConnectionKey> {
        let Some(own) = self.own_link(incoming.session, server) else {
            return self.lease_for(links, incoming, server);
        };
        if let Some(fault) = self.refused(&links[own]) {
            self.answer_down(incoming, server, fault);
            return None;
        }
        Some(own)
    }

    /// Sends the queued commands between `MULTI` and `EXEC` as one batch.
    fn exec(&mut self, links: &mut Connections, incoming: &mut RequestContext) -> Step {
        let watch = self.standing_watch(links, incoming);
        if let Some(step) = self.answer_exec_here(links, incoming, watch) {
            return step;
        }
        // A client that is tracked sends all its requests by the connection that watches.
        let watches_apart = |index: &ConnectionKey| links[*index].role.is_none();
        if let Some(index) = watch.and_then(|watch| watch.link).filter(watches_apart) {
            let server_id = links[index].server_id;
            if let Some(late) = late_link(links, incoming.client(), server_id) {
                return Step::Full(late);
            }
        }
        let Some(stateful) = &incoming.session.stateful else { return Step::Started };
        let Some(transaction) = &stateful.transaction else { return Step::Started };
        let ring = self.ring_number(incoming.session.pool);
        if transaction.is_outdated(ring) || watch.is_some_and(|watch| watch.ring != ring) {
            return self.exec_elsewhere(links, incoming, watch);
        }
        let Some(index) = self.link_for_exec(incoming, watch) else {
            let home = self.home_of_transaction(incoming);
            if home.is_some_and(|home| self.awaits_owner_of(incoming.client(), home)) {
                return Step::Wait;
            }
            self.end_transaction(links, incoming.key, incoming.session);
            return self.answer_unrouted(incoming);
        };
        if let Some(late) = late_apart(links, incoming, index) {
            return Step::Full(late);
        }
        self.exec_on(links, incoming, index, watch.is_some())
    }

    /// Answers an EXEC that no server needs to execute, or has it wait for earlier replies. Returns
    /// `None` if it must be sent.
    fn answer_exec_here(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        watch: Option<Watch>,
    ) -> Option<Step> {
        let stateful = incoming.session.stateful.as_ref();
        let Some(transaction) = stateful.and_then(|stateful| stateful.transaction.as_ref()) else {
            return Some(Step::Started);
        };
        if transaction.is_refused() {
            self.end_transaction(links, incoming.key, incoming.session);
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return Some(self.refuse_request(incoming, text));
        }
        match watch {
            Some(Watch { link: None, .. }) => {
                self.end_transaction(links, incoming.key, incoming.session);
                let protocol = incoming.session.identity.protocol;
                self.answer_locally(incoming, |out| protocol.null_array(out));
                Some(Step::Started)
            }
            Some(_) if !incoming.session.is_quiet(incoming.busy) => {
                incoming.session.fence();
                Some(Step::Wait)
            }
            None if transaction.queued() == 0 => {
                self.end_transaction(links, incoming.key, incoming.session);
                self.answer_locally(incoming, |out| reply::array(out, 0));
                Some(Step::Started)
            }
            _ => None,
        }
    }

    /// Sends a transaction on a connection, if the connection has room.
    fn exec_on(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        index: ConnectionKey,
        is_watched: bool,
    ) -> Step {
        let connection = &mut links[index];
        if self.is_full(connection) {
            return Step::Full(index);
        }
        if let Some(fault) = self.refused(connection) {
            self.end_transaction(links, incoming.key, incoming.session);
            let server = links[index].server_id.server;
            self.answer_down(incoming, server, fault);
            return Step::Started;
        }
        if let Some(text) = connection.link.refuse_transaction(self.clock.now) {
            self.mark_link_dirty(index, connection);
            self.note_deadline(
                connection.link.deadline(self.link_options(connection.server_id.pool)),
            );
            self.end_transaction(links, incoming.key, incoming.session);
            self.answer_locally(incoming, |out| reply::error(out, &text));
            return Step::Started;
        }
        self.send_transaction(links, incoming, index);
        if is_watched {
            // The watch ended with it.
            self.release(links, index);
            incoming.session.fence();
        } else if self.has_slots(incoming.session.pool) {
            // While a slot moves, the transaction may have to be sent to another server. Later
            // requests must not be executed here before that.
            incoming.session.fence();
        }
        Step::Started
    }

    /// Returns a number for the ring of a pool, which differs for each ring that the pool has had.
    /// If the servers are discovered, they say themselves where keys are.
    fn ring_number(&self, pool: u16) -> u64 {
        self.pools[usize::from(pool)].listed().map_or(0, ServersState::health_epoch)
    }

    /// Answers an `EXEC` that was begun when other servers were in use. Its keys may belong to
    /// other servers now, and nobody would find a write here.
    #[cold]
    fn exec_elsewhere(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        watch: Option<Watch>,
    ) -> Step {
        self.end_transaction(links, incoming.key, incoming.session);
        if watch.is_some() {
            let protocol = incoming.session.identity.protocol;
            self.answer_locally(incoming, |out| protocol.null_array(out));
            return Step::Started;
        }
        let counted = incoming.request.command.counted();
        self.count_fault(incoming.session.pool, counted, Fault::Unrouted);
        let text = "EXECABORT Transaction discarded because a server left the pool or came back \
                    since MULTI; nothing of it was executed, run it again";
        self.answer_locally(incoming, |out| reply::error(out, text));
        Step::Started
    }

    fn home_of_transaction(&self, incoming: &RequestContext) -> Option<u16> {
        incoming.session.stateful.as_ref()?.transaction.as_ref()?.home()
    }

    fn link_for_exec(
        &mut self,
        incoming: &RequestContext,
        watch: Option<Watch>,
    ) -> Option<ConnectionKey> {
        let transaction = incoming.session.stateful.as_ref()?.transaction.as_ref()?;
        if let Some(Watch { link: Some(index), .. }) = watch {
            return Some(index);
        }
        let home = transaction.home();
        let random = self.next_random() as u32;
        let Upstream { servers: pool, .. } =
            self.plan.pools[incoming.session.pool as usize].kind.upstream()?;
        let state = self.pools[incoming.session.pool as usize].servers()?;
        let shared = *state.shared();
        // Without keys any server will do, but always the same one.
        let server = match home {
            Some(home) => self.server_of_home(incoming.session.pool, home),
            None => place(pool, state.ring(), b"", random),
        };
        Some(self.link_of(&shared, incoming.session, server?))
    }

    fn send_transaction(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        index: ConnectionKey,
    ) {
        let stateful = incoming.session.take_stateful();
        let Some(transaction) = stateful.and_then(|stateful| stateful.transaction) else { return };
        self.started(incoming.session.pool, incoming.request.command.counted());
        self.note_write(incoming.session, incoming.busy);
        self.set_reading(links, index, false);
        let connection = &mut links[index];
        self.prepare_link(index, connection, incoming.session.identity.database);
        if transaction.calls_functions {
            self.give_libraries(index, connection);
        }
        self.give_scripts(connection, transaction.scripts());
        let out = connection.link.request_buf();
        out.extend_from_slice(MULTI);
        out.extend_from_slice(transaction.requests());
        out.extend_from_slice(EXEC);
        let len = MULTI.len() + transaction.requests().len() + EXEC.len();
        let mut owner = Self::owner(incoming);
        if !transaction.scripts().is_empty() {
            owner = self.own_as_multi_step(connection, index, incoming, owner, Work::Transaction);
        }
        let counted = incoming.request.command.counted();
        let before = transaction.queued() + 1;
        connection.link.enqueue_batch(owner, counted, len, before, self.clock.now);
        connection.link.set_transaction();
        self.note_unsent(index, connection);
    }
}
