//! Starts servers and systems. What cannot be started is a reason, not the end of the run.

use crate::error::Error;
use crate::machine::Scale;
use crate::model::{Scaled, ServerKind, Servers, Share, System, SystemKind};
use crate::places::{self, Ports, fill_text, fill_words};
use crate::ports::free_port;
use crate::process::{ANSWER_PATIENCE, Site, ask, find, first_line};
use keyway_load::{Protocol, Watch};
use keyway_net::Address;
use keyway_report::Role;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long servers may take to become one cluster.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(30);

/// Most servers of a kind, and most instances of a system.
const MANY: u64 = 64;

/// The servers of a scenario that run, and why others do not.
#[derive(Debug, Default)]
pub struct Backends {
    /// The ports of servers, by the name of these.
    pub ports: Ports,
    /// Why servers are not there, by their name.
    pub missing: BTreeMap<String, Error>,
    /// Processes, with what they are called.
    pub pids: BTreeMap<u32, String>,
    clusters: Vec<String>,
}

/// A system that can be measured.
#[derive(Debug)]
pub struct Started {
    /// Its name.
    pub name: String,
    /// The first line that its program says about its version.
    pub version: String,
    /// The command that started it, for people.
    pub started_by: String,
    /// The protocol that is spoken to it.
    pub protocol: Protocol,
    /// True if it is a Redis Cluster.
    pub is_cluster: bool,
    /// How its instances share the work.
    pub share: Share,
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// Its processes, with what they are called and whose their time is.
    pub pids: BTreeMap<u32, (String, Role)>,
}

/// What all starts have in common.
pub struct Starter<'a> {
    /// Where programs are started.
    pub site: &'a mut Site,
    /// What numbers are scaled to.
    pub scale: Scale,
    /// Programs that are not looked for on the path, by their names.
    pub programs: BTreeMap<&'static str, &'a Path>,
    /// Set when the run is to end.
    pub is_stopped: &'a AtomicBool,
}

fn missing(program: &str, install: &str) -> String {
    let hint = if install.is_empty() { String::new() } else { format!(" ({install})") };
    format!("{program} is not installed{hint}")
}

/// The arguments of a redis-server without persistence.
pub fn redis_words(port: u16, directory: &Path) -> Vec<String> {
    let (port, directory) = (port.to_string(), directory.display().to_string());
    let own = ["--port", &port, "--save", "", "--dir", &directory];
    let fixed = "--bind 127.0.0.1 --appendonly no --maxclients 12000 --protected-mode no";
    own.into_iter().chain(fixed.split(' ')).map(str::to_owned).collect()
}

/// The arguments of a memcached with one thread.
pub fn memcached_words(port: u16) -> Vec<String> {
    let text = format!("-l 127.0.0.1 -p {port} -U 0 -t 1 -m 1024 -c 12000");
    // It does not run as root without being told so.
    let user = if rustix::process::geteuid().is_root() { " -u root" } else { "" };
    (text + user).split(' ').map(str::to_owned).collect()
}

impl Starter<'_> {
    /// Starts the servers of a kind, or notes why they are not there.
    pub fn servers(&mut self, servers: &Servers, backends: &mut Backends) {
        let name = servers.name.clone();
        let started = match servers.kind {
            ServerKind::Memcached => self.memcached(servers, backends),
            ServerKind::Redis => {
                let count = servers.count.on(self.scale).clamp(1, MANY);
                self.redis(servers, count, false, backends)
            }
            ServerKind::RedisCluster => self.cluster(servers, backends),
        };
        match started {
            Ok(ports) => _ = backends.ports.insert(name, ports),
            Err(why) => _ = backends.missing.insert(name, why),
        }
    }

    fn redis(
        &mut self,
        servers: &Servers,
        count: u64,
        is_cluster: bool,
        backends: &mut Backends,
    ) -> Result<Vec<u16>, Error> {
        let program = self.program("redis-server", "apt-get install redis-server")?;
        let mut ports = Vec::new();
        for _ in 0..count {
            let port = free_port()?;
            let mut words = redis_words(port, self.site.scratch().directory());
            if is_cluster {
                let (bus, file) = (free_port()?.to_string(), format!("nodes-{port}.conf"));
                let of_cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus];
                words.extend(of_cluster.map(str::to_owned));
                words.extend(["--cluster-config-file".to_owned(), file]);
            }
            self.one(&servers.name, &program, &words, port, backends)?;
            ports.push(port);
        }
        Ok(ports)
    }

    fn memcached(&mut self, servers: &Servers, backends: &mut Backends) -> Result<Vec<u16>, Error> {
        let program = self.program("memcached", "apt-get install memcached")?;
        let mut ports = Vec::new();
        for _ in 0..servers.count.on(self.scale).clamp(1, MANY) {
            let port = free_port()?;
            self.one(&servers.name, &program, &memcached_words(port), port, backends)?;
            ports.push(port);
        }
        Ok(ports)
    }

    fn one(
        &mut self,
        name: &str,
        program: &Path,
        words: &[String],
        port: u16,
        backends: &mut Backends,
    ) -> Result<(), Error> {
        let pid = self.site.start(name, (program, words), port, self.is_stopped)?;
        backends.pids.insert(pid, name.to_owned());
        Ok(())
    }

    fn program(&self, name: &str, install: &str) -> Result<PathBuf, Error> {
        let path = self.programs.get(name).copied().unwrap_or(Path::new(name));
        find(path).ok_or_else(|| Error::Absent(missing(name, install)))
    }

    /// Primaries first: theirs are the ports that are told.
    fn cluster(&mut self, servers: &Servers, backends: &mut Backends) -> Result<Vec<u16>, Error> {
        let cli = self.program("redis-cli", "apt-get install redis-tools")?;
        let primaries = servers.count.on(self.scale).clamp(3, MANY);
        let replicas = servers.replicas.on(self.scale).min(3);
        let mut ports = self.redis(servers, primaries * (1 + replicas), true, backends)?;
        let mut words = vec!["--cluster".to_owned(), "create".to_owned()];
        words.extend(ports.iter().map(|port| format!("127.0.0.1:{port}")));
        let replicas = replicas.to_string();
        words.extend(["--cluster-replicas", &replicas, "--cluster-yes"].map(str::to_owned));
        self.ask(&cli, &words, CLUSTER_PATIENCE)?;
        self.wait_for_cluster(&cli, &ports)?;
        ports.truncate(primaries as usize);
        backends.clusters.push(servers.name.clone());
        Ok(ports)
    }

    fn wait_for_cluster(&self, cli: &Path, ports: &[u16]) -> Result<(), Error> {
        let until = Instant::now() + CLUSTER_PATIENCE;
        for port in ports {
            let words = ["-p", &port.to_string(), "cluster", "info"].map(str::to_owned);
            while !self.ask(cli, &words, ANSWER_PATIENCE)?.contains("cluster_state:ok") {
                if Instant::now() > until || self.is_stopped.load(Ordering::Relaxed) {
                    return Err(Error::system("redis-cli", "the cluster does not become ready"));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    fn ask(&self, cli: &Path, words: &[String], patience: Duration) -> Result<String, Error> {
        let answer = ask(cli, words, patience, self.is_stopped)?;
        match answer.is_success {
            true => Ok(answer.text),
            false => {
                let last = answer.text.lines().last().unwrap_or("it failed");
                Err(Error::system("redis-cli", last))
            }
        }
    }

    /// Starts a system, or tells why it cannot be measured.
    pub fn system(&mut self, system: &System, backends: &Backends) -> Result<Started, Error> {
        let role = if system.is_backend { Role::Backend } else { Role::Tested };
        let mut started = Started {
            name: system.name.clone(),
            version: String::new(),
            started_by: String::new(),
            protocol: system.protocol,
            is_cluster: false,
            share: system.share,
            addresses: Vec::new(),
            pids: BTreeMap::new(),
        };
        match &system.kind {
            SystemKind::Unstarted => return Err(Error::Absent(system.install.clone())),
            SystemKind::Channel(channel) => {
                started.started_by = format!("keyway, channel {channel}")
            }
            SystemKind::Address(addresses) => {
                let listed: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                started.started_by = format!("somebody else, at {}", listed.join(", "));
                started.addresses.clone_from(addresses);
                for address in addresses {
                    let watch = Watch::of(address);
                    let pids = watch.and_then(|watch| watch.find().ok()).unwrap_or_default();
                    let named = |pid| (pid, (system.name.clone(), role));
                    started.pids.extend(pids.into_iter().map(named));
                }
            }
            SystemKind::Direct(servers) => {
                let ports = ports_of(servers, backends)?;
                started.is_cluster = backends.clusters.contains(servers);
                started.started_by = format!("{servers} itself");
                let count = if started.is_cluster { 1 } else { ports.len() };
                started.addresses = ports.iter().take(count).map(|port| near(*port)).collect();
                let own = backends.pids.iter().filter(|(_, name)| *name == servers);
                started.pids = own.map(|(pid, name)| (*pid, (name.clone(), role))).collect();
            }
            SystemKind::Command { words, files, version, instances } => {
                let program = self.program(&words[0], &system.install)?;
                for text in words.iter().chain(files.iter().map(|(_, text)| text)) {
                    for servers in places::names(text).into_iter().filter_map(places::servers_of) {
                        ports_of(servers, backends)?;
                    }
                }
                started.started_by =
                    words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ");
                if let Some((first, rest)) = version.split_first() {
                    let program = self.program(first, "");
                    started.version = program
                        .map(|path| first_line(&path, rest, self.is_stopped))
                        .unwrap_or_default();
                }
                for _ in 0..instances_on(instances, self.scale) {
                    self.instance(&program, (words, files), role, backends, &mut started)?;
                }
            }
        }
        Ok(started)
    }

    fn instance(
        &mut self,
        program: &Path,
        (words, files): (&[String], &[(String, String)]),
        role: Role,
        backends: &Backends,
        started: &mut Started,
    ) -> Result<(), Error> {
        let port = free_port()?;
        let mut own = BTreeMap::from([("port".to_owned(), port.to_string())]);
        own.insert("cores".to_owned(), self.scale.cores.to_string());
        own.insert("dir".to_owned(), self.site.scratch().directory().display().to_string());
        let texts = words.iter().chain(files.iter().map(|(_, text)| text));
        for name in texts.flat_map(|text| places::names(text)) {
            if name.starts_with("port.") && !own.contains_key(name) {
                own.insert(name.to_owned(), free_port()?.to_string());
            }
        }
        let named = |name: &str| self.site.scratch().directory().join(format!("{port}-{name}"));
        for (name, _) in files {
            own.insert(format!("file.{name}"), named(name).display().to_string());
        }
        let mut value = |name: &str| own.get(name).cloned().unwrap_or_default();
        for (name, text) in files {
            let filled = fill_text(text, &backends.ports, &mut value);
            self.site.scratch().write(&format!("{port}-{name}"), &filled)?;
        }
        let words = fill_words(&words[1..], &backends.ports, &mut value);
        let command = (program, words.as_slice());
        let pid = self.site.start(&started.name, command, port, self.is_stopped)?;
        // A shell may have started what listens.
        let pids = Watch::Port(port).find().unwrap_or_else(|_| vec![pid]);
        let named = |pid| (pid, (started.name.clone(), role));
        started.pids.extend(pids.into_iter().map(named));
        started.addresses.push(near(port));
        Ok(())
    }
}

/// A word of a command for people: files by their names.
fn shown(word: &str) -> String {
    let files = places::names(word).into_iter().filter_map(|name| name.strip_prefix("file."));
    files.fold(word.to_owned(), |text, file| text.replace(&format!("{{file.{file}}}"), file))
}

/// How many instances of a system there are.
fn instances_on(instances: &Scaled, scale: Scale) -> u64 {
    instances.on(scale).clamp(1, MANY)
}

fn near(port: u16) -> Address {
    Address::Tcp { host: "127.0.0.1".to_owned(), port }
}

fn ports_of<'b>(servers: &str, backends: &'b Backends) -> Result<&'b [u16], Error> {
    let why = || match backends.missing.get(servers) {
        Some(Error::Absent(why)) => Error::Absent(format!("it needs {servers}: {why}")),
        Some(why) => Error::Asked(format!("it needs {servers}: {why}")),
        None => Error::Asked(format!("it needs {servers}, which were not started")),
    };
    backends.ports.get(servers).map(Vec::as_slice).ok_or_else(why)
}
