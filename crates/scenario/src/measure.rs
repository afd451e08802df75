//! One measurement: a system under one work, once.

use crate::convert::{measured, plain, process};
use crate::error::Error;
use crate::machine::load_average;
use crate::model::Share;
use crate::start::Started;
use keyway_load::outcome::ProcessUsage;
use keyway_load::{Ended, Error as LoadError, Flow, Outcome, Plan, Target, Until, Watch, Workload};
use keyway_net::Address;
use keyway_report::{Connects, Histogram, Measured, Process, Role, Round, Second};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What was measured when the run was interrupted counts if it is this part of what was asked for.
const PART_LEAST: f64 = 0.25;
/// How long a system may take until it answers without errors.
const READY_PATIENCE: Duration = Duration::from_secs(10);
/// How often whoever looks on is told.
const LOOK: Duration = Duration::from_millis(100);
/// Requests in flight on the connection that fills.
const FILL_PIPELINE: usize = 32;

/// Processes that are watched, with what they are called and whose their time is.
pub type Roles = BTreeMap<u32, (String, Role)>;

/// What a measurement needs beside the system.
pub struct Meter<'a> {
    pub is_stopped: &'a AtomicBool,
    /// Told of requests a second, some times a second.
    pub look: &'a mut dyn FnMut(f64),
}

/// One part of the work, for one of the system's addresses.
struct Part {
    workload: Workload,
    plan: Plan,
    target: Target,
    watches: Vec<Watch>,
}

/// Puts a system under load; none when it was stopped too early to tell anything.
pub fn measure(
    started: &Started,
    (workload, plan): (&Workload, &Plan),
    backends: &BTreeMap<u32, String>,
    meter: &mut Meter,
) -> Option<Round> {
    let mut roles = started.pids.clone();
    for (pid, name) in backends {
        roles.entry(*pid).or_insert_with(|| (name.clone(), Role::Backend));
    }
    let parts = parts(started, workload, plan, &roles);
    let outcomes = match started.share {
        Share::Keys => together(&parts, meter),
        Share::Turns => in_turns(&parts, meter),
    };
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(_) if meter.is_stopped.load(Ordering::Relaxed) => return None,
        Err(why) => return Some(Round::Failed(plain(&why.to_string()))),
    };
    round(outcomes, plan, started.share, &roles)
}

fn round(outcomes: Vec<Outcome>, plan: &Plan, share: Share, roles: &Roles) -> Option<Round> {
    if outcomes.iter().any(|one| one.ended == Ended::Silent) {
        return Some(Round::Failed("it fell silent".to_owned()));
    }
    let is_interrupted = outcomes.iter().any(|one| one.ended == Ended::Interrupted);
    let processes = processes(&outcomes, share, roles);
    let mut all = merged(outcomes.into_iter().map(measured).collect(), share);
    all.processes = processes;
    all.load_average = load_average();
    let asked = match plan.until {
        Until::Time(length) => length.as_secs_f64(),
        Until::Requests(_) => 0.0,
    };
    if is_interrupted && all.seconds < asked * PART_LEAST || all.seconds <= 0.0 {
        return None;
    }
    if all.requests == 0 {
        return Some(Round::Failed("it answered nothing".to_owned()));
    }
    Some(Round::Measured(Box::new(all)))
}

fn target(started: &Started, address: &Address) -> Target {
    let mut target = Target::new(address.clone(), started.protocol);
    target.is_cluster = started.is_cluster;
    target
}

/// The keys of one of `count` that share them.
fn keys_of(workload: &Workload, number: u64, count: u64) -> Workload {
    let mut own = workload.clone();
    let keys = workload.keys.count;
    let bound = |number: u64| (u128::from(keys) * u128::from(number) / u128::from(count)) as u64;
    own.keys.first = workload.keys.first + bound(number);
    own.keys.count = (bound(number + 1) - bound(number)).max(1);
    own
}

fn parts(started: &Started, workload: &Workload, plan: &Plan, roles: &Roles) -> Vec<Part> {
    let count = started.addresses.len();
    let all = || roles.keys().copied().map(Watch::Pid).collect::<Vec<_>>();
    let part = |(number, address): (usize, &Address)| {
        let mut own = plan.clone();
        own.seed = plan.seed + number as u64;
        let (workload, watches) = match started.share {
            Share::Keys => {
                own.connections = (plan.connections / count).max(1);
                // One of them looks at all processes: they run at the same time.
                let watches = if number == 0 { all() } else { Vec::new() };
                (keys_of(workload, number as u64, count as u64), watches)
            }
            Share::Turns => {
                let part = |length: Duration| length / count as u32;
                own.warm_up = part(plan.warm_up);
                own.until = match plan.until {
                    Until::Time(length) => Until::Time(part(length)),
                    Until::Requests(all) => Until::Requests((all / count as u64).max(1)),
                };
                (workload.clone(), all())
            }
        };
        Part { workload, plan: own, target: target(started, address), watches }
    };
    started.addresses.iter().enumerate().map(part).collect()
}

fn in_turns(parts: &[Part], meter: &mut Meter) -> Result<Vec<Outcome>, LoadError> {
    let mut outcomes = Vec::new();
    for part in parts {
        outcomes.extend(together(std::slice::from_ref(part), meter)?);
        if meter.is_stopped.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(outcomes)
}

fn together(parts: &[Part], meter: &mut Meter) -> Result<Vec<Outcome>, LoadError> {
    // ORDER: figures to look at, and a flag that tells nothing but itself.
    let rates: Vec<AtomicU64> = parts.iter().map(|_| AtomicU64::new(0)).collect();
    let is_stopped = meter.is_stopped;
    std::thread::scope(|scope| {
        let run = |(part, rate): (&Part, &AtomicU64)| {
            let mut look = |progress: &keyway_load::Progress| {
                rate.store(progress.per_second as u64, Ordering::Relaxed);
                if is_stopped.load(Ordering::Relaxed) { Flow::Stop } else { Flow::Continue }
            };
            keyway_load::run(&part.workload, &part.target, &part.plan, &part.watches, &mut look)
        };
        let threads: Vec<_> =
            parts.iter().zip(&rates).map(|both| scope.spawn(move || run(both))).collect();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let rate: u64 = rates.iter().map(|rate| rate.load(Ordering::Relaxed)).sum();
            (meter.look)(rate as f64);
            std::thread::sleep(LOOK);
        }
        let panicked = |_| LoadError::Asked("the load generator has failed".to_owned());
        threads.into_iter().map(|thread| thread.join().map_err(panicked)?).collect()
    })
}

/// What processes used: those of one name and role together.
fn processes(outcomes: &[Outcome], share: Share, roles: &Roles) -> Vec<Process> {
    let mut by_pid = BTreeMap::<u32, Process>::new();
    let mut own = Process::default();
    for (number, outcome) in outcomes.iter().enumerate() {
        for usage in &outcome.processes {
            let (name, role) = roles.get(&usage.pid).cloned().unwrap_or_default();
            let known = ProcessUsage { name, ..usage.clone() };
            match by_pid.get_mut(&usage.pid) {
                Some(sum) => add(sum, &process(&known, role), u64::max),
                None => _ = by_pid.insert(usage.pid, process(&known, role)),
            }
        }
        // Each that runs beside others has seen the whole of this process.
        let generator = process(&outcome.generator, Role::Load);
        match (number, share) {
            (0, _) => own = generator,
            (_, Share::Turns) => add(&mut own, &generator, u64::max),
            (_, Share::Keys) => {}
        }
    }
    let mut groups = BTreeMap::<(Role, String), Process>::new();
    for one in by_pid.into_values() {
        match groups.get_mut(&(one.role, one.name.clone())) {
            Some(sum) => add(sum, &one, |a, b| a + b),
            None => _ = groups.insert((one.role, one.name.clone()), one),
        }
    }
    own.name = "load".to_owned();
    groups.into_values().chain([own]).collect()
}

fn add(sum: &mut Process, other: &Process, resident: fn(u64, u64) -> u64) {
    sum.user_seconds += other.user_seconds;
    sum.system_seconds += other.system_seconds;
    sum.cpu_seconds = sum.cpu_seconds.zip(other.cpu_seconds).map(|(one, other)| one + other);
    sum.resident_bytes = resident(sum.resident_bytes, other.resident_bytes);
    sum.context_switches += other.context_switches;
}

/// What parts of the work found, as one.
fn merged(mut parts: Vec<Measured>, share: Share) -> Measured {
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let mut all = Measured::default();
    for part in &parts {
        let at = if share == Share::Turns { all.seconds } else { 0.0 };
        add_series(&mut all.series, &part.series, at);
        all.seconds = match share {
            Share::Turns => all.seconds + part.seconds,
            Share::Keys => all.seconds.max(part.seconds),
        };
        all.requests += part.requests;
        all.bytes_sent += part.bytes_sent;
        all.bytes_received += part.bytes_received;
        for (kind, count) in &part.errors {
            *all.errors.entry(kind.clone()).or_default() += count;
        }
        for (kind, count) in &part.replies {
            *all.replies.entry(kind.clone()).or_default() += count;
        }
    }
    all.latency = Histogram::merged(parts.iter().map(|part| &part.latency));
    let connects: Vec<&Connects> = parts.iter().filter_map(|part| part.connects.as_ref()).collect();
    all.connects = (!connects.is_empty()).then(|| Connects {
        count: connects.iter().map(|one| one.count).sum(),
        lifetime: Histogram::merged(connects.iter().map(|one| &one.lifetime)),
        connect: Histogram::merged(connects.iter().map(|one| &one.connect)),
    });
    all
}

fn add_series(all: &mut Vec<Second>, part: &[Second], at: f64) {
    for (number, second) in part.iter().enumerate() {
        match all.get_mut(number).filter(|_| at == 0.0) {
            Some(sum) => {
                sum.at = sum.at.max(second.at);
                sum.requests += second.requests;
                sum.errors += second.errors;
                sum.latency = Histogram::merged([&sum.latency, &second.latency]);
            }
            None => all.push(Second { at: at + second.at, ..second.clone() }),
        }
    }
}

/// A load of so many requests, which is not measured.
fn quietly(plan: &Plan, requests: u64, pipeline: usize) -> Plan {
    Plan {
        until: Until::Requests(requests),
        threads: 1,
        connections: 1,
        pipeline,
        warm_up: Duration::ZERO,
        calls: None,
        ..plan.clone()
    }
}

/// Waits until the system answers at all its addresses.
///
/// # Errors
/// When it does not in time.
pub fn wait_until_ready(
    started: &Started,
    (workload, plan): (&Workload, &Plan),
    meter: &mut Meter,
) -> Result<(), Error> {
    let mut probe = workload.filling();
    probe.keys.count = 1;
    let until = Instant::now() + READY_PATIENCE;
    for address in &started.addresses {
        loop {
            let why = match once(started, address, &probe, &quietly(plan, 8, 1), meter) {
                Ok(outcome) if outcome.totals.errors == 0 => break,
                Ok(outcome) => first_error(&outcome),
                Err(why) => why.to_string(),
            };
            if Instant::now() > until || meter.is_stopped.load(Ordering::Relaxed) {
                return Err(Error::Asked(format!("it does not serve: {why}")));
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// Writes all keys through the system.
///
/// # Errors
/// When not all are written.
pub fn fill(
    started: &Started,
    (workload, plan): (&Workload, &Plan),
    meter: &mut Meter,
) -> Result<(), Error> {
    let count = started.addresses.len() as u64;
    for (number, address) in started.addresses.iter().enumerate() {
        let own = match started.share {
            Share::Keys => keys_of(workload, number as u64, count),
            Share::Turns if number == 0 => workload.clone(),
            // The others lead to the same servers.
            Share::Turns => break,
        };
        let plan = quietly(plan, own.keys.count, FILL_PIPELINE);
        let outcome = once(started, address, &own.filling(), &plan, meter);
        let outcome = outcome.map_err(|why| Error::Asked(format!("filling: {why}")))?;
        if outcome.totals.errors > 0 {
            let (errors, first) = (outcome.totals.errors, first_error(&outcome));
            return Err(Error::Asked(format!("filling: {errors} errors, first: {first}")));
        }
    }
    Ok(())
}

fn once(
    started: &Started,
    address: &Address,
    workload: &Workload,
    plan: &Plan,
    meter: &Meter,
) -> Result<Outcome, LoadError> {
    let is_stopped = meter.is_stopped;
    keyway_load::run(workload, &target(started, address), plan, &[], &mut |_| {
        if is_stopped.load(Ordering::Relaxed) { Flow::Stop } else { Flow::Continue }
    })
}

fn first_error(outcome: &Outcome) -> String {
    outcome.errors.first().map(|error| plain(&error.example)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_load::parse_mix;

    #[test]
    fn keys_are_shared_out_whole() {
        let mut workload = Workload::new("get", parse_mix("get").unwrap());
        workload.keys.count = 10;
        let parts: Vec<(u64, u64)> = (0..3)
            .map(|number| keys_of(&workload, number, 3).keys)
            .map(|keys| (keys.first, keys.count))
            .collect();
        assert_eq!(parts, [(0, 3), (3, 3), (6, 4)]);
    }

    fn part(seconds: f64, requests: u64, bucket: u64) -> Measured {
        let latency = Histogram {
            buckets_ns: vec![(bucket, requests)],
            sum_ns: (bucket * requests) as f64,
            min_ns: bucket,
            max_ns: bucket,
        };
        let second = Second { at: seconds, requests, errors: 0, latency: latency.clone() };
        Measured { seconds, requests, latency, series: vec![second], ..Measured::default() }
    }

    #[test]
    fn parts_beside_each_other_and_behind_each_other_become_one() {
        let parts = || vec![part(1.0, 10, 100), part(2.0, 30, 200)];
        let beside = merged(parts(), Share::Keys);
        assert_eq!((beside.seconds, beside.requests, beside.series.len()), (2.0, 40, 1));
        assert_eq!(beside.latency.mean_ns(), Some(175.0));
        let behind = merged(parts(), Share::Turns);
        assert_eq!((behind.seconds, behind.requests), (3.0, 40));
        let ends: Vec<f64> = behind.series.iter().map(|second| second.at).collect();
        assert_eq!(ends, [1.0, 3.0]);
    }
}
