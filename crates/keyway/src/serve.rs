//! How a process comes up and goes down.

mod draining;
mod first_command;

use crate::admin::{AdminControls, Process, Settings};
use crate::cli::{LogFormat, counted};
use crate::plan::Sources;
use crate::reload::{Live, Refusal, Reload, Wake};
use crate::snapshots::Snapshots;
use crate::upgrade::{self, PidFile, Successor, TakeOver, Upgrades};
use crate::workers::{RETRY_AFTER, SAMPLE_EVERY, Workers};
use crate::{driver, log, memory, peers, plan};
use anyhow::{Context, Result, anyhow};
use draining::{Order, drain, give_notice, name_of};
use keyway_base::{Clock, Time};
use keyway_config::{Config, IoDriver, ListenAddr, PoolKindConfig, Protocol, size_text};
use keyway_control::{Access, Admin, AdminError, AdminHandle, AdminOptions, AfterDrain};
use keyway_net::Listener;
use keyway_tls::ClientCertificates;
use keyway_topology::PrimarySource;
use keyway_worker::{Plan, PoolKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How the process was started, beside its configuration.
pub struct Started<'a> {
    /// How log lines look, if not as the file says.
    pub format: Option<LogFormat>,
    /// How workers talk to the kernel, if not as the file says.
    pub io: Option<IoDriver>,
    /// The file, if there is one.
    pub file: Option<&'a Path>,
    /// Where to write the process's id.
    pub pid_file: Option<&'a Path>,
    /// If another process has the admin address, the process serves without one.
    pub may_lack_admin: bool,
}

/// Between two looks at whether the clients of a process have left that was replaced.
const LEFT_EVERY: Duration = Duration::from_millis(100);

/// Serves until told to stop, or replaced; in the place of the process before, if there is one.
pub fn serve(mut config: Config, started: &Started<'_>, before: &mut TakeOver) -> Result<ExitCode> {
    let log = log::start(&config.server.log, started.format);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    config.warnings.clear();
    raise_descriptor_limit();
    let driver = driver::choose(started.io.unwrap_or(config.server.io))?;
    let (wake, woken) = channel();
    watch_signals(wake.clone())?;
    let clock = wall_clock();
    // What an attacker cannot guess: which keys share a bucket of the store.
    let seed = RandomState::new().hash_one(clock.unix_micros);
    before.receive()?;
    let (sockets, files) = plan::bind(&config, before).map_err(|errors| {
        let errors = errors.join("\nkeyway: ");
        // The message names the option that was typed, and no key of a file that is not there.
        match started.file {
            Some(_) => anyhow!("{errors}"),
            None => anyhow!(
                "{}",
                errors.replace("for `bind`", "with --bind HOST:PORT").replace("`bind`", "--bind")
            ),
        }
    })?;
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
    let upgraded = upgrade::Told::default();
    let failed = wake.clone();
    let mut upgrades = Upgrades::new(wake.clone(), Arc::clone(&upgraded));
    let controls = AdminControls { log, wake: wake.clone(), reload: Reload::new(wake), upgraded };
    let settings = Settings::new(started, &config);
    let process = Process::new(Arc::clone(&plan), Arc::clone(&registry), controls, settings);
    let process = Arc::new(process);
    let access = access(&config);
    let mut admin = prepare_admin(&config, &process, &access, (before, started.may_lack_admin))?;
    let names: Vec<_> = plan.listeners.iter().map(|listener| listener.name.clone()).collect();
    let first = first_workers(bounds.0, &sockets, before);
    let counts = (first, bounds.1);
    let mut workers = Workers::start(Arc::clone(&plan), registry, sockets, counts, (driver, seed))?;
    let mut snapshots = Snapshots::prepare(&plan, &config, failed)?;
    if before.is_one() {
        // The process before serves until all is here.
        snapshots.load_now()?;
    }
    peers::watch(&plan, None).context("cannot start a thread")?;
    passwords.start_for(&plan).context("cannot start a thread")?;
    let pid_file = begin((&mut workers, bounds.0), (&plan, admin.as_mut()), started, before)?;
    files.keep();
    snapshots.start().context("cannot start a thread")?;
    announce(&config, &plan, &names, bounds, admin.as_ref(), started.file);
    let mut live = Live {
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
    };
    let inside = Inside { process: &process, admin: admin.as_ref(), woken: &woken };
    let ending = run(&mut workers, &inside, &mut live, &mut upgrades);
    let kept = upgrades.abort(&woken);
    process.set_draining();
    let mut status = ExitCode::SUCCESS;
    match ending {
        Ending::Stop(then, signal) => {
            let order = Order { then, signal };
            // Where another process listens already, nobody is refused.
            let notice = match kept.is_empty() {
                true => live.config.server.drain_notice,
                false => Duration::ZERO,
            };
            let order = give_notice(&mut workers, (&process, &woken), notice, order);
            let then = drain(workers, &live, &woken, order);
            // Where another process serves, the file is that one's.
            live.snapshots.end(kept.is_empty());
            if then == AfterDrain::Wait {
                wait_for_end(&woken);
            }
            // Nobody waits for an answer from here any more.
            drop(woken);
            drop(admin);
            remove_unix_sockets(&live, &kept);
            if let (Some(file), true) = (pid_file, kept.is_empty()) {
                file.remove();
            }
        }
        Ending::Failed(failure) => {
            tracing::error!("{failure}");
            let order = Order { then: AfterDrain::Exit, signal: None };
            drain(workers, &live, &woken, order);
            live.snapshots.end(false);
            drop(woken);
            drop(admin);
            remove_unix_sockets(&live, &kept);
            if let (Some(file), true) = (pid_file, kept.is_empty()) {
                file.remove();
            }
            status = ExitCode::FAILURE;
        }
        Ending::Replaced(successor) => {
            // The file is the other process's from here on.
            live.snapshots.end(false);
            workers.leave(upgrade::grace(&live));
            let closing = close_beside(admin);
            // Waits while the manager does not read, with clients served meanwhile.
            upgrade::tell_of_successor(successor.pid);
            if serve_the_rest(workers, &live, &successor, &woken).is_err() {
                status = ExitCode::FAILURE;
                // Otherwise it is the other process's, or will be in a moment.
                if let Some(file) = pid_file {
                    file.remove();
                }
            }
            // Nobody waits for an answer from here any more.
            drop(woken);
            if let Some(thread) = closing {
                let _ = thread.join();
            }
        }
    }
    warn_of_cut_off(&plan);
    tracing::info!("stopped");
    Ok(status)
}

/// How many workers there are before the first client is served. Beside a process that serves they
/// are only as many as have sockets from it: who comes to another socket would be reset if this
/// process failed.
fn first_workers(count: usize, sockets: &[Vec<Listener>], before: &TakeOver) -> usize {
    match before.is_one() {
        true => TakeOver::workers(sockets).clamp(1, count),
        false => count,
    }
}

/// Closes it on a thread of its own: requests that it has taken may wait for the main thread.
fn close_beside(admin: Option<AdminHandle>) -> Option<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("keyway-admin-end".into());
    // Where no thread can be started it has been closed here.
    thread.spawn(move || drop(admin)).ok()
}

/// How many workers there are at first, and at most. `taken` sockets of the process before have a
/// worker each, or who waits in them would be reset.
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

/// Nothing is missing: clients are served from here on. The file with the process's id, if there
/// is to be one.
fn begin(
    (workers, count): (&mut Workers, usize),
    (plan, admin): (&Plan, Option<&mut AdminHandle>),
    started: &Started<'_>,
    before: &mut TakeOver,
) -> Result<Option<PidFile>> {
    let is_upgrade = before.is_one();
    let write = || started.pid_file.map(PidFile::write).transpose();
    // A reason not to start, as long as this process serves nobody.
    let mut pid_file = match is_upgrade {
        true => started.pid_file.map(PidFile::check).transpose()?.and(None),
        false => write()?,
    };
    before.await_begin()?;
    hold_again(plan, before.held());
    for (pool, primary) in before.unreplicated() {
        plan.expect_replicas(pool, primary);
    }
    workers.begin();
    if let Some(admin) = admin {
        admin.begin();
    }
    workers.grow(count);
    if is_upgrade {
        // A file system that stalls is no reason to be ended.
        before.end();
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

/// Tells what draining did not wait for.
fn warn_of_cut_off(plan: &Plan) {
    let clients = plan.notices.clients_cut.load(Ordering::Relaxed);
    let requests = plan.notices.requests_cut.load(Ordering::Relaxed);
    if clients > 0 {
        tracing::warn!(
            clients,
            requests,
            "drain_timeout was over: clients were cut off that had not got every reply; requests \
             counts those without one, which may have been executed"
        );
    }
}

/// The wall clock.
#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
pub fn wall_clock() -> Clock {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { now: Time(0), unix_micros: unix.as_micros() as u64 }
}

fn watch_signals(tell: Sender<Wake>) -> Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR2]).context("cannot watch for signals")?;
    // A file that reaches the limit of its size is an error of who writes it, not the end.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot watch for signals")?;
    std::thread::Builder::new()
        .name("keyway-signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if tell.send(Wake::Signal(signal)).is_err() {
                    return;
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// What the main thread looks after besides workers and settings.
struct Inside<'a> {
    process: &'a Process,
    admin: Option<&'a AdminHandle>,
    woken: &'a Receiver<Wake>,
}

/// Why a process serves no longer.
enum Ending {
    /// It is to stop, by a signal or on an operator's word.
    Stop(AfterDrain, Option<i32>),
    /// It cannot serve, and why.
    Failed(String),
    /// Another one serves in its place.
    Replaced(Successor),
}

/// Waits for the order to stop, and looks after the workers meanwhile.
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
                // Who has asked may have given up.
                let _ = tell.send(reload(workers, upgrades));
            }
            Ok(Wake::Signal(SIGUSR2)) => drop(upgrades.begin((live, workers, admin), false)),
            Ok(Wake::Upgrade(asked)) => upgrades.answer((live, workers, admin), &asked),
            Ok(Wake::Upgraded(outcome)) => {
                if let Some(successor) = upgrades.end(outcome) {
                    return Ending::Replaced(successor);
                }
            }
            Ok(Wake::Signal(signal)) => {
                let name = name_of(signal);
                tracing::info!("{name}: draining: no new clients, requests in flight are answered");
                return Ending::Stop(AfterDrain::Exit, Some(signal));
            }
            Ok(Wake::Failed(failure)) => return Ending::Failed(failure),
            Ok(Wake::Drain(after)) => {
                tracing::info!(
                    "draining on an operator's word: no new clients, requests in flight are \
                     answered"
                );
                return Ending::Stop(after, None);
            }
            Err(RecvTimeoutError::Timeout) => {
                let elapsed = sampled.elapsed();
                sampled = Instant::now();
                process.note_streamed_reply(elapsed);
                // The sockets of a worker added now would not be among those handed over.
                if !upgrades.is_running() {
                    sample(workers, elapsed);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ending::Stop(AfterDrain::Exit, None),
        }
    }
}

/// Who may ask at the admin listener.
fn access(config: &Config) -> Access {
    let access = Access::new(config.server.admin_token.as_ref().map(|token| token.expose()));
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
        // Those there serve on: one fewer is no reason to end.
        Err(error) => tracing::warn!(
            workers = workers.len(),
            "all workers are busy and another cannot be started; trying again in {} s: {error:#}",
            RETRY_AFTER.as_secs()
        ),
    }
}

/// Waits, drained, for the order to end.
fn wait_for_end(woken: &Receiver<Wake>) {
    tracing::info!("drained: waiting for SIGTERM, or for an operator to have it end");
    // Those that came meanwhile are first. Who asks for more hears that it is over.
    while let Ok(
        Wake::Signal(SIGHUP | SIGUSR2)
        | Wake::Drain(AfterDrain::Wait)
        | Wake::Reload(_)
        | Wake::Upgrade(_)
        | Wake::Upgraded(_)
        | Wake::Failed(_),
    ) = woken.recv()
    {}
}

/// Serves the clients that are there, while another process has those that come.
///
/// # Errors
/// When that process has failed.
fn serve_the_rest(
    workers: Workers,
    live: &Live,
    successor: &Successor,
    woken: &Receiver<Wake>,
) -> Result<(), upgrade::SuccessorFailed> {
    let (pid, grace) = (successor.pid, upgrade::grace(live));
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
            Ok(Wake::Upgraded(_) | Wake::Failed(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    drain(workers, live, woken, order);
    outcome
}

/// Prepares the admin address. With `may_lack` the process serves without it if another process
/// listens there.
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

/// Removes the files of the unix sockets listened on, but of those that another process has.
fn remove_unix_sockets(live: &Live, kept: &[u16]) {
    let there = (0..).zip(live.config.listeners.iter().zip(&live.version.plan.listeners));
    for (index, (listener, plan)) in there {
        use keyway_config::ListenAddr::{Shm, Unix};
        // Those that a reload has ended are gone, and another's by now perhaps.
        if plan.is_ended || kept.contains(&index) {
            continue;
        }
        if let Unix(path) | Shm(path) = &listener.bind {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Descriptors that a worker has beside those of its listeners and links, and the process beside
/// those of its workers (docs/operations.md).
const DESCRIPTORS_OF_WORKER: usize = 4;
const DESCRIPTORS_OF_PROCESS: u64 = 16;

/// Fewer clients than nearly everybody has room for: a limit that was forgotten.
const FEW_CLIENTS: u64 = 4000;

/// Lets the process have as many descriptors as it may: a client is one.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Refused only where the limit is fixed; then the bound is met later
        // and said so.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Says what was started and what to type next. A field has one type in every
/// line that has it, and sizes are numbers of bytes: what is for people is in
/// the message.
fn announce(
    config: &Config,
    plan: &Plan,
    names: &[String],
    (count, count_max): (usize, usize),
    admin: Option<&AdminHandle>,
    file: Option<&Path>,
) {
    let from =
        file.map_or_else(|| "no file: defaults".to_owned(), |file| file.display().to_string());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = from,
        io = driver::name(),
        "keyway is starting"
    );
    for (listener, name) in config.listeners.iter().zip(names) {
        let pool = &config.pools[listener.pool_index];
        let kind = match &pool.kind {
            PoolKindConfig::Store(_) => "embedded store".to_owned(),
            PoolKindConfig::Sharded(set, _) => {
                format!("sharded over {}", counted(set.servers.len(), "server"))
            }
            PoolKindConfig::Memcached(pool, _) => {
                format!("memcached over {}", counted(pool.servers.servers.len(), "server"))
            }
            PoolKindConfig::Cluster(pool, _) => {
                format!("cluster over {}", counted(pool.discovery.seeds.len(), "known server"))
            }
            PoolKindConfig::Replicated(pool, _) => match &pool.source {
                PrimarySource::Servers => {
                    let seeds = counted(pool.discovery.seeds.len(), "known server");
                    format!("replicated over {seeds}")
                }
                PrimarySource::Sentinels { primaries, .. } => {
                    let names = counted(primaries.len(), "name");
                    format!("replicated over {names} that sentinels know")
                }
            },
            PoolKindConfig::Sentinels(set, _) => counted(set.servers.len(), "sentinel"),
            PoolKindConfig::Routed(routed) => {
                let children = counted(routed.pool.children().len(), "other pool");
                format!("{} over {children}", routed.pool.kind())
            }
        };
        let clients = if listener.protocol == Protocol::Redis { "Redis" } else { "memcached" };
        let by = if listener.entrance.tls.is_some() { " by TLS" } else { "" };
        tracing::info!(
            listener = name,
            pool = pool.name,
            kind,
            "listening for {clients} clients{by}"
        );
    }
    for (pool, settings) in plan.pools.iter().zip(&config.pools) {
        if let (PoolKind::Store(store), PoolKindConfig::Store(settings)) =
            (&pool.kind, &settings.kind)
        {
            // As it was written; a share of the machine's memory is rarely round.
            let memory_max = store.config().memory_max;
            let bound = settings.memory_max.map_or_else(|| memory::human(memory_max), size_text);
            let eviction = settings.eviction.name();
            tracing::info!(pool = pool.name, memory_max, eviction, "store of at most {bound}");
        }
    }
    announce_memory(config, count_max);
    tell_of_descriptors(config, count_max);
    if let Some(admin) = admin {
        let addr = admin.local_addr();
        let scheme = if config.server.admin_tls.is_some() { "https" } else { "http" };
        tracing::info!(
            "metrics at {scheme}://{addr}/metrics, health at {scheme}://{addr}/healthz; keyway ctl \
             --admin {scheme}://{addr} status tells more"
        );
    } else if config.server.admin.is_none() {
        tracing::info!("no admin address: no metrics, no health checks, no keyway ctl");
    }
    tracing::info!(workers = count, workers_max = count_max, "ready");
    if let Some(command) = first_command::of(config, names) {
        tracing::info!("try: {command}");
    }
}

/// Says what `[limits]` lets clients and servers hold.
fn announce_memory(config: &Config, workers_max: usize) {
    let bound = config.memory_bound();
    if bound.links > 0 {
        let unsent = bound.link_bytes.saturating_mul(workers_max as u64);
        tracing::info!(
            memory_max = unsent,
            "memory bound of requests not yet sent to servers, all together: {}",
            memory::human(unsent)
        );
    }
    tracing::info!(
        memory_max = bound.session_bytes,
        request_max = config.limits.request_len_max,
        reply_max = config.limits.reply_len_max,
        copies_max = bound.copies,
        "memory bound of each client, besides one request and one reply in the making, of which \
         there are {} copies if they do not pass on as they come: {}",
        bound.copies,
        memory::human(bound.session_bytes)
    );
}

/// Tells where clients will have to wait for file descriptors before they are too many.
fn tell_of_descriptors(config: &Config, workers_max: usize) {
    use rustix::process::{Resource, getrlimit};
    // None: as many as the system has.
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let of_worker = config.memory_bound().links + config.listeners.len() + DESCRIPTORS_OF_WORKER;
    let own = (of_worker * workers_max) as u64 + DESCRIPTORS_OF_PROCESS;
    let (left, wanted) = (limit.saturating_sub(own), u64::from(config.limits.clients_max));
    if left >= wanted {
        return;
    }
    let what = format!(
        "file descriptors for some {left} clients, fewer than clients_max ({wanted}): raise \
         `ulimit -Hn`, which is {limit}, or lower clients_max"
    );
    if left < FEW_CLIENTS {
        tracing::warn!("{what}");
    } else {
        tracing::info!("{what}");
    }
}
