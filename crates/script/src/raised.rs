//! Errors that the host raises in a script, and the places in the script that they name.

use mlua::{Lua, Table, Value};

/// The name of the prelude's chunk. No message must show it.
pub(crate) const PRELUDE: &str = "=keyway";

/// An error with which a command was answered.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The text without the dash.
    pub(crate) text: Vec<u8>,
    /// True if the host has counted it.
    pub(crate) is_counted: bool,
}

impl Failure {
    /// Creates an error that the script itself caused.
    pub(crate) fn of_script(text: &str) -> Self {
        Self { text: format!("ERR {text}").into_bytes(), is_counted: false }
    }
}

/// The field, with Redis's name, which says that an error was counted already.
const IS_COUNTED: &str = "ignore_error_stats_update";

/// Returns the table for an error.
pub(crate) fn error_table(lua: &Lua, failure: &Failure) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(&failure.text)?)?;
    if failure.is_counted {
        table.raw_set(IS_COUNTED, true)?;
    }
    Ok(table)
}

/// Returns whether a script's result or error was counted when a command was answered with it.
pub(crate) fn is_counted(value: &Value) -> bool {
    let Value::Table(table) = value else { return false };
    matches!(table.raw_get::<Value>(IS_COUNTED), Ok(Value::Boolean(true)))
}

/// An error that the host raises in a script.
#[derive(Debug, Clone)]
pub(crate) enum Raised {
    /// A message.
    Text(String),
    /// The error of `redis.call`.
    Table(Failure),
    /// The script must end.
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
    /// Returns the error of `redis.call`.
    pub(crate) fn table(failure: Failure) -> mlua::Error {
        mlua::Error::external(Self::Table(failure))
    }

    /// Returns an error with the place of the function that called the host, like errors of Lua's
    /// own functions.
    pub(crate) fn text(lua: &Lua, text: &str) -> mlua::Error {
        mlua::Error::external(Self::Text(format!("{}{text}", prefix_of_caller(lua))))
    }

    /// Returns an error without a place.
    pub(crate) fn bare(text: impl Into<String>) -> mlua::Error {
        mlua::Error::external(Self::Text(text.into()))
    }
}

/// Returns a place in a chunk, in Redis's form: `@user_script` and the line.
fn place_at(lua: &Lua, level: usize) -> Option<(String, i64)> {
    lua.inspect_stack(level, |debug| {
        let source = debug.source().source.map(|source| source.into_owned()).unwrap_or_default();
        (source, debug.current_line().map_or(-1, |line| line as i64))
    })
}

/// Returns where the script is, from `level` on outwards. The prelude does not count.
pub(crate) fn place_of_script(lua: &Lua, level: usize) -> Option<(String, i64)> {
    (level..).map_while(|level| place_at(lua, level)).find(|(source, line)| {
        *line > 0 && source != PRELUDE && !source.starts_with("=[C]") && !source.is_empty()
    })
}

/// Returns what precedes the message of an error that a line of the script raises.
fn prefix_of(lua: &Lua, level: usize) -> String {
    let prefix = lua.inspect_stack(level, |debug| {
        let source = debug.source();
        let is_prelude = source.source.as_deref() == Some(PRELUDE);
        let line = debug.current_line().filter(|_| !is_prelude)?;
        Some(format!("{}:{line}: ", source.short_src.as_deref().unwrap_or("?")))
    });
    prefix.flatten().unwrap_or_default()
}

/// Returns the same for the function that called the host or the prelude.
fn prefix_of_caller(lua: &Lua) -> String {
    let is_between = |level: usize| {
        place_at(lua, level)
            .is_some_and(|(source, _)| source == PRELUDE || source == "=(tail call)")
    };
    let level = (1..).find(|level| !is_between(*level)).unwrap_or(1);
    prefix_of(lua, level)
}

/// Returns the message without the prelude's place at its beginning.
pub(crate) fn without_prelude(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"keyway:")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest[digits..].strip_prefix(b": ")
}

pub(crate) const OUT_OF_MEMORY: &[u8] = b"not enough memory";

/// Returns whether a lack of memory caused the error, in a function of the host or elsewhere.
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
