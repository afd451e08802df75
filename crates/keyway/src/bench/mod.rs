//! `keyway bench`: load, and what it finds.

mod load;
mod outcome;
mod parse;
mod report;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

pub use parse::duration as parse_time;

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
    /// Print a result's tables, and write it as a page with plots, as Markdown or as CSV.
    ///
    /// A result is what --json of a measurement wrote.
    Report(report::Report),
    /// Tell what differs between two results, as far as their rounds can show it.
    ///
    /// Status 0: nothing is shown to be worse. Status 1: something is. Status 2: a file is no
    /// result, or they have nothing in common. Status 3: nothing is shown to be worse, and a part
    /// of one is missing in the other.
    Compare(report::Compare),
}

/// Does what was typed.
pub fn run(bench: Bench) -> Result<ExitCode> {
    match bench {
        Bench::Load(arguments) => load::load(&arguments),
        Bench::Report(arguments) => report::report(&arguments),
        Bench::Compare(arguments) => Ok(report::compared(&arguments)),
    }
}
