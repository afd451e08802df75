//! `keyway bench load`.

use super::entry::Entry;
use super::output::{self, Form};
use super::parse::{self, ErrorsMax, PatternNumbers};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use keyway_load::outcome::{Document, SCHEMA};
use keyway_load::{
    Command, CommandKind, Ended, Error, Flow, KeyForm, Outcome, Pace, Plan, Progress, Protocol,
    Sizes, Target, Until, Watch, Workload, parse_mix, parse_template, run, suite, table, ycsb,
};
use keyway_net::Address;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::OpenOptions;
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Default length of a value, in bytes. In the suite it is 3, as in redis-benchmark.
const SIZE: u32 = 100;
const SUITE_SIZE: u32 = 3;

/// Default number of keys. In the suite it is 1, as in redis-benchmark; YCSB has records.
const KEYS: u64 = 1_000_000;
const RECORDS: u64 = 100_000;

/// Requests in flight on each connection that fills the server.
const FILL_PIPELINE: usize = 32;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyway bench load 127.0.0.1:6379 --ratio 1:10 --fill
  keyway bench load unix:///run/keyway.sock --mix mget_20 --keys 100000
  keyway bench load 127.0.0.1:6379 --suite set,get,lrange_600 --requests 100000 --pipeline 16
  keyway bench load 127.0.0.1:11211 --protocol memcached-text --rate 20000 --duration 1m
  keyway bench load 127.0.0.1:7000 --cluster --verify --duration 1m
  keyway bench load 127.0.0.1:6379 --command 'HSET h:__key__ f __data__' --json out.json
  keyway bench load 127.0.0.1:6379 --ycsb b --fill --threads 2
All flags with examples: docs/bench.md")]
pub struct Load {
    /// Where the server listens: host:port, unix:///path or shm:///path.
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// What it speaks: resp2, resp3, memcached-text, memcached-meta or memcached-binary.
    #[arg(long, default_value = "resp2", value_parser = parse::protocol)]
    protocol: Protocol,
    #[command(flatten)]
    entry: Entry,
    /// Database to select (Redis).
    #[arg(long, default_value_t = 0)]
    database: u32,
    /// The address is one server of a Redis Cluster: ask each primary for its own keys.
    #[arg(long)]
    cluster: bool,

    /// Threads.
    #[arg(long, short, default_value_t = 1)]
    threads: usize,
    /// Connections of each thread.
    #[arg(long, short, default_value_t = 50)]
    connections: usize,
    /// Requests in flight on a connection.
    #[arg(long, short = 'P', default_value_t = 1)]
    pipeline: usize,
    /// How long to measure: 250ms, 10s, 5m. 10s where no number of requests is given.
    #[arg(long, short, value_parser = parse::duration, conflicts_with = "requests")]
    duration: Option<Duration>,
    /// How many requests to measure, over all connections.
    #[arg(long, short = 'n')]
    requests: Option<u64>,
    /// Load before, which is not counted.
    #[arg(long, value_parser = parse::duration, default_value = "0s")]
    warm_up: Duration,
    /// Open loop: so many requests a second, whatever the server does; latency counts from when
    /// each was due.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Open loop: distances of requests as of many independent users, instead of even ones.
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// The same seed gives each connection the same requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Close a connection behind so many replies and open another; tells connection times.
    #[arg(long)]
    calls: Option<u64>,

    /// Commands with how often each comes: get, set, setex, mget_20, mset_10, del, incr, touch.
    #[arg(long, group = "what", value_name = "NAME:WEIGHT,...")]
    mix: Option<String>,
    /// Sets to gets, short for --mix set:S,get:G; 1:10 where nothing is said.
    #[arg(long, group = "what", value_parser = parse::ratio, value_name = "S:G")]
    ratio: Option<(u32, u32)>,
    /// Any command; __key__, __data__, __rand__, __rand_int__ and __ttl__ are replaced. May come
    /// several times.
    #[arg(long, value_name = "TEXT")]
    command: Vec<String>,
    /// How often each --command comes among all, in their order; 1 where nothing is said.
    #[arg(long, value_name = "N", requires = "command")]
    command_weight: Vec<u32>,
    /// redis-benchmark's tests, by its names, one after the other; one key and values of 3 bytes
    /// where nothing is said.
    #[arg(long, group = "what", value_delimiter = ',', value_name = "NAMES")]
    suite: Vec<String>,
    /// YCSB's workload a to f, records as hashes of ten fields.
    #[arg(long, group = "what", value_name = "LETTER")]
    ycsb: Option<char>,

    /// How many keys there are; a million where nothing is said, YCSB 100000 records.
    #[arg(long)]
    keys: Option<u64>,
    /// What keys begin with.
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Number of the first key.
    #[arg(long, default_value_t = 0, value_name = "N")]
    key_first: u64,
    /// Digits of a key's number, with zeros in front; 0 is without; 12 where nothing is said.
    #[arg(long, value_name = "N")]
    key_digits: Option<u8>,
    /// Which keys: random, sequential (each connection through all), parallel (each through a part
    /// of its own), gaussian or zipf; of writes and reads apart: S:R.
    #[arg(long, value_name = "WRITES:READS")]
    key_pattern: Option<String>,
    /// How steep zipf is, above 0 and below 1.
    #[arg(long, default_value_t = 0.99)]
    zipf_exponent: f64,
    /// Middle key of gaussian; half of all where nothing is said.
    #[arg(long, value_name = "N")]
    key_median: Option<f64>,
    /// Standard deviation of gaussian, in keys; a sixth of all where nothing is said.
    #[arg(long, value_name = "N")]
    key_deviation: Option<f64>,
    /// Bytes of values: 100, 8-128, or sizes with how often each comes, 64:9,4k:1.
    #[arg(long, short, value_parser = parse::sizes)]
    size: Option<Sizes>,
    /// Seconds until written values expire: 60 or 10-60.
    #[arg(long, value_parser = parse::expiry, value_name = "SECONDS")]
    expiry: Option<(u32, u32)>,
    /// Write every key once before.
    #[arg(long)]
    fill: bool,
    /// Values carry a checksum and a version; wrong, stale and missing ones are counted.
    #[arg(long)]
    verify: bool,

    /// How many requests may fail, as a number or as a share such as 1%: above it the status is 1.
    #[arg(long, value_parser = parse::errors_max, default_value = "0", value_name = "N|PERCENT")]
    errors_max: ErrorsMax,

    /// Watch this process; may come several times. Without any of these three: who listens at the
    /// address, if that is on this machine.
    #[arg(long)]
    pid: Vec<u32>,
    /// Watch all processes of this name.
    #[arg(long, value_name = "NAME")]
    process: Vec<String>,
    /// Watch who listens on this port of this machine.
    #[arg(long)]
    port: Vec<u16>,
    /// Write what was measured to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How long a connection, or the first answer on it, may take.
    #[arg(long, value_parser = parse::duration, default_value = "5s")]
    patience: Duration,
    /// A server that answers nothing for so long ends the run.
    #[arg(long, value_parser = parse::duration, default_value = "10s")]
    silence: Duration,
}

/// Measures, and prints the tables.
pub fn load(arguments: &Load) -> Result<ExitCode> {
    match arguments.measure() {
        Ok(outcomes) => {
            let is_good = |outcome: &Outcome| {
                outcome.ended != Ended::Silent
                    && outcome.verification.is_none_or(|found| found.is_clean())
            };
            let is_all = outcomes.iter().all(is_good);
            let mut has_few_errors = true;
            for outcome in &outcomes {
                let (failed, all) = (outcome.failures(), outcome.totals.requests);
                if !arguments.errors_max.allows(failed, all) {
                    has_few_errors = false;
                    eprintln!(
                        "keyway bench load: {failed} of {} requests failed, more than --errors-max \
                         {}",
                        all.max(failed),
                        arguments.errors_max
                    );
                }
            }
            Ok(if is_all && has_few_errors { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            let told = crate::cli::escaped(&format!("{error:#}"));
            eprintln!("keyway bench load: {told}{}", hint(&error));
            Ok(ExitCode::from(2))
        }
    }
}

/// Returns advice for an error, if there is any.
fn hint(error: &anyhow::Error) -> &'static str {
    match error.downcast_ref::<Error>() {
        Some(Error::Refused { reply, .. }) if reply.starts_with("NOAUTH") => {
            "; --password-file or REDISCLI_AUTH says a password"
        }
        Some(Error::Refused { reply, .. }) if reply.contains("unauthenticated") => {
            "; --password-file says a password"
        }
        Some(Error::Protocol { what, .. }) if what.starts_with("it speaks TLS") => {
            "; --tls speaks it"
        }
        Some(Error::Protocol { what, .. }) if what.starts_with("it closes") => {
            "; --protocol says what it speaks, --tls speaks TLS"
        }
        Some(Error::Protocol { .. }) => "; --protocol says what it speaks",
        _ => "",
    }
}

impl Load {
    fn measure(&self) -> Result<Vec<Outcome>> {
        let (workloads, target, plan) = (self.workloads()?, self.target()?, self.plan());
        output::check(self.json.as_deref().map(|file| (Form::Json, file)), None)?;
        let _file = Reserved::new(self.json.as_ref())?;
        let is_stopped = stop_flag()?;
        let watches = self.watches(&target);
        let mut outcomes = Vec::new();
        for workload in &workloads {
            if self.fill {
                let fill = Plan {
                    until: Until::Requests(workload.keys.count),
                    connections: 1,
                    threads: 1,
                    pipeline: FILL_PIPELINE,
                    warm_up: Duration::ZERO,
                    pace: Pace::Closed,
                    calls: None,
                    ..plan.clone()
                };
                let filled = watch(&workload.filling(), &target, &fill, &[], &is_stopped)?;
                if let Some(filled) = filled.filter(|filled| filled.totals.errors > 0) {
                    bail!(
                        "filling: {} errors, first: {}",
                        filled.totals.errors,
                        filled.errors.first().map_or("", |error| &error.example)
                    );
                }
            }
            if is_stopped.load(Ordering::Relaxed) {
                break;
            }
            let Some(outcome) = watch(workload, &target, &plan, &watches, &is_stopped)? else {
                break;
            };
            let text = table(&outcome);
            crate::cli::print(text.as_bytes())?;
            outcomes.push(outcome);
            if is_stopped.load(Ordering::Relaxed) {
                break;
            }
        }
        if outcomes.is_empty() {
            bail!("interrupted before anything was measured");
        }
        if let Some(file) = &self.json {
            let document = Document { schema: SCHEMA, outcomes };
            let text = serde_json::to_vec(&document)?;
            std::fs::write(file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
            return Ok(document.outcomes);
        }
        Ok(outcomes)
    }

    fn target(&self) -> Result<Target> {
        let mut target = Target::new(self.address.clone(), self.protocol);
        self.entry.apply(&mut target)?;
        target.database = self.database;
        target.is_cluster = self.cluster;
        target.patience = self.patience;
        Ok(target)
    }

    fn plan(&self) -> Plan {
        let pace = match self.rate {
            None => Pace::Closed,
            Some(rate) if self.poisson => Pace::Poisson(rate),
            Some(rate) => Pace::Even(rate),
        };
        Plan {
            threads: self.threads,
            connections: self.connections,
            pipeline: self.pipeline,
            until: match (self.requests, self.duration) {
                (Some(requests), _) => Until::Requests(requests),
                (None, duration) => Until::Time(duration.unwrap_or(Duration::from_secs(10))),
            },
            warm_up: self.warm_up,
            pace,
            seed: self.seed,
            calls: self.calls,
            silence_max: self.silence,
        }
    }

    fn watches(&self, target: &Target) -> Vec<Watch> {
        let pids = self.pid.iter().copied().map(Watch::Pid);
        let names = self.process.iter().cloned().map(Watch::Name);
        let ports = self.port.iter().copied().map(Watch::Port);
        let asked: Vec<Watch> = pids.chain(names).chain(ports).collect();
        if !asked.is_empty() {
            return asked;
        }
        // If the process may not be watched, the run goes on without it.
        Watch::of(&target.address).filter(|watch| watch.find().is_ok()).into_iter().collect()
    }

    fn workloads(&self) -> Result<Vec<Workload>> {
        let mut workloads = if !self.suite.is_empty() {
            let len = self.size.as_ref().map_or(SUITE_SIZE, Sizes::longest);
            suite(&self.suite, self.keys.unwrap_or(1), len)?
        } else if let Some(letter) = self.ycsb {
            vec![ycsb(letter, self.keys.unwrap_or(RECORDS))?]
        } else {
            let mut workload = self.mixed()?;
            workload.keys.count = self.keys.unwrap_or(KEYS);
            workload.sizes = Sizes::Fixed(SIZE);
            vec![workload]
        };
        for workload in &mut workloads {
            self.change(workload)?;
            workload.check()?;
        }
        Ok(workloads)
    }

    /// Returns the mix, the ratio or the templates that were typed.
    fn mixed(&self) -> Result<Workload> {
        if self.command.is_empty() {
            let mix = match (&self.mix, self.ratio) {
                (Some(mix), _) => mix.clone(),
                (None, ratio) => {
                    let (sets, gets) = ratio.unwrap_or((1, 10));
                    format!("set:{sets},get:{gets}")
                }
            };
            return Ok(Workload::new(&mix, parse_mix(&mix)?));
        }
        if self.command_weight.len() > self.command.len() {
            bail!("there are more weights than commands");
        }
        let weights = self.command_weight.iter().copied().chain(std::iter::repeat(1));
        let commands = self.command.iter().zip(weights).map(|(text, weight)| {
            let words = parse_template(text).map_err(|error| anyhow!("--command: {error}"))?;
            let first = text.split_whitespace().next().unwrap_or_default();
            let name = first.to_ascii_lowercase();
            Ok((Command { name, kind: CommandKind::Words(words) }, weight))
        });
        let name = self.command.join("; ");
        Ok(Workload::new(&name, commands.collect::<Result<_>>()?))
    }

    /// Applies the typed options for keys and values to the workload's own.
    fn change(&self, workload: &mut Workload) -> Result<()> {
        workload.keys.first = self.key_first;
        if let Some(prefix) = &self.key_prefix {
            workload.keys.prefix.clone_from(prefix);
        }
        if let Some(digits) = self.key_digits {
            if digits > 20 {
                bail!("a number has at most 20 digits");
            }
            workload.keys.form = KeyForm::Digits(digits);
        }
        let (theta, median) = (self.zipf_exponent, self.key_median);
        let numbers = PatternNumbers { theta, median, deviation: self.key_deviation };
        if let Some(pattern) = &self.key_pattern {
            (workload.write_pattern, workload.read_pattern) =
                parse::patterns(pattern, numbers).map_err(anyhow::Error::msg)?;
        }
        if let Some(sizes) = &self.size {
            workload.sizes = sizes.clone();
        }
        workload.expiry = self.expiry.or(workload.expiry);
        workload.is_verified = self.verify;
        Ok(())
    }
}

/// Files that will be written. They are opened at the start, so that a file that cannot be written
/// fails now and not after the run. Dropping this removes the files that it made and that are still
/// empty.
pub(super) struct Reserved(Vec<PathBuf>);

impl Reserved {
    pub(super) fn new<'f>(files: impl IntoIterator<Item = &'f PathBuf>) -> Result<Reserved> {
        let mut made = Reserved(Vec::new());
        for file in files {
            if made.open(file).with_context(|| format!("cannot write {}", file.display()))? {
                made.0.push(file.clone());
            }
        }
        Ok(made)
    }

    /// Opens a file. Returns whether this created it.
    fn open(&self, file: &Path) -> std::io::Result<bool> {
        let made = OpenOptions::new().append(true).create_new(true).open(file);
        match made {
            Err(why) if why.kind() == ErrorKind::AlreadyExists => {
                OpenOptions::new().append(true).open(file).map(|_| false)
            }
            made => made.map(|_| true),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        for file in &self.0 {
            if std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() == 0) {
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

/// Returns a flag that the first SIGINT, SIGTERM or SIGHUP sets. A second signal ends the process.
pub(super) fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The order matters: at the first signal the first handler finds the flag clear, and the
        // second handler sets it.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("cannot watch for signals")?;
    }
    Ok(flag)
}

/// Runs a workload, with a progress line on a terminal. Returns `None` if it was stopped during the
/// warm-up.
fn watch(
    workload: &Workload,
    target: &Target,
    plan: &Plan,
    watches: &[Watch],
    is_stopped: &AtomicBool,
) -> Result<Option<Outcome>> {
    let is_shown = std::io::stderr().is_terminal();
    let mut is_early = false;
    let outcome = run(workload, target, plan, watches, &mut |progress| {
        if is_shown {
            show(&workload.name, progress);
        }
        // ORDER: the flag itself is the only data
        if !is_stopped.load(Ordering::Relaxed) {
            return Flow::Continue;
        }
        is_early |= progress.is_warming_up;
        Flow::Stop
    });
    if is_shown {
        eprint!("\r\x1b[K");
    }
    let outcome = outcome?;
    Ok((!is_early).then_some(outcome))
}

fn show(name: &str, progress: &Progress) {
    const WIDTH: usize = 24;
    let full = (progress.done * WIDTH as f64) as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
    let left = progress.left.map_or(String::new(), |left| {
        format!(", {}:{:02} left", left.as_secs() / 60, left.as_secs() % 60)
    });
    let phase = if progress.is_warming_up { "warming up, " } else { "" };
    let name: String = name.chars().take(24).collect();
    eprint!(
        "\r\x1b[K{name} [{bar}] {phase}{:.0}/s, {} errors{left}",
        progress.per_second, progress.errors
    );
}
