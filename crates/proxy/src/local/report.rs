//! What an operator's tools ask: INFO, TIME, CONFIG GET, LATENCY, SLOWLOG,
//! MEMORY.

use super::{LocalContext, glob, help};
use keyway_command::{Args, Request, Verb};
use keyway_resp::reply;

pub(super) fn info(args: &Args, context: &LocalContext, out: &mut Vec<u8>) {
    let sections: Vec<String> =
        args.from(1).map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
    let sections: Vec<&str> = sections.iter().map(String::as_str).collect();
    let mut text = String::new();
    context.facts.info(context.pool, &sections, &mut text);
    reply::bulk(out, text.as_bytes());
}

pub(super) fn time(context: &LocalContext, out: &mut Vec<u8>) {
    let micros = context.clock.unix_micros;
    reply::array(out, 2);
    reply::bulk(out, (micros / 1_000_000).to_string().as_bytes());
    reply::bulk(out, (micros % 1_000_000).to_string().as_bytes());
}

pub(super) fn config_get(args: &Args, context: &LocalContext, out: &mut Vec<u8>) {
    let settings = context.facts.settings(context.pool);
    let wanted: Vec<_> = settings
        .iter()
        .filter(|(name, _)| args.from(2).any(|pattern| glob::matches(pattern, name.as_bytes())))
        .collect();
    reply::array(out, wanted.len() * 2);
    for (name, value) in wanted {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
}

/// Latency is told by /metrics: these answers are well-formed and empty.
pub(super) fn latency(request: &Request, out: &mut Vec<u8>) {
    match request.command.verb {
        Verb::LatencyLatest | Verb::LatencyHistory | Verb::LatencyHistogram => {
            reply::array(out, 0);
        }
        Verb::LatencyReset => reply::integer(out, 0),
        Verb::LatencyDoctor => reply::bulk(
            out,
            b"Keyway records latency in histograms per pool, command class and backend: see \
              /metrics on the admin listener.",
        ),
        Verb::LatencyGraph => {
            let event = String::from_utf8_lossy(&request.args[2]).into_owned();
            reply::error(out, &format!("ERR No samples available for event '{event}'"));
        }
        _ => help(request, out),
    }
}

/// There is no slow log yet: it is empty.
pub(super) fn slowlog(request: &Request, out: &mut Vec<u8>) {
    match request.command.verb {
        Verb::SlowlogGet => reply::array(out, 0),
        Verb::SlowlogLen => reply::integer(out, 0),
        Verb::SlowlogReset => reply::simple(out, "OK"),
        _ => help(request, out),
    }
}

pub(super) fn memory(request: &Request, out: &mut Vec<u8>) {
    match request.command.verb {
        Verb::MemoryDoctor => reply::bulk(
            out,
            b"Memory is accounted in INFO memory and in /metrics on the admin listener.",
        ),
        Verb::MemoryMallocStats => {
            reply::bulk(out, b"Stats not supported for the current allocator");
        }
        Verb::MemoryPurge => reply::simple(out, "OK"),
        Verb::MemoryStats => reply::array(out, 0),
        _ => help(request, out),
    }
}
