//! The tables `circuit` and `outliers` of a pool.

use crate::error::{Problem, Report};
use crate::section::Section;
use crate::value::format_duration;
use keyway_topology::{Circuit, OUTLIER_PERIOD, Outliers, ReadFrom};
use std::time::Duration;

/// Reads the table `circuit`.
pub(crate) fn circuit(pool: &Section, report: &mut Report<'_>) -> Option<Circuit> {
    let circuit = pool.section("circuit")?;
    let (open_for, open_for_max) =
        at_most(circuit, ("open_for", "open_for_max"), (pool, "circuit"), report);
    Some(Circuit {
        failures_percent: percent(circuit, "failures_percent"),
        requests_min: circuit.number_u32("requests_min"),
        window: circuit.duration("window").unwrap_or_default(),
        open_for,
        open_for_max,
        probes: circuit.number_u32("probes") as u8,
    })
}

/// Reads the table `outliers`.
pub(crate) fn outliers(
    pool: &Section,
    from: &ReadFrom,
    report: &mut Report<'_>,
) -> Option<Outliers> {
    let outliers = pool.section("outliers")?;
    if *from == ReadFrom::Primary {
        let what =
            format!("outliers in {}: its reads go to primaries, and nowhere else", pool.header);
        let hint = "let replicas be read with read_from, or remove outliers";
        report.consequence(pool.place("outliers"), Problem::new(what, hint));
    }
    let (out_for, out_for_max) =
        at_most(outliers, ("out_for", "out_for_max"), (pool, "outliers"), report);
    let bad_for = outliers.duration("bad_for").unwrap_or_default();
    let periods = bad_for.as_millis().div_ceil(OUTLIER_PERIOD.as_millis());
    Some(Outliers {
        times_slower: outliers.number_u32("times_slower"),
        failures_percent: percent(outliers, "failures_percent"),
        after_periods: periods as u8,
        out_for,
        out_for_max,
        out_percent: percent(outliers, "out_percent_max"),
    })
}

fn percent(section: &Section, name: &str) -> u8 {
    section.number_u32(name) as u8
}

/// Reads two durations. Reports the first if it is above the second.
fn at_most(
    section: &Section,
    (name, max_name): (&str, &str),
    (pool, table): (&Section, &str),
    report: &mut Report<'_>,
) -> (Duration, Duration) {
    let (Some(least), Some(most)) = (section.duration(name), section.duration(max_name)) else {
        return Default::default();
    };
    if least > most {
        let what = format!("{name} is above {max_name} in {}", section.header);
        let hint = format!("lower {name}, or raise {max_name} to at least {name}");
        report.consequence(pool.place(table), Problem::new(what, hint));
    }
    (least, most)
}

/// Returns the table as it is written in a file.
pub(crate) fn circuit_text(circuit: &Circuit) -> String {
    format!(
        "{{ failures_percent = {}, requests_min = {}, window = \"{}\", open_for = \"{}\", \
         open_for_max = \"{}\", probes = {} }}",
        circuit.failures_percent,
        circuit.requests_min,
        format_duration(circuit.window),
        format_duration(circuit.open_for),
        format_duration(circuit.open_for_max),
        circuit.probes
    )
}

/// Returns the table `outliers` as it is written in a file.
pub(crate) fn outliers_text(outliers: &Outliers) -> String {
    format!(
        "{{ times_slower = {}, failures_percent = {}, bad_for = \"{}\", out_for = \"{}\", \
         out_for_max = \"{}\", out_percent_max = {} }}",
        outliers.times_slower,
        outliers.failures_percent,
        format_duration(OUTLIER_PERIOD * u32::from(outliers.after_periods)),
        format_duration(outliers.out_for),
        format_duration(outliers.out_for_max),
        outliers.out_percent
    )
}
