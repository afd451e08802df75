use keyway_command::{COMMANDS, Categories, Command, Flags, Request, Verb, lookup};

/// Number of words of a set. There is room for 512 commands and subcommands (a test checks the
/// table).
const WORDS: usize = 8;

/// The commands that may be used: a bit for each, and for some only with a first argument.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Commands {
    bits: [u64; WORDS],
    /// The required text of the argument after a command, in any case, if its bit is not set.
    first_args: Vec<(Verb, Box<[u8]>)>,
}

impl Commands {
    /// Returns every command, including future ones.
    pub(crate) fn all() -> Self {
        Self { bits: [u64::MAX; WORDS], first_args: Vec::new() }
    }

    pub(crate) fn is_all(&self) -> bool {
        self.bits == [u64::MAX; WORDS]
    }

    pub(crate) fn set(&mut self, command: &Command, is_allowed: bool) {
        self.set_one(command, is_allowed);
        command.subcommands.iter().for_each(|sub| self.set_one(sub, is_allowed));
    }

    fn set_one(&mut self, command: &Command, is_allowed: bool) {
        let verb = command.verb as usize;
        let bit = 1 << (verb % 64);
        match is_allowed {
            true => self.bits[verb / 64] |= bit,
            false => self.bits[verb / 64] &= !bit,
        }
        self.first_args.retain(|(other, _)| *other != command.verb);
    }

    /// Sets every command of a category. A container's subcommands get its category first, and then
    /// their own, as in Redis.
    pub(crate) fn set_category(&mut self, category: Categories, is_allowed: bool) {
        for command in &COMMANDS {
            if command.acl.contains(category) {
                self.set(command, is_allowed);
            }
            for sub in command.subcommands.iter().filter(|sub| sub.acl.contains(category)) {
                self.set_one(sub, is_allowed);
            }
        }
    }

    pub(crate) fn allow_first_arg(&mut self, command: &Command, arg: &[u8]) {
        let arg: Box<[u8]> = arg.into();
        if !self.first_args.contains(&(command.verb, arg.clone())) {
            self.first_args.push((command.verb, arg));
        }
    }

    /// Returns the commands that fit.
    pub(crate) fn that(fit: impl Fn(&Command) -> bool) -> Self {
        let mut found = Self::default();
        let all = COMMANDS.iter().flat_map(|command| command.subcommands.iter().chain([command]));
        for command in all.filter(|command| fit(command)) {
            let verb = command.verb as usize;
            found.bits[verb / 64] |= 1 << (verb % 64);
        }
        found
    }

    #[inline]
    pub(crate) fn has(&self, verb: Verb) -> bool {
        let verb = verb as usize;
        self.bits[verb / 64] >> (verb % 64) & 1 == 1
    }

    /// Returns whether a request may be made, whatever its keys. Commands that log a client in or
    /// end its connection are always allowed.
    #[inline]
    pub(crate) fn allow(&self, request: &Request) -> bool {
        self.allow_all_of(request.command)
            || (!self.first_args.is_empty() && self.allow_by_first_arg(request))
    }

    /// Returns whether a command may be used with any first argument.
    #[inline]
    pub(crate) fn allow_all_of(&self, command: &Command) -> bool {
        self.has(command.verb) || command.flags.contains(Flags::NO_AUTH)
    }

    /// Returns whether everything that `other` allows is allowed.
    pub(crate) fn cover(&self, other: &Commands) -> bool {
        let mut words = self.bits.iter().zip(&other.bits);
        words.all(|(own, its)| its & !own == 0)
            && other.first_args.iter().all(|it| self.has(it.0) || self.first_args.contains(it))
    }

    fn allow_by_first_arg(&self, request: &Request) -> bool {
        let Some(given) = request.args.get(1) else { return false };
        let is_it = |(verb, arg): &(Verb, Box<[u8]>)| {
            *verb == request.command.verb && given.eq_ignore_ascii_case(arg)
        };
        self.first_args.iter().any(is_it)
    }
}

/// Returns the command or subcommand (`config|get`) of this name, in any case.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    match name.split_once('|') {
        None => lookup(name.as_bytes()),
        Some((container, sub)) => lookup(container.as_bytes())?.subcommand(sub.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_bit_of_its_own() {
        let all = COMMANDS.iter().flat_map(|command| command.subcommands.iter().chain([command]));
        let mut seen = Commands::default();
        for command in all {
            assert!((command.verb as usize) < WORDS * 64);
            assert!(!seen.has(command.verb), "{}", command.name);
            seen.set_one(command, true);
        }
    }

    #[test]
    fn a_container_brings_its_subcommands_and_not_the_other_way_round() {
        let mut commands = Commands::default();
        commands.set(find("config").unwrap(), true);
        assert!(commands.has(Verb::ConfigGet) && commands.has(Verb::Config));
        commands.set(find("Config|GET").unwrap(), false);
        assert!(!commands.has(Verb::ConfigGet) && commands.has(Verb::ConfigSet));
        assert!(find("config|nothing").is_none() && find("get|x").is_none());
    }
}
