//! Generated sequences of requests over several connections, played against a
//! bare redis-server and a system side by side, every reply and message
//! compared byte for byte.
//!
//! [`draw`] makes a sequence from a seed, [`Stage`] plays it, [`DIFFERENCES`]
//! names what may differ and why, and a failure comes with its seed and with
//! the shortest sequence found that still fails. The bare server is a single
//! thread: once it has answered two PINGs of another connection, everything it
//! has to say about a step is here. The system under test must then say the
//! same on each connection, however long it needs.

mod differences;
mod generate;
mod play;
mod shrink;
mod wire;

pub use differences::{DIFFERENCES, Difference, document};
pub use generate::{Step, Words, draw, show, written};
pub use play::{Outcome, Stage, Tally};
pub use shrink::shortest;

/// Which system is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The embedded store.
    Store,
    /// A sharded pool of one server.
    One,
    /// A sharded pool of several servers.
    Four,
}

/// Failures after which no more seeds are played.
const FAILURES_MAX: usize = 8;

/// Plays the sequences of `count` seeds from `seed` on, and tells how often
/// each difference was met.
///
/// # Panics
/// When unknown differences came up: each with its seed and a short sequence.
pub fn play_seeds(stage: &mut Stage, seed: u64, count: u64) -> Tally {
    let mut tally = Tally::default();
    let mut failures: Vec<String> = Vec::new();
    for seed in seed..seed + count {
        let steps = draw(seed, stage.reach());
        if let Outcome::Differs { at, what } = stage.play(&steps, &mut tally) {
            let short = shortest(stage, &steps[..=at.min(steps.len() - 1)]);
            let lines: Vec<String> = short.steps.iter().map(show).collect();
            failures.push(format!(
                "seed {seed}: {what}\n shortest sequence:\n    {}\n which ends in {}",
                lines.join("\n    "),
                short.what
            ));
            if failures.len() == FAILURES_MAX {
                break;
            }
        }
    }
    let reach = stage.reach();
    assert!(failures.is_empty(), "{reach:?} differs from the bare server\n{}", failures.join("\n"));
    tally
}
