//! The cost of a log and of a replica to a server, and the delay of the replica.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyway_load::{Plan, Until};
use keyway_scenario::ports::free_port;

use super::{PATIENCE, end, folder, redis, store, told};
use crate::clock;
use crate::error::Error;
use crate::features::shown;
use crate::load::{Dataset, Work, plan};
use crate::options::Options;
use crate::session::Session;
use crate::systems::System;

/// Pause between two writes whose way to a replica is timed.
const PROBE_PAUSE: Duration = Duration::from_millis(5);
/// Number of clients.
const CLIENTS: usize = 50;

/// The follower of a server's writes.
#[derive(Clone, Copy)]
enum Follower {
    Nothing,
    /// A log with a rule of `fsync`, in the server's own words.
    Log(&'static str),
    /// A replica of the same kind.
    Replica,
}

/// A server whose writes are followed, or not.
struct Followed {
    name: &'static str,
    is_keyway: bool,
    by: Follower,
}

impl Followed {
    const fn new(name: &'static str, is_keyway: bool, by: Follower) -> Followed {
        Followed { name, is_keyway, by }
    }
}

/// A server and its replica, if it has one.
struct Running {
    primary: System,
    replica: Option<System>,
}

/// The servers of the rows. Ratios are those of neighbours, see [`RATIOS`].
const FOLLOWED: [Followed; 8] = [
    Followed::new("redis-server", false, Follower::Nothing),
    Followed::new("redis-server, everysec", false, Follower::Log("everysec")),
    Followed::new("redis-server, always", false, Follower::Log("always")),
    Followed::new("redis-server, a replica", false, Follower::Replica),
    Followed::new("keyway store", true, Follower::Nothing),
    Followed::new("keyway store, 1s", true, Follower::Log("1s")),
    Followed::new("keyway store, always", true, Follower::Log("always")),
    Followed::new("keyway store, a replica", true, Follower::Replica),
];
/// Which of [`FOLLOWED`] are compared.
const RATIOS: [(usize, usize); 6] = [(5, 1), (6, 2), (5, 4), (7, 4), (1, 0), (3, 0)];
/// Requests on their way of each client, one for each table.
const DEPTHS: [usize; 2] = [16, 1];

pub(super) fn measure(session: &Session, options: &Options) -> Result<String, Error> {
    let mut text = String::new();
    for depth in DEPTHS {
        let systems: Vec<Running> =
            FOLLOWED.iter().map(|it| it.start(session)).collect::<Result<_, _>>()?;
        systems.iter().try_for_each(|running| running.primary.served.fill(Dataset::SMALL))?;
        let mut lags = vec![Vec::new(); systems.len()];
        let mut rates = vec![[const { Vec::new() }; 2]; systems.len()];
        for round in 0..options.rounds {
            for nth in 0..systems.len() {
                let at = (round + nth) % systems.len();
                let figures = sets(&systems[at], depth, options, &mut lags[at])?;
                rates[at].iter_mut().zip(figures).for_each(|(values, figure)| values.push(figure));
            }
        }
        text.push_str(&table(depth, &rates));
        text.push_str(&lag_table(depth, &lags));
        for Running { primary, replica } in systems {
            end(primary)?;
            replica.map_or(Ok(()), end)?;
        }
    }
    Ok(text)
}

/// SETs per second, and per second of the server's processor time, in thousands. If it has a
/// replica, the times are noted after which that has a write.
fn sets(
    running: &Running,
    depth: usize,
    options: &Options,
    lags: &mut Vec<f64>,
) -> Result<[f64; 2], Error> {
    let window = options.window();
    let plan =
        Plan { warm_up: window.warm_up, ..plan(CLIENTS, depth, Until::Time(window.at_least)) };
    let served = &running.primary.served;
    let replica = running.replica.as_ref().map(|replica| replica.served.addr);
    let is_over = &AtomicBool::new(false);
    let (outcome, seen) = std::thread::scope(|scope| {
        let probe =
            replica.map(|replica| scope.spawn(move || probe(served.addr, replica, is_over)));
        let outcome = served.load_all(&Work::Set.on(Dataset::SMALL), &plan);
        is_over.store(true, Ordering::Relaxed);
        (outcome, probe.and_then(|probe| probe.join().ok()))
    });
    let outcome = outcome?;
    if let Some(seen) = seen {
        lags.extend(seen.map_err(Error::io("a look at a replica"))?);
    }
    let cpu = outcome.processes.first().map_or(0.0, |usage| usage.cpu_seconds);
    let requests = outcome.totals.requests as f64 / 1000.0;
    Ok([requests / outcome.seconds, requests / cpu])
}

/// Writes a number to a primary again and again. Returns the milliseconds between each reply and
/// the moment at which the replica had the number.
fn probe(primary: SocketAddr, replica: SocketAddr, over: &AtomicBool) -> std::io::Result<Vec<f64>> {
    let (mut to, mut from) = (TcpStream::connect(primary)?, TcpStream::connect(replica)?);
    let mut lags = Vec::new();
    for number in 0u64.. {
        let text = number.to_string();
        exchange(&mut to, &format!("SET measured-lag {text}\r\n"))?;
        let written = clock::now();
        while exchange(&mut from, "GETRANGE measured-lag 0 -1\r\n")? != text {
            if over.load(Ordering::Relaxed) {
                return Ok(lags);
            }
        }
        lags.push((clock::now() - written).as_secs_f64() * 1000.0);
        if over.load(Ordering::Relaxed) || clock::pause(PROBE_PAUSE).is_err() {
            break;
        }
    }
    Ok(lags)
}

/// Sends a command; the last line of its reply.
fn exchange(stream: &mut TcpStream, command: &str) -> std::io::Result<String> {
    stream.write_all(command.as_bytes())?;
    let mut reply = Vec::new();
    let mut byte = [0];
    let lines = if command.starts_with("SET") { 1 } else { 2 };
    while reply.iter().filter(|&&byte| byte == b'\n').count() < lines {
        stream.read_exact(&mut byte)?;
        reply.push(byte[0]);
    }
    let reply = String::from_utf8_lossy(&reply).into_owned();
    Ok(reply.lines().last().unwrap_or_default().to_owned())
}

fn lag_table(depth: usize, lags: &[Vec<f64>]) -> String {
    let mut text = format!(
        "Time after the reply until a replica has a write, beside the same clients, depth {depth}, \
         ms\n\n| system | median | p99 | writes |\n| --- | ---: | ---: | ---: |\n"
    );
    for (followed, lags) in FOLLOWED.iter().zip(lags).filter(|(_, lags)| !lags.is_empty()) {
        let mut sorted = lags.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| sorted[(share * (sorted.len() - 1) as f64) as usize];
        text.push_str(&format!(
            "| {} | {:.2} | {:.2} | {} |\n",
            followed.name,
            at(0.5),
            at(0.99),
            sorted.len()
        ));
    }
    text + "\n"
}

fn table(depth: usize, rates: &[[Vec<f64>; 2]]) -> String {
    let mut text = format!(
        "SET of 100 bytes, {CLIENTS} clients, depth {depth}, thousands\n\n\
         | system | per second | per CPU-second |\n| --- | ---: | ---: |\n"
    );
    for (followed, values) in FOLLOWED.iter().zip(rates) {
        let [wall, cpu] = values.each_ref().map(|values| shown(values, 1));
        text.push_str(&format!("| {} | {wall} | {cpu} |\n", followed.name));
    }
    text.push_str("\n| ratio | per second | per CPU-second |\n| --- | ---: | ---: |\n");
    for (one, other) in RATIOS {
        let [wall, cpu] = [0, 1].map(|of| {
            let pairs = rates[one][of].iter().zip(&rates[other][of]);
            let ratios: Vec<f64> = pairs.map(|(one, other)| one / other).collect();
            shown(&ratios, 2)
        });
        let (one, other) = (FOLLOWED[one].name, FOLLOWED[other].name);
        text.push_str(&format!("| {one} / {other} | {wall} | {cpu} |\n"));
    }
    text + "\n"
}

impl Followed {
    fn start(&self, session: &Session) -> Result<Running, Error> {
        let tag = self.name.replace([' ', ','], "-");
        let directory = folder(session, &format!("followed-{tag}-{}", free_port()?))?;
        let primary = match (self.is_keyway, self.by) {
            (false, Follower::Log(rule)) => {
                redis(session, &directory, &["--appendonly", "yes", "--appendfsync", rule])?
            }
            (false, _) => redis(session, &directory, &[])?,
            (true, Follower::Log(rule)) => {
                let dir = directory.display().to_string();
                store(session, &format!("log = {{ dir = {dir:?}, fsync = {rule:?} }}\n"))?
            }
            (true, _) => store(session, "")?,
        };
        let replica = match (self.is_keyway, self.by) {
            (_, Follower::Nothing | Follower::Log(_)) => None,
            (false, Follower::Replica) => {
                let directory = folder(session, &format!("replica-{tag}-{}", free_port()?))?;
                let port = primary.served.addr.port().to_string();
                Some(redis(session, &directory, &["--replicaof", "127.0.0.1", &port])?)
            }
            (true, Follower::Replica) => {
                let more = format!("replica_of = \"redis://{}\"\n", primary.served.addr);
                Some(store(session, &more)?)
            }
        };
        if let Some(replica) = &replica {
            await_link(replica)?;
        }
        Ok(Running { primary, replica })
    }
}

fn await_link(replica: &System) -> Result<(), Error> {
    let is_up = || Ok(told(&replica.served, "INFO replication", "master_link_status")? == "up");
    match clock::wait_until(PATIENCE, is_up)? {
        true => Ok(()),
        false => Err(Error::Load(format!("{} does not follow its primary", replica.name))),
    }
}
