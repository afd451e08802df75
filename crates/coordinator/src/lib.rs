//! One place that says what is, agreed on by an existing engine: files of one host, etcd or
//! ZooKeeper.
//!
//! The crate writes no consensus. It gives the three engines one meaning: entries with revisions,
//! watches without gaps, transactions with comparisons, and sessions whose owner gives up first.
//! It knows nothing of what is kept there. Read first: [`Coordinator`], [`Txn`] and [`Session`].

#![forbid(unsafe_code)]

pub mod limits;

mod clock;
mod codec;
mod coordinator;
mod entry;
mod etcd;
mod fault;
mod files;
mod foreign;
mod guard;
mod keeper;
mod key;
mod net;
mod registry;
mod session;
mod state;
mod txn;
mod zookeeper;

pub use coordinator::{Answer, Coordinator, Patience, Watch};
pub use entry::{Batch, Change, Entry, Event, Listing, Mark, Revision};
pub use etcd::{Credentials, Etcd, EtcdSettings};
pub use fault::{Fault, FaultKind};
pub use files::{Files, FilesSettings};
pub use foreign::ForeignEntries;
pub use keeper::{Keeper, Kept};
pub use key::{Key, Prefix};
pub use registry::Registry;
pub use session::{Session, SessionId};
pub use txn::{Compare, Outcome, Txn};
pub use zookeeper::{ZooKeeper, ZooKeeperSettings};
