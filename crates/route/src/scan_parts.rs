//! The cursor of a SCAN over discovered servers: a server's own cursor, with the part of the keys
//! and a tag of the server in its low bits.
//!
//! ```text
//!   63                        30            16              0
//!   | the server's own cursor | which part  | whose it is   |
//! ```
//! A part is the keys that move together when another server takes over: the slots of one primary,
//! numbered by the first of them, or a primary with a name, by its number. The scan visits the
//! parts in their order. If a part moves to another server, a cursor of the old one means nothing
//! to the new one, which is scanned from its beginning. Keys may then be returned twice, and no key
//! that existed all the time is left out. (Slots that move between parts take their keys along, as
//! they do for a client that scans the servers one by one.)

use crate::scan_cursor::parse;
use crate::{CursorFault, ScanCursor, ServersInUse};
use keyway_topology::SlotOwners;
use std::sync::Arc;

/// Number of bits of the tag.
const TAG_BITS: u32 = 16;
/// Number of bits of a slot, or of a primary's number.
const PART_BITS: u32 = 14;

/// The servers that a scan visits.
#[derive(Clone, Debug)]
pub enum Walk {
    /// The servers of a list that are in use.
    Listed(ServersInUse),
    /// The servers that were discovered.
    Found(Arc<ScanParts>),
}

/// The server of each part of the keys.
#[derive(Debug)]
pub struct ScanParts {
    /// The parts in their order.
    parts: Vec<Part>,
    /// The owners of the slots, for a cluster.
    owners: Option<Arc<SlotOwners>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    number: u16,
    server: u16,
    tag: u64,
}

impl Walk {
    /// Returns the meaning of a client's cursor, or `None` if no server is in use.
    ///
    /// # Errors
    /// Returns [`CursorFault`] if it is invalid.
    pub fn decode(&self, text: &[u8]) -> Result<Option<ScanCursor>, CursorFault> {
        match self {
            Walk::Listed(servers) => servers.decode(text),
            Walk::Found(parts) => parts.decode(text),
        }
    }

    /// Returns the client's cursor after `server` answered with its own. It is 0 after the last
    /// server, and `None` if it cannot be represented.
    pub fn encode(&self, server: u16, inner: u64) -> Option<u64> {
        match self {
            Walk::Listed(servers) => servers.encode(server, inner),
            Walk::Found(parts) => parts.encode(server, inner),
        }
    }
}

impl ScanParts {
    /// Creates the parts of a cluster. `name` returns a server's name by its index.
    pub fn of_slots(owners: &Arc<SlotOwners>, name: impl Fn(u16) -> String) -> ScanParts {
        let mut parts: Vec<Part> = Vec::new();
        for (number, _, server) in owners.ranges() {
            if !parts.iter().any(|part| part.server == server) {
                parts.push(Part { number, server, tag: tag(&name(server)) });
            }
        }
        ScanParts { parts, owners: Some(Arc::clone(owners)) }
    }

    /// Creates the parts of primaries. `indices` are the primaries' server indices, or `SlotOwners::NONE`.
    pub fn of_primaries(indices: &[u16], name: impl Fn(u16) -> String) -> ScanParts {
        let known = (0..).zip(indices).filter(|(_, index)| **index != SlotOwners::NONE);
        let part =
            |(number, &server): (u16, &u16)| Part { number, server, tag: tag(&name(server)) };
        ScanParts { parts: known.map(part).collect(), owners: None }
    }

    fn decode(&self, text: &[u8]) -> Result<Option<ScanCursor>, CursorFault> {
        let cursor = parse(text).ok_or(CursorFault::NoNumber)?;
        if cursor == 0 {
            let first = self.parts.first();
            return Ok(first.map(|part| ScanCursor { server: part.server, inner: 0 }));
        }
        let whose = cursor & ((1 << TAG_BITS) - 1);
        let rest = cursor >> TAG_BITS;
        let (number, inner) = ((rest & ((1 << PART_BITS) - 1)) as u16, rest >> PART_BITS);
        let part = self.part_of(number, whose).ok_or(CursorFault::Stale)?;
        let inner = if part.tag == whose { inner } else { 0 };
        Ok(Some(ScanCursor { server: part.server, inner }))
    }

    /// Returns the part of that number. Its first slots may belong to another server by now. Then
    /// it is the part that the old server still has, or else the part of the owner of its first
    /// slot.
    fn part_of(&self, number: u16, whose: u64) -> Option<&Part> {
        let of_number = self.parts.iter().find(|part| part.number == number);
        let of_server = || self.parts.iter().find(|part| part.tag == whose);
        let of_slot = || {
            let owner = self.owners.as_ref()?.of(number)?;
            self.parts.iter().find(|part| part.server == owner)
        };
        of_number.or_else(of_server).or_else(of_slot)
    }

    fn encode(&self, server: u16, inner: u64) -> Option<u64> {
        let at = self.parts.iter().position(|part| part.server == server)?;
        let (part, inner) = match inner {
            0 => match self.parts.get(at + 1) {
                Some(next) => (next, 0),
                None => return Some(0),
            },
            inner => (&self.parts[at], inner),
        };
        let shift = TAG_BITS + PART_BITS;
        let placed = inner.checked_shl(shift).filter(|placed| placed >> shift == inner)?;
        Some(placed | u64::from(part.number) << TAG_BITS | part.tag)
    }
}

/// FNV-1a, folded. It is never zero. Otherwise a cursor could be zero, which ends a scan.
fn tag(name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let folded = (hash >> 48) ^ (hash >> 32) ^ (hash >> 16) ^ hash;
    (folded & ((1 << TAG_BITS) - 1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(ranges: &[(u16, u16, u16)]) -> Arc<SlotOwners> {
        let mut owners = SlotOwners::new();
        for &(first, last, owner) in ranges {
            (first..=last).for_each(|slot| owners.set(slot, Some(owner)));
        }
        Arc::new(owners)
    }

    fn parts(ranges: &[(u16, u16, u16)]) -> ScanParts {
        ScanParts::of_slots(&owners(ranges), |server| format!("10.0.0.{server}:7000"))
    }

    fn at(parts: &ScanParts, cursor: u64) -> Option<(u16, u64)> {
        let at = parts.decode(cursor.to_string().as_bytes());
        at.expect("a cursor").map(|at| (at.server, at.inner))
    }

    const THREE: [(u16, u16, u16); 3] = [(0, 5460, 2), (5461, 10922, 0), (10923, 16383, 1)];

    #[test]
    fn a_walk_visits_every_part_once_and_ends() {
        let parts = parts(&THREE);
        let (mut cursor, mut visited) = (0, Vec::new());
        loop {
            let (server, inner) = at(&parts, cursor).unwrap();
            visited.push((server, inner));
            cursor = parts.encode(server, if inner == 0 { 77 } else { 0 }).unwrap();
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(visited, [(2, 0), (2, 77), (0, 0), (0, 77), (1, 0), (1, 77)]);
    }

    #[test]
    fn whoever_takes_over_is_walked_from_its_beginning_in_the_same_place() {
        let before = parts(&THREE);
        let after = parts(&[(0, 5460, 5), (5461, 10922, 6), (10923, 16383, 7)]);
        for (old, new) in [(2, 5), (0, 6), (1, 7)] {
            assert_eq!(at(&after, before.encode(old, 77).unwrap()), Some((new, 0)));
        }
        assert_eq!(at(&after, before.encode(2, 0).unwrap()), Some((6, 0)));
        // The scan continues if the server is the same again.
        assert_eq!(at(&before, before.encode(0, 77).unwrap()), Some((0, 77)));
    }

    #[test]
    fn a_part_that_grows_or_shrinks_is_gone_on_with() {
        let cursor = parts(&THREE).encode(0, 77).unwrap();
        let shrunk = parts(&[(0, 5500, 2), (5501, 10922, 0), (10923, 16383, 1)]);
        assert_eq!(at(&shrunk, cursor), Some((0, 77)));
        let grown = parts(&[(0, 5000, 2), (5001, 10922, 0), (10923, 16383, 1)]);
        assert_eq!(at(&grown, cursor), Some((0, 77)));
        let gone = parts(&[(0, 10922, 2), (10923, 16383, 1)]);
        assert_eq!(at(&gone, cursor), Some((2, 0)), "who has its slots");
        let nobodys = parts(&[(0, 5460, 2), (10923, 16383, 1)]);
        let text = cursor.to_string();
        assert_eq!(nobodys.decode(text.as_bytes()), Err(CursorFault::Stale));
    }

    #[test]
    fn primaries_that_have_names_are_parts_by_their_numbers() {
        let name = |server| format!("h{server}:1");
        let before = ScanParts::of_primaries(&[4, SlotOwners::NONE, 2], name);
        let after = ScanParts::of_primaries(&[3, 1, 2], name);
        assert_eq!(at(&before, 0), Some((4, 0)));
        assert_eq!(at(&before, before.encode(4, 0).unwrap()), Some((2, 0)));
        assert_eq!(before.encode(2, 0), Some(0));
        assert_eq!(at(&after, before.encode(4, 9).unwrap()), Some((3, 0)));
        assert_eq!(at(&after, before.encode(2, 9).unwrap()), Some((2, 9)));
        assert_eq!(at(&ScanParts::of_primaries(&[], name), 0), None);
    }

    #[test]
    fn a_cursor_too_large_to_carry_is_told() {
        let parts = parts(&THREE);
        assert!(parts.encode(1, (1 << 34) - 1).is_some());
        assert_eq!(parts.encode(1, 1 << 34), None);
        assert_eq!(parts.encode(9, 1), None, "no server of these");
    }
}
