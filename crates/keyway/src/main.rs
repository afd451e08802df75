//! Keyway: every key finds its slot.
fn main() {}
