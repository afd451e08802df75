//! The meaning of requests and replies of memcached for a route policy.

use super::{KeyOwner, Nature, Part, Verdict};
use keyway_base::Fault;
use keyway_memcache::{
    Answer, Asker, Dialect, ErrorKind, Head, Item, Outcome, ReplyLimits, ReplyParsed, RequestFlags,
    Verb, Wire, parse_reply, translate_reply, write_reply,
};

const LIMITS: ReplyLimits = ReplyLimits { reply_len_max: u32::MAX };

/// Returns the effect of repeating a request. A request that changes an expiry, or depends on the
/// stored item, may be repeated only if the result is the same.
pub fn nature_of(head: &Head) -> Nature {
    let is_bound = head.cas.is_some() || head.asked.has(RequestFlags::INVALIDATE);
    match head.verb {
        // An item that is created if it is missing, or given to one of its readers to be filled, is
        // given only once.
        Verb::Get if head.vivify.is_none() && head.recache.is_none() => Nature::Read,
        Verb::Debug => Nature::Read,
        Verb::GetTouch if head.vivify.is_none() && head.recache.is_none() => Nature::Repeatable,
        Verb::Set | Verb::Delete | Verb::Touch if !is_bound => Nature::Repeatable,
        _ => Nature::Once,
    }
}

/// Returns what a reply means. A server that answers `SERVER_ERROR` cannot serve, except if it has
/// no room for this value.
pub fn verdict_of(head: &Head, reply: &[u8], wire: Wire, fault: Option<Fault>) -> Verdict {
    if let Some(fault) = fault {
        return Verdict::of(fault);
    }
    let Ok(ReplyParsed::Ready { reply, .. }) = parse_reply(reply, wire, &LIMITS) else {
        // There is no reply, or no valid one.
        return if head.quiet { Verdict::Good } else { Verdict::Failed { maybe: true } };
    };
    match reply.outcome {
        Outcome::Error { kind: ErrorKind::Server, .. } => Verdict::Failed { maybe: true },
        Outcome::NotFound | Outcome::End => Verdict::Missed,
        _ => Verdict::Good,
    }
}

/// Returns the items of a reply in classic text, in their order.
pub fn items(reply: &[u8], wire: Wire) -> impl Iterator<Item = Item<'_>> {
    let mut rest = reply;
    std::iter::from_fn(move || {
        let Ok(ReplyParsed::Ready { len, reply }) = parse_reply(rest, wire, &LIMITS) else {
            return None;
        };
        rest = &rest[len..];
        match reply.outcome {
            Outcome::Hit(item) => Some(item),
            _ => None,
        }
    })
}

/// Returns for each of `keys`, which were asked together, whether it is missing.
pub fn misses<'k>(reply: &[u8], keys: impl Iterator<Item = &'k [u8]>) -> Vec<bool> {
    let mut items = items(reply, Wire::Text).peekable();
    let is_missing = |key: &[u8]| items.next_if(|item| item.key == key).is_none();
    keys.map(is_missing).collect()
}

/// Returns whether a reply contains everything about an item that another server needs to store it.
pub fn is_whole(head: &Head) -> bool {
    let wanted = RequestFlags::VALUE.with(RequestFlags::FLAGS);
    head.verb == Verb::Get && (head.dialect != Dialect::Meta || head.asked.has(wanted))
}

/// Returns the remaining seconds in the reply to `mg KEY t`. -1: no expiry.
pub fn time_left(reply: &[u8]) -> Option<i64> {
    let Ok(ReplyParsed::Ready { reply, .. }) = parse_reply(reply, Wire::Text, &LIMITS) else {
        return None;
    };
    match reply.outcome {
        Outcome::Done(item) | Outcome::Hit(item) => item.ttl,
        _ => None,
    }
}

/// Returns the same request, with an expiry of at most `max_secs`.
pub fn capped(head: &Head, max_secs: u64, now_unix: i64) -> Head {
    let max = i64::try_from(max_secs).unwrap_or(i64::MAX).max(1);
    let cap = |expiry: i64| match expiry {
        0 => max,
        ..0 => expiry,
        RELATIVE_MAX.. if expiry - now_unix > max => max,
        RELATIVE_MAX.. => expiry,
        _ => expiry.min(max),
    };
    let mut head = *head;
    head.vivify = head.vivify.map(cap);
    match head.verb {
        Verb::Set | Verb::Add | Verb::Replace | Verb::Cas => {
            head.expiry = cap(head.expiry);
            head.asked = head.asked.with(RequestFlags::EXPIRY);
        }
        Verb::Touch | Verb::GetTouch => head.expiry = cap(head.expiry),
        _ if head.asked.has(RequestFlags::EXPIRY) => head.expiry = cap(head.expiry),
        _ => {}
    }
    head
}

/// From here on, an expiry is a time since 1970: more than 30 days, in seconds.
const RELATIVE_MAX: i64 = 30 * 24 * 60 * 60 + 1;

/// Appends the client's reply for the server's reply to all of its request.
pub fn tell(part: &Part, wire: Wire, asker: &Asker<'_>, out: &mut Vec<u8>) {
    let Some(expect) = part.expect else { return out.extend_from_slice(&part.reply) };
    let answer = Answer { bytes: &part.reply, wire, expect };
    if translate_reply(out, asker, &answer).is_err() {
        let text = b"a pool answered something that is no reply to this";
        write_reply(out, asker, &Outcome::Error { kind: ErrorKind::Server, text });
    }
}

/// Appends the items of all parts in the order of the keys, in classic text, the only protocol
/// whose requests have several keys. An error of any part is the reply.
pub fn join<'k>(
    parts: &[Part],
    owners: &[KeyOwner],
    keys: impl Iterator<Item = &'k [u8]>,
    out: &mut Vec<u8>,
) {
    let is_error = |part: &&Part| crate::memcached::is_error(&part.reply, Wire::Text);
    if let Some(error) = parts.iter().find(is_error) {
        return out.extend_from_slice(&error.reply);
    }
    let mut rests: Vec<&[u8]> = parts.iter().map(|part| &part.reply[..]).collect();
    for (owner, key) in owners.iter().zip(keys) {
        let rest = &mut rests[usize::from(owner.part)];
        if let Ok(ReplyParsed::Ready { len, reply }) = parse_reply(rest, Wire::Text, &LIMITS)
            && matches!(reply.outcome, Outcome::Hit(item) if item.key == key)
        {
            out.extend_from_slice(&rest[..len]);
            *rest = &rest[len..];
        }
    }
    out.extend_from_slice(b"END\r\n");
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

    #[test]
    fn items_are_joined_in_the_order_of_the_keys() {
        let parts = [
            part(b"VALUE a 0 1\r\n1\r\nVALUE c 7 1\r\n3\r\nEND\r\n"),
            part(b"VALUE b 0 1\r\n2\r\nEND\r\n"),
            part(b"END\r\n"),
        ];
        let owners =
            [(0, 0), (1, 0), (0, 1), (2, 0)].map(|(part, index)| KeyOwner::new(part, index));
        let keys = [&b"a"[..], b"b", b"c", b"d"];
        let mut out = Vec::new();
        join(&parts, &owners, keys.into_iter(), &mut out);
        let expected =
            b"VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nVALUE c 7 1\r\n3\r\nEND\r\n".escape_ascii();
        assert_eq!(out.escape_ascii().to_string(), expected.to_string());
        out.clear();
        let parts = [part(b"END\r\n"), part(b"SERVER_ERROR x\r\n")];
        join(&parts, &owners[..2], [&b"a"[..], b"b"].into_iter(), &mut out);
        assert_eq!(out, b"SERVER_ERROR x\r\n");
        let reply = b"VALUE a 0 1\r\n1\r\nVALUE c 7 1\r\n3\r\nEND\r\n";
        let missing = misses(reply, [&b"a"[..], b"b", b"c", b"d"].into_iter());
        assert_eq!(missing, [false, true, false, true]);
    }

    #[test]
    fn no_expiry_is_beyond_the_cap() {
        let now = 1_700_000_000;
        for (expiry, expected) in [
            (0, 10),
            (5, 5),
            (11, 10),
            (2_592_000, 10),
            (-1, -1),
            (now + 5, now + 5),
            (now + 11, 10),
            (now - 5, now - 5),
        ] {
            let head = Head { verb: Verb::Set, expiry, ..Head::default() };
            assert_eq!(capped(&head, 10, now).expiry, expected, "{expiry}");
            let head = Head { verb: Verb::Incr, vivify: Some(expiry), ..Head::default() };
            assert_eq!(capped(&head, 10, now).vivify, Some(expected), "{expiry}");
        }
        let head = Head { verb: Verb::Append, ..Head::default() };
        assert_eq!(capped(&head, 10, now), head);
    }

    #[test]
    fn replies_are_told_apart() {
        let get = Head::default();
        let verdict = |reply: &[u8]| verdict_of(&get, reply, Wire::Text, None);
        assert_eq!(verdict(b"END\r\n"), Verdict::Missed);
        assert_eq!(verdict(b"EN\r\n"), Verdict::Missed);
        assert_eq!(verdict(b"NOT_FOUND\r\n"), Verdict::Missed);
        assert_eq!(verdict(b"NOT_STORED\r\n"), Verdict::Good);
        assert_eq!(verdict(b"VALUE k 0 1\r\na\r\nEND\r\n"), Verdict::Good);
        assert_eq!(verdict(b"SERVER_ERROR x\r\n"), Verdict::Failed { maybe: true });
        let full = b"SERVER_ERROR out of memory storing object\r\n";
        assert_eq!(verdict(full), Verdict::Good);
        assert_eq!(verdict(b"SERVER_ERROR object too large for cache\r\n"), Verdict::Good);
        assert_eq!(time_left(b"HD t12\r\n"), Some(12));
        assert_eq!(time_left(b"HD t-1\r\n"), Some(-1));
        assert_eq!(time_left(b"EN\r\n"), None);
    }
}
