//! A pool that is a cluster, and its events.

use super::*;
use crate::cluster::{EventKind, Member};
use keyway_topology::{
    ClusterPool, Discovery, Endpoint, HedgeAfter, HedgePolicy, ReadFrom, ReadPolicy, SlotQuery,
};

/// Events that operators of a cluster cause, and that harm no client.
const ORDERLY: [EventKind; 9] = [
    EventKind::Move,
    EventKind::Move,
    EventKind::Move,
    EventKind::Move,
    EventKind::Storm,
    EventKind::Switch,
    EventKind::Switch,
    EventKind::Join,
    EventKind::Leave,
];

/// Failures in a cluster.
const WILD: [EventKind; 5] =
    [EventKind::Die, EventKind::Die, EventKind::Usurp, EventKind::Mislead, EventKind::Storm];

/// How long after the start of the last event all events are over.
pub(super) const EVENTS_LAST: Nanos = 5 * SECOND;

/// Draws the pool and its events.
pub(super) fn cluster(random: &mut Random, calm: bool, options: &Options) -> (Pool, ClusterPlan) {
    let primaries = random.between(2, 5) as u16;
    let copies = random.between(0, 2) as u16;
    let spares = random.between(1, 3) as u16;
    let members = members(primaries, copies, spares);
    let nowhere = format!(".{}:7000", members.len() - 1);
    let seeds = seeds(random, &members, primaries + primaries * copies);
    let nodes_max = match random.percent(10) {
        // A server that joins has no index, and its slots have none to serve them.
        true => primaries + primaries * copies,
        false => members.len() as u16 + random.between(1, 8) as u16,
    };
    let reads = reads(random, copies > 0);
    let is_bounded = reads.hedge.is_some() && random.percent(30);
    let query = random.pick(&[SlotQuery::Slots, SlotQuery::Shards, SlotQuery::Nodes]);
    let settings = Discovery {
        seeds,
        nodes_max,
        refresh: Duration::from_millis(random.scaled(200, 4000)),
        redirections_max: random.between(6, 16) as u8,
        retry_percent: is_bounded.then_some(20),
        wait_for_primary: wait_for_primary(random),
        reads,
    };
    // The index that a seed took which is no member belongs to no server for a while.
    let is_nowhere = |seed: &Endpoint| seed.to_string().ends_with(&nowhere);
    let lost = settings.seeds.iter().filter(|seed| is_nowhere(seed)).count();
    let refresh = nanos(settings.refresh);
    let mut drawn = sharded(random, 0, calm, options);
    drawn.options.ejection = None;
    (drawn.options.database, drawn.options.databases_allowed) = (0, 1);
    let mut pool = ClusterPool::new(query, settings);
    pool.servers.options = drawn.options;
    let indices = pool.servers.servers.len() - lost;
    let kind = PoolKind::Cluster(pool);
    let aftermath = aftermath(&kind) + refresh;
    let is_lossy = !calm && random.percent(70);
    let event = |random: &mut Random| {
        let kind = match is_lossy && random.percent(50) {
            true => random.pick(&WILD),
            false => random.pick(&ORDERLY),
        };
        (START + random.below(FAULTS_WITHIN), kind)
    };
    let events = (0..random.between(3, 30)).map(|_| event(random)).collect();
    let slowest = random.scaled(MILLI, 300 * MILLI);
    let plan = ClusterPlan {
        events,
        ends_at: START + FAULTS_WITHIN + EVENTS_LAST,
        gossip: (100 * MICRO, slowest),
        laggard: random
            .percent(30)
            .then(|| (random.below(u64::from(primaries)) as u16, 2 * SECOND)),
        lag: (50 * MICRO, random.scaled(MILLI, 300 * MILLI)),
        is_strict: random.percent(50),
        aftermath,
        indices,
        nodes_max,
        leaves_after: refresh + random.scaled(MILLI, SECOND),
        groups: 0,
        sentinels: 0,
        kills_clients: false,
        shares_slots: false,
        members,
    };
    (Pool { name: "pool0".to_owned(), kind }, plan)
}

/// Draws the longest wait of requests for a missing primary, if they wait.
pub(super) fn wait_for_primary(random: &mut Random) -> Option<Duration> {
    random.percent(40).then(|| Duration::from_millis(random.scaled(20, 3000)))
}

/// Creates the primaries, their copies, and the servers that are no members.
pub(super) fn members(primaries: u16, copies: u16, spares: u16) -> Vec<Member> {
    let count = primaries + primaries * copies;
    let member = |number: u16| Member {
        host: format!("10.7.0.{number}"),
        port: 7000,
        id: format!("{number:040x}"),
        is_member: number < count,
        replica_of: (number >= primaries && number < count)
            .then(|| (number - primaries) % primaries),
        has_failed: false,
        epoch: u64::from(number) + 1,
    };
    (0..count + spares + 1).map(member).collect()
}

/// Draws some of the members, and sometimes a server that does not exist.
fn seeds(random: &mut Random, members: &[Member], count: u16) -> Vec<Endpoint> {
    let mut numbers: Vec<usize> =
        (0..random.between(1, 3)).map(|_| random.index(usize::from(count))).collect();
    if random.percent(20) {
        numbers.insert(0, members.len() - 1);
    }
    numbers.sort_unstable();
    numbers.dedup();
    let endpoint = |number: usize| Endpoint::tcp(&members[number].host, members[number].port);
    numbers.into_iter().map(|number| endpoint(number).expect("an endpoint")).collect()
}

pub(super) fn reads(random: &mut Random, has_copies: bool) -> ReadPolicy {
    let from = match random.below(6) {
        0 if has_copies => ReadFrom::PreferReplica,
        1 if has_copies => ReadFrom::Nearest,
        2 if has_copies => ReadFrom::PreferReplica,
        _ => ReadFrom::Primary,
    };
    let reads = ReadPolicy {
        from,
        // Longer than the run, or not at all.
        pin_after_write: random.percent(50).then_some(Duration::from_secs(3600)),
        lag_max: random.percent(30).then_some(Duration::from_secs(2)),
        ..ReadPolicy::default()
    };
    let is_hedged = reads.from != ReadFrom::Primary && random.percent(60);
    ReadPolicy { hedge: is_hedged.then(|| hedge(random)), ..reads }
}

/// Draws when a read is sent to a second server.
fn hedge(random: &mut Random) -> HedgePolicy {
    let millis = |random: &mut Random, max| Duration::from_millis(random.scaled(1, max));
    let after = match random.percent(50) {
        true => HedgeAfter::Fixed(millis(random, 20)),
        false => {
            let (min, more) = (millis(random, 3), millis(random, 30));
            HedgeAfter::P99 { min, max: min + more }
        }
    };
    HedgePolicy { after, budget_percent: random.between(1, 100) as u8 }
}

impl Scenario {
    fn discovery(&self) -> Option<&Discovery> {
        self.topology.pools()[0].kind.discovery()
    }

    /// Returns the number of servers.
    pub fn server_count(&self) -> usize {
        let of_cluster = self.cluster.as_ref().map(|plan| plan.members.len() + plan.sentinels);
        of_cluster.unwrap_or_else(|| self.topology.backend_count())
    }

    /// Returns the pool of a server.
    pub(super) fn pool_of(&self, server: usize) -> Option<&Pool> {
        let pool = match &self.cluster {
            Some(plan) => &self.topology.pools()[usize::from(server >= plan.members.len())],
            None => self.topology.backend(self.topology.all_ids().nth(server)?)?.pool,
        };
        pool.kind.servers().map(|_| pool)
    }

    /// Restricts clients of a cluster to what it supports, and to what its copies can promise.
    pub(super) fn restrain_clients(&mut self) {
        let (Some(plan), Some(pool)) = (&self.cluster, self.discovery()) else { return };
        let staleness = match (&pool.reads.from, pool.reads.pin_after_write) {
            (ReadFrom::Primary, _) => Staleness::Never,
            (_, Some(_)) => Staleness::UntilWrite,
            (_, None) => Staleness::Always,
        };
        let loses = [EventKind::Die, EventKind::Usurp];
        let is_lossy = plan.events.iter().any(|(_, kind)| loses.contains(kind));
        for habits in self.clients.iter_mut().chain(&mut self.last_clients) {
            (habits.channels, habits.tracks) = (false, false);
            habits.requests *= 2;
            habits.lists = !is_lossy;
            habits.staleness = staleness;
        }
    }

    /// Returns how long after the last event and fault everything about the cluster is known.
    pub(super) fn cluster_recovery(&self) -> Nanos {
        self.discovery().map_or(0, |pool| nanos(pool.refresh) + SECOND)
    }

    /// Returns the number of requests that servers of a cluster may redirect to one link. The link
    /// accepts them although it is full: all that was in flight on the others.
    pub fn redirected_max(&self) -> usize {
        match &self.cluster {
            Some(plan) => plan.members.len() * 2,
            None => 0,
        }
    }
}
