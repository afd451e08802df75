use std::time::Duration;

use crate::{Endpoint, Outliers};

/// Which servers of a primary's data are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The primary.
    #[default]
    Primary,
    /// A replica, or the primary while none can be read.
    PreferReplica,
    /// A replica; an error while none can be read.
    Replica,
    /// Whichever answers fastest.
    Nearest,
    /// One of this availability zone, else as with `PreferReplica`.
    Zone(Box<str>),
}

/// What is read from replicas, and from which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadPolicy {
    /// Which servers.
    pub from: ReadFrom,
    /// How long after a write of its own a client reads from the primary.
    pub pin_after_write: Option<Duration>,
    /// How far behind its primary a replica may be; it is not read otherwise.
    pub lag_max: Option<Duration>,
    /// Shares of servers that get more, or less, than others' 1; 0 for none.
    pub weights: Vec<(Endpoint, u32)>,
    /// Commands that go to the primary whatever they are, in lower case.
    pub primary_commands: Vec<Box<str>>,
    /// Clients of some listeners read from the nearest, whatever `from` is.
    pub is_nearest_for_some: bool,
    /// When a server is left out for being worse than the others; never when `None`.
    pub outliers: Option<Outliers>,
    /// When a read is sent to a second server as well.
    pub hedge: Option<HedgePolicy>,
}

/// When a read that has no answer yet is sent to a second server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HedgePolicy {
    /// How long after it was sent to the first.
    pub after: HedgeAfter,
    /// Of a hundred reads, so many may be sent twice.
    pub budget_percent: u8,
}

/// How long a read waits for its first server alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeAfter {
    /// As long as 99 of 100 requests of the pool took of late, within bounds.
    P99 {
        /// At least so long.
        min: Duration,
        /// At most so long, and while nothing is known.
        max: Duration,
    },
    /// Always so long.
    Fixed(Duration),
}
