//! Any words as a request: resolved or refused in one line, its keys lie among
//! its arguments however they are asked for, it is routed somewhere, and what
//! is answered here is answered once.

use crate::Choices;
use crate::invariants::{NoFacts, compose, one_error_line, one_reply_in, shown};
use keyway_base::Clock;
use keyway_command::{Args, COMMANDS, Handling, Request};
use keyway_proxy::Identity;
use keyway_proxy::local::{self, ClientRegistry, LocalContext};
use keyway_resp::reply;
use keyway_route::{Route, Spread, route};
use keyway_topology::{Distribution, Server, ServerSet};

/// Words that key specs and options look for, and counts at their edges.
const WORDS: [&str; 32] = [
    "STREAMS",
    "store",
    "storedist",
    "keys",
    "limit",
    "get",
    "by",
    "block",
    "count",
    "group",
    "overflow",
    "auth",
    "auth2",
    "set",
    "incrby",
    "#",
    "a*b",
    "withscores",
    "aggregate",
    "0",
    "1",
    "2",
    "3",
    "9",
    "-1",
    "01",
    "4294967296",
    "999999999",
    "9223372036854775807",
    "18446744073709551616",
    "",
    "{x}",
];

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let line = line(&mut choices);
    let (buf, ranges) = compose(&line);
    let args = Args::new(&buf, &ranges);
    match Request::resolve(args) {
        Ok(request) => {
            if request.handling() == Handling::Local {
                is_answered_here(&request);
            }
            keys_lie_among_the_arguments(&request, &mut choices);
        }
        Err(refusal) => {
            let mut out = Vec::new();
            refusal.write_error(args, &mut out);
            one_error_line(&out);
            assert!(out.len() < 1024, "{} bytes of error", out.len());
        }
    }
}

/// The words of one request.
pub(crate) fn line(choices: &mut Choices) -> Vec<Vec<u8>> {
    let mut line = Vec::new();
    let command = &COMMANDS[choices.below(512) % COMMANDS.len()];
    match choices.below(8) {
        0 => line.push(choices.bytes(20).to_vec()),
        _ => line.push(command.name.as_bytes().to_vec()),
    }
    if !command.subcommands.is_empty() && choices.below(8) != 0 {
        let index = choices.below(command.subcommands.len());
        let name = command.subcommands[index].name;
        line.push(name.rsplit('|').next().unwrap_or_default().as_bytes().to_vec());
    }
    while !choices.is_over() && line.len() < 40 {
        match choices.below(3) {
            0 => line.push(choices.bytes(300).to_vec()),
            1 => line.push(choices.bytes(3).to_vec()),
            _ => line.push(choices.pick(&WORDS).as_bytes().to_vec()),
        }
    }
    line
}

fn is_answered_here(request: &Request) {
    let (clock, clients) = (Clock::default(), ClientRegistry::default());
    let mut context = LocalContext {
        cluster: None,
        identity: &mut Identity::new(7, true, clock.now),
        clock,
        users: &keyway_users::Users::plain(Some("secret")),
        databases: 3,
        clients: &clients,
        facts: &NoFacts,
        pool: 0,
        reply_len_max: 1 << 20,
    };
    let mut out = Vec::new();
    local::answer(request, &mut context, &mut out);
    one_reply_in(context.identity.protocol, &out);
    assert!(context.identity.database < 3);
}

fn keys_lie_among_the_arguments(request: &Request, choices: &mut Choices) {
    let (mut keys, mut flagged) = (vec![77], Vec::new());
    let found = request.keys(&mut keys);
    assert_eq!(found, request.keys_and_flags(&mut flagged));
    assert!(flagged.iter().map(|(index, _)| *index).eq(keys.iter().copied()));
    let last = request.args.len() - 1;
    for &key in &keys {
        assert!((1..=last).contains(&(key as usize)), "key {key} of {last}");
        assert!(request.args.get(key as usize).is_some());
    }
    assert!(found.is_ok() || keys.is_empty());
    assert_eq!(request.first_key(), keys.first().map(|key| *key as usize));
    if request.handling() == Handling::Forward && found.is_ok() {
        assert!(!keys.is_empty(), "forwarded without a key: {}", shown(request.args.buf()));
    }
    routes_to_a_server_there_is(request, choices);
}

fn routes_to_a_server_there_is(request: &Request, choices: &mut Choices) {
    let servers = ["a:1:1 x", "b:2:2 y", "c:3:1 z"].map(|text| Server::parse(text).expect("valid"));
    let distribution = choices.pick(&[Distribution::Modula, Distribution::Random]);
    let pool = ServerSet { distribution, ..ServerSet::new(servers.to_vec()) };
    let live = choices.byte();
    let ring = pool.ring(|server| live >> server & 1 == 0);
    match route(request, &pool, &ring, u32::from(choices.byte()) << 24, &mut Vec::new()) {
        Route::One(server) | Route::Block(server) => assert!(server < 3 && live >> server & 1 == 0),
        Route::Split(split) => {
            assert_eq!((request.args.len() - 1) % usize::from(split.args_per_key), 0);
        }
        Route::CrossSlot(Spread::Servers(servers)) => assert!((2..=3).contains(&servers)),
        Route::CrossSlot(Spread::Slots(_)) => panic!("these keys have no slots"),
        Route::Unrouted => assert_eq!(live & 7, 7),
        Route::Refused(reason) => {
            let mut out = Vec::new();
            reply::error(&mut out, reason);
            one_error_line(&out);
        }
        Route::Local
        | Route::Everywhere(_)
        | Route::Across(_)
        | Route::PubSub
        | Route::Transaction
        | Route::Tracking
        | Route::KeysUnknown(_) => {}
    }
}
