//! Measures resident memory: after the start, after deep pipelines, and for each idle connection.
//! Each is measured on a fresh process, separate from the timing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use keyway_load::Until;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::clock;
use crate::error::Error;
use crate::load::{Dataset, Work, plan};
use crate::plan::Side;
use crate::systems::{Kind, Site, System};

/// Number of idle connections of the table, if the descriptor limit allows them.
const IDLE_CONNECTIONS: usize = 10_000;
/// Number of descriptors that a process needs besides its connections.
const OTHER_DESCRIPTORS: u64 = 200;
/// How long a system has to free memory.
const SETTLE: Duration = Duration::from_secs(2);
/// A system that answers nothing for this long counts as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long the deep pipelines last.
const BURST: Duration = Duration::from_millis(1500);

/// The memory of one system.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes after it listens and has settled.
    pub after_start: u64,
    /// Bytes after 50 clients x depth 75 (SET and GET 1:1) for 1.5 s, while the clients are
    /// connected. `None` for a store, in which the data grows.
    pub after_deep: Option<u64>,
    /// Bytes 2 s after those clients have left.
    pub later: Option<u64>,
    /// Number of connections of the next three figures.
    pub connections: usize,
    /// Bytes for a connection that has not sent anything.
    pub per_fresh_connection: f64,
    /// Bytes for a connection after one GET on each, one after the other.
    pub per_used_connection: f64,
    /// Bytes for a connection after one more GET on each, where all wait before the first is read.
    /// This is the worst case.
    pub per_connection_used_at_once: f64,
}

/// Measures fresh processes of `kind`.
///
/// # Errors
/// Returns an error if the process does not start or answer.
pub fn measure_memory(site: &Site<'_>, kind: Kind) -> Result<Memory, Error> {
    let (after_start, after_deep, later) = deep_pipelines(site, kind)?;
    let (connections, [fresh, used, used_at_once]) = idle_connections(site, kind)?;
    Ok(Memory {
        after_start,
        after_deep,
        later,
        connections,
        per_fresh_connection: fresh,
        per_used_connection: used,
        per_connection_used_at_once: used_at_once,
    })
}

fn deep_pipelines(site: &Site<'_>, kind: Kind) -> Result<(u64, Option<u64>, Option<u64>), Error> {
    let system = site.start(kind)?;
    clock::pause(SETTLE / 4)?;
    let after_start = system.resident_bytes()?;
    if kind.side() == Side::Store {
        return Ok((after_start, None, None));
    }
    let plan = plan(50, 75, Until::Time(BURST));
    let outcome = system.served.load_all(&Work::Mixed.on(Dataset::SMALL), &plan);
    // This is read while the clients are still connected.
    let after_deep = outcome?.processes.first().map(|usage| usage.resident_bytes);
    clock::pause(SETTLE)?;
    Ok((after_start, after_deep, Some(system.resident_bytes()?)))
}

/// Returns the number of connections, and the bytes for each: fresh, used in turn, used at once.
fn idle_connections(site: &Site<'_>, kind: Kind) -> Result<(usize, [f64; 3]), Error> {
    let count = IDLE_CONNECTIONS.min(raise_descriptor_limit() as usize);
    let system = site.start(kind)?;
    clock::pause(SETTLE / 4)?;
    let before = system.resident_bytes()?;
    let per_connection = |system: &System| {
        let bytes = system.resident_bytes()?.saturating_sub(before);
        Ok::<f64, Error>(bytes as f64 / count as f64)
    };
    let failed = Error::io("10000 connections");
    let connect = |_| TcpStream::connect(system.served.addr);
    let mut clients: Vec<TcpStream> =
        (0..count).map(connect).collect::<Result<_, _>>().map_err(failed)?;
    wait_until_accepted(&system, count)?;
    let fresh = per_connection(&system)?;
    let failed = || Error::io("a GET of each connection");
    for (index, client) in clients.iter_mut().enumerate() {
        ask(client, index).and_then(|()| hear(client)).map_err(failed())?;
    }
    let used = per_connection(&system)?;
    let signal = |signal| system.process.iter().for_each(|process| process.signal(signal));
    signal(Signal::STOP);
    let asked = clients.iter_mut().enumerate().try_for_each(|(index, one)| ask(one, index));
    signal(Signal::CONT);
    asked.and_then(|()| clients.iter_mut().try_for_each(hear)).map_err(failed())?;
    let used_at_once = per_connection(&system)?;
    Ok((count, [fresh, used, used_at_once]))
}

fn ask(client: &mut TcpStream, index: usize) -> std::io::Result<()> {
    client.set_read_timeout(Some(SILENCE_MAX))?;
    client.write_all(format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{index:012}\r\n").as_bytes())
}

/// Reads a reply: no value, or a value of 100 bytes.
fn hear(client: &mut TcpStream) -> std::io::Result<()> {
    let (mut reply, mut len) = ([0; 256], 0);
    loop {
        match client.read(&mut reply[len..])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => len += read,
        }
        if &reply[..len] == b"$-1\r\n" || len == "$100\r\n".len() + 100 + "\r\n".len() {
            return Ok(());
        }
    }
}

/// Waits until the system has accepted the connections. For the client a connection is open before
/// that.
fn wait_until_accepted(system: &System, count: usize) -> Result<(), Error> {
    let directory = format!("/proc/{}/fd", system.served.pid);
    let accepted = clock::wait_until(Duration::from_secs(20), || {
        let entries = std::fs::read_dir(&directory).map_err(Error::io(&directory))?;
        Ok(entries.count() > count)
    })?;
    if accepted {
        return Ok(());
    }
    Err(Error::Load(format!("{} does not accept {count} connections", system.name)))
}

/// Allows this process, and those that it starts from now on, as many descriptors as the hard
/// limit. Returns the number of connections for which that is enough.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.map_or(u64::MAX, |descriptors| descriptors.saturating_sub(OTHER_DESCRIPTORS))
}
