//! What this process knows of the generation of a server's data. Proxies that share servers agree
//! on the generation by a marker item on the server itself.
//!
//! When a proxy takes an empty or emptied server back into use, it writes a marker with a new
//! generation. Suppose a proxy finds a marker that it had not seen before it ejected the server.
//! Then another proxy has emptied the server since, and this proxy does not empty it again.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use keyway_base::Time;

/// One generation of a server's data, as its marker states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// A random number other than 0 and 1.
    pub id: u64,
    /// Its start by the clock of the proxy that wrote the marker, in milliseconds since 1970.
    pub began_ms: u64,
}

/// What the latest look at a server in use has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// The server was never looked at, or its marker could not be read.
    #[default]
    Nothing,
    /// The server had no marker.
    Absence,
    /// The server had the marker of this generation.
    Id(u64),
}

/// What is remembered from before an ejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// What the latest look before the ejection had found.
    pub seen: Seen,
    /// Time of the ejection by this process's clock, in milliseconds since 1970.
    pub ejected_ms: u64,
}

impl Remembered {
    /// Returns whether a server with the marker `found` was emptied, or found empty, after this
    /// process ejected it. If the clocks of two proxies differ, this may wrongly return false. It
    /// returns true wrongly only if, in addition, a generation began between the last look and the
    /// ejection.
    pub fn is_followed_by(&self, found: Generation) -> bool {
        let is_new = match self.seen {
            Seen::Nothing => false,
            Seen::Absence => true,
            Seen::Id(id) => id != found.id,
        };
        is_new && found.began_ms >= self.ejected_ms
    }
}

/// The generations of one server, shared by the workers of a process. A reader may get values of
/// two moments: an older generation with a newer ejection. [`Remembered::is_followed_by`] then only
/// returns false more often.
#[derive(Debug, Default)]
pub struct GenerationCell {
    /// The [`Seen`], in one word.
    seen: AtomicU64,
    ejected_ms: AtomicU64,
    /// Time of the next look.
    next_look: AtomicU64,
}

impl GenerationCell {
    const NOTHING: u64 = 0;
    const ABSENCE: u64 = 1;

    /// Notes what was found on the server.
    pub fn note_seen(&self, seen: Seen) {
        let word = match seen {
            Seen::Nothing => Self::NOTHING,
            Seen::Absence => Self::ABSENCE,
            Seen::Id(id) => id,
        };
        self.seen.store(word, Relaxed);
    }

    /// Notes that the server goes out of use.
    pub fn note_ejected(&self, unix_ms: u64) {
        self.ejected_ms.store(unix_ms, Relaxed);
    }

    /// Returns what is remembered from before the latest ejection.
    pub fn remembered(&self) -> Remembered {
        let seen = match self.seen.load(Relaxed) {
            Self::NOTHING => Seen::Nothing,
            Self::ABSENCE => Seen::Absence,
            id => Seen::Id(id),
        };
        Remembered { seen, ejected_ms: self.ejected_ms.load(Relaxed) }
    }

    /// Returns whether the caller is to look at the server now. No other worker looks at it before
    /// `next`.
    pub fn try_claim_look(&self, now: Time, next: Time) -> bool {
        let is_due = |due: u64| (due <= now.0).then_some(next.0);
        self.next_look.fetch_update(Relaxed, Relaxed, is_due).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Generation = Generation { id: 7, began_ms: 1_000 };

    #[test]
    fn only_another_generation_than_the_one_known_and_a_later_one_counts() {
        let followed = |seen, ejected_ms| Remembered { seen, ejected_ms }.is_followed_by(FOUND);
        assert!(followed(Seen::Id(6), 900));
        assert!(followed(Seen::Absence, 1_000));
        assert!(!followed(Seen::Id(7), 900), "the same as before");
        assert!(!followed(Seen::Nothing, 900), "perhaps the same as before");
        assert!(!followed(Seen::Id(6), 1_001), "of an earlier outage of another proxy's");
    }

    #[test]
    fn one_look_is_for_one_worker() {
        let cell = GenerationCell::default();
        assert!(cell.try_claim_look(Time(5), Time(100)));
        assert!(!cell.try_claim_look(Time(99), Time(200)));
        assert!(cell.try_claim_look(Time(100), Time(200)));
    }

    #[test]
    fn what_was_seen_last_is_remembered() {
        let cell = GenerationCell::default();
        assert_eq!(cell.remembered(), Remembered::default());
        for seen in [Seen::Absence, Seen::Id(u64::MAX), Seen::Nothing] {
            cell.note_seen(seen);
            cell.note_ejected(44);
            assert_eq!(cell.remembered(), Remembered { seen, ejected_ms: 44 });
        }
    }
}
