//! Keyway: every key finds its slot.
//!
//! The binary is wiring: it reads the configuration, builds what the workers share, starts them and
//! the admin listener, and waits for signals. Read first: `cli` (the command line), `serve` (the
//! start and end of a process) and `workers` (threads, added while busy).

#![forbid(unsafe_code)]

mod admin;
mod admin_of;
mod bench;
mod bus;
mod certificates;
mod cli;
mod control_node;
mod ctl;
mod directories;
mod driver;
mod events;
mod expiry;
mod facts;
mod generate;
mod hash_password;
mod import_codis;
mod locate;
mod log;
mod member;
mod memory;
mod operators;
mod passwords;
mod peers;
mod plan;
mod registrations;
mod reload;
mod replicas;
mod serve;
mod snapshots;
mod store_logs;
mod top;
mod upgrade;
mod workers;

use std::process::ExitCode;

fn main() -> ExitCode {
    keyway_store::give_back_freed_memory();
    match cli::run(cli::typed()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("keyway: {}", cli::escaped(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
