//! Writes the command table of this crate from a running redis-server:
//! `command-table ADDRESS` prints `src/table.rs`.

#![forbid(unsafe_code)]

mod reply;
mod source;

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: command-table HOST:PORT|SOCKET");
        return ExitCode::FAILURE;
    };
    match source::describe(&address) {
        Ok(table) => print!("{table}"),
        Err(error) => {
            eprintln!("command-table: {address}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
