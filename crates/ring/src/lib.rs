//! Rings of bytes between two processes or two threads: one end writes, the other reads, and
//! neither calls the kernel while both have work.
//!
//! - [`Segment`] is shared memory without a name, to be handed over through a unix socket; the
//!   ring in it is a [`Mapping`]. Between threads of one process a [`Private`] ring does.
//! - [`Producer`] and [`Consumer`] are the ends of a ring of bytes, [`Records`] and
//!   [`RecordReader`] those of a ring of records.
//! - [`ask`] and [`answer`] hand a pair of rings over through a unix socket; a [`Pipe`] is a connection
//!   over them.
//! - [`Inbox`] is read by one and written by many, each of whom has a [`Lane`].
//! - [`Wait`] tells how a side sleeps while there is nothing to do: on a futex, or on a descriptor.
//!
//! The other process is not trusted: data that it can change is read once and checked. An end whose
//! ring was violated returns [`Ended::Broken`].

#![warn(missing_docs)]

#[cfg(not(any(loom, shuttle)))]
mod doorbell;
mod ends;
#[cfg(not(any(loom, shuttle)))]
mod handover;
mod inbox;
mod layout;
mod memory;
mod park;
#[cfg(not(any(loom, shuttle)))]
mod pipe;
#[cfg(not(any(loom, shuttle)))]
mod private;
mod record;
#[cfg(not(any(loom, shuttle)))]
mod segment;
#[cfg(not(any(loom, shuttle)))]
mod sleep;
mod sync;

#[cfg(not(any(loom, shuttle)))]
pub use doorbell::SharedDoorbell;
pub use ends::{Consumer, Ended, Producer};
#[cfg(not(any(loom, shuttle)))]
pub use handover::{
    HELLO_LEN, HELLO_MAGIC, Hello, Refusal, Shared, answer, ask, hear, peer_uid, refuse, say,
};
pub use inbox::{Doorbell, Heard, Inbox, LANES_MAX, Lane};
pub use layout::{HEADER_LEN, Header, MAGIC};
pub use memory::Memory;
pub use park::Wait;
#[cfg(not(any(loom, shuttle)))]
pub use pipe::Pipe;
#[cfg(not(any(loom, shuttle)))]
pub use private::Private;
pub use record::{RECORD_HEAD_LEN, RecordReader, Records, Tag, record_len};
#[cfg(not(any(loom, shuttle)))]
pub use segment::{CAPACITY_MAX, CAPACITY_MIN, Mapping, Segment};
#[cfg(not(any(loom, shuttle)))]
pub use sleep::{Bell, Spin};

#[cfg(all(loom, test))]
mod orders;
