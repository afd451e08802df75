//! MEMORY without USAGE, which concerns a key and goes to the key's server.

use super::{LocalContext, info};
use keyway_command::{Request, Verb};
use keyway_resp::reply;

const DOCTOR: &str = "Keyway holds what its limits allow and the embedded store what maxmemory \
     allows. Compare used_memory with maxmemory in INFO MEMORY.\n";
const MALLOC_STATS: &str = "Stats not supported for the current allocator";

/// Appends the reply to a MEMORY subcommand.
pub(super) fn answer(request: &Request, context: &LocalContext, out: &mut Vec<u8>) {
    match request.command.verb {
        Verb::MemoryPurge => reply::simple(out, "OK"),
        Verb::MemoryDoctor => context.identity.protocol.text(out, DOCTOR.as_bytes()),
        Verb::MemoryMallocStats => context.identity.protocol.text(out, MALLOC_STATS.as_bytes()),
        _ => stats(context, out),
    }
}

/// Writes the fields of Redis's MEMORY STATS that have a meaning here.
fn stats(context: &LocalContext, out: &mut Vec<u8>) {
    let memory = info::section(context.facts, context.pool, "memory");
    let keyspace = info::section(context.facts, context.pool, "keyspace");
    let used = info::number(&memory, "used_memory").unwrap_or(0);
    let dataset = info::number(&memory, "used_memory_dataset").unwrap_or(used);
    let keys = info::key_count(&keyspace);
    let peak = info::number(&memory, "used_memory_peak").map(|peak| ("peak.allocated", peak));
    let fields = [
        ("total.allocated", used),
        ("keys.count", keys),
        ("keys.bytes-per-key", dataset.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", dataset),
    ];
    context.identity.protocol.map(out, fields.len() + usize::from(peak.is_some()));
    for (name, value) in peak.into_iter().chain(fields) {
        reply::bulk(out, name.as_bytes());
        reply::integer(out, value);
    }
}
