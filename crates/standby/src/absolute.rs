//! Commands of the stream with a time that counts from now.
//!
//! Redis before 7.0 sends `EXPIRE key 10` to its replicas as the client has sent it, and a replica
//! counts from when it executes the command. The store executes effects without a clock
//! (`Store::apply`), so such a command is rewritten to the one that names the moment.

use keyway_base::ByteRange;
use keyway_command::{Args, Request, Verb};

/// A command of its own words.
#[derive(Debug, Default)]
pub(crate) struct Words {
    buf: Vec<u8>,
    ranges: Vec<ByteRange>,
}

impl Words {
    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.buf, &self.ranges)
    }

    fn push(&mut self, word: &[u8]) {
        let start = self.buf.len();
        self.buf.extend_from_slice(word);
        self.ranges.push(ByteRange::new(start, self.buf.len()));
    }

    fn push_all<'w>(&mut self, words: impl Iterator<Item = &'w [u8]>) {
        words.for_each(|word| self.push(word));
    }

    fn push_time(&mut self, millis: u64) {
        self.push(millis.to_string().as_bytes());
    }
}

/// The command that means the same at any time; `None` if the request does already, or if its
/// time is no time, which the store refuses.
pub(crate) fn absolute(request: &Request<'_>, now_millis: u64) -> Option<Words> {
    let args = &request.args;
    let from = |unit: u64, index: usize| moment(args.get(index)?, unit, now_millis);
    let mut words = Words::default();
    match request.command.verb {
        Verb::Setex | Verb::Psetex => {
            let unit = if request.command.verb == Verb::Setex { 1000 } else { 1 };
            let millis = from(unit, 2)?;
            words.push_all([&b"SET"[..], &args[1], &args[3], b"PXAT"].into_iter());
            words.push_time(millis);
        }
        Verb::Expire => expire(&mut words, (b"PEXPIREAT", request), from(1000, 2)?),
        Verb::Pexpire => expire(&mut words, (b"PEXPIREAT", request), from(1, 2)?),
        Verb::Hexpire => expire(&mut words, (b"HPEXPIREAT", request), from(1000, 2)?),
        Verb::Hpexpire => expire(&mut words, (b"HPEXPIREAT", request), from(1, 2)?),
        Verb::Restore => {
            let is_absolute = args.from(4).any(|word| word.eq_ignore_ascii_case(b"absttl"));
            if is_absolute || args[2] == *b"0" {
                return None;
            }
            let millis = from(1, 2)?;
            words.push_all(args.from(0).take(2));
            words.push_time(millis);
            words.push_all(args.from(3));
            words.push(b"ABSTTL");
        }
        Verb::Set => return option(args, 3, now_millis),
        Verb::Getex | Verb::Hgetex | Verb::Hsetex => return option(args, 2, now_millis),
        _ => return None,
    }
    Some(words)
}

fn expire(words: &mut Words, (name, request): (&[u8], &Request<'_>), millis: u64) {
    words.push(name);
    words.push(&request.args[1]);
    words.push_time(millis);
    words.push_all(request.args.from(3));
}

/// The command with the option EX or PX, which is at `start` or behind it and in front of FIELDS,
/// replaced by PXAT.
fn option(args: &Args<'_>, start: usize, now_millis: u64) -> Option<Words> {
    let mut at = start;
    while let Some(word) = args.get(at) {
        let is = |other: &[u8]| word.eq_ignore_ascii_case(other);
        let unit = match () {
            () if is(b"ex") => 1000,
            () if is(b"px") => 1,
            () if is(b"fields") => return None,
            () => {
                // The option of Valkey with a value that may read as one of the others.
                at += if is(b"ifeq") { 2 } else { 1 };
                continue;
            }
        };
        let millis = moment(args.get(at + 1)?, unit, now_millis)?;
        let mut words = Words::default();
        words.push_all(args.from(0).take(at));
        words.push(b"PXAT");
        words.push_time(millis);
        words.push_all(args.from(at + 2));
        return Some(words);
    }
    None
}

/// Milliseconds since the Unix epoch at which a time from now on is over. A time that has passed
/// is over at once: the moment 1 is in the past of any clock.
fn moment(text: &[u8], unit: u64, now_millis: u64) -> Option<u64> {
    let count: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let span = count.checked_mul(unit as i64)?;
    let moment = i64::try_from(now_millis).ok()?.checked_add(span)?;
    Some(moment.max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(line: &str) -> Words {
        let mut words = Words::default();
        words.push_all(line.split(' ').map(str::as_bytes));
        words
    }

    /// The line that stands for another at the millisecond 5,000,000.
    fn told(line: &str) -> Option<String> {
        let words = words_of(line);
        let request = Request::resolve(words.args()).expect("a command");
        let told = absolute(&request, 5_000_000)?;
        let told: Vec<&str> =
            told.args().from(0).map(|word| std::str::from_utf8(word).expect("text")).collect();
        Some(told.join(" "))
    }

    #[test]
    fn a_time_from_now_on_becomes_a_moment_and_all_else_stays() {
        for (line, expected) in [
            ("SETEX k 10 ex", "SET k ex PXAT 5010000"),
            ("psetex k 10 v", "SET k v PXAT 5000010"),
            ("EXPIRE k 10 NX", "PEXPIREAT k 5010000 NX"),
            ("PEXPIRE k 10", "PEXPIREAT k 5000010"),
            ("SET k px PX 10 NX", "SET k px PXAT 5000010 NX"),
            ("SET k v NX ex 1 GET", "SET k v NX PXAT 5001000 GET"),
            ("GETEX k EX 10", "GETEX k PXAT 5010000"),
            ("RESTORE k 10 payload REPLACE", "RESTORE k 5000010 payload REPLACE ABSTTL"),
            ("HPEXPIRE k 10 FIELDS 1 ex", "HPEXPIREAT k 5000010 FIELDS 1 ex"),
            ("HEXPIRE k 10 FIELDS 1 f", "HPEXPIREAT k 5010000 FIELDS 1 f"),
            ("HSETEX k PX 10 FIELDS 1 ex v", "HSETEX k PXAT 5000010 FIELDS 1 ex v"),
            ("EXPIRE k -10000", "PEXPIREAT k 1"),
        ] {
            assert_eq!(told(line).as_deref(), Some(expected), "{line}");
        }
        for line in [
            "SET k ex",
            "SET k v PXAT 10",
            "SET k v KEEPTTL",
            "SET k v EX",
            "SET k v EX soon",
            "EXPIRE k 9223372036854775807",
            "RESTORE k 0 payload",
            "RESTORE k 10 payload ABSTTL",
            "HSETEX k FIELDS 1 ex 10",
            "PEXPIREAT k 10",
            "GET k",
        ] {
            assert_eq!(told(line), None, "{line}");
        }
    }
}
