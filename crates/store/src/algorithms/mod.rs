//! Algorithms on plain values: numbers as text, long doubles, positions on the
//! earth, HyperLogLog registers, and partial sorting. Nothing here knows of the
//! store.

pub(crate) mod extended;
pub(crate) mod geo;
pub(crate) mod hyperloglog;
pub(crate) mod number;
pub(crate) mod partial_sort;
