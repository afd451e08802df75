//! Reads the rules of a user: the words of `ACL SETUSER`.

use crate::commands::{Commands, find};
use crate::password::Digest;
use crate::pattern::Pattern;
use crate::selector::{Access, KeyPattern, Selector};
use crate::user::User;
use keyway_command::Categories;

/// Why a rule is invalid. It is displayed as a text for its author. A rule that may contain a
/// secret is not quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFault {
    /// The rule, or a placeholder for it.
    pub rule: String,
    /// What is wrong with it.
    pub what: &'static str,
}

impl std::fmt::Display for RuleFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rule.is_empty() {
            true => f.write_str(self.what),
            false => write!(f, "\"{}\": {}", self.rule, self.what),
        }
    }
}

type Read = Result<(), &'static str>;

const UNKNOWN: &str = "no command or category has this name";
const SYNTAX: &str = "this is no rule; rules are as in Redis's ACL SETUSER: on, +get, -@dangerous, ~key*, %R~key*, &channel*";
const BEHIND_ALL: &str = "all are allowed already, so this adds nothing; write \"resetkeys\" or \"resetchannels\" before it";
const CLEAR: &str = "a password stands in clear in the rules; write it as password, password_file or password_env, or as # and its SHA-256 (keyway hash-password)";
const BRACKETS: &str = "the brackets of a selector do not match";
const BLANK: &str = "a pattern has no blanks and no NUL";
const HASH: &str = "a hashed password is # and 64 hexadecimal digits";

/// Applies the rules in `text`, separated by blanks, to `user`.
pub(crate) fn apply(user: &mut User, text: &str) -> Result<(), RuleFault> {
    let mut words = text.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let fault = |what| RuleFault { rule: shown(word), what };
        if let Some(first) = word.strip_prefix('(') {
            let selector = read_selector(first, &mut words)?;
            user.selectors.push(selector);
        } else {
            of_user(user, word).map_err(fault)?;
        }
    }
    Ok(())
}

/// Applies the rules like [`apply`], and returns every one that is invalid.
pub(crate) fn faults(user: &mut User, text: &str) -> Vec<RuleFault> {
    let mut faults = Vec::new();
    let mut words = text.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let Some(first) = word.strip_prefix('(') else {
            faults.extend(
                of_user(user, word).err().map(|what| RuleFault { rule: shown(word), what }),
            );
            continue;
        };
        let mut selector = empty();
        let mut next = Some(first);
        loop {
            let Some(word) = next else {
                faults.push(RuleFault { rule: "(".to_owned(), what: BRACKETS });
                break;
            };
            let rule = word.strip_suffix(')').unwrap_or(word);
            if !rule.is_empty() {
                let read = of_selector(&mut selector, rule);
                faults.extend(read.err().map(|what| RuleFault { rule: shown(rule), what }));
            }
            if word.ends_with(')') {
                break;
            }
            next = words.next();
        }
    }
    faults
}

/// Returns the part of a rule that may be shown.
fn shown(word: &str) -> String {
    match word.starts_with(['>', '<', '#', '!']) {
        true => String::new(),
        false => word.chars().take(80).collect(),
    }
}

/// Reads the selector whose first word is `word`, without its bracket.
fn read_selector<'t>(
    word: &'t str,
    words: &mut impl Iterator<Item = &'t str>,
) -> Result<Selector, RuleFault> {
    let mut selector = empty();
    let mut next = Some(word);
    loop {
        let Some(word) = next else {
            return Err(RuleFault { rule: "(".to_owned(), what: BRACKETS });
        };
        let (rule, is_last) = match word.strip_suffix(')') {
            Some(rule) => (rule, true),
            None => (word, false),
        };
        if !rule.is_empty() {
            of_selector(&mut selector, rule)
                .map_err(|what| RuleFault { rule: shown(rule), what })?;
        }
        if is_last {
            return Ok(selector);
        }
        next = words.next();
    }
}

/// Returns the selector of a user who may do nothing.
pub(crate) fn empty() -> Selector {
    Selector { command_rules: vec!["-@all".to_owned()], ..Selector::default() }
}

fn of_user(user: &mut User, word: &str) -> Read {
    match word.to_ascii_lowercase().as_str() {
        "on" => user.is_on = true,
        "off" => user.is_on = false,
        "nopass" => {
            user.passwords.is_open = true;
            user.passwords.digests.clear();
        }
        "resetpass" => {
            user.passwords.is_open = false;
            user.passwords.digests.clear();
        }
        "reset" => {
            user.passwords = Default::default();
            user.is_on = false;
            user.root = empty();
            user.selectors.clear();
        }
        "clearselectors" => user.selectors.clear(),
        // The argument of RESTORE is checked in any case.
        "sanitize-payload" | "skip-sanitize-payload" => {}
        _ if word.starts_with(['>', '<', '!']) => return Err(CLEAR),
        _ if word.starts_with('#') => user.passwords.add(Digest::parse(word).ok_or(HASH)?),
        _ => return of_selector(&mut user.root, word),
    }
    Ok(())
}

fn of_selector(selector: &mut Selector, word: &str) -> Read {
    match word.to_ascii_lowercase().as_str() {
        "allkeys" | "~*" => {
            selector.has_all_keys = true;
            selector.keys.clear();
        }
        "resetkeys" => {
            selector.has_all_keys = false;
            selector.keys.clear();
        }
        "allchannels" | "&*" => {
            selector.has_all_channels = true;
            selector.channels.clear();
        }
        "resetchannels" => {
            selector.has_all_channels = false;
            selector.channels.clear();
        }
        "allcommands" | "+@all" => {
            selector.commands = Commands::all();
            selector.command_rules = vec!["+@all".to_owned()];
        }
        "nocommands" | "-@all" => {
            selector.commands = Commands::default();
            selector.command_rules = vec!["-@all".to_owned()];
        }
        lower => match word.as_bytes()[0] {
            b'~' => return add_key(selector, &word[1..], Access::BOTH),
            b'%' => return of_key_access(selector, &word[1..]),
            b'&' => return add_channel(selector, &word[1..]),
            b'+' | b'-' => return of_command(selector, lower),
            _ => return Err(SYNTAX),
        },
    }
    Ok(())
}

/// Reads `%R~pattern`, without its `%`.
fn of_key_access(selector: &mut Selector, word: &str) -> Read {
    let (letters, pattern) = word.split_once('~').ok_or(SYNTAX)?;
    let mut access = Access::default();
    for letter in letters.bytes() {
        let is = match letter.to_ascii_uppercase() {
            b'R' => &mut access.reads,
            b'W' => &mut access.writes,
            _ => return Err(SYNTAX),
        };
        if std::mem::replace(is, true) {
            return Err(SYNTAX);
        }
    }
    if access == Access::default() {
        return Err(SYNTAX);
    }
    add_key(selector, pattern, access)
}

fn add_key(selector: &mut Selector, pattern: &str, access: Access) -> Read {
    if selector.has_all_keys {
        return Err(BEHIND_ALL);
    }
    let pattern = read_pattern(pattern)?;
    match selector.keys.iter_mut().find(|own| own.pattern == pattern) {
        Some(own) => {
            own.access.reads |= access.reads;
            own.access.writes |= access.writes;
        }
        None => selector.keys.push(KeyPattern { access, pattern }),
    }
    Ok(())
}

fn add_channel(selector: &mut Selector, pattern: &str) -> Read {
    if selector.has_all_channels {
        return Err(BEHIND_ALL);
    }
    let pattern = read_pattern(pattern)?;
    if !selector.channels.contains(&pattern) {
        selector.channels.push(pattern);
    }
    Ok(())
}

fn read_pattern(text: &str) -> Result<Pattern, &'static str> {
    let is_blank = |byte: u8| byte == 0 || byte.is_ascii_whitespace() || byte == 0x0b;
    if text.bytes().any(is_blank) { Err(BLANK) } else { Ok(Pattern::new(text.as_bytes())) }
}

/// Reads `+get`, `-@dangerous`, `+config|get`, `+select|0`, in lower case.
fn of_command(selector: &mut Selector, word: &str) -> Read {
    let (is_allowed, name) = (word.starts_with('+'), &word[1..]);
    if let Some(category) = name.strip_prefix('@') {
        let category = Categories::parse(category.as_bytes()).ok_or(UNKNOWN)?;
        selector.commands.set_category(category, is_allowed);
    } else if let Some(command) = find(name) {
        selector.commands.set(command, is_allowed);
    } else {
        let (name, arg) = name.split_once('|').ok_or(UNKNOWN)?;
        let command = find(name).filter(|found| found.subcommands.is_empty()).ok_or(UNKNOWN)?;
        if !is_allowed || arg.is_empty() || arg.contains('|') {
            return Err(SYNTAX);
        }
        selector.commands.allow_first_arg(command, arg.as_bytes());
    }
    note(&mut selector.command_rules, word);
    Ok(())
}

/// Keeps a rule, and removes earlier rules about the same.
fn note(rules: &mut Vec<String>, word: &str) {
    rules.retain(|rule| rule[1..] != word[1..]);
    rules.push(word.to_owned());
}
