//! Writes `docs/config.md` from the schema.

use crate::schema::{Absent, Choices, Key, Kind, TABLES, Table};
use crate::value::{format_duration, format_size};
use std::fmt::Write;

const INTRODUCTION: &str = r#"# Configuration

`keyway serve FILE` reads one TOML file. Without a file, Keyway serves its embedded store on
`tcp://127.0.0.1:6380`. A complete example is [examples/keyway.toml](examples/keyway.toml).

- `keyway check FILE` prints the file as understood, every default filled in, and the memory it
  implies; passwords are masked, and Keyway does not start with a mask in place of a password.
- Every mistake is reported at once, with its line and what to write instead, and Keyway does not
  start on a file with one. A key it does not know is a mistake. Of lines that are no TOML the first
  20 are reported.
- Values carry their unit: `"400ms"`, `"30s"`, `"10m"` (us, ms, s, m, h, d); `"64KiB"`, `"64MiB"`,
  `"1GiB"` (and the decimal `"1KB"`, `"1MB"`, `"1GB"`).
- "required" means that the file is refused without the key.
- A path of a file is absolute, or begins in the folder of the configuration file: `"app.password"` in
  `/etc/keyway/keyway.toml` is `/etc/keyway/app.password`, whatever the working directory is. Paths of
  unix sockets are absolute.

This page is made from the same table the program reads files with.
"#;

/// Returns the reference of all keys in Markdown: `docs/config.md`.
pub fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    for table in TABLES {
        let _ = write!(text, "\n## {}\n\n{}\n\n", heading(table), table.doc);
        text.push_str("| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
        for key in table.keys {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                key.name,
                cell(&value_text(key)),
                cell(&default_text(key)),
                cell(key.doc)
            );
        }
    }
    text
}

/// Returns a header with code in code style, and the rest as words.
fn heading(table: &Table) -> String {
    let words = table
        .header
        .split(' ')
        .map(|word| if word.contains(['[', '"']) { format!("`{word}`") } else { word.to_owned() });
    words.collect::<Vec<_>>().join(" ")
}

/// Escapes bars, which would end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn value_text(key: &Key) -> String {
    let text = match &key.kind {
        Kind::Bool => "`true` or `false`".to_owned(),
        Kind::Duration { min, max } => {
            format!("time, `\"{}\"` to `\"{}\"`", format_duration(*min), format_duration(*max))
        }
        Kind::Size { min, max } => {
            format!("size, `\"{}\"` to `\"{}\"`", format_size(*min), format_size(*max))
        }
        Kind::Count { min, max } => format!("number, {min} to {max}"),
        Kind::Workers => "number, or a table".to_owned(),
        Kind::Choice(choices) => choices_text(choices),
        Kind::Listen | Kind::Admin => "address".to_owned(),
        Kind::Servers => "list of servers".to_owned(),
        Kind::Rejoin => "text".to_owned(),
        Kind::HashTag => "two characters".to_owned(),
        Kind::KeyspaceEvents => "letters".to_owned(),
        Kind::Prefix | Kind::UserName | Kind::Text | Kind::HostName => "text".to_owned(),
        Kind::Primary => "address of a server".to_owned(),
        Kind::PoolName => "name of a pool".to_owned(),
        Kind::PoolNames => "list of names of pools".to_owned(),
        Kind::Commands => "list of commands".to_owned(),
        Kind::Names => "list of names".to_owned(),
        Kind::ReadFrom => "text".to_owned(),
        Kind::HedgeAfter => "time, `\"1ms\"` to `\"1m\"`, or `\"p99\"`".to_owned(),
        Kind::Share => "share, `\"1%\"` to `\"100%\"`".to_owned(),
        Kind::Uids => "list of numbers".to_owned(),
        Kind::Networks => "list of addresses".to_owned(),
        Kind::Mode => "octal digits as text".to_owned(),
        Kind::Secret => "text, never shown".to_owned(),
        Kind::Hashes => "list of texts, never shown".to_owned(),
        Kind::Variable => "name of a variable".to_owned(),
        Kind::Rules => "rules".to_owned(),
        Kind::Path => "path of a file".to_owned(),
        Kind::Table(_) | Kind::List(_) | Kind::Pools => "table".to_owned(),
    };
    match key.word {
        Some(word) => format!("{text}, or `\"{word}\"`"),
        None => text,
    }
}

fn choices_text(choices: &Choices) -> String {
    let words: Vec<String> = choices.now.iter().map(|word| format!("`\"{word}\"`")).collect();
    words.join(", ")
}

fn default_text(key: &Key) -> String {
    match (&key.absent, &key.kind) {
        (Absent::Refused, _) => "required".to_owned(),
        (Absent::Unset(text), _) => (*text).to_owned(),
        (Absent::Is(_), Kind::Table(table)) => {
            let defaults = table.keys.iter().filter_map(|key| match key.absent {
                Absent::Is(default) => Some(format!("{} = {default}", key.name)),
                _ => None,
            });
            format!("`{{ {} }}`", defaults.collect::<Vec<_>>().join(", "))
        }
        (Absent::Is(default), _) => format!("`{default}`"),
    }
}
