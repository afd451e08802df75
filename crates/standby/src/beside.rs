//! Commands of the stream that are not about keys: scripts, functions and messages.

use crate::audience::Audience;
use keyway_base::Time;
use keyway_command::{Request, Verb};
use keyway_proxy::dumped_libraries;
use keyway_script::{Engine, Policy, Registry, Run};
use std::sync::Arc;

/// Returns whether such a command is executed here.
pub(crate) fn serves(verb: Verb) -> bool {
    use Verb::{
        FunctionDelete, FunctionFlush, FunctionLoad, FunctionRestore, Publish, ScriptFlush,
        ScriptLoad, Spublish,
    };
    matches!(
        verb,
        FunctionDelete
            | FunctionFlush
            | FunctionLoad
            | FunctionRestore
            | Publish
            | ScriptFlush
            | ScriptLoad
            | Spublish
    )
}

/// Returns whether such a command changes functions, which a log keeps.
pub(crate) fn is_of_functions(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::FunctionDelete | Verb::FunctionFlush | Verb::FunctionLoad | Verb::FunctionRestore
    )
}

/// Executes one.
///
/// # Errors
/// The text of the error, as a client would get it.
pub(crate) fn execute(
    request: &Request<'_>,
    scripts: &Arc<Registry>,
    audience: &dyn Audience,
    now: Time,
) -> Result<(), String> {
    let args = &request.args;
    let engine = || Engine::new(Arc::clone(scripts));
    match request.command.verb {
        Verb::Publish | Verb::Spublish => {
            let is_sharded = request.command.verb == Verb::Spublish;
            audience.publish(is_sharded, &args[1], &args[2]);
        }
        Verb::ScriptLoad => drop(engine().load(&args[2], true)?),
        Verb::ScriptFlush => scripts.flush(),
        Verb::FunctionDelete => match scripts.delete_library(&args[2]) {
            true => {}
            false => return Err("ERR Library not found".to_owned()),
        },
        Verb::FunctionFlush => scripts.flush_libraries(),
        Verb::FunctionLoad => {
            let code = &args[args.len() - 1];
            let replaces =
                args.from(2).take(args.len() - 3).any(|word| word.eq_ignore_ascii_case(b"replace"));
            let policy = if replaces { Policy::Replace } else { Policy::Append };
            let library = engine().load_library(code, policy, &run(now))?;
            scripts.keep_libraries(vec![library], policy)?;
        }
        Verb::FunctionRestore => {
            let policy = match args.get(3) {
                Some(word) if word.eq_ignore_ascii_case(b"replace") => Policy::Replace,
                Some(word) if word.eq_ignore_ascii_case(b"flush") => Policy::Flush,
                _ => Policy::Append,
            };
            let broken = "ERR DUMP payload version or checksum are wrong";
            let payload = &args[2];
            keyway_rdb::payload::open(payload).ok_or(broken)?;
            let codes = dumped_libraries(payload).map_err(|_| broken)?;
            let codes: Vec<&[u8]> = codes.iter().map(Vec::as_slice).collect();
            let libraries = engine().load_libraries(&codes, &run(now))?;
            scripts.keep_libraries(libraries, policy)?;
        }
        _ => return Err("ERR unknown command".to_owned()),
    }
    Ok(())
}

/// Puts a library of a snapshot in its place.
///
/// # Errors
/// The reason why the library is refused.
pub(crate) fn load_library(scripts: &Arc<Registry>, code: &[u8], now: Time) -> Result<(), String> {
    let mut engine = Engine::new(Arc::clone(scripts));
    let library = engine.load_library(code, Policy::Append, &run(now))?;
    scripts.keep_libraries(vec![library], Policy::Append)
}

fn run(now: Time) -> Arc<Run> {
    Arc::new(Run::new(true, String::new(), Vec::new(), now))
}
