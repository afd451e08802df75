//! One measurement: one kind of work on one system for about a CPU-second.

use std::time::Duration;

use crate::clock;
use crate::error::Error;
use crate::load::{Limit, Loader, Requests, Totals, Work};
use crate::plan::{Driver, Row};
use crate::process::{CommandLine, Scratch, cpu_time, run_to_end};
use crate::systems::System;

/// How often the CPU time of the system is looked at while it works.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Ten times what its requests take where they take long.
const REDIS_BENCHMARK_PATIENCE: Duration = Duration::from_secs(60);

/// How long a measurement takes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Load before anything is counted.
    pub warm_up: Duration,
    /// The shortest measurement.
    pub at_least: Duration,
    /// It goes on until the system has used this much CPU time ...
    pub cpu_at_least: Duration,
    /// ... but no longer than this.
    pub at_most: Duration,
    /// Requests of a row sent by `redis-benchmark`, which has no clock.
    pub redis_benchmark_requests: u64,
}

impl Window {
    /// About a CPU-second each.
    pub fn full(at_least: Duration) -> Window {
        Window {
            warm_up: Duration::from_millis(300),
            at_least,
            cpu_at_least: Duration::from_secs(1),
            at_most: at_least * 4,
            redis_benchmark_requests: 150_000,
        }
    }

    /// For a first look: the spread will be wide.
    pub fn quick() -> Window {
        let at_least = Duration::from_millis(300);
        Window {
            warm_up: Duration::from_millis(100),
            at_least,
            cpu_at_least: Duration::ZERO,
            at_most: at_least,
            redis_benchmark_requests: 20_000,
        }
    }

    /// What to expect of one measurement, for the progress line.
    pub fn expected(&self) -> Duration {
        self.warm_up + self.at_least.max(self.cpu_at_least.mul_f64(1.3))
    }
}

/// What one measurement counted.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Requests answered.
    pub requests: u64,
    /// CPU time of the system, user and kernel.
    pub cpu: Duration,
    /// CPU time of whoever sent the load.
    pub loader_cpu: Duration,
    /// Time passed.
    pub elapsed: Duration,
}

impl Sample {
    /// Requests per CPU-second of the system.
    pub fn per_cpu_second(&self) -> f64 {
        self.requests as f64 / self.cpu.as_secs_f64()
    }

    /// Requests per second of time passed: a figure of the whole machine.
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// Measures `row` on `system`.
///
/// # Errors
/// [`Error::Ended`] when the system is gone, [`Error::Load`] when it stops
/// answering, [`Error::Answers`] when any answer was an error or a missing key.
pub fn measure(
    system: &mut System,
    row: &Row,
    requests: &Requests,
    window: &Window,
    scratch: &Scratch,
) -> Result<Sample, Error> {
    let sample = match row.driver {
        Driver::Own if row.work == Work::SortedLoad => sorted_load(system, row, requests),
        Driver::Own => own_load(system, row, requests, window),
        Driver::Short(each) => short_connections(system, row, (requests, each), window),
        Driver::RedisBenchmark => redis_benchmark(system, row, window, scratch),
    };
    match sample {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        // What happened to the process says more than a broken connection.
        Err(error) => system.check_running().and(Err(error)),
        Ok(sample) if sample.cpu.is_zero() => Err(Error::Answers("no CPU time was used".into())),
        Ok(sample) => Ok(sample),
    }
}

fn own_load(
    system: &System,
    row: &Row,
    requests: &Requests,
    window: &Window,
) -> Result<Sample, Error> {
    let pid = system.pid();
    let mut loader = Loader::connect(system.addr, row.connections, row.depth, requests)?;
    let warm_up_end = clock::now() + window.warm_up;
    loader.run(Limit::Until(&mut || Ok(clock::now() >= warm_up_end)))?.check()?;

    let (cpu_before, loader_before) = (cpu_time(pid)?, cpu_time(std::process::id())?);
    let started = clock::now();
    let mut next_look = started + window.at_least;
    let mut stop = || {
        let now = clock::now();
        if now < next_look {
            return Ok(false);
        }
        next_look = now + LOOK_EVERY;
        let enough = cpu_time(pid)? - cpu_before >= window.cpu_at_least;
        Ok(enough || now - started >= window.at_most)
    };
    let totals = loader.run(Limit::Until(&mut stop))?;
    let elapsed = clock::now() - started;
    let cpu = cpu_time(pid)? - cpu_before;
    let loader_cpu = cpu_time(std::process::id())? - loader_before;
    totals.check()?;
    Ok(Sample { requests: totals.requests, cpu, loader_cpu, elapsed })
}

/// Connections that end after `each` requests, as many at a time as the row
/// has: what counts is connections.
fn short_connections(
    system: &System,
    row: &Row,
    (requests, each): (&Requests, u32),
    window: &Window,
) -> Result<Sample, Error> {
    let pid = system.pid();
    let once = || -> Result<Totals, Error> {
        let mut loader = Loader::connect(system.addr, row.connections, row.depth, requests)?;
        let totals = loader.run(Limit::Requests(row.connections as u64 * u64::from(each)))?;
        totals.check().map(|()| totals)
    };
    once()?;
    let (cpu_before, loader_before) = (cpu_time(pid)?, cpu_time(std::process::id())?);
    let started = clock::now();
    let mut connections = 0;
    loop {
        once()?;
        connections += row.connections as u64;
        let elapsed = clock::now() - started;
        let cpu = cpu_time(pid)? - cpu_before;
        let is_enough = elapsed >= window.at_least && cpu >= window.cpu_at_least;
        if is_enough || elapsed >= window.at_most {
            let loader_cpu = cpu_time(std::process::id())? - loader_before;
            return Ok(Sample { requests: connections, cpu, loader_cpu, elapsed });
        }
    }
}

/// Loads the whole sorted set once, over one connection so that every member
/// comes once, and takes it away again.
fn sorted_load(system: &System, row: &Row, requests: &Requests) -> Result<Sample, Error> {
    let pid = system.pid();
    let delete = || -> Result<Totals, Error> {
        let delete = Requests::end_of_sorted_load();
        let totals = Loader::connect(system.addr, 1, 1, &delete)?.run(Limit::Requests(1))?;
        totals.check().map(|()| totals)
    };
    delete()?;
    let mut loader = Loader::connect(system.addr, row.connections, row.depth, requests)?;
    let (cpu_before, loader_before) = (cpu_time(pid)?, cpu_time(std::process::id())?);
    let started = clock::now();
    let totals = loader.run(Limit::Requests(requests.count() as u64))?;
    let elapsed = clock::now() - started;
    let cpu = cpu_time(pid)? - cpu_before;
    let loader_cpu = cpu_time(std::process::id())? - loader_before;
    totals.check()?;
    delete()?;
    Ok(Sample { requests: totals.requests, cpu, loader_cpu, elapsed })
}

/// The same work sent by `redis-benchmark`, whose random keys are spelt like
/// ours. Its own CPU time is not read.
fn redis_benchmark(
    system: &System,
    row: &Row,
    window: &Window,
    scratch: &Scratch,
) -> Result<Sample, Error> {
    let requests = window.redis_benchmark_requests;
    let line = CommandLine::new("redis-benchmark")
        .args(["-h", &system.addr.ip().to_string(), "-p", &system.addr.port().to_string()])
        .args(["-c", &row.connections.to_string(), "-P", &row.depth.to_string()])
        .args(["-r", &row.dataset.keys.to_string(), "-n", &requests.to_string()])
        .args(["-t", "get", "-q"]);
    let cpu_before = cpu_time(system.pid())?;
    let started = clock::now();
    let output = run_to_end(&line, REDIS_BENCHMARK_PATIENCE, scratch, "redis-benchmark")?;
    let elapsed = clock::now() - started;
    let cpu = cpu_time(system.pid())? - cpu_before;
    if output.contains("Error") {
        return Err(Error::Answers(output.trim().chars().take(200).collect()));
    }
    Ok(Sample { requests, cpu, loader_cpu: Duration::ZERO, elapsed })
}
