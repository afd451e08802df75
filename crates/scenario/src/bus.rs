//! Messages over a channel of the bus.

use crate::convert::plain;
use crate::machine::load_average;
use keyway_bus_bench::{Channel, Options, Outcome, Sizes, run};
use keyway_report::{Measured, Process, Role, Round};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Capacity of each ring, in bytes: the same as `keyway bus bench` takes.
const RING_LEN: usize = 1 << 20;

/// Sends for so long over a channel; none when it was ended before.
pub fn measure(
    channel: Channel,
    (sizes, senders): (Sizes, usize),
    seconds: f64,
    again: &[String],
    is_stopped: &AtomicBool,
) -> Option<Round> {
    let options = Options {
        channels: vec![channel],
        sizes: vec![sizes],
        senders: vec![senders],
        length: Duration::from_secs_f64(seconds),
        rounds: 1,
        ring_len: RING_LEN,
        again: again.to_vec(),
    };
    match run(&options, is_stopped, |_, _| {}) {
        Ok(mut outcomes) => Some(match outcomes.pop() {
            Some(outcome) => Round::Measured(Box::new(measured(&outcome, seconds))),
            None => Round::Failed("nothing was measured".to_owned()),
        }),
        // A terminal interrupts its processes as well, which is no failure of theirs.
        Err(_) if is_stopped.load(Ordering::Relaxed) => None,
        Err(why) => Some(Round::Failed(plain(&why.to_string()))),
    }
}

fn measured(outcome: &Outcome, seconds: f64) -> Measured {
    let total = |per_second: f64| (per_second * seconds).round() as u64;
    let process = |name: &str, share: f64, resident_kib: u64| Process {
        name: name.to_owned(),
        role: Role::Tested,
        cpu_seconds: Some(share * seconds),
        resident_bytes: resident_kib * 1024,
        ..Process::default()
    };
    let errors = [("lost", outcome.lost), ("wrong", outcome.wrong)];
    let errors = errors.into_iter().filter(|(_, count)| *count > 0);
    Measured {
        seconds,
        requests: total(outcome.messages_per_second),
        bytes_sent: total(outcome.bytes_per_second),
        errors: errors.map(|(kind, count)| (kind.to_owned(), count)).collect(),
        processes: vec![
            process("sender", outcome.cpu.0, outcome.resident_kib.0),
            process("receiver", outcome.cpu.1, outcome.resident_kib.1),
        ],
        load_average: load_average(),
        ..Measured::default()
    }
}
