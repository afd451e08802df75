//! Interleaved rounds: in every round each system is measured once. The order rotates, so that no
//! system always follows the same other one.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use keyway_report::statistics::{Spread, ratios};

use crate::clock;
use crate::error::Error;
use crate::figures::{Series, Verdict, best};
use crate::measure::{Sample, Window, measure};
use crate::plan::Row;
use crate::systems::{Part, System};

/// The measurements of one row on one system.
#[derive(Clone, Debug)]
pub struct Column {
    /// The system's name.
    pub name: String,
    /// Its part in the comparison.
    pub part: Part,
    /// One entry for each round, `None` where it failed.
    pub samples: Vec<Option<Sample>>,
    /// The first failure, as text.
    pub failure: Option<String>,
    /// True if the system cannot do the row's work.
    pub is_unfit: bool,
}

impl Column {
    /// Returns the requests per CPU-second, round by round.
    pub fn series(&self) -> Series {
        self.samples.iter().map(|sample| sample.map(|sample| sample.per_cpu_second())).collect()
    }

    /// Returns the spread of [`Column::series`]. Returns `None` for a column with a failure,
    /// because the rest is not what was to be measured.
    pub fn spread(&self) -> Option<Spread> {
        match self.failure {
            Some(_) => None,
            None => Spread::of(self.series().into_iter().flatten()),
        }
    }
}

/// All measurements of one row.
#[derive(Clone, Debug)]
pub struct RowResult {
    /// The row.
    pub row: Row,
    /// One column for each system, in the order in which they were started.
    pub columns: Vec<Column>,
}

/// The subject compared with the better of the peers to which the target refers.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The name of that peer.
    pub against: String,
    /// The ratios within the rounds.
    pub ratio: Spread,
    /// Whether the target is met, or `None` if there is no target.
    pub verdict: Option<Verdict>,
}

impl RowResult {
    /// Returns the column of the subject, or `None` if it does not run.
    pub fn subject(&self) -> Option<&Column> {
        self.columns.iter().find(|column| column.part == Part::Subject)
    }

    /// Returns the systems with which the subject is compared.
    pub fn peers(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.part != Part::Subject)
    }

    /// Returns the ratios of the subject to `peer`, unless either has failed.
    pub fn ratio(&self, peer: &Column) -> Option<Spread> {
        let subject = self.subject()?;
        subject.spread().and(peer.spread())?;
        ratios(&subject.series(), &peer.series())
    }

    /// Returns the verdict, or `None` if the subject or all peers that count are missing.
    pub fn judgement(&self) -> Option<Judgement> {
        let judges: Vec<&Column> = self
            .peers()
            .filter(|peer| peer.part == Part::Judge && peer.spread().is_some())
            .collect();
        let series: Vec<Series> = judges.iter().map(|peer| peer.series()).collect();
        let peer = judges[best(series.iter().map(Vec::as_slice))?];
        let ratio = self.ratio(peer)?;
        let verdict = self.row.target.map(|target| target.judge(ratio.median));
        Some(Judgement { against: peer.name.clone(), ratio, verdict })
    }
}

/// Measures `row` on `systems` for `rounds` rounds. A system that fails is not measured again in
/// this row.
///
/// # Errors
/// Returns only [`Error::Interrupted`]: a failed measurement is part of the result.
pub fn run_row(
    row: Row,
    systems: &mut [&mut System],
    rounds: usize,
    window: &Window,
    progress: &mut Progress,
) -> Result<RowResult, Error> {
    let mut columns: Vec<Column> =
        systems.iter().map(|system| empty_column(system, &row)).collect();
    for round in 0..rounds {
        for turn in 0..systems.len() {
            let index = (round + turn) % systems.len();
            let column = &mut columns[index];
            progress.step(&format!("{}: {}", row.id, column.name));
            if column.is_unfit || column.failure.is_some() {
                column.samples.push(None);
                continue;
            }
            match measure(systems[index], &row, window) {
                Ok(sample) => column.samples.push(Some(sample)),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    progress.note(&format!("{}: {}: {error}", row.id, column.name));
                    column.samples.push(None);
                    column.failure = Some(error.to_string());
                }
            }
        }
    }
    Ok(RowResult { row, columns })
}

fn empty_column(system: &System, row: &Row) -> Column {
    let (name, part) = (system.name.clone(), system.part);
    let is_unfit = !row.fits(system.served.protocol);
    Column { name, part, samples: Vec::new(), failure: None, is_unfit }
}

/// The line on a terminal that says what is being done and how long the rest will take. Failures
/// are written to standard error in any case.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    started: Option<Instant>,
    steps: usize,
    done: usize,
    expected_step: Duration,
}

impl Progress {
    /// Creates the progress of `steps` measurements of about `expected_step` each.
    pub fn new(steps: usize, expected_step: Duration) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        Progress { is_terminal, started: None, steps, done: 0, expected_step }
    }

    /// Notes that the next measurement begins.
    pub fn step(&mut self, what: &str) {
        let started = *self.started.get_or_insert_with(clock::now);
        let left = self.steps.saturating_sub(self.done);
        let per_step = match self.done {
            0 => self.expected_step,
            done => (clock::now() - started) / done as u32,
        };
        self.done += 1;
        if self.is_terminal {
            let (done, steps) = (self.done, self.steps);
            let time = time_left(per_step * left as u32);
            eprint!("\r\x1b[K[{done}/{steps}] {what}, {time} left");
            drop(std::io::stderr().flush());
        }
    }

    /// Writes a line that stays on the screen.
    pub fn note(&self, text: &str) {
        let start = if self.is_terminal { "\r\x1b[K" } else { "" };
        eprintln!("{start}{text}");
    }

    /// Clears the line.
    pub fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

fn time_left(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ROWS;

    fn column(name: &str, part: Part, figures: &[f64]) -> Column {
        let sample = |&figure: &f64| {
            Some(Sample {
                requests: (figure * 2.0) as u64,
                cpu: Duration::from_secs(2),
                loader_cpu: Duration::ZERO,
                voluntary_switches: 0,
                elapsed: Duration::from_secs(4),
            })
        };
        let samples = figures.iter().map(sample).collect();
        Column { name: name.to_owned(), part, samples, failure: None, is_unfit: false }
    }

    fn result(columns: Vec<Column>) -> RowResult {
        RowResult { row: ROWS[0], columns }
    }

    #[test]
    fn the_better_judge_decides_and_a_mere_peer_never_does() {
        let result = result(vec![
            column("slow", Part::Judge, &[100.0, 100.0, 100.0]),
            column("fast", Part::Judge, &[200.0, 200.0, 200.0]),
            column("fastest", Part::Peer, &[900.0, 900.0, 900.0]),
            column("ours", Part::Subject, &[280.0, 300.0, 280.0]),
        ]);
        let judgement = result.judgement().unwrap();
        assert_eq!(judgement.against, "fast");
        assert_eq!(judgement.ratio, Spread { median: 1.4, min: 1.4, max: 1.5 });
        assert_eq!(judgement.verdict, Some(Verdict::Met));
    }

    #[test]
    fn a_failed_column_has_no_figure_and_no_say() {
        let mut failed = column("fast", Part::Judge, &[200.0]);
        failed.failure = Some("1 errors in 9 replies".into());
        let mut result = result(vec![
            column("slow", Part::Judge, &[100.0]),
            failed,
            column("ours", Part::Subject, &[150.0]),
        ]);
        assert_eq!(result.judgement().unwrap().against, "slow");
        result.columns[2].failure = Some("ended".into());
        assert_eq!(result.judgement(), None);
    }

    #[test]
    fn without_a_subject_there_are_figures_but_no_verdict() {
        let result = result(vec![column("slow", Part::Judge, &[100.0])]);
        assert!(result.judgement().is_none() && result.columns[0].spread().is_some());
    }

    #[test]
    fn time_left_is_in_seconds_or_whole_minutes() {
        assert_eq!(time_left(Duration::from_secs(99)), "99 s");
        assert_eq!(time_left(Duration::from_secs(121)), "3 min");
    }
}
