//! The values of a file's tables, each of them checked by itself.

use crate::address::ListenAddr;
use crate::model::Workers;
use crate::replica::PrimaryUrl;
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
    /// Servers, each with its place in the file. Wrong ones are left out.
    Servers(Vec<(usize, Server)>),
    /// Names of pools, each with its place in the file.
    Names(Vec<(usize, String)>),
    /// Numbers of users of the system.
    Uids(Vec<u32>),
    Networks(Vec<Network>),
    Rejoin(Rejoin),
    HashTag(Option<HashTag>),
    KeyspaceEvents(KeyspaceEvents),
    Secret(Password),
    Primary(PrimaryUrl),
    Hashes(HashedPasswords),
    Path(PathBuf),
    /// The key's word, such as `"off"`.
    Word,
    Table(Section),
    List(Vec<Section>),
    Pools(Vec<NamedPool>),
}

/// The value of `password_hashes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashedPasswords {
    pub(crate) digests: Vec<Digest>,
    pub(crate) slow: Vec<Arc<str>>,
    /// True if one of them is the mask that a shown configuration has in place of a hash.
    pub(crate) has_mask: bool,
}

/// A table `[pool.NAME]`.
pub(crate) struct NamedPool {
    pub(crate) name: String,
    pub(crate) at: usize,
    /// Its kind and keys; `None` if the kind is not one of Keyway's.
    pub(crate) section: Option<(&'static str, Section)>,
}

/// The values of one table, defaults included.
pub(crate) struct Section {
    /// The position at which it begins in the file.
    pub(crate) at: usize,
    /// Its name in messages.
    pub(crate) header: String,
    pub(crate) table: &'static Table,
    pub(crate) entries: BTreeMap<&'static str, Entry>,
}

/// The value of one key.
pub(crate) struct Entry {
    /// `None` if the written value is wrong. No default replaces it, because that would cause
    /// errors about values that nobody wrote.
    pub(crate) value: Option<Value>,
    /// The position at which it is written; `None` for a default.
    pub(crate) at: Option<usize>,
    /// A wrong address as written, for conclusions from its text.
    pub(crate) address: Option<String>,
}

impl Section {
    /// Returns the position at which the key is written; `None` if it is not.
    pub(crate) fn given(&self, name: &str) -> Option<usize> {
        self.entries.get(name).and_then(|entry| entry.at)
    }

    /// Returns the position at which the key is written, else that of the table.
    pub(crate) fn place(&self, name: &str) -> usize {
        self.given(name).unwrap_or(self.at)
    }

    /// Returns the text of an address that is wrong and reported.
    pub(crate) fn wrong_address(&self, name: &str) -> Option<&str> {
        self.entries.get(name).and_then(|entry| entry.address.as_deref())
    }

    /// Returns the value; `None` if it is unset, or is wrong and reported.
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

    /// Returns a number that the schema keeps within 32 bits; 0 if it is wrong and reported.
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

    /// Returns the value of a key that only some tables have.
    pub(crate) fn of_its_table(&self, name: &str) -> Option<&Value> {
        self.table.key(name).and_then(|_| self.value(name))
    }

    /// Returns the servers that a pool lists in its own table or in those of its groups, each with its
    /// place.
    pub(crate) fn listed_servers(&self) -> Vec<&(usize, Server)> {
        let tables = std::iter::once(self).chain(self.list_of("groups"));
        let lists = tables.filter_map(|table| match table.of_its_table("servers") {
            Some(Value::Servers(servers)) => Some(servers),
            _ => None,
        });
        lists.flatten().collect()
    }

    /// Returns the tables of a list that only some tables have.
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
