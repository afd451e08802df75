//! Handles servers that a redirection names and that no view has. Keyway does not connect to such a
//! server, let alone send it a password, before the cluster itself has named it.
//!
//! Views by slots leave out a server that has no slot yet, such as one to which its first slot is
//! moving. So the server that redirected the request is asked for CLUSTER NODES. Meanwhile the
//! request is held, and so are later requests to the same server, so that the order is kept.

use crate::core::pools::cluster::state::Held;
use crate::core::pools::cluster::state::Onward;
use crate::core::{ConnectionKey, Core, Plane};
use keyway_base::Time;
use keyway_proxy::{Internal, Redirected};
use keyway_resp::Protocol;
use keyway_topology::{ClusterView, Endpoint, NodeHealth, ServerId, ViewSource};
use std::time::Duration;

/// The pause between two such questions to one server. If it were shorter, a script that names
/// servers could make the server list its cluster as often. If it were longer, requests that came
/// too late for one question would wait longer for the next.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest time for which a request is held back for an answer, whatever happened to the
/// question.
const PATIENCE: Duration = Duration::from_secs(10);

impl super::State {
    /// Returns whether requests wait until a server is known.
    pub(super) fn is_held_for(&self, pool: u16, to: &Endpoint) -> bool {
        self.named.held.iter().any(|held| held.server.pool == pool && held.onward.to == *to)
    }

    /// Notes that a server has not answered the question about the members of its cluster.
    #[cold]
    pub(in crate::core) fn note_unnamed(&mut self, server: ServerId) {
        self.named.missed.push(server);
    }
}

impl Core {
    /// Holds a request back until its server is known.
    pub(super) fn hold_back(&mut self, from: ConnectionKey, one: Redirected, onward: Onward) {
        self.hold(from, Some(one), onward);
    }

    /// Asks for a server that is not known yet.
    pub(super) fn seek(&mut self, from: ConnectionKey, onward: Onward) {
        if !self.plane.cluster.is_held_for(self.links[from].server_id.pool, &onward.to) {
            self.hold(from, None, onward);
        }
    }

    fn hold(&mut self, from: ConnectionKey, redirected: Option<Redirected>, onward: Onward) {
        let server = self.links[from].server_id;
        let held = Held { from, server, onward, is_asked: false, redirected };
        self.plane.cluster.named.held.push(held);
        self.ask_names(server);
    }

    /// Asks the servers that are due to be asked.
    pub(super) fn ask_names_if_due(&mut self) {
        if self.plane.cluster.named.held.is_empty() {
            return;
        }
        let held = self.plane.cluster.named.held.iter();
        let mut servers: Vec<ServerId> = held.map(|held| held.server).collect();
        servers.sort_unstable();
        servers.dedup();
        servers.into_iter().for_each(|server| self.ask_names(server));
    }

    /// Refuses requests that have been held back until their time was up.
    pub(super) fn end_held_waits(&mut self) {
        if self.plane.cluster.named.held.is_empty() {
            return;
        }
        let Plane { cluster, clock, .. } = &mut self.plane;
        let held = std::mem::take(&mut cluster.named.held);
        let now = clock.now;
        let mut next = None;
        for held in held {
            let due = self.plane.names_due(&held);
            match (&held.redirected, due) {
                (Some(one), Some(due)) if due <= now => self.give_up(held.from, one),
                _ => {
                    next = next.into_iter().chain(due).min();
                    self.plane.cluster.named.held.push(held);
                }
            }
        }
        self.plane.note_deadline(next);
    }

    fn ask_names(&mut self, server: ServerId) {
        let now = self.plane.clock.now;
        let named = &mut self.plane.cluster.named;
        if let Some(&(at, is_awaited)) = named.asked.get(&server) {
            let due = at + if is_awaited { PATIENCE } else { PAUSE };
            if now < due {
                return self.plane.note_cluster_deadline(due);
            }
            if is_awaited {
                return named.missed.push(server);
            }
        }
        let mut is_new = false;
        for held in named.held.iter_mut().filter(|held| held.server == server) {
            is_new |= !std::mem::replace(&mut held.is_asked, true);
        }
        if !is_new {
            return;
        }
        named.asked.insert(server, (now, true));
        let Some(state) = self.plane.pools[usize::from(server.pool)].servers() else { return };
        let index = state.link(server.server, 0, Protocol::Resp2);
        if self.links[index].link.is_down(now) {
            self.plane.cluster.named.missed.push(server);
            return self.plane.note_cluster_deadline(now);
        }
        self.ask_server(index, &[b"CLUSTER", b"NODES"], Internal::Names);
    }

    /// Refuses the requests that were held back for an answer that did not come.
    pub(super) fn miss_names(&mut self) {
        for server in std::mem::take(&mut self.plane.cluster.named.missed) {
            self.end_question(server);
        }
    }

    /// Learns from a server which servers are in its cluster.
    pub(super) fn hear_names(&mut self, server: ServerId, reply: &[u8]) {
        let (pool, now) = (server.pool, self.plane.clock.now);
        let from = self.plane.asked_endpoint(server);
        let wants_tls = self.plane.plan.pools[usize::from(pool)].kind.tls().is_some();
        let view = from.as_ref().and_then(|endpoint| {
            ClusterView::from_nodes(reply, ViewSource { endpoint, wants_tls }).ok()
        });
        if let (Some(view), Some(state)) = (view, self.plane.cluster_state(pool)) {
            let held = self.plane.cluster.named.held.iter();
            for held in held.filter(|held| held.server.pool == pool) {
                if names(&view, &held.onward.to) {
                    state.shared.admit(&held.onward.to, now);
                }
            }
        }
        // Requests for servers that were named are sent on before the others are refused.
        self.follow_clusters();
        self.end_question(server);
    }

    /// Refuses the requests that were held back for a question that is answered.
    fn end_question(&mut self, server: ServerId) {
        let named = &mut self.plane.cluster.named;
        if let Some((_, is_awaited)) = named.asked.get_mut(&server) {
            *is_awaited = false;
        }
        let is_over = |held: &mut Held| held.server == server && held.is_asked;
        let refused: Vec<Held> = named.held.extract_if(.., is_over).collect();
        for held in refused {
            if let Some(one) = &held.redirected {
                self.give_up(held.from, one);
            }
        }
        self.ask_names_if_due();
    }

    /// Refuses the requests that are held back for a pool that ends.
    pub(super) fn give_up_held(&mut self, pool: u16) {
        let held = &mut self.plane.cluster.named.held;
        let refused: Vec<Held> = held.extract_if(.., |held| held.server.pool == pool).collect();
        for held in refused {
            if let Some(one) = &held.redirected {
                self.give_up(held.from, one);
            }
        }
    }

    /// Sends on the requests that were held back for servers that are known now.
    #[inline]
    pub(super) fn release_named(&mut self) {
        if !self.plane.cluster.named.held.is_empty() {
            self.release_held();
        }
    }

    #[cold]
    fn release_held(&mut self) {
        let held = std::mem::take(&mut self.plane.cluster.named.held);
        let mut known = Vec::new();
        for held in held {
            let state = self.plane.cluster_state(held.server.pool);
            match state.and_then(|state| state.map.index_of(&held.onward.to)) {
                Some(to) => known.push((to, held)),
                None => self.plane.cluster.named.held.push(held),
            }
        }
        for (to, held) in known {
            if let Some(one) = held.redirected {
                self.send_on(to, held.from, one, &held.onward);
            }
        }
    }
}

impl Plane {
    /// Returns until when a request may be held back. Its time counts from when its client sent it.
    fn names_due(&self, held: &Held) -> Option<Time> {
        let timeout = self.link_options(held.server.pool).timeout?;
        Some(held.redirected.as_ref()?.exchange.asked() + timeout)
    }
}

/// Returns whether a view has the server, by its address or its name, among those that may be
/// connected to.
fn names(view: &ClusterView, endpoint: &Endpoint) -> bool {
    let Endpoint::Tcp { host, port } = endpoint else { return false };
    view.nodes.iter().any(|node| {
        let is_met = !matches!(node.health, NodeHealth::Handshake | NodeHealth::NoAddress);
        let is_it = node.endpoint.as_ref().is_some_and(|it| match it {
            Endpoint::Tcp { port: its, .. } if its == port => {
                it == endpoint || node.host_name.as_deref() == Some(&**host)
            }
            _ => false,
        });
        is_met && is_it
    })
}
