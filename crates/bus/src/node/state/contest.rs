//! Two connections that claim to be the same node.

use crate::peer::{Identity, PeerKey};
use keyway_base::Time;

/// A newcomer with the identity of an existing connection.
pub(in crate::node) struct Contest {
    pub(in crate::node) incumbent: PeerKey,
    pub(in crate::node) newcomer: PeerKey,
    pub(in crate::node) identity: Identity,
    pub(in crate::node) asked_at: Time,
    pub(in crate::node) until: Time,
}
