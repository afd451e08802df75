//! The writes that belong to each place in a history.
//!
//! A history has an id, and goes back to another one at an offset. The data of a store is that of its
//! id and offset, so the marks that it has to have are known, and those that it must not have: marks
//! that were written behind the offset, or in a history that its own does not go back to.

use super::node::Life;
use crate::wire::Value;
use keyway_rdb::replication::ReplicationId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

/// The key of the set of marks.
const MARKS: &[u8] = b"marks";

/// All histories of a run, and the marks.
#[derive(Default)]
pub(super) struct Histories {
    known: Mutex<Known>,
    /// Stores that were handed over.
    pub(super) hand_overs: AtomicU64,
}

#[derive(Default)]
struct Known {
    /// By id.
    before: BTreeMap<Name, Before>,
    /// The history and the offset behind each mark.
    marks: Vec<(Name, u64)>,
}

type Name = Vec<u8>;

/// How a history begins.
#[derive(Clone)]
enum Before {
    /// It goes back to another one, which was left at an offset.
    History(Name, u64),
    /// With data that is of no history, and has these marks.
    Data(BTreeSet<usize>),
}

fn name(id: ReplicationId) -> Name {
    id.as_bytes().to_vec()
}

impl Histories {
    /// Notes the history of a primary, in front of its first write.
    pub(super) fn note(&self, life: &Life) {
        let status = life.standby.feed_status();
        let before = match status.second {
            Some((id, limit)) => Before::History(name(id), limit),
            None => Before::Data(marks_of(life).unwrap_or_default()),
        };
        self.known.lock().before.insert(name(status.id), before);
    }

    /// Writes a mark to a primary, if it takes writes. Returns the id of the history and the offset
    /// behind the mark.
    pub(super) fn mark(&self, life: &Life) -> Option<(ReplicationId, u64)> {
        let mut known = self.known.lock();
        let number = known.marks.len().to_string();
        life.ask(0, &[b"SADD", MARKS, number.as_bytes()]).ok()?;
        let id = life.standby.replication_id();
        let offset = life.store.effects_offset();
        known.marks.push((name(id), offset));
        Some((id, offset))
    }

    /// Compares the marks of a store with those of its place.
    pub(super) fn check(&self, index: usize, life: &Life) -> Result<(), String> {
        let is_somewhere = !life.store.is_replica() || life.store.is_relaying();
        if !is_somewhere {
            return Ok(());
        }
        let Some(found) = marks_of(life) else { return Ok(()) };
        let (id, offset) = (life.standby.replication_id(), life.store.effects_offset());
        let known = self.known.lock();
        let (limits, base) = known.limits(name(id), offset);
        let belongs = |(_, (id, offset)): &(usize, &(Name, u64))| {
            limits.get(id).is_some_and(|limit| offset <= limit)
        };
        let marks = known.marks.iter().enumerate().filter(belongs);
        let expected: BTreeSet<usize> = marks.map(|(number, _)| number).chain(base).collect();
        if found == expected {
            return Ok(());
        }
        let shown = |numbers: Vec<&usize>| {
            let mark = |number: &&usize| {
                let (id, offset) = &known.marks[**number];
                format!("{number} ({} at {offset})", String::from_utf8_lossy(&id[..6]))
            };
            numbers.iter().take(4).map(mark).collect::<Vec<_>>().join(", ")
        };
        Err(format!(
            "store {index} at {offset} of {}: marks are missing: {}; marks of others: {}",
            String::from_utf8_lossy(&id.as_bytes()[..6]),
            shown(expected.difference(&found).collect()),
            shown(found.difference(&expected).collect()),
        ))
    }
}

impl Known {
    /// The histories that one goes back to, each with its last offset, and the marks that the first
    /// of them begins with.
    fn limits(&self, id: Name, offset: u64) -> (BTreeMap<Name, u64>, BTreeSet<usize>) {
        let mut limits = BTreeMap::new();
        let mut next = Some((id, offset));
        while let Some((id, limit)) = next {
            let before = self.before.get(&id).cloned();
            limits.insert(id, limit);
            next = match before {
                Some(Before::History(id, left_at)) => Some((id, left_at.min(limit))),
                Some(Before::Data(marks)) => return (limits, marks),
                None => None,
            };
        }
        (limits, BTreeSet::new())
    }
}

/// The marks that a store has; none if it is being loaded.
fn marks_of(life: &Life) -> Option<BTreeSet<usize>> {
    let Ok(Value::Array(Some(members))) = life.ask(0, &[b"SMEMBERS", MARKS]) else { return None };
    let number = |value: Value| match value {
        Value::Bulk(Some(bytes)) => String::from_utf8(bytes).ok()?.parse::<usize>().ok(),
        _ => None,
    };
    Some(members.into_iter().filter_map(number).collect())
}
