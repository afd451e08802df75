//! What a hostile server says in a TLS handshake, in pieces of any length: a fault or
//! silence, never a word of it handed on, and no more kept than is bounded.

use crate::Choices;
use keyway_tls::{Channel, ClientSettings, ClientTls, MinVersion, Trust};
use std::sync::OnceLock;

/// More than a channel may take in before it says that it is no handshake.
const TAKEN_MAX: usize = 512 << 10;

fn tls() -> &'static ClientTls {
    static TLS: OnceLock<ClientTls> = OnceLock::new();
    TLS.get_or_init(|| {
        let settings = ClientSettings {
            trust: Trust::Anybody,
            server_name: Some("server.example".to_owned()),
            identity: None,
            min_version: MinVersion::V1_2,
        };
        ClientTls::load(&settings, &|_| Err("there is no file".to_owned()))
            .unwrap_or_else(|faults| panic!("{faults:?}"))
            .tls
    })
}

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let piece_len = 1 + choices.below(300);
    let said = choices.rest();
    let mut channel = tls().connect("127.0.0.1").expect("the name is one");
    let (mut plain, mut sent, mut taken) = (Vec::new(), Vec::new(), 0);
    assert_eq!(channel.encrypt(b"too early"), 0);
    for piece in said.chunks(piece_len) {
        let outcome = channel.handle_input(piece, &mut plain);
        channel.take_output(&mut sent);
        taken += piece.len();
        if outcome.is_err() || channel.has_ended() {
            break;
        }
        assert!(taken < TAKEN_MAX, "it takes whatever comes");
    }
    // Nobody who does not know our key comes to the end of a handshake.
    assert!(channel.is_handshaking() && plain.is_empty());
    assert!(sent.len() < Channel::ENCRYPT_LEN_MAX, "{} bytes", sent.len());
}
