//! CONFIG GET and CONFIG RESETSTAT.

use super::LocalContext;
use keyway_base::glob;
use keyway_command::Args;
use keyway_resp::reply;

/// Answers `CONFIG GET pattern [pattern ...]` with a map of names and values. A name without
/// wildcards is returned as the client spelled it.
pub(super) fn get(args: &Args, context: &LocalContext, out: &mut Vec<u8>) {
    let settings = context.facts.settings(context.pool);
    let mut found: Vec<(&[u8], &str)> = Vec::new();
    for (name, value) in &settings {
        let pattern = args.from(2).find(|pattern| match glob::is_literal(pattern) {
            true => pattern.eq_ignore_ascii_case(name.as_bytes()),
            false => glob::matches_ignoring_case(pattern, name.as_bytes()),
        });
        match pattern {
            Some(pattern) if glob::is_literal(pattern) => found.push((pattern, value)),
            Some(_) => found.push((name.as_bytes(), value)),
            None => {}
        }
    }
    context.identity.protocol.map(out, found.len());
    for (name, value) in found {
        reply::bulk(out, name);
        reply::bulk(out, value.as_bytes());
    }
}

/// Answers `CONFIG RESETSTAT`: the counters of INFO start again.
pub(super) fn reset(context: &LocalContext, out: &mut Vec<u8>) {
    context.facts.reset(context.pool);
    reply::simple(out, "OK");
}

#[cfg(test)]
mod tests {
    use crate::local::bench::Bench;

    #[test]
    fn config_get_shows_what_any_pattern_matches_once() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask("CONFIG GET nothing"), "*0\r\n");
        assert_eq!(bench.ask("CONFIG GET SAVE"), "*2\r\n$4\r\nSAVE\r\n$0\r\n\r\n");
        let both = "*4\r\n$4\r\nsave\r\n$0\r\n\r\n$10\r\nappendonly\r\n$2\r\nno\r\n";
        assert_eq!(bench.ask("CONFIG GET s[a-b]* app* appendonly"), both);
    }
}
