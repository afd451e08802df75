//! Starts the processes of a case, and makes a row of what they tell.

use crate::case::{Case, Channel, Sizes};
use crate::ends::{Account, Order, Task};
use crate::processes::{End, PATIENCE, Process, hear};
use crate::round::RoundOrder;
use keyway_ring::{Ended, Segment, SharedDoorbell};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::thread::CpuSet;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What a run is to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Channels, in this order.
    pub channels: Vec<Channel>,
    /// Lengths of messages.
    pub sizes: Vec<Sizes>,
    /// Numbers of senders.
    pub senders: Vec<usize>,
    /// For how long each case sends.
    pub length: Duration,
    /// How often all of them are measured, one after the other; the medians are told.
    pub rounds: usize,
    /// Capacity of each ring, in bytes.
    pub ring_len: usize,
    /// This program and its first arguments, behind which the order of a process comes.
    pub again: Vec<String>,
}

impl Options {
    /// Where a socket may be made: nothing is there.
    pub(crate) fn socket(&self) -> SocketPlace {
        let name = format!("keyway-bus-bench-{}.sock", std::process::id());
        let place = SocketPlace(std::env::temp_dir().join(name));
        place.clear();
        place
    }

    /// When what begins now is over.
    pub(crate) fn end<'a>(&self, is_stopped: &'a AtomicBool) -> End<'a> {
        End { until: Instant::now() + self.length + PATIENCE, is_stopped }
    }
}

/// Where a socket is made, which is not left behind however the measurement ends.
pub(crate) struct SocketPlace(pub PathBuf);

impl SocketPlace {
    fn clear(&self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Drop for SocketPlace {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Most senders: lanes of an inbox.
pub const SENDERS_MAX: usize = keyway_ring::LANES_MAX;

/// What a case has shown, in the round of its median throughput.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// What was measured.
    pub case: Case,
    /// Messages a second, as the receiver saw them; median of the rounds.
    pub messages_per_second: f64,
    /// Bytes of messages a second.
    pub bytes_per_second: f64,
    /// Least and most messages a second of the rounds.
    pub spread: (f64, f64),
    /// Shares of a core, of all senders together and of the receiver.
    pub cpu: (f64, f64),
    /// CPU time per message, of the senders and of the receiver, in nanoseconds.
    pub cpu_ns_per_message: (f64, f64),
    /// Largest resident memory of a sender, and of the receiver, in KiB.
    pub resident_kib: (u64, u64),
    /// Messages sent and not received, of all rounds.
    pub lost: u64,
    /// Messages out of order, doubled or with a wrong byte, of all rounds.
    pub wrong: u64,
}

/// Why a case was not measured.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The system refused something.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// What one process tells another was none of it.
    #[error("a process told what is no order or account: {0}")]
    Told(#[from] serde_json::Error),
    /// A ring ended before its time.
    #[error("{0}")]
    Ring(#[from] Ended),
    /// Something came that was not sent.
    #[error("{0}")]
    Wrong(&'static str),
    /// A process ended without an account.
    #[error("{0} has failed: {1}")]
    Process(&'static str, String),
    /// A process did nothing for too long.
    #[error("{0} does not come to an end")]
    Late(&'static str),
    /// Somebody has ended the run.
    #[error("interrupted")]
    Interrupted,
}

impl From<rustix::io::Errno> for Fault {
    fn from(why: rustix::io::Errno) -> Fault {
        Fault::System(why.into())
    }
}

/// Measures every combination, round by round; `progress` hears of each case before it begins, and
/// `is_stopped` ends the one that is measured within a tenth of a second.
///
/// # Errors
/// When a case cannot be measured, or was ended so.
pub fn run(
    options: &Options,
    is_stopped: &AtomicBool,
    mut progress: impl FnMut(&Case, usize),
) -> Result<Vec<Outcome>, Fault> {
    let cases = cases(options);
    let mut rounds: Vec<Vec<Outcome>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds {
        for (case, outcomes) in cases.iter().zip(&mut rounds) {
            progress(case, round);
            outcomes.push(measure(options, *case, is_stopped)?);
        }
    }
    Ok(rounds.into_iter().filter_map(median).collect())
}

fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for &channel in &options.channels {
        for &senders in &options.senders {
            cases.extend(options.sizes.iter().map(|&sizes| Case { channel, sizes, senders }));
        }
    }
    cases
}

/// The round in the middle, with what went wrong in any.
fn median(mut rounds: Vec<Outcome>) -> Option<Outcome> {
    rounds.sort_by(|one, other| one.messages_per_second.total_cmp(&other.messages_per_second));
    let spread = (rounds.first()?.messages_per_second, rounds.last()?.messages_per_second);
    let lost = rounds.iter().map(|round| round.lost).sum();
    let wrong = rounds.iter().map(|round| round.wrong).sum();
    let middle = rounds.swap_remove(rounds.len() / 2);
    Some(Outcome { spread, lost, wrong, ..middle })
}

fn measure(options: &Options, case: Case, is_stopped: &AtomicBool) -> Result<Outcome, Fault> {
    let memory = match case.channel {
        Channel::Shm => Some(Memory::new(options.ring_len, case.senders)?),
        _ => None,
    };
    let socket = options.socket();
    let cores = cores()?;
    let mut order = Order {
        case,
        sender: None,
        send_ms: options.length.as_millis() as u64,
        ring_len: options.ring_len,
        places: memory.as_ref().map_or_else(|| vec![socket.0.clone()], Memory::places),
        port: 0,
        core: cores.map(|cores| cores[0]),
    };
    let end = options.end(is_stopped);
    let mut processes = vec![Process::start("the receiver", options, &flow(&order))?];
    if case.channel != Channel::Shm {
        order.port = hear(&mut processes, 0, &end)?[0];
    }
    order.core = cores.map(|cores| cores[1]);
    for sender in 0..case.senders {
        order.sender = Some(sender);
        processes.push(Process::start("a sender", options, &flow(&order))?);
    }
    let mut received = hear::<Account>(&mut processes, 0, &end)?;
    let sent = received.split_off(1);
    Ok(outcome(case, &sent, &received[0]))
}

/// The first two cores that this process may use; none when there are no two.
pub(crate) fn cores() -> Result<Option<[usize; 2]>, Fault> {
    Ok(first_two(&rustix::thread::sched_getaffinity(None)?))
}

fn first_two(allowed: &CpuSet) -> Option<[usize; 2]> {
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    Some([cores.next()?, cores.next()?])
}

fn flow(order: &Order) -> Task<&Order, &RoundOrder> {
    Task::Flow(order)
}

fn outcome(case: Case, sent: &[Account], received: &Account) -> Outcome {
    let seconds = received.wall_us.max(1) as f64 / 1e6;
    let messages: u64 = received.messages.iter().sum();
    let each_sent = sent.iter().flat_map(|one| &one.messages);
    let lost = each_sent.zip(&received.messages).map(|(sent, came)| sent.saturating_sub(*came));
    let senders_cpu: u64 = sent.iter().map(|one| one.cpu_us).sum();
    let per_message = |cpu_us: u64| cpu_us as f64 * 1000.0 / messages.max(1) as f64;
    let per_second = messages as f64 / seconds;
    Outcome {
        case,
        messages_per_second: per_second,
        bytes_per_second: received.bytes as f64 / seconds,
        spread: (per_second, per_second),
        cpu: (senders_cpu as f64 / 1e6 / seconds, received.cpu_us as f64 / 1e6 / seconds),
        cpu_ns_per_message: (per_message(senders_cpu), per_message(received.cpu_us)),
        resident_kib: (
            sent.iter().map(|one| one.resident_kib).max().unwrap_or(0),
            received.resident_kib,
        ),
        lost: lost.sum(),
        wrong: received.wrong,
    }
}

/// The rings, a segment each, and the doorbell of those that are lanes.
struct Memory {
    rings: Vec<Segment>,
    doorbell: SharedDoorbell,
}

impl Memory {
    fn new(ring_len: usize, senders: usize) -> Result<Memory, Fault> {
        let rings = (0..senders).map(|_| Segment::create(&[ring_len])).collect::<Result<_, _>>()?;
        Ok(Memory { rings, doorbell: SharedDoorbell::create()? })
    }

    /// Where the processes find them.
    fn places(&self) -> Vec<PathBuf> {
        let own = std::process::id();
        let place = |descriptor: BorrowedFd<'_>| {
            PathBuf::from(format!("/proc/{own}/fd/{}", descriptor.as_raw_fd()))
        };
        let rings = self.rings.iter().map(Segment::descriptor);
        rings.chain([self.doorbell.descriptor()]).map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_cores_that_are_allowed_are_taken() {
        let mut allowed = CpuSet::new();
        assert_eq!(first_two(&allowed), None);
        allowed.set(3);
        assert_eq!(first_two(&allowed), None);
        allowed.set(9);
        allowed.set(5);
        assert_eq!(first_two(&allowed), Some([3, 5]));
    }

    #[test]
    fn what_one_sender_has_lost_is_not_made_up_for_by_what_another_has_doubled() {
        let case = Case { channel: Channel::Shm, sizes: Sizes { min: 8, max: 8 }, senders: 2 };
        let sent = |count| Account { messages: vec![count], ..Account::default() };
        let received = Account { messages: vec![7, 11], wrong: 2, ..Account::default() };
        let outcome = outcome(case, &[sent(10), sent(10)], &received);
        assert_eq!((outcome.lost, outcome.wrong), (3, 2));
    }
}
