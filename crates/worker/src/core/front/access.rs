//! Checks requests of clients that may not do everything, before they start.

use crate::core::clients::WaitOn;
use crate::core::pools::servers::tracking::forget_caching;
use crate::core::request::{ClientMut, Step};
use crate::core::{Connections, Plane};
use crate::{Plan, PoolPlan};
use keyway_base::{Clock, Fault, LimitFault};
use keyway_command::{Flags, Request, Verb};
use keyway_proxy::local::{self, LocalContext, refuse_denied};
use keyway_proxy::{Busy, Session, write_fault};
use keyway_resp::reply;
use keyway_users::{Denied, Place, Prepared};

/// The error if a login would lead to another pool although the connection has begun something in
/// this one.
const HAS_BEGUN: &str = "ERR another user may be of another pool: end what this connection has \
     begun (MULTI, WATCH, subscriptions, CLIENT TRACKING, MONITOR) first, or connect again";

impl Plane {
    /// Checks a request of a client that may not do everything. Returns `None` if it is allowed, in
    /// this pool.
    #[inline(never)]
    pub(super) fn look_at(
        &mut self,
        links: &mut Connections,
        ClientMut { key, session }: ClientMut<'_>,
        busy: &mut Busy,
        request: &Request,
    ) -> Option<Step> {
        if !session.identity.authenticated && !request.command.flags.contains(Flags::NO_AUTH) {
            self.refuse(session, busy, |out| reply::error(out, "NOAUTH Authentication required."));
            return Some(Step::Started);
        }
        let users = &self.plan.listeners[usize::from(session.listener)].users;
        if users.are_slow()
            && self.awaits_login(ClientMut { key, session }, local::credentials(request))
        {
            return Some(Step::Wait);
        }
        if self.plan.listeners[usize::from(session.listener)].users.have_pools() {
            let logs_in = match request.command.verb {
                Verb::Auth => true,
                Verb::Hello => request.args.len() > 2,
                _ => false,
            };
            if logs_in && self.has_begun(session) {
                self.refuse(session, busy, |out| reply::error(out, HAS_BEGUN));
                return Some(Step::Started);
            }
        }
        // A client that logs in moves there with its next request. So does a client in a pool that
        // a reload has replaced.
        if !request.command.flags.contains(Flags::NO_AUTH)
            && let Some(step) = self.bring_to_its_pool(links, ClientMut { key, session }, busy)
        {
            return Some(step);
        }
        let judged = session.identity.user.as_ref().map_or(Ok(()), |user| user.judge(request));
        let denied = judged.err()?;
        self.refuse_to_user(links, ClientMut { key, session }, busy, request, denied);
        Some(Step::Started)
    }

    /// Returns whether a login is still being checked. The request is then parsed again later.
    #[cold]
    pub(in crate::core) fn awaits_login(
        &mut self,
        ClientMut { key, session }: ClientMut<'_>,
        credentials: Option<(&[u8], &[u8])>,
    ) -> bool {
        let users = &self.plan.listeners[usize::from(session.listener)].users;
        let Some((name, password)) = credentials else { return false };
        let prepared = users.prepare(name, password, &session.identity.addr, self.clock.now);
        if prepared == Prepared::Ready {
            return false;
        }
        self.wait_for(ClientMut { key, session }, WaitOn::Login);
        true
    }

    /// Returns whether a connection has begun something in its pool.
    pub(in crate::core) fn has_begun(&self, session: &Session) -> bool {
        session.stateful.as_ref().is_some_and(|stateful| stateful.has_begun())
            || session.tracking.is_some()
            || session.subscriptions.is_some()
            || session.is_monitor
            || self.store.tracking.is_tracker(session.identity.id)
    }

    /// Moves a client to the pool of its user once every reply has arrived. Its request is then
    /// parsed again. Returns `None` if it is there already.
    pub(in crate::core) fn bring_to_its_pool(
        &mut self,
        links: &Connections,
        ClientMut { key, session }: ClientMut<'_>,
        busy: &mut Busy,
    ) -> Option<Step> {
        let own = self.own_pool(session);
        let home_of = session.stateful.as_ref().and_then(|stateful| stateful.home);
        // A client stays where it is until all that it has begun is over.
        if home_of.unwrap_or(session.pool) == own
            || self.has_begun(session)
            || self.stays_for_order(links, ClientMut { key, session })
        {
            return None;
        }
        if !session.is_quiet(busy) {
            session.fence();
            return Some(Step::Wait);
        }
        let clients_max = self.plan.pools[usize::from(own)].clients_max;
        let connected = self.cells.registry().clients_connected(usize::from(own));
        // The client is not refused because the pool was replaced.
        let is_new_here = self.plan.retired(session.pool).is_none();
        if is_new_here && clients_max != 0 && connected >= u64::from(clients_max) {
            let fault = Fault::Limit(LimitFault::Clients);
            self.cells.pool(usize::from(own)).refused.of(fault).add(1);
            match session.memcached {
                None => self.answer(session, busy, |out| write_fault(fault, "", out)),
                Some(_) => {
                    let reply_index = busy.order.reserve();
                    busy.order.complete(
                        reply_index,
                        &mut busy.output,
                        keyway_proxy::memcached::write_no_room,
                    );
                }
            }
            session.closing = true;
            return Some(Step::Started);
        }
        // The write for which it was lent is over. Otherwise it could not have logged in.
        session.go_home();
        if !self.move_to(session, own) && !is_new_here {
            self.end_astray(key, session);
            return Some(Step::Started);
        }
        self.bring_wait(key, own);
        self.mark_session_resuming(key, session);
        Some(Step::Wait)
    }

    /// Answers what the client's user may not do. It invalidates an open transaction, and an `EXEC`
    /// ends it.
    #[cold]
    fn refuse_to_user(
        &mut self,
        links: &mut Connections,
        ClientMut { key, session }: ClientMut<'_>,
        busy: &mut Busy,
        request: &Request,
        denied: Denied,
    ) {
        let is_open = session.stateful.as_ref().is_some_and(|it| it.transaction.is_some());
        let place = if is_open { Place::Multi } else { Place::Toplevel };
        let mut said = Vec::new();
        let plan = std::sync::Arc::clone(&self.plan);
        let pool = &plan.pools[usize::from(session.pool)];
        let context = local_context(&plan, self.clock, pool, session);
        refuse_denied(request, denied, place, &context, &mut said);
        if is_open && request.command.verb == Verb::Exec {
            self.end_transaction(links, key, session);
            said.splice(..1, *b"-EXECABORT Transaction discarded because of: ");
        } else if let Some(stateful) = &mut session.stateful {
            stateful.refuse();
        }
        forget_caching(session);
        self.refuse(session, busy, |out| out.extend_from_slice(&said));
    }

    /// Logs a failed login.
    #[cold]
    pub(in crate::core) fn tell_failed_login(&self, session: &Session) {
        if self.plan.notices.login.is_due(self.clock.now) {
            let listener = &*self.plan.listeners[usize::from(session.listener)].name;
            let client = &*session.identity.addr;
            tracing::warn!(
                listener,
                client,
                "a login failed; told at most once a minute, see \
                 keyway_login_failures_total and ACL LOG"
            );
        }
    }
}

/// Returns what a command that needs no server may read and change.
pub(super) fn local_context<'a>(
    plan: &'a Plan,
    clock: Clock,
    pool: &PoolPlan,
    session: &'a mut Session,
) -> LocalContext<'a> {
    let listener = &plan.listeners[usize::from(session.listener)];
    LocalContext {
        identity: &mut session.identity,
        clock,
        users: &listener.users,
        databases: pool.databases,
        clients: &plan.clients,
        facts: &*plan.facts,
        pool: session.pool,
        reply_len_max: plan.limits.session_output_len_hard as usize,
        cluster: listener.cluster.as_deref(),
    }
}

/// Returns whether the reply to a login is an error.
pub(super) fn is_failed_login(request: &Request, reply: &[u8]) -> bool {
    matches!(request.command.verb, Verb::Auth | Verb::Hello)
        && (reply.starts_with(b"-WRONGPASS ") || reply.starts_with(b"-ERR too many logins"))
}
