//! What all threads of a run share.

use crate::plan::Plan;
use crate::program::Program;
use crate::target::Target;
use keyway_net::Address;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What all threads of a run share; nothing but the last three fields changes.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) program: Program,
    pub(crate) target: Target,
    pub(crate) plan: Plan,
    /// The servers that are asked: one, or a cluster's primaries.
    pub(crate) nodes: Vec<Address>,
    /// By slot the index of its server; empty outside of a cluster.
    pub(crate) slots: Vec<u16>,
    /// The key that was inserted last.
    pub(crate) newest: AtomicU64,
    /// Set when the run is to end before its time.
    pub(crate) is_stopped: AtomicBool,
    /// How far each thread is.
    pub(crate) gauges: Vec<Gauge>,
}

/// How far a thread is. It has a cache line of its own, so that nobody waits to write it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Gauge {
    pub(crate) requests: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// The clock that does not jump, in nanoseconds.
#[inline]
pub(crate) fn nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
