//! Leaves out of a failing sequence what the failure does not need.

use super::generate::Step;
use super::play::{Outcome, Stage, Tally};

/// A sequence that still fails.
#[derive(Debug)]
pub struct Short {
    /// Its steps.
    pub steps: Vec<Step>,
    /// How it fails.
    pub what: String,
}

/// Sequences tried at most: a failure that comes and goes would shrink for ever.
const TRIES_MAX: usize = 400;

/// Leaves out ever smaller runs of steps, then single requests, as long as the
/// rest fails.
pub fn shortest(stage: &mut Stage, steps: &[Step]) -> Short {
    let mut short = Short { steps: steps.to_vec(), what: "it did not fail again".to_owned() };
    let mut tries = 0;
    let mut run = short.steps.len().div_ceil(2);
    while run > 0 {
        let mut from = 0;
        while from < short.steps.len() && tries < TRIES_MAX {
            let mut fewer = short.steps.clone();
            fewer.drain(from..(from + run).min(fewer.len()));
            tries += 1;
            if !keep(stage, &mut short, fewer) {
                from += run;
            }
        }
        run = if run == 1 { 0 } else { run.div_ceil(2) };
    }
    for step in (0..short.steps.len()).rev() {
        let mut request = short.steps.get(step).map_or(0, |step| step.requests.len());
        while request > 0 && step < short.steps.len() && tries < TRIES_MAX {
            request -= 1;
            let mut fewer = short.steps.clone();
            fewer[step].requests.remove(request);
            tries += 1;
            if fewer[step].requests.is_empty() {
                break;
            }
            keep(stage, &mut short, fewer);
        }
    }
    short
}

/// Takes the shorter sequence if it fails, cut behind where it does.
fn keep(stage: &mut Stage, short: &mut Short, mut fewer: Vec<Step>) -> bool {
    if fewer.is_empty() {
        return false;
    }
    match stage.play(&fewer, &mut Tally::default()) {
        Outcome::Differs { at, what } => {
            fewer.truncate(at + 1);
            *short = Short { steps: fewer, what };
            true
        }
        Outcome::Same | Outcome::EndsEarly => false,
    }
}
