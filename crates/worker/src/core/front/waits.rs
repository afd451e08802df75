//! How long a client's requests wait for room on a connection before they are started, and when
//! their time is over.

use crate::core::pools::BULK;
use crate::core::request::{ClientMut, ClientRef, Step};
use crate::core::{Connection, ConnectionKey, Connections, Plane};
use keyway_base::{BackendFault, Fault, Key, Sent, Time};
use keyway_proxy::{Owner, Session};
use std::time::Duration;

/// Why a request that has waited for room for as long as it may is refused.
pub(in crate::core) enum Late {
    /// The connection had no room, with this fault.
    Full(ConnectionKey, Fault),
    /// Too many requests were led to other pools. The text is that of the error.
    Crowded(String),
}

/// The waiting time of the next request in a session's buffer, as far as it is known.
pub(in crate::core) struct NextRequest {
    /// True if it has always found room so far.
    pub(in crate::core) is_new: bool,
    /// True if the first one in the buffer had found no room before.
    pub(in crate::core) was_full: bool,
    /// True if it was in the socket while others waited, and has not looked for room itself.
    is_from_socket: bool,
}

impl NextRequest {
    /// The request after one that was refused because it found no room in time.
    pub(in crate::core) const BEHIND_REFUSED: NextRequest =
        NextRequest { is_new: true, was_full: true, is_from_socket: false };

    /// Returns the state of the first request in the buffer of a session. With `is_reread` its
    /// socket is read now, because it has room again.
    pub(super) fn of(session: &Session, is_reread: bool) -> NextRequest {
        let was_full = session.full_since.is_some();
        NextRequest { is_new: !was_full, was_full, is_from_socket: was_full && is_reread }
    }
}

/// Time that is left to a request that goes to a server when its own time is over, or nearly so. If
/// it were longer, clients would be told later that the server does not answer. If it were shorter,
/// it would end requests that the server would have answered.
const LEFT: Duration = Duration::from_millis(50);

impl Plane {
    /// Notes that the next request of a session finds no room on a link. If an earlier one in the
    /// buffer has waited, this one has waited for the same time, but no longer than the server has
    /// been silent: otherwise each request of a pipeline would wait again for a server that does
    /// not answer.
    #[cold]
    fn note_no_room(&self, connection: &Connection, session: &mut Session, next: &mut NextRequest) {
        let is_from_socket = std::mem::take(&mut next.is_from_socket);
        if std::mem::take(&mut next.is_new) || is_from_socket {
            let since = session.full_since.filter(|_| next.was_full);
            let silent_since = connection.link.silent_since().unwrap_or(self.clock.now);
            let since = since.map_or(self.clock.now, |since| since.max(silent_since));
            session.full_since = Some(since);
        }
    }

    /// Returns whether the time of a request counts while it waits for earlier replies: they end
    /// within the timeout, because no client takes them slowly and none waits for longer.
    #[cold]
    pub(super) fn waits_in_order(&self, session: &Session) -> bool {
        let is_plain =
            !session.is_special() && session.streamed_reply.is_none() && session.lane != BULK;
        session.keeps_order() && is_plain && self.primary_wait(session.pool).is_none()
    }

    /// Notes whether the next request of a session has waited already. The waiting time of a
    /// refused request does not count for the one after it, unless that was in the socket
    /// meanwhile.
    #[inline]
    pub(super) fn settle_wait(
        &self,
        ClientMut { key, session }: ClientMut<'_>,
        is_over: bool,
        has_waited: bool,
    ) {
        if session.full_since.is_some() || session.unread_since.is_some() {
            if is_over {
                let unread = session.unread_since.take();
                // Everything that is read from the socket now has been there as long.
                session.full_since = match self.clients.rereading == Some(key) {
                    true => session.full_since.filter(|_| has_waited),
                    false => unread.filter(|_| has_waited && session.unread),
                };
            } else if session.full_since == Some(self.clock.now) {
                // Another request waits now, and later ones wait for that.
                session.unread_since = session.unread_since.map(|_| self.clock.now);
            }
        }
    }

    /// Returns the time since which a request that is started now has waited, if it has: for room,
    /// for another connection, or for a server that owns its keys.
    #[cold]
    pub(super) fn waited_since(
        &mut self,
        ClientRef { key, session }: ClientRef<'_>,
    ) -> Option<Time> {
        self.end_wait_for_server(key).into_iter().chain(waited_for_room(session)).min()
    }

    /// Counts the time that the requests of a client which were sent now waited before. If their
    /// time is nearly over, a little is left to them ([`LEFT`]).
    #[cold]
    pub(super) fn bring_waited(&mut self, links: &mut Connections, key: Key<Session>, since: Time) {
        for connection in links.iter_mut() {
            let is_its = |owner: Owner| self.session_of(owner) == Some(key);
            let since = self.counts_from(connection.server_id.pool, since);
            if connection.link.backdate_last(is_its, since, self.clock.now) {
                let timeout =
                    self.plan.pools[usize::from(connection.server_id.pool)].kind.timeout();
                self.note_deadline(timeout.map(|timeout| since + timeout));
            }
        }
    }

    /// Returns the time from which the timeout of a request counts that was asked at `asked` and
    /// goes to a server now. At least [`LEFT`] is left to it.
    pub(in crate::core) fn counts_from(&self, pool: u16, asked: Time) -> Time {
        let Some(timeout) = self.plan.pools[usize::from(pool)].kind.timeout() else { return asked };
        asked.max(self.clock.now.before(timeout - reserved(timeout)))
    }

    /// Returns the reason to refuse a request that could not be started, if its time to find room
    /// is over. If it is not, the worker checks the session again by then.
    #[cold]
    pub(in crate::core) fn late(
        &mut self,
        links: &mut Connections,
        ClientMut { key, session }: ClientMut<'_>,
        step: &Step,
        next: &mut NextRequest,
    ) -> Option<Late> {
        let late = match *step {
            Step::Started | Step::Wait => return None,
            Step::Crowded => {
                if std::mem::take(&mut next.is_new) {
                    session.full_since = Some(self.clock.now);
                }
                Late::Crowded(self.crowded_too_long(session)?)
            }
            Step::Full(link) if self.waits_for_primary(links, link, ClientMut { key, session }) => {
                return None;
            }
            Step::Full(link) => {
                self.note_no_room(&links[link], session, next);
                Late::Full(link, self.lateness(&mut links[link], session)?)
            }
        };
        self.retract_shown(key);
        Some(late)
    }

    /// Returns the fault of a request that has found no room on a link for as long as it may take.
    /// If that time is not over, the session is checked again by then. A tracked client fills its
    /// own link itself: its requests wait for as long as the server takes for what is on it.
    #[cold]
    pub(in crate::core) fn lateness(
        &mut self,
        connection: &mut Connection,
        session: &Session,
    ) -> Option<Fault> {
        let options = self.link_options(connection.server_id.pool);
        let due =
            session.full_since.zip(options.timeout).map(|(since, timeout)| since + timeout)?;
        let due = match connection.link.at_work_until(options).filter(|_| connection.role.is_some())
        {
            Some(until) => due.max(until),
            None => due,
        };
        if self.clock.now < due {
            connection.waiting_due =
                Some(connection.waiting_due.map_or(due, |first| first.min(due)));
            self.note_deadline(Some(due));
            self.note_waiting_behind(connection);
            return None;
        }
        let cells = self
            .cells
            .pool(connection.server_id.pool.into())
            .backend(connection.server_id.server.into());
        cells.errors.of(BackendFault::Timeout).add(1);
        Some(Fault::Backend { fault: BackendFault::Timeout, sent: Sent::No })
    }
}

/// Returns the part of a timeout that is left to a request for its server, however long the request
/// has waited elsewhere: [`LEFT`], or half of a shorter timeout.
pub(in crate::core) fn reserved(timeout: Duration) -> Duration {
    LEFT.min(timeout / 2)
}

/// Returns the time since which a request that is started now has waited for room, if it has. The
/// time of a sub-request that has waited only for another one, and found room at once, goes to a
/// server that answers. So it begins now.
pub(super) fn waited_for_room(session: &Session) -> Option<Time> {
    let has_stalled = session.sub_request.is_none_or(|sub_request| sub_request.stalled.is_some());
    session.full_since.filter(|_| has_stalled)
}
