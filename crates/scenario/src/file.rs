//! From a file's text to a [`Scenario`]: every mistake at once, each with its line.

use crate::error::{Error, FileError};
use crate::model::{
    Item, Scaled, Scenario, ServerKind, Servers, Share, System, SystemKind, Timing, Work,
};
use crate::places;
use crate::reader::{Reader, Table, instead};
use keyway_load::{Command, Pattern, Protocol, SUITE, parse_mix, parse_template};
use std::collections::BTreeSet;
use std::fmt::Display;
use toml::de::DeTable;

const TOP: &[&str] = &[
    "title", "table", "baseline", "peer", "seconds", "warm_up", "rounds", "notes", "full",
    "servers", "system", "item",
];
const FULL: &[&str] = &["seconds", "warm_up", "rounds"];
const SERVERS: &[&str] = &["name", "kind", "count", "replicas"];
const SYSTEM: &[&str] = &[
    "name",
    "command",
    "files",
    "version",
    "instances",
    "address",
    "direct",
    "channel",
    "protocol",
    "share",
    "role",
    "install",
];
const ITEM: &[&str] = &[
    "id",
    "title",
    "group",
    "mix",
    "suite",
    "template",
    "read_write",
    "packet_len",
    "senders",
    "threads",
    "connections",
    "size",
    "pipeline",
    "keys",
    "key_prefix",
    "key_digits",
    "pattern",
    "expiry",
    "calls",
    "fill",
    "nodes",
    "leaves_out",
];

/// The longest name: tables have many columns.
const NAME_LEN_MAX: usize = 64;

impl Scenario {
    /// Reads a scenario that is run by `name`; mistakes are told of the file `path`.
    ///
    /// # Errors
    /// [`Error::File`] with every mistake.
    pub fn parse(name: &str, path: &str, text: &str) -> Result<Scenario, Error> {
        let (document, syntax) = DeTable::parse_recoverable(text);
        let reader = Reader::new(path, text);
        for error in &syntax {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            reader.wrong_at(at, error.message().replace('\n', ", "), "this is no TOML");
        }
        let scenario = read(name, &reader.top(document.get_ref(), TOP));
        let errors: Vec<FileError> = reader.errors();
        // What a line that is no TOML was meant to say is not known to be missing.
        match errors.first() {
            None => Ok(scenario),
            Some(_) if syntax.is_empty() => Err(Error::File(errors)),
            Some(_) => {
                let is_syntax = |error: &FileError| error.hint == "this is no TOML";
                Err(Error::File(errors.into_iter().filter(is_syntax).collect()))
            }
        }
    }
}

fn read(name: &str, top: &Table) -> Scenario {
    let usual = timing(top, Timing { seconds: 4.0, warm_up: 0.5, rounds: 3 });
    let full = Timing { seconds: 10.0, warm_up: 1.0, rounds: 5 };
    let full = top.table("full", FULL).map_or(full, |table| timing(&table, full));
    let servers = servers(top);
    let groups: Vec<&str> = servers.iter().map(|one| one.name.as_str()).collect();
    let systems = systems(top, &servers, &groups);
    let items = items(top, &systems);
    let named = |key: &str| {
        let name = top.text(key)?;
        one_of(top, key, &name, systems.iter().map(|one| one.name.as_str()));
        Some(name)
    };
    let (baseline, peer) = (named("baseline"), named("peer"));
    let is_bus = |system: &System| matches!(system.kind, SystemKind::Channel(_));
    if systems.iter().any(is_bus)
        != items.iter().any(|item| matches!(item.work, Work::Messages { .. }))
    {
        top.wrong(
            "item",
            "messages are for channels, and nothing else is",
            "give every item a packet_len and every system a channel, or none",
        );
    }
    Scenario {
        name: name.to_owned(),
        title: top.text("title").unwrap_or_else(|| name.to_owned()),
        table: top.text("table").unwrap_or_else(|| name.to_owned()),
        baseline,
        peer,
        usual,
        full,
        notes: top.texts("notes").unwrap_or_default(),
        servers,
        systems,
        items,
    }
}

fn timing(table: &Table, or: Timing) -> Timing {
    Timing {
        seconds: table.number("seconds", 0.05..=3600.0).unwrap_or(or.seconds),
        warm_up: table.number("warm_up", 0.0..=600.0).unwrap_or(or.warm_up),
        rounds: table.whole("rounds", 1..=100).map_or(or.rounds, |rounds| rounds as usize),
    }
}

/// Notes a word that is none of those that are known.
fn one_of<'k>(table: &Table, key: &str, word: &str, known: impl Iterator<Item = &'k str>) {
    let known: Vec<&str> = known.collect();
    if !known.contains(&word) {
        table.wrong(key, format!("{key} is \"{word}\""), instead(word, &known));
    }
}

/// A name that is not there yet, and that tables can show.
fn own_name(table: &Table, key: &str, seen: &mut BTreeSet<String>) -> String {
    let name = table.required(key);
    if !seen.insert(name.clone()) {
        table.wrong(key, format!("\"{name}\" is there twice"), "give each a name of its own");
    }
    if name.chars().any(char::is_control) || name.len() > NAME_LEN_MAX {
        let hint = format!("use at most {NAME_LEN_MAX} letters that can be seen");
        table.wrong(key, format!("{key} is no name"), hint);
    }
    name
}

/// The value of `key` as a `T`.
fn parsed<T: std::str::FromStr<Err: Display>>(table: &Table, key: &str) -> Option<T> {
    let text = table.text(key)?;
    text.parse().map_err(|why: T::Err| table.wrong(key, why.to_string(), "write one that is")).ok()
}

fn servers(top: &Table) -> Vec<Servers> {
    let mut seen = BTreeSet::new();
    let read = |table: Table| {
        let word = table.required("kind");
        let kind = ServerKind::NAMES.into_iter().find(|(name, _)| *name == word);
        if kind.is_none() && table.has("kind") {
            one_of(&table, "kind", &word, ServerKind::NAMES.iter().map(|(name, _)| *name));
        }
        let name = own_name(&table, "name", &mut seen);
        if matches!(name.as_str(), "port" | "file") || name.contains(['{', '}', ' ']) {
            table.wrong("name", "servers cannot be called so", "a word that names them");
        }
        Servers {
            name,
            kind: kind.map_or(ServerKind::Redis, |(_, kind)| kind),
            count: table.scaled("count").unwrap_or(Scaled::from(1)),
            replicas: table.scaled("replicas").unwrap_or(Scaled::from(0)),
        }
    };
    top.tables("servers", SERVERS).into_iter().map(read).collect()
}

fn systems(top: &Table, servers: &[Servers], groups: &[&str]) -> Vec<System> {
    let mut seen = BTreeSet::new();
    let tables = top.tables("system", SYSTEM);
    if tables.is_empty() {
        top.wrong("system", "no system is named", "write a [[system]] for each that is compared");
    }
    let read = |table: Table| System {
        name: own_name(&table, "name", &mut seen),
        kind: system_kind(&table, servers, groups),
        protocol: parsed(&table, "protocol").unwrap_or(Protocol::Resp2),
        share: match table.text("share").as_deref() {
            None | Some("keys") => Share::Keys,
            Some("turns") => Share::Turns,
            Some(other) => {
                one_of(&table, "share", other, ["keys", "turns"].into_iter());
                Share::Keys
            }
        },
        is_backend: match table.text("role").as_deref() {
            None | Some("tested") => false,
            Some("backend") => true,
            Some(other) => {
                one_of(&table, "role", other, ["tested", "backend"].into_iter());
                false
            }
        },
        install: table.text("install").unwrap_or_default(),
    };
    tables.into_iter().map(read).collect()
}

fn system_kind(table: &Table, servers: &[Servers], groups: &[&str]) -> SystemKind {
    let kinds = ["command", "address", "direct", "channel"];
    let given: Vec<&str> = kinds.into_iter().filter(|kind| table.has(kind)).collect();
    match given.as_slice() {
        ["command"] => command(table, groups),
        ["address"] => {
            let texts = table.texts("address").unwrap_or_default();
            let read = |text: &String| {
                let wrong =
                    |why: &dyn Display| table.wrong("address", why.to_string(), "host:port");
                text.parse().map_err(|why| wrong(&why)).ok()
            };
            SystemKind::Address(texts.iter().filter_map(read).collect())
        }
        ["direct"] => {
            let name = table.required("direct");
            one_of(table, "direct", &name, servers.iter().map(|one| one.name.as_str()));
            SystemKind::Direct(name)
        }
        [_] => parsed(table, "channel").map_or(SystemKind::Unstarted, SystemKind::Channel),
        [] => {
            if !table.has("install") {
                let hint = "give it a command, an address, direct or a channel; or install, which \
                            says how to have it measured";
                table.wrong("name", "nothing says where this system comes from", hint);
            }
            SystemKind::Unstarted
        }
        [_, second, ..] => {
            table.wrong(
                second,
                "a system comes from one place",
                format!("leave out all but one of {}", given.join(", ")),
            );
            SystemKind::Unstarted
        }
    }
}

fn command(table: &Table, groups: &[&str]) -> SystemKind {
    let words = table.texts("command").unwrap_or_default();
    if words.is_empty() {
        table.wrong("command", "a command has at least one word", "as [\"keyway\", \"serve\"]");
    }
    let files = table.pairs("files");
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    for name in &names {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            table.wrong("files", format!("\"{name}\" is no name of a file"), "without a directory");
        }
    }
    let texts = words.iter().map(|word| ("command", word));
    for (key, text) in texts.chain(files.iter().map(|(_, text)| ("files", text))) {
        for place in places::names(text) {
            if let Err((what, hint)) = places::check(place, groups, &names) {
                table.wrong(key, what, hint);
            }
        }
    }
    let version = table.texts("version").unwrap_or_default();
    let instances = table.scaled("instances").unwrap_or(Scaled::from(1));
    SystemKind::Command { words, files, version, instances }
}

fn items(top: &Table, systems: &[System]) -> Vec<Item> {
    let mut seen = BTreeSet::new();
    let tables = top.tables("item", ITEM);
    if tables.is_empty() {
        top.wrong("item", "no work is given", "write an [[item]] for each");
    }
    tables.into_iter().map(|table| item(&table, systems, &mut seen)).collect()
}

fn item(table: &Table, systems: &[System], seen: &mut BTreeSet<String>) -> Item {
    let leaves_out = table.pairs("leaves_out");
    for (name, _) in &leaves_out {
        one_of(table, "leaves_out", name, systems.iter().map(|one| one.name.as_str()));
    }
    let sizes = table.texts("size").unwrap_or_else(|| vec!["100".to_owned()]);
    let size = |text: &String| {
        text.parse().map_err(|why: String| table.wrong("size", why, "as \"100\" or \"8-128\"")).ok()
    };
    let id = own_name(table, "id", seen);
    let one = |number| vec![Scaled::from(number)];
    Item {
        title: table.text("title").unwrap_or_default(),
        id,
        group: table.text("group").unwrap_or_default(),
        work: work(table),
        threads: table.scaled_list("threads").unwrap_or_else(|| one(1)),
        connections: table.scaled_list("connections").unwrap_or_else(|| one(50)),
        sizes: sizes.iter().filter_map(size).collect(),
        pipeline: table.whole("pipeline", 1..=65_536).unwrap_or(1),
        keys: table.scaled("keys").unwrap_or(Scaled::from(100_000)),
        key_prefix: table.text("key_prefix").unwrap_or_else(|| "key:".to_owned()),
        key_digits: table.whole("key_digits", 0..=20).unwrap_or(12) as u8,
        pattern: pattern(table),
        expiry: table.whole("expiry", 1..=1_000_000_000),
        calls: table.whole("calls", 1..=1_000_000_000),
        is_filled: table.flag("fill").unwrap_or(false),
        nodes: table.whole("nodes", 1..=1000),
        leaves_out,
    }
}

fn pattern(table: &Table) -> Pattern {
    const NAMES: [(&str, Pattern); 6] = [
        ("random", Pattern::Random),
        ("sequential", Pattern::Sequential),
        ("parallel", Pattern::Parallel),
        ("gaussian", Pattern::Gaussian { median: None, deviation: None }),
        ("zipf", Pattern::Zipf { theta: 0.99 }),
        ("ycsb-zipf", Pattern::YcsbZipf),
    ];
    let Some(word) = table.text("pattern") else { return Pattern::Random };
    one_of(table, "pattern", &word, NAMES.iter().map(|(name, _)| *name));
    NAMES.iter().find(|(name, _)| *name == word).map_or(Pattern::Random, |(_, pattern)| *pattern)
}

fn work(table: &Table) -> Work {
    let kinds = ["mix", "suite", "template", "read_write", "packet_len"];
    let given: Vec<&str> = kinds.into_iter().filter(|kind| table.has(kind)).collect();
    let none = || Work::Mix("get".to_owned());
    let [kind] = given.as_slice() else {
        let hint = format!("give one of {}", kinds.join(", "));
        table.wrong(given.get(1).unwrap_or(&"id"), "an item has one kind of work", hint);
        return none();
    };
    match *kind {
        "mix" => {
            let mix = table.required("mix");
            if let Err(why) = parse_mix(&mix) {
                table.wrong("mix", why.to_string(), "as \"set:1,get:10\"");
            }
            Work::Mix(mix)
        }
        "suite" => {
            let test = table.required("suite");
            one_of(table, "suite", &test, SUITE.iter().map(|(name, _)| *name));
            Work::Suite(test)
        }
        "template" => {
            let text = table.required("template");
            if let Err(why) = parse_template(&text) {
                table.wrong("template", why.to_string(), "as \"SET __key__ __data__\"");
            }
            Work::Template(text)
        }
        "read_write" => {
            let texts = table.texts("read_write").unwrap_or_default();
            Work::ReadWrite(texts.iter().filter_map(|text| read_write(table, text)).collect())
        }
        _ => Work::Messages {
            sizes: match parsed(table, "packet_len") {
                Some(sizes) => sizes,
                None => return none(),
            },
            senders: table.whole("senders", 1..=keyway_bus_bench::SENDERS_MAX as u64).unwrap_or(1)
                as usize,
        },
    }
}

fn read_write(table: &Table, text: &str) -> Option<(u32, u32)> {
    let pair = text.split_once(':');
    let pair = pair.and_then(|(reads, writes)| Some((reads.parse().ok()?, writes.parse().ok()?)));
    if !pair.is_some_and(|(reads, writes): (u32, u32)| reads > 0 || writes > 0) {
        table.wrong("read_write", format!("\"{text}\" is no ratio"), "reads to writes, as \"1:1\"");
        return None;
    }
    pair
}

/// The commands of a ratio of reads to writes.
pub fn mix_of((reads, writes): (u32, u32)) -> Vec<(Command, u32)> {
    let both = [("get", reads), ("set", writes)].into_iter().filter(|(_, weight)| *weight > 0);
    both.filter_map(|(name, weight)| Some((Command::named(name).ok()?, weight))).collect()
}
