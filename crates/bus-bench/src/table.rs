//! The table of the published report, and the figures for programs.

use crate::round::{Transport, Trips};
use crate::run::{Fault, Outcome};
use serde::Serialize;
use std::fmt::Write;

const HEAD: &str = "\
| channel | connections | packet length | CPU send/receive | memory send/receive | throughput | messages/s (least-most) | CPU per message, send + receive |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
";

/// Markdown, one row for each case, with a line about loss and errors behind it.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut out = HEAD.to_owned();
    for one in outcomes {
        let thousands = |number: f64| format!("{:.0}K", number / 1e3);
        let _ = writeln!(
            out,
            "| {} | {} | {} B | {:.0} % / {:.0} % | {} / {} MiB | {} | {} ({}-{}) | {:.0} + {:.0} ns |",
            one.case.channel,
            one.case.senders,
            one.case.sizes,
            one.cpu.0 * 100.0,
            one.cpu.1 * 100.0,
            mib(one.resident_kib.0),
            mib(one.resident_kib.1),
            rate(one.bytes_per_second),
            thousands(one.messages_per_second),
            thousands(one.spread.0),
            thousands(one.spread.1),
            one.cpu_ns_per_message.0,
            one.cpu_ns_per_message.1,
        );
    }
    let (lost, wrong) =
        outcomes.iter().fold((0, 0), |(lost, wrong), one| (lost + one.lost, wrong + one.wrong));
    let _ = match (lost, wrong) {
        (0, 0) => writeln!(out, "\nNo message was lost, doubled, out of order or changed."),
        _ => writeln!(out, "\n{lost} messages lost; {wrong} out of order, doubled or changed."),
    };
    out
}

fn mib(kib: u64) -> String {
    format!("{:.1}", kib as f64 / 1024.0)
}

fn rate(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{:.2} GB/s", bytes / 1e9),
        bytes => format!("{:.0} MB/s", bytes / 1e6),
    }
}

/// Markdown: round trips, and how many times faster than the unix socket's they are.
pub fn trips_table(trips: &[Trips]) -> String {
    let mut out = "\
| round trips of 128 B | half within | 99 % within | a second | to unix |
| --- | ---: | ---: | ---: | ---: |
"
    .to_owned();
    let unix = trips.iter().find(|one| one.way == Transport::Unix).map(|one| one.median_ns);
    for one in trips {
        let us = |ns: u64| format!("{:.2} us", ns as f64 / 1e3);
        let ratio = unix.map_or(0.0, |unix| unix as f64 / one.median_ns.max(1) as f64);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.0}K | {ratio:.2} |",
            one.way,
            us(one.median_ns),
            us(one.p99_ns),
            one.per_second / 1e3,
        );
    }
    out
}

/// JSON, everything that was measured.
///
/// # Errors
/// None that a caller could do anything about.
pub fn json(outcomes: &[Outcome], trips: &[Trips]) -> Result<String, Fault> {
    #[derive(Serialize)]
    struct All<'a> {
        flows: &'a [Outcome],
        round_trips: &'a [Trips],
    }
    Ok(serde_json::to_string_pretty(&All { flows: outcomes, round_trips: trips })?)
}
