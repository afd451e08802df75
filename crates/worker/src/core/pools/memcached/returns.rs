//! Handles memcached servers that come back after an ejection, in pools that empty them: what the
//! marker on them says before and after.

use super::state::UnderWay;
use crate::PoolKind;
use crate::core::upstream::reply::release_waiting;
use crate::core::{Connection, ConnectionKey, Core, Plane};
use keyway_base::{BackendFault, Fault, Sent};
use keyway_memcache::Dialect;
use keyway_proxy::memcached::{
    Answer, Cleaned, Next, Question, Returning, read_answer, wire_of, write_question,
};
use keyway_proxy::{Internal, LinkState};
use keyway_topology::{BackendId, FailureReason, Generation, HealthState, Rejoin, Seen};
use std::sync::Arc;
use std::time::Duration;

/// Time between two readings of the marker of a server in use. Reading also keeps the server from
/// evicting the marker. If another proxy changes a server within this time before an ejection, only
/// clocks can show it. A much shorter time would be load.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Core {
    /// Goes on with returns whose pause is over, and reads the markers of servers in use. Runs a
    /// few times a second.
    pub(in crate::core) fn tend_generations(&mut self) {
        let plan = Arc::clone(&self.plane.plan);
        for (pool, configured) in plan.topology.pools().iter().enumerate() {
            if !self.plane.has_generations(pool as u16) {
                continue;
            }
            for server in 0..configured.servers().len() {
                self.go_on_returning(plan.topology.backend_id(pool, server));
                let Some(shared) = self.plane.pools[pool].shared() else { continue };
                let index = self.clear_link(shared.probe_link(server));
                let Core { links, plane, .. } = self;
                let connection = &mut links[index];
                if connection.link.state() == LinkState::Ready {
                    plane.look_at_generation(index, connection, false);
                }
            }
        }
    }

    fn go_on_returning(&mut self, id: BackendId) {
        let Core { links, plane, .. } = self;
        let (now, unix_ms) = (plane.clock.now, plane.clock.unix_millis());
        let mut under_way = plane.memcached.returns.under_way.iter_mut();
        let Some(one) = under_way.find(|one| one.id == id) else { return };
        let index = one.asked_on;
        let next = one.returning.handle_timeout(now, unix_ms);
        match links.get_mut(index) {
            Some(connection) => plane.do_next(index, connection, next),
            None => plane.end_return(id),
        }
    }

    /// Fails the requests that wait for a connection to a server that is out of use now. They must
    /// not be sent once the connection stands, because they are older than the server's new
    /// generation.
    pub(in crate::core) fn take_back_displaced(&mut self) {
        let Core { sessions, links, plane } = self;
        for connection in links.iter_mut() {
            let is_waiting =
                connection.link.state() != LinkState::Ready && connection.link.in_flight() > 0;
            if !is_waiting || !plane.is_held_back(connection) {
                continue;
            }
            let mut taken = Vec::new();
            connection.link.take_back(|exchange| taken.push(*exchange));
            let server = connection.server_id;
            let fault = Fault::Backend { fault: BackendFault::Connect, sent: Sent::No };
            for exchange in taken {
                plane.fail(sessions, server, &exchange, false, fault);
            }
            release_waiting(sessions, plane, connection);
        }
    }
}

impl Plane {
    /// Returns whether the pool's servers are told apart by generations.
    fn has_generations(&self, pool: u16) -> bool {
        match &self.plan.pools[usize::from(pool)].kind {
            PoolKind::Memcached(plan) => {
                let ejection = plan.upstream.servers.options.ejection;
                ejection.is_some_and(|ejection| ejection.rejoin == Rejoin::Flush)
            }
            _ => false,
        }
    }

    /// Returns whether no client's request may be sent to this server now.
    pub(in crate::core) fn is_held_back(&self, connection: &Connection) -> bool {
        !connection.is_private
            && !self.plan.health.is_usable(connection.id)
            && self.has_generations(connection.server_id.pool)
    }

    /// Begins the return of a server whose pool has generations.
    pub(in crate::core) fn try_begin_return(
        &mut self,
        index: ConnectionKey,
        connection: &mut Connection,
    ) -> bool {
        if !self.has_generations(connection.server_id.pool) {
            return false;
        }
        self.end_return(connection.id);
        let remembered = self.plan.health.generation(connection.id).remembered();
        // The ids 0 and 1 stand for no generation.
        let id = self.next_random().max(2);
        let own = Generation { id, began_ms: self.clock.unix_millis() };
        let returning = Returning::new(remembered, own, self.clock.now);
        let one = UnderWay { id: connection.id, asked_on: index, returning };
        self.memcached.returns.under_way.push(one);
        self.ask_generation(connection, Internal::Return, Question::Marker);
        true
    }

    /// Ends a return that has succeeded or failed.
    pub(in crate::core) fn end_return(&mut self, id: BackendId) {
        self.memcached.returns.under_way.retain(|one| one.id != id);
    }

    /// Reads the marker of a server in use, if it is time. On a new connection it does so in any
    /// case.
    pub(in crate::core) fn look_at_generation(
        &mut self,
        index: ConnectionKey,
        connection: &mut Connection,
        is_new: bool,
    ) {
        // A server that does not answer is not asked again: each question would take memory.
        let is_out = connection.is_private
            || connection.rejoining.is_some()
            || connection.link.owes(Internal::Look);
        if is_out
            || !self.has_generations(connection.server_id.pool)
            || !self.plan.health.is_usable(connection.id)
        {
            return;
        }
        let cell = self.plan.health.generation(connection.id);
        let next = self.clock.now + LOOK_EVERY;
        if cell.try_claim_look(self.clock.now, next) || is_new {
            self.ask_generation(connection, Internal::Look, Question::Marker);
            self.mark_link_dirty(index, connection);
        }
    }

    fn ask_generation(&mut self, connection: &mut Connection, which: Internal, question: Question) {
        let options = Arc::clone(self.link_options(connection.server_id.pool));
        let dialect = options.memcached.as_ref().map_or(Dialect::Text, |it| it.dialect);
        let pool = &self.plan.topology.pools()[usize::from(connection.server_id.pool)].name;
        connection.link.ask_memcached_with(which, self.clock.now, |out| {
            write_question(out, dialect, pool, question)
        });
        self.note_deadline(connection.link.deadline(&options));
    }

    /// Keeps a server's answer. [`Plane::on_generation_heard`] follows.
    #[cold]
    pub(in crate::core) fn hear_generation(&mut self, pool: u16, which: Internal, reply: &[u8]) {
        let memcached = &self.link_options(pool).memcached;
        let wire = wire_of(memcached.as_ref().map_or(Dialect::Text, |it| it.dialect));
        self.memcached.returns.heard.push((which, read_answer(reply, wire)));
    }

    /// Returns whether an answer about generations has arrived.
    #[inline]
    pub(in crate::core) fn has_heard_generation(&self) -> bool {
        !self.memcached.returns.heard.is_empty()
    }

    /// Handles the servers' answers about their generations.
    #[cold]
    pub(in crate::core) fn on_generation_heard(
        &mut self,
        index: ConnectionKey,
        connection: &mut Connection,
    ) {
        let mut heard = std::mem::take(&mut self.memcached.returns.heard);
        for (which, answer) in heard.drain(..) {
            if which == Internal::Look {
                self.on_look(connection, answer);
                continue;
            }
            let mut under_way = self.memcached.returns.under_way.iter_mut();
            let Some(one) = under_way.find(|one| one.id == connection.id) else { continue };
            let returning = &mut one.returning;
            let is_refused = answer == Answer::Refused && returning.is_emptying();
            let next = returning.handle_answer(answer, self.clock.now);
            if is_refused {
                self.log_not_emptied(connection);
            }
            self.do_next(index, connection, next);
        }
        self.memcached.returns.heard = heard;
    }

    fn on_look(&self, connection: &Connection, answer: Answer) {
        // A later answer may be from after the ejection.
        if !self.plan.health.is_usable(connection.id) {
            return;
        }
        let seen = match answer {
            Answer::Marker(Some(found)) => Seen::Id(found.id),
            Answer::Absent => Seen::Absence,
            _ => Seen::Nothing,
        };
        self.plan.health.generation(connection.id).note_seen(seen);
    }

    fn do_next(&mut self, index: ConnectionKey, connection: &mut Connection, next: Next) {
        match next {
            Next::Wait => return,
            Next::Ask(Question::Flush)
                if self.plan.health.state(connection.id) != HealthState::Rejoining =>
            {
                // An operator took the server back into use: it must no longer be emptied.
                return self.on_rejoin_failed(connection, FailureReason::Timeout);
            }
            Next::Ask(question) => self.ask_generation(connection, Internal::Return, question),
            Next::Use(cleaned, generation) => {
                self.plan.health.generation(connection.id).note_seen(Seen::Id(generation.id));
                self.memcached.returns.cleaned = Some(cleaned);
                self.on_rejoined(connection);
                self.memcached.returns.cleaned = None;
                return;
            }
            Next::GiveUp => return self.on_rejoin_failed(connection, FailureReason::Handshake),
        }
        self.mark_link_dirty(index, connection);
    }

    /// Logs that a server refuses to be emptied, and will refuse the next time.
    #[cold]
    fn log_not_emptied(&self, connection: &Connection) {
        let name = self.name_backend(connection.server_id);
        tracing::warn!(
            pool = name.pool,
            backend = &*name.label,
            address = name.address,
            "the backend refuses flush_all and is kept out: start it anew, without memcached's -F, \
             or choose another rejoin"
        );
    }

    /// Returns, for the log, how a server that is back in use became clean.
    pub(in crate::core) fn describe_cleaned(&self, pool: usize) -> String {
        match self.memcached.returns.cleaned {
            Some(Cleaned::Empty) => "it was found empty".to_owned(),
            Some(Cleaned::ByAnother) => "another proxy has seen to its being empty".to_owned(),
            _ => format!("it was emptied with {}", self.flush_command(pool)),
        }
    }
}
