//! Everything that runs for the whole length of a comparison.

use std::path::Path;

use keyway_scenario::start::{Backends, Starter};
use keyway_scenario::{Scale, ServerKind, Servers, process};

use crate::error::Error;
use crate::interrupt;
use crate::load::Dataset;
use crate::plan::Side;
use crate::systems::{BACKENDS, Kind, Programs, Site, System};

/// A system that takes no part, and the reason.
#[derive(Clone, Debug)]
pub struct Absent {
    /// The name in the tables.
    pub name: String,
    /// The rows from which it is absent.
    pub side: Side,
    /// The reason.
    pub why: String,
    /// True if it should have taken part, because its program exists.
    pub is_failure: bool,
}

/// The servers behind the proxies and the systems in front of them. All of them are started before
/// the first measurement, so that none has the machine to itself.
#[derive(Debug)]
pub struct Session {
    /// The systems that run.
    pub systems: Vec<System>,
    /// The systems that do not run.
    pub absent: Vec<Absent>,
    /// The paths of the programs.
    pub programs: Programs,
    backend_ports: Vec<u16>,
    backend_pids: Vec<u32>,
    memcached_ports: Vec<u16>,
    cluster_ports: Vec<u16>,
    /// The servers behind the proxies, and the directory for configuration and output. It is the
    /// last field, so that it is removed when nothing writes there any more.
    servers: process::Site,
}

impl Session {
    /// Starts the servers behind the proxies.
    ///
    /// # Errors
    /// Returns [`Error::Program`] if `redis-server` cannot be started.
    pub fn start(programs: Programs) -> Result<Session, Error> {
        let servers = process::Site::new(&programs.guard)?;
        let mut session = Session {
            systems: Vec::new(),
            absent: Vec::new(),
            programs,
            backend_ports: Vec::new(),
            backend_pids: Vec::new(),
            memcached_ports: Vec::new(),
            cluster_ports: Vec::new(),
            servers,
        };
        session.backend_ports = session.start_servers(ServerKind::Redis, BACKENDS, 0)?;
        Ok(session)
    }

    /// Starts the servers of memcached behind the proxies for it.
    ///
    /// # Errors
    /// Returns [`Error::Program`] if `memcached` cannot be started.
    pub fn start_memcached(&mut self) -> Result<(), Error> {
        self.memcached_ports = self.start_servers(ServerKind::Memcached, BACKENDS, 0)?;
        Ok(())
    }

    /// Starts the cluster behind the proxies that support one: three primaries with a replica each.
    ///
    /// # Errors
    /// Returns [`Error::Program`] if it does not start.
    pub fn start_cluster(&mut self) -> Result<(), Error> {
        self.cluster_ports = self.start_servers(ServerKind::RedisCluster, 3, 1)?;
        Ok(())
    }

    fn start_servers(
        &mut self,
        kind: ServerKind,
        count: u64,
        replicas: u64,
    ) -> Result<Vec<u16>, Error> {
        let name = format!("{kind:?}");
        let (count, replicas) = (count.into(), replicas.into());
        let servers = Servers { name: name.clone(), kind, count, replicas };
        let memcached = self.programs.memcached.as_deref().unwrap_or(Path::new("memcached"));
        let mut started = Backends::default();
        let mut starter = Starter {
            site: &mut self.servers,
            scale: Scale { cores: 1, gib: 1, is_full: false },
            programs: [("redis-server", &*self.programs.redis_server), ("memcached", memcached)]
                .into(),
            is_stopped: interrupt::flag(),
        };
        starter.servers(&servers, &mut started);
        self.backend_pids.extend(started.pids.keys());
        match started.missing.remove(&name) {
            Some(why) => Err(why.into()),
            None => Ok(started.ports.remove(&name).unwrap_or_default()),
        }
    }

    /// Returns the ports of the redis-servers behind the proxies.
    pub fn backend_ports(&self) -> &[u16] {
        &self.backend_ports
    }

    /// Returns the process ids of the servers behind the proxies.
    pub fn backend_pids(&self) -> &[u32] {
        &self.backend_pids
    }

    /// Returns the directory for configuration and output.
    pub fn scratch(&self) -> &process::Scratch {
        self.servers.scratch()
    }

    /// Returns what is needed to start more systems in front of the same servers.
    pub fn site(&self) -> Site<'_> {
        Site {
            programs: &self.programs,
            backends: &self.backend_ports,
            memcached_backends: &self.memcached_ports,
            cluster: &self.cluster_ports,
            scratch: self.scratch(),
        }
    }

    /// Starts a system and fills it with every key that the rows use. A system whose program is
    /// missing, or that does not start or take the keys, becomes [`Absent`] and does not end the
    /// run.
    ///
    /// # Errors
    /// Returns [`Error::Interrupted`].
    pub fn add(&mut self, kind: Kind) -> Result<(), Error> {
        let started = self.site().start(kind);
        let is_installed = self.programs.version(kind).is_some();
        self.admit(kind.name(), kind.side(), started, is_installed)
    }

    /// Adds a system that was started elsewhere, and fills it like the others.
    ///
    /// # Errors
    /// Returns [`Error::Interrupted`].
    pub fn add_external(&mut self, mut system: System) -> Result<(), Error> {
        let (name, side) = (system.name.clone(), system.side);
        let ready = system.check_running().map(|()| system);
        self.admit(&name, side, ready, true)
    }

    fn admit(
        &mut self,
        name: &str,
        side: Side,
        started: Result<System, Error>,
        is_installed: bool,
    ) -> Result<(), Error> {
        let filled = started.and_then(|system| fill(&system).map(|()| system));
        interrupt::check()?;
        match filled {
            Ok(system) => self.systems.push(system),
            Err(error) => self.absent.push(Absent {
                name: name.to_owned(),
                side,
                why: error.to_string(),
                is_failure: is_installed,
            }),
        }
        Ok(())
    }
}

/// Writes every key of the datasets of its side through `system`, so that every GET of the rows
/// finds its key.
///
/// # Errors
/// Returns [`Error::Load`] or [`Error::Answers`] if a write fails.
pub fn fill(system: &System) -> Result<(), Error> {
    let datasets: &[Dataset] = match system.side {
        Side::Proxy | Side::ClusterProxy | Side::MemcachedProxy => {
            &[Dataset::SMALL, Dataset::LARGE]
        }
        Side::Store => &[Dataset::ITEMS, Dataset::RECORDS, Dataset::LARGE],
    };
    let served = &system.served;
    if system.side == Side::ClusterProxy {
        served.fill_list()?;
    }
    let mut datasets = datasets.iter().filter(|dataset| dataset.fits(served.protocol));
    datasets.try_for_each(|dataset| served.fill(*dataset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Work, plan};
    use crate::syscalls::count_syscalls;
    use keyway_load::Until;
    use std::time::Duration;

    #[test]
    fn system_calls_are_counted_after_the_keys_are_gone() {
        let programs = Programs {
            keyway: "keyway".into(),
            nutcracker: "nutcracker".into(),
            redis_server: "redis-server".into(),
            predixy: None,
            memcached: None,
            own: "/bin/false".into(),
            guard: Vec::new(),
        };
        let mut session = Session::start(programs).expect("redis-server is installed");
        session.add(Kind::Redis).expect("nobody interrupts");
        let system = session.systems.first().expect("it runs");
        system.served.once("FLUSHALL").expect("it answers");
        let counted = count_syscalls(system, Duration::from_millis(50), session.scratch());
        match counted {
            Ok(counted) => assert!(counted.requests > 0 && counted.per_request > 0.0),
            // The tracer may be missing or forbidden. The keys exist all the same.
            Err(error) => assert!(matches!(error, Error::Program(_)), "{error}"),
        }
        let get = Work::Get.on(Dataset::SMALL);
        system.served.load_all(&get, &plan(1, 50, Until::Requests(5_000))).expect("keys are there");
    }
}
