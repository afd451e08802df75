//! SLOWLOG: the requests of the client's pool that took long.

use super::LocalContext;
use crate::{SlowEntry, SlowLog};
use keyway_command::{Request, Verb};
use keyway_resp::{parse_integer, reply};

/// Number of entries that are shown without a count.
const COUNT_DEFAULT: usize = 10;

/// Appends the reply to a SLOWLOG subcommand.
pub(super) fn answer(request: &Request, context: &LocalContext, out: &mut Vec<u8>) {
    let args = &request.args;
    let log = context.facts.slow_log(context.pool);
    match request.command.verb {
        Verb::SlowlogLen => reply::integer(out, log.map_or(0, SlowLog::len) as i64),
        Verb::SlowlogReset => {
            if let Some(log) = log {
                log.clear();
            }
            reply::simple(out, "OK");
        }
        _ => {
            let count = match args.get(2).map(parse_integer) {
                None => COUNT_DEFAULT,
                Some(Some(-1)) => usize::MAX,
                Some(Some(count @ 0..)) => usize::try_from(count).unwrap_or(usize::MAX),
                Some(_) => {
                    return reply::error(out, "ERR count should be greater than or equal to -1");
                }
            };
            let entries = log.map_or_else(Vec::new, |log| log.latest(count));
            reply::array(out, entries.len());
            entries.iter().for_each(|entry| write_entry(entry, out));
        }
    }
}

fn write_entry(entry: &SlowEntry, out: &mut Vec<u8>) {
    reply::array(out, 6);
    reply::integer(out, entry.id as i64);
    reply::integer(out, entry.unix_seconds as i64);
    reply::integer(out, entry.micros as i64);
    reply::array(out, entry.args.len());
    entry.args.iter().for_each(|arg| reply::bulk(out, arg));
    reply::bulk(out, entry.addr.as_bytes());
    reply::bulk(out, entry.name.as_bytes());
}
