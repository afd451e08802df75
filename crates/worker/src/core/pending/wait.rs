//! WAIT on a sharded pool: the replicas of every server in use have what this
//! client wrote.
//!
//! A server waits for what the asking connection has written, and the client's
//! writes went over links that others share. So each server is asked on a
//! private link, once every earlier reply is here, and behind a command that
//! takes part in replication there: the offset that is waited for is then
//! behind the client's writes. The reply is the smallest of all.

use crate::core::pools::cluster::{ClusterState, Waits};
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane};
use keyway_proxy::OperationPart;

use keyway_base::{Fault, Key, Slab};
use keyway_command::{Join as Rule, Verb};
use keyway_proxy::local::wait_refusal;
use keyway_proxy::{Join, Operation, Owner, Redirected, ReplyTo, Session};
use keyway_resp::{Protocol, reply};
use keyway_topology::{ServerId, key_slot};

/// A request that moves the offset that a server's WAIT on this connection waits for, and does
/// nothing else. A message on a shard channel, to which no pattern listens, is
/// sent to the replicas by servers from 7.0 on. Earlier ones do not know it, and
/// wait for all that was written before the connection's last command: PING. A
/// server that refuses it to this user answers WAIT with that. A server of a cluster
/// takes it for channels of its own slots.
fn move_offset(out: &mut Vec<u8>, tag: Option<u32>) {
    reply::array(out, 1);
    reply::bulk(out, b"PING");
    reply::array(out, 3);
    reply::bulk(out, b"SPUBLISH");
    match tag {
        Some(tag) => reply::bulk(out, format!("__keyway_wait{{{tag}}}").as_bytes()),
        None => reply::bulk(out, b"__keyway_wait"),
    }
    reply::bulk(out, b"");
}

/// Replies to [`move_offset`].
pub(in crate::core) const REPLIES_BEFORE_WAIT: u16 = 2;

/// How WAIT begins, and none of what goes before it.
const WAIT: &[u8] = b"*3\r\n$4\r\n";

/// Numbers looked at for one in a slot of a server. With fewer one that has a
/// single slot may be found none; as many take a millisecond or two.
const TAGS_MAX: u32 = 200_000;

impl Plane {
    /// Starts a request that operators send, or clients that ask for more than
    /// one server's word.
    #[cold]
    pub(in crate::core) fn operate(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Step {
        match incoming.request.command.verb {
            Verb::Info => self.info(links, incoming),
            Verb::Monitor => self.start_monitor(incoming),
            _ => self.wait(links, incoming),
        }
    }

    fn wait(&mut self, links: &mut Connections, incoming: &mut RequestContext) -> Step {
        if let Some(text) = wait_refusal(&incoming.request.args) {
            return self.refuse_request(incoming, text);
        }
        if let Some(step) = self.check_blocking(incoming) {
            return step;
        }
        let in_use = self.in_use(incoming.session.pool);
        let next =
            |server: Option<u16>| in_use.first_from(server.map_or(0, |it| usize::from(it) + 1));
        let servers: Vec<u16> =
            std::iter::successors(next(None), |&server| next(Some(server))).collect();
        let shared = self.pools[usize::from(incoming.session.pool)].shared();
        let Some(shared) = shared.filter(|_| !servers.is_empty()) else {
            return self.answer_unrouted(incoming);
        };
        let link = |&server: &u16| self.link_of(&shared, incoming.session, server);
        let held = servers.iter().map(link).find(|&link| self.holds_private(&links[link]));
        if let Some(held) = held {
            return Step::Full(held);
        }
        let Some(leased) = self.lease_each(links, incoming, &servers) else {
            let text = "ERR too many clients watch keys or wait in blocking commands";
            return self.refuse_request(incoming, text);
        };
        self.send_waits(links, incoming, &leased);
        Step::Started
    }

    /// A private link to each of the servers, or why there is none to one that cannot be
    /// reached; `None` when there are too many.
    fn lease_each(
        &mut self,
        links: &mut Connections,
        incoming: &RequestContext,
        servers: &[u16],
    ) -> Option<Vec<(u16, Result<ConnectionKey, Fault>)>> {
        let pool = incoming.session.pool;
        let mut leased = Vec::with_capacity(servers.len());
        for &server in servers {
            let state = self.pools[pool as usize].servers()?;
            let shared = state.link(server, incoming.session.lane, Protocol::Resp2);
            if let Some(fault) = self.refused(&links[shared]) {
                leased.push((server, Err(fault)));
                continue;
            }
            match self.lease(links, incoming.key, ServerId { pool, server }, Protocol::Resp2) {
                Some(index) => leased.push((server, Ok(index))),
                None => {
                    leased.iter().filter_map(|(_, index)| index.ok()).for_each(|index| {
                        self.release(links, index);
                    });
                    return None;
                }
            }
        }
        Some(leased)
    }

    fn send_waits(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        leased: &[(u16, Result<ConnectionKey, Fault>)],
    ) {
        self.started(incoming.session.pool, incoming.request.command.counted());
        let to = ReplyTo {
            session: incoming.key,
            reply: Some(incoming.busy.order.reserve()),
            started: self.clock.now,
            counted: incoming.request.command.counted(),
            pool: incoming.session.pool,
        };
        let mut join = self.pending.joins_free.take();
        join.restart(Rule::Min);
        join.command = incoming.request.command.name;
        join.is_whole = true;
        join.is_waiting = true;
        leased.iter().for_each(|(server, _)| {
            join.add_fragment(*server, 1);
        });
        let operation = self.pending.begin(to, join);
        let mut blocked_on = Vec::with_capacity(leased.len());
        let is_over = leased.iter().any(|(_, index)| index.is_err());
        for (fragment, (_, index)) in (0..).zip(leased) {
            match index {
                // It fails, whatever this one says.
                Ok(index) if is_over => self.release(links, *index),
                Ok(index) => {
                    self.send_wait(
                        &mut links[*index],
                        *index,
                        incoming,
                        OperationPart { operation, part: u32::from(fragment) },
                    );
                    blocked_on.push(*index);
                }
                Err(fault) => {
                    let join = self.pending.get_mut::<Join>(operation);
                    join.map(|join| join.on_fault(fragment, *fault));
                }
            }
        }
        if is_over {
            return self.finish_join_now(operation, incoming.session, incoming.busy);
        }
        incoming.session.stateful.get_or_insert_default().blocked_on = blocked_on;
        incoming.session.fence();
        self.plan.clients.set_blocked(incoming.session.identity.id, true);
    }

    /// Ends a WAIT of which a server was lost, and what the others were asked for it.
    #[cold]
    pub(super) fn end_wait(
        &mut self,
        sessions: &mut Slab<Session>,
        links: &mut Connections,
        operation: Key<Operation>,
    ) {
        let Some(owner) = self.pending.session_of(operation) else { return };
        self.finish_join(sessions, operation);
        let Some(session) = sessions.get_mut(owner) else { return };
        let Some(stateful) = &mut session.stateful else { return };
        (stateful.unsent, stateful.unsent_end) = (0, None);
        for index in stateful.blocked_on.drain(..) {
            // Only the end of the connection ends the command on the server.
            if links[index].lease.take_if(|key| *key == owner).is_some() {
                self.upstream.discards.push(index);
            }
        }
        self.plan.clients.set_blocked(session.identity.id, false);
        session.tidy();
    }

    fn send_wait(
        &mut self,
        connection: &mut Connection,
        index: ConnectionKey,
        incoming: &RequestContext,
        OperationPart { operation, part }: OperationPart,
    ) {
        let until = self.answered_by(incoming);
        connection.link.is_blocking = true;
        connection.link.blocks_until = until;
        self.note_deadline(until);
        self.prepare_link(index, connection, incoming.session.identity.database);
        let tag = self.tag_of_server(connection.server_id);
        let out = connection.link.request_buf();
        let start = out.len();
        move_offset(out, tag);
        reply::array(out, incoming.request.args.len());
        incoming.request.args.from(0).for_each(|arg| reply::bulk(out, arg));
        let len = out.len() - start;
        let owner = Owner::Operation { operation, part };
        let counted = incoming.request.command.counted();
        connection.link.enqueue_batch(owner, counted, len, REPLIES_BEFORE_WAIT, self.clock.now);
        self.note_unsent(index, connection);
    }

    /// A number whose slot a server of a cluster has.
    fn tag_of_server(&self, server: ServerId) -> Option<u32> {
        let state = self.cluster_state(server.pool).filter(|state| state.has_slots())?;
        let mut tags = 0..TAGS_MAX;
        tags.find(|tag| {
            state.map.owners().of(key_slot(tag.to_string().as_bytes())) == Some(server.server)
        })
    }
}

impl Plane {
    /// Returns whether it is a server's part of WAIT.
    pub(in crate::core) fn is_wait(&self, owner: Owner) -> bool {
        let Owner::Operation { operation, .. } = owner else { return false };
        self.pending.get::<Join>(operation).is_some_and(|join| join.is_waiting)
    }
}

impl Plane {
    /// Returns the index of the server that has the slot of the requests before a WAIT.
    fn server_of_offset(&self, pool: u16, sent: &[u8]) -> Option<u16> {
        let state = self.cluster_state(pool).filter(|state| state.has_slots())?;
        let (owners, mut server) = (state.map.owners(), None);
        self.each_command(sent, |request| {
            if request.command.verb == Verb::Spublish {
                server = owners.of(key_slot(&request.args[1]));
            }
        });
        server
    }
}

impl Core {
    /// Asks for replicas again where a server of a cluster had become one itself, or
    /// the slot of what went before had left it. What was written to one that has no
    /// slots any more is with the one that has them.
    #[cold]
    pub(in crate::core) fn wait_again(
        &mut self,
        from: ConnectionKey,
        server: ServerId,
        mut one: Redirected,
        waits: Option<Waits>,
    ) {
        let is_serving = |state: &ClusterState| state.map.is_serving(usize::from(server.server));
        let to = match self.plane.cluster_state(server.pool).is_some_and(is_serving) {
            true => {
                let tag = self.plane.tag_of_server(server);
                let mut request = Vec::with_capacity(one.request.len());
                move_offset(&mut request, tag);
                let at = one.request.windows(WAIT.len()).rposition(|bytes| bytes == WAIT);
                request.extend_from_slice(&one.request[at.unwrap_or_default()..]);
                one.request = request.into();
                Some(server.server)
            }
            false => self.plane.server_of_offset(server.pool, &one.request),
        };
        match to {
            Some(to) => self.retry_private(to, from, &one, waits),
            None => self.give_up_private(from, &one),
        }
    }
}
