//! HOTKEYS: the conspicuous keys of the client's pool that its user may read.

use super::{LocalContext, NOT_AN_INTEGER, SYNTAX};
use crate::hot_keys::{Access, Direction, KeyStats};
use keyway_command::{Request, Verb};
use keyway_resp::{parse_integer, reply};
use keyway_users::Access as Right;

/// Number of keys of a kind that are shown without a count.
const COUNT_DEFAULT: usize = 10;

const HELP: [&str; 9] = [
    "HOTKEYS <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [COUNT <count>]",
    "    Keys asked for most: name, read or write, part of all such accesses,",
    "    how far that may be off, accesses a second.",
    "BIG [COUNT <count>]",
    "    Keys with the largest values: name, bytes, command, request or reply,",
    "    Unix time.",
    "RESET",
    "    Forget them.",
];

/// Appends the reply.
pub(super) fn answer(request: &Request, context: &LocalContext, out: &mut Vec<u8>) {
    let args = &request.args;
    let is = |word: &str| args[1].eq_ignore_ascii_case(word.as_bytes());
    let noted = context.facts.key_stats(context.pool);
    let count = || match (args.get(2), args.get(3)) {
        (None, _) => Ok(COUNT_DEFAULT),
        (Some(word), Some(number)) if word.eq_ignore_ascii_case(b"count") && args.len() == 4 => {
            let number = parse_integer(number).ok_or(NOT_AN_INTEGER)?;
            usize::try_from(number).map_err(|_| "ERR count should not be negative")
        }
        _ => Err(SYNTAX),
    };
    match () {
        () if is("get") || is("big") => match count() {
            Err(error) => reply::error(out, error),
            Ok(count) if is("get") => write_hot(noted, count, context, out),
            Ok(count) => write_big(noted, count, context, out),
        },
        () if is("reset") && args.len() == 2 => {
            if let Some(noted) = noted {
                noted.hot.clear();
                noted.big.clear();
            }
            reply::simple(out, "OK");
        }
        () if is("help") && args.len() == 2 => {
            reply::array(out, HELP.len());
            HELP.iter().for_each(|line| reply::simple(out, line));
        }
        () => super::refuse_length(request, out),
    }
}

/// Returns whether the client's user may read a key. For a truncated key that is unknown, so it is
/// shown only to a user who may read all keys.
fn may_see(context: &LocalContext, key: &[u8], is_cut: bool) -> bool {
    let reads = Right { reads: true, writes: false };
    let user = context.identity.user.as_ref();
    context.identity.is_free
        || user.is_some_and(|user| {
            user.is_free()
                || (!is_cut && user.judge_keys(Verb::Hotkeys, std::iter::once(key), reads).is_ok())
        })
}

fn write_hot(noted: Option<&KeyStats>, count: usize, context: &LocalContext, out: &mut Vec<u8>) {
    let mut told = Vec::new();
    for (access, word) in [(Access::Read, "read"), (Access::Write, "write")] {
        let hottest = noted.map(|noted| noted.hot.hottest(access, usize::MAX, context.clock.now));
        let keys = hottest.unwrap_or_default().keys.into_iter();
        let seen = keys.filter(|it| may_see(context, &it.key, it.is_cut)).take(count);
        told.extend(seen.map(|it| (word, it)));
    }
    reply::array(out, told.len());
    for (word, it) in &told {
        reply::array(out, 5);
        write_key(&it.key, it.is_cut, out);
        reply::bulk(out, word.as_bytes());
        reply::bulk(out, format!("{:.6}", it.share).as_bytes());
        reply::bulk(out, format!("{:.6}", it.share_error).as_bytes());
        reply::bulk(out, format!("{:.3}", it.rate).as_bytes());
    }
}

fn write_big(noted: Option<&KeyStats>, count: usize, context: &LocalContext, out: &mut Vec<u8>) {
    let now = context.clock.unix_micros / 1_000_000;
    let biggest = noted.map(|noted| noted.big.biggest(usize::MAX, now)).unwrap_or_default();
    let seen = biggest.iter().filter(|it| may_see(context, &it.key, it.is_cut));
    let told: Vec<_> = seen.take(count).collect();
    reply::array(out, told.len());
    for it in told {
        reply::array(out, 5);
        write_key(&it.key, it.is_cut, out);
        reply::integer(out, it.bytes as i64);
        reply::bulk(out, it.command.as_bytes());
        let word = match it.direction {
            Direction::Request => "request",
            Direction::Reply => "reply",
        };
        reply::bulk(out, word.as_bytes());
        reply::integer(out, it.unix_seconds as i64);
    }
}

/// Writes a key. A truncated one ends in three dots.
fn write_key(key: &[u8], is_cut: bool, out: &mut Vec<u8>) {
    match is_cut {
        false => reply::bulk(out, key),
        true => reply::bulk(out, &[key, b"..."].concat()),
    }
}
