//! INFO, and single fields of it for commands that need one.

use super::{Facts, LocalContext};
use keyway_command::Args;

/// Answers `INFO [section ...]`.
pub(super) fn info(args: &Args, context: &LocalContext, out: &mut Vec<u8>) {
    let mut sections: Vec<&str> =
        args.from(1).filter_map(|section| std::str::from_utf8(section).ok()).collect();
    if args.len() == 1 {
        sections.push("default");
    }
    let mut text = String::new();
    context.facts.info(context.pool, context.cluster.is_some(), &sections, &mut text);
    context.identity.protocol.text(out, text.as_bytes());
}

/// Returns a section of INFO, to look up fields.
pub(super) fn section(facts: &dyn Facts, pool: u16, name: &str) -> String {
    let mut text = String::new();
    facts.info(pool, false, &[name], &mut text);
    text
}

/// Returns the number in a field of INFO, or `None` if the field is missing.
pub(super) fn number(text: &str, name: &str) -> Option<i64> {
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    values.filter_map(|value| value.parse().ok()).next()
}

/// Returns the number of keys in all databases, from a `keyspace` section.
pub(super) fn key_count(keyspace: &str) -> i64 {
    let counts = keyspace.lines().filter_map(|line| {
        let (_, rest) = line.split_once(":keys=")?;
        rest.split(',').next()?.parse::<i64>().ok()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::bench::Bench;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "# Memory\r\nused_memory_human:1B\r\nused_memory:7\r\n";
        assert_eq!(number(text, "used_memory"), Some(7));
        assert_eq!(number(text, "used"), None);
        let keyspace = "# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=0\r\ndb4:keys=4,expires=0\r\n";
        assert_eq!(key_count(keyspace), 7);
    }

    #[test]
    fn sections_are_handed_to_the_facts() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask("INFO"), "$11\r\n# default\r\n\r\n");
        assert_eq!(bench.ask("INFO cpu Server"), "$17\r\n# cpu\r\n# Server\r\n\r\n");
    }
}
