//! Laws over the whole command table.

use super::After;
use super::bench::Bench;
use crate::ReplyMode;
use keyway_command::{COMMANDS, Command, Handling, Verb};
use keyway_resp::{Framer, Framing, Protocol};
use proptest::prelude::*;

fn every_command() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands))
}

/// Returns the name as a client sends it, with as few arguments as the arity allows.
fn least_args(command: &Command) -> Vec<&str> {
    let mut args: Vec<&str> = command.name.split('|').collect();
    // The table knows its subcommands as words.
    let word = if command.verb == Verb::Hotkeys { "help" } else { "1" };
    args.resize(args.len().max(usize::from(command.arity.unsigned_abs())), word);
    args
}

fn is_one_reply(protocol: Protocol, bytes: &[u8]) -> bool {
    match Framer::new(protocol).frame(bytes, 1 << 30, 16) {
        Ok(Framing::Ready { len, .. }) => len == bytes.len(),
        _ => false,
    }
}

#[test]
fn every_local_command_has_one_answer_that_is_not_a_refusal() {
    let mut seen = 0;
    for command in every_command().filter(|command| command.handling == Handling::Local) {
        let args = least_args(command);
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let Some((reply, _)) = Bench::new().try_args(&args) else {
            assert!(!command.subcommands.is_empty(), "{} refuses its arity", command.name);
            continue;
        };
        assert!(
            is_one_reply(Protocol::Resp2, &reply),
            "{}: {}",
            command.name,
            reply.escape_ascii()
        );
        let text = String::from_utf8_lossy(&reply);
        let is_answered = !text.contains("wrong number") && !text.contains("needs a server");
        assert!(is_answered, "{}: {text}", command.name);
        assert!(!text.contains("refused"), "{text}");
        seen += 1;
    }
    assert!(seen >= 45, "only {seen} local commands");
}

#[test]
fn commands_of_other_handling_are_answered_with_one_error() {
    for command in every_command().filter(|command| command.handling != Handling::Local) {
        let args = least_args(command);
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let Some((reply, after)) = Bench::new().try_args(&args) else { continue };
        assert!(is_one_reply(Protocol::Resp2, &reply), "{}", command.name);
        assert_eq!(after, After::Continue);
        assert_eq!(reply[0], b'-', "{}", command.name);
    }
}

/// Words that have a meaning for some command, so that options combine.
const WORDS: &[&str] = &[
    "2",
    "3",
    "-1",
    "0",
    "7",
    "99999999999999999999",
    "on",
    "off",
    "skip",
    "auth",
    "setname",
    "default",
    "sesame",
    "id",
    "addr",
    "laddr",
    "type",
    "user",
    "skipme",
    "yes",
    "no",
    "maxage",
    "normal",
    "replica",
    "lib-name",
    "lib-ver",
    "127.0.0.1:7",
    "*",
    "save",
    "get",
    "all",
];

fn argument() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => proptest::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ]
}

fn request() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let names: Vec<&'static str> = every_command()
        .filter(|command| command.handling == Handling::Local)
        .map(|command| command.name)
        .collect();
    let name = proptest::sample::select(names);
    (name, proptest::collection::vec(argument(), 0..6)).prop_map(|(name, rest)| {
        name.split('|').map(|word| word.as_bytes().to_vec()).chain(rest).collect()
    })
}

proptest! {
    #[test]
    fn any_arguments_get_exactly_one_reply(
        requests in proptest::collection::vec(request(), 1..8),
        with_password in any::<bool>(),
    ) {
        let mut bench = if with_password { Bench::with_password("sesame") } else { Bench::new() };
        bench.add_client(8, 0, "10.0.0.8:8");
        for args in requests {
            let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let before = bench.identity.protocol;
            let Some((reply, after)) = bench.try_args(&words) else { continue };
            let is_reply_mode = words.len() == 3 && words[1].eq_ignore_ascii_case(b"reply");
            if is_reply_mode && reply.is_empty() {
                prop_assert!(bench.identity.reply_mode != ReplyMode::On);
            } else {
                let protocol = bench.identity.protocol.max(before);
                let is_one = is_one_reply(protocol, &reply);
                prop_assert!(is_one, "{:?}: {}", args, reply.escape_ascii());
            }
            prop_assert!(after != After::Kill(vec![]));
            prop_assert!(bench.identity.database < 16);
        }
    }
}
