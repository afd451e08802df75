//! Waiting for a condition, and the bound on how long.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often a condition is looked at. Shorter burns the CPU the servers
/// under test need; longer adds its half to every wait.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The same where a look is a connection to each of several servers.
const LOOK_SELDOM: Duration = Duration::from_millis(20);

/// Ends the whole test process when it is not dropped in time.
#[derive(Debug)]
pub struct Watchdog {
    alive: Sender<()>,
}

/// Gives the code that follows `bound` to finish while the returned value
/// lives. When time is up it prints `what`, ends every server this process
/// started, and exits with an error: a hanging test must not hang the suite.
pub fn watchdog(bound: Duration, what: &str) -> Watchdog {
    let (alive, ended) = channel::<()>();
    let what = what.to_owned();
    std::thread::spawn(move || {
        if ended.recv_timeout(bound) == Err(RecvTimeoutError::Timeout) {
            eprintln!("watchdog: {what}: not finished after {} s", bound.as_secs_f32());
            crate::process::kill_all();
            std::process::exit(101);
        }
    });
    Watchdog { alive }
}

impl Watchdog {
    /// Ends the watch early; dropping does the same.
    pub fn stop(self) {
        drop(self.alive);
    }
}

/// Looks at `condition` until it gives a value.
///
/// # Panics
/// When `bound` has passed without one; the message carries `what`.
pub fn wait_for<T>(what: &str, bound: Duration, condition: impl FnMut() -> Option<T>) -> T {
    wait_every(LOOK_EVERY, what, bound, condition)
}

/// The same with less to do between, for what is dear to look at.
///
/// # Panics
/// As [`wait_for`].
pub(crate) fn wait_seldom<T>(
    what: &str,
    bound: Duration,
    condition: impl FnMut() -> Option<T>,
) -> T {
    wait_every(LOOK_SELDOM, what, bound, condition)
}

/// The same of a condition that holds or not.
///
/// # Panics
/// As [`wait_for`].
pub(crate) fn wait_seldom_until(what: &str, bound: Duration, mut condition: impl FnMut() -> bool) {
    wait_seldom(what, bound, || condition().then_some(()));
}

fn wait_every<T>(
    every: Duration,
    what: &str,
    bound: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + bound;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "waited {} s in vain: {what}", bound.as_secs_f32());
        std::thread::sleep(every);
    }
}

/// Looks at `condition`, seldom, until it holds or `bound` has passed; whether
/// it held.
pub(crate) fn try_until(bound: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + bound;
    while Instant::now() < end {
        if condition() {
            return true;
        }
        std::thread::sleep(LOOK_SELDOM);
    }
    false
}

/// Looks at `condition` until it holds.
///
/// # Panics
/// When `bound` has passed and it never held; the message carries `what`.
pub fn wait_until(what: &str, bound: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, bound, || condition().then_some(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_returns_the_first_value_the_condition_gives() {
        let mut looks = 0;
        let seen = wait_for("three looks", Duration::from_secs(5), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(seen, 3);
    }

    #[test]
    #[should_panic(expected = "waited 0.01 s in vain: the impossible")]
    fn waiting_in_vain_says_for_what() {
        wait_until("the impossible", Duration::from_millis(10), || false);
    }
}
