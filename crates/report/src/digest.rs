//! What several runs have shown, in a row for each system and group of rows: for a page that has no
//! room for their tables.

use crate::cell::{Figures, Metric};
use crate::number;
use crate::result::{Cell, Item, Run, System};
use crate::statistics::{Spread, ratios};
use crate::table::{Align, Column, Row, Table, Value};

/// The columns of figures: what is divided, and its name.
const METRICS: [(Metric, &str); 2] =
    [(Metric::Throughput, "Throughput"), (Metric::PerCpuSecond, "Requests/CPU-s")];

/// How systems did beside the one that ratios are to, in each of these runs; and beside the run's
/// peer, where the former has no processor time of its own.
pub fn digest(runs: &[Run]) -> Table {
    let column = |title: &str, align| Column { title: title.to_owned(), align };
    let mut columns =
        ["Benchmark", "Work", "System", "to"].map(|one| column(one, Align::Left)).to_vec();
    for (_, name) in METRICS {
        columns.push(column(&format!("{name}, ratio"), Align::Right));
        columns.push(column("shown in rows", Align::Right));
    }
    let mut notes = vec![
        "Each ratio is the median over the rows of the benchmark's table, of which each is a median \
         over rounds; in parentheses the least and the most of the rows. A row shows a difference \
         when all of its rounds lie on the same side of 1."
            .to_owned(),
    ];
    notes.extend(runs.iter().map(about));
    Table { title: String::new(), columns, rows: runs.iter().flat_map(rows).collect(), notes }
}

/// When and where a run was, and who is not in it.
fn about(run: &Run) -> String {
    let rounds = run.cells.iter().map(|cell| cell.rounds.len()).max().unwrap_or_default();
    let started = run.started.split('T').next().unwrap_or_default();
    let (name, machine) = (&run.scenario, &run.machine);
    let (cpu, cores) = (&machine.cpu, machine.cores);
    let mut text = format!("{name}: {started}, {rounds} rounds, {cpu}, {cores} cores");
    let missing: Vec<&str> = run
        .systems
        .iter()
        .filter(|one| one.missing.is_some())
        .map(|one| one.name.as_str())
        .collect();
    if !missing.is_empty() {
        text.push_str(&format!("; not measured: {}", missing.join(", ")));
    }
    if run.interrupted {
        text.push_str("; interrupted");
    }
    if let (Some(peer), Some(baseline)) = (peer(run), run.baseline()) {
        text.push_str(&format!(
            "; {baseline} has no processor time of its own, so others are compared with {peer} as well"
        ));
    }
    text + "."
}

/// Whom systems are compared with beside the baseline: the run's peer, where the baseline's
/// processor time is known nowhere.
pub(crate) fn peer(run: &Run) -> Option<&str> {
    let (peer, baseline) = (run.peer.as_deref()?, run.baseline()?);
    let is_there = run.systems.iter().any(|one| one.name == peer && one.missing.is_none());
    let has_cpu = |cell: &Cell| figures(cell, Metric::PerCpuSecond).iter().any(Option::is_some);
    let mut own = run.cells.iter().filter(|cell| cell.system == baseline);
    (is_there && peer != baseline && !own.any(has_cpu)).then_some(peer)
}

fn rows(run: &Run) -> Vec<Row> {
    let Some(baseline) = run.baseline() else { return Vec::new() };
    let mut groups: Vec<&str> = Vec::new();
    for item in &run.items {
        if !groups.contains(&item.group.as_str()) {
            groups.push(&item.group);
        }
    }
    let others = |to: &str| -> Vec<&System> {
        // The baseline beside the peer would be the peer beside the baseline, turned round.
        let is_other = |one: &&System| one.name != baseline && one.name != to;
        run.systems.iter().filter(|one| one.missing.is_none()).filter(is_other).collect()
    };
    let mut rows = Vec::new();
    for group in groups {
        for to in [Some(baseline), peer(run)].into_iter().flatten() {
            rows.extend(others(to).into_iter().filter_map(|system| row(run, group, system, to)));
        }
    }
    rows
}

/// The row of a system and a group beside the system `to`; none when there is nothing to divide.
fn row(run: &Run, group: &str, system: &System, to: &str) -> Option<Row> {
    let items: Vec<&Item> = run.items.iter().filter(|item| item.group == group).collect();
    let work = if group.is_empty() { "all" } else { group };
    let mut values = [&run.scenario, work, &system.name, to].map(Value::text).to_vec();
    let mut is_empty = true;
    for (metric, _) in METRICS {
        let of = |name: &str, item: &Item| Some(figures(run.cell(name, &item.id)?, metric));
        let found: Vec<Spread> = items
            .iter()
            .filter_map(|item| ratios(&of(&system.name, item)?, &of(to, item)?))
            .collect();
        is_empty &= found.is_empty();
        let shown = found.iter().filter(|one| !one.holds(1.0)).count();
        match Spread::of(found.iter().map(|one| one.median)) {
            Some(spread) => {
                values.push(Value::spread(spread, number::ratio));
                values.push(Value::text(format!("{shown} of {}", found.len())));
            }
            None => values.extend([Value::absent(), Value::absent()]),
        }
    }
    (!is_empty).then_some(Row { values, remark: None })
}

fn figures(cell: &Cell, metric: Metric) -> Vec<Option<f64>> {
    Figures::of(cell, |one| metric.of(one)).rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Measured, Process, Role, Round};

    /// Two rounds, with so many requests in a second.
    fn cell(system: &str, item: &str, requests: [u64; 2]) -> Cell {
        let round = |requests| {
            Round::Measured(Box::new(Measured { seconds: 1.0, requests, ..Measured::default() }))
        };
        let (system, item) = (system.to_owned(), item.to_owned());
        Cell { system, item, rounds: requests.map(round).to_vec() }
    }

    /// The same, with so much processor time in each round.
    fn cell_with_cpu(system: &str, requests: [u64; 2], role: Role, seconds: f64) -> Cell {
        let mut cell = cell(system, "one", requests);
        for round in &mut cell.rounds {
            let Round::Measured(one) = round else { unreachable!() };
            one.processes = vec![Process { role, user_seconds: seconds, ..Process::default() }];
        }
        cell
    }

    #[test]
    fn a_baseline_without_processor_time_has_a_peer_beside_it() {
        let system = |name: &str| System { name: name.to_owned(), ..System::default() };
        let mut run = Run {
            scenario: "mine".to_owned(),
            baseline: Some("direct".to_owned()),
            peer: Some("other".to_owned()),
            systems: ["direct", "own", "other"].map(system).to_vec(),
            items: vec![Item { id: "one".to_owned(), ..Item::default() }],
            cells: vec![
                cell_with_cpu("direct", [100, 100], Role::Backend, 1.0),
                cell_with_cpu("own", [90, 90], Role::Tested, 0.5),
                cell_with_cpu("other", [60, 60], Role::Tested, 1.0),
            ],
            ..Run::default()
        };
        let lines = |run: &Run| -> Vec<Vec<String>> {
            let rows = digest(std::slice::from_ref(run)).rows;
            rows.iter().map(|row| row.values.iter().skip(2).map(Value::line).collect()).collect()
        };
        let beside_direct = [
            ["own", "direct", "0.90", "1 of 1", "-", "-"],
            ["other", "direct", "0.60", "1 of 1", "-", "-"],
        ];
        assert_eq!(lines(&run)[..2], beside_direct);
        assert_eq!(lines(&run)[2..], [["own", "other", "1.50", "1 of 1", "3.00", "1 of 1"]]);
        assert!(
            digest(std::slice::from_ref(&run)).notes[1].contains("compared with other as well")
        );

        // A peer that is not there, and a baseline that has its own.
        run.systems[2].missing = Some("gone".to_owned());
        assert_eq!(lines(&run).len(), 1);
        run.systems[2].missing = None;
        run.cells[0] = cell_with_cpu("direct", [100, 100], Role::Tested, 1.0);
        assert_eq!(lines(&run).len(), 2);
    }

    #[test]
    fn rows_are_put_together_by_system_and_group() {
        let system = |name: &str| System { name: name.to_owned(), ..System::default() };
        let item =
            |id: &str| Item { id: id.to_owned(), group: "gets".to_owned(), ..Item::default() };
        let mut absent = system("absent");
        absent.missing = Some("it is not installed".to_owned());
        let run = Run {
            scenario: "mine".to_owned(),
            baseline: Some("old".to_owned()),
            systems: vec![system("old"), system("new"), absent],
            items: vec![item("one"), item("two"), item("three")],
            cells: vec![
                cell("old", "one", [100, 200]),
                cell("new", "one", [200, 400]),
                cell("old", "two", [100, 100]),
                cell("new", "two", [90, 130]),
                // The third was not measured of one of them.
                cell("new", "three", [90, 130]),
            ],
            ..Run::default()
        };
        let table = digest(&[run]);
        assert_eq!(table.rows.len(), 1);
        let line: Vec<String> = table.rows[0].values.iter().map(Value::line).collect();
        let wanted = ["mine", "gets", "new", "old", "1.55 (1.10-2.00)", "1 of 2", "-", "-"];
        assert_eq!(line, wanted);
        assert!(
            table.notes[1].contains("2 rounds")
                && table.notes[1].ends_with("not measured: absent.")
        );
    }
}
