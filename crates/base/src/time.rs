use std::ops::{Add, Sub};
use std::time::Duration;

/// A time on the worker's monotonic clock, in nanoseconds from an arbitrary start. It is read once
/// per turn of the worker and passed down: no code below the worker reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Returns the whole milliseconds since the clock's start.
    pub fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Returns how long ago `earlier` was; zero if it lies in the future.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time `span` earlier, but not before the clock's start.
    pub fn before(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, rhs: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, rhs: Time) -> Duration {
        self.since(rhs)
    }
}

/// Both clocks of one turn: the monotonic one for timeouts and latency, and
/// the wall clock for expiry and replies such as `TIME`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The monotonic clock.
    pub now: Time,
    /// Microseconds since the Unix epoch.
    pub unix_micros: u64,
}

impl Clock {
    /// Returns the milliseconds since the Unix epoch.
    pub fn unix_millis(self) -> u64 {
        self.unix_micros / 1_000
    }
}
