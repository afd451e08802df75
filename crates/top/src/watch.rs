//! Who is watched, and what was last seen of each.

use crate::change::Change;
use crate::fetch::{self, Credentials};
use crate::reading::Reading;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Processes that can be watched at once: each has a thread of its own.
pub const TARGETS_MAX: usize = 64;

/// Since when a process does not answer, and why.
#[derive(Clone, Debug)]
pub struct Gone {
    /// What is wrong now.
    pub why: String,
    /// When that was first seen.
    pub since: Instant,
    /// The same by the wall clock, in seconds since the Unix epoch.
    pub since_unix_seconds: u64,
}

/// What is known of one process.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The address of its admin listener, or its id in a fleet.
    pub target: String,
    /// What it said last, as long as it answers.
    pub latest: Option<Reading>,
    /// What happened between the last two readings.
    pub change: Option<Change>,
    /// Set while it does not answer.
    pub gone: Option<Gone>,
    is_asked: bool,
}

impl Seen {
    /// A process of which nothing is known yet.
    pub fn new(target: &str) -> Seen {
        let target = fetch::name_of(target).to_owned();
        Seen { target, latest: None, change: None, gone: None, is_asked: false }
    }

    /// Takes what came of asking it.
    pub fn on_result(&mut self, result: Result<Reading, String>, now: Instant, unix_seconds: u64) {
        self.is_asked = false;
        match result {
            Ok(reading) => {
                self.change = Some(Change::between(self.latest.as_ref(), &reading));
                self.latest = Some(reading);
                self.gone = None;
            }
            Err(why) => {
                self.change = None;
                let since = self.gone.take().map(|gone| (gone.since, gone.since_unix_seconds));
                let (since, since_unix_seconds) = since.unwrap_or((now, unix_seconds));
                self.gone = Some(Gone { why, since, since_unix_seconds });
            }
        }
    }

    /// Its reading and change, unless it does not answer.
    pub fn now(&self) -> Option<(&Reading, &Change)> {
        self.latest.as_ref().zip(self.change.as_ref())
    }
}

type Told = (usize, Result<Reading, String>);

/// The watched processes, each asked by a thread that waits to be told to.
#[derive(Debug)]
pub struct Watch {
    seen: Vec<Seen>,
    ask: Vec<SyncSender<()>>,
    told: Receiver<Told>,
}

impl Watch {
    /// Starts a thread for each target, which ends with the returned value; each shows what it
    /// wants to see.
    ///
    /// # Errors
    /// When a thread cannot be started, or there are more than [`TARGETS_MAX`].
    pub fn start(targets: &[String], shown: &Credentials) -> io::Result<Watch> {
        if targets.len() > TARGETS_MAX {
            let text = format!("{} processes, {TARGETS_MAX} at most", targets.len());
            return Err(io::Error::other(text));
        }
        // One result of each is all that can be under way.
        let (tell, told) = sync_channel(targets.len());
        let mut ask = Vec::new();
        for (index, target) in targets.iter().enumerate() {
            let (asker, asked) = sync_channel::<()>(1);
            let (tell, target, shown) = (tell.clone(), target.clone(), shown.clone());
            thread::Builder::new().name("keyway-top-reader".into()).spawn(move || {
                let read = || fetch::read(&target, &shown);
                while asked.recv().is_ok() && tell.send((index, read())).is_ok() {}
            })?;
            ask.push(asker);
        }
        Ok(Watch { seen: targets.iter().map(|target| Seen::new(target)).collect(), ask, told })
    }

    /// Asks every process that is not being asked already.
    pub fn ask(&mut self) {
        for (seen, ask) in self.seen.iter_mut().zip(&self.ask) {
            if !seen.is_asked {
                seen.is_asked = !matches!(ask.try_send(()), Err(TrySendError::Disconnected(())));
            }
        }
    }

    /// Takes what has come, and waits up to `wait` for the first of it. True when something came.
    pub fn take(&mut self, wait: Duration) -> bool {
        let first = match self.told.recv_timeout(wait) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
        };
        let now = Instant::now();
        let unix_seconds = unix_seconds();
        let rest: Vec<Told> = self.told.try_iter().collect();
        for (index, result) in std::iter::once(first).chain(rest) {
            self.seen[index].on_result(result, now, unix_seconds);
        }
        true
    }

    /// Asks all and waits until each has answered or failed.
    pub fn round(&mut self) {
        self.ask();
        while self.is_asking() {
            self.take(Duration::from_millis(500));
        }
    }

    /// Returns whether an answer is awaited.
    pub fn is_asking(&self) -> bool {
        self.seen.iter().any(|seen| seen.is_asked)
    }

    /// What is known of each, in the order they were named.
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }
}

/// The wall clock, in seconds.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_gone_is_so_since_the_first_failure() {
        let start = Instant::now();
        let mut seen = Seen::new("a:1");
        seen.on_result(Err("first".into()), start, 100);
        seen.on_result(Err("second".into()), start + Duration::from_secs(5), 105);
        let gone = seen.gone.as_ref().expect("it fails");
        assert_eq!((gone.why.as_str(), gone.since_unix_seconds), ("second", 100));
        assert_eq!(gone.since, start);
        assert!(seen.now().is_none());
    }

    #[test]
    fn a_round_ends_when_each_has_failed_or_answered() {
        let targets = ["nonsense".to_owned(), "127.0.0.1:1".to_owned()];
        let mut watch = Watch::start(&targets, &Credentials::default()).expect("threads");
        watch.round();
        assert!(watch.seen().iter().all(|seen| seen.gone.is_some()));
        assert!(
            Watch::start(&vec!["a:1".to_owned(); TARGETS_MAX + 1], &Credentials::default())
                .is_err()
        );
    }
}
