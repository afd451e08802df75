//! Requests of memcached clients that tell their effect: what the string is now, with its
//! flags. A number of a value (cas) is this store's own, and is not told.

use super::call::Call;
use crate::store::{Mode, ShardIndices};
use keyway_memcache::Verb;
use smallvec::SmallVec;

/// The state of an item besides its value.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    expiry: Option<u64>,
    flags: u32,
    marks: u8,
}

fn state(call: &Call<'_>, key: &[u8]) -> Option<State> {
    call.store.with_key(call.turn, key, |mut entry| {
        let meta = entry.look()?.meta();
        Some(State { expiry: meta.expiry, flags: meta.flags, marks: meta.marks })
    })
}

/// Executes a request by `work`, and tells its effect.
#[cold]
pub(super) fn tell<R>(
    call: &Call<'_>,
    out: &mut Vec<u8>,
    work: impl FnOnce(&Call<'_>, &mut Vec<u8>) -> R,
) -> R {
    let (store, verb) = (call.store, call.head().verb);
    let keys: SmallVec<[&[u8]; 4]> = call.request.keys(call.bytes).collect();
    let shards: ShardIndices = match verb {
        Verb::FlushAll => (0..store.shard_count() as u32).collect(),
        _ => keys.iter().map(|key| store.locate(key).1 as u32).collect(),
    };
    let _telling = store.begin_telling(shards);
    let call = &Call { turn: call.turn.with(Mode::TOLD), ..*call };
    let before: SmallVec<[Option<State>; 4]> = keys.iter().map(|key| state(call, key)).collect();
    store.effects.with_unit(|unit| unit.set_changed(false));
    let result = work(call, out);
    let is_changed = store.effects.with_unit(|unit| unit.set_changed(false));
    let writes = verb.stores() || matches!(verb, Verb::Incr | Verb::Decr | Verb::Delete);
    for (key, before) in keys.iter().zip(before) {
        let after = state(call, key);
        let same_time = |before: State| State { expiry: after.and_then(|it| it.expiry), ..before };
        let has_changed = is_changed && writes || before.map(same_time) != after;
        store.with_key(call.turn, key, |mut entry| match () {
            () if has_changed => store.tell_text(call.turn.database, &mut entry, key),
            () if before != after => store.tell_expiry(call.turn.database, &mut entry, key),
            () => {}
        });
    }
    result
}
