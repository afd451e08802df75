//! Requests of memcached clients, on the same keys as those of Redis clients.
//!
//! Requests use the items of the store. A string's item keeps the client's flags and, once a client
//! asks for it, the number of its value (`entry/version.rs`). All else is `crate::entry`, so expiry,
//! memory, eviction, quotas and notices of changes are those of Redis requests.
//! `docs/memcached.md` says where replies differ from memcached's.

mod arithmetic;
mod call;
mod delete;
mod expiry;
mod flush;
mod read;
mod store;
mod told;

pub use call::MemcachedContext;

use crate::requests::{Footprint, Held, Refused};
use crate::shards::Demand;
use crate::store::{Reserved, Store, Transfer};
use call::{Call, forget_replaced};
use keyway_memcache::{ErrorKind, Request, Verb};

/// Returns whether the store executes requests of `verb`.
fn serves(verb: Verb) -> bool {
    use Verb::{Debug, Decr, Delete, FlushAll, Incr, Touch};
    let changes = verb.stores() || matches!(verb, Delete | Incr | Decr | Touch | FlushAll);
    verb.reads() || changes || verb == Debug
}

impl Store {
    /// Executes a memcached request about items or [`Verb::FlushAll`] and
    /// appends its whole reply, the end included; `bytes` are what it was
    /// parsed from. Others it leaves alone: `false`, and nothing is appended.
    ///
    /// Its changes are told as those of Redis requests are, by [`Store::take_events`] while
    /// [`Store::notifies`]. While [`Store::has_script`], the shards of its keys have to be held: see
    /// [`Held::execute_memcached`].
    #[inline]
    pub fn execute_memcached(
        &self,
        request: &Request,
        bytes: &[u8],
        context: MemcachedContext,
        out: &mut Vec<u8>,
    ) -> bool {
        self.execute_memcached_with(request, bytes, context, None, out)
    }

    /// The same, without copies of long values if a transfer is there for them, see
    /// [`Store::execute_with`].
    #[inline]
    pub fn execute_memcached_with(
        &self,
        request: &Request,
        bytes: &[u8],
        context: MemcachedContext,
        transfer: Option<&Transfer<'_>>,
        out: &mut Vec<u8>,
    ) -> bool {
        let call = Call { transfer, ..Call::new(self, request, bytes, context) };
        let is_ready = context.database < self.database_count() && !self.flush_is_due(call.turn);
        if is_ready && read::is_plain(request) && request.keys.len() == 1 {
            read::get_one(&call, out);
            return true;
        }
        if is_ready && store::is_usual(&call) {
            set_usual(&call, out);
            return true;
        }
        execute(&call, false, is_ready, out)
    }

    /// Answers a request for which [`Store::hold`] gave nothing.
    #[cold]
    pub fn refuse_memcached(
        &self,
        request: &Request,
        bytes: &[u8],
        context: MemcachedContext,
        refused: Refused,
        out: &mut Vec<u8>,
    ) {
        let call = Call::new(self, request, bytes, context);
        match refused {
            Refused::OutOfMemory => call.fail(ErrorKind::OutOfMemory, b"", out),
            Refused::Loading => call.fail(ErrorKind::Server, b"loading the dataset", out),
            Refused::NotLogged => {
                call.fail(ErrorKind::Server, b"the log of this pool cannot be written", out);
            }
            Refused::NoReplicas => {
                call.fail(ErrorKind::Server, b"not enough replicas to write", out);
            }
            Refused::ReadOnly => {
                call.fail(ErrorKind::Server, b"a replica takes no writes from clients", out);
            }
            Refused::Stale => {
                call.fail(ErrorKind::Server, b"the replica has no link to its primary", out);
            }
            Refused::Busy(_) => {
                call.fail(ErrorKind::Server, b"busy running a Redis script, try again later", out);
            }
        }
    }
}

impl Footprint {
    /// Adds what a memcached request needs.
    pub fn add_memcached(
        &mut self,
        store: &Store,
        request: &Request,
        bytes: &[u8],
        context: MemcachedContext,
    ) {
        let call = Call::new(store, request, bytes, context);
        if request.head.verb == Verb::FlushAll || store.flush_is_due(call.turn) {
            self.add_all();
        }
        request.keys(bytes).for_each(|key| self.add_key(store, key));
        if call.grows() {
            self.add_room(call.bytes_written());
        }
    }
}

impl Held<'_> {
    /// As [`Store::execute_memcached`], for a request that was added to the
    /// footprint with the same context.
    pub fn execute_memcached(
        &self,
        request: &Request,
        bytes: &[u8],
        context: MemcachedContext,
        out: &mut Vec<u8>,
    ) -> bool {
        let call = Call::new(self.store(), request, bytes, context);
        let is_ready = context.database < self.store().database_count()
            && !(self.has_everything() && self.store().flush_is_due(call.turn));
        execute(&call, true, is_ready, out)
    }
}

/// Executes a request, with what it needs held or free. One that `is_ready` is
/// for a database there is, with no flush before it.
fn execute(call: &Call<'_>, is_held: bool, is_ready: bool, out: &mut Vec<u8>) -> bool {
    if !serves(call.head().verb) {
        return false;
    }
    if !is_ready {
        if call.turn.database >= call.store.database_count() {
            call.fail(ErrorKind::Server, b"there is no such database", out);
            return true;
        }
        call.store.flush_due(call.turn);
    }
    let is_bounded = call.store.config().memory_max != 0 || !call.store.quotas.is_empty();
    if is_bounded && call.grows() {
        execute_within_bounds(call, is_held, out, dispatch);
    } else {
        dispatch(call, out);
    }
    true
}

/// Executes a request that [`store::is_usual`], with nothing held and no flush before it.
#[inline]
fn set_usual(call: &Call<'_>, out: &mut Vec<u8>) {
    if call.store.config().memory_max != 0 || !call.store.quotas.is_empty() {
        execute_within_bounds(call, false, out, set_usual_told);
    } else {
        set_usual_told(call, out);
    }
}

#[inline]
fn set_usual_told(call: &Call<'_>, out: &mut Vec<u8>) {
    match call.store.effects.is_on() {
        true => told::tell(call, out, store::set_usual),
        false => store::set_usual(call, out),
    }
}

fn dispatch(call: &Call<'_>, out: &mut Vec<u8>) {
    if call.store.effects.is_on() && !read::is_plain(call.request) {
        return told::tell(call, out, dispatch_only);
    }
    dispatch_only(call, out);
}

fn dispatch_only(call: &Call<'_>, out: &mut Vec<u8>) {
    match call.head().verb {
        Verb::Delete => delete::delete(call, out),
        Verb::Incr | Verb::Decr => arithmetic::arithmetic(call, out),
        Verb::Touch => expiry::touch(call, out),
        Verb::FlushAll => flush::flush_all(call, out),
        Verb::Debug => read::debug(call, out),
        verb if verb.stores() => store::store(call, out),
        _ => read::read(call, out),
    }
}

/// Executes by `work` what may make the store larger, if there is room for it.
#[inline]
fn execute_within_bounds(
    call: &Call<'_>,
    is_held: bool,
    out: &mut Vec<u8>,
    work: impl FnOnce(&Call<'_>, &mut Vec<u8>),
) {
    let (store, turn, key) = (call.store, call.turn, call.key());
    let quota = store.quota_of(key);
    // A request whose shards are held had its room made before.
    let room = match is_held {
        true => Some(Reserved::nothing(store)),
        false => store.reserve(call.bytes_written(), turn),
    };
    let Some(room) = room else { return refuse_full(call, out) };
    if !store.admit_one(quota, key, call.bytes_written(), turn) {
        return refuse_full(call, out);
    }
    work(call, out);
    drop(room);
    store.evict_of_quota(quota, Demand::default(), turn);
    if !is_held {
        // This covers memory that the estimate missed, such as a table that grew.
        store.make_room(0, turn);
    }
}

#[cold]
fn refuse_full(call: &Call<'_>, out: &mut Vec<u8>) {
    match call.store.effects.is_on() {
        true => told::tell(call, out, |call, _| forget_replaced(call)),
        false => forget_replaced(call),
    }
    call.fail(ErrorKind::OutOfMemory, b"", out);
}
