//! The audit log: an entry for each change, in a chain of hashes.
//!
//! ```text
//!   audit/N      the text of entry N, which has the hash of entry N - 1
//!   audit-head   the number and hash of the last entry, and those of the last that is not kept
//! ```
//! An entry is written by the transaction that makes its change. The hash is the SHA-256 of the text,
//! as it is stored. Anybody who can write to the coordinator can also compute all hashes anew from
//! some entry on. So the chain proves that no *part* of it was changed; a head that was noted
//! elsewhere, or the file of a control node, proves the whole.

use crate::facts::{Fact, When, Write};
use crate::limits::{AUDIT_DELETES_MAX, CHANGE_LEN_MAX, CHANGES_MAX, NAME_LEN_MAX, WHY_LEN_MAX};
use crate::report::cut;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;

pub(crate) const HEAD: &str = "audit-head";
pub(crate) const ENTRIES: &str = "audit/";

/// A SHA-256.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Returns the hash of a stored entry.
    pub fn of(text: &[u8]) -> Hash {
        Hash(Sha256::digest(text).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

impl std::str::FromStr for Hash {
    type Err = ();

    fn from_str(text: &str) -> Result<Hash, ()> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| ())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ())?;
        }
        Ok(Hash(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|()| serde::de::Error::custom("it is no SHA-256"))
    }
}

/// The author of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// The name of the operator, or `control` for a leader that decides by itself.
    pub name: String,
    /// The address that the operator asked from; empty for a leader.
    pub address: String,
}

impl Author {
    /// Returns the leader as an author, who decides by itself.
    pub fn control() -> Author {
        Author { name: "control".to_owned(), address: String::new() }
    }
}

/// The end of what an entry tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// It was done.
    Done,
    /// It was refused, and nothing has changed.
    Refused,
}

/// A change, as its entry tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, in seconds since 1970.
    pub at: u64,
    /// By whom.
    pub by: Author,
    /// The change in a few words.
    pub what: String,
    /// The revision of the current document before, if it changes.
    pub before: Option<u64>,
    /// The revision after.
    pub after: Option<u64>,
    /// The differences, one line each.
    pub changes: Vec<String>,
    /// Its end.
    pub outcome: AuditOutcome,
    /// The reason of a refusal, or of a decision of the leader.
    pub why: String,
    /// Requests that were refused before, and have no entry of their own.
    pub unlisted: u64,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its number. The first one has 1.
    pub number: u64,
    /// The hash of the entry before; zeros for the first one.
    pub previous: Hash,
    /// When, in seconds since 1970, by the clock of the control node.
    pub at: u64,
    /// The control node that wrote it.
    pub node: String,
    /// The operator, or `control`.
    pub by: String,
    /// The address that the operator asked from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// The change.
    pub what: String,
    /// Its end.
    pub outcome: AuditOutcome,
    /// The revision of the current document before, if it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// The revision after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// The differences, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// The number of differences for which there was no room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changes_left_out: u64,
    /// The reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Requests that were refused since the entry before, and have none of their own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl AuditEntry {
    fn new(number: u64, previous: Hash, node: &str, record: &Record) -> AuditEntry {
        let name = |text: &str| cut(text, NAME_LEN_MAX);
        let changes = record.changes.iter().take(CHANGES_MAX);
        let changes: Vec<String> = changes.map(|line| cut(line, CHANGE_LEN_MAX)).collect();
        AuditEntry {
            number,
            previous,
            at: record.at,
            node: node.to_owned(),
            by: name(&record.by.name),
            from: name(&record.by.address),
            what: name(&record.what),
            outcome: record.outcome,
            before: record.before,
            after: record.after,
            changes_left_out: (record.changes.len() - changes.len()) as u64,
            changes,
            why: cut(&record.why, WHY_LEN_MAX),
            unlisted: record.unlisted,
        }
    }

    fn encode(&self) -> Vec<u8> {
        // These are texts and numbers, all of which can be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a stored entry. Later versions may add names; they are ignored.
    pub fn decode(text: &[u8]) -> Option<AuditEntry> {
        serde_json::from_slice(text).ok()
    }
}

/// The end of the chain, and where the entries that are kept begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// The number of the last entry, 0 if there is none.
    pub number: u64,
    /// Its hash.
    pub hash: Hash,
    /// The number of the last entry that is not kept any more, 0 if all are.
    pub anchor: u64,
    /// Its hash.
    pub anchor_hash: Hash,
}

impl AuditHead {
    /// Reads the coordinator's value.
    pub fn decode(value: &[u8]) -> Option<AuditHead> {
        serde_json::from_slice(value).ok()
    }
}

/// The audit log, as the coordinator has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditLog {
    /// The head; `None` if it is missing or cannot be read.
    pub head: Option<AuditHead>,
    /// The entries that are kept, each as it is stored, by their keys' numbers.
    pub entries: Vec<(u64, String)>,
}

/// The first thing that does not fit in an audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tampered {
    /// The number of the entry.
    pub number: u64,
    /// The reason, for people.
    pub why: String,
}

impl fmt::Display for Tampered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}: {}", self.number, self.why)
    }
}

/// Checks entries one after another: each has the number and the hash that follow on the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain {
    /// The number of the last entry that was checked.
    pub number: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Chain {
    /// Takes the next entry, as it is stored.
    ///
    /// # Errors
    /// Returns the reason why it does not follow on the one before.
    pub fn follow(&mut self, text: &str) -> Result<AuditEntry, Tampered> {
        let expected = self.number.saturating_add(1);
        let tampered = |why: &str| Tampered { number: expected, why: why.to_owned() };
        let entry = AuditEntry::decode(text.as_bytes())
            .ok_or_else(|| tampered("it cannot be read as an entry"))?;
        if entry.number != expected {
            let why = format!("the next entry that is there has number {}", entry.number);
            return Err(tampered(&why));
        }
        if entry.previous != self.hash {
            let why = format!("it follows on another entry {} than the one that is there", {
                self.number
            });
            return Err(tampered(&why));
        }
        (self.number, self.hash) = (expected, Hash::of(text.as_bytes()));
        Ok(entry)
    }
}

impl AuditLog {
    /// Reads the audit log of everything that the coordinator holds.
    pub(crate) fn of(facts: &BTreeMap<String, Fact>) -> AuditLog {
        let head = facts.get(HEAD).map(|fact| AuditHead::decode(&fact.value));
        // Without an entry there is no head, and that is right.
        let head = head.unwrap_or_else(|| Some(AuditHead::default()));
        let entries = entries(facts)
            .map(|(number, fact)| (number, String::from_utf8_lossy(&fact.value).into_owned()));
        AuditLog { head, entries: entries.collect() }
    }

    /// Checks the chain from the first entry that is kept to the head. Returns the number of
    /// entries.
    ///
    /// # Errors
    /// Returns the first thing that does not fit.
    pub fn verify(&self) -> Result<u64, Tampered> {
        let Some(head) = self.head else {
            let why = "the head of the audit log cannot be read".to_owned();
            return Err(Tampered { number: 0, why });
        };
        let mut chain = Chain { number: head.anchor, hash: head.anchor_hash };
        for (key, text) in &self.entries {
            let entry = chain.follow(text)?;
            if entry.number != *key {
                let why = format!("it is stored as entry {key}");
                return Err(Tampered { number: entry.number, why });
            }
        }
        let why = match (chain.number == head.number, chain.hash == head.hash) {
            (true, true) => return Ok(self.entries.len() as u64),
            (true, false) => "the head has another hash for it".to_owned(),
            (false, _) => format!("it is not there, and the head tells of {} entries", head.number),
        };
        let number = if chain.number == head.number { head.number } else { chain.number + 1 };
        Err(Tampered { number, why })
    }
}

fn entries(facts: &BTreeMap<String, Fact>) -> impl Iterator<Item = (u64, &Fact)> {
    let from = facts.range(ENTRIES.to_owned()..);
    let here = from.map_while(|(key, fact)| Some((key.strip_prefix(ENTRIES)?, fact)));
    here.map(|(number, fact)| (number.parse().unwrap_or_default(), fact))
}

pub(crate) fn key(number: u64) -> String {
    format!("{ENTRIES}{number:020}")
}

/// Adds an entry to a transaction, and the condition that no other one is added meanwhile. The
/// oldest entries beyond `kept` leave: the head has the hash of the last of them. A head that cannot
/// be read begins anew behind the largest number that is there, so that the damage is seen for ever.
pub(crate) fn put(
    write: &mut Write,
    facts: &BTreeMap<String, Fact>,
    (node, kept): (&str, u64),
    records: &[Record],
) {
    let fact = facts.get(HEAD);
    write.when.push(match fact {
        Some(fact) => When::Modified(HEAD.to_owned(), fact.modified),
        None => When::Absent(HEAD.to_owned()),
    });
    let read = fact.map(|fact| AuditHead::decode(&fact.value));
    let last = entries(facts).map(|(number, _)| number).max().unwrap_or_default();
    let mut head = match read {
        Some(Some(head)) => head,
        None if last == 0 => AuditHead::default(),
        // The hash of zeros does not fit the entry before.
        _ => AuditHead { number: last, ..AuditHead::default() },
    };
    let before = head;
    for record in records {
        let entry = AuditEntry::new(head.number.saturating_add(1), head.hash, node, record);
        let text = entry.encode();
        (head.number, head.hash) = (entry.number, Hash::of(&text));
        write.put.push((key(entry.number), text));
    }
    // Only entries that are stored already leave.
    let over = head.number.saturating_sub(head.anchor).saturating_sub(kept.max(1));
    let stored = before.number.saturating_sub(head.anchor);
    for _ in 0..over.min(stored).min(AUDIT_DELETES_MAX) {
        let next = key(head.anchor.saturating_add(1));
        head.anchor = head.anchor.saturating_add(1);
        head.anchor_hash = match facts.get(&next) {
            Some(fact) => {
                write.delete.push(next);
                Hash::of(&fact.value)
            }
            // Somebody has deleted it. The entry behind it has its hash, or the head had.
            None if head.anchor == before.number => before.hash,
            None => {
                let behind = facts.get(&key(head.anchor.saturating_add(1)));
                let behind = behind.and_then(|fact| AuditEntry::decode(&fact.value));
                behind.map(|entry| entry.previous).unwrap_or_default()
            }
        };
    }
    write.put.push((HEAD.to_owned(), serde_json::to_vec(&head).unwrap_or_default()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(nth: u64) -> Record {
        Record {
            at: nth,
            by: Author { name: format!("ann{nth}"), address: "127.0.0.1:1".to_owned() },
            what: "apply".to_owned(),
            before: Some(nth),
            after: Some(nth + 1),
            changes: vec!["pool a: timeout: \"1s\" → \"2s\"".to_owned()],
            outcome: AuditOutcome::Done,
            why: String::new(),
            unlisted: 0,
        }
    }

    /// A coordinator that executes every transaction.
    #[derive(Default)]
    struct Store {
        facts: BTreeMap<String, Fact>,
        revision: u64,
    }

    impl Store {
        fn add(&mut self, kept: u64, records: &[Record]) {
            let mut write = Write::default();
            put(&mut write, &self.facts, ("z1.control.0.1", kept), records);
            self.revision += 1;
            for (key, value) in write.put {
                let fact = Fact { value: value.into(), modified: self.revision };
                self.facts.insert(key, fact);
            }
            for key in write.delete {
                assert!(self.facts.remove(&key).is_some(), "{key} was not there");
            }
        }

        fn filled(count: u64, kept: u64) -> Store {
            let mut store = Store::default();
            (0..count).for_each(|nth| store.add(kept, &[record(nth)]));
            store
        }

        fn set(&mut self, key: &str, value: &[u8]) {
            let fact = Fact { value: value.into(), modified: self.revision };
            self.facts.insert(key.to_owned(), fact);
        }

        fn log(&self) -> AuditLog {
            AuditLog::of(&self.facts)
        }
    }

    proptest! {
        /// The window stays bounded and whole, and each entry that leaves is anchored.
        #[test]
        fn a_log_is_whole_after_every_transaction(
            kept in 1..20u64,
            batches in prop::collection::vec(1..9u64, 1..40),
        ) {
            let mut store = Store::default();
            let mut written = 0;
            let mut all = Chain::default();
            for batch in batches {
                let records: Vec<_> = (0..batch).map(|nth| record(written + nth)).collect();
                store.add(kept, &records);
                written += batch;
                let log = store.log();
                prop_assert!(log.verify().is_ok());
                let head = log.head.unwrap();
                prop_assert_eq!(head.number, written);
                // One transaction adds as many as it can take away.
                prop_assert!(log.entries.len() as u64 <= kept + AUDIT_DELETES_MAX);
                for (_, text) in log.entries.iter().filter(|(number, _)| *number > written - batch) {
                    prop_assert!(all.follow(text).is_ok());
                }
                prop_assert_eq!(all.hash, head.hash);
            }
        }

        /// Any one change of any one byte is found, at the entry that has it or the one behind it.
        #[test]
        fn a_changed_byte_is_found(at in 1..30u64, byte in 0..400usize, to in any::<u8>()) {
            let mut store = Store::filled(30, 20);
            let Some(fact) = store.facts.get(&key(at)).cloned() else { return Ok(()) };
            let mut value = fact.value.to_vec();
            let byte = byte % value.len();
            prop_assume!(value[byte] != to);
            value[byte] = to;
            store.set(&key(at), &value);
            let found = store.log().verify().unwrap_err();
            prop_assert!(found.number == at || found.number == at + 1, "{}: {}", at, found);
        }

        /// An entry that is gone, or two that changed places, are found where they are.
        #[test]
        fn a_missing_or_moved_entry_is_found(at in 12..30u64, other in 12..30u64) {
            let mut store = Store::filled(30, 20);
            let mut moved = Store::filled(30, 20);
            store.facts.remove(&key(at)).unwrap();
            prop_assert_eq!(store.log().verify().unwrap_err().number, at);
            prop_assume!(at != other);
            let (one, two) = (moved.facts[&key(at)].clone(), moved.facts[&key(other)].clone());
            moved.set(&key(at), &two.value);
            moved.set(&key(other), &one.value);
            prop_assert_eq!(moved.log().verify().unwrap_err().number, at.min(other));
        }

        /// An end that is cut off is found by the head, and a head that is set back as well.
        #[test]
        fn a_cut_end_is_found_by_the_head(cut in 12..30u64) {
            let mut store = Store::filled(30, 20);
            for number in cut + 1..=30 {
                store.facts.remove(&key(number));
            }
            prop_assert_eq!(store.log().verify().unwrap_err().number, cut + 1);
            let mut back = Store::filled(30, 20);
            let mut head = back.log().head.unwrap();
            head.number = cut - 1;
            back.set(HEAD, &serde_json::to_vec(&head).unwrap());
            prop_assert!(back.log().verify().is_err());
        }
    }

    /// A forger who computes every hash anew is not found by the log alone, but by a hash that was
    /// noted elsewhere.
    #[test]
    fn a_chain_that_was_computed_anew_differs_from_a_noted_hash() {
        let noted = Store::filled(5, 10).log().head.unwrap();
        let mut forged = Store::default();
        for nth in 0..5 {
            let by = Author { name: "somebody".to_owned(), ..Author::default() };
            forged.add(10, &[Record { by, ..record(nth) }]);
        }
        assert!(forged.log().verify().is_ok());
        assert_ne!(forged.log().head.unwrap().hash, noted.hash);
    }

    #[test]
    fn damage_does_not_stop_the_log_and_stays_visible() {
        let mut store = Store::filled(3, 5);
        store.set(HEAD, b"not a head");
        assert!(store.log().verify().is_err());
        store.add(5, &[record(4)]);
        assert!(store.log().verify().is_err());
        assert_eq!(store.log().head.unwrap().number, 4);
        // Entries that somebody has deleted do not keep others from leaving.
        let mut holes = Store::filled(5, 5);
        holes.facts.remove(&key(1));
        (5..40).for_each(|nth| holes.add(5, &[record(nth)]));
        assert!(holes.log().verify().is_ok());
        assert_eq!(holes.log().entries.len(), 5);
    }

    #[test]
    fn a_hash_has_64_digits() {
        let hash = Hash::of(b"");
        assert!(hash.to_string().starts_with("e3b0c44298fc1c14"));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert!("e3".parse::<Hash>().is_err() && "é".repeat(32).parse::<Hash>().is_err());
    }

    #[test]
    fn long_texts_are_cut_and_left_out_lines_are_counted() {
        let long = Record {
            changes: vec!["x".repeat(10_000); 1000],
            why: "y".repeat(100_000),
            by: Author { name: "z".repeat(10_000), address: String::new() },
            ..record(1)
        };
        let mut store = Store::default();
        store.add(5, &[long]);
        let log = store.log();
        assert!(log.entries[0].1.len() < 16 << 10, "{}", log.entries[0].1.len());
        let entry = AuditEntry::decode(log.entries[0].1.as_bytes()).unwrap();
        assert_eq!(entry.changes_left_out as usize, 1000 - CHANGES_MAX);
    }
}
