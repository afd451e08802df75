//! Reads a TOML document by the schema. Every key must be known, and every value must have its type
//! and be within its range.

use crate::address::{ADMIN_HINT, LISTEN_HINT, parse_admin, parse_listen, parse_server};
use crate::cluster::parse_read_from;
use crate::error::listed;
use crate::error::{Problem, Report, any_of, nearest, quoted};
use crate::examples::{KIND_EXAMPLE, example, example_within, homes_text};
use crate::hedge::{parse_hedge_after, parse_share};
use crate::model::Workers;
use crate::schema::{self, Absent, Choices, Key, Kind, Table};
use crate::secret::PASSWORD_LEN_MAX;
use crate::secret::check_password;
use crate::section::Entry;
use crate::section::NamedPool;
use crate::section::Section;
use crate::section::Value;
use crate::syntax;
use crate::value::{format_duration, format_size, parse_duration, parse_size};
use keyway_base::KeyspaceEvents;
use keyway_topology::{HashTag, Rejoin};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads the file. Reports what is wrong, and returns the values that could be read.
pub(crate) fn read(text: &str, report: &mut Report<'_>) -> Section {
    let (document, errors) = DeTable::parse_recoverable(text);
    syntax::report_all(text, &errors, report);
    read_table(&schema::ROOT, document.get_ref(), 0, "the file".to_owned(), report)
}

pub(crate) fn read_table(
    table: &'static Table,
    content: &DeTable<'_>,
    at: usize,
    header: String,
    report: &mut Report<'_>,
) -> Section {
    let mut entries = BTreeMap::new();
    let mut misspelt = Vec::new();
    for (name, value) in content {
        let Some(key) = table.key(name.get_ref()) else {
            if report.is_full() {
                continue;
            }
            report.mistake(name.span().start, unknown_key(name.get_ref(), table, &header));
            misspelt.extend(meant(name.get_ref(), table).map(|key| (key, name.span().start)));
            continue;
        };
        // An empty span is the parser's stand-in for a value that is reported as a syntax error.
        let is_there = !value.span().is_empty() || value.get_ref().is_table();
        let written = is_there.then(|| read_value(key, value, &header, report)).flatten();
        let at = place_of(name.span().start, value);
        let wrong_address = written.is_none() && matches!(key.kind, Kind::Listen);
        let address = value.get_ref().as_str().filter(|_| wrong_address).map(str::to_owned);
        entries.insert(key.name, Entry { value: written, at: Some(at), address });
    }
    // The key that was meant is present but wrong, so it is not reported as missing too.
    for (key, at) in misspelt {
        let wrong = Entry { value: None, at: Some(at), address: None };
        entries.entry(key).or_insert(wrong);
    }
    let mut section = Section { at, header, table, entries };
    for key in table.keys {
        fill_in(key, &mut section, report);
    }
    section
}

/// Returns the position of a key. For a table with a header it is the header's.
fn place_of(name_at: usize, value: &Spanned<DeValue<'_>>) -> usize {
    match value.get_ref() {
        DeValue::Table(_) => name_at.min(value.span().start),
        _ => name_at,
    }
}

/// Gives an absent key its default.
fn fill_in(key: &'static Key, section: &mut Section, report: &mut Report<'_>) {
    if section.entries.contains_key(key.name) {
        return;
    }
    match &key.absent {
        Absent::Refused => {
            let problem = Problem::new(
                format!("{} is missing in {}", named(key, &section.header), section.header),
                format!("add {}", example_within(key, section.table)),
            );
            report.consequence(section.at, problem);
        }
        Absent::Unset(_) => {}
        Absent::Is(default) => {
            let entry = Entry { value: read_default(key, default), at: None, address: None };
            section.entries.insert(key.name, entry);
        }
    }
}

/// Returns the name of a key in messages: for a table, its header.
fn named(key: &Key, around: &str) -> String {
    match key.kind {
        Kind::List(table) => header_within(table, around),
        Kind::Pools => "[pool.NAME]".to_owned(),
        _ => key.name.to_owned(),
    }
}

/// Returns the header of a table that is in a list, with the name of the pool it belongs to.
fn header_within(table: &Table, around: &str) -> String {
    match around.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(pool) if pool.starts_with("pool.") => table.header.replacen("pool.NAME", pool, 1),
        _ => table.header.to_owned(),
    }
}

/// Reads the default of a key. Defaults are text of the schema; a test reads every one of them.
pub(crate) fn read_default(key: &'static Key, default: &str) -> Option<Value> {
    let value = DeValue::parse(default).ok()?;
    let mut nothing_wrong = Report::new("default", default);
    let read = read_value(key, &value, key.name, &mut nothing_wrong);
    nothing_wrong.finish().ok()?;
    read
}

/// Returns the key of the table that an unknown key most likely stands for.
fn meant(name: &str, table: &'static Table) -> Option<&'static str> {
    by_alias(name, table).or_else(|| nearest(name, table.names()))
}

fn by_alias(name: &str, table: &'static Table) -> Option<&'static str> {
    table.keys.iter().find(|key| key.aliases.contains(&name)).map(|key| key.name)
}

fn unknown_key(name: &str, table: &'static Table, header: &str) -> Problem {
    let what = format!("unknown key {} in {header}", quoted(name));
    if let Some(meant) = meant(name, table) {
        return Problem::new(what, format!("did you mean \"{meant}\"?"));
    }
    let others = || schema::TABLES.iter().filter(|other| !std::ptr::eq(**other, table));
    let homes: Vec<&str> =
        others().filter(|other| other.key(name).is_some()).map(|other| other.header).collect();
    if !homes.is_empty() {
        return Problem::new(what, format!("\"{name}\" belongs in {}", homes_text(&homes)));
    }
    let alias_elsewhere = others().find_map(|other| Some((by_alias(name, other)?, other.header)));
    if let Some((meant, other)) = alias_elsewhere {
        return Problem::new(what, format!("did you mean \"{meant}\" in {other}?"));
    }
    Problem::new(what, format!("known keys are {}", join_and(table.names())))
}

fn join_and(names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.as_slice() {
        [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        _ => names.concat(),
    }
}

fn read_value(
    key: &'static Key,
    value: &Spanned<DeValue<'_>>,
    header: &str,
    report: &mut Report<'_>,
) -> Option<Value> {
    let at = value.span().start;
    if key.word.is_some() && value.get_ref().as_str() == key.word {
        return Some(Value::Word);
    }
    let read = match &key.kind {
        Kind::Table(table) => read_sub_table(key, table, value, header, report),
        Kind::List(table) => read_list(key, table, value, header, report),
        Kind::Pools => read_pools(value, report),
        Kind::Servers => read_servers(key.name, value, header, report),
        Kind::PoolNames => read_names(value, "write the names of pools: [\"NAME\", \"NAME\"]"),
        Kind::Names => read_names(value, "write names: [\"NAME\", \"NAME\"]"),
        Kind::Hashes => crate::users::read_hashes(value.get_ref()),
        Kind::Commands => read_names(value, "write the names of commands: [\"get\", \"mget\"]"),
        Kind::Workers if value.get_ref().is_table() => {
            return read_workers_table(key, value, header, report);
        }
        _ => read_scalar(key, value.get_ref()),
    };
    let read = read.map(|read| match read {
        Value::Path(path) => Value::Path(report.in_folder(&path)),
        other => other,
    });
    read.map_err(|mut problem| {
        if let Some(hint) = value.get_ref().as_str().and_then(|text| hint_for_share(key, text)) {
            problem.hint = hint;
        } else if let Some(word) = key.word {
            problem.hint = format!("{}, or \"{word}\"", problem.hint);
        }
        problem.what = format!("{} in {header}: {}", key.name, problem.what);
        report.mistake(at, problem);
    })
    .ok()
}

/// Returns a hint for a percentage in place of a time, which belongs into another key.
fn hint_for_share(key: &Key, text: &str) -> Option<String> {
    let percent: u64 = text.trim_end().strip_suffix('%')?.trim().parse().ok()?;
    let share = match key.name {
        "expire_after_read" => "expire_after_read_percent",
        _ => return None,
    };
    let hint = format!("write a time, such as \"30m\", and the share as {share} = {percent}");
    (1..=100).contains(&percent).then_some(hint)
}

/// Returns a header in brackets for a table of the file itself, and words for a nested table.
fn sub_header(key: &Key, header: &str) -> String {
    if header == "the file" {
        format!("[{}]", key.name)
    } else {
        format!("{} in {header}", key.name)
    }
}

fn read_sub_table(
    key: &'static Key,
    table: &'static Table,
    value: &Spanned<DeValue<'_>>,
    header: &str,
    report: &mut Report<'_>,
) -> Result<Value, Problem> {
    let header = sub_header(key, header);
    let Some(content) = value.get_ref().as_table() else {
        let hint = if header.starts_with('[') {
            format!("write {header} on a line of its own, and its keys below")
        } else {
            format!("write {} = {{ {} = … }}", key.name, table.keys[0].name)
        };
        return Err(Problem::new(format!("{} is not a table", shown(value.get_ref())), hint));
    };
    Ok(Value::Table(read_table(table, content, value.span().start, header, report)))
}

fn read_list(
    key: &'static Key,
    table: &'static Table,
    value: &Spanned<DeValue<'_>>,
    around: &str,
    report: &mut Report<'_>,
) -> Result<Value, Problem> {
    let header = header_within(table, around);
    if value.get_ref().is_table() {
        let hint = format!("write {header} in double brackets");
        return Err(Problem::new("the header is in single brackets", hint));
    }
    let not_a_list = || {
        let what = format!("{} is not a list of tables", shown(value.get_ref()));
        Problem::new(what, format!("write {header} in double brackets before each"))
    };
    let items = value.get_ref().as_array().ok_or_else(not_a_list)?;
    if items.is_empty() {
        let hint = match key.absent {
            Absent::Refused => format!("add {}", example(key.name)),
            _ => format!("remove it, or write {header} and its keys below, for each"),
        };
        return Err(Problem::new("the list is empty", hint));
    }
    let mut sections = Vec::with_capacity(items.len());
    for item in items {
        let content = item.get_ref().as_table().ok_or_else(not_a_list)?;
        sections.push(read_table(table, content, item.span().start, header.clone(), report));
    }
    Ok(Value::List(sections))
}

fn read_pools(value: &Spanned<DeValue<'_>>, report: &mut Report<'_>) -> Result<Value, Problem> {
    let hint = "write [pool.NAME] on a line of its own, and its keys below";
    let Some(content) = value.get_ref().as_table() else {
        return Err(Problem::new(format!("{} is not a table", shown(value.get_ref())), hint));
    };
    let mut pools = Vec::with_capacity(content.len());
    for (name, value) in content {
        let at = name.span().start;
        let Some(content) = value.get_ref().as_table() else {
            let what = format!("{} stands directly in [pool]", quoted(name.get_ref()));
            report.mistake(at, Problem::new(what, hint));
            continue;
        };
        if let Err(problem) = check_pool_name(name.get_ref()) {
            report.mistake(at, problem);
        }
        let header = format!("[pool.{}]", crate::toml_text::key(name.get_ref()));
        let section = read_pool(content, at, header, report);
        pools.push(NamedPool { name: name.get_ref().to_string(), at, section });
    }
    pools.sort_by_key(|pool| pool.at);
    Ok(Value::Pools(pools))
}

/// Longest name of a pool. The name is part of every metric of the pool.
pub(crate) const POOL_NAME_LEN_MAX: usize = 64;

/// Checks the name of a pool. Names become metric labels and are typed on command lines.
pub(crate) fn check_pool_name(name: &str) -> Result<(), Problem> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > POOL_NAME_LEN_MAX || !name.chars().all(fits) {
        let what = format!("{} cannot be the name of a pool", quoted(name));
        let hint = format!("use 1 to {POOL_NAME_LEN_MAX} letters, digits, _, - and .");
        return Err(Problem::new(what, hint));
    }
    Ok(())
}

/// Reads a pool. Its `kind` decides which table of keys applies.
fn read_pool(
    content: &DeTable<'_>,
    at: usize,
    header: String,
    report: &mut Report<'_>,
) -> Option<(&'static str, Section)> {
    let kind = content.iter().find(|(name, _)| name.get_ref() == "kind").map(|(_, value)| value);
    let known = kind.and_then(|kind| {
        schema::POOLS.iter().find(|(name, _)| kind.get_ref().as_str() == Some(*name))
    });
    if let Some((kind, table)) = known {
        return Some((kind, read_table(table, content, at, header, report)));
    }
    let kind_key = schema::STORE.key("kind")?;
    match kind {
        Some(kind) => {
            read_value(kind_key, kind, &header, report);
        }
        None => {
            let what = format!("kind is missing in {header}");
            report.consequence(at, Problem::new(what, format!("add {KIND_EXAMPLE}")));
        }
    }
    for (name, _) in content {
        let is_unknown = schema::POOLS.iter().all(|(_, table)| table.key(name.get_ref()).is_none());
        if is_unknown && !report.is_full() {
            let problem = unknown_key(name.get_ref(), &schema::SHARDED, &header);
            report.mistake(name.span().start, problem);
        }
    }
    None
}

fn read_servers(
    name: &str,
    value: &Spanned<DeValue<'_>>,
    header: &str,
    report: &mut Report<'_>,
) -> Result<Value, Problem> {
    let Some(items) = value.get_ref().as_array() else {
        let what = format!("{} is not a list", shown(value.get_ref()));
        return Err(Problem::new(what, "write [\"HOST:PORT:WEIGHT NAME\", …]"));
    };
    if items.is_empty() || items.len() > SERVERS_MAX {
        let what = listed("server", items.len());
        return Err(Problem::new(what, format!("list 1 to {SERVERS_MAX}")));
    }
    let mut servers = Vec::with_capacity(items.len());
    for item in items {
        let server = match item.get_ref().as_str() {
            Some(text) => parse_server(text),
            None => Err(Problem::new(
                format!("{} is not text", shown(item.get_ref())),
                "write \"HOST:PORT:WEIGHT NAME\" in quotes",
            )),
        };
        match server {
            Ok(server) => servers.push((item.span().start, server)),
            Err(mut problem) => {
                problem.what = format!("{name} in {header}: {}", problem.what);
                report.mistake(item.span().start, problem);
            }
        }
    }
    Ok(Value::Servers(servers))
}

fn read_names(value: &Spanned<DeValue<'_>>, hint: &str) -> Result<Value, Problem> {
    let wrong = |what: &DeValue<'_>, why| Problem::new(format!("{} {why}", shown(what)), hint);
    let list = value.get_ref();
    let items = list.as_array().ok_or_else(|| wrong(list, "is not a list"))?;
    let name = |item: &Spanned<DeValue<'_>>| {
        let name = item.get_ref().as_str().ok_or_else(|| wrong(item.get_ref(), "is not text"))?;
        Ok((item.span().start, name.to_owned()))
    };
    items.iter().map(name).collect::<Result<Vec<_>, Problem>>().map(Value::Names)
}

/// Most servers of one pool. It is far above any pool in use, and each server costs a connection
/// per worker.
pub(crate) const SERVERS_MAX: usize = 4096;

fn read_workers_table(
    key: &'static Key,
    value: &Spanned<DeValue<'_>>,
    header: &str,
    report: &mut Report<'_>,
) -> Option<Value> {
    let content = value.get_ref().as_table()?;
    let at = value.span().start;
    let table = read_table(&schema::WORKERS, content, at, sub_header(key, header), report);
    let (min, max) = (table.number("min")? as u16, table.number("max")? as u16);
    if min > max {
        let what = format!("min ({min}) is above max ({max}) in {}", table.header);
        report.mistake(at, Problem::new(what, format!("write {{ min = {max}, max = {min} }}")));
        return None;
    }
    Some(Value::Workers(Workers::Between { min, max }))
}

fn read_scalar(key: &Key, value: &DeValue<'_>) -> Result<Value, Problem> {
    if let Kind::Secret = key.kind {
        return read_secret(value);
    }
    match &key.kind {
        Kind::Bool => value.as_bool().map(Value::Bool).ok_or_else(|| {
            Problem::new(format!("{} is not true or false", shown(value)), "write true or false")
        }),
        Kind::Count { min, max } => read_count(value, *min, *max).map(Value::Number),
        Kind::Workers => {
            let count = read_count(value, 1, u64::from(schema::WORKERS_MAX))? as u16;
            Ok(Value::Workers(Workers::Between { min: count, max: count }))
        }
        Kind::Duration { min, max } => {
            let range = (*min, *max);
            let duration = parse_duration(with_unit(key, value)?, range)?;
            in_range(duration, range, value, |d| quoted(&format_duration(d))).map(Value::Duration)
        }
        Kind::Size { min, max } => {
            let range = (*min, *max);
            let size = parse_size(with_unit(key, value)?, range)?;
            in_range(size, range, value, |s| quoted(&format_size(s))).map(Value::Number)
        }
        Kind::Mode => read_mode(value).map(Value::Number),
        Kind::Uids => crate::shm::read_uids(value),
        Kind::Networks => crate::access::read_networks(value),
        _ => read_text(key, text_of(key, value)?),
    }
}

fn read_text(key: &Key, text: &str) -> Result<Value, Problem> {
    match &key.kind {
        Kind::Choice(choices) => read_choice(choices, text).map(|word| Value::Text(word.into())),
        Kind::Listen => parse_listen(text).map(Value::Listen),
        Kind::Admin => parse_admin(text).map(Value::Listen),
        Kind::Rejoin => parse_rejoin(text).map(Value::Rejoin),
        Kind::ReadFrom => parse_read_from(text).map(|_| Value::Text(text.to_owned())),
        Kind::HedgeAfter => parse_hedge_after(text).map(|_| Value::Text(text.to_owned())),
        Kind::Share => parse_share(text).map(|share| Value::Number(share.into())),
        Kind::HashTag => parse_hash_tag(text).map(Value::HashTag),
        Kind::KeyspaceEvents => KeyspaceEvents::parse(text)
            .map(Value::KeyspaceEvents)
            .map_err(|unknown| Problem::new(unknown_letter(unknown.0), KEYSPACE_EVENTS_HINT)),
        Kind::Path => parse_path(text).map(Value::Path),
        Kind::Prefix if !(1..=PREFIX_LEN_MAX).contains(&text.len()) => {
            Err(Problem::new(format!("the prefix has {} bytes", text.len()), PREFIX_HINT))
        }
        Kind::Primary => crate::replica::parse(text).map(Value::Primary),
        Kind::Rules => crate::users::read_rules(text),
        Kind::Variable => crate::users::read_variable(text),
        Kind::UserName if !is_user_name(text) => {
            Err(Problem::new(format!("{} is no user name", quoted(text)), USER_NAME_HINT))
        }
        _ => Ok(Value::Text(text.to_owned())),
    }
}

/// Returns whether a name has no byte that separates it from the password on the wire.
fn is_user_name(text: &str) -> bool {
    let separates = |byte| matches!(byte, b' ' | b':') || byte < b' ';
    (1..=USER_NAME_LEN_MAX).contains(&text.len()) && !text.bytes().any(separates)
}

/// Longest user name, in bytes.
const USER_NAME_LEN_MAX: usize = 128;
const USER_NAME_HINT: &str = "write 1 to 128 bytes without blanks and colons in double quotes";

/// Longest prefix of a quota, in bytes.
const PREFIX_LEN_MAX: usize = 128;
const PREFIX_HINT: &str = "write 1 to 128 bytes of text in double quotes";

fn read_secret(value: &DeValue<'_>) -> Result<Value, Problem> {
    let hint = format!("write 1 to {PASSWORD_LEN_MAX} bytes of text in double quotes");
    match value.as_str() {
        None => Err(Problem::new("the value is not text", hint)),
        Some(text) => check_password(text).map_err(|what| Problem::new(what, hint)),
    }
    .map(Value::Secret)
}

fn text_of<'v>(key: &Key, value: &'v DeValue<'_>) -> Result<&'v str, Problem> {
    value.as_str().ok_or_else(|| {
        let hint = match &key.kind {
            Kind::Listen => LISTEN_HINT.to_owned(),
            Kind::Admin => ADMIN_HINT.to_owned(),
            Kind::Duration { min, max } => {
                format!("write \"{}\" to \"{}\"", format_duration(*min), format_duration(*max))
            }
            Kind::Size { min, max } => {
                format!("write \"{}\" to \"{}\"", format_size(*min), format_size(*max))
            }
            Kind::Choice(choices) => format!("write {}", any_of(choices.now.iter().copied())),
            Kind::HashTag => HASH_TAG_HINT.to_owned(),
            Kind::KeyspaceEvents => KEYSPACE_EVENTS_HINT.to_owned(),
            Kind::Rejoin => REJOIN_HINT.to_owned(),
            Kind::PoolName => "write the name of a pool in double quotes".to_owned(),
            Kind::Prefix => PREFIX_HINT.to_owned(),
            Kind::UserName => USER_NAME_HINT.to_owned(),
            Kind::Primary => crate::replica::HINT.to_owned(),
            _ => "write text in double quotes".to_owned(),
        };
        Problem::new(format!("{} is not text", shown(value)), hint)
    })
}

/// Returns text with a unit. Also returns a bare number as text, which the unit's parser will
/// refuse with the right hint.
fn with_unit<'v>(key: &Key, value: &'v DeValue<'_>) -> Result<&'v str, Problem> {
    match value {
        DeValue::Integer(number) => Ok(number.as_str()),
        DeValue::Float(number) => Ok(number.as_str()),
        _ => text_of(key, value),
    }
}

fn read_count(value: &DeValue<'_>, min: u64, max: u64) -> Result<u64, Problem> {
    let Some(number) = value.as_integer() else {
        let what = format!("{} is not a whole number", shown(value));
        return Err(Problem::new(what, format!("write a number from {min} to {max}, no quotes")));
    };
    let count = i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX);
    let count = u64::try_from(count).unwrap_or(if count < 0 { 0 } else { u64::MAX });
    let negative = number.as_str().starts_with('-');
    if negative && min == 0 && count == 0 && number.as_str() != "-0" {
        let what = format!("{} is below 0", shown(value));
        return Err(Problem::new(what, format!("write a number from {min} to {max}")));
    }
    in_range(count, (min, max), value, |n| n.to_string())
}

fn in_range<T: PartialOrd + Copy>(
    number: T,
    (min, max): (T, T),
    value: &DeValue<'_>,
    text: impl Fn(T) -> String,
) -> Result<T, Problem> {
    if number >= min && number <= max {
        return Ok(number);
    }
    let side = if number < min { "small" } else { "large" };
    let what = format!("{} is too {side}", shown(value));
    Err(Problem::new(what, format!("write {} to {}", text(min), text(max))))
}

fn read_mode(value: &DeValue<'_>) -> Result<u64, Problem> {
    let mode = value.as_str().filter(|text| (3..=4).contains(&text.len()));
    let mode = mode.filter(|text| text.bytes().all(|b| (b'0'..=b'7').contains(&b)));
    let mode = mode.and_then(|text| u64::from_str_radix(text, 8).ok());
    mode.filter(|mode| *mode <= 0o777).ok_or_else(|| {
        Problem::new(
            format!("{} is not a file mode", shown(value)),
            "write three or four octal digits in quotes, such as \"0660\"",
        )
    })
}

fn read_choice(choices: &'static Choices, text: &str) -> Result<&'static str, Problem> {
    if let Some(word) = choices.now.iter().find(|word| **word == text) {
        return Ok(word);
    }
    let all = || any_of(choices.now.iter().copied());
    if choices.later.contains(&text) {
        let what = format!("{} is not in this version", quoted(text));
        return Err(Problem::new(what, format!("write {}", all())));
    }
    let hint = match nearest(text, choices.now.iter().copied()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("write {}", all()),
    };
    Err(Problem::new(format!("{} is not known", quoted(text)), hint))
}

const REJOIN_HINT: &str = "write \"serve\", \"flush\", \"quarantine\" or \"quarantine 10m\"";

fn parse_rejoin(text: &str) -> Result<Rejoin, Problem> {
    match text {
        "serve" => Ok(Rejoin::Serve),
        "flush" => Ok(Rejoin::Flush),
        "quarantine" => Ok(Rejoin::Quarantine(None)),
        _ => match text.strip_prefix("quarantine ") {
            None => Err(Problem::new(format!("{} is not known", quoted(text)), REJOIN_HINT)),
            Some(time) => {
                let range = (Duration::ZERO, schema::QUARANTINE_MAX);
                let time = parse_duration(time, range).map_err(|problem| {
                    Problem::new(problem.what, "write the time like \"quarantine 10m\"")
                })?;
                if time > schema::QUARANTINE_MAX {
                    let what = format!("{} is too large", quoted(text));
                    return Err(Problem::new(what, "write at most \"quarantine 30d\""));
                }
                Ok(Rejoin::Quarantine(Some(time)))
            }
        },
    }
}

const KEYSPACE_EVENTS_HINT: &str = "write letters of \"KEg$lshzxetdnmA\", such as \"Ex\", or \"\" \
     for none";

fn unknown_letter(letter: char) -> String {
    format!("{} is no letter for events", quoted(&letter.to_string()))
}

const HASH_TAG_HINT: &str =
    "write the opening and the closing one, such as \"{}\", or \"\" for none";

fn parse_hash_tag(text: &str) -> Result<Option<HashTag>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    // Other text may be two bytes but one character.
    let tag = HashTag::parse(text).filter(|_| text.bytes().all(|b| b.is_ascii_graphic()));
    tag.map(Some).ok_or_else(|| {
        let what = format!("{} is not two ASCII characters", quoted(text));
        Problem::new(what, HASH_TAG_HINT)
    })
}

fn parse_path(text: &str) -> Result<PathBuf, Problem> {
    if text.is_empty() || text.contains('\0') {
        let what = format!("{} is no path", quoted(text));
        return Err(Problem::new(what, "write the path of a file, from the folder of this one on"));
    }
    Ok(PathBuf::from(text))
}

/// Returns a value for a message. Never called for secrets.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string().chars().take(40).collect(),
        DeValue::Float(number) => number.to_string().chars().take(40).collect(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_can_be_read() {
        let tables = schema::TABLES.iter().copied().chain([&schema::ROOT, &schema::WORKERS]);
        for table in tables {
            for key in table.keys {
                if let Absent::Is(default) = key.absent {
                    let read = read_default(key, default);
                    assert!(read.is_some(), "{} of {}", key.name, table.header);
                }
            }
        }
    }

    #[test]
    fn no_key_is_in_a_table_twice_nor_an_alias_a_key() {
        for table in schema::TABLES {
            for (index, key) in table.keys.iter().enumerate() {
                assert!(table.keys[..index].iter().all(|other| other.name != key.name));
                assert!(key.aliases.iter().all(|alias| table.key(alias).is_none()));
                assert!(!key.doc.is_empty());
            }
        }
    }
}
