use keyway_base::Time;
use keyway_command::{Class, Flags, Request, Verb};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A word that every request of a pool checks, for all workers: the pause that `CLIENT PAUSE` set,
/// and whether there are monitors.
#[derive(Debug, Default)]
pub struct Pause(AtomicU64);

/// Set in the word if only writes wait. The rest is the end, in nanoseconds.
const WRITES_ONLY: u64 = 1 << 63;

/// Set in the word while there are monitors.
const MONITORED: u64 = 1 << 62;

/// Set in the word while writes wait for the store to be handed over to a replica.
const HANDED_OVER: u64 = 1 << 61;

/// Set in the word while the pool is held for another process: every request waits, also those
/// that could end a pause.
const HELD: u64 = 1 << 60;

/// Set in the word while slots of the pool may be fenced. Each worker knows which ones.
const FENCED: u64 = 1 << 59;

/// The part of the word that does not belong to pauses of clients.
const KEPT: u64 = MONITORED | HANDED_OVER | HELD | FENCED;

/// The part of the word that contains the end.
const END: u64 = FENCED - 1;

/// Time between two looks of a request that waits for the store to be handed over. Longer serves it
/// later.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Time after which it is looked whether the hold is over. Longer lets clients wait for longer.
pub(crate) const HELD_LOOK: Duration = Duration::from_millis(2);

impl Pause {
    /// Begins a pause that ends at `until`. With two at once, the later end and the stronger mode
    /// apply.
    pub fn extend(&self, until: Time, writes_only: bool, now: Time) {
        let extended = |word: u64| {
            let end = word & END;
            let is_over = end <= now.0;
            let is_weak = writes_only && (is_over || word & WRITES_ONLY != 0);
            let mode = if is_weak { WRITES_ONLY } else { 0 };
            Some(end.max(until.0 & END) | mode | word & KEPT)
        };
        let _ = self.0.fetch_update(Relaxed, Relaxed, extended);
    }

    /// Ends any pause of clients.
    pub fn stop(&self) {
        self.0.fetch_and(KEPT, Relaxed);
    }

    /// Holds writes while the store is handed over to a replica.
    pub fn set_handed_over(&self, is_handed_over: bool) {
        self.set(HANDED_OVER, is_handed_over);
    }

    /// Holds every request of the pool, or no longer. Pauses of clients do not change that.
    pub fn set_held(&self, is_held: bool) {
        self.set(HELD, is_held);
    }

    /// Notes whether slots of the pool may be fenced.
    pub fn set_fenced(&self, is_fenced: bool) {
        self.set(FENCED, is_fenced);
    }

    /// Returns whether slots of the pool may be fenced.
    pub fn is_fenced(&self) -> bool {
        self.0.load(Relaxed) & FENCED != 0
    }

    /// Returns whether every request is held.
    pub fn is_held(&self) -> bool {
        self.0.load(Relaxed) & HELD != 0
    }

    fn set(&self, bit: u64, is_set: bool) {
        match is_set {
            true => self.0.fetch_or(bit, Relaxed),
            false => self.0.fetch_and(!bit, Relaxed),
        };
    }

    /// Notes whether the pool has monitors.
    pub fn set_monitored(&self, is_monitored: bool) {
        self.set(MONITORED, is_monitored);
    }

    /// Returns whether the pool has monitors.
    pub fn is_monitored(&self) -> bool {
        self.0.load(Relaxed) & MONITORED != 0
    }

    /// Returns whether nothing was ever paused and there are no monitors, with one load.
    #[inline]
    pub fn is_unused(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Returns when the pause ends, if there is one.
    pub fn end(&self, now: Time) -> Option<Time> {
        let word = self.0.load(Relaxed);
        if word & HELD != 0 {
            return Some(now + HELD_LOOK);
        }
        let until = Time(word & END);
        let next_look = (word & HANDED_OVER != 0).then(|| now + LOOK_EVERY);
        (now < until).then_some(until).max(next_look)
    }

    /// Returns whether requests wait because data is handed over, and for nothing else.
    pub fn is_for_hand_over(&self, now: Time) -> bool {
        let word = self.0.load(Relaxed);
        word & HANDED_OVER != 0 && word & HELD == 0 && now >= Time(word & END)
    }

    /// Returns whether only writes wait.
    fn holds_writes_only(&self, now: Time) -> bool {
        let word = self.0.load(Relaxed);
        // The mode is that of clients, whose pause may be over.
        word & HELD == 0 && (word & WRITES_ONLY != 0 || now >= Time(word & END))
    }

    /// Returns until when a request of a client of memcached waits.
    #[cold]
    pub fn holds_plain(&self, writes: bool, now: Time) -> Option<Time> {
        let writes_only = self.holds_writes_only(now);
        self.end(now).filter(|_| writes || !writes_only)
    }

    /// Returns until when a request waits. `CLIENT PAUSE` and `CLIENT UNPAUSE` never wait.
    /// Otherwise a pause could not be ended.
    #[cold]
    pub fn holds(&self, request: &Request, now: Time) -> Option<Time> {
        let until = self.end(now)?;
        if self.is_held() {
            return Some(until);
        }
        let writes_only = self.holds_writes_only(now);
        let command = request.command;
        // A server does not say that these verbs may change data.
        let writes = command.flags.contains(Flags::WRITE)
            || (command.class == Class::Script && !command.flags.contains(Flags::READONLY))
            || matches!(command.verb, Verb::Exec | Verb::Pfcount | Verb::Publish | Verb::Spublish);
        let is_exempt = matches!(command.verb, Verb::ClientPause | Verb::ClientUnpause);
        ((writes || !writes_only) && !is_exempt).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::ByteRange;
    use keyway_command::Args;

    fn holds(pause: &Pause, line: &str, now: u64) -> bool {
        let mut ranges = Vec::new();
        let mut start = 0;
        for word in line.split(' ') {
            ranges.push(ByteRange::new(start, start + word.len()));
            start += word.len() + 1;
        }
        let request = Request::resolve(Args::new(line.as_bytes(), &ranges)).unwrap();
        pause.holds(&request, Time(now)).is_some()
    }

    #[test]
    fn a_pause_holds_what_it_says_until_it_ends() {
        let pause = Pause::default();
        assert!(pause.is_unused() && !holds(&pause, "get k", 5));
        pause.extend(Time(10), false, Time(0));
        assert!(holds(&pause, "get k", 5) && holds(&pause, "ping", 9));
        assert!(!holds(&pause, "get k", 10) && !holds(&pause, "client unpause", 5));
        pause.stop();
        pause.extend(Time(10), true, Time(4));
        for line in ["set k v", "publish c m", "eval s 1 k", "exec", "pfcount k", "script load s"] {
            assert!(holds(&pause, line, 5), "{line}");
        }
        for line in ["get k", "ping", "eval_ro s 1 k", "multi"] {
            assert!(!holds(&pause, line, 5), "{line}");
        }
        pause.set_monitored(true);
        assert!(holds(&pause, "set k v", 5) && !holds(&pause, "get k", 5));
        pause.stop();
        assert!(pause.is_monitored() && !pause.is_unused());
        pause.set_monitored(false);
        assert!(pause.is_unused() && !holds(&pause, "set k v", 5));
    }

    #[test]
    fn a_store_that_is_handed_over_takes_no_writes_until_it_is_whatever_clients_say() {
        let pause = Pause::default();
        pause.set_handed_over(true);
        assert!(holds(&pause, "set k v", 5) && !holds(&pause, "get k", 5));
        assert!(pause.is_for_hand_over(Time(5)));
        assert_eq!(pause.holds_plain(false, Time(5)), None);
        pause.extend(Time(10), false, Time(5));
        assert!(!pause.is_for_hand_over(Time(9)) && pause.is_for_hand_over(Time(10)));
        assert!(holds(&pause, "get k", 9) && !holds(&pause, "get k", 10));
        pause.stop();
        assert!(holds(&pause, "set k v", 12) && !holds(&pause, "client unpause", 12));
        pause.set_handed_over(false);
        assert!(pause.is_unused());
    }

    #[test]
    fn a_hold_is_of_every_request_and_outlasts_pauses() {
        let pause = Pause::default();
        pause.set_held(true);
        pause.extend(Time(30), true, Time(1));
        for line in ["get k", "set k v", "client unpause", "client pause 1"] {
            assert!(holds(&pause, line, 40), "{line}");
        }
        assert!(pause.holds_plain(false, Time(40)).is_some());
        pause.stop();
        assert!(pause.is_held() && holds(&pause, "ping", 5));
        pause.set_held(false);
        assert!(pause.is_unused());
    }

    #[test]
    fn of_two_pauses_the_later_end_and_the_stronger_mode_hold() {
        let pause = Pause::default();
        pause.extend(Time(30), true, Time(1));
        pause.extend(Time(10), true, Time(2));
        assert!(holds(&pause, "set k v", 20) && !holds(&pause, "get k", 5));
        pause.extend(Time(15), false, Time(3));
        assert!(holds(&pause, "get k", 20) && !holds(&pause, "get k", 30));
        // The earlier one is over.
        pause.extend(Time(50), true, Time(40));
        assert!(holds(&pause, "set k v", 45) && !holds(&pause, "get k", 45));
    }
}
