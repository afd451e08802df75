//! Everything that is kept running for the length of a comparison.

use crate::cluster::start_cluster;
use crate::error::Error;
use crate::load::{Dataset, Limit, Loader, Requests};
use crate::plan::Side;
use crate::process::{Child, Scratch};
use crate::systems::{
    BACKENDS, Kind, Programs, Site, System, start_backend, start_memcached_backend,
};

/// A system that takes no part, and why.
#[derive(Clone, Debug)]
pub struct Absent {
    /// The name in the tables.
    pub name: String,
    /// Which rows it is absent from.
    pub side: Side,
    /// Why.
    pub why: String,
    /// Whether it should have been there: its program exists.
    pub is_failure: bool,
}

/// The servers behind the proxies and the systems in front of them. All of
/// them are started before the first measurement, so that none has the
/// machine to itself.
#[derive(Debug)]
pub struct Session {
    /// Systems that run.
    pub systems: Vec<System>,
    /// Systems that do not.
    pub absent: Vec<Absent>,
    /// Where the programs are.
    pub programs: Programs,
    backend_ports: Vec<u16>,
    backends: Vec<Child>,
    memcached_ports: Vec<u16>,
    cluster_ports: Vec<u16>,
    /// Where configuration and output go. Last, so that it is removed when
    /// nothing writes there any more.
    pub scratch: Scratch,
}

impl Session {
    /// Starts the servers behind the proxies.
    ///
    /// # Errors
    /// [`Error::Start`] when `redis-server` cannot be started.
    pub fn start(programs: Programs) -> Result<Session, Error> {
        let scratch = Scratch::new()?;
        let (mut backends, mut backend_ports) = (Vec::new(), Vec::new());
        for _ in 0..BACKENDS {
            let (child, port) = start_backend(&programs, &scratch)?;
            backends.push(child);
            backend_ports.push(port);
        }
        Ok(Session {
            systems: Vec::new(),
            absent: Vec::new(),
            programs,
            scratch,
            backend_ports,
            backends,
            memcached_ports: Vec::new(),
            cluster_ports: Vec::new(),
        })
    }

    /// Starts the servers of memcached behind the proxies for it.
    ///
    /// # Errors
    /// [`Error::Start`] when `memcached` cannot be started.
    pub fn start_memcached(&mut self) -> Result<(), Error> {
        for _ in 0..BACKENDS {
            let (child, port) = start_memcached_backend(&self.programs, &self.scratch)?;
            self.backends.push(child);
            self.memcached_ports.push(port);
        }
        Ok(())
    }

    /// Starts the cluster behind the proxies that know one.
    ///
    /// # Errors
    /// [`Error::Start`] when it does not come up.
    pub fn start_cluster(&mut self) -> Result<(), Error> {
        let (servers, ports) = start_cluster(&self.programs, &self.scratch)?;
        self.backends.extend(servers);
        self.cluster_ports = ports;
        Ok(())
    }

    /// What is needed to start more systems in front of the same servers.
    pub fn site(&self) -> Site<'_> {
        Site {
            programs: &self.programs,
            backends: &self.backend_ports,
            memcached_backends: &self.memcached_ports,
            cluster: &self.cluster_ports,
            scratch: &self.scratch,
        }
    }

    /// The process ids of the servers behind the proxies.
    pub fn backend_pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.backends.iter().map(Child::pid)
    }

    /// Starts a system and fills it with every key the rows ask for. One whose
    /// program is missing, or that does not start or take the keys, becomes
    /// [`Absent`] instead of ending the run.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn add(&mut self, kind: Kind) -> Result<(), Error> {
        let started = self.site().start(kind);
        let is_installed = self.programs.version(kind).is_some();
        self.admit(kind.name(), kind.side(), started, is_installed)
    }

    /// Adds a system somebody else started, filled like the others.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
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
        match started.and_then(|system| fill(&system).map(|()| system)) {
            Ok(system) => self.systems.push(system),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
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

/// Writes every key of the datasets of its side through `system`, so that every
/// GET of the rows finds its key.
///
/// # Errors
/// [`Error::Load`] or [`Error::Answers`] when a write fails.
pub fn fill(system: &System) -> Result<(), Error> {
    let datasets: &[Dataset] = match system.side {
        Side::Proxy | Side::ClusterProxy | Side::MemcachedProxy => {
            &[Dataset::SMALL, Dataset::LARGE]
        }
        Side::Store => &[Dataset::ITEMS, Dataset::RECORDS, Dataset::LARGE],
    };
    datasets
        .iter()
        .copied()
        .filter(|dataset| dataset.fits(system.dialect))
        .try_for_each(|dataset| write_keys(system, dataset))
}

/// Writes every key of a dataset through `system`, over whatever is there.
///
/// # Errors
/// [`Error::Load`] or [`Error::Answers`] when a write fails.
pub fn write_keys(system: &System, dataset: Dataset) -> Result<(), Error> {
    let mut first = 0;
    while first < dataset.keys {
        let requests = Requests::fill(dataset, system.dialect, first);
        let mut loader = Loader::connect(system.addr, 1, 50, &requests)?;
        let count = requests.count();
        loader.run(Limit::Requests(count as u64))?.check()?;
        first += count as u32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Dialect, Work};
    use crate::syscalls::count_syscalls;
    use std::io::{Read, Write};
    use std::net::TcpStream;
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
        };
        let mut session = Session::start(programs).expect("redis-server is installed");
        session.add(Kind::Redis).expect("nobody interrupts");
        let system = session.systems.first().expect("it runs");
        let mut client = TcpStream::connect(system.addr).expect("it listens");
        client.write_all(b"FLUSHALL\r\n").expect("it reads");
        let mut reply = [0; 5];
        client.read_exact(&mut reply).expect("it answers");
        assert_eq!(&reply, b"+OK\r\n");
        let counted = count_syscalls(system, Duration::from_millis(50), &session.scratch);
        match counted {
            Ok(counted) => assert!(counted.requests > 0 && counted.per_request > 0.0),
            // The tracer may be missing, or forbidden: the keys are there all the same.
            Err(error) => assert!(matches!(error, Error::Start { .. }), "{error}"),
        }
        let get = Requests::random(Work::Get, Dataset::SMALL, Dialect::Redis, 1);
        let mut loader = Loader::connect(system.addr, 1, 50, &get).expect("it listens");
        let totals = loader.run(Limit::Requests(5_000)).expect("it answers");
        totals.check().expect("every key is there");
    }
}
