//! Groups of servers, as a control node shows them: `/v1/fleet/groups`.

use crate::backends::as_utc;
use serde::{Deserialize, Serialize};

/// A group.
#[derive(Clone, Debug, Serialize)]
pub struct GroupStatus {
    /// The name of its pool.
    pub pool: String,
    /// Its state: `healthy`, `no-replica`, `primary-silent`, `primary-down`, `failing-over`, `undecided`, `ahead` or
    /// `unknown`.
    pub state: &'static str,
    /// The state in words.
    pub says: String,
    /// For how long it is in this state; `None` if the node that is asked does not lead.
    pub state_seconds: Option<u64>,
    /// The address of the decided primary.
    pub primary: Option<String>,
    /// The server to which the primary hands over.
    pub next: Option<String>,
    /// The epoch of the decision; 0 without one.
    pub epoch: u64,
    /// When it was decided.
    #[serde(rename = "decided", serialize_with = "as_utc_or_none")]
    pub decided_unix_seconds: Option<u64>,
    /// The reason of the decision.
    pub why: Option<String>,
    /// Its servers, in the order of the document.
    pub servers: Vec<GroupServerStatus>,
}

/// A server of a group, as the leader sees it.
#[derive(Clone, Debug, Serialize)]
pub struct GroupServerStatus {
    /// Its address.
    pub server: String,
    /// The role that it told last: `primary`, `replica` or `unknown`.
    pub role: &'static str,
    /// True if it answers the leader.
    pub reached: bool,
    /// Seconds since its latest answer; `None` if it answers.
    pub silent_seconds: Option<u64>,
    /// The primary that it follows.
    pub follows: Option<String>,
    /// True if its connection to its primary is up.
    pub linked: bool,
    /// Its replication offset, in bytes.
    pub offset: Option<u64>,
    /// Bytes of the stream of the primary that it lacks.
    pub lag_bytes: Option<u64>,
    /// Observers with a fresh view of it.
    pub observers: u32,
    /// Observers for which it is down.
    pub down: u32,
}

/// An order to fail over.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailoverOrder {
    /// The name of the pool.
    pub pool: String,
    /// The address of the server that becomes the primary; the best replica if `None`.
    pub to: Option<String>,
}

/// All groups.
#[derive(Debug, Serialize)]
pub(crate) struct GroupList {
    pub(crate) groups: Vec<GroupStatus>,
}

/// Serializes a time as a text, or nothing.
fn as_utc_or_none<S: serde::Serializer>(
    seconds: &Option<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match seconds {
        Some(seconds) => as_utc(seconds, serializer),
        None => serializer.serialize_none(),
    }
}
