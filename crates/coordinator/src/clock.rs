use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A moment of the clock that also runs while the machine sleeps: the time since it was started.
/// The same for all processes of a host, and no operator can set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// Returns the present.
    pub(crate) fn now() -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        Moment(Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0)))
    }

    /// Returns the moment after this time.
    pub(crate) fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time))
    }

    /// Returns the time from now, none if it has passed.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_sub(Moment::now().0)
    }

    /// Returns whether it has passed.
    pub(crate) fn has_passed(self) -> bool {
        Moment::now() >= self
    }

    /// Returns it in nanoseconds, for other processes.
    pub(crate) fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the moment of these nanoseconds.
    pub(crate) fn from_nanos(nanos: u64) -> Moment {
        Moment(Duration::from_nanos(nanos))
    }
}

/// Returns 64 bits drawn by chance, never 0.
pub(crate) fn draw() -> u64 {
    let mut bytes = [0; 8];
    loop {
        // The system has no randomness for a moment after its start, and says so.
        let is_drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let drawn = u64::from_be_bytes(bytes);
        if is_drawn == Ok(bytes.len()) && drawn != 0 {
            return drawn;
        }
    }
}
