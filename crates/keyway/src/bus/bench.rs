//! `keyway bus bench`.

use anyhow::{Context, Result};
use clap::Args;
use keyway_bus_bench::{
    Case, Channel, Options, SENDERS_MAX, Sizes, json, round_trips, run, table, trips_table,
};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct Bench {
    /// Channels, by comma: shm, unix, tcp6.
    #[arg(long, value_delimiter = ',', default_value = "shm,unix,tcp6")]
    channels: Vec<Channel>,
    /// Lengths of messages, drawn evenly, by comma, in bytes.
    #[arg(long, value_delimiter = ',', default_value = "8-128,8-16384", value_name = "MIN-MAX")]
    sizes: Vec<Sizes>,
    /// Numbers of senders, by comma.
    #[arg(long, value_delimiter = ',', default_value = "1,16", value_parser = senders)]
    senders: Vec<usize>,
    /// How long each row sends.
    #[arg(long, default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// How often all rows are measured, one after the other; the medians are printed.
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Capacity of each ring in KiB, a power of two.
    #[arg(long, default_value = "1024", value_parser = ring_kib)]
    ring: usize,
    /// Write everything that was measured to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn senders(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=SENDERS_MAX).contains(number));
    number.ok_or_else(|| format!("a number of senders is from 1 to {SENDERS_MAX}"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|number| (0.01..=3600.0).contains(number));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "seconds are from 0.01 to 3600".to_owned())
}

fn ring_kib(text: &str) -> Result<usize, String> {
    let kib: Option<usize> = text.parse().ok();
    let fits = |kib: &usize| kib.is_power_of_two() && (256..=65_536).contains(kib);
    kib.filter(fits).ok_or_else(|| "a ring has a power of two from 256 to 65536 KiB".to_owned())
}

/// Runs one process of the benchmark.
pub fn take_part(order: &str) -> Result<ExitCode> {
    keyway_bus_bench::end(order)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures, and prints the tables.
pub fn bench(arguments: Bench) -> Result<ExitCode> {
    // A file that cannot be written is reported before minutes are spent.
    let named = |file: &PathBuf| format!("cannot write {}", file.display());
    let mut json_file = match &arguments.json {
        Some(file) => Some(std::fs::File::create(file).with_context(|| named(file))?),
        None => None,
    };
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let options = Options {
        channels: arguments.channels,
        sizes: arguments.sizes,
        senders: arguments.senders,
        length: arguments.seconds,
        rounds: arguments.rounds.into(),
        ring_len: arguments.ring << 10,
        again: [&program.display().to_string(), "bus", "bench-end"].map(str::to_owned).to_vec(),
    };
    let is_shown = std::io::stderr().is_terminal();
    let outcomes = run(&options, &AtomicBool::new(false), |case: &Case, round| {
        if is_shown {
            let Case { channel, sizes, senders } = case;
            eprint!("\r\x1b[Kround {}: {channel}, {sizes} B, {senders} senders", round + 1);
        }
    });
    if is_shown {
        eprint!("\r\x1b[K");
    }
    let (outcomes, trips) = (outcomes?, round_trips(&options)?);
    let tables = [table(&outcomes), trips_table(&trips)].join("\n");
    crate::cli::print(tables.as_bytes())?;
    if let (Some(file), Some(path)) = (&mut json_file, &arguments.json) {
        file.write_all(json(&outcomes, &trips)?.as_bytes()).with_context(|| named(path))?;
    }
    let is_whole = outcomes.iter().all(|one| one.lost == 0 && one.wrong == 0);
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
