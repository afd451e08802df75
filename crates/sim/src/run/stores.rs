//! The contents of the embedded stores at rest, which are read without the workers.

use super::*;
use crate::client::id_of;
use crate::ledger::StreamAtRest;
use crate::scenario::Bound;
use crate::wire::{Value, parse_value, write_request};
use keyway_base::{Clock, Time};
use keyway_command::{Args, Request};
use keyway_resp::{ParseLimits, Parsed, Protocol, parse_request};
use keyway_store::Context;

/// Checks that lists and streams hold what clients were told.
pub(super) fn check(plan: &Plan, ledger: &mut Ledger) {
    for (pool, plan) in plan.pools.iter().enumerate() {
        if let PoolKind::Store(store) = &plan.kind {
            if ledger.may_all_go(pool) {
                continue;
            }
            let databases = plan.databases;
            ledger.check_store_lists(pool, |list| elements(store, databases, list));
            ledger.check_streams(pool, |stream| entries(store, databases, stream));
        }
    }
}

/// Makes the ledger check what a store with a memory bound counts.
pub(super) fn check_memory(plan: &Plan, (bound, position): (&Bound, usize), ledger: &mut Ledger) {
    let PoolKind::Store(store) = &plan.pools[position].kind else { return };
    debug_assert_eq!(store.config().memory_max, bound.memory_max);
    let stats = store.stats();
    ledger.on_memory(stats.memory_used + stats.memory_idle);
}

/// Returns the elements of a list, in whichever database it is.
fn elements(store: &Store, databases: u32, list: &[u8]) -> Vec<Vec<u8>> {
    let replies = ask(store, databases, &[b"LRANGE", list, b"0", b"-1"]);
    let items = replies.into_iter().filter_map(items_of).flatten();
    items.filter_map(bytes_of).collect()
}

/// Returns the entries of a stream, and the last that its group has given.
fn entries(store: &Store, databases: u32, stream: &[u8]) -> StreamAtRest {
    let replies = ask(store, databases, &[b"XRANGE", stream, b"-", b"+"]);
    let entries = replies.into_iter().filter_map(items_of).flatten();
    let first = |items: Vec<Value>| items.into_iter().next();
    let ids = entries.filter_map(items_of).filter_map(first).filter_map(bytes_of);
    let ids = ids.filter_map(|bytes| id_of(&bytes)).collect();
    let replies = ask(store, databases, &[b"XINFO", b"GROUPS", stream]);
    let groups = replies.into_iter().filter_map(items_of).flatten().filter_map(items_of);
    let texts = groups.flatten().filter_map(bytes_of).collect::<Vec<_>>();
    let last = texts.iter().position(|text| text == b"last-delivered-id");
    let given = last.and_then(|at| id_of(texts.get(at + 1)?));
    StreamAtRest { ids, given }
}

fn items_of(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => items,
        _ => None,
    }
}

fn bytes_of(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::Bulk(bytes) => bytes,
        _ => None,
    }
}

/// Returns the answers of a store, one for each of its databases.
fn ask(store: &Store, databases: u32, words: &[&[u8]]) -> Vec<Value> {
    let mut frame = Vec::new();
    write_request(&mut frame, words);
    let (mut ranges, mut inline) = (Vec::new(), Vec::new());
    let limits = ParseLimits::of(&keyway_base::Limits::default());
    let parsed = parse_request(&frame, &limits, &mut ranges, &mut inline);
    assert!(matches!(parsed, Ok(Parsed::Ready { .. })), "a request of the simulator");
    let request = Request::resolve(Args::new(&frame, &ranges)).expect("a command there is");
    let answers = (0..databases).map(|database| {
        let clock = Clock { now: Time(0), unix_micros: 0 };
        let context = Context { database, clock, protocol: Protocol::Resp2, worker: 0 };
        let mut reply = Vec::new();
        store.execute(&request, context, &mut reply);
        parse_value(&reply, 0)
    });
    answers.filter_map(|parsed| Some(parsed.ok()??.0)).collect()
}
