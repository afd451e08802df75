//! Messages that repeat, as while an upstream is away. They are printed once, and once a minute
//! after that.

use keyway_base::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which a repeated message is printed again. If it were shorter, disks would fill. If
/// it were longer, an operator who looks later would think that all is well.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Most things that are remembered. Messages about further things are printed each time.
const KNOWN_MAX: usize = 64;

/// For each thing, the latest message and its time.
#[derive(Default)]
pub struct Repeats {
    said: BTreeMap<String, (String, Time)>,
}

impl Repeats {
    /// Returns whether the message `what` about `thing` is to be printed now.
    pub fn is_news(&mut self, thing: &str, what: &str, now: Time) -> bool {
        if let Some((known, at)) = self.said.get(thing)
            && known == what
            && now.since(*at) < AGAIN_AFTER
        {
            return false;
        }
        if self.said.len() < KNOWN_MAX || self.said.contains_key(thing) {
            self.said.insert(thing.to_owned(), (what.to_owned(), now));
        }
        true
    }

    /// Forgets all messages, so that each is printed again.
    pub fn forget(&mut self) {
        self.said.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute_and_another_thing_at_once() {
        let mut repeats = Repeats::default();
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        assert!(repeats.is_news("a", "closed", at(1)));
        assert!(!repeats.is_news("a", "closed", at(60)));
        assert!(repeats.is_news("b", "closed", at(60)));
        assert!(repeats.is_news("a", "closed", at(61)));
        assert!(repeats.is_news("a", "mute", at(62)));
        assert!(!repeats.is_news("a", "mute", at(63)));
        repeats.forget();
        assert!(repeats.is_news("a", "mute", at(64)));
        for thing in 0..1000 {
            assert!(repeats.is_news(&format!("c{thing}"), "closed", at(65)));
        }
        assert!(repeats.said.len() <= KNOWN_MAX);
    }
}
