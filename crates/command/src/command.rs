use crate::long::may_take_long;
use crate::table::Verb;
use crate::{Categories, Class, Condition, Flags, Handling, KeyFlags};

/// One command, or one subcommand of a container such as CLIENT: everything that Redis says about
/// it, and what Keyway does with it.
///
/// The layout is set by hand: fields that every request needs (arity, handling, keys, class) are in
/// the first cache line. The texts that only COMMAND and the documents read are behind it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Command {
    /// The variant of this command, for matches.
    pub verb: Verb,
    /// Number of arguments including the name. Negative: at least that many.
    pub arity: i16,
    /// Argument index of the first key, or 0 if there is none or no fixed one.
    pub first_key: i16,
    /// Argument index of the last key. Negative: counted from the end.
    pub last_key: i16,
    /// Distance from one key to the next.
    pub key_step: i16,
    /// The class under which it is counted in metrics.
    pub class: Class,
    /// True if `first_key`, `last_key` and `key_step` alone find all its keys.
    pub(crate) keys_in_range: bool,
    /// What a server says about what it does and when it is accepted.
    pub flags: Flags,
    /// What a sharded pool does with it, unless `condition` says otherwise.
    pub handling: Handling,
    /// A condition on the arguments for `handling` to apply.
    pub condition: Option<Condition>,
    /// Argument index of its key if it always has exactly one, else 0.
    pub only_key: u8,
    /// True if an embedded store may take long for it although it and its reply are small.
    pub may_take_long: bool,
    /// Where its keys are, with one entry for each kind of use.
    pub key_specs: &'static [KeySpec],
    /// Lower-case name. A subcommand's name is like `client|list`.
    pub name: &'static str,
    /// Its ACL categories.
    pub acl: Categories,
    /// Hints for clients and proxies (`request_policy:...`), in Redis's words.
    pub tips: &'static [&'static str],
    /// The family to which it belongs (`string`, `sorted-set`, ...).
    pub group: &'static str,
    /// First version of Redis that has it.
    pub since: &'static str,
    /// Cost in the O notation, or empty.
    pub complexity: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its subcommands, sorted by name. Only containers have some.
    pub subcommands: &'static [Command],
    /// The other fields of COMMAND DOCS.
    pub docs: &'static Docs,
}

impl Command {
    /// Returns whether `arg_count` arguments, including the name, can be right.
    #[inline]
    pub fn accepts(&self, arg_count: usize) -> bool {
        if self.arity >= 0 {
            arg_count == self.arity as usize
        } else {
            arg_count >= self.arity.unsigned_abs() as usize
        }
    }

    /// Returns the subcommand `name` in any case (`list`, not `client|list`). This is a plain scan,
    /// because containers are never on the hot path.
    pub fn subcommand(&'static self, name: &[u8]) -> Option<&'static Command> {
        self.subcommands
            .iter()
            .find(|command| name.eq_ignore_ascii_case(command.last_name().as_bytes()))
    }

    /// Returns the name without its container: `list` for `client|list`.
    pub fn last_name(&self) -> &'static str {
        match self.name.split_once('|') {
            Some((_, last)) => last,
            None => self.name,
        }
    }
}

/// What the generated table says about one command. [`Command`] adds what follows from it.
pub(crate) struct Entry {
    pub verb: Verb,
    pub name: &'static str,
    pub arity: i16,
    pub flags: Flags,
    pub keys: (i16, i16, i16),
    pub acl: Categories,
    pub tips: &'static [&'static str],
    pub key_specs: &'static [KeySpec],
    pub group: &'static str,
    pub since: &'static str,
    pub summary: &'static str,
    pub complexity: &'static str,
    pub docs: &'static Docs,
    pub subcommands: &'static [Command],
}

impl Entry {
    /// Returns the command with its handling, class and key plan.
    pub(crate) const fn command(self) -> Command {
        let handling = Handling::of(self.verb);
        Command {
            verb: self.verb,
            arity: self.arity,
            first_key: self.keys.0,
            last_key: self.keys.1,
            key_step: self.keys.2,
            class: Class::of(self.flags, self.acl, handling),
            only_key: only_key(self.keys, self.key_specs),
            keys_in_range: keys_in_range(self.key_specs),
            may_take_long: may_take_long(self.verb),
            flags: self.flags,
            handling,
            condition: Condition::of(self.verb),
            key_specs: self.key_specs,
            name: self.name,
            acl: self.acl,
            tips: self.tips,
            group: self.group,
            since: self.since,
            complexity: self.complexity,
            summary: self.summary,
            subcommands: self.subcommands,
            docs: self.docs,
        }
    }
}

/// Computes [`Command::only_key`].
const fn only_key((first, last, _): (i16, i16, i16), specs: &[KeySpec]) -> u8 {
    let is_one = first > 0 && first == last && specs.len() == 1;
    if is_one && first <= u8::MAX as i16 { first as u8 } else { 0 }
}

/// Returns whether the specs are one run of keys at a fixed place. Then the first key, last key and
/// step describe them completely.
const fn keys_in_range(specs: &[KeySpec]) -> bool {
    match specs {
        [
            KeySpec {
                begin: BeginSearch::Index(_),
                find: FindKeys::Range { limit: 0, .. },
                flags,
                ..
            },
        ] => !flags.contains(KeyFlags::NOT_KEY) && !flags.contains(KeyFlags::INCOMPLETE),
        _ => false,
    }
}

/// Where some keys of a command are and what it does with them. The rules are those of
/// <https://redis.io/docs/latest/develop/reference/key-specs/>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// What the command does with these keys.
    pub flags: KeyFlags,
    /// Where the search begins.
    pub begin: BeginSearch,
    /// How the keys are placed from there on.
    pub find: FindKeys,
    /// A remark of Redis's authors, or empty.
    pub notes: &'static str,
}

/// Where the search for keys begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginSearch {
    /// At this argument.
    Index(i16),
    /// After an argument that equals `keyword`.
    Keyword {
        /// The argument's text, in any case.
        keyword: &'static str,
        /// Index of the first argument to search. Negative: counted from the end, and searched
        /// backwards.
        start_from: i16,
    },
    /// Only the command itself knows.
    Unknown,
}

/// How keys are placed from where the search began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindKeys {
    /// A run of keys.
    Range {
        /// Index of the last key relative to the first. Negative: counted from the end of the
        /// arguments.
        last_key: i16,
        /// Distance from one key to the next.
        key_step: i16,
        /// With `last_key` -1: only one `limit`-th of the rest is keys. 0 and 1 mean all of it.
        limit: i16,
    },
    /// A count of keys, and then the keys.
    KeyNum {
        /// Index of the count relative to the begin.
        key_num_index: i16,
        /// Index of the first key relative to the begin.
        first_key: i16,
        /// Distance from one key to the next.
        key_step: i16,
    },
    /// Only the command itself knows.
    Unknown,
}

/// The fields of COMMAND DOCS that [`Command`] does not have.
#[derive(Debug)]
pub struct Docs {
    /// `deprecated` or `syscmd`.
    pub doc_flags: &'static [&'static str],
    /// Version that deprecated it, or empty.
    pub deprecated_since: &'static str,
    /// What replaces a deprecated command, or empty.
    pub replaced_by: &'static str,
    /// Pairs of version and change, in the order of time.
    pub history: &'static [(&'static str, &'static str)],
    /// The syntax.
    pub arguments: &'static [Argument],
    /// The lines of the container's HELP subcommand.
    pub help: &'static [&'static str],
}

impl Docs {
    /// Empty documents.
    pub(crate) const NONE: Docs = Docs {
        doc_flags: &[],
        deprecated_since: "",
        replaced_by: "",
        history: &[],
        arguments: &[],
        help: &[],
    };
}

/// One argument, or a group of them, in a command's syntax.
#[derive(Debug)]
pub struct Argument {
    /// The name of the argument.
    pub name: &'static str,
    /// `key`, `string`, `integer`, `oneof`, `block`, ...: Redis's word.
    pub kind: &'static str,
    /// The word that precedes the value. For a `pure-token` it is the value. `None` if there is
    /// none. An empty token means `""`.
    pub token: Option<&'static str>,
    /// Index of the key spec that finds it, or `None` if it is no key.
    pub key_spec_index: Option<u8>,
    /// First version that has it, or empty.
    pub since: &'static str,
    /// Version that deprecated it, or empty.
    pub deprecated_since: &'static str,
    /// `optional`, `multiple`, `multiple_token`.
    pub flags: &'static [&'static str],
    /// The parts of a `oneof` or a `block`.
    pub arguments: &'static [Argument],
}

impl Argument {
    /// An argument without any information.
    pub(crate) const NONE: Argument = Argument {
        name: "",
        kind: "",
        token: None,
        key_spec_index: None,
        since: "",
        deprecated_since: "",
        flags: &[],
        arguments: &[],
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn what_a_request_needs_lies_in_the_first_cache_line() {
        assert!(offset_of!(Command, condition) < 64);
        assert!(offset_of!(Command, name) <= 64);
    }
}
