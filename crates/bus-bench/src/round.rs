//! Round trips: one message there and back at a time, between two processes.

use crate::ends::{Order, Task, say};
use crate::processes::{Process, hear};
use crate::run::{Fault, Options, cores};
use keyway_ring::{HELLO_LEN, Hello, Pipe, Spin, answer, ask};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Bytes of the message.
const LEN: usize = 128;

/// Capacity of the rings, in bytes.
const RING_LEN: usize = 64 << 10;

/// How long is looked before it is slept, where it is looked at all.
const SPIN: Duration = Duration::from_millis(1);

/// Round trips before those that count: so many, or as long as is measured, where others want the cores.
const WARM_UP: usize = 2000;

/// How the two wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// At a unix socket.
    Unix,
    /// At rings, asleep.
    ShmAsleep,
    /// At rings, looking all the time.
    ShmLooking,
}

impl Transport {
    /// All there are.
    pub const ALL: [Transport; 3] = [Transport::Unix, Transport::ShmAsleep, Transport::ShmLooking];
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Transport::Unix => "unix",
            Transport::ShmAsleep => "shm, asleep",
            Transport::ShmLooking => "shm, looking",
        })
    }
}

/// What one of both is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct RoundOrder {
    way: Transport,
    path: PathBuf,
    length_ms: u64,
    core: Option<usize>,
    is_echo: bool,
}

impl RoundOrder {
    pub fn core(&self) -> Option<usize> {
        self.core
    }

    /// How its way waits.
    pub fn spin(&self) -> Spin {
        if self.way == Transport::ShmLooking { Spin::adaptive(SPIN) } else { Spin::never() }
    }
}

/// Times of round trips, in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trips {
    /// How they waited.
    pub way: Transport,
    /// Half took no longer.
    pub median_ns: u64,
    /// One in a hundred took longer.
    pub p99_ns: u64,
    /// How many there were a second.
    pub per_second: f64,
}

/// Does its part, and tells.
pub fn take_part(order: &RoundOrder, spin: Spin) -> Result<(), Fault> {
    if order.is_echo { echo(order, spin) } else { say(&measure(order, spin)?) }
}

fn echo(order: &RoundOrder, spin: Spin) -> Result<(), Fault> {
    let listener = UnixListener::bind(&order.path)?;
    say(&0_u16)?;
    let mut socket = listener.accept()?.0;
    if order.way == Transport::Unix {
        return echo_over(socket);
    }
    let mut hello = [0; HELLO_LEN];
    socket.read_exact(&mut hello)?;
    let hello = Hello::decode(&hello).ok_or(Fault::Wrong("no hello"))?;
    let shared =
        answer(&socket, &hello, 1 << 20)?.map_err(|_| Fault::Wrong("no memory for rings"))?;
    echo_over(Pipe::new(shared, socket, spin))
}

fn echo_over(mut other: impl Read + Write) -> Result<(), Fault> {
    let mut message = [0; LEN];
    loop {
        match other.read_exact(&mut message) {
            Ok(()) => {}
            Err(why) if why.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(why) => return Err(why.into()),
        }
        other.write_all(&message)?;
        other.flush()?;
    }
}

fn measure(order: &RoundOrder, spin: Spin) -> Result<Trips, Fault> {
    let socket = UnixStream::connect(&order.path)?;
    if order.way == Transport::Unix {
        return measure_over(socket, order);
    }
    let shared = ask(&socket, &Hello::new(RING_LEN, RING_LEN))?
        .map_err(|_| Fault::Wrong("no memory for rings"))?;
    measure_over(Pipe::new(shared, socket, spin), order)
}

fn measure_over(mut other: impl Read + Write, order: &RoundOrder) -> Result<Trips, Fault> {
    let (mut message, mut back, mut times) = ([0; LEN], [0; LEN], Vec::new());
    let mut trip = |nth: u8| {
        message.fill(nth);
        other.write_all(&message)?;
        other.flush()?;
        other.read_exact(&mut back)?;
        match back == message {
            true => Ok::<_, Fault>(()),
            false => Err(Fault::Wrong("another message came back")),
        }
    };
    let length = Duration::from_millis(order.length_ms);
    let begin = Instant::now();
    for nth in 0..WARM_UP {
        trip(nth as u8)?;
        if begin.elapsed() >= length {
            break;
        }
    }
    let start = Instant::now();
    let (end, mut before) = (start + length, start);
    while before < end {
        trip(times.len() as u8)?;
        let now = Instant::now();
        times.push((now - before).as_nanos() as u64);
        before = now;
    }
    let per_second = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    Ok(Trips { way: order.way, median_ns: at(0.5), p99_ns: at(0.99), per_second })
}

/// Measures each way, round by round; the medians of the rounds.
///
/// # Errors
/// When one cannot be measured.
pub fn round_trips(options: &Options) -> Result<Vec<Trips>, Fault> {
    let mut rounds: Vec<Vec<Trips>> = Transport::ALL.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (way, trips) in Transport::ALL.into_iter().zip(&mut rounds) {
            trips.push(between_two(options, way)?);
        }
    }
    Ok(rounds
        .into_iter()
        .filter_map(|mut trips| {
            trips.sort_by_key(|one| one.median_ns);
            let middle = trips.len() / 2;
            trips.into_iter().nth(middle)
        })
        .collect())
}

fn between_two(options: &Options, way: Transport) -> Result<Trips, Fault> {
    let socket = options.socket();
    let is_stopped = AtomicBool::new(false);
    let (cores, end) = (cores()?, options.end(&is_stopped));
    let length_ms = options.length.as_millis() as u64;
    let (path, core) = (socket.0.clone(), cores.map(|cores| cores[0]));
    let mut order = RoundOrder { way, path, length_ms, core, is_echo: true };
    let mut processes = vec![Process::start("the echo", options, &round(&order))?];
    hear::<u16>(&mut processes, 0, &end)?;
    (order.is_echo, order.core) = (false, cores.map(|cores| cores[1]));
    processes.push(Process::start("who asks", options, &round(&order))?);
    Ok(hear::<Trips>(&mut processes, 1, &end)?.remove(0))
}

fn round(order: &RoundOrder) -> Task<&Order, &RoundOrder> {
    Task::Round(order)
}
