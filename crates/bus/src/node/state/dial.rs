//! An address that is being connected to.

use crate::peer::{Attempt, Origin};
use keyway_base::Time;

/// An address that is being connected to.
pub(in crate::node) struct Dial {
    pub origin: Origin,
    pub(in crate::node) attempt: Attempt,
    pub(in crate::node) deadline: Time,
}
