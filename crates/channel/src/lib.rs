//! A node of the bus on real channels: TCP with and without TLS, unix sockets, rings in shared memory.
//!
//! A [`Driver`] has one [`keyway_bus::Node`], its listening sockets and its connections, all on one
//! thread, and waits for them in one place. Resolving names and connecting take long and have
//! threads of their own. Knows nothing of the content of messages; without `unsafe`.

#![forbid(unsafe_code)]

mod dial;
mod driver;
mod lines;
mod listen;
mod rings;
mod secure;
mod sockets;
mod stream;
mod within;

pub use dial::Unshared;
pub use driver::{Driver, DriverSettings, clock, here};
pub use lines::{LINE_LEN_MAX, Lines};
