//! The handshake: AUTH, HELLO, SELECT, PING, RESET.

use super::{LocalContext, client, integer_argument};
use crate::ReplyMode;
use keyway_command::Args;
use keyway_resp::reply;
use subtle::ConstantTimeEq;

/// Redis's version that our answers are compatible with; clients choose what
/// they send by it.
pub(super) const REDIS_VERSION: &str = "7.0.15";

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const SYNTAX: &str = "ERR syntax error";

pub(super) fn ping(args: &Args, out: &mut Vec<u8>) {
    match args.get(1) {
        None => reply::simple(out, "PONG"),
        Some(text) if args.len() == 2 => reply::bulk(out, text),
        Some(_) => reply::error(out, "ERR wrong number of arguments for 'ping' command"),
    }
}

pub(super) fn auth(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    let (user, password) = match args.len() {
        2 => (None, &args[1]),
        3 => (Some(&args[1]), &args[2]),
        _ => return reply::error(out, SYNTAX),
    };
    if user.is_none() && context.password.is_none() {
        return reply::error(
            out,
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        );
    }
    if log_in(context, user, password) {
        reply::simple(out, "OK");
    } else {
        reply::error(out, WRONG);
    }
}

/// Whether the password is right; notes it if so. Without a password, the
/// default user's is any, as in Redis.
fn log_in(context: &mut LocalContext, user: Option<&[u8]>, password: &[u8]) -> bool {
    let known_user = user.is_none_or(|user| user == b"default");
    let right = match context.password {
        Some(secret) => bool::from(secret.as_bytes().ct_eq(password)),
        None => true,
    };
    let ok = known_user & right;
    context.identity.authenticated |= ok;
    ok
}

pub(super) fn select(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    let Some(index) = integer_argument(&args[1], out) else { return };
    match u32::try_from(index) {
        Ok(index) if index < context.databases => {
            context.identity.database = index;
            context.clients.update(context.identity.id, |entry| entry.database = index);
            reply::simple(out, "OK");
        }
        _ => reply::error(out, "ERR DB index is out of range"),
    }
}

pub(super) fn reset(context: &mut LocalContext, out: &mut Vec<u8>) {
    let identity = &mut *context.identity;
    identity.database = 0;
    identity.reply_mode = ReplyMode::On;
    identity.no_evict = false;
    identity.no_touch = false;
    identity.authenticated = context.password.is_none();
    context.clients.update(identity.id, |entry| {
        entry.name.clear();
        entry.database = 0;
    });
    reply::simple(out, "RESET");
}

pub(super) fn hello(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    let mut next = 1;
    if let Some(version) = args.get(1) {
        match keyway_resp::parse_integer(version) {
            Some(2) => {}
            Some(_) => return reply::error(out, "NOPROTO unsupported protocol version"),
            None => {
                return reply::error(out, "ERR Protocol version is not an integer or out of range");
            }
        }
        next = 2;
    }
    let mut name = None;
    while let Some(option) = args.get(next) {
        let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        if is("AUTH") && args.len() > next + 2 {
            if !log_in(context, Some(&args[next + 1]), &args[next + 2]) {
                return reply::error(out, WRONG);
            }
            next += 3;
        } else if is("SETNAME") && args.len() > next + 1 {
            if !client::is_plain(&args[next + 1]) {
                return reply::error(out, client::BAD_NAME);
            }
            name = Some(String::from_utf8_lossy(&args[next + 1]).into_owned());
            next += 2;
        } else {
            let option = String::from_utf8_lossy(option).into_owned();
            return reply::error(out, &format!("ERR Syntax error in HELLO option '{option}'"));
        }
    }
    if !context.identity.authenticated {
        return reply::error(
            out,
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name {
        context.clients.update(context.identity.id, |entry| entry.name = name);
    }
    greet(context, out);
}

fn greet(context: &LocalContext, out: &mut Vec<u8>) {
    reply::array(out, 14);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply::bulk(out, field.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    reply::bulk(out, b"proto");
    reply::integer(out, 2);
    reply::bulk(out, b"id");
    reply::integer(out, context.identity.id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply::bulk(out, field.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    reply::bulk(out, b"modules");
    reply::array(out, 0);
}
