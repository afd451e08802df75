//! A set of slots, and the keys that are in it.

use keyway_topology::SlotSpace;

/// Words of a set of the largest number of slots.
const WORDS: usize = 16384 / 64;

/// A set of slots.
#[derive(Clone, Debug)]
pub struct SlotSet {
    space: SlotSpace,
    /// A bit for each slot.
    bits: Box<[u64; WORDS]>,
}

impl SlotSet {
    /// Creates a set of ranges, each with its first and its last slot. Slots that are not of the space
    /// are left out.
    pub fn new(space: SlotSpace, ranges: impl IntoIterator<Item = (u16, u16)>) -> SlotSet {
        let mut bits = Box::new([0; WORDS]);
        for (first, last) in ranges {
            for slot in first..=last.min(space.count() - 1) {
                if let Some(word) = bits.get_mut(usize::from(slot) / 64) {
                    *word |= 1u64 << (slot % 64);
                }
            }
        }
        SlotSet { space, bits }
    }

    /// Returns whether a slot is in the set.
    pub fn contains(&self, slot: u16) -> bool {
        let word = self.bits.get(usize::from(slot) / 64).copied().unwrap_or_default();
        word & (1 << (slot % 64)) != 0
    }

    /// Returns whether the slot of a key is in the set.
    pub fn has_key(&self, key: &[u8]) -> bool {
        self.contains(self.space.slot_of(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_set_of_their_slot() {
        let space = SlotSpace::Codis;
        let slot = space.slot_of(b"user:1");
        let set = SlotSet::new(space, [(slot, slot), (1020, 5000)]);
        assert!(set.has_key(b"user:1") && set.contains(1023) && !set.contains(1024));
        assert!(!set.contains(slot + 1));
        assert!(!SlotSet::new(space, []).has_key(b"user:1"));
    }
}
