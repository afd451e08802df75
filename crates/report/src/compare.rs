//! Two runs laid beside each other: what differs, as far as their rounds can show it.

use crate::cell::{Figures, Metric};
use crate::number;
use crate::result::{Cell, Item, Run};
use crate::statistics::{Spread, chance, interval, least_chance};
use crate::table::{Align, Column, Row, Table, Value};
use std::fmt::Write;

/// What is asked of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How likely chance alone may be for a difference to count as shown: 0.05 is usual.
    pub chance_max: f64,
    /// Differences of the medians below this share are none, whatever the rounds say: 0.02 for
    /// two percent. What differs between two runs beside the systems is in no spread of rounds.
    pub margin: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { chance_max: 0.05, margin: 0.0 }
    }
}

/// What the rounds show of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The new one is better.
    Better,
    /// The new one is worse.
    Worse,
    /// Neither is shown.
    NoDifference,
    /// So few rounds that no difference could be shown, however large.
    TooFewRounds,
}

impl Verdict {
    /// For tables.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::NoDifference => "no difference shown",
            Verdict::TooFewRounds => "no difference shown (too few rounds)",
        }
    }
}

/// One figure of one cell, in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The system's name.
    pub system: String,
    /// The item's name.
    pub item: String,
    /// Which figure.
    pub metric: Metric,
    /// Over the old run's rounds.
    pub old: Spread,
    /// Over the new run's rounds.
    pub new: Spread,
    /// Between what new / old lies in 95 of 100 draws.
    pub interval: Option<(f64, f64)>,
    /// How likely chance alone parts the rounds as far.
    pub chance: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// What is in one of the runs and cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The system's name.
    pub system: String,
    /// The item's name.
    pub item: String,
    /// What is missing or differs.
    pub why: String,
}

/// All figures of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What was asked.
    pub settings: Settings,
    /// What both have, in the order of the old run.
    pub changes: Vec<Change>,
    /// What one of them lacks.
    pub skipped: Vec<Skipped>,
    /// What a reader should know: other machines, few rounds.
    pub warnings: Vec<String>,
}

/// Compares what both runs have.
pub fn compare(old: &Run, new: &Run, settings: Settings) -> Comparison {
    let mut found = Comparison {
        settings,
        changes: Vec::new(),
        skipped: Vec::new(),
        warnings: warnings(old, new),
    };
    for item in &old.items {
        for system in &old.systems {
            found.cell(old, new, item, &system.name);
        }
    }
    for cell in &new.cells {
        let is_known = old.items.iter().any(|item| item.id == cell.item)
            && old.systems.iter().any(|system| system.name == cell.system);
        if !is_known {
            let item = new.items.iter().find(|item| item.id == cell.item);
            let name = item.map_or(cell.item.as_str(), Item::name);
            found.skip(&cell.system, name, "only in the new run");
        }
    }
    found
}

fn warnings(old: &Run, new: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.scenario != new.scenario {
        let (old, new) = (&old.scenario, &new.scenario);
        warnings.push(format!("The scenarios differ: {old}, then {new}."));
    }
    if old.machine != new.machine {
        warnings
            .push("The runs are of different machines: figures differ by that alone.".to_owned());
    }
    for (name, was) in &old.parameters {
        match new.parameters.get(name) {
            Some(is) if is == was => {}
            Some(is) => warnings.push(format!("The parameter {name} was {was} and is {is}.")),
            None => warnings.push(format!("The parameter {name} was {was} and is not there.")),
        }
    }
    let added = new.parameters.iter().filter(|(name, _)| !old.parameters.contains_key(*name));
    warnings
        .extend(added.map(|(name, is)| format!("The parameter {name} is {is} and was not there.")));
    for (run, which) in [(old, "old"), (new, "new")] {
        if run.interrupted {
            warnings.push(format!("The {which} run was interrupted."));
        }
    }
    warnings
}

impl Comparison {
    fn skip(&mut self, system: &str, item: &str, why: impl Into<String>) {
        let (system, item) = (system.to_owned(), item.to_owned());
        self.skipped.push(Skipped { system, item, why: why.into() });
    }

    fn cell(&mut self, old: &Run, new: &Run, item: &Item, system: &str) {
        let was = old.cell(system, &item.id).filter(|cell| is_measured(cell));
        let is = new.cell(system, &item.id).filter(|cell| is_measured(cell));
        let again = new.items.iter().find(|one| one.id == item.id);
        let name = &old.label(item);
        let (Some(was), Some(is)) = (was, is) else {
            return match (was.is_some(), is.is_some()) {
                (true, _) => self.skip(system, name, "only in the old run"),
                (_, true) => self.skip(system, name, "only in the new run"),
                _ => {}
            };
        };
        if again.is_some_and(|again| again.parameters != item.parameters) {
            return self.skip(system, name, "the item's parameters differ");
        }
        for metric in Metric::ALL {
            self.change((system, name), metric, was, is);
        }
    }

    fn change(&mut self, (system, item): (&str, &str), metric: Metric, was: &Cell, is: &Cell) {
        let figures = |cell| Figures::of(cell, |one| metric.of(one)).known();
        let (was, is) = (figures(was), figures(is));
        let (old, new) = match (Spread::of(was.iter().copied()), Spread::of(is.iter().copied())) {
            (Some(old), Some(new)) => (old, new),
            (None, None) => return,
            (Some(_), None) => {
                return self.skip(system, item, format!("{} only in the old run", metric.name()));
            }
            (None, Some(_)) => {
                return self.skip(system, item, format!("{} only in the new run", metric.name()));
            }
        };
        let (interval, chance) = (interval(&was, &is), chance(&was, &is));
        let verdict = match least_chance(was.len(), is.len()) > self.settings.chance_max {
            true => Verdict::TooFewRounds,
            false => self.settings.verdict(metric, (old, new), interval, chance),
        };
        let (system, item) = (system.to_owned(), item.to_owned());
        self.changes.push(Change { system, item, metric, old, new, interval, chance, verdict });
    }

    /// Returns whether anything is shown to be worse.
    pub fn is_worse(&self) -> bool {
        self.changes.iter().any(|change| change.verdict == Verdict::Worse)
    }

    /// The tables and what is to be said of them.
    pub fn table(&self) -> Table {
        let words = ["System", "Item", "Figure"].map(|title| (title, Align::Left));
        let figures = ["Old", "New", "New/old", "95 % interval", "Chance"];
        let figures = figures.map(|title| (title, Align::Right));
        let columns = words.into_iter().chain(figures).chain([("Shown", Align::Left)]);
        let column = |(title, align): (&str, Align)| Column { title: title.to_owned(), align };
        Table {
            title: String::new(),
            columns: columns.map(column).collect(),
            rows: self.changes.iter().map(Change::row).collect(),
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.warnings.clone();
        let compared = self.changes.iter().filter(|one| one.verdict != Verdict::TooFewRounds);
        let compared = compared.count();
        if compared > 0 {
            let by_chance = compared as f64 * self.settings.chance_max;
            notes.push(format!(
                "Of {compared} figures, up to {by_chance:.1} would look different by chance alone. \
                 What changed for a whole run, as another program on the machine, is in no spread: \
                 run both again, in turns, before believing a small difference."
            ));
        }
        if compared < self.changes.len() {
            notes.push(
                "Too few rounds: with three a side, chance alone parts them wholly once in ten. \
                 Four show a difference at 5 %, five at 1 %."
                    .to_owned(),
            );
        }
        if !self.skipped.is_empty() {
            let mut lines = "Not compared:".to_owned();
            for one in &self.skipped {
                let _ = write!(lines, "\n  {}, {}: {}", one.system, one.item, one.why);
            }
            notes.push(lines);
        }
        notes
    }
}

impl Settings {
    fn verdict(
        self,
        metric: Metric,
        (old, new): (Spread, Spread),
        interval: Option<(f64, f64)>,
        chance: f64,
    ) -> Verdict {
        let excludes_one = interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0);
        let is_large = (new.median / old.median - 1.0).abs() >= self.margin;
        if chance > self.chance_max || !excludes_one || !is_large {
            return Verdict::NoDifference;
        }
        match (new.median > old.median) == metric.more_is_better() {
            true => Verdict::Better,
            false => Verdict::Worse,
        }
    }
}

impl Change {
    /// The ratio of the medians; none when the old one is 0.
    pub fn ratio(&self) -> Option<f64> {
        (self.old.median > 0.0).then(|| self.new.median / self.old.median)
    }

    fn row(&self) -> Row {
        let spread = |spread| Value::spread(spread, |value| self.metric.text(value));
        let ratio = self
            .ratio()
            .map_or_else(Value::absent, |ratio| Value::number(ratio, number::ratio(ratio)));
        let interval = self.interval.map_or_else(Value::absent, |(low, high)| {
            Value::text(format!("{}-{}", number::ratio(low), number::ratio(high)))
        });
        let values = vec![
            Value::text(&self.system),
            Value::text(&self.item),
            Value::text(self.metric.name()),
            spread(self.old),
            spread(self.new),
            ratio,
            interval,
            Value::number(self.chance, format!("{:.3}", self.chance)),
            Value::text(self.verdict.text()),
        ];
        Row { values, remark: None }
    }
}

fn is_measured(cell: &Cell) -> bool {
    cell.measured().next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::result::{FORMAT, Machine, Measured, Round, Scalar, System, VERSION};

    fn run(rates: &[u64]) -> Run {
        let round = |requests: &u64| {
            let latency = Histogram {
                buckets_ns: vec![(1_000_000_000 / requests, *requests)],
                sum_ns: 1e9,
                ..Histogram::default()
            };
            Round::Measured(Box::new(Measured {
                seconds: 1.0,
                requests: *requests,
                latency,
                ..Measured::default()
            }))
        };
        Run {
            format: FORMAT.to_owned(),
            version: VERSION,
            scenario: "any".to_owned(),
            systems: vec![System { name: "keyway".to_owned(), ..System::default() }],
            items: vec![Item { id: "get".to_owned(), ..Item::default() }],
            cells: vec![Cell {
                system: "keyway".to_owned(),
                item: "get".to_owned(),
                rounds: rates.iter().map(round).collect(),
            }],
            ..Run::default()
        }
    }

    fn verdict(old: &[u64], new: &[u64], settings: Settings) -> Verdict {
        let found = compare(&run(old), &run(new), settings);
        let change = found.changes.iter().find(|one| one.metric == Metric::Throughput);
        change.unwrap().verdict
    }

    #[test]
    fn a_difference_is_shown_when_the_rounds_are_apart_and_enough() {
        let usual = Settings::default();
        let (slow, fast) = ([100, 101, 99, 102, 98], [120, 121, 119, 122, 118]);
        assert_eq!(verdict(&slow, &fast, usual), Verdict::Better);
        assert_eq!(verdict(&fast, &slow, usual), Verdict::Worse);
        assert_eq!(verdict(&slow, &slow, usual), Verdict::NoDifference);
        assert_eq!(verdict(&slow, &[101, 103, 97, 100, 104], usual), Verdict::NoDifference);
        assert_eq!(verdict(&slow[..3], &fast[..3], usual), Verdict::TooFewRounds);
        assert_eq!(verdict(&slow[..4], &fast[..4], usual), Verdict::Better);
    }

    #[test]
    fn what_is_below_the_margin_is_no_difference() {
        let settings = Settings { margin: 0.5, ..Settings::default() };
        let (slow, fast) = ([100, 101, 99, 102, 98], [120, 121, 119, 122, 118]);
        assert_eq!(verdict(&slow, &fast, settings), Verdict::NoDifference);
    }

    #[test]
    fn less_latency_is_better() {
        let (slow, fast) = ([100, 101, 99, 102, 98], [120, 121, 119, 122, 118]);
        let found = compare(&run(&slow), &run(&fast), Settings::default());
        let half = found.changes.iter().find(|one| one.metric == Metric::Half).unwrap();
        assert!(half.ratio().unwrap() < 1.0);
        assert_eq!(half.verdict, Verdict::Better);
        assert!(!found.is_worse());
        assert!(compare(&run(&fast), &run(&slow), Settings::default()).is_worse());
    }

    #[test]
    fn what_one_side_lacks_is_told() {
        let (old, mut new) = (run(&[100; 5]), run(&[100; 5]));
        new.items[0].id = "set".to_owned();
        new.cells[0].item = "set".to_owned();
        let found = compare(&old, &new, Settings::default());
        assert!(found.changes.is_empty());
        let whys: Vec<&str> = found.skipped.iter().map(|one| one.why.as_str()).collect();
        assert_eq!(whys, ["only in the old run", "only in the new run"]);

        let mut other = run(&[100; 5]);
        other.items[0].parameters.insert("pipeline".to_owned(), Scalar::Number(16.0));
        let found = compare(&old, &other, Settings::default());
        assert_eq!(found.skipped[0].why, "the item's parameters differ");
    }

    #[test]
    fn other_machines_and_parameters_are_warned_of() {
        let (old, mut new) = (run(&[100; 5]), run(&[100; 5]));
        new.machine = Machine { cores: 64, ..Machine::default() };
        new.parameters.insert("seconds".to_owned(), Scalar::Number(10.0));
        let warnings = compare(&old, &new, Settings::default()).warnings;
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("different machines"));
        assert!(warnings[1].contains("seconds"));
    }
}
