use super::hears;
use crate::core::pools::given::Given;
use crate::core::pools::servers::tracking::state::Role;
use crate::core::request::RequestContext;
use crate::core::upstream::reply::release_all;
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane};
use keyway_base::{BackendFault, Key};
use keyway_net::Socket;
use keyway_proxy::tracking::{TrackedLinks, Tracking, announcement};
use keyway_proxy::{Announcement, Internal, LinkState, Owner, Session};
use keyway_resp::{Protocol, reply};
use keyway_topology::ServerId;
use std::time::Duration;

/// Time between two checks of the connections of tracked clients. An idle connection is asked for a
/// sign, and a silent connection is given up. A longer time leaves a client longer with stale keys.
const PING_EVERY: Duration = Duration::from_secs(10);

/// Longest time that a server may owe a reply before its client is told that everything may have
/// changed. With a shorter time, one slow script would make clients forget everything. A longer
/// time leaves them longer with stale keys. Together with [`PING_EVERY`] it bounds what
/// docs/adr/0014 promises.
const SILENT_MAX: Duration = Duration::from_secs(10);

impl Plane {
    /// Returns the session's own link to a server.
    pub(in crate::core) fn own_link(
        &self,
        session: &Session,
        server: u16,
    ) -> Option<ConnectionKey> {
        let tracked = session.tracking.as_ref()?.links.as_ref()?;
        tracked.links.get(usize::from(server)).copied()
    }

    /// Switches tracking on. It replaces any earlier tracking.
    pub(super) fn begin_tracking(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        mut tracking: Box<Tracking>,
    ) {
        if let Some(current) = &mut incoming.session.tracking
            && current.links.is_some()
            && current.is_same_mode(&tracking)
            && hears(&tracking, incoming.session.identity.protocol)
        {
            // The same links serve if only the receiver of the invalidations may differ.
            (tracking.links, tracking.held) =
                (current.links.take(), std::mem::take(&mut current.held));
            self.set_tracking(incoming.session, Some(tracking));
            return self.answer_locally(incoming, |out| reply::simple(out, "OK"));
        }
        if !self.has_own(self.links_needed(incoming.session, &tracking)) {
            // Any earlier tracking goes on.
            let text = "ERR too many clients are tracked, watch keys or wait in blocking commands";
            return self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
        }
        let is_renewed = incoming.session.tracking.is_some();
        self.lose_watch(links, incoming.key, incoming.session);
        self.end_tracking(links, incoming.key, incoming.session);
        self.resume_tracking(links, incoming, tracking);
        if is_renewed {
            self.renew_links(incoming);
        }
        let is_silent = Self::is_silent(incoming.session);
        let tracked =
            incoming.session.tracking.as_mut().and_then(|tracking| tracking.links.as_mut());
        let Some(tracked) = tracked.filter(|tracked| !tracked.awaited.is_empty()) else {
            return self.answer_locally(incoming, |out| reply::simple(out, "OK"));
        };
        // The reply comes once the servers have switched tracking on.
        tracked.reply_index = (!is_silent).then(|| incoming.busy.order.reserve());
        Self::end_skip(incoming.session);
        incoming.session.fence();
        self.served(incoming.session.pool, incoming.request.command.counted());
    }

    /// Makes the links of a session anew. Its servers have forgotten the keys that were read on the
    /// earlier links.
    pub(super) fn renew_links(&mut self, incoming: &mut RequestContext) {
        let tracked =
            incoming.session.tracking.as_mut().and_then(|tracking| tracking.links.as_mut());
        if let Some(tracked) = tracked {
            tracked.is_renewed = true;
            self.servers.tracking.forget(incoming.key, false);
        }
    }

    /// Returns the number of own links that a session needs for this tracking.
    pub(super) fn links_needed(&self, session: &Session, tracking: &Tracking) -> usize {
        let protocol = session.identity.protocol;
        if !hears(tracking, protocol) {
            return 0;
        }
        let servers = self.plan.topology.pools()[usize::from(session.pool)].servers().len();
        servers * if protocol == Protocol::Resp2 { 2 } else { 1 }
    }

    /// Gives a session its links, for which there is room.
    pub(super) fn resume_tracking(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        mut tracking: Box<Tracking>,
    ) {
        let (key, pool, protocol) =
            (incoming.key, incoming.session.pool, incoming.session.identity.protocol);
        tracking.links = None;
        if hears(&tracking, protocol) {
            let servers = self.plan.topology.pools()[usize::from(pool)].servers().len();
            let tracked = self.lay(links, key, pool, servers as u16, &tracking, protocol);
            tracking.links = Some(Box::new(tracked));
            self.servers.tracking.tracked.insert(key.to_bits());
            self.connect_eager(links, &mut tracking, pool);
        }
        self.set_tracking(incoming.session, Some(tracking));
    }

    /// Makes the links of a session, none of them connected.
    fn lay(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        pool: u16,
        servers: u16,
        tracking: &Tracking,
        protocol: Protocol,
    ) -> TrackedLinks {
        let mut tracked = TrackedLinks::default();
        let has_receivers = protocol == Protocol::Resp2;
        for server in 0..servers {
            let index = self.add_own(links, key, ServerId { pool, server }, protocol);
            tracked.links.push(index);
            let mut receiver = None;
            if has_receivers {
                let other = self.add_own(links, key, ServerId { pool, server }, Protocol::Resp3);
                links[other].link.announce(Announcement::default());
                links[other].role = Some(Role::Receiver { of: index });
                tracked.receivers.push(other);
                receiver = Some(other);
            } else {
                links[index].link.announce(announcement(tracking, None));
            }
            links[index].role = Some(Role::Requests { receiver });
        }
        tracked
    }

    /// Connects the links to servers in use that do not wait for a request.
    fn connect_eager(&mut self, links: &mut Connections, tracking: &mut Tracking, pool: u16) {
        let Some(tracked) = &mut tracking.links else { return };
        for (server, &index) in tracked.links.iter().enumerate() {
            let id = self.plan.topology.backend_id(usize::from(pool), server);
            if !self.plan.health.is_usable(id) {
                continue;
            }
            if tracking.bcast {
                tracked.awaited.insert(index);
                self.connect_tracking(links, index);
            }
            if let Some(&receiver) = tracked.receivers.get(server) {
                self.connect_tracking(links, receiver);
            }
        }
    }

    /// Connects a link, unless it is connected already or may not be connected now.
    fn connect_tracking(&mut self, links: &mut Connections, index: ConnectionKey) {
        let connection = &mut links[index];
        if connection.is_connecting || !connection.link.wants_connection(self.clock.now) {
            return;
        }
        connection.is_connecting = true;
        self.upstream.connects.push(index);
        if matches!(connection.role, Some(Role::Receiver { .. }))
            && connection.link.in_flight() == 0
        {
            let owner = Owner::Internal(Internal::ClientId);
            connection.link.enqueue_own(owner, &[b"CLIENT", b"ID"], self.clock.now);
        }
    }

    /// Ends the tracking of a session. Its links end after the replies in flight, and with them the
    /// watches on them.
    pub(in crate::core) fn end_tracking(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
    ) {
        let Some(tracking) = session.tracking.as_ref() else { return };
        if tracking.links.is_some() {
            self.lose_watch(links, key, session);
        }
        let Some(tracking) = session.tracking.as_ref() else { return };
        let has_links = tracking.links.is_some();
        if let Some(tracked) = &tracking.links {
            for &index in tracked.links.iter().chain(&tracked.receivers) {
                links[index].lease = None;
                self.give_up(&mut links[index], index, tracking);
            }
        }
        if has_links {
            self.servers.tracking.tracked.remove(&key.to_bits());
        }
        self.set_tracking(session, None);
    }

    /// Ends a link that its session gives up, after the replies in flight. Requests that wait until
    /// the server has named a receiver are sent without one, because no client is to be told.
    fn give_up(&mut self, connection: &mut Connection, index: ConnectionKey, tracking: &Tracking) {
        let waits =
            connection.link.in_flight() > 0 && connection.link.wants_connection(self.clock.now);
        if let Some(Role::Requests { receiver }) = &mut connection.role
            && receiver.take().is_some()
        {
            connection.link.announce(announcement(tracking, None));
            if waits {
                connection.is_connecting = true;
                self.upstream.connects.push(index);
            }
        }
        self.discard_unused(connection, index);
    }

    /// Ends a link that its session has given up, once no reply is due.
    pub(in crate::core) fn discard_unused(
        &mut self,
        connection: &Connection,
        index: ConnectionKey,
    ) {
        if connection.lease.is_none() && connection.link.in_flight() == 0 {
            self.upstream.discards.push(index);
        }
    }

    /// Returns whether a link may be connected. The server must first have told the client id of
    /// the link for invalidations.
    pub(in crate::core) fn may_connect(links: &Connections, connection: &Connection) -> bool {
        match connection.role {
            Some(Role::Requests { receiver: Some(receiver) }) => {
                links[receiver].client_id.is_some()
            }
            _ => true,
        }
    }
}

impl Core {
    /// Handles that a link of a tracked session is ready for requests.
    pub(in crate::core) fn on_tracking_ready(&mut self, index: ConnectionKey) {
        let Core { sessions, links, plane } = self;
        let connection = &links[index];
        let (Some(Role::Requests { .. }), Some(key)) = (connection.role, connection.lease) else {
            return;
        };
        let Some(session) = sessions.get_mut(key) else { return };
        let Some(tracking) = session.tracking.as_mut() else { return };
        let bcast = tracking.bcast;
        let Some(tracked) = tracking.links.as_mut() else { return };
        let was_awaited = tracked.awaited.remove(&index);
        if bcast && (!was_awaited || tracked.is_renewed) {
            // The client was not told of earlier changes.
            plane.servers.tracking.forget(key, false);
        }
        self.answer_awaiting(key);
    }

    /// Answers `CLIENT TRACKING` if it waits for no link any more.
    fn answer_awaiting(&mut self, key: Key<Session>) {
        let Core { sessions, links, plane } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let tracked = session.tracking.as_mut().and_then(|tracking| tracking.links.as_mut());
        let Some(tracked) = tracked.filter(|tracked| tracked.awaited.is_empty()) else { return };
        let refusal = tracked.refusal.take();
        if let Some(reply_index) = tracked.reply_index.take() {
            plane.complete(key, session, reply_index, |out| match &refusal {
                None => reply::simple(out, "OK"),
                Some(text) => reply::error(out, text),
            });
        }
        if refusal.is_some() {
            plane.end_tracking(links, key, session);
        }
    }

    /// Handles that a server has told the client id of the link for invalidations.
    pub(in crate::core) fn on_receiver_known(&mut self, index: ConnectionKey, id: Option<i64>) {
        let Core { sessions, links, plane } = self;
        let Some(Role::Receiver { of }) = links[index].role else { return };
        let Some(id) = id else {
            let generation = links[index].generation;
            return plane.servers.tracking.losses.push((
                index,
                generation,
                BackendFault::Handshake,
            ));
        };
        let session = links[index].lease.and_then(|key| sessions.get(key));
        let Some(tracking) = session.and_then(|session| session.tracking.as_ref()) else { return };
        links[of].link.announce(announcement(tracking, Some(id)));
        if std::mem::take(&mut links[of].is_connecting) || tracking.bcast {
            plane.connect_tracking(links, of);
        }
    }

    /// Handles that the connection of a tracked session's link has ended. Returns its socket, which
    /// must be closed.
    pub(in crate::core) fn on_tracking_lost(
        &mut self,
        index: ConnectionKey,
        fault: BackendFault,
    ) -> Option<Socket> {
        let Core { sessions, links, plane } = self;
        let connection = &mut links[index];
        let options = std::sync::Arc::clone(plane.link_options(connection.server_id.pool));
        let server = connection.server_id;
        let (state, role) = (connection.link.state(), connection.role);
        let worked = connection.link.has_answered();
        let is_idle = state == LinkState::Ready && connection.link.in_flight() == 0;
        connection.generation = crate::core::connection::next_generation(connection.generation);
        plane.end_counts(connection, state);
        // A connection that was never begun says nothing about its server.
        let is_failure = !is_idle && state != LinkState::Idle;
        if is_failure {
            plane.log_link_end(connection, state, fault);
        }
        let refusal = String::from_utf8_lossy(connection.link.handshake_refusal()).into_owned();
        connection.is_connecting = false;
        connection.client_id = None;
        connection.given = Given::default();
        let (is_blocking, mut lost) = (connection.link.is_blocking, Vec::new());
        connection.link.on_lost(false, |one| lost.push((one.exchange, one.sent)));
        for (exchange, sent) in lost {
            let why = crate::core::upstream::connections::lost_with(fault, sent);
            plane.fail(sessions, server, &exchange, is_blocking, why);
        }
        if !worked {
            let jitter = plane.next_random();
            connection.link.on_backoff(&options, plane.clock.now, jitter);
        }
        if is_failure && tells_of_server(fault) {
            let began = plane.began(connection, worked);
            plane.note_failure(connection, fault.into(), began);
        }
        release_all(sessions, plane, connection);
        let socket = connection.socket.take();
        self.after_tracking_lost(index, role, fault, state == LinkState::Ready, refusal);
        socket
    }

    /// Does what the loss of a link requires for its session.
    fn after_tracking_lost(
        &mut self,
        index: ConnectionKey,
        role: Option<Role>,
        fault: BackendFault,
        was_ready: bool,
        refusal: String,
    ) {
        let Core { sessions, links, plane } = self;
        let Some(key) = links[index].lease else { return };
        let Some(session) = sessions.get_mut(key) else { return };
        if was_ready {
            plane.servers.tracking.forget(key, false);
        }
        let asked = match role {
            Some(Role::Receiver { of }) => {
                plane.servers.tracking.losses.push((of, links[of].generation, fault));
                of
            }
            _ => {
                lose_watch_on(session, index);
                index
            }
        };
        let server = links[index].server_id;
        let Some(tracking) = session.tracking.as_mut() else { return };
        let Some(tracked) = tracking.links.as_mut() else { return };
        if tracked.awaited.remove(&asked) && fault == BackendFault::Handshake {
            let backend = plane.describe_backend(server);
            tracked.refusal.get_or_insert(format!(
                "ERR backend {backend} refused what client-side caching needs, HELLO 3 and CLIENT \
                 TRACKING: {}",
                match refusal.trim_start_matches('-') {
                    "" => "it did not answer CLIENT ID with a number",
                    words => words,
                }
            ));
        }
        self.answer_awaiting(key);
    }

    /// Upkeep of the links of tracked sessions, a few times a second.
    pub(crate) fn tend_tracking(&mut self) {
        // A client may have been moving from one worker to another.
        self.plane.servers.tracking.has_mail = true;
        self.deliver_redirected();
        let now = self.plane.clock.now;
        let is_ping_due = now >= self.plane.servers.tracking.next_ping;
        if is_ping_due {
            self.plane.servers.tracking.next_ping = now + PING_EVERY;
        }
        let Core { sessions, links, plane } = self;
        let tracked = std::mem::take(&mut plane.servers.tracking.tracked);
        for key in tracked.iter().map(|&bits| Key::from_bits(bits)) {
            let Some(session) = sessions.get(key) else { continue };
            let Some(tracking) = &session.tracking else { continue };
            let Some(tracked) = &tracking.links else { continue };
            let is_eager = tracking.bcast || !tracked.receivers.is_empty();
            if !is_eager && !is_ping_due {
                continue;
            }
            for (server, &index) in tracked.links.iter().enumerate() {
                let id = plane.plan.topology.backend_id(usize::from(session.pool), server);
                if !plane.plan.health.is_usable(id) {
                    continue;
                }
                if tracking.bcast {
                    plane.connect_tracking(links, index);
                }
                if let Some(&receiver) = tracked.receivers.get(server) {
                    plane.connect_tracking(links, receiver);
                }
            }
            if is_ping_due {
                for &index in tracked.links.iter().chain(&tracked.receivers) {
                    plane.ask_for_sign(links, index, key);
                }
            }
        }
        plane.servers.tracking.tracked = tracked;
    }
}

impl Plane {
    /// Checks an idle connection. A silent one ends, unless its client waits for a reply there,
    /// which may only be slow. Then the client is told now.
    fn ask_for_sign(&mut self, links: &mut Connections, index: ConnectionKey, key: Key<Session>) {
        let connection = &mut links[index];
        if connection.link.state() != LinkState::Ready {
            return;
        }
        if let Some(since) = connection.link.owes_since() {
            let is_silent = self.clock.now >= since + SILENT_MAX;
            if is_silent && connection.link.is_waited_for() {
                self.servers.tracking.forget(key, false);
            } else if is_silent {
                let loss = (index, connection.generation, BackendFault::Timeout);
                self.servers.tracking.losses.push(loss);
            }
            return;
        }
        connection.link.enqueue_own(Owner::Unheard(Key::NONE), &[b"PING"], self.clock.now);
        self.mark_link_dirty(index, connection);
        self.note_deadline(connection.link.deadline(self.link_options(connection.server_id.pool)));
    }
}

/// Returns whether the loss of a link says something about its server. A server may refuse tracked
/// clients alone, or cut them off because of one of them. A request that expired was counted at
/// that time. If a server is gone, the next attempt to connect shows it.
fn tells_of_server(fault: BackendFault) -> bool {
    matches!(fault, BackendFault::Connect | BackendFault::NotReady)
}

/// Counts the keys that a session watched on a lost link as changed.
pub(in crate::core) fn lose_watch_on(session: &mut Session, index: ConnectionKey) {
    let watch = session.stateful.as_mut().and_then(|stateful| stateful.watch.as_mut());
    if let Some(watch) = watch.filter(|watch| watch.link == Some(index)) {
        watch.link = None;
    }
}
