//! Finds the descriptor of a command by its name on the wire.
//!
//! A name has at most 24 bytes. So it is loaded as three machine words in lower case, and found in
//! a hash table that is built at compile time. This takes one multiplication, one byte of the
//! table, and one comparison of four words.

use crate::Command;
use crate::table::COMMANDS;

/// Longer names are unknown without a search: no command of Redis has more bytes (a test checks the
/// table).
const NAME_LEN_MAX: usize = 24;

/// Number of slots in the hash table, four times the number of commands. With half as many, second
/// probes would be common. More would spread it over more cache lines than a kilobyte.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;

/// An empty slot. The table has fewer commands than this (asserted below).
const EMPTY: u8 = u8::MAX;

/// The golden ratio in 64 bits. It spreads the differences of short names over the upper bits,
/// which give the slot.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A name as words, in a form that no other name of 1 to 24 bytes has.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Words {
    head: u64,
    middle: u64,
    tail: u64,
    len: u64,
}

const _: () = assert!(COMMANDS.len() < EMPTY as usize);

/// The words of every command's name, in the order of [`COMMANDS`].
static NAMES: [Words; COMMANDS.len()] = names();

/// The index into [`COMMANDS`] for each slot. A name whose slot is taken is in the next free one.
static INDEX: [u8; SLOTS] = index();

/// Returns the top-level command `name`, in any case.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static Command> {
    let words = Words::of(name)?;
    let mut slot = words.slot();
    loop {
        let index = INDEX[slot];
        if index == EMPTY {
            return None;
        }
        if NAMES[index as usize] == words {
            return Some(&COMMANDS[index as usize]);
        }
        slot = (slot + 1) % SLOTS;
    }
}

impl Words {
    /// Returns the words of `name` in lower case, or `None` if it is empty or too long. Loads
    /// overlap instead of stopping at the end. The length is included, because otherwise `aa` and
    /// `aaa` would be equal.
    #[inline]
    const fn of(name: &[u8]) -> Option<Words> {
        let len = name.len();
        if len > NAME_LEN_MAX || len == 0 {
            return None;
        }
        let (head, middle, tail);
        if len > 8 {
            head = first_8(name);
            middle = if len > 16 { first_8(name.split_at(8).1) } else { 0 };
            tail = last_8(name);
        } else if len >= 4 {
            head = first_4(name) | last_4(name) << 32;
            (middle, tail) = (0, 0);
        } else {
            head = name[0] as u64 | (name[len / 2] as u64) << 8 | (name[len - 1] as u64) << 16;
            (middle, tail) = (0, 0);
        }
        let head = lower_case(head);
        let (middle, tail) = if len > 8 { (lower_case(middle), lower_case(tail)) } else { (0, 0) };
        Some(Words { head, middle, tail, len: len as u64 })
    }

    #[inline]
    const fn slot(self) -> usize {
        let mixed = self.head ^ self.middle.rotate_left(29) ^ self.tail.rotate_left(17);
        (mixed.wrapping_mul(MULTIPLIER) >> (u64::BITS - SLOT_BITS)) as usize
    }

    const fn same(self, other: Words) -> bool {
        self.head == other.head
            && self.middle == other.middle
            && self.tail == other.tail
            && self.len == other.len
    }
}

/// Makes every byte of `word` from `A` to `Z` lower case, eight bytes at once. The clear top bit
/// keeps each carry inside its byte.
#[inline]
const fn lower_case(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let low_bits = word & (ONES * 0x7f);
    let from_a = low_bits + ONES * (0x80 - b'A' as u64);
    let past_z = low_bits + ONES * (0x7f - b'Z' as u64);
    let upper = from_a & !past_z & !word & (ONES * 0x80);
    word | upper >> 2
}

#[inline]
const fn first_8(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => 0,
    }
}

#[inline]
const fn last_8(bytes: &[u8]) -> u64 {
    match bytes.last_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => 0,
    }
}

#[inline]
const fn first_4(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(chunk) => u32::from_le_bytes(*chunk) as u64,
        None => 0,
    }
}

#[inline]
const fn last_4(bytes: &[u8]) -> u64 {
    match bytes.last_chunk() {
        Some(chunk) => u32::from_le_bytes(*chunk) as u64,
        None => 0,
    }
}

const fn names() -> [Words; COMMANDS.len()] {
    let mut names = [Words { head: 0, middle: 0, tail: 0, len: 0 }; COMMANDS.len()];
    let mut index = 0;
    while index < COMMANDS.len() {
        names[index] = match Words::of(COMMANDS[index].name.as_bytes()) {
            Some(words) => words,
            None => panic!("a command's name is longer than NAME_LEN_MAX"),
        };
        index += 1;
    }
    names
}

const fn index() -> [u8; SLOTS] {
    let mut slots = [EMPTY; SLOTS];
    let mut index = 0;
    while index < NAMES.len() {
        let mut slot = NAMES[index].slot();
        while slots[slot] != EMPTY {
            assert!(!NAMES[slots[slot] as usize].same(NAMES[index]), "two commands of one name");
            slot = (slot + 1) % SLOTS;
        }
        slots[slot] = index as u8;
        index += 1;
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain form of [`lookup`], with which it is compared.
    fn lookup_plainly(name: &[u8]) -> Option<&'static Command> {
        COMMANDS.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
    }

    fn verb(found: Option<&Command>) -> Option<crate::Verb> {
        found.map(|command| command.verb)
    }

    #[test]
    fn every_name_is_found_in_every_case() {
        for command in &COMMANDS {
            let name = command.name.as_bytes();
            assert_eq!(verb(lookup(name)), Some(command.verb));
            assert_eq!(verb(lookup(&name.to_ascii_uppercase())), Some(command.verb));
            for at in 0..name.len() {
                let mut mixed = name.to_vec();
                mixed[at] = mixed[at].to_ascii_uppercase();
                assert_eq!(verb(lookup(&mixed)), Some(command.verb));
            }
        }
    }

    #[test]
    fn near_misses_are_judged_as_the_plain_lookup_judges_them() {
        for command in &COMMANDS {
            let name = command.name.as_bytes();
            for at in 0..name.len() {
                for byte in 0..=u8::MAX {
                    let mut changed = name.to_vec();
                    changed[at] = byte;
                    assert_eq!(verb(lookup(&changed)), verb(lookup_plainly(&changed)));
                    let mut inserted = name.to_vec();
                    inserted.insert(at, byte);
                    assert_eq!(verb(lookup(&inserted)), verb(lookup_plainly(&inserted)));
                }
                let mut removed = name.to_vec();
                removed.remove(at);
                assert_eq!(verb(lookup(&removed)), verb(lookup_plainly(&removed)));
                let shorter = &name[..at];
                assert_eq!(verb(lookup(shorter)), verb(lookup_plainly(shorter)));
            }
            for byte in 0..=u8::MAX {
                let longer = [name, &[byte]].concat();
                assert_eq!(verb(lookup(&longer)), verb(lookup_plainly(&longer)));
            }
        }
        assert!(lookup(b"").is_none());
        assert!(lookup(&[b'x'; 1000]).is_none());
        assert!(lookup(b"client|list").is_none());
    }

    #[test]
    fn names_that_differ_have_words_that_differ() {
        let mut seen = std::collections::BTreeMap::new();
        for len in 1..=NAME_LEN_MAX {
            for at in 0..len {
                for byte in [b'a', b'b', 0, 1, b'-', 0xff] {
                    let mut name = vec![b'a'; len];
                    name[at] = byte;
                    let words = Words::of(&name).unwrap();
                    let key = (words.head, words.middle, words.tail, words.len);
                    assert_eq!(seen.entry(key).or_insert_with(|| name.clone()), &name);
                }
            }
        }
    }

    #[test]
    fn a_name_is_found_within_eight_probes() {
        let probes = |words: &Words| {
            let found = |slot: usize| {
                let index = INDEX[slot % SLOTS];
                index != EMPTY && NAMES[index as usize] == *words
            };
            (0..SLOTS).find(|probe| found(words.slot() + probe)).unwrap() + 1
        };
        let counts: Vec<usize> = NAMES.iter().map(probes).collect();
        assert!(counts.iter().all(|count| *count <= 8), "{counts:?}");
        assert!(counts.iter().sum::<usize>() * 10 < COMMANDS.len() * 13, "{counts:?}");
    }

    #[test]
    fn lower_case_words_are_those_of_lower_case_bytes() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                for other in [0, b'A', b'Z', 0x7f, 0x80, 0xff] {
                    let mut bytes = [other; 8];
                    bytes[at] = byte;
                    let lowered = lower_case(u64::from_le_bytes(bytes));
                    assert_eq!(lowered.to_le_bytes().as_slice(), bytes.to_ascii_lowercase());
                }
            }
        }
    }
}
