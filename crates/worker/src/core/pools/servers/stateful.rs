//! Transactions and blocking commands of sharded pools; what they have in
//! common with those of the embedded store.
//!
//! A transaction is held in the session until `EXEC` and goes out whole, on
//! the shared link of its server, or on the private link that watches its
//! keys. A blocking command waits on a private link. Whenever a session
//! changes from one link to another, a fence holds its next request back
//! until every reply is here: its requests are executed in their order. What
//! goes by a private link also waits, within the timeout, while the server owes
//! the reply to a write of the client that has timed out.

use crate::Upstream;
use crate::core::front::read::Step;
use crate::core::upstream::bypass::{late_apart, late_link};
use crate::core::{Connection, ConnectionKey, Connections, Plane};
use keyway_base::{Fault, Key, Time};
use keyway_command::{Across, Handling, Request, Verb};
use keyway_proxy::{
    Busy, Digest, Owner, QueueFault, Session, Transaction, Translation, Watch, Work, write_fault,
};
use keyway_resp::reply;
use keyway_route::{NO_KEY, Route, place, route_whole};
use keyway_topology::Distribution;
use std::sync::Arc;
use std::time::Duration;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// A request that is looked at, and the session that sent it.
pub(in crate::core) struct RequestContext<'a, 'r> {
    pub(in crate::core) key: Key<Session>,
    pub(in crate::core) session: &'a mut Session,
    pub(in crate::core) busy: &'a mut Busy,
    pub(in crate::core) request: &'a Request<'r>,
}

/// What of a transaction is done where its keys are.
pub(in crate::core) enum ForKeys {
    Exec,
    Watch,
}

impl Plane {
    /// Takes a request that belongs to an open transaction; `None` when it is
    /// to be handled as any other.
    #[cold]
    pub(in crate::core) fn dispatch_stateful(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
    ) -> Option<Step> {
        let stateful = asked.session.stateful.as_ref()?;
        match asked.request.command.verb {
            Verb::Reset => {
                self.end_stateful(links, asked.key, asked.session);
                None
            }
            Verb::Multi | Verb::Exec | Verb::Discard | Verb::Watch | Verb::Quit => None,
            _ if stateful.transaction.is_none() => None,
            _ => {
                self.queue(asked);
                Some(Step::Started)
            }
        }
    }

    /// Puts a command into the open transaction.
    fn queue(&mut self, asked: &mut RequestContext) {
        let is_queued = self.try_queue(asked);
        if let Err(text) = is_queued {
            self.refuse_queued(asked, &text);
        } else {
            self.answer_locally(asked, |out| reply::simple(out, "QUEUED"));
        }
    }

    fn try_queue(&mut self, asked: &mut RequestContext) -> Result<(), String> {
        let server = self.server_in_transaction(asked)?;
        let ring = self.ring_number(asked.session.pool);
        let transaction = asked.session.stateful.as_mut().and_then(|it| it.transaction.as_mut());
        let Some(transaction) = transaction else { return Ok(()) };
        if server.is_some_and(|server| !transaction.settle_on(server, ring)) {
            return Err("CROSSSLOT the keys of this transaction live on several servers; give \
                        them a common hash tag"
                .to_owned());
        }
        let script = match asked.request.command.verb {
            Verb::Evalsha | Verb::EvalshaRo => Digest::parse(&asked.request.args[1]),
            _ => None,
        };
        transaction.calls_functions |=
            matches!(asked.request.command.verb, Verb::Fcall | Verb::FcallRo);
        self.keep_queued(asked, script)
    }

    /// Keeps a command for `EXEC`, with the script that it calls by its digest.
    pub(in crate::core) fn keep_queued(
        &mut self,
        asked: &mut RequestContext,
        script: Option<Digest>,
    ) -> Result<(), String> {
        let len_max = self.plan.limits.link_output_len_max as usize / 2;
        let transaction = asked.session.stateful.as_mut().and_then(|it| it.transaction.as_mut());
        let Some(transaction) = transaction else { return Ok(()) };
        let queued = transaction.queue(asked.request.args.buf(), script, len_max);
        queued.map_err(|fault| match fault {
            QueueFault::TooLong => format!(
                "ERR the transaction is too long: at most {len_max} bytes and 65,533 commands \
                 wait for EXEC"
            ),
            QueueFault::NoBudget => format!(
                "OOM the commands of all clients that wait for EXEC would take more than \
                 transactions_len_max ({} bytes); run the transaction again when others have ended",
                self.plan.transactions.len_max()
            ),
        })
    }

    /// The server of a command inside a transaction; `None` when any will do.
    fn server_in_transaction(&mut self, asked: &RequestContext) -> Result<Option<u16>, String> {
        let request = asked.request;
        let name = request.command.name.replace('|', " ");
        let watched = asked.session.stateful.as_ref().and_then(|stateful| stateful.watch);
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
            Handling::PubSub => return self.server_of_published(asked, &name),
            // A script without keys runs wherever the transaction does.
            Handling::Across(Across::Run) if request.args.get(2) == Some(b"0") => return Ok(None),
            _ => {}
        }
        let random = self.next_random() as u32;
        let Some(Upstream { servers: pool, .. }) =
            self.plan.pools[asked.session.pool as usize].kind.upstream()
        else {
            return Ok(None);
        };
        let Some(state) = self.pools[asked.session.pool as usize].servers() else {
            return Ok(None);
        };
        let server = match route_whole(request, pool, state.ring(), random, &mut self.keys) {
            Route::One(server) => server,
            Route::CrossSlot { servers } => {
                return Err(format!(
                    "CROSSSLOT keys of this {} live on {servers} servers; inside MULTI all keys \
                     must live on one: give them a common hash tag",
                    name.to_ascii_uppercase()
                ));
            }
            Route::KeysUnknown(fault) => return Err(request.keys_error(fault)),
            Route::Unrouted => return Err(self.unrouted_words(asked.session.pool, request)),
            _ if pool.servers.len() > 1 => {
                return Err(format!("ERR '{name}' is refused inside MULTI: {NO_KEY}"));
            }
            // It runs wherever the transaction does.
            _ if self.cluster_state(asked.session.pool).is_some() => return Ok(None),
            _ => 0,
        };
        let home = self.home_of(asked, server);
        match watched {
            Some(watch) if watch.home != home => {
                Err("CROSSSLOT the watched keys live on another server; give all keys of the \
                     transaction a common hash tag"
                    .to_owned())
            }
            _ => Ok(Some(home)),
        }
    }

    /// What all keys of a transaction have in common: their server, or what may come to
    /// another server meanwhile.
    fn home_of(&mut self, asked: &RequestContext, server: u16) -> u16 {
        let pool = asked.session.pool;
        self.keys.clear();
        let _ = asked.request.keys(&mut self.keys);
        let key = self.keys.first().and_then(|&at| asked.request.args.get(at as usize));
        key.and_then(|key| self.moving_home_of(pool, key)).unwrap_or(server)
    }

    /// Begins, ends or guards a transaction.
    pub(in crate::core) fn transact(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
    ) -> Step {
        match self.begin_or_drop(links, asked) {
            None => Step::Started,
            Some(ForKeys::Exec) => self.exec(links, asked),
            Some(ForKeys::Watch) => self.watch(links, asked),
        }
    }

    /// Answers what concerns the session alone, on a pool or a store; says what
    /// is left to do where the keys are.
    pub(in crate::core) fn begin_or_drop(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
    ) -> Option<ForKeys> {
        let stateful = asked.session.stateful.as_ref();
        let is_open = stateful.is_some_and(|stateful| stateful.transaction.is_some());
        let wrong = match (asked.request.command.verb, is_open) {
            (Verb::Exec, true) => return Some(ForKeys::Exec),
            (Verb::Watch, false) => return Some(ForKeys::Watch),
            (Verb::Exec, false) => "ERR EXEC without MULTI",
            (Verb::Discard, false) => "ERR DISCARD without MULTI",
            (Verb::Multi, true) => "ERR MULTI calls can not be nested",
            (Verb::Watch, true) => "ERR WATCH inside MULTI is not allowed",
            (Verb::Multi, false) => {
                let stateful = asked.session.stateful.get_or_insert_default();
                stateful.transaction = Some(Transaction::new(&self.plan.transactions));
                self.answer_locally(asked, |out| reply::simple(out, "OK"));
                return None;
            }
            _ => {
                self.end_transaction(links, asked.key, asked.session);
                self.answer_locally(asked, |out| reply::simple(out, "OK"));
                return None;
            }
        };
        self.refuse(asked.session, asked.busy, |out| reply::error(out, wrong));
        None
    }

    /// Drops the queued commands and the watch.
    pub(in crate::core) fn end_transaction(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
    ) {
        let Some(stateful) = &mut session.stateful else { return };
        stateful.transaction = None;
        if let Some(watched) = stateful.watched.take() {
            self.unwatch_keys(session.pool, *watched);
        }
        let Some(stateful) = &mut session.stateful else { return };
        if let Some(index) = stateful.watch.take().and_then(|watch| watch.link) {
            self.unwatch(links, key, index);
        }
        session.tidy();
    }

    /// Answers a request that may change the protocol and so the links of its
    /// session, once those before it are answered.
    #[cold]
    pub(in crate::core) fn greet(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
    ) -> Step {
        if !asked.session.is_quiet(asked.busy) {
            asked.session.fence();
            return Step::Wait;
        }
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[asked.session.pool as usize];
        let before = asked.session.identity.protocol;
        self.answer_without_server(asked.session, asked.busy, pool, asked.request);
        let has_changed = asked.session.identity.protocol != before;
        if has_changed {
            self.lose_watch(links, asked.key, asked.session);
        }
        if has_changed || asked.request.command.verb == Verb::Reset {
            self.change_tracking(links, asked);
        }
        Step::Started
    }

    fn watch(&mut self, links: &mut Connections, asked: &mut RequestContext) -> Step {
        if !asked.session.is_quiet(asked.busy) {
            asked.session.fence();
            return Step::Wait;
        }
        let server = match self.server_of_keys(asked) {
            Ok(server) => server,
            Err(Route::Unrouted)
                if self.awaits_owner((asked.key, asked.session), asked.request) =>
            {
                return Step::Wait;
            }
            Err(route) => {
                self.refuse_route_of(asked, route);
                return Step::Started;
            }
        };
        let home = self.home_of(asked, server);
        let watch = Self::current_watch(links, asked);
        // The first ring counts: what came later may be about another.
        let ring = watch.map_or_else(|| self.ring_number(asked.session.pool), |watch| watch.ring);
        let index = match watch {
            Some(watch) if watch.home != home => {
                let text = "CROSSSLOT the keys watched so far live on another server; give all \
                            keys of the transaction a common hash tag";
                self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
                return Step::Started;
            }
            Some(Watch { link: Some(index), .. }) => index,
            // Nothing says when a watch without a reply began, and what is read
            // from then on comes by another link.
            None if Self::is_silent(asked.session) => {
                let stateful = asked.session.stateful.get_or_insert_default();
                stateful.watch = Some(Watch { home, ring, link: None });
                self.answer_locally(asked, |out| reply::simple(out, "OK"));
                return Step::Started;
            }
            Some(Watch { link: None, .. }) => {
                // EXEC will fail whatever happens to these keys.
                self.answer_locally(asked, |out| reply::simple(out, "OK"));
                return Step::Started;
            }
            None if self.holds_private(&links[self.link_of(asked.session, server)]) => {
                return Step::Full(self.link_of(asked.session, server));
            }
            None => {
                let has_own = self.own_link(asked.session, server).is_some();
                let place = (asked.session.pool, server);
                if !has_own && let Some(late) = late_link(links, (asked.key, asked.session), place)
                {
                    return Step::Full(late);
                }
                match self.watch_link(links, asked, server) {
                    Some(index) => index,
                    None => return Step::Started,
                }
            }
        };
        let stateful = asked.session.stateful.get_or_insert_default();
        stateful.watch = Some(Watch { home, ring, link: Some(index) });
        self.send_private(links, asked, index);
        asked.session.fence();
        Step::Started
    }

    /// What the session watches; nothing that a link guards which is not its own
    /// any more.
    fn current_watch(links: &Connections, asked: &RequestContext) -> Option<Watch> {
        let watch = asked.session.stateful.as_ref()?.watch?;
        let is_own = |it: &Connection| it.lease == Some(asked.key);
        let link = watch.link.filter(|&key| links.get(key).is_some_and(is_own));
        Some(Watch { link, ..watch })
    }

    /// The same, and nothing that a server guards which has the keys no more: what becomes
    /// of them elsewhere it does not see.
    fn standing_watch(&self, links: &Connections, asked: &RequestContext) -> Option<Watch> {
        let watch = Self::current_watch(links, asked)?;
        let now_at = self.server_of_home(asked.session.pool, watch.home);
        let stands = |&index: &ConnectionKey| now_at.is_none_or(|at| at == links[index].backend);
        Some(Watch { link: watch.link.filter(stands), ..watch })
    }

    /// The link to watch keys on: the session's own, or one for a while.
    fn watch_link(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
        server: u16,
    ) -> Option<ConnectionKey> {
        let Some(own) = self.own_link(asked.session, server) else {
            return self.lease_for(links, asked, server);
        };
        if let Some(fault) = self.refused(&links[own]) {
            self.answer_down(asked, server, fault);
            return None;
        }
        Some(own)
    }

    /// Sends the queued commands between `MULTI` and `EXEC`, as one.
    fn exec(&mut self, links: &mut Connections, asked: &mut RequestContext) -> Step {
        let Some(stateful) = &asked.session.stateful else { return Step::Started };
        let Some(transaction) = &stateful.transaction else { return Step::Started };
        let watch = self.standing_watch(links, asked);
        if transaction.is_refused() {
            self.end_transaction(links, asked.key, asked.session);
            let text = "EXECABORT Transaction discarded because of previous errors.";
            self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
            return Step::Started;
        }
        match watch {
            Some(Watch { link: None, .. }) => {
                self.end_transaction(links, asked.key, asked.session);
                let protocol = asked.session.identity.protocol;
                self.answer_locally(asked, |out| protocol.null_array(out));
                return Step::Started;
            }
            Some(_) if !asked.session.is_quiet(asked.busy) => {
                asked.session.fence();
                return Step::Wait;
            }
            None if transaction.queued() == 0 => {
                self.end_transaction(links, asked.key, asked.session);
                self.answer_locally(asked, |out| reply::array(out, 0));
                return Step::Started;
            }
            _ => {}
        }
        // A client that is tracked sends all its requests by the connection that watches.
        let watches_apart = |index: &ConnectionKey| links[*index].role.is_none();
        if let Some(index) = watch.and_then(|watch| watch.link).filter(watches_apart) {
            let place = (links[index].pool, links[index].backend);
            if let Some(late) = late_link(links, (asked.key, asked.session), place) {
                return Step::Full(late);
            }
        }
        let Some(stateful) = &asked.session.stateful else { return Step::Started };
        let Some(transaction) = &stateful.transaction else { return Step::Started };
        let ring = self.ring_number(asked.session.pool);
        if transaction.is_outdated(ring) || watch.is_some_and(|watch| watch.ring != ring) {
            return self.exec_elsewhere(links, asked, watch);
        }
        let Some(index) = self.link_for_exec(asked, watch) else {
            let home = self.home_of_transaction(asked);
            if home.is_some_and(|home| self.awaits_owner_of((asked.key, asked.session), home)) {
                return Step::Wait;
            }
            self.end_transaction(links, asked.key, asked.session);
            self.answer_unrouted(asked.session, asked.busy, asked.request);
            return Step::Started;
        };
        if asked.session.has_late_write
            && let Some(late) =
                late_apart(links, (asked.key, asked.session), (index, asked.request))
        {
            return Step::Full(late);
        }
        let connection = &mut links[index];
        if self.is_full(connection) {
            return Step::Full(index);
        }
        if let Some(fault) = self.refused(connection) {
            self.end_transaction(links, asked.key, asked.session);
            let server = links[index].backend;
            self.answer_down(asked, server, fault);
            return Step::Started;
        }
        if let Some(text) = connection.link.refuse_transaction(self.clock.now) {
            self.mark_link_dirty(index, connection);
            self.note_deadline(connection.link.deadline(self.link_options(connection.pool)));
            self.end_transaction(links, asked.key, asked.session);
            self.answer_locally(asked, |out| reply::error(out, &text));
            return Step::Started;
        }
        self.send_transaction(links, asked, index);
        if watch.is_some() {
            // The watch ended with it.
            self.release(links, index);
            asked.session.fence();
        } else if self.cluster_state(asked.session.pool).is_some_and(|state| state.has_slots()) {
            // While a slot moves, the transaction may have to be sent to another server, and what
            // comes behind it must not be executed here before that.
            asked.session.fence();
        }
        Step::Started
    }

    /// Tells apart the rings that a pool has had; where servers are found out keys are
    /// where these say.
    fn ring_number(&self, pool: u16) -> u64 {
        let state = &self.pools[usize::from(pool)];
        match state.servers() {
            Some(servers) if state.found().is_none() => servers.health_epoch(),
            _ => 0,
        }
    }

    /// Answers an `EXEC` of a time when other servers were in use: its keys may
    /// live elsewhere now, where a write would be found by nobody.
    #[cold]
    fn exec_elsewhere(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
        watch: Option<Watch>,
    ) -> Step {
        self.end_transaction(links, asked.key, asked.session);
        if watch.is_some() {
            let protocol = asked.session.identity.protocol;
            self.answer_locally(asked, |out| protocol.null_array(out));
            return Step::Started;
        }
        let counted = asked.request.command.counted();
        self.count_fault(asked.session.pool, counted, Fault::Unrouted);
        let text = "EXECABORT Transaction discarded because a server left the pool or came back \
                    since MULTI; nothing of it was executed, run it again";
        self.answer_locally(asked, |out| reply::error(out, text));
        Step::Started
    }

    fn home_of_transaction(&self, asked: &RequestContext) -> Option<u16> {
        asked.session.stateful.as_ref()?.transaction.as_ref()?.home()
    }

    fn link_for_exec(
        &mut self,
        asked: &RequestContext,
        watch: Option<Watch>,
    ) -> Option<ConnectionKey> {
        let transaction = asked.session.stateful.as_ref()?.transaction.as_ref()?;
        if let Some(Watch { link: Some(index), .. }) = watch {
            return Some(index);
        }
        let home = transaction.home();
        let random = self.next_random() as u32;
        let Upstream { servers: pool, .. } =
            self.plan.pools[asked.session.pool as usize].kind.upstream()?;
        let state = self.pools[asked.session.pool as usize].servers()?;
        // Without keys any server will do; always the same one.
        let server = match home {
            Some(home) => self.server_of_home(asked.session.pool, home),
            None => place(pool, state.ring(), b"", random),
        };
        Some(self.link_of(asked.session, server?))
    }

    fn send_transaction(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
        index: ConnectionKey,
    ) {
        let stateful = asked.session.take_stateful();
        let Some(transaction) = stateful.and_then(|stateful| stateful.transaction) else { return };
        self.count(asked.session, asked.request);
        self.note_write(asked.session, asked.busy);
        self.set_reading(links, index, false);
        let connection = &mut links[index];
        self.prepare_link(index, connection, asked.session.identity.database);
        if transaction.calls_functions {
            self.give_libraries(index, connection);
        }
        self.give_scripts(connection, transaction.scripts());
        let out = connection.link.request_buf();
        out.extend_from_slice(MULTI);
        out.extend_from_slice(transaction.requests());
        out.extend_from_slice(EXEC);
        let len = MULTI.len() + transaction.requests().len() + EXEC.len();
        let mut owner = Self::owner(asked);
        if !transaction.scripts().is_empty() {
            owner = self.own_as_multi_step((connection, index), (asked, owner), Work::Transaction);
        }
        let counted = asked.request.command.counted();
        let replies = (len, transaction.queued() + 1);
        connection.link.enqueue_batch(owner, counted, replies, self.clock.now);
        connection.link.set_transaction();
        self.note_unsent(index, connection);
    }

    /// Sends a command that may wait to the server of its keys.
    pub(in crate::core) fn block(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
        server: u16,
    ) -> Step {
        if let Some(step) = self.check_blocking(asked) {
            return step;
        }
        let shared = self.link_of(asked.session, server);
        if self.holds_private(&links[shared]) {
            return Step::Full(shared);
        }
        let place = (asked.session.pool, server);
        if let Some(late) = late_link(links, (asked.key, asked.session), place) {
            return Step::Full(late);
        }
        let Some(index) = self.lease_for(links, asked, server) else { return Step::Started };
        let until = self.answered_by(asked);
        self.note_write(asked.session, asked.busy);
        links[index].link.is_blocking = true;
        links[index].link.blocks_until = until;
        links[index].awaited_keys = self.hashes_of(asked);
        self.send_private(links, asked, index);
        self.note_deadline(until);
        asked.session.stateful.get_or_insert_default().blocked_on.push(index);
        asked.session.fence();
        self.plan.clients.set_blocked(asked.session.identity.id, true);
        Step::Started
    }

    /// When a server must have answered a command that blocks: it keeps the
    /// time, and one that is silent far beyond it is gone.
    pub(in crate::core) fn answered_by(&self, asked: &RequestContext) -> Option<Time> {
        self.answered_within(asked.session.pool, asked.request.wait_max())
    }

    /// The same of one that waits so long.
    pub(in crate::core) fn answered_within(
        &self,
        pool: u16,
        wait: Option<Duration>,
    ) -> Option<Time> {
        let options = self.link_options(pool);
        let grace = options.timeout.unwrap_or(options.connect_timeout);
        wait.map(|wait| self.clock.now + wait + grace)
    }

    /// What becomes of a command that blocks if it is not to be sent now.
    pub(in crate::core) fn check_blocking(&mut self, asked: &mut RequestContext) -> Option<Step> {
        if Self::is_silent(asked.session) {
            let text = "ERR a command that blocks is refused while CLIENT REPLY is OFF or SKIP";
            self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
            return Some(Step::Started);
        }
        if !asked.session.is_quiet(asked.busy) {
            asked.session.fence();
            return Some(Step::Wait);
        }
        if asked.session.hung_up || asked.session.ended {
            // Nobody may be there to take what it would be given.
            let text = "UNBLOCKED a command that blocks is not begun for a client that sends no \
                        more, or while Keyway stops";
            self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
            return Some(Step::Started);
        }
        None
    }

    /// Hashes of the request's keys, where a pool has several servers and keys
    /// have places.
    pub(in crate::core) fn hashes_of(&mut self, asked: &RequestContext) -> Vec<u32> {
        let Some(Upstream { servers: pool, .. }) =
            self.plan.pools[usize::from(asked.session.pool)].kind.upstream()
        else {
            return Vec::new();
        };
        if pool.servers.len() == 1 || matches!(pool.distribution, Distribution::Random) {
            return Vec::new();
        }
        self.keys.clear();
        let _ = asked.request.keys(&mut self.keys);
        let keys = self.keys.iter().filter_map(|&index| asked.request.args.get(index as usize));
        keys.map(|key| pool.hash_key(key)).collect()
    }

    /// A private link to `server`, unless that cannot be reached or there are
    /// too many: then the request is answered.
    pub(in crate::core) fn lease_for(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
        server: u16,
    ) -> Option<ConnectionKey> {
        let pool = asked.session.pool;
        let state = self.pools[pool as usize].servers()?;
        let protocol = asked.session.identity.protocol;
        let shared = state.link(server, asked.session.lane, protocol);
        if let Some(fault) = self.refused(&links[shared]) {
            self.answer_down(asked, server, fault);
            return None;
        }
        let leased = self.lease(links, asked.key, (pool, server), protocol);
        if leased.is_none() {
            let text = "ERR too many clients watch keys or wait in blocking commands";
            self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
        }
        leased
    }

    pub(in crate::core) fn send_private(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
        index: ConnectionKey,
    ) {
        self.count(asked.session, asked.request);
        let connection = &mut links[index];
        self.prepare_link(index, connection, asked.session.identity.database);
        let frame = asked.request.args.buf();
        connection.link.request_buf().extend_from_slice(frame);
        let owner = Self::owner(asked);
        let counted = asked.request.command.counted();
        connection.link.enqueue(owner, counted, frame.len(), self.clock.now);
        connection.link.set_translation(Translation::of(asked.request));
    }

    /// Who waits for the reply to the request.
    fn owner(asked: &mut RequestContext) -> Owner {
        let owner = match Self::is_silent(asked.session) {
            true => Self::unheard(asked.key, asked.session),
            false => Owner::Session { session: asked.key, sequence: asked.busy.order.reserve() },
        };
        Self::end_skip(asked.session);
        owner
    }

    fn server_of_keys(&mut self, asked: &RequestContext) -> Result<u16, Route> {
        let random = self.next_random() as u32;
        let pool = asked.session.pool as usize;
        let (Some(Upstream { servers, .. }), Some(state)) =
            (self.plan.pools[pool].kind.upstream(), self.pools[pool].servers())
        else {
            return Err(Route::Unrouted);
        };
        match route_whole(asked.request, servers, state.ring(), random, &mut self.keys) {
            Route::One(server) => Ok(server),
            other => Err(other),
        }
    }

    fn refuse_route_of(&mut self, asked: &mut RequestContext, route: Route) {
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[asked.session.pool as usize];
        self.refuse_route(asked.session, asked.busy, pool, asked.request, route);
    }

    pub(in crate::core) fn refuse_queued(&mut self, asked: &mut RequestContext, text: &str) {
        if let Some(stateful) = &mut asked.session.stateful {
            stateful.refuse();
        }
        self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
    }

    pub(in crate::core) fn answer_locally(
        &mut self,
        asked: &mut RequestContext,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.count(asked.session, asked.request);
        self.note_served(asked.session.pool, asked.request.command.counted());
        self.answer(asked.session, asked.busy, write);
    }

    fn answer_down(&mut self, asked: &mut RequestContext, server: u16, fault: Fault) {
        let pool = asked.session.pool;
        let backend = self.describe_backend(pool, server);
        self.count_fault(pool, asked.request.command.counted(), fault);
        self.answer_locally(asked, |out| write_fault(fault, &backend, out));
    }
}
