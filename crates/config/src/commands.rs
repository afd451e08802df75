//! Keys whose value is a list of commands.

use crate::error::{Problem, Report, quoted};
use crate::section::{Section, Value};
use keyway_command::lookup;

/// Reads the commands that a key lists. Returns their names as in the command table.
pub(crate) fn commands(section: &Section, key: &str, report: &mut Report<'_>) -> Vec<Box<str>> {
    let names = match section.value(key) {
        Some(Value::Names(names)) => names.as_slice(),
        _ => &[],
    };
    let mut commands: Vec<Box<str>> = Vec::new();
    for (at, name) in names {
        match lookup(name.as_bytes()) {
            Some(command) => commands.push(command.name.into()),
            None => {
                let what =
                    format!("{key} in {}: no command is called {}", section.header, quoted(name));
                report.consequence(*at, Problem::new(what, "write commands as Redis names them"));
            }
        }
    }
    commands
}
