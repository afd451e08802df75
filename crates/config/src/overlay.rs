//! The parts of a document of the control plane in place of parts of a file: pools, users and limits.

use crate::error::{Problem, Report, quoted};
use crate::reader::read_table;
use crate::schema;
use crate::section::Section;
use crate::syntax;
use toml::de::{DeTable, DeValue};

/// The tables of a document.
const TABLES: [&str; 3] = ["pool", "user", "limits"];

/// Reads a file as [`crate::reader::read`] does, of a text that goes on with a document of the control plane from
/// `at` on. Pools, users and limits of the document replace those that the file leaves to the control plane.
pub(crate) fn read_both(both: &str, at: usize, report: &mut Report<'_>) -> Section {
    let (file, document) = both.split_at_checked(at).unwrap_or((both, ""));
    // The document is read at its place, behind as many blanks as the file has bytes.
    let padded = " ".repeat(file.len()) + document;
    let (found, mut errors) = DeTable::parse_recoverable(file);
    let (mut over, more) = DeTable::parse_recoverable(&padded);
    errors.extend(more);
    syntax::report_all(both, &errors, report);
    let mut table = found.into_inner();
    refuse_in_document(over.get_ref(), report);
    let left: Vec<String> = left_to_control(&table);
    if let (Some(pools), Some(others)) = (pools_of(&mut table), pools_of(over.get_mut())) {
        for name in left {
            if let Some((key, value)) = others.remove_entry(name.as_str()) {
                pools.remove(name.as_str());
                pools.insert(key, value);
            }
        }
    }
    for (name, key) in [("user", "users"), ("limits", "limits")] {
        if leaves(&table, key)
            && let Some((key, value)) = over.get_mut().remove_entry(name)
            && !is_empty_list(value.get_ref())
        {
            table.remove(name);
            table.insert(key, value);
        }
    }
    read_table(&schema::ROOT, &table, 0, "the file".to_owned(), report)
}

/// Refuses what may be in a file, but in no document: it is sent to every control node and to every
/// proxy, and the coordinator keeps it as it is.
fn refuse_in_document(document: &DeTable<'_>, report: &mut Report<'_>) {
    for name in document.keys().filter(|name| !TABLES.contains(&&**name.get_ref())) {
        let what = format!("{} stands in a document of the control plane", quoted(name.get_ref()));
        let hint = "it has [pool.NAME], [[user]] and [limits] tables only";
        report.mistake(name.span().start, Problem::new(what, hint));
    }
    let users = document.get("user").and_then(|users| users.get_ref().as_array());
    for user in users.into_iter().flat_map(|users| users.iter()) {
        let Some(user) = user.get_ref().as_table() else { continue };
        if let Some((key, _)) = user.get_key_value("password") {
            let what = "password in [[user]] stands in a document of the control plane, which is \
                        stored and sent as it is";
            let hint = "write what `keyway hash-password` prints: password_hashes = [\"#...\"]";
            report.mistake(key.span().start, Problem::new(what, hint));
        }
    }
}

fn pools_of<'t, 'd>(table: &'t mut DeTable<'d>) -> Option<&'t mut DeTable<'d>> {
    match table.get_mut("pool")?.get_mut() {
        DeValue::Table(pools) => Some(pools),
        _ => None,
    }
}

/// Returns whether `[control]` leaves a part other than pools to the control plane.
fn leaves(table: &DeTable<'_>, key: &str) -> bool {
    let control = table.get("control").and_then(|control| control.get_ref().as_table());
    control.and_then(|control| control.get(key)?.get_ref().as_bool()) == Some(true)
}

fn is_empty_list(value: &DeValue<'_>) -> bool {
    value.as_array().is_some_and(|all| all.is_empty())
}

/// Returns the pools that `[control]` leaves to the control plane.
fn left_to_control(table: &DeTable<'_>) -> Vec<String> {
    let control = table.get("control").and_then(|control| control.get_ref().as_table());
    let pools = control.and_then(|control| control.get("pools")?.get_ref().as_array());
    let names = pools.into_iter().flatten().filter_map(|name| name.get_ref().as_str());
    names.map(str::to_owned).collect()
}

/// The parts that a document has, as far as it can be read.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The names of its pools.
    pub(crate) pools: Vec<String>,
    /// The names of pools that its users have.
    pub(crate) pools_of_users: Vec<String>,
    /// True if it has a user.
    pub(crate) users: bool,
    /// True if it has `[limits]`.
    pub(crate) limits: bool,
}

impl Parts {
    pub(crate) fn of(text: &str) -> Parts {
        let (found, _) = DeTable::parse_recoverable(text);
        let document = found.get_ref();
        let pools = document.get("pool").and_then(|pools| pools.get_ref().as_table());
        let names = pools.into_iter().flat_map(|pools| pools.keys());
        let users = document.get("user").map(|users| users.get_ref());
        let each = users.and_then(DeValue::as_array).into_iter().flat_map(|users| users.iter());
        let of_users = each.filter_map(|user| {
            let name = user.get_ref().as_table()?.get("pool")?.get_ref().as_str()?;
            Some(name.to_owned())
        });
        Parts {
            pools: names.map(|name| name.get_ref().to_string()).collect(),
            pools_of_users: of_users.collect(),
            users: users.is_some_and(|users| !is_empty_list(users)),
            limits: document.contains_key("limits"),
        }
    }
}
