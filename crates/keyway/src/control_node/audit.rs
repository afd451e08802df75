//! The audit log at a control node: it is checked whenever it changes, new entries are events, and
//! each is appended to `audit_file`.

use super::audit_file::AuditFile;
use keyway_control::EventLog;
use keyway_fleet::{
    AuditEntry, AuditLog, AuditOutcome, Chain, Event, Hash, Leader, Severity, Tampered,
};

/// The audit log as this node has followed it.
pub struct Audit {
    /// The coordinator's revision of the log that was looked at last.
    modified: u64,
    /// The last entry that this node has seen; `None` before the first look.
    seen: Option<Chain>,
    /// The number of the last entry that was told as an event.
    told: u64,
    /// The first thing that does not fit.
    tampered: Option<Tampered>,
    entries: u64,
    file: Option<AuditFile>,
}

impl Audit {
    /// Begins to follow the log. Entries are appended to `file`, if there is one.
    pub fn new(file: Option<AuditFile>) -> Audit {
        Audit { modified: 0, seen: None, told: 0, tampered: None, entries: 0, file }
    }

    /// Returns the number of the last entry, and whether something does not fit.
    pub fn figures(&self) -> (u64, bool) {
        (self.entries, self.tampered.is_some())
    }

    /// Looks at the log, if it has changed. `node` is the id of this node, and `now` the time in
    /// seconds since 1970.
    pub fn follow(&mut self, leader: &Leader, (node, now): (&str, u64), events: &EventLog) {
        let modified = leader.audit_modified();
        let is_news = modified != self.modified;
        let is_behind = self.file.as_ref().is_some_and(AuditFile::is_behind);
        if modified == 0 && leader.document().is_some() {
            // The coordinator was listed, and has no entry: the first one will be new.
            self.seen.get_or_insert_default();
        }
        if modified == 0 || (!is_news && !is_behind) {
            return;
        }
        let log = leader.audit();
        if is_news {
            self.modified = modified;
            self.check(&log, (node, now), events);
            self.tell_new(&log, (node, now), events);
            self.entries = log.head.map_or(self.entries, |head| head.number);
        }
        if let Some(file) = &mut self.file {
            file.follow(&log);
        }
    }

    fn check(&mut self, log: &AuditLog, (node, now): (&str, u64), events: &EventLog) {
        let found = log.verify().err().or_else(|| self.replaced(log));
        if let Some(tampered) = found.as_ref().filter(|it| self.tampered.as_ref() != Some(it)) {
            let what = format!("the audit log was changed past control: {tampered}");
            tracing::error!("{what}; keyway ctl audit --verify checks it");
            events.take(node, Event::new(now, "audit-tampered", Severity::Error, &what), now);
        }
        self.tampered = found;
    }

    /// Returns the entry that this node has seen and that is another one now, or is gone.
    fn replaced(&self, log: &AuditLog) -> Option<Tampered> {
        let Chain { number, hash } = self.seen?;
        let head = log.head?;
        let is_kept = number > head.anchor;
        let why = match log.entries.iter().find(|(it, _)| *it == number) {
            _ if number == 0 || (!is_kept && head.number >= number) => return None,
            Some((_, text)) if Hash::of(text.as_bytes()) == hash => return None,
            Some(_) => "it is another one than this node has seen",
            None => "this node has seen it, and it is gone",
        };
        Some(Tampered { number, why: why.to_owned() })
    }

    /// Tells of the changes that are new since the last look.
    fn tell_new(&mut self, log: &AuditLog, (node, now): (&str, u64), events: &EventLog) {
        let Some(head) = log.head else { return };
        let told = std::mem::replace(&mut self.told, head.number);
        // At the first look all entries are old.
        let is_first = self.seen.is_none();
        if self.seen.is_none_or(|seen| seen.number < head.number) {
            self.seen = Some(Chain { number: head.number, hash: head.hash });
        }
        let new = log.entries.iter().filter(|(number, _)| *number > told && !is_first);
        for (number, text) in new {
            let Some(entry) = AuditEntry::decode(text.as_bytes()) else { continue };
            let severity = match entry.outcome {
                AuditOutcome::Done => Severity::Info,
                AuditOutcome::Refused => Severity::Warning,
            };
            let what = in_words(&entry);
            let what = format!("{what} (audit entry {number})");
            events.take(node, Event::new(entry.at, "change", severity, &what), now);
        }
    }
}

/// Returns an entry in a few words.
fn in_words(entry: &AuditEntry) -> String {
    let by = if entry.by.is_empty() { "somebody" } else { &entry.by };
    let mut what = format!("{by}: {}", entry.what);
    if let Some((before, after)) = entry.before.zip(entry.after) {
        what += &format!(", document {before} to {after}");
    }
    if !entry.why.is_empty() {
        what += &format!(": {}", entry.why);
    }
    match entry.outcome {
        AuditOutcome::Done => what,
        AuditOutcome::Refused => format!("refused: {what}"),
    }
}
