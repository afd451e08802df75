//! Counts system calls for a request with `strace`, separate from the timing. The tracer slows the
//! system down, so that it finds more work at each wake-up than it would without it.

use std::time::Duration;

use keyway_load::Until;
use keyway_scenario::process::{Process, Scratch};
use rustix::process::Signal;

use crate::clock;
use crate::error::Error;
use crate::load::{Dataset, Work, plan};
use crate::systems::{System, run, words};

/// System calls with fewer calls for a request than this are not listed.
const LISTED_FROM: f64 = 0.005;

/// The system calls of one system at GET, 50 clients, depth 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Syscalls {
    /// Number of requests answered while calls were counted.
    pub requests: u64,
    /// Number of calls for a request, all together.
    pub per_request: f64,
    /// Number of calls for a request by name, most frequent first.
    pub by_name: Vec<(String, f64)>,
}

/// Counts the calls of `system` for about `length`, with all keys present: earlier work may have
/// removed them, or may not have needed them. It counts twice, for a shorter and for a longer time.
/// The difference leaves out start and end.
///
/// # Errors
/// Returns [`Error::Program`] if `strace` is missing or may not attach, and the errors of the load.
pub fn count_syscalls(
    system: &System,
    length: Duration,
    scratch: &Scratch,
) -> Result<Syscalls, Error> {
    system.served.fill(Dataset::SMALL)?;
    let (short, requests) = calls(system, length / 3, scratch)?;
    let (long, all_requests) = calls(system, length, scratch)?;
    let before = |name: &str| short.iter().find(|(known, _)| known == name).map_or(0, |one| one.1);
    let left = long.into_iter().map(|(name, count)| {
        let before = before(&name);
        (name, count.saturating_sub(before))
    });
    let left: Vec<(String, u64)> = left.collect();
    match all_requests.saturating_sub(requests) {
        0 => {
            let what =
                "the longer count has no more requests than the shorter: is the machine busy?";
            Err(Error::Load(what.into()))
        }
        requests => Ok(per_request(&left, requests)),
    }
}

/// Returns all calls of a system during a load, by name, and the number of requests.
fn calls(
    system: &System,
    length: Duration,
    scratch: &Scratch,
) -> Result<(Vec<(String, u64)>, u64), Error> {
    let (table, pid) = (scratch.directory().join("strace.txt"), system.served.pid.to_string());
    let line = ["strace", "-c", "-f", "-p", &pid, "-o", &table.display().to_string()];
    let mut strace = run(scratch, "strace", &words(&line))?;
    wait_until_attached(system, &mut strace)?;
    let plan = plan(50, 1, Until::Time(length));
    let outcome = system.served.load_all(&Work::Get.on(Dataset::SMALL), &plan);
    strace.end_with(Signal::INT)?;
    let requests = outcome?.totals.requests;
    let text = std::fs::read_to_string(&table).map_err(Error::io(table.display().to_string()))?;
    Ok((parse_table(&text)?, requests))
}

fn wait_until_attached(system: &System, strace: &mut Process) -> Result<(), Error> {
    let attached = clock::wait_until(Duration::from_secs(10), || {
        let directory = format!("/proc/{}/task", system.served.pid);
        let threads = std::fs::read_dir(&directory).map_err(Error::io(&directory))?;
        let is_traced = |thread: std::fs::DirEntry| {
            let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
            tracer.is_some_and(|tracer| tracer.trim() != "0")
        };
        Ok(strace.ended().is_some() || threads.flatten().all(is_traced))
    })?;
    match strace.ended() {
        None if attached => Ok(()),
        _ => Err(keyway_scenario::Error::System {
            what: format!("strace does not attach to {}", system.name),
            why: strace.last_words(),
        }
        .into()),
    }
}

/// Parses the summary of `strace -c`: name and number of calls of each line.
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
