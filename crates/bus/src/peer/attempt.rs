//! How far a dial has come.

use crate::fault::Reason;
use crate::url::Url;
use std::collections::VecDeque;

/// How far a dial has come: what is tried, and what is left to try.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) at: Url,
    pub(crate) rest: VecDeque<Url>,
    /// What says most of why the addresses before were none.
    pub(crate) worst: Option<Reason>,
}

/// Whether an address will not do in a moment either: who has it says so, in the registration.
pub(crate) fn is_final(reason: Reason) -> bool {
    (32..64).contains(&(reason as u16)) && reason != Reason::HandshakeTimeout
}
