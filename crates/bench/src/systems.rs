//! The systems that are measured: how each is configured and started.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use keyway_load::{Protocol, Watch};
use keyway_scenario::ports::free_port;
use keyway_scenario::process::{Process, Scratch, find, first_line};
use keyway_scenario::start::{memcached_words, redis_words};

use crate::error::Error;
use crate::interrupt;
use crate::load::Served;
use crate::plan::Side;

/// Number of loopback servers behind every proxy.
pub const BACKENDS: u64 = 4;

/// A program that this crate can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// twemproxy with its default 16 KiB buffers.
    Nutcracker,
    /// twemproxy with 512-byte buffers: better when pipelined, worse with large values.
    NutcrackerSmall,
    /// twemproxy with default buffers once more, to show how much the same program differs from
    /// itself.
    NutcrackerAgain,
    /// predixy with one worker. Its rings are its own, so keys are on other servers.
    Predixy,
    /// Keyway as a proxy, one worker.
    Keyway,
    /// predixy in front of a Redis Cluster, one worker.
    PredixyCluster,
    /// Keyway in front of a Redis Cluster, one worker.
    KeywayCluster,
    /// Keyway with the embedded store, one worker.
    KeywayStore,
    /// A server without a proxy.
    Redis,
    /// The same server once more, like [`Kind::NutcrackerAgain`].
    RedisAgain,
    /// memcached with one thread.
    Memcached,
    /// twemproxy in front of servers of memcached.
    NutcrackerMemcached,
    /// The same with 512-byte buffers.
    NutcrackerSmallMemcached,
    /// Keyway in front of servers of memcached.
    KeywayMemcached,
    /// Keyway with the embedded store and memcached's protocol.
    KeywayStoreMemcached,
    /// [`Kind::Keyway`], with io_uring.
    KeywayUring,
    /// [`Kind::KeywayStore`], with io_uring.
    KeywayStoreUring,
    /// The server that only answers: [`crate::floor`].
    Floor,
}

impl Kind {
    /// Returns the name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Nutcracker => "nutcracker",
            Kind::NutcrackerSmall => "nutcracker -m 512",
            Kind::NutcrackerAgain => "nutcracker again",
            Kind::Predixy => "predixy",
            Kind::Keyway => "keyway",
            Kind::PredixyCluster => "predixy, cluster",
            Kind::KeywayCluster => "keyway, cluster",
            Kind::KeywayStore => "keyway store",
            Kind::Redis => "redis-server",
            Kind::RedisAgain => "redis-server again",
            Kind::Memcached => "memcached",
            Kind::NutcrackerMemcached => "nutcracker, memcached",
            Kind::NutcrackerSmallMemcached => "nutcracker -m 512, memcached",
            Kind::KeywayMemcached => "keyway, memcached",
            Kind::KeywayStoreMemcached => "keyway store, memcached port",
            Kind::KeywayUring => "keyway, io_uring",
            Kind::KeywayStoreUring => "keyway store, io_uring",
            Kind::Floor => "no work at all",
        }
    }

    /// Returns its part in the comparison.
    pub fn part(self) -> Part {
        match self {
            Kind::Keyway
            | Kind::KeywayStore
            | Kind::KeywayCluster
            | Kind::KeywayMemcached
            | Kind::NutcrackerAgain
            | Kind::RedisAgain => Part::Subject,
            Kind::Nutcracker
            | Kind::NutcrackerSmall
            | Kind::NutcrackerMemcached
            | Kind::NutcrackerSmallMemcached
            | Kind::PredixyCluster
            | Kind::Redis => Part::Judge,
            Kind::Predixy
            | Kind::Memcached
            | Kind::KeywayStoreMemcached
            | Kind::KeywayUring
            | Kind::KeywayStoreUring
            | Kind::Floor => Part::Peer,
        }
    }

    /// Returns the rows in which it takes part.
    pub fn side(self) -> Side {
        match self {
            Kind::KeywayStore
            | Kind::KeywayStoreMemcached
            | Kind::KeywayStoreUring
            | Kind::Floor
            | Kind::Redis
            | Kind::RedisAgain
            | Kind::Memcached => Side::Store,
            Kind::NutcrackerMemcached | Kind::NutcrackerSmallMemcached | Kind::KeywayMemcached => {
                Side::MemcachedProxy
            }
            Kind::PredixyCluster | Kind::KeywayCluster => Side::ClusterProxy,
            _ => Side::Proxy,
        }
    }

    /// Returns its protocol.
    pub fn protocol(self) -> Protocol {
        match self {
            Kind::Memcached
            | Kind::NutcrackerMemcached
            | Kind::NutcrackerSmallMemcached
            | Kind::KeywayMemcached
            | Kind::KeywayStoreMemcached => Protocol::MemcachedText,
            _ => Protocol::Resp2,
        }
    }

    fn version_flag(self) -> &'static str {
        match self {
            Kind::Nutcracker
            | Kind::NutcrackerSmall
            | Kind::NutcrackerAgain
            | Kind::NutcrackerMemcached
            | Kind::NutcrackerSmallMemcached => "-V",
            _ => "--version",
        }
    }
}

/// A system's part in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The subject of the comparison.
    Subject,
    /// A peer to which the targets refer. The better of these counts.
    Judge,
    /// A peer that is only shown.
    Peer,
}

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `keyway`, as a release build.
    pub keyway: PathBuf,
    /// `nutcracker`.
    pub nutcracker: PathBuf,
    /// `redis-server`.
    pub redis_server: PathBuf,
    /// `predixy`, if it takes part.
    pub predixy: Option<PathBuf>,
    /// `memcached`, if it takes part.
    pub memcached: Option<PathBuf>,
    /// This program itself, for [`Kind::Floor`].
    pub own: PathBuf,
    /// The command that starts this program to guard another
    /// ([`keyway_scenario::process::become_guarded`]). It may be empty.
    pub guard: Vec<String>,
}

impl Programs {
    /// Returns the program of `kind`.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] for predixy and memcached without a path.
    pub fn path(&self, kind: Kind) -> Result<&Path, Error> {
        Ok(match kind {
            Kind::Nutcracker
            | Kind::NutcrackerSmall
            | Kind::NutcrackerAgain
            | Kind::NutcrackerMemcached
            | Kind::NutcrackerSmallMemcached => &self.nutcracker,
            Kind::Keyway
            | Kind::KeywayStore
            | Kind::KeywayCluster
            | Kind::KeywayMemcached
            | Kind::KeywayUring
            | Kind::KeywayStoreUring
            | Kind::KeywayStoreMemcached => &self.keyway,
            Kind::Floor => &self.own,
            Kind::Redis | Kind::RedisAgain => &self.redis_server,
            Kind::Predixy | Kind::PredixyCluster => self
                .predixy
                .as_deref()
                .ok_or_else(|| Error::Usage("predixy takes part with --predixy PATH".into()))?,
            Kind::Memcached => self
                .memcached
                .as_deref()
                .ok_or_else(|| Error::Usage("memcached takes part with --memcached PATH".into()))?,
        })
    }

    /// Returns the version that the program of `kind` prints, or `None` if it cannot be run.
    pub fn version(&self, kind: Kind) -> Option<String> {
        if kind == Kind::Floor {
            return None;
        }
        version_of(self.path(kind).ok()?, kind.version_flag())
    }
}

/// Returns the version in the first line that `program FLAG` prints, or that line if it contains no
/// version. Returns `None` if the program does not exist or prints nothing.
pub fn version_of(program: &Path, flag: &str) -> Option<String> {
    let line = first_line(&find(program)?, &[flag.to_owned()], interrupt::flag());
    (!line.is_empty()).then(|| version_in(&line).unwrap_or(&line).to_owned())
}

/// Returns the first word with a digit and a dot, from its first digit on. A word with a slash is a
/// path.
fn version_in(line: &str) -> Option<&str> {
    let words = line.split_whitespace().filter(|word| !word.contains('/') && word.contains('.'));
    words.filter_map(|word| Some(&word[word.find(|c: char| c.is_ascii_digit())?..])).next()
}

/// A measured system: a process and its address.
#[derive(Debug)]
pub struct System {
    /// The name in the tables.
    pub name: String,
    /// Its part in the comparison.
    pub part: Part,
    /// The rows in which it takes part.
    pub side: Side,
    /// What is put under load.
    pub served: Served,
    /// The process, if this run started it.
    pub process: Option<Process>,
}

impl System {
    /// Creates the system for a proxy that was started elsewhere in front of other servers.
    pub fn external(name: String, addr: SocketAddr, pid: u32) -> System {
        let served = Served { addr, protocol: Protocol::Resp2, pid, tls: None };
        System { name, part: Part::Peer, side: Side::Proxy, served, process: None }
    }

    /// Returns its resident memory in bytes.
    ///
    /// # Errors
    /// Returns [`Error::Ended`] if the process is gone.
    pub fn resident_bytes(&self) -> Result<u64, Error> {
        keyway_load::resident_bytes(self.served.pid).ok_or_else(|| self.gone())
    }

    /// Fails if the process is gone, with the end of its output.
    ///
    /// # Errors
    /// Returns [`Error::Ended`].
    pub fn check_running(&mut self) -> Result<(), Error> {
        if let Some(process) = &mut self.process
            && let Some(status) = process.ended()
        {
            let why = format!("{status}; it said: {}", process.last_words());
            return Err(Error::Ended { program: self.name.clone(), why });
        }
        Watch::Pid(self.served.pid).find().map(drop).map_err(|_| self.gone())
    }

    fn gone(&self) -> Error {
        let why = format!("no process {}", self.served.pid);
        Error::Ended { program: self.name.clone(), why }
    }
}

/// What is needed to start any system: the programs, the servers behind the proxies, and a
/// directory for files.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The paths of the programs.
    pub programs: &'a Programs,
    /// The ports of the servers behind the proxies.
    pub backends: &'a [u16],
    /// The ports of the memcached servers, if they were started.
    pub memcached_backends: &'a [u16],
    /// The ports of the cluster, if it was started.
    pub cluster: &'a [u16],
    /// The directory for configuration and output.
    pub scratch: &'a Scratch,
}

impl Site<'_> {
    /// Starts a system and waits until it listens.
    ///
    /// # Errors
    /// Returns [`Error::Program`] if the program is missing or does not start.
    pub fn start(&self, kind: Kind) -> Result<System, Error> {
        self.start_under(kind, &[])
    }

    /// Like [`Site::start`], after the words of a tool that runs the program as its own process.
    ///
    /// # Errors
    /// Returns the errors of [`Site::start`].
    pub fn start_under(&self, kind: Kind, tool: &[String]) -> Result<System, Error> {
        let port = free_port()?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let tag = format!("{}-{port}", kind.name().replace(' ', "-"));
        let line = [tool, &self.command(kind, port, &tag)?].concat();
        let process = start(self.scratch, kind.name(), &line, port)?;
        let served = Served { addr, protocol: kind.protocol(), pid: process.pid(), tls: None };
        let (name, part, side) = (kind.name().to_owned(), kind.part(), kind.side());
        Ok(System { name, part, side, served, process: Some(process) })
    }

    /// Returns the program of `kind` and its arguments.
    fn command(&self, kind: Kind, port: u16, tag: &str) -> Result<Vec<String>, Error> {
        let directory = self.scratch.directory();
        let config = |text: String| -> Result<String, Error> {
            Ok(self.scratch.write(&format!("{tag}.conf"), &text)?.display().to_string())
        };
        let serve = |text: String| -> Result<Vec<String>, Error> {
            let uring: &[&str] = match kind {
                Kind::KeywayUring | Kind::KeywayStoreUring => &["--io", "io_uring"],
                _ => &[],
            };
            Ok(words(&[&["serve"], uring, &[&config(text)?]].concat()))
        };
        let admin = free_port()?;
        let arguments = match kind {
            Kind::Redis | Kind::RedisAgain => redis_words(port, directory),
            Kind::Memcached => [memcached_words(port), words(&["-R", "100"])].concat(),
            Kind::Keyway | Kind::KeywayUring => serve(keyway_proxy(port, admin, self.backends))?,
            Kind::KeywayMemcached => {
                let text = as_memcached(&keyway_proxy(port, admin, self.memcached_backends));
                serve(text.replace("\"sharded\"", "\"memcached\""))?
            }
            Kind::KeywayStore | Kind::KeywayStoreUring => serve(keyway_store(port, admin))?,
            Kind::KeywayStoreMemcached => serve(as_memcached(&keyway_store(port, admin)))?,
            Kind::KeywayCluster => serve(keyway_cluster(port, admin, self.cluster))?,
            Kind::Floor => words(&["floor", &port.to_string()]),
            Kind::Predixy => vec![config(predixy(port, self.backends))?],
            Kind::PredixyCluster => vec![config(predixy_cluster(port, self.cluster))?],
            Kind::Nutcracker
            | Kind::NutcrackerAgain
            | Kind::NutcrackerSmall
            | Kind::NutcrackerMemcached
            | Kind::NutcrackerSmallMemcached => {
                let text = match kind.side() {
                    Side::MemcachedProxy => nutcracker(port, self.memcached_backends)
                        .replace("redis: true", "redis: false"),
                    _ => nutcracker(port, self.backends),
                };
                let (file, stats) = (config(text)?, admin.to_string());
                let pid_file = directory.join(format!("{tag}.pid")).display().to_string();
                let small: &[&str] = match kind {
                    Kind::NutcrackerSmall | Kind::NutcrackerSmallMemcached => &["-m", "512"],
                    _ => &[],
                };
                // At the default level 5 it looks up the client's address for every request, in
                // case a log line needs it.
                let line =
                    ["-c", &file, "-a", "127.0.0.1", "-s", &stats, "-v", "4", "-p", &pid_file];
                words(&[&line, small].concat())
            }
        };
        let program = self.programs.path(kind)?.display().to_string();
        Ok([vec![program], arguments].concat())
    }
}

/// Starts a command and waits until it listens.
///
/// # Errors
/// Returns [`Error::Program`] if the program is missing or does not start.
pub fn start(scratch: &Scratch, name: &str, line: &[String], port: u16) -> Result<Process, Error> {
    let mut process = run(scratch, name, line)?;
    process.wait_for(port, interrupt::flag())?;
    Ok(process)
}

/// Starts a command.
///
/// # Errors
/// Returns [`Error::Program`] if the program is missing.
pub fn run(scratch: &Scratch, name: &str, line: &[String]) -> Result<Process, Error> {
    let (program, arguments) = line.split_first().map_or(("", line), |(a, b)| (a.as_str(), b));
    Ok(scratch.start(name, &installed(program.as_ref())?, arguments)?)
}

/// Returns the path of a program.
///
/// # Errors
/// Returns [`Error::Program`] if it is missing.
pub fn installed(program: &Path) -> Result<PathBuf, Error> {
    let why = || keyway_scenario::Error::Absent(format!("{} is not installed", program.display()));
    Ok(find(program).ok_or_else(why)?)
}

/// Returns the words of a command.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Returns the same configuration for clients of memcached.
fn as_memcached(text: &str) -> String {
    text.replace("protocol = \"redis\"", "protocol = \"memcached\"")
}

fn nutcracker(port: u16, backends: &[u16]) -> String {
    let mut text = format!(
        "bench:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n  \
         redis: true\n  preconnect: true\n  auto_eject_hosts: false\n  servers:\n"
    );
    for (index, backend) in backends.iter().enumerate() {
        text.push_str(&format!("   - 127.0.0.1:{backend}:1 server{index}\n"));
    }
    text
}

pub(crate) fn keyway_proxy(port: u16, admin: u16, backends: &[u16]) -> String {
    let servers: Vec<String> = backends
        .iter()
        .enumerate()
        .map(|(index, backend)| format!("\"127.0.0.1:{backend}:1 server{index}\""))
        .collect();
    format!(
        "{}kind = \"sharded\"\nhash = \"fnv1a_64\"\ndistribution = \"ketama\"\nservers = [{}]\n",
        keyway_head(port, admin),
        servers.join(", ")
    )
}

fn keyway_cluster(port: u16, admin: u16, servers: &[u16]) -> String {
    let seeds: Vec<String> = servers.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let head = keyway_head(port, admin);
    format!("{head}kind = \"cluster\"\nservers = [{}]\n", seeds.join(", "))
}

pub(crate) fn keyway_store(port: u16, admin: u16) -> String {
    format!("{}kind = \"store\"\n", keyway_head(port, admin))
}

/// Returns a configuration with one worker, and metrics as in production.
fn keyway_head(port: u16, admin: u16) -> String {
    format!(
        "[server]\nworkers = 1\nadmin = \"tcp://127.0.0.1:{admin}\"\n\n[[listener]]\n\
         bind = \"tcp://127.0.0.1:{port}\"\nprotocol = \"redis\"\npool = \"bench\"\n\n\
         [pool.bench]\n"
    )
}

/// Returns a configuration with one worker, in which no replica is read.
fn predixy_head(port: u16) -> String {
    format!(
        "Name bench\nBind 127.0.0.1:{port}\nWorkerThreads 1\n\
         Authority {{\n    Auth {{\n        Mode write\n    }}\n}}\n"
    )
}

fn predixy_cluster(port: u16, servers: &[u16]) -> String {
    let seeds: String =
        servers.iter().map(|port| format!("        + 127.0.0.1:{port}\n")).collect();
    format!(
        "{}ClusterServerPool {{\n    MasterReadPriority 60\n    RefreshInterval 1\n    \
         Servers {{\n{seeds}    }}\n}}\n",
        predixy_head(port)
    )
}

fn predixy(port: u16, backends: &[u16]) -> String {
    let mut text = format!(
        "{}StandaloneServerPool {{\n    Databases 1\n    Hash crc16\n    Distribution modula\n    \
         MasterReadPriority 60\n    RefreshMethod fixed\n    RefreshInterval 1\n",
        predixy_head(port)
    );
    for (index, backend) in backends.iter().enumerate() {
        text.push_str(&format!(
            "    Group server{index} {{\n        + 127.0.0.1:{backend}\n    }}\n"
        ));
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use keyway_config::{Config, Workers};

    use super::*;

    #[test]
    fn keyway_accepts_its_configuration_and_runs_one_worker() {
        let servers = [7002, 7003];
        let cluster = keyway_cluster(7000, 7001, &servers);
        for text in [keyway_proxy(7000, 7001, &servers), keyway_store(7000, 7001), cluster] {
            let config = Config::from_str(&text, "bench.toml").unwrap();
            assert_eq!(config.server.workers, Workers::Between { min: 1, max: 1 }, "{text}");
        }
    }

    #[test]
    fn versions_are_read_as_their_programs_print_them() {
        for (line, version) in [
            ("This is nutcracker-0.5.0", Some("0.5.0")),
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0", Some("7.0.15")),
            ("/opt/x-1.2/predixy predixy-1.0.5", Some("1.0.5")),
            ("keyway 0.1.0 (abc)", Some("0.1.0")),
            ("unknown", None),
        ] {
            assert_eq!(version_in(line), version, "{line}");
        }
        assert_eq!(version_of(Path::new("no-such-program"), "--version"), None);
    }

    #[test]
    fn keyway_has_the_same_servers_under_the_same_hash_as_nutcracker() {
        let nutcracker = nutcracker(7000, &[7002, 7003]);
        let imported = keyway_config::import::twemproxy(&nutcracker, "nutcracker.yml").unwrap();
        let ours = keyway_proxy(7000, 7001, &[7002, 7003]);
        let placement = |text: &str| {
            let config = Config::from_str(text, "bench.toml").unwrap();
            let (set, _) = config.pools[0].kind.servers().expect("a pool of servers");
            format!("{:?} {:?} {:?}", set.hash, set.distribution, set.servers)
        };
        assert_eq!(placement(&imported.toml), placement(&ours));
    }
}
