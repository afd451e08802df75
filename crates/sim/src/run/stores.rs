//! What the embedded stores hold at rest, looked at past all workers.

use super::*;
use crate::wire::{Value, parse_value, write_request};
use keyway_base::{Clock, Time};
use keyway_command::{Args, Request};
use keyway_resp::{ParseLimits, Parsed, Protocol, parse_request};
use keyway_store::Context;

/// Lists hold what was told to be there.
pub(super) fn check(plan: &Plan, ledger: &mut Ledger) {
    for (pool, plan) in plan.pools.iter().enumerate() {
        if let PoolKind::Store(store) = &plan.kind {
            let databases = plan.databases;
            ledger.check_store_lists(pool, |list| elements(store, databases, list));
        }
    }
}

/// The elements of a list, in whichever database it is.
fn elements(store: &Store, databases: u32, list: &[u8]) -> Vec<Vec<u8>> {
    let mut frame = Vec::new();
    write_request(&mut frame, &[b"LRANGE", list, b"0", b"-1"]);
    let (mut ranges, mut inline) = (Vec::new(), Vec::new());
    let limits = ParseLimits::of(&keyway_base::Limits::default());
    let parsed = parse_request(&frame, &limits, &mut ranges, &mut inline);
    assert!(matches!(parsed, Ok(Parsed::Ready { .. })), "a request of the simulator");
    let request = Request::resolve(Args::new(&frame, &ranges)).expect("a command there is");
    let mut all = Vec::new();
    for database in 0..databases {
        let clock = Clock { now: Time(0), unix_micros: 0 };
        let context = Context { database, clock, protocol: Protocol::Resp2, worker: 0 };
        let mut reply = Vec::new();
        store.execute(&request, context, &mut reply);
        if let Ok(Some((Value::Array(Some(items)), _))) = parse_value(&reply, 0) {
            all.extend(items.into_iter().filter_map(|item| match item {
                Value::Bulk(bytes) => bytes,
                _ => None,
            }));
        }
    }
    all
}
