//! Converts the server's own description of its commands to Rust source.

use crate::newer;
use crate::reply::{Client, Reply};
use std::fmt::{Display, Write};
use std::io;

const HEADER: &str = "\
// Generated from COMMAND, COMMAND DOCS and HELP of redis-server; `make command-table` writes it
// anew. What the commands do is described in the words of Redis 7.0, which is BSD-3-Clause,
// Copyright (c) 2006-2020, Salvatore Sanfilippo.

use crate::command::Entry;
use crate::{Argument, BeginSearch, Categories, Command, Docs, FindKeys, Flags, KeyFlags, KeySpec};

";

/// A subcommand that is newer than the described server, and that clients send when they connect.
struct Later {
    name: &'static str,
    arity: i64,
    summary: &'static str,
    group: &'static str,
    /// The subcommand from which it copies everything else.
    model: &'static str,
    /// Its one argument, and the words that are allowed for it.
    argument: Option<(&'static str, &'static [&'static str])>,
}

const LATER: [Later; 3] = [
    Later {
        name: "client|no-touch",
        arity: 3,
        summary: "Choose whether the connection's commands count as uses of the keys",
        group: "connection",
        model: "client|setname",
        argument: Some(("enabled", &["on", "off"])),
    },
    Later {
        name: "client|setinfo",
        arity: 4,
        summary: "Tell which client library the connection uses",
        group: "connection",
        model: "client|setname",
        argument: Some(("attr", &["lib-name", "lib-ver"])),
    },
    Later {
        name: "cluster|myshardid",
        arity: 2,
        summary: "Return the node's shard id",
        group: "cluster",
        model: "cluster|myid",
        argument: None,
    },
];
const LATER_SINCE: &str = "7.2.0";

/// One command as the server describes it.
struct Described {
    /// Its COMMAND INFO entry.
    info: Reply,
    /// Its COMMAND DOCS map, flattened.
    docs: Reply,
    /// The lines of its HELP, for a container that has HELP.
    help: Vec<String>,
    /// Its subcommands, by name.
    subcommands: Vec<Described>,
}

/// Returns the source of the command table, from the description by the server at `address`.
pub fn describe(address: &str) -> io::Result<String> {
    let mut client = Client::connect(address)?;
    let infos = client.call(&["COMMAND"])?;
    let docs = client.call(&["COMMAND", "DOCS"])?;
    if let Reply::Error(text) = &docs {
        return Err(io::Error::other(format!("{address} answers COMMAND DOCS with: {text}")));
    }
    let mut commands = Vec::new();
    for info in infos.items() {
        commands.push(Described::of(info, docs.get(info.items()[0].text()), &mut client)?);
    }
    let is_known = |name: &str| infos.items().iter().any(|info| info.items()[0].text() == name);
    for (info, docs) in newer::commands(is_known) {
        commands.push(Described::of(&info, &docs, &mut client)?);
    }
    commands.sort_by(|a, b| a.name().cmp(b.name()));
    let mut out = HEADER.to_owned();
    write_verbs(&commands, &mut out).map_err(io::Error::other)?;
    write_tables(&commands, &mut out).map_err(io::Error::other)?;
    Ok(out)
}

impl Described {
    fn of(info: &Reply, docs: &Reply, client: &mut Client) -> io::Result<Described> {
        let name = info.items()[0].text();
        let mut subcommands = Vec::new();
        for sub in info.items()[9].items() {
            let sub_docs = docs.get("subcommands").get(sub.items()[0].text());
            subcommands.push(Described::of(sub, sub_docs, client)?);
        }
        for later in
            LATER.iter().filter(|later| later.name.split_once('|').is_some_and(|it| it.0 == name))
        {
            subcommands.extend(later_subcommand(&subcommands, later));
        }
        subcommands.sort_by(|a, b| a.name().cmp(b.name()));
        let mut help = Vec::new();
        // A server that is not in cluster mode answers CLUSTER HELP with an error, which has no
        // lines.
        if subcommands.iter().any(|sub| sub.name().ends_with("|help")) {
            help.extend(
                client.call(&[name, "HELP"])?.items().iter().map(|line| line.text().to_owned()),
            );
        }
        Ok(Described { info: info.clone(), docs: docs.clone(), help, subcommands })
    }

    fn name(&self) -> &str {
        self.info.items()[0].text()
    }

    /// Returns the variant of `Verb`: each word of the name with a capital letter.
    fn verb(&self) -> String {
        let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
        self.name().split(['|', '-', '_']).map(capital).collect()
    }
}

fn later_subcommand(known: &[Described], later: &Later) -> Option<Described> {
    let model = known.iter().find(|sub| sub.name() == later.model)?;
    if known.iter().any(|sub| sub.name() == later.name) {
        return None;
    }
    let text = |value: &str| Reply::Text(value.to_owned());
    let mut info = model.info.items().to_vec();
    info[0] = text(later.name);
    info[1] = Reply::Integer(later.arity);
    let mut docs = [
        [text("summary"), text(later.summary)],
        [text("since"), text(LATER_SINCE)],
        [text("group"), text(later.group)],
        [text("complexity"), text("O(1)")],
    ]
    .concat();
    if let Some((name, choices)) = later.argument {
        docs.extend([text("arguments"), Reply::Array(vec![later_argument(name, choices)])]);
    }
    Some(Described {
        info: Reply::Array(info),
        docs: Reply::Array(docs),
        help: Vec::new(),
        subcommands: Vec::new(),
    })
}

/// Returns an argument that is one of some words.
fn later_argument(name: &str, choices: &[&str]) -> Reply {
    let text = |value: &str| Reply::Text(value.to_owned());
    let choice = |word: &&str| {
        let token = word.to_ascii_uppercase();
        Reply::Array(
            [
                text("name"),
                text(word),
                text("type"),
                text("pure-token"),
                text("token"),
                text(&token),
            ]
            .into(),
        )
    };
    let choices = Reply::Array(choices.iter().map(choice).collect());
    let argument = [text("name"), text(name), text("type"), text("oneof"), text("arguments")];
    Reply::Array(argument.into_iter().chain([choices]).collect())
}

fn write_verbs(commands: &[Described], out: &mut String) -> std::fmt::Result {
    out.push_str("/// Every command and subcommand, by name.\n");
    out.push_str("#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(u16)]\npub enum Verb {\n");
    for command in commands {
        for described in [command].into_iter().chain(&command.subcommands) {
            let name = described.name().to_ascii_uppercase().replace('|', " ");
            writeln!(out, "    /// {name}\n    {},", described.verb())?;
        }
    }
    out.push_str("}\n\n");
    Ok(())
}

fn write_tables(commands: &[Described], out: &mut String) -> std::fmt::Result {
    writeln!(out, "/// Every top-level command, sorted by name.")?;
    writeln!(out, "pub static COMMANDS: [Command; {}] = [", commands.len())?;
    for command in commands {
        write_command(command, out)?;
    }
    writeln!(out, "];")?;
    for command in commands.iter().filter(|command| !command.subcommands.is_empty()) {
        let (name, count) = (subcommands_name(command), command.subcommands.len());
        writeln!(out, "\nstatic {name}: [Command; {count}] = [")?;
        for subcommand in &command.subcommands {
            write_command(subcommand, out)?;
        }
        writeln!(out, "];")?;
    }
    Ok(())
}

fn subcommands_name(command: &Described) -> String {
    format!("{}_SUBCOMMANDS", constant(command.name()))
}

fn write_command(command: &Described, out: &mut String) -> std::fmt::Result {
    let (info, docs) = (command.info.items(), &command.docs);
    let text = |key: &str| docs.get(key).text().to_owned();
    writeln!(out, "    Entry {{")?;
    writeln!(
        out,
        "        verb: Verb::{}, name: {:?}, arity: {},",
        command.verb(),
        command.name(),
        info[1].integer()
    )?;
    writeln!(out, "        flags: {},", set("Flags", &info[2]))?;
    let keys = [3, 4, 5].map(|index: usize| info[index].integer().to_string());
    writeln!(out, "        keys: ({}),", keys.join(", "))?;
    writeln!(out, "        acl: {},", set("Categories", &info[6]))?;
    writeln!(out, "        tips: {},", slice(info[7].items(), |tip| quoted(tip.text())))?;
    let specs = info[8].items();
    writeln!(out, "        key_specs: {},", lines(specs, 2, key_spec))?;
    writeln!(out, "        group: {:?}, since: {:?},", text("group"), text("since"))?;
    writeln!(out, "        summary: {:?},", text("summary"))?;
    writeln!(out, "        complexity: {:?},", text("complexity"))?;
    writeln!(out, "        docs: {},", documents(command))?;
    let subcommands = if command.subcommands.is_empty() {
        "&[]".to_owned()
    } else {
        format!("&{}", subcommands_name(command))
    };
    writeln!(out, "        subcommands: {subcommands},")?;
    writeln!(out, "    }}.command(),")
}

fn key_spec(spec: &Reply) -> String {
    let begin = spec.get("begin_search");
    let begin = match begin.get("type").text() {
        "index" => format!("BeginSearch::Index({})", begin.get("spec").get("index").integer()),
        "keyword" => {
            let (keyword, start) =
                (begin.get("spec").get("keyword"), begin.get("spec").get("startfrom"));
            format!(
                "BeginSearch::Keyword {{ keyword: {:?}, start_from: {} }}",
                keyword.text(),
                start.integer()
            )
        }
        _ => "BeginSearch::Unknown".to_owned(),
    };
    let find = spec.get("find_keys");
    let number = |key: &str| find.get("spec").get(key).integer();
    let find = match find.get("type").text() {
        "range" => format!(
            "FindKeys::Range {{ last_key: {}, key_step: {}, limit: {} }}",
            number("lastkey"),
            number("keystep"),
            number("limit"),
        ),
        "keynum" => format!(
            "FindKeys::KeyNum {{ key_num_index: {}, first_key: {}, key_step: {} }}",
            number("keynumidx"),
            number("firstkey"),
            number("keystep"),
        ),
        _ => "FindKeys::Unknown".to_owned(),
    };
    let (flags, notes) = (set("KeyFlags", spec.get("flags")), spec.get("notes").text());
    format!("KeySpec {{ flags: {flags}, begin: {begin}, find: {find}, notes: {notes:?} }}")
}

/// Returns the documents of a command. Most have few of the fields, and the others get their
/// defaults.
fn documents(command: &Described) -> String {
    let docs = &command.docs;
    let change = |change: &Reply| {
        format!("({:?}, {:?})", change.items()[0].text(), change.items()[1].text())
    };
    let fields = [
        ("doc_flags", slice(docs.get("doc_flags").items(), |flag| quoted(flag.text()))),
        ("deprecated_since", quoted(docs.get("deprecated_since").text())),
        ("replaced_by", quoted(docs.get("replaced_by").text())),
        ("history", lines(docs.get("history").items(), 3, change)),
        ("arguments", lines(docs.get("arguments").items(), 3, argument)),
        ("help", lines(&command.help, 3, |line| quoted(line))),
    ];
    let given: Vec<_> = fields.iter().filter(|(_, value)| !is_default(value)).collect();
    if given.is_empty() {
        return "&Docs::NONE".to_owned();
    }
    let given: String =
        given.iter().map(|(field, value)| format!("            {field}: {value},\n")).collect();
    format!("&Docs {{\n{given}            ..Docs::NONE\n        }}")
}

fn argument(argument: &Reply) -> String {
    let text = |key: &str| quoted(argument.get(key).text());
    let token = match argument.get("token") {
        Reply::Text(token) => format!("Some({token:?})"),
        _ => "None".to_owned(),
    };
    let key_spec_index = match argument.get("key_spec_index") {
        Reply::Integer(index) => format!("Some({index})"),
        _ => "None".to_owned(),
    };
    let fields = [
        ("token", token),
        ("key_spec_index", key_spec_index),
        ("since", text("since")),
        ("deprecated_since", text("deprecated_since")),
        ("flags", slice(argument.get("flags").items(), |flag| quoted(flag.text()))),
        ("arguments", slice(argument.get("arguments").items(), self::argument)),
    ];
    let given = fields.iter().filter(|(_, value)| !is_default(value));
    let given: String = given.map(|(field, value)| format!("{field}: {value}, ")).collect();
    format!(
        "Argument {{ name: {}, kind: {}, {given}..Argument::NONE }}",
        text("name"),
        text("type")
    )
}

/// Returns whether a field has the value of its type's `NONE`.
fn is_default(value: &str) -> bool {
    matches!(value, "None" | "&[]" | "\"\"")
}

/// Returns a set of words as the union of their constants.
fn set(kind: &str, words: &Reply) -> String {
    let mut constants =
        words.items().iter().map(|word| format!("{kind}::{}", constant(word.text())));
    let first = constants.next().unwrap_or_else(|| format!("{kind}::NONE"));
    constants.fold(first, |union, next| format!("{union}.with({next})"))
}

/// Returns the constant for a word of Redis: `NO_AUTH` for `no_auth`, `READ` for `@read`.
fn constant(word: &str) -> String {
    word.trim_start_matches('@').to_ascii_uppercase().replace('-', "_")
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// Returns a slice on one line.
fn slice<T>(items: &[T], one: impl Fn(&T) -> String) -> String {
    format!("&[{}]", items.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Returns a slice with one item in each line, at `depth` levels of indentation.
fn lines<T, S: Display>(items: &[T], depth: usize, one: impl Fn(&T) -> S) -> String {
    if items.is_empty() {
        return "&[]".to_owned();
    }
    let indent = "    ".repeat(depth);
    let items: String = items.iter().map(|item| format!("{indent}    {},\n", one(item))).collect();
    format!("&[\n{items}{indent}]")
}
