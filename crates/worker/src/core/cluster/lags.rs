//! How far replicas are behind: their primaries are asked, who call them by the addresses
//! they come from, which need not be the names that are known here.

use super::super::pools::PoolState;
use super::super::{Core, LinkIndex, Plane};
use super::ClusterState;
use super::discover::Heard;
use keyway_proxy::Internal;
use keyway_resp::Protocol;
use keyway_topology::{ConnectedReplica, Endpoint, InfoReplication};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl Core {
    /// Notes how far the replicas of a primary are behind it.
    pub(super) fn hear_lags(&mut self, heard: &Heard) {
        let Some(state) = self.plane.cluster_state(heard.pool) else { return };
        let Ok(told) = InfoReplication::from_reply(&heard.reply) else { return };
        let known: Vec<Known<'_>> = state
            .map
            .replicas_of(heard.place)
            .map(|(place, node)| {
                let peer = state.peers.get(&place).copied();
                Known { place, endpoint: &node.endpoint, peer }
            })
            .collect();
        let mut is_any_found = known.is_empty() || told.replicas.is_empty();
        let mut strangers = Vec::new();
        for server in &known {
            let others = known.iter().filter(|other| other.place != server.place);
            let replica = server.told_by(others.map(|other| other.endpoint), &told.replicas);
            is_any_found |= replica.is_some();
            if replica.is_none() && server.peer.is_none() && is_name(server.endpoint) {
                strangers.push(server.place);
            }
            let online = replica.filter(|replica| replica.is_online);
            let millis = online.map_or(u64::MAX, |replica| replica.lag_seconds * 1000);
            state.shared.note_lag(server.place, millis);
        }
        let is_told = !is_any_found && strangers.is_empty();
        if is_told && state.shared.notice.is_due(self.plane.clock.now) {
            tracing::warn!(
                pool = self.plane.plan.pools[usize::from(heard.pool)].name,
                backend = self.plane.describe_backend(heard.pool, heard.place),
                "it tells of replicas, but of none by an address that is known here: they are not \
                 read, because of replica_lag_max; see replica-announce-ip; told at most once a \
                 minute"
            );
        }
        self.meet(heard.pool, &strangers);
    }

    /// Has servers connected to, so that it is known where their names lead.
    fn meet(&mut self, pool: u16, places: &[u16]) {
        let now = self.plane.clock.now;
        for &place in places {
            let PoolState::Sharded(state) = &self.plane.pools[usize::from(pool)] else { return };
            let index = state.link(place, 0, Protocol::Resp2);
            let link = &self.links[index].link;
            if !link.is_down(now) && !link.is_awaited() {
                self.ask_server(index, &[b"PING"], Internal::Replication);
            }
        }
    }

    /// Asks every primary how far its replicas are behind, where that matters.
    pub(super) fn ask_lags_if_due(&mut self, pool: u16) {
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let shared = Arc::clone(&state.shared);
        let now = self.plane.clock.now;
        if shared.settings().reads.lag_max.is_none() || !shared.try_claim_lags(now) {
            return;
        }
        let PoolState::Sharded(sharded) = &self.plane.pools[usize::from(pool)] else { return };
        let primaries = (0..state.map.place_count()).filter(|&place| state.map.is_serving(place));
        let links: Vec<LinkIndex> =
            primaries.map(|place| sharded.link(place as u16, 0, Protocol::Resp2)).collect();
        for index in links {
            if !self.links[index].link.is_down(now) {
                self.ask_server(index, &[b"INFO", b"replication"], Internal::Replication);
            }
        }
    }

    /// Whether it matters where a connection has led.
    pub fn wants_peer(&self, index: LinkIndex) -> bool {
        let slot = &self.links[index];
        let of_name = |state: &ClusterState| {
            let node = state.map.node(usize::from(slot.backend));
            state.shared.settings().reads.lag_max.is_some()
                && node.is_some_and(|node| is_name(&node.endpoint))
        };
        self.plane.cluster_state(slot.pool).is_some_and(of_name)
    }

    /// Notes where the connection of a link has led.
    pub fn note_peer(&mut self, index: LinkIndex, peer: Option<SocketAddr>) {
        let slot = &self.links[index];
        let PoolState::Sharded(state) = &mut self.plane.pools[usize::from(slot.pool)] else {
            return;
        };
        if let (Some(state), Some(peer)) = (&mut state.cluster, peer) {
            state.peers.insert(slot.backend, peer.ip().to_canonical());
        }
    }
}

impl Plane {
    /// Another server is at a place now.
    pub(super) fn forget_peer(&mut self, pool: u16, place: u16) {
        if let PoolState::Sharded(state) = &mut self.pools[usize::from(pool)]
            && let Some(state) = &mut state.cluster
        {
            state.peers.remove(&place);
        }
    }
}

/// A replica, as it is known here.
struct Known<'a> {
    place: u16,
    endpoint: &'a Endpoint,
    /// Where a connection to it has led.
    peer: Option<IpAddr>,
}

impl Known<'_> {
    /// What its primary tells of it: by the address that is known here, by the one that its name
    /// leads to, or where it comes from elsewhere by its port, if no other has that.
    fn told_by<'a, 'b>(
        &self,
        mut others: impl Iterator<Item = &'b Endpoint>,
        told: &'a [ConnectedReplica],
    ) -> Option<&'a ConnectedReplica> {
        let by_name = told.iter().find(|it| it.endpoint.as_ref() == Some(self.endpoint));
        let own = port(self.endpoint)?;
        let is_there = |endpoint: &Endpoint| match endpoint {
            Endpoint::Tcp { host, port } => {
                *port == own && self.peer.is_some() && host.parse().ok() == self.peer
            }
            Endpoint::Unix { .. } | Endpoint::Shm { .. } => false,
        };
        let by_address = || told.iter().find(|it| it.endpoint.as_ref().is_some_and(is_there));
        if let Some(replica) = by_name.or_else(by_address) {
            return Some(replica);
        }
        let mut same = told.iter().filter(|it| it.endpoint.as_ref().and_then(port) == Some(own));
        let replica = same.next()?;
        let is_alone = same.next().is_none() && others.all(|other| port(other) != Some(own));
        is_alone.then_some(replica)
    }
}

fn port(endpoint: &Endpoint) -> Option<u16> {
    match endpoint {
        Endpoint::Tcp { port, .. } => Some(*port),
        Endpoint::Unix { .. } | Endpoint::Shm { .. } => None,
    }
}

/// Whether an endpoint is a host by its name.
fn is_name(endpoint: &Endpoint) -> bool {
    matches!(endpoint, Endpoint::Tcp { host, .. } if host.parse::<IpAddr>().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A primary's replicas, by address and how many seconds each is behind.
    fn told(replicas: &[(&str, u16, u64)]) -> Vec<ConnectedReplica> {
        let line = |(nth, (ip, port, lag)): (usize, &(&str, u16, u64))| {
            format!("slave{nth}:ip={ip},port={port},state=online,offset=1,lag={lag}\r\n")
        };
        let lines: String = replicas.iter().enumerate().map(line).collect();
        let count = replicas.len();
        let text =
            format!("role:master\r\nconnected_slaves:{count}\r\n{lines}master_repl_offset:1\r\n");
        let reply = format!("${}\r\n{text}\r\n", text.len());
        InfoReplication::from_reply(reply.as_bytes()).unwrap().replicas
    }

    fn lag(
        own: (&str, u16, Option<&str>),
        others: &[(&str, u16)],
        told: &[ConnectedReplica],
    ) -> Option<u64> {
        let endpoint = Endpoint::tcp(own.0, own.1).unwrap();
        let peer = own.2.map(|ip| ip.parse().unwrap());
        let server = Known { place: 0, endpoint: &endpoint, peer };
        let others: Vec<Endpoint> =
            others.iter().map(|(host, port)| Endpoint::tcp(host, *port).unwrap()).collect();
        server.told_by(others.iter(), told).map(|replica| replica.lag_seconds)
    }

    #[test]
    fn a_replica_is_known_by_name_by_where_that_leads_or_by_a_port_of_its_own() {
        let one_port = told(&[("10.0.0.2", 6379, 2), ("10.0.0.3", 6379, 3)]);
        let others = [("c", 6379)];
        assert_eq!(lag(("10.0.0.3", 6379, None), &others, &one_port), Some(3));
        assert_eq!(lag(("b", 6379, None), &others, &one_port), None);
        assert_eq!(lag(("b", 6379, Some("10.0.0.2")), &others, &one_port), Some(2));
        assert_eq!(lag(("b", 6379, Some("10.0.0.9")), &others, &one_port), None);
        assert_eq!(lag(("b", 6380, Some("10.0.0.2")), &others, &one_port), None);
        let two_ports = told(&[("10.0.0.2", 6379, 2), ("10.0.0.2", 6380, 3)]);
        assert_eq!(lag(("b", 6379, None), &[("c", 6380)], &two_ports), Some(2));
        assert_eq!(lag(("c", 6380, Some("10.0.0.2")), &[("b", 6379)], &two_ports), Some(3));
        let names = told(&[("b", 6379, 2), ("c", 6379, 3)]);
        assert_eq!(lag(("c", 6379, Some("10.0.0.2")), &[("b", 6379)], &names), Some(3));
    }
}
