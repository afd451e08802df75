//! Reads that are sent twice, and the share of requests that may be sent again.

use crate::error::{Problem, Report, quoted};
use crate::section::Section;
use crate::value::parse_duration;
use keyway_topology::{HedgeAfter, HedgePolicy};
use std::time::Duration;

/// Shortest and longest fixed time. Timers have a resolution of milliseconds.
const AFTER: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(60));

const AFTER_HINT: &str = "write \"p99\", or a duration from \"1ms\" to \"60s\"";

const SHARE_HINT: &str = "write \"1%\" to \"100%\"";

/// Reads how long a read waits before it is sent again; `None` means a measured time, whose bounds
/// are other keys.
pub(crate) fn parse_hedge_after(text: &str) -> Result<Option<Duration>, Problem> {
    if text == "p99" {
        return Ok(None);
    }
    match parse_duration(text, AFTER) {
        Ok(after) if (AFTER.0..=AFTER.1).contains(&after) => Ok(Some(after)),
        _ => Err(Problem::new(format!("{} is no such time", quoted(text)), AFTER_HINT)),
    }
}

/// Reads a share in percent.
pub(crate) fn parse_share(text: &str) -> Result<u8, Problem> {
    let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(percent @ 1..=100) => Ok(percent),
        _ => Err(Problem::new(format!("{} is no such share", quoted(text)), SHARE_HINT)),
    }
}

/// Returns an optional share; `None` if it is not set.
pub(crate) fn share(section: &Section, name: &str) -> Option<u8> {
    section.given(name)?;
    Some(section.number_u32(name) as u8)
}

/// Reads the settings of hedged reads, if there are any.
pub(crate) fn resolve(section: &Section, report: &mut Report<'_>) -> Option<HedgePolicy> {
    const BOUNDS: [&str; 3] = ["hedge_after_min", "hedge_after_max", "hedge_budget"];
    let Some(at) = section.given("hedge_after") else {
        if let Some((at, name)) =
            BOUNDS.iter().find_map(|name| section.given(name).map(|at| (at, *name)))
        {
            let what = format!("{} has {name} and no hedge_after", section.header);
            report.consequence(at, Problem::new(what, "add hedge_after, or remove it"));
        }
        return None;
    };
    if matches!(section.text("read_from"), None | Some("primary")) {
        let what = format!("{} has hedge_after and reads from primaries alone", section.header);
        let hint = "let reads go to replicas with read_from, or remove hedge_after";
        report.consequence(at, Problem::new(what, hint));
    }
    let fixed = parse_hedge_after(section.text("hedge_after")?).ok()?;
    let bound = |name| section.duration(name).unwrap_or_default();
    let (min, max) = (bound("hedge_after_min"), bound("hedge_after_max"));
    if fixed.is_none() && min > max {
        let what = format!("hedge_after_min in {} is longer than hedge_after_max", section.header);
        report.consequence(
            section.place("hedge_after_min"),
            Problem::new(what, "set it to the same or less"),
        );
    }
    let after = fixed.map_or(HedgeAfter::P99 { min, max }, HedgeAfter::Fixed);
    Some(HedgePolicy { after, budget_percent: section.number_u32("hedge_budget") as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_percents() {
        for (text, percent) in [("1%", Some(1)), ("5%", Some(5)), ("100%", Some(100))] {
            assert_eq!(parse_share(text).ok(), percent);
        }
        for wrong in ["0%", "101%", "5", "%", "-5%", "+5%", "5.5%", " 5%", "999%"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_read_waits_as_long_as_most_take_or_a_fixed_time() {
        assert_eq!(parse_hedge_after("p99").ok(), Some(None));
        assert_eq!(parse_hedge_after("5ms").ok(), Some(Some(Duration::from_millis(5))));
        for wrong in ["p95", "0ms", "61s", "5", "", "1us"] {
            assert!(parse_hedge_after(wrong).is_err(), "{wrong}");
        }
    }
}
