//! Whole databases, and snapshots.

use super::call::{Call, Fault, NO_SUCH_DATABASE, Outcome, SYNTAX};
use crate::algorithms::number::parse_integer;
use keyway_resp::reply;

/// DBSIZE: keys that have expired count until they are removed.
pub(super) fn dbsize(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let lens = (0..call.store.shard_count()).map(|index| {
        let mut shard = call.store.shard(index);
        let spaces = call.store.space_indices(call.turn.database);
        let len = |index| shard.existing_space(index).map_or(0, |space| space.table.len());
        spaces.map(len).sum::<usize>()
    });
    reply::integer(out, lens.sum::<usize>() as i64);
    Ok(())
}

/// The option of FLUSHDB and FLUSHALL. It makes no difference: keys are gone
/// at once either way, and their memory is freed bit by bit.
fn check_flush_option(call: &Call<'_>) -> Outcome {
    match call.args.len() {
        1 => Ok(()),
        2 if call.is(1, "sync") || call.is(1, "async") => Ok(()),
        _ => Err(SYNTAX),
    }
}

/// FLUSHDB.
pub(super) fn flushdb(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    check_flush_option(call)?;
    let mut locked = call.store.lock_all();
    locked.mark_emptied(call.turn.database, None, call.turn);
    locked.flush(call.turn.database, call.turn);
    call.store.note_all_ready(call.turn, call.turn.database);
    reply::simple(out, "OK");
    Ok(())
}

/// FLUSHALL.
pub(super) fn flushall(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    check_flush_option(call)?;
    let mut locked = call.store.lock_all();
    for database in 0..call.store.database_count() {
        locked.mark_emptied(database, None, call.turn);
        locked.flush(database, call.turn);
        call.store.note_all_ready(call.turn, database);
    }
    reply::simple(out, "OK");
    Ok(())
}

/// SWAPDB.
pub(super) fn swapdb(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let index = |at: usize, fault: &'static str| {
        let number = parse_integer(call.arg(at)).and_then(|number| i32::try_from(number).ok());
        number.ok_or(Fault::Text(fault))
    };
    let one = index(1, "ERR invalid first DB index")?;
    let other = index(2, "ERR invalid second DB index")?;
    let known = |number: i32| {
        u32::try_from(number).ok().filter(|number| *number < call.store.database_count())
    };
    let (Some(one), Some(other)) = (known(one), known(other)) else {
        return Err(NO_SUCH_DATABASE);
    };
    let locked = call.store.lock_all();
    if one != other {
        locked.mark_emptied(one, Some(other), call.turn);
        locked.mark_emptied(other, Some(one), call.turn);
        call.store.swap_databases(&locked, one, other);
        for database in [one, other] {
            call.store.note_all_ready(call.turn, database);
        }
    }
    reply::simple(out, "OK");
    Ok(())
}

/// BGSAVE. In a transaction, or while a script runs, the snapshot is of a moment later.
pub(super) fn bgsave(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let schedule = match call.args.len() {
        1 => false,
        2 if call.is(1, "schedule") => true,
        _ => return Err(SYNTAX),
    };
    let is_scheduled = call.store.begin_snapshot(call.turn.now_millis, schedule);
    let is_scheduled = is_scheduled.map_err(|refusal| Fault::Text(refusal.text()))?;
    let text = if is_scheduled { "scheduled" } else { "started" };
    reply::simple(out, &format!("Background saving {text}"));
    Ok(())
}

/// BGREWRITEAOF: a compaction of the log. In a transaction, while a script runs or beside a
/// snapshot, the compaction begins a moment later.
pub(super) fn bgrewriteaof(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let asked = call.store.begin_compaction();
    let is_scheduled = asked.map_err(|refusal| Fault::Text(refusal.text()))?;
    let text = if is_scheduled { "scheduled" } else { "started" };
    reply::simple(out, &format!("Background append only file rewriting {text}"));
    Ok(())
}

/// LASTSAVE: when the process started, if nothing was saved since.
pub(super) fn lastsave(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    reply::integer(out, call.store.snapshot_status().saved_at as i64);
    Ok(())
}
