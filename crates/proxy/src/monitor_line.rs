//! A request as MONITOR shows it: one line in the form of Redis, with secrets
//! left out and long arguments cut.

use crate::slow_log::{ARG_LEN_MAX, ARGS_MAX};
use keyway_base::Clock;
use keyway_command::{Flags, Request, Verb};
use std::io::Write;

/// Whether MONITOR shows such a request: not those that administer the server.
pub fn is_shown(request: &Request) -> bool {
    let flags = request.command.flags;
    !flags.contains(Flags::ADMIN) && !flags.contains(Flags::SKIP_MONITOR)
}

/// Appends the line for a request of the client at `addr` on `database`.
pub fn write_line(request: &Request, clock: Clock, database: u32, addr: &str, out: &mut Vec<u8>) {
    write_head(clock, &format!("{database} {addr}"), out);
    let args = &request.args;
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let secrets = secrets(request);
    for (index, arg) in args.from(0).take(shown).enumerate() {
        out.push(b' ');
        match secrets.contains(&index) {
            true => out.extend_from_slice(b"\"(redacted)\""),
            false => write_arg(arg, out),
        }
    }
    if args.len() > shown {
        let _ = write!(out, " \"... ({} more arguments)\"", args.len() - shown);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a line that says how many requests are not shown, for `reason`.
pub fn write_lost(lost: u64, clock: Clock, reason: &str, out: &mut Vec<u8>) {
    write_head(clock, "0 keyway", out);
    let _ = write!(out, " \"LOST\" \"{lost}\" \"{reason}\"\r\n");
}

fn write_head(clock: Clock, from: &str, out: &mut Vec<u8>) {
    let (seconds, micros) = (clock.unix_micros / 1_000_000, clock.unix_micros % 1_000_000);
    let _ = write!(out, "+{seconds}.{micros:06} [{from}]");
}

/// Positions of the arguments that are secrets.
fn secrets(request: &Request) -> std::ops::Range<usize> {
    let args = &request.args;
    match request.command.verb {
        Verb::Auth => 1..args.len(),
        Verb::Hello => {
            let is_auth = |arg: &[u8]| arg.eq_ignore_ascii_case(b"auth");
            // Behind the version come options, AUTH with two arguments.
            args.from(2).position(is_auth).map_or(0..0, |at| at + 3..at + 5)
        }
        _ => 0..0,
    }
}

fn write_arg(arg: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in &arg[..arg.len().min(ARG_LEN_MAX)] {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    if arg.len() > ARG_LEN_MAX {
        let _ = write!(out, "... ({} more bytes)", arg.len() - ARG_LEN_MAX);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::{ByteRange, Time};
    use keyway_command::Args;

    fn line(words: &[&[u8]]) -> String {
        let (mut buf, mut ranges) = (Vec::new(), Vec::new());
        for word in words {
            ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
            buf.extend_from_slice(word);
        }
        let request = Request::resolve(Args::new(&buf, &ranges)).expect("a known command");
        let clock = Clock { now: Time(0), unix_micros: 1_339_518_083_007_412 };
        let mut out = Vec::new();
        write_line(&request, clock, 2, "127.0.0.1:60866", &mut out);
        String::from_utf8(out).expect("lines are ASCII")
    }

    #[test]
    fn a_request_is_one_line_whatever_is_in_it() {
        assert_eq!(
            line(&[b"set", b"a\r\n\"b\\", b"\x00\xff\x07\x08\t~"]),
            "+1339518083.007412 [2 127.0.0.1:60866] \"set\" \"a\\r\\n\\\"b\\\\\" \
             \"\\x00\\xff\\a\\b\\t~\"\r\n"
        );
    }

    #[test]
    fn secrets_are_left_out() {
        for words in [
            &[&b"AUTH"[..], b"sesame"][..],
            &[b"auth", b"sesame", b"sesame"],
            &[b"HELLO", b"3", b"AUTH", b"sesame", b"sesame"],
            &[b"HELLO", b"3", b"SETNAME", b"n", b"auth", b"sesame", b"sesame"],
        ] {
            let line = line(words);
            assert!(!line.contains("sesame") && line.contains(" \"(redacted)\""), "{line}");
        }
        let line = line(&[b"HELLO", b"3", b"AUTH", b"u", b"p", b"SETNAME", b"name"]);
        assert!(line.ends_with("\"AUTH\" \"(redacted)\" \"(redacted)\" \"SETNAME\" \"name\"\r\n"));
    }

    #[test]
    fn a_line_is_short_however_long_the_request_is() {
        let long = [b'x'; 5000];
        let cut = line(&[b"SET", b"k", &long]);
        assert!(cut.ends_with("xx... (4872 more bytes)\"\r\n") && cut.len() < 300, "{cut}");
        let many: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain([&b"k"[..]; 99]).collect();
        assert!(line(&many).ends_with(" \"k\" \"... (69 more arguments)\"\r\n"));
    }
}
