//! The systems that are measured: how each is configured and started.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::error::Error;
use crate::load::Dialect;
use crate::plan::Side;
use crate::process::{Child, CommandLine, Scratch, free_port, is_running, version_of};

/// The loopback servers behind every proxy.
pub const BACKENDS: usize = 4;

/// A program this crate knows how to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// twemproxy with its default 16 KiB buffers.
    Nutcracker,
    /// twemproxy with 512-byte buffers: better when pipelined, worse with
    /// large values.
    NutcrackerSmall,
    /// twemproxy with default buffers once more, to show what the same program
    /// differs from itself.
    NutcrackerAgain,
    /// predixy with one worker. Its rings are its own: keys lie elsewhere.
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
    /// The same server once more, as [`Kind::NutcrackerAgain`].
    RedisAgain,
    /// memcached with one thread.
    Memcached,
    /// twemproxy in front of servers of memcached.
    NutcrackerMemcached,
    /// The same with 512-byte buffers.
    NutcrackerSmallMemcached,
    /// Keyway in front of servers of memcached.
    KeywayMemcached,
    /// Keyway with the embedded store, spoken to as memcached is.
    KeywayStoreMemcached,
    /// [`Kind::Keyway`], by io_uring.
    KeywayUring,
    /// [`Kind::KeywayStore`], by io_uring.
    KeywayStoreUring,
    /// What does nothing but answer: [`crate::floor`].
    Floor,
}

impl Kind {
    /// The name in the tables.
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

    /// Its part in the comparison.
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

    /// Which rows it takes part in.
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

    /// What it is spoken to in.
    pub fn dialect(self) -> Dialect {
        match self {
            Kind::Memcached
            | Kind::NutcrackerMemcached
            | Kind::NutcrackerSmallMemcached
            | Kind::KeywayMemcached
            | Kind::KeywayStoreMemcached => Dialect::Memcached,
            _ => Dialect::Redis,
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
    /// What the comparison is about.
    Subject,
    /// A peer the targets refer to: the better of these counts.
    Judge,
    /// A peer that is only shown.
    Peer,
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `keyway`, release build.
    pub keyway: PathBuf,
    /// `nutcracker`.
    pub nutcracker: PathBuf,
    /// `redis-server`.
    pub redis_server: PathBuf,
    /// `predixy`, if it takes part.
    pub predixy: Option<PathBuf>,
    /// `memcached`, if it takes part.
    pub memcached: Option<PathBuf>,
    /// This program, which is [`Kind::Floor`].
    pub own: PathBuf,
}

impl Programs {
    /// The program of `kind`.
    ///
    /// # Errors
    /// [`Error::Usage`] for predixy and memcached without a path.
    fn path(&self, kind: Kind) -> Result<&Path, Error> {
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

    /// What the program of `kind` says its version is; none when it cannot be
    /// run.
    pub fn version(&self, kind: Kind) -> Option<String> {
        if kind == Kind::Floor {
            return None;
        }
        version_of(self.path(kind).ok()?, kind.version_flag())
    }
}

/// A system being measured: a process and where it listens.
#[derive(Debug)]
pub struct System {
    /// The name in the tables.
    pub name: String,
    /// Its part in the comparison.
    pub part: Part,
    /// Which rows it takes part in.
    pub side: Side,
    /// Where it listens.
    pub addr: SocketAddr,
    /// What it is spoken to in.
    pub dialect: Dialect,
    pid: u32,
    child: Option<Child>,
}

impl System {
    /// A proxy somebody else started in front of servers of their own.
    pub fn external(name: String, addr: SocketAddr, pid: u32) -> System {
        let (part, side, dialect) = (Part::Peer, Side::Proxy, Dialect::Redis);
        System { name, part, side, addr, dialect, pid, child: None }
    }

    /// The process whose CPU time counts.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The process, if this run started it.
    pub fn child_mut(&mut self) -> Option<&mut Child> {
        self.child.as_mut()
    }

    /// Sends `signal`, if this run started the process.
    ///
    /// # Errors
    /// [`Error::Io`] when the process is gone.
    pub fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        self.child.as_mut().map_or(Ok(()), |child| child.signal(signal))
    }

    /// Fails when the process is gone, with the last of what it said.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn check_running(&mut self) -> Result<(), Error> {
        let program = self.name.clone();
        if let Some(child) = &mut self.child
            && let Some(status) = child.ended()?
        {
            let why = format!("{status}; it said: {}", child.output_tail());
            return Err(Error::Ended { program, why });
        }
        if !is_running(self.pid) {
            return Err(Error::Ended { program, why: format!("no process {}", self.pid) });
        }
        Ok(())
    }
}

/// What is needed to start any system: the programs, the servers behind the
/// proxies, and a place for files.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Where the programs are.
    pub programs: &'a Programs,
    /// The ports of the servers behind the proxies.
    pub backends: &'a [u16],
    /// The same of memcached, where they were started.
    pub memcached_backends: &'a [u16],
    /// The same of the cluster, where it was started.
    pub cluster: &'a [u16],
    /// Where configuration and output go.
    pub scratch: &'a Scratch,
}

impl Site<'_> {
    /// Starts a system and waits until it listens.
    ///
    /// # Errors
    /// [`Error::Start`] when the program is missing or does not come up.
    pub fn start(&self, kind: Kind) -> Result<System, Error> {
        self.start_under(kind, |line| line)
    }

    /// As [`Site::start`], with the command line changed by `wrap`: to run the
    /// program under a tool that execs it or stays its process.
    ///
    /// # Errors
    /// As [`Site::start`].
    pub fn start_under(
        &self,
        kind: Kind,
        wrap: impl FnOnce(CommandLine) -> CommandLine,
    ) -> Result<System, Error> {
        let port = free_port()?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let tag = format!("{}-{port}", kind.name().replace(' ', "-"));
        let line = wrap(self.command(kind, port, &tag)?);
        let mut child = Child::start(&line, self.scratch, &tag)?;
        child.wait_for_listener(addr)?;
        let (name, pid) = (kind.name().to_owned(), child.pid());
        let (part, side, dialect) = (kind.part(), kind.side(), kind.dialect());
        Ok(System { name, part, side, addr, dialect, pid, child: Some(child) })
    }

    fn command(&self, kind: Kind, port: u16, tag: &str) -> Result<CommandLine, Error> {
        let line = CommandLine::new(self.programs.path(kind)?);
        let config = |text: String| self.scratch.write(&format!("{tag}.conf"), &text);
        Ok(match kind {
            Kind::Redis | Kind::RedisAgain => redis_args(line, port, self.scratch),
            Kind::Memcached => memcached_args(line, port),
            Kind::Keyway => {
                line.arg("serve").arg(config(keyway_proxy(port, free_port()?, self.backends))?)
            }
            Kind::KeywayMemcached => {
                let (redis, admin) = (keyway_proxy, free_port()?);
                let text = as_memcached(&redis(port, admin, self.memcached_backends));
                line.arg("serve").arg(config(text.replace("\"sharded\"", "\"memcached\""))?)
            }
            Kind::KeywayUring => line
                .args(["serve", "--io", "io_uring"])
                .arg(config(keyway_proxy(port, free_port()?, self.backends))?),
            Kind::KeywayStoreUring => line
                .args(["serve", "--io", "io_uring"])
                .arg(config(keyway_store(port, free_port()?))?),
            Kind::Floor => line.args(["floor", &port.to_string()]),
            Kind::KeywayStore => line.arg("serve").arg(config(keyway_store(port, free_port()?))?),
            Kind::KeywayStoreMemcached => {
                line.arg("serve").arg(config(as_memcached(&keyway_store(port, free_port()?)))?)
            }
            Kind::Predixy => line.arg(config(predixy(port, self.backends))?),
            Kind::PredixyCluster => line.arg(config(predixy_cluster(port, self.cluster))?),
            Kind::KeywayCluster => {
                line.arg("serve").arg(config(keyway_cluster(port, free_port()?, self.cluster))?)
            }
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
                let line = line.arg("-c").arg(config(text)?);
                let line = line.args(["-a", "127.0.0.1", "-s", &free_port()?.to_string()]);
                // At the default level 5 it looks up the client's address for
                // every request, in case a log line wants it.
                let line =
                    line.args(["-v", "4", "-p"]).arg(self.scratch.path(&format!("{tag}.pid")));
                match kind {
                    Kind::NutcrackerSmall | Kind::NutcrackerSmallMemcached => {
                        line.args(["-m", "512"])
                    }
                    _ => line,
                }
            }
        })
    }
}

/// Starts one of the servers behind the proxies and waits until it listens.
///
/// # Errors
/// [`Error::Start`] when `redis-server` is missing or does not come up.
pub fn start_backend(programs: &Programs, scratch: &Scratch) -> Result<(Child, u16), Error> {
    let port = free_port()?;
    let line = redis_args(CommandLine::new(&programs.redis_server), port, scratch);
    let mut child = Child::start(&line, scratch, &format!("backend-{port}"))?;
    child.wait_for_listener(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok((child, port))
}

/// The same of memcached.
///
/// # Errors
/// [`Error::Start`] when `memcached` is missing or does not come up.
pub fn start_memcached_backend(
    programs: &Programs,
    scratch: &Scratch,
) -> Result<(Child, u16), Error> {
    let port = free_port()?;
    let program = programs.memcached.as_deref().unwrap_or(Path::new("memcached"));
    let line = memcached_args(CommandLine::new(program), port);
    let mut child = Child::start(&line, scratch, &format!("memcached-{port}"))?;
    child.wait_for_listener(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok((child, port))
}

/// One thread; as root it wants to be told so.
fn memcached_args(line: CommandLine, port: u16) -> CommandLine {
    line.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-t", "1", "-m", "1024"])
        .args(["-c", "12000", "-u", "root", "-R", "100"])
}

/// The same configuration for clients of memcached.
fn as_memcached(text: &str) -> String {
    text.replace("protocol = \"redis\"", "protocol = \"memcached\"")
}

/// Memory only, and room for the 10,000 connections of the memory table.
pub(crate) fn redis_args(line: CommandLine, port: u16, scratch: &Scratch) -> CommandLine {
    line.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "no", "--maxclients", "12000", "--dir"])
        .arg(scratch.path(""))
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

fn keyway_proxy(port: u16, admin: u16, backends: &[u16]) -> String {
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

fn keyway_store(port: u16, admin: u16) -> String {
    format!("{}kind = \"store\"\n", keyway_head(port, admin))
}

/// One worker, and metrics as in production.
fn keyway_head(port: u16, admin: u16) -> String {
    format!(
        "[server]\nworkers = 1\nadmin = \"tcp://127.0.0.1:{admin}\"\n\n[[listener]]\n\
         bind = \"tcp://127.0.0.1:{port}\"\nprotocol = \"redis\"\npool = \"bench\"\n\n\
         [pool.bench]\n"
    )
}

/// One worker; no replica is read.
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
