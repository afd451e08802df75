//! Asks primaries how far their replicas are behind. A primary names its replicas by the addresses
//! that they connect from or announce, which may differ from the known ones. Host names are then
//! looked up on both sides.

use crate::Cluster;
use crate::core::pools::cluster::state::Heard;
use crate::core::{ConnectionKey, Core, Plane};
use keyway_proxy::Internal;
use keyway_resp::Protocol;
use keyway_topology::{ConnectedReplica, Endpoint, InfoReplication};
use std::net::IpAddr;
use std::sync::Arc;

impl Core {
    /// Notes how far the replicas of a primary are behind it.
    pub(super) fn hear_lags(&mut self, heard: &Heard) {
        let Some(state) = self.plane.cluster_state(heard.server.pool) else { return };
        let Ok(told) = InfoReplication::from_reply(&heard.reply) else { return };
        let (shared, map) = (Arc::clone(&state.shared), Arc::clone(&state.map));
        let known: Vec<(u16, &Endpoint)> = map
            .replicas_of(heard.server.server)
            .map(|(server, node)| (server, &node.endpoint))
            .collect();
        let mut found = 0;
        let now = self.plane.clock.now;
        shared.note_offset(heard.server.server, &told, now);
        for &(server, endpoint) in &known {
            let others = known.iter().filter(|&&(other, _)| other != server).map(|&(_, it)| it);
            let replica = replica_at(endpoint, others, &told.replicas, &shared);
            found += usize::from(replica.is_some());
            let online = replica.filter(|replica| replica.is_online);
            let lag = |replica| shared.lag_of(heard.server.server, replica, now);
            shared.note_lag(server, online.map_or(u64::MAX, lag));
        }
        if found == known.len() || told.replicas.is_empty() {
            return;
        }
        let of_primary = told.replicas.iter().filter_map(|replica| replica.endpoint.as_ref());
        let own = known.iter().map(|&(_, endpoint)| endpoint);
        let is_asking = self.plane.look_up(heard.server.pool, &shared, of_primary.chain(own));
        if found == 0 && !is_asking && shared.notice.is_due(self.plane.clock.now) {
            tracing::warn!(
                pool = self.plane.plan.pools[usize::from(heard.server.pool)].name,
                backend = self.plane.describe_backend(heard.server),
                "it tells of replicas, but of none by an address that is known here: they are not \
                 read, because of replica_lag_max; see replica-announce-ip; told at most once a \
                 minute"
            );
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
        let Some(sharded) = self.plane.pools[usize::from(pool)].servers() else { return };
        let primaries = (0..state.map.index_count()).filter(|&server| state.map.is_serving(server));
        let links: Vec<ConnectionKey> =
            primaries.map(|server| sharded.link(server as u16, 0, Protocol::Resp2)).collect();
        for index in links {
            let link = &self.links[self.clear_link(index)].link;
            if !link.is_down(now) && !link.owes(Internal::Replication) {
                self.ask_server(index, &[b"INFO", b"replication"], Internal::Replication);
            }
        }
    }

    /// Returns the next host name to look up, with the number of the question.
    pub(crate) fn next_name(&mut self) -> Option<(u32, String)> {
        let names = &mut self.plane.cluster.names;
        let (pool, host) = names.due.pop()?;
        names.latest = names.latest.wrapping_add(1);
        names.asked.insert(names.latest, (pool, host.clone()));
        Some((names.latest, host))
    }

    /// Takes the result of a lookup: the address, or `None` if it failed.
    pub(crate) fn note_resolved(&mut self, number: u32, address: Option<IpAddr>) {
        let Some((pool, host)) = self.plane.cluster.names.asked.remove(&number) else { return };
        if let Some(state) = self.plane.cluster_state(pool) {
            state.shared.note_host(&host, address);
        }
    }
}

impl Plane {
    /// Queues lookups for the host names among the endpoints that were not looked up of late.
    /// Returns whether there are any.
    fn look_up<'a>(
        &mut self,
        pool: u16,
        shared: &Cluster,
        endpoints: impl Iterator<Item = &'a Endpoint>,
    ) -> bool {
        let before = self.cluster.names.due.len();
        for endpoint in endpoints {
            if let Endpoint::Tcp { host, .. } = endpoint
                && shared.try_claim_host(host, self.clock.now)
            {
                self.cluster.names.due.push((pool, host.clone()));
            }
        }
        self.cluster.names.due.len() > before
    }
}

/// Returns what a primary tells of the replica at an endpoint. It is found by its name or address,
/// by the address of a looked-up name or, where the primary has another name for the host, by its
/// port if no other replica has that port.
fn replica_at<'a, 'b>(
    endpoint: &Endpoint,
    mut others: impl Iterator<Item = &'b Endpoint>,
    told: &'a [ConnectedReplica],
    shared: &Cluster,
) -> Option<&'a ConnectedReplica> {
    let port = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp { port, .. } => Some(*port),
        Endpoint::Unix { .. } | Endpoint::Shm { .. } => None,
    };
    let by_name = told.iter().find(|it| it.endpoint.as_ref() == Some(endpoint));
    let is_there = |it: &&ConnectedReplica| {
        it.endpoint.as_ref().is_some_and(|told| shared.are_same(told, endpoint))
    };
    if let Some(replica) = by_name.or_else(|| told.iter().find(is_there)) {
        return Some(replica);
    }
    let own = port(endpoint)?;
    let mut same = told.iter().filter(|it| it.endpoint.as_ref().and_then(port) == Some(own));
    let replica = same.next()?;
    let is_alone = same.next().is_none() && others.all(|other| port(other) != Some(own));
    is_alone.then_some(replica)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Time;
    use keyway_topology::{Discovery, PrimarySource, ReplicatedPool};
    use std::time::Duration;

    /// Returns a pool in which these names lead to these addresses.
    fn cluster(hosts: &[(&str, &str)]) -> Cluster {
        let discovery = Discovery {
            refresh: Duration::from_secs(1),
            redirections_max: 3,
            ..Discovery::new(Vec::new(), 3)
        };
        let cluster =
            Cluster::of_primaries(&ReplicatedPool::new(PrimarySource::Servers, discovery));
        for (name, address) in hosts {
            assert!(cluster.try_claim_host(name, Time(0)));
            cluster.note_host(name, Some(address.parse().unwrap()));
        }
        cluster
    }

    /// Returns a primary's replicas, by address and by how many seconds each is behind.
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

    #[test]
    fn a_replica_that_tells_in_time_may_lack_much() {
        let cluster = cluster(&[]);
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let mut lags = Vec::new();
        for second in 1..=10 {
            let mut told = told(&[("10.0.0.2", 6379, 0), ("10.0.0.3", 6379, 4)]);
            // The first replica makes no progress; the second has received everything.
            told[0].replication_offset = 300;
            told[1].replication_offset = 100 * second;
            let reply = format!("role:master\r\nmaster_repl_offset:{}\r\n", 100 * second);
            let reply = format!("${}\r\n{reply}\r\n", reply.len());
            let of_primary = InfoReplication::from_reply(reply.as_bytes()).unwrap();
            cluster.note_offset(0, &of_primary, at(second));
            lags = told.iter().map(|replica| cluster.lag_of(0, replica, at(second))).collect();
        }
        assert_eq!(lags, [10_000 - 4000 - 1000, 4000]);
    }

    #[test]
    fn a_replica_is_known_by_name_by_where_that_leads_or_by_a_port_of_its_own() {
        let at = |host: &str, port| Endpoint::tcp(host, port).unwrap();
        let lag = |cluster: &Cluster, own: Endpoint, other: Endpoint, told: &[ConnectedReplica]| {
            let others = [other];
            replica_at(&own, others.iter(), told, cluster).map(|replica| replica.lag_seconds)
        };
        let nobody = cluster(&[]);
        let hosts = cluster(&[("b", "10.0.0.2"), ("c", "10.0.0.3"), ("d", "10.0.0.2")]);
        let addresses = told(&[("10.0.0.2", 6379, 2), ("10.0.0.3", 6379, 3)]);
        assert_eq!(lag(&nobody, at("10.0.0.3", 6379), at("b", 6379), &addresses), Some(3));
        assert_eq!(lag(&nobody, at("b", 6379), at("c", 6379), &addresses), None);
        assert_eq!(lag(&hosts, at("c", 6379), at("b", 6379), &addresses), Some(3));
        assert_eq!(lag(&hosts, at("c", 6380), at("b", 6379), &addresses), None);
        assert_eq!(lag(&hosts, at("e", 6379), at("b", 6379), &addresses), None);
        let names = told(&[("b", 6379, 2), ("c", 6379, 3)]);
        assert_eq!(lag(&nobody, at("c", 6379), at("b", 6379), &names), Some(3));
        assert_eq!(lag(&nobody, at("10.0.0.3", 6379), at("10.0.0.2", 6379), &names), None);
        assert_eq!(lag(&hosts, at("10.0.0.3", 6379), at("10.0.0.2", 6379), &names), Some(3));
        assert_eq!(lag(&hosts, at("d", 6379), at("c", 6379), &names), Some(2));
        let two_ports = told(&[("10.0.0.2", 6379, 2), ("10.0.0.2", 6380, 3)]);
        assert_eq!(lag(&nobody, at("b", 6379), at("c", 6380), &two_ports), Some(2));
        assert_eq!(lag(&hosts, at("d", 6380), at("b", 6379), &two_ports), Some(3));
    }
}
