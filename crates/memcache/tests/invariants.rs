//! Laws of parsing and writing that hold for any request and any split of its bytes.

mod support;

use keyway_memcache::{
    Answer, Asker, Dialect, ErrorKind, Expect, Framer, Framing, Head, Outcome, Parsed, ReplyFault,
    ReplyLimits, ReplyParsed, Request, RequestFlags, Untranslatable, Verb, Wire, compose_request,
    parse_reply, parse_request, translate_reply, write_reply,
};
use proptest::collection::vec;
use proptest::prelude::*;
use support::{Model, limits, packet};

const REPLIES: ReplyLimits = ReplyLimits { reply_len_max: 1 << 20 };

fn wire(dialect: Dialect) -> Wire {
    if dialect == Dialect::Binary { Wire::Binary } else { Wire::Text }
}

fn parse(bytes: &[u8], wire: Wire) -> Request {
    let mut request = Request::default();
    let parsed = parse_request(bytes, wire, &limits(), &mut request);
    let what = bytes.escape_ascii();
    assert_eq!(parsed, Parsed::Ready { consumed: bytes.len() }, "{what}: {request:?}");
    request
}

/// What a request means, wherever its bytes are: its head, keys and value.
type Meaning = (Head, Vec<Vec<u8>>, Vec<u8>);

fn meaning(request: &Request, buf: &[u8]) -> Meaning {
    let keys = request.keys(buf).map(<[u8]>::to_vec).collect();
    (request.head, keys, request.value.of(buf).to_vec())
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(33u8..127, 1..20)
}

/// Words of commands, right and wrong.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "cas",
        "append",
        "delete",
        "incr",
        "decr",
        "touch",
        "mg",
        "ms",
        "md",
        "ma",
        "mn",
        "me",
        "flush_all",
        "stats",
        "version",
        "verbosity",
        "noreply",
        "0",
        "1",
        "3",
        "-1",
        "k",
        "v",
        "q",
        "b",
        "a2V5",
        "T30",
        "N9",
        "C5",
        "ME",
        "Oabc",
        "F7",
        "\r\n",
        "\r\n",
        "\r\n",
        "\n",
        "abc\r\n",
        "x\r\n",
        "\r",
        "\0",
    ];
    prop_oneof![
        20 => proptest::sample::select(known.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..5),
    ]
}

fn text_stream() -> impl Strategy<Value = Vec<u8>> {
    vec((word(), any::<bool>()), 1..40).prop_map(|words| {
        let mut stream = Vec::new();
        for (word, blank) in words {
            if blank || !word.ends_with(b"\n") {
                stream.push(b' ');
            }
            stream.extend_from_slice(&word);
        }
        stream
    })
}

fn binary_stream() -> impl Strategy<Value = Vec<u8>> {
    let one = (0u8..0x26, vec(any::<u8>(), 0..21), vec(any::<u8>(), 0..6), vec(any::<u8>(), 0..20))
        .prop_map(|(opcode, extras, key, value)| {
            let fitting = match opcode {
                0x01..=0x03 | 0x11..=0x13 => 8,
                0x05 | 0x06 | 0x15 | 0x16 => 20,
                0x1c..=0x1e | 0x23 | 0x24 => 4,
                _ => 0,
            };
            let extras = if extras.len() == 3 { extras } else { vec![1; fitting] };
            let takes = matches!(opcode, 0x01..=0x03 | 0x0e | 0x0f | 0x11..=0x13 | 0x19 | 0x1a);
            packet(opcode, &extras, &key, if takes { &value } else { &[] })
        });
    vec(one, 1..6).prop_map(|packets| packets.concat())
}

/// Heads that a dialect can express completely, so that they survive a round trip.
fn any_head(dialect: Dialect) -> impl Strategy<Value = Head> {
    use Verb::*;
    let verbs = vec![Get, GetTouch, Set, Add, Replace, Append, Prepend, Cas, Delete, Incr, Decr];
    (proptest::sample::select(verbs), any::<u32>(), 0i64..i64::from(i32::MAX), 1u64.., any::<u64>())
        .prop_map(move |(verb, flags, expiry, cas, delta)| {
            let mut head = Head { verb, dialect, ..Head::default() };
            let set = matches!(verb, Set | Add | Replace | Cas);
            let classic = dialect == Dialect::Text;
            if set || (classic && verb.stores()) {
                (head.flags, head.expiry) = (flags, expiry);
            }
            if verb == Cas {
                head.cas = Some(cas);
            }
            if matches!(verb, Incr | Decr) {
                head.delta = delta;
            }
            if verb == GetTouch {
                head.expiry = expiry;
                head.asked |= RequestFlags::EXPIRY;
            }
            if verb.reads() {
                head.asked |= RequestFlags::VALUE | RequestFlags::FLAGS;
            }
            head
        })
}

proptest! {
    #[test]
    fn any_split_of_a_text_stream_is_served_the_same(stream in text_stream(), piece in 1usize..40) {
        let whole = Model::new("1").serve(&stream, stream.len());
        prop_assert_eq!(Model::new("1").serve(&stream, piece), whole);
    }

    #[test]
    fn any_split_of_a_binary_stream_is_served_the_same(
        stream in binary_stream(),
        piece in 1usize..40,
    ) {
        let whole = Model::new("1").serve(&stream, stream.len());
        prop_assert_eq!(Model::new("1").serve(&stream, piece), whole);
    }

    #[test]
    fn no_bytes_panic(stream in vec(any::<u8>(), 0..200), piece in 1usize..40) {
        let whole = Model::new("1").serve(&stream, stream.len().max(1));
        prop_assert_eq!(Model::new("1").serve(&stream, piece), whole);
        let replies = [&b"\x81"[..], &stream].concat();
        for buf in [&stream[..], &replies] {
            for wire in [Wire::Text, Wire::Binary] {
                let _ = Framer::new(wire, Expect::List).frame(buf, &REPLIES);
            }
        }
    }

    #[test]
    fn a_request_composed_in_its_own_protocol_means_the_same(
        dialect in proptest::sample::select(vec![Dialect::Text, Dialect::Meta, Dialect::Binary]),
        seed in any_head(Dialect::Text),
        meta in any_head(Dialect::Meta),
        binary in any_head(Dialect::Binary),
        key in key(),
        value in vec(any::<u8>(), 0..50),
    ) {
        let head = match dialect {
            Dialect::Text => seed,
            Dialect::Meta => meta,
            Dialect::Binary => binary,
        };
        let value = if head.verb.stores() { value } else { Vec::new() };
        let mut first = Vec::new();
        compose_request(&mut first, dialect, &head, [&key[..]].into_iter(), &value).unwrap();
        let request = parse(&first, wire(dialect));
        prop_assert_eq!(request.head.verb, head.verb);
        prop_assert_eq!(request.key(&first, 0), &key[..]);
        prop_assert_eq!(request.value.of(&first), &value[..]);
        prop_assert_eq!(request.head.flags, head.flags);
        prop_assert_eq!(request.head.expiry, head.expiry);
        prop_assert_eq!(request.head.cas, head.cas);
        prop_assert_eq!(request.head.delta, head.delta);
        // From here on, writing and parsing is the identity.
        let mut second = Vec::new();
        compose_request(&mut second, dialect, &request.head, request.keys(&first), &value).unwrap();
        let again = parse(&second, wire(dialect));
        prop_assert_eq!(meaning(&again, &second), meaning(&request, &first));
    }

    #[test]
    fn a_request_keeps_its_meaning_through_other_protocols(
        head in any_head(Dialect::Text),
        key in key(),
        value in vec(any::<u8>(), 0..50),
    ) {
        let value = if head.verb.stores() { value } else { Vec::new() };
        let mut text = Vec::new();
        compose_request(&mut text, Dialect::Text, &head, [&key[..]].into_iter(), &value).unwrap();
        for through in [Dialect::Meta, Dialect::Binary] {
            let mut bytes = Vec::new();
            compose_request(&mut bytes, through, &head, [&key[..]].into_iter(), &value).unwrap();
            let request = parse(&bytes, wire(through));
            prop_assert_eq!(request.head.verb, head.verb);
            if matches!(head.verb, Verb::Append | Verb::Prepend) {
                continue;
            }
            let back = Head {
                dialect: Dialect::Text,
                asked: head.asked,
                vivify: None,
                ..request.head
            };
            let mut again = Vec::new();
            let keys = request.keys(&bytes);
            compose_request(&mut again, Dialect::Text, &back, keys, &value).unwrap();
            prop_assert_eq!(again.escape_ascii().to_string(), text.escape_ascii().to_string());
        }
    }

    #[test]
    fn a_reply_cut_anywhere_ends_where_it_would_whole(which in 0..REPLY_COUNT, at in 0.0..1.0f64) {
        let (wire, expect, bytes) = replies().swap_remove(which);
        let cut = (bytes.len() as f64 * at) as usize;
        let mut framer = Framer::new(wire, expect);
        match framer.frame(&bytes[..cut], &REPLIES) {
            Ok(Framing::NeedMore { at_least }) => {
                prop_assert!(at_least > cut && at_least <= bytes.len(), "{at_least} at {cut}");
            }
            other => prop_assert!(false, "{other:?} at {cut} of {}", bytes.escape_ascii()),
        }
        let followed = [&bytes[..], b"\x81VALUE"].concat();
        let ready = Ok(Framing::Ready { len: bytes.len() });
        prop_assert_eq!(framer.frame(&followed, &REPLIES), ready);
    }
}

const REPLY_COUNT: usize = 17;

fn replies() -> Vec<(Wire, Expect, Vec<u8>)> {
    let text = |expect, bytes: &[u8]| (Wire::Text, expect, bytes.to_vec());
    let answer = |opcode, status: u8, extras: &[u8], key: &[u8], value: &[u8]| {
        let mut bytes = packet(opcode, extras, key, value);
        (bytes[0], bytes[7]) = (0x81, status);
        bytes
    };
    let stat = answer(0x10, 0, &[], b"pid", b"1");
    let noop = answer(0x0a, 0, &[], &[], &[]);
    let value = answer(0x0d, 0, &[0; 4], b"k", b"value");
    vec![
        text(Expect::One, b"STORED\r\n"),
        text(Expect::One, b"SERVER_ERROR out of memory storing object\r\n"),
        text(Expect::One, b"18446744073709551615\r\n"),
        text(Expect::List, b"END\r\n"),
        text(Expect::List, b"VALUE a 0 5\r\nEND\r\n\r\nVALUE b 7 0 12\r\n\r\nEND\r\n"),
        text(Expect::List, b"VALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory\r\n"),
        text(Expect::List, b"STAT pid 1\r\nSTAT version 1.6.38\r\nEND\r\n"),
        text(Expect::List, b"RESET\r\n"),
        text(Expect::One, b"VA 4 s4 t-1 kab\r\na\r\nb\r\n"),
        text(Expect::One, b"HD c12 O5\r\n"),
        text(Expect::One, b"ME k exp=-1 la=3 cas=2 fetch=no cls=1 size=63\r\n"),
        text(Expect::UntilNoop, b"VA 1 kb\r\nx\r\nEN\r\nMN\r\n"),
        (Wire::Binary, Expect::One, answer(0, 0, &[0; 4], &[], b"value")),
        (Wire::Binary, Expect::One, answer(1, 2, &[], &[], b"Data exists for key.")),
        (Wire::Binary, Expect::List, [stat, answer(0x10, 0, &[], &[], &[])].concat()),
        (Wire::Binary, Expect::UntilNoop, [value, noop.clone()].concat()),
        (Wire::Binary, Expect::UntilNoop, noop),
    ]
}

#[test]
fn replies_are_as_many_as_are_tried() {
    assert_eq!(replies().len(), REPLY_COUNT);
}

/// Returns the first element that `wire` reads of the reply to `asker`.
fn through(asker: &Asker<'_>, outcome: &Outcome<'_>) -> String {
    let mut out = Vec::new();
    write_reply(&mut out, asker, outcome);
    let Ok(ReplyParsed::Ready { len, reply }) =
        parse_reply(&out, wire(asker.head.dialect), &REPLIES)
    else {
        panic!("{outcome:?}: {}", out.escape_ascii());
    };
    assert_eq!(len, out.len());
    format!("{:?}", reply.outcome)
}

#[test]
fn an_outcome_told_in_any_protocol_is_read_as_itself() {
    let number = Outcome::Number { value: 7, cas: Some(3) };
    let error = |kind, text| Outcome::Error { kind, text };
    let cases: Vec<(Verb, u8, Outcome<'_>)> = vec![
        (Verb::Set, 1, Outcome::NotFound),
        (Verb::Add, 2, Outcome::NotStored),
        (Verb::Replace, 3, Outcome::NotStored),
        (Verb::Append, 0x0e, Outcome::NotStored),
        (Verb::Cas, 1, Outcome::Exists),
        (Verb::Cas, 1, Outcome::NotFound),
        (Verb::Delete, 4, Outcome::NotFound),
        (Verb::Noop, 0x0a, Outcome::Noop),
        (Verb::Version, 0x0b, Outcome::Text(b"1.6")),
        (Verb::Stats, 0x10, Outcome::Stat { name: b"pid", value: b"1" }),
        (Verb::Set, 1, error(ErrorKind::Server, b"no server is up")),
    ];
    for (verb, opcode, outcome) in cases {
        for dialect in [Dialect::Text, Dialect::Binary] {
            let head = Head { verb, dialect, opcode, ..Head::default() };
            let asker = Asker { head: &head, key: b"k", meta: b"" };
            assert_eq!(through(&asker, &outcome), format!("{outcome:?}"), "{verb:?} {dialect:?}");
        }
    }
    let head = Head { verb: Verb::Incr, dialect: Dialect::Binary, opcode: 5, ..Head::default() };
    let told = through(&Asker { head: &head, key: b"k", meta: b"" }, &number);
    assert!(told.contains("value: 7"), "{told}");
}

#[test]
fn kinds_of_errors_survive_every_protocol() {
    use ErrorKind::*;
    for kind in [Unknown, Client, NotNumber, Server, TooLarge, OutOfMemory] {
        for dialect in [Dialect::Text, Dialect::Meta, Dialect::Binary] {
            let head = Head { verb: Verb::Incr, dialect, opcode: 5, ..Head::default() };
            let asker = Asker { head: &head, key: b"k", meta: b"" };
            let told = through(&asker, &Outcome::Error { kind, text: b"" });
            assert!(told.contains(&format!("{kind:?}")), "{kind:?} in {dialect:?}: {told}");
        }
    }
}

#[test]
fn a_line_end_in_an_error_breaks_no_framing() {
    let head = Head::default();
    let asker = Asker { head: &head, key: b"k", meta: b"" };
    let mut out = Vec::new();
    let outcome = Outcome::Error { kind: ErrorKind::Server, text: b"a\r\nEND\r\n" };
    write_reply(&mut out, &asker, &outcome);
    assert_eq!(out, b"SERVER_ERROR a  END  \r\n");
}

/// Returns the client's reply to `asks` when a server answers `answers` to the form of the request
/// in `to`.
fn across(asks: &[u8], to: Dialect, sent: &[u8], answers: &[u8]) -> Vec<u8> {
    let mut request = Request::default();
    parse_request(asks, Wire::of(asks[0]), &limits(), &mut request);
    let mut out = Vec::new();
    let value = request.value.of(asks);
    let expect = compose_request(&mut out, to, &request.head, request.keys(asks), value).unwrap();
    assert_eq!(out.escape_ascii().to_string(), sent.escape_ascii().to_string());
    let framed = Framer::new(wire(to), expect).frame(answers, &REPLIES);
    assert_eq!(framed, Ok(Framing::Ready { len: answers.len() }));
    let mut told = Vec::new();
    let key = if request.keys.is_empty() { &[] } else { request.key(asks, 0) };
    let asker = Asker { head: &request.head, key, meta: request.meta.of(asks) };
    translate_reply(&mut told, &asker, &Answer { bytes: answers, wire: wire(to), expect }).unwrap();
    told
}

fn answer(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = packet(opcode, extras, key, value);
    bytes[12..16].fill(0);
    bytes[0] = 0x81;
    bytes
}

#[test]
fn many_keys_reach_any_server() {
    let asks = b"get a b\r\n";
    let told = b"VALUE b 7 2\r\nxy\r\nEND\r\n";
    assert_eq!(across(asks, Dialect::Text, asks, told), told);
    let sent = b"mg a v f k q\r\nmg b v f k q\r\nmn\r\n";
    assert_eq!(across(asks, Dialect::Meta, sent, b"VA 2 f7 kb\r\nxy\r\nMN\r\n"), told);
    let zero = |mut bytes: Vec<u8>| {
        bytes[12..16].fill(0);
        bytes
    };
    let sent = [
        zero(packet(0x0d, &[], b"a", &[])),
        zero(packet(0x0d, &[], b"b", &[])),
        zero(packet(0x0a, &[], &[], &[])),
    ];
    let answers = [answer(0x0d, &[0, 0, 0, 7], b"b", b"xy"), answer(0x0a, &[], &[], &[])].concat();
    assert_eq!(across(asks, Dialect::Binary, &sent.concat(), &answers), told);
}

#[test]
fn a_binary_client_reaches_text_and_meta_servers() {
    let get = packet(0, &[], b"k", &[]);
    let mut told = packet(0, &[0, 0, 0, 7], &[], b"xy");
    (told[0], told[23]) = (0x81, 9);
    let said = b"VALUE k 7 2 9\r\nxy\r\nEND\r\n";
    assert_eq!(across(&get, Dialect::Text, b"gets k\r\n", said), told);
    assert_eq!(across(&get, Dialect::Meta, b"mg k v f c\r\n", b"VA 2 f7 c9\r\nxy\r\n"), told);
    let odd = packet(0, &[], b"a b\r\n", &[]);
    assert_eq!(across(&odd, Dialect::Meta, b"mg YSBiDQo= b v f c\r\n", b"EN\r\n")[7], 1);
    let set = packet(1, &[0, 0, 0, 7, 0, 0, 0, 9], b"k", b"xy");
    let told = across(&set, Dialect::Meta, b"ms k 2 F7 T9 c\r\nxy\r\n", b"HD c5\r\n");
    assert_eq!((told[7], told[23]), (0, 5));
    let mut extras = [0; 20];
    (extras[7], extras[15]) = (3, 5);
    let incr = packet(5, &extras, b"n", &[]);
    let told = across(&incr, Dialect::Meta, b"ma n v D3 J5 N0 c\r\n", b"VA 1 c8\r\n5\r\n");
    assert_eq!((told[23], &told[24..]), (8, &5u64.to_be_bytes()[..]));
}

#[test]
fn a_meta_client_gets_its_flags_in_its_order() {
    let asks = b"mg k s v O12 k c f\r\n";
    let said = b"VALUE k 7 2 9\r\nxy\r\nEND\r\n";
    let told = b"VA 2 s2 O12 kk c9 f7\r\nxy\r\n";
    assert_eq!(across(asks, Dialect::Text, b"gets k\r\n", said), told);
    let said = b"VA 2 f7 c9 s2 W\r\nxy\r\n";
    let told = b"VA 2 s2 O12 kk c9 f7 W\r\nxy\r\n";
    assert_eq!(across(asks, Dialect::Meta, b"mg k v f c s\r\n", said), told);
    let asks = b"ms a2V5 2 b k q\r\nab\r\n";
    let nothing: &[u8] = b"";
    assert_eq!(across(asks, Dialect::Text, b"set key 0 0 2\r\nab\r\n", b"STORED\r\n"), nothing);
    let told = b"NS ka2V5 b\r\n";
    assert_eq!(across(asks, Dialect::Text, b"set key 0 0 2\r\nab\r\n", b"NOT_STORED\r\n"), told);
}

fn untranslatable(asks: &[u8], to: Dialect) -> Untranslatable {
    let mut request = Request::default();
    parse_request(asks, Wire::of(asks[0]), &limits(), &mut request);
    let mut out = b"before".to_vec();
    let value = request.value.of(asks);
    let outcome = compose_request(&mut out, to, &request.head, request.keys(asks), value);
    assert_eq!(out, b"before");
    outcome.unwrap_err()
}

#[test]
fn what_a_protocol_cannot_say_is_refused_and_not_bent() {
    let text = |asks: &[u8]| untranslatable(asks, Dialect::Text);
    for asks in [
        "mg k t\r\n",
        "mg k N30 v\r\n",
        "mg k R30 v\r\n",
        "md k I\r\n",
        "md k C5\r\n",
        "ms k 1 c\r\na\r\n",
        "ma k N0\r\n",
        "ms k 1 MA C5\r\na\r\n",
    ] {
        assert_eq!(text(asks.as_bytes()), Untranslatable::Request, "{asks}");
    }
    for key in [&b"a b"[..], b"a\r\nflush_all", b"\0"] {
        assert_eq!(text(&packet(0, &[], key, &[])), Untranslatable::Key);
    }
    let long = packet(0, &[], &[0; 200], &[]);
    assert_eq!(untranslatable(&long, Dialect::Meta), Untranslatable::Key);
    assert_eq!(untranslatable(b"verbosity 1\r\n", Dialect::Binary), Untranslatable::Request);
    let many = format!("gat 0 {}\r\n", "abc ".repeat(600));
    assert_eq!(text(many.as_bytes()), Untranslatable::Line);
}

#[test]
fn what_is_no_reply_is_refused() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\n"[..],
        b"\r\n",
        b"STORED\n",
        b"VALUE k x 1\r\n",
        b"VALUE k 0 1\r\nab\r\n",
        b"VA x\r\n",
        b"VA 1 cx\r\na\r\n",
        b"\x80",
    ] {
        let framed = Framer::new(Wire::Text, Expect::List).frame(bytes, &REPLIES);
        if bytes != b"\x80" {
            assert_eq!(framed, Err(ReplyFault::Protocol), "{}", bytes.escape_ascii());
        }
        let framed = Framer::new(Wire::Binary, Expect::One).frame(bytes, &REPLIES);
        assert_eq!(framed, Err(ReplyFault::Protocol), "{}", bytes.escape_ascii());
    }
}

#[test]
fn bounds_are_met_before_bytes_are_waited_for() {
    let frame = |bytes: &[u8]| {
        let wire = if bytes[0] == 0x81 { Wire::Binary } else { Wire::Text };
        Framer::new(wire, Expect::List).frame(bytes, &REPLIES)
    };
    assert_eq!(frame(b"VALUE k 0 1048577\r\n"), Err(ReplyFault::TooLong));
    assert_eq!(frame(b"VA 18446744073709551615\r\n"), Err(ReplyFault::TooLong));
    assert_eq!(frame(&[b'x'; 9000]), Err(ReplyFault::Protocol));
    let mut huge = answer(0, &[0; 4], &[], &[]);
    huge[8] = 0xff;
    assert_eq!(frame(&huge), Err(ReplyFault::TooLong));
    let many = "VALUE k 0 1\r\na\r\n".repeat(1 << 17);
    assert_eq!(frame(many.as_bytes()), Err(ReplyFault::TooLong));
}

#[test]
fn lines_longer_than_the_bound_end_the_connection() {
    for (stream, closed) in [
        (vec![b'x'; 2048], true),
        (vec![b'x'; 2047], false),
        ([&[b'x'; 3000][..], b"\r\n"].concat(), true),
        ([b"get ", &b"a ".repeat(3000)[..], b"\r\n"].concat(), false),
        ([b"gets ", &b"a ".repeat(3000)[..]].concat(), false),
        ([b"get ", &b"a ".repeat(1 << 19)[..]].concat(), true),
    ] {
        for piece in [1000, stream.len()] {
            let said = Model::new("1").serve(&stream, piece);
            assert_eq!(said.closed, closed, "{} bytes", stream.len());
            assert_eq!(said.bytes.starts_with(b"CLIENT_ERROR line too long\r\n"), closed);
        }
    }
}

#[test]
fn a_request_says_the_same_in_whichever_protocol_it_comes() {
    let extras = [0, 0, 0, 7, 0, 0, 0, 9];
    let mut cas = packet(1, &extras, b"key", b"ab");
    cas[23] = 5;
    for bytes in [
        b"cas key 7 9 2 5\r\nab\r\n".to_vec(),
        b"ms key 2 F7 T9 C5\r\nab\r\n".to_vec(),
        b"ms a2V5 2 b C5 F7 T9 MR\r\nab\r\n".to_vec(),
        cas,
    ] {
        let request = parse(&bytes, Wire::of(bytes[0]));
        let Head { verb, flags, expiry, cas, quiet, .. } = request.head;
        assert_eq!((verb, flags, expiry, cas, quiet), (Verb::Cas, 7, 9, Some(5), false));
        assert_eq!((request.key(&bytes, 0), request.value.of(&bytes)), (&b"key"[..], &b"ab"[..]));
    }
    for bytes in [
        b"gat 9 a b\r\n".to_vec(),
        b"mg a v f T9\r\n".to_vec(),
        packet(0x1d, &extras[4..], b"a", &[]),
    ] {
        let request = parse(&bytes, Wire::of(bytes[0]));
        assert_eq!((request.head.verb, request.head.expiry), (Verb::GetTouch, 9));
        assert!(
            request
                .head
                .asked
                .has(RequestFlags::VALUE | RequestFlags::FLAGS | RequestFlags::EXPIRY)
        );
        assert_eq!(request.key(&bytes, 0), b"a");
    }
    let mut step = [0; 20];
    (step[7], step[15], step[19]) = (3, 5, 9);
    for bytes in [b"ma n MD D3 J5 N9 q\r\n".to_vec(), packet(0x16, &step, b"n", &[])] {
        let Head { verb, delta, initial, vivify, quiet, .. } =
            parse(&bytes, Wire::of(bytes[0])).head;
        assert_eq!((verb, delta, initial, vivify, quiet), (Verb::Decr, 3, 5, Some(9), true));
    }
}

#[test]
fn who_a_client_is_comes_as_key_and_value() {
    let bytes = packet(0x21, &[], b"PLAIN", b"\0me\0secret");
    let request = parse(&bytes, Wire::Binary);
    assert_eq!((request.head.verb, request.key(&bytes, 0)), (Verb::SaslStart, &b"PLAIN"[..]));
    let plain = keyway_memcache::sasl_plain(request.value.of(&bytes)).unwrap();
    assert_eq!((plain.user, plain.password), (&b"me"[..], &b"secret"[..]));
    let head = request.head;
    let asker = Asker { head: &head, key: b"", meta: b"" };
    assert!(through(&asker, &Outcome::Continue(b"more")).starts_with("Continue"));
    let refused = Outcome::Error { kind: ErrorKind::Auth, text: b"" };
    assert!(through(&asker, &refused).contains("Auth"));
}
