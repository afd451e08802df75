use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyway_load::{Plan, Protocol, Until};
use keyway_scenario::process::free_port;
use keyway_scenario::start::redis_words;
use rustix::process::Signal;

use super::{cpu_of, keyway, shown};
use crate::clock;
use crate::error::Error;
use crate::load::{Dataset, Served, Work, plan};
use crate::options::Options;
use crate::session::Session;
use crate::systems::{Part, System, start, words};

/// Longest time for a server to load or to save its items.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Number of clients of the rows with logs.
const CLIENTS: usize = 50;

/// A server with a log, or without one.
struct Logging {
    name: &'static str,
    is_keyway: bool,
    /// The rule of `fsync`, in the server's own words.
    fsync: Option<&'static str>,
}

/// The servers of the rows with logs. Ratios are those of neighbours, see [`RATIOS`].
const LOGGING: [Logging; 6] = [
    Logging { name: "redis-server", is_keyway: false, fsync: None },
    Logging { name: "redis-server, everysec", is_keyway: false, fsync: Some("everysec") },
    Logging { name: "redis-server, always", is_keyway: false, fsync: Some("always") },
    Logging { name: "keyway store", is_keyway: true, fsync: None },
    Logging { name: "keyway store, 1s", is_keyway: true, fsync: Some("1s") },
    Logging { name: "keyway store, always", is_keyway: true, fsync: Some("always") },
];
/// Which of [`LOGGING`] are compared.
const RATIOS: [(usize, usize); 4] = [(4, 1), (5, 2), (4, 3), (1, 0)];
/// Requests on their way of each client, one for each table.
const DEPTHS: [usize; 2] = [16, 1];

/// Measures how long a server takes to load and to save items, and what a log costs. Returns the
/// text to print.
///
/// # Errors
/// Returns an error if servers do not start or answer.
pub fn measure_persistence(options: &Options) -> Result<String, Error> {
    let session = Session::start(options.programs.clone())?;
    let files = loading(&session, options)?;
    Ok(files + &logging(&session, options)?)
}

/// The seconds that pass and those of the processor for loading, and for saving.
#[derive(Default)]
struct Seconds {
    load: [Vec<f64>; 2],
    save: [Vec<f64>; 2],
}

fn loading(session: &Session, options: &Options) -> Result<String, Error> {
    let directory = folder(session, "items")?;
    let file = directory.join("dump.rdb");
    let first = redis(session, &directory, &[])?;
    first.served.fill(Dataset::strings("itm:", options.items, 64))?;
    ask(&first.served, "SAVE", PATIENCE)?;
    end(first)?;
    let names = ["redis-server", "keyway store"];
    let mut all = [Seconds::default(), Seconds::default()];
    for round in 0..options.rounds {
        for at in [round % 2, (round + 1) % 2] {
            // Each has a copy: saving replaces it.
            let own = folder(session, &format!("items-{}", names[at].replace(' ', "-")))?;
            std::fs::copy(&file, own.join("dump.rdb")).map_err(Error::io("a copy of the file"))?;
            let begun = clock::now();
            let system = match at {
                0 => redis(session, &own, &[])?,
                _ => store(
                    session,
                    &format!(
                        "snapshot = {{ file = {:?}, every = \"off\", \
                    on_shutdown = false }}\n",
                        own.join("dump.rdb").display().to_string()
                    ),
                )?,
            };
            await_items(&system, options.items)?;
            note(&mut all[at].load, clock::now() - begun, cpu_of(&[system.served.pid]));
            let (begun, before) = (clock::now(), cpu_of(&[system.served.pid]));
            ask(&system.served, "SAVE", PATIENCE)?;
            let used = cpu_of(&[system.served.pid]).saturating_sub(before);
            note(&mut all[at].save, clock::now() - begun, used);
            end(system)?;
        }
    }
    let mut text = format!(
        "{} items of a 16-byte key and a 64-byte value, in the file of a redis-server; {} rounds\n\n\
         | system | loading, s | processor, s | saving, s | processor, s |\n\
         | --- | ---: | ---: | ---: | ---: |\n",
        options.items, options.rounds
    );
    for (name, Seconds { load, save }) in names.iter().zip(&all) {
        let cells: Vec<String> = load.iter().chain(save).map(|values| shown(values, 2)).collect();
        text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    Ok(text + "\n")
}

fn note(into: &mut [Vec<f64>; 2], wall: Duration, cpu: Duration) {
    into[0].push(wall.as_secs_f64());
    into[1].push(cpu.as_secs_f64());
}

fn logging(session: &Session, options: &Options) -> Result<String, Error> {
    let mut text = String::new();
    for depth in DEPTHS {
        let systems: Vec<System> =
            LOGGING.iter().map(|it| it.start(session)).collect::<Result<_, _>>()?;
        systems.iter().try_for_each(|system| system.served.fill(Dataset::SMALL))?;
        let mut rates = vec![[const { Vec::new() }; 2]; systems.len()];
        for round in 0..options.rounds {
            for nth in 0..systems.len() {
                let at = (round + nth) % systems.len();
                let figures = sets(&systems[at].served, depth, options)?;
                rates[at].iter_mut().zip(figures).for_each(|(values, figure)| values.push(figure));
            }
        }
        text.push_str(&table(depth, &rates));
        systems.into_iter().try_for_each(end)?;
    }
    Ok(text)
}

/// SETs per second, and per second of the server's processor time, in thousands.
fn sets(served: &Served, depth: usize, options: &Options) -> Result<[f64; 2], Error> {
    let window = options.window();
    let plan =
        Plan { warm_up: window.warm_up, ..plan(CLIENTS, depth, Until::Time(window.at_least)) };
    let outcome = served.load_all(&Work::Set.on(Dataset::SMALL), &plan)?;
    let cpu = outcome.processes.first().map_or(0.0, |usage| usage.cpu_seconds);
    let requests = outcome.totals.requests as f64 / 1000.0;
    Ok([requests / outcome.seconds, requests / cpu])
}

fn table(depth: usize, rates: &[[Vec<f64>; 2]]) -> String {
    let mut text = format!(
        "SET of 100 bytes, {CLIENTS} clients, depth {depth}, thousands\n\n\
         | system | per second | per CPU-second |\n| --- | ---: | ---: |\n"
    );
    for (logging, values) in LOGGING.iter().zip(rates) {
        let [wall, cpu] = values.each_ref().map(|values| shown(values, 1));
        text.push_str(&format!("| {} | {wall} | {cpu} |\n", logging.name));
    }
    text.push_str("\n| ratio | per second | per CPU-second |\n| --- | ---: | ---: |\n");
    for (one, other) in RATIOS {
        let [wall, cpu] = [0, 1].map(|of| {
            let pairs = rates[one][of].iter().zip(&rates[other][of]);
            let ratios: Vec<f64> = pairs.map(|(one, other)| one / other).collect();
            shown(&ratios, 2)
        });
        let (one, other) = (LOGGING[one].name, LOGGING[other].name);
        text.push_str(&format!("| {one} / {other} | {wall} | {cpu} |\n"));
    }
    text + "\n"
}

impl Logging {
    fn start(&self, session: &Session) -> Result<System, Error> {
        let tag = self.name.replace([' ', ','], "-");
        let directory = folder(session, &format!("log-{tag}-{}", free_port()?))?;
        match (self.is_keyway, self.fsync) {
            (false, None) => redis(session, &directory, &[]),
            (false, Some(rule)) => {
                redis(session, &directory, &["--appendonly", "yes", "--appendfsync", rule])
            }
            (true, None) => store(session, ""),
            (true, Some(rule)) => {
                let dir = directory.display().to_string();
                store(session, &format!("log = {{ dir = {dir:?}, fsync = {rule:?} }}\n"))
            }
        }
    }
}

/// A directory of its own, which is made.
fn folder(session: &Session, name: &str) -> Result<PathBuf, Error> {
    let path = session.scratch().directory().join(name);
    std::fs::create_dir_all(&path).map_err(Error::io(path.display().to_string()))?;
    Ok(path)
}

/// A redis-server with more arguments, which come behind those that turn persistence off.
fn redis(session: &Session, directory: &Path, more: &[&str]) -> Result<System, Error> {
    let port = free_port()?;
    let program = session.programs.redis_server.display().to_string();
    let line = [vec![program], redis_words(port, directory), words(more)].concat();
    let process = start(session.scratch(), "redis-server", &line, port)?;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let served = Served { addr, protocol: Protocol::Resp2, pid: process.pid(), tls: None };
    let (name, part, side) = ("redis-server".into(), Part::Judge, crate::plan::Side::Store);
    Ok(System { name, part, side, served, process: Some(process) })
}

/// Keyway with a store of one worker and more settings of its pool.
fn store(session: &Session, more: &str) -> Result<System, Error> {
    let port = free_port()?;
    let text = crate::systems::keyway_store(port, free_port()?);
    keyway(session, port, &format!("{text}{more}"))
}

/// Waits until a server that loads a file has all items.
fn await_items(system: &System, items: u32) -> Result<(), Error> {
    let expected = format!(":{items}");
    let is_there = || Ok(ask(&system.served, "DBSIZE", PATIENCE).is_ok_and(|it| it == expected));
    match clock::wait_until(PATIENCE, is_there)? {
        true => Ok(()),
        false => Err(Error::Load(format!("{} does not load its file", system.name))),
    }
}

/// Sends a command on a connection of its own; the line of the reply.
fn ask(served: &Served, command: &str, patience: Duration) -> Result<String, Error> {
    let heard = || -> std::io::Result<String> {
        let mut client = TcpStream::connect(served.addr)?;
        client.set_read_timeout(Some(patience))?;
        client.write_all(format!("{command}\r\n").as_bytes())?;
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") && client.read(&mut byte)? > 0 {
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    };
    let line = heard().map_err(Error::io(command))?;
    match line.starts_with('-') || line.is_empty() {
        true => Err(Error::Answers(format!("{command}: {line}"))),
        false => Ok(line),
    }
}

/// Ends a server without another snapshot.
fn end(mut system: System) -> Result<(), Error> {
    if let Some(process) = &mut system.process {
        process.end_with(Signal::KILL)?;
    }
    Ok(())
}
