//! Events of members, for operators. They go to the leader with reports.
//!
//! A member keeps its latest events until the leader has acknowledged a report that has them. Each
//! has a number, so the leader takes none twice. A member that cannot reach a leader for long drops
//! its oldest ones and tells how many. An event is no state: what counts is in the report itself.

use crate::limits::{
    EVENT_TEXT_LEN_MAX, EVENTS_PER_REPORT, EVENTS_WAITING_MAX, MEMBERS_MAX, NAME_LEN_MAX,
};
use crate::report::cut;
use keyway_bus::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// The weight of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", from = "String")]
pub enum Severity {
    /// It is good to know.
    Info,
    /// An operator should look. A weight of a later version counts as this.
    Warning,
    /// Something does not work.
    Error,
}

impl From<String> for Severity {
    fn from(text: String) -> Severity {
        match text.as_str() {
            "info" => Severity::Info,
            "error" => Severity::Error,
            _ => Severity::Warning,
        }
    }
}

impl Severity {
    /// Returns the word for it.
    pub fn text(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in seconds since 1970, by the clock of the process where it happened.
    pub at: u64,
    /// A word for it, such as `server-ejected`.
    pub kind: String,
    /// Its weight.
    pub severity: Severity,
    /// The pool, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The server, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The event in words.
    pub text: String,
}

impl Event {
    /// Creates an event about no pool.
    pub fn new(at: u64, kind: &str, severity: Severity, text: &str) -> Event {
        let (kind, text) = (kind.to_owned(), text.to_owned());
        Event { at, kind, severity, pool: None, server: None, text }.cut()
    }

    /// Names the pool, and the server if there is one.
    #[must_use]
    pub fn of_pool(self, pool: &str, server: Option<&str>) -> Event {
        let (pool, server) = (Some(pool.to_owned()), server.map(str::to_owned));
        Event { pool, server, ..self }.cut()
    }

    /// Cuts texts to what an event may have, and replaces characters that a terminal would obey.
    pub(crate) fn cut(self) -> Event {
        let plain = |text: &str, len_max| {
            let is_control = |letter: char| letter.is_control();
            cut(&text.replace(is_control, " "), len_max)
        };
        Event {
            at: self.at,
            severity: self.severity,
            kind: plain(&self.kind, NAME_LEN_MAX),
            pool: self.pool.map(|pool| plain(&pool, NAME_LEN_MAX)),
            server: self.server.map(|server| plain(&server, NAME_LEN_MAX)),
            text: plain(&self.text, EVENT_TEXT_LEN_MAX),
        }
    }
}

/// Events in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentEvents {
    /// A number that no other process of this member has.
    pub process: u64,
    /// The number of the first one. The first event of a process has 0.
    pub first: u64,
    /// The events, each with the next number.
    pub events: Vec<Event>,
}

/// Events of a member that the leader does not have yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    process: u64,
    /// The number of the first one that waits. Numbers before it are acknowledged, or lost.
    first: u64,
    waiting: VecDeque<Event>,
    /// The number behind the last one that the report on its way has.
    sent: Option<u64>,
}

impl Outbox {
    pub fn set_process(&mut self, process: u64) {
        self.process = process;
    }

    pub fn push(&mut self, event: Event) {
        if self.waiting.len() >= EVENTS_WAITING_MAX {
            // The leader sees the gap in the numbers.
            self.waiting.pop_front();
            self.first += 1;
        }
        self.waiting.push_back(event.cut());
    }

    /// Returns the events for a report that is sent now; `None` without any.
    pub fn send(&mut self) -> Option<SentEvents> {
        let events: Vec<Event> = self.waiting.iter().take(EVENTS_PER_REPORT).cloned().collect();
        self.sent = (!events.is_empty()).then_some(self.first + events.len() as u64);
        let (process, first) = (self.process, self.first);
        self.sent.map(|_| SentEvents { process, first, events })
    }

    /// Notes whether the report has arrived. Returns whether more events wait.
    pub fn settle(&mut self, has_arrived: bool) -> bool {
        if let Some(sent) = self.sent.take().filter(|_| has_arrived) {
            while self.first < sent && self.waiting.pop_front().is_some() {
                self.first += 1;
            }
        }
        !self.waiting.is_empty()
    }
}

/// The events of all members that were taken.
#[derive(Debug, Default)]
pub(crate) struct Inboxes(BTreeMap<NodeId, Inbox>);

impl Inboxes {
    /// Takes the events of a report that are new. Returns these, and how many were lost before.
    pub fn take(&mut self, from: NodeId, sent: SentEvents) -> (u64, Vec<Event>) {
        if self.0.len() >= MEMBERS_MAX && !self.0.contains_key(&from) {
            // There are more ids than a cluster has. A member that is forgotten has its latest
            // events taken twice.
            self.0.pop_first();
        }
        self.0.entry(from).or_default().take(sent)
    }
}

/// The events of a member that were taken.
#[derive(Clone, Copy, Debug, Default)]
struct Inbox {
    process: u64,
    next: u64,
}

impl Inbox {
    fn take(&mut self, sent: SentEvents) -> (u64, Vec<Event>) {
        let SentEvents { process, first, events } = sent;
        let is_known = self.process == process && self.next > 0;
        // A leader that hears of a process for the first time does not know what others have taken.
        let lost = if is_known { first.saturating_sub(self.next) } else { 0 };
        let next = if is_known { self.next } else { 0 };
        let skip = usize::try_from(next.saturating_sub(first)).unwrap_or(usize::MAX);
        let count = events.len().min(EVENTS_PER_REPORT);
        let new = events.into_iter().take(count).skip(skip).map(Event::cut).collect();
        let end = first.saturating_add(count as u64);
        *self = Inbox { process, next: next.max(end) };
        (lost, new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(nth: u64) -> Event {
        Event::new(nth, "test", Severity::Info, &format!("event {nth}"))
    }

    proptest! {
        /// Reports are lost, late and doubled: the leader takes each event once, in order, and
        /// counts those that it never gets.
        #[test]
        fn each_event_arrives_once_or_is_counted(
            steps in prop::collection::vec((0..200u64, 0..4u8), 1..60),
        ) {
            let (mut outbox, mut inbox) = (Outbox::default(), Inbox::default());
            outbox.set_process(7);
            let (mut made, mut had, mut lost) = (0, Vec::new(), 0);
            let mut deliver = |inbox: &mut Inbox, sent: SentEvents| {
                let (missing, events) = inbox.take(sent);
                lost += missing;
                had.extend(events.iter().map(|event| event.at));
            };
            // The leader knows this process: otherwise it cannot count what was before.
            outbox.push(event(0));
            made += 1;
            deliver(&mut inbox, outbox.send().unwrap());
            outbox.settle(true);
            for (more, fate) in steps {
                for _ in 0..more {
                    outbox.push(event(made));
                    made += 1;
                }
                let Some(sent) = outbox.send() else { continue };
                match fate {
                    // The report is lost, or only its acknowledgement is.
                    0 => drop(outbox.settle(false)),
                    1 => {
                        deliver(&mut inbox, sent);
                        outbox.settle(false);
                    }
                    2 => {
                        deliver(&mut inbox, sent.clone());
                        deliver(&mut inbox, sent);
                        outbox.settle(true);
                    }
                    _ => {
                        deliver(&mut inbox, sent);
                        outbox.settle(true);
                    }
                }
                prop_assert!(outbox.waiting.len() <= EVENTS_WAITING_MAX);
            }
            while let Some(sent) = outbox.send() {
                deliver(&mut inbox, sent);
                outbox.settle(true);
            }
            prop_assert!(had.windows(2).all(|two| two[0] < two[1]), "{had:?}");
            prop_assert_eq!(had.len() as u64 + lost, made);
        }
    }

    #[test]
    fn another_process_of_a_member_begins_anew() {
        let mut inbox = Inbox::default();
        let sent = |process, first| SentEvents { process, first, events: vec![event(1), event(2)] };
        assert_eq!(inbox.take(sent(1, 0)).1.len(), 2);
        assert_eq!(inbox.take(sent(1, 0)).1.len(), 0);
        assert_eq!(inbox.take(sent(1, 1)).1.len(), 1);
        assert_eq!(inbox.take(sent(2, 0)).1.len(), 2);
        assert_eq!(inbox.take(sent(2, 9)).0, 7);
    }

    #[test]
    fn texts_are_bounded_and_plain() {
        let long = Event::new(1, "k", Severity::Error, &"\u{1b}x".repeat(10_000));
        let long = long.of_pool(&"p".repeat(1000), Some("s\n"));
        assert!(long.text.len() <= EVENT_TEXT_LEN_MAX && !long.text.contains('\u{1b}'));
        assert_eq!(long.server.as_deref(), Some("s "));
        assert_eq!(long.pool.map(|pool| pool.len()), Some(NAME_LEN_MAX));
        let later: Severity = serde_json::from_str("\"fatal\"").unwrap();
        assert_eq!(later, Severity::Warning);
    }
}
