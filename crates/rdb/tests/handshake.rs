//! Tests PSYNC's handshake from both sides, and with answers that no server gives.

use keyway_rdb::Version;
use keyway_rdb::replication::{
    Answer, Body, Decision, FullReason, HandshakeEvent, HandshakeFault, HandshakeStage,
    HandshakeStep, HandshakeWrong, History, MARK_LEN, ReplconfFault, ReplicaHandshake,
    ReplicaProfile, ReplicaSettings, ReplicationId, Request, RequestWrong, Resume, Transfer,
    write_continue, write_full_resync, write_length, write_mark,
};
use keyway_testkit::{encode, encode_words};
use proptest::prelude::*;

fn id(byte: u8) -> ReplicationId {
    ReplicationId::of_random([byte; 20])
}

fn resume(offset: u64) -> ReplicaSettings {
    ReplicaSettings { resume: Some(Resume { id: id(1), offset }), ..ReplicaSettings::default() }
}

/// Returns what a handshake sends, and its result for answers that arrive in pieces of `size`.
fn run(
    settings: ReplicaSettings,
    answers: &[u8],
    size: usize,
) -> (Vec<u8>, Result<Vec<HandshakeEvent>, HandshakeFault>) {
    let mut handshake = ReplicaHandshake::new(settings);
    let (mut sent, mut kept, mut events) = (Vec::new(), Vec::new(), Vec::new());
    handshake.take_output(&mut sent);
    for piece in answers.chunks(size) {
        kept.extend_from_slice(piece);
        loop {
            let step = match handshake.read(&kept) {
                Ok(step) => step,
                Err(fault) => return (sent, Err(fault)),
            };
            handshake.take_output(&mut sent);
            match step {
                HandshakeStep::Event { consumed, event } => {
                    kept.drain(..consumed);
                    events.push(event);
                }
                HandshakeStep::More { consumed } => {
                    kept.drain(..consumed);
                    break;
                }
            }
        }
    }
    (sent, Ok(events))
}

fn fault(settings: ReplicaSettings, answers: &str) -> (HandshakeStage, HandshakeWrong, u64) {
    let fault = run(settings, answers.as_bytes(), 7).1.expect_err("a fault");
    (fault.stage(), fault.wrong().clone(), fault.offset())
}

const CAPABLE: &str = "REPLCONF capa eof capa psync2";

#[test]
fn a_replica_tells_of_itself_and_asks_for_a_snapshot() {
    let text = |text: &str| Some(text.to_owned());
    let settings = ReplicaSettings {
        username: text("me"),
        password: text("secret"),
        listening_port: Some(6380),
        address: text("10.0.0.9"),
        version: text("9.0.0"),
        resume: None,
        hands_over: false,
        knows_flags: true,
        node: Some(id(3)),
    };
    let mark = "0123456789abcdef0123456789abcdef01234567";
    // An old server does not know addresses and versions.
    let answers = format!(
        "+PONG\r\n+OK\r\n+OK\r\n-ERR Unrecognized REPLCONF option: ip-address\r\n-ERR no\r\n+OK\r\n\
         \n+FULLRESYNC {} 1234\r\n\n\n$EOF:{mark}\r\n",
        id(1)
    );
    let expected: Vec<u8> = [
        "PING",
        "AUTH me secret",
        "REPLCONF listening-port 6380",
        "REPLCONF ip-address 10.0.0.9",
        "REPLCONF version 9.0.0",
        &format!("{CAPABLE} capa keyway-flags capa keyway-node-{}", id(3)),
        "PSYNC ? -1",
    ]
    .iter()
    .flat_map(|line| encode_words(line))
    .collect();
    let body = Body::Mark(*mark.as_bytes().first_chunk::<MARK_LEN>().expect("40 bytes"));
    for size in 1..answers.len() {
        let (sent, events) = run(settings.clone(), answers.as_bytes(), size);
        assert_eq!(sent, expected);
        let mut events = events.expect("a handshake");
        events.retain(|event| *event != HandshakeEvent::Alive);
        assert_eq!(
            events,
            [
                HandshakeEvent::Full { id: id(1), offset: 1234 },
                HandshakeEvent::Snapshot(Transfer::new(body)),
            ]
        );
    }
}

#[test]
fn a_replica_goes_on_where_it_was() {
    let line = [&b"+PONG\r\n+OK\r\n+CONTINUE"[..], b"\r\n*1\r\n$4\r\nPING\r\n"].concat();
    let (sent, events) = run(resume(99), &line, 1);
    let expected = HandshakeEvent::Continue { id: None, offset: 99 };
    assert_eq!(events, Ok(vec![expected.clone()]), "commands are left alone");
    let psync = encode(&["PSYNC", &id(1).to_string(), "100"]);
    assert!(sent.ends_with(&psync));
    for (other, told) in [(1, None), (2, Some(id(2)))] {
        let line = format!("+PONG\r\n+OK\r\n+CONTINUE {}\r\n", id(other));
        let expected = HandshakeEvent::Continue { id: told, offset: 99 };
        assert_eq!(run(resume(99), line.as_bytes(), 5).1, Ok(vec![expected]));
    }
    // A server may send a snapshot all the same, of known length.
    let line = format!("+PONG\r\n+OK\r\n+FULLRESYNC {} 0\r\n$77\r\nREDIS", id(2));
    let expected = vec![
        HandshakeEvent::Full { id: id(2), offset: 0 },
        HandshakeEvent::Snapshot(Transfer::new(Body::Length(77))),
    ];
    assert_eq!(run(resume(99), line.as_bytes(), 5).1, Ok(expected));
}

#[test]
fn a_refusal_says_at_which_step_and_whether_to_try_again() {
    let refused = |text: &str| HandshakeWrong::Refused(text.to_owned());
    let not_now = |text: &str| HandshakeWrong::NotNow(text.to_owned());
    let with_password =
        || ReplicaSettings { password: Some("x".to_owned()), ..ReplicaSettings::default() };
    let plain = ReplicaSettings::default;
    let (ping, auth) = (HandshakeStage::Ping, HandshakeStage::Auth);
    let (configure, psync) = (HandshakeStage::Configure, HandshakeStage::Psync);
    let unexpected = HandshakeWrong::Unexpected;
    for (settings, answers, expected) in [
        (plain(), "-NOAUTH who?\r\n", (ping, refused("NOAUTH who?"), 0)),
        (plain(), "-DENIED no\r\n", (ping, refused("DENIED no"), 0)),
        (plain(), "-LOADING data\r\n", (ping, not_now("LOADING data"), 0)),
        (plain(), "-MASTERDOWN no link\r\n", (ping, not_now("MASTERDOWN no link"), 0)),
        (plain(), "-BUSY a script\r\n", (ping, not_now("BUSY a script"), 0)),
        (with_password(), "-NOAUTH who?\r\n-WRONGPASS no\r\n", (auth, refused("WRONGPASS no"), 14)),
        (with_password(), "+PONG\r\n:1\r\n", (auth, unexpected.clone(), 7)),
        (plain(), "+PONG\r\n-NOPERM no\r\n", (configure, refused("NOPERM no"), 7)),
        (plain(), "+PONG\r\n+WHAT\r\n", (configure, unexpected.clone(), 7)),
        (plain(), "+PONG\r\n+OK\r\n-LOADING data\r\n", (psync, not_now("LOADING data"), 12)),
        (plain(), "+PONG\r\n+OK\r\n-NOMASTERLINK x\r\n", (psync, not_now("NOMASTERLINK x"), 12)),
        (plain(), "+PONG\r\n+OK\r\n-ERR unknown\x1b\r\n", (psync, refused("ERR unknown\\x1b"), 12)),
        // The replica has not asked to continue.
        (plain(), "+PONG\r\n+OK\r\n+CONTINUE\r\n", (psync, unexpected.clone(), 12)),
        (resume(5), "+PONG\r\n+OK\r\n+CONTINUE abc\r\n", (psync, unexpected.clone(), 12)),
        (plain(), "+PONG\r\n+OK\r\n+FULLRESYNC abc 1\r\n", (psync, unexpected.clone(), 12)),
        (plain(), "+PONG\r\n+OK\r\n+DUALCHANNELSYNC\r\n", (psync, unexpected.clone(), 12)),
    ] {
        assert_eq!(fault(settings, answers), expected, "{answers:?}");
    }
    for (preamble, wrong) in [
        ("-ERR no fork\r\n", refused("ERR no fork")),
        ("$-1\r\n", unexpected.clone()),
        ("$EOF:short\r\n", unexpected.clone()),
        ("REDIS0010", HandshakeWrong::TooLong),
    ] {
        let mut answers = format!("+PONG\r\n+OK\r\n+FULLRESYNC {} 5\r\n{preamble}", id(1));
        if wrong == HandshakeWrong::TooLong {
            answers.push_str(&"x".repeat(5000));
        }
        let offset = 12 + 56;
        assert_eq!(fault(plain(), &answers), (HandshakeStage::Snapshot, wrong, offset));
    }
    let (_, wrong) = run(plain(), b"+PONG\r\n+OK\r\n-LOADING data\r\n", 1);
    let expected = "replication handshake, byte 12: the primary cannot serve replicas now, \
        try again later: LOADING data";
    assert_eq!(wrong.expect_err("a fault").to_string(), expected);
}

#[test]
fn a_primary_learns_what_a_replica_tells() {
    let mut profile = ReplicaProfile::default();
    let mut tell = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        profile.replconf(&words)
    };
    for (line, answer) in [
        ("listening-port 6380", Ok(Answer::Ok)),
        ("IP-ADDRESS 10.0.0.9", Ok(Answer::Ok)),
        ("capa eof capa psync2 capa other", Ok(Answer::Ok)),
        ("version 9.0.1", Ok(Answer::Ok)),
        ("rdb-only 1", Ok(Answer::Ok)),
        ("rdb-filter-only functions", Ok(Answer::Ok)),
        ("ack 50", Ok(Answer::Acknowledged)),
        ("ack 70 fack 60", Ok(Answer::Acknowledged)),
        ("ack 30", Ok(Answer::Acknowledged)),
        ("ack -5", Ok(Answer::Acknowledged)),
        ("ack x", Ok(Answer::Acknowledged)),
        ("getack *", Ok(Answer::GetAck)),
        ("listening-port", Err(ReplconfFault::Syntax)),
        ("listening-port 99999", Err(ReplconfFault::Value)),
        ("version 9", Err(ReplconfFault::Value)),
        ("version 9.0.1.2", Err(ReplconfFault::Value)),
        ("rdb-only 2", Err(ReplconfFault::Value)),
        ("rdb-filter-only keys", Err(ReplconfFault::Value)),
        ("rdb-channel 1", Err(ReplconfFault::Unknown)),
    ] {
        assert_eq!(tell(line), answer, "{line}");
    }
    assert_eq!(profile.replconf(&[b"ip-address", &[b'1'; 256]]), Err(ReplconfFault::Value));
    assert_eq!(profile.listening_port(), Some(6380));
    assert_eq!(profile.address(), Some(&b"10.0.0.9"[..]));
    assert!(profile.takes_mark() && profile.takes_new_id());
    assert!(profile.snapshot_only() && profile.libraries_only());
    assert_eq!((profile.acknowledged(), profile.durable()), (Some(70), Some(60)));
    for (version, form) in [
        ("9.0.1", Version::Valkey80),
        ("8.1.0", Version::Redis11),
        ("7.2.0", Version::Redis11),
        ("7.0.5", Version::Redis9),
    ] {
        let mut profile = ReplicaProfile::default();
        assert_eq!(profile.snapshot_version(), Version::Redis9);
        profile.replconf(&[b"version", version.as_bytes()]).expect("a version");
        assert_eq!(profile.snapshot_version(), form);
    }
}

#[test]
fn a_replica_goes_on_only_with_what_the_primary_has() {
    let request = |id: ReplicationId, offset: u64| {
        let next = (offset + 1).to_string();
        Request::parse(&[id.to_string().as_bytes(), next.as_bytes()]).expect("a request")
    };
    let history = History::new(id(1), 100, 200).with_second(id(2), 150);
    let go_on = |offset| Decision::Continue { offset };
    let outside = Decision::Full(FullReason::OutsideBacklog { start: 100, end: 200 });
    for (asked, offset, decision) in [
        (id(1), 200, go_on(200)),
        (id(1), 100, go_on(100)),
        (id(1), 99, outside),
        (id(1), 201, outside),
        (id(2), 150, go_on(150)),
        (id(2), 100, go_on(100)),
        (id(2), 99, outside),
        (id(2), 151, Decision::Full(FullReason::PastSecond { limit: 150 })),
        (id(3), 150, Decision::Full(FullReason::OtherHistory)),
    ] {
        assert_eq!(history.decide(&request(asked, offset)), decision, "{asked} {offset}");
    }
    let parse = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        Request::parse(&words)
    };
    let asked = Decision::Full(FullReason::Asked);
    assert_eq!(parse("? -1").map(|request| history.decide(&request)), Ok(asked));
    let capital = id(1).to_string().to_uppercase();
    assert_eq!(parse(&format!("{capital} 151")).expect("a request").resume(), Some((id(1), 150)));
    assert!(parse(&format!("{capital} 151 failover")).expect("a request").takes_over());
    assert_eq!(parse("? x"), Err(RequestWrong::Offset));
    assert_eq!(parse("?"), Err(RequestWrong::Syntax));
    assert_eq!(parse("? -1 what"), Err(RequestWrong::Syntax));
    assert_eq!(parse("? -9223372036854775808").map(|request| request.resume()), Ok(None));
}

#[test]
fn the_replies_of_a_primary_are_those_that_a_replica_expects() {
    let history = History::new(id(2), 0, 500).with_second(id(1), 400);
    for (capability, told) in [("psync2", Some(id(2))), ("eof", None)] {
        let mut profile = ReplicaProfile::default();
        profile.replconf(&[b"capa", capability.as_bytes()]).expect("a capability");
        let mut answers = b"+PONG\r\n+OK\r\n".to_vec();
        write_continue(&history, &profile, &mut answers);
        let expected = HandshakeEvent::Continue { id: told, offset: 300 };
        assert_eq!(run(resume(300), &answers, 3).1, Ok(vec![expected]));
    }
    for body in [Body::Length(1 << 40), Body::Mark([b'e'; MARK_LEN])] {
        let mut answers = b"+PONG\r\n+OK\r\n".to_vec();
        write_full_resync(&history.id(), history.end(), &mut answers);
        match &body {
            Body::Length(len) => write_length(*len, &mut answers),
            Body::Mark(mark) => write_mark(mark, &mut answers),
        }
        let full = HandshakeEvent::Full { id: id(2), offset: 500 };
        let snapshot = HandshakeEvent::Snapshot(Transfer::new(body));
        assert_eq!(run(resume(300), &answers, 3).1, Ok(vec![full, snapshot]));
    }
}

proptest! {
    #[test]
    fn no_answer_makes_it_panic_and_pieces_do_not_matter(
        good in 0..4usize,
        bytes in proptest::collection::vec(
            prop_oneof![Just(b'\n'), Just(b'+'), Just(b'-'), Just(b'$'), any::<u8>()], 0..80),
        size in 1..50usize,
    ) {
        let full = format!("+FULLRESYNC {} 1\r\n", id(1));
        let lines = ["+PONG\r\n", "+OK\r\n", &full].concat();
        let answers = [&lines.as_bytes()[..[0, 7, 12, lines.len()][good]], &bytes].concat();
        let (sent, at_once) = run(resume(7), &answers, answers.len().max(1));
        let (sent_in_pieces, in_pieces) = run(resume(7), &answers, size);
        prop_assert_eq!(&at_once, &in_pieces);
        // A fault prevents output that was not sent yet.
        prop_assert!(at_once.is_err() || sent == sent_in_pieces);
    }
}
