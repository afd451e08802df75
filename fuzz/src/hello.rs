//! HELLO, AUTH and RESET in any order with any arguments: a client speaks the
//! protocol of its last greeting that was answered with a map, is told so in
//! it, and is in only with the password.

use crate::Choices;
use crate::invariants::{NoFacts, compose, one_reply_in, shown};
use keyway_base::{Clock, Time};
use keyway_command::{Args, Request};
use keyway_proxy::Identity;
use keyway_proxy::local::{ClientRegistry, LocalContext, answer};
use keyway_resp::{Kind, Protocol};

const PASSWORD: &str = "secret";

/// Words that mean something to these commands.
const WORDS: [&str; 12] =
    ["2", "3", "AUTH", "default", PASSWORD, "SETNAME", "name", "wrong", "4", "-1", "auth", ""];

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let password = choices.flip().then_some(PASSWORD);
    let clients = ClientRegistry::default();
    let users = keyway_users::Users::plain(password).limited(0);
    let mut identity = Identity::new(7, password.is_none(), Time(0));
    while !choices.is_over() {
        let line = line(&mut choices);
        let (buf, ranges) = compose(&line);
        let Ok(request) = Request::resolve(Args::new(&buf, &ranges)) else { continue };
        let before = identity.clone();
        let mut context = LocalContext {
            cluster: None,
            identity: &mut identity,
            clock: Clock { now: Time(0), unix_micros: 0 },
            users: &users,
            databases: 16,
            clients: &clients,
            facts: &NoFacts,
            pool: 0,
            reply_len_max: 1 << 20,
        };
        let mut out = Vec::new();
        answer(&request, &mut context, &mut out);
        check(&line, &before, &identity, &out);
        let gave_password = line.iter().any(|word| word == PASSWORD.as_bytes());
        let came_in = identity.authenticated && !before.authenticated;
        assert!(!came_in || gave_password || password.is_none(), "{:?}", shown(&buf));
    }
}

fn line(choices: &mut Choices) -> Vec<Vec<u8>> {
    let name = choices.pick(&["HELLO", "HELLO", "HELLO", "AUTH", "RESET", "PING", "CLIENT"]);
    let mut line = vec![name.as_bytes().to_vec()];
    if name == "CLIENT" {
        line.push(choices.pick(&["GETNAME", "INFO", "LIST", "ID"]).as_bytes().to_vec());
        return line;
    }
    for _ in 0..choices.below(7) {
        line.push(match choices.below(8) {
            0 => choices.bytes(12).to_vec(),
            _ => choices.pick(&WORDS).as_bytes().to_vec(),
        });
    }
    line
}

fn check(line: &[Vec<u8>], before: &Identity, after: &Identity, reply: &[u8]) {
    let kind = one_reply_in(after.protocol, reply);
    let is_greeting = line[0] == b"HELLO" && kind != Kind::Error;
    if is_greeting {
        let expected = match after.protocol {
            Protocol::Resp2 => Kind::Array,
            Protocol::Resp3 => Kind::Map,
        };
        assert_eq!(kind, expected);
        let asked = line.get(1).map_or(before.protocol.number(), |word| i64::from(word[0] - b'0'));
        assert_eq!(after.protocol.number(), asked);
        assert!(after.authenticated);
    } else if line[0] == b"RESET" && kind != Kind::Error {
        assert_eq!(after.protocol, Protocol::Resp2);
    } else {
        assert_eq!(after.protocol, before.protocol, "changed without a greeting");
    }
}
