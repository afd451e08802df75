//! The state of a dial.

use crate::fault::Reason;
use crate::url::Url;
use std::collections::VecDeque;

/// The state of a dial: the address being tried, and those that are left.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) at: Url,
    pub(crate) rest: VecDeque<Url>,
    /// The most telling reason why the earlier addresses failed.
    pub(crate) worst: Option<Reason>,
}

/// Returns whether an address will fail again soon: its node has refused the registration.
pub(crate) fn is_final(reason: Reason) -> bool {
    (32..64).contains(&(reason as u16)) && reason != Reason::HandshakeTimeout
}
