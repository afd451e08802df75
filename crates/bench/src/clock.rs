//! The only place of this crate that reads a clock or sleeps.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::interrupt;

/// Returns the monotonic time.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures time; no worker runs here")]
pub fn now() -> Instant {
    Instant::now()
}

/// Lets other processes run for `pause`, or until the run is interrupted.
///
/// # Errors
/// Returns [`Error::Interrupted`].
pub fn pause(pause: Duration) -> Result<(), Error> {
    wait_until(pause, || Ok(false)).map(drop)
}

/// Waits until `condition` is true. Returns false if `patience` ran out first.
///
/// # Errors
/// Returns [`Error::Interrupted`], or the error of `condition`.
#[allow(clippy::disallowed_methods, reason = "waiting for other processes; no worker runs here")]
pub fn wait_until(
    patience: Duration,
    mut condition: impl FnMut() -> Result<bool, Error>,
) -> Result<bool, Error> {
    let until = now() + patience;
    loop {
        interrupt::check()?;
        if condition()? {
            return Ok(true);
        }
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(left.min(Duration::from_millis(5)));
    }
}

/// Returns the milliseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "a report carries its date; no worker runs here")]
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Returns today's date in UTC, as `YYYY-MM-DD`.
pub fn today() -> String {
    let mut time = keyway_scenario::time(unix_ms());
    time.truncate("YYYY-MM-DD".len());
    time
}
