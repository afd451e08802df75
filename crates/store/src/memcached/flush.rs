use super::call::Call;
use super::expiry::Deadline;
use keyway_memcache::{Item, Outcome};

/// `flush_all`. One that was to come is forgotten.
pub(super) fn flush_all(call: &Call<'_>, out: &mut Vec<u8>) {
    let Call { store, turn, .. } = *call;
    let at = Deadline::of(call.head().expiry, turn.now_millis).expiry();
    store.flushes.set(turn.database, at);
    if at.is_none() {
        store.flush(&mut store.lock_all(), turn.database, turn);
    }
    call.tell(&[], &Outcome::Done(Item::default()), out);
}
