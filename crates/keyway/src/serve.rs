//! The start and the end of a process that serves.

mod announce;
mod control;
mod draining;
mod first_command;
mod system;

use crate::admin::{AdminControls, Process, Settings};
use crate::cli::LogFormat;
use crate::member::Joining;
use crate::plan::Sources;
use crate::registrations::Registrations;
use crate::reload::{Live, Refusal, Reload, Wake};
use crate::replicas::Replicas;
use crate::snapshots::Snapshots;
use crate::store_logs::StoreLogs;
use crate::upgrade::{self, PidFile, Successor, TakeOver, Taking, Upgrades};
use crate::workers::{RETRY_AFTER, SAMPLE_EVERY, Workers};
use crate::{driver, log, peers, plan};
use announce::announce;
use anyhow::{Context, Result, anyhow};
use control::{Control, Prepared, admin_address};
use draining::{Order, drain, give_notice, name_of, wait_for_end};
use keyway_config::{Config, IoDriver, ListenAddr};
use keyway_control::{Access, Admin, AdminError, AdminHandle, AdminOptions, AfterDrain};
use keyway_net::Listener;
use keyway_tls::ClientCertificates;
use keyway_worker::Plan;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use system::{remove_unix_sockets, watch_signals};

pub use system::{raise_descriptor_limit, wall_clock};

/// The way in which the process was started, besides its configuration.
pub struct Started<'a> {
    /// The format of log lines, if it overrides the file.
    pub format: Option<LogFormat>,
    /// The interface to the kernel, if it overrides the file.
    pub io: Option<IoDriver>,
    /// The configuration file, if there is one.
    pub file: Option<&'a Path>,
    /// The file for the process's id.
    pub pid_file: Option<&'a Path>,
    /// If another process has the admin address, the process serves without one.
    pub may_lack_admin: bool,
    /// The control plane to join, and the document that the configuration has.
    pub joining: Option<Joining>,
}

/// Time between two checks whether the clients of a replaced process have left.
const LEFT_EVERY: Duration = Duration::from_millis(100);

/// Longest time for workers to give the clients of embedded stores that are ready.
const GIVEN_WITHIN: Duration = Duration::from_secs(2);

/// Serves until told to stop, or until replaced by another process. `before` is the process that
/// this one replaces, if there is one.
pub fn serve(mut config: Config, started: &Started<'_>, before: &mut TakeOver) -> Result<ExitCode> {
    let log = log::start(&config.server.log, started.format);
    log_warnings(&mut config);
    raise_descriptor_limit();
    let driver = driver::choose(started.io.unwrap_or(config.server.io))?;
    let (wake, woken) = channel();
    watch_signals(wake.clone())?;
    let clock = wall_clock();
    before.receive()?;
    // A number that an attacker cannot guess: it decides which keys share a bucket of the store.
    // Cursors of SCAN go on to mean the same where a store is taken over.
    let seed = before.seed().unwrap_or_else(|| RandomState::new().hash_one(clock.unix_micros));
    let (sockets, files) = bind(&config, started, before)?;
    let bounds = worker_bounds(&config, TakeOver::workers(&sockets));
    let topology = config.topology(keyway_topology::Epoch(1));
    let registry = plan::registry(&topology, bounds.1, clock);
    let addresses: Vec<_> =
        sockets.iter().map(|sockets| sockets.first().and_then(Listener::local_addr)).collect();
    let tally = Arc::default();
    let mut passwords = crate::passwords::Passwords::default();
    let verifier = Arc::clone(passwords.verifier());
    let sources = Sources {
        config: &config,
        addresses: &addresses,
        clock,
        seed,
        reloads: &tally,
        verifier: &verifier,
    };
    let version = plan::plan(&sources, &registry);
    let plan = Arc::clone(&version.plan);
    started.joining.iter().for_each(|joining| joining.groups().attach(&plan, &config));
    let (mut snapshots, mut logs, mut replicas) = prepare_stores((&plan, &config), &wake, before)?;
    let taking = Taking::begin(before, (&plan, &config), &replicas)?;
    let upgraded = upgrade::Told::default();
    let mut upgrades = Upgrades::new(wake.clone(), Arc::clone(&upgraded));
    let control = Prepared::new(started.joining.as_ref(), wake.clone(), before.is_one())?;
    let controls = AdminControls { log, wake: wake.clone(), reload: Reload::new(wake), upgraded };
    let settings = Settings::new(started, &config);
    let settings = (settings, control.asking());
    let process = Process::new(Arc::clone(&plan), Arc::clone(&registry), controls, settings);
    let process = Arc::new(process);
    let access = access(&config);
    let mut admin = prepare_admin(&config, &process, &access, (before, started.may_lack_admin))?;
    let names: Vec<_> = plan.listeners.iter().map(|listener| listener.name.to_string()).collect();
    let counts = (first_workers(bounds.0, &sockets, before), bounds.1);
    let mut workers = Workers::start(Arc::clone(&plan), registry, sockets, counts, (driver, seed))?;
    peers::watch(&plan, None).context("cannot start a thread")?;
    passwords.start_for(&plan).context("cannot start a thread")?;
    take_stores(taking, before, (&plan, &config), (&replicas, &mut logs))?;
    let pid_file = begin((&mut workers, bounds.0), (&plan, admin.as_mut()), started, before)?;
    files.keep();
    let threads = snapshots.start().and_then(|()| logs.start()).and_then(|()| replicas.start());
    threads.context("cannot start a thread")?;
    announce(&config, &plan, &names, bounds, admin.as_ref(), started.file);
    let state = Arc::clone(&process) as Arc<dyn keyway_control::AdminState>;
    let control = control.start((&config, &version.registry), admin.as_ref(), state)?;
    let mut live = Live {
        document: started.joining.as_ref().and_then(Joining::document),
        about: control.about(),
        path: started.file.map(Path::to_owned),
        file: config.clone(),
        config,
        version,
        addresses,
        tally,
        clock,
        seed,
        passwords,
        access,
        snapshots,
        logs,
        replicas,
        registrations: Registrations::new(admin_address(admin.as_ref())),
        held: None,
    };
    live.registrations.follow(&live.file);
    let serving = Serving { workers, live, process, woken, admin, pid_file };
    let status = serving.serve(&mut upgrades, control);
    warn_of_cut_off(&plan);
    tracing::info!("stopped");
    Ok(status)
}

/// Logs the warnings about the configuration, once.
fn log_warnings(config: &mut Config) {
    for warning in config.warnings.drain(..) {
        tracing::warn!("{warning}");
    }
}

/// Prepares what embedded stores have besides their memory.
fn prepare_stores(
    (plan, config): (&Arc<Plan>, &Config),
    wake: &Sender<Wake>,
    before: &TakeOver,
) -> Result<(Snapshots, StoreLogs, Replicas)> {
    let mut logs = StoreLogs::prepare(plan, config, wake.clone(), before.pools())?;
    let snapshots = snapshots((plan, config), wake.clone(), before, &logs)?;
    logs.begin()?;
    Ok((snapshots, logs, Replicas::prepare(plan, config)))
}

/// Opens the snapshots of embedded stores. If another process serves until this one begins, they are
/// loaded now.
fn snapshots(
    (plan, config): (&Arc<Plan>, &Config),
    wake: Sender<Wake>,
    before: &TakeOver,
    logs: &StoreLogs,
) -> Result<Snapshots> {
    let mut snapshots = Snapshots::prepare(plan, config, wake, logs)?;
    if before.is_one() {
        snapshots.load_now()?;
    }
    Ok(snapshots)
}

/// Listens on every address of the configuration.
///
/// # Errors
/// Returns every address on which the system refuses to listen. The message names the option that
/// was typed, and no key of a file that does not exist.
fn bind(
    config: &Config,
    started: &Started<'_>,
    before: &mut TakeOver,
) -> Result<(Vec<Vec<Listener>>, plan::NewSocketFiles)> {
    plan::bind(config, before).map_err(|errors| {
        let errors = errors.join("\nkeyway: ");
        match started.file {
            Some(_) => anyhow!("{errors}"),
            None => anyhow!(
                "{}",
                errors.replace("for `bind`", "with --bind HOST:PORT").replace("`bind`", "--bind")
            ),
        }
    })
}

/// The parts of a serving process that its end needs.
struct Serving {
    workers: Workers,
    live: Live,
    process: Arc<Process>,
    woken: Receiver<Wake>,
    admin: Option<AdminHandle>,
    pid_file: Option<PidFile>,
}

impl Serving {
    /// Serves until the process is told to end, and ends it.
    fn serve(mut self, upgrades: &mut Upgrades, control: Control) -> ExitCode {
        let (process, woken) = (&self.process, &self.woken);
        let inside = Inside { process, admin: self.admin.as_ref(), woken };
        let ending = run(&mut self.workers, &inside, &mut self.live, upgrades);
        if let Ending::Replaced(_) = &ending {
            self.live.registrations.leave();
        }
        // Another control node leads while this process drains. Dropping it waits for its end.
        let _control = control.end(matches!(ending, Ending::Stop(AfterDrain::Wait, _)));
        let late = end_upgrade(&ending, upgrades, (&mut self.live, woken));
        self.process.set_draining();
        self.end(ending, late.as_ref())
    }

    /// Ends the process as it is to end. `late` is a process that has begun to serve in this one's
    /// place.
    fn end(self, ending: Ending, late: Option<&Successor>) -> ExitCode {
        match ending {
            Ending::Stop(then, signal) => self.stop(Order { then, signal }, late),
            Ending::Failed(failure) => self.fail(&failure, late),
            Ending::Replaced(successor) => self.leave_to(&successor),
        }
    }

    /// Drains the workers and ends. Another process may have begun to serve in this one's place.
    fn stop(mut self, order: Order, late: Option<&Successor>) -> ExitCode {
        let kept = late.map_or(&[][..], |late| &late.kept[..]);
        if let Some(late) = late {
            self.give_clients(late);
        }
        match kept.is_empty() {
            true => self.live.registrations.end(),
            false => self.live.registrations.leave(),
        }
        // If another process listens already, no client is refused.
        let notice = match kept.is_empty() {
            true => self.live.config.server.drain_notice,
            false => Duration::ZERO,
        };
        let order = give_notice(&mut self.workers, (&self.process, &self.woken), notice, order);
        let then = drain(self.workers, &self.live, &self.woken, order);
        self.live.replicas.end();
        // If another process serves, the snapshot's file belongs to that one.
        let are_saved = self.live.snapshots.end(kept.is_empty());
        let are_whole = self.live.logs.end();
        if then == AfterDrain::Wait {
            wait_for_end(&self.woken);
        }
        // No thread waits for an answer from here any more.
        drop(self.woken);
        drop(self.admin);
        remove_unix_sockets(&self.live, kept);
        if let (Some(file), true) = (self.pid_file, kept.is_empty()) {
            file.remove();
        }
        match are_saved && are_whole {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }

    /// Ends a process that cannot serve, without snapshots. Another process may have begun to serve
    /// in this one's place.
    fn fail(mut self, failure: &str, late: Option<&Successor>) -> ExitCode {
        tracing::error!("{failure}");
        let _ = self.live.snapshots.end(false);
        self.live.config.server.drain_notice = Duration::ZERO;
        let _ = self.stop(Order { then: AfterDrain::Exit, signal: None }, late);
        ExitCode::FAILURE
    }

    /// Gives the clients of embedded stores to the process in this one's place. It holds their
    /// requests until all that are ready are there.
    fn give_clients(&self, successor: &Successor) {
        let Some(heir) = &successor.heir else { return };
        let as_heir = Arc::clone(heir) as Arc<dyn keyway_worker::Heir>;
        let (done, all_done) = channel();
        self.live.version.plan.hand_on(&as_heir, &done);
        drop(done);
        // The channel ends when the last worker has given its clients.
        let _ = all_done.recv_timeout(GIVEN_WITHIN);
        heir.note_end();
        let (pid, clients) = (successor.pid, self.live.version.plan.clients.len());
        tracing::info!(
            pid,
            clients,
            "upgraded: the clients of embedded stores are with process {pid} now"
        );
    }

    /// Serves the remaining clients, while the process in its place accepts new ones.
    fn leave_to(mut self, successor: &Successor) -> ExitCode {
        self.give_clients(successor);
        self.live.replicas.end();
        // From here on the snapshot's file belongs to the other process.
        let _ = self.live.snapshots.end(false);
        self.workers.leave(self.live.file.server.upgrade_grace);
        let closing = close_beside(self.admin);
        // This waits while the service manager does not read. Clients are served meanwhile.
        upgrade::tell_of_successor(successor.pid);
        let mut status = ExitCode::SUCCESS;
        if serve_the_rest(self.workers, &self.live, successor, &self.woken).is_err() {
            status = ExitCode::FAILURE;
            // Otherwise the file belongs to the other process, or will in a moment.
            if let Some(file) = self.pid_file {
                file.remove();
            }
        }
        // No thread waits for an answer from here any more.
        drop(self.woken);
        if let Some(thread) = closing {
            let _ = thread.join();
        }
        status
    }
}

/// Returns the number of workers before the first client is served. If another process still
/// serves, there are only as many workers as it hands over sockets: clients of any other socket
/// would be reset if this process failed.
fn first_workers(count: usize, sockets: &[Vec<Listener>], before: &TakeOver) -> usize {
    match before.is_one() {
        true => TakeOver::workers(sockets).clamp(1, count),
        false => count,
    }
}

/// Closes the admin listener on a thread of its own, because requests that it has accepted may wait
/// for the main thread.
fn close_beside(admin: Option<AdminHandle>) -> Option<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("keyway-admin-end".into());
    // If no thread can be started, it was closed here.
    thread.spawn(move || drop(admin)).ok()
}

/// Returns the first and the largest number of workers. Each of the `taken` sockets of the previous
/// process gets a worker, because clients that wait in a socket without a worker would be reset.
fn worker_bounds(config: &Config, taken: usize) -> (usize, usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (count, count_max) = config.server.workers.bounds(cores as u16);
    let (count, count_max) = (usize::from(count), usize::from(count_max));
    if taken > count_max {
        tracing::warn!(
            workers = taken,
            workers_max = count_max,
            "more workers than `workers` says: as many as the process before had; a restart has \
             fewer"
        );
    }
    (count.max(taken), count_max.max(taken))
}

/// Takes over the stores of the process before, which serves on until this one says that it does.
fn take_stores(
    taking: Option<Taking>,
    before: &mut TakeOver,
    (plan, config): (&Arc<Plan>, &Config),
    (replicas, logs): (&Replicas, &mut StoreLogs),
) -> Result<()> {
    if let Some(taking) = &taking {
        taking.await_data(replicas)?;
    }
    before.await_begin()?;
    match taking {
        Some(mut taking) => taking.finish(&before.take_finals(), (plan, config), (replicas, logs)),
        None => Ok(()),
    }
}

/// Begins to serve clients. Writes the file with the process's id, if there is to be one, and
/// returns it.
fn begin(
    (workers, count): (&mut Workers, usize),
    (plan, admin): (&Plan, Option<&mut AdminHandle>),
    started: &Started<'_>,
    before: &mut TakeOver,
) -> Result<Option<PidFile>> {
    let is_upgrade = before.is_one();
    let write = || started.pid_file.map(PidFile::write).transpose();
    // A failure to write it prevents the start, as long as this process serves no clients.
    let mut pid_file = match is_upgrade {
        true => started.pid_file.map(PidFile::check).transpose()?.and(None),
        false => write()?,
    };
    hold_again(plan, before.held());
    for (pool, primary) in before.unreplicated() {
        plan.expect_replicas(pool, primary);
    }
    before.commit()?;
    workers.begin();
    if let Some(admin) = admin {
        admin.begin();
    }
    workers.grow(count);
    if is_upgrade {
        workers.settle();
        pid_file = write().unwrap_or_else(|error| {
            tracing::warn!("upgrade: {error:#}");
            None
        });
    } else {
        upgrade::tell_of_start();
    }
    Ok(pid_file)
}

/// Ejects the servers that an operator had ejected in the previous process.
fn hold_again(plan: &Plan, held: &[(String, String)]) {
    for (pool, backend) in held {
        match plan.hold(pool, backend) {
            true => tracing::warn!(
                pool,
                backend,
                "upgrade: stays ejected on an operator's word, until it is restored"
            ),
            false => tracing::info!(
                pool,
                backend,
                "upgrade: was ejected on an operator's word, and is not configured any more"
            ),
        }
    }
}

/// Ends an upgrade that is going on. Stores that were held for it are served until this process
/// ends. Returns the next process if it serves all the same.
fn end_upgrade(
    ending: &Ending,
    upgrades: &mut Upgrades,
    (live, woken): (&mut Live, &Receiver<Wake>),
) -> Option<Successor> {
    let late = upgrades.abort(woken);
    if late.is_none() && !matches!(ending, Ending::Replaced(_)) {
        live.go_on();
    }
    late
}

/// Warns of clients and requests that draining did not wait for.
fn warn_of_cut_off(plan: &Plan) {
    let clients = plan.notices.clients_cut.load(Ordering::Relaxed);
    let requests = plan.notices.requests_cut.load(Ordering::Relaxed);
    if clients > 0 {
        tracing::warn!(
            clients,
            requests,
            "drain_timeout was over: clients were closed while requests were in flight; requests \
             counts these, which got an error and may have been executed"
        );
    }
}

/// The parts that the main thread uses besides workers and settings.
struct Inside<'a> {
    process: &'a Process,
    admin: Option<&'a AdminHandle>,
    woken: &'a Receiver<Wake>,
}

/// The reason why a process serves no longer.
enum Ending {
    /// It was told to stop, by a signal or by an operator.
    Stop(AfterDrain, Option<i32>),
    /// It cannot serve, for this reason.
    Failed(String),
    /// Another process serves in its place.
    Replaced(Successor),
}

/// Waits for the order to stop, and manages the workers meanwhile.
#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
fn run(
    workers: &mut Workers,
    inside: &Inside<'_>,
    live: &mut Live,
    upgrades: &mut Upgrades,
) -> Ending {
    let Inside { process, admin, woken } = *inside;
    let mut sampled = Instant::now();
    loop {
        let mut reload = |workers: &mut Workers, upgrades: &Upgrades| match upgrades.is_running() {
            true => live.refuse_reload(),
            false => live.reload(workers, process),
        };
        match woken.recv_timeout(SAMPLE_EVERY) {
            Ok(Wake::Signal(SIGHUP)) => drop(reload(workers, upgrades)),
            Ok(Wake::Reload(tell)) => {
                // The asking thread may have given up.
                let _ = tell.send(reload(workers, upgrades));
            }
            Ok(Wake::Document(document)) => {
                let outcome = match upgrades.is_running() {
                    true => live.refuse_reload(),
                    false => live.apply(&document, workers, process),
                };
                document.answer(outcome);
            }
            Ok(Wake::Signal(SIGUSR2)) => drop(upgrades.begin((live, workers, admin))),
            Ok(Wake::Upgrade(asked)) => upgrades.answer((live, workers, admin), &asked),
            Ok(Wake::Upgraded(outcome)) => {
                if let Some(successor) = upgrades.end(outcome) {
                    return Ending::Replaced(successor);
                }
                live.go_on();
            }
            Ok(Wake::Hold(holding)) => {
                // The thread that asks waits for it.
                let _ = holding.tell.send(live.hold());
            }
            Ok(Wake::Signal(signal)) => {
                let name = name_of(signal);
                tracing::info!(
                    target: "keyway::event::draining",
                    "{name}: draining: no new clients, requests in flight are answered"
                );
                return Ending::Stop(AfterDrain::Exit, Some(signal));
            }
            Ok(Wake::Failed(failure)) => return Ending::Failed(failure),
            Ok(Wake::Drain(after)) => {
                tracing::info!(
                    target: "keyway::event::draining",
                    "draining on an operator's word: no new clients, requests in flight are \
                     answered"
                );
                return Ending::Stop(after, None);
            }
            Err(RecvTimeoutError::Timeout) => {
                let elapsed = sampled.elapsed();
                sampled = Instant::now();
                process.note_elapsed(elapsed);
                // The sockets of a worker added now would not be handed over.
                if !upgrades.is_running() {
                    sample(workers, elapsed);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ending::Stop(AfterDrain::Exit, None),
        }
    }
}

/// Returns the access settings of the admin listener.
fn access(config: &Config) -> Access {
    let access = Access::default();
    crate::operators::admit(&access, config.server.admin_token.as_ref(), &config.operators);
    let tls = config.server.admin_tls.as_ref();
    match tls.is_some_and(|tls| matches!(tls.settings.clients, ClientCertificates::Required(_))) {
        true => access.with_certificates(),
        false => access,
    }
}

fn sample(workers: &mut Workers, elapsed: Duration) {
    match workers.sample(elapsed) {
        Ok(true) => tracing::info!(workers = workers.len(), "all workers were busy: added one"),
        Ok(false) => {}
        // The existing workers go on: one fewer is no reason to end.
        Err(error) => tracing::warn!(
            workers = workers.len(),
            "all workers are busy and another cannot be started; trying again in {} s: {error:#}",
            RETRY_AFTER.as_secs()
        ),
    }
}

/// Serves the connected clients, while another process accepts new ones.
///
/// # Errors
/// Returns an error if that process has failed.
fn serve_the_rest(
    workers: Workers,
    live: &Live,
    successor: &Successor,
    woken: &Receiver<Wake>,
) -> Result<(), upgrade::SuccessorFailed> {
    let (pid, grace) = (successor.pid, live.file.server.upgrade_grace);
    remove_unix_sockets(live, &successor.kept);
    let rest = match grace.is_zero() {
        true => "closes each of its clients after the last reply".to_owned(),
        false => format!("serves the clients it has for {grace:?} at most, then it drains"),
    };
    tracing::info!(
        pid,
        clients = live.version.plan.clients.len(),
        "upgraded: process {pid} serves; this one {rest}"
    );
    let mut outcome = Ok(());
    let mut order = Order { then: AfterDrain::Exit, signal: None };
    while !workers.have_ended() {
        outcome = successor.check();
        if outcome.is_err() {
            tracing::error!(
                pid,
                "process {pid}, which had taken over, has failed: nobody listens; draining, so \
                 that whoever watches starts another"
            );
            break;
        }
        match woken.recv_timeout(LEFT_EVERY) {
            Ok(Wake::Signal(signal @ (SIGTERM | SIGINT))) => {
                order.signal = Some(signal);
                tracing::info!("{}: draining: requests in flight are answered", name_of(signal));
                break;
            }
            Ok(Wake::Drain(_)) => break,
            Ok(Wake::Signal(_)) => {
                tracing::warn!(pid, "signal ignored: process {pid} serves now, it is to be told");
            }
            Ok(Wake::Reload(tell)) => drop(tell.send(Err(Refusal::stopping()))),
            Ok(Wake::Upgrade(asked)) => {
                let _ = asked.tell.send(Err(vec![format!("process {pid} serves now")]));
            }
            Ok(Wake::Document(_) | Wake::Upgraded(_) | Wake::Hold(_) | Wake::Failed(_))
            | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    drain(workers, live, woken, order);
    outcome
}

/// Prepares the admin listener. With `may_lack` the process serves without it if another process
/// has the address.
fn prepare_admin(
    config: &Config,
    process: &Arc<Process>,
    access: &Access,
    (before, may_lack): (&mut TakeOver, bool),
) -> Result<Option<AdminHandle>> {
    let Some(addr) = &config.server.admin else { return Ok(None) };
    let refused = |error: AdminError| {
        anyhow!(
            "{error}; `admin` in `[server]` of a configuration file sets another, or \"off\"; \
             without a file, `--bind HOST:PORT` serves without it"
        )
    };
    let socket = match (before.admin(addr), addr) {
        (None, ListenAddr::Tcp(bind)) => {
            match keyway_net::listen_tcp(*bind, config.only_v6(addr)) {
                Ok(socket) => Some(socket),
                Err(reason) if may_lack && reason.kind() == ErrorKind::AddrInUse => {
                    tracing::warn!(
                        "no admin address: another process listens on {bind}; `admin` in `[server]` of \
                     a configuration file sets another"
                    );
                    return Ok(None);
                }
                Err(reason) => {
                    let address = bind.to_string();
                    return Err(refused(AdminError::Bind { address, reason }));
                }
            }
        }
        (socket, _) => socket,
    };
    let addr = addr.to_string();
    let addr = addr.strip_prefix("tcp://").unwrap_or(&addr);
    let state = Arc::clone(process) as Arc<dyn keyway_control::AdminState>;
    let tls = config.server.admin_tls.as_ref();
    let options = AdminOptions {
        access: access.clone(),
        // The configuration was loaded with its files.
        tls: tls.map(|tls| tls.loaded.clone().expect("it was loaded")),
        ..AdminOptions::default()
    };
    Ok(Some(Admin::prepare(options, addr, socket, state).map_err(refused)?))
}
