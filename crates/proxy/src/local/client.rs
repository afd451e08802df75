//! CLIENT and its subcommands but KILL.

use super::{ClientEntry, LocalContext, help};
use crate::ReplyMode;
use keyway_base::Time;
use keyway_command::{Args, Request, Verb};
use keyway_resp::{parse_integer, reply};
use std::fmt::Write;

pub(super) const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";
const SYNTAX: &str = "ERR syntax error";

pub(super) fn answer(request: &Request, context: &mut LocalContext, out: &mut Vec<u8>) {
    let args = &request.args;
    match request.command.verb {
        Verb::ClientId => reply::integer(out, context.identity.id as i64),
        Verb::ClientGetname => match entry_of(context, |entry| entry.name.clone()) {
            Some(name) if !name.is_empty() => reply::bulk(out, name.as_bytes()),
            _ => reply::null(out),
        },
        Verb::ClientSetname => set_name(args, context, out),
        Verb::ClientSetinfo => set_info(args, context, out),
        Verb::ClientInfo => info(context, out),
        Verb::ClientList => list(args, context, out),
        Verb::ClientNoEvict => {
            if let Some(on) = on_or_off(&args[2], out) {
                context.identity.no_evict = on;
            }
        }
        Verb::ClientNoTouch => {
            if let Some(on) = on_or_off(&args[2], out) {
                context.identity.no_touch = on;
            }
        }
        Verb::ClientReply => set_reply(args, context, out),
        _ => help(request, out),
    }
}

/// Whether a name or label is made of printable characters without blanks.
pub(super) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn entry_of<T>(context: &LocalContext, get: impl Fn(&ClientEntry) -> T) -> Option<T> {
    let mut found = None;
    context.clients.update(context.identity.id, |entry| found = Some(get(entry)));
    found
}

fn set_name(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    if !is_plain(&args[2]) {
        return reply::error(out, BAD_NAME);
    }
    let name = String::from_utf8_lossy(&args[2]).into_owned();
    context.clients.update(context.identity.id, |entry| entry.name = name);
    reply::simple(out, "OK");
}

fn set_info(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    let (option, value) = (&args[2], &args[3]);
    let is_name = option.eq_ignore_ascii_case(b"LIB-NAME");
    if !is_name && !option.eq_ignore_ascii_case(b"LIB-VER") {
        let option = String::from_utf8_lossy(option).into_owned();
        return reply::error(out, &format!("ERR Unrecognized option '{option}'"));
    }
    if !is_plain(value) {
        let option = if is_name { "lib-name" } else { "lib-ver" };
        return reply::error(
            out,
            &format!("ERR {option} cannot contain spaces, newlines or special characters."),
        );
    }
    let value = String::from_utf8_lossy(value).into_owned();
    context.clients.update(context.identity.id, |entry| {
        *(if is_name { &mut entry.lib_name } else { &mut entry.lib_ver }) = value;
    });
    reply::simple(out, "OK");
}

fn on_or_off(text: &[u8], out: &mut Vec<u8>) -> Option<bool> {
    let on = if text.eq_ignore_ascii_case(b"on") {
        true
    } else if text.eq_ignore_ascii_case(b"off") {
        false
    } else {
        reply::error(out, SYNTAX);
        return None;
    };
    reply::simple(out, "OK");
    Some(on)
}

/// The caller puts nothing on the wire while the mode is not `On`; the reply
/// written here for OFF and SKIP is dropped by it.
fn set_reply(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    let mode = &args[2];
    context.identity.reply_mode = if mode.eq_ignore_ascii_case(b"on") {
        ReplyMode::On
    } else if mode.eq_ignore_ascii_case(b"off") {
        ReplyMode::Off
    } else if mode.eq_ignore_ascii_case(b"skip") {
        // As in Redis, SKIP has no effect once replies are off.
        match context.identity.reply_mode {
            ReplyMode::Off => ReplyMode::Off,
            _ => ReplyMode::SkipNext,
        }
    } else {
        return reply::error(out, SYNTAX);
    };
    reply::simple(out, "OK");
}

fn info(context: &LocalContext, out: &mut Vec<u8>) {
    let mut text = String::new();
    context.clients.for_each(|id, entry| {
        if id == context.identity.id {
            describe(id, entry, context, &mut text);
        }
    });
    reply::bulk(out, text.as_bytes());
}

fn list(args: &Args, context: &LocalContext, out: &mut Vec<u8>) {
    let mut ids: Option<Vec<u64>> = None;
    let mut none = false;
    match args.get(2) {
        None => {}
        Some(option) if option.eq_ignore_ascii_case(b"TYPE") && args.len() == 4 => {
            let kind = String::from_utf8_lossy(&args[3]).to_ascii_lowercase();
            match kind.as_str() {
                "normal" => {}
                "master" | "replica" | "slave" | "pubsub" => none = true,
                _ => return reply::error(out, &format!("ERR Unknown client type '{kind}'")),
            }
        }
        Some(option) if option.eq_ignore_ascii_case(b"ID") && args.len() > 3 => {
            let mut wanted = Vec::new();
            for text in args.from(3) {
                match parse_integer(text).and_then(|id| u64::try_from(id).ok()) {
                    Some(id) => wanted.push(id),
                    None => return reply::error(out, "ERR Invalid client ID"),
                }
            }
            ids = Some(wanted);
        }
        Some(_) => return reply::error(out, SYNTAX),
    }
    let mut text = String::new();
    context.clients.for_each(|id, entry| {
        if !none && ids.as_ref().is_none_or(|ids| ids.contains(&id)) {
            describe(id, entry, context, &mut text);
        }
    });
    reply::bulk(out, text.as_bytes());
}

/// One line of CLIENT LIST, with Redis's fields as far as they mean something
/// here. `idle` is known of the asking client only: others' is not shared
/// between workers.
fn describe(id: u64, entry: &ClientEntry, context: &LocalContext, text: &mut String) {
    let now = context.clock.unix_micros / 1_000_000;
    let age = now.saturating_sub(entry.connected_unix);
    let idle = if id == context.identity.id {
        seconds(context.clock.now, context.identity.last_request)
    } else {
        0
    };
    let _ = writeln!(
        text,
        "id={id} addr={} laddr={} fd=-1 name={} age={age} idle={idle} flags=N db={} sub=0 psub=0 \
         ssub=0 multi=-1 watch=0 events=r user=default redir=-1 resp=2 lib-name={} lib-ver={} \
         pool={} worker={}",
        entry.addr,
        entry.laddr,
        entry.name,
        entry.database,
        entry.lib_name,
        entry.lib_ver,
        entry.pool,
        entry.worker
    );
}

fn seconds(now: Time, then: Time) -> u64 {
    now.since(then).as_secs()
}
