//! Threads, what they report, and the outcome made of it.

use crate::engine::{Account, Report, work};
use crate::error::Error;
use crate::outcome::{
    Class, Connections, Ended, Latency, Outcome, PlanFacts, ProcessUsage, SCHEMA, TargetFacts,
    Totals,
};
use crate::plan::{Plan, Until};
use crate::program::compile;
use crate::record::Record;
use crate::series::Series;
use crate::setup::{Gauge, Setup, nanos};
use crate::talk;
use crate::target::Target;
use crate::usage::{Meter, Watch};
use crate::workload::Workload;
use keyway_net::Address;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

/// How often whoever looks on is told.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// Reports of a thread that may wait to be read: some seconds.
const REPORTS_MAX: usize = 64;

/// Bytes that all requests in flight may take; more is refused before anything is sent.
const IN_FLIGHT_BYTES_MAX: u64 = 8 << 30;

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// True if it is warming up.
    pub is_warming_up: bool,
    /// From 0 to 1, warm-up included.
    pub done: f64,
    /// How much longer it takes, as far as can be told.
    pub left: Option<Duration>,
    /// Requests answered in the last second or less, by second.
    pub per_second: f64,
    /// Requests answered, those of the warm-up too.
    pub requests: u64,
    /// Error replies among them.
    pub errors: u64,
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Continue,
    /// It ends now, with what was measured.
    Stop,
}

/// Puts `target` under the load of `workload` as `plan` says, and watches the processes that
/// `watches` mean. `look` is called some times a second, and may end it.
///
/// # Errors
/// When it cannot begin. What goes wrong later is in the outcome.
pub fn run(
    workload: &Workload,
    target: &Target,
    plan: &Plan,
    watches: &[Watch],
    look: &mut dyn FnMut(&Progress) -> Flow,
) -> Result<Outcome, Error> {
    let setup = Arc::new(prepare(workload, target, plan, look)?);
    let mut pids = BTreeSet::new();
    for watch in watches {
        pids.extend(watch.find()?);
    }
    let (reports, inbox) = sync_channel(REPORTS_MAX * plan.threads);
    let mut starts = Vec::new();
    let threads: Vec<_> = (0..plan.threads)
        .map(|number| spawn(&setup, number, &reports, &mut starts))
        .collect::<Result<_, _>>()?;
    drop(reports);
    let mut watcher = Watcher {
        setup: Arc::clone(&setup),
        inbox,
        look,
        pids: pids.into_iter().collect(),
        started: 0,
        last: (0, 0),
        per_second: 0.0,
        is_interrupted: false,
    };
    let outcome = watcher.attend(starts).map(|heard| heard.outcome(workload, &setup));
    // Those that are still there end at once.
    setup.is_stopped.store(true, Ordering::Relaxed);
    drop(watcher);
    for thread in threads {
        let _ = thread.join();
    }
    outcome
}

fn prepare(
    workload: &Workload,
    target: &Target,
    plan: &Plan,
    look: &mut dyn FnMut(&Progress) -> Flow,
) -> Result<Setup, Error> {
    plan.check()?;
    if target.tls.is_some() && !matches!(target.address, Address::Tcp { .. }) {
        return Err(Error::asked("only connections over TCP are secured by TLS"));
    }
    if plan.calls.is_some() && target.is_cluster {
        return Err(Error::asked("connections to a cluster are not closed after some calls"));
    }
    if workload.is_verified && workload.keys.count < plan.clients() as u64 {
        return Err(Error::asked("with fewer keys than connections some would have none to write"));
    }
    if workload.is_verified && target.is_cluster && plan.rate().is_some() && plan.pipeline > 1 {
        return Err(Error::asked(
            "in an open loop with a pipeline writes to a slot that moves can \
            overtake each other: verify in a closed loop, or with a pipeline of 1",
        ));
    }
    let keys = workload.mix.iter().map(|(command, _)| command.kind.keys()).max().unwrap_or(1);
    let per_request = (64 + u64::from(workload.sizes.longest())) * u64::from(keys);
    if per_request.saturating_mul((plan.clients() * plan.pipeline) as u64) > IN_FLIGHT_BYTES_MAX {
        return Err(Error::asked(
            "requests in flight would take more than 8 GiB: fewer \
            connections, a shorter pipeline or shorter values",
        ));
    }
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let run = (started.as_nanos() as u64 ^ plan.seed) as u32;
    let program = compile(workload, target.protocol, target.is_cluster, run)?;
    let nothing = Progress {
        is_warming_up: true,
        done: 0.0,
        left: None,
        per_second: 0.0,
        requests: 0,
        errors: 0,
    };
    let found = talk::ask(target, &mut || look(&nothing))?;
    Ok(Setup {
        newest: AtomicU64::new(program.key_count() - 1),
        program,
        target: target.clone(),
        plan: plan.clone(),
        nodes: found.nodes,
        slots: found.slots,
        is_stopped: AtomicBool::new(false),
        gauges: (0..plan.threads).map(|_| Gauge::default()).collect(),
    })
}

fn spawn(
    setup: &Arc<Setup>,
    number: usize,
    reports: &SyncSender<Report>,
    starts: &mut Vec<SyncSender<u64>>,
) -> Result<std::thread::JoinHandle<()>, Error> {
    let (start, begin) = sync_channel(1);
    starts.push(start);
    let (setup, reports) = (Arc::clone(setup), reports.clone());
    std::thread::Builder::new()
        .name(format!("load-{number}"))
        .spawn(move || work(&setup, number, &reports, &begin))
        .map_err(|error| Error::system("a thread", error))
}

/// Waits for the threads, and looks at the processes meanwhile.
struct Watcher<'a> {
    setup: Arc<Setup>,
    inbox: Receiver<Report>,
    look: &'a mut dyn FnMut(&Progress) -> Flow,
    pids: Vec<u32>,
    started: u64,
    /// Time and requests at the last look.
    last: (u64, u64),
    per_second: f64,
    is_interrupted: bool,
}

/// What was heard of all threads.
struct Heard {
    accounts: Vec<Account>,
    series: Series,
    processes: Vec<ProcessUsage>,
    generator: ProcessUsage,
    started_unix_ms: u64,
    seconds: f64,
    is_interrupted: bool,
}

impl Watcher<'_> {
    fn attend(&mut self, starts: Vec<SyncSender<u64>>) -> Result<Heard, Error> {
        let mut ready = 0;
        while ready < starts.len() {
            match self.inbox.recv_timeout(LOOK) {
                Ok(Report::Ready) => ready += 1,
                Ok(Report::Failed(error)) => return Err(error),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => self.tell(),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
        self.started = nanos();
        self.last = (self.started, 0);
        for start in &starts {
            let _ = start.send(self.started);
        }
        self.measure(starts.len())
    }

    fn measure(&mut self, threads: usize) -> Result<Heard, Error> {
        let warm = self.started + self.setup.plan.warm_up.as_nanos() as u64;
        let mut meters = None;
        let mut started_unix_ms = 0;
        let mut heard: Vec<Account> = Vec::new();
        let mut series = Series::new(threads);
        let mut next_second = 0;
        while heard.len() < threads {
            let now = nanos();
            if meters.is_none() && (now >= warm || self.is_interrupted) {
                meters = Some((Meter::start(&self.pids), Meter::start(&[std::process::id()])));
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                started_unix_ms = since.unwrap_or_default().as_millis() as u64;
                next_second = now + 1_000_000_000;
            }
            let wait = if meters.is_none() { warm.saturating_sub(now) } else { u64::MAX };
            match self.inbox.recv_timeout(LOOK.min(Duration::from_nanos(wait))) {
                Ok(Report::Slice(slice)) => series.add(&slice),
                Ok(Report::Done(account)) => {
                    series.add(&account.last_slice);
                    heard.push(*account);
                }
                Ok(Report::Failed(error)) => return Err(error),
                Ok(Report::Ready) => {}
                Err(RecvTimeoutError::Timeout) => self.tell(),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
            if nanos() >= next_second
                && let Some((meter, _)) = &mut meters
            {
                next_second += 1_000_000_000;
                meter.look();
            }
        }
        let (meter, own) = meters.unwrap_or_else(|| (Meter::start(&[]), Meter::start(&[])));
        let from = heard.iter().map(|account| account.from).min().unwrap_or(0);
        let to = heard.iter().map(|account| account.to).max().unwrap_or(0);
        let seconds = to.saturating_sub(from) as f64 / 1e9;
        Ok(Heard {
            accounts: heard,
            series,
            processes: meter.end(seconds),
            generator: own.end(seconds).pop().unwrap_or_default(),
            started_unix_ms,
            seconds,
            is_interrupted: self.is_interrupted,
        })
    }

    /// Tells how far it is, and hears whether to go on.
    fn tell(&mut self) {
        // ORDER: figures to look at.
        let sum = |of: fn(&Gauge) -> &AtomicU64| {
            self.setup.gauges.iter().map(|gauge| of(gauge).load(Ordering::Relaxed)).sum::<u64>()
        };
        let (now, requests) = (nanos(), sum(|gauge| &gauge.requests));
        let errors = sum(|gauge| &gauge.errors);
        let (before, requests_before) = self.last;
        if now.saturating_sub(before) >= 900_000_000 && self.started > 0 {
            let per_second = (requests - requests_before) as f64 / ((now - before) as f64 / 1e9);
            (self.per_second, self.last) = (per_second, (now, requests));
        }
        let progress = self.progress(now, requests, errors);
        if (self.look)(&progress) == Flow::Stop {
            self.is_interrupted = true;
            self.setup.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    fn progress(&self, now: u64, requests: u64, errors: u64) -> Progress {
        let plan = &self.setup.plan;
        let warm_up = plan.warm_up.as_secs_f64();
        let elapsed = if self.started > 0 { (now - self.started) as f64 / 1e9 } else { 0.0 };
        let whole = match plan.until {
            Until::Time(length) => Some(warm_up + length.as_secs_f64()),
            Until::Requests(all) if requests > 0 && elapsed > warm_up => {
                Some(elapsed * (all as f64 / requests as f64).max(1.0))
            }
            Until::Requests(_) => None,
        };
        let left = whole.map(|whole| Duration::from_secs_f64((whole - elapsed).max(0.0)));
        Progress {
            is_warming_up: elapsed < warm_up,
            done: whole.map_or(0.0, |whole| (elapsed / whole).clamp(0.0, 1.0)),
            left,
            per_second: self.per_second,
            requests,
            errors,
        }
    }
}

fn ended() -> Error {
    Error::system("a thread of the generator", "it ended without a word")
}

impl Heard {
    fn outcome(self, workload: &Workload, setup: &Setup) -> Outcome {
        let mut accounts = self.accounts.iter();
        let mut is_silent = false;
        let mut total: Option<Record> = None;
        for account in accounts.by_ref() {
            is_silent |= account.is_silent;
            match &mut total {
                Some(total) => total.add(&account.record),
                None => {
                    total = Record::new(setup.program.ops.len()).ok().map(|mut first| {
                        first.add(&account.record);
                        first
                    })
                }
            }
        }
        let Some(mut record) = total else { unreachable!("a run has at least one thread") };
        let seconds = self.seconds.max(1e-9);
        let classes = classes(setup, &record, seconds);
        let cpu: f64 = self.processes.iter().map(|process| process.cpu_seconds).sum();
        let totals = totals(&record, seconds);
        record.errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        let mut all = record.classes.swap_remove(0);
        record.classes.iter().for_each(|class| all.add(class));
        let is_known = !self.processes.is_empty() && cpu > 0.0;
        Outcome {
            schema: SCHEMA,
            workload: workload.name.clone(),
            target: TargetFacts {
                address: setup.target.address.to_string(),
                protocol: setup.target.protocol.to_string(),
                cluster_nodes: if setup.slots.is_empty() { 0 } else { setup.nodes.len() },
            },
            plan: facts(&setup.plan),
            started_unix_ms: self.started_unix_ms,
            seconds: self.seconds,
            ended: match (self.is_interrupted, is_silent) {
                (true, _) => Ended::Interrupted,
                (false, true) => Ended::Silent,
                (false, false) => Ended::Finished,
            },
            latency: Latency::of(&all.latency),
            failed_latency: Latency::of(&all.failed_latency),
            classes,
            errors: record.errors,
            connections: Connections {
                clients: setup.plan.clients(),
                opened: record.opened,
                per_second: setup.plan.calls.map_or(0.0, |_| record.opened as f64 / seconds),
                lost: record.lost,
                failed: record.failed,
                connect: Latency::of(&record.connect),
                lifetime: Latency::of(&record.lifetime),
            },
            verification: workload.is_verified.then_some(record.verification),
            series: self.series.seconds(),
            processes: self.processes,
            requests_per_cpu_second: is_known.then(|| totals.good() as f64 / cpu),
            totals,
            generator: self.generator,
        }
    }
}

fn totals(record: &Record, seconds: f64) -> Totals {
    let sum = |of: fn(&crate::record::ClassRecord) -> u64| record.classes.iter().map(of).sum();
    let requests: u64 = sum(|class| class.requests);
    let errors: u64 = sum(|class| class.errors);
    Totals {
        requests,
        per_second: requests.saturating_sub(errors) as f64 / seconds,
        errors,
        hits: sum(|class| class.hits),
        misses: sum(|class| class.misses),
        bytes_sent: record.bytes_sent,
        bytes_received: record.bytes_received,
        unanswered: record.unanswered,
        unsent: record.unsent,
        redirected: record.redirected,
    }
}

/// Classes by name: two commands of one name are one.
fn classes(setup: &Setup, record: &Record, seconds: f64) -> Vec<Class> {
    let mut names: Vec<&str> = Vec::new();
    for op in &setup.program.ops {
        if !names.contains(&op.name.as_str()) {
            names.push(&op.name);
        }
    }
    let class = |name: &str| {
        let of = setup.program.ops.iter().zip(&record.classes);
        let mut own = of.filter(|(op, _)| op.name == name).map(|(_, class)| class);
        let first = own.next()?;
        let mut latency = first.latency.clone();
        let mut failed_latency = first.failed_latency.clone();
        let (mut requests, mut errors) = (first.requests, first.errors);
        let (mut hits, mut misses) = (first.hits, first.misses);
        for other in own {
            let _ = latency.add(&other.latency);
            let _ = failed_latency.add(&other.failed_latency);
            requests += other.requests;
            errors += other.errors;
            hits += other.hits;
            misses += other.misses;
        }
        Some(Class {
            name: name.to_owned(),
            requests,
            per_second: requests.saturating_sub(errors) as f64 / seconds,
            errors,
            hits,
            misses,
            latency: Latency::of(&latency),
            failed_latency: Latency::of(&failed_latency),
        })
    };
    names.into_iter().filter_map(class).collect()
}

fn facts(plan: &Plan) -> PlanFacts {
    let (seconds, requests) = match plan.until {
        Until::Time(length) => (Some(length.as_secs_f64()), None),
        Until::Requests(requests) => (None, Some(requests)),
    };
    PlanFacts {
        threads: plan.threads,
        connections_per_thread: plan.connections,
        pipeline: plan.pipeline,
        rate: plan.rate(),
        calls_per_connection: plan.calls,
        warm_up_seconds: plan.warm_up.as_secs_f64(),
        seconds,
        requests,
        seed: plan.seed,
    }
}
