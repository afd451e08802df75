//! WAIT without replication, and what makes it invalid anywhere.

use super::NOT_AN_INTEGER;
use keyway_command::Args;
use keyway_resp::{parse_integer, reply};

/// Returns why a `WAIT numreplicas timeout` is refused: the text of the error reply.
pub fn wait_refusal(args: &Args) -> Option<&'static str> {
    match (parse_integer(&args[1]), parse_integer(&args[2])) {
        (None, _) => Some(NOT_AN_INTEGER),
        (_, None) => Some("ERR timeout is not an integer or out of range"),
        (_, Some(..0)) => Some("ERR timeout is negative"),
        _ => None,
    }
}

/// Answers `WAIT` without replicas.
pub(super) fn wait(args: &Args, out: &mut Vec<u8>) {
    match wait_refusal(args) {
        Some(text) => reply::error(out, text),
        None => reply::integer(out, 0),
    }
}

#[cfg(test)]
mod tests {
    use crate::local::bench::Bench;

    #[test]
    fn nobody_waits_for_replicas_that_there_are_none_of() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask("WAIT 1 0"), ":0\r\n");
        assert_eq!(bench.ask("WAIT 0 100"), ":0\r\n");
        assert!(bench.ask("WAIT x 0").starts_with("-ERR value is not"));
        assert!(bench.ask("WAIT 1 x").starts_with("-ERR timeout is not"));
        assert_eq!(bench.ask("WAIT 1 -1"), "-ERR timeout is negative\r\n");
    }
}
