//! Shards without replicas, in pools that have replicas: if their primary fails as well, their keys
//! cannot be served. Such a shard has lost its replicas, or never had any while others had. In a
//! pool without any replica no shard counts.

use keyway_base::Time;
use keyway_topology::{ClusterMap, Endpoint, KnownNode, KnownRole, NodeHealth, SLOT_COUNT};
use std::collections::BTreeMap;
use std::time::Duration;

/// A shard counts if it has had no replica for this time, and an answer from after that time
/// agrees. Servers do not report a replica while it copies its primary, for example if it was a
/// primary a moment ago. Without an answer the shard counts after twice the time. If the time were
/// shorter, every planned fail-over would be reported. If it were longer, a replica that died would
/// be reported later.
const GRACE: Duration = Duration::from_secs(5);

/// Largest number of primaries that [`Redundancy::expect_replicas`] remembers until they are seen:
/// as many as a cluster may have servers. With more, a foreign process could fill the memory.
const EXPECTED_MAX: usize = SLOT_COUNT;

/// The replicas that one pool is known to have. Slots are remembered, and not servers: after a
/// fail-over the shard has another primary.
#[derive(Debug)]
pub(crate) struct Redundancy {
    /// Version of the map that was last checked.
    version: Option<u64>,
    /// Slots that had a replica. In a pool that is no cluster: primaries, by their number.
    had: Box<[bool]>,
    /// Primaries that have not been seen yet, whose shards had a replica in the previous process.
    expected: Vec<Endpoint>,
    /// Primaries, by index, that have no replicas although others have, or although they had some.
    lost: BTreeMap<u16, Lost>,
}

#[derive(Clone, Copy, Debug)]
struct Lost {
    tenure: u64,
    since: Time,
    /// True if the shard had a replica.
    had: bool,
    /// True if the servers were asked once more since then, before it is reported.
    is_doubted: bool,
    is_told: bool,
}

/// Changes of the shards since the last check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Shards to report. Each change is returned once.
    pub(crate) changes: Vec<ShardChange>,
    /// True if the servers must be asked now: a shard is about to be reported because of an answer
    /// from before its time was up.
    pub(crate) asks_again: bool,
}

/// A shard to report, which has lost or regained its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardChange {
    /// Its primary.
    pub(crate) primary: String,
    /// True if it had a replica before.
    pub(crate) had: bool,
    /// True if it has a replica now.
    pub(crate) is_redundant: bool,
}

impl Redundancy {
    pub(crate) fn new(primaries: usize) -> Redundancy {
        let count = if primaries > 0 { primaries } else { SLOT_COUNT };
        let had = vec![false; count].into();
        Redundancy { version: None, had, expected: Vec::new(), lost: BTreeMap::new() }
    }

    /// Notes that the shard of the primary at this address had a replica, as the previous process
    /// knew.
    pub(crate) fn expect_replicas(&mut self, primary: Endpoint) {
        if self.expected.len() < EXPECTED_MAX {
            self.expected.push(primary);
            self.version = None;
        }
    }

    /// Returns the primaries of the shards that have lost their replicas, reported or not.
    pub(super) fn lost_primaries(&self, map: &ClusterMap) -> Vec<Endpoint> {
        let primary = |(&server, lost): (&u16, &Lost)| {
            let node = map.node(usize::from(server))?;
            (lost.had && node.tenure == lost.tenure).then(|| node.endpoint.clone())
        };
        let seen = self.lost.iter().filter_map(primary);
        seen.chain(self.expected.iter().cloned()).collect()
    }

    /// Takes over which shards had a replica. The next check finds the lost ones.
    pub(crate) fn inherit(&mut self, old: &Redundancy) {
        if self.had.len() == old.had.len() {
            self.had.copy_from_slice(&old.had);
            self.expected.clone_from(&old.expected);
        }
    }

    /// Checks the map at `now`. The servers answered last at `heard`.
    pub(crate) fn follow(&mut self, map: &ClusterMap, heard: Time, now: Time) -> Followed {
        let mut followed = Followed::default();
        if self.version != Some(map.version()) {
            self.version = Some(map.version());
            self.look(map, now, &mut followed.changes);
        }
        for (server, lost) in self.lost.iter_mut().filter(|(_, lost)| !lost.is_told) {
            let due = lost.since + GRACE;
            if due <= heard || due + GRACE <= now {
                lost.is_told = true;
                followed.changes.extend(change(map, *server, lost.had, false));
            } else if due <= now && !lost.is_doubted {
                lost.is_doubted = true;
                followed.asks_again = true;
            }
        }
        followed
    }

    fn look(&mut self, map: &ClusterMap, now: Time, changes: &mut Vec<ShardChange>) {
        let count = map.index_count();
        let mut is_redundant = vec![false; count];
        for primary in map.nodes().filter_map(|(_, node)| primary_of_sound(node)) {
            is_redundant[usize::from(primary)] = true;
        }
        let shards = shards(map);
        for (server, keys) in &shards {
            let is_expected = self.take_expected(map, *server);
            for had in self.had.get_mut(keys.clone()).into_iter().flatten() {
                *had |= is_redundant[usize::from(*server)] || is_expected;
            }
        }
        let has_replicas = self.had.contains(&true);
        let mut had = vec![false; count];
        let mut is_lost = vec![false; count];
        for (server, keys) in shards {
            let server = usize::from(server);
            had[server] |= self.had.get(keys).is_some_and(|had| had.contains(&true));
            is_lost[server] = has_replicas && !is_redundant[server];
        }
        self.lost.retain(|&server, lost| {
            let node = map.node(usize::from(server));
            let is_same = node.is_some_and(|node| node.tenure == lost.tenure);
            let is_kept = is_same && is_lost[usize::from(server)];
            if is_same && !is_kept && lost.is_told && is_redundant[usize::from(server)] {
                changes.extend(change(map, server, lost.had, true));
            }
            is_kept
        });
        for (server, node) in map.nodes().filter(|(server, _)| is_lost[usize::from(*server)]) {
            let (tenure, had) = (node.tenure, had[usize::from(server)]);
            let lost = Lost { tenure, since: now, had, is_doubted: false, is_told: false };
            self.lost.entry(server).or_insert(lost).had |= had;
        }
    }

    /// Returns whether the previous process knew that the shard of the primary at an index had a
    /// replica.
    fn take_expected(&mut self, map: &ClusterMap, server: u16) -> bool {
        let Some(node) = map.node(usize::from(server)) else { return false };
        let before = self.expected.len();
        self.expected.retain(|expected| *expected != node.endpoint);
        self.expected.len() < before
    }

    /// Returns whether the server at an index is the primary of a shard that is reported as one
    /// without replicas.
    pub(crate) fn is_lost(&self, server: usize, tenure: u64) -> bool {
        let lost = u16::try_from(server).ok().and_then(|server| self.lost.get(&server));
        lost.is_some_and(|lost| lost.is_told && lost.tenure == tenure)
    }

    /// Returns the number of such shards.
    pub(super) fn lost_count(&self) -> usize {
        self.lost.values().filter(|lost| lost.is_told).count()
    }
}

fn change(map: &ClusterMap, server: u16, had: bool, is_redundant: bool) -> Option<ShardChange> {
    let primary = map.node(usize::from(server))?.endpoint.to_string();
    Some(ShardChange { primary, had, is_redundant })
}

/// Returns the slots of each primary, by its index, or the number of each primary that a pool
/// names.
fn shards(map: &ClusterMap) -> Vec<(u16, std::ops::RangeInclusive<usize>)> {
    if map.primaries().is_empty() {
        let ranges = map.owners().ranges();
        return ranges
            .map(|(first, last, server)| (server, usize::from(first)..=usize::from(last)))
            .collect();
    }
    let numbered = (0..map.primaries().len())
        .filter_map(|number| Some((map.primary(u16::try_from(number).ok()?)?, number..=number)));
    numbered.collect()
}

/// Returns the primary of a replica that is not known to have failed or left.
fn primary_of_sound(node: &KnownNode) -> Option<u16> {
    let is_lost =
        matches!(node.health, NodeHealth::Failed | NodeHealth::Handshake | NodeHealth::NoAddress);
    match node.role {
        KnownRole::Replica { of } if !is_lost && node.absent_since.is_none() => of,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_topology::{Applied, Endpoint, GroupView};

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::Tcp { host: "h".into(), port }
    }

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn told(
        map: ClusterMap,
        primary: u16,
        replicas: &[(u16, NodeHealth)],
        now: Time,
    ) -> ClusterMap {
        let replicas = replicas.iter().map(|&(port, health)| (endpoint(port), health)).collect();
        let told = GroupView { group: 0, primary: endpoint(primary), epoch: None, replicas };
        match map.apply_group(&told, now) {
            Applied::Next(next, _) => next,
            _ => map,
        }
    }

    /// Checks at a second at which the servers have just answered.
    fn follow(redundancy: &mut Redundancy, map: &ClusterMap, second: u64) -> Vec<ShardChange> {
        let followed = redundancy.follow(map, at(second), at(second));
        assert!(!followed.asks_again);
        followed.changes
    }

    #[test]
    fn a_shard_is_lost_when_its_last_replica_is_and_only_if_it_had_one() {
        let seeds = [1, 2, 3].map(endpoint);
        let mut redundancy = Redundancy::new(1);
        let map = told(ClusterMap::of_seeds(&seeds, 8, 1), 1, &[], at(0));
        assert!(follow(&mut redundancy, &map, 0).is_empty());
        assert!(follow(&mut redundancy, &map, 60).is_empty(), "it never had one");
        let online = NodeHealth::Online;
        let map = told(map, 1, &[(2, online), (3, NodeHealth::Failed)], at(61));
        assert!(follow(&mut redundancy, &map, 61).is_empty());
        let map = told(map, 1, &[(3, NodeHealth::Failed)], at(62));
        assert!(follow(&mut redundancy, &map, 62).is_empty() && redundancy.lost_count() == 0);
        let lost = ShardChange { primary: "h:1".into(), had: true, is_redundant: false };
        assert_eq!(follow(&mut redundancy, &map, 67), std::slice::from_ref(&lost));
        assert!(follow(&mut redundancy, &map, 68).is_empty(), "told once");
        assert_eq!(redundancy.lost_count(), 1);
        let server = map.index_of(&endpoint(1)).unwrap();
        let tenure = map.node(usize::from(server)).unwrap().tenure;
        assert!(redundancy.is_lost(usize::from(server), tenure));
        let map = told(map, 1, &[(3, online)], at(69));
        let regained = ShardChange { is_redundant: true, ..lost.clone() };
        assert_eq!(follow(&mut redundancy, &map, 69), [regained]);
        assert_eq!(redundancy.lost_count(), 0);
        // Its primary fails, and the replica takes over and is alone.
        let map = told(map, 3, &[(1, NodeHealth::Failed)], at(70));
        assert!(follow(&mut redundancy, &map, 70).is_empty());
        let lost = ShardChange { primary: "h:3".into(), had: true, is_redundant: false };
        assert_eq!(follow(&mut redundancy, &map, 75), [lost]);
    }

    #[test]
    fn a_shard_that_lost_its_replica_before_a_reload_is_told_after_it() {
        let seeds = [1, 2].map(endpoint);
        let mut before = Redundancy::new(1);
        let replica = [(2, NodeHealth::Online)];
        let map = told(ClusterMap::of_seeds(&seeds, 8, 1), 1, &replica, at(0));
        assert!(follow(&mut before, &map, 0).is_empty());
        let mut after = Redundancy::new(1);
        after.inherit(&before);
        let alone = told(ClusterMap::of_seeds(&seeds, 8, 1), 1, &[], at(1));
        assert!(follow(&mut after, &alone, 1).is_empty());
        assert_eq!(follow(&mut after, &alone, 6).len(), 1);
        assert_eq!(after.lost_count(), 1);
    }

    #[test]
    fn a_shard_that_lost_its_replica_before_an_upgrade_is_told_after_it() {
        let seeds = [1, 2].map(endpoint);
        let mut before = Redundancy::new(1);
        let replica = [(2, NodeHealth::Online)];
        let map = told(ClusterMap::of_seeds(&seeds, 8, 1), 1, &replica, at(0));
        assert!(follow(&mut before, &map, 0).is_empty());
        assert!(before.lost_primaries(&map).is_empty());
        let alone = told(map, 1, &[], at(1));
        assert!(follow(&mut before, &alone, 1).is_empty());
        assert_eq!(before.lost_primaries(&alone), [endpoint(1)], "also before it is told");
        let mut after = Redundancy::new(1);
        after.expect_replicas(endpoint(1));
        after.expect_replicas(endpoint(9));
        let map = told(ClusterMap::of_seeds(&seeds, 8, 1), 1, &[], at(1));
        assert!(follow(&mut after, &map, 1).is_empty());
        assert_eq!(follow(&mut after, &map, 6).len(), 1);
        // The next upgrade hands over what has not been seen yet as well.
        assert_eq!(after.lost_primaries(&map), [endpoint(1), endpoint(9)]);
    }

    /// Reports the second of two primaries.
    fn told_second(map: ClusterMap, primary: u16, replica: Option<u16>, now: Time) -> ClusterMap {
        let replicas = replica.map(|port| (endpoint(port), NodeHealth::Online));
        let replicas = replicas.into_iter().collect();
        let told = GroupView { group: 1, primary: endpoint(primary), epoch: None, replicas };
        match map.apply_group(&told, now) {
            Applied::Next(next, _) => next,
            _ => map,
        }
    }

    #[test]
    fn a_shard_that_never_had_a_replica_is_told_if_another_has_one() {
        let seeds = [1, 2].map(endpoint);
        let mut redundancy = Redundancy::new(2);
        let map = told(ClusterMap::of_seeds(&seeds, 8, 2), 1, &[], at(0));
        let map = told_second(map, 2, None, at(0));
        assert!(follow(&mut redundancy, &map, 0).is_empty());
        assert!(follow(&mut redundancy, &map, 60).is_empty(), "no shard has a replica");
        let map = told_second(map, 2, Some(3), at(61));
        assert!(follow(&mut redundancy, &map, 61).is_empty());
        let alone = ShardChange { primary: "h:1".into(), had: false, is_redundant: false };
        assert_eq!(follow(&mut redundancy, &map, 66), std::slice::from_ref(&alone));
        assert_eq!(redundancy.lost_count(), 1);
        assert!(redundancy.lost_primaries(&map).is_empty(), "the next process finds it by itself");
        let map = told(map, 1, &[(4, NodeHealth::Online)], at(70));
        let redundant = ShardChange { is_redundant: true, ..alone };
        assert_eq!(follow(&mut redundancy, &map, 70), [redundant]);
    }

    #[test]
    fn a_replica_that_is_left_out_for_a_moment_is_not_told() {
        let seeds = [1, 2].map(endpoint);
        let mut redundancy = Redundancy::new(1);
        let replica = [(2, NodeHealth::Online)];
        let map = told(ClusterMap::of_seeds(&seeds, 8, 1), 1, &replica, at(0));
        assert!(follow(&mut redundancy, &map, 0).is_empty());
        let map = told(map, 1, &[], at(1));
        assert!(follow(&mut redundancy, &map, 5).is_empty());
        let map = told(map, 1, &replica, at(6));
        assert!(follow(&mut redundancy, &map, 6).is_empty());
        assert!(follow(&mut redundancy, &map, 60).is_empty());
    }

    #[test]
    fn an_answer_from_before_its_time_was_up_does_not_make_a_shard_lost() {
        let seeds = [1, 2].map(endpoint);
        let mut redundancy = Redundancy::new(1);
        let replica = [(2, NodeHealth::Online)];
        let map = told(ClusterMap::of_seeds(&seeds, 8, 1), 1, &replica, at(0));
        assert!(follow(&mut redundancy, &map, 0).is_empty());
        let map = told(map, 1, &[], at(1));
        assert!(follow(&mut redundancy, &map, 1).is_empty());
        // The servers are asked once, and nothing is reported before they answer.
        let nothing = Followed::default();
        assert_eq!(redundancy.follow(&map, at(5), at(5)), nothing);
        assert_eq!(
            redundancy.follow(&map, at(5), at(6)),
            Followed { asks_again: true, ..Followed::default() }
        );
        assert_eq!(redundancy.follow(&map, at(5), at(7)), nothing);
        let back = told(map.clone(), 1, &replica, at(7));
        assert_eq!(redundancy.follow(&back, at(7), at(7)), nothing);
        // It leaves again, and no server answers any more.
        let gone = told(back, 1, &[], at(8));
        assert_eq!(redundancy.follow(&gone, at(8), at(8)), nothing);
        assert!(redundancy.follow(&gone, at(8), at(13)).asks_again);
        assert_eq!(redundancy.follow(&gone, at(8), at(17)), nothing);
        let lost = ShardChange { primary: "h:1".into(), had: true, is_redundant: false };
        assert_eq!(redundancy.follow(&gone, at(8), at(18)).changes, [lost]);
    }
}
