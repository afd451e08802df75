use keyway_base::Clock;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Number of entries that are kept, like Redis's `acllog-max-len`.
const LEN_MAX: usize = 128;

/// Number of bytes that are kept of a key, channel or client's description.
const TEXT_LEN_MAX: usize = 512;

/// Equal refusals within this many milliseconds are one entry, as in Redis.
const SAME_MILLIS: u64 = 60_000;

/// The kind of what was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
    /// A login.
    Auth,
}

impl Reason {
    /// Returns its name in `ACL LOG`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

/// Where it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// As a single command.
    Toplevel,
    /// Between MULTI and EXEC.
    Multi,
    /// In a script or function.
    Script,
}

impl Place {
    /// Returns its name in `ACL LOG`.
    pub fn as_str(self) -> &'static str {
        match self {
            Place::Toplevel => "toplevel",
            Place::Multi => "multi",
            Place::Script => "lua",
        }
    }
}

/// A refusal.
#[derive(Clone, Copy, Debug)]
pub struct Happened<'a> {
    /// The kind of what was refused.
    pub reason: Reason,
    /// Where it was refused.
    pub place: Place,
    /// The command, key or channel.
    pub object: &'a [u8],
    /// The user that was refused.
    pub user: &'a str,
    /// The client, as in `CLIENT LIST`.
    pub client: &'a str,
}

/// One entry: the same refusal, with its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kind of what was refused.
    pub reason: Reason,
    /// Where it was refused.
    pub place: Place,
    /// The command, key or channel.
    pub object: Vec<u8>,
    /// The user.
    pub user: String,
    /// The client that asked last.
    pub client: String,
    /// How often it was refused.
    pub count: u64,
    /// When it was last refused, in milliseconds of Unix time.
    pub at_unix_millis: u64,
}

/// Recent refusals, with the newest first. Refusals and readers lock it.
#[derive(Debug, Default)]
pub struct AccessLog {
    entries: Mutex<VecDeque<Entry>>,
}

impl AccessLog {
    /// Notes a refusal.
    pub fn note(&self, happened: &Happened<'_>, clock: Clock) {
        let Happened { reason, place, user, .. } = *happened;
        let object = &happened.object[..happened.object.len().min(TEXT_LEN_MAX)];
        let now = clock.unix_micros / 1000;
        let client: String = happened.client.chars().take(TEXT_LEN_MAX).collect();
        let mut entries = self.entries.lock();
        let is_same = |entry: &Entry| {
            (entry.reason, entry.place, &entry.object[..], &entry.user[..])
                == (reason, place, object, user)
                && now.saturating_sub(entry.at_unix_millis) < SAME_MILLIS
        };
        let count = match entries.iter().position(is_same) {
            Some(at) => entries.remove(at).map_or(0, |entry| entry.count),
            None => 0,
        };
        let object = object.to_vec();
        let user = user.to_owned();
        let count = count + 1;
        entries.truncate(LEN_MAX - 1);
        entries.push_front(Entry {
            reason,
            place,
            object,
            user,
            client,
            count,
            at_unix_millis: now,
        });
    }

    /// Returns the newest entries, at most `len`.
    pub fn newest(&self, len: usize) -> Vec<Entry> {
        self.entries.lock().iter().take(len).cloned().collect()
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.entries.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Time;

    fn note(log: &AccessLog, object: &str, seconds: u64) {
        let happened = Happened {
            reason: Reason::Key,
            place: Place::Toplevel,
            object: object.as_bytes(),
            user: "u",
            client: "c",
        };
        log.note(&happened, Clock { now: Time(0), unix_micros: seconds * 1_000_000 });
    }

    #[test]
    fn the_same_within_a_minute_is_one_entry() {
        let log = AccessLog::default();
        note(&log, "a", 1);
        note(&log, "b", 2);
        note(&log, "a", 50);
        let seen: Vec<_> =
            log.newest(10).iter().map(|entry| (entry.object.clone(), entry.count)).collect();
        assert_eq!(seen, [(b"a".to_vec(), 2), (b"b".to_vec(), 1)]);
        note(&log, "a", 200);
        assert_eq!(log.newest(10).len(), 3);
        log.clear();
        assert_eq!(log.newest(10), []);
    }

    #[test]
    fn a_minute_is_sixty_seconds_and_not_one_millisecond_more() {
        let log = AccessLog::default();
        let happened = Happened {
            reason: Reason::Auth,
            place: Place::Toplevel,
            object: &[b'x'; TEXT_LEN_MAX + 1],
            user: "u",
            client: &"c".repeat(TEXT_LEN_MAX + 1),
        };
        let mut counts = Vec::new();
        for unix_millis in [5_000, 64_999, 124_999] {
            let unix_micros = unix_millis * 1000;
            log.note(&happened, Clock { now: Time(0), unix_micros });
            let newest = &log.newest(1)[0];
            assert_eq!(newest.at_unix_millis, unix_millis);
            assert_eq!((newest.object.len(), newest.client.len()), (TEXT_LEN_MAX, TEXT_LEN_MAX));
            counts.push(newest.count);
        }
        assert_eq!(counts, [1, 2, 1]);
    }

    #[test]
    fn refusals_of_other_reasons_and_places_are_other_entries_by_the_words_of_redis() {
        let log = AccessLog::default();
        for (reason, place) in [
            (Reason::Command, Place::Toplevel),
            (Reason::Key, Place::Multi),
            (Reason::Channel, Place::Script),
            (Reason::Auth, Place::Toplevel),
        ] {
            let happened = Happened { reason, place, object: b"x", user: "u", client: "c" };
            log.note(&happened, Clock { now: Time(0), unix_micros: 0 });
        }
        let words: Vec<_> = log
            .newest(9)
            .iter()
            .map(|entry| (entry.reason.as_str(), entry.place.as_str(), entry.count))
            .collect();
        let expected = [
            ("auth", "toplevel", 1),
            ("channel", "lua", 1),
            ("key", "multi", 1),
            ("command", "toplevel", 1),
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn it_keeps_so_many_and_no_more() {
        let log = AccessLog::default();
        (0..1000).for_each(|n| note(&log, &n.to_string(), 1));
        let kept = log.newest(10_000);
        assert_eq!(kept.len(), LEN_MAX);
        assert_eq!(kept[0].object, b"999");
    }
}
