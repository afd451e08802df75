//! The state that a client has begun on its connection and not ended: a transaction, a watch, a
//! blocking command.

use super::{Transaction, WatchedKeys};
use crate::ConnectionKey;
use crate::local::UnblockReason;

/// State that few sessions have, and only for a short time.
#[derive(Debug, Default)]
pub struct Stateful {
    /// The transaction, between `MULTI` and `EXEC`.
    pub transaction: Option<Transaction>,
    /// The watch, between `WATCH` and the end of the transaction.
    pub watch: Option<Watch>,
    /// The same on the embedded store.
    pub watched: Option<Box<WatchedKeys>>,
    /// The private links on which a blocking command waits: one, or for WAIT one for each server
    /// that has not answered.
    pub blocked_on: Vec<ConnectionKey>,
    /// Number of those whose private link was lost before they could be sent again.
    pub unsent: u16,
    /// Why these must end, if they must.
    pub unsent_end: Option<UnblockReason>,
    /// True if a blocking command waits on the embedded store.
    pub waits_on_store: bool,
    /// The pool of its listener, while it is lent to the pool to which that one leads writes.
    pub home: Option<u16>,
}

/// Keys watched on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The home of its keys: the index of their server in its pool or, if servers are discovered,
    /// their slot or the number of their primary.
    pub home: u16,
    /// Number of the ring, which stands for the servers that were in use then.
    pub ring: u64,
    /// The link that watches, or `None` after its connection was lost. That counts as a change of
    /// the keys.
    pub link: Option<ConnectionKey>,
}

impl Stateful {
    /// Returns whether nothing is left of it.
    pub fn is_over(&self) -> bool {
        !self.has_begun() && self.home.is_none()
    }

    /// Returns whether its client has begun something.
    pub fn has_begun(&self) -> bool {
        let has_none = self.transaction.is_none()
            && self.watch.is_none()
            && self.watched.is_none()
            && !self.is_blocked();
        !has_none
    }

    /// Returns whether a blocking command waits: on private links, for a link, or on the embedded
    /// store.
    pub fn is_blocked(&self) -> bool {
        self.waits_on_store || self.unsent > 0 || !self.blocked_on.is_empty()
    }

    /// Notes that a command of the transaction, if there is one, was refused.
    pub fn refuse(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.refuse();
        }
    }
}
