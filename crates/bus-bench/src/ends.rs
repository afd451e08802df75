//! A process that sends or receives: what it is told, and what it tells at its end.

use crate::case::{Case, Channel};
use crate::message::{Sink, Source};
use crate::round::{RoundOrder, take_part};
use crate::run::Fault;
use crate::{shared, stream};
use keyway_ring::Spin;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a sender waits for room when its time is up: what fits into a channel is received in
/// much less, unless nobody receives.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// How often a sender looks at the clock: once in so many bytes.
const BYTES_PER_LOOK: usize = 1 << 20;

/// What a process is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// What is measured.
    pub case: Case,
    /// Number of a sender; none for the receiver.
    pub sender: Option<usize>,
    /// For how long is sent, in milliseconds.
    pub send_ms: u64,
    /// Capacity of each ring, in bytes.
    pub ring_len: usize,
    /// Memory of the rings, and of the doorbell; the receiver's place to listen at.
    pub places: Vec<PathBuf>,
    /// Port of a receiver of TCP.
    pub port: u16,
    /// Core to run on.
    pub core: Option<usize>,
}

/// What a process has done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Account {
    /// Messages sent or received, by sender.
    pub messages: Vec<u64>,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that were not what they should be.
    pub wrong: u64,
    /// CPU time of the process, from its first message to its last, in microseconds.
    pub cpu_us: u64,
    /// Time from the first message to the last, in microseconds.
    pub wall_us: u64,
    /// Largest resident memory, in KiB.
    pub resident_kib: u64,
}

/// What a process is started for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task<F, R> {
    Flow(F),
    Round(R),
}

/// Does what `task` (JSON) says, and prints what came of it.
///
/// # Errors
/// When it is no task, or the system refuses.
pub fn end(task: &str) -> Result<(), Fault> {
    // Nobody is left to tell anything when the one that has started it is gone.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let task: Task<Order, RoundOrder> = serde_json::from_str(task)?;
    let core = match &task {
        Task::Flow(order) => order.core,
        Task::Round(order) => order.core(),
    };
    // Before it is held to a core: who may use one only does not look before it sleeps.
    let spin = match &task {
        Task::Flow(_) => Spin::adaptive(shared::SPIN),
        Task::Round(order) => order.spin(),
    };
    if let Some(core) = core {
        let mut cores = rustix::thread::CpuSet::new();
        cores.set(core);
        rustix::thread::sched_setaffinity(None, &cores)?;
    }
    match task {
        Task::Flow(order) => flow(&order, spin),
        Task::Round(order) => take_part(&order, spin),
    }
}

fn flow(order: &Order, spin: Spin) -> Result<(), Fault> {
    let account = match (order.case.channel, order.sender) {
        (Channel::Shm, Some(sender)) => shared::send(order, sender, spin)?,
        (Channel::Shm, None) => shared::receive(order, spin)?,
        (_, Some(sender)) => stream::send(order, sender)?,
        (_, None) => stream::receive(order)?,
    };
    say(&account)
}

/// A line for the one that has started this process.
pub fn say(what: &impl Serialize) -> Result<(), Fault> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    Ok(out.flush()?)
}

/// What a sender counts.
pub struct Sending {
    pub source: Source,
    bytes: u64,
    until_look: usize,
    meter: Meter,
    end: Instant,
}

impl Sending {
    pub fn new(order: &Order, sender: usize) -> Sending {
        let meter = Meter::start();
        Sending {
            source: Source::new(order.case.sizes, sender),
            bytes: 0,
            until_look: BYTES_PER_LOOK,
            end: meter.start + Duration::from_millis(order.send_ms),
            meter,
        }
    }

    /// Until when room is waited for.
    pub fn until(&self) -> Instant {
        self.end + ROOM_PATIENCE
    }

    /// A message of that length was sent; whether there is time for another.
    pub fn sent(&mut self, len: usize) -> bool {
        self.bytes += len as u64;
        // Short ones cost by the message.
        let cost = len + 64;
        if self.until_look > cost {
            self.until_look -= cost;
            return true;
        }
        self.until_look = BYTES_PER_LOOK;
        Instant::now() < self.end
    }

    pub fn account(self) -> Account {
        Account { messages: vec![self.source.count()], bytes: self.bytes, ..self.meter.account() }
    }
}

/// What the receiver counts.
pub struct Receiving {
    sinks: Vec<Sink>,
    bytes: u64,
    wrong: u64,
    meter: Option<Meter>,
}

impl Receiving {
    pub fn new(order: &Order) -> Receiving {
        let sinks = (0..order.case.senders).map(|_| Sink::default()).collect();
        Receiving { sinks, bytes: 0, wrong: 0, meter: None }
    }

    pub fn senders(&self) -> usize {
        self.sinks.len()
    }

    pub fn received(&mut self, sender: usize, message: &[u8]) {
        if self.meter.is_none() {
            self.meter = Some(Meter::start());
        }
        self.bytes += message.len() as u64;
        self.wrong += u64::from(!self.sinks[sender].check(message));
    }

    pub fn account(self) -> Account {
        let meter = self.meter.unwrap_or_else(Meter::start);
        Account {
            messages: self.sinks.iter().map(Sink::count).collect(),
            bytes: self.bytes,
            wrong: self.wrong,
            ..meter.account()
        }
    }
}

/// Time, and CPU time of this process.
struct Meter {
    start: Instant,
    cpu_us: u64,
}

impl Meter {
    fn start() -> Meter {
        Meter { start: Instant::now(), cpu_us: cpu_us() }
    }

    fn account(&self) -> Account {
        Account {
            cpu_us: cpu_us() - self.cpu_us,
            wall_us: self.start.elapsed().as_micros() as u64,
            resident_kib: resident_kib(),
            ..Account::default()
        }
    }
}

fn cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// `VmHWM` of this process; 0 where the system does not tell.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
