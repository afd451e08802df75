//! The `[limits]` table, and the bounds of pools and listeners within it.

use crate::error::{Problem, Report};
use crate::section::Section;
use keyway_base::Limits;

/// Reads the bounds of the process.
pub(crate) fn limits(section: &Section, report: &mut Report<'_>) -> Limits {
    let limits = Limits {
        clients_max: section.number_u32("clients_max"),
        bulk_len_max: section.number_u32("bulk_len_max"),
        request_args_max: section.number_u32("request_args_max"),
        request_len_max: section.number_u32("request_len_max"),
        inline_len_max: section.number_u32("inline_len_max"),
        reply_len_max: section.number_u32("reply_len_max"),
        monitor_every: section.number_u32("monitor_every"),
        hot_keys_every: section.number_u32("hot_keys_every"),
        big_values_from: section.number_u32("big_values_from"),
        reply_depth_max: section.number_u32("reply_depth_max"),
        session_in_flight_max: section.number_u32("session_in_flight_max"),
        session_output_len_soft: section.number_u32("session_output_len_soft"),
        session_output_len_hard: section.number("session_output_len_hard").unwrap_or_default(),
        link_in_flight_max: section.number_u32("link_in_flight_max"),
        link_output_len_max: section.number_u32("link_output_len_max"),
        transactions_len_max: section.number("transactions_len_max").unwrap_or_default(),
        read_len_per_turn: section.number_u32("read_len_per_turn"),
        pubsub_output_len_hard: section.number("pubsub_output_len_hard").unwrap_or_default(),
        pubsub_output_len_soft: section.number("pubsub_output_len_soft").unwrap_or_default(),
        pubsub_output_soft_secs: section
            .duration("pubsub_output_soft_for")
            .map_or(0, |time| time.as_secs() as u32),
        tracking_keys_max: section.number_u32("tracking_keys_max"),
        failed_logins_max: section.number_u32("failed_logins_max"),
        refer_len: Limits::default().refer_len,
    };
    let mut at_least = |larger: &str, smaller: &str, why: &str| {
        let (Some(large), Some(small)) = (section.number(larger), section.number(smaller)) else {
            return;
        };
        if large < small {
            let at = section.given(larger).or(section.given(smaller)).unwrap_or(section.at);
            let what = format!("{larger} in [limits] is below {smaller}: {why}");
            report
                .consequence(at, Problem::new(what, format!("raise {larger} or lower {smaller}")));
        }
    };
    at_least("request_len_max", "bulk_len_max", "the longest argument would never fit");
    at_least(
        "session_output_len_hard",
        "session_output_len_soft",
        "clients would be cut off before they are slowed",
    );
    at_least(
        "pubsub_output_len_hard",
        "pubsub_output_len_soft",
        "subscribers would be cut off before they get the time of pubsub_output_soft_for",
    );
    limits
}

/// Reads the most clients of a pool or listener.
pub(crate) fn clients_max(section: &Section, limits: &Limits, report: &mut Report<'_>) -> u32 {
    at_most_the_limit(section, "clients_max", ("clients_max", limits.clients_max), report)
}

/// Reads a pool's own bound, which may not be above that of `[limits]`. Returns 0 if it is wrong,
/// after reporting that.
pub(crate) fn at_most_the_limit(
    section: &Section,
    name: &str,
    (limit_name, limit): (&str, u32),
    report: &mut Report<'_>,
) -> u32 {
    let own = section.number(name).map(|own| own as u32);
    if limit > 0 && own.is_some_and(|own| own > limit) {
        let what =
            format!("{name} in {} is above {limit_name} in [limits] ({limit})", section.header);
        let hint = format!("write at most {limit}, or raise {limit_name} in [limits]");
        report.consequence(section.place(name), Problem::new(what, hint));
    }
    own.unwrap_or(limit)
}
