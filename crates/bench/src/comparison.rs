//! The two main tasks of the program, from the options to a report.

use std::time::Duration;

use keyway_scenario::load_average;

use crate::callgrind::{CASES, instructions_per_request};
use crate::error::Error;
use crate::items::{COUNTS, measure_items};
use crate::memory::measure_memory;
use crate::options::Options;
use crate::plan::{SIDES, Side};
use crate::report::{BySystem, Report, Setting};
use crate::rounds::{Progress, RowResult, run_row};
use crate::session::{Absent, Session};
use crate::syscalls::count_syscalls;
use crate::systems::{Kind, System, version_of};

/// How long system calls are counted for each system.
const SYSCALLS_FOR: Duration = Duration::from_secs(3);

/// Starts everything, measures everything, and ends everything.
///
/// # Errors
/// Returns [`Error::Program`] if not even the servers behind the proxies run, and
/// [`Error::Interrupted`]. All other failures are in the report.
pub fn compare(options: &Options) -> Result<Report, Error> {
    let load_before = load_average();
    let kinds = wanted_kinds(options);
    let mut session = Session::start(options.programs.clone())?;
    if kinds.contains(&Kind::KeywayMemcached) {
        session.start_memcached()?;
    }
    if kinds.contains(&Kind::KeywayCluster) {
        session.start_cluster()?;
    }
    for &kind in &kinds {
        session.add(kind)?;
    }
    for peer in &options.peers {
        session.add_external(System::external(peer.name.clone(), peer.addr, peer.pid))?;
    }
    if options.selection.is_all() {
        session.absent.extend(left_out(options));
    }
    let rows = measure_rows(options, &mut session)?;
    let syscalls = match options.selection.has("syscalls") {
        true => measure_syscalls(options, &session)?,
        false => Vec::new(),
    };
    let memory = match options.selection.has("memory") {
        true => measure_all_memory(&kinds, &session)?,
        false => Vec::new(),
    };
    let items = match options.selection.has("items") {
        true => measure_all_items(&kinds, &session)?,
        false => Vec::new(),
    };
    Ok(Report {
        setting: setting(options, &kinds),
        rounds: options.rounds,
        load_average: [load_before, load_average()],
        rows,
        absent: session.absent.clone(),
        memory,
        syscalls,
        items,
    })
}

/// Returns the peers that take part only if their programs are named, and are not.
fn left_out(options: &Options) -> Vec<Absent> {
    let programs = &options.programs;
    [(Kind::Predixy, &programs.predixy), (Kind::Memcached, &programs.memcached)]
        .into_iter()
        .filter(|(_, path)| path.is_none())
        .map(|(kind, _)| Absent {
            name: kind.name().into(),
            side: kind.side(),
            why: format!("takes part with --{} PATH", kind.name()),
            is_failure: false,
        })
        .collect()
}

/// Returns the systems to start: those that a selected row or part needs.
fn wanted_kinds(options: &Options) -> Vec<Kind> {
    let selection = &options.selection;
    let parts = selection.has("memory") || selection.has("syscalls");
    let mut kinds = Vec::new();
    if parts || !selection.rows(Side::Proxy).is_empty() {
        kinds.extend([Kind::Nutcracker, Kind::NutcrackerSmall]);
        kinds.extend(options.programs.predixy.as_ref().map(|_| Kind::Predixy));
        kinds.push(if options.self_check { Kind::NutcrackerAgain } else { Kind::Keyway });
        kinds.extend(options.io_uring.then_some(Kind::KeywayUring));
    }
    if !selection.rows(Side::ClusterProxy).is_empty() {
        kinds.extend(options.programs.predixy.as_ref().map(|_| Kind::PredixyCluster));
        kinds.push(Kind::KeywayCluster);
    }
    if !selection.rows(Side::MemcachedProxy).is_empty() {
        kinds.extend([Kind::NutcrackerMemcached, Kind::NutcrackerSmallMemcached]);
        kinds.push(Kind::KeywayMemcached);
    }
    if parts || selection.has("items") || !selection.rows(Side::Store).is_empty() {
        kinds.push(Kind::Redis);
        kinds.extend(options.programs.memcached.as_ref().map(|_| Kind::Memcached));
        kinds.push(if options.self_check { Kind::RedisAgain } else { Kind::KeywayStore });
        kinds.push(Kind::KeywayStoreMemcached);
        kinds.extend(options.io_uring.then_some(Kind::KeywayStoreUring));
        kinds.extend(options.floor.then_some(Kind::Floor));
    }
    kinds
}

fn measure_rows(options: &Options, session: &mut Session) -> Result<Vec<RowResult>, Error> {
    let window = options.window();
    let count = |side| session.systems.iter().filter(|system| system.side == side).count();
    let steps = SIDES.map(|side| count(side) * options.selection.rows(side).len() * options.rounds);
    let mut progress = Progress::new(steps.into_iter().sum(), window.expected());
    let mut results = Vec::new();
    for side in SIDES {
        let mut systems: Vec<&mut System> =
            session.systems.iter_mut().filter(|system| system.side == side).collect();
        if systems.is_empty() {
            continue;
        }
        for mut row in options.selection.rows(side) {
            // Only Keyway has targets.
            row.target = row.target.filter(|_| !options.self_check);
            let rounds = options.rounds;
            results.push(run_row(row, &mut systems, rounds, &window, &mut progress)?);
        }
    }
    progress.end();
    Ok(results)
}

fn measure_syscalls(
    options: &Options,
    session: &Session,
) -> Result<BySystem<crate::syscalls::Syscalls>, Error> {
    let length = if options.quick { SYSCALLS_FOR / 6 } else { SYSCALLS_FOR };
    let mut figures = Vec::new();
    let mut progress = Progress::new(session.systems.len(), length);
    for system in session.systems.iter().filter(|system| system.served.protocol.is_redis()) {
        progress.step(&format!("system calls: {}", system.name));
        figures
            .push((system.name.clone(), kept(count_syscalls(system, length, session.scratch()))?));
    }
    progress.end();
    Ok(figures)
}

/// Measures the memory of the systems that could be started before. For others the report already
/// contains the reason.
fn measure_all_memory(
    kinds: &[Kind],
    session: &Session,
) -> Result<BySystem<crate::memory::Memory>, Error> {
    let runs = |kind: &&Kind| {
        kind.protocol().is_redis()
            && session.systems.iter().any(|system| system.name == kind.name())
    };
    let kinds: Vec<&Kind> = kinds.iter().filter(runs).collect();
    let mut figures = Vec::new();
    let mut progress = Progress::new(kinds.len(), Duration::from_secs(8));
    for kind in kinds {
        progress.step(&format!("memory: {}", kind.name()));
        figures.push((kind.name().to_owned(), kept(measure_memory(&session.site(), *kind))?));
    }
    progress.end();
    Ok(figures)
}

/// Measures the items of the systems with a store.
fn measure_all_items(
    kinds: &[Kind],
    session: &Session,
) -> Result<BySystem<[f64; COUNTS.len()]>, Error> {
    let kinds: Vec<&Kind> = kinds.iter().filter(|kind| kind.side() == Side::Store).collect();
    let mut figures = Vec::new();
    let mut progress = Progress::new(kinds.len(), Duration::from_secs(15));
    for kind in kinds {
        progress.step(&format!("items: {}", kind.name()));
        figures.push((kind.name().to_owned(), kept(measure_items(&session.site(), *kind))?));
    }
    progress.end();
    Ok(figures)
}

/// Counts Keyway's instructions for a request, case by case.
///
/// # Errors
/// Returns [`Error::Program`] if the servers behind the proxy cannot be started, and
/// [`Error::Interrupted`]. Other failures are in the figures.
pub fn count_instructions(options: &Options) -> Result<(Setting, BySystem<f64>), Error> {
    let mut session = Session::start(options.programs.clone())?;
    let has_memcached = options.programs.memcached.is_some();
    if has_memcached {
        session.start_memcached()?;
    }
    let mut figures = Vec::new();
    let mut progress = Progress::new(CASES.len(), Duration::from_secs(10));
    for case in CASES.into_iter().filter(|case| has_memcached || !case.needs_memcached()) {
        progress.step(&format!("instructions: {}", case.title));
        let figure = instructions_per_request(&session.site(), &case, options.requests);
        figures.push((case.title.to_owned(), kept(figure)?));
    }
    progress.end();
    let mut setting = setting(options, &[Kind::Keyway]);
    let valgrind = version_of("valgrind".as_ref(), "--version");
    setting.versions.extend(valgrind.map(|version| ("callgrind of".to_owned(), version)));
    Ok((setting, figures))
}

/// Turns a failure into a text for the report. An interruption ends the run.
fn kept<T>(result: Result<T, Error>) -> Result<Result<T, String>, Error> {
    crate::interrupt::check()?;
    Ok(result.map_err(|error| error.to_string()))
}

pub(crate) fn setting(options: &Options, kinds: &[Kind]) -> Setting {
    let mut versions: Vec<(String, String)> = Vec::new();
    for kind in kinds.iter().chain([&Kind::Redis]) {
        let Some(version) = options.programs.version(*kind) else { continue };
        if !versions.iter().any(|(_, known)| *known == version) {
            versions.push((kind.name().to_owned(), version));
        }
    }
    Setting {
        machine: keyway_scenario::machine(),
        date: crate::clock::today(),
        command: options.command(),
        versions,
    }
}
