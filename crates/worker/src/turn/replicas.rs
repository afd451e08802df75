//! Clients that become replicas: their sockets go to the feed of the pool's store.
//!
//! A connection with state in this worker (TLS, rings) stays here. The feed gets one end of a socket
//! pair, and the worker passes the bytes on, as it does for another process (`relaying.rs`).

use super::Worker;
use crate::core::Departing;
use crate::handouts::Handout;
use crate::replication::ReplicaLink;
use keyway_net::{Io, Socket, Token};
use keyway_resp::reply;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// The reply to a client whose connection cannot be handed over.
const NO_LINE: &str = "ERR the connection cannot be handed to the feed of replicas: no descriptor";

impl<I: Io> Worker<I> {
    /// Hands over the sockets of clients that have all their replies. To be called once the
    /// outputs were sent.
    #[cold]
    pub(super) fn hand_over_replicas(&mut self) {
        for departing in std::mem::take(&mut self.core.plane.store.introduced.departing) {
            self.hand_over_replica(departing);
        }
    }

    fn hand_over_replica(&mut self, departing: Departing) {
        let Departing { session: key, client: id, request } = departing;
        let Some(client) = self.client(key) else { return };
        let Some(session) = self.core.session(key) else { return };
        if session.identity.id != id || !session.is_blocked() {
            // It has left, or was told to wait no longer.
            return;
        }
        let busy = session.busy.as_deref();
        if busy.is_some_and(|busy| !busy.output.is_empty()) {
            self.core.plane.store.introduced.departing.push(departing);
            return;
        }
        let role = self.plan.pools[usize::from(session.pool)].role.get();
        let address = std::sync::Arc::clone(&session.identity.addr);
        let listener = session.listener;
        let mut said = busy.map_or_else(Vec::new, |busy| busy.unparsed().to_vec());
        let name = Token(key.to_bits());
        let detached = role.and_then(|role| {
            let given = self.io.give_up(client.socket);
            Some((role, given.or_else(|| self.line_to_feed((client.socket, name)))?))
        });
        let Some((role, (socket, held))) = detached else {
            let mut text = Vec::new();
            reply::error(&mut text, NO_LINE);
            self.core.plane.store.blocking.answer(Handout { client: id, reply: text });
            return;
        };
        said.extend_from_slice(&held);
        let profile = self.core.plane.store.introduced.take(id);
        self.plan.listeners[usize::from(listener)].access.tally.note_out();
        self.core.remove_session(key, None);
        self.clients[key.index() as usize] = None;
        self.plan.clients.remove(id);
        let peer = host_of(&address).to_owned();
        role.attach(ReplicaLink { socket, peer, profile, request, said });
    }

    /// Begins to pass the bytes of a connection on. Returns the other end, for the feed, with no
    /// bytes that were read before.
    fn line_to_feed(&mut self, client: (Socket, Token)) -> Option<(OwnedFd, Vec<u8>)> {
        let (ours, theirs) = UnixStream::pair().ok()?;
        ours.set_nonblocking(true).ok()?;
        theirs.set_nonblocking(true).ok()?;
        let line = self.io.take_over(ours.into(), Vec::new())?;
        let name = self.lingering.name_of_refused();
        self.begin_relay(client, (line, name));
        Some((theirs.into(), Vec::new()))
    }
}

/// The host of a client's address: without port, and without the brackets of IPv6.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_has_no_port_and_no_brackets() {
        assert_eq!(host_of("127.0.0.1:80"), "127.0.0.1");
        assert_eq!(host_of("[::1]:80"), "::1");
        assert_eq!(host_of("/tmp/socket:0"), "/tmp/socket");
    }
}
