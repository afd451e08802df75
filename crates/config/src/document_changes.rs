//! The differences between two documents of the control plane, as far as rights depend on them.

use crate::Config;
use std::collections::BTreeSet;
use toml::de::{DeTable, DeValue};

/// The parts that a document changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentChange {
    /// These pools, and nothing else.
    Pools(BTreeSet<String>),
    /// Users or limits, and possibly pools.
    UsersOrLimits,
    /// It may be anything: another table differs, or a document cannot be read.
    Any,
}

impl Config {
    /// Returns the parts that two documents have differently, or that only one of them has. A part
    /// counts as changed if any of its keys is written with another value, whatever that value means.
    /// An empty text has no parts.
    pub fn changed_parts(old: &str, new: &str) -> DocumentChange {
        let ((old, old_errors), (new, new_errors)) =
            (DeTable::parse_recoverable(old), DeTable::parse_recoverable(new));
        let (old, new) = (old.get_ref(), new.get_ref());
        let names: BTreeSet<&str> =
            old.keys().chain(new.keys()).map(|key| &**key.get_ref()).collect();
        if !old_errors.is_empty() || !new_errors.is_empty() {
            return DocumentChange::Any;
        }
        let mut changed = BTreeSet::new();
        let mut has_others = false;
        for name in names {
            let (before, after) = (value(old, name), value(new, name));
            if is_same(before, after) {
                continue;
            }
            if matches!(name, "user" | "limits") {
                has_others = true;
                continue;
            }
            let none = DeTable::new();
            let tables = [before, after].map(|it| it.map_or(Some(&none), DeValue::as_table));
            let ("pool", [Some(before), Some(after)]) = (name, tables) else {
                return DocumentChange::Any;
            };
            let pools = before.keys().chain(after.keys()).map(|key| &**key.get_ref());
            let differs = |pool: &&str| !is_same(value(before, pool), value(after, pool));
            changed.extend(pools.filter(differs).map(str::to_owned));
        }
        match has_others {
            true => DocumentChange::UsersOrLimits,
            false => DocumentChange::Pools(changed),
        }
    }

    /// Returns the first file, directory or variable of the environment that a new document names and
    /// the old one does not, as `key = value`. Each process that serves by the document reads it, and
    /// may send its content to a server that the document names.
    pub fn other_files(old: &str, new: &str) -> Option<String> {
        let ((old, _), (new, _)) =
            (DeTable::parse_recoverable(old), DeTable::parse_recoverable(new));
        let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
        files_of(old.get_ref(), "", &mut before);
        files_of(new.get_ref(), "", &mut after);
        let other = after.difference(&before).next()?;
        Some(other.1.clone())
    }
}

/// Collects the files, directories and variables of a table: the place of each, and the key with its
/// value.
fn files_of(table: &DeTable<'_>, place: &str, out: &mut BTreeSet<(String, String)>) {
    for (key, value) in table {
        let key = &**key.get_ref();
        let place = format!("{place}.{key}");
        let is_named = ["_file", "_env"].iter().any(|end| key.ends_with(end))
            || matches!(key, "file" | "dir" | "path");
        match value.get_ref() {
            DeValue::Table(table) => files_of(table, &place, out),
            DeValue::Array(all) => {
                for (at, one) in all.iter().enumerate() {
                    if let DeValue::Table(table) = one.get_ref() {
                        files_of(table, &format!("{place}.{at}"), out);
                    }
                }
            }
            DeValue::String(text) if is_named => {
                out.insert((place, format!("{key} = {text:?}")));
            }
            _ => {}
        }
    }
}

fn value<'t, 'd>(table: &'t DeTable<'d>, key: &str) -> Option<&'t DeValue<'d>> {
    table.get(key).map(|value| value.get_ref())
}

/// Returns whether two values are written alike, apart from blanks, comments and order.
fn is_same(one: Option<&DeValue<'_>>, other: Option<&DeValue<'_>>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    match (one, other) {
        (DeValue::String(one), DeValue::String(other)) => one == other,
        (DeValue::Integer(one), DeValue::Integer(other)) => {
            (one.radix(), one.as_str()) == (other.radix(), other.as_str())
        }
        (DeValue::Float(one), DeValue::Float(other)) => one.as_str() == other.as_str(),
        (DeValue::Boolean(one), DeValue::Boolean(other)) => one == other,
        (DeValue::Datetime(one), DeValue::Datetime(other)) => one == other,
        (DeValue::Array(one), DeValue::Array(other)) => {
            let mut pairs = one.iter().zip(other.iter());
            one.len() == other.len()
                && pairs.all(|(one, other)| is_same(Some(one.get_ref()), Some(other.get_ref())))
        }
        (DeValue::Table(one), DeValue::Table(other)) => {
            let mut pairs = one.iter();
            one.len() == other.len()
                && pairs.all(|(key, it)| is_same(Some(it.get_ref()), value(other, key.get_ref())))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_changed_by_any_of_its_keys_and_by_nothing_else() {
        let old = "[pool.a]\nkind = \"store\"\n[pool.b]\nkind = \"sharded\"\nservers = [\"h:1\"]\n";
        let changed = |new: &str| match Config::changed_parts(old, new) {
            DocumentChange::Pools(pools) => pools.into_iter().collect::<Vec<_>>().join(" "),
            DocumentChange::UsersOrLimits => "others".to_owned(),
            DocumentChange::Any => "any".to_owned(),
        };
        assert_eq!(changed(old), "");
        let other_order = "# a comment\n[pool.b]\nservers = [ \"h:1\" ]\nkind = 'sharded'\n\
                           [pool]\na = { kind = \"store\" }\n";
        assert_eq!(changed(other_order), "");
        assert_eq!(changed(&old.replace("h:1", "h:2")), "b");
        assert_eq!(changed(&old.replace("[pool.a]\n", "[pool.a]\nmemory_max = \"1GiB\"\n")), "a");
        assert_eq!(changed(&old.replace("pool.a", "pool.c")), "a c");
        assert_eq!(changed(""), "a b");
        // Names that look like others, or like tables, are names.
        let more = format!("{old}[pool.\"a b\"]\nkind = \"store\"\n");
        let one = BTreeSet::from(["a b".to_owned()]);
        assert_eq!(Config::changed_parts(old, &more), DocumentChange::Pools(one));
        for part in ["[limits]\nclients_max = 7\n", "[limits]\n", "user = []\n", "user = 1\n"] {
            assert_eq!(changed(&format!("{part}{old}")), "others", "{part}");
            assert_eq!(changed(part), "others", "{part}");
        }
        let users = "[[user]]\nname = \"a\"\nrules = \"+@all ~*\"\n";
        let with = format!("{users}{old}");
        let same = |other: &str| Config::changed_parts(&with, other);
        assert_eq!(same(&with), DocumentChange::Pools(BTreeSet::new()));
        assert_eq!(same(&with.replace("+@all", "+@read")), DocumentChange::UsersOrLimits);
        assert_eq!(same(old), DocumentChange::UsersOrLimits);
        // Names of other tables weigh more than users.
        assert_eq!(same("[server]\nworkers = 1\n"), DocumentChange::Any);
        for other in ["[server]\nworkers = 1\n", "[pool.a", "x = 1\n", "pool = 1\n"] {
            assert_eq!(changed(other), "any", "{other}");
        }
    }
}
