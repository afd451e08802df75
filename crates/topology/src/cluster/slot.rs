use crate::{Hash, HashTag};
use std::fmt;

/// Slots of a Redis Cluster.
pub const SLOT_COUNT: usize = 16384;

/// The slot of `key` in a Redis Cluster: CRC-16/XMODEM of its hash tag, or of
/// all of it where it has none.
#[inline]
pub fn key_slot(key: &[u8]) -> u16 {
    (Hash::Crc16.hash(HashTag::BRACES.of(key)) as usize % SLOT_COUNT) as u16
}

/// Which node owns each slot, as indices into the list of nodes.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotOwners {
    owners: Box<[u16; SLOT_COUNT]>,
}

impl SlotOwners {
    /// What stands for no owner.
    pub const NONE: u16 = u16::MAX;

    /// Nobody owns anything.
    pub fn new() -> SlotOwners {
        let owners = vec![SlotOwners::NONE; SLOT_COUNT].into_boxed_slice();
        SlotOwners { owners: owners.try_into().expect("as long as it was made") }
    }

    /// The owner of `slot`; none for a slot that is none.
    #[inline]
    pub fn of(&self, slot: u16) -> Option<u16> {
        match self.owners.get(usize::from(slot)) {
            Some(&owner) if owner != SlotOwners::NONE => Some(owner),
            _ => None,
        }
    }

    /// Gives `slot` to the node `owner`, or to none.
    ///
    /// # Panics
    /// When `slot` is none.
    pub fn set(&mut self, slot: u16, owner: Option<u16>) {
        self.owners[usize::from(slot)] = owner.unwrap_or(SlotOwners::NONE);
    }

    /// All 16384, with [`SlotOwners::NONE`].
    pub fn as_array(&self) -> &[u16; SLOT_COUNT] {
        &self.owners
    }

    /// How many have an owner.
    pub fn owned_count(&self) -> usize {
        self.owners.iter().filter(|&&owner| owner != SlotOwners::NONE).count()
    }

    /// The longest runs of slots with one owner, in order: first slot, last
    /// slot, owner.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16, u16)> {
        let mut runs = self.owners.chunk_by(|left, right| left == right);
        let mut at = 0;
        std::iter::from_fn(move || {
            let run = runs.next()?;
            let first = at;
            at += run.len();
            Some((first as u16, (at - 1) as u16, run[0]))
        })
        .filter(|&(.., owner)| owner != SlotOwners::NONE)
    }
}

impl Default for SlotOwners {
    fn default() -> Self {
        SlotOwners::new()
    }
}

impl fmt::Debug for SlotOwners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ranges()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_decide_the_slot_and_an_empty_one_does_not() {
        assert_eq!(key_slot(b"123456789"), 12739);
        assert_eq!(key_slot(b""), 0);
        assert_eq!(key_slot(b"{user1000}.following"), key_slot(b"user1000"));
        assert_ne!(key_slot(b"foo{}{bar}"), key_slot(b"bar"));
        assert_eq!(key_slot(b"foo{bar}{zap}"), key_slot(b"bar"));
    }

    #[test]
    fn runs_cover_what_is_owned_and_no_more() {
        let mut owners = SlotOwners::new();
        assert_eq!(owners.ranges().count(), 0);
        for slot in [0, 1, 2, 16383] {
            owners.set(slot, Some(1));
        }
        owners.set(3, Some(0));
        let runs: Vec<_> = owners.ranges().collect();
        assert_eq!(runs, [(0, 2, 1), (3, 3, 0), (16383, 16383, 1)]);
        assert_eq!(owners.owned_count(), 5);
        assert_eq!((owners.of(4), owners.of(3), owners.of(u16::MAX)), (None, Some(0), None));
    }
}
