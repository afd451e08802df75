use std::time::Duration;

use crate::{Endpoint, Outliers};

/// The servers that reads go to, of those that have the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The primary.
    #[default]
    Primary,
    /// A replica, or the primary while no replica can be read.
    PreferReplica,
    /// A replica. Reads fail while none can be read.
    Replica,
    /// The server that answers fastest.
    Nearest,
    /// A server in this availability zone, else as with `PreferReplica`.
    Zone(Box<str>),
}

/// Which reads go to replicas, and to which ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadPolicy {
    /// The servers that are read.
    pub from: ReadFrom,
    /// Time for which a client reads from the primary after a write of its own.
    pub pin_after_write: Option<Duration>,
    /// Largest lag of a replica behind its primary. A replica with more lag is not read.
    pub lag_max: Option<Duration>,
    /// Weights of servers for reads. A server that is not listed has 1; 0 means no reads.
    pub weights: Vec<(Endpoint, u32)>,
    /// Names of commands that always go to the primary, in lower case.
    pub primary_commands: Vec<Box<str>>,
    /// True if clients of some listeners read from the nearest server, whatever `from` is.
    pub is_nearest_for_some: bool,
    /// When a server is left out because it is worse than the others. `None`: never.
    pub outliers: Option<Outliers>,
    /// When a read is sent to a second server as well.
    pub hedge: Option<HedgePolicy>,
}

/// When a read without a reply yet is sent to a second server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HedgePolicy {
    /// Time after it was sent to the first server.
    pub after: HedgeAfter,
    /// Percentage of reads that may be sent twice.
    pub budget_percent: u8,
}

/// The time for which a read waits for its first server alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeAfter {
    /// The time in which 99 of 100 recent requests of the pool were answered, within bounds.
    P99 {
        /// Lower bound.
        min: Duration,
        /// Upper bound, also used while nothing is known.
        max: Duration,
    },
    /// A fixed time.
    Fixed(Duration),
}
