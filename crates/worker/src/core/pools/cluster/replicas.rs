//! The servers that a pool may read from, and the choice among them.

use crate::Cluster;
use keyway_topology::{ClusterMap, Endpoint, KnownNode, NodeHealth, ReadFrom, ReadPolicy};

/// The facts that the choice among servers is based on, by server index.
pub(super) trait Look {
    /// Returns whether the server may be read.
    fn status(&self, server: u16) -> ReplicaStatus;
    /// Returns the cost of a request to the server.
    fn cost(&self, server: u16) -> u64;
    /// Returns whether the server is to get one read now to see how fast it is.
    fn claim_try(&self, server: u16) -> bool;
}

/// The largest share that one server can have.
pub(super) const WEIGHT_MAX: u32 = 100;

/// At most one read of this many goes to a server only because it was not used of late, to see how
/// fast it is now.
pub(super) const EXPLORE_EVERY: u32 = 64;

/// The first number that stands for the choice of a user, behind those of listeners.
pub(super) const USERS: u16 = 0x8000;

/// The servers that reads of one worker go to.
pub(in crate::core) struct Readers {
    pub(super) policy: ReadPolicy,
    /// The servers to read from, by the server index of the primary.
    pub(super) of_primary: Vec<Choice>,
    /// Counts reads, so that the servers take turns.
    pub(super) turn: u32,
    /// The turn of the latest read that went to a server to see how fast it is.
    pub(super) explored: u32,
    /// The readers for clients of listeners, and for users, that have settings of their own.
    pub(super) others: Vec<(u16, Readers)>,
}

impl Readers {
    /// Returns the readers of a cluster, with those for clients of the given listeners and users,
    /// or `None` when only primaries are read.
    pub(super) fn new<'l>(
        cluster: &Cluster,
        map: &ClusterMap,
        listeners: impl Iterator<Item = (u16, &'l ReadFrom)>,
    ) -> Option<Box<Readers>> {
        let policy = &cluster.settings().reads;
        let of_listener = |(listener, from): (u16, &ReadFrom)| {
            let policy = ReadPolicy { from: from.clone(), ..policy.clone() };
            (listener, Readers::by(policy, map))
        };
        let others: Vec<(u16, Readers)> = listeners.map(of_listener).collect();
        if policy.from == ReadFrom::Primary && others.is_empty() {
            return None;
        }
        Some(Box::new(Readers { others, ..Readers::by(policy.clone(), map) }))
    }

    fn by(policy: ReadPolicy, map: &ClusterMap) -> Readers {
        let count = map.index_count() as u16;
        let of_primary = (0..count).map(|server| Choice::of(&policy, map, server)).collect();
        Readers { policy, of_primary, turn: 0, explored: 0, others: Vec::new() }
    }

    /// Returns the readers for the clients of a listener.
    pub(super) fn of(&self, listener: u16) -> &Readers {
        let own = self.others.iter().find(|(of, _)| *of == listener);
        own.map_or(self, |(_, readers)| readers)
    }

    pub(super) fn of_mut(&mut self, listener: u16) -> &mut Readers {
        match self.others.iter().position(|(of, _)| *of == listener) {
            Some(at) => &mut self.others[at].1,
            None => self,
        }
    }

    /// Returns whether any of the settings satisfies `is_it`.
    pub(super) fn any(&self, is_it: impl Fn(&ReadFrom) -> bool) -> bool {
        is_it(&self.policy.from) || self.others.iter().any(|(_, it)| is_it(&it.policy.from))
    }

    /// Returns the indices of the servers that have the same data, for each primary that has
    /// readers.
    pub(in crate::core) fn sets(&self) -> impl Iterator<Item = Vec<u16>> + '_ {
        self.of_primary.iter().filter(|choice| !choice.all.is_empty()).map(|choice| {
            let mut servers = [&choice.near[..], &choice.all[..]].concat();
            servers.sort_unstable();
            servers.dedup();
            servers
        })
    }

    /// Returns the status of a server that cannot answer yet. The primary answers instead, unless
    /// the settings say that primaries are never read.
    pub(super) fn unready(&self) -> ReplicaStatus {
        match self.policy.from {
            ReadFrom::Replica => ReplicaStatus::Out,
            _ => ReplicaStatus::Unfit,
        }
    }

    /// Returns the settings for the choice of servers.
    pub(super) fn policy(&self) -> &ReadPolicy {
        &self.policy
    }

    /// Returns the server for a read of data that the primary at `primary` has.
    pub(super) fn pick(&mut self, primary: u16, look: &impl Look) -> Reader {
        self.turn = self.turn.wrapping_add(1);
        let Some(choice) = self.of_primary.get(usize::from(primary)) else {
            return Reader::Primary;
        };
        let found = match self.policy.from {
            ReadFrom::Nearest => {
                let explores = self.turn.wrapping_sub(self.explored) >= EXPLORE_EVERY;
                if explores {
                    self.explored = self.turn;
                }
                let tried = if explores { choice.to_explore(look) } else { None };
                tried.or_else(|| choice.cheapest(look))
            }
            // A server that is left out is better than none.
            _ => choice
                .in_turn(self.turn, |server| look.status(server) == ReplicaStatus::In)
                .or_else(|| choice.in_turn(self.turn, |at| look.status(at) == ReplicaStatus::Out)),
        };
        match found {
            Some(server) if server == primary => Reader::Primary,
            Some(server) => Reader::At(server),
            None if self.policy.from == ReadFrom::Replica => Reader::None,
            None => Reader::Primary,
        }
    }
}

impl Readers {
    /// Returns another server for a read than one that is not fit, in the order in which servers
    /// are chosen.
    pub(super) fn pick_other(
        &mut self,
        primary: u16,
        is_fit: impl Fn(u16) -> bool,
        cost: impl Fn(u16) -> u64,
    ) -> Option<u16> {
        let choice = self.of_primary.get(usize::from(primary))?;
        if self.policy.from == ReadFrom::Nearest {
            let fit = choice.all.iter().copied().filter(|&server| is_fit(server));
            return fit.min_by_key(|&server| cost(server));
        }
        let is_last_resort = self.policy.from != ReadFrom::Replica && is_fit(primary);
        choice.in_turn(self.turn, is_fit).or(is_last_resort.then_some(primary))
    }
}

/// The answer to whether a server may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplicaStatus {
    In,
    /// May be read if there is no other server.
    Out,
    Unfit,
}

/// The servers that have the data of one primary, each as often as its share.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// Servers in the zone that is read from.
    pub(super) near: Vec<u16>,
    pub(super) all: Vec<u16>,
}

impl Choice {
    fn of(policy: &ReadPolicy, map: &ClusterMap, primary: u16) -> Choice {
        let own = map.node(usize::from(primary)).map(|node| (primary, node));
        let of_primary = match policy.from {
            ReadFrom::Nearest => own,
            _ => None,
        };
        let all = map.replicas_of(primary).filter(|(_, node)| is_reader(node)).chain(of_primary);
        let in_zone = |node: &KnownNode| match &policy.from {
            ReadFrom::Zone(zone) => node.zone.as_ref() == Some(zone),
            _ => false,
        };
        let near = map.replicas_of(primary).filter(|(_, node)| is_reader(node)).chain(own);
        let near = near.filter(|(_, node)| in_zone(node));
        Choice { near: by_share(policy, near), all: by_share(policy, all) }
    }

    /// Returns the next server in turn, from the zone that is read from if it has one.
    fn in_turn(&self, turn: u32, is_it: impl Fn(u16) -> bool) -> Option<u16> {
        let of = |servers: &[u16]| {
            let from = turn as usize % servers.len().max(1);
            let turned = servers[from..].iter().chain(&servers[..from]).copied();
            turned.into_iter().find(|&server| is_it(server))
        };
        of(&self.near).or_else(|| of(&self.all))
    }

    /// Returns the server that costs least, or one that is left out if there is no other.
    fn cheapest(&self, look: &impl Look) -> Option<u16> {
        let mut of_in: Option<(u64, u16)> = None;
        let mut of_out: Option<(u64, u16)> = None;
        for &server in &self.all {
            let best = match look.status(server) {
                ReplicaStatus::In => &mut of_in,
                ReplicaStatus::Out => &mut of_out,
                ReplicaStatus::Unfit => continue,
            };
            let cost = look.cost(server);
            if best.is_none_or(|(least, _)| cost < least) {
                *best = Some((cost, server));
            }
        }
        of_in.or(of_out).map(|(_, server)| server)
    }

    /// Returns a server that was not read of late.
    fn to_explore(&self, look: &impl Look) -> Option<u16> {
        let is_it =
            |server: u16| look.status(server) == ReplicaStatus::In && look.claim_try(server);
        self.all.iter().copied().find(|&server| is_it(server))
    }
}

/// The server that a read goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Reader {
    /// The primary, as for a write.
    Primary,
    /// The server with this index.
    At(u16),
    /// No server may be read now.
    None,
}

/// Returns whether a replica may be read, as other servers see it. They call a working replica
/// "loading" until they have heard from it.
fn is_reader(node: &KnownNode) -> bool {
    matches!(node.health, NodeHealth::Online | NodeHealth::Loading) && node.absent_since.is_none()
}

/// Returns each server index as often as its share, interleaved.
fn by_share<'n>(
    policy: &ReadPolicy,
    nodes: impl Iterator<Item = (u16, &'n KnownNode)>,
) -> Vec<u16> {
    let weight = |endpoint: &Endpoint| {
        let given = policy.weights.iter().find(|(of, _)| of == endpoint);
        given.map_or(1, |&(_, weight)| weight.min(WEIGHT_MAX))
    };
    let weighed: Vec<(u16, u32)> =
        nodes.map(|(server, node)| (server, weight(&node.endpoint))).collect();
    let most = weighed.iter().map(|&(_, weight)| weight).max().unwrap_or(0);
    let round = |round: u32| weighed.iter().filter(move |&&(_, weight)| weight > round);
    (0..most).flat_map(round).map(|&(server, _)| server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Time;
    use keyway_topology::{ClusterPool, ClusterView, Discovery, SlotQuery, ViewSource};
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::tcp("h", port).unwrap()
    }

    /// Returns the readers of a cluster whose primary at port 1 has replicas at ports 2, 3 and 4.
    fn readers(reads: ReadPolicy) -> (Readers, BTreeMap<u16, u16>) {
        let discovery = Discovery {
            refresh: Duration::from_secs(1),
            redirections_max: 3,
            reads,
            ..Discovery::new(vec![endpoint(1)], 8)
        };
        let cluster = Cluster::of_slots(&ClusterPool::new(SlotQuery::Slots, discovery));
        let node = |port: u16| format!("*2\r\n$1\r\nh\r\n:{port}\r\n");
        let reply =
            format!("*1\r\n*6\r\n:0\r\n:16383\r\n{}{}{}{}", node(1), node(2), node(3), node(4));
        let view =
            ClusterView::from_slots(reply.as_bytes(), ViewSource::plainly(&endpoint(1))).unwrap();
        let _ = cluster.learn(&view, crate::cluster::Speaker::ALONE, Time(0));
        let map = cluster.map();
        let index_of = |port| (port, map.index_of(&endpoint(port)).unwrap());
        let servers = (1..=4).map(index_of).collect();
        (*Readers::new(&cluster, &map, std::iter::empty()).unwrap(), servers)
    }

    /// The fit servers, the servers left out, the costs, and the servers to try.
    #[derive(Default)]
    struct Told {
        unfit: Vec<u16>,
        out: Vec<u16>,
        costs: BTreeMap<u16, u64>,
        stale: RefCell<Vec<u16>>,
    }

    impl Look for Told {
        fn status(&self, server: u16) -> ReplicaStatus {
            match (self.unfit.contains(&server), self.out.contains(&server)) {
                (true, _) => ReplicaStatus::Unfit,
                (false, true) => ReplicaStatus::Out,
                (false, false) => ReplicaStatus::In,
            }
        }

        fn cost(&self, server: u16) -> u64 {
            self.costs.get(&server).copied().unwrap_or(1)
        }

        fn claim_try(&self, server: u16) -> bool {
            let mut stale = self.stale.borrow_mut();
            let at = stale.iter().position(|&other| other == server);
            at.map(|at| stale.remove(at)).is_some()
        }
    }

    fn spread(readers: &mut Readers, primary: u16, told: &Told) -> BTreeMap<u16, u32> {
        let mut counts = BTreeMap::new();
        for _ in 0..600 {
            let server = match readers.pick(primary, told) {
                Reader::Primary => primary,
                Reader::At(server) => server,
                Reader::None => u16::MAX,
            };
            *counts.entry(server).or_default() += 1;
        }
        counts
    }

    #[test]
    fn replicas_take_turns_by_their_shares() {
        let weights = vec![(endpoint(2), 2), (endpoint(4), 0)];
        let from = ReadFrom::PreferReplica;
        let (mut readers, at) = readers(ReadPolicy { from, weights, ..ReadPolicy::default() });
        let counts = spread(&mut readers, at[&1], &Told::default());
        assert_eq!(counts, BTreeMap::from([(at[&2], 400), (at[&3], 200)]));
        let counts = spread(&mut readers, at[&1], &Told { unfit: vec![at[&2]], ..Told::default() });
        assert_eq!(counts, BTreeMap::from([(at[&3], 600)]));
    }

    #[test]
    fn without_a_replica_the_primary_is_read_or_nobody() {
        for (from, expected) in
            [(ReadFrom::PreferReplica, None), (ReadFrom::Replica, Some(u16::MAX))]
        {
            let (mut readers, at) = readers(ReadPolicy { from, ..ReadPolicy::default() });
            let unfit = vec![at[&2], at[&3], at[&4]];
            let counts = spread(&mut readers, at[&1], &Told { unfit, ..Told::default() });
            let expected = expected.unwrap_or(at[&1]);
            assert_eq!(counts, BTreeMap::from([(expected, 600)]));
        }
    }

    #[test]
    fn the_cheapest_is_read_and_who_was_not_asked_of_late_is_tried_now_and_then() {
        let from = ReadFrom::Nearest;
        let (mut readers, at) = readers(ReadPolicy { from, ..ReadPolicy::default() });
        let costs = BTreeMap::from([(at[&1], 500), (at[&2], 700), (at[&3], 10), (at[&4], 500)]);
        let told = Told { costs, ..Told::default() };
        assert_eq!(spread(&mut readers, at[&1], &told), BTreeMap::from([(at[&3], 600)]));
        *told.stale.borrow_mut() = (0..100).map(|nth| at[&(1 + nth % 4)]).collect();
        let counts = spread(&mut readers, at[&1], &told);
        let tried = 100 - told.stale.borrow().len() as u32;
        assert!((9..=10).contains(&tried), "{tried} of 600");
        assert!(counts[&at[&3]] >= 600 - tried, "{counts:?}");
    }

    #[test]
    fn who_is_left_out_is_read_when_nobody_else_can_be() {
        for from in [ReadFrom::Nearest, ReadFrom::PreferReplica, ReadFrom::Replica] {
            let (mut readers, at) =
                readers(ReadPolicy { from: from.clone(), ..ReadPolicy::default() });
            let costs = BTreeMap::from([(at[&1], 9), (at[&2], 1), (at[&3], 2), (at[&4], 9)]);
            let out = vec![at[&2], at[&4]];
            let mut told = Told { out, costs, ..Told::default() };
            *told.stale.borrow_mut() = vec![at[&2]; 100];
            let counts = spread(&mut readers, at[&1], &told);
            assert_eq!(counts, BTreeMap::from([(at[&3], 600)]), "{from:?}");
            told.unfit = vec![at[&3], at[&4], at[&1]];
            let counts = spread(&mut readers, at[&1], &told);
            assert_eq!(counts, BTreeMap::from([(at[&2], 600)]), "{from:?}");
        }
    }

    #[test]
    fn servers_with_the_same_data_are_one_set() {
        let from = ReadFrom::Nearest;
        let (readers, at) = readers(ReadPolicy { from, ..ReadPolicy::default() });
        let mut all: Vec<u16> = at.values().copied().collect();
        all.sort_unstable();
        assert!(readers.sets().any(|set| set == all));
    }
}
