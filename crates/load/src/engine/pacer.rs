//! When requests are due in an open loop.

use crate::plan::{Pace, Plan};
use crate::random::Random;

/// When requests of one thread are due.
#[derive(Debug)]
pub(super) struct Pacer {
    /// In nanoseconds since the beginning.
    next: f64,
    gap: f64,
    random: Option<Random>,
    start: u64,
}

impl Pacer {
    /// That of thread `thread`; `None` in a closed loop. Threads take turns.
    pub(super) fn new(plan: &Plan, thread: usize) -> Option<Pacer> {
        let (rate, is_even) = match plan.pace {
            Pace::Closed => return None,
            Pace::Even(rate) => (rate, true),
            Pace::Poisson(rate) => (rate, false),
        };
        let gap = 1e9 * plan.threads as f64 / rate;
        let random = (!is_even).then(|| Random::stream(plan.seed, u64::MAX - thread as u64));
        let next = gap * thread as f64 / plan.threads as f64;
        Some(Pacer { next, gap, random, start: 0 })
    }

    pub(super) fn begin(&mut self, start: u64) {
        self.start = start;
    }

    /// When the next request is due.
    pub(super) fn due(&self) -> u64 {
        self.start + self.next as u64
    }

    pub(super) fn advance(&mut self) {
        self.next += match &mut self.random {
            None => self.gap,
            Some(random) => -(1.0 - random.unit()).ln() * self.gap,
        };
    }

    /// How many are due before `end` and were not taken.
    pub(super) fn left_before(&self, end: u64) -> u64 {
        (end.saturating_sub(self.due()) as f64 / self.gap) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(pace: Pace, threads: usize, count: usize) -> Vec<u64> {
        let plan = Plan { threads, pace, ..Plan::default() };
        let one = |thread| {
            let mut pacer = Pacer::new(&plan, thread).unwrap();
            pacer.begin(1_000);
            (0..count)
                .map(|_| {
                    let due = pacer.due();
                    pacer.advance();
                    due
                })
                .collect::<Vec<_>>()
        };
        let mut all: Vec<u64> = (0..threads).flat_map(one).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn threads_share_an_even_rate() {
        let all = dues(Pace::Even(1e6), 4, 5);
        let expected: Vec<u64> = (0..20).map(|index| 1_000 + index * 1_000).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_poisson_process_has_its_rate_and_its_spread() {
        let all = dues(Pace::Poisson(1e5), 1, 100_000);
        let seconds = (all[all.len() - 1] - all[0]) as f64 / 1e9;
        assert!((0.98..1.02).contains(&seconds), "{seconds}");
        let short = all.windows(2).filter(|pair| pair[1] - pair[0] < 10_000).count();
        // 1 - 1/e of the distances are below the mean.
        assert!((62_000..64_500).contains(&short), "{short}");
    }

    #[test]
    fn what_was_not_taken_is_counted() {
        let plan = Plan { pace: Pace::Even(1000.0), ..Plan::default() };
        let mut pacer = Pacer::new(&plan, 0).unwrap();
        pacer.begin(5);
        assert_eq!(pacer.left_before(5 + 1_000_000_000), 1000);
        pacer.advance();
        assert_eq!(pacer.left_before(5), 0);
    }
}
