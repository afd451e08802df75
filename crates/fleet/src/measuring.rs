//! The measures that a member takes during a rollout.

use crate::{Measured, PublishedRollout};
use keyway_base::Time;
use std::time::Duration;

/// The measures of a member. Without a rollout there are none.
#[derive(Debug, Default)]
pub(crate) struct Measuring {
    /// The revision of the rollout, and the time between two measures.
    rollout: Option<(u64, Duration)>,
    next: Option<Time>,
    latest: Option<Measured>,
}

/// Least time between two measures, whatever a leader says.
const EVERY_MIN: Duration = Duration::from_millis(100);

impl Measuring {
    /// Follows what a leader has published.
    pub fn follow(&mut self, rollout: Option<&PublishedRollout>, now: Time) {
        let rollout = rollout.map(|rollout| {
            (rollout.document.version.revision, rollout.measure_every.max(EVERY_MIN))
        });
        if rollout == self.rollout {
            return;
        }
        *self = Measuring { rollout, next: rollout.map(|_| now), latest: None };
    }

    /// Measures anew: the member serves by another document.
    pub fn begin_again(&mut self) {
        self.latest = None;
        self.next = self.rollout.map(|_| Time(0));
    }

    /// Returns the rollout to measure for, if it is time.
    pub fn take_due(&mut self, now: Time) -> Option<u64> {
        let (rollout, every) = self.rollout?;
        self.next.take_if(|next| *next <= now)?;
        self.next = Some(now + every);
        Some(rollout)
    }

    /// Takes a measure. Returns whether it is of the rollout that is going on.
    pub fn take(&mut self, measured: Measured) -> bool {
        let is_of_it = self.rollout.is_some_and(|(rollout, _)| rollout == measured.rollout);
        if is_of_it {
            self.latest = Some(measured);
        }
        is_of_it
    }

    pub fn latest(&self) -> Option<Measured> {
        self.latest
    }

    pub fn due(&self) -> Option<Time> {
        self.next
    }
}
