//! MEMORY USAGE.

use super::call::{Call, Outcome, SYNTAX};
use keyway_resp::reply;

/// MEMORY USAGE: the bytes that a key takes of what `memory_used` counts: its
/// item, all elements included, and its share of the tables that it is in.
/// Nothing is estimated, so the number of samples, which Redis takes elements
/// for, changes nothing.
pub(super) fn usage(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut index = 3;
    while index < call.args.len() {
        if !call.is(index, "samples") || index + 1 == call.args.len() {
            return Err(SYNTAX);
        }
        if call.integer(index + 1)? < 0 {
            return Err(SYNTAX);
        }
        index += 2;
    }
    match call.store.with_key(call.turn, call.arg(2), |mut entry| entry.bytes()) {
        Some(bytes) => reply::integer(out, bytes as i64),
        None => call.turn.protocol.null(out),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::with_request;
    use crate::{Context, Store, StoreConfig};
    use keyway_base::{Clock, Time};
    use keyway_resp::Protocol;

    fn run(store: &Store, line: &str) -> String {
        let clock = Clock { now: Time(0), unix_micros: 1_700_000_000_000_000 };
        let context = Context { database: 0, clock, protocol: Protocol::Resp2, worker: 0 };
        let mut out = Vec::new();
        with_request(line, |request| store.execute(request, context, &mut out));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_keys_of_a_shard_take_together_what_the_shard_takes() {
        let store = Store::new(StoreConfig { shards: Some(1), ..StoreConfig::default() });
        let empty = store.stats().memory_used;
        let mut keys = Vec::new();
        for nth in 0..300 {
            for (name, line) in [
                ("s", format!("set s{nth} {}", "v".repeat(nth))),
                ("h", format!("hset h{nth} f {nth}")),
                ("l", format!("rpush l{nth}{}", format!(" {}", "e".repeat(40)).repeat(nth + 1))),
                (
                    "z",
                    format!(
                        "zadd z{nth}{}",
                        (0..=nth).map(|at| format!(" {at} m{at}")).collect::<String>()
                    ),
                ),
                ("x", format!("xadd x{nth} 1-1 name {}", "v".repeat(nth))),
            ] {
                run(&store, &line);
                keys.push(format!("{name}{nth}"));
            }
        }
        let sum: u64 = keys
            .iter()
            .map(|key| {
                let reply = run(&store, &format!("memory usage {key} samples 0"));
                let digits = reply.trim_start_matches(':').trim_end();
                digits.parse::<u64>().expect("a number")
            })
            .sum();
        let used = store.stats().memory_used - empty;
        // A share is rounded up.
        assert!((used..=used + keys.len() as u64).contains(&sum), "{sum} of {used}");
    }
}
