//! `keyway bench`: load, and what it finds.

mod entry;
mod load;
mod output;
mod parse;
mod report;
mod run;

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
    /// run and prints what was measured. Status 1: more requests failed than --errors-max allows,
    /// verification found something, or the server fell silent. Status 2: it could not begin.
    Load(Box<load::Load>),
    /// Rerun a published benchmark, or one of your own, with the systems side by side.
    ///
    /// Starts what it needs on free ports of this machine, measures the systems in turns, round by
    /// round, ends all of it and prints the report's own table. A system that is not installed is
    /// a row that says so. Ctrl-C ends a run and prints what was measured. Status 1: something
    /// that was there could not be measured. Status 2: it could not begin.
    Run(Box<run::Arguments>),
    /// A program of a scenario, which ends when the run does.
    #[command(hide = true)]
    RunPart {
        /// The process of the run.
        run: u32,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Print a result's tables, and write it as a page with plots, as Markdown or as CSV.
    ///
    /// A result is what --json of a measurement wrote. Status 2: the file is no result, or a file that
    /// is there would be overwritten and holds no earlier result.
    Report(report::Report),
    /// Print in few rows what several results have shown: ratios by benchmark, work and system.
    Digest(report::Digest),
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
        Bench::Run(arguments) => run::scenario(&arguments),
        Bench::RunPart { run, words } => {
            match keyway_scenario::process::become_guarded(run, &words)? {}
        }
        Bench::Report(arguments) => report::report(&arguments),
        Bench::Digest(arguments) => report::digested(&arguments),
        Bench::Compare(arguments) => Ok(report::compared(&arguments)),
    }
}
