//! What this process knows of the generation of a server's data, which proxies
//! that share servers agree on with a marker item on the server itself.
//!
//! Every empty or emptied server that a proxy takes back into use gets a marker
//! with a new generation. A proxy that finds one there which is none of those it
//! has seen before its own ejection of the server knows that another has seen to
//! it since, and does not empty it again.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use keyway_base::Time;

/// One generation of a server's data, as its marker says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Any number but 0 and 1, chosen by chance.
    pub id: u64,
    /// When it began by the clock of the proxy that placed the marker, in
    /// milliseconds since 1970.
    pub began_ms: u64,
}

/// What was on the server when it was last looked at in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// It was never looked at, or what was there could not be read.
    #[default]
    Nothing,
    /// It had no marker.
    Absence,
    /// It had this generation's.
    Id(u64),
}

/// What is remembered from before an ejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// What was on the server.
    pub seen: Seen,
    /// When it was ejected by this process's clock, in milliseconds since 1970.
    pub ejected_ms: u64,
}

impl Remembered {
    /// Whether a server with this marker was emptied, or found empty, after this
    /// process ejected it. Where the clocks of two proxies differ the answer may
    /// be no for a yes; a yes for a no needs a generation that began between the
    /// last look and the ejection as well.
    pub fn is_followed_by(&self, found: Generation) -> bool {
        let is_new = match self.seen {
            Seen::Nothing => false,
            Seen::Absence => true,
            Seen::Id(id) => id != found.id,
        };
        is_new && found.began_ms >= self.ejected_ms
    }
}

/// Generations of one server, shared by the workers of a process. What is read
/// of it may be of two moments: an older generation with a newer ejection, which
/// only makes [`Remembered::is_followed_by`] deny more.
#[derive(Debug, Default)]
pub struct GenerationCell {
    /// [`Seen`] in one word.
    seen: AtomicU64,
    ejected_ms: AtomicU64,
    /// When it is to be looked at again.
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

    /// What is known from before the latest ejection.
    pub fn remembered(&self) -> Remembered {
        let seen = match self.seen.load(Relaxed) {
            Self::NOTHING => Seen::Nothing,
            Self::ABSENCE => Seen::Absence,
            id => Seen::Id(id),
        };
        Remembered { seen, ejected_ms: self.ejected_ms.load(Relaxed) }
    }

    /// Whether the caller is to look at the server now; no other worker is asked
    /// to before `next`.
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
