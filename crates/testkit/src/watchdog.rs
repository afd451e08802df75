//! Waiting for a condition, and the bound on how long.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often a condition is looked at. Shorter burns the CPU the servers
/// under test need; longer adds its half to every wait.
const LOOK_EVERY: Duration = Duration::from_millis(2);

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
    try_for(bound, condition)
        .unwrap_or_else(|| panic!("waited {} s in vain: {what}", bound.as_secs_f32()))
}

/// Looks at `condition` until it gives a value; none when `bound` has passed
/// without one.
pub(crate) fn try_for<T>(bound: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + bound;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The same of one that holds or not.
pub(crate) fn try_until(bound: Duration, mut condition: impl FnMut() -> bool) -> bool {
    try_for(bound, || condition().then_some(())).is_some()
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
