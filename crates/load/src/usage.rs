//! What processes use, as /proc tells.

use crate::error::Error;
use crate::outcome::ProcessUsage;
use keyway_net::Address;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Clock ticks a second in `/proc/PID/stat`: Linux fixes it for all programs.
const TICKS: f64 = 100.0;

/// Which processes are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// This one.
    Pid(u32),
    /// All whose program has this name.
    Name(String),
    /// All that listen on this TCP port of this machine.
    Port(u16),
    /// All that listen on this unix socket, which that of shared memory is too.
    Socket(std::path::PathBuf),
}

impl Watch {
    /// Who listens at `address`, if that is on this machine: a loopback address, or a path.
    pub fn of(address: &Address) -> Option<Watch> {
        match address {
            Address::Unix(path) | Address::Shm(path) => Some(Watch::Socket(path.clone())),
            Address::Tcp { host, port } => {
                let is_near = host == "localhost"
                    || address.literal().is_some_and(|literal| literal.ip().is_loopback());
                is_near.then_some(Watch::Port(*port))
            }
        }
    }

    /// The processes it means now, by id.
    ///
    /// # Errors
    /// [`Error::Process`] when there is none.
    pub fn find(&self) -> Result<Vec<u32>, Error> {
        let (found, what) = match self {
            Watch::Pid(pid) => {
                let is_there = Path::new(&format!("/proc/{pid}/stat")).exists();
                (if is_there { vec![*pid] } else { Vec::new() }, format!("no process {pid}"))
            }
            Watch::Name(name) => {
                let is_it = |pid: &u32| program(*pid).as_deref() == Some(name);
                (pids().filter(is_it).collect(), format!("no process is called {name:?}"))
            }
            Watch::Port(port) => (
                holders(&listening(*port)),
                format!(
                    "no process that may be looked at listens on port {port}; as another \
                    user, name it with --pid"
                ),
            ),
            Watch::Socket(path) => (
                holders(&unix_sockets(path)),
                format!("no process that may be looked at listens on {}", path.display()),
            ),
        };
        if found.is_empty() { Err(Error::Process(what)) } else { Ok(found) }
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The name of a process's program: of its first argument, whose path is left away, for what the
/// kernel keeps is cut to 15 bytes; what servers put behind a colon or a blank is theirs.
fn program(pid: u32) -> Option<String> {
    let kept = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let kept = kept.trim_end();
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = line.split(|&byte| byte == 0 || byte == b' ').next().unwrap_or_default();
    let name = String::from_utf8_lossy(first).rsplit('/').next().unwrap_or_default().to_owned();
    Some(if name.starts_with(kept) { name } else { kept.to_owned() })
}

/// Inodes of the sockets that listen on a TCP port.
fn listening(port: u16) -> BTreeSet<u64> {
    const LISTEN: &str = "0A";
    let mut inodes = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(&state), Some(inode)) =
                (fields.get(1), fields.get(3), fields.get(9))
            else {
                continue;
            };
            let at = local.rsplit_once(':').and_then(|(_, hex)| u16::from_str_radix(hex, 16).ok());
            if at == Some(port) && state == LISTEN {
                inodes.extend(inode.parse::<u64>().ok());
            }
        }
    }
    inodes
}

/// Inodes of the unix sockets that listen at a path.
fn unix_sockets(path: &Path) -> BTreeSet<u64> {
    /// Set in the flags of a socket that takes connections.
    const ACCEPTS: &str = "00010000";
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let lines = text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (flags, inode) = (fields.nth(3)?, fields.nth(2)?);
        let at = line.split_once(inode)?.1.trim_start();
        let is_it = flags == ACCEPTS && Path::new(at) == path;
        is_it.then(|| inode.parse().ok())?
    });
    lines.collect()
}

/// Who has one of these sockets open.
fn holders(inodes: &BTreeSet<u64>) -> Vec<u32> {
    let names: BTreeSet<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let holds = |pid: &u32| {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|link| names.contains(&*link.to_string_lossy()))
    };
    pids().filter(|pid| !names.is_empty() && holds(pid)).collect()
}

/// What a process has used up to now.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    user_ticks: u64,
    system_ticks: u64,
    cpu_nanos: Option<u64>,
    voluntary: u64,
    involuntary: u64,
    resident: u64,
    /// When it began, which tells it from a later process of the same id.
    began: u64,
}

/// Processes over the measured time.
#[derive(Debug)]
pub(crate) struct Meter {
    processes: Vec<Metered>,
}

#[derive(Debug)]
struct Metered {
    pid: u32,
    name: String,
    first: Sample,
    resident_max: u64,
}

impl Meter {
    /// Of these processes, from now on; those that are gone are left out.
    pub(crate) fn start(pids: &[u32]) -> Meter {
        let metered = |&pid: &u32| {
            let first = sample(pid)?;
            let name = program(pid).unwrap_or_default();
            Some(Metered { pid, name, first, resident_max: first.resident })
        };
        Meter { processes: pids.iter().filter_map(metered).collect() }
    }

    /// Looks at their memory.
    pub(crate) fn look(&mut self) {
        for process in &mut self.processes {
            let resident = resident_bytes(process.pid).unwrap_or(0);
            process.resident_max = process.resident_max.max(resident);
        }
    }

    /// What they used, over so many seconds.
    pub(crate) fn end(&self, seconds: f64) -> Vec<ProcessUsage> {
        self.processes.iter().map(|process| process.usage(seconds)).collect()
    }
}

impl Metered {
    fn usage(&self, seconds: f64) -> ProcessUsage {
        let known = ProcessUsage { pid: self.pid, name: self.name.clone(), ..Default::default() };
        let last = sample(self.pid).filter(|last| last.began == self.first.began);
        let Some(last) = last else {
            return ProcessUsage { resident_max_bytes: self.resident_max, is_gone: true, ..known };
        };
        let ticks = |last: u64, first: u64| last.saturating_sub(first) as f64 / TICKS;
        let user = ticks(last.user_ticks, self.first.user_ticks);
        let system = ticks(last.system_ticks, self.first.system_ticks);
        let exact = match (last.cpu_nanos, self.first.cpu_nanos) {
            // Threads that end take theirs along: then the ticks know more.
            (Some(last), Some(first)) if last >= first => (last - first) as f64 / 1e9,
            _ => 0.0,
        };
        let off = (exact - user - system).abs();
        let cpu = if off <= 0.05 + 0.05 * exact { exact } else { user + system };
        ProcessUsage {
            user_seconds: user,
            system_seconds: system,
            cpu_seconds: cpu,
            cpu_percent: if seconds > 0.0 { 100.0 * cpu / seconds } else { 0.0 },
            voluntary_switches: last.voluntary.saturating_sub(self.first.voluntary),
            involuntary_switches: last.involuntary.saturating_sub(self.first.involuntary),
            resident_bytes: last.resident,
            resident_max_bytes: self.resident_max.max(last.resident),
            ..known
        }
    }
}

/// The processor time that a process has used so far; nothing when it is not there. It leaves out
/// threads that have ended, where the kernel counts nanoseconds.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let sample = sample(pid)?;
    let ticks = (sample.user_ticks + sample.system_ticks) as f64 / TICKS;
    Some(sample.cpu_nanos.map_or(Duration::from_secs_f64(ticks), Duration::from_nanos))
}

fn sample(pid: u32) -> Option<Sample> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold blanks and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let mut sample = Sample {
        user_ticks: field(14)?,
        system_ticks: field(15)?,
        began: field(22)?,
        resident: resident_bytes(pid)?,
        cpu_nanos: Some(0),
        ..Sample::default()
    };
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let nanos = text("schedstat").split(' ').next().and_then(|word| word.parse::<u64>().ok());
        sample.cpu_nanos = sample.cpu_nanos.zip(nanos).map(|(sum, nanos)| sum + nanos);
        let status = text("status");
        sample.voluntary += line(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        sample.involuntary += line(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
    }
    Some(sample)
}

/// The resident memory of a process in bytes; nothing when it is not there.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    line(&status, "VmRSS:").map(|kib| kib * 1024)
}

/// The number behind `name` at the start of a line.
fn line(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_listener_is_found_by_port_and_by_path() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(Watch::Port(port).find().unwrap(), [std::process::id()]);
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        assert_eq!(Watch::of(&address), Some(Watch::Port(port)));
        drop(listener);
        assert!(Watch::Port(port).find().unwrap_err().to_string().contains("listens on port"));

        let directory = keyway_testkit::TempDir::new();
        let path = directory.path().join("a socket");
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(Watch::Socket(path).find().unwrap(), [std::process::id()]);
        assert_eq!(Watch::of(&"192.0.2.1:80".parse().unwrap()), None);
    }

    #[test]
    fn what_this_process_burns_is_seen() {
        let own = std::process::id();
        let mut meter = Meter::start(&[own]);
        let mut random = crate::random::Random::new(1);
        let spent = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        let (from, mut sum) = (spent(), 0u64);
        while spent() - from < 200_000_000 {
            sum = sum.wrapping_add(random.next());
        }
        meter.look();
        let usage = &meter.end(0.2)[0];
        assert!(
            sum != 1 && usage.cpu_seconds > 0.05 && usage.resident_bytes > 1 << 20,
            "{usage:?}"
        );
        assert!(usage.resident_max_bytes >= usage.resident_bytes && !usage.is_gone);
        assert!(Watch::Pid(own).find().is_ok() && Watch::Pid(u32::MAX).find().is_err());
        let name = program(own).unwrap();
        assert!(Watch::Name(name).find().unwrap().contains(&own));
    }
}
