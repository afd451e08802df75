//! System calls per request, counted by `strace`, apart from the timing: the
//! tracer slows the system down, so that it finds more work per wake-up than
//! it would alone.

use std::time::Duration;

use rustix::process::Signal;

use crate::clock;
use crate::error::Error;
use crate::load::{Dataset, Dialect, Limit, Loader, Requests, Work};
use crate::process::{Child, CommandLine, Scratch, threads};
use crate::session::write_keys;
use crate::systems::System;

/// Calls that make up less than this per request are not listed.
const LISTED_FROM: f64 = 0.005;

/// The system calls of one system at GET, 50 clients, depth 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Syscalls {
    /// Requests answered while calls were counted.
    pub requests: u64,
    /// Calls per request, all together.
    pub per_request: f64,
    /// Calls per request by name, most frequent first.
    pub by_name: Vec<(String, f64)>,
}

/// Counts the calls of `system` for about `length`, with all keys there: what ran
/// before may have removed them, or never have needed them.
///
/// # Errors
/// [`Error::Start`] when `strace` is missing or may not attach; whatever keeps
/// the load from running.
pub fn count_syscalls(
    system: &System,
    length: Duration,
    scratch: &Scratch,
) -> Result<Syscalls, Error> {
    let table = scratch.path("strace.txt");
    let line = CommandLine::new("strace")
        .args(["-c", "-f", "-p", &system.pid().to_string(), "-o"])
        .arg(&table);
    let requests = Requests::random(Work::Get, Dataset::SMALL, Dialect::Redis, 1);
    write_keys(system, Dataset::SMALL)?;
    let mut loader = Loader::connect(system.addr, 50, 1, &requests)?;
    loader.run(Limit::Requests(5_000))?.check()?;
    let mut strace = Child::start(&line, scratch, "strace")?;
    wait_until_attached(system, &mut strace)?;
    let end = clock::now() + length;
    let totals = loader.run(Limit::Until(&mut || Ok(clock::now() >= end)))?;
    strace.end_with(Signal::INT)?;
    totals.check()?;
    let text = std::fs::read_to_string(&table).map_err(Error::io(table.display().to_string()))?;
    let calls = parse_table(&text)?;
    Ok(per_request(&calls, totals.requests))
}

fn wait_until_attached(system: &System, strace: &mut Child) -> Result<(), Error> {
    let failed = |strace: &Child| Error::Start {
        program: "strace".into(),
        why: format!("it does not attach to {}: {}", system.name, strace.output_tail()),
    };
    let attached = clock::wait_until(Duration::from_secs(10), || {
        if strace.ended()?.is_some() {
            return Err(failed(strace));
        }
        Ok(threads(system.pid())?.into_iter().all(|thread| is_traced(system.pid(), thread)))
    })?;
    if attached { Ok(()) } else { Err(failed(strace)) }
}

fn is_traced(pid: u32, thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status"));
    let status = status.unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

/// Reads the summary of `strace -c`: name and number of calls of each line.
fn parse_table(text: &str) -> Result<Vec<(String, u64)>, Error> {
    let mut calls = Vec::new();
    for line in text.lines() {
        // "% time seconds usecs/call calls [errors] syscall"
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, _, count, .., name] = fields[..] {
            let count = count.parse().ok().filter(|_| name != "total");
            calls.extend(count.map(|count| (name.to_owned(), count)));
        }
    }
    if calls.is_empty() { Err(Error::parse("system calls", text)) } else { Ok(calls) }
}

fn per_request(calls: &[(String, u64)], requests: u64) -> Syscalls {
    let each = |count: u64| count as f64 / requests as f64;
    let per_request = each(calls.iter().map(|(_, count)| count).sum());
    let mut by_name: Vec<(String, f64)> =
        calls.iter().map(|(name, count)| (name.clone(), each(*count))).collect();
    by_name.retain(|(_, calls)| *calls >= LISTED_FROM);
    by_name.sort_by(|(_, left), (_, right)| right.total_cmp(left));
    Syscalls { requests, per_request, by_name }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 52.03    0.104060           5     20812        12 writev
 40.10    0.080200           4     20000           read
  7.87    0.015740           1       100           clock_nanosleep
------ ----------- ----------- --------- --------- ----------------
100.00    0.200000           4     40912        12 total
";

    #[test]
    fn the_summary_is_read_with_and_without_errors_column() {
        let calls = parse_table(TABLE).unwrap();
        let expected = [("writev", 20_812), ("read", 20_000), ("clock_nanosleep", 100)];
        assert_eq!(calls, expected.map(|(name, count)| (name.to_owned(), count)));
        assert!(parse_table("strace: attach failed").is_err());
    }

    #[test]
    fn rare_calls_count_but_are_not_listed() {
        let syscalls = per_request(&parse_table(TABLE).unwrap(), 40_000);
        assert!((syscalls.per_request - 40_912.0 / 40_000.0).abs() < 1e-9);
        assert_eq!(syscalls.by_name.len(), 2);
        assert_eq!(syscalls.by_name[0].0, "writev");
    }
}
