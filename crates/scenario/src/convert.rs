//! What `keyway bench load` wrote, as a result that reports are made of.

use crate::builtin::name_peer;
use keyway_load::outcome::{Document, Outcome, ProcessUsage, SCHEMA, Second};
use keyway_load::{Ended, Latency};
use keyway_report::{
    Cell, Connects, FORMAT, Histogram, Item, Measured, Process, ReadError, Role, Round, Run,
    Scalar, System, VERSION, Verified, check, read_bytes, read_slice,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads a result: of a whole benchmark, or of `keyway bench load`.
///
/// # Errors
/// When the file is neither; the text says why.
pub fn read(path: &Path) -> Result<Run, ReadError> {
    let (bytes, shown) = (read_bytes(path)?, path.display().to_string());
    match serde_json::from_slice::<Head>(&bytes) {
        Ok(Head { schema: Some(1..=SCHEMA) }) => {
            let foreign = |why: String| ReadError::Foreign { path: shown.clone(), why };
            let document: Document =
                serde_json::from_slice(&bytes).map_err(|error| foreign(error.to_string()))?;
            if document.outcomes.is_empty() {
                return Err(foreign("it has no outcome".to_owned()));
            }
            let run = run_of(document);
            check(&run).map_err(|(at, why)| ReadError::Value { path: shown, at, why })?;
            Ok(run)
        }
        Ok(Head { schema: Some(found) }) => Err(ReadError::Version { path: shown, found }),
        _ => {
            let mut run = read_slice(&bytes, &shown)?;
            name_peer(&mut run);
            Ok(run)
        }
    }
}

/// What tells a load generator's file from others.
#[derive(Deserialize)]
struct Head {
    schema: Option<u32>,
}

/// One system; the measurements of one workload are the rounds of its cell.
fn run_of(document: Document) -> Run {
    let first = document.outcomes.first();
    let name = first.map_or_else(|| "server".to_owned(), name);
    let started_by = first.map(|one| format!("{}, {}", one.target.address, one.target.protocol));
    let mut run = Run {
        format: FORMAT.to_owned(),
        version: VERSION,
        scenario: "load".to_owned(),
        title: format!("Load on {name}"),
        started: first.map(|one| time(one.started_unix_ms)).unwrap_or_default(),
        systems: vec![System {
            name: name.clone(),
            started_by: plain(&started_by.unwrap_or_default()),
            ..System::default()
        }],
        interrupted: document.outcomes.iter().any(|one| one.ended == Ended::Interrupted),
        ..Run::default()
    };
    for outcome in document.outcomes {
        let item = item(&outcome);
        let round = round(outcome);
        match run.cells.iter_mut().find(|cell| cell.item == item.id) {
            Some(cell) => cell.rounds.push(round),
            None => {
                let (system, item_id) = (name.clone(), item.id.clone());
                run.cells.push(Cell { system, item: item_id, rounds: vec![round] });
                run.items.push(item);
            }
        }
    }
    run
}

/// The program that was measured, if it is known; where it listens, if not.
fn name(outcome: &Outcome) -> String {
    let program = outcome.processes.first().map(|process| plain(&process.name));
    program.filter(|name| !name.is_empty()).unwrap_or_else(|| plain(&outcome.target.address))
}

fn item(outcome: &Outcome) -> Item {
    let plan = &outcome.plan;
    let number = |name: &str, value: f64| (name.to_owned(), Scalar::Number(value));
    let mut parameters = BTreeMap::from([
        number("threads", plan.threads as f64),
        number("connections", (plan.threads * plan.connections_per_thread) as f64),
        number("pipeline", plan.pipeline as f64),
    ]);
    parameters.extend(plan.rate.map(|rate| number("rate", rate)));
    let words = parameters.iter().map(|(name, value)| format!("{name} {value}"));
    let words = words.collect::<Vec<_>>().join(", ");
    let workload = plain(&outcome.workload);
    Item { id: format!("{workload}, {words}"), title: workload, group: String::new(), parameters }
}

fn round(outcome: Outcome) -> Round {
    if outcome.seconds <= 0.0 {
        return Round::Failed("it ended before anything was measured".to_owned());
    }
    let tested: Vec<Process> =
        outcome.processes.iter().map(|one| process(one, Role::Tested)).collect();
    let load = process(&outcome.generator, Role::Load);
    let mut measured = measured(outcome);
    measured.processes = tested.into_iter().chain([load]).collect();
    Round::Measured(Box::new(measured))
}

/// What a load has found, but for its processes.
pub(crate) fn measured(outcome: Outcome) -> Measured {
    let (totals, connections) = (&outcome.totals, &outcome.connections);
    let mut errors = BTreeMap::new();
    for one in &outcome.errors {
        let name = if one.shape.is_empty() { &one.kind } else { &one.shape };
        *errors.entry(plain(name)).or_insert(0) += one.count;
    }
    let more = [
        ("connections lost", connections.lost),
        ("connections refused", connections.failed),
        ("requests never answered", totals.unanswered),
        ("requests never sent", totals.unsent),
    ];
    errors.extend(more.into_iter().filter(|one| one.1 > 0).map(|(kind, n)| (kind.to_owned(), n)));
    let replies = replies(&outcome);
    Measured {
        seconds: outcome.seconds,
        requests: totals.good(),
        bytes_sent: totals.bytes_sent,
        bytes_received: totals.bytes_received,
        errors,
        replies,
        latency: histogram(&outcome.latency),
        connects: outcome.plan.calls_per_connection.map(|_| Connects {
            count: connections.lifetime.count,
            connect: histogram(&connections.connect),
            lifetime: histogram(&connections.lifetime),
        }),
        processes: Vec::new(),
        load_average: None,
        series: outcome.series.iter().map(|one| second(one, outcome.seconds)).collect(),
        verified: outcome.verification.map(|found| Verified {
            checked: found.checked,
            wrong: found.wrong,
            stale: found.stale,
            missing: found.missing,
        }),
    }
}

/// Replies by kind: values that were there and not there, and what writes of one key were told.
fn replies(outcome: &Outcome) -> BTreeMap<String, u64> {
    let is_stored = |name: &str| matches!(name, "set" | "setex");
    let writes = outcome.classes.iter().filter(|class| is_stored(&class.name));
    let stored = writes.map(|class| class.requests.saturating_sub(class.errors)).sum();
    let all =
        [("hits", outcome.totals.hits), ("misses", outcome.totals.misses), ("stored", stored)];
    let seen = all.into_iter().filter(|(_, count)| *count > 0);
    seen.map(|(kind, count)| (kind.to_owned(), count)).collect()
}

fn histogram(latency: &Latency) -> Histogram {
    let ns = |us: f64| (us * 1000.0).round();
    Histogram {
        buckets_ns: latency.histogram.clone(),
        sum_ns: ns(latency.mean_us) * latency.count as f64,
        min_ns: ns(latency.min_us) as u64,
        max_ns: ns(latency.max_us) as u64,
    }
}

/// The last one is shorter: it ends when the measurement does.
fn second(second: &Second, end: f64) -> keyway_report::Second {
    let start = second.second as f64;
    let at = if end > start { end.min(start + 1.0) } else { start + 1.0 };
    let uppers = second.heat.iter().map(|(upper, count)| *upper as f64 * *count as f64);
    keyway_report::Second {
        at,
        requests: second.requests.saturating_sub(second.errors),
        errors: second.errors,
        latency: Histogram {
            buckets_ns: second.heat.clone(),
            sum_ns: uppers.sum(),
            min_ns: 0,
            max_ns: (second.max_us * 1000.0).round() as u64,
        },
    }
}

pub(crate) fn process(usage: &ProcessUsage, role: Role) -> Process {
    Process {
        name: plain(&usage.name),
        role,
        user_seconds: usage.user_seconds,
        system_seconds: usage.system_seconds,
        cpu_seconds: Some(usage.cpu_seconds),
        resident_bytes: usage.resident_max_bytes.max(usage.resident_bytes),
        context_switches: usage.voluntary_switches.saturating_add(usage.involuntary_switches),
    }
}

/// Servers choose the words of their errors, and processes their names.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).take(200).collect()
}

/// Milliseconds since 1970 as RFC 3339 has it, in UTC.
pub fn time(unix_ms: u64) -> String {
    let (days, second) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    // Years from March on: the day that leap years have comes last (Howard Hinnant's way).
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * march + 2) / 5 + 1, (march + 2) % 12 + 1);
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, wanted) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_000, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_795_371_234_567, "2026-11-22T18:13:54Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(time(ms), wanted);
        }
    }
}
