use std::fmt::Write;

use keyway_report::statistics::Spread;
use keyway_report::{Align, Row, Table, Value};

use super::{BySystem, Report, Setting};
use crate::figures::Verdict;
use crate::items::COUNTS;
use crate::memory::Memory;
use crate::plan::Side;
use crate::rounds::{Column, RowResult};
use crate::syscalls::Syscalls;
use crate::systems::Part;

/// Returns the generated part of the performance document.
pub fn comparison_markdown(report: &Report) -> String {
    let mut out = setting_lines(&report.setting);
    let shown = |load: Option<f64>| load.map_or("unknown".into(), |load| format!("{load:.2}"));
    let [before, after] = report.load_average.map(shown);
    let rounds = report.rounds;
    push(&mut out, &format!("- {rounds} interleaved rounds; load average {before} -> {after}"));
    for (side, title) in [
        (Side::Proxy, "Proxies in front of four redis-servers"),
        (Side::ClusterProxy, "Proxies in front of a Redis Cluster of three primaries and replicas"),
        (Side::MemcachedProxy, "Proxies in front of four memcached servers"),
        (Side::Store, "Embedded store against a bare redis-server"),
    ] {
        let rows: Vec<&RowResult> =
            report.rows.iter().filter(|result| result.row.side == side).collect();
        if !rows.is_empty() {
            push(&mut out, &format!("\n### {title}\n"));
            push_rows(&mut out, &rows);
        }
    }
    push_syscalls(&mut out, &report.syscalls);
    push_memory(&mut out, &report.memory);
    push_items(&mut out, &report.items);
    push_missing(&mut out, report);
    out
}

/// Returns the generated table of instructions for a request.
pub fn callgrind_markdown(setting: &Setting, figures: &BySystem<f64>) -> String {
    let mut out = setting_lines(setting);
    let row = |(title, figure): &(String, Result<f64, String>)| {
        let figure = match figure {
            Ok(figure) => format!("{figure:.0}"),
            Err(failure) => format!("failed: {failure}"),
        };
        vec![Value::text(title), Value::text(figure)]
    };
    let titles = heads(&["case", "user instructions per request"]);
    push(&mut out, "");
    out.push_str(&table(&titles, 0, figures.iter().map(row).collect()));
    out
}

pub(crate) fn setting_lines(setting: &Setting) -> String {
    let Setting { machine, date, command, versions } = setting;
    let mut out = format!("- {date}: `{command}`\n");
    let (cpu, cores, kernel) = (&machine.cpu, machine.cores, &machine.kernel);
    let memory = machine.memory_bytes >> 30;
    push(&mut out, &format!("- {cpu}, {cores} cores, {memory} GiB, {kernel}"));
    let versions: Vec<String> =
        versions.iter().map(|(name, version)| format!("{name}: {version}")).collect();
    push(&mut out, &format!("- {}", versions.join("; ")));
    out
}

fn push(out: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{line}");
}

/// Returns a table whose first column and last `words` columns are texts, and whose other columns
/// are figures.
fn table(heads: &[String], words: usize, rows: Vec<Vec<Value>>) -> String {
    let figures = 1..heads.len() - words;
    let column = |(nth, title): (usize, &String)| keyway_report::Column {
        title: title.clone(),
        align: if figures.contains(&nth) { Align::Right } else { Align::Left },
    };
    let columns = heads.iter().enumerate().map(column).collect();
    let rows = rows.into_iter().map(|values| Row { values, remark: None }).collect();
    Table { columns, rows, ..Table::default() }.markdown()
}

/// Returns figures by system, or a text that there are none.
fn by_system<T>(
    heads: &[String],
    words: usize,
    figures: &BySystem<T>,
    cells: impl Fn(&T) -> Vec<String>,
) -> String {
    let row = |(name, figure): &(String, Result<T, String>)| {
        let cells = match figure {
            Ok(figure) => cells(figure),
            Err(_) => vec!["failed".to_owned()],
        };
        [vec![name.clone()], cells].concat().into_iter().map(Value::text).collect()
    };
    table(heads, words, figures.iter().map(row).collect())
}

fn heads(heads: &[&str]) -> Vec<String> {
    heads.iter().map(|&head| head.to_owned()).collect()
}

fn push_rows(out: &mut String, rows: &[&RowResult]) {
    let columns = &rows[0].columns;
    let subject = columns.iter().find(|column| column.part == Part::Subject);
    let subject = subject.map_or("keyway", |column| column.name.as_str());
    let mut titles = heads(&["work"]);
    titles.extend(columns.iter().map(|column| column.name.clone()));
    titles.extend(rows[0].peers().map(|peer| format!("{subject} / {}", peer.name)));
    titles.extend(heads(&["at least / aim", "verdict"]));
    out.push_str(&table(&titles, 2, rows.iter().map(|result| row(result)).collect()));
    push(out, "\nThousands of requests per CPU-second: median (min-max of the rounds).");
    push(out, "Ratios: median (min-max) of the ratios within the rounds.");
}

fn row(result: &RowResult) -> Vec<Value> {
    let mut values = vec![Value::text(result.row.title)];
    values.extend(result.columns.iter().map(|column| Value::text(figure_cell(column))));
    values.extend(result.peers().map(|peer| Value::text(ratio_cell(result.ratio(peer)))));
    values.push(Value::text(match result.row.target {
        Some(target) => format!("{} / {}", target.at_least, target.aim),
        None => "-".into(),
    }));
    let verdict = result.judgement().map(|judgement| {
        let ratio = format!("{:.2} of {}", judgement.ratio.median, judgement.against);
        match judgement.verdict {
            Some(verdict) => {
                let text = format!("{}: {ratio}", verdict.text());
                Value { is_strong: verdict == Verdict::Missed, ..Value::text(text) }
            }
            None => Value::text(ratio),
        }
    });
    values.push(verdict.unwrap_or_else(Value::absent));
    values
}

fn figure_cell(column: &Column) -> String {
    match column.spread() {
        Some(Spread { median, min, max }) => {
            format!("{} ({}-{})", thousands(median), thousands(min), thousands(max))
        }
        None if column.is_unfit => "-".into(),
        None => "failed".into(),
    }
}

fn ratio_cell(ratio: Option<Spread>) -> String {
    match ratio {
        Some(Spread { median, min, max }) => format!("{median:.2} ({min:.2}-{max:.2})"),
        None => "-".into(),
    }
}

/// Formats thousands with three significant digits.
fn thousands(figure: f64) -> String {
    let thousands = figure / 1000.0;
    if thousands >= 99.95 { format!("{thousands:.0}") } else { format!("{thousands:.1}") }
}

fn push_syscalls(out: &mut String, figures: &BySystem<Syscalls>) {
    if figures.is_empty() {
        return;
    }
    push(out, "\n### System calls per request, GET, 50 clients, depth 1\n");
    let titles = heads(&["system", "per request", "made of"]);
    out.push_str(&by_system(&titles, 1, figures, |syscalls| {
        let part = |(call, calls): &(String, f64)| format!("{call} {calls:.2}");
        let parts: Vec<String> = syscalls.by_name.iter().map(part).collect();
        vec![format!("{:.2}", syscalls.per_request), parts.join(", ")]
    }));
    push(out, "\nCounted by `strace -c -f`, which slows the system down: batches are larger");
    push(out, "than without it, and the figures good for comparing columns only.");
}

fn push_items(out: &mut String, figures: &BySystem<[f64; COUNTS.len()]>) {
    if figures.is_empty() {
        return;
    }
    push(out, "\n### Resident memory per item of a 16-byte key and a 64-byte value\n");
    let mut titles = heads(&["system"]);
    titles.extend(COUNTS.map(|count| format!("{} million items", count / 1_000_000)));
    out.push_str(&by_system(&titles, 0, figures, |figures| {
        figures.iter().map(|bytes| format!("{bytes:.1} B")).collect()
    }));
    push(out, "\nWhat the RSS of fresh processes grew by, divided by the items.");
}

fn push_memory(out: &mut String, figures: &BySystem<Memory>) {
    if figures.is_empty() {
        return;
    }
    let connections =
        figures.iter().find_map(|(_, figure)| Some(figure.as_ref().ok()?.connections));
    let connections = format!("{} connections", connections.unwrap_or(0));
    push(out, "\n### Resident memory\n");
    let titles = heads(&[
        "system",
        "after start",
        "after 50 clients x depth 75",
        "2 s after they left",
        &connections,
        "used once each",
        "used all at once",
    ]);
    out.push_str(&by_system(&titles, 0, figures, |memory| {
        let of_process = [Some(memory.after_start), memory.after_deep, memory.later];
        let each = [
            memory.per_fresh_connection,
            memory.per_used_connection,
            memory.per_connection_used_at_once,
        ];
        let each = each.map(|bytes| format!("{bytes:.0} B each"));
        of_process.map(mebibytes).into_iter().chain(each).collect()
    }));
    push(
        out,
        "\nRSS of fresh processes, idle when it is read. Connections are used by one GET each:",
    );
    push(out, "first one after the other, then all of them waiting before the first is read.");
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or("-".into(), |bytes| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)))
}

fn push_missing(out: &mut String, report: &Report) {
    let failures = report.failures();
    let absent = report.absent.iter().filter(|absent| !absent.is_failure);
    let absent: Vec<String> = absent.map(|a| format!("{}: {}", a.name, a.why)).collect();
    for (title, lines) in [("Not measured", absent), ("Failed", failures)] {
        if !lines.is_empty() {
            push(out, &format!("\n{title}:\n"));
            lines.iter().for_each(|line| push(out, &format!("- {}", line.replace('\n', " "))));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::Sample;
    use crate::plan::ROWS;
    use crate::session::Absent;
    use keyway_report::Machine;

    fn column(name: &str, part: Part, requests: u64) -> Column {
        let sample = Sample {
            requests,
            cpu: Duration::from_secs(1),
            loader_cpu: Duration::ZERO,
            voluntary_switches: 0,
            elapsed: Duration::from_secs(1),
        };
        Column {
            name: name.into(),
            part,
            samples: vec![Some(sample); 5],
            failure: None,
            is_unfit: false,
        }
    }

    fn report() -> Report {
        let machine =
            Machine { cpu: "cpu".into(), cores: 2, memory_bytes: 2 << 30, kernel: "6.18".into() };
        let setting = Setting {
            machine,
            date: "2025-01-01".into(),
            command: "make bench".into(),
            versions: vec![("nutcracker".into(), "0.5.0".into())],
        };
        let columns = vec![
            column("nutcracker", Part::Judge, 50_000),
            column("keyway", Part::Subject, 70_000),
        ];
        let absent = Absent {
            name: "predixy".into(),
            side: Side::Proxy,
            why: "not given".into(),
            is_failure: false,
        };
        Report {
            setting,
            rounds: 5,
            load_average: [Some(0.1), None],
            rows: vec![RowResult { row: ROWS[0], columns }],
            absent: vec![absent],
            memory: Vec::new(),
            syscalls: Vec::new(),
            items: Vec::new(),
        }
    }

    #[test]
    fn a_row_shows_figures_ratio_target_and_verdict() {
        let text = comparison_markdown(&report());
        let row = "| GET, 50 clients, depth 1 | 50.0 (50.0-50.0) | 70.0 (70.0-70.0) | \
                   1.40 (1.40-1.40) | 1.3 / 1.5 | met: 1.40 of nutcracker |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("Not measured:\n\n- predixy: not given"), "{text}");
        assert!(!text.contains("Failed"), "{text}");
    }

    #[test]
    fn a_failure_is_shown_in_its_cell_and_in_words() {
        let mut report = report();
        report.rows[0].columns[1].failure = Some("wrong answers: 3 keys not found".into());
        let text = comparison_markdown(&report);
        assert!(text.contains("| failed | - | 1.3 / 1.5 | - |"), "{text}");
        assert!(text.contains("- depth1-get: keyway: wrong answers: 3 keys not found"), "{text}");
    }

    #[test]
    fn every_table_line_has_as_many_cells_as_its_head() {
        let text = comparison_markdown(&report());
        let cells = |line: &str| line.matches('|').count();
        let table: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert!(table.iter().all(|line| cells(line) == cells(table[0])), "{text}");
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!(thousands(48_123.0), "48.1");
        assert_eq!(thousands(2_546_000.0), "2546");
    }
}
