//! The control node that is measured, and the documents that it gets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use keyway_load::cpu_time;
use keyway_scenario::ports::free_port;
use keyway_scenario::process::{Process, Scratch};
use keyway_scenario::start::redis_words;
use serde_json::{Value, json};

use crate::clock::wait_until;
use crate::error::Error;
use crate::systems::{Programs, start, words};

/// The name of the cluster.
pub const CLUSTER: &str = "bench";
/// The secret of the bus.
pub const TOKEN: &str = "a token of this run";
/// The pool whose primary control decides.
pub const GROUP: &str = "decided";
/// Servers of all sharded pools.
pub const SERVERS: usize = POOLS * SERVERS_PER_POOL;

const POOLS: usize = 16;
const SERVERS_PER_POOL: usize = 64;
/// Connections that a node of the bus takes by default, and those of this run besides members.
const PEERS_DEFAULT: usize = 1024;
const PEERS_MORE: usize = 64;
/// Longest time for an answer of control, and for it to lead.
const PATIENCE: Duration = Duration::from_secs(20);

/// The addresses that a member needs.
pub struct Site {
    /// The URL of control's bus.
    pub url: String,
    /// The addresses of the group's servers, if there is a group: the primary, then its replica.
    pub group: Option<[String; 2]>,
}

/// A connection to control with the request that goes over it.
pub struct Asked {
    stream: TcpStream,
    request: String,
}

/// A control node over files, and a group of two redis-servers that it watches.
pub struct Control {
    process: Process,
    redis: Vec<Process>,
    admin: SocketAddr,
    bus: u16,
    group: Option<[String; 2]>,
    revision: u64,
    /// It is the last field, so that it is removed when nothing writes there any more.
    _scratch: Scratch,
}

/// Returns the names of all pools of the document.
pub fn pools() -> Vec<String> {
    (0..POOLS).map(|pool| format!("pool-{pool:02}")).chain([GROUP.to_owned()]).collect()
}

/// Returns the sharded pools of a document. Two numbers give two documents of one length.
pub fn document(number: u64) -> String {
    let mut text = String::new();
    for pool in 0..POOLS {
        let server = |nth| format!("\"10.1.{pool}.{nth}:6379:1 shard-{pool:02}-{nth:03}\"");
        let servers: Vec<String> = (0..SERVERS_PER_POOL).map(server).collect();
        let timeout = 1000 + number % 1000;
        text += &format!(
            "[pool.pool-{pool:02}]\nkind = \"sharded\"\ntimeout = \"{timeout}ms\"\nservers = [\n  \
             {}\n]\n\n",
            servers.join(",\n  ")
        );
    }
    text
}

/// Returns each port with that of the primary.
fn pairs(ports: Option<[u16; 2]>) -> impl Iterator<Item = (u16, u16)> {
    ports.into_iter().flat_map(|[primary, replica]| [(primary, primary), (replica, primary)])
}

impl Control {
    /// Starts the group and control, and waits until control leads. Its bus has room for so many
    /// members.
    ///
    /// # Errors
    /// Returns an error if a program is missing, does not start, or does not lead in time.
    pub fn start(programs: &Programs, members: usize, has_group: bool) -> Result<Control, Error> {
        let scratch = Scratch::new(&programs.guard)?;
        let ports = if has_group { Some([free_port()?, free_port()?]) } else { None };
        let mut redis = Vec::new();
        for (nth, (port, primary)) in pairs(ports).enumerate() {
            let program = programs.redis_server.display().to_string();
            let replica = ["--replicaof".to_owned(), format!("127.0.0.1 {primary}")];
            let more = if nth == 0 { &[][..] } else { &replica[..] };
            let line = [&[program][..], &redis_words(port, scratch.directory())[..], more].concat();
            redis.push(start(&scratch, "redis-server", &line, port)?);
        }
        let (admin, bus) = (free_port()?, free_port()?);
        scratch.write("token", TOKEN)?;
        let directory = scratch.directory().display();
        let text = format!(
            "cluster = \"{CLUSTER}\"\nadmin = \"127.0.0.1:{admin}\"\n\n[coordinator]\nkind = \
             \"files\"\ndir = \"{directory}/coordinator\"\n\n[bus]\nid = \"z1.control.0.1\"\nlisten \
             = [\"tcp://127.0.0.1:{bus}\"]\ntoken_files = [\"{directory}/token\"]\npeers_max = \
             {}\n",
            members.max(PEERS_DEFAULT) + PEERS_MORE
        );
        let file = scratch.write("control.toml", &text)?;
        let program = programs.keyway.display().to_string();
        let line = words(&[&program, "control", &file.display().to_string()]);
        let process = start(&scratch, "keyway control", &line, admin)?;
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, admin));
        let group = ports.map(|ports| ports.map(|port| format!("127.0.0.1:{port}")));
        let mut control =
            Control { process, redis, admin, bus, group, revision: 0, _scratch: scratch };
        let leads = wait_until(PATIENCE, || {
            control.check()?;
            Ok(control.fleet()?["leads"] == true)
        })?;
        match leads {
            true => Ok(control),
            false => Err(Error::Answers("keyway control does not lead".into())),
        }
    }

    /// Returns the port of its bus.
    pub fn bus_port(&self) -> u16 {
        self.bus
    }

    /// Returns the addresses that members need.
    pub fn site(&self) -> Site {
        Site { url: format!("tcp://127.0.0.1:{}", self.bus), group: self.group.clone() }
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the processor time that it has used so far.
    ///
    /// # Errors
    /// Returns [`Error::Ended`] if the system does not tell it.
    pub fn cpu(&self) -> Result<Duration, Error> {
        cpu_time(self.pid()).ok_or_else(|| Error::Ended {
            program: "keyway control".into(),
            why: self.process.last_words(),
        })
    }

    /// Fails if one of the processes has ended.
    ///
    /// # Errors
    /// Returns [`Error::Ended`].
    pub fn check(&mut self) -> Result<(), Error> {
        let named = [("keyway control", &mut self.process)].into_iter();
        for (program, process) in named.chain(self.redis.iter_mut().map(|it| ("redis-server", it)))
        {
            if process.ended().is_some() {
                return Err(Error::Ended { program: program.into(), why: process.last_words() });
            }
        }
        Ok(())
    }

    /// Returns the revision of the latest document that it has stored.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn fleet(&self) -> Result<Value, Error> {
        let text = format!("GET /v1/fleet HTTP/1.1\r\nHost: {}\r\n", self.admin);
        ask(self.asked(text + "Connection: close\r\n\r\n")?)
    }

    fn asked(&self, request: String) -> Result<Asked, Error> {
        let connected = || {
            let stream = TcpStream::connect_timeout(&self.admin, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = connected().map_err(Error::io("the API of keyway control"))?;
        Ok(Asked { stream, request })
    }

    /// Connects, for a request by which it stores the next document.
    ///
    /// # Errors
    /// Returns [`Error::Io`].
    pub fn prepare(&self) -> Result<Asked, Error> {
        let mut text = document(self.revision);
        if let Some([primary, replica]) = &self.group {
            text += &format!(
                "[pool.{GROUP}]\nkind = \"replicated\"\nservers = [\"{primary}\", \
                 \"{replica}\"]\nfailover = {{ down_after = \"5s\" }}\n"
            );
        }
        let body = json!({ "base": self.revision, "document": text }).to_string();
        self.asked(format!(
            "POST /v1/fleet/document HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Keyway-Change: 1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.admin,
            body.len()
        ))
    }

    /// Sends such a request, and waits for the answer.
    ///
    /// # Errors
    /// Returns [`Error::Answers`] if the document is not stored.
    pub fn send(&mut self, asked: Asked) -> Result<(), Error> {
        let answer = ask(asked)?;
        let version = answer["version"].as_str().unwrap_or_default();
        let revision = version.split_once('.').and_then(|(_, revision)| revision.parse().ok());
        self.revision = revision.ok_or_else(|| Error::parse("a version", &answer.to_string()))?;
        Ok(())
    }

    /// Has it store the next document.
    ///
    /// # Errors
    /// Returns the errors of [`Control::prepare`] and [`Control::send`].
    pub fn apply(&mut self) -> Result<(), Error> {
        let asked = self.prepare()?;
        self.send(asked)
    }
}

/// Sends a request and returns the answer's body.
fn ask(asked: Asked) -> Result<Value, Error> {
    let Asked { mut stream, request } = asked;
    let mut heard = || {
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let text = heard().map_err(Error::io("the API of keyway control"))?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let is_good = head.split(' ').nth(1) == Some("200");
    match serde_json::from_str(body) {
        Ok(value) if is_good => Ok(value),
        _ => Err(Error::Answers(text.chars().take(400).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_config::Config;

    #[test]
    fn the_document_has_1024_servers_and_two_numbers_differ_in_values_alone() {
        let (one, other) = (document(1), document(2));
        let config = Config::check_document("document", &one).unwrap();
        assert_eq!((config.pools.len(), SERVERS), (POOLS, 1024));
        assert_eq!(one.len(), other.len());
        assert_ne!(one, other);
    }
}
