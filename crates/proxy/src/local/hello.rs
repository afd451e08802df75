//! HELLO and RESET: how a connection's state begins, and begins again.

use super::{LocalContext, REDIS_VERSION, auth, client};
use crate::{Identity, ReplyMode};
use keyway_command::Args;
use keyway_resp::{Protocol, parse_integer, reply};

const NOT_A_VERSION: &str = "ERR Protocol version is not an integer or out of range";
const NO_PROTOCOL: &str = "NOPROTO unsupported protocol version";
const NOT_AUTHENTICATED: &str = "NOAUTH HELLO must be called with the client already \
     authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to \
     authenticate the client and select the RESP protocol version at the same time";

/// Answers `HELLO [protover [AUTH username password] [SETNAME clientname]]`.
pub(super) fn hello(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    match greet(args, context) {
        Ok(protocol) => {
            speak(protocol, context);
            describe(context.identity, context.cluster.is_some(), out);
        }
        Err(text) => reply::error(out, &text),
    }
}

/// Executes the options in their order, up to the first wrong one. Returns the protocol from now
/// on.
fn greet(args: &Args, context: &mut LocalContext) -> Result<Protocol, String> {
    let protocol = match args.get(1) {
        None => context.identity.protocol,
        Some(version) => {
            let number = parse_integer(version).ok_or(NOT_A_VERSION)?;
            Protocol::from_number(number).ok_or(NO_PROTOCOL)?
        }
    };
    let mut index = 2;
    while let Some(option) = args.get(index) {
        match (args.get(index + 1), args.get(index + 2)) {
            (Some(user), Some(password)) if option.eq_ignore_ascii_case(b"auth") => {
                auth::check(user, password, "hello", context)?;
                index += 3;
            }
            (Some(name), _) if option.eq_ignore_ascii_case(b"setname") => {
                client::set_name(name, context)?;
                index += 2;
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
    }
    if context.identity.authenticated { Ok(protocol) } else { Err(NOT_AUTHENTICATED.to_owned()) }
}

/// Sets the protocol of replies from now on.
fn speak(protocol: Protocol, context: &mut LocalContext) {
    if context.identity.protocol != protocol {
        context.identity.protocol = protocol;
        context.clients.update(context.identity.id, |entry| entry.protocol = protocol);
    }
}

fn describe(identity: &Identity, is_cluster: bool, out: &mut Vec<u8>) {
    identity.protocol.map(out, 7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    reply::bulk(out, b"proto");
    reply::integer(out, identity.protocol.number());
    reply::bulk(out, b"id");
    reply::integer(out, identity.id as i64);
    let mode = if is_cluster { "cluster" } else { "standalone" };
    for (name, value) in [("mode", mode), ("role", "master")] {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    reply::bulk(out, b"modules");
    reply::array(out, 0);
}

/// Answers `RESET`: everything except the connection is as at the beginning. The name and version
/// of its library stay, as in Redis.
pub(super) fn reset(context: &mut LocalContext, out: &mut Vec<u8>) {
    let identity = &mut *context.identity;
    identity.begin(context.users);
    identity.database = 0;
    identity.reply_mode = ReplyMode::On;
    identity.no_evict = false;
    identity.no_touch = false;
    identity.protocol = Protocol::Resp2;
    let user = identity.shared_user_name();
    context.clients.update(identity.id, |entry| {
        entry.user = user;
        entry.set_name("");
        entry.database = 0;
        entry.protocol = Protocol::Resp2;
        entry.set_tracking(None);
    });
    reply::simple(out, "RESET");
}

#[cfg(test)]
mod tests {
    use crate::ReplyMode;
    use crate::local::bench::Bench;

    #[test]
    fn hello_without_the_password_says_how_to_give_it() {
        let mut bench = Bench::with_password("sesame");
        assert!(bench.ask("HELLO").starts_with("-NOAUTH HELLO must be called with"));
        assert!(bench.ask("HELLO 2 AUTH default x").starts_with("-WRONGPASS "));
        assert!(bench.ask("HELLO 2 AUTH default sesame SETNAME a").starts_with("*14\r\n"));
        assert!(bench.identity.authenticated);
        assert_eq!(bench.ask("CLIENT GETNAME"), "$1\r\na\r\n");
    }

    #[test]
    fn a_greeting_decides_what_is_spoken_until_the_next() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask("CLIENT GETNAME"), "$-1\r\n");
        assert!(bench.ask("HELLO 3").starts_with("%7\r\n$6\r\nserver\r\n"));
        assert_eq!(bench.ask("CLIENT GETNAME"), "_\r\n");
        assert!(bench.ask("CLIENT INFO").contains(" resp=3 "));
        assert!(bench.ask("HELLO").contains("$5\r\nproto\r\n:3\r\n"), "it stays");
        for bad in ["HELLO 4", "HELLO 1", "HELLO 2 BAD", "HELLO 2 AUTH bob x"] {
            assert!(bench.ask(bad).starts_with('-'), "{bad}");
            assert_eq!(bench.ask("CLIENT GETNAME"), "_\r\n", "{bad} changes nothing");
        }
        assert!(bench.ask("HELLO 2").starts_with("*14\r\n"));
        bench.ask("HELLO 3");
        assert_eq!(bench.ask("RESET"), "+RESET\r\n");
        assert!(bench.ask("CLIENT LIST").contains(" resp=2 "));
        assert_eq!(bench.ask("CLIENT GETNAME"), "$-1\r\n");
    }

    #[test]
    fn reset_takes_everything_back() {
        let mut bench = Bench::with_password("sesame");
        for line in ["AUTH sesame", "SELECT 3", "CLIENT SETNAME a", "CLIENT NO-EVICT ON"] {
            assert_eq!(bench.ask(line), "+OK\r\n", "{line}");
        }
        bench.ask("CLIENT REPLY OFF");
        assert_eq!(bench.ask("RESET"), "+RESET\r\n");
        assert!(!bench.identity.authenticated && !bench.identity.no_evict);
        assert_eq!((bench.identity.database, bench.identity.reply_mode), (0, ReplyMode::On));
        assert_eq!(bench.ask("CLIENT GETNAME"), "$-1\r\n");
    }
}
