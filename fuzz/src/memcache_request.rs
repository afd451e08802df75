//! Requests of the three memcached protocols, whole and in pieces: the verdict
//! is the same. What is taken is put to servers of each protocol, which have to read the same from
//! it and nothing besides; what is refused and what is answered has to be
//! replies.

use crate::Choices;
use crate::invariants::shown;
use keyway_memcache::{
    Asker, Dialect, ErrorKind, Expect, Framer, Framing, Head, Item, Outcome, ParseLimits, Parsed,
    ReplyLimits, ReplyParsed, Request, RequestFault, Wire, compose_request, parse_reply,
    parse_request, write_end, write_reply,
};

/// Requests longer than this are cut at every point only now and then.
const EVERY_PREFIX_LEN_MAX: usize = 80;

const REPLIES: ReplyLimits = ReplyLimits { reply_len_max: 1 << 24 };

const DIALECTS: [Dialect; 3] = [Dialect::Text, Dialect::Meta, Dialect::Binary];

/// Lines, as they come.
pub fn run_text(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (limits, pieces) = settings(&mut choices);
    check(choices.rest(), Wire::Text, &limits, pieces);
}

/// Meta commands, put together from their parts.
pub fn run_meta(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (limits, pieces) = settings(&mut choices);
    let mut stream = Vec::new();
    while !choices.is_over() {
        let verb = choices.pick(b"ggssdaaen");
        stream.extend_from_slice(&[b'm', verb, b' ']);
        stream.extend_from_slice(choices.pick(&[
            &b"k"[..],
            b"key",
            b"a2V5",
            b"YSBi",
            b"",
            b"AAAA",
        ]));
        let value = choices.bytes(12);
        if verb == b's' {
            stream.extend_from_slice(format!(" {}", value.len()).as_bytes());
        }
        for _ in 0..choices.below(6) {
            stream.extend_from_slice(&[b' ', choices.pick(b"bcfhklOqstvEIMNRTuxCFDJSPL!")]);
            stream.extend_from_slice(choices.pick(&[
                &b""[..],
                b"",
                b"",
                b"0",
                b"30",
                b"-1",
                b"18446744073709551615",
                b"E",
                b"A",
                b"P",
                b"D",
                b"+",
                b"x",
            ]));
        }
        stream.extend_from_slice(b"\r\n");
        if verb == b's' {
            stream.extend_from_slice(value);
            stream.extend_from_slice(b"\r\n");
        }
    }
    check(&stream, Wire::Text, &limits, pieces);
}

/// Packets: some bytes of the input as they are, the others put into headers
/// that are right but for a few.
pub fn run_binary(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (limits, pieces) = settings(&mut choices);
    if choices.flip() {
        return check(choices.rest(), Wire::Binary, &limits, pieces);
    }
    let mut stream = Vec::new();
    while !choices.is_over() {
        let opcode = choices.below(0x28) as u8;
        let extras_len = match opcode {
            0x01..=0x03 | 0x11..=0x13 => 8,
            0x05 | 0x06 | 0x15 | 0x16 => 20,
            0x1c..=0x1e | 0x23 | 0x24 => 4,
            _ => 0,
        };
        let extras: Vec<u8> = (0..extras_len).map(|_| choices.byte()).collect();
        let key = choices.bytes(10);
        let takes = matches!(opcode, 0x01..=0x03 | 0x0e | 0x0f | 0x11..=0x13 | 0x19 | 0x1a | 0x21);
        let value = choices.bytes(if takes { 20 } else { 0 });
        let body = extras.len() + key.len() + value.len();
        let mut header = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
        header.extend_from_slice(&(body as u32).to_be_bytes());
        header.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, choices.byte() & 1]);
        stream.extend([&header[..], &extras, key, value].concat());
    }
    check(&stream, Wire::Binary, &limits, pieces);
}

fn settings(choices: &mut Choices<'_>) -> (ParseLimits, [usize; 2]) {
    let limits = match choices.below(2) {
        0 => ParseLimits { value_len_max: 1 << 20, keys_max: 1 << 16, keys_line_len_max: 1 << 16 },
        _ => ParseLimits { value_len_max: 20, keys_max: 3, keys_line_len_max: 100 },
    };
    (limits, [1 + choices.below(64), 1 + choices.below(64)])
}

/// What a request means, wherever its bytes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Meaning {
    head: Head,
    keys: Vec<Vec<u8>>,
    value: Vec<u8>,
    meta: Vec<u8>,
}

impl Meaning {
    fn of(request: &Request, buf: &[u8]) -> Meaning {
        Meaning {
            head: request.head,
            keys: request.keys(buf).map(<[u8]>::to_vec).collect(),
            value: request.value.of(buf).to_vec(),
            meta: request.meta.of(buf).to_vec(),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Request(Meaning, usize),
    Refused(Head, RequestFault),
}

fn check(stream: &[u8], wire: Wire, limits: &ParseLimits, pieces: [usize; 2]) {
    let whole = read(stream, wire, limits, [stream.len().max(1); 2]);
    let split = read(stream, wire, limits, pieces);
    assert_eq!(whole, split, "split changes {:?}", shown(stream));
    let mut at = 0;
    for event in &whole {
        match event {
            Event::Request(meaning, len) => {
                // Where something was refused before, the place is not known.
                if at != usize::MAX {
                    every_prefix_waits(&stream[at..at + len], wire, limits);
                    at += len;
                }
                reaches_any_server(meaning);
                is_answered(meaning);
            }
            Event::Refused(head, fault) => {
                at = usize::MAX;
                let mut out = Vec::new();
                fault.write(head, &mut out);
                elements(&out, wire);
            }
        }
    }
}

/// Reads the stream as it arrives, and looks again only when the hint says so.
fn read(stream: &[u8], wire: Wire, limits: &ParseLimits, pieces: [usize; 2]) -> Vec<Event> {
    let mut request = Request::default();
    let mut events = Vec::new();
    let (mut start, mut end, mut needed, mut skip) = (0, 0, 0, 0u64);
    for piece in pieces.iter().cycle() {
        if end == stream.len() {
            break;
        }
        end = (end + piece).min(stream.len());
        loop {
            let dropped = skip.min((end - start) as u64);
            (skip, start) = (skip - dropped, start + dropped as usize);
            if start == end || end - start < needed {
                break;
            }
            // A buffer of its own: reading past it is an error.
            let held = stream[start..end].to_vec();
            needed = 0;
            match parse_request(&held, wire, limits, &mut request) {
                Parsed::Ready { consumed } => {
                    assert!(consumed > 0);
                    start += consumed;
                    events.push(Event::Request(Meaning::of(&request, &held), consumed));
                }
                Parsed::NeedMore { at_least } => {
                    assert!(at_least > held.len(), "a parser that waits must wait for more");
                    needed = at_least;
                    break;
                }
                Parsed::Refused { consumed, skip: behind, fault } => {
                    assert!(consumed > 0 && consumed <= held.len());
                    events.push(Event::Refused(request.head, fault));
                    if fault.closes() {
                        return events;
                    }
                    (start, skip) = (start + consumed, behind);
                }
            }
        }
    }
    events
}

fn every_prefix_waits(bytes: &[u8], wire: Wire, limits: &ParseLimits) {
    let mut request = Request::default();
    let step = 1 + bytes.len() / EVERY_PREFIX_LEN_MAX;
    for len in (0..bytes.len()).step_by(step) {
        match parse_request(&bytes[..len], wire, limits, &mut request) {
            Parsed::NeedMore { at_least } => {
                assert!(at_least > len && at_least <= bytes.len(), "{:?} at {len}", shown(bytes));
            }
            other => panic!("{:?} cut at {len}: {other:?}", shown(bytes)),
        }
    }
}

/// What is composed for a server is requests of its protocol, for the same keys
/// and with the same value: nothing a client sends can become another command.
fn reaches_any_server(meaning: &Meaning) {
    let Meaning { head, keys, value, .. } = meaning;
    let is_item = head.verb.reads() || head.verb.stores();
    for to in DIALECTS {
        let mut out = Vec::new();
        let asked = keys.iter().map(Vec::as_slice);
        if compose_request(&mut out, to, head, asked, value).is_err() {
            assert!(out.is_empty());
            continue;
        }
        let wire = if to == Dialect::Binary { Wire::Binary } else { Wire::Text };
        let limits =
            ParseLimits { value_len_max: 1 << 24, keys_max: 1 << 20, keys_line_len_max: 1 << 24 };
        let mut rest = &out[..];
        let mut found = Vec::new();
        let mut request = Request::default();
        while !rest.is_empty() {
            match parse_request(rest, wire, &limits, &mut request) {
                Parsed::Ready { consumed } => {
                    found.extend(request.keys(rest).map(<[u8]>::to_vec));
                    if head.verb.stores() {
                        assert_eq!(request.head.verb, head.verb, "{:?}", shown(&out));
                        assert_eq!(request.value.of(rest), value, "{:?}", shown(&out));
                    }
                    rest = &rest[consumed..];
                }
                // A command without a key is refused by its server, too.
                Parsed::Refused { .. } if keys.is_empty() => return,
                other => panic!("{meaning:?} becomes {:?}: {other:?}", shown(&out)),
            }
        }
        if is_item {
            assert_eq!(&found, keys, "{:?}", shown(&out));
        }
    }
}

fn is_answered(meaning: &Meaning) {
    let item = Item { value: b"12\r\n3", flags: 5, cas: Some(9), ttl: Some(-1), ..Item::default() };
    let Meaning { head, keys, meta, .. } = meaning;
    let asker = Asker { head, key: keys.first().map_or(&[], Vec::as_slice), meta };
    let wire = if head.dialect == Dialect::Binary { Wire::Binary } else { Wire::Text };
    let outcomes = [
        Outcome::Hit(item),
        Outcome::Done(item),
        Outcome::NotFound,
        Outcome::NotStored,
        Outcome::Exists,
        Outcome::Noop,
        Outcome::Number { value: 7, cas: None },
        Outcome::Stat { name: b"a\r\nb", value: b"c\nd" },
        Outcome::Error { kind: ErrorKind::Server, text: b"a\r\nEND" },
    ];
    for outcome in outcomes {
        // A list of items is nothing to answer other commands with.
        if matches!(outcome, Outcome::Hit(_)) && !head.verb.reads() {
            continue;
        }
        if head.dialect == Dialect::Binary && matches!(outcome, Outcome::Number { .. }) {
            continue;
        }
        let mut out = Vec::new();
        write_reply(&mut out, &asker, &outcome);
        write_end(&mut out, head);
        if head.dialect != Dialect::Binary
            || head.verb.reads() && matches!(outcome, Outcome::Hit(_))
        {
            elements(&out, wire);
        }
    }
}

/// All of `bytes` is whole elements of replies.
fn elements(bytes: &[u8], wire: Wire) {
    let mut rest = bytes;
    while !rest.is_empty() {
        match parse_reply(rest, wire, &REPLIES) {
            Ok(ReplyParsed::Ready { len, .. }) => {
                let framed = Framer::new(wire, Expect::One).frame(rest, &REPLIES);
                assert_eq!(framed, Ok(Framing::Ready { len }));
                rest = &rest[len..];
            }
            other => panic!("not a reply: {:?}: {other:?}", shown(bytes)),
        }
    }
}
