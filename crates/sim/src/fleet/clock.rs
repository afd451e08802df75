//! The clocks of a process. No two processes agree on the time.

use crate::random::Random;
use keyway_base::Time;

/// Largest difference of pace from that of the simulated time, in millionths.
const PACE_MAX: u64 = 10_000;

/// Two years, in seconds: no wall clock is further off.
const WALL_MAX: u64 = 2 * 365 * 86_400;

/// A monotonic clock, which begins anywhere and runs a little fast or slow, and a wall clock, which
/// jumps.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    random: Random,
    begun: u64,
    /// The pace, in millionths of that of the simulated time.
    pace: u64,
    wall: u64,
}

impl Clocks {
    /// Draws the clocks of a process that starts. `number` differs for each process of a seed. Other
    /// draws of the seed are the same with and without clocks.
    pub fn of(seed: u64, number: u64) -> Clocks {
        let mut random =
            Random::new(seed ^ 0x0063_6c6f_636b_7300 ^ number.wrapping_mul(0x9e37_79b9));
        Clocks {
            begun: random.below(1 << 50),
            pace: 1_000_000 - PACE_MAX + random.below(2 * PACE_MAX + 1),
            wall: random.below(WALL_MAX),
            random,
        }
    }

    /// Returns the monotonic time of the process.
    pub fn at(&self, now: Time) -> Time {
        let passed = u128::from(now.0) * u128::from(self.pace) / 1_000_000;
        Time(self.begun + u64::try_from(passed).unwrap_or(u64::MAX / 2))
    }

    /// Returns the wall clock, which may have jumped forwards or backwards since.
    pub fn wall(&mut self) -> u64 {
        if self.random.percent(5) {
            self.wall = self.random.below(WALL_MAX);
        }
        self.wall += 1;
        self.wall
    }
}
