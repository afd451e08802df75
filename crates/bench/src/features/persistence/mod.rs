//! The cost of data that survives the process: files, logs and replicas.

mod files;
mod followed;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyway_load::Protocol;
use keyway_scenario::ports::free_port;
use keyway_scenario::start::redis_words;
use rustix::process::Signal;

use super::keyway;
use crate::error::Error;
use crate::load::Served;
use crate::options::Options;
use crate::session::Session;
use crate::systems::{Part, System, start, words};

/// Longest time for a server to load or to save its items.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Measures how long a server takes to load and to save items, what clients notice of it, and what
/// a log or a replica costs. Returns the text to print.
///
/// # Errors
/// Returns an error if servers do not start or answer.
pub fn measure_persistence(options: &Options) -> Result<String, Error> {
    let session = Session::start(options.programs.clone())?;
    let files = files::measure(&session, options)?;
    Ok(files + &followed::measure(&session, options)?)
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

/// A line of a server's INFO.
fn told(served: &Served, command: &str, name: &str) -> Result<String, Error> {
    let heard = || -> std::io::Result<String> {
        let mut client = TcpStream::connect(served.addr)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        let mut text = String::new();
        client.read_to_string(&mut text)?;
        Ok(text)
    };
    let text = heard().map_err(Error::io(command))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|line| line.trim().to_owned())
        .ok_or_else(|| Error::Answers(format!("{command} does not tell {name}")))
}

/// Ends a server without another snapshot.
fn end(mut system: System) -> Result<(), Error> {
    if let Some(process) = &mut system.process {
        process.end_with(Signal::KILL)?;
    }
    Ok(())
}
