//! `keyway bench run`.

use super::load::{Reserved, stop_flag};
use super::report::Out;
use anyhow::{Context, Result};
use clap::Args;
use keyway_scenario::{BUILT_IN, Given, Options, Scenario, Status, load, run, text};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyway bench run --list
  keyway bench run codis-vs-twemproxy --html codis.html --json codis.json
  keyway bench run cluster-proxies --system predixy=127.0.0.1:7617 --only keyway,predixy
  keyway bench run aerospike-cache --system 'valkey=valkey-server --port {port} --save \"\"'
  keyway bench run --show twemproxy-memcached > mine.toml; keyway bench run mine.toml
What scenarios there are and how files look: docs/bench.md")]
pub struct Arguments {
    /// A scenario by its name, or a file of one.
    #[arg(value_name = "NAME|FILE", required_unless_present_any = ["list", "show"])]
    scenario: Option<String>,
    /// Print the names of those that are built in.
    #[arg(long)]
    list: bool,
    /// Print the file of one that is built in, to copy and change.
    #[arg(long, value_name = "NAME")]
    show: Option<String>,
    /// The report's own size, instead of what suits this machine; takes long.
    #[arg(long)]
    full: bool,
    /// How often all systems take their turn.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,
    /// Seconds of each measurement.
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// A system of yours: NAME=HOST:PORT where it runs, or NAME=COMMAND with {port} in it, which
    /// is started. Takes the place of the scenario's of that name. May come several times.
    #[arg(long = "system", value_name = "NAME=...")]
    systems: Vec<Given>,
    /// Measure these systems only.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    #[command(flatten)]
    out: Out,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.05..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "seconds are from 0.05 to 3600".to_owned())
}

/// Runs a scenario, or lists the scenarios.
pub fn scenario(arguments: &Arguments) -> Result<ExitCode> {
    match arguments.run() {
        Ok(code) => Ok(code),
        Err(error) => {
            eprintln!("keyway bench run: {}", crate::cli::escaped(&format!("{error:#}")));
            Ok(ExitCode::from(2))
        }
    }
}

impl Arguments {
    fn run(&self) -> Result<ExitCode> {
        if self.list {
            print(&list());
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(name) = &self.show {
            print(text(name)?);
            return Ok(ExitCode::SUCCESS);
        }
        let scenario = load(self.scenario.as_deref().unwrap_or_default())?;
        self.out.check(&scenario.table)?;
        // Empty files are removed again if nothing is written to them.
        let _files = Reserved::new(self.out.files())?;
        let is_stopped = stop_flag()?;
        crate::serve::raise_descriptor_limit();
        let is_shown = std::io::stderr().is_terminal();
        let found = run(&scenario, &self.options()?, &is_stopped, &mut |status| {
            if is_shown {
                show(status);
            }
        });
        if is_shown {
            eprint!("\r\x1b[K");
        }
        let found = found?;
        self.out.write(&found.run)?;
        Ok(if found.is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn options(&self) -> Result<Options> {
        let keyway = std::env::current_exe().context("cannot find this program to start it")?;
        let program = keyway.display().to_string();
        let again = |words: &[&str]| {
            [&[program.as_str()], words].concat().into_iter().map(str::to_owned).collect()
        };
        let own = std::process::id().to_string();
        let typed = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        Ok(Options {
            is_full: self.full,
            rounds: self.rounds.map(usize::from),
            seconds: self.seconds,
            given: self.systems.clone(),
            only: self.only.clone(),
            guard: again(&["bench", "run-part", &own]),
            bus_again: again(&["bus", "bench-end"]),
            keyway,
            command: ["keyway".to_owned()].into_iter().chain(typed).collect::<Vec<_>>().join(" "),
        })
    }
}

fn list() -> String {
    let line = |(name, text): &(&str, &str)| {
        let title = Scenario::parse(name, name, text).map(|scenario| scenario.title);
        format!("{name:<22} {}\n", title.unwrap_or_default())
    };
    BUILT_IN.iter().map(line).collect()
}

/// Prints to standard output. A reader that closed it is not an error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn show(status: &Status) {
    const WIDTH: usize = 24;
    let full = (status.done * WIDTH as f64) as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
    let left = status.left.map_or(String::new(), |left| {
        format!(", {}:{:02} left", left.as_secs() / 60, left.as_secs() % 60)
    });
    let what: String = status.what.chars().take(72).collect();
    let rate = match status.per_second {
        rate if rate > 0.0 => format!(", {rate:.0}/s"),
        _ => String::new(),
    };
    eprint!("\r\x1b[K[{bar}] {what}{rate}{left}");
}
