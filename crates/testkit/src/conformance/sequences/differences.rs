//! What a system may answer otherwise than the bare server, and why.

use std::fmt::Write;

use super::Reach;
use super::generate::Words;
use super::play::is_verb;
use super::wire::Frame;
use crate::value::Value;

/// What one connection got: a frame on each side, or all frames of a step.
pub(super) struct Seen<'a> {
    pub reach: Reach,
    /// What was asked, an open transaction from its MULTI on.
    pub requests: &'a [Words],
    pub wanted: &'a [Frame],
    pub got: &'a [Frame],
}

/// A difference that is known.
#[derive(Clone, Copy)]
pub struct Difference {
    /// What the table of differences calls it.
    pub name: &'static str,
    /// Where it is seen.
    pub systems: &'static [Reach],
    /// What differs, and why.
    pub reason: &'static str,
    /// Whether the two sides hold different keys after it.
    pub ends: bool,
    /// Whether even its example meets it by chance only.
    pub is_by_chance: bool,
    /// A sequence that meets it.
    pub example: &'static [&'static str],
    /// Whether this is it.
    pub(super) matches: fn(&Seen) -> bool,
}

impl std::fmt::Debug for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

const POOLS: &[Reach] = &[Reach::One, Reach::Four];
const ALL: &[Reach] = &[Reach::Store, Reach::One, Reach::Four];

/// Requests whose replies have no order, or that of the server's own seed.
const UNORDERED: &[&str] = &[
    "SMEMBERS",
    "SINTER",
    "SUNION",
    "SDIFF",
    "SPOP",
    "SRANDMEMBER",
    "HGETALL",
    "HKEYS",
    "HVALS",
    "HRANDFIELD",
    "KEYS",
    "FUNCTION",
    "PUBSUB",
    "DUMP",
];

/// What is said of a command whose keys cannot be told.
const KEYS_UNKNOWN: &[&str] = &[
    "syntax error",
    "not an integer",
    "Bad number of keys",
    "Number of keys can't be",
    "at least 1 input key",
    "numkeys should be",
    "Unbalanced",
];

/// Every one of them.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "order of what has none",
        systems: ALL,
        reason: "Elements of sets, keys, channels and functions come in an order that Redis \
                 draws anew in every process.",
        ends: false,
        is_by_chance: false,
        example: &["0: MSET s0 1 s1 1 s2 1 l0 1 l1 1 l2 1", "0: KEYS *"],
        matches: |seen| {
            let in_its_own = |words: &Words| words.iter().any(|word| word == b"nosort");
            (seen.asks_any(UNORDERED) || seen.requests.iter().any(in_its_own))
                && seen.values_match(|wanted, got| {
                    sorted(wanted) == sorted(got) || (seen.asks("DUMP") && same_len(wanted, got))
                })
        },
    },
    Difference {
        name: "order of unsubscribing from everything",
        systems: ALL,
        reason: "UNSUBSCRIBE without names confirms channels in the order they were subscribed in; \
                 Redis has them in the order of a hash table.",
        ends: false,
        is_by_chance: false,
        example: &["0: SUBSCRIBE a b c d e f g", "0: UNSUBSCRIBE"],
        matches: |seen| {
            seen.asks_any(&["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"])
                && without_names(seen.wanted) == without_names(seen.got)
        },
    },
    Difference {
        name: "local in MULTI",
        systems: POOLS,
        reason: "What is about the client's connection to Keyway (CLIENT, SELECT, HELLO, SUBSCRIBE), \
                 about all servers (KEYS, SCAN, SCRIPT LOAD, FLUSHALL) or refused anyway is refused \
                 inside MULTI, for a server runs the transaction; EXEC then answers EXECABORT.",
        ends: true,
        is_by_chance: false,
        example: &["0: MULTI", "0: SELECT 1"],
        matches: |seen| {
            seen.asks("MULTI")
                && seen.is_of_pool()
                && seen.is_instead_of(|wanted, got| {
                    *wanted == Value::simple("QUEUED") && got.error_text().contains("is refused")
                })
        },
    },
    Difference {
        name: "channels in MULTI",
        systems: &[Reach::Store],
        reason: "What changes or tells what the client is sent (SUBSCRIBE, PUBSUB, CLIENT REPLY, CLIENT \
                 TRACKING) is refused inside MULTI; EXEC then answers EXECABORT.",
        ends: true,
        is_by_chance: false,
        example: &["0: MULTI", "0: SUBSCRIBE c0"],
        matches: |seen| {
            seen.asks("MULTI")
                && seen.reach == Reach::Store
                && seen.is_instead_of(|wanted, got| {
                    *wanted == Value::simple("QUEUED")
                        && got.error_text().contains("is refused inside MULTI")
                })
        },
    },
    Difference {
        name: "chance",
        systems: ALL,
        reason: "RANDOMKEY answers with any key; of several servers it may ask one after another, \
                 and see what was pipelined behind it.",
        ends: false,
        is_by_chance: false,
        example: &["0: MSET {t}s0 1 {t}s1 1 {t}s2 1 {t}l1 1 {t}l2 1 {t}l0 1", "0: RANDOMKEY"],
        matches: |seen| {
            seen.asks("RANDOMKEY")
                && seen.values_match(|wanted, got| {
                    is_any_key(wanted)
                        && is_any_key(got)
                        && (seen.reach == Reach::Four || !(is_null(wanted) || is_null(got)))
                })
        },
    },
    Difference {
        name: "refused",
        systems: POOLS,
        reason: "Commands that concern one server, or keys that a request does not name, are refused \
                 before their arguments are looked at; [commands.md](commands.md) lists them.",
        ends: true,
        is_by_chance: false,
        example: &["0: SORT {t}l0 BY weight_*"],
        matches: |seen| {
            seen.is_of_pool()
                && seen.is_instead_of(|_, got| got.error_text().contains(" is refused: "))
        },
    },
    Difference {
        name: "keys that cannot be told",
        systems: POOLS,
        reason: "A command whose keys cannot be told from its arguments is refused at once, in Redis's \
                 words for it: inside MULTI too, where Redis says QUEUED, and before anything else that \
                 is wrong with it is found.",
        ends: true,
        is_by_chance: false,
        example: &["0: MULTI", "0: EVAL return(1) odd"],
        matches: |seen| {
            seen.is_of_pool()
                && seen.is_instead_of(|wanted, got| {
                    let text = got.error_text();
                    (wanted.is_error() || *wanted == Value::simple("QUEUED"))
                        && KEYS_UNKNOWN.iter().any(|words| text.contains(words))
                })
        },
    },
    Difference {
        name: "MSET with a key and no value",
        systems: ALL,
        reason: "It is refused when it is read, while a subscriber of RESP2 or inside MULTI too, where \
                 Redis says first that it cannot be executed, or QUEUED.",
        ends: true,
        is_by_chance: false,
        example: &["0: SUBSCRIBE c0", "0: MSET s0 1 s1"],
        matches: |seen| {
            seen.asks_any(&["MSET", "MSETNX"])
                && seen.is_refused_with("ERR wrong number of arguments for 'mset")
        },
    },
    Difference {
        name: "WATCH and HELLO",
        systems: POOLS,
        reason: "A watch does not outlive a change of protocol, as each has connections of its own; \
                 EXEC then answers null and the client tries again.",
        ends: true,
        is_by_chance: false,
        example: &["0: WATCH {t}s0;HELLO 3;MULTI;SET {t}s0 1;EXEC"],
        matches: |seen| {
            seen.is_of_pool()
                && ["WATCH", "HELLO", "EXEC"].into_iter().all(|verb| seen.asks(verb))
                && seen
                    .is_instead_of(|wanted, got| matches!(wanted, Value::Array(_)) && is_null(got))
        },
    },
    Difference {
        name: "WATCH unheard",
        systems: POOLS,
        reason: "Nothing tells when a WATCH behind CLIENT REPLY OFF or SKIP began, so its EXEC answers \
                 null and the client tries again.",
        ends: true,
        is_by_chance: false,
        example: &["0: CLIENT REPLY SKIP;WATCH {t}s0;MULTI;SET {t}s0 1;EXEC"],
        matches: |seen| {
            let is_silent = |words: &Words| words.len() == 3 && words[1] == b"REPLY";
            seen.is_of_pool()
                && seen.requests.iter().any(is_silent)
                && ["WATCH", "EXEC"].into_iter().all(|verb| seen.asks(verb))
                && seen.is_instead_of(|wanted, got| {
                    matches!(wanted, Value::Array(_))
                        && matches!(got, Value::NilArray | Value::Null)
                })
        },
    },
    Difference {
        name: "scripts that are known",
        systems: POOLS,
        reason: "What was loaded through Keyway, by whichever client, is loaded into a server that \
                 lacks it ahead of EVALSHA, instead of NOSCRIPT. A server that was emptied by others is \
                 found out by its NOSCRIPT: the script is run again, unless its client has sent \
                 something behind it, which would be overtaken; then NOSCRIPT is the reply.",
        ends: true,
        is_by_chance: true,
        example: &[
            "0: EVALSHA 07a09e43d38dbd624d42506ddd6439b6e8c5f3c1 1 {t}s0 v;INCR {t}s0;SCRIPT LOAD return{KEYS[1],#ARGV}",
        ],
        matches: |seen| {
            seen.is_of_pool()
                && seen.is_instead_of(|wanted, got| {
                    let is_unknown = |value: &Value| value.error_text().starts_with("NOSCRIPT");
                    is_unknown(wanted) && !is_unknown(got)
                })
        },
    },
    Difference {
        name: "messages inside EXEC",
        systems: ALL,
        reason: "In RESP3, Redis 7.0 puts the message of a client that publishes to itself in a \
                 transaction among the elements of EXEC's reply, one of which then comes behind it; \
                 pools and the store send the message on its own.",
        ends: false,
        is_by_chance: false,
        example: &["0: HELLO 3", "0: SUBSCRIBE c0", "0: MULTI", "0: PUBLISH c0 v", "0: EXEC"],
        matches: |seen| {
            seen.asks("MULTI")
                && seen.asks_any(&["PUBLISH", "SPUBLISH"])
                && flat(seen.wanted) == flat(seen.got)
        },
    },
    Difference {
        name: "CROSSSLOT",
        systems: &[Reach::Four],
        reason: "The keys of one command, transaction or script must be on one server; MGET, MSET, \
                 DEL, UNLINK, EXISTS and TOUCH outside transactions are split instead. A hash tag \
                 keeps keys together.",
        ends: true,
        is_by_chance: false,
        example: &["0: SUNION e0 e1 e2 s0 s1"],
        matches: |seen| seen.is_refused_with("CROSSSLOT"),
    },
    Difference {
        name: "client ids",
        systems: ALL,
        reason: "HELLO tells the client's id, which each side counts for itself.",
        ends: false,
        is_by_chance: false,
        example: &["0: CLIENT NO-EVICT on", "1: HELLO 3"],
        matches: |seen| {
            seen.asks("HELLO")
                && seen.values_match(|wanted, got| {
                    matches!((wanted, got), (Value::Integer(_), Value::Integer(_)))
                })
        },
    },
    Difference {
        name: "receivers of PUBLISH",
        systems: POOLS,
        reason: "A pool's server counts one receiver for each worker that has subscribed there, \
                 however many clients it has done so for.",
        ends: false,
        is_by_chance: false,
        example: &["0: SUBSCRIBE c0", "1: SUBSCRIBE c0", "2: PUBLISH c0 v"],
        matches: |seen| {
            seen.is_of_pool()
                && seen.asks_any(&["PUBLISH", "SPUBLISH"])
                && seen.values_match(|wanted, got| {
                    matches!((wanted, got), (Value::Integer(wanted), Value::Integer(got))
                        if (0..=9).contains(wanted) && (0..=9).contains(got))
                })
        },
    },
    Difference {
        name: "order of messages",
        systems: ALL,
        reason: "Messages come in the order they were published in, by channel: channels of several \
                 servers have none between them (a store's subscribers all hear one order), a message that fits several patterns is repeated \
                 in the order that Redis's own hash table has them, and who publishes to itself may \
                 get the reply before the message.",
        ends: false,
        is_by_chance: false,
        example: &["0: HELLO 3", "0: SUBSCRIBE c0", "0: PUBLISH c0 v"],
        matches: |seen| seen.in_any_order(seen.wanted) == seen.in_any_order(seen.got),
    },
    Difference {
        name: "unsubscribing behind PUBLISH",
        systems: POOLS,
        reason: "A client that publishes to itself and unsubscribes in the same pipeline may miss \
                 the message: it comes from the server over another connection than the reply.",
        ends: true,
        is_by_chance: true,
        example: &["0: HELLO 3", "0: SUBSCRIBE c0", "0: PUBLISH c0 v;UNSUBSCRIBE c0"],
        matches: |seen| {
            let (wanted, got) = (seen.in_any_order(seen.wanted), seen.in_any_order(seen.got));
            seen.is_of_pool()
                && seen.asks_any(&["PUBLISH", "SPUBLISH"])
                && seen.asks_any(&["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "RESET", "QUIT"])
                && (wanted.replies, wanted.names) == (got.replies, got.names)
                && got.messages.iter().all(|message| wanted.messages.contains(message))
        },
    },
];

/// What the sequences do not meet: its name, where it is seen, and why.
const APART: &[(&str, &str, &str)] = &[
    (
        "keys that a script does not name",
        "several servers",
        "A script runs on the server of the keys that EVAL or FCALL names and sees no other server's \
         keys: what it reads is missing, and what it writes is found by nobody else. Redis in its \
         cluster mode has the same rule.",
    ),
    (
        "PUBLISH from a script",
        "several servers",
        "It happens on the script's server, and reaches who has subscribed there: every subscriber \
         of a channel with the hash tag of the script's keys, and every pattern; others by chance.",
    ),
    (
        "CLIENT PAUSE",
        "store, pools",
        "It holds up the clients of one pool, in one Keyway process; other pools and the servers go on. \
         With WRITE, transactions that only read and SCRIPT LOAD are held as well. CLIENT UNPAUSE is \
         never held, where Redis holds it while everything is paused.",
    ),
    (
        "FLUSHALL and CLIENT TRACKING",
        "several servers",
        "A client that is tracked is told to forget everything once by each server that it has read \
         from; Redis tells it once.",
    ),
    (
        "a server leaves or comes back",
        "pools",
        "A command that blocks is ended with UNBLOCKED when its keys live elsewhere now, and EXEC \
         with EXECABORT; nothing was executed. When its own server dies the error says that it may \
         have been.",
    ),
    (
        "a client that closes its own side",
        "pools",
        "What it sent before is answered. A command that blocks is answered with UNBLOCKED and not \
         begun; if it waits already the client is closed. Redis closes the client at once.",
    ),
    (
        "a snapshot that fails",
        "store",
        "Writes go on. Redis refuses them with MISCONF while `stop-writes-on-bgsave-error` is on, its \
         default. INFO tells of the failure in both (`rdb_last_bgsave_status`).",
    ),
    (
        "room for MULTI",
        "pools",
        "A command is answered with OOM instead of QUEUED when those of all clients that wait for \
         EXEC would take more than `transactions_len_max`, and with an error when those of its own \
         would take more than half of `link_output_len_max`; EXEC then answers EXECABORT.",
    ),
    (
        "connections of servers",
        "pools",
        "WATCH, commands that block, CLIENT TRACKING and the first subscription need another \
         connection to the server: `max number of clients reached` may be the answer to them.",
    ),
];

impl Seen<'_> {
    /// The replies, with what a pool's PUBLISH counts left out; the messages by
    /// channel, each with its patterns sorted; and the names that were
    /// unsubscribed from.
    fn in_any_order(&self, frames: &[Frame]) -> InAnyOrder {
        let mut order = InAnyOrder::default();
        let (values, names) = without_names(frames);
        order.names = names;
        for value in values {
            match (channel_of(&value), value) {
                (Some(channel), value) => order.messages.push((channel, value)),
                (None, Value::Integer(0..=9)) if self.is_of_pool() => {
                    order.replies.push(Value::Integer(0));
                }
                (None, value) if self.asks("RANDOMKEY") && is_any_key(&value) => {
                    order.replies.push(Value::simple("any key"));
                }
                (None, value) if self.asks("HELLO") && is_greeting(&value) => {
                    order.replies.push(Value::simple("a greeting"));
                }
                (None, value) if self.asks_any(UNORDERED) => order.replies.push(sorted(&value)),
                (None, value) => order.replies.push(value),
            }
        }
        order.messages.sort_by(|one, other| one.0.cmp(&other.0));
        let is_same = |one: &(Vec<u8>, Value), other: &(Vec<u8>, Value)| {
            one.0 == other.0 && one.1.array().last() == other.1.array().last()
        };
        order.messages.chunk_by_mut(is_same).for_each(<[_]>::sort);
        order
    }
}

/// What a connection got, without the orders that may differ.
#[derive(Debug, Default, PartialEq, Eq)]
struct InAnyOrder {
    replies: Vec<Value>,
    messages: Vec<(Vec<u8>, Value)>,
    names: Vec<Vec<u8>>,
}

/// The frames, with the names in confirmations of having unsubscribed sorted
/// among themselves; messages apart.
fn without_names(frames: &[Frame]) -> (Vec<Value>, Vec<Vec<u8>>) {
    let mut names = Vec::new();
    let strip = |frame: &Frame| match &frame.value {
        Value::Array(parts) | Value::Push(parts)
            if parts.len() == 3 && parts[0].bytes().ends_with(b"unsubscribe") =>
        {
            names.push(parts[1].bytes().to_vec());
            Value::Array(vec![parts[0].clone(), parts[2].clone()])
        }
        other => other.clone(),
    };
    let values = frames.iter().map(strip).collect();
    names.sort();
    (values, names)
}

fn is_any_key(value: &Value) -> bool {
    is_null(value) || matches!(value, Value::Bulk(_))
}

fn is_null(value: &Value) -> bool {
    matches!(value, Value::Nil | Value::Null)
}

fn same_len(wanted: &Value, got: &Value) -> bool {
    matches!((wanted, got), (Value::Bulk(wanted), Value::Bulk(got)) if wanted.len() == got.len())
}

/// Every part that has no parts, a pool's counts left out, in one order.
fn flat(frames: &[Frame]) -> Vec<Value> {
    fn visit(value: &Value, out: &mut Vec<Value>) {
        match value {
            Value::Array(parts) | Value::Push(parts) => {
                parts.iter().for_each(|part| visit(part, out));
            }
            Value::Integer(0..=9) => out.push(Value::Integer(0)),
            other => out.push(other.clone()),
        }
    }
    let mut out = Vec::new();
    frames.iter().for_each(|frame| visit(&frame.value, &mut out));
    out.sort();
    out
}

fn is_greeting(value: &Value) -> bool {
    match value {
        Value::Map(pairs) => pairs.first().is_some_and(|(key, _)| key.bytes() == b"server"),
        Value::Array(parts) => parts.first().is_some_and(|part| part.bytes() == b"server"),
        _ => false,
    }
}

/// The channel of a message.
fn channel_of(value: &Value) -> Option<Vec<u8>> {
    let (Value::Array(parts) | Value::Push(parts)) = value else { return None };
    match (parts.first()?.bytes(), &parts[1..]) {
        (b"message" | b"smessage", [channel, _]) | (b"pmessage", [_, channel, _]) => {
            Some(channel.bytes().to_vec())
        }
        _ => None,
    }
}

impl Seen<'_> {
    fn asks(&self, verb: &str) -> bool {
        self.requests.iter().any(|words| is_verb(words, verb))
    }

    fn asks_any(&self, verbs: &[&str]) -> bool {
        verbs.iter().any(|verb| self.asks(verb))
    }

    /// One frame on each side, and these values where the two part.
    fn values_match(&self, mut is_same: impl FnMut(&Value, &Value) -> bool) -> bool {
        match (self.wanted, self.got) {
            ([wanted], [got]) => parts_match(&wanted.value, &got.value, &mut is_same),
            _ => false,
        }
    }

    fn is_of_pool(&self) -> bool {
        self.reach != Reach::Store
    }

    /// One frame on each side that part in this way.
    fn is_instead_of(&self, is_so: impl FnOnce(&Value, &Value) -> bool) -> bool {
        match (self.wanted, self.got) {
            ([wanted], [got]) => is_so(&wanted.value, &got.value),
            _ => false,
        }
    }

    /// One frame, whether or not the bare server waits instead.
    fn is_refused_with(&self, start: &str) -> bool {
        match (self.wanted, self.got) {
            ([_] | [], [got]) => got.value.error_text().starts_with(start),
            _ => false,
        }
    }
}

/// Whether two values are equal but for parts that are the same in this sense.
fn parts_match(
    wanted: &Value,
    got: &Value,
    is_same: &mut impl FnMut(&Value, &Value) -> bool,
) -> bool {
    if wanted == got || is_same(wanted, got) {
        return true;
    }
    match (wanted, got) {
        (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => {
            wanted.iter().zip(got).all(|(wanted, got)| parts_match(wanted, got, is_same))
        }
        (Value::Map(wanted), Value::Map(got)) if wanted.len() == got.len() => {
            wanted.iter().zip(got).all(|(wanted, got)| {
                parts_match(&wanted.0, &got.0, is_same) && parts_match(&wanted.1, &got.1, is_same)
            })
        }
        _ => false,
    }
}

/// The value with the elements of everything in it in one order.
fn sorted(value: &Value) -> Value {
    let all = |items: &[Value]| {
        let mut items: Vec<Value> = items.iter().map(sorted).collect();
        items.sort();
        items
    };
    match value {
        Value::Array(items) => Value::Array(all(items)),
        Value::Set(items) => Value::Set(all(items)),
        Value::Map(pairs) => {
            let mut pairs: Vec<_> =
                pairs.iter().map(|(key, value)| (sorted(key), sorted(value))).collect();
            pairs.sort();
            Value::Map(pairs)
        }
        other => other.clone(),
    }
}

/// The table as a page of the documentation.
pub fn document() -> String {
    let mut text = String::from(
        "# Differences from Redis\n\n<!-- Generated from crates/testkit/src/conformance/sequences/differences.rs \
         by `make differences`. -->\n\nGenerated sequences of requests over several connections are played against a \
         bare redis-server and\nagainst the embedded store and sharded pools of one and of four servers, in RESP2 and \
         RESP3, and every\nreply and message is compared byte for byte. This is all that may differ; each entry has an \
         example, and\na test fails when an example no longer differs (but where that is a matter of chance) or when anything\nelse does. `make oracle` plays as many sequences as wanted, from any seed.\n\n\
         | difference | store | one server | four servers | what and why |\n| --- | --- | --- | --- | --- |\n",
    );
    for difference in DIFFERENCES {
        let mark = |reach: Reach| if difference.systems.contains(&reach) { "yes" } else { "" };
        let Difference { name, reason, .. } = difference;
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let [store, one, four] = [Reach::Store, Reach::One, Reach::Four].map(mark);
        let _ = writeln!(text, "| {name} | {store} | {one} | {four} | {reason} |");
    }
    text.push_str(
        "\n## Not in the sequences\n\nIt takes a server that fails, several pools, or a client that \
         closes its own side to meet these; other tests do.\n\n\
         | difference | where | what and why |\n| --- | --- | --- |\n",
    );
    for (name, place, reason) in APART {
        let _ = writeln!(text, "| {name} | {place} | {reason} |");
    }
    text
}
