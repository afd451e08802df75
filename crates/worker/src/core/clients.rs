//! Clients that a turn must handle, and why; how a client begins to wait, and how its wait ends.
//!
//! Doors: `wait_for`, `wake`.

use super::request::ClientMut;
use super::{Connection, Plane};
use crate::PoolPlan;
use keyway_base::{Key, Time};
use keyway_proxy::local::Unblock;
use keyway_proxy::{BusyPool, Session, WaitFor};
use std::collections::BTreeSet;

/// The clients that a worker must handle.
#[derive(Default)]
pub(crate) struct State {
    /// Sessions with output to send, or at their end.
    pub(crate) dirty: Vec<Key<Session>>,
    /// Sessions whose kept input can be parsed again.
    pub(crate) resuming: Vec<Key<Session>>,
    /// Clients whose next request a pause holds back.
    pub(super) held_back: Vec<(Key<Session>, u16)>,
    /// Clients whose login is being checked.
    pub(super) logins: Vec<Key<Session>>,
    /// Clients to close, found by CLIENT KILL. They may belong to other workers.
    pub(crate) kills: BTreeSet<u64>,
    /// Blocking commands to end, of clients of any worker.
    pub(crate) unblocks: Vec<Unblock>,
    /// The session whose socket is read again: bytes have waited there.
    pub(super) rereading: Option<Key<Session>>,
    pub(super) busy_pool: BusyPool,
}

/// The event that a client begins to wait for.
pub(in crate::core) enum WaitOn<'a> {
    /// Room on a connection, or until the connection is established.
    Connection(&'a mut Connection),
    /// Room among the requests that are led to other pools, at most until this time.
    Routes(Option<Time>),
    /// A server for the keys of its request, at most until this time.
    Owner(Time),
    /// The end of a pause of its pool, which is expected at this time.
    Pause(Time),
    /// The end of a hold of its pool, as another process takes over: when it is looked at next.
    Hold(Time),
    /// The verdict on its password.
    Login,
}

impl WaitOn<'_> {
    /// A wait for a pool that holds requests back, to be looked at again at `until`.
    pub(super) fn pause_of(pool: &PoolPlan, until: Time) -> Self {
        if pool.pause.is_held() { WaitOn::Hold(until) } else { WaitOn::Pause(until) }
    }
}

impl Plane {
    /// Makes a client wait: its next request stays unparsed until [`Plane::wake`]. The client is
    /// added to the list of those who wait for the same. A client waits for one thing at a time:
    /// one that waits for a connection or for routes already goes on with that wait.
    #[cold]
    pub(super) fn wait_for(&mut self, client: ClientMut<'_>, on: WaitOn<'_>) {
        let ClientMut { key, session } = client;
        if session.waits_for.is_some() && matches!(on, WaitOn::Connection(_) | WaitOn::Routes(_)) {
            return;
        }
        session.waits_for = Some(match on {
            WaitOn::Connection(connection) => {
                connection.waiting.push(key);
                WaitFor::Connection
            }
            WaitOn::Routes(until) => {
                self.note_deadline(until);
                self.routes.await_room(key, until);
                WaitFor::Routes
            }
            WaitOn::Owner(until) => {
                self.await_owner(key, until);
                WaitFor::Owner
            }
            WaitOn::Pause(until) => {
                self.hold_back(key, session, until);
                WaitFor::Pause
            }
            WaitOn::Hold(until) => {
                self.hold_back(key, session, until);
                WaitFor::Hold
            }
            WaitOn::Login => {
                self.clients.logins.push(key);
                WaitFor::Login
            }
        });
    }

    fn hold_back(&mut self, key: Key<Session>, session: &Session, until: Time) {
        self.clients.held_back.push((key, session.pool));
        self.plan.clients.set_paused(session.identity.id, true);
        self.note_deadline(Some(until));
    }

    /// Ends a client's wait: its next request is parsed again.
    pub(super) fn wake(&mut self, key: Key<Session>, session: &mut Session) {
        session.waits_for = None;
        self.mark_session_resuming(key, session);
    }
}
