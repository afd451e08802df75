//! A scenario from its start to its end: systems take turns, round by round.

use crate::bus;
use crate::convert::plain;
use crate::convert::time;
use crate::error::Error;
use crate::machine::{Scale, machine};
use crate::measure::{Meter, fill, measure, wait_until_ready};
use crate::model::{Scaled, Scenario, Share, System, SystemKind, Timing};
use crate::places;
use crate::process::Site;
use crate::reader::instead;
use crate::start::{Backends, Started, Starter};
use crate::works::{Task, TaskKind, tasks};
use keyway_load::{Plan, Protocol, Workload};
use keyway_net::Address;
use keyway_report::{Cell, FORMAT, Measured, Role, Round, Run, Scalar, VERSION};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// What a measurement takes beside its own time: connecting, filling, looking at processes.
const OVERHEAD: f64 = 0.15;
/// A generator that is so busy is the limit.
const BUSY_PERCENT: f64 = 92.0;
/// A load average of so many times the cores is not the benchmark's own: that has about one thing to
/// do for each core.
const CROWDED: f64 = 2.5;
/// Notes about failed requests; more say nothing more.
const FAILURES_TOLD: usize = 6;

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The report's own size instead of what suits the machine.
    pub is_full: bool,
    /// Other than the file's.
    pub rounds: Option<usize>,
    /// Seconds of each measurement, other than the file's.
    pub seconds: Option<f64>,
    /// Systems that the user brings, in place of the file's of the same name or beside them.
    pub given: Vec<Given>,
    /// Measure these systems only; all without any.
    pub only: Vec<String>,
    /// The program that a command's `keyway` is.
    pub keyway: PathBuf,
    /// This program and its arguments, behind which a program comes that must not outlive this
    /// process; without any, programs are started as they are.
    pub guard: Vec<String>,
    /// This program and its arguments for a process of the bus's benchmark.
    pub bus_again: Vec<String>,
    /// What was typed.
    pub command: String,
}

/// A system that the user brings.
#[derive(Clone, Debug)]
pub struct Given {
    name: String,
    kind: GivenKind,
}

#[derive(Clone, Debug)]
enum GivenKind {
    Addresses(Vec<Address>),
    Command(String),
}

impl std::str::FromStr for Given {
    type Err = String;

    /// `NAME=ADDRESS`, several addresses by comma, or `NAME=COMMAND` with `{port}` in it.
    fn from_str(text: &str) -> Result<Given, String> {
        const WANTED: &str = "as NAME=HOST:PORT, or NAME=COMMAND with {port} in it";
        let (name, value) = text.split_once('=').ok_or_else(|| WANTED.to_owned())?;
        let (name, value) = (name.trim().to_owned(), value.trim());
        if name.is_empty() {
            return Err(WANTED.to_owned());
        }
        let places = places::names(value);
        if places.contains(&"port") {
            let of_file = |place: &&str| !matches!(*place, "port" | "dir" | "cores");
            if let Some(other) =
                places.into_iter().find(|place| of_file(place) && !place.starts_with("port."))
            {
                return Err(format!(
                    "nothing stands for {{{other}}} here; write a file, beginning with \
                     keyway bench run --show NAME"
                ));
            }
            return Ok(Given { name, kind: GivenKind::Command(value.to_owned()) });
        }
        let addresses = value.split(',').map(|one| one.parse().map_err(|_| WANTED.to_owned()));
        Ok(Given { name, kind: GivenKind::Addresses(addresses.collect::<Result<_, _>>()?) })
    }
}

/// How far a run is.
#[derive(Clone, Debug)]
pub struct Status<'a> {
    /// What is going on: `starting redis`, `round 1 of 3, keyway, get`.
    pub what: &'a str,
    /// From 0 to 1.
    pub done: f64,
    /// How much longer it takes, as far as can be told.
    pub left: Option<Duration>,
    /// Requests answered by second.
    pub per_second: f64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Finished {
    /// All of it.
    pub run: Run,
    /// True if all that was there could be measured: systems that are not on this machine are
    /// rows of it, and no failure; what is there and does not start or serve is one.
    pub is_whole: bool,
}

/// Runs a scenario. `look` is told some times a second how far it is; `is_stopped` ends it, with
/// what was measured until then.
///
/// # Errors
/// When it cannot begin, or is stopped before anything is measured.
pub fn run(
    scenario: &Scenario,
    options: &Options,
    is_stopped: &AtomicBool,
    look: &mut dyn FnMut(&Status),
) -> Result<Finished, Error> {
    let mut runner = Runner::new(scenario, options, is_stopped, look)?;
    let mut run = runner.begin();
    let mut site = Site::new(&options.guard)?;
    let backends = runner.start_all(&mut site, &mut run)?;
    runner.warm(&mut run)?;
    for task in &runner.tasks {
        run.items.push(task.item.clone());
    }
    for round in 0..runner.timing.rounds {
        runner.round(round, &mut site, &backends, &mut run);
        if is_stopped.load(Ordering::Relaxed) {
            break;
        }
    }
    drop(site);
    run.interrupted = is_stopped.load(Ordering::Relaxed);
    if run.interrupted && run.cells.is_empty() {
        return Err(Error::Asked("interrupted before anything was measured".to_owned()));
    }
    runner.notes(&mut run);
    let mut rounds = run.cells.iter().flat_map(|cell| &cell.rounds);
    let is_measured = !run.cells.is_empty() && rounds.all(|round| round.measured().is_some());
    Ok(Finished { run, is_whole: is_measured && !runner.is_broken })
}

struct Runner<'a> {
    scenario: &'a Scenario,
    options: &'a Options,
    systems: Vec<System>,
    timing: Timing,
    scale: Scale,
    tasks: Vec<Task>,
    started: Vec<Started>,
    left_out: Vec<String>,
    /// A system that is there did not start, or does not serve.
    is_broken: bool,
    /// Keys that were written through systems.
    filled: BTreeSet<String>,
    is_stopped: &'a AtomicBool,
    look: &'a mut dyn FnMut(&Status),
    /// Measurements that are over, and the time they took.
    over: usize,
    spent: Duration,
}

impl<'a> Runner<'a> {
    fn new(
        scenario: &'a Scenario,
        options: &'a Options,
        is_stopped: &'a AtomicBool,
        look: &'a mut dyn FnMut(&Status),
    ) -> Result<Runner<'a>, Error> {
        let machine = machine();
        let is_full = options.is_full;
        let gib = machine.memory_bytes >> 30;
        let scale = Scale { cores: machine.cores.into(), gib, is_full };
        let mut timing = if is_full { scenario.full } else { scenario.usual };
        timing.rounds = options.rounds.unwrap_or(timing.rounds);
        timing.seconds = options.seconds.unwrap_or(timing.seconds);
        let (tasks, left_out) =
            tasks(scenario, scale, timing).map_err(|why| Error::Asked(why.to_string()))?;
        Ok(Runner {
            scenario,
            options,
            systems: systems(scenario, options)?,
            timing,
            scale,
            tasks,
            started: Vec::new(),
            left_out,
            is_broken: false,
            filled: BTreeSet::new(),
            is_stopped,
            look,
            over: 0,
            spent: Duration::ZERO,
        })
    }

    fn begin(&self) -> Run {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let number = |name: &str, value: f64| (name.to_owned(), Scalar::Number(value));
        let Timing { seconds, warm_up, rounds } = self.timing;
        let has_load = self.tasks.iter().any(|task| matches!(task.kind, TaskKind::Load { .. }));
        let mut parameters = BTreeMap::from([
            number("seconds", seconds),
            number("rounds", rounds as f64),
            ("full".to_owned(), Scalar::Flag(self.scale.is_full)),
        ]);
        if has_load {
            // Messages are sent without.
            parameters.extend([number("warm-up", warm_up.min(seconds / 4.0))]);
        }
        Run {
            format: FORMAT.to_owned(),
            version: VERSION,
            scenario: self.scenario.table.clone(),
            title: self.scenario.title.clone(),
            command: self.options.command.clone(),
            started: time(now.as_millis() as u64),
            machine: machine(),
            parameters,
            ..Run::default()
        }
    }

    fn tell(&mut self, what: &str) {
        (self.look)(&Status { what, done: 0.0, left: None, per_second: 0.0 });
    }

    fn start_all(&mut self, site: &mut Site, run: &mut Run) -> Result<Backends, Error> {
        let mut backends = Backends::default();
        for servers in &self.scenario.servers {
            self.tell(&format!("starting {}", servers.name));
            self.starter(site).servers(servers, &mut backends);
        }
        for system in self.systems.clone() {
            self.tell(&format!("starting {}", system.name));
            let mut row = keyway_report::System { name: system.name.clone(), ..Default::default() };
            match self.starter(site).system(&system, &backends) {
                Ok(started) => {
                    row.version.clone_from(&started.version);
                    row.started_by.clone_from(&started.started_by);
                    self.started.push(started);
                }
                Err(why) => {
                    self.is_broken |= !matches!(why, Error::Absent(_));
                    row.missing = Some(plain(&why.to_string()));
                }
            }
            run.systems.push(row);
            if self.is_stopped.load(Ordering::Relaxed) {
                return Err(Error::Asked("interrupted before anything was measured".to_owned()));
            }
        }
        for (name, ports) in &backends.ports {
            let one = if ports.len() == 1 { "server" } else { "servers" };
            run.notes.push(format!("Behind the systems: {name}, {} {one}.", ports.len()));
        }
        Ok(backends)
    }

    fn starter<'s>(&'s self, site: &'s mut Site) -> Starter<'s> {
        let (scale, is_stopped) = (self.scale, self.is_stopped);
        let programs = [("keyway", &*self.options.keyway)].into();
        Starter { site, scale, programs, is_stopped }
    }

    /// Waits for all systems; one that does not serve is a row that says so.
    fn warm(&mut self, run: &mut Run) -> Result<(), Error> {
        let first = self.tasks.iter().find_map(|task| match &task.kind {
            TaskKind::Load { workload, plan, .. } => Some((workload.clone(), plan.clone())),
            TaskKind::Messages { .. } => None,
        });
        let Some((workload, plan)) = first else {
            self.note_compared(run);
            return Ok(());
        };
        let mut ready = Vec::new();
        for started in std::mem::take(&mut self.started) {
            self.tell(&format!("waiting for {}", started.name));
            let mut meter = Meter { is_stopped: self.is_stopped, look: &mut |_| {} };
            match wait_until_ready(&started, (&workload, &plan), &mut meter) {
                Ok(()) => ready.push(started),
                Err(why) => {
                    self.is_broken = true;
                    let mut rows = run.systems.iter_mut();
                    if let Some(row) = rows.find(|row| row.name == started.name) {
                        row.missing = Some(plain(&why.to_string()));
                    }
                }
            }
        }
        self.started = ready;
        self.note_compared(run);
        Ok(())
    }

    /// Which systems the others are compared with, if they are there.
    fn note_compared(&self, run: &mut Run) {
        let is_there = |name: &&String| self.started.iter().any(|one| one.name == **name);
        let there = |name: &Option<String>| name.as_ref().filter(is_there).cloned();
        run.baseline = there(&self.scenario.baseline);
        run.peer = there(&self.scenario.peer);
    }

    fn round(&mut self, round: usize, site: &mut Site, backends: &Backends, run: &mut Run) {
        let (tasks, started) = (std::mem::take(&mut self.tasks), std::mem::take(&mut self.started));
        let each = |task: &Task| started.iter().filter(|one| task.is_for(&one.name)).count();
        let all = tasks.iter().map(each).sum::<usize>() * self.timing.rounds;
        'all: for task in &tasks {
            for system in &started {
                if !task.is_for(&system.name) {
                    continue;
                }
                let what = format!(
                    "round {} of {}, {}, {}",
                    round + 1,
                    self.timing.rounds,
                    system.name,
                    task.item.id
                );
                let begun = Instant::now();
                let ended = system.pids.keys().find_map(|pid| site.end_of(*pid));
                let found = match ended {
                    Some(why) => Some(Round::Failed(why)),
                    None => self.one(task, system, backends, (&what, all)),
                };
                self.spent += begun.elapsed();
                self.over += 1;
                if let Some(found) = found {
                    note(run, system, task, found);
                }
                if self.is_stopped.load(Ordering::Relaxed) {
                    break 'all;
                }
            }
        }
        (self.tasks, self.started) = (tasks, started);
    }

    fn one(
        &mut self,
        task: &Task,
        system: &Started,
        backends: &Backends,
        (what, all): (&str, usize),
    ) -> Option<Round> {
        let (workload, plan, is_filled) = match &task.kind {
            TaskKind::Load { workload, plan, is_filled } => (workload, plan, *is_filled),
            TaskKind::Messages { sizes, senders } => {
                let (over, spent) = ((self.over, all), (self.spent, self.each()));
                (self.look)(&status(what, over, spent, Duration::ZERO, 0.0));
                let channel = self.channel(&system.name)?;
                let (seconds, again) = (self.timing.seconds, &self.options.bus_again);
                return bus::measure(channel, (*sizes, *senders), seconds, again, self.is_stopped);
            }
        };
        if is_filled && let Err(why) = self.filled(system, workload, plan) {
            let is_cut = self.is_stopped.load(Ordering::Relaxed);
            return (!is_cut).then(|| Round::Failed(why.to_string()));
        }
        let begun = Instant::now();
        let (over, spent, each) = (self.over, self.spent, self.each());
        let look = &mut *self.look;
        let mut tell = |per_second: f64| {
            let status = status(what, (over, all), (spent, each), begun.elapsed(), per_second);
            look(&status);
        };
        let mut meter = Meter { is_stopped: self.is_stopped, look: &mut tell };
        measure(system, (workload, plan), &backends.pids, &mut meter)
    }

    fn channel(&self, name: &str) -> Option<keyway_bus_bench::Channel> {
        let system = self.systems.iter().find(|system| system.name == name)?;
        match system.kind {
            SystemKind::Channel(channel) => Some(channel),
            _ => None,
        }
    }

    /// Writes the keys of a work through a system, once.
    fn filled(&mut self, system: &Started, workload: &Workload, plan: &Plan) -> Result<(), Error> {
        let (keys, sizes) = (&workload.keys, &workload.sizes);
        let mark = format!("{} {} {} {:?}", system.name, keys.prefix, keys.count, sizes);
        if self.filled.contains(&mark) {
            return Ok(());
        }
        let mut meter = Meter { is_stopped: self.is_stopped, look: &mut |_| {} };
        fill(system, (workload, plan), &mut meter)?;
        self.filled.insert(mark);
        Ok(())
    }

    /// What a measurement is expected to take.
    fn each(&self) -> f64 {
        let Timing { seconds, warm_up, .. } = self.timing;
        seconds + warm_up.min(seconds / 4.0) + OVERHEAD
    }

    /// How many loads a system is under at the same time, each with as many threads.
    fn senders(&self, name: &str) -> f64 {
        let system = self.started.iter().find(|one| one.name == name);
        let apart = system.filter(|one| one.share == Share::Keys);
        apart.map_or(1.0, |one| one.addresses.len() as f64)
    }

    /// What a reader should know of all that was measured.
    fn notes(&self, run: &mut Run) {
        if !self.scale.is_full {
            let Scale { cores, gib, .. } = self.scale;
            run.notes.insert(0, format!(
                "Scaled to this machine ({cores} cores, {gib} GiB); --full takes the report's own size."
            ));
        }
        run.notes.extend(crowded(run));
        run.notes.extend(self.left_out.iter().cloned());
        run.notes.extend(self.scenario.notes.iter().cloned());
        for task in &self.tasks {
            for (system, why) in &task.leaves_out {
                let note = format!("{system} is left out of {}: {why}.", task.item.id);
                if run.systems.iter().any(|one| one.name == *system && one.missing.is_none()) {
                    run.notes.push(note);
                }
            }
        }
        run.notes.extend(busy(run, |system| self.senders(system)));
        run.notes.extend(failures(run));
    }
}

fn status<'s>(
    what: &'s str,
    (over, all): (usize, usize),
    (spent, each): (Duration, f64),
    since: Duration,
    per_second: f64,
) -> Status<'s> {
    let mean = if over > 0 { spent.as_secs_f64() / over as f64 } else { each };
    let done = (over as f64 + (since.as_secs_f64() / mean).min(1.0)) / all.max(1) as f64;
    let left = (all as f64 * mean * (1.0 - done)).max(0.0);
    Status { what, done: done.min(1.0), left: Some(Duration::from_secs_f64(left)), per_second }
}

/// Adds a round to its cell.
fn note(run: &mut Run, system: &Started, task: &Task, found: Round) {
    let is_it = |cell: &&mut Cell| cell.system == system.name && cell.item == task.item.id;
    match run.cells.iter_mut().find(is_it) {
        Some(cell) => cell.rounds.push(found),
        None => {
            let (system, item) = (system.name.clone(), task.item.id.clone());
            run.cells.push(Cell { system, item, rounds: vec![found] });
        }
    }
}

/// The systems of a run: the file's and the user's.
fn systems(scenario: &Scenario, options: &Options) -> Result<Vec<System>, Error> {
    let mut systems = scenario.systems.clone();
    let protocol = systems.first().map_or(Protocol::Resp2, |system| system.protocol);
    for given in &options.given {
        let kind = match &given.kind {
            GivenKind::Addresses(addresses) => SystemKind::Address(addresses.clone()),
            GivenKind::Command(command) => SystemKind::Command {
                words: vec!["sh".to_owned(), "-c".to_owned(), format!("exec {command}")],
                files: Vec::new(),
                version: Vec::new(),
                instances: Scaled::from(1),
            },
        };
        match systems.iter_mut().find(|system| system.name == given.name) {
            Some(system) => system.kind = kind,
            None => systems.push(System {
                name: given.name.clone(),
                kind,
                protocol,
                share: Default::default(),
                is_backend: false,
                install: String::new(),
            }),
        }
    }
    let names: Vec<&str> = systems.iter().map(|system| system.name.as_str()).collect();
    if let Some(other) = options.only.iter().find(|name| !names.contains(&name.as_str())) {
        let hint = instead(other, &names);
        return Err(Error::Asked(format!("no system is called \"{other}\"; {hint}")));
    }
    let is_asked = |system: &System| options.only.is_empty() || options.only.contains(&system.name);
    systems.retain(is_asked);
    Ok(systems)
}

/// Where the load generator was the limit, its figures are about itself.
fn busy(run: &Run, senders: impl Fn(&str) -> f64) -> Option<String> {
    let cores = f64::from(run.machine.cores.max(1));
    let is_busy = |one: &Measured, threads: f64| {
        one.cpu_percent(Role::Load).is_some_and(|percent| percent >= BUSY_PERCENT * threads)
    };
    let threads = |cell: &Cell| {
        let item = run.items.iter().find(|item| item.id == cell.item)?;
        // More threads than cores are never all busy.
        Some((item.number("threads")? * senders(&cell.system)).min(cores))
    };
    let of = run.cells.iter().filter_map(|cell| Some((cell, threads(cell)?)));
    let busy: Vec<&Cell> = of
        .filter(|(cell, threads)| cell.measured().all(|one| is_busy(one, *threads)))
        .filter(|(cell, _)| cell.measured().next().is_some())
        .map(|(cell, _)| cell)
        .collect();
    let first = busy.first()?;
    let (system, item) = (&first.system, &first.item);
    Some(format!(
        "The load generator was busy nearly all the time in {} of {} cells, {system} with {item} \
         the first: there throughput is its own, and requests per CPU-second are what to look at.",
        busy.len(),
        run.cells.len()
    ))
}

/// Returns whether others had so much to do that throughput says who got a core.
fn crowded(run: &Run) -> Option<String> {
    let measured = run.cells.iter().flat_map(Cell::measured);
    let most = measured.filter_map(|one| one.load_average).fold(0.0, f64::max);
    let cores = run.machine.cores.max(1);
    (most > CROWDED * f64::from(cores)).then(|| {
        format!(
            "The machine was busy: its load average was up to {most:.1} on {cores} cores. Throughput \
             and latency say who got a core; requests per CPU-second, and their ratios, are what to \
             look at."
        )
    })
}

/// Requests that failed make a throughput worth less.
fn failures(run: &Run) -> Vec<String> {
    let mut told = Vec::new();
    for cell in &run.cells {
        let rounds = cell.rounds.iter().filter(|round| round.measured().is_none()).count();
        if let Some(why) = cell.failure() {
            let (system, item, all) = (&cell.system, &cell.item, cell.rounds.len());
            told.push(format!("{system}, {item}: {rounds} of {all} rounds failed: {why}."));
        }
        let failed: u64 = cell.measured().map(Measured::failures).sum();
        let all: u64 = cell.measured().map(|one| one.requests).sum();
        if failed > 0 {
            let kinds: BTreeSet<&String> =
                cell.measured().flat_map(|one| one.errors.keys()).collect();
            let kinds = kinds.into_iter().cloned().collect::<Vec<_>>().join(", ");
            let (system, item) = (&cell.system, &cell.item);
            told.push(format!("{system}, {item}: {failed} failures in {all} requests ({kinds})."));
        }
    }
    let more = told.len().saturating_sub(FAILURES_TOLD);
    told.truncate(FAILURES_TOLD);
    if more > 0 {
        told.push(format!("Failures in {more} more cells."));
    }
    told
}
