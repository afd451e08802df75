//! The states of a backend, and the changes between them.

use crate::{BackendId, FailureReason};
use keyway_base::Time;

/// Where a backend stands. Requests go to it in [`HealthState::Up`],
/// [`HealthState::Failing`] and [`HealthState::Unknown`] only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HealthState {
    /// Its latest request succeeded, or it has answered a probe and had no request since.
    #[default]
    Up = 0,
    /// Its latest request failed, but not yet as many in a row as eject it.
    Failing = 1,
    /// Out of use until a probe succeeds.
    Ejected = 2,
    /// Out of use, and one worker is probing it.
    Rejoining = 3,
    /// It answers again but is kept out of use for what it may still hold.
    Quarantined = 4,
    /// It has neither answered nor failed yet.
    Unknown = 5,
}

impl HealthState {
    /// Whether requests go to a backend in this state.
    #[inline]
    pub const fn is_usable(self) -> bool {
        matches!(self, HealthState::Up | HealthState::Failing | HealthState::Unknown)
    }

    /// Returns whether a backend in this state has no failure against it.
    #[inline]
    pub const fn is_sound(self) -> bool {
        matches!(self, HealthState::Up | HealthState::Unknown)
    }

    /// The name in logs and metric labels.
    pub const fn label(self) -> &'static str {
        match self {
            HealthState::Up => "up",
            HealthState::Failing => "failing",
            HealthState::Ejected => "ejected",
            HealthState::Rejoining => "rejoining",
            HealthState::Quarantined => "quarantined",
            HealthState::Unknown => "unknown",
        }
    }
}

/// A backend went from one state to another: what the log line of it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// Which backend.
    pub backend: BackendId,
    /// Its state before.
    pub from: HealthState,
    /// Its state now.
    pub to: HealthState,
    /// Its latest failure since it was last up.
    pub reason: Option<FailureReason>,
    /// Its failures in a row, up to 100,000.
    pub failures: u32,
    /// When the state is due to end: for an ejected backend the next probe, for
    /// a quarantined one the end of the quarantine. `None` when nothing but an
    /// event ends it.
    pub until: Option<Time>,
}
