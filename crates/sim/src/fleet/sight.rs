//! What a member sees of a group of servers, and the law of its reports: a view that changes reaches
//! the leader at once, also while an earlier report is on its way, and also if a report or its
//! acknowledgement is lost.

use super::people::Proxy;
use keyway_base::Time;
use keyway_fleet::limits::NEWS_WITHIN;
use keyway_fleet::{GroupSeen, Report, ServerSeen};
use std::collections::BTreeMap;

/// The view of a member. Each change of it has the next number, as the epoch that it obeys.
#[derive(Debug, Default)]
pub(super) struct Sight {
    number: u64,
    /// The view that each report on its way has, by the number of the report.
    sent: BTreeMap<u64, u64>,
    /// The latest view of which the member knows that the leader has it.
    known: u64,
    /// The time of the latest report, by the clock of the process.
    sent_at: Option<Time>,
}

impl Sight {
    /// Notes a report that is sent now.
    pub fn note_sent(&mut self, report: u64, body: &[u8], own: Time) {
        let seen = Report::decode(body).and_then(|report| Some(report.groups.first()?.epoch));
        self.sent.insert(report, seen.unwrap_or(0));
        self.sent_at = Some(own);
    }

    /// Notes the word about the latest report.
    pub fn note_word(&mut self, report: u64, has_arrived: bool) {
        let seen = self.sent.get(&report).copied().unwrap_or(0);
        self.sent.retain(|other, _| *other > report);
        if has_arrived {
            self.known = self.known.max(seen);
        }
    }

    /// Notes that another node leads, which knows no view.
    pub fn note_leader(&mut self) {
        self.known = 0;
    }
}

impl Proxy {
    /// The view changes: a server falls silent, or answers again.
    pub fn change_view(&mut self, now: Time) {
        self.sight.number += 1;
        let number = self.sight.number;
        let silent_ms = (number % 2 == 1).then_some(0);
        let server = ServerSeen { address: "10.0.0.1:6379".to_owned(), silent_ms, role: None };
        let seen = GroupSeen { pool: "main".to_owned(), epoch: number, servers: vec![server] };
        self.member.observe(vec![seen], self.clocks.at(now));
    }

    /// Checks the law, after the machine has done what is due. A report that has not arrived may be sent
    /// again after one more pause.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_sight(&self, now: Time) -> Result<(), String> {
        let Sight { number, known, sent_at, .. } = &self.sight;
        if number <= known || self.member.leader().is_none() {
            return Ok(());
        }
        let latest = self.sight.sent.values().max().copied().unwrap_or(0);
        // A process that has hung does nothing before its end, and learns late what has not arrived.
        let from = sent_at.map(|at| at.max(self.clocks.at(self.hangs_until)));
        let since = from.map(|at| self.clocks.at(now).since(at));
        match since {
            Some(since) if since <= 2 * NEWS_WITHIN => Ok(()),
            _ => Err(format!(
                "the leader is not told of view {number}: it knows {known}, {latest} is on its way, \
                 and the latest report was sent {since:?} ago"
            )),
        }
    }
}
