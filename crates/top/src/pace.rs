//! How often to look, so that looking stays cheap.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Part of a core that looking may take: a viewer that is kept open must not be what is seen.
const SHARE_MAX: f64 = 0.01;
/// Longest time between two rounds.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// CPU time of this process, all threads.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The time between rounds: as asked, or longer where a round takes too much.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// As asked.
    pub wanted: Duration,
    cost: Duration,
    cpu_before: Duration,
}

impl Pace {
    /// Rounds `wanted` apart; `cpu` is the CPU time now.
    pub fn new(wanted: Duration, cpu: Duration) -> Pace {
        Pace { wanted, cost: Duration::ZERO, cpu_before: cpu }
    }

    /// Notes that a round begins, when this much CPU time has been used.
    pub fn on_round(&mut self, cpu: Duration) {
        let cost = cpu.saturating_sub(self.cpu_before);
        self.cpu_before = cpu;
        // Half of what is known and half of the latest: a key pressed is no trend.
        self.cost = (self.cost + cost) / 2;
    }

    /// The time from one round to the next.
    pub fn interval(&self) -> Duration {
        let least = self.cost.as_secs_f64() / SHARE_MAX;
        self.wanted.max(Duration::from_secs_f64(least).min(INTERVAL_MAX))
    }

    /// Returns whether rounds are further apart than asked.
    pub fn is_slowed(&self) -> bool {
        self.interval() > self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_cost_little_come_as_asked() {
        let mut pace = Pace::new(Duration::from_secs(2), Duration::ZERO);
        for round in 1..=20 {
            pace.on_round(Duration::from_millis(10 * round));
        }
        assert_eq!(pace.interval(), Duration::from_secs(2));
        assert!(!pace.is_slowed());
    }

    #[test]
    fn rounds_that_cost_much_come_later() {
        let mut pace = Pace::new(Duration::from_secs(1), Duration::ZERO);
        for round in 1..=20 {
            pace.on_round(Duration::from_millis(40 * round));
        }
        let interval = pace.interval().as_secs_f64();
        assert!((3.9..=4.0).contains(&interval), "{interval}");
        for round in 21..=40 {
            pace.on_round(Duration::from_secs(10 * round));
        }
        assert_eq!(pace.interval(), INTERVAL_MAX);
    }

    #[test]
    fn the_clock_of_cpu_time_goes_on() {
        let before = cpu_time();
        let mut sum = 0_u64;
        while cpu_time() == before {
            sum = std::hint::black_box(sum + 1);
        }
    }
}
