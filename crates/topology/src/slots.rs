//! A pool of kind `"slots"`: groups of servers that form no cluster, and the group of each slot.

use crate::{
    Discovery, Endpoint, FailoverPolicy, Hash, HashTag, SLOT_COUNT, ServerSet, SlotOwners,
};
use std::sync::Arc;

/// The rule that gives each key a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotSpace {
    /// Codis's 1024 slots, by CRC-32. An empty `{}` is a tag.
    #[default]
    Codis,
    /// The 16384 slots of Redis Cluster, by CRC-16.
    Cluster,
}

impl SlotSpace {
    /// Every rule.
    pub const ALL: [SlotSpace; 2] = [SlotSpace::Codis, SlotSpace::Cluster];

    /// Returns the number of slots.
    pub const fn count(self) -> u16 {
        match self {
            SlotSpace::Codis => 1024,
            SlotSpace::Cluster => SLOT_COUNT as u16,
        }
    }

    /// Returns the function that hashes keys.
    pub const fn hash(self) -> Hash {
        match self {
            SlotSpace::Codis => Hash::Crc32a,
            SlotSpace::Cluster => Hash::Crc16Xmodem,
        }
    }

    /// Returns the part of a key that is hashed.
    pub const fn hash_tag(self) -> HashTag {
        match self {
            SlotSpace::Codis => HashTag::CODIS,
            SlotSpace::Cluster => HashTag::BRACES,
        }
    }

    /// Returns the slot of a key whose hash is `hash`.
    #[inline]
    pub const fn slot_of_hash(self, hash: u32) -> u16 {
        // Both counts are powers of two.
        (hash & (self.count() as u32 - 1)) as u16
    }

    /// Returns the slot of a key.
    pub fn slot_of(self, key: &[u8]) -> u16 {
        self.slot_of_hash(self.hash().hash(self.hash_tag().of(key)))
    }
}

/// The group of each slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    space: SlotSpace,
    groups: SlotOwners,
    /// The number of slots of each group, by its number.
    counts: Vec<u16>,
}

/// A range of slots that cannot be given to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotRangeError {
    /// The last slot is before the first.
    Reversed,
    /// There are fewer slots.
    TooLarge,
    /// This slot has a group already.
    Taken {
        /// The slot.
        slot: u16,
        /// Its group.
        group: u16,
    },
}

impl SlotMap {
    /// Creates a map in which no slot has a group.
    pub fn new(space: SlotSpace) -> SlotMap {
        SlotMap { space, groups: SlotOwners::new(), counts: Vec::new() }
    }

    /// Returns the rule that gives keys their slots.
    pub fn space(&self) -> SlotSpace {
        self.space
    }

    /// Gives the slots from `first` to `last` to the group with this number.
    ///
    /// # Errors
    /// Returns an error, and changes nothing, if there are no such slots or one of them has a group.
    pub fn give(&mut self, first: u16, last: u16, group: u16) -> Result<(), SlotRangeError> {
        if last >= self.space.count() {
            return Err(SlotRangeError::TooLarge);
        }
        if last < first {
            return Err(SlotRangeError::Reversed);
        }
        let taken = |slot: u16| Some((slot, self.groups.of(slot)?));
        if let Some((slot, group)) = (first..=last).find_map(taken) {
            return Err(SlotRangeError::Taken { slot, group });
        }
        self.groups.set_range(first, last, Some(group));
        let at = usize::from(group);
        self.counts.resize(self.counts.len().max(at + 1), 0);
        self.counts[at] += last - first + 1;
        Ok(())
    }

    /// Returns the group of a slot, or `None` if it has none.
    #[inline]
    pub fn group_of(&self, slot: u16) -> Option<u16> {
        self.groups.of(slot)
    }

    /// Returns the slots that a group has, as ranges of a first and a last slot in ascending order.
    pub fn ranges_of(&self, group: u16) -> Vec<(u16, u16)> {
        let ranges = self.groups.ranges().filter(|&(_, _, owner)| owner == group);
        ranges.map(|(first, last, _)| (first, last)).collect()
    }

    /// Returns the number of slots that a group has.
    pub fn count_of(&self, group: u16) -> u16 {
        self.counts.get(usize::from(group)).copied().unwrap_or(0)
    }

    /// Returns the number of slots that have a group.
    pub fn given_count(&self) -> u16 {
        self.counts.iter().sum()
    }

    /// Returns the first slots without a group, as a range; `None` if every slot has one.
    pub fn first_hole(&self) -> Option<(u16, u16)> {
        let count = self.space.count();
        let first = (0..count).find(|&slot| self.groups.of(slot).is_none())?;
        let last = (first..count).take_while(|&slot| self.groups.of(slot).is_none()).last()?;
        Some((first, last))
    }
}

/// Servers of which one is the primary and the others are its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerGroup {
    /// Its name.
    pub name: String,
    /// The servers, 1 or more.
    pub servers: Vec<Endpoint>,
}

/// Groups of servers that share slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotsPool {
    /// Positions for its servers, how keys are hashed, and how Keyway connects to them.
    pub servers: ServerSet,
    /// The group of each slot, as its position in `groups`.
    pub map: Arc<SlotMap>,
    /// The groups, 1 or more.
    pub groups: Vec<ServerGroup>,
    /// How the primaries are found.
    pub discovery: Discovery,
    /// How the control plane decides the primary of each group. `None`: servers tell it.
    pub failover: Option<FailoverPolicy>,
}

impl SlotsPool {
    /// Creates a pool with default options.
    pub fn new(map: SlotMap, groups: Vec<ServerGroup>, mut discovery: Discovery) -> SlotsPool {
        discovery.seeds = groups.iter().flat_map(|group| group.servers.clone()).collect();
        // No other servers are found, so each position is that of one server.
        discovery.nodes_max = 0;
        let mut servers = discovery.positions();
        discovery.nodes_max = servers.servers.len() as u16;
        servers.hash = map.space.hash();
        servers.hash_tag = Some(map.space.hash_tag());
        SlotsPool { servers, map: Arc::new(map), groups, discovery, failover: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_slot;

    #[test]
    fn keys_have_the_slots_of_codis_and_of_redis_cluster() {
        // By zlib's CRC-32, modulo 1024.
        for (key, slot) in [("a", 579), ("foo", 289), ("{foo}bar", 289), ("x{}y", 0), ("", 0)] {
            assert_eq!(SlotSpace::Codis.slot_of(key.as_bytes()), slot, "{key}");
        }
        for key in ["a", "foo", "{foo}bar", "x{}y", ""] {
            let key = key.as_bytes();
            assert_eq!(SlotSpace::Cluster.slot_of(key), key_slot(key));
        }
    }

    #[test]
    fn a_slot_has_one_group_and_holes_are_told() {
        let mut map = SlotMap::new(SlotSpace::Codis);
        assert_eq!(map.first_hole(), Some((0, 1023)));
        assert_eq!(map.give(0, 511, 0), Ok(()));
        assert_eq!(map.give(600, 1023, 1), Ok(()));
        assert_eq!(map.first_hole(), Some((512, 599)));
        assert_eq!(map.give(500, 599, 1), Err(SlotRangeError::Taken { slot: 500, group: 0 }));
        assert_eq!(map.group_of(512), None, "a refused range changes nothing");
        assert_eq!(map.give(599, 512, 1), Err(SlotRangeError::Reversed));
        assert_eq!(map.give(0, 1024, 1), Err(SlotRangeError::TooLarge));
        assert_eq!(map.give(512, 599, 0), Ok(()));
        assert_eq!(map.first_hole(), None);
        assert_eq!(map.ranges_of(0), [(0, 599)]);
        assert_eq!(map.ranges_of(1), [(600, 1023)]);
        assert_eq!((map.count_of(0), map.count_of(1), map.count_of(2)), (600, 424, 0));
        assert_eq!(map.given_count(), 1024);
    }
}
