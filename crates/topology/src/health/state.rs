//! The states of a backend, and the changes between them.

use crate::{BackendId, FailureReason};
use keyway_base::Time;

/// The state of a backend. Requests go to it only in [`HealthState::Up`], [`HealthState::Failing`]
/// and [`HealthState::Unknown`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HealthState {
    /// Its latest request succeeded, or it has answered a probe and had no request since.
    #[default]
    Up = 0,
    /// Its latest request failed, but not as many in a row as eject it.
    Failing = 1,
    /// It is out of use until a probe succeeds.
    Ejected = 2,
    /// It is out of use, and one worker is probing it.
    Rejoining = 3,
    /// It answers again but is kept out of use, because it may hold stale values.
    Quarantined = 4,
    /// It has neither answered nor failed yet.
    Unknown = 5,
}

impl HealthState {
    /// Returns whether requests go to a backend in this state.
    #[inline]
    pub const fn is_usable(self) -> bool {
        matches!(self, HealthState::Up | HealthState::Failing | HealthState::Unknown)
    }

    /// Returns whether a backend in this state has no failure against it.
    #[inline]
    pub const fn is_sound(self) -> bool {
        matches!(self, HealthState::Up | HealthState::Unknown)
    }

    /// Returns the name in logs and metric labels.
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

/// A change of a backend's state, with what its log line says.
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
    /// Time at which the state is due to end: for an ejected backend the next probe, for a
    /// quarantined one the end of the quarantine. `None` if only an event ends it.
    pub until: Option<Time>,
}
