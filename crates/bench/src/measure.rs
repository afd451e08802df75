//! One measurement: one kind of work on one system for about a CPU-second.

use std::time::Duration;

use keyway_load::{Flow, Outcome, Plan, Progress, Until, cpu_time};
use keyway_scenario::process::ask;

use crate::clock;
use crate::error::Error;
use crate::interrupt;
use crate::load::{Dataset, SORTED_MEMBERS, Work, plan};
use crate::plan::{Driver, Row};
use crate::systems::{System, installed, words};

/// Ten times what its requests take when they are slow.
const REDIS_BENCHMARK_PATIENCE: Duration = Duration::from_secs(60);

/// How long a measurement takes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Time under load before counting starts.
    pub warm_up: Duration,
    /// The shortest measurement.
    pub at_least: Duration,
    /// It continues until the system has used this much CPU time ...
    pub cpu_at_least: Duration,
    /// ... but no longer than this.
    pub at_most: Duration,
    /// Number of requests of a row that `redis-benchmark` sends, which has no time limit.
    pub redis_benchmark_requests: u64,
}

impl Window {
    /// Returns a window of about a CPU-second.
    pub fn full(at_least: Duration) -> Window {
        Window {
            warm_up: Duration::from_millis(300),
            at_least,
            cpu_at_least: Duration::from_secs(1),
            at_most: at_least * 4,
            redis_benchmark_requests: 150_000,
        }
    }

    /// Returns a window for a first look. The spread will be wide.
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

    /// Returns the expected length of one measurement, for the progress line.
    pub fn expected(&self) -> Duration {
        self.warm_up + self.at_least.max(self.cpu_at_least.mul_f64(1.3))
    }
}

/// The counts of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Number of requests answered.
    pub requests: u64,
    /// CPU time of the system, user and kernel.
    pub cpu: Duration,
    /// CPU time of the load generator.
    pub loader_cpu: Duration,
    /// How often the system gave up the processor voluntarily.
    pub voluntary_switches: u64,
    /// The elapsed time.
    pub elapsed: Duration,
}

impl Sample {
    fn of(outcome: &Outcome) -> Sample {
        let system = outcome.processes.first();
        let cpu = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        Sample {
            requests: outcome.totals.requests,
            cpu: cpu(system.map_or(0.0, |usage| usage.cpu_seconds)),
            loader_cpu: cpu(outcome.generator.cpu_seconds),
            voluntary_switches: system.map_or(0, |usage| usage.voluntary_switches),
            elapsed: cpu(outcome.seconds),
        }
    }

    /// Returns the requests per CPU-second of the system.
    pub fn per_cpu_second(&self) -> f64 {
        self.requests as f64 / self.cpu.as_secs_f64()
    }

    /// Returns the requests per second of elapsed time, which is a figure of the whole machine.
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// Measures `row` on `system`.
///
/// # Errors
/// Returns [`Error::Ended`] if the system is gone, [`Error::Load`] if it stops answering, and
/// [`Error::Answers`] if any answer was an error or a missing key.
pub fn measure(system: &mut System, row: &Row, window: &Window) -> Result<Sample, Error> {
    let sample = match row.driver {
        Driver::Own if row.work == Work::SortedLoad => sorted_load(system, row),
        Driver::Own => loaded(system, row, window, None),
        Driver::Short(each) => loaded(system, row, window, Some(each.into())),
        Driver::RedisBenchmark => redis_benchmark(system, row, window),
    };
    match sample {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        // The state of the process says more than a broken connection.
        Err(error) => system.check_running().and(Err(error)),
        Ok(sample) if sample.cpu.is_zero() => Err(Error::Answers("no CPU time was used".into())),
        Ok(sample) => Ok(sample),
    }
}

/// Runs the row's work until the system has used enough CPU time. If connections end after some
/// calls, connections are counted.
fn loaded(
    system: &System,
    row: &Row,
    window: &Window,
    calls: Option<u64>,
) -> Result<Sample, Error> {
    let cpu = || cpu_time(system.served.pid).unwrap_or_default();
    let mut begun = None;
    let mut look = |progress: &Progress| {
        if progress.is_warming_up {
            return Flow::Continue;
        }
        let (started, before) = *begun.get_or_insert_with(|| (clock::now(), cpu()));
        let is_long_enough = clock::now() - started >= window.at_least;
        let is_enough = is_long_enough && cpu().saturating_sub(before) >= window.cpu_at_least;
        if is_enough { Flow::Stop } else { Flow::Continue }
    };
    let until = Until::Time(window.at_most);
    let plan = Plan { warm_up: window.warm_up, calls, ..plan(row.connections, row.depth, until) };
    let outcome = system.served.load(&row.work.on(row.dataset), &plan, &mut look)?;
    let mut sample = Sample::of(&outcome);
    sample.requests /= calls.unwrap_or(1);
    Ok(sample)
}

/// Loads the whole sorted set once, over one connection so that every member is sent once, and
/// removes it again.
fn sorted_load(system: &System, row: &Row) -> Result<Sample, Error> {
    system.served.once("DEL _indices")?;
    let plan = plan(row.connections, row.depth, Until::Requests(SORTED_MEMBERS.into()));
    let outcome = system.served.load_all(&row.work.on(row.dataset), &plan)?;
    system.served.once("DEL _indices")?;
    Ok(Sample::of(&outcome))
}

/// Runs the same work with `redis-benchmark`, whose random keys have the same form as ours. Its own
/// CPU time is not read.
fn redis_benchmark(system: &System, row: &Row, window: &Window) -> Result<Sample, Error> {
    let (requests, addr) = (window.redis_benchmark_requests, system.served.addr);
    let Dataset { keys, .. } = row.dataset;
    let line = format!(
        "-h {} -p {} -c {} -P {} -r {keys} -n {requests} -t get -q",
        addr.ip(),
        addr.port(),
        row.connections,
        row.depth
    );
    let line = words(&line.split(' ').collect::<Vec<_>>());
    let program = installed("redis-benchmark".as_ref())?;
    let cpu = || cpu_time(system.served.pid).unwrap_or_default();
    let (before, started) = (cpu(), clock::now());
    let answer = ask(&program, &line, REDIS_BENCHMARK_PATIENCE, interrupt::flag())?;
    let (elapsed, cpu) = (clock::now() - started, cpu().saturating_sub(before));
    interrupt::check()?;
    if !answer.is_success || answer.text.contains("Error") {
        return Err(Error::Answers(answer.text.trim().chars().take(200).collect()));
    }
    let (loader_cpu, voluntary_switches) = (Duration::ZERO, 0);
    Ok(Sample { requests, cpu, loader_cpu, voluntary_switches, elapsed })
}
