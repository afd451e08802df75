//! The laws of the audit log, looked at from outside: at the coordinator and at the answers.

use super::engine::Engine;
use keyway_fleet::{ApplyFault, AuditEntry, AuditHead, AuditOutcome, Chain, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Entries that the coordinator keeps: few, so that many leave in a run.
pub(super) const KEPT: u64 = 8;

/// The answer to a request for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    /// It may have been done.
    Unknown,
    Refused,
}

/// Everything that was seen of the audit log.
#[derive(Debug, Default)]
pub(super) struct Audit {
    chain: Chain,
    /// The number of entries of each author.
    entries: BTreeMap<String, u64>,
    answers: BTreeMap<String, Answer>,
    /// Revisions that entries have made.
    revisions: BTreeSet<u64>,
    /// Entries of refused requests, and of rollouts that a leader has ended.
    pub refused: u64,
    pub ended: u64,
}

impl Audit {
    /// Notes the answer to the request of an author, who asks once.
    pub fn note_answer(&mut self, author: &str, outcome: &Result<Version, ApplyFault>) {
        let answer = match outcome {
            Ok(_) => Answer::Done,
            Err(ApplyFault::Unknown(_)) => Answer::Unknown,
            Err(_) => Answer::Refused,
        };
        self.answers.insert(author.to_owned(), answer);
    }

    /// Looks at the coordinator after a transaction.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn look(&mut self, engine: &Engine) -> Result<(), String> {
        let Some(head) = engine.value("audit-head") else { return Ok(()) };
        let head = AuditHead::decode(head).ok_or("the head of the audit log cannot be read")?;
        while self.chain.number < head.number {
            let key = format!("audit/{:020}", self.chain.number + 1);
            let text = engine.value(&key).unwrap_or_default();
            let text = String::from_utf8_lossy(text).into_owned();
            let entry = self.chain.follow(&text).map_err(|tampered| tampered.to_string())?;
            self.note_entry(&entry)?;
        }
        if self.chain.hash != head.hash || self.chain.number != head.number {
            return Err(format!("the audit log has another end: {head:?}"));
        }
        match head.number - head.anchor > KEPT + 8 {
            true => Err(format!("the audit log is not bounded: {head:?}")),
            false => Ok(()),
        }
    }

    fn note_entry(&mut self, entry: &AuditEntry) -> Result<(), String> {
        if entry.outcome == AuditOutcome::Refused {
            self.refused += 1;
        } else if entry.by == "control" {
            self.ended += 1;
        }
        if let Some(after) = entry.after
            && !self.revisions.insert(after)
        {
            return Err(format!("two entries of the audit log have made revision {after}"));
        }
        let count = self.entries.entry(entry.by.clone()).or_default();
        *count += 1;
        match *count > 1 && entry.by != "control" {
            true => Err(format!("the request of {} has two entries", entry.by)),
            false => Ok(()),
        }
    }

    /// Checks that each change that was answered has an entry, and each refused one has none.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_rest(&self) -> Result<(), String> {
        for (author, answer) in &self.answers {
            let count = self.entries.get(author).copied().unwrap_or_default();
            let is_right = match answer {
                Answer::Done => count == 1,
                Answer::Unknown => count <= 1,
                Answer::Refused => count == 0,
            };
            if !is_right {
                return Err(format!("the request of {author} is {answer:?} with {count} entries"));
            }
        }
        Ok(())
    }
}
