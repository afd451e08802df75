//! Tests a channel with a server of rustls itself: with bytes that are cut anywhere, damaged, and
//! more than are read.

use keyway_testkit::certificates::{Authority, CertificateFiles, Span};
use keyway_tls::{Channel, ClientSettings, ClientTls, MinVersion, TlsFault, Trust};
use proptest::prelude::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

struct Side {
    tls: ClientTls,
    server: Arc<ServerConfig>,
}

/// Returns both sides of connections with the latest version and with 1.2.
fn sides() -> &'static [Side; 2] {
    static SIDES: OnceLock<[Side; 2]> = OnceLock::new();
    SIDES.get_or_init(|| {
        let authority = Authority::new("keyway tests");
        let issued = authority.issue(&["server.example"]);
        let certificate = authority.certificate;
        [&rustls::version::TLS13, &rustls::version::TLS12].map(|version| {
            let chain =
                vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let server = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap();
            Side { tls: trusting(&certificate), server: Arc::new(server) }
        })
    })
}

fn trusting(certificate: &str) -> ClientTls {
    let settings = ClientSettings {
        trust: Trust::Authorities(PathBuf::from("/ca.pem")),
        server_name: None,
        identity: None,
        min_version: MinVersion::V1_2,
    };
    let text = certificate.to_owned();
    ClientTls::load(&settings, &move |_| Ok(text.clone())).expect("it is right").tls
}

/// Returns a connection whose handshake is over.
fn connected(side: &Side) -> (Channel, ServerConnection) {
    let mut channel = side.tls.connect("server.example").unwrap();
    let mut server = ServerConnection::new(Arc::clone(&side.server)).unwrap();
    let mut plain = Vec::new();
    for _ in 0..8 {
        let mut out = Vec::new();
        channel.take_output(&mut out);
        give(&mut server, &out);
        let said = told(&mut server);
        channel.handle_input(&said, &mut plain).unwrap();
    }
    assert!(!channel.is_handshaking() && !server.is_handshaking() && plain.is_empty());
    (channel, server)
}

fn give(server: &mut ServerConnection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        server.read_tls(&mut bytes).unwrap();
        server.process_new_packets().unwrap();
    }
}

fn told(server: &mut ServerConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut out).unwrap();
    }
    out
}

/// Returns the records of what a server sends, as much as it accepts.
fn say(server: &mut ServerConnection, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in text.chunks(16 << 10) {
        server.writer().write_all(part).unwrap();
        out.extend(told(server));
    }
    out
}

fn heard(server: &mut ServerConnection) -> Vec<u8> {
    let mut text = Vec::new();
    let _ = server.reader().read_to_end(&mut text);
    text
}

fn text_of(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn what_is_said_comes_through_both_ways_in_bounded_pieces() {
    for side in sides() {
        let (mut channel, mut server) = connected(side);
        let text = text_of(300_000, 3);
        let (mut taken, mut received) = (0, Vec::new());
        while taken < text.len() {
            let len = channel.encrypt(&text[taken..]);
            assert!(len > 0 && len <= Channel::ENCRYPT_LEN_MAX);
            taken += len;
            let mut out = Vec::new();
            channel.take_output(&mut out);
            assert!(out.len() < len + 1024 && !channel.wants_output());
            give(&mut server, &out);
            received.extend(heard(&mut server));
        }
        assert_eq!(received, text);
        let mut plain = Vec::new();
        let bytes = say(&mut server, &text);
        for piece in bytes.chunks(64 << 10) {
            let before = plain.len();
            channel.handle_input(piece, &mut plain).unwrap();
            assert!(plain.len() - before <= piece.len() + (17 << 10));
        }
        assert_eq!(plain, text);
    }
}

#[test]
fn the_end_is_told_and_what_comes_behind_it_is_not() {
    for side in sides() {
        let (mut channel, mut server) = connected(side);
        let mut bytes = say(&mut server, b"last words");
        server.send_close_notify();
        bytes.extend(told(&mut server));
        bytes.extend_from_slice(b"rubbish");
        let mut plain = Vec::new();
        channel.handle_input(&bytes, &mut plain).unwrap();
        assert_eq!(plain, b"last words");
        assert!(channel.has_ended());
    }
}

#[test]
fn who_does_not_speak_tls_is_told_from_who_speaks_it_badly() {
    let side = &sides()[0];
    for said in
        [&b"-ERR unknown command\r\n"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", b"ERROR\r\n"]
    {
        let mut channel = side.tls.connect("server.example").unwrap();
        let mut plain = Vec::new();
        assert_eq!(channel.handle_input(said, &mut plain), Err(TlsFault::NotTls));
        assert!(plain.is_empty());
    }
    let (mut channel, _server) = connected(side);
    let fault = channel.handle_input(b"-ERR unknown command\r\n", &mut Vec::new());
    assert_eq!(fault, Err(TlsFault::Broken));
}

#[test]
fn a_certificate_that_is_not_right_has_its_reason() {
    let files = CertificateFiles::default();
    let authority = &files.authority;
    let other = Authority::new("another");
    let issued = [
        (authority.issue(&["other.example"]), TlsFault::WrongName),
        (authority.issue_for(&["server.example"], Span::Expired), TlsFault::Expired),
        (authority.issue_for(&["server.example"], Span::Future), TlsFault::NotYetValid),
        (other.issue(&["server.example"]), TlsFault::UnknownIssuer),
        (authority.issue(&[]), TlsFault::Nameless),
    ];
    let tls = trusting(&authority.certificate);
    for (issued, expected) in issued {
        let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let mut channel = tls.connect("server.example").unwrap();
        let mut out = Vec::new();
        channel.take_output(&mut out);
        give(&mut server, &out);
        let fault = channel.handle_input(&told(&mut server), &mut Vec::new());
        assert_eq!(fault, Err(expected));
        // The server is told as well.
        assert!(channel.wants_output());
        let words = tls.explain(expected, "server.example");
        assert_eq!(words.contains("server.example"), expected.is_about_name(), "{words}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn where_bytes_are_cut_makes_no_difference(
        which in 0usize..2,
        texts in prop::collection::vec((0usize..40_000, any::<u8>()), 1..6),
        cuts in prop::collection::vec(1usize..20_000, 1..20),
    ) {
        let (mut channel, mut server) = connected(&sides()[which]);
        let (mut said, mut bytes) = (Vec::new(), Vec::new());
        for (len, seed) in texts {
            let text = text_of(len, seed);
            bytes.extend(say(&mut server, &text));
            said.extend(text);
        }
        let (mut plain, mut left, mut cuts) = (Vec::new(), &bytes[..], cuts.iter().cycle());
        while !left.is_empty() {
            let (piece, rest) = left.split_at(left.len().min(*cuts.next().unwrap()));
            channel.handle_input(piece, &mut plain).unwrap();
            left = rest;
        }
        prop_assert_eq!(plain, said);
    }

    #[test]
    fn a_handshake_in_single_bytes_is_one(which in 0usize..2) {
        let side = &sides()[which];
        let mut channel = side.tls.connect("server.example").unwrap();
        let mut server = ServerConnection::new(Arc::clone(&side.server)).unwrap();
        let mut plain = Vec::new();
        for _ in 0..8 {
            let mut out = Vec::new();
            channel.take_output(&mut out);
            give(&mut server, &out);
            for byte in told(&mut server) {
                channel.handle_input(&[byte], &mut plain).unwrap();
            }
        }
        prop_assert!(!channel.is_handshaking() && plain.is_empty());
    }

    #[test]
    fn rubbish_is_refused_without_harm(
        which in 0usize..2,
        is_open: bool,
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 1..30),
    ) {
        let side = &sides()[which];
        let mut channel = if is_open { connected(side).0 } else { side.tls.connect("a").unwrap() };
        let mut plain = Vec::new();
        let mut given = 0;
        for piece in pieces {
            given += piece.len();
            if channel.handle_input(&piece, &mut plain).is_err() {
                break;
            }
            prop_assert!(given <= 64 << 10, "it waits for more than any record is long");
        }
        // None of it is treated as plain text.
        prop_assert!(plain.is_empty());
    }

    #[test]
    fn a_record_that_was_changed_is_refused(
        which in 0usize..2,
        at in any::<prop::sample::Index>(),
        flip in 1u8..=255,
    ) {
        let (mut channel, mut server) = connected(&sides()[which]);
        let mut bytes = say(&mut server, b"+OK\r\n");
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let mut plain = Vec::new();
        let outcome = channel.handle_input(&bytes, &mut plain);
        if which == 0 && at < 3 && outcome.is_ok() && !plain.is_empty() {
            // With 1.3, the kind and the version of a record mean nothing and are not signed.
            prop_assert_eq!(plain, b"+OK\r\n");
        } else {
            prop_assert!(plain.is_empty(), "{} {:?}", at, outcome);
            // A record whose length was changed may be incomplete, and one whose kind was changed
            // may be a part of something else.
            let is_head = at == 0 || at == 3 || at == 4;
            prop_assert!(outcome.is_err() || is_head, "{} {:?}", at, outcome);
        }
    }
}

/// Returns the client's fault for the first received bytes, cut in two parts.
fn fault_of(first: &[u8], next: &[u8]) -> Option<TlsFault> {
    let mut channel = sides()[0].tls.connect("server.example").unwrap();
    let mut plain = Vec::new();
    let heard = channel.handle_input(first, &mut plain);
    heard.and_then(|()| channel.handle_input(next, &mut plain)).err()
}

#[test]
fn who_has_begun_to_speak_tls_speaks_it() {
    // A record of a handshake, followed by bytes that are no record.
    let record = [22, 3, 3, 0, 4, 2, 0, 1, 0];
    assert_eq!(fault_of(&record, b"-ERR what\r\n"), Some(TlsFault::Broken));
    assert_eq!(fault_of(b"-ERR what\r\n", b""), Some(TlsFault::NotTls));
    assert_eq!(fault_of(b"-E", b"RR what\r\n"), Some(TlsFault::NotTls));
}
