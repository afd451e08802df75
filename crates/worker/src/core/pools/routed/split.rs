//! Pools that read in one pool and write to another.
//!
//! A request with keys only chooses, as with a prefix. Some requests belong to a connection: a
//! transaction, a watch, a blocking command, subscriptions. They go to the pool that writes. The
//! session is *lent* to that pool until a later request needs no such state.

use crate::core::pools::routed::state::Wants;
use crate::core::pools::routed::state::may_write;
use crate::core::pools::routed::state::needs_connection;
use crate::core::pools::routed::state::routes_of;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::{Connections, Plane};
use crate::{Plan, RoutePlan};
use keyway_command::{Handling, Verb};
use keyway_proxy::Session;
use keyway_topology::RoutedPool;

/// Returns the pool in which a pool writes or reads, if that is a store or a pool of servers that
/// asks no others.
fn end_of(plan: &Plan, pool: u16, reads: bool) -> Option<u16> {
    let mut at = pool;
    while let Some(routes) = routes_of(plan, at) {
        let RoutedPool::ReadWriteSplit(split) = &routes.pool else { return None };
        at = if reads { split.read } else { split.write };
    }
    Some(at)
}

impl Plane {
    /// Gives a request that is not for keys to the pool that writes. Returns `None` if this pool
    /// has no such pool, or that cannot handle it.
    #[cold]
    pub(super) fn take_to_writers(
        &mut self,
        links: &mut Connections,
        plan: &Plan,
        routes: &RoutePlan,
        incoming: &mut RequestContext,
    ) -> Option<Step> {
        let RoutedPool::ReadWriteSplit(split) = &routes.pool else { return None };
        if incoming.session.sub_request.is_some() {
            return None;
        }
        let writer = end_of(plan, split.write, false)?;
        let now = self.clock.now;
        if needs_connection(incoming.request) {
            return Some(self.move_to_writer(writer, incoming));
        }
        if !matches!(incoming.request.handling(), Handling::Across(_) | Handling::Everywhere(_)) {
            return None;
        }
        let reply_index = incoming.busy.order.next_index();
        let mut wants = Wants::of(incoming.request, &mut incoming.session.identity, reply_index);
        let reads = matches!(incoming.request.command.verb, Verb::EvalRo | Verb::EvalshaRo)
            && wants.is_read_by(split, now);
        if may_write(incoming.request) {
            wants.note_write(split, now);
        }
        // A store, and a pool that leads to others, keeps no scripts of servers.
        let reader = end_of(plan, split.read, true)
            .filter(|&reader| plan.pools[usize::from(reader)].kind.scripts().is_some());
        let end = reader.filter(|_| reads).unwrap_or(writer);
        let own = std::mem::replace(&mut incoming.session.pool, end);
        let step = self.dispatch_led(links, &plan.pools[usize::from(end)], incoming);
        incoming.session.pool = own;
        if matches!(step, Step::Started) {
            self.started(own, incoming.request.command.counted());
        }
        Some(step)
    }

    /// Lends a session to the pool that writes. Its request is handled again there.
    fn move_to_writer(&mut self, writer: u16, incoming: &mut RequestContext) -> Step {
        if incoming.session.is_monitor {
            let text = "ERR a client that monitors does nothing else here: send RESET first";
            return self.refuse_request(incoming, text);
        }
        let home = std::mem::replace(&mut incoming.session.pool, writer);
        incoming.session.stateful.get_or_insert_default().home = Some(home);
        self.mark_session_resuming(incoming.key, incoming.session);
        Step::Wait
    }

    /// Handles a request of a session that is lent. Returns `None` if the pool that writes handles
    /// it, and if the session is not lent.
    #[cold]
    pub(in crate::core) fn dispatch_at_writer(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Option<Step> {
        let home = incoming.session.stateful.as_ref()?.home?;
        let verb = incoming.request.command.verb;
        if verb == Verb::Reset {
            self.end_stateful(links, incoming.key, incoming.session);
        }
        if !has_begun(incoming.session) && !needs_connection(incoming.request) {
            incoming.session.go_home();
            self.mark_session_resuming(incoming.key, incoming.session);
            return Some(Step::Wait);
        }
        let plan = std::sync::Arc::clone(&self.plan);
        let own = &plan.pools[usize::from(home)];
        let writer = std::mem::replace(&mut incoming.session.pool, home);
        let step = self.look_from_home(&plan, incoming, own);
        incoming.session.pool = writer;
        step
    }

    /// Applies the pause of the own pool to a request of a lent session, notes its writes, and
    /// answers local commands. Returns `None` if the request goes on.
    fn look_from_home(
        &mut self,
        plan: &Plan,
        incoming: &mut RequestContext,
        own: &crate::PoolPlan,
    ) -> Option<Step> {
        let is_held = !own.pause.is_unused() && self.holds_back_led(own, incoming);
        if is_held {
            return Some(Step::Wait);
        }
        let is_queueing = incoming
            .session
            .stateful
            .as_ref()
            .is_some_and(|stateful| stateful.transaction.is_some());
        let verb = incoming.request.command.verb;
        if let Some(routes) = routes_of(plan, incoming.session.pool)
            && let RoutedPool::ReadWriteSplit(split) = &routes.pool
            && (verb == Verb::Exec || (may_write(incoming.request) && !is_queueing))
        {
            let now = self.clock.now;
            let reply_index = incoming.busy.order.next_index();
            Wants::of(incoming.request, &mut incoming.session.identity, reply_index)
                .note_write(split, now);
        }
        // The own pool answers local commands, except those that concern links.
        let is_of_links = matches!(verb, Verb::Hello | Verb::ClientReply | Verb::Quit | Verb::Wait);
        if incoming.request.handling() != Handling::Local || is_of_links || is_queueing {
            return None;
        }
        if verb == Verb::Monitor {
            let text = "ERR 'monitor' is refused while a watch or subscriptions last";
            return Some(self.refuse_request(incoming, text));
        }
        Some(self.answer_routed(own, incoming))
    }
}

/// Returns whether a client has begun anything on its connection.
fn has_begun(session: &Session) -> bool {
    session.subscriptions.is_some()
        || session.stateful.as_ref().is_some_and(|stateful| stateful.has_begun())
}
