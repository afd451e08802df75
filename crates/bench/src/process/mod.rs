//! Other processes: starting them, ending them on every way out, and reading
//! what they cost from `/proc`.

mod child;
mod usage;

pub use child::{Child, CommandLine, Scratch, free_port, run_to_end, version_of};
pub use usage::{cpu_time, is_running, resident_bytes, threads};
