//! Errors that the host raises in a script, and the places in the script that they name.

use mlua::{Lua, Table, Value};

/// The name of the prelude's chunk, which no message is to show.
pub(crate) const PRELUDE: &str = "=keyway";

/// An error that a command was answered with.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Without the dash.
    pub(crate) text: Vec<u8>,
    /// The host has counted it.
    pub(crate) is_counted: bool,
}

impl Failure {
    /// One that is the script's own doing.
    pub(crate) fn of_script(text: &str) -> Self {
        Self { text: format!("ERR {text}").into_bytes(), is_counted: false }
    }
}

/// The field, Redis's name for it, that says that an error was counted already.
const IS_COUNTED: &str = "ignore_error_stats_update";

/// The table that an error becomes.
pub(crate) fn error_table(lua: &Lua, failure: &Failure) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(&failure.text)?)?;
    if failure.is_counted {
        table.raw_set(IS_COUNTED, true)?;
    }
    Ok(table)
}

/// Whether what a script returned or raised is an error that was counted when a
/// command was answered with it.
pub(crate) fn is_counted(value: &Value) -> bool {
    let Value::Table(table) = value else { return false };
    matches!(table.raw_get::<Value>(IS_COUNTED), Ok(Value::Boolean(true)))
}

/// An error that the host raises in a script.
#[derive(Debug, Clone)]
pub(crate) enum Raised {
    /// A message.
    Text(String),
    /// What `redis.call` raises.
    Table(Failure),
    /// The script is at its end.
    End,
}

impl std::fmt::Display for Raised {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => formatter.write_str(text),
            Self::Table(failure) => formatter.write_str(&String::from_utf8_lossy(&failure.text)),
            Self::End => formatter.write_str("the script was ended"),
        }
    }
}

impl std::error::Error for Raised {}

impl Raised {
    /// The error of `redis.call`.
    pub(crate) fn table(failure: Failure) -> mlua::Error {
        mlua::Error::external(Self::Table(failure))
    }

    /// An error with the place of the function that called the host, as Lua's
    /// own functions raise it.
    pub(crate) fn text(lua: &Lua, text: &str) -> mlua::Error {
        mlua::Error::external(Self::Text(format!("{}{text}", prefix_of_caller(lua))))
    }

    /// One without.
    pub(crate) fn bare(text: impl Into<String>) -> mlua::Error {
        mlua::Error::external(Self::Text(text.into()))
    }
}

/// A place in a chunk, as Redis names it: `@user_script` and the line.
fn place_at(lua: &Lua, level: usize) -> Option<(String, i64)> {
    lua.inspect_stack(level, |debug| {
        let source = debug.source().source.map(|source| source.into_owned()).unwrap_or_default();
        (source, debug.current_line().map_or(-1, |line| line as i64))
    })
}

/// Where the script is, from `level` on outwards: the prelude is no part of it.
pub(crate) fn place_of_script(lua: &Lua, level: usize) -> Option<(String, i64)> {
    (level..).map_while(|level| place_at(lua, level)).find(|(source, line)| {
        *line > 0 && source != PRELUDE && !source.starts_with("=[C]") && !source.is_empty()
    })
}

/// What stands before the message of an error that a script's line raises.
fn prefix_of(lua: &Lua, level: usize) -> String {
    let prefix = lua.inspect_stack(level, |debug| {
        let source = debug.source();
        let is_prelude = source.source.as_deref() == Some(PRELUDE);
        let line = debug.current_line().filter(|_| !is_prelude)?;
        Some(format!("{}:{line}: ", source.short_src.as_deref().unwrap_or("?")))
    });
    prefix.flatten().unwrap_or_default()
}

/// The same of the function that called the host, or the prelude.
fn prefix_of_caller(lua: &Lua) -> String {
    let is_between = |level: usize| {
        place_at(lua, level)
            .is_some_and(|(source, _)| source == PRELUDE || source == "=(tail call)")
    };
    let level = (1..).find(|level| !is_between(*level)).unwrap_or(1);
    prefix_of(lua, level)
}

/// The message without the place in the prelude at its beginning.
pub(crate) fn without_prelude(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"keyway:")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest[digits..].strip_prefix(b": ")
}

pub(crate) const OUT_OF_MEMORY: &[u8] = b"not enough memory";

/// Whether memory is what was wanting, in a function of the host's or elsewhere.
pub(crate) fn is_out_of_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => {
            is_out_of_memory(cause)
        }
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::arc_with_non_send_sync, reason = "mlua has its causes so")]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn want_of_memory_is_told_however_deep_it_lies() {
        let memory = mlua::Error::MemoryError("not enough memory".to_owned());
        let inner =
            mlua::Error::CallbackError { traceback: String::new(), cause: Arc::new(memory) };
        let outer = mlua::Error::WithContext { context: String::new(), cause: Arc::new(inner) };
        assert!(is_out_of_memory(&outer));
        let other = mlua::Error::RuntimeError("not enough memory".to_owned());
        let cause = Arc::new(other);
        assert!(!is_out_of_memory(&mlua::Error::CallbackError { traceback: String::new(), cause }));
    }
}
