use crate::long::may_take_long;
use crate::table::Verb;
use crate::{Categories, Class, Condition, Flags, Handling, KeyFlags};

/// One command, or one subcommand of a container such as CLIENT: everything
/// Redis tells about it, and what Keyway does with it.
///
/// Laid out by hand: what every request needs (arity, handling, keys, class)
/// lies in the first cache line, the text that only COMMAND and the documents
/// read lies behind it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Command {
    /// Which command this is, to match on.
    pub verb: Verb,
    /// Number of arguments with the name; negative: at least that many.
    pub arity: i16,
    /// Argument index of the first key, 0 when there is none or no fixed one.
    pub first_key: i16,
    /// Argument index of the last key; negative: counted from the end.
    pub last_key: i16,
    /// Distance from one key to the next.
    pub key_step: i16,
    /// What its metrics are counted under.
    pub class: Class,
    /// Whether `first_key`, `last_key` and `key_step` alone name all its keys.
    pub(crate) keys_in_range: bool,
    /// What a server says it does and when it is accepted.
    pub flags: Flags,
    /// What a sharded pool does with it, unless `condition` says otherwise.
    pub handling: Handling,
    /// What else must hold of the arguments for `handling` to apply.
    pub condition: Option<Condition>,
    /// Argument index of its key where it always has one, and only one; else 0.
    pub only_key: u8,
    /// Whether an embedded store may take long for it though it and its reply are small.
    pub may_take_long: bool,
    /// Where its keys are, one entry per kind of use.
    pub key_specs: &'static [KeySpec],
    /// Lower-case name; a subcommand's is `client|list`.
    pub name: &'static str,
    /// Its ACL categories.
    pub acl: Categories,
    /// Hints for clients and proxies (`request_policy:...`), as Redis words them.
    pub tips: &'static [&'static str],
    /// The family it belongs to (`string`, `sorted-set`, ...).
    pub group: &'static str,
    /// First version of Redis that has it.
    pub since: &'static str,
    /// Cost in the O notation, or empty.
    pub complexity: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its subcommands, sorted by name; empty for all but containers.
    pub subcommands: &'static [Command],
    /// The rest of what COMMAND DOCS tells.
    pub docs: &'static Docs,
}

impl Command {
    /// Whether `arg_count` arguments, the name included, can be right.
    #[inline]
    pub fn accepts(&self, arg_count: usize) -> bool {
        if self.arity >= 0 {
            arg_count == self.arity as usize
        } else {
            arg_count >= self.arity.unsigned_abs() as usize
        }
    }

    /// The subcommand that `name` names in any case (`list`, not
    /// `client|list`). A plain scan: containers are never the hot path.
    pub fn subcommand(&'static self, name: &[u8]) -> Option<&'static Command> {
        self.subcommands
            .iter()
            .find(|command| name.eq_ignore_ascii_case(command.last_name().as_bytes()))
    }

    /// The name without its container: `list` for `client|list`.
    pub fn last_name(&self) -> &'static str {
        match self.name.split_once('|') {
            Some((_, last)) => last,
            None => self.name,
        }
    }
}

/// What the generated table says of one command; [`Command`] adds what
/// follows from it.
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
    /// The command with its handling, class and key plan worked out.
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

/// See [`Command::only_key`].
const fn only_key((first, last, _): (i16, i16, i16), specs: &[KeySpec]) -> u8 {
    let is_one = first > 0 && first == last && specs.len() == 1;
    if is_one && first <= u8::MAX as i16 { first as u8 } else { 0 }
}

/// Whether the specs are one run of keys at a fixed place, which the first
/// key, last key and step then describe completely.
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

/// Where some keys of a command are and what it does with them. The rules are
/// those of <https://redis.io/docs/latest/develop/reference/key-specs/>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// What the command does with these keys.
    pub flags: KeyFlags,
    /// Where the search begins.
    pub begin: BeginSearch,
    /// How the keys lie from there on.
    pub find: FindKeys,
    /// A remark of Redis's authors, or empty.
    pub notes: &'static str,
}

/// Where the search for keys begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginSearch {
    /// At this argument.
    Index(i16),
    /// Behind an argument that reads `keyword`.
    Keyword {
        /// What the argument reads, in any case.
        keyword: &'static str,
        /// First argument to look at; negative: counted from the end, and
        /// searched backwards.
        start_from: i16,
    },
    /// Only the command itself can tell.
    Unknown,
}

/// How keys lie from where the search began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindKeys {
    /// A run of keys.
    Range {
        /// Last key, relative to the first; negative: counted from the end of
        /// the arguments.
        last_key: i16,
        /// Distance from one key to the next.
        key_step: i16,
        /// With `last_key` -1: only one `limit`-th of the rest is keys; 0 and
        /// 1 mean all of it.
        limit: i16,
    },
    /// A count of keys, then the keys.
    KeyNum {
        /// Where the count is, relative to the begin.
        key_num_index: i16,
        /// Where the first key is, relative to the begin.
        first_key: i16,
        /// Distance from one key to the next.
        key_step: i16,
    },
    /// Only the command itself can tell.
    Unknown,
}

/// What COMMAND DOCS tells beyond the fields of [`Command`].
#[derive(Debug)]
pub struct Docs {
    /// `deprecated` or `syscmd`.
    pub doc_flags: &'static [&'static str],
    /// Version that deprecated it, or empty.
    pub deprecated_since: &'static str,
    /// What to use instead of a deprecated command, or empty.
    pub replaced_by: &'static str,
    /// (version, change) in order of time.
    pub history: &'static [(&'static str, &'static str)],
    /// The syntax.
    pub arguments: &'static [Argument],
    /// The lines of the container's HELP subcommand.
    pub help: &'static [&'static str],
}

impl Docs {
    /// Nothing to tell.
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
    /// What the argument is called.
    pub name: &'static str,
    /// `key`, `string`, `integer`, `oneof`, `block`, ...: as Redis words it.
    pub kind: &'static str,
    /// The word that precedes the value or, for a `pure-token`, is it; `None`
    /// without one. An empty token stands for `""`.
    pub token: Option<&'static str>,
    /// Which key spec finds it; `None` for all but keys.
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
    /// An argument of which nothing is told.
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
