//! A request as MONITOR shows it: one line in Redis's form, without secrets and with truncated
//! arguments.

use crate::slow_log::{ARG_LEN_MAX, ARGS_MAX};
use keyway_base::Clock;
use keyway_command::{Args, Flags, Request, Verb};
use keyway_resp::parse_integer;
use std::io::Write;

/// Returns whether MONITOR shows such a request: not those that administer the server. A server
/// shows scripts and functions, which it flags as skipped, by itself, before what they call.
pub fn is_shown(request: &Request) -> bool {
    !request.command.flags.contains(Flags::ADMIN)
}

/// Appends the line for a request of the client at `addr` in `database`.
pub fn write_line(request: &Request, clock: Clock, database: u32, addr: &str, out: &mut Vec<u8>) {
    write_head(clock, &format!("{database} {addr}"), out);
    let args = &request.args;
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let secrets = secrets(request);
    for (index, arg) in args.from(0).take(shown).enumerate() {
        out.push(b' ');
        match secrets >> index & 1 == 1 {
            true => out.extend_from_slice(b"\"(redacted)\""),
            false => write_arg(arg, out),
        }
    }
    if args.len() > shown {
        let _ = write!(out, " \"... ({} more arguments)\"", args.len() - shown);
    }
    out.extend_from_slice(b"\r\n");
}

/// Does the same for a request of a memcached client: its verb, its keys, and the value that it
/// stores.
pub fn write_memcached_line(
    request: &keyway_memcache::Request,
    bytes: &[u8],
    clock: Clock,
    addr: &str,
    out: &mut Vec<u8>,
) {
    write_head(clock, &format!("0 {addr}"), out);
    let verb = format!("{:?}", request.head.verb).to_ascii_lowercase();
    let _ = write!(out, " \"{verb}\"");
    let keys = request.keys.len();
    let shown = if keys > ARGS_MAX { ARGS_MAX - 1 } else { keys };
    for key in request.keys(bytes).take(shown) {
        out.push(b' ');
        write_arg(key, out);
    }
    if keys > shown {
        let _ = write!(out, " \"... ({} more arguments)\"", keys - shown);
    }
    if request.head.verb.stores() {
        out.push(b' ');
        write_arg(request.value.of(bytes), out);
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

/// Returns which of the shown arguments are secrets: a bit for each. Options are parsed as the
/// commands parse them. Arguments after an unknown option are left out as well, because one may be
/// a misplaced secret.
fn secrets(request: &Request) -> u32 {
    let args = &request.args;
    let words = |option: &[u8], known: &[(&str, u32, u32)]| {
        let is = |(name, ..): &&(&str, u32, u32)| option.eq_ignore_ascii_case(name.as_bytes());
        known.iter().find(is).map(|(_, len, secrets)| (*len, *secrets))
    };
    match request.command.verb {
        Verb::Auth => u32::MAX << 1,
        // There may be an option in place of the version.
        Verb::Hello if args.get(1).is_some_and(|word| parse_integer(word).is_none()) => {
            u32::MAX << 2
        }
        Verb::Hello => {
            secret_values(args, 2, |option| words(option, &[("auth", 3, 0b110), ("setname", 2, 0)]))
        }
        Verb::Migrate => secret_values(args, 6, |option| {
            let all = ARGS_MAX as u32;
            let known = [
                ("copy", 1, 0),
                ("replace", 1, 0),
                ("auth", 2, 0b10),
                ("auth2", 3, 0b110),
                ("keys", all, 0),
            ];
            words(option, &known)
        }),
        _ => 0,
    }
}

/// Returns the secrets among options that begin at argument `index`. `known` returns for an option
/// its number of arguments including its name, and which of them are secrets.
fn secret_values(args: &Args, mut index: u32, known: impl Fn(&[u8]) -> Option<(u32, u32)>) -> u32 {
    let mut secrets = 0;
    while let Some(option) = args.get(index as usize)
        && index < ARGS_MAX as u32
    {
        let Some((len, values)) = known(option) else {
            return secrets | (u32::MAX << index << 1);
        };
        secrets |= values << index;
        index += len;
    }
    secrets
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

    fn line(words: &[&[u8]]) -> String {
        with(words, |request| {
            let clock = Clock { now: Time(0), unix_micros: 1_339_518_083_007_412 };
            let mut out = Vec::new();
            write_line(request, clock, 2, "127.0.0.1:60866", &mut out);
            String::from_utf8(out).expect("lines are ASCII")
        })
    }

    fn with<T>(words: &[&[u8]], then: impl FnOnce(&Request) -> T) -> T {
        let (mut buf, mut ranges) = (Vec::new(), Vec::new());
        for word in words {
            ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
            buf.extend_from_slice(word);
        }
        then(&Request::resolve(Args::new(&buf, &ranges)).expect("a known command"))
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
            "AUTH sesame",
            "auth sesame sesame",
            "HELLO 3 AUTH sesame sesame",
            "HELLO 3 SETNAME n auth sesame sesame",
            "HELLO 3 SETNAME auth AUTH default sesame",
            "HELLO 3 AUTH default sesame SETNAME n AUTH default sesame",
            "HELLO 3 PASSWORD sesame AUTH default sesame",
            "HELLO 3 AUTH sesame",
            "HELLO AUTH default sesame",
            "MIGRATE host 1 k 0 5 AUTH sesame",
            "MIGRATE host 1 AUTH 0 5 COPY REPLACE auth2 default sesame KEYS k",
            "MIGRATE host 1 k 0 5 PASSWORD sesame",
        ] {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let line = line(&words);
            assert!(!line.contains("sesame") && line.contains(" \"(redacted)\""), "{line}");
        }
        for (words, shown) in [
            (
                "HELLO 3 AUTH u p SETNAME name",
                r#""AUTH" "(redacted)" "(redacted)" "SETNAME" "name""#,
            ),
            ("HELLO 3 SETNAME auth", r#""SETNAME" "auth""#),
            ("MIGRATE h 1 auth 0 5 KEYS auth k", r#""auth" "0" "5" "KEYS" "auth" "k""#),
            ("MIGRATE h 1 k 0 5 AUTH p KEYS k", r#""5" "AUTH" "(redacted)" "KEYS" "k""#),
        ] {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let line = line(&words);
            assert!(line.ends_with(&format!(" {shown}\r\n")), "{line}");
        }
    }

    #[test]
    fn what_administers_the_server_is_not_shown() {
        for words in ["CONFIG SET requirepass x", "ACL SETUSER u >x", "CONFIG SET masterauth x"] {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            assert!(!with(&words, is_shown));
        }
        for words in ["EVAL s 0", "EVALSHA_RO s 0", "FCALL f 0", "GET k"] {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            assert!(with(&words, is_shown));
        }
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
