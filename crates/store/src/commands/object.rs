//! OBJECT.

use super::call::{Call, Fault, Outcome};
use crate::algorithms::number::parse_integer;
use crate::entry::{Entry, Facts};
use crate::items::{ACCESS_MASK, Encoding};
use keyway_resp::reply;

/// Longest string that Redis stores as `embstr`.
const EMBEDDED_LEN_MAX: usize = 44;
/// Redis shares the integers below this one.
const SHARED_INTEGERS: i64 = 10_000;
/// The reply of OBJECT REFCOUNT for a shared integer.
const SHARED_REFCOUNT: i64 = i32::MAX as i64;

/// The integer that Redis would store a string as.
fn as_integer(entry: &mut Entry<'_>) -> Option<i64> {
    let item = entry.text().ok()??;
    if item.encoding() == Encoding::Text { parse_integer(item.value()) } else { None }
}

/// Returns the name of the encoding in which Redis 7.0 would store the item.
fn encoding_name(entry: &mut Entry<'_>) -> Option<&'static str> {
    let encoding = entry.item()?.encoding();
    let is_integer = as_integer(entry).is_some();
    let text_len = entry.text().ok().flatten().map_or(0, |item| item.value().len());
    Some(match encoding {
        Encoding::Text if is_integer => "int",
        Encoding::Text | Encoding::Plain if text_len <= EMBEDDED_LEN_MAX => "embstr",
        Encoding::Text | Encoding::Plain | Encoding::Raw => "raw",
        Encoding::HashBlob | Encoding::SortedBlob => "listpack",
        Encoding::HashTimed => "listpackex",
        Encoding::ListBlob | Encoding::ListBoxed => "quicklist",
        Encoding::Integers => "intset",
        Encoding::HashBoxed | Encoding::HashTimedBoxed | Encoding::SetBlob | Encoding::SetBoxed => {
            "hashtable"
        }
        Encoding::SortedBoxed => "skiplist",
        Encoding::StreamBoxed => "stream",
    })
}

/// Answers about the item of argument 2, without counting a use; null when
/// there is none.
fn answer(call: &Call<'_>, out: &mut Vec<u8>, write: impl FnOnce(Facts<'_>, &mut Vec<u8>)) {
    call.store.with_key(call.turn, call.arg(2), |mut entry| match entry.item() {
        Some(item) => write(item, out),
        None => call.turn.protocol.null(out),
    });
}

/// OBJECT ENCODING.
pub(super) fn encoding(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let name = call.store.with_key(call.turn, call.arg(2), |mut entry| encoding_name(&mut entry));
    match name {
        Some(name) => reply::bulk(out, name.as_bytes()),
        None => call.turn.protocol.null(out),
    }
    Ok(())
}

/// OBJECT REFCOUNT.
pub(super) fn refcount(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    call.store.with_key(call.turn, call.arg(2), |mut entry| {
        if !entry.exists() {
            return call.turn.protocol.null(out);
        }
        let shared =
            as_integer(&mut entry).is_some_and(|value| (0..SHARED_INTEGERS).contains(&value));
        reply::integer(out, if shared { SHARED_REFCOUNT } else { 1 });
    });
    Ok(())
}

/// OBJECT IDLETIME: in seconds, from the item's own note of its last access.
pub(super) fn idletime(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let lfu = call.store.policy().is_lfu();
    let mut untracked = false;
    answer(call, out, |item, out| {
        untracked = lfu;
        let second = (call.turn.now_millis / 1000) as u32;
        reply::integer(out, i64::from(second.wrapping_sub(item.access()) & ACCESS_MASK));
    });
    if untracked {
        return Err(Fault::Text(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
             when switching between policies at runtime LRU and LFU data will take some time to \
             adjust.",
        ));
    }
    Ok(())
}

/// OBJECT FREQ: uses since the policy's hand last passed, 0 to 3.
pub(super) fn freq(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let lfu = call.store.policy().is_lfu();
    let found = call
        .store
        .with_key(call.turn, call.arg(2), |mut entry| entry.exists().then(|| entry.frequency()));
    match found {
        None => call.turn.protocol.null(out),
        Some(uses) if lfu => reply::integer(out, i64::from(uses)),
        Some(_) => {
            return Err(Fault::Text(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                 Please note that when switching between policies at runtime LRU and LFU data \
                 will take some time to adjust.",
            ));
        }
    }
    Ok(())
}

const HELP: [&str; 13] = [
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
];

/// OBJECT HELP.
pub(super) fn help(out: &mut Vec<u8>) -> Outcome {
    reply::array(out, HELP.len() + 2);
    for line in HELP.iter().chain(&["HELP", "    Prints this help."]) {
        reply::simple(out, line);
    }
    Ok(())
}
