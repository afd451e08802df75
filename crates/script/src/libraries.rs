//! Libraries of functions.

/// The libraries of a pool.
#[derive(Debug, Default)]
pub(crate) struct Libraries {}
