//! Metrics count a request under its command, and under the class of the command.

use crate::table::{COMMANDS, Verb};
use crate::{Class, Command};

/// Commands of memcached that Redis does not have, with their names in the text protocol. Commands
/// that both have are counted together: usually a pool is used with one protocol.
const OF_MEMCACHED: [&str; 17] = [
    "add",
    "admin",
    "cache_memlimit",
    "cas",
    "delete",
    "flush_all",
    "gat",
    "me",
    "noop",
    "prepend",
    "replace",
    "sasl_list",
    "sasl_start",
    "sasl_step",
    "stats",
    "verbosity",
    "version",
];

/// A number that is larger than that of every [`Verb`].
const VERBS: usize = last_verb() + 1;

/// The name of every command, by [`Counted::command`]: lower case, and a subcommand's as
/// `client|list`. The last one is that of Keyway's own questions.
pub static COUNTED_NAMES: [&str; VERBS + OF_MEMCACHED.len() + 1] = names();

/// The class and the command under which a request is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    class: Class,
    command: u16,
}

impl Counted {
    /// One of Keyway's own questions. It is not a request of a client, so no metric of requests
    /// counts it.
    pub const OWN: Counted =
        Counted { class: Class::Read, command: (COUNTED_NAMES.len() - 1) as u16 };

    /// Returns a command of memcached.
    ///
    /// # Panics
    /// Panics if there is none of this name. It should be called in a constant, so that the
    /// compiler finds that.
    pub const fn of_memcached(class: Class, name: &str) -> Counted {
        let mut at = 0;
        while at < COUNTED_NAMES.len() - 1 {
            if same(COUNTED_NAMES[at].as_bytes(), name.as_bytes()) {
                return Counted { class, command: at as u16 };
            }
            at += 1;
        }
        panic!("there is no such command");
    }

    /// Returns its class.
    #[inline]
    pub fn class(self) -> Class {
        self.class
    }

    /// Returns its command, as an index into [`COUNTED_NAMES`].
    #[inline]
    pub fn command(self) -> usize {
        usize::from(self.command)
    }
}

impl Default for Counted {
    fn default() -> Self {
        Self::OWN
    }
}

impl Command {
    /// Returns the class and the command under which its requests are counted.
    #[inline]
    pub fn counted(&self) -> Counted {
        Counted { class: self.class, command: self.verb as u16 }
    }
}

const fn last_verb() -> usize {
    let mut last = Verb::Acl as usize;
    let mut at = 0;
    while at < COMMANDS.len() {
        last = greater(last, COMMANDS[at].verb as usize);
        let mut of = 0;
        while of < COMMANDS[at].subcommands.len() {
            last = greater(last, COMMANDS[at].subcommands[of].verb as usize);
            of += 1;
        }
        at += 1;
    }
    last
}

const fn names() -> [&'static str; VERBS + OF_MEMCACHED.len() + 1] {
    let mut names = [""; VERBS + OF_MEMCACHED.len() + 1];
    let mut at = 0;
    while at < COMMANDS.len() {
        names[COMMANDS[at].verb as usize] = COMMANDS[at].name;
        let mut of = 0;
        while of < COMMANDS[at].subcommands.len() {
            let command = &COMMANDS[at].subcommands[of];
            names[command.verb as usize] = command.name;
            of += 1;
        }
        at += 1;
    }
    let mut at = 0;
    while at < OF_MEMCACHED.len() {
        names[VERBS + at] = OF_MEMCACHED[at];
        at += 1;
    }
    names[VERBS + OF_MEMCACHED.len()] = "keyway";
    names
}

const fn greater(one: usize, other: usize) -> usize {
    if one > other { one } else { other }
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_command_is_counted_under_its_own_name_and_no_two_under_one() {
        for command in COMMANDS.iter().flat_map(|it| [it].into_iter().chain(it.subcommands)) {
            let counted = command.counted();
            assert_eq!(COUNTED_NAMES[counted.command()], command.name);
            assert_eq!(counted.class(), command.class);
        }
        let names: HashSet<&str> = COUNTED_NAMES.into_iter().collect();
        assert_eq!(names.len(), COUNTED_NAMES.len());
        assert!(!names.contains(""));
    }

    #[test]
    fn commands_of_both_protocols_are_counted_together() {
        let of_redis = crate::lookup(b"GET").unwrap().counted();
        assert_eq!(Counted::of_memcached(Class::Read, "get"), of_redis);
        let gat = Counted::of_memcached(Class::Write, "gat");
        assert_eq!((COUNTED_NAMES[gat.command()], gat.class()), ("gat", Class::Write));
        assert_eq!(COUNTED_NAMES[Counted::OWN.command()], "keyway");
    }
}
