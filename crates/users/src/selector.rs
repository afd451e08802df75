use crate::commands::Commands;
use crate::pattern::Pattern;
use keyway_command::{Command, KeyFlags, KeysFault, Request, Verb};

/// Why a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The user may not use the command.
    Command,
    /// The user may not use the key in this argument, or not in this way.
    Key(usize),
    /// The user may not use the channel in this argument.
    Channel(usize),
    /// The keys of the request are unknown, because its arguments are wrong.
    Keys(KeysFault),
    /// A SORT reads keys by the pattern of this option (`BY` or `GET`), and the user may not read
    /// all keys.
    Pattern(&'static str),
}

impl Denied {
    /// Returns how far a request got. If several selectors deny it, the furthest counts, as in
    /// Redis.
    fn distance(self) -> (u8, usize) {
        match self {
            Denied::Command => (1, 0),
            Denied::Key(at) => (2, at),
            Denied::Keys(_) | Denied::Pattern(_) => (2, usize::MAX),
            Denied::Channel(at) => (3, at),
        }
    }

    /// Returns the denial that got further.
    pub(crate) fn or(self, other: Denied) -> Denied {
        if other.distance() > self.distance() { other } else { self }
    }
}

/// What is done with a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The reply contains something of its value.
    pub reads: bool,
    /// Its value is created, changed or removed.
    pub writes: bool,
}

impl Access {
    pub(crate) const BOTH: Access = Access { reads: true, writes: true };

    #[inline]
    fn of(flags: KeyFlags) -> Access {
        Access {
            reads: flags.contains(KeyFlags::ACCESS),
            writes: flags.contains(KeyFlags::INSERT)
                || flags.contains(KeyFlags::UPDATE)
                || flags.contains(KeyFlags::DELETE),
        }
    }

    #[inline]
    fn covers(self, asked: Access) -> bool {
        (self.reads || !asked.reads) && (self.writes || !asked.writes)
    }
}

/// A pattern of keys that may be used, and how.
#[derive(Clone, Debug)]
pub(crate) struct KeyPattern {
    pub(crate) access: Access,
    pub(crate) pattern: Pattern,
}

/// Commands, keys and channels that may be used together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    pub(crate) commands: Commands,
    /// The rules that define `commands`, in their order.
    pub(crate) command_rules: Vec<String>,
    pub(crate) has_all_keys: bool,
    pub(crate) keys: Vec<KeyPattern>,
    pub(crate) has_all_channels: bool,
    pub(crate) channels: Vec<Pattern>,
    /// Commands that are allowed whatever their keys and channels.
    pub(crate) free: Commands,
    /// Commands that are allowed if their one key may be used.
    pub(crate) by_key: Commands,
}

impl Selector {
    /// Returns whether nothing is denied.
    pub(crate) fn is_free(&self) -> bool {
        self.commands.is_all() && self.has_all_keys && self.has_all_channels
    }

    /// Computes which commands need only a short check. It must be called after the last change.
    pub(crate) fn settle(&mut self) {
        let is_plain = |command: &Command| {
            self.commands.allow_all_of(command)
                && !matches!(command.verb, Verb::Sort | Verb::SortRo)
                && (self.has_all_channels || !is_about_channels(command.verb))
        };
        let free = Commands::that(|command| {
            is_plain(command) && (self.has_all_keys || command.key_specs.is_empty())
        });
        let by_key = Commands::that(|command| is_plain(command) && has_one_key(command));
        (self.free, self.by_key) = (free, by_key);
    }

    /// Returns whether a request is certainly allowed. This is true for most allowed requests.
    #[inline]
    pub(crate) fn passes(&self, request: &Request) -> bool {
        let verb = request.command.verb;
        self.free.has(verb) || (self.by_key.has(verb) && self.passes_by_key(request))
    }

    fn passes_by_key(&self, request: &Request) -> bool {
        let flags = request.command.key_specs[0].flags;
        // If the arguments decide what is done with the key, every access must be allowed.
        let access = match flags.contains(KeyFlags::VARIABLE_FLAGS) {
            true => Access::BOTH,
            false => Access::of(flags),
        };
        self.may_use(&request.args[usize::from(request.command.only_key)], access)
    }

    /// Returns whether a request is allowed.
    #[inline]
    pub(crate) fn judge(&self, request: &Request) -> Result<(), Denied> {
        if !self.commands.allow(request) {
            return Err(Denied::Command);
        }
        if !self.has_all_keys {
            self.judge_keys(request)?;
        }
        if !self.has_all_channels {
            self.judge_channels(request)?;
        }
        Ok(())
    }

    fn judge_keys(&self, request: &Request) -> Result<(), Denied> {
        let command = request.command;
        if command.key_specs.is_empty() {
            return Ok(());
        }
        let at = usize::from(command.only_key);
        let flags = command.key_specs[0].flags;
        if at != 0
            && !flags.contains(KeyFlags::VARIABLE_FLAGS)
            && !flags.contains(KeyFlags::NOT_KEY)
        {
            return match self.may_use(&request.args[at], Access::of(flags)) {
                true => Ok(()),
                false => Err(Denied::Key(at)),
            };
        }
        let mut denied = None;
        request
            .each_key(&mut |at, flags| {
                if denied.is_none() && !self.may_use(&request.args[at], Access::of(flags)) {
                    denied = Some(Denied::Key(at));
                }
            })
            .map_err(Denied::Keys)?;
        denied.map_or(Ok(()), Err)
    }

    /// Returns whether a key may be used in a way. One pattern must allow all of it.
    #[inline]
    pub(crate) fn may_use(&self, key: &[u8], access: Access) -> bool {
        self.has_all_keys
            || self.keys.iter().any(|own| own.access.covers(access) && own.pattern.matches(key))
    }

    /// Returns whether every key may be read.
    pub(crate) fn reads_everything(&self) -> bool {
        let is_all = |own: &KeyPattern| own.access.reads && own.pattern.text() == b"*";
        self.has_all_keys || self.keys.iter().any(is_all)
    }

    fn judge_channels(&self, request: &Request) -> Result<(), Denied> {
        let (last, is_pattern) = match request.command.verb {
            Verb::Publish | Verb::Spublish => (1, false),
            Verb::Subscribe | Verb::Ssubscribe => (request.args.len() - 1, false),
            Verb::Psubscribe => (request.args.len() - 1, true),
            _ => return Ok(()),
        };
        let is_denied = |at: &usize| !self.may_hear(&request.args[*at], is_pattern);
        (1..=last).find(is_denied).map_or(Ok(()), |at| Err(Denied::Channel(at)))
    }

    /// Returns whether a channel may be used. A pattern may be used if exactly the same pattern is
    /// allowed.
    pub(crate) fn may_hear(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.has_all_channels
            || self.channels.iter().any(|own| match is_pattern {
                true => own.text() == channel,
                false => own.matches(channel),
            })
    }

    /// Returns whether everything that `other` certainly allows is allowed, by exactly the same
    /// patterns.
    pub(crate) fn covers(&self, other: &Selector) -> bool {
        let has_key = |its: &KeyPattern| {
            let covers = |own: &KeyPattern| {
                own.access.covers(its.access) && own.pattern.text() == its.pattern.text()
            };
            self.keys.iter().any(covers)
        };
        let has_channel = |its: &Pattern| self.channels.iter().any(|own| own.text() == its.text());
        let has_keys = self.has_all_keys || !other.has_all_keys && other.keys.iter().all(has_key);
        let has_channels = self.has_all_channels
            || !other.has_all_channels && other.channels.iter().all(has_channel);
        has_keys && has_channels && self.commands.cover(&other.commands)
    }
}

/// Returns whether a command has exactly one key, always at the same index.
fn has_one_key(command: &Command) -> bool {
    let is_key = |flags: KeyFlags| !flags.contains(KeyFlags::NOT_KEY);
    command.only_key != 0 && command.key_specs.first().is_some_and(|spec| is_key(spec.flags))
}

fn is_about_channels(verb: Verb) -> bool {
    use Verb::{Psubscribe, Publish, Spublish, Ssubscribe, Subscribe};
    matches!(verb, Publish | Spublish | Subscribe | Ssubscribe | Psubscribe)
}

/// Returns the first option of a SORT that reads keys which it does not name, as Redis finds it.
pub(crate) fn sort_pattern(request: &Request) -> Option<&'static str> {
    if !matches!(request.command.verb, Verb::Sort | Verb::SortRo) {
        return None;
    }
    let mut index = 2;
    while let Some(word) = request.args.get(index) {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        let value = request.args.get(index + 1);
        index += match value {
            Some(value) if is(b"by") && value.contains(&b'*') => return Some("BY"),
            Some(_) if is(b"get") => return Some("GET"),
            Some(_) if is(b"by") || is(b"store") => 2,
            _ if is(b"limit") => 3,
            _ => 1,
        };
    }
    None
}
