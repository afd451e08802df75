//! Bypasses of large replies: while one arrives on a connection that clients share, they send their
//! requests on another one beside it ([`BYPASS`]), and return when it has arrived completely.
//!
//! A client changes connections when it waits for nothing, so that its requests keep their order.
//! Requests that were sent before the large reply began wait for it: a server answers in order. A
//! client stays while the server owes the reply to one of its writes that has timed out: on another
//! connection, its next write could be executed before that one, which would then overwrite it.

use crate::core::pools::routed::{above, client_behind};
use crate::core::pools::{BULK, BYPASS};
use crate::core::request::{ClientMut, RequestContext};
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane};
use keyway_base::{Key, Slab};
use keyway_proxy::{Busy, Exchange, Session};
use keyway_topology::ServerId;

/// Means that the number of replies of a connection is not known yet.
const NOT_KNOWN: u64 = u64::MAX;

impl Plane {
    /// Chooses the connections for the next requests of a session.
    #[inline]
    pub(in crate::core) fn choose_lane(
        &mut self,
        links: &Connections,
        ClientMut { key, session }: ClientMut<'_>,
        busy: &Busy,
    ) {
        if !self.upstream.blocked.is_empty() || session.lane == BYPASS {
            self.look_for_lane(links, ClientMut { key, session }, busy);
        }
    }

    #[cold]
    fn look_for_lane(
        &mut self,
        links: &Connections,
        ClientMut { key, session }: ClientMut<'_>,
        busy: &Busy,
    ) {
        let len_min = self.plan.limits.pass_len();
        let is_blocked = |it: &Connection| it.is_blocked(len_min);
        self.upstream.blocked.retain(|&key| links.get(key).is_some_and(is_blocked));
        // The rest of a streamed request must not wait for its own reply.
        let is_at_work = session.streaming.is_some() || session.is_special();
        if session.lane == BULK || is_at_work || session.sub_request.is_some() {
            return;
        }
        let count = |is_bypass: bool| {
            let is_such = |connection: &Connection| {
                let is_spoken = connection.link.protocol() == session.identity.protocol;
                connection.server_id.pool == session.pool
                    && connection.is_bypass == is_bypass
                    && is_spoken
            };
            self.upstream.blocked.iter().filter(|&&index| is_such(&links[index])).count()
        };
        // If both are blocked, it does not matter which one is used.
        let lane = match session.lane {
            BYPASS if count(true) <= count(false) && count(false) > 0 => BYPASS,
            _ if count(false) > count(true) => BYPASS,
            _ => key.index(),
        };
        if lane == session.lane {
            return;
        }
        if owes_late_write(links, ClientMut { key, session }) {
            return;
        }
        match session.is_quiet(busy) && session.sub_requests == 0 {
            true => session.lane = lane,
            false => session.keep_order(),
        }
    }

    /// Notes that a request has timed out which its server may still execute. `late_of` are the
    /// clients to which the connection owes replies to such writes, see
    /// [`Connection::settle_late`].
    #[cold]
    pub(super) fn note_late(
        &self,
        sessions: &mut Slab<Session>,
        exchange: &Exchange,
        late_of: &mut Vec<(Key<Session>, u64)>,
    ) {
        if !exchange.counted.class().may_write() {
            return;
        }
        let Some(key) = self.session_of(exchange.owner) else { return };
        let client = sessions.get(key).map(|session| client_behind(above(key, session).0));
        for key in [Some(key), client.filter(|client| *client != key)].into_iter().flatten() {
            let Some(session) = sessions.get_mut(key) else { continue };
            session.has_late_write = true;
            late_of.retain(|(of, _)| *of != key);
            late_of.push((key, NOT_KNOWN));
        }
    }

    /// Notes that a large reply arrives on a link, if others use it.
    #[cold]
    pub(super) fn note_blocked(&mut self, index: ConnectionKey, connection: &Connection) {
        let is_shared = !connection.is_private && !connection.is_bulk;
        let is_blocked = is_shared && connection.is_blocked(self.plan.limits.pass_len());
        if is_blocked && !self.upstream.blocked.contains(&index) {
            self.upstream.blocked.push(index);
        }
    }
}

impl Core {
    /// Returns the connection for a question of the worker that would be sent on `index`. While a
    /// large reply arrives there that its client does not take, it is another connection to the
    /// same server without such a reply. If there is none, the question waits there: until the
    /// reply has arrived completely, or its client was ended
    /// ([`streamed_replies`](crate::core::upstream::streamed_replies)).
    pub(in crate::core) fn clear_link(&self, index: ConnectionKey) -> ConnectionKey {
        let (connection, len_min) = (&self.links[index], self.plane.plan.limits.pass_len());
        let is_shared = !connection.is_private && !connection.is_beside();
        if !is_shared || !connection.is_blocked(len_min) {
            return index;
        }
        let Some(state) = self.plane.pools[usize::from(connection.server_id.pool)].servers() else {
            return index;
        };
        let lanes = [BYPASS, BULK].into_iter().chain(0..state.shared().connections() as u32);
        let mut others = lanes
            .map(|lane| state.link(connection.server_id.server, lane, connection.link.protocol()));
        others.find(|&other| !self.links[other].is_blocked(len_min)).unwrap_or(index)
    }
}

impl Core {
    /// Returns whether requests of a client may use other connections from now on.
    pub(crate) fn may_change_links(&mut self, key: Key<Session>) -> bool {
        let Core { sessions, links, .. } = self;
        sessions
            .get_mut(key)
            .is_some_and(|session| may_change_links(links, ClientMut { key, session }))
    }
}

impl Connection {
    fn is_blocked(&self, len_min: usize) -> bool {
        self.link.is_streaming_reply() || self.link.has_part_of(len_min)
    }

    /// Returns whether the connection owes the reply to a write of this client that has timed out.
    fn is_late_for(&self, client: Key<Session>) -> bool {
        let answered = self.link.answered_count();
        self.late_of.iter().any(|&(of, end)| of == client && answered < end)
            && self.link.owes_late_write()
    }

    /// Removes clients whose late writes were answered, or whose connection was lost.
    pub(super) fn forget_late(&mut self) {
        if self.late_of.is_empty() {
            return;
        }
        let (answered, owes) = (self.link.answered_count(), self.link.owes_late_write());
        self.late_of.retain(|&(_, end)| owes && answered < end);
    }

    /// Notes after which reply the connection no longer owes a late write to the clients that have
    /// just been noted.
    pub(super) fn settle_late(&mut self) {
        if self.late_of.iter().any(|&(_, end)| end == NOT_KNOWN) {
            let last = self.link.late_writes_end();
            let new = self.late_of.iter_mut().filter(|(_, end)| *end == NOT_KNOWN);
            new.for_each(|(_, end)| *end = last);
        }
    }
}

/// Returns the client for which a session sends its requests: the client of a sub-request.
fn whose(key: Key<Session>, session: &Session) -> Key<Session> {
    session.sub_request.as_ref().map(|it| it.client).map_or(key, client_behind)
}

/// Returns whether a connection owes the reply to a write of a client that has timed out.
#[cold]
pub(in crate::core) fn owes_late_write(
    links: &Connections,
    ClientMut { key, session }: ClientMut<'_>,
) -> bool {
    let client = whose(key, session);
    session.has_late_write &= links.iter().any(|connection| connection.is_late_for(client));
    session.has_late_write
}

/// Returns the connection to a server (its pool and its index) that owes the reply to a write of a
/// client which has timed out. A request that is sent to the server on a connection of its own
/// waits for that reply.
#[cold]
pub(in crate::core) fn late_link(
    links: &Connections,
    ClientMut { key, session }: ClientMut<'_>,
    server: ServerId,
) -> Option<ConnectionKey> {
    if !owes_late_write(links, ClientMut { key, session }) {
        return None;
    }
    let client = whose(key, session);
    let is_its = |(_, it): &(_, &Connection)| it.server_id == server && it.is_late_for(client);
    links.with_keys().find(is_its).map(|(key, _)| key)
}

/// Returns another connection than `at`, to the same server, that owes the reply to a write of a
/// client which has timed out: the write was an `EXEC` or a large value, or the client has changed
/// its connections since (`HELLO`, `RESET`, `CLIENT TRACKING`). The client's next write waits for
/// that reply. Otherwise it could be executed before the earlier one.
#[inline]
pub(in crate::core) fn late_apart(
    links: &Connections,
    incoming: &mut RequestContext,
    at: ConnectionKey,
) -> Option<ConnectionKey> {
    if incoming.session.has_late_write { find_late_apart(links, incoming, at) } else { None }
}

#[cold]
fn find_late_apart(
    links: &Connections,
    incoming: &mut RequestContext,
    at: ConnectionKey,
) -> Option<ConnectionKey> {
    let may_write = incoming.request.command.counted().class().may_write();
    let ClientMut { key, session } = incoming.client();
    if !owes_late_write(links, ClientMut { key, session }) || !may_write {
        return None;
    }
    let client = whose(key, session);
    let server = links[at].server_id;
    let is_its = |&(index, it): &(ConnectionKey, &Connection)| {
        index != at && it.server_id == server && it.is_late_for(client)
    };
    links.with_keys().find(is_its).map(|(index, _)| index)
}

/// Returns whether requests of a client may use other connections from now on: none of its requests
/// is in flight, not even one without a reply, and no copy of one, and none may still be executed
/// late.
#[cold]
fn may_change_links(links: &Connections, ClientMut { key, session }: ClientMut<'_>) -> bool {
    let is_quiet = session.busy.as_deref().is_none_or(|busy| session.is_quiet(busy));
    let is_over = is_quiet && session.unheard == 0 && session.sub_requests == 0;
    is_over && !owes_late_write(links, ClientMut { key, session })
}
