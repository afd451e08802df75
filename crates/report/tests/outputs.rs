//! What a result becomes beside the page: tables for terminals, Markdown, CSV and JSON.

mod sample;

use keyway_report::{
    Cell, Figures, Metric, Role, Round, Run, Table, Value, csv, html, markdown, read, tables,
    terminal, write,
};
use keyway_testkit::TempDir;

/// The head of each report's table, as it was published, and what is added to all.
const HEADS: &[(&str, &[&str])] = &[
    (
        "codis-vs-twemproxy",
        &[
            "NTHRD",
            "Ops/sec",
            "Latency (ms)",
            "KB/sec",
            "Proxy CPU",
            "Bench CPU",
            "Redis CPU",
            "Total CPU",
        ],
    ),
    (
        "twemproxy-memcached",
        &[
            "Conn rate/s",
            "Conn min ms",
            "Conn avg ms",
            "Conn max ms",
            "Conn stddev ms",
            "Req rate/s",
            "p25 ms",
            "p50 ms",
            "p75 ms",
            "p95 ms",
            "p99 ms",
            "p999 ms",
            "Response types",
            "Errors",
            "Client CPU",
        ],
    ),
    (
        "cluster-proxies",
        &[
            "Mode",
            "Command",
            "Connections",
            "tps",
            "mrt (ms)",
            "Masters' switches/s",
            "Masters' CPU",
        ],
    ),
    (
        "aerospike-cache",
        &[
            "Value bytes",
            "Connections",
            "CPU %",
            "Load",
            "Ops/s per node",
            "Read:write",
            "Mean RT (us)",
            "% RT>1ms",
            "% RT>8ms",
            "% RT>64ms",
        ],
    ),
    (
        "atbus",
        &[
            "Item",
            "Connections",
            "Packet length",
            "CPU send/receive",
            "Memory send/receive",
            "Throughput",
            "QPS",
        ],
    ),
    ("my-own", &["Item", "Requests/s", "p50 ms", "p99 ms", "Errors"]),
];

fn all() -> Vec<Run> {
    std::iter::once(sample::proxies(3)).chain(sample::others()).collect()
}

#[test]
fn every_report_has_its_own_columns_in_their_order() {
    for run in all() {
        let (_, wanted) = HEADS.iter().find(|(name, _)| *name == run.scenario).unwrap();
        let table = &tables(&run)[0];
        let mut heads = table.columns.iter().map(|column| column.title.as_str());
        for head in *wanted {
            assert!(heads.any(|found| found == *head), "{}: {head}", run.scenario);
        }
        let baseline = run.baseline().unwrap();
        let costs = [
            "Requests/CPU-s".to_owned(),
            format!("Throughput to {baseline}'s"),
            format!("Requests/CPU-s to {baseline}'s"),
        ];
        assert!(heads.eq(costs.iter().map(String::as_str)), "{}", run.scenario);
        for row in &table.rows {
            let is_whole = row.remark.is_some() || row.values.len() == table.columns.len();
            assert!(is_whole, "{}: {row:?}", run.scenario);
        }
    }
}

#[test]
fn the_suite_has_a_column_for_each_system() {
    let runs = sample::others();
    let run = runs.iter().find(|run| run.scenario == "cluster-proxies").unwrap();
    let suite = &tables(run)[1];
    let heads: Vec<&str> = suite.columns.iter().map(|column| column.title.as_str()).collect();
    let wanted = [
        "Command",
        "direct",
        "keyway",
        "direct per CPU-s",
        "keyway per CPU-s",
        "keyway to direct's",
        "keyway per CPU-s, to direct's",
    ];
    assert_eq!(heads, wanted);
}

#[test]
fn a_baseline_without_processor_time_has_the_peer_in_its_place() {
    let mut runs = all();
    let run = runs.iter_mut().find(|run| run.scenario == "cluster-proxies").unwrap();
    let mut third = run.systems[1].clone();
    third.name = "other".to_owned();
    run.systems.push(third);
    let copies: Vec<Cell> =
        run.cells.iter().filter(|one| one.system == "keyway").cloned().collect();
    run.cells.extend(copies.into_iter().map(|one| Cell { system: "other".to_owned(), ..one }));
    for round in
        run.cells.iter_mut().filter(|one| one.system == "direct").flat_map(|one| &mut one.rounds)
    {
        let Round::Measured(one) = round else { panic!("it was measured") };
        one.processes.iter_mut().for_each(|process| process.role = Role::Backend);
    }
    let heads = |run: &Run| -> Vec<Vec<String>> {
        let titles = |table: &Table| table.columns.iter().map(|one| one.title.clone()).collect();
        tables(run).iter().map(titles).collect()
    };
    assert!(
        heads(run)[0].ends_with(
            &["Throughput to direct's", "Requests/CPU-s to direct's"].map(str::to_owned)
        )
    );
    run.baseline = Some("direct".to_owned());
    run.peer = Some("other".to_owned());
    let found = heads(run);
    let wanted = ["Throughput to direct's", "Throughput to other's", "Requests/CPU-s to other's"];
    assert!(found[0].ends_with(&wanted.map(str::to_owned)), "{found:?}");
    let wanted = [
        "keyway to direct's",
        "keyway to other's",
        "keyway per CPU-s, to other's",
        "other to direct's",
    ];
    assert!(found[1].ends_with(&wanted.map(str::to_owned)), "{found:?}");
    let rows = &tables(run)[0].rows;
    let last = |nth: usize| -> Vec<String> {
        let values = &rows[nth].values;
        values[values.len() - 3..].iter().map(Value::line).collect()
    };
    assert_eq!(last(0), ["-", "-", "-"], "direct");
    assert!(last(1)[1..].iter().all(|ratio| ratio.starts_with("1.00")), "keyway: {:?}", last(1));
    assert!(last(2)[0] != "-" && last(2)[1..] == ["-", "-"], "other: {:?}", last(2));
}

#[test]
fn a_missing_peer_is_a_row_that_says_so() {
    let run = sample::proxies(3);
    for text in [terminal(&run, 400), terminal(&run, 60), markdown(&run)] {
        assert!(text.contains("not measured: codis-proxy is not installed"), "{text}");
    }
    let missing = "codis-vs-twemproxy,codis,,";
    assert!(
        csv(&run).lines().any(|line| line.starts_with(missing) && line.contains("not installed"))
    );
}

#[test]
fn csv_has_every_round_and_its_figures_are_not_rounded() {
    let run = sample::proxies(3);
    let text = csv(&run);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().unwrap().clone();
    let column = |name: &str| heads.iter().position(|head| head == name).unwrap();
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    // Eight items: three rounds of two systems, and a line for the one that is missing.
    assert_eq!(lines.len(), 8 * (3 * 2 + 1));
    for line in lines.iter().filter(|line| &line[column("system")] != "codis") {
        let cell = run.cell(&line[column("system")], &line[column("item")]).unwrap();
        let nth: usize = line[column("round")].parse().unwrap();
        for (name, metric) in [
            ("requests_per_second", Metric::Throughput),
            ("requests_per_cpu_second", Metric::PerCpuSecond),
            ("latency_p99_ns", Metric::P99),
        ] {
            let wanted = Figures::of(cell, |one| metric.of(one)).rounds[nth - 1];
            assert_eq!(line[column(name)].parse().ok(), wanted, "{name}");
        }
    }
}

#[test]
fn a_result_is_the_same_after_a_file() {
    let directory = TempDir::new();
    for run in all() {
        let file = directory.path().join("result.json");
        write(&run, &file).unwrap();
        assert_eq!(read(&file).unwrap(), run);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn names_cannot_leave_their_place() {
    let mut run = sample::proxies(3);
    let name = "<script>alert(1)</script>|`x`\"' onload=x";
    for cell in run.cells.iter_mut().filter(|cell| cell.system == "keyway") {
        cell.system = name.to_owned();
    }
    run.systems[1].name = name.to_owned();
    run.items[0].title = format!("{name} & more");
    run.items[0].group = name.to_owned();
    run.title = name.to_owned();
    run.notes.push(name.to_owned());
    let page = html(&run).unwrap();
    assert!(!page.contains("<script"), "a name became a script");
    assert!(!page.contains("\"' onload"), "a name ended an attribute");
    assert!(page.contains("&lt;script&gt;"));
    let text = markdown(&run);
    assert!(!text.contains("<script") && !text.contains("|`"), "{text}");
    let first = text.lines().find(|line| line.starts_with("| System")).unwrap();
    let bars = |line: &str| line.replace("\\|", "").matches('|').count();
    for line in text.lines().skip_while(|line| *line != first).take_while(|line| !line.is_empty()) {
        assert_eq!(bars(line), bars(first), "{line}");
    }
}

#[test]
fn rounds_on_both_sides_of_one_show_no_difference() {
    let mut run = sample::proxies(3);
    for cell in &mut run.cells {
        if cell.system == "keyway" {
            cell.rounds.clear();
        }
    }
    let copies: Vec<_> =
        run.cells.iter().filter(|cell| cell.system == "twemproxy").cloned().collect();
    for mut copy in copies {
        copy.rounds.rotate_left(1);
        let place = run.cells.iter_mut();
        let mut place = place.filter(|cell| cell.system == "keyway" && cell.item == copy.item);
        place.next().unwrap().rounds = copy.rounds;
    }
    for table in tables(&run) {
        for row in table.rows.iter().filter(|row| row.values[0].text == "keyway") {
            assert!(row.values.last().unwrap().line().ends_with('≈'), "{row:?}");
        }
    }
}

#[test]
fn few_rounds_are_said_to_be_few() {
    let said = |rounds| terminal(&sample::proxies(rounds), 400);
    assert!(said(1).contains("cannot tell a difference from noise"));
    assert!(said(3).contains("once in 4 times"));
    assert!(said(5).contains("once in 16 times"));
    assert!(!said(7).contains("chance alone"));
}

#[test]
fn a_run_without_anything_is_still_a_report() {
    let run = Run { cells: Vec::new(), items: Vec::new(), ..sample::proxies(3) };
    assert!(html(&run).unwrap().contains("Proxies before sixteen Redis servers"));
    assert!(terminal(&run, 80).contains("Proxies before sixteen Redis servers"));
    let run = Run { cells: Vec::new(), ..sample::proxies(3) };
    assert!(html(&run).unwrap().contains("not measured"));
    assert!(!csv(&run).is_empty());
}
