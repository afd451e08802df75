//! A value of any bytes, given to RESTORE: it is refused and nothing changes,
//! or it is a value like any other, which DUMP and RESTORE copy.

use crate::Choices;
use crate::invariants::{compose, one_reply_in};
use keyway_base::{Clock, Time};
use keyway_command::{Args, Request};
use keyway_rdb::payload;
use keyway_resp::{Kind, Protocol};
use keyway_store::{Context, EvictionPolicy, Store, StoreConfig};

/// The kinds of payload of hashes whose fields expire: all of them may have.
const FIELDS_EXPIRE: std::ops::RangeInclusive<u8> = 22..=25;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let store = Store::new(StoreConfig {
        memory_max: choices.pick(&[0, 1 << 20]),
        policy: EvictionPolicy::NoEviction,
        shards: Some(1),
        seed: 7,
        ..StoreConfig::default()
    });
    let mut payload = choices.rest().to_vec();
    payload::seal(&mut payload);
    execute(&store, &[b"SET", b"value", b"kept"]);
    let (restored, _) = execute(&store, &[b"RESTORE", b"value", b"0", &payload, b"REPLACE"]);
    if restored == Kind::Error {
        let (_, kept) = execute(&store, &[b"GET", b"value"]);
        assert_eq!(kept, b"$4\r\nkept\r\n");
        return;
    }
    let (_, exists) = execute(&store, &[b"EXISTS", b"value"]);
    if exists == b":0\r\n" {
        assert!(FIELDS_EXPIRE.contains(&payload[0]), "restored, and not there");
        return;
    }
    let first = dump(&store, b"value");
    // There may be no room for a second one.
    let (copied, _) = execute(&store, &[b"RESTORE", b"copy", b"0", &first]);
    if copied == Kind::Error {
        assert!(store.config().memory_max != 0, "what was dumped is refused");
        return;
    }
    // The order may be another one.
    let second = dump(&store, b"copy");
    assert_eq!((second[0], second.len()), (first[0], first.len()));
}

fn dump(store: &Store, key: &[u8]) -> Vec<u8> {
    let (kind, reply) = execute(store, &[b"DUMP", key]);
    assert_eq!(kind, Kind::Bulk, "a key without a dump");
    let start = reply.windows(2).position(|pair| pair == b"\r\n").expect("a header") + 2;
    reply[start..reply.len() - 2].to_vec()
}

/// Executes a command; its reply.
fn execute(store: &Store, words: &[&[u8]]) -> (Kind, Vec<u8>) {
    let line: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    let (buf, ranges) = compose(&line);
    let request = Request::resolve(Args::new(&buf, &ranges)).expect("a known command");
    let clock = Clock { now: Time(0), unix_micros: 1_700_000_000_000_000 };
    let context = Context { database: 0, clock, protocol: Protocol::Resp2, worker: 0 };
    let mut out = Vec::new();
    store.execute(&request, context, &mut out);
    (one_reply_in(Protocol::Resp2, &out), out)
}
