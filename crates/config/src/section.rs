//! The values of a file's tables, each right by itself.

use crate::address::ListenAddr;
use crate::model::Workers;
use crate::schema::Table;
use keyway_base::{KeyspaceEvents, Network};
use keyway_topology::{HashTag, Password, Rejoin, Server};
use keyway_users::Digest;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A value of the file, or a default.
pub(crate) enum Value {
    Bool(bool),
    Duration(Duration),
    Number(u64),
    Workers(Workers),
    Text(String),
    Listen(ListenAddr),
    /// Each with its place in the file; wrong ones are left out.
    Servers(Vec<(usize, Server)>),
    /// Names of pools, each with its place in the file.
    Names(Vec<(usize, String)>),
    /// Numbers of users.
    Uids(Vec<u32>),
    Networks(Vec<Network>),
    Rejoin(Rejoin),
    HashTag(Option<HashTag>),
    KeyspaceEvents(KeyspaceEvents),
    Secret(Password),
    Hashes(HashedPasswords),
    Path(PathBuf),
    /// The key's word, such as `"off"`.
    Word,
    Table(Section),
    List(Vec<Section>),
    Pools(Vec<NamedPool>),
}

/// What stands in `password_hashes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashedPasswords {
    pub(crate) digests: Vec<Digest>,
    pub(crate) slow: Vec<Arc<str>>,
    /// Returns whether a text is the mask that a shown configuration has in place of a hash.
    pub(crate) has_mask: bool,
}

/// A `[pool.NAME]`.
pub(crate) struct NamedPool {
    pub(crate) name: String,
    pub(crate) at: usize,
    /// Kind and keys; `None` when the kind is not one we can read.
    pub(crate) section: Option<(&'static str, Section)>,
}

/// The values of one table, defaults included.
pub(crate) struct Section {
    /// Where it begins in the file.
    pub(crate) at: usize,
    /// How messages call it.
    pub(crate) header: String,
    pub(crate) table: &'static Table,
    pub(crate) entries: BTreeMap<&'static str, Entry>,
}

/// What one key has.
pub(crate) struct Entry {
    /// `None` when what is written is wrong: no default stands in for it, or
    /// mistakes would be found that nobody made.
    pub(crate) value: Option<Value>,
    /// Where it is written; `None` for a default.
    pub(crate) at: Option<usize>,
    /// A wrong address as written, for what can be told from it.
    pub(crate) address: Option<String>,
}

impl Section {
    /// Where the key is written; `None` when it is not.
    pub(crate) fn given(&self, name: &str) -> Option<usize> {
        self.entries.get(name).and_then(|entry| entry.at)
    }

    /// Where the key is written, or else where the table begins.
    pub(crate) fn place(&self, name: &str) -> usize {
        self.given(name).unwrap_or(self.at)
    }

    /// The text of an address that is wrong and already reported.
    pub(crate) fn wrong_address(&self, name: &str) -> Option<&str> {
        self.entries.get(name).and_then(|entry| entry.address.as_deref())
    }

    /// The value; `None` when it is unset, or wrong and already reported.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        debug_assert!(self.table.key(name).is_some(), "{name} is not in {}", self.header);
        self.entries.get(name).and_then(|entry| entry.value.as_ref())
    }

    pub(crate) fn bool(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Bool(true)))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A number that the schema keeps within 32 bits; 0 when wrong and
    /// already reported.
    pub(crate) fn number_u32(&self, name: &str) -> u32 {
        self.number(name).unwrap_or_default().try_into().unwrap_or(u32::MAX)
    }

    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        match self.value(name) {
            Some(Value::Duration(duration)) => Some(*duration),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn sections(&self, name: &str) -> &[Section] {
        match self.value(name) {
            Some(Value::List(sections)) => sections,
            _ => &[],
        }
    }

    /// The value of a key that only some tables have.
    pub(crate) fn of_its_table(&self, name: &str) -> Option<&Value> {
        self.table.key(name).and_then(|_| self.value(name))
    }

    /// The tables of a list that only some tables have.
    pub(crate) fn list_of(&self, name: &str) -> &[Section] {
        if self.table.key(name).is_some() { self.sections(name) } else { &[] }
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        match self.value(name) {
            Some(Value::Table(section)) => Some(section),
            _ => None,
        }
    }
}
