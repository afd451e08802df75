//! Requests to the embedded store.

use crate::core::Plane;
use crate::core::pools::memcached::state::Call;
use crate::core::pools::store::serve::insert_lent;
use crate::core::pools::store::state::StorePool;
use crate::core::request::{ClientMut, Step};
use keyway_memcache::Verb;
use keyway_proxy::Session;
use keyway_proxy::memcached::{is_error, wire_of};
use keyway_store::{Footprint, MemcachedContext, Refused, Store, Transfer};
use std::collections::BTreeSet;

/// Returns whether the reply to a storage request says that the value was stored. For a quiet
/// request an empty reply says so.
#[inline]
fn says_stored(reply: &[u8]) -> bool {
    match reply {
        [] => true,
        [0x81, _, _, _, _, _, status @ ..] => status.starts_with(&[0, 0]),
        [first, second, ..] => matches!([*first, *second], [b'S', b'T'] | [b'H', b'D']),
        _ => false,
    }
}

impl Plane {
    /// Executes a request on the store.
    #[inline]
    pub(super) fn serve_memcached(
        &mut self,
        StorePool { pool, store }: StorePool<'_>,
        call: &mut Call<'_>,
    ) -> Step {
        if store.effects_are_full() && self.awaits_effects(store, call.client()) {
            return Step::Wait;
        }
        self.count_memcached(call);
        self.count_for_stats(call);
        self.executed(call.session.pool, call.counted());
        let context = self.memcached_context(call.session);
        let refused = match store.is_restricted() {
            true => store.refusal_of_memcached(call.request),
            false => None,
        };
        let is_ok = if let Some(refused) = refused {
            let reply = call.busy.order.reserve();
            call.busy.order.complete(reply, &mut call.busy.output, |out| {
                store.refuse_memcached(call.request, call.bytes, context, refused, out);
            });
            false
        } else if store.has_script() {
            self.serve_beside_script(store, context, call)
        } else {
            let log = &pool.slow_log;
            let is_flush = call.head().verb == Verb::FlushAll;
            let mut work = match is_flush || call.bytes.len() >= log.timed_from() {
                true => self.begin_work(log, call.session, call.busy),
                false => None,
            };
            let (mut is_ok, mut len, mut is_stored) = (true, 0, false);
            let lends = call.session.sub_request.is_none() && call.busy.order.is_empty();
            let transfer = Transfer::new(store, None);
            let reply_index = call.busy.order.reserve();
            call.busy.order.complete(reply_index, &mut call.busy.output, |out| {
                let start = out.len();
                let transfer = lends.then_some(&transfer);
                store.execute_memcached_with(call.request, call.bytes, context, transfer, out);
                is_ok = !is_error(&out[start..], wire_of(call.request.head.dialect));
                is_stored = call.request.head.verb.stores() && says_stored(&out[start..]);
                len = out.len() - start;
            });
            if is_stored {
                let cells = self.cells.pool(usize::from(call.session.pool));
                cells.memcached.stored.add(1);
            }
            if let Some(lent) = transfer.into_zero_copy() {
                len += insert_lent(&mut call.busy.output, *lent);
            }
            if len >= self.observe.hot_keys.look_from {
                self.note_large_item(call.session.pool, call.request, call.bytes, len);
                work = work.or_else(|| self.began_lately(log, call.session, call.busy));
            }
            if let Some(work) = work {
                let client = ClientMut { key: call.key, session: call.session };
                self.end_memcached_work(pool, client, call.request, call.bytes, work);
            }
            is_ok
        };
        if !is_ok {
            self.note_store_error(call.session.pool, call.counted(), false);
        }
        if store.notifies() {
            self.settle_memcached(store, call);
        }
        Step::Started
    }

    /// Counts a request for `stats`, by command.
    #[inline]
    fn count_for_stats(&self, call: &Call<'_>) {
        if call.is_resumed() {
            return;
        }
        let cells = &self.cells.pool(usize::from(call.session.pool)).memcached;
        match call.head().verb {
            verb if verb.stores() => cells.sets.add(1),
            Verb::Touch | Verb::GetTouch => cells.touches.add(1),
            Verb::FlushAll => cells.flushes.add(1),
            _ => {}
        }
    }

    fn memcached_context(&self, session: &Session) -> MemcachedContext {
        let item_len_max = session.memcached.map_or(0, |client| client.item_len_max);
        MemcachedContext { database: 0, clock: self.clock, worker: self.worker(), item_len_max }
    }

    /// Executes a request while a script of another worker may hold what it needs. Returns whether
    /// it was executed.
    #[cold]
    fn serve_beside_script(
        &mut self,
        store: &Store,
        context: MemcachedContext,
        call: &mut Call<'_>,
    ) -> bool {
        let mut footprint = Footprint::default();
        footprint.add_memcached(store, call.request, call.bytes, context);
        let held = store.hold(footprint, context.into());
        let reply_index = call.busy.order.reserve();
        let mut refused_full = false;
        let is_ok = held.is_ok();
        call.busy.order.complete(reply_index, &mut call.busy.output, |out| match held {
            Ok(held) => {
                held.execute_memcached(call.request, call.bytes, context, out);
            }
            Err(refused) => {
                refused_full = refused == Refused::OutOfMemory;
                store.refuse_memcached(call.request, call.bytes, context, refused, out);
            }
        });
        is_ok && !refused_full
    }

    /// Tells clients of the changes of a request.
    #[cold]
    fn settle_memcached(&mut self, store: &Store, call: &mut Call<'_>) {
        let is_flush = call.head().verb == Verb::FlushAll;
        let settlement = self.settlement_of_script(call.session, store, BTreeSet::new(), is_flush);
        self.tell_changes(call.session, call.busy, settlement);
        self.serve_waiters(call.session.pool, store);
    }
}
