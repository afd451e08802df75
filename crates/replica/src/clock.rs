//! The one place that reads the clock.

use std::time::Instant;

/// The time now.
#[allow(clippy::disallowed_methods, reason = "the follower's thread serves no client")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
