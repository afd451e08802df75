//! The tables of the five reports, each with its own columns, and one for all else. Behind each
//! stand what the reports leave out: requests for a second of processor time, and ratios to the
//! baseline with their spread; where that has no processor time of its own, to the peer as well.

use crate::cell::{Figures, Metric};
use crate::digest::peer;
use crate::number;
use crate::result::{Cell, Item, Measured, Role, Run, System};
use crate::statistics::{Spread, ratios};
use crate::table::{Align, Column, Row, Table, Value, escaped};
use std::fmt::Write;

/// What one row is about.
struct Place<'a> {
    item: &'a Item,
    system: &'a System,
    cell: &'a Cell,
    baseline: Option<&'a Cell>,
    peer: Option<&'a Cell>,
}

/// A column, and what stands in it.
struct Field {
    title: String,
    align: Align,
    value: Box<dyn Fn(&Place) -> Value>,
}

/// A group of items with this name is laid out with a column for each system, as
/// redis-benchmark's figures are.
const SUITE: &str = "redis-benchmark";

/// All tables of a run: one for each group of its items.
pub fn tables(run: &Run) -> Vec<Table> {
    let mut groups: Vec<&str> = Vec::new();
    for item in &run.items {
        if !groups.contains(&item.group.as_str()) {
            groups.push(&item.group);
        }
    }
    let mut tables: Vec<Table> = groups.into_iter().map(|group| table(run, group)).collect();
    if let Some(last) = tables.last_mut() {
        last.notes.extend(legend(run));
    }
    tables
}

fn table(run: &Run, group: &str) -> Table {
    let items: Vec<&Item> = run.items.iter().filter(|item| item.group == group).collect();
    match run.scenario.as_str() {
        "cluster-proxies" if group == SUITE => by_system(run, group, &items),
        _ => by_row(run, group, &items),
    }
}

/// With more rounds, it is rarer than 1 in 50 that chance puts one system ahead in all of them.
const ROUNDS_FEW: usize = 6;

/// Words below the tables about what they have in common.
fn legend(run: &Run) -> Vec<String> {
    let rounds = run.cells.iter().map(|cell| cell.rounds.len()).max().unwrap_or_default();
    let mut notes = Vec::new();
    let mut about = match rounds {
        0 | 1 => "One round".to_owned(),
        _ => format!("Medians of {rounds} rounds, with the least and the most in parentheses"),
    };
    about.push_str(". Processor time is in percent of one core.");
    if is_comparison(run) {
        about.push_str(
            " Ratios are taken within a round, in which the systems take turns; \"≈\" is where \
             rounds lie on both sides of 1, which shows no difference.",
        );
        if (2..=ROUNDS_FEW).contains(&rounds) {
            about.push_str(&format!(
                " With {rounds} rounds chance alone puts one of two equal systems ahead in all of \
                 them once in {} times.",
                1 << (rounds - 1)
            ));
        }
    }
    notes.push(about);
    if rounds == 1 {
        notes.push("One round has no spread: it cannot tell a difference from noise.".to_owned());
    }
    if run.interrupted {
        notes.push("The run was interrupted: this is what had been measured.".to_owned());
    }
    notes.extend(run.notes.iter().cloned());
    notes
}

fn by_row(run: &Run, group: &str, items: &[&Item]) -> Table {
    let mut fields = fields(&run.scenario);
    fields.push(spread("Requests/CPU-s", Metric::PerCpuSecond));
    if is_comparison(run) {
        fields.extend(ratio_fields(run));
    }
    let words = fields.iter().take_while(|field| field.align == Align::Left).count();
    let mut rows = Vec::new();
    for item in items {
        for system in run.systems.iter().filter(|one| one.missing.is_none()) {
            rows.push(row(run, item, system, &fields, words));
        }
    }
    for system in &run.systems {
        rows.extend(system.missing.as_deref().map(|why| missing(system, why)));
    }
    let column = |field: Field| Column { title: field.title, align: field.align };
    Table {
        title: group.to_owned(),
        columns: fields.into_iter().map(column).collect(),
        rows,
        notes: Vec::new(),
    }
}

/// The row of a system on an item: what is not there is said in place of the figures.
fn row(run: &Run, item: &Item, system: &System, fields: &[Field], words: usize) -> Row {
    let nothing = Cell::default();
    let cell = run.cell(&system.name, &item.id);
    let baseline = run.baseline().filter(|name| *name != system.name);
    // The baseline beside the peer would be the peer beside the baseline, turned round.
    let peer = peer(run).filter(|name| baseline.is_some() && *name != system.name);
    let of = |name: Option<&str>| run.cell(name?, &item.id);
    let (baseline, peer) = (of(baseline), of(peer));
    let place = Place { item, system, cell: cell.unwrap_or(&nothing), baseline, peer };
    let is_measured = place.cell.measured().next().is_some();
    let shown = if is_measured { fields.len() } else { words };
    let values = fields[..shown].iter().map(|field| (field.value)(&place)).collect();
    let remark = (!is_measured).then(|| match place.cell.failure() {
        Some(why) => format!("failed: {why}"),
        None => "not measured".to_owned(),
    });
    Row { values, remark }
}

/// The one row of a system that was not there.
fn missing(system: &System, why: &str) -> Row {
    Row { values: vec![Value::text(&system.name)], remark: Some(format!("not measured: {why}")) }
}

fn fields(scenario: &str) -> Vec<Field> {
    match scenario {
        "codis-vs-twemproxy" => codis(),
        "twemproxy-memcached" => memcached(),
        "cluster-proxies" => cluster(),
        "aerospike-cache" => aerospike(),
        "atbus" => atbus(),
        _ => any(),
    }
}

fn codis() -> Vec<Field> {
    vec![
        system(),
        parameter("NTHRD", "threads"),
        spread("Ops/sec", Metric::Throughput),
        figure("Latency (ms)", |one| ms(one.latency.mean_ns())),
        figure("KB/sec", |one| {
            Some((one.bytes_sent + one.bytes_received) as f64 / 1024.0 / one.seconds)
        }),
        cpu("Proxy CPU", Role::Tested),
        cpu("Bench CPU", Role::Load),
        cpu("Redis CPU", Role::Backend),
        figure("Total CPU", Measured::cpu_percent_of_all),
    ]
}

fn memcached() -> Vec<Field> {
    let lifetime = |one: &Measured| {
        let found = one.connects.as_ref().map(|found| found.lifetime.clone());
        found.filter(|lifetime| !lifetime.buckets_ns.is_empty())
    };
    let mut fields = vec![
        system(),
        figure("Conn rate/s", |one| Some(one.connects.as_ref()?.count as f64 / one.seconds)),
        figure("Conn min ms", move |one| ms(Some(lifetime(one)?.min_ns as f64))),
        figure("Conn avg ms", move |one| ms(lifetime(one)?.mean_ns())),
        figure("Conn max ms", move |one| ms(Some(lifetime(one)?.max_ns as f64))),
        figure("Conn stddev ms", move |one| ms(lifetime(one)?.deviation_ns())),
        figure("Connect avg ms", |one| ms(one.connects.as_ref()?.connect.mean_ns())),
        spread("Req rate/s", Metric::Throughput),
    ];
    for (title, share) in [
        ("p25 ms", 0.25),
        ("p50 ms", 0.5),
        ("p75 ms", 0.75),
        ("p95 ms", 0.95),
        ("p99 ms", 0.99),
        ("p999 ms", 0.999),
    ] {
        fields.push(quantile(title, share));
    }
    fields.push(words("Response types", |place| {
        kinds(place.cell.measured().flat_map(|one| &one.replies))
    }));
    fields.push(words("Errors", |place| kinds(place.cell.measured().flat_map(|one| &one.errors))));
    fields.push(cpu("Client CPU", Role::Load));
    fields
}

fn cluster() -> Vec<Field> {
    vec![
        words("Mode", |place| place.system.name.clone()),
        words("Command", |place| match place.item.text("command") {
            text if text.is_empty() => place.item.name().to_owned(),
            text => text,
        }),
        parameter("Connections", "connections"),
        spread("tps", Metric::Throughput),
        figure("mrt (ms)", |one| ms(one.latency.mean_ns())),
        figure("Masters' switches/s", |one| one.context_switches(Role::Backend)),
        cpu("Masters' CPU", Role::Backend),
    ]
}

fn aerospike() -> Vec<Field> {
    let above = |title, bound_ns| {
        figure(title, move |one| one.latency.share_above(bound_ns).map(|share| share * 100.0))
    };
    vec![
        system(),
        parameter("Value bytes", "value_bytes"),
        parameter("Connections", "connections"),
        cpu("CPU %", Role::Tested),
        figure("Load", |one| one.load_average),
        Field {
            title: "Ops/s per node".to_owned(),
            align: Align::Right,
            value: Box::new(|place| {
                let nodes = place.item.number("nodes").filter(|nodes| *nodes >= 1.0);
                let per_node =
                    |one: &Measured| Some(Metric::Throughput.of(one)? / nodes.unwrap_or(1.0));
                with_spread(Figures::of(place.cell, per_node).spread(), number::plain)
            }),
        },
        parameter("Read:write", "read_write"),
        figure("Mean RT (us)", |one| one.latency.mean_ns().map(|ns| ns / 1e3)),
        above("% RT>1ms", 1_000_000),
        above("% RT>8ms", 8_000_000),
        above("% RT>64ms", 64_000_000),
    ]
}

fn atbus() -> Vec<Field> {
    vec![
        system(),
        words("Item", |place| place.item.name().to_owned()),
        parameter("Connections", "connections"),
        parameter("Packet length", "packet_len"),
        words("CPU send/receive", |place| {
            ends(
                place.cell,
                |one, seconds| one.all_cpu_seconds() / seconds * 100.0,
                |share| format!("{share:.0}%"),
            )
        }),
        words("Memory send/receive", |place| {
            ends(place.cell, |one, _| one.resident_bytes as f64, number::bytes)
        }),
        Field {
            title: "Throughput".to_owned(),
            align: Align::Right,
            value: Box::new(|place| {
                let rate = |one: &Measured| Some(one.bytes_sent as f64 / one.seconds);
                with_spread(Figures::of(place.cell, rate).spread(), |rate| {
                    format!("{}/s", number::bytes(rate))
                })
            }),
        },
        spread("QPS", Metric::Throughput),
    ]
}

fn any() -> Vec<Field> {
    vec![
        system(),
        words("Item", |place| place.item.name().to_owned()),
        spread("Requests/s", Metric::Throughput),
        figure("Mean ms", |one| ms(one.latency.mean_ns())),
        quantile("p50 ms", 0.5),
        quantile("p99 ms", 0.99),
        quantile("p99.9 ms", 0.999),
        quantile("Max ms", 1.0),
        cpu("CPU %", Role::Tested),
        figure("Memory MB", |one| Some(one.resident_bytes(Role::Tested)? / 1e6)),
        figure("Errors", |one| Some(one.failures() as f64)),
    ]
}

/// Returns whether there is more than one system: else there is nothing to have a ratio to.
fn is_comparison(run: &Run) -> bool {
    run.systems.iter().filter(|one| one.missing.is_none()).count() > 1
}

/// What systems are compared by, and with whom: what the baseline has no figures of is left out
/// where there is a peer.
fn compared(run: &Run) -> Vec<(&str, Metric)> {
    let baseline = run.baseline().unwrap_or_default();
    match peer(run) {
        None => vec![(baseline, Metric::Throughput), (baseline, Metric::PerCpuSecond)],
        Some(peer) => vec![
            (baseline, Metric::Throughput),
            (peer, Metric::Throughput),
            (peer, Metric::PerCpuSecond),
        ],
    }
}

/// The ratios behind every table's own columns.
fn ratio_fields(run: &Run) -> Vec<Field> {
    let field = |(to, metric): (&str, Metric)| {
        let title = match metric {
            Metric::PerCpuSecond => "Requests/CPU-s",
            _ => "Throughput",
        };
        let is_peer = run.baseline() != Some(to);
        Field {
            title: format!("{title} to {to}'s"),
            align: Align::Right,
            value: Box::new(move |place| {
                let other = if is_peer { place.peer } else { place.baseline };
                ratio(place.cell, other, metric)
            }),
        }
    };
    compared(run).into_iter().map(field).collect()
}

fn ratio(cell: &Cell, other: Option<&Cell>, metric: Metric) -> Value {
    let figures = |cell| Figures::of(cell, |one| metric.of(one)).rounds;
    let spread = other.and_then(|other| ratios(&figures(cell), &figures(other)));
    let Some(spread) = spread else { return Value::absent() };
    let mut value = with_spread(Some(spread), number::ratio);
    if spread.holds(1.0) {
        value.spread.get_or_insert_default().push_str(" ≈");
    }
    value
}

fn with_spread(spread: Option<Spread>, text: impl Fn(f64) -> String) -> Value {
    spread.map_or_else(Value::absent, |spread| Value::spread(spread, text))
}

fn system() -> Field {
    words("System", |place| place.system.name.clone())
}

fn words(title: &str, value: impl Fn(&Place) -> String + 'static) -> Field {
    let value = Box::new(move |place: &Place| Value::text(value(place)));
    Field { title: title.to_owned(), align: Align::Left, value }
}

fn parameter(title: &str, name: &'static str) -> Field {
    words(title, move |place| place.item.text(name))
}

/// The median over the rounds alone.
fn figure(title: &str, value: impl Fn(&Measured) -> Option<f64> + 'static) -> Field {
    let value = Box::new(move |place: &Place| {
        let spread = Figures::of(place.cell, &value).spread();
        spread.map_or_else(Value::absent, |spread| {
            Value::number(spread.median, number::plain(spread.median))
        })
    });
    Field { title: title.to_owned(), align: Align::Right, value }
}

fn spread(title: &str, metric: Metric) -> Field {
    let value = Box::new(move |place: &Place| {
        let figures = Figures::of(place.cell, |one| metric.of(one));
        with_spread(figures.spread(), |value| metric.text(value))
    });
    Field { title: title.to_owned(), align: Align::Right, value }
}

fn cpu(title: &str, role: Role) -> Field {
    figure(title, move |one| one.cpu_percent(role))
}

fn quantile(title: &str, share: f64) -> Field {
    figure(title, move |one| ms(one.latency.quantile_ns(share).map(|ns| ns as f64)))
}

fn ms(ns: Option<f64>) -> Option<f64> {
    ns.map(|ns| ns / 1e6)
}

/// `stored 200000, not_found 3`, over all rounds.
fn kinds<'a>(all: impl Iterator<Item = (&'a String, &'a u64)>) -> String {
    let mut sums = std::collections::BTreeMap::<&str, u64>::new();
    for (kind, count) in all.filter(|(_, count)| **count > 0) {
        let sum = sums.entry(kind).or_default();
        *sum = sum.saturating_add(*count);
    }
    if sums.is_empty() {
        return "none".to_owned();
    }
    let each: Vec<String> = sums.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    each.join(", ")
}

/// The medians of a figure of the sender and of the receiver.
fn ends(
    cell: &Cell,
    figure: impl Fn(&crate::result::Process, f64) -> f64,
    text: impl Fn(f64) -> String,
) -> String {
    let of = |name: &str| {
        let figures = Figures::of(cell, |one| {
            let found = one.processes.iter().find(|process| process.name == name)?;
            Some(figure(found, one.seconds))
        });
        figures.spread().map_or_else(|| "-".to_owned(), |spread| text(spread.median))
    };
    format!("{}/{}", of("sender"), of("receiver"))
}

/// A row for each item, a column for each system that was there: requests a second, behind them
/// requests for a second of processor time, and the ratios.
fn by_system(run: &Run, group: &str, items: &[&Item]) -> Table {
    let baseline = run.baseline().unwrap_or_default();
    let column = |title: String, align| Column { title, align };
    let there: Vec<&System> = run.systems.iter().filter(|one| one.missing.is_none()).collect();
    let pairs: Vec<(&System, &str, Metric)> = there
        .iter()
        .filter(|one| one.name != baseline)
        .flat_map(|one| compared(run).into_iter().map(|(to, metric)| (*one, to, metric)))
        .filter(|(one, to, _)| one.name != *to)
        .collect();
    let mut columns = vec![column("Command".to_owned(), Align::Left)];
    columns.extend(there.iter().map(|one| column(one.name.clone(), Align::Right)));
    columns.extend(there.iter().map(|one| column(format!("{} per CPU-s", one.name), Align::Right)));
    for (system, to, metric) in &pairs {
        let what = if *metric == Metric::PerCpuSecond { "per CPU-s, to" } else { "to" };
        columns.push(column(format!("{} {what} {to}'s", system.name), Align::Right));
    }
    let row = |item: &&Item| {
        let cell = |system: &System| run.cell(&system.name, &item.id);
        let mut values = vec![Value::text(item.name())];
        for metric in [Metric::Throughput, Metric::PerCpuSecond] {
            values.extend(there.iter().map(|system| {
                let figures = cell(system).map(|cell| Figures::of(cell, |one| metric.of(one)));
                with_spread(figures.and_then(|figures| figures.spread()), number::plain)
            }));
        }
        for (system, to, metric) in &pairs {
            let value = cell(system).map(|cell| ratio(cell, run.cell(to, &item.id), *metric));
            values.push(value.unwrap_or_else(Value::absent));
        }
        Row { values, remark: None }
    };
    let missing = run.systems.iter().filter_map(|system| {
        let why = system.missing.as_deref()?;
        Some(format!("{} was not measured: {why}", system.name))
    });
    Table {
        title: format!("{group}, requests/s"),
        columns,
        rows: items.iter().map(row).collect(),
        notes: missing.collect(),
    }
}

/// All of a run for a terminal of `width` columns.
pub fn terminal(run: &Run, width: usize) -> String {
    let mut out = format!("{}\n\n", run.heading());
    for (nth, table) in tables(run).iter().enumerate() {
        if nth > 0 {
            out.push('\n');
        }
        out.push_str(&table.terminal(width));
    }
    out
}

/// All of a run as a section of Markdown: what ran where, and its tables.
pub fn markdown(run: &Run) -> String {
    let mut out = format!("## {}\n\n", escaped(run.heading()));
    for (name, value) in facts(run) {
        let _ = writeln!(out, "- {}: {}", escaped(&name), escaped(&value));
    }
    for table in tables(run) {
        let _ = write!(out, "\n{}", table.markdown());
    }
    out
}

/// What ran, when and where, by name; empty ones are left out.
pub(crate) fn facts(run: &Run) -> Vec<(String, String)> {
    let machine = &run.machine;
    let mut facts = vec![
        ("Run".to_owned(), run.command.clone()),
        ("Started".to_owned(), run.started.clone()),
        ("Processor".to_owned(), machine.cpu.clone()),
    ];
    if machine.cores > 0 {
        facts.push(("Cores".to_owned(), machine.cores.to_string()));
    }
    if machine.memory_bytes > 0 {
        facts.push(("Memory".to_owned(), number::bytes(machine.memory_bytes as f64)));
    }
    facts.push(("Kernel".to_owned(), machine.kernel.clone()));
    facts.extend(run.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())));
    facts.extend(run.systems.iter().map(|one| (one.name.clone(), about(one))));
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

fn about(system: &System) -> String {
    match &system.missing {
        Some(why) => format!("not measured: {why}"),
        None => [&system.version, &system.started_by]
            .into_iter()
            .filter(|text| !text.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(", by "),
    }
}
