//! Which server a read goes to, where replicas may be read.

use super::super::pools::{PoolState, ShardedState};
use super::super::stateful::Asked;
use super::super::{LinkIndex, LinkSlot, Plane};
use super::ClusterState;
use crate::Cluster;
use keyway_base::Time;
use keyway_command::{Flags, Request, Verb};
use keyway_proxy::Session;
use keyway_topology::{ClusterMap, Endpoint, NodeHealth, PlacedNode, ReadFrom, ReadPolicy};
use std::time::Duration;

/// Of so many reads, one goes to a server that is not the fastest, to see how fast it
/// is now.
const EXPLORE_EVERY: u32 = 64;

/// Most shares that one server counts for.
const WEIGHT_MAX: u32 = 100;

/// The servers that reads of one worker go to.
pub(in super::super) struct Readers {
    policy: ReadPolicy,
    /// By the place of a primary.
    of_primary: Vec<Choice>,
    /// Counts reads, so that they take turns.
    turn: u32,
    /// The same for clients of listeners that say otherwise.
    others: Vec<(u16, Readers)>,
}

/// The servers that have the data of one primary: each as often as its share.
#[derive(Clone, Debug, Default)]
struct Choice {
    /// Of the zone that is read from.
    near: Vec<u16>,
    all: Vec<u16>,
}

/// Where a read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Reader {
    /// To the primary, as a write does.
    Primary,
    /// To the server at this place.
    At(u16),
    /// Nobody may be read now.
    None,
}

impl Readers {
    /// Those of a cluster, for clients of these listeners; `None` when only primaries are
    /// read.
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
        let count = map.place_count() as u16;
        let of_primary = (0..count).map(|place| Choice::of(&policy, map, place)).collect();
        Readers { policy, of_primary, turn: 0, others: Vec::new() }
    }

    /// Those for clients of a listener.
    fn of(&self, listener: u16) -> &Readers {
        let own = self.others.iter().find(|(of, _)| *of == listener);
        own.map_or(self, |(_, readers)| readers)
    }

    fn of_mut(&mut self, listener: u16) -> &mut Readers {
        match self.others.iter().position(|(of, _)| *of == listener) {
            Some(at) => &mut self.others[at].1,
            None => self,
        }
    }

    /// Whether somebody's reads are chosen so.
    pub(super) fn any(&self, is_it: impl Fn(&ReadFrom) -> bool) -> bool {
        is_it(&self.policy.from) || self.others.iter().any(|(_, it)| is_it(&it.policy.from))
    }

    /// The server for a read of data that the primary at `primary` has. `is_fit` says who
    /// may be read, `latency` how fast a server is.
    fn pick(
        &mut self,
        primary: u16,
        is_fit: impl Fn(u16) -> bool,
        latency: impl Fn(u16) -> u32,
    ) -> Reader {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        let Some(choice) = self.of_primary.get(usize::from(primary)) else {
            return Reader::Primary;
        };
        let in_turn = |places: &[u16]| {
            let from = turn as usize % places.len().max(1);
            let turned = places[from..].iter().chain(&places[..from]).copied();
            turned.into_iter().find(|&place| is_fit(place))
        };
        let found = match &self.policy.from {
            ReadFrom::Nearest if !turn.is_multiple_of(EXPLORE_EVERY) => {
                let fit = choice.all.iter().copied().filter(|&place| is_fit(place));
                fit.min_by_key(|&place| latency(place))
            }
            _ => in_turn(&choice.near).or_else(|| in_turn(&choice.all)),
        };
        match found {
            Some(place) if place == primary => Reader::Primary,
            Some(place) => Reader::At(place),
            None if self.policy.from == ReadFrom::Replica => Reader::None,
            None => Reader::Primary,
        }
    }
}

impl Choice {
    fn of(policy: &ReadPolicy, map: &ClusterMap, primary: u16) -> Choice {
        let own = map.node(usize::from(primary)).map(|node| (primary, node));
        let of_primary = match policy.from {
            ReadFrom::Nearest => own,
            _ => None,
        };
        let all = map.replicas_of(primary).filter(|(_, node)| is_reader(node)).chain(of_primary);
        let in_zone = |node: &PlacedNode| match &policy.from {
            ReadFrom::Zone(zone) => node.zone.as_ref() == Some(zone),
            _ => false,
        };
        let near = map.replicas_of(primary).filter(|(_, node)| is_reader(node)).chain(own);
        let near = near.filter(|(_, node)| in_zone(node));
        Choice { near: by_share(policy, near), all: by_share(policy, all) }
    }
}

/// Whether a replica may be read, as other servers see it. They call one that works
/// "loading" until they have heard from it.
fn is_reader(node: &PlacedNode) -> bool {
    matches!(node.health, NodeHealth::Online | NodeHealth::Loading) && node.absent_since.is_none()
}

/// Each place as often as its share, in turns.
fn by_share<'n>(
    policy: &ReadPolicy,
    nodes: impl Iterator<Item = (u16, &'n PlacedNode)>,
) -> Vec<u16> {
    let weight = |endpoint: &Endpoint| {
        let given = policy.weights.iter().find(|(of, _)| of == endpoint);
        given.map_or(1, |&(_, weight)| weight.min(WEIGHT_MAX))
    };
    let weighed: Vec<(u16, u32)> =
        nodes.map(|(place, node)| (place, weight(&node.endpoint))).collect();
    let most = weighed.iter().map(|&(_, weight)| weight).max().unwrap_or(0);
    let round = |round: u32| weighed.iter().filter(move |&&(_, weight)| weight > round);
    (0..most).flat_map(round).map(|&(place, _)| place).collect()
}

impl ShardedState {
    /// Where a request to the server at `primary` goes; `links` are all of the worker's.
    fn reader(
        &mut self,
        links: &[LinkSlot],
        (primary, lane, listener): Whose,
        is_usable: impl Fn(u16) -> bool,
        now: Time,
    ) -> Reader {
        let Some(mut readers) = self.readers.take() else { return Reader::Primary };
        let link = |place| &links[self.link(place, lane, keyway_resp::Protocol::Resp2)];
        let is_fit = |place| is_usable(place) && !link(place).link.is_down(now);
        let reader =
            readers.of_mut(listener).pick(primary, is_fit, |place| link(place).latency_micros);
        self.readers = Some(readers);
        reader
    }
}

impl Plane {
    /// Whether a request may be answered by a replica; notes that it is a write.
    #[inline]
    pub(in super::super) fn reads_replicas(&self, asked: &mut Asked) -> bool {
        match &self.pools[usize::from(asked.session.pool)] {
            PoolState::Sharded(ShardedState { readers: Some(readers), .. }) => {
                may_read(readers, asked, self.clock.now)
            }
            _ => false,
        }
    }

    /// Notes that a session has sent what may write, by another way than other requests.
    #[inline]
    pub(in super::super) fn note_write(&self, session: &mut Session) {
        if let PoolState::Sharded(ShardedState { readers: Some(readers), .. }) =
            &self.pools[usize::from(session.pool)]
            && let Some(pin) = readers.policy.pin_after_write
        {
            session.identity.pin(self.clock.now + pin);
        }
    }

    /// Where a read goes that the server at `primary` would answer as well.
    pub(in super::super) fn reader_of(
        &mut self,
        links: &[LinkSlot],
        session: &Session,
        primary: u16,
    ) -> Reader {
        let (now, pool) = (self.clock.now, session.pool);
        let Plane { pools, plan, .. } = self;
        let PoolState::Sharded(state) = &mut pools[usize::from(pool)] else {
            return Reader::Primary;
        };
        let lag_max = state.readers.as_ref().and_then(|readers| readers.policy.lag_max);
        let shared = state.cluster.as_ref().map(|cluster| std::sync::Arc::clone(&cluster.shared));
        let is_usable = |place: u16| {
            let id = plan.topology.backend_id(usize::from(pool), usize::from(place));
            let is_near = |max: Duration| {
                let shared = shared.as_ref();
                place == primary || shared.is_none_or(|shared| shared.is_within(place, max))
            };
            plan.health.is_usable(id) && lag_max.is_none_or(is_near)
        };
        let whose = (primary, session.lane, listener_of(session));
        state.reader(links, whose, is_usable, now)
    }

    /// Tells a link what kind of server it is to be for the next request: one whose
    /// copies are read, or one that has the slot.
    pub(in super::super) fn set_reading(
        &mut self,
        links: &mut [LinkSlot],
        index: LinkIndex,
        reads: bool,
    ) {
        let slot = &mut links[index];
        let has_room = slot.link.has_room(self.link_options(slot.pool));
        if has_room && !slot.link.is_down(self.clock.now) && self.knows_modes(slot.pool) {
            slot.link.read_replica(reads, self.clock.now);
        }
    }

    /// Notes how long a server has taken, where the fastest is chosen.
    #[inline]
    pub(in super::super) fn note_latency(&self, slot: &mut LinkSlot) {
        /// What the past counts for: so many parts, and the present one.
        const PAST: u32 = 7;
        let PoolState::Sharded(ShardedState { readers: Some(readers), .. }) =
            &self.pools[usize::from(slot.pool)]
        else {
            return;
        };
        let chooses = readers.any(|from| *from == ReadFrom::Nearest);
        if let (true, Some(began)) = (chooses, slot.link.owes_since()) {
            let micros = self.clock.now.since(began).as_micros().min(1 << 24) as u32;
            slot.latency_micros = (slot.latency_micros * PAST + micros) / (PAST + 1);
        }
    }

    /// Whether replicas of a pool answer reads only when they are told to.
    fn knows_modes(&self, pool: u16) -> bool {
        self.cluster_state(pool).is_some_and(ClusterState::has_slots)
    }
}

/// The primary whose data is read, and for whom: a lane, and a listener.
type Whose = (u16, u32, u16);

/// The listener whose choice counts for a session: none for what others ask here.
fn listener_of(session: &Session) -> u16 {
    if session.relay.is_some() { u16::MAX } else { session.listener }
}

/// Whether the request of a session may be answered by a replica.
fn may_read(readers: &Readers, asked: &mut Asked, now: Time) -> bool {
    let Request { command, .. } = asked.request;
    if !command.flags.contains(Flags::READONLY) {
        if let Some(pin) = readers.policy.pin_after_write
            && command.flags.contains(Flags::WRITE)
        {
            asked.session.identity.pin(now + pin);
        }
        return false;
    }
    let readers = readers.of(listener_of(asked.session));
    if readers.policy.from == ReadFrom::Primary {
        return false;
    }
    // What is read under watch is to be what EXEC finds.
    let watches = asked.session.stateful.as_ref().is_some_and(|stateful| stateful.watch.is_some());
    // Cursors are about the table of one server.
    let is_walk = matches!(command.verb, Verb::Hscan | Verb::Sscan | Verb::Zscan);
    let is_for_primary = watches
        || is_walk
        || readers.policy.primary_commands.iter().any(|name| **name == *command.name);
    now >= asked.session.identity.reads_primary_until && !is_for_primary
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_topology::{Asked as AskedOf, ClusterPool, ClusterView, Discovery, ShardedPool};
    use std::collections::BTreeMap;

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::tcp("h", port).unwrap()
    }

    /// A cluster whose primary at port 1 has replicas at 2, 3 and 4.
    fn readers(reads: ReadPolicy) -> (Readers, BTreeMap<u16, u16>) {
        let settings = ClusterPool {
            seeds: vec![endpoint(1)],
            nodes_max: 8,
            discovery: Discovery::Slots,
            refresh: Duration::from_secs(1),
            redirections_max: 3,
            reads,
            primaries: Vec::new(),
            sentinels: None,
        };
        let cluster = Cluster::new(&ShardedPool::of_cluster(settings)).unwrap();
        let node = |port: u16| format!("*2\r\n$1\r\nh\r\n:{port}\r\n");
        let reply =
            format!("*1\r\n*6\r\n:0\r\n:16383\r\n{}{}{}{}", node(1), node(2), node(3), node(4));
        let view =
            ClusterView::from_slots(reply.as_bytes(), AskedOf::plainly(&endpoint(1))).unwrap();
        let map = cluster.learn(&view, Time(0)).unwrap().map;
        let place = |port| (port, map.place_of(&endpoint(port)).unwrap());
        let places = (1..=4).map(place).collect();
        (*Readers::new(&cluster, &map, std::iter::empty()).unwrap(), places)
    }

    fn spread(
        readers: &mut Readers,
        primary: u16,
        is_fit: impl Fn(u16) -> bool,
    ) -> BTreeMap<u16, u32> {
        let mut counts = BTreeMap::new();
        for _ in 0..600 {
            let place = match readers.pick(primary, &is_fit, |_| 0) {
                Reader::Primary => primary,
                Reader::At(place) => place,
                Reader::None => u16::MAX,
            };
            *counts.entry(place).or_default() += 1;
        }
        counts
    }

    #[test]
    fn replicas_take_turns_by_their_shares() {
        let weights = vec![(endpoint(2), 2), (endpoint(4), 0)];
        let from = ReadFrom::PreferReplica;
        let (mut readers, at) = readers(ReadPolicy { from, weights, ..ReadPolicy::default() });
        let counts = spread(&mut readers, at[&1], |_| true);
        assert_eq!(counts, BTreeMap::from([(at[&2], 400), (at[&3], 200)]));
        let counts = spread(&mut readers, at[&1], |place| place != at[&2]);
        assert_eq!(counts, BTreeMap::from([(at[&3], 600)]));
    }

    #[test]
    fn without_a_replica_the_primary_is_read_or_nobody() {
        for (from, expected) in
            [(ReadFrom::PreferReplica, None), (ReadFrom::Replica, Some(u16::MAX))]
        {
            let (mut readers, at) = readers(ReadPolicy { from, ..ReadPolicy::default() });
            let counts = spread(&mut readers, at[&1], |place| place == at[&1]);
            let expected = expected.unwrap_or(at[&1]);
            assert_eq!(counts, BTreeMap::from([(expected, 600)]));
        }
    }

    #[test]
    fn the_fastest_is_read_and_the_others_are_tried_now_and_then() {
        let from = ReadFrom::Nearest;
        let (mut readers, at) = readers(ReadPolicy { from, ..ReadPolicy::default() });
        let latency = |place: u16| if place == at[&3] { 10 } else { 500 };
        let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
        for _ in 0..6400 {
            let place = match readers.pick(at[&1], |_| true, latency) {
                Reader::At(place) => place,
                _ => at[&1],
            };
            *counts.entry(place).or_default() += 1;
        }
        assert!(counts[&at[&3]] >= 6300);
        assert_eq!(counts.values().sum::<u32>(), 6400);
    }
}
