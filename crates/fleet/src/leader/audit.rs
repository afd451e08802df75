//! The leader's part of the audit log: requests that have no transaction of their own, which are refused
//! ones and changes that members were asked for.

use super::{Leader, Purpose};
use crate::audit::{self, AuditLog, AuditOutcome, Author, Record};
use crate::limits::{REFUSED_AT_ONCE, REFUSED_EVERY, REFUSED_WAITING_MAX};
use crate::{When, Write, facts};
use keyway_base::Time;
use std::collections::VecDeque;

/// A request of an operator, or of a stranger, that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// When, in seconds since 1970.
    pub at: u64,
    /// By whom. The name is empty if it is not known.
    pub by: Author,
    /// The request in a few words.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// A change that members were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedRequest {
    /// When, in seconds since 1970.
    pub at: u64,
    /// The operator.
    pub by: Author,
    /// The request in a few words.
    pub what: String,
    /// The outcome at each member, one line each. Lines are cut, and there are at most
    /// [`CHANGES_MAX`](crate::limits::CHANGES_MAX).
    pub outcomes: Vec<String>,
}

/// Requests that have no entry yet.
#[derive(Debug)]
pub(super) struct Requests {
    waiting: VecDeque<Record>,
    /// Requests that get none, since the last entry of one.
    unlisted: u64,
    /// Entries that may be written now, and when there may be one more.
    budget: u32,
    more_at: Option<Time>,
}

impl Default for Requests {
    fn default() -> Self {
        let (waiting, unlisted) = (VecDeque::new(), 0);
        Self { waiting, unlisted, budget: REFUSED_AT_ONCE, more_at: None }
    }
}

impl Requests {
    fn take(&mut self, request: RefusedRequest, now: Time) {
        while self.budget < REFUSED_AT_ONCE
            && let Some(at) = self.more_at.filter(|at| *at <= now)
        {
            self.budget += 1;
            self.more_at = Some(at + REFUSED_EVERY);
        }
        if self.budget == 0 || self.waiting.len() >= REFUSED_WAITING_MAX {
            self.unlisted = self.unlisted.saturating_add(1);
            return;
        }
        if self.budget == REFUSED_AT_ONCE {
            self.more_at = Some(now + REFUSED_EVERY);
        }
        self.budget -= 1;
        let RefusedRequest { at, by, what, why } = request;
        self.waiting.push_back(Record {
            at,
            by,
            what,
            before: None,
            after: None,
            changes: Vec::new(),
            outcome: AuditOutcome::Refused,
            why,
            unlisted: 0,
        });
    }

    fn take_passed(&mut self, request: PassedRequest) {
        if self.waiting.len() >= REFUSED_WAITING_MAX {
            self.unlisted = self.unlisted.saturating_add(1);
            return;
        }
        let PassedRequest { at, by, what, outcomes: changes } = request;
        self.waiting.push_back(Record {
            at,
            by,
            what,
            before: None,
            after: None,
            changes,
            outcome: AuditOutcome::Done,
            why: String::new(),
            unlisted: 0,
        });
    }

    /// Notes that a transaction had entries of these, or that it had not.
    pub fn settle(&mut self, records: Vec<Record>, is_written: bool) {
        match is_written {
            true => {
                let told: u64 = records.iter().map(|record| record.unlisted).sum();
                self.unlisted = self.unlisted.saturating_sub(told);
            }
            false => {
                for record in records.into_iter().rev() {
                    self.waiting.push_front(Record { unlisted: 0, ..record });
                }
            }
        }
    }
}

impl Leader {
    /// Takes a request that was refused, for the audit log. A flood of them is counted: the
    /// coordinator gets a few. A node that does not lead takes none.
    pub fn note_refused(&mut self, request: RefusedRequest, now: Time) {
        if self.leads() {
            self.requests.take(request, now);
            self.decide(now);
        }
    }

    /// Takes a change that members were asked for, for the audit log. If as many wait as may, it is
    /// counted. A node that does not lead takes none.
    pub fn note_passed(&mut self, request: PassedRequest, now: Time) {
        if self.leads() {
            self.requests.take_passed(request);
            self.decide(now);
        }
    }

    /// Takes a number of refused requests that get no entry of their own.
    pub fn note_unlisted(&mut self, count: u64) {
        self.requests.unlisted = self.requests.unlisted.saturating_add(count);
    }

    /// Changes how many entries of the audit log the coordinator keeps, as for a test.
    pub fn keep_audit(&mut self, entries: u64) {
        self.audit_kept = entries.max(1);
    }

    /// Returns the audit log, as the coordinator has it.
    pub fn audit(&self) -> AuditLog {
        AuditLog::of(&self.facts)
    }

    /// Returns a number that changes whenever the audit log has, 0 without one. The coordinator's
    /// revision counts for whoever changes an entry past control.
    pub fn audit_modified(&self) -> u64 {
        let from = self.facts.range(audit::HEAD.to_owned()..);
        let here =
            from.take_while(|(key, _)| *key == audit::HEAD || key.starts_with(audit::ENTRIES));
        let (count, modified) = here
            .fold((0, 0), |(count, modified), (_, fact)| (count + 1, fact.modified.max(modified)));
        // An entry that is gone leaves no revision behind.
        modified.saturating_mul(1 << 16).saturating_add(count)
    }

    /// Adds the entry of a change to its transaction.
    pub(super) fn put_audit(&self, write: &mut Write, record: Record) {
        self.put_records(write, &[record]);
    }

    fn put_records(&self, write: &mut Write, records: &[Record]) {
        let node = self.me.node.to_string();
        audit::put(write, &self.facts, (&node, self.audit_kept), records);
    }

    /// Orders the transaction for requests, if there are some.
    pub(super) fn write_requests(&mut self, modified: u64) -> bool {
        let mut records = Vec::from(std::mem::take(&mut self.requests.waiting));
        let Some(first) = records.first_mut() else { return false };
        first.unlisted = self.requests.unlisted;
        let leads = When::Modified(facts::LEADER.to_owned(), modified);
        let mut write = Write { when: vec![leads], ..Write::default() };
        self.put_records(&mut write, &records);
        self.write(write, Purpose::Requests(records));
        true
    }
}
