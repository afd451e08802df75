//! CLIENT and its subcommands.

use super::client_filter::{Filters, Type};
use super::{After, LocalContext, NOT_AN_INTEGER, SYNTAX, Unblock, UnblockReason};
use crate::ReplyMode;
use crate::local::{ClientEntry, TrackingEntry};
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use keyway_command::{Args, Request, Verb};
use keyway_resp::{parse_integer, reply};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Length of the longest name, library name or version that a client may set, in bytes. Each is
/// kept for the whole connection, outside every other limit.
const NAME_LEN_MAX: usize = 1024;

const LIST_TOO_LONG: &str = "ERR the list is longer than session_output_len_hard in [limits] \
     allows; ask for some of the clients with CLIENT LIST ID id [id ...]";

/// Appends the reply to a CLIENT subcommand other than KILL.
pub(super) fn answer(request: &Request, context: &mut LocalContext, out: &mut Vec<u8>) {
    let args = &request.args;
    match request.command.verb {
        Verb::ClientId => reply::integer(out, context.identity.id as i64),
        Verb::ClientGetname => match context.clients.get(context.identity.id) {
            Some(entry) if !entry.name().is_empty() => reply::bulk(out, entry.name().as_bytes()),
            _ => context.identity.protocol.null(out),
        },
        Verb::ClientSetname => acknowledge(set_name(&args[2], context), out),
        Verb::ClientSetinfo => acknowledge(set_info(&args[2], &args[3], context), out),
        Verb::ClientInfo => info(context, out),
        Verb::ClientList => list(args, context, out),
        Verb::ClientNoEvict => switch(&args[2], &mut context.identity.no_evict, out),
        Verb::ClientNoTouch => switch(&args[2], &mut context.identity.no_touch, out),
        _ => set_reply_mode(&args[2], context, out),
    }
}

fn acknowledge(outcome: Result<(), String>, out: &mut Vec<u8>) {
    match outcome {
        Ok(()) => reply::simple(out, "OK"),
        Err(text) => reply::error(out, &text),
    }
}

/// Sets the client's name. An empty one removes it.
///
/// # Errors
/// Returns the text of the error reply.
pub(super) fn set_name(name: &[u8], context: &mut LocalContext) -> Result<(), String> {
    let name = attribute("Client names", name)?;
    context.clients.update(context.identity.id, |entry| entry.set_name(name));
    Ok(())
}

/// Answers `CLIENT SETINFO LIB-NAME | LIB-VER value`.
fn set_info(option: &[u8], value: &[u8], context: &mut LocalContext) -> Result<(), String> {
    let what = String::from_utf8_lossy(option);
    let set: fn(&mut ClientEntry, &str) = match () {
        () if option.eq_ignore_ascii_case(b"lib-name") => ClientEntry::set_lib_name,
        () if option.eq_ignore_ascii_case(b"lib-ver") => ClientEntry::set_lib_ver,
        () => return Err(format!("ERR Unrecognized option '{what}'")),
    };
    let value = attribute(&what, value)?;
    context.clients.update(context.identity.id, |entry| set(entry, value));
    Ok(())
}

/// Returns a text that cannot break the lines of `CLIENT LIST`.
fn attribute<'a>(what: &str, value: &'a [u8]) -> Result<&'a str, String> {
    match std::str::from_utf8(value) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            if text.len() > NAME_LEN_MAX {
                return Err(format!("ERR {what} cannot be longer than {NAME_LEN_MAX} bytes"));
            }
            Ok(text)
        }
        _ => Err(format!("ERR {what} cannot contain spaces, newlines or special characters.")),
    }
}

/// Reads `ON` or `OFF`.
fn switch(word: &[u8], flag: &mut bool, out: &mut Vec<u8>) {
    match () {
        () if word.eq_ignore_ascii_case(b"on") => *flag = true,
        () if word.eq_ignore_ascii_case(b"off") => *flag = false,
        () => return reply::error(out, SYNTAX),
    }
    reply::simple(out, "OK");
}

fn set_reply_mode(word: &[u8], context: &mut LocalContext, out: &mut Vec<u8>) {
    let mode = &mut context.identity.reply_mode;
    match () {
        () if word.eq_ignore_ascii_case(b"on") => {
            *mode = ReplyMode::On;
            reply::simple(out, "OK");
        }
        () if word.eq_ignore_ascii_case(b"off") => *mode = ReplyMode::Off,
        () if word.eq_ignore_ascii_case(b"skip") => {
            if *mode != ReplyMode::Off {
                *mode = ReplyMode::SkipNext;
            }
        }
        () => reply::error(out, SYNTAX),
    }
}

fn info(context: &LocalContext, out: &mut Vec<u8>) {
    let text = own_line(context, "client|info");
    context.identity.protocol.text(out, text.as_bytes());
}

/// Returns the line of `CLIENT LIST` for the client itself, which has sent `command`.
pub(super) fn own_line(context: &LocalContext, command: &str) -> String {
    let mut text = String::new();
    if let Some(entry) = context.clients.get(context.identity.id) {
        let blocked = context.clients.blocked();
        write_line(context.identity.id, &entry, command, context, &blocked, &mut text);
    }
    text
}

/// Answers `CLIENT LIST [TYPE type] | [ID id ...]`.
fn list(args: &Args, context: &LocalContext, out: &mut Vec<u8>) {
    let is = |word: &str| args[2].eq_ignore_ascii_case(word.as_bytes());
    let mut text = String::new();
    let blocked = context.clients.blocked();
    let mut write = |id, entry: &ClientEntry| {
        // It writes one line more than there is room for, which is noticed below.
        if entry.pool == context.pool && text.len() <= context.reply_len_max {
            write_line(id, entry, "client|list", context, &blocked, &mut text);
        }
    };
    if args.len() == 2 {
        context.clients.for_each(write);
    } else if args.len() == 4 && is("type") {
        match Type::parse(&args[3]) {
            Ok(kind) => context.clients.for_each(|id, entry| {
                if Filters::passes_type(kind, entry) {
                    write(id, entry);
                }
            }),
            Err(text) => return reply::error(out, &text),
        }
    } else if args.len() > 3 && is("id") {
        // Each id counts once. Otherwise, with repeated ids, the reply would be many times as long
        // as the request.
        let ids: Option<IndexSet<i64, RandomState>> = args.from(3).map(parse_integer).collect();
        let Some(ids) = ids else { return reply::error(out, "ERR Invalid client ID") };
        for id in ids.into_iter().filter_map(|id| u64::try_from(id).ok()) {
            if let Some(entry) = context.clients.get(id) {
                write(id, &entry);
            }
        }
    } else {
        return reply::error(out, SYNTAX);
    }
    if text.len() > context.reply_len_max {
        return reply::error(out, LIST_TOO_LONG);
    }
    context.identity.protocol.text(out, text.as_bytes());
}

/// Writes one client as a line of `field=value`. The command is NULL before its first one. Sizes of
/// buffers are left out: buffers belong to workers while they are in use, and an idle client has
/// none. `watch` says only whether keys are watched.
fn write_line(
    id: u64,
    entry: &ClientEntry,
    own_command: &str,
    context: &LocalContext,
    blocked: &BTreeSet<u64>,
    text: &mut String,
) {
    let is_self = id == context.identity.id;
    let now_unix = context.clock.unix_micros / 1_000_000;
    let age = now_unix.saturating_sub(entry.connected_unix);
    let (idle, command) = match is_self {
        true => (0, own_command),
        false => {
            let silence = entry.live.silence(context.clock.now).map_or(age, |it| it.as_secs());
            let command = entry.live.last_command().map_or("NULL", |command| command.name);
            (silence, command)
        }
    };
    let state = entry.live.get();
    let (tracking, redirect) = tracking_fields(entry);
    let letter = |is_set: bool, letter: char| is_set.then_some(letter);
    let mut flags = String::new();
    flags.extend(letter(state.is_monitor, 'O'));
    flags.extend(letter(state.is_subscriber(), 'P'));
    flags.extend(letter(state.multi.is_some(), 'x'));
    flags.extend(letter(blocked.contains(&id), 'b'));
    flags.push_str(tracking);
    flags.extend(letter(state.is_dirty, 'd'));
    flags.extend(letter(is_self && context.identity.no_evict, 'e'));
    flags.extend(letter(is_self && context.identity.no_touch, 'T'));
    if flags.is_empty() {
        flags.push('N');
    }
    let [sub, psub, ssub] = state.subscriptions;
    let multi = state.multi.map_or(-1, i64::from);
    let watch = u8::from(state.is_watching);
    let ClientEntry { addr, laddr, user, database, worker, protocol, .. } = entry;
    let (name, lib_name, lib_ver) = (entry.name(), entry.lib_name(), entry.lib_ver());
    let resp = protocol.number();
    let _ = writeln!(
        text,
        "id={id} addr={addr} laddr={laddr} fd=-1 name={name} age={age} idle={idle} \
         flags={flags} db={database} sub={sub} psub={psub} ssub={ssub} multi={multi} watch={watch} \
         events=r cmd={command} \
         user={user} redir={redirect} resp={resp} lib-name={lib_name} lib-ver={lib_ver} worker={worker}"
    );
}

/// Returns the flags and the redirection of a client's tracking.
fn tracking_fields(entry: &ClientEntry) -> (&'static str, i64) {
    let Some(TrackingEntry { bcast, redirect, is_broken }) = entry.tracking() else {
        return ("", -1);
    };
    let letters = match (is_broken, bcast) {
        (false, false) => "t",
        (true, false) => "tR",
        (false, true) => "tB",
        (true, true) => "tRB",
    };
    (letters, redirect.unwrap_or(0) as i64)
}

/// Answers `CLIENT KILL addr:port`, or filters that a client must all pass.
pub(super) fn kill(args: &Args, context: &LocalContext, out: &mut Vec<u8>) -> After {
    let is_old_form = args.len() == 3;
    let filters = match is_old_form {
        true => Ok(Filters::of_addr(&args[2])),
        false => Filters::parse(args, context.users),
    };
    let filters = match filters {
        Ok(filters) => filters,
        Err(text) => {
            reply::error(out, &text);
            return After::Continue;
        }
    };
    let now_unix = context.clock.unix_micros / 1_000_000;
    let mut ids = Vec::new();
    context.clients.for_each(|id, entry| {
        let is_spared = filters.skip_me && id == context.identity.id;
        if entry.pool == context.pool && !is_spared && filters.pass(id, entry, now_unix) {
            ids.push(id);
        }
    });
    match (is_old_form, ids.is_empty()) {
        (true, true) => reply::error(out, "ERR No such client"),
        (true, false) => reply::simple(out, "OK"),
        (false, _) => reply::integer(out, ids.len() as i64),
    }
    if ids.is_empty() { After::Continue } else { After::Kill(ids) }
}

/// Answers `CLIENT UNBLOCK client-id [TIMEOUT | ERROR]`.
pub(super) fn unblock(args: &Args, context: &LocalContext, out: &mut Vec<u8>) -> After {
    let reason = match args.get(3) {
        None => Some(UnblockReason::Timeout),
        Some(word) if word.eq_ignore_ascii_case(b"timeout") => Some(UnblockReason::Timeout),
        Some(word) if word.eq_ignore_ascii_case(b"error") => Some(UnblockReason::Error),
        Some(_) => None,
    };
    let refusal = match (reason, parse_integer(&args[2])) {
        (None, _) => "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
        (_, None) => NOT_AN_INTEGER,
        (Some(reason), Some(id)) => {
            let id = u64::try_from(id).unwrap_or(0);
            let is_blocked = context.clients.take_blocked(id, context.pool);
            reply::integer(out, i64::from(is_blocked));
            let unblock = Unblock { id, reason };
            return if is_blocked { After::Unblock(unblock) } else { After::Continue };
        }
    };
    reply::error(out, refusal);
    After::Continue
}

#[cfg(test)]
mod tests {
    use crate::ReplyMode;
    use crate::local::bench::Bench;
    use crate::local::{After, Unblock, UnblockReason};
    use keyway_base::Time;

    #[test]
    fn only_a_client_that_waits_is_unblocked() {
        let mut bench = Bench::new();
        let id = bench.identity.id;
        let ask = |bench: &mut Bench, line: String| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            bench.ask_args(&words)
        };
        let answered = (":0\r\n".to_owned(), After::Continue);
        assert_eq!(ask(&mut bench, format!("CLIENT UNBLOCK {id}")), answered);
        bench.clients.set_blocked(id, true);
        let (reply, after) = ask(&mut bench, format!("CLIENT UNBLOCK {id} error"));
        assert_eq!(reply, ":1\r\n");
        assert_eq!(after, After::Unblock(Unblock { id, reason: UnblockReason::Error }));
        assert_eq!(ask(&mut bench, format!("CLIENT UNBLOCK {id}")), answered, "once");
        assert!(ask(&mut bench, format!("CLIENT UNBLOCK {id} x")).0.starts_with("-ERR CLIENT"));
        assert!(ask(&mut bench, "CLIENT UNBLOCK x".to_owned()).0.starts_with("-ERR value is"));
        bench.clients.set_blocked(id, true);
        bench.clients.remove(id);
        assert!(!bench.clients.take_blocked(id, 0));
    }

    #[test]
    fn names_that_would_break_the_list_are_refused() {
        let mut bench = Bench::new();
        for name in [&b"a b"[..], b"a\nb", b"\x7f", b"\xc3\xa9", &[b'x'; 1025]] {
            let (reply, _) = bench.ask_args(&[b"CLIENT", b"SETNAME", name]);
            assert!(reply.starts_with("-ERR Client names cannot "), "{reply}");
            let (reply, _) = bench.ask_args(&[b"CLIENT", b"SETINFO", b"LIB-name", name]);
            assert!(reply.starts_with("-ERR LIB-name cannot "), "{reply}");
        }
        assert_eq!(bench.ask("CLIENT GETNAME"), "$-1\r\n");
        assert_eq!(bench.ask("CLIENT SETINFO colour red"), "-ERR Unrecognized option 'colour'\r\n");
    }

    #[test]
    fn a_client_is_described_as_it_described_itself() {
        let mut bench = Bench::new();
        for line in ["CLIENT SETNAME n", "CLIENT SETINFO LIB-NAME l", "CLIENT SETINFO lib-ver 1"] {
            assert_eq!(bench.ask(line), "+OK\r\n");
        }
        let info = bench.ask("CLIENT INFO");
        for field in [" name=n ", " lib-name=l ", " lib-ver=1 ", " cmd=client|info ", " idle=0 "] {
            assert!(info.contains(field), "{field} in {info}");
        }
        let (empty, _) = bench.ask_args(&[b"CLIENT", b"SETNAME", b""]);
        assert_eq!(empty, "+OK\r\n");
        assert_eq!(bench.ask("CLIENT GETNAME"), "$-1\r\n");
    }

    #[test]
    fn others_are_told_of_with_their_last_command_and_idle_time() {
        let mut bench = Bench::new();
        bench.clock.unix_micros = 1_100_000_000;
        bench.add_client(8, 0, "10.0.0.8:8");
        let line = bench.ask("CLIENT LIST ID 8");
        assert!(line.contains(" age=100 idle=100 ") && line.contains(" cmd=NULL "), "{line}");
        let live = bench.clients.get(8).expect("the client").live;
        live.note_request(Some(keyway_command::Verb::ConfigGet), Time(3_000_000_000));
        // Changes of the wall clock have no effect.
        bench.clock.now = Time(10_000_000_000);
        let line = bench.ask("CLIENT LIST ID 8");
        assert!(line.contains(" age=100 idle=7 ") && line.contains(" cmd=config|get "), "{line}");
    }

    #[test]
    fn clients_of_other_pools_are_out_of_sight_and_reach() {
        let mut bench = Bench::new();
        bench.add_client(8, 0, "10.0.0.8:8");
        bench.add_client(9, 1, "10.0.0.9:9");
        assert_eq!(bench.ask("CLIENT LIST").matches("id=").count(), 2);
        assert_eq!(bench.ask("CLIENT LIST ID 9 8").matches("id=").count(), 1);
        assert_eq!(bench.ask("CLIENT KILL 10.0.0.9:9"), "-ERR No such client\r\n");
        let (reply, after) = bench.ask_after("CLIENT KILL TYPE normal");
        assert_eq!((reply.as_str(), after), (":1\r\n", After::Kill(vec![8])));
    }

    #[test]
    fn a_list_is_no_longer_than_its_clients_and_its_bound() {
        let mut bench = Bench::new();
        bench.add_client(8, 0, "10.0.0.8:8");
        bench.add_client(9, 0, "10.0.0.9:9");
        let listed = |reply: &str| {
            let ids = reply.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
            ids.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(listed(&bench.ask("CLIENT LIST ID 9 7 9 5 9 7 7")), ["9", "7"]);
        bench.reply_len_max = bench.ask("CLIENT LIST ID 7 8").len();
        for line in ["CLIENT LIST", "CLIENT LIST TYPE normal", "CLIENT LIST ID 7 8 9"] {
            assert!(bench.ask(line).starts_with("-ERR the list is longer than "), "{line}");
        }
        assert_eq!(listed(&bench.ask("CLIENT LIST ID 8 9 8")), ["8", "9"]);
    }

    #[test]
    fn kill_spares_the_caller_unless_told_otherwise() {
        let mut bench = Bench::new();
        let own = bench.identity.id;
        assert_eq!(bench.ask_after("CLIENT KILL SKIPME yes").0, ":0\r\n");
        let after = bench.ask_after("CLIENT KILL SKIPME no").1;
        assert_eq!(after, After::Kill(vec![own]));
        let (reply, after) = bench.ask_after("CLIENT KILL 127.0.0.1:7");
        assert_eq!((reply.as_str(), after), ("+OK\r\n", After::Kill(vec![own])));
    }

    #[test]
    fn every_filter_must_pass() {
        let mut bench = Bench::new();
        bench.clock.unix_micros = 1_100_000_000;
        bench.add_client(8, 0, "10.0.0.8:8");
        for (filters, count) in [
            ("ID 8", 1),
            ("ID 8 ADDR 10.0.0.8:8 USER default", 1),
            ("ID 8 ADDR 10.0.0.9:8", 0),
            ("LADDR 127.0.0.1:6380", 1),
            ("ID 8 TYPE pubsub", 0),
            ("ID 8 MAXAGE 100", 1),
            ("ID 8 MAXAGE 101", 0),
        ] {
            let reply = bench.ask(&format!("CLIENT KILL {filters}"));
            assert_eq!(reply, format!(":{count}\r\n"), "{filters}");
        }
    }

    #[test]
    fn reply_modes_change_without_a_word() {
        let mut bench = Bench::new();
        for (line, reply, mode) in [
            ("CLIENT REPLY SKIP", "", ReplyMode::SkipNext),
            ("CLIENT REPLY OFF", "", ReplyMode::Off),
            ("CLIENT REPLY SKIP", "", ReplyMode::Off),
            ("CLIENT REPLY ON", "+OK\r\n", ReplyMode::On),
            ("CLIENT REPLY maybe", "-ERR syntax error\r\n", ReplyMode::On),
        ] {
            assert_eq!(bench.ask(line), reply, "{line}");
            assert_eq!(bench.identity.reply_mode, mode, "{line}");
        }
    }
}
