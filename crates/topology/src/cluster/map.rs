use super::{ClusterNode, ClusterView, NodeHealth, NodeRole, SLOT_COUNT, SlotOwners};
use crate::Endpoint;
use keyway_base::Time;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a server keeps its index after the last view that lists it. Views leave out a replica
/// that still copies its primary, as a former primary does for a moment.
const ABSENCE: Duration = Duration::from_secs(30);

/// How long an index stays empty before another node may take it. Until then logs, metrics and late
/// replies that name the index mean the node that has left.
const VACANCY: Duration = Duration::from_secs(60);

/// The role of a server of a cluster, as this process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownRole {
    /// The server may be asked about the cluster. Its role is not known yet.
    Seed,
    /// The server takes writes for its slots, which may be none.
    Primary,
    /// The server copies a primary.
    Replica {
        /// The index of its primary, if that is known.
        of: Option<u16>,
    },
}

/// A server with its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    /// Its address, which identifies it.
    pub endpoint: Endpoint,
    /// Its identity in the cluster.
    pub id: Option<Box<str>>,
    /// Its role.
    pub role: KnownRole,
    /// Its health, as other nodes tell.
    pub health: NodeHealth,
    /// Its availability zone.
    pub zone: Option<Box<str>>,
    /// The version of the map in which it got its index.
    pub tenure: u64,
    /// Time since which no view lists it.
    pub absent_since: Option<Time>,
    /// The number of the primary whose data it has, in a pool that is not a cluster.
    pub group: Option<u16>,
}

/// The servers of a cluster and the owner of each slot. A server keeps its index as long as it
/// belongs to the cluster. A map is immutable: new knowledge makes the next version.
#[derive(Clone, Debug)]
pub struct ClusterMap {
    version: u64,
    nodes: Vec<Option<KnownNode>>,
    /// For each empty index, when it was left and by which server; `None` if no server ever had it.
    left: Vec<Option<(Time, Endpoint)>>,
    owners: Arc<SlotOwners>,
    /// The number of slots of each server, by its index. In a pool that is not a cluster, 1 for each primary.
    owned: Vec<u16>,
    /// The index of each primary, in a pool that is not a cluster.
    primaries: Arc<[u16]>,
    /// The latest epoch told for each primary.
    primary_epochs: Vec<Option<u64>>,
    /// Largest number of servers of a view that get an index. There may be more indices, so that
    /// leaving servers do not block new ones.
    nodes_max: usize,
    /// The latest epoch of a view.
    epoch: Option<u64>,
    is_known: bool,
    /// Slots whose owner is known but has no index, as ranges of a first and a last slot.
    slots_without_index: Arc<[(u16, u16)]>,
    /// For each primary of a pool that is not a cluster, whether it is known but has no index.
    primaries_without_index: Vec<bool>,
}

/// A named primary and its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The number of the primary in its pool.
    pub group: u16,
    /// The primary's address.
    pub primary: Endpoint,
    /// The epoch in which it became the primary, if that is told.
    pub epoch: Option<u64>,
    /// The addresses and the health of its replicas.
    pub replicas: Vec<(Endpoint, NodeHealth)>,
}

/// The result of applying a view.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, for a moment")]
pub enum Applied {
    /// The view tells nothing new.
    Same,
    /// The view is older than the map.
    Stale,
    /// The next version, and the servers that have no index in it.
    Next(ClusterMap, Vec<LeftOut>),
}

/// A server that got no index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its address.
    pub endpoint: Endpoint,
    /// True if it is a primary.
    pub is_primary: bool,
}

impl ClusterMap {
    /// Creates the map of a cluster of which only the seeds are known. It has room for `indices_max`
    /// servers, or for as many as there are seeds. `primaries` is the number of primaries of a pool that is not
    /// a cluster.
    pub fn of_seeds(seeds: &[Endpoint], indices_max: u16, primaries: usize) -> ClusterMap {
        let count = usize::from(indices_max).max(seeds.len()).min(usize::from(SlotOwners::NONE));
        let mut map = ClusterMap {
            version: 0,
            nodes: vec![None; count],
            left: vec![None; count],
            owners: Arc::new(SlotOwners::new()),
            owned: vec![0; count],
            primaries: vec![SlotOwners::NONE; primaries].into(),
            primary_epochs: vec![None; primaries],
            nodes_max: count,
            epoch: None,
            is_known: false,
            slots_without_index: Arc::new([]),
            primaries_without_index: vec![false; primaries],
        };
        map.add_seeds(seeds, Time(0));
        map
    }

    /// Returns the same map, in which at most `nodes_max` servers have indices. Seeds are exempt as
    /// long as no other server is known.
    #[must_use]
    pub fn of_nodes(mut self, nodes_max: u16) -> ClusterMap {
        self.nodes_max = usize::from(nodes_max).min(self.nodes.len());
        self
    }

    /// Returns the version, counted from 0.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns whether a server has told the owners of the slots.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns the owner of each slot, as an index.
    pub fn owners(&self) -> &Arc<SlotOwners> {
        &self.owners
    }

    /// Returns the index of each primary, in a pool that is not a cluster.
    pub fn primaries(&self) -> &Arc<[u16]> {
        &self.primaries
    }

    /// Returns the index of the primary with this number; `None` while it is not known.
    pub fn primary(&self, number: u16) -> Option<u16> {
        let index = self.primaries.get(usize::from(number)).copied();
        index.filter(|&index| index != SlotOwners::NONE)
    }

    /// Returns the number of slots whose owner has no index. In a pool that is not a cluster,
    /// returns the number of primaries without an index.
    pub fn count_without_index(&self) -> usize {
        let primaries = self.primaries_without_index.iter().filter(|lacks| **lacks).count();
        let slots = |&(first, last): &(u16, u16)| usize::from(last - first) + 1;
        self.slots_without_index.iter().map(slots).sum::<usize>() + primaries
    }

    /// Returns whether the owner of a slot is known but has no index.
    pub fn owner_lacks_index(&self, slot: u16) -> bool {
        let of = |&(first, last): &(u16, u16)| (first..=last).contains(&slot);
        self.owners.of(slot).is_none() && self.slots_without_index.iter().any(of)
    }

    /// Returns whether every key goes to the same server as by `other`.
    pub fn places_keys_as(&self, other: &ClusterMap) -> bool {
        self.owners == other.owners
            && self.primaries == other.primaries
            && self.is_known == other.is_known
    }

    /// Returns the server at an index.
    pub fn node(&self, index: usize) -> Option<&KnownNode> {
        self.nodes.get(index)?.as_ref()
    }

    /// Returns every server with its index.
    pub fn nodes(&self) -> impl Iterator<Item = (u16, &KnownNode)> {
        let numbered = self.nodes.iter().enumerate();
        numbered.filter_map(|(index, node)| Some((index as u16, node.as_ref()?)))
    }

    /// Returns the number of server indices, used or not.
    pub fn index_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the server at an index owns slots.
    #[inline]
    pub fn is_serving(&self, index: usize) -> bool {
        self.owned.get(index).is_some_and(|&owned| owned > 0)
    }

    /// Returns the number of slots that the server at an index owns.
    pub fn owned_by(&self, index: usize) -> u16 {
        self.owned.get(index).copied().unwrap_or(0)
    }

    /// Returns the index of a server.
    pub fn index_of(&self, endpoint: &Endpoint) -> Option<u16> {
        self.nodes().find(|(_, node)| node.endpoint == *endpoint).map(|(index, _)| index)
    }

    /// Returns the replicas of the server at an index.
    pub fn replicas_of(&self, primary: u16) -> impl Iterator<Item = (u16, &KnownNode)> {
        self.nodes().filter(move |(_, node)| node.role == KnownRole::Replica { of: Some(primary) })
    }

    /// Returns the latest epoch that was told, of the cluster or of the primary with the number
    /// `group`.
    pub fn epoch(&self, group: Option<u16>) -> Option<u64> {
        match group {
            Some(group) => self.primary_epochs.get(usize::from(group)).copied().flatten(),
            None => self.epoch,
        }
    }

    /// Returns the same map without its epoch, so that it accepts a view of any epoch.
    pub fn without_epoch(&self, group: Option<u16>) -> ClusterMap {
        let mut map = self.clone();
        match group {
            Some(group) => map
                .primary_epochs
                .iter_mut()
                .skip(usize::from(group))
                .take(1)
                .for_each(|epoch| *epoch = None),
            None => map.epoch = None,
        }
        map
    }

    /// Returns whether `view` gives no owner to slots that have one in this map.
    pub fn loses_slots_by(&self, view: &ClusterView) -> bool {
        !view.is_whole()
            && (0..SLOT_COUNT as u16)
                .any(|slot| self.owners.of(slot).is_some() && view.owners.of(slot).is_none())
    }

    /// Applies a view that a server has told.
    pub fn apply(&self, view: &ClusterView, now: Time) -> Applied {
        if let (Some(told), Some(known)) = (view.epoch, self.epoch)
            && told < known
        {
            return Applied::Stale;
        }
        let mut next = self.next();
        next.epoch = view.epoch.or(self.epoch);
        next.is_known = true;
        let (chosen, left_out) = next.choose(view);
        next.part_with_absent(view, &chosen, now);
        let mut of_view: Vec<Option<u16>> = vec![None; view.nodes.len()];
        let mut unseated = Vec::new();
        for index in chosen {
            let told = &view.nodes[index];
            let Some(endpoint) = &told.endpoint else { continue };
            of_view[index] = next.seat(endpoint, now);
            if of_view[index].is_none() {
                unseated.push(told);
            }
        }
        let left_out = unseated.into_iter().chain(left_out).filter_map(LeftOut::of).collect();
        let in_map = |index: u16| of_view.get(usize::from(index)).copied().flatten();
        for (told, at) in view.nodes.iter().zip(&of_view) {
            let Some(at) = at else { continue };
            if let Some(node) = &mut next.nodes[usize::from(*at)] {
                node.id.clone_from(&told.id);
                node.zone.clone_from(&told.zone);
                node.absent_since = None;
                node.health = told.health;
                node.role = match told.role {
                    NodeRole::Primary => KnownRole::Primary,
                    NodeRole::Replica { of } => KnownRole::Replica { of: of.and_then(in_map) },
                };
            }
        }
        let mut owners = SlotOwners::new();
        let mut without_index = Vec::new();
        for (first, last, owner) in view.owners.ranges() {
            if in_map(owner).is_none() {
                without_index.push((first, last));
            }
            owners.set_range(first, last, in_map(owner));
        }
        next.slots_without_index = without_index.into();
        next.own(owners);
        match next.differs_from(self) {
            true => Applied::Next(next, left_out),
            false => Applied::Same,
        }
    }

    /// Returns the next version, in which the server at `index` owns `slot`. Returns `None` if it
    /// owns the slot already, if no server is at the index, or if the pool has no slots.
    pub fn moved(&self, slot: u16, index: u16) -> Option<ClusterMap> {
        self.node(usize::from(index))?;
        if self.owners.of(slot) == Some(index) || !self.primaries.is_empty() {
            return None;
        }
        let mut next = self.next();
        if let Some(node) = &mut next.nodes[usize::from(index)] {
            node.role = KnownRole::Primary;
        }
        let mut owners = SlotOwners::clone(&next.owners);
        owners.set(slot, Some(index));
        next.own(owners);
        Some(next)
    }

    /// Returns the next version, with an index for a server that has no slots yet and that views by
    /// slots therefore leave out. Returns `None` if the server has an index or there is no room. The
    /// map may have one server more than `nodes_max` until the next view, because a server that has
    /// left may still be in it.
    pub fn with_member(&self, endpoint: &Endpoint, now: Time) -> Option<ClusterMap> {
        if self.index_of(endpoint).is_some() {
            return None;
        }
        let mut next = self.next();
        let index = next.seat(endpoint, now)?;
        // It stays for a while, like a server that views no longer list.
        next.nodes[usize::from(index)].as_mut()?.role = KnownRole::Primary;
        Some(next)
    }

    /// Returns the next version, with indices for the seeds, because no other server can be asked.
    /// Returns `None` if all seeds have indices.
    pub fn with_seeds(&self, seeds: &[Endpoint], now: Time) -> Option<ClusterMap> {
        let mut next = self.next();
        next.add_seeds(seeds, now).then_some(next)
    }

    /// Returns the next version, which differs in nothing: what else places keys has changed.
    #[must_use]
    pub fn renewed(&self) -> ClusterMap {
        self.next()
    }

    fn next(&self) -> ClusterMap {
        ClusterMap { version: self.version + 1, ..self.clone() }
    }

    fn add_seeds(&mut self, seeds: &[Endpoint], now: Time) -> bool {
        let before = self.nodes().count();
        for seed in seeds {
            self.seat(seed, now);
        }
        self.nodes().count() > before
    }

    /// Returns the index of a server. Gives it one if it has none.
    fn seat(&mut self, endpoint: &Endpoint, now: Time) -> Option<u16> {
        if let Some(index) = self.index_of(endpoint) {
            return Some(index);
        }
        // The server gets its former index first, then an index that was never used, then the index
        // that was left first.
        let was_its =
            |index: usize| self.left[index].as_ref().is_some_and(|(_, tenant)| tenant == endpoint);
        let is_free = |&index: &usize| {
            self.nodes[index].is_none() && (was_its(index) || self.is_vacant(index, now))
        };
        let since = |index: usize| self.left[index].as_ref().map(|(since, _)| since.0);
        let free = (0..self.nodes.len()).filter(is_free);
        let index = free.min_by_key(|&index| (!was_its(index), since(index)))?;
        self.nodes[index] = Some(KnownNode {
            endpoint: endpoint.clone(),
            id: None,
            role: KnownRole::Seed,
            health: NodeHealth::Online,
            zone: None,
            tenure: self.version,
            absent_since: None,
            group: None,
        });
        self.left[index] = None;
        Some(index as u16)
    }

    /// Returns the servers of a view that get an index in this map, as indices of the view, and the
    /// servers beyond `nodes_max`. Owners of slots come first; servers that failed come last, and replicas just
    /// before them. Among equals, servers that have an index already come first, so that they keep
    /// it. The rest is ordered by slot and address, so that the result does not depend on which
    /// server was asked or on the order of its reply.
    fn choose<'a>(&self, view: &'a ClusterView) -> (Vec<usize>, Vec<&'a ClusterNode>) {
        let mut first_slots = vec![u16::MAX; view.nodes.len()];
        for (first, _, owner) in view.owners.ranges() {
            if let Some(known) = first_slots.get_mut(usize::from(owner)) {
                *known = first.min(*known);
            }
        }
        let settled: BTreeSet<&Endpoint> = self
            .nodes()
            .filter(|(_, node)| node.role != KnownRole::Seed)
            .map(|(_, node)| &node.endpoint)
            .collect();
        let mut order: Vec<usize> =
            (0..view.nodes.len()).filter(|&index| may_connect_to(&view.nodes[index])).collect();
        order.sort_by_key(|&index| {
            let (node, first_slot) = (&view.nodes[index], first_slots[index]);
            let is_new = node.endpoint.as_ref().is_none_or(|at| !settled.contains(at));
            (need(node, first_slot), is_new, first_slot, node.endpoint.as_ref())
        });
        let beyond = order.split_off(order.len().min(self.nodes_max));
        (order, beyond.into_iter().map(|index| &view.nodes[index]).collect())
    }

    /// Takes indices away from servers that views have not listed for long, and from servers of this
    /// view that were not chosen.
    fn part_with_absent(&mut self, view: &ClusterView, chosen: &[usize], now: Time) {
        let endpoint = |index: &usize| view.nodes[*index].endpoint.as_ref();
        let stay: BTreeSet<&Endpoint> = chosen.iter().filter_map(endpoint).collect();
        let told = view.nodes.iter().filter(|node| may_connect_to(node));
        for beyond in told.filter_map(|node| node.endpoint.as_ref()) {
            if let Some(index) = self.index_of(beyond).filter(|_| !stay.contains(beyond)) {
                self.vacate(usize::from(index), now);
            }
        }
        self.part_with(now, |_, node| !stay.contains(&node.endpoint));
    }

    /// Takes indices away from servers for which `is_absent` has held for long.
    fn part_with(&mut self, now: Time, is_absent: impl Fn(u16, &KnownNode) -> bool) {
        for index in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[index] else { continue };
            if !is_absent(index as u16, node) {
                continue;
            }
            // A seed is no longer needed once other servers are known.
            let since = *node.absent_since.get_or_insert(now);
            if node.role == KnownRole::Seed || since + ABSENCE <= now {
                self.vacate(index, now);
            }
        }
    }

    /// Returns whether any server may take an index.
    fn is_vacant(&self, index: usize, now: Time) -> bool {
        let is_due = |(since, _): &(Time, Endpoint)| *since + VACANCY <= now;
        self.nodes[index].is_none() && self.left[index].as_ref().is_none_or(is_due)
    }

    fn vacate(&mut self, index: usize, now: Time) {
        self.left[index] = self.nodes[index].take().map(|node| (now, node.endpoint));
    }

    fn own(&mut self, owners: SlotOwners) {
        self.owned.fill(0);
        for (first, last, owner) in owners.ranges() {
            self.owned[usize::from(owner)] += last - first + 1;
        }
        self.owners = Arc::new(owners);
    }

    /// Applies what is told of one primary and its replicas.
    pub fn apply_group(&self, told: &GroupView, now: Time) -> Applied {
        let group = usize::from(told.group);
        if group >= self.primaries.len() {
            return Applied::Same;
        }
        if let (Some(epoch), Some(known)) = (told.epoch, self.primary_epochs[group])
            && epoch < known
        {
            return Applied::Stale;
        }
        let mut next = self.next();
        next.primary_epochs[group] = told.epoch.or(self.primary_epochs[group]);
        next.is_known = true;
        let mut left_out = Vec::new();
        let primary = next.seat(&told.primary, now);
        next.primaries_without_index[group] = primary.is_none();
        if primary.is_none() {
            left_out.push(LeftOut { endpoint: told.primary.clone(), is_primary: true });
            next.make_room(now);
        }
        let mut told_indices: Vec<u16> = primary.into_iter().collect();
        let mut replicas: Vec<&(Endpoint, NodeHealth)> = told.replicas.iter().collect();
        replicas.sort_by_key(|(endpoint, _)| endpoint);
        for (endpoint, health) in replicas {
            let Some(index) = next.seat_replica(endpoint, group, primary, now) else {
                left_out.push(LeftOut { endpoint: endpoint.clone(), is_primary: false });
                continue;
            };
            if Some(index) == primary {
                continue;
            }
            told_indices.push(index);
            next.settle(index, told.group, KnownRole::Replica { of: primary }, *health);
        }
        if let Some(primary) = primary {
            next.settle(primary, told.group, KnownRole::Primary, NodeHealth::Online);
        }
        next.part_with(now, |index, node| {
            node.group == Some(told.group) && !told_indices.contains(&index)
        });
        let mut primaries = next.primaries.to_vec();
        primaries[group] = primary.unwrap_or(SlotOwners::NONE);
        next.owned.fill(0);
        for &index in primaries.iter().filter(|&&index| index != SlotOwners::NONE) {
            next.owned[usize::from(index)] = 1;
        }
        next.primaries = primaries.into();
        match next.differs_from(self) {
            true => Applied::Next(next, left_out),
            false => Applied::Same,
        }
    }

    /// Returns the index of a replica of the group `group`, whose primary is at `primary`. Gives it
    /// one if it has none, but not an index that a primary still needs.
    fn seat_replica(
        &mut self,
        endpoint: &Endpoint,
        group: usize,
        primary: Option<u16>,
        now: Time,
    ) -> Option<u16> {
        let is_seated = |(number, at): &(usize, &u16)| match *number == group {
            true => primary.is_some(),
            false => **at != SlotOwners::NONE,
        };
        let lacking = self.primaries.iter().enumerate().filter(|it| !is_seated(it)).count();
        let vacant = (0..self.nodes.len()).filter(|&index| self.is_vacant(index, now)).count();
        match self.index_of(endpoint) {
            None if lacking > 0 && vacant <= lacking => None,
            _ => self.seat(endpoint, now),
        }
    }

    /// Takes the index of one replica away if primaries lack indices and too few are empty.
    fn make_room(&mut self, now: Time) {
        let lacking = self.primaries_without_index.iter().filter(|lacks| **lacks).count();
        let empty = self.nodes.iter().filter(|node| node.is_none()).count();
        let replicas =
            self.nodes().filter(|(_, node)| matches!(node.role, KnownRole::Replica { .. }));
        let last = replicas.max_by_key(|(_, node)| &node.endpoint).map(|(index, _)| index);
        if let Some(index) = last.filter(|_| empty < lacking) {
            self.vacate(usize::from(index), now);
        }
    }

    fn settle(&mut self, index: u16, group: u16, role: KnownRole, health: NodeHealth) {
        if let Some(node) = &mut self.nodes[usize::from(index)] {
            node.group = Some(group);
            node.role = role;
            node.health = health;
            node.absent_since = None;
        }
    }

    fn differs_from(&self, other: &ClusterMap) -> bool {
        self.is_known != other.is_known
            || self.epoch != other.epoch
            || self.nodes != other.nodes
            || self.owners != other.owners
            || self.primaries != other.primaries
            || self.primary_epochs != other.primary_epochs
            || self.slots_without_index != other.slots_without_index
            || self.primaries_without_index != other.primaries_without_index
    }
}

impl LeftOut {
    fn of(node: &ClusterNode) -> Option<LeftOut> {
        let is_primary = node.role == NodeRole::Primary;
        Some(LeftOut { endpoint: node.endpoint.clone()?, is_primary })
    }
}

/// Returns the rank by which a node gets an index; the lowest comes first. `first_slot` is at least
/// [`SLOT_COUNT`] for a node without slots.
fn need(node: &ClusterNode, first_slot: u16) -> u8 {
    match (node.role, node.health) {
        _ if usize::from(first_slot) < SLOT_COUNT => 0,
        (_, NodeHealth::Failed) => 3,
        (NodeRole::Primary, _) => 1,
        (NodeRole::Replica { .. }, _) => 2,
    }
}

/// Returns whether Keyway may connect to a node.
fn may_connect_to(node: &ClusterNode) -> bool {
    node.endpoint.is_some() && !matches!(node.health, NodeHealth::Handshake | NodeHealth::NoAddress)
}

const _: () = assert!(SLOT_COUNT < u16::MAX as usize, "a count of slots fits");

#[cfg(test)]
mod tests;
