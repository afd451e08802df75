mod libmemcached;
mod maglev;
mod mix;
mod pecl;
mod points;
mod rendezvous;

use crate::hash::md5_digest_words;
use crate::{Distribution, Hash, SLOT_COUNT, Server, SlotMap, SlotOwners};
use maglev::Table;
use pecl::Buckets;
use points::{Point, Points};
use rendezvous::Rendezvous;
use std::sync::Arc;

/// The servers of a pool that take requests, arranged for lookup by hash.
/// Built anew whenever a server is ejected or rejoins.
///
/// Servers are identified by their index in the slice from which the ring was built, whether they
/// are live or not. For the distributions of libmemcached and PHP's memcache, the order of that
/// slice decides where a key goes, because their clients keep their list's order. Otherwise the
/// ring orders servers by [`Server::ring_name`], shorter ones first, as twemproxy does. With no
/// live server, no server is picked: as in twemproxy, requests are then refused rather than sent to
/// an ejected server.
#[derive(Clone, Debug)]
pub struct Ring {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Empty,
    Ketama(Points),
    Modula(Shares),
    /// The modulo of libmemcached: one remainder for each server.
    Evenly(Vec<u16>),
    PhpStandard(Shares),
    PhpConsistent(Buckets),
    Rendezvous(Rendezvous),
    Maglev(Table),
    Random(Vec<u16>),
    /// The slots of a cluster: the hash is reduced to a slot.
    Slots(Arc<SlotOwners>),
    /// Primaries that are discovered: the ring over their names, and the index of each.
    Primaries(Arc<Ring>, Arc<[u16]>),
    /// Groups that share slots: the group of each slot, and the index of each group's primary.
    Groups(Arc<SlotMap>, Arc<[u16]>),
}

impl Ring {
    /// Builds the ring of those `servers` for which `live` holds. `hash` is the function whose
    /// results will be looked up; some distributions hash servers with it.
    ///
    /// # Panics
    /// Panics with more than 65,535 servers. The configuration bounds them, and bounds the sum of
    /// weights too ([`Distribution::weight_sum_max`]).
    pub fn build(
        distribution: Distribution,
        hash: Hash,
        servers: &[Server],
        live: impl Fn(usize) -> bool,
    ) -> Ring {
        assert!(servers.len() <= usize::from(u16::MAX), "more servers than an index can name");
        let mut members: Vec<u16> = (0..servers.len() as u16).filter(|&i| live(i.into())).collect();
        if !distribution.keeps_the_order_listed() {
            members.sort_by_cached_key(|&member| {
                let name = servers[usize::from(member)].ring_name();
                (name.len(), name)
            });
        }
        let kind = match distribution {
            _ if members.is_empty() => Kind::Empty,
            Distribution::Ketama => Kind::Ketama(Points::new(place_points(servers, &members))),
            Distribution::KetamaLibmemcached | Distribution::KetamaWeightedLibmemcached => {
                Kind::Ketama(libmemcached::continuum(distribution, hash, servers, &members))
            }
            Distribution::Modula => Kind::Modula(Shares::build(servers, &members)),
            Distribution::ModulaLibmemcached => Kind::Evenly(members),
            Distribution::PhpMemcacheStandard => {
                Kind::PhpStandard(Shares::build(servers, &members))
            }
            Distribution::PhpMemcacheConsistent => {
                Kind::PhpConsistent(Buckets::build(hash, servers, &members))
            }
            Distribution::Rendezvous => Kind::Rendezvous(Rendezvous::build(servers, &members)),
            Distribution::Maglev => Kind::Maglev(Table::build(servers, &members)),
            Distribution::Random => Kind::Random(members),
        };
        Ring { kind }
    }

    /// Creates the ring of a cluster, in which each slot has the owner that the cluster tells.
    pub fn of_slots(owners: Arc<SlotOwners>) -> Ring {
        Ring { kind: Kind::Slots(owners) }
    }

    /// Creates a ring of names. `indices` holds the index of the server that each name stands for,
    /// or [`SlotOwners::NONE`].
    pub fn of_primaries(names: Arc<Ring>, indices: Arc<[u16]>) -> Ring {
        Ring { kind: Kind::Primaries(names, indices) }
    }

    /// Creates the ring of groups that share slots. `primaries` holds the index of the primary of
    /// each group, or [`SlotOwners::NONE`].
    pub fn of_groups(map: Arc<SlotMap>, primaries: Arc<[u16]>) -> Ring {
        Ring { kind: Kind::Groups(map, primaries) }
    }

    /// Returns the index of the server for a key with this `hash`; `None` if no server is live.
    /// `random` is a fresh number of uniform distribution. Only [`Distribution::Random`] uses it.
    #[inline]
    pub fn pick(&self, hash: u32, random: u32) -> Option<u16> {
        match &self.kind {
            Kind::Empty => None,
            Kind::Ketama(points) => Some(points.pick(hash)),
            Kind::Modula(shares) => Some(shares.pick(hash)),
            Kind::Evenly(members) => Some(members[hash as usize % members.len()]),
            Kind::PhpStandard(shares) => Some(shares.pick(pecl::standard_hash(hash))),
            Kind::PhpConsistent(buckets) => Some(buckets.pick(hash)),
            Kind::Rendezvous(rendezvous) => Some(rendezvous.pick(hash)),
            Kind::Maglev(table) => Some(table.pick(hash)),
            Kind::Random(members) => {
                let chosen = (u64::from(random) * members.len() as u64) >> 32;
                Some(members[chosen as usize])
            }
            Kind::Primaries(names, indices) => pick_primary(names, indices, hash, random),
            Kind::Groups(map, primaries) => {
                primary_of_slot(map, primaries, map.space().slot_of_hash(hash))
            }
            Kind::Slots(owners) => owners.of((hash as usize % SLOT_COUNT) as u16),
        }
    }

    /// Returns the number of the named primary to which a key with this hash belongs, wherever that
    /// primary is now. Returns `None` if the servers have no such names.
    pub fn primary_of(&self, hash: u32, random: u32) -> Option<u16> {
        match &self.kind {
            Kind::Primaries(names, _) => names.pick(hash, random),
            _ => None,
        }
    }

    /// Returns the slot of a key with this hash, if keys of one request must share a slot. Servers
    /// of a Redis Cluster see to that themselves.
    #[inline]
    pub fn slot_of(&self, hash: u32) -> Option<u16> {
        match &self.kind {
            Kind::Groups(map, _) => Some(map.space().slot_of_hash(hash)),
            _ => None,
        }
    }

    /// Returns the index of the server that has a slot now, if keys have slots and the server is
    /// known.
    pub fn server_of_slot(&self, slot: u16) -> Option<u16> {
        match &self.kind {
            Kind::Groups(map, primaries) => primary_of_slot(map, primaries, slot),
            Kind::Slots(owners) => owners.of(slot),
            _ => None,
        }
    }

    /// Returns whether no server is live.
    pub fn is_empty(&self) -> bool {
        matches!(self.kind, Kind::Empty)
    }
}

/// Picks a named primary. It is a function of its own, so that [`Ring::pick`] can be inlined.
#[inline(never)]
fn pick_primary(names: &Ring, indices: &[u16], hash: u32, random: u32) -> Option<u16> {
    let index = indices.get(usize::from(names.pick(hash, random)?)).copied();
    index.filter(|&index| index != SlotOwners::NONE)
}

/// Returns the index of the primary of a slot's group.
#[inline]
fn primary_of_slot(map: &SlotMap, primaries: &[u16], slot: u16) -> Option<u16> {
    let index = primaries.get(usize::from(map.group_of(slot)?)).copied();
    index.filter(|&index| index != SlotOwners::NONE)
}

/// Points of the average server. A server of twice the weight gets twice as many.
const POINTS_PER_SERVER: u32 = 160;
/// Points made from one MD5 digest.
const POINTS_PER_DIGEST: u32 = 4;
/// Size of a point's text in twemproxy: 273 bytes, the last of which is a NUL.
const POINT_NAME_LEN_MAX: usize = 272;

/// Returns the points of every member on twemproxy's continuum, in the order of the members.
fn place_points(servers: &[Server], members: &[u16]) -> Vec<Point> {
    let weight = |&member: &u16| servers[usize::from(member)].weight;
    let total_weight = members.iter().map(|member| u64::from(weight(member))).sum();
    let mut points = Vec::new();
    for &server in members {
        let ring_name = servers[usize::from(server)].ring_name();
        for digest in 0..digests_of_share(weight(&server), total_weight, members.len()) {
            let name = format!("{ring_name}-{digest}");
            let name = &name.as_bytes()[..name.len().min(POINT_NAME_LEN_MAX)];
            points.extend(md5_digest_words(name).map(|value| Point { value, server }));
        }
    }
    if points.is_empty() {
        points.extend(members.iter().map(|&server| Point { value: 0, server }));
    }
    points
}

/// Returns the number of digests whose points a server of `weight` gets. The rounding is part of
/// the placement: single precision throughout, except for one addition in double precision.
fn digests_of_share(weight: u32, total_weight: u64, live_count: usize) -> u32 {
    let share = weight as f32 / total_weight as f32;
    let digests = share * POINTS_PER_SERVER as f32 / POINTS_PER_DIGEST as f32 * live_count as f32;
    (f64::from(digests) + 0.000_000_000_1) as f32 as u32
}

/// The hash modulo the sum of the weights. Each server owns as many consecutive remainders as its
/// weight.
#[derive(Clone, Debug)]
struct Shares {
    /// For each member, one past its last remainder, and the member.
    ends: Vec<(u64, u16)>,
    total: u64,
}

impl Shares {
    fn build(servers: &[Server], members: &[u16]) -> Shares {
        let mut total = 0;
        let ends = members
            .iter()
            .map(|&member| {
                total += u64::from(servers[usize::from(member)].weight);
                (total, member)
            })
            .collect();
        Shares { ends, total }
    }

    #[inline]
    fn pick(&self, hash: u32) -> u16 {
        let remainder = u64::from(hash) % self.total;
        self.ends[self.ends.partition_point(|&(end, _)| end <= remainder)].1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds a ring with the default hash of the distribution.
    fn build(distribution: Distribution, servers: &[Server], live: impl Fn(usize) -> bool) -> Ring {
        Ring::build(distribution, distribution.default_hash(), servers, live)
    }

    fn servers(texts: &[&str]) -> Vec<Server> {
        texts.iter().map(|text| Server::parse(text).unwrap()).collect()
    }

    /// Returns the live servers by name, in twemproxy's order of strings: the shorter one is less,
    /// and bytes decide between names of one length.
    fn reference_members(servers: &[Server], live: &[bool]) -> Vec<usize> {
        let mut members: Vec<usize> = (0..servers.len()).filter(|&index| live[index]).collect();
        members.sort_by(|&a, &b| {
            let (a, b) = (servers[a].ring_name(), servers[b].ring_name());
            a.len().cmp(&b.len()).then(a.as_bytes().cmp(b.as_bytes()))
        });
        members
    }

    /// Follows twemproxy's procedure step by step: all points are in one sorted list, and the first
    /// that is not below the hash is taken, else the first of all.
    fn reference_ketama(servers: &[Server], live: &[bool], hash: u32) -> Option<u16> {
        let members = reference_members(servers, live);
        let total_weight: u32 = members.iter().map(|&index| servers[index].weight).sum();
        let mut continuum = Vec::new();
        for &index in &members {
            let share = servers[index].weight as f32 / total_weight as f32;
            let exact = share * 160f32 / 4f32 * members.len() as f32;
            let digests = ((f64::from(exact) + 0.0000000001) as f32).floor() as u32;
            for digest in 0..digests {
                let name = format!("{}-{digest}", servers[index].ring_name());
                for value in md5_digest_words(name.as_bytes()) {
                    continuum.push((value, index as u16));
                }
            }
        }
        continuum.sort_by_key(|&(value, _)| value);
        let found = continuum.iter().find(|&&(value, _)| value >= hash).or(continuum.first());
        found.map(|&(_, server)| server)
    }

    /// Makes a list with one entry for each unit of weight.
    fn reference_modula(servers: &[Server], live: &[bool], hash: u32) -> Option<u16> {
        let members: Vec<u16> = reference_members(servers, live)
            .into_iter()
            .flat_map(|index| vec![index as u16; servers[index].weight as usize])
            .collect();
        (!members.is_empty()).then(|| members[hash as usize % members.len()])
    }

    fn pools() -> impl Strategy<Value = (Vec<Server>, Vec<bool>)> {
        let server = ("[a-z]{1,3}", any::<u16>(), prop_oneof![Just(1u32), 1u32..50], any::<bool>());
        prop::collection::vec(server, 1..12).prop_map(|rows| {
            let make = |(position, (host, port, weight, _)): (usize, &(String, u16, u32, bool))| {
                let port = if port % 7 == 0 { 11211 } else { port | 1 };
                Server::parse(&format!("{host}{position}:{port}:{weight}")).unwrap()
            };
            let servers = rows.iter().enumerate().map(make).collect();
            (servers, rows.iter().map(|row| row.3).collect())
        })
    }

    #[test]
    fn a_ring_of_primaries_tells_the_name_and_where_it_is() {
        let names =
            Arc::new(build(Distribution::Ketama, &servers(&["a:1", "b:1", "c:1"]), |_| true));
        // The second name has no server, and the third is not listed.
        let indices: Arc<[u16]> = [7, SlotOwners::NONE].into();
        let ring = Ring::of_primaries(Arc::clone(&names), Arc::clone(&indices));
        let mut seen = [false; 3];
        for hash in (0..u32::MAX).step_by(40_000_009) {
            let name = names.pick(hash, 0).unwrap();
            seen[usize::from(name)] = true;
            assert_eq!(ring.primary_of(hash, 0), Some(name));
            assert_eq!(ring.pick(hash, 0), (name == 0).then_some(7));
            assert_eq!(names.primary_of(hash, 0), None, "its servers have no such names");
        }
        assert_eq!(seen, [true; 3]);
    }

    #[test]
    fn a_ring_of_slots_takes_any_hash() {
        let mut owners = SlotOwners::new();
        (0..SLOT_COUNT as u16).for_each(|slot| owners.set(slot, Some(slot / 100)));
        let ring = Ring::of_slots(Arc::new(owners));
        for hash in (0..u32::MAX).step_by(40_000_009) {
            assert_eq!(ring.pick(hash, 0), Some((hash % SLOT_COUNT as u32) as u16 / 100));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn lookup_agrees_with_the_plain_procedure(
            (servers, live) in pools(),
            hashes in prop::collection::vec(any::<u32>(), 20),
        ) {
            let ketama = build(Distribution::Ketama, &servers, |index| live[index]);
            let modula = build(Distribution::Modula, &servers, |index| live[index]);
            let mut hashes = hashes;
            hashes.extend([0, 1, u32::MAX - 1, u32::MAX]);
            if let Kind::Ketama(points) = &ketama.kind {
                // Hashes on a point, and next to it.
                for point in points.all().iter().step_by(37) {
                    let value = point.value;
                    hashes.extend([value.wrapping_sub(1), value, value.wrapping_add(1)]);
                }
            }
            for hash in hashes {
                let expected = reference_ketama(&servers, &live, hash);
                prop_assert_eq!(ketama.pick(hash, 0), expected);
                prop_assert_eq!(modula.pick(hash, 0), reference_modula(&servers, &live, hash));
            }
        }

        #[test]
        fn no_distribution_picks_a_server_that_is_not_live(
            (servers, live) in pools(),
            hash in any::<u32>(),
            random in any::<u32>(),
        ) {
            for distribution in Distribution::ALL {
                let ring = build(distribution, &servers, |index| live[index]);
                prop_assert_eq!(ring.is_empty(), !live.contains(&true));
                match ring.pick(hash, random) {
                    Some(index) => prop_assert!(live[usize::from(index)]),
                    None => prop_assert!(ring.is_empty()),
                }
            }
        }
    }

    #[test]
    fn order_of_the_list_moves_no_key() {
        let one = servers(&["a:1:2 beta", "b:1:3 d", "c:1:1 alpha"]);
        let other = servers(&["b:1:3 d", "c:1:1 alpha", "a:1:2 beta"]);
        for distribution in [Distribution::Ketama, Distribution::Modula] {
            let one_ring = build(distribution, &one, |_| true);
            let other_ring = build(distribution, &other, |_| true);
            for hash in (0..u32::MAX).step_by(65_537) {
                let one_server = &one[usize::from(one_ring.pick(hash, 0).unwrap())];
                let other_server = &other[usize::from(other_ring.pick(hash, 0).unwrap())];
                assert_eq!(one_server, other_server);
            }
        }
        let modula = build(Distribution::Modula, &one, |_| true);
        let picks: Vec<_> = (0..6).map(|hash| modula.pick(hash, 0).unwrap()).collect();
        assert_eq!(picks, [1, 1, 1, 0, 0, 2]);
    }

    #[test]
    fn pool_of_one_server_always_picks_it_or_nothing() {
        let one = servers(&["10.0.0.1:6379:5"]);
        for distribution in Distribution::ALL {
            let ring = build(distribution, &one, |_| true);
            for hash in [0, 1, 12345, u32::MAX] {
                assert_eq!(ring.pick(hash, hash), Some(0));
            }
            assert_eq!(build(distribution, &one, |_| false).pick(0, 0), None);
        }
    }

    #[test]
    fn ketama_moves_only_the_keys_of_the_server_that_left() {
        let five = servers(&["a:1", "b:1", "c:1", "d:1", "e:1"]);
        let all = build(Distribution::Ketama, &five, |_| true);
        let without = build(Distribution::Ketama, &five, |index| index != 2);
        for hash in (0..u32::MAX).step_by(65_537) {
            let before = all.pick(hash, 0).unwrap();
            if before != 2 {
                assert_eq!(without.pick(hash, 0), Some(before));
            }
        }
    }

    #[test]
    fn equal_points_belong_to_the_server_listed_first() {
        let twins = servers(&["a:1:1 same", "b:1:1 same"]);
        let ring = build(Distribution::Ketama, &twins, |_| true);
        for hash in (0..u32::MAX).step_by(65_537) {
            assert_eq!(ring.pick(hash, 0), Some(0));
        }
    }

    #[test]
    fn random_spreads_evenly_and_ignores_weights() {
        let four = servers(&["a:1:1", "b:1:50", "c:1:1", "d:1:1"]);
        let ring = build(Distribution::Random, &four, |index| index != 3);
        let mut counts = [0u32; 4];
        let mut state = 1u64;
        for _ in 0..30_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            counts[usize::from(ring.pick(7, (state >> 32) as u32).unwrap())] += 1;
        }
        assert_eq!(counts[3], 0);
        for count in &counts[..3] {
            assert!((9_700..10_300).contains(count), "{counts:?}");
        }
    }

    #[test]
    fn huge_weights_cost_neither_time_nor_memory() {
        let huge = servers(&["a:1:2147483647", "b:1:2147483647", "c:1:2147483647", "d:1:1"]);
        for distribution in Distribution::ALL {
            if distribution.weight_sum_max().is_some() {
                continue;
            }
            let ring = build(distribution, &huge, |_| true);
            if let Kind::Ketama(points) = &ring.kind {
                assert!(points.all().len() <= 4 * 160 + 1);
            }
            assert!(ring.pick(u32::MAX, 0).is_some());
        }
        let modula = build(Distribution::Modula, &huge, |_| true);
        assert_eq!(modula.pick(2_147_483_646, 0), Some(0));
        assert_eq!(modula.pick(2_147_483_647, 0), Some(1));
        assert_eq!(modula.pick(u32::MAX, 0), Some(2));
    }
}
