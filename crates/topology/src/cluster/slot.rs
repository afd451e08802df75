use crate::{Hash, HashTag};
use std::fmt;

/// The number of slots of a Redis Cluster.
pub const SLOT_COUNT: usize = 16384;

/// Returns the slot of `key` in a Redis Cluster: the CRC-16/XMODEM of its hash tag, or of the whole
/// key if it has none.
#[inline]
pub fn key_slot(key: &[u8]) -> u16 {
    (Hash::Crc16Xmodem.hash(HashTag::BRACES.of(key)) as usize % SLOT_COUNT) as u16
}

/// Slots of a page. Nearly all pages have one owner.
const PAGE_LEN: usize = 64;
const PAGE_COUNT: usize = SLOT_COUNT / PAGE_LEN;

/// The node that owns each slot, as an index into the list of nodes.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotOwners {
    /// The owner of each page whose slots have one owner; [`MIXED`] for other pages. The pages take
    /// half a KiB. `owners` would take all of a core's nearest cache.
    pages: Box<[u16; PAGE_COUNT]>,
    owners: Box<[u16; SLOT_COUNT]>,
}

/// Marks a page whose slots have several owners. It is also used for a page whose owner has this
/// index.
const MIXED: u16 = u16::MAX - 1;

impl SlotOwners {
    /// The index that means "no owner".
    pub const NONE: u16 = u16::MAX;

    /// Creates a table in which no slot has an owner.
    pub fn new() -> SlotOwners {
        let owners = vec![SlotOwners::NONE; SLOT_COUNT].into_boxed_slice();
        let owners = owners.try_into().expect("as long as it was made");
        SlotOwners { pages: Box::new([SlotOwners::NONE; PAGE_COUNT]), owners }
    }

    /// Returns the owner of `slot`; `None` if it has none or is not a slot.
    #[inline]
    pub fn of(&self, slot: u16) -> Option<u16> {
        let owner = match *self.pages.get(usize::from(slot) / PAGE_LEN)? {
            MIXED => self.owners[usize::from(slot)],
            owner => owner,
        };
        (owner != SlotOwners::NONE).then_some(owner)
    }

    /// Gives `slot` to the node `owner`, or to no node.
    ///
    /// # Panics
    /// Panics if `slot` is not below [`SLOT_COUNT`].
    pub fn set(&mut self, slot: u16, owner: Option<u16>) {
        let owner = owner.unwrap_or(SlotOwners::NONE);
        self.owners[usize::from(slot)] = owner;
        let page = usize::from(slot) / PAGE_LEN;
        if self.pages[page] != owner {
            let slots = &self.owners[page * PAGE_LEN..][..PAGE_LEN];
            let is_one = slots.iter().all(|&other| other == owner);
            self.pages[page] = if is_one { owner } else { MIXED };
        }
    }

    /// Gives the slots from `first` to `last` to the node `owner`, or to no node. A page that lies
    /// within the range is written without a look at its slots.
    ///
    /// # Panics
    /// Panics if `last` is not below [`SLOT_COUNT`]. A range whose `last` is before `first` is
    /// empty.
    pub fn set_range(&mut self, first: u16, last: u16, owner: Option<u16>) {
        let value = owner.unwrap_or(SlotOwners::NONE);
        let (mut at, end) = (usize::from(first), usize::from(last) + 1);
        while at < end {
            let page_end = (at / PAGE_LEN + 1) * PAGE_LEN;
            if at % PAGE_LEN == 0 && page_end <= end {
                self.owners[at..page_end].fill(value);
                self.pages[at / PAGE_LEN] = value;
                at = page_end;
            } else {
                self.set(at as u16, owner);
                at += 1;
            }
        }
    }

    /// Returns the owners of all 16384 slots, [`SlotOwners::NONE`] for none.
    pub fn as_array(&self) -> &[u16; SLOT_COUNT] {
        &self.owners
    }

    /// Returns the number of slots that have an owner.
    pub fn owned_count(&self) -> usize {
        self.owners.iter().filter(|&&owner| owner != SlotOwners::NONE).count()
    }

    /// Returns the longest runs of slots with one owner, in order: first slot, last slot, owner.
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
    fn pages_say_what_the_slots_do() {
        let mut owners = SlotOwners::new();
        let mut expected = vec![None; SLOT_COUNT];
        let mut state = 7u32;
        for step in 0..40_000u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Long runs make pages whole, and single slots make them mixed. One owner has the index
            // that marks mixed pages.
            let owner = [Some(0), Some(1), Some(MIXED), None][(state >> 30) as usize];
            let first = (state >> 8) as usize % SLOT_COUNT;
            let run = if step % 50 == 0 { 300 } else { 1 };
            let end = (first + run).min(SLOT_COUNT);
            expected[first..end].fill(owner);
            match end - first {
                1 => owners.set(first as u16, owner),
                _ => owners.set_range(first as u16, (end - 1) as u16, owner),
            }
            let slot = (state >> 16) as usize % SLOT_COUNT;
            assert_eq!(owners.of(slot as u16), expected[slot], "slot {slot} after {step}");
        }
        let all: Vec<_> = (0..SLOT_COUNT).map(|slot| owners.of(slot as u16)).collect();
        assert_eq!(all, expected);
        let array = expected.iter().map(|owner| owner.unwrap_or(SlotOwners::NONE));
        assert!(owners.as_array().iter().copied().eq(array));
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
