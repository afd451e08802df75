//! The state machines of the proxy: a [`Session`] for each client, a [`Link`] for each connection
//! to a backend, and the [`Exchange`] that connects a request on the one with its reply on the
//! other.
//!
//! The crate does no I/O: bytes, times and keys go in, bytes come out. It never sees a socket,
//! reads a clock, or knows the embedded store. The worker connects these. Read first: [`Session`]
//! (which buffers exist, and when it stops reading), [`ReplyOrder`] (replies are sent in the order
//! of their requests) and [`Link`] (first in, first out, and what happens if the backend does not
//! answer).
#![forbid(unsafe_code)]

mod budget;
mod connection_key;
mod fault_reply;
pub mod hot_keys;
mod info_report;
mod join;
mod library;
mod link;
pub mod local;
pub mod memcached;
mod monitor_line;
mod multi_step;
mod operation;
mod order;
mod output;
pub mod pubsub;
pub mod route_policy;
mod scripts;
mod session;
mod slow_log;
pub mod tracking;

pub use budget::Budget;
pub use connection_key::ConnectionKey;
pub use fault_reply::{fault_words, write_crossslot, write_fault};
pub use info_report::{BackendInfo, Human, InfoAsks, InfoQuery};
pub use join::{Fragment, Join, JoinPool, NoAnswer};
pub use library::{DumpFault, dumped_libraries, library_name};
pub use link::{
    ASKING, Announcement, BigReply, Exchange, Hedge, Held, Internal, Link, LinkOptions, LinkState,
    Lost, MemcachedOptions, Owner, Passed, Patience, RecordCut, Redirected, Redirection, Slow,
    Translation,
};
pub use monitor_line::{is_shown, write_line, write_lost, write_memcached_line};
pub use multi_step::{MultiStep, Next, ScriptStep, Work};
pub use operation::{Operation, OperationKind, OperationPart, ReplyTo};
pub use order::ReplyOrder;
pub use output::Output;
pub use scripts::{CacheFull, Digest, ScriptCache};
pub use session::{
    Busy, BusyPool, ClientLive, ClientState, Identity, PinDue, ReplyMode, ReplySize, Session,
    StreamedReply, WaitFor,
};
pub use session::{
    QueueBudget, QueueFault, Share, Stateful, Streaming, Transaction, Watch, WatchedKeys,
};
pub use slow_log::{SlowEntry, SlowLog, shown_args, shown_words};
