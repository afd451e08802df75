//! How long to wait between two tries.

use std::time::Duration;

/// Pauses that double, each shortened by up to half by chance, so that the
/// replicas of a primary that comes back do not all ask for a snapshot at once.
#[derive(Debug)]
pub(crate) struct Pauses {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Pauses {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max: max.max(min), next: min }
    }

    /// The pause after a link that was online for this long. A link that stayed
    /// for longer than the pause before it starts the series anew.
    pub(crate) fn next(&mut self, online: Duration, chance: u32) -> Duration {
        if online > self.next {
            self.next = self.min;
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        let share = f64::from(chance) / f64::from(u32::MAX);
        pause - (pause / 2).mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound_and_start_anew_after_a_good_link() {
        let ms = Duration::from_millis;
        let mut pauses = Pauses::new(ms(100), ms(500));
        let series: Vec<Duration> = (0..5).map(|_| pauses.next(ms(0), 0)).collect();
        assert_eq!(series, [ms(100), ms(200), ms(400), ms(500), ms(500)]);
        assert_eq!(pauses.next(ms(400), 0), ms(500), "the link was up for less than the pause");
        assert_eq!(pauses.next(ms(600), 0), ms(100));
        for _ in 0..100 {
            let pause = Pauses::new(ms(100), ms(500)).next(ms(0), crate::real().chance());
            assert!((ms(50)..=ms(100)).contains(&pause), "{pause:?}");
        }
        assert_eq!(Pauses::new(ms(100), ms(500)).next(ms(0), u32::MAX), ms(50));
    }
}
