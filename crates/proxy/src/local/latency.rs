//! LATENCY. Redis's event monitor is off here, which is also its default, so there are no events.
//! Instead every request is timed, by class of commands: HISTOGRAM answers in Redis's form, with
//! classes in place of commands.

use super::{ClassLatencies, LocalContext};
use keyway_command::{Request, Verb, lookup};
use keyway_resp::reply;

const DOCTOR: &str = "Keyway keeps no latency events. It times every request: see INFO latencies, LATENCY \
     HISTOGRAM, and keyway_pool_reply_latency_seconds, keyway_pool_slow_requests_total and \
     keyway_backend_latency_seconds on the metrics page of the admin listener.\n";

/// Appends the reply to a LATENCY subcommand.
pub(super) fn answer(request: &Request, context: &LocalContext, out: &mut Vec<u8>) {
    match request.command.verb {
        Verb::LatencyReset => reply::integer(out, 0),
        Verb::LatencyDoctor => context.identity.protocol.text(out, DOCTOR.as_bytes()),
        Verb::LatencyGraph => {
            let event = String::from_utf8_lossy(&request.args[2]);
            reply::error(out, &format!("ERR No samples available for event '{event}'"));
        }
        Verb::LatencyHistogram => histogram(request, context, out),
        _ => reply::array(out, 0),
    }
}

/// Writes the histograms of all classes with requests, or of those that the arguments name: by a
/// command, for its whole class, or by the class itself. Other words are ignored, as in Redis.
fn histogram(request: &Request, context: &LocalContext, out: &mut Vec<u8>) {
    let wants_all = request.args.len() == 2;
    let is_wanted = |of: &ClassLatencies| {
        let mut words = request.args.from(2);
        of.requests > 0 && (wants_all || words.any(|word| names(word, of.class)))
    };
    let mut classes = context.facts.latencies(context.pool);
    classes.retain(is_wanted);
    let protocol = context.identity.protocol;
    protocol.map(out, classes.len());
    for of in classes {
        reply::bulk(out, of.class.as_bytes());
        protocol.map(out, 2);
        reply::bulk(out, b"calls");
        reply::integer(out, of.requests as i64);
        reply::bulk(out, b"histogram_usec");
        protocol.map(out, of.at_or_below_micros.len());
        for (micros, count) in of.at_or_below_micros {
            reply::integer(out, micros as i64);
            reply::integer(out, count as i64);
        }
    }
}

/// Returns whether a word is a class, or one of its commands (`get`, `config|get`).
fn names(word: &[u8], class: &str) -> bool {
    if word.eq_ignore_ascii_case(class.as_bytes()) {
        return true;
    }
    let mut parts = word.splitn(2, |byte| *byte == b'|');
    let command = parts.next().and_then(lookup);
    let command = match parts.next() {
        Some(name) => command.and_then(|command| command.subcommand(name)),
        None => command,
    };
    command.is_some_and(|command| command.class.label() == class)
}
