//! Commands that are newer than the described server. They are maintained by hand, in the form in
//! which a server describes its own. If the server already has a command, its own description is
//! used.

use crate::reply::Reply;

/// A command of later versions of Redis.
struct Newer {
    name: &'static str,
    arity: i64,
    since: &'static str,
    /// Flags without `write` or `readonly`, which follow from `writes`.
    flags: &'static [&'static str],
    writes: bool,
    /// What the command does with the key.
    key_flags: &'static [&'static str],
    key_notes: &'static str,
    tips: &'static [&'static str],
    summary: &'static str,
    /// The arguments between the key and FIELDS.
    arguments: &'static [Part],
    /// The arguments for each field.
    field: Field,
}

/// How the fields after FIELDS are given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    NameAndValue,
}

/// An argument, or several of which one may be chosen.
enum Part {
    Required(&'static str, &'static str),
    OneOf(&'static str, &'static [(&'static str, &'static str, &'static str)]),
}

const INTEGER: &str = "integer";
const UNIX_TIME: &str = "unix-time";
const CONDITION: Part = Part::OneOf(
    "condition",
    &[
        ("nx", "pure-token", "NX"),
        ("xx", "pure-token", "XX"),
        ("gt", "pure-token", "GT"),
        ("lt", "pure-token", "LT"),
    ],
);
const EXISTENCE: Part =
    Part::OneOf("condition", &[("fnx", "pure-token", "FNX"), ("fxx", "pure-token", "FXX")]);

macro_rules! expiration {
    ($name:literal, $token:literal) => {
        Part::OneOf(
            "expiration",
            &[
                ("seconds", INTEGER, "EX"),
                ("milliseconds", INTEGER, "PX"),
                ("unix-time-seconds", UNIX_TIME, "EXAT"),
                ("unix-time-milliseconds", UNIX_TIME, "PXAT"),
                ($name, "pure-token", $token),
            ],
        )
    };
}

const fn expire(name: &'static str, summary: &'static str, arguments: &'static [Part]) -> Newer {
    Newer {
        name,
        arity: -6,
        since: "7.4.0",
        flags: &["fast"],
        writes: true,
        key_flags: &["RW", "update"],
        key_notes: "",
        tips: &[],
        summary,
        arguments,
        field: Field::Name,
    }
}

const fn tell(name: &'static str, tips: &'static [&'static str], summary: &'static str) -> Newer {
    Newer {
        name,
        arity: -5,
        since: "7.4.0",
        flags: &["fast"],
        writes: false,
        key_flags: &["RO", "access"],
        key_notes: "",
        tips,
        summary,
        arguments: &[],
        field: Field::Name,
    }
}

const NEWER: [Newer; 12] = [
    expire(
        "hexpire",
        "Set in how many seconds fields of a hash expire",
        &[Part::Required("seconds", INTEGER), CONDITION],
    ),
    expire(
        "hexpireat",
        "Set the Unix time in seconds at which fields of a hash expire",
        &[Part::Required("unix-time-seconds", UNIX_TIME), CONDITION],
    ),
    expire(
        "hpexpire",
        "Set in how many milliseconds fields of a hash expire",
        &[Part::Required("milliseconds", INTEGER), CONDITION],
    ),
    expire(
        "hpexpireat",
        "Set the Unix time in milliseconds at which fields of a hash expire",
        &[Part::Required("unix-time-milliseconds", UNIX_TIME), CONDITION],
    ),
    tell("hexpiretime", &[], "Tell the Unix time in seconds at which fields of a hash expire"),
    tell(
        "hpexpiretime",
        &[],
        "Tell the Unix time in milliseconds at which fields of a hash expire",
    ),
    tell("httl", VARIES, "Tell in how many seconds fields of a hash expire"),
    tell("hpttl", VARIES, "Tell in how many milliseconds fields of a hash expire"),
    Newer { arity: -5, ..expire("hpersist", "Let fields of a hash expire no more", &[]) },
    Newer {
        arity: -5,
        since: "8.0.0",
        key_flags: &["RW", "access", "update"],
        key_notes: "RW and UPDATE because it changes the TTL",
        ..expire(
            "hgetex",
            "Get fields of a hash and set, or take away, when they expire",
            &[expiration!("persist", "PERSIST")],
        )
    },
    Newer {
        since: "8.0.0",
        flags: &["denyoom", "fast"],
        field: Field::NameAndValue,
        ..expire(
            "hsetex",
            "Set fields of a hash, and when they expire",
            &[EXISTENCE, expiration!("keepttl", "KEEPTTL")],
        )
    },
    Newer {
        arity: -5,
        since: "8.0.0",
        key_flags: &["RW", "access", "delete"],
        ..expire("hgetdel", "Get fields of a hash and delete them", &[])
    },
];

/// The tips of a command whose reply is different each time.
const VARIES: &[&str] = &["nondeterministic_output"];

/// Returns the commands that `is_known` does not know. Each is an element of COMMAND and one of
/// COMMAND DOCS.
pub fn commands(is_known: impl Fn(&str) -> bool) -> impl Iterator<Item = (Reply, Reply)> {
    let hotkeys = (!is_known(HOTKEYS)).then(hotkeys);
    let others = NEWER.iter().filter(move |newer| !is_known(newer.name));
    others.map(|it| (it.info(), it.docs())).chain(hotkeys)
}

const HOTKEYS: &str = "hotkeys";

/// Returns HOTKEYS. Its subcommands are words, because one right covers all of them: to see keys of
/// others.
fn hotkeys() -> (Reply, Reply) {
    let info = array([
        text(HOTKEYS),
        Reply::Integer(-2),
        texts(&["admin", "loading", "stale"]),
        Reply::Integer(0),
        Reply::Integer(0),
        Reply::Integer(0),
        texts(&["@admin", "@slow", "@dangerous"]),
        texts(&["request_policy:all_nodes", "nondeterministic_output"]),
        array([]),
        array([]),
    ]);
    let docs = map([
        ("summary", text("Tell which keys are asked for most, and which have large values")),
        ("since", text("8.6.0")),
        ("group", text("server")),
        ("complexity", text("O(N) where N is the number of keys that are counted")),
        ("arguments", array([map([("name", text("subcommand")), ("type", text("string"))])])),
    ]);
    (info, docs)
}

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

fn array(items: impl IntoIterator<Item = Reply>) -> Reply {
    Reply::Array(items.into_iter().collect())
}

fn texts(words: &[&str]) -> Reply {
    array(words.iter().map(|word| text(word)))
}

fn map<const PAIRS: usize>(pairs: [(&str, Reply); PAIRS]) -> Reply {
    array(pairs.into_iter().flat_map(|(key, value)| [text(key), value]))
}

impl Newer {
    fn info(&self) -> Reply {
        let mode = if self.writes { "write" } else { "readonly" };
        let category = if self.writes { "@write" } else { "@read" };
        let flags = [&[mode], self.flags].concat();
        let one_key = map([
            ("flags", texts(self.key_flags)),
            ("notes", text(self.key_notes)),
            (
                "begin_search",
                map([("type", text("index")), ("spec", map([("index", Reply::Integer(1))]))]),
            ),
            (
                "find_keys",
                map([
                    ("type", text("range")),
                    (
                        "spec",
                        map([
                            ("lastkey", Reply::Integer(0)),
                            ("keystep", Reply::Integer(1)),
                            ("limit", Reply::Integer(0)),
                        ]),
                    ),
                ]),
            ),
        ]);
        array([
            text(self.name),
            Reply::Integer(self.arity),
            texts(&flags),
            Reply::Integer(1),
            Reply::Integer(1),
            Reply::Integer(1),
            texts(&[category, "@hash", "@fast"]),
            texts(self.tips),
            array([one_key]),
            array([]),
        ])
    }

    fn docs(&self) -> Reply {
        let key = map([
            ("name", text("key")),
            ("type", text("key")),
            ("key_spec_index", Reply::Integer(0)),
        ]);
        let parts = self.arguments.iter().map(Part::describe);
        let arguments = [key].into_iter().chain(parts).chain([self.field.describe()]);
        map([
            ("summary", text(self.summary)),
            ("since", text(self.since)),
            ("group", text("hash")),
            ("complexity", text("O(N) where N is the number of fields")),
            ("arguments", array(arguments)),
        ])
    }
}

impl Part {
    fn describe(&self) -> Reply {
        match self {
            Part::Required(name, kind) => map([("name", text(name)), ("type", text(kind))]),
            Part::OneOf(name, choices) => {
                let choice = |(name, kind, token): &(&str, &str, &str)| {
                    map([("name", text(name)), ("type", text(kind)), ("token", text(token))])
                };
                map([
                    ("name", text(name)),
                    ("type", text("oneof")),
                    ("flags", texts(&["optional"])),
                    ("arguments", array(choices.iter().map(choice))),
                ])
            }
        }
    }
}

impl Field {
    fn describe(self) -> Reply {
        let named = |name, kind| map([("name", text(name)), ("type", text(kind))]);
        let each = match self {
            Field::Name => map([
                ("name", text("field")),
                ("type", text("string")),
                ("flags", texts(&["multiple"])),
            ]),
            Field::NameAndValue => map([
                ("name", text("data")),
                ("type", text("block")),
                ("flags", texts(&["multiple"])),
                ("arguments", array([named("field", "string"), named("value", "string")])),
            ]),
        };
        map([
            ("name", text("fields")),
            ("type", text("block")),
            ("token", text("FIELDS")),
            ("arguments", array([named("numfields", "integer"), each])),
        ])
    }
}
