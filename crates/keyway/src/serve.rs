//! How a process comes up and goes down.

use crate::admin::{Levers, Process};
use crate::cli::{LogFormat, counted};
use crate::plan::Sources;
use crate::reload::{Live, Reload, Wake};
use crate::workers::{RETRY_AFTER, SAMPLE_EVERY, Workers};
use crate::{driver, log, memory, peers, plan};
use anyhow::{Context, Result, anyhow};
use keyway_base::{Clock, Time};
use keyway_config::{Config, ListenerConfig, PoolKindConfig, Protocol, size_text};
use keyway_control::{Access, Admin, AdminHandle, AdminOptions, AfterDrain};
use keyway_net::Listener;
use keyway_tls::ClientCertificates;
use keyway_worker::{Plan, PoolKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Serves until told to stop.
pub fn serve(
    mut config: Config,
    (format, io): (Option<LogFormat>, Option<driver::Wanted>),
    file: Option<&Path>,
) -> Result<ExitCode> {
    let log = log::start(&config.server.log, format);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    config.warnings.clear();
    raise_descriptor_limit();
    let driver = driver::choose(io.map_or(config.server.io, Into::into))?;
    let (wake, woken) = channel();
    watch_signals(wake.clone())?;
    let clock = wall_clock();
    // What an attacker cannot guess: which keys share a bucket of the store.
    let seed = RandomState::new().hash_one(clock.unix_micros);
    let listeners =
        plan::bind(&config).map_err(|errors| anyhow!("{}", errors.join("\nkeyway: ")))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (count, count_max) = config.server.workers.bounds(cores as u16);
    let bounds = (usize::from(count), usize::from(count_max));
    let topology = config.topology(keyway_topology::Epoch(1));
    let registry = plan::registry(&topology, bounds.1, clock);
    let addresses: Vec<_> = listeners.iter().map(Listener::local_addr).collect();
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
    let levers = Levers { log, wake: wake.clone(), reload: Reload::new(wake) };
    let process = Arc::new(Process::new(Arc::clone(&plan), Arc::clone(&registry), levers));
    let access = access(&config);
    let admin = start_admin(&config, &process, &access)?;
    let names: Vec<_> = plan.listeners.iter().map(|listener| listener.name.clone()).collect();
    let workers = Workers::start(Arc::clone(&plan), registry, listeners, bounds, (driver, seed))?;
    peers::watch(&plan, None).context("cannot start a thread")?;
    passwords.start_for(&plan).context("cannot start a thread")?;
    announce(&config, &plan, &names, bounds, admin.as_ref(), file);
    let path = file.map(Path::to_owned);
    let mut live = Live {
        path,
        file: config.clone(),
        config,
        version,
        addresses,
        tally,
        clock,
        seed,
        passwords,
        access,
    };
    run(workers, &process, &mut live, &woken);
    // Nobody waits for an answer from here any more.
    drop(woken);
    drop(admin);
    remove_unix_sockets(&live.file);
    warn_of_cut_off(&plan);
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
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
        Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot watch for signals")?;
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

/// Waits for the order to stop, and looks after the workers meanwhile.
#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
fn run(mut workers: Workers, process: &Process, live: &mut Live, woken: &Receiver<Wake>) {
    let mut sampled = Instant::now();
    let mut then = AfterDrain::Exit;
    loop {
        match woken.recv_timeout(SAMPLE_EVERY) {
            Ok(Wake::Signal(SIGHUP)) => drop(live.reload(&mut workers, process)),
            Ok(Wake::Reload(tell)) => {
                // Who has asked may have given up.
                let _ = tell.send(live.reload(&mut workers, process));
            }
            Ok(Wake::Signal(signal)) => {
                let name = if signal == SIGTERM { "SIGTERM" } else { "SIGINT" };
                tracing::info!("{name}: draining: no new clients, requests in flight are answered");
                break;
            }
            Ok(Wake::Drain(after)) => {
                tracing::info!(
                    "draining on an operator's word: no new clients, requests in flight are \
                     answered"
                );
                then = after;
                break;
            }
            Err(RecvTimeoutError::Timeout) => {
                let elapsed = sampled.elapsed();
                sampled = Instant::now();
                process.note_passing(elapsed);
                match workers.sample(elapsed) {
                    Ok(true) => {
                        tracing::info!(workers = workers.len(), "all workers were busy: added one");
                    }
                    Ok(false) => {}
                    // Those there serve on: one fewer is no reason to end.
                    Err(error) => tracing::warn!(
                        workers = workers.len(),
                        "all workers are busy and another cannot be started; trying again in {} \
                         s: {error:#}",
                        RETRY_AFTER.as_secs()
                    ),
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    process.set_draining();
    workers.drain();
    if then == AfterDrain::Wait {
        tracing::info!("drained: waiting for SIGTERM, or for an operator to have it end");
        // Those that came meanwhile are first. Who asks for a reload hears that it is over.
        while let Ok(Wake::Signal(SIGHUP) | Wake::Drain(AfterDrain::Wait) | Wake::Reload(_)) =
            woken.recv()
        {}
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

fn start_admin(
    config: &Config,
    process: &Arc<Process>,
    access: &Access,
) -> Result<Option<AdminHandle>> {
    let Some(addr) = &config.server.admin else { return Ok(None) };
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
    let admin = Admin::start_with(options, addr, state).map_err(|error| {
        anyhow!(
            "{error}; `admin` in `[server]` of a configuration file sets another, or \"off\"; \
             without a file, `--bind HOST:PORT` serves without it"
        )
    })?;
    Ok(Some(admin))
}

/// Removes the files of the unix sockets listened on.
fn remove_unix_sockets(config: &Config) {
    for listener in &config.listeners {
        use keyway_config::ListenAddr::{Shm, Unix};
        if let Unix(path) | Shm(path) = &listener.bind {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

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
            PoolKindConfig::Sharded(sharded) => {
                let servers = match &sharded.pool.cluster {
                    Some(found) if found.sentinels.is_some() => {
                        format!("{} that sentinels know", counted(found.primaries.len(), "name"))
                    }
                    Some(found) => counted(found.seeds.len(), "known server"),
                    None => counted(sharded.pool.servers.len(), "server"),
                };
                format!("{} over {servers}", sharded.pool.kind())
            }
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
    if let Some(admin) = admin {
        let addr = admin.local_addr();
        let scheme = if config.server.admin_tls.is_some() { "https" } else { "http" };
        tracing::info!(
            "metrics at {scheme}://{addr}/metrics, health at {scheme}://{addr}/healthz; keyway ctl \
             --admin {scheme}://{addr} status tells more"
        );
    }
    tracing::info!(workers = count, workers_max = count_max, "ready");
    let mut listeners = config.listeners.iter().zip(names);
    // Nobody types a header of the PROXY protocol.
    let first = listeners.find(|(listener, _)| listener.entrance.proxies.is_none());
    if let Some(command) = first.and_then(|(listener, name)| command_for(listener, name)) {
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
        "memory bound of each client, besides one request and one reply in the making: {}",
        memory::human(bound.session_bytes)
    );
}

fn command_for(listener: &ListenerConfig, name: &str) -> Option<String> {
    let command = next_command(listener.protocol, name)?;
    match (&listener.entrance.tls, command.strip_prefix("redis-cli ")) {
        (None, _) => Some(command),
        (Some(_), Some(rest)) => Some(format!("redis-cli --tls --cacert CA.pem {rest}")),
        (Some(_), None) => None,
    }
}

fn next_command(protocol: Protocol, listener: &str) -> Option<String> {
    if protocol != Protocol::Redis {
        return memcached_command(listener);
    }
    // Who says no hello is served over the socket of `shm://` as well.
    if let Some(path) = listener.strip_prefix("unix://").or(listener.strip_prefix("shm://")) {
        return Some(format!("redis-cli -s {path} ping"));
    }
    let (host, port) = listener.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(match host {
        "127.0.0.1" | "0.0.0.0" => format!("redis-cli -p {port} set greeting hello"),
        host => format!("redis-cli -h {host} -p {port} set greeting hello"),
    })
}

fn memcached_command(listener: &str) -> Option<String> {
    let at = match listener.strip_prefix("unix://") {
        Some(path) => format!("-U {path}"),
        None => {
            let (host, port) = listener.rsplit_once(':')?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            format!("{} {port}", if host == "0.0.0.0" { "127.0.0.1" } else { host })
        }
    };
    Some(format!(r"printf 'set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n' | nc {at}"))
}
