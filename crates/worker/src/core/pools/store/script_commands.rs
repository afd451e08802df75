//! `SCRIPT` and `FUNCTION` on the store: what is loaded, listed, dumped and killed.

use crate::core::pools::store::transactions::unserved;
use keyway_base::{ByteRange, Time, glob};
use keyway_command::{Args, Request, Verb};
use keyway_proxy::{Session, dumped_libraries};
use keyway_rdb::payload;
use keyway_resp::{Protocol, reply};
use keyway_script::{Engine, Kill, Policy, Registry, Run};
use std::sync::Arc;

/// The byte that precedes each library in a dump.
const DUMPED_LIBRARY: u8 = 245;

/// Returns whether a command changes the set of functions.
pub(super) fn changes_libraries(verb: Verb) -> bool {
    use Verb::{FunctionDelete, FunctionFlush, FunctionLoad, FunctionRestore};
    matches!(verb, FunctionDelete | FunctionFlush | FunctionLoad | FunctionRestore)
}

/// Executes SCRIPT and FUNCTION with their subcommands.
pub(super) fn control(engine: &mut Engine, request: &Request, now: Time, out: &mut Vec<u8>) {
    let registry = Arc::clone(engine.registry());
    match request.command.verb {
        Verb::ScriptLoad => match engine.load(&request.args[1 + 1], true) {
            Ok(script) => reply::bulk(out, &script.name),
            Err(text) => reply::error(out, &text),
        },
        Verb::ScriptExists => {
            let names = request.args.from(2);
            reply::array(out, request.args.len() - 2);
            names.for_each(|name| reply::integer(out, i64::from(registry.has(name))));
        }
        Verb::ScriptFlush => match flush_option(request) {
            true => {
                registry.flush();
                reply::simple(out, "OK");
            }
            false => reply::error(out, "ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        },
        Verb::ScriptKill => write_kill(registry.kill(false), "FUNCTION KILL", out),
        Verb::FunctionKill => write_kill(registry.kill(true), "SCRIPT KILL", out),
        Verb::FunctionLoad => match load_library(engine, request, now) {
            Ok(name) => reply::bulk(out, &name),
            Err(text) => reply::error(out, &text),
        },
        Verb::FunctionDelete => match registry.delete_library(&request.args[2]) {
            true => reply::simple(out, "OK"),
            false => reply::error(out, "ERR Library not found"),
        },
        Verb::FunctionFlush => match flush_option(request) {
            true => {
                registry.flush_libraries();
                reply::simple(out, "OK");
            }
            false => reply::error(out, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
        },
        Verb::FunctionDump => {
            let mut dump = Vec::new();
            for library in registry.libraries() {
                dump.push(DUMPED_LIBRARY);
                keyway_rdb::format::write_bytes(&library.code, &mut dump);
            }
            payload::seal(&mut dump);
            reply::bulk(out, &dump);
        }
        Verb::FunctionRestore => match restore(engine, request, now) {
            Ok(()) => reply::simple(out, "OK"),
            Err(text) => reply::error(out, &text),
        },
        Verb::ScriptDebug => {
            let text = "ERR 'script debug' is refused: a script that waits for its debugger would \
                        hold up the store; debug it on a redis-server of its own";
            reply::error(out, text);
        }
        _ => {
            let name = request.command.name.replace('|', " ");
            reply::error(out, &unserved(&name, request.command.handling));
        }
    }
}

/// Executes a command of a store's log again: FUNCTION LOAD, DELETE, FLUSH or RESTORE. The
/// libraries may be as they are behind the command, or behind later ones.
pub fn repeat_function_command(registry: &Arc<Registry>, words: &[&[u8]], now: Time) {
    let mut words = words.to_vec();
    let is = |at: usize, text: &str| {
        words.get(at).is_some_and(|word: &&[u8]| word.eq_ignore_ascii_case(text.as_bytes()))
    };
    let (is_load, is_restore) = (is(1, "load"), is(1, "restore"));
    if is_load && !is(2, "replace") {
        words.insert(2, b"REPLACE");
    } else if is_restore && !is(3, "flush") {
        words.truncate(3);
        words.push(b"REPLACE");
    }
    let mut buf = Vec::new();
    let mut ranges = Vec::new();
    for word in &words {
        ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
        buf.extend_from_slice(word);
    }
    let Ok(request) = Request::resolve(Args::new(&buf, &ranges)) else { return };
    if changes_libraries(request.command.verb) {
        // An error says that it was done: the library to be deleted is not there.
        control(&mut Engine::new(Arc::clone(registry)), &request, now, &mut Vec::new());
    }
}

/// Executes FUNCTION LOAD. Returns the name of the library.
fn load_library(engine: &mut Engine, request: &Request, now: Time) -> Result<Vec<u8>, String> {
    let code = request.args.len() - 1;
    let mut policy = Policy::Append;
    for option in request.args.from(2).take(code - 2) {
        if !option.eq_ignore_ascii_case(b"replace") {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Unknown option given: {option}"));
        }
        policy = Policy::Replace;
    }
    let library = engine.load_library(&request.args[code], policy, &loading(request, now))?;
    let name = library.name.clone();
    engine.registry().keep_libraries(vec![library], policy)?;
    Ok(name)
}

/// Returns the run that FUNCTION KILL ends while libraries are loaded.
fn loading(request: &Request, now: Time) -> Arc<Run> {
    let name = request.command.name.replace('|', " ").to_uppercase();
    Arc::new(Run::new(true, name, Vec::new(), now))
}

/// Executes FUNCTION RESTORE.
fn restore(engine: &mut Engine, request: &Request, now: Time) -> Result<(), String> {
    let payload = &request.args[2];
    let is = |word: &str| request.args[3].eq_ignore_ascii_case(word.as_bytes());
    let policy = match request.args.len() {
        3 => Policy::Append,
        4 if is("append") => Policy::Append,
        4 if is("replace") => Policy::Replace,
        4 if is("flush") => Policy::Flush,
        _ => {
            let text = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or \
                        REPLACE.";
            return Err(text.to_owned());
        }
    };
    if payload::open(payload).is_none() {
        return Err("ERR DUMP payload version or checksum are wrong".to_owned());
    }
    let codes =
        dumped_libraries(payload).map_err(|_| "ERR failed loading functions payload".to_owned())?;
    // The registry refuses a name that is in use when the libraries are kept.
    let codes: Vec<&[u8]> = codes.iter().map(Vec::as_slice).collect();
    let libraries = engine.load_libraries(&codes, &loading(request, now))?;
    engine.registry().keep_libraries(libraries, policy)
}

/// Executes FUNCTION LIST.
pub(super) fn write_list(
    registry: &Registry,
    request: &Request,
    protocol: Protocol,
    out: &mut Vec<u8>,
) {
    let (mut pattern, mut with_code) = (None, false);
    let mut index = 2;
    while let Some(word) = request.args.get(index) {
        if !with_code && word.eq_ignore_ascii_case(b"withcode") {
            with_code = true;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"libraryname") {
            index += 1;
            let Some(name) = request.args.get(index) else {
                return reply::error(out, "ERR library name argument was not given");
            };
            pattern = Some(name);
        } else {
            let word = String::from_utf8_lossy(word);
            return reply::error(out, &format!("ERR Unknown argument {word}"));
        }
        index += 1;
    }
    let mut libraries = registry.libraries();
    libraries.retain(|it| pattern.is_none_or(|like| glob::matches_ignoring_case(like, &it.name)));
    reply::array(out, libraries.len());
    for library in libraries {
        protocol.map(out, if with_code { 4 } else { 3 });
        reply::bulk(out, b"library_name");
        reply::bulk(out, &library.name);
        reply::bulk(out, b"engine");
        reply::bulk(out, b"LUA");
        reply::bulk(out, b"functions");
        reply::array(out, library.functions.len());
        for function in &library.functions {
            protocol.map(out, 3);
            reply::bulk(out, b"name");
            reply::bulk(out, &function.name);
            reply::bulk(out, b"description");
            match &function.description {
                Some(text) => reply::bulk(out, text),
                None => protocol.null(out),
            }
            reply::bulk(out, b"flags");
            protocol.set(out, function.flag_names.len());
            function.flag_names.iter().for_each(|flag| reply::simple(out, flag));
        }
        if with_code {
            reply::bulk(out, b"library_code");
            reply::bulk(out, &library.code);
        }
    }
}

/// Executes FUNCTION STATS.
pub(super) fn write_stats(
    registry: &Registry,
    running: Option<&Run>,
    now: Time,
    session: &Session,
    out: &mut Vec<u8>,
) {
    let protocol = session.identity.protocol;
    protocol.map(out, 2);
    reply::bulk(out, b"running_script");
    match running {
        None => protocol.null(out),
        Some(run) => {
            protocol.map(out, 3);
            reply::bulk(out, b"name");
            reply::bulk(out, run.name.as_bytes());
            reply::bulk(out, b"command");
            reply::array(out, run.command.len());
            run.command.iter().for_each(|word| reply::bulk(out, word));
            reply::bulk(out, b"duration_ms");
            reply::integer(out, now.since(run.began).as_millis() as i64);
        }
    }
    let (libraries, functions, _) = registry.library_counts();
    reply::bulk(out, b"engines");
    protocol.map(out, 1);
    reply::bulk(out, b"LUA");
    protocol.map(out, 2);
    reply::bulk(out, b"libraries_count");
    reply::integer(out, libraries as i64);
    reply::bulk(out, b"functions_count");
    reply::integer(out, functions as i64);
}

/// Returns whether the option of a flush, ASYNC or SYNC, is valid. Both do the same here.
fn flush_option(request: &Request) -> bool {
    let is =
        |word: &[u8]| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async");
    match request.args.len() {
        2 => true,
        3 => is(&request.args[2]),
        _ => false,
    }
}

fn write_kill(kill: Kill, other: &str, out: &mut Vec<u8>) {
    match kill {
        Kill::Killed => reply::simple(out, "OK"),
        Kill::NotBusy => reply::error(out, "NOTBUSY No scripts in execution right now."),
        Kill::Unkillable => reply::error(
            out,
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You \
             can either wait the script termination or kill the server in a hard way using the \
             SHUTDOWN NOSAVE command.",
        ),
        Kill::OtherKind => reply::error(
            out,
            &format!(
                "BUSY Redis is busy running a script. You can only call {other} or SHUTDOWN NOSAVE."
            ),
        ),
    }
}
