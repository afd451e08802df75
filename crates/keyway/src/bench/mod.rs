//! `keyway bench`: load, and what it finds.

mod load;
mod parse;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Put a server of Redis's or memcached's protocol under load and measure it.
    ///
    /// Requests are sent by threads with many connections each, closed loop (the next batch when
    /// the last is answered) or open loop (--rate). Figures are printed at the end; Ctrl-C ends a
    /// run and prints what was measured. Status 1: verification found something, or the server
    /// fell silent. Status 2: it could not begin.
    Load(Box<load::Load>),
}

/// Does what was typed.
pub fn run(bench: Bench) -> Result<ExitCode> {
    match bench {
        Bench::Load(arguments) => load::load(&arguments),
    }
}
