//! Writes the files that are generated from and for the command table of this crate.
//!
//! `command-table ADDRESS` prints `src/table.rs`, from the description of its commands by the
//! redis-server at ADDRESS (`host:port`, or the path of a unix socket). `command-table --docs`
//! prints `docs/commands.md`, the support table.

#![forbid(unsafe_code)]

mod docs;
mod newer;
mod reply;
mod source;

use std::process::ExitCode;

fn main() -> ExitCode {
    let printed = match std::env::args().nth(1).as_deref() {
        None => Err(std::io::Error::other("usage: command-table --docs | HOST:PORT | SOCKET")),
        Some("--docs") => Ok(docs::support_table()),
        Some(address) => source::describe(address),
    };
    match printed {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("command-table: {error}");
            ExitCode::FAILURE
        }
    }
}
