//! Refuses requests of clients that the state of the store does not allow.

use super::transaction::Refused;
use crate::store::{Restrictions, Store, Waiter};
use keyway_command::Flags;
use keyway_memcache as memcache;
use std::sync::Arc;

/// The reply to a client that waited when its store becomes a replica.
const UNBLOCKED: &[u8] =
    b"-UNBLOCKED force unblocked, instance state changed (master -> replica?)\r\n";

/// Returns why a write is refused, if it is.
fn refusal_of_write(restrictions: Restrictions) -> Option<Refused> {
    match () {
        () if restrictions.is_replica() => Some(Refused::ReadOnly),
        () if restrictions.is_unlogged() => Some(Refused::NotLogged),
        () if restrictions.is_alone() => Some(Refused::NoReplicas),
        () => None,
    }
}

impl Store {
    /// Returns why a command with these flags is refused, if it is. Only a store that
    /// [`Store::is_restricted`] refuses any.
    #[cold]
    pub fn refusal(&self, flags: Flags) -> Option<Refused> {
        let restrictions = self.restrictions();
        if restrictions.is_loading() && !flags.contains(Flags::LOADING) {
            return Some(Refused::Loading);
        }
        if restrictions.is_stale() && !flags.contains(Flags::STALE) {
            return Some(Refused::Stale);
        }
        if !flags.contains(Flags::WRITE) {
            return None;
        }
        refusal_of_write(restrictions)
    }

    /// The same for a request of a memcached client.
    #[cold]
    pub fn refusal_of_memcached(&self, request: &memcache::Request) -> Option<Refused> {
        use memcache::Verb;
        let restrictions = self.restrictions();
        let head = &request.head;
        if restrictions.is_loading() {
            return Some(Refused::Loading);
        }
        let changes = match head.verb {
            Verb::Get => head.vivify.is_some() || head.recache.is_some(),
            Verb::GetTouch
            | Verb::Set
            | Verb::Add
            | Verb::Replace
            | Verb::Append
            | Verb::Prepend
            | Verb::Cas
            | Verb::Delete
            | Verb::Incr
            | Verb::Decr
            | Verb::Touch
            | Verb::FlushAll => true,
            _ => return None,
        };
        if restrictions.is_stale() {
            return Some(Refused::Stale);
        }
        if changes { refusal_of_write(restrictions) } else { None }
    }

    /// Ends the waiting of commands that may write, as the store has become a replica. Each reply
    /// is given to `told`.
    pub fn unblock_writers(&self, mut told: impl FnMut(&Waiter, Vec<u8>)) {
        let writes = |waiter: &Arc<Waiter>| waiter.flags().contains(Flags::WRITE);
        for waiter in self.waiters.all().into_iter().filter(writes) {
            if self.cancel(&waiter) {
                told(&waiter, UNBLOCKED.to_vec());
            }
        }
    }
}
