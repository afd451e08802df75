//! Events about certificates that are about to expire.

use keyway_base::Time;
use keyway_fleet::{Event, Severity};
use std::collections::BTreeMap;
use std::time::Duration;

/// Days before the end at which an event tells of it, and 0 for one that has expired.
const DAYS: [i64; 4] = [0, 1, 7, 30];

/// Time between two looks. A certificate is told of at most this late.
const EVERY: Duration = Duration::from_secs(3600);

/// The certificates that were told of.
#[derive(Default)]
pub struct Expiry {
    look_at: Option<Time>,
    /// For each file, the end of its first certificate, and the number of [`DAYS`] that was told.
    told: BTreeMap<String, (i64, i64)>,
}

impl Expiry {
    /// Returns whether it is time to look.
    pub fn is_due(&mut self, now: Time) -> bool {
        let is_due = self.look_at.is_none_or(|at| at <= now);
        if is_due {
            self.look_at = Some(now + EVERY);
        }
        is_due
    }

    /// Returns the events about files whose first certificate ends then. All times are in seconds
    /// since 1970.
    pub fn look(&mut self, files: Vec<(String, i64)>, unix_seconds: u64) -> Vec<Event> {
        let now = i64::try_from(unix_seconds).unwrap_or(i64::MAX);
        self.told.retain(|file, _| files.iter().any(|(there, _)| there == file));
        let mut events = Vec::new();
        for (file, end) in files {
            let left = end.saturating_sub(now);
            let Some(days) = DAYS.into_iter().find(|days| left <= days * 86_400) else {
                self.told.remove(&file);
                continue;
            };
            if self.told.insert(file.clone(), (end, days)) == Some((end, days)) {
                continue;
            }
            let until = keyway_control::utc(u64::try_from(end).unwrap_or_default());
            let (severity, text) = match days {
                0 => (Severity::Error, format!("a certificate in {file} has expired at {until}")),
                1 => (Severity::Error, format!("a certificate in {file} expires at {until}")),
                _ => (Severity::Warning, format!("a certificate in {file} expires at {until}")),
            };
            let kind = if days == 0 { "certificate-expired" } else { "certificate-expires" };
            events.push(Event::new(unix_seconds, kind, severity, &text));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_told_of_at_30_7_and_1_days_once_each() {
        let mut expiry = Expiry::default();
        let end = 100 * 86_400;
        let mut told = Vec::new();
        for hour in 0..24 * 102 {
            let files = vec![("a.pem".to_owned(), end), ("far.pem".to_owned(), end * 10)];
            for event in expiry.look(files, hour * 3600) {
                told.push((hour / 24, event.kind));
            }
        }
        let expected = [(70, "expires"), (93, "expires"), (99, "expires"), (100, "expired")];
        let expected = expected.map(|(day, what)| (day, format!("certificate-{what}")));
        assert_eq!(told, expected);
        // A new certificate in the same file is told of anew.
        assert!(expiry.look(vec![("a.pem".to_owned(), end * 2)], 110 * 86_400).is_empty());
        assert_eq!(expiry.look(vec![("a.pem".to_owned(), end * 2)], 180 * 86_400).len(), 1);
    }

    #[test]
    fn looks_are_an_hour_apart() {
        let mut expiry = Expiry::default();
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        assert!(expiry.is_due(at(5)) && !expiry.is_due(at(3604)) && expiry.is_due(at(3605)));
    }
}
