//! Tests how each request is sent to a server of each protocol, as a table, and the limits of keys
//! and lines.

use super::*;
use crate::{KEY_LEN_MAX, ParseLimits, Parsed, Request, RequestFlags, Wire, parse_request};

const LIMITS: ParseLimits =
    ParseLimits { value_len_max: 1 << 20, keys_max: 1000, keys_line_len_max: 1 << 20 };

/// Parses a request and writes it for a server of that protocol.
fn composed(bytes: &[u8], to: Dialect) -> Result<(Vec<u8>, Expect), Untranslatable> {
    let (mut request, wire) = (Request::default(), Wire::of(bytes[0]));
    let parsed = parse_request(bytes, wire, &LIMITS, &mut request);
    assert_eq!(parsed, Parsed::Ready { consumed: bytes.len() }, "{}", bytes.escape_ascii());
    let mut out = b"before".to_vec();
    let (keys, value) = (request.keys(bytes), request.value.of(bytes));
    let outcome = compose_request(&mut out, to, &request.head, keys, value);
    assert!(out.starts_with(b"before") && (outcome.is_ok() || out.len() == 6));
    outcome.map(|expect| (out.split_off(6), expect))
}

/// Formats packets by their parts that are not empty: operation, number, extras, key, value.
fn packets(mut bytes: &[u8]) -> String {
    let mut told = Vec::new();
    while !bytes.is_empty() {
        let number = |at: usize, len: usize| {
            bytes[at..at + len].iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte))
        };
        let (key_len, extras_len) = (number(2, 2) as usize, number(4, 1) as usize);
        let len = 24 + number(8, 4) as usize;
        let mut words = format!("{:02x}", number(1, 1));
        if number(16, 8) != 0 {
            words += &format!(" #{:x}", number(16, 8));
        }
        let (extras, rest) = bytes[24..len].split_at(extras_len);
        let (key, value) = rest.split_at(key_len);
        if !extras.is_empty() {
            let digits: String = extras.iter().map(|byte| format!("{byte:02x}")).collect();
            words += &format!(" {digits}");
        }
        for text in [key, value].iter().filter(|text| !text.is_empty()) {
            words += &format!(" {}", text.escape_ascii());
        }
        told.push(words);
        bytes = &bytes[len..];
    }
    told.join("; ")
}

fn told(bytes: &[u8], to: Dialect) -> String {
    match composed(bytes, to) {
        Err(why) => format!("{why:?}"),
        Ok((out, expect)) => {
            let end = match expect {
                Expect::One => "",
                Expect::List => " (list)",
                Expect::UntilNoop => " (until noop)",
                Expect::Nothing => " (nothing)",
            };
            let text = match to {
                Dialect::Binary => packets(&out),
                _ => out.escape_ascii().to_string().trim_end_matches("\\r\\n").to_owned(),
            };
            text + end
        }
    }
}

/// Requests, with their form in classic, in meta and in binary, or the reason why they are refused.
const TABLE: &[(&str, &str, &str, &str)] = &[
    ("get a", "get a (list)", "mg a v f", "00 a"),
    (
        "get a b",
        "get a b (list)",
        "mg a v f k q\\r\\nmg b v f k q\\r\\nmn (until noop)",
        "0d a; 0d b; 0a (until noop)",
    ),
    ("gets a", "gets a (list)", "mg a v f c", "00 a"),
    (
        "gets a b",
        "gets a b (list)",
        "mg a v f c k q\\r\\nmg b v f c k q\\r\\nmn (until noop)",
        "0d a; 0d b; 0a (until noop)",
    ),
    ("gat 10 a", "gat 10 a (list)", "mg a v f T10", "1d 0000000a a"),
    (
        "gats 10 a b",
        "gats 10 a b (list)",
        "mg a v f c k T10 q\\r\\nmg b v f c k T10 q\\r\\nmn (until noop)",
        "24 0000000a a; 24 0000000a b; 0a (until noop)",
    ),
    ("gat -5 a", "gat -5 a (list)", "mg a v f T-5", "1d 00278d01 a"),
    (
        "set k 5 100 3\\r\\nabc",
        "set k 5 100 3\\r\\nabc",
        "ms k 3 F5 T100\\r\\nabc",
        "01 0000000500000064 k abc",
    ),
    ("set k 0 -1 0\\r\\n", "set k 0 -1 0", "ms k 0 T-1", "01 0000000000278d01 k"),
    (
        "add k 1 2 1\\r\\nx",
        "add k 1 2 1\\r\\nx",
        "ms k 1 F1 T2 ME\\r\\nx",
        "02 0000000100000002 k x",
    ),
    (
        "replace k 1 2 1\\r\\nx",
        "replace k 1 2 1\\r\\nx",
        "ms k 1 F1 T2 MR\\r\\nx",
        "03 0000000100000002 k x",
    ),
    ("append k 0 0 1\\r\\nx", "append k 0 0 1\\r\\nx", "ms k 1 MA\\r\\nx", "0e k x"),
    ("prepend k 0 0 1\\r\\nx", "prepend k 0 0 1\\r\\nx", "ms k 1 MP\\r\\nx", "0f k x"),
    (
        "cas k 1 2 3 77\\r\\nabc",
        "cas k 1 2 3 77\\r\\nabc",
        "ms k 3 F1 T2 C77\\r\\nabc",
        "01 #4d 0000000100000002 k abc",
    ),
    (
        "cas k 1 2 1 0\\r\\nx",
        "cas k 1 2 1 0\\r\\nx",
        "ms k 1 F1 T2 C0\\r\\nx",
        "01 #ffffffffffffffff 0000000100000002 k x",
    ),
    ("delete k", "delete k", "md k", "04 k"),
    ("incr k 5", "incr k 5", "ma k v D5", "05 00000000000000050000000000000000ffffffff k"),
    ("decr k 7", "decr k 7", "ma k MD v D7", "06 00000000000000070000000000000000ffffffff k"),
    ("incr k 1", "incr k 1", "ma k v", "05 00000000000000010000000000000000ffffffff k"),
    ("touch k 99", "touch k 99", "mg k T99 f c", "1c 00000063 k"),
    ("touch k -1", "touch k -1", "mg k T-1 f c", "1c 00278d01 k"),
    ("flush_all", "flush_all", "flush_all", "08"),
    ("flush_all 10", "flush_all 10", "flush_all 10", "08 0000000a"),
    ("stats", "stats (list)", "stats (list)", "10 (list)"),
    ("stats slabs", "stats slabs (list)", "stats slabs (list)", "10 slabs (list)"),
    ("stats detail on", "stats detail on (list)", "stats detail on (list)", "10 detail on (list)"),
    ("version", "version", "version", "0b"),
    ("verbosity 1", "verbosity 1", "verbosity 1", "Request"),
    ("quit", "quit (nothing)", "quit (nothing)", "07"),
    ("mn", "mn", "mn", "0a"),
    ("me k", "me k", "me k", "Request"),
    ("cache_memlimit 64", "cache_memlimit 64", "cache_memlimit 64", "Request"),
    ("shutdown", "shutdown (nothing)", "shutdown (nothing)", "Request"),
    ("shutdown graceful", "shutdown graceful (nothing)", "shutdown graceful (nothing)", "Request"),
    ("slabs automove 1", "slabs automove 1", "slabs automove 1", "Request"),
    ("mg k", "get k (list)", "mg k", "00 k"),
    ("mg k v", "get k (list)", "mg k v", "00 k"),
    ("mg k v f c k s", "gets k (list)", "mg k v f c s", "00 k"),
    ("mg k t", "Request", "mg k t", "Request"),
    ("mg k h", "Request", "mg k h", "Request"),
    ("mg k l", "Request", "mg k l", "Request"),
    ("mg k u v", "get k (list)", "mg k v u", "00 k"),
    ("mg k v T30", "gat 30 k (list)", "mg k v T30", "1d 0000001e k"),
    ("mg k v T30 t", "Request", "mg k v T30 t", "Request"),
    ("mg k v t T30", "Request", "mg k v t T30", "Request"),
    ("mg k v N30", "Request", "mg k v N30", "Request"),
    ("mg k v R30", "Request", "mg k v R30", "Request"),
    ("mg k v E5", "Request", "mg k v E5", "Request"),
    ("mg a2V5IDE= b v", "Key", "mg a2V5IDE= b v", "00 key 1"),
    ("ms k 3\\r\\nabc", "set k 0 0 3\\r\\nabc", "ms k 3\\r\\nabc", "01 0000000000000000 k abc"),
    (
        "ms k 3 F5 T10\\r\\nabc",
        "set k 5 10 3\\r\\nabc",
        "ms k 3 F5 T10\\r\\nabc",
        "01 000000050000000a k abc",
    ),
    ("ms k 1 c\\r\\nx", "Request", "ms k 1 c\\r\\nx", "01 0000000000000000 k x"),
    ("ms k 1 s\\r\\nx", "Request", "ms k 1 s\\r\\nx", "Request"),
    ("ms k 1 C7\\r\\nx", "cas k 0 0 1 7\\r\\nx", "ms k 1 C7\\r\\nx", "01 #7 0000000000000000 k x"),
    ("ms k 1 E9\\r\\nx", "Request", "ms k 1 E9\\r\\nx", "Request"),
    ("ms k 1 I C7\\r\\nx", "Request", "ms k 1 C7 I\\r\\nx", "Request"),
    ("ms k 1 ME\\r\\nx", "add k 0 0 1\\r\\nx", "ms k 1 ME\\r\\nx", "02 0000000000000000 k x"),
    ("ms k 1 ME C7\\r\\nx", "add k 0 0 1\\r\\nx", "ms k 1 C7 ME\\r\\nx", "02 0000000000000000 k x"),
    ("ms k 1 ME c\\r\\nx", "Request", "ms k 1 c ME\\r\\nx", "02 0000000000000000 k x"),
    ("ms k 1 MA\\r\\nx", "append k 0 0 1\\r\\nx", "ms k 1 MA\\r\\nx", "0e k x"),
    ("ms k 1 MA C7\\r\\nx", "Request", "ms k 1 C7 MA\\r\\nx", "0e #7 k x"),
    ("ms k 1 MA N60\\r\\nx", "Request", "ms k 1 N60 MA\\r\\nx", "Request"),
    ("ms k 1 MP\\r\\nx", "prepend k 0 0 1\\r\\nx", "ms k 1 MP\\r\\nx", "0f k x"),
    ("ms k 1 MR\\r\\nx", "replace k 0 0 1\\r\\nx", "ms k 1 MR\\r\\nx", "03 0000000000000000 k x"),
    ("ms k 1 MR I\\r\\nx", "Request", "ms k 1 I MR\\r\\nx", "Request"),
    ("md k", "delete k", "md k", "04 k"),
    ("md k C5", "Request", "md k C5", "04 #5 k"),
    ("md k I T30", "Request", "md k T30 I", "Request"),
    ("md k I", "Request", "md k I", "Request"),
    ("md k x", "Request", "md k x", "Request"),
    ("md k T30", "Request", "md k T30", "Request"),
    ("md k F3 x", "Request", "md k F3 x", "Request"),
    ("md k E5", "Request", "md k E5", "Request"),
    ("ma k", "incr k 1", "ma k v", "05 00000000000000010000000000000000ffffffff k"),
    ("ma k v", "incr k 1", "ma k v", "05 00000000000000010000000000000000ffffffff k"),
    ("ma k D5", "incr k 5", "ma k v D5", "05 00000000000000050000000000000000ffffffff k"),
    ("ma k MD", "decr k 1", "ma k MD v", "06 00000000000000010000000000000000ffffffff k"),
    (
        "ma k MD D5 J3 N60",
        "Request",
        "ma k MD v D5 J3 N60",
        "06 000000000000000500000000000000030000003c k",
    ),
    ("ma k J3", "incr k 1", "ma k v J3", "05 00000000000000010000000000000003ffffffff k"),
    ("ma k T60 t c", "Request", "ma k v T60 t c", "Request"),
    ("ma k t", "Request", "ma k v t", "Request"),
    ("ma k T60", "Request", "ma k v T60", "Request"),
    ("ma k c", "Request", "ma k v c", "05 00000000000000010000000000000000ffffffff k"),
    ("ma k C7", "Request", "ma k v C7", "05 #7 00000000000000010000000000000000ffffffff k"),
    ("ma k N0", "Request", "ma k v N0", "05 0000000000000001000000000000000000000000 k"),
    ("ma k N-1", "Request", "ma k v N-1", "05 0000000000000001000000000000000000278d01 k"),
];

#[test]
fn requests_are_what_the_table_says_in_each_protocol() {
    for (line, text, meta, binary) in TABLE {
        let bytes = line.replace("\\r\\n", "\r\n") + "\r\n";
        for (to, expected) in
            [Dialect::Text, Dialect::Meta, Dialect::Binary].into_iter().zip([text, meta, binary])
        {
            assert_eq!(told(bytes.as_bytes(), to), **expected, "{line} to {to:?}");
        }
    }
}

fn put(head: &Head, keys: &[&[u8]], to: Dialect) -> Result<Vec<u8>, Untranslatable> {
    let mut out = Vec::new();
    let composed = compose_request(&mut out, to, head, keys.iter().copied(), b"");
    composed.map(|_| out)
}

fn head(verb: Verb) -> Head {
    Head { verb, dialect: Dialect::Binary, ..Head::default() }
}

#[test]
fn a_binary_client_does_without_the_number_that_classic_servers_do_not_tell() {
    for verb in
        [Verb::Set, Verb::Add, Verb::Replace, Verb::Append, Verb::Cas, Verb::Incr, Verb::Delete]
    {
        for (asked, cas, can_say) in [
            (RequestFlags::NONE, None, true),
            (RequestFlags::CAS, None, true),
            (RequestFlags::INVALIDATE, None, false),
            (RequestFlags::TTL, None, false),
            (RequestFlags::REMOVE_VALUE, None, false),
            (RequestFlags::NONE, Some(7), matches!(verb, Verb::Cas | Verb::Add)),
        ] {
            let head = Head { asked, cas, ..head(verb) };
            let composed = put(&head, &[b"k"], Dialect::Text);
            assert_eq!(composed.is_ok(), can_say, "{head:?}: {composed:?}");
        }
    }
}

#[test]
fn who_a_client_is_can_be_said_to_binary_servers_alone() {
    for (verb, opcode) in [(Verb::SaslList, 0x20), (Verb::SaslStart, 0x21), (Verb::SaslStep, 0x22)]
    {
        let composed = put(&head(verb), &[b"PLAIN"], Dialect::Binary).expect("an operation");
        assert_eq!((composed[1], &composed[24..]), (opcode, &b"PLAIN"[..]));
        for to in [Dialect::Text, Dialect::Meta] {
            assert_eq!(put(&head(verb), &[b"PLAIN"], to), Err(Untranslatable::Request));
        }
    }
}

#[test]
fn keys_reach_each_server_up_to_its_bound() {
    let long = vec![b'x'; KEY_LEN_MAX + 1];
    let odd = vec![b' '; 187];
    for (key, text, meta, binary) in [
        (&b""[..], false, false, false),
        (b"k", true, true, true),
        (b"\x01\x7f\xff", true, true, true),
        (b"a b", false, true, true),
        (b"a\nb", false, true, true),
        (b"a\rb", false, true, true),
        (b"a\0b", false, true, true),
        (&long[..KEY_LEN_MAX], true, true, true),
        // In base64, 186 bytes take 248, and one more takes 252.
        (&odd[..186], false, true, true),
        (&odd, false, false, true),
    ] {
        for (to, can) in [(Dialect::Text, text), (Dialect::Meta, meta), (Dialect::Binary, binary)] {
            for verb in [Verb::Get, Verb::Set] {
                let composed = put(&head(verb), &[key], to);
                let refused = composed.as_ref().err() == Some(&Untranslatable::Key);
                assert_eq!(
                    (composed.is_ok(), refused),
                    (can, !can),
                    "{} {to:?}",
                    key.escape_ascii()
                );
            }
        }
    }
    assert_eq!(put(&head(Verb::Get), &[&long], Dialect::Binary), Err(Untranslatable::Key));
    // Statistics and the end of several keys have none.
    assert!(put(&head(Verb::Stats), &[], Dialect::Binary).is_ok());
    assert!(put(&head(Verb::Get), &[], Dialect::Binary).is_ok());
}

#[test]
fn a_line_of_get_and_touch_is_as_long_as_a_server_takes() {
    let first = [b'a'; 250];
    for (len, fits) in
        [(250, true), (ParseLimits::LINE_LEN_MAX, true), (ParseLimits::LINE_LEN_MAX + 1, false)]
    {
        // "gat 0", seven keys of 250 bytes with their blanks, and a last one that fills the length.
        let count = if len == 250 { 0 } else { 7 };
        let last = vec![b'b'; len - 2 - "gat 0 ".len() - count * 251];
        let keys: Vec<&[u8]> = std::iter::repeat_n(&first[..], count).chain([&last[..]]).collect();
        let composed = put(&head(Verb::GetTouch), &keys, Dialect::Text);
        // Bytes that are in the output before the line do not count.
        let mut out = vec![b'x'; 100];
        let (verb, each) = (head(Verb::GetTouch), keys.iter().copied());
        let behind = compose_request(&mut out, Dialect::Text, &verb, each, b"");
        assert_eq!((behind.is_ok(), fits || out.len() == 100), (fits, true));
        match fits {
            true => assert_eq!(composed.map(|line| line.len()), Ok(len)),
            false => assert_eq!(composed, Err(Untranslatable::Line)),
        }
        // A plain get may be longer.
        assert!(put(&head(Verb::Get), &keys, Dialect::Text).is_ok());
    }
}

#[test]
fn times_beyond_a_protocol_are_its_last() {
    let touch =
        |expiry, to| put(&Head { expiry, ..head(Verb::Touch) }, &[b"k"], to).expect("a touch");
    for (expiry, text, binary) in [
        (0, "touch k 0\r\n", 0),
        (1, "touch k 1\r\n", 1),
        (-1, "touch k -1\r\n", 2_592_001),
        (1 << 31, "touch k 2147483647\r\n", 1 << 31),
        (i64::MAX, "touch k 2147483647\r\n", u32::MAX),
        (i64::MIN, "touch k -2147483648\r\n", 2_592_001),
    ] {
        assert_eq!(touch(expiry, Dialect::Text), text.as_bytes());
        assert_eq!(touch(expiry, Dialect::Binary)[24..28], u32::to_be_bytes(binary));
    }
    for (expiry, text, extras) in
        [(-1, "flush_all\r\n", 0), (0, "flush_all\r\n", 0), (1, "flush_all 1\r\n", 4)]
    {
        let head = Head { expiry, ..head(Verb::FlushAll) };
        assert_eq!(put(&head, &[], Dialect::Text), Ok(text.into()));
        assert_eq!(put(&head, &[], Dialect::Binary).expect("a flush").len(), 24 + extras);
    }
    // The last possible time would mean that nothing is created.
    for (vivify, is_said) in [(i64::from(u32::MAX) - 1, true), (i64::from(u32::MAX), false)] {
        let head = Head { vivify: Some(vivify), ..head(Verb::Incr) };
        assert_eq!(put(&head, &[b"k"], Dialect::Binary).is_ok(), is_said);
    }
}
