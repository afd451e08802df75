//! Commands that wait for an element or an entry: one attempt of each. `requests/waiting.rs` has
//! the clients that wait and the further attempts.

use super::attempt::{Found, Frame, How, frame_of};
use super::call::{Call, Fault, Outcome};
use super::list::{self, End};
use super::sorted;
use super::stream::read;
use crate::algorithms::extended::{self, Extended};
use crate::collections::WrongType;
use crate::entry::Entry;
use crate::store::{Lane, Patience, Store, Turn};
use keyway_command::{Request, Verb};

/// Returns whether `verb` is a command of this file.
pub(crate) fn is_blocking(verb: Verb) -> bool {
    use Verb::{Blmove, Blmpop, Blpop, Brpop, Brpoplpush, Bzmpop, Bzpopmax, Bzpopmin};
    matches!(verb, Blmove | Blmpop | Blpop | Brpop | Brpoplpush | Bzmpop | Bzpopmax | Bzpopmin)
        || matches!(verb, Verb::Xread | Verb::Xreadgroup)
}

/// Returns the kind of thing that a command waits for.
pub(crate) fn lane_of(verb: Verb) -> Lane {
    match verb {
        Verb::Xread => Lane::Entries,
        Verb::Xreadgroup => Lane::Group,
        _ => Lane::Elements,
    }
}

/// Returns whether a key that others wait for may have something for a command that has just come.
/// An entry of a stream is nobody's alone.
pub(crate) fn may_serve(store: &Store, request: &Request<'_>, turn: Turn, key: &[u8]) -> bool {
    match lane_of(request.command.verb) {
        Lane::Elements => store.with_key(turn, key, |entry| entry.exists()),
        Lane::Entries => false,
        Lane::Group => {
            let call = Call { store, turn, args: request.args, transfer: None };
            read::has_undelivered(&call, key)
        }
    }
}

/// Returns the group that a command reads for, if any, and its arguments in a form that means the
/// same at every later attempt.
pub(crate) fn settle<'a>(
    store: &'a Store,
    request: &Request<'a>,
    turn: Turn,
) -> (Option<&'a [u8]>, Frame) {
    let call = Call { store, turn, args: request.args, transfer: None };
    match request.command.verb {
        Verb::Xread => (None, read::settle(&call)),
        Verb::Xreadgroup => (read::group_of(&call), frame_of(&call)),
        _ => (None, frame_of(&call)),
    }
}

/// Returns whether of the keys of a command the first alone is waited for.
pub(crate) fn waits_for_first(verb: Verb) -> bool {
    matches!(verb, Verb::Blmove | Verb::Brpoplpush)
}

/// A command that finds nothing and may not wait.
pub(super) fn now(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let start = out.len();
    if attempt(call, request, How::Now, out)?.0 != Found::Answered {
        out.truncate(start);
        match waits_for_first(request.command.verb) {
            true => call.turn.protocol.null(out),
            false => call.turn.protocol.null_array(out),
        }
    }
    Ok(())
}

/// Makes an attempt, and says how long the command would wait.
pub(super) fn attempt(
    call: &Call<'_>,
    request: &Request<'_>,
    how: How<'_>,
    out: &mut Vec<u8>,
) -> Result<(Found, Patience), Fault> {
    let last = call.args.len() - 1;
    match request.command.verb {
        Verb::Blpop => pop(call, how, End::Left, out),
        Verb::Brpop => pop(call, how, End::Right, out),
        Verb::Blmove => {
            let (from, to) = (End::parse(call, 3)?, End::parse(call, 4)?);
            let patience = patience(call, last)?;
            Ok((move_element(call, how, from, to, out)?, patience))
        }
        Verb::Brpoplpush => {
            let patience = patience(call, last)?;
            Ok((move_element(call, how, End::Right, End::Left, out)?, patience))
        }
        Verb::Bzpopmin => pop_sorted(call, how, sorted::End::Min, out),
        Verb::Bzpopmax => pop_sorted(call, how, sorted::End::Max, out),
        Verb::Xread => read::xread(call, how, out),
        Verb::Xreadgroup => read::xreadgroup(call, how, out),
        Verb::Blmpop => {
            let (keys, end, count) = list::parse_multi_pop(call, 2)?;
            let patience = patience(call, 1)?;
            let keys = call.args_from(3, 1).take(keys);
            let serve = |entry: &mut Entry<'_>, key: &[u8], out: &mut Vec<u8>| {
                list::take_some(entry, key, end, count, out)
            };
            Ok((first_of(call, how, keys, serve, out)?, patience))
        }
        _ => {
            let (keys, end, count) = sorted::parse_multi_pop(call, 2)?;
            let patience = patience(call, 1)?;
            let keys = call.args_from(3, 1).take(keys);
            let serve = |entry: &mut Entry<'_>, key: &[u8], out: &mut Vec<u8>| {
                sorted::take_some(call, entry, key, end, count, out)
            };
            Ok((first_of(call, how, keys, serve, out)?, patience))
        }
    }
}

/// BLPOP and BRPOP.
fn pop(
    call: &Call<'_>,
    how: How<'_>,
    end: End,
    out: &mut Vec<u8>,
) -> Result<(Found, Patience), Fault> {
    let last = call.args.len() - 1;
    let patience = patience(call, last)?;
    let keys = call.args_from(1, 1).take(last - 1);
    let serve =
        |entry: &mut Entry<'_>, key: &[u8], out: &mut Vec<u8>| list::take_one(entry, key, end, out);
    Ok((first_of(call, how, keys, serve, out)?, patience))
}

/// BZPOPMIN and BZPOPMAX.
fn pop_sorted(
    call: &Call<'_>,
    how: How<'_>,
    end: sorted::End,
    out: &mut Vec<u8>,
) -> Result<(Found, Patience), Fault> {
    let last = call.args.len() - 1;
    let patience = patience(call, last)?;
    let keys = call.args_from(1, 1).take(last - 1);
    let serve = |entry: &mut Entry<'_>, key: &[u8], out: &mut Vec<u8>| {
        sorted::take_one(call, entry, key, end, out)
    };
    Ok((first_of(call, how, keys, serve, out)?, patience))
}

/// Serves the first of the keys that has something; `serve` says whether one
/// has.
fn first_of<'a>(
    call: &Call<'_>,
    how: How<'_>,
    keys: impl Iterator<Item = &'a [u8]> + Clone,
    serve: impl Fn(&mut Entry<'_>, &[u8], &mut Vec<u8>) -> Result<bool, WrongType>,
    out: &mut Vec<u8>,
) -> Result<Found, Fault> {
    if let How::Ready(key) = how {
        let served = call.store.with_key(call.turn, key, |mut entry| serve(&mut entry, key, out));
        return Ok(match served {
            Ok(true) => Found::Answered,
            Ok(false) => Found::Nothing,
            Err(WrongType) => Found::NotForIt,
        });
    }
    let mut locked = call.store.lock_keys(keys.clone());
    for key in keys {
        if !is_taken(call, how, key) && serve(&mut locked.entry(call.turn, key), key, out)? {
            return Ok(Found::Answered);
        }
    }
    Ok(Found::Nothing)
}

/// Returns whether what may be at a key is for others.
fn is_taken(call: &Call<'_>, how: How<'_>, key: &[u8]) -> bool {
    matches!(how, How::Newcomer)
        && call.store.waiters.has_in(call.turn.database, Lane::Elements, key)
}

/// BLMOVE and BRPOPLPUSH.
fn move_element(
    call: &Call<'_>,
    how: How<'_>,
    from: End,
    to: End,
    out: &mut Vec<u8>,
) -> Result<Found, Fault> {
    let source = call.arg(1);
    if is_taken(call, how, source) {
        return Ok(Found::Nothing);
    }
    let is_ready = matches!(how, How::Ready(_));
    match list::try_move(call, from, to, out) {
        Ok(true) => Ok(Found::Answered),
        Ok(false) => Ok(Found::Nothing),
        Err(list::MoveFault::Source) if is_ready => Ok(Found::NotForIt),
        Err(_) => Err(WrongType.into()),
    }
}

/// Returns the time to wait in argument `index`.
fn patience(call: &Call<'_>, index: usize) -> Result<Patience, Fault> {
    const NEGATIVE: Fault = Fault::Text("ERR timeout is negative");
    let seconds = match Extended::parse(call.arg(index)) {
        Ok(seconds) => seconds.to_f64(),
        // Redis finds no place for it.
        Err(extended::Fault::Infinite) => return Err(NEGATIVE),
        Err(extended::Fault::Invalid) => {
            return Err(Fault::Text("ERR timeout is not a float or out of range"));
        }
    };
    let millis = (seconds * 1000.0).ceil();
    if millis < 0.0 || millis >= i64::MAX as f64 { Err(NEGATIVE) } else { Ok(millis as u64) }
}
