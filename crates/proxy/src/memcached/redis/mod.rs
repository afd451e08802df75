//! Requests of memcached clients to servers of Redis. A request for which one command of Redis is
//! enough uses that. All others use one script ([`script`]), so that they are atomic. The form of
//! stored items is described in `envelope.rs`. Replies are read as those of a server of memcached
//! ([`Question`]).

mod envelope;
mod reply;

pub(super) use reply::read;

use crate::Digest;
use envelope::Prefix;
use keyway_memcache::{Dialect, Expect, Head, RequestFlags, Verb};
use keyway_resp::reply::{array, bulk, bulk_header};
use std::sync::{Arc, LazyLock};

/// Number of seconds up to which an expiry is relative to now, as in memcached.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// The question to a server of Redis, which decides how its reply is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// A read of a value.
    Value,
    /// A read of a value of which only flags and number are returned.
    Touched,
    /// A read of several values.
    Values,
    /// A store of a value with this number and length, if a condition is met.
    Stored {
        /// The number, if it is wanted.
        cas: Option<u64>,
        /// The length in bytes.
        len: u32,
    },
    /// A change of an existing value: 1, or 0 if there is none.
    Found,
    /// A request that cannot fail.
    Done,
    /// A script, which answers in memcached's protocol.
    Script,
    /// INFO, with the keys of this database.
    Info {
        /// The database.
        database: u32,
    },
}

/// The parameters of a request.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Length of the longest value that may result from an append or prepend, in bytes.
    pub item_len_max: u32,
    /// The database that the servers' links have selected.
    pub database: u32,
}

/// The command of Redis for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisCommand {
    /// `GET`.
    Get,
    /// `MGET`.
    GetMany,
    /// `GETEX`.
    GetTouch,
    /// `SET`.
    Set,
    /// `DEL`.
    Delete,
    /// `EXPIRE`.
    Expire,
    /// `FLUSHDB`.
    Flush,
    /// `INFO`.
    Info,
    /// A script, with the operation.
    Script(&'static str),
}

impl RedisCommand {
    /// Returns the command for a request with this number of keys.
    ///
    /// # Errors
    /// Returns the error for the client if Redis cannot do the request.
    pub fn of(head: &Head, keys: usize) -> Result<RedisCommand, &'static str> {
        check(head)?;
        Ok(match head.verb {
            Verb::Get if keys > 1 => RedisCommand::GetMany,
            Verb::Get if head.asked.has(RequestFlags::TTL) => RedisCommand::Script("look"),
            Verb::Get => RedisCommand::Get,
            Verb::GetTouch if keys > 1 => RedisCommand::Script("gat"),
            Verb::GetTouch => RedisCommand::GetTouch,
            Verb::Set | Verb::Add | Verb::Replace => RedisCommand::Set,
            Verb::Cas => RedisCommand::Script("cas"),
            Verb::Append => RedisCommand::Script("append"),
            Verb::Prepend => RedisCommand::Script("prepend"),
            Verb::Delete if head.cas.is_some() => RedisCommand::Script("delete"),
            Verb::Delete => RedisCommand::Delete,
            Verb::Incr => RedisCommand::Script("incr"),
            Verb::Decr => RedisCommand::Script("decr"),
            // Its reply contains flags.
            Verb::Touch if head.dialect == Dialect::Binary => RedisCommand::GetTouch,
            Verb::Touch if head.expiry == 0 => RedisCommand::Script("touch"),
            Verb::Touch => RedisCommand::Expire,
            Verb::FlushAll => RedisCommand::Flush,
            // The text is short: libmemcached's own test accepts no line of more than 80 bytes as
            // an error.
            Verb::Stats if keys > 0 => return Err("the servers are of Redis: only plain stats"),
            Verb::Stats => RedisCommand::Info,
            _ => return Err("the servers are of Redis, which has no such command"),
        })
    }

    /// Returns whether the server must have the [`script`].
    pub fn is_script(self) -> bool {
        matches!(self, RedisCommand::Script(_))
    }

    /// Appends a request to a server. Returns how its reply is read, and how it ends.
    pub fn write<'a>(
        self,
        out: &mut Vec<u8>,
        head: &Head,
        keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
        value: &[u8],
        terms: Terms,
    ) -> (Question, Expect) {
        let key = keys.clone().next().unwrap_or_default();
        let question = match self {
            RedisCommand::Get => {
                words(out, [b"GET", key]);
                Question::Value
            }
            RedisCommand::GetMany => {
                array(out, 1 + keys.len());
                bulk(out, b"MGET");
                keys.for_each(|key| bulk(out, key));
                return (Question::Values, Expect::List);
            }
            RedisCommand::GetTouch => {
                let expiry = Expiry::of(head.expiry);
                array(out, 2 + expiry.words_of_getex());
                bulk(out, b"GETEX");
                bulk(out, key);
                expiry.write_for_getex(out);
                if head.verb == Verb::Touch { Question::Touched } else { Question::Value }
            }
            RedisCommand::Set => write_set(out, head, key, value),
            RedisCommand::Delete => {
                words(out, [b"DEL", key]);
                Question::Found
            }
            RedisCommand::Expire => {
                let expiry = Expiry::of(head.expiry);
                array(out, 3);
                bulk(out, expiry.command());
                bulk(out, key);
                number(out, expiry.time());
                Question::Found
            }
            RedisCommand::Flush => {
                words(out, [b"FLUSHDB"]);
                Question::Done
            }
            RedisCommand::Info => {
                words(out, [b"INFO"]);
                return (Question::Info { database: terms.database }, Expect::List);
            }
            RedisCommand::Script(op) => return write_script(out, op, head, keys, value, terms),
        };
        (question, Expect::One)
    }
}

/// Checks that a request asks for nothing that Redis does not keep or cannot do.
fn check(head: &Head) -> Result<(), &'static str> {
    const UNKEPT: RequestFlags = RequestFlags::HIT
        .with(RequestFlags::LAST_ACCESS)
        .with(RequestFlags::NO_BUMP)
        .with(RequestFlags::INVALIDATE)
        .with(RequestFlags::REMOVE_VALUE);
    let counts = matches!(head.verb, Verb::Incr | Verb::Decr);
    if head.asked.any(UNKEPT) || head.recache.is_some() || head.cas_new.is_some() {
        return Err("the servers are of Redis, which has no h, l, u, I, x, R and E");
    }
    if head.vivify.is_some() && !counts {
        return Err("the servers are of Redis: N is for ma alone there");
    }
    if head.asked.has(RequestFlags::TTL) && head.verb != Verb::Get {
        return Err("the servers are of Redis: t is for mg without T alone there");
    }
    if head.asked.has(RequestFlags::EXPIRY) && head.verb == Verb::Delete {
        return Err("the servers are of Redis: T is not for md there");
    }
    if head.verb == Verb::FlushAll && head.expiry > 0 {
        return Err("the servers are of Redis, which empties them at once or not at all");
    }
    Ok(())
}

fn words<const N: usize>(out: &mut Vec<u8>, words: [&[u8]; N]) {
    array(out, N);
    words.iter().for_each(|word| bulk(out, word));
}

fn number(out: &mut Vec<u8>, number: i64) {
    bulk(out, itoa::Buffer::new().format(number).as_bytes());
}

/// When an item expires, in a form for a server of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Never,
    /// In this number of seconds.
    In(i64),
    /// At this second since 1970.
    At(i64),
    /// At once.
    Past,
}

impl Expiry {
    fn of(seconds: i64) -> Expiry {
        match seconds {
            0 => Expiry::Never,
            ..0 => Expiry::Past,
            1..=RELATIVE_MAX => Expiry::In(seconds),
            _ => Expiry::At(seconds),
        }
    }

    /// Returns the option of SET and GETEX, if there is one.
    fn word(self) -> &'static [u8] {
        match self {
            Expiry::Never => b"",
            Expiry::In(_) => b"EX",
            Expiry::At(_) => b"EXAT",
            Expiry::Past => b"PXAT",
        }
    }

    fn time(self) -> i64 {
        match self {
            Expiry::Never => 0,
            Expiry::In(seconds) | Expiry::At(seconds) => seconds,
            Expiry::Past => 1,
        }
    }

    fn command(self) -> &'static [u8] {
        match self {
            Expiry::In(_) | Expiry::Never => b"EXPIRE",
            Expiry::At(_) => b"EXPIREAT",
            Expiry::Past => b"PEXPIREAT",
        }
    }

    fn words_of_set(self) -> usize {
        if self == Expiry::Never { 0 } else { 2 }
    }

    fn write_for_set(self, out: &mut Vec<u8>) {
        if self != Expiry::Never {
            bulk(out, self.word());
            number(out, self.time());
        }
    }

    fn words_of_getex(self) -> usize {
        self.words_of_set().max(1)
    }

    fn write_for_getex(self, out: &mut Vec<u8>) {
        if self == Expiry::Never {
            return bulk(out, b"PERSIST");
        }
        self.write_for_set(out);
    }

    /// Appends it as two arguments of the script, with `word` for [`Expiry::Never`].
    fn write_for_script(self, out: &mut Vec<u8>, word: &[u8]) {
        if self == Expiry::Never {
            bulk(out, word);
            return bulk(out, b"");
        }
        self.write_for_set(out);
    }
}

/// Appends a value in the form in which it is stored on a server.
fn sealed(out: &mut Vec<u8>, prefix: &Prefix, value: &[u8]) {
    bulk_header(out, prefix.as_bytes().len() + value.len());
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_set(out: &mut Vec<u8>, head: &Head, key: &[u8], value: &[u8]) -> Question {
    let condition: &[u8] = match head.verb {
        Verb::Add => b"NX",
        Verb::Replace => b"XX",
        _ => b"",
    };
    let expiry = Expiry::of(head.expiry);
    let prefix = Prefix::of(head.flags, value);
    array(out, 3 + usize::from(!condition.is_empty()) + expiry.words_of_set());
    bulk(out, b"SET");
    bulk(out, key);
    sealed(out, &prefix, value);
    if !condition.is_empty() {
        bulk(out, condition);
    }
    expiry.write_for_set(out);
    let wants_cas = head.asked.has(RequestFlags::CAS) && !head.quiet;
    let cas = wants_cas.then(|| envelope::number([prefix.as_bytes(), value]));
    Question::Stored { cas, len: value.len() as u32 }
}

/// Appends the arguments of the script after the keys, and returns their number.
fn write_script<'a>(
    out: &mut Vec<u8>,
    op: &str,
    head: &Head,
    keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    value: &[u8],
    terms: Terms,
) -> (Question, Expect) {
    let arguments = match op {
        "gat" => 3,
        "touch" | "look" => 1,
        "delete" => 2,
        "cas" | "append" | "prepend" => 5,
        _ => 8,
    };
    array(out, 3 + keys.len() + arguments);
    bulk(out, b"EVALSHA");
    bulk(out, script().hex.as_bytes());
    number(out, keys.len() as i64);
    keys.for_each(|key| bulk(out, key));
    bulk(out, op.as_bytes());
    match op {
        "gat" => {
            Expiry::of(head.expiry).write_for_script(out, b"PERSIST");
            return (Question::Values, Expect::List);
        }
        "touch" | "look" => return (Question::Script, Expect::One),
        _ => unique(out, head),
    }
    match op {
        "cas" => {
            sealed(out, &Prefix::of(head.flags, value), value);
            Expiry::of(head.expiry).write_for_script(out, b"");
        }
        "append" | "prepend" => {
            bulk(out, value);
            number(out, i64::from(terms.item_len_max));
            bulk(out, if head.asked.has(RequestFlags::CAS) && !head.quiet { b"1" } else { b"" });
        }
        "incr" | "decr" => write_count(out, head),
        _ => {}
    }
    (Question::Script, Expect::One)
}

/// Appends the number that the value must have, as the script computes it. Empty for any.
fn unique(out: &mut Vec<u8>, head: &Head) {
    match head.cas {
        Some(cas) => bulk(out, format!("{cas:016x}").as_bytes()),
        None => bulk(out, b""),
    }
}

fn write_count(out: &mut Vec<u8>, head: &Head) {
    let mut buffer = itoa::Buffer::new();
    bulk(out, buffer.format(head.delta).as_bytes());
    let initial = head.vivify.map(|_| buffer.format(head.initial).as_bytes());
    bulk(out, initial.unwrap_or_default());
    // A meta command's T applies to an existing item and to a new one as well.
    let given = head.asked.has(RequestFlags::EXPIRY).then(|| Expiry::of(head.expiry));
    match given {
        Some(expiry) => expiry.write_for_script(out, b""),
        None => Expiry::Never.write_for_script(out, b"KEEPTTL"),
    }
    given.unwrap_or(Expiry::of(head.vivify.unwrap_or(0))).write_for_script(out, b"");
}

/// The script that a server must have loaded.
pub struct Script {
    /// Its text.
    pub body: Arc<[u8]>,
    /// Its digest.
    pub digest: Digest,
    hex: String,
}

/// Returns the script for everything for which Redis has no command.
pub fn script() -> &'static Script {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
        let body = include_bytes!("item.lua");
        let digest = Digest::of(body);
        Script { body: body.as_slice().into(), digest, hex: digest.hex() }
    });
    &SCRIPT
}

#[cfg(test)]
mod tests;
