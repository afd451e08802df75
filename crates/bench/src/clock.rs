//! The only place of this crate that reads a clock or sleeps.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::interrupt;

/// The monotonic clock.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures time; no worker runs here")]
pub fn now() -> Instant {
    Instant::now()
}

/// Lets other processes run for `pause`, or until the run is interrupted.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn pause(pause: Duration) -> Result<(), Error> {
    let until = now() + pause;
    loop {
        interrupt::check()?;
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return Ok(());
        }
        sleep_a_moment(left.min(Duration::from_millis(50)));
    }
}

/// Waits until `condition` holds; false when `patience` ran out first.
///
/// # Errors
/// [`Error::Interrupted`], or what `condition` fails with.
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
        if now() >= until {
            return Ok(false);
        }
        sleep_a_moment(Duration::from_millis(5));
    }
}

#[allow(clippy::disallowed_methods, reason = "waiting for other processes; no worker runs here")]
fn sleep_a_moment(moment: Duration) {
    std::thread::sleep(moment);
}

/// Today's date in UTC, as `YYYY-MM-DD`.
#[allow(clippy::disallowed_methods, reason = "a report carries its date; no worker runs here")]
pub fn today() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil_date(since_epoch.as_secs() / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of the day `days` after 1970-01-01 (Gregorian).
fn civil_date(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(59), (1970, 3, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(20_088), (2024, 12, 31));
        assert_eq!(civil_date(20_089), (2025, 1, 1));
    }
}
