//! A key and a table of the schema.

use super::kind::{Absent, Kind};
use std::time::Duration;

/// One key.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// A word that is accepted besides the values of `kind`, such as `"off"`.
    pub(crate) word: Option<&'static str>,
    pub(crate) absent: Absent,
    /// Its names in other programs, for the hint to an unknown key.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) doc: &'static str,
}

/// The keys of one table.
pub(crate) struct Table {
    /// The header as it is in the file: `[server]`.
    pub(crate) header: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) keys: &'static [Key],
}

impl Table {
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.keys.iter().map(|key| key.name)
    }
}

pub(super) const fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

pub(super) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(super) const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}

pub(super) const KIB: u64 = 1 << 10;

pub(super) const MIB: u64 = 1 << 20;

pub(super) const GIB: u64 = 1 << 30;

pub(super) const TIB: u64 = 1 << 40;

pub(super) const fn key(name: &'static str, kind: Kind, absent: Absent, doc: &'static str) -> Key {
    Key { name, kind, word: None, absent, aliases: &[], doc }
}

impl Key {
    pub(crate) fn is_pools(&self) -> bool {
        matches!(self.kind, Kind::Pools)
    }

    pub(super) const fn or_word(mut self, word: &'static str) -> Self {
        self.word = Some(word);
        self
    }

    pub(super) const fn known_elsewhere_as(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }
}
