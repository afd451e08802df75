//! COMMAND and its subcommands, answered from the command table like Redis 7, except that commands
//! are sorted by name.

use keyway_base::glob;
use keyway_command::{
    Args, Argument, BeginSearch, COMMANDS, Categories, Command, FindKeys, Flags, KeyFlags, KeySpec,
    Refusal, Request, Verb, lookup,
};
use keyway_resp::Protocol;
use keyway_resp::reply::{array, bulk, error, integer, simple};

/// Appends the reply to `args`, a COMMAND with or without a subcommand.
pub fn reply(args: &Args, protocol: Protocol, out: &mut Vec<u8>) {
    let request = match Request::resolve(*args) {
        Ok(request) => request,
        Err(refusal) => return refusal.write_error(*args, out),
    };
    match request.command.verb {
        Verb::CommandCount => integer(out, COMMANDS.len() as i64),
        Verb::CommandInfo if args.len() > 2 => infos(args, protocol, out),
        Verb::Command | Verb::CommandInfo => every_info(protocol, out),
        Verb::CommandDocs => docs(args, protocol, out),
        Verb::CommandList => list(args, out),
        Verb::CommandGetkeys => keys(args, out, |key, _, out| bulk(out, key)),
        Verb::CommandGetkeysandflags => keys(args, out, |key, flags, out| {
            array(out, 2);
            bulk(out, key);
            set(protocol, flags.len(), flags.words(), out);
        }),
        _ => help(request.command, out),
    }
}

/// Returns the command `name`. A subcommand is written `client|list`.
fn find(name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|byte| *byte == b'|') {
        Some(bar) => lookup(&name[..bar])?.subcommand(&name[bar + 1..]),
        None => lookup(name),
    }
}

fn every_info(protocol: Protocol, out: &mut Vec<u8>) {
    array(out, COMMANDS.len());
    COMMANDS.iter().for_each(|command| info(command, protocol, out));
}

fn infos(args: &Args, protocol: Protocol, out: &mut Vec<u8>) {
    array(out, args.len() - 2);
    for name in args.from(2) {
        match find(name) {
            Some(command) => info(command, protocol, out),
            None => protocol.null(out),
        }
    }
}

fn info(command: &Command, protocol: Protocol, out: &mut Vec<u8>) {
    array(out, 10);
    bulk(out, command.name.as_bytes());
    integer(out, command.arity.into());
    set(protocol, command.flags.len(), command.flags.words(), out);
    integer(out, command.first_key.into());
    integer(out, command.last_key.into());
    integer(out, command.key_step.into());
    protocol.set(out, command.acl.len());
    for category in command.acl.words() {
        out.extend_from_slice(b"+@");
        out.extend_from_slice(category.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    protocol.set(out, command.tips.len());
    command.tips.iter().for_each(|tip| bulk(out, tip.as_bytes()));
    protocol.set(out, command.key_specs.len());
    command.key_specs.iter().for_each(|spec| key_spec(spec, protocol, out));
    match command.subcommands.len() {
        // If there are none, Redis replies with a set.
        0 => protocol.set(out, 0),
        len => array(out, len),
    }
    command.subcommands.iter().for_each(|subcommand| info(subcommand, protocol, out));
}

/// Writes an array of simple strings.
fn words(count: usize, words: impl Iterator<Item = &'static str>, out: &mut Vec<u8>) {
    array(out, count);
    words.for_each(|word| simple(out, word));
}

/// Writes a set of simple strings.
fn set(
    protocol: Protocol,
    count: usize,
    words: impl Iterator<Item = &'static str>,
    out: &mut Vec<u8>,
) {
    protocol.set(out, count);
    words.for_each(|word| simple(out, word));
}

fn key_spec(spec: &KeySpec, protocol: Protocol, out: &mut Vec<u8>) {
    let mut map = Map::begin(protocol, out);
    if !spec.notes.is_empty() {
        map.text("notes", spec.notes);
    }
    set(protocol, spec.flags.len(), spec.flags.words(), map.value("flags"));
    let out = map.value("begin_search");
    match spec.begin {
        BeginSearch::Index(index) => variant("index", &[("index", index)], protocol, out),
        BeginSearch::Keyword { keyword, start_from } => {
            let mut begin = Map::begin(protocol, out);
            begin.text("type", "keyword");
            let mut fields = Map::begin(protocol, begin.value("spec"));
            fields.text("keyword", keyword);
            integer(fields.value("startfrom"), start_from.into());
            fields.end();
            begin.end();
        }
        BeginSearch::Unknown => variant("unknown", &[], protocol, out),
    }
    let out = map.value("find_keys");
    match spec.find {
        FindKeys::Range { last_key, key_step, limit } => {
            variant(
                "range",
                &[("lastkey", last_key), ("keystep", key_step), ("limit", limit)],
                protocol,
                out,
            );
        }
        FindKeys::KeyNum { key_num_index, first_key, key_step } => {
            let fields =
                [("keynumidx", key_num_index), ("firstkey", first_key), ("keystep", key_step)];
            variant("keynum", &fields, protocol, out);
        }
        FindKeys::Unknown => variant("unknown", &[], protocol, out),
    }
    map.end();
}

/// Writes a way to find keys: its type and the numbers that specify it.
fn variant(kind: &str, fields: &[(&str, i16)], protocol: Protocol, out: &mut Vec<u8>) {
    let mut map = Map::begin(protocol, out);
    map.text("type", kind);
    let mut spec = Map::begin(protocol, map.value("spec"));
    for (name, number) in fields {
        integer(spec.value(name), (*number).into());
    }
    spec.end();
    map.end();
}

fn docs(args: &Args, protocol: Protocol, out: &mut Vec<u8>) {
    let asked = || args.from(2).filter_map(find);
    if args.len() == 2 {
        protocol.map(out, COMMANDS.len());
        COMMANDS.iter().for_each(|command| documented(command, protocol, out));
    } else {
        protocol.map(out, asked().count());
        asked().for_each(|command| documented(command, protocol, out));
    }
}

/// Writes a command's name, and the map of its documentation.
fn documented(command: &Command, protocol: Protocol, out: &mut Vec<u8>) {
    bulk(out, command.name.as_bytes());
    let docs = command.docs;
    let mut map = Map::begin(protocol, out);
    map.text("summary", command.summary);
    map.text("since", command.since);
    map.text("group", command.group);
    map.text_if_any("complexity", command.complexity);
    if !docs.doc_flags.is_empty() {
        let out = map.value("doc_flags");
        set(protocol, docs.doc_flags.len(), docs.doc_flags.iter().copied(), out);
    }
    map.text_if_any("deprecated_since", docs.deprecated_since);
    map.text_if_any("replaced_by", docs.replaced_by);
    if !docs.history.is_empty() {
        let out = map.value("history");
        protocol.set(out, docs.history.len());
        for (version, change) in docs.history {
            array(out, 2);
            bulk(out, version.as_bytes());
            bulk(out, change.as_bytes());
        }
    }
    if !docs.arguments.is_empty() {
        arguments(docs.arguments, protocol, map.value("arguments"));
    }
    if !command.subcommands.is_empty() {
        let out = map.value("subcommands");
        protocol.map(out, command.subcommands.len());
        command.subcommands.iter().for_each(|subcommand| documented(subcommand, protocol, out));
    }
    map.end();
}

fn arguments(arguments: &[Argument], protocol: Protocol, out: &mut Vec<u8>) {
    array(out, arguments.len());
    for argument in arguments {
        let mut map = Map::begin(protocol, out);
        map.text("name", argument.name);
        map.text("type", argument.kind);
        if let Some(index) = argument.key_spec_index {
            integer(map.value("key_spec_index"), index.into());
        }
        if let Some(token) = argument.token {
            map.text("token", token);
        }
        map.text_if_any("since", argument.since);
        map.text_if_any("deprecated_since", argument.deprecated_since);
        if !argument.flags.is_empty() {
            let out = map.value("flags");
            set(protocol, argument.flags.len(), argument.flags.iter().copied(), out);
        }
        if !argument.arguments.is_empty() {
            self::arguments(argument.arguments, protocol, map.value("arguments"));
        }
        map.end();
    }
}

/// A map that is being written. Its fields depend on the command, so its length is inserted when
/// all are written.
struct Map<'o> {
    protocol: Protocol,
    out: &'o mut Vec<u8>,
    length_at: usize,
    length: usize,
}

impl<'o> Map<'o> {
    fn begin(protocol: Protocol, out: &'o mut Vec<u8>) -> Map<'o> {
        Map { protocol, length_at: out.len(), length: 0, out }
    }

    /// Appends `key`. The caller appends its value to the returned buffer.
    fn value(&mut self, key: &str) -> &mut Vec<u8> {
        bulk(self.out, key.as_bytes());
        self.length += 1;
        self.out
    }

    fn text(&mut self, key: &str, text: &str) {
        bulk(self.value(key), text.as_bytes());
    }

    fn text_if_any(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    fn end(self) {
        let mut head = Vec::new();
        self.protocol.map(&mut head, self.length);
        self.out.splice(self.length_at..self.length_at, head);
    }
}

fn list(args: &Args, out: &mut Vec<u8>) {
    let is = |index: usize, word: &[u8]| {
        args.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word))
    };
    let value = args.get(4).unwrap_or_default();
    if args.len() == 2 {
        names(out, |_| true);
    } else if args.len() != 5 || !is(2, b"filterby") {
        error(out, "ERR syntax error");
    } else if is(3, b"module") {
        // No command of the table comes from a module.
        array(out, 0);
    } else if is(3, b"aclcat") {
        let category = Categories::parse(value);
        names(out, |command| category.is_some_and(|category| command.acl.contains(category)));
    } else if is(3, b"pattern") {
        names(out, |command| glob::matches_ignoring_case(value, command.name.as_bytes()));
    } else {
        error(out, "ERR syntax error");
    }
}

/// Writes an array of the names of all commands and subcommands that `wanted` accepts.
fn names(out: &mut Vec<u8>, wanted: impl Fn(&Command) -> bool) {
    let all =
        || COMMANDS.iter().flat_map(|command| [command].into_iter().chain(command.subcommands));
    array(out, all().filter(|command| wanted(command)).count());
    for command in all().filter(|command| wanted(command)) {
        bulk(out, command.name.as_bytes());
    }
}

/// Writes the keys of the command line after `COMMAND GETKEYS`, each with `write_one`.
fn keys(args: &Args, out: &mut Vec<u8>, write_one: impl Fn(&[u8], KeyFlags, &mut Vec<u8>)) {
    let line = Args::new(args.buf(), &args.ranges()[2..]);
    let resolved = Request::resolve(line);
    let command = match &resolved {
        Ok(request) => request.command,
        Err(Refusal::Arity(command)) => command,
        Err(_) => return error(out, "ERR Invalid command specified"),
    };
    if command.key_specs.iter().all(|spec| spec.flags.contains(KeyFlags::NOT_KEY)) {
        return error(out, "ERR The command has no key arguments");
    }
    // MSET itself refuses a key without its value: its arity is met.
    if !command.accepts(line.len()) {
        return error(out, "ERR Invalid number of arguments specified for command");
    }
    let request = Request { command, args: line };
    let mut found = Vec::new();
    if request.keys_and_flags(&mut found).is_err()
        && !command.flags.contains(Flags::NO_MANDATORY_KEYS)
    {
        return error(out, "ERR Invalid arguments specified for command");
    }
    array(out, found.len());
    for (index, flags) in found {
        write_one(&line[index as usize], flags, out);
    }
}

/// Writes the lines of the container's HELP.
fn help(subcommand: &Command, out: &mut Vec<u8>) {
    let container = subcommand.name.split('|').next().and_then(|name| lookup(name.as_bytes()));
    let lines = container.map_or(&[][..], |container| container.docs.help);
    words(lines.len(), lines.iter().copied(), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::ByteRange;
    use keyway_testkit::{Client, RedisServer, Value};
    use std::collections::BTreeSet;

    fn answer(line: &str) -> String {
        answer_in(Protocol::Resp2, line)
    }

    fn answer_in(protocol: Protocol, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let mut end = 0;
        let range = |word: &&str| {
            end += word.len();
            ByteRange::new(end - word.len(), end)
        };
        let ranges: Vec<_> = words.iter().map(range).collect();
        let mut out = Vec::new();
        reply(&Args::new(words.concat().as_bytes(), &ranges), protocol, &mut out);
        String::from_utf8(out).expect("the table is text")
    }

    fn server_answer(client: &mut Client, line: &str) -> String {
        let mut out = Vec::new();
        write(&in_order(client.command(&line.split(' ').collect::<Vec<_>>())), &mut out);
        String::from_utf8(out).expect("the server's table is text")
    }

    /// Sorts by name everything in the reply that Redis orders by hash: commands with their
    /// subcommands.
    fn in_order(value: Value) -> Value {
        let is_about = |value: &Value| match value {
            Value::Map(fields) => fields[0].0 == Value::bulk("summary"),
            _ => false,
        };
        let items = match value {
            Value::Array(items) => items,
            Value::Set(items) => return Value::Set(items.into_iter().map(in_order).collect()),
            Value::Map(pairs) => {
                let pairs = pairs.into_iter().map(|(key, value)| (key, in_order(value)));
                let mut pairs: Vec<_> = pairs.collect();
                if pairs.iter().all(|(_, value)| is_about(value)) {
                    pairs.sort();
                }
                return Value::Map(pairs);
            }
            other => return other,
        };
        let mut items: Vec<_> = items.into_iter().map(in_order).collect();
        let names_command = |item: &Value| {
            let Value::Array(fields) = item else { return false };
            fields.len() == 10 && matches!(fields[1], Value::Integer(_))
        };
        if items.iter().all(names_command) {
            items.sort();
        }
        let is_docs = |pair: &[Value]| {
            matches!(pair, [Value::Bulk(_), Value::Array(fields)]
                if fields.first() == Some(&Value::bulk("summary")))
        };
        if items.len() % 2 == 0 && items.chunks(2).all(is_docs) {
            let mut pairs: Vec<_> = items.chunks(2).map(<[Value]>::to_vec).collect();
            pairs.sort();
            items = pairs.concat();
        }
        Value::Array(items)
    }

    fn write(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Simple(text) => simple(out, std::str::from_utf8(text).expect("text")),
            Value::Error(text) => error(out, std::str::from_utf8(text).expect("text")),
            Value::Integer(number) => integer(out, *number),
            Value::Bulk(bytes) => bulk(out, bytes),
            Value::Nil => Protocol::Resp2.null(out),
            Value::Null => Protocol::Resp3.null(out),
            Value::Array(items) => {
                array(out, items.len());
                items.iter().for_each(|item| write(item, out));
            }
            Value::Set(items) => {
                Protocol::Resp3.set(out, items.len());
                items.iter().for_each(|item| write(item, out));
            }
            Value::Map(pairs) => {
                Protocol::Resp3.map(out, pairs.len());
                pairs.iter().flat_map(|(key, value)| [key, value]).for_each(|it| write(it, out));
            }
            other => panic!("COMMAND answers with {other:?}"),
        }
    }

    /// Returns a server whose version the table describes. Returns `None` and prints a message if
    /// there is none.
    fn server() -> Option<RedisServer> {
        let version = std::process::Command::new("redis-server").arg("--version").output();
        let version = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
        if !version.as_ref().is_ok_and(|version| version.contains("v=7.0.")) {
            eprintln!("skipped: needs redis-server 7.0 to compare with, found {version:?}");
            return None;
        }
        Some(RedisServer::start())
    }

    /// Returns whether a command was added after the server's version.
    fn is_later(command: &Command) -> bool {
        ["7.2.", "7.4.", "8."].iter().any(|version| command.since.starts_with(version))
    }

    /// Returns names of commands that the server knows too. CLIENT and CLUSTER have subcommands of
    /// later versions here, which the entries of these containers show.
    fn shared_names() -> impl Iterator<Item = &'static str> {
        let all = COMMANDS.iter().flat_map(|it| [it].into_iter().chain(it.subcommands));
        let has_later = |it: &&Command| ["client", "cluster"].contains(&it.name);
        all.filter(move |it| !has_later(it) && !is_later(it)).map(|it| it.name)
    }

    #[test]
    fn info_and_docs_of_every_command_are_those_of_the_server() {
        let Some(server) = server() else { return };
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut client = server.client();
            client.words(&format!("HELLO {}", protocol.number()));
            for name in shared_names() {
                for subcommand in ["INFO", "DOCS"] {
                    let line = format!("COMMAND {subcommand} {name}");
                    let by_server = server_answer(&mut client, &line);
                    assert_eq!(answer_in(protocol, &line), by_server, "{protocol:?} {line}");
                }
            }
        }
    }

    #[test]
    fn every_command_is_told_and_counted() {
        let Some(server) = server() else { return };
        let mut client = server.client();
        let names = |value: Value| -> BTreeSet<String> {
            value.array().iter().map(|entry| entry.array()[0].text()).collect()
        };
        let names_here: BTreeSet<String> =
            COMMANDS.iter().map(|command| command.name.to_owned()).collect();
        let shared = COMMANDS.iter().filter(|command| !is_later(command));
        let shared: BTreeSet<String> = shared.map(|command| command.name.to_owned()).collect();
        assert_eq!(names(client.words("COMMAND")), shared);
        assert!(answer("COMMAND").starts_with(&format!("*{}\r\n", names_here.len())));
        assert_eq!(answer("COMMAND"), answer("COMMAND INFO"));
        assert!(answer("COMMAND DOCS").starts_with(&format!("*{}\r\n", 2 * names_here.len())));
        assert_eq!(answer("COMMAND COUNT"), format!(":{}\r\n", names_here.len()));
    }

    #[test]
    fn particular_lines_are_answered_as_the_server_answers_them() {
        let Some(server) = server() else { return };
        let mut old = server.client();
        let mut new = server.client();
        new.words("HELLO 3");
        for line in "\
            COMMAND HELP\n\
            command info get nosuch set\n\
            COMMAND INFO CLIENT|LIST client|list|x client| |list nosuch|list get|x\n\
            COMMAND DOCS nosuch\n\
            COMMAND DOCS GET nosuch xgroup|create\n\
            COMMAND nosuch\n\
            COMMAND COUNT x\n\
            COMMAND HELP x\n\
            COMMAND LIST FILTERBY\n\
            COMMAND LIST FILTERBY MODULE x\n\
            COMMAND LIST FILTERBY nosuch x\n\
            COMMAND LIST nosuch PATTERN x\n\
            COMMAND LIST FILTERBY PATTERN x y\n\
            COMMAND LIST FILTERBY ACLCAT nosuch\n\
            COMMAND LIST FILTERBY ACLCAT @read\n\
            COMMAND GETKEYS\n\
            COMMAND GETKEYS GET\n\
            COMMAND GETKEYS nosuch a\n\
            COMMAND GETKEYS CLIENT nosuch\n\
            COMMAND GETKEYS GET a\n\
            COMMAND GETKEYS GET a b\n\
            COMMAND GETKEYS MSET a 1 b 2\n\
            COMMAND GETKEYS MSET a 1 b\n\
            COMMAND GETKEYS MSET a\n\
            COMMAND GETKEYS OBJECT ENCODING\n\
            COMMAND GETKEYS OBJECT ENCODING a\n\
            COMMAND GETKEYS CONFIG GET a\n\
            COMMAND GETKEYS SPUBLISH a b\n\
            COMMAND GETKEYS EVAL s 0\n\
            COMMAND GETKEYS EVAL s x\n\
            COMMAND GETKEYS ZUNIONSTORE d 0 a\n\
            COMMAND GETKEYS XREAD STREAMS a b 0 0\n\
            COMMAND GETKEYSANDFLAGS SET a b\n\
            COMMAND GETKEYSANDFLAGS SET a b GET\n\
            COMMAND GETKEYSANDFLAGS ZUNIONSTORE d 2 a b\n\
            COMMAND GETKEYSANDFLAGS PUBLISH a b"
            .lines()
        {
            assert_eq!(answer(line), server_answer(&mut old, line), "{line}");
            let by_server = server_answer(&mut new, line);
            assert_eq!(answer_in(Protocol::Resp3, line), by_server, "{line}");
        }
    }

    #[test]
    fn lists_name_the_commands_the_server_lists() {
        let Some(server) = server() else { return };
        let mut client = server.client();
        let shared: BTreeSet<&str> = shared_names().chain(["client"]).collect();
        let bulks = |text: &str| -> BTreeSet<String> {
            let names = text.split("\r\n").filter(|line| shared.contains(line));
            names.map(str::to_owned).collect()
        };
        let filters = [
            "ACLCAT read",
            "ACLCAT SCRIPTING",
            "ACLCAT dangerous",
            "PATTERN xr*",
            "PATTERN XR*",
            "PATTERN *",
            "PATTERN client*",
            "PATTERN client|i*",
            "PATTERN ?et",
            "PATTERN [gs]et",
            "PATTERN [^g]et",
            "PATTERN [a-gs]et*",
            "PATTERN \\get",
            "PATTERN *e*t*",
            "PATTERN [get",
            "PATTERN nosuch",
            "PATTERN z*[b-",
            "PATTERN *store",
            "PATTERN z*store*",
            "PATTERN [z-x]*",
        ];
        let filtered = filters.map(|filter| format!("COMMAND LIST FILTERBY {filter}"));
        for line in filtered.iter().map(String::as_str).chain(["COMMAND LIST"]) {
            let by_server = server_answer(&mut client, line);
            assert_eq!(bulks(&answer(line)), bulks(&by_server), "{line}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_answered_at_once() {
        let pattern = "*a".repeat(5000);
        assert_eq!(answer(&format!("COMMAND LIST FILTERBY PATTERN {pattern}")), "*0\r\n");
    }
}
