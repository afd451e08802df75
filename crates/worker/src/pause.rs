use keyway_base::Time;
use keyway_command::{Class, Flags, Request, Verb};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What every request of a pool looks at, of all workers: the pause that
/// `CLIENT PAUSE` set, and whether somebody watches with MONITOR.
#[derive(Debug, Default)]
pub struct Pause(AtomicU64);

/// Set in the word when only writes wait; the rest is the end, in nanoseconds.
const WRITES_ONLY: u64 = 1 << 63;

/// Set in the word while there are monitors.
const MONITORED: u64 = 1 << 62;

impl Pause {
    /// Begins a pause that ends at `until`; a time in the past ends it.
    pub fn set(&self, until: Time, writes_only: bool) {
        let mode = if writes_only { WRITES_ONLY } else { 0 };
        let word = until.0 & !(WRITES_ONLY | MONITORED) | mode;
        let _ = self.0.fetch_update(Relaxed, Relaxed, |old| Some(old & MONITORED | word));
    }

    /// Notes whether somebody watches the pool's requests.
    pub fn set_monitored(&self, is_monitored: bool) {
        if is_monitored {
            self.0.fetch_or(MONITORED, Relaxed);
        } else {
            self.0.fetch_and(!MONITORED, Relaxed);
        }
    }

    /// Whether somebody watches the pool's requests.
    pub fn is_monitored(&self) -> bool {
        self.0.load(Relaxed) & MONITORED != 0
    }

    /// Whether nothing was ever paused and nobody watches, told at the cost of one load.
    #[inline]
    pub fn is_unused(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// When the pause ends, if there is one.
    pub fn end(&self, now: Time) -> Option<Time> {
        let until = Time(self.0.load(Relaxed) & !(WRITES_ONLY | MONITORED));
        (now < until).then_some(until)
    }

    /// Until when a request waits. `CLIENT PAUSE` and `CLIENT UNPAUSE` never
    /// do, or a pause could not be ended.
    #[cold]
    pub fn holds(&self, request: &Request, now: Time) -> Option<Time> {
        let until = self.end(now)?;
        let writes_only = self.0.load(Relaxed) & WRITES_ONLY != 0;
        let command = request.command;
        // A server does not tell of the verbs here that they may change data.
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
        pause.set(Time(10), false);
        assert!(holds(&pause, "get k", 5) && holds(&pause, "ping", 9));
        assert!(!holds(&pause, "get k", 10) && !holds(&pause, "client unpause", 5));
        pause.set(Time(10), true);
        for line in ["set k v", "publish c m", "eval s 1 k", "exec", "pfcount k"] {
            assert!(holds(&pause, line, 5), "{line}");
        }
        for line in ["get k", "ping", "eval_ro s 1 k", "multi"] {
            assert!(!holds(&pause, line, 5), "{line}");
        }
        pause.set_monitored(true);
        assert!(holds(&pause, "set k v", 5) && !holds(&pause, "get k", 5));
        pause.set(Time(0), false);
        assert!(pause.is_monitored() && !pause.is_unused());
        pause.set_monitored(false);
        assert!(pause.is_unused() && !holds(&pause, "set k v", 5));
    }
}
