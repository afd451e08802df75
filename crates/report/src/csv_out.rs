//! Every measurement as one line, for spreadsheets and programs: nothing is rounded or summed up.

use crate::cell::Metric;
use crate::result::{Cell, Item, Measured, Role, Round, Run, System};
use std::collections::BTreeSet;

const HEAD: &[&str] = &["scenario", "system", "version", "item", "title", "group"];

const FIGURES: &[&str] = &[
    "round",
    "failed",
    "seconds",
    "requests",
    "errors",
    "requests_per_second",
    "requests_per_cpu_second",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p99.9_ns",
    "latency_p99.99_ns",
    "latency_max_ns",
    "tested_cpu_percent",
    "backend_cpu_percent",
    "load_cpu_percent",
    "tested_resident_bytes",
    "tested_context_switches_per_second",
    "bytes_sent",
    "bytes_received",
];

/// The lines, under a head; a system that was not there has one that says so.
pub fn csv(run: &Run) -> String {
    let names: BTreeSet<&str> =
        run.items.iter().flat_map(|item| item.parameters.keys().map(String::as_str)).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let parameters = names.iter().map(|name| format!("parameter_{name}"));
    let head = HEAD.iter().map(|name| (*name).to_owned());
    let figures = FIGURES.iter().map(|name| (*name).to_owned());
    let mut write = |record: Vec<String>| {
        // A vector takes every write.
        let _ = writer.write_record(record);
    };
    write(head.chain(parameters).chain(figures).collect());
    for item in &run.items {
        for system in &run.systems {
            let about = about(run, system, item, &names);
            for line in lines(system, run.cell(&system.name, &item.id)) {
                write(about.iter().cloned().chain(line).collect());
            }
        }
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn about(run: &Run, system: &System, item: &Item, names: &BTreeSet<&str>) -> Vec<String> {
    let head = [&run.scenario, &system.name, &system.version, &item.id, &item.title, &item.group];
    let parameters = names.iter().map(|name| item.text(name));
    head.into_iter().cloned().chain(parameters).collect()
}

fn lines(system: &System, cell: Option<&Cell>) -> Vec<Vec<String>> {
    let failed = |nth: String, why: &str| {
        let mut line = vec![nth, why.to_owned()];
        line.resize(FIGURES.len(), String::new());
        line
    };
    let Some(cell) = cell else {
        let why = system.missing.as_deref().unwrap_or("not measured");
        return vec![failed(String::new(), why)];
    };
    let line = |(nth, round): (usize, &Round)| match round {
        Round::Measured(measured) => figures(nth + 1, measured),
        Round::Failed(why) => failed((nth + 1).to_string(), why),
    };
    cell.rounds.iter().enumerate().map(line).collect()
}

fn figures(nth: usize, measured: &Measured) -> Vec<String> {
    let some = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let quantile =
        |share| measured.latency.quantile_ns(share).map(|ns| ns.to_string()).unwrap_or_default();
    vec![
        nth.to_string(),
        String::new(),
        measured.seconds.to_string(),
        measured.requests.to_string(),
        measured.failures().to_string(),
        some(Metric::Throughput.of(measured)),
        some(Metric::PerCpuSecond.of(measured)),
        some(measured.latency.mean_ns()),
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(0.999),
        quantile(0.9999),
        quantile(1.0),
        some(measured.cpu_percent(Role::Tested)),
        some(measured.cpu_percent(Role::Backend)),
        some(measured.cpu_percent(Role::Load)),
        some(measured.resident_bytes(Role::Tested)),
        some(measured.context_switches(Role::Tested)),
        measured.bytes_sent.to_string(),
        measured.bytes_received.to_string(),
    ]
}
