//! The meaning of requests and replies of Redis for a route policy.

use super::{KeyOwner, Nature, Part, Verdict};
use keyway_base::Fault;
use keyway_command::{Flags, Join, Request, Verb};
use keyway_resp::{Framer, Framing, Protocol, reply};
use std::ops::Range;

/// Returns the effect of repeating a request.
pub fn nature_of(request: &Request) -> Nature {
    use Verb::*;
    if request.command.flags.contains(Flags::READONLY) {
        return Nature::Read;
    }
    let sets_always = || request.args.from(3).all(|word| !word.eq_ignore_ascii_case(b"nx"));
    match request.command.verb {
        Set if sets_always() => Nature::Repeatable,
        Setex | Psetex | Mset | Hset | Hmset | Sadd | Setbit | Setrange | Pfadd => {
            Nature::Repeatable
        }
        Del | Unlink | Hdel | Srem | Zrem => Nature::Repeatable,
        Expire | Pexpire | Expireat | Pexpireat | Persist | Touch => Nature::Repeatable,
        _ => Nature::Once,
    }
}

/// Returns what a reply means. Errors about the server and not about the request are failures. None
/// of them answers a request that was executed.
pub fn verdict_of(verb: Verb, nature: Nature, reply: &[u8], fault: Option<Fault>) -> Verdict {
    /// The errors of a server that cannot serve now.
    const UNFIT: [&[u8]; 7] = [
        b"-LOADING",
        b"-MASTERDOWN",
        b"-READONLY",
        b"-CLUSTERDOWN",
        b"-TRYAGAIN",
        b"-MISCONF",
        b"-BUSY ",
    ];
    if let Some(fault) = fault {
        return Verdict::of(fault);
    }
    if reply.first() == Some(&b'-') {
        let is_unfit = UNFIT.iter().any(|prefix| reply.starts_with(prefix));
        return if is_unfit { Verdict::Failed { maybe: false } } else { Verdict::Good };
    }
    let is_miss = match verb {
        Verb::Exists | Verb::Del | Verb::Unlink | Verb::Touch | Verb::Hdel => reply == b":0\r\n",
        Verb::Ttl | Verb::Pttl => reply == b":-2\r\n",
        Verb::Type => reply == b"+none\r\n",
        _ if nature == Nature::Read => is_nothing(reply),
        _ => false,
    };
    if is_miss { Verdict::Missed } else { Verdict::Good }
}

/// Returns whether a reply is a null, or has no elements.
fn is_nothing(reply: &[u8]) -> bool {
    const NOTHING: [&[u8]; 6] = [b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"*0\r\n", b"%0\r\n", b"~0\r\n"];
    NOTHING.contains(&reply)
}

/// Returns the elements of an array, or `None` if it is none.
pub fn elements(reply: &[u8]) -> Option<Vec<Range<usize>>> {
    let head = reply.iter().position(|&byte| byte == b'\n')? + 1;
    let count = reply.strip_prefix(b"*")?.get(..head - 3)?;
    let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
    let mut elements = Vec::new();
    let mut framer = Framer::new(Protocol::Resp3);
    let mut at = head;
    for _ in 0..count {
        let Ok(Framing::Ready { len, .. }) = framer.frame(&reply[at..], u32::MAX, u32::MAX) else {
            return None;
        };
        elements.push(at..at + len);
        at += len;
    }
    (at == reply.len()).then_some(elements)
}

/// Returns the value of a string's reply, or `None` for a null and anything else.
pub fn bulk(reply: &[u8]) -> Option<&[u8]> {
    let head = reply.iter().position(|&byte| byte == b'\n')? + 1;
    reply.strip_prefix(b"$").filter(|rest| rest.first() != Some(&b'-'))?;
    reply.get(head..)?.strip_suffix(b"\r\n")
}

/// Returns for each of the keys that were asked together whether it is missing, or `None` if the
/// reply does not say it.
pub fn misses(reply: &[u8]) -> Option<Vec<bool>> {
    let elements = elements(reply)?;
    Some(elements.into_iter().map(|element| is_nothing(&reply[element])).collect())
}

/// Appends one reply that is merged from those of the parts. An error of any part is the reply: a
/// join never hides one.
pub fn join(rule: Join, parts: &[Part], owners: &[KeyOwner], out: &mut Vec<u8>) {
    if let Some(error) = parts.iter().find(|part| part.reply.first() == Some(&b'-')) {
        return out.extend_from_slice(&error.reply);
    }
    let before = out.len();
    if try_join(rule, parts, owners, out).is_none() {
        out.truncate(before);
        reply::error(out, "ERR a pool answered something that is no reply to its part of this");
    }
}

fn try_join(rule: Join, parts: &[Part], owners: &[KeyOwner], out: &mut Vec<u8>) -> Option<()> {
    match rule {
        Join::Array => {
            let lists: Option<Vec<_>> = parts.iter().map(|part| elements(&part.reply)).collect();
            let lists = lists?;
            reply::array(out, owners.len());
            for &KeyOwner { part, index } in owners {
                let element = lists[usize::from(part)].get(index as usize)?.clone();
                out.extend_from_slice(&parts[usize::from(part)].reply[element]);
            }
        }
        Join::Sum => {
            let number = |part: &Part| {
                let digits = part.reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
                keyway_resp::parse_integer(digits)
            };
            let sum = parts
                .iter()
                .map(number)
                .try_fold(0i64, |sum, number| number.map(|number| sum.saturating_add(number)))?;
            reply::integer(out, sum);
        }
        _ if parts.iter().all(|part| part.reply == b"+OK\r\n") => reply::simple(out, "OK"),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route_policy::{AskOrder, RoutePolicy};

    fn part(reply: &[u8]) -> Part {
        let mut part = Part::new(RoutePolicy::new(AskOrder::InTurn, Nature::Read, [0]), Vec::new());
        part.reply = reply.to_vec();
        part
    }

    fn joined(rule: Join, replies: &[&[u8]], owners: &[KeyOwner]) -> String {
        let parts: Vec<Part> = replies.iter().map(|reply| part(reply)).collect();
        let mut out = Vec::new();
        join(rule, &parts, owners, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn parts_are_joined_in_the_order_of_the_keys() {
        let owners = [(1, 0), (0, 0), (1, 1)].map(|(part, index)| KeyOwner::new(part, index));
        let replies: [&[u8]; 2] = [b"*1\r\n$1\r\nb\r\n", b"*2\r\n$-1\r\n$1\r\nc\r\n"];
        let all = joined(Join::Array, &replies, &owners);
        assert_eq!(all, "*3\r\n$-1\r\n$1\r\nb\r\n$1\r\nc\r\n");
        assert_eq!(joined(Join::Sum, &[b":2\r\n", b":3\r\n"], &owners), ":5\r\n");
        assert_eq!(joined(Join::AllOk, &[b"+OK\r\n", b"+OK\r\n"], &owners), "+OK\r\n");
    }

    #[test]
    fn a_join_hides_no_error_and_invents_no_element() {
        let owners = [(0, 0), (1, 0)].map(|(part, index)| KeyOwner::new(part, index));
        assert_eq!(joined(Join::Sum, &[b":2\r\n", b"-ERR x\r\n"], &owners), "-ERR x\r\n");
        for (rule, replies) in [
            (Join::Array, [&b"*1\r\n$1\r\nb\r\n"[..], b"*0\r\n"]),
            (Join::Array, [b"*1\r\n$1\r\nb\r\n", b"+OK\r\n"]),
            (Join::Sum, [b":1\r\n", b"+OK\r\n"]),
            (Join::AllOk, [b":1\r\n", b"+OK\r\n"]),
        ] {
            assert!(joined(rule, &replies, &owners).starts_with("-ERR a pool answered"));
        }
    }

    #[test]
    fn replies_are_told_apart() {
        let verdict = |verb, nature, reply: &[u8]| verdict_of(verb, nature, reply, None);
        let failed = Verdict::Failed { maybe: false };
        assert_eq!(verdict(Verb::Get, Nature::Read, b"$-1\r\n"), Verdict::Missed);
        assert_eq!(verdict(Verb::Hgetall, Nature::Read, b"%0\r\n"), Verdict::Missed);
        assert_eq!(verdict(Verb::Get, Nature::Read, b"$0\r\n\r\n"), Verdict::Good);
        assert_eq!(verdict(Verb::Set, Nature::Repeatable, b"$-1\r\n"), Verdict::Good);
        assert_eq!(verdict(Verb::Set, Nature::Repeatable, b"-READONLY x\r\n"), failed);
        assert_eq!(verdict(Verb::Get, Nature::Read, b"-WRONGTYPE x\r\n"), Verdict::Good);
        assert_eq!(verdict(Verb::Del, Nature::Repeatable, b":0\r\n"), Verdict::Missed);
        assert_eq!(bulk(b"$3\r\nabc\r\n"), Some(&b"abc"[..]));
        assert_eq!(
            (bulk(b"$-1\r\n"), bulk(b"_\r\n"), bulk(b"$0\r\n\r\n")),
            (None, None, Some(&b""[..]))
        );
        assert_eq!(misses(b"*3\r\n$-1\r\n$1\r\na\r\n_\r\n"), Some(vec![true, false, true]));
    }
}
