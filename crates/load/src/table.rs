//! An outcome as a table for a terminal.

use crate::outcome::{Ended, Latency, Outcome, ProcessUsage};
use crate::record::OTHERS;
use keyway_base::printable;
use std::fmt::Write;

/// The outcome as text: figures by class, then what else was found.
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let plan = &outcome.plan;
    let loop_is = plan.rate.map_or("closed loop".to_owned(), |rate| format!("{rate:.0}/s due"));
    line(
        &mut text,
        format_args!(
            "{}: {} ({}), {} x {} connections, pipeline {}, {loop_is}, {:.2} s{}",
            printable(outcome.workload.as_bytes()),
            printable(outcome.target.address.as_bytes()),
            outcome.target.protocol,
            plan.threads,
            plan.connections_per_thread,
            plan.pipeline,
            outcome.seconds,
            match outcome.ended {
                Ended::Finished => "",
                Ended::Interrupted => ", INTERRUPTED",
                Ended::Silent => ", ENDED: THE SERVER FELL SILENT",
            },
        ),
    );
    line(
        &mut text,
        format_args!(
            "{:<18} {:>12} {:>11} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "class",
            "good",
            "per s",
            "failed",
            "misses",
            "mean us",
            "p50",
            "p90",
            "p95",
            "p99",
            "p99.9",
            "p99.99",
            "max",
        ),
    );
    for class in &outcome.classes {
        row(
            &mut text,
            &class.name,
            (class.requests.saturating_sub(class.errors), class.per_second),
            (class.errors, class.misses),
            &class.latency,
        );
    }
    let totals = &outcome.totals;
    let per_second = |count: u64| count as f64 / outcome.seconds.max(1e-9);
    if outcome.classes.len() > 1 {
        row(
            &mut text,
            "all",
            (totals.good(), totals.per_second),
            (totals.errors, totals.misses),
            &outcome.latency,
        );
    }
    if totals.errors > 0 {
        let failed = &outcome.failed_latency;
        row(&mut text, "failed", (0, per_second(totals.errors)), (totals.errors, 0), failed);
    }
    let mib = |bytes: u64| per_second(bytes) / 1_048_576.0;
    line(
        &mut text,
        format_args!(
            "sent {:.2} MiB/s, received {:.2} MiB/s",
            mib(totals.bytes_sent),
            mib(totals.bytes_received)
        ),
    );
    notes(&mut text, outcome);
    processes(&mut text, outcome);
    text
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = text.write_fmt(what);
    text.push('\n');
}

fn row(
    text: &mut String,
    name: &str,
    (requests, per_second): (u64, f64),
    bad: (u64, u64),
    latency: &Latency,
) {
    let (errors, misses) = bad;
    let name: String = printable(name.as_bytes()).chars().take(18).collect();
    let _ = write!(text, "{name:<18} {requests:>12} {per_second:>11.0} {errors:>8} {misses:>8}");
    let Latency { mean_us, p50_us, p90_us, p95_us, p99_us, p99_9_us, p99_99_us, max_us, .. } =
        latency;
    for us in [mean_us, p50_us, p90_us, p95_us, p99_us, p99_9_us, p99_99_us, max_us] {
        let digits = if *us < 1000.0 { 1 } else { 0 };
        let _ = write!(text, " {us:>9.digits$}");
    }
    text.push('\n');
}

/// What is not as it should be, or was asked for.
fn notes(text: &mut String, outcome: &Outcome) {
    let (totals, connections) = (&outcome.totals, &outcome.connections);
    for error in &outcome.errors {
        // A result file may hold unescaped text.
        let example = printable(error.example.as_bytes());
        let shape = if error.shape == OTHERS { "other errors, such as: " } else { "" };
        line(text, format_args!("error, {} times: {shape}{example}", error.count));
    }
    if outcome.errors.iter().any(|error| error.kind == "MOVED") {
        line(
            text,
            format_args!("this is a server of a cluster: --cluster asks each for its own keys"),
        );
    }
    for (count, what) in [
        (totals.redirected, "requests sent on to another server of the cluster"),
        (totals.unanswered, "requests never answered"),
        (totals.unsent, "requests due and never sent: no connection had room"),
        (connections.lost, "connections lost"),
        (connections.failed, "connections failed"),
    ] {
        if count > 0 {
            line(text, format_args!("{count} {what}"));
        }
    }
    if outcome.plan.calls_per_connection.is_some() {
        let connect = &connections.connect;
        line(
            text,
            format_args!(
                "connections: {} opened, {:.0}/s, in us: mean {:.1}, min {:.1}, p50 {:.1}, p99 {:.1}, max {:.1}",
                connections.opened,
                connections.per_second,
                connect.mean_us,
                connect.min_us,
                connect.p50_us,
                connect.p99_us,
                connect.max_us,
            ),
        );
    }
    if let Some(found) = &outcome.verification {
        line(
            text,
            format_args!(
                "verified: {} values, {} wrong, {} stale, {} missing, {} from before this run",
                found.checked, found.wrong, found.stale, found.missing, found.foreign,
            ),
        );
    }
}

fn processes(text: &mut String, outcome: &Outcome) {
    for process in &outcome.processes {
        usage(text, "process", process);
    }
    if let Some(each) = outcome.requests_per_cpu_second {
        line(text, format_args!("requests per CPU-second of these: {each:.0}"));
    }
    usage(text, "generator", &outcome.generator);
    let busy = outcome.generator.cpu_percent / outcome.plan.threads.max(1) as f64;
    if busy > 85.0 {
        line(
            text,
            format_args!(
                "the generator's threads were {busy:.0} % busy: it may be the limit; more threads tell"
            ),
        );
    }
}

fn usage(text: &mut String, role: &str, process: &ProcessUsage) {
    let ProcessUsage { pid, .. } = process;
    let name = printable(process.name.as_bytes());
    if process.is_gone {
        return line(text, format_args!("{role} {pid} {name}: ended before the run did"));
    }
    line(
        text,
        format_args!(
            "{role} {pid} {name}: CPU {:.1} % (user {:.2} s, system {:.2} s), {} + {} context switches, \
         {:.1} MiB resident",
            process.cpu_percent,
            process.user_seconds,
            process.system_seconds,
            process.voluntary_switches,
            process.involuntary_switches,
            process.resident_max_bytes as f64 / 1_048_576.0,
        ),
    );
}
