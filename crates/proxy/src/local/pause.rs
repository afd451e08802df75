//! CLIENT PAUSE and CLIENT UNPAUSE.

use super::After;
use keyway_command::Args;
use keyway_resp::{parse_integer, reply};

/// Length of the longest pause, in milliseconds: about 50 years, so that its end can be represented
/// in nanoseconds.
const MILLIS_MAX: i64 = 50 * 365 * 86_400 * 1_000;

/// Answers `CLIENT PAUSE timeout [WRITE | ALL]`.
pub(super) fn pause(args: &Args, out: &mut Vec<u8>) -> After {
    let writes_only = match args.get(3) {
        None => Some(false),
        Some(word) if word.eq_ignore_ascii_case(b"all") => Some(false),
        Some(word) if word.eq_ignore_ascii_case(b"write") => Some(true),
        Some(_) => None,
    };
    let refusal = match (writes_only, parse_integer(&args[2])) {
        (None, _) => "ERR CLIENT PAUSE mode must be WRITE or ALL",
        (_, None) => "ERR timeout is not an integer or out of range",
        (_, Some(..0)) => "ERR timeout is negative",
        (_, Some(millis)) if millis > MILLIS_MAX => "ERR timeout is out of range",
        (Some(writes_only), Some(millis)) => {
            reply::simple(out, "OK");
            return After::Pause { millis: millis as u64, writes_only };
        }
    };
    reply::error(out, refusal);
    After::Continue
}

/// Answers `CLIENT UNPAUSE`.
pub(super) fn unpause(out: &mut Vec<u8>) -> After {
    reply::simple(out, "OK");
    After::Unpause
}

#[cfg(test)]
mod tests {
    use crate::local::After;
    use crate::local::bench::Bench;

    #[test]
    fn a_pause_has_a_length_and_a_mode() {
        let ask = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            Bench::new().ask_args(&words)
        };
        let paused =
            |millis, writes_only| ("+OK\r\n".to_owned(), After::Pause { millis, writes_only });
        assert_eq!(ask("CLIENT PAUSE 100"), paused(100, false));
        assert_eq!(ask("CLIENT PAUSE 100 all"), paused(100, false));
        assert_eq!(ask("CLIENT PAUSE 100 WRITE"), paused(100, true));
        assert_eq!(ask("CLIENT UNPAUSE"), ("+OK\r\n".to_owned(), After::Unpause));
        for wrong in ["x", "-1", "1 read", "9223372036854775807"] {
            assert!(ask(&format!("CLIENT PAUSE {wrong}")).0.starts_with("-ERR "), "{wrong}");
        }
    }
}
