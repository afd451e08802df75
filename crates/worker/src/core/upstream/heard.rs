//! Replies on one connection: each goes to its request, and the signs of the server's health in
//! them are collected.

use super::locked::is_locked;
use super::reply::SharedBlock;
use crate::core::observe::state::SlowClient;
use crate::core::upstream::state::Failed;
use crate::core::{Connection, ConnectionKey, Plane};
use keyway_base::{Key, Slab, Time};
use keyway_proxy::OperationPart;
use keyway_proxy::local::UnblockReason;
use keyway_proxy::memcached::MemcachedJoin;
use keyway_proxy::{Exchange, Internal, Owner, Redirected, Redirection, Session};
use keyway_resp::Kind;
use keyway_topology::{FailureReason, ServerId};

/// The sum of the replies that arrived together on a connection.
pub(super) struct Heard<'b> {
    connection: ConnectionKey,
    /// Indices of the connection's pool and server.
    server: ServerId,
    /// The bytes, which may be in a block of which parts may be held.
    shared: SharedBlock<'b>,
    is_blocking: bool,
    lease: Option<Key<Session>>,
    /// The answer to a blocking command that was ended.
    ended_with: Option<&'static str>,
    /// The last sign of the server's health: `None` if it is healthy, or why it is not, with the
    /// time at which the request began.
    said: Option<Option<(FailureReason, Time)>>,
    /// Number of replies that say something about the server.
    answered: usize,
    not_ready: Failed,
    /// True if the server refused to be emptied before it accepts requests again.
    was_flush_refused: bool,
    /// The answer to a probe: `true` if the server did not refuse it.
    probe: Option<bool>,
    /// True if the server forbids `PING`.
    denies_ping: bool,
    /// The answer to `CLIENT ID`.
    pub(super) client_id: Option<Option<i64>>,
    /// True if a reply does not belong to its question.
    pub(super) is_astray: bool,
    /// The client of a slow request, and its reply.
    pub(super) slow_client: Option<SlowClient>,
}

impl<'b> Heard<'b> {
    #[inline]
    pub(super) fn new(
        key: ConnectionKey,
        connection: &Connection,
        shared: SharedBlock<'b>,
    ) -> Self {
        Heard {
            connection: key,
            server: connection.server_id,
            shared,
            is_blocking: connection.link.is_blocking,
            lease: connection.lease,
            ended_with: connection.unblock.and_then(UnblockReason::text),
            said: None,
            answered: 0,
            not_ready: Failed::default(),
            was_flush_refused: false,
            probe: None,
            denies_ping: false,
            client_id: None,
            is_astray: false,
            slow_client: None,
        }
    }

    /// Handles one reply.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        plane: &mut Plane,
        sessions: &mut Slab<Session>,
        exchange: &Exchange,
        kind: Kind,
        reply: &[u8],
    ) {
        let reason = if kind == Kind::Error { error_reason(reply) } else { None };
        // A client's script may return the same error, which says nothing about the server.
        let is_doubtful = reason.is_some() && exchange.is_of_scripts();
        let reason = reason.filter(|_| !is_doubtful);
        if !is_own_question(exchange.owner, reason) && exchange.owner != Owner::None {
            if !is_doubtful {
                self.said = Some(reason.map(|reason| (reason, exchange.started)));
            }
            self.answered += 1;
        }
        if matches!(reason, Some(FailureReason::Loading | FailureReason::MasterDown)) {
            self.not_ready.add(exchange);
        }
        // A blocking command is slow by intent.
        let is_internal = matches!(exchange.owner, Owner::Internal(_));
        if exchange.is_slow && !self.is_blocking && !is_internal {
            self.slow_client = Some(plane.slow_client(sessions, exchange.owner));
        }
        match exchange.owner {
            Owner::Internal(which) => self.take_own(plane, sessions, exchange, which, kind, reply),
            Owner::Session { .. } | Owner::Operation { .. } if self.is_blocking => {
                self.deliver_waited(plane, sessions, exchange, kind, reply);
            }
            owner => {
                if kind == Kind::Error && plane.pending.is_part_of::<MemcachedJoin>(owner) {
                    plane.on_memcached_join_refused(self.connection, reply);
                }
                plane.deliver(sessions, self.server, exchange, kind, self.shared, reply);
            }
        }
    }

    /// Handles the reply to a question of the worker.
    fn take_own(
        &mut self,
        plane: &mut Plane,
        sessions: &mut Slab<Session>,
        exchange: &Exchange,
        which: Internal,
        kind: Kind,
        reply: &[u8],
    ) {
        let refused = kind == Kind::Error;
        match which {
            Internal::Load if refused => plane.on_load_refused(self.connection, reply),
            Internal::Flush => self.was_flush_refused |= refused,
            Internal::Probe => {
                self.probe = Some(!refused);
                self.is_astray |= !refused && !is_pong(reply);
                self.denies_ping |= reply.starts_with(b"-NOPERM");
            }
            Internal::Look | Internal::Return => {
                plane.hear_generation(self.server.pool, which, reply);
            }
            Internal::Cluster(_) | Internal::Names | Internal::Replication => {
                plane.hear_of_cluster(which, self.server, reply);
            }
            Internal::ClientId => self.client_id = Some(read_integer(reply)),
            Internal::Push => plane.on_push(sessions, self.lease, reply),
            _ => plane.deliver(sessions, self.server, exchange, kind, self.shared, reply),
        }
    }

    /// Handles the reply to a blocking command.
    fn deliver_waited(
        &mut self,
        plane: &mut Plane,
        sessions: &mut Slab<Session>,
        exchange: &Exchange,
        kind: Kind,
        reply: &[u8],
    ) {
        match exchange.owner {
            Owner::Session { session, sequence } => {
                plane.deliver_waited(self.server, Some(exchange.counted), kind);
                let Some(waiting) = sessions.get_mut(session) else { return };
                let write = |out: &mut Vec<u8>| match self.ended_with {
                    Some(text) if reply.starts_with(b"-UNBLOCKED") => {
                        keyway_resp::reply::error(out, text);
                    }
                    _ => out.extend_from_slice(reply),
                };
                plane.complete(session, waiting, sequence, write);
            }
            Owner::Operation { operation, part } => {
                plane.deliver_waited(self.server, None, kind);
                plane.on_operation_reply(sessions, OperationPart { operation, part }, kind, reply);
            }
            _ => {}
        }
    }
}

impl Plane {
    /// Notes the signs of a server's health.
    #[inline]
    pub(super) fn note_heard_of_health(
        &mut self,
        index: ConnectionKey,
        connection: &mut Connection,
        heard: &Heard<'_>,
    ) {
        match heard.said {
            Some(None) => self.note_success(connection),
            Some(Some((reason, began))) => {
                if reason == FailureReason::Handshake {
                    self.tell_locked(connection);
                }
                self.note_failure(connection, reason, began);
            }
            None => {}
        }
        if self.has_heard_generation() {
            self.on_generation_heard(index, connection);
        }
        // A server that refuses PING with an error of its own can be reached.
        let is_refused = heard.probe == Some(false);
        if is_refused && connection.rejoining.is_none() && heard.said.is_none() {
            if heard.denies_ping {
                self.tell_ping_denied(connection);
            }
            self.on_probed(connection);
        } else if heard.was_flush_refused || is_refused {
            let reason = heard.said.flatten().map(|(reason, _)| reason);
            self.on_rejoin_failed(connection, reason.unwrap_or(FailureReason::Handshake));
        } else if heard.probe == Some(true) {
            self.on_probed(connection);
        }
    }

    /// Notes the outcomes of requests on a connection that is watched for a circuit.
    pub(super) fn note_answers_of(
        &mut self,
        connection: &mut Connection,
        heard: &mut Heard<'_>,
        redirected: &[Redirected],
    ) {
        let is_not_ready = |one: &&Redirected| {
            Redirection::of(&one.reply) == Some(Redirection::NotReady)
                && !one.reply.starts_with(b"-READONLY")
                && !one.runs_scripts()
        };
        let not_ready = &mut heard.not_ready;
        redirected.iter().filter(is_not_ready).for_each(|one| not_ready.add(&one.exchange));
        self.note_answers(connection, heard.answered + redirected.len(), heard.not_ready);
    }
}

/// Returns whether a reply says nothing about the server's health: it answers a question of the
/// worker, or was not asked for.
#[inline]
fn is_own_question(owner: Owner, reason: Option<FailureReason>) -> bool {
    let Owner::Internal(which) = owner else { return false };
    match which {
        // A late reply ends nothing: its request has failed.
        Internal::Select
        | Internal::Load
        | Internal::Multi
        | Internal::Mode
        | Internal::Push
        | Internal::Unasked => true,
        Internal::Probe
        | Internal::ClientId
        | Internal::Look
        | Internal::Return
        | Internal::Cluster(_)
        | Internal::Names
        | Internal::Replication => reason.is_none(),
        _ => false,
    }
}

/// Returns whether it answers the question whether a server is alive. For memcached that is the
/// version.
fn is_pong(reply: &[u8]) -> bool {
    const BINARY_VERSION: &[u8] = &[0x81, 0x0b];
    reply == b"+PONG\r\n" || reply.starts_with(b"VERSION ") || reply.starts_with(BINARY_VERSION)
}

/// Returns the number of an integer reply.
fn read_integer(reply: &[u8]) -> Option<i64> {
    let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    keyway_resp::parse_integer(digits)
}

/// Returns what an error reply says about the health of the server itself.
#[cold]
fn error_reason(reply: &[u8]) -> Option<FailureReason> {
    if reply.starts_with(b"-LOADING") {
        Some(FailureReason::Loading)
    } else if reply.starts_with(b"-MASTERDOWN") {
        Some(FailureReason::MasterDown)
    } else if reply.starts_with(b"-READONLY") {
        Some(FailureReason::ReadOnly)
    } else if is_locked(reply) {
        Some(FailureReason::Handshake)
    } else {
        None
    }
}
