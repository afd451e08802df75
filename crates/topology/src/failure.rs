//! The reasons for which a backend failed, which are names for logs and metrics, and when it failed.

use keyway_base::{BackendFault, Time};

/// The times of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureTimes {
    /// When the request began, or the latest of several.
    pub began: Time,
    /// When the failure is known.
    pub now: Time,
}

/// The reason of a backend's latest failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FailureReason {
    /// Refused, unreachable, or not connected in time.
    Connect = 1,
    /// No reply in time.
    Timeout = 2,
    /// It closed or reset the connection.
    Closed = 3,
    /// It answers `-LOADING`: its data set is not in memory yet.
    Loading = 4,
    /// It answers `-MASTERDOWN`: a replica without its primary.
    MasterDown = 5,
    /// It answers `-READONLY` to a write: a replica.
    ReadOnly = 6,
    /// It sent bytes that are not of its protocol.
    Protocol = 7,
    /// It refused our password or database.
    Handshake = 8,
    /// An operator has taken it out of use.
    Operator = 9,
}

impl FailureReason {
    /// Every reason.
    pub const ALL: [FailureReason; 9] = [
        FailureReason::Connect,
        FailureReason::Timeout,
        FailureReason::Closed,
        FailureReason::Loading,
        FailureReason::MasterDown,
        FailureReason::ReadOnly,
        FailureReason::Protocol,
        FailureReason::Handshake,
        FailureReason::Operator,
    ];

    /// Returns the name in logs and metric labels.
    pub const fn label(self) -> &'static str {
        match self {
            FailureReason::Connect => "connect",
            FailureReason::Timeout => "timeout",
            FailureReason::Closed => "closed",
            FailureReason::Loading => "loading",
            FailureReason::MasterDown => "masterdown",
            FailureReason::ReadOnly => "readonly",
            FailureReason::Protocol => "protocol",
            FailureReason::Handshake => "handshake",
            FailureReason::Operator => "operator",
        }
    }
}

impl From<BackendFault> for FailureReason {
    fn from(fault: BackendFault) -> Self {
        match fault {
            BackendFault::Connect | BackendFault::Full | BackendFault::CircuitOpen => {
                FailureReason::Connect
            }
            BackendFault::Timeout => FailureReason::Timeout,
            BackendFault::Closed => FailureReason::Closed,
            BackendFault::Protocol | BackendFault::Reply(_) => FailureReason::Protocol,
            BackendFault::Handshake => FailureReason::Handshake,
            BackendFault::Ejected => FailureReason::Operator,
            BackendFault::NotReady => FailureReason::Loading,
        }
    }
}
