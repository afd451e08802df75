//! Finds which arguments of a request are keys.

use crate::{Args, BeginSearch, Command, FindKeys, Flags, KeyFlags, KeySpec, Request, Verb};

/// Why the keys of a request are unknown: its arguments are wrong, and a server would refuse it
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysFault {
    /// The count of keys is no whole number.
    BadCount,
    /// The count of keys is negative.
    Negative,
    /// More keys are announced than there are arguments.
    TooMany,
    /// No keys are announced for a command that needs one.
    ZeroCount,
    /// A command that needs a key has none.
    None,
}

impl Request<'_> {
    /// Returns the error for the client of a request with `fault`: Redis's text, including the
    /// error code.
    #[cold]
    pub fn keys_error(&self, fault: KeysFault) -> String {
        use KeysFault::{BadCount, Negative, None, TooMany, ZeroCount};
        use Verb::{Blmpop, Bzmpop, Lmpop, Sintercard, Zmpop};
        use Verb::{Eval, EvalRo, Evalsha, EvalshaRo, Fcall, FcallRo};
        let verb = self.command.verb;
        if matches!(verb, Evalsha | EvalshaRo) && self.args[1].len() != SHA1_LEN {
            return "NOSCRIPT No matching script. Please use EVAL.".to_owned();
        }
        let text = match (verb, fault) {
            (Verb::Xread | Verb::Xreadgroup, None) => self.streams_error(),
            (_, None) => "syntax error",
            (Fcall | FcallRo, BadCount) => "Bad number of keys provided",
            (Eval | EvalRo | Evalsha | EvalshaRo | Fcall | FcallRo, Negative) => {
                "Number of keys can't be negative"
            }
            (Eval | EvalRo | Evalsha | EvalshaRo | Fcall | FcallRo | Sintercard, TooMany) => {
                "Number of keys can't be greater than number of args"
            }
            (Sintercard | Lmpop | Zmpop | Blmpop | Bzmpop, BadCount | Negative | ZeroCount) => {
                "numkeys should be greater than 0"
            }
            (_, BadCount) => "value is not an integer or out of range",
            (_, Negative | ZeroCount) => {
                let name = self.command.name;
                return format!("ERR at least 1 input key is needed for '{name}' command");
            }
            (_, TooMany) => "syntax error",
        };
        format!("ERR {text}")
    }
}

impl Request<'_> {
    /// Returns what is wrong with a reader of streams that names none. Redis reads its options one
    /// after the other, and at last what follows STREAMS.
    fn streams_error(&self) -> &'static str {
        const UNBALANCED: &str = "Unbalanced XREAD list of streams: for each stream key an ID or \
                                  '$' must be specified.";
        let is_integer = |index: usize| {
            let text = self.args.get(index).and_then(|text| std::str::from_utf8(text).ok());
            text.is_some_and(|text| text.parse::<i64>().is_ok())
        };
        for (index, option) in self.stream_options() {
            match option {
                StreamOption::Streams => return UNBALANCED,
                StreamOption::Count if !is_integer(index + 1) => {
                    return "value is not an integer or out of range";
                }
                StreamOption::Block if !is_integer(index + 1) => {
                    return "timeout is not an integer or out of range";
                }
                StreamOption::Unknown => break,
                _ => {}
            }
        }
        "syntax error"
    }

    /// Returns the options of a reader of streams with their argument indices, up to STREAMS. The
    /// names of groups and consumers may look like options.
    pub(crate) fn stream_options(&self) -> impl Iterator<Item = (usize, StreamOption)> {
        let mut next = Some(1);
        std::iter::from_fn(move || {
            let index = next?;
            let word = self.args.get(index)?;
            let is_it = |known: &(&[u8], StreamOption, usize)| word.eq_ignore_ascii_case(known.0);
            let found = STREAM_OPTIONS.into_iter().find(is_it);
            // A later server may know other options.
            let (_, option, len) = found.unwrap_or((b"", StreamOption::Unknown, 1));
            next = (option != StreamOption::Streams).then_some(index + len);
            Some((index, option))
        })
    }

    /// Visits the keys after STREAMS: the first half of what follows. The second half contains the
    /// ids from which the streams are read.
    fn stream_keys(&self, visit: Visit<'_>) -> Result<(), KeysFault> {
        let is_it = |(_, option): &(usize, StreamOption)| *option == StreamOption::Streams;
        let Some((streams, _)) = self.stream_options().find(is_it) else { return Ok(()) };
        let count = self.args.len() - streams - 1;
        let flags = KeyFlags::RO.with(KeyFlags::ACCESS);
        (streams + 1..=streams + count / 2).for_each(|index| visit(index, flags));
        Ok(())
    }
}

/// An option of XREAD or XREADGROUP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamOption {
    Streams,
    Count,
    Block,
    Group,
    Noack,
    Unknown,
}

/// Their names, and their number of arguments including the name.
const STREAM_OPTIONS: [(&[u8], StreamOption, usize); 5] = [
    (b"streams", StreamOption::Streams, 1),
    (b"count", StreamOption::Count, 2),
    (b"block", StreamOption::Block, 2),
    (b"group", StreamOption::Group, 3),
    (b"noack", StreamOption::Noack, 1),
];

/// Length of the name of a cached script, in hexadecimal digits.
const SHA1_LEN: usize = 40;

/// Receives the argument index of one key and what the command does with it.
type Visit<'v> = &'v mut dyn FnMut(usize, KeyFlags);

impl Request<'_> {
    /// Returns the argument index of the first key, or `None` if there is none (or if
    /// [`Request::keys`] finds a fault).
    #[inline]
    pub fn first_key(&self) -> Option<usize> {
        if self.command.keys_in_range {
            // The key exists: the arity of such a command reaches beyond its first key, and
            // [`Request::resolve`] has checked the arity.
            return Some(self.command.first_key as usize);
        }
        self.first_key_searched()
    }

    #[cold]
    fn first_key_searched(&self) -> Option<usize> {
        let mut first = None;
        self.visit_keys(&mut |index, _| {
            first.get_or_insert(index);
        })
        .ok()?;
        first
    }

    /// Clears `out` and appends the argument index of every key, in Redis's order. A script without
    /// keys has none. Any other command with keys has at least one.
    ///
    /// # Errors
    /// Returns [`KeysFault`] if the arguments do not say which are keys. `out` is then empty.
    #[inline]
    pub fn keys(&self, out: &mut Vec<u32>) -> Result<(), KeysFault> {
        out.clear();
        let command = self.command;
        if command.keys_in_range {
            let last = last_in_range(command, self.args.len());
            out.extend((command.first_key as u32..=last as u32).step_by(command.key_step as usize));
            return Ok(());
        }
        let found = self.visit_keys(&mut |index, _| out.push(index as u32));
        if found.is_err() {
            out.clear();
        }
        found
    }

    /// Like [`Request::keys`], with what the command does with each key.
    ///
    /// # Errors
    /// Returns the errors of [`Request::keys`].
    pub fn keys_and_flags(&self, out: &mut Vec<(u32, KeyFlags)>) -> Result<(), KeysFault> {
        out.clear();
        let found = self.visit_keys(&mut |index, flags| out.push((index as u32, flags)));
        if found.is_err() {
            out.clear();
        }
        found
    }

    /// Like [`Request::keys_and_flags`], with one call for each key. If there is a fault, some keys
    /// may have been visited.
    ///
    /// # Errors
    /// Returns the errors of [`Request::keys`].
    pub fn each_key(&self, visit: &mut dyn FnMut(usize, KeyFlags)) -> Result<(), KeysFault> {
        self.visit_keys(visit)
    }

    /// Calls `tell` with each key's argument index and with what is done with it. If the arguments
    /// are wrong, it visits the keys before the fault.
    pub fn for_each_key(&self, mut tell: impl FnMut(usize, KeyFlags)) {
        let _ = self.visit_keys(&mut tell);
    }

    fn visit_keys(&self, visit: Visit<'_>) -> Result<(), KeysFault> {
        let mut count = 0;
        let visit: Visit<'_> = &mut |index, flags| {
            count += 1;
            visit(index, flags);
        };
        match self.command.verb {
            Verb::Sort => sort_keys(self.args, visit),
            Verb::SortRo => visit(1, KeyFlags::RO.with(KeyFlags::ACCESS)),
            Verb::Migrate => migrate_keys(self.args, visit),
            Verb::Xread | Verb::Xreadgroup => self.stream_keys(visit)?,
            _ => {
                for spec in self.command.key_specs {
                    spec_keys(spec, self, visit)?;
                }
                let last = match self.command.verb {
                    Verb::Georadius => last_store(self.args, 6),
                    Verb::Georadiusbymember => last_store(self.args, 5),
                    _ => None,
                };
                if let Some(last) = last {
                    visit(last, KeyFlags::OW.with(KeyFlags::UPDATE));
                }
            }
        }
        let may_have_none = self.command.flags.contains(Flags::NO_MANDATORY_KEYS)
            || self.command.key_specs.iter().all(|spec| spec.flags.contains(KeyFlags::NOT_KEY));
        if count == 0 && !may_have_none { Err(KeysFault::None) } else { Ok(()) }
    }
}

#[inline]
fn last_in_range(command: &Command, arg_count: usize) -> usize {
    if command.last_key >= 0 {
        command.last_key as usize
    } else {
        arg_count.saturating_sub(command.last_key.unsigned_abs() as usize)
    }
}

/// Visits the keys that one spec finds.
fn spec_keys(spec: &KeySpec, request: &Request, visit: Visit<'_>) -> Result<(), KeysFault> {
    if spec.flags.contains(KeyFlags::NOT_KEY) {
        return Ok(());
    }
    let args = request.args;
    let Some(begin) = begin_of(spec, args) else { return Ok(()) };
    let (first, last, step) = match spec.find {
        FindKeys::Range { last_key, key_step, limit } => {
            let last = match (last_key, limit) {
                (0.., _) => begin + last_key as usize,
                (_, 0 | 1) => args.len().saturating_sub(last_key.unsigned_abs() as usize),
                (_, limit) => (begin + (args.len().saturating_sub(begin)) / limit as usize)
                    .saturating_sub(last_key.unsigned_abs() as usize),
            };
            (begin, last, key_step)
        }
        FindKeys::KeyNum { key_num_index, first_key, key_step } => {
            let count = key_count(args, begin + key_num_index as usize)?;
            if count == 0 {
                let may_be_zero = request.command.flags.contains(Flags::NO_MANDATORY_KEYS);
                return if may_be_zero { Ok(()) } else { Err(KeysFault::ZeroCount) };
            }
            let first = begin + first_key as usize;
            (first, first.saturating_add((count - 1).saturating_mul(key_step as usize)), key_step)
        }
        FindKeys::Unknown => return Ok(()),
    };
    if first >= args.len() || last >= args.len() {
        return Err(KeysFault::TooMany);
    }
    let flags = flags_of(spec, request);
    for index in (first..=last).step_by(step.max(1) as usize) {
        visit(index, flags);
    }
    Ok(())
}

/// Returns the argument index at which the spec's search begins, or `None` if its keyword is
/// missing.
fn begin_of(spec: &KeySpec, args: Args) -> Option<usize> {
    match spec.begin {
        BeginSearch::Index(index) => Some(index as usize),
        BeginSearch::Keyword { keyword, start_from } => {
            // The last argument is never the keyword, because nothing follows it. So it can only be
            // a value with the same text.
            let searched = args.len().saturating_sub(1);
            let matches = |index: &usize| args[*index].eq_ignore_ascii_case(keyword.as_bytes());
            let found = if start_from >= 0 {
                (start_from as usize..searched).find(matches)
            } else {
                let from = args.len().saturating_sub(start_from.unsigned_abs() as usize);
                (1..=from.min(searched)).rev().find(matches)
            };
            found.map(|index| index + 1)
        }
        BeginSearch::Unknown => None,
    }
}

/// Returns the count of keys in argument `index`. Redis accepts only one form of it.
fn key_count(args: Args, index: usize) -> Result<usize, KeysFault> {
    let text = args.get(index).ok_or(KeysFault::TooMany)?;
    let (digits, is_negative) = match text.strip_prefix(b"-") {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let is_padded = digits.first() == Some(&b'0') && text.len() > 1;
    if is_padded || !digits.iter().all(u8::is_ascii_digit) {
        return Err(KeysFault::BadCount);
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    match number.ok_or(KeysFault::BadCount)? {
        _ if is_negative => Err(KeysFault::Negative),
        count => usize::try_from(count).map_err(|_| KeysFault::TooMany),
    }
}

/// Returns what the command does with the spec's keys. The arguments decide it where the spec
/// leaves it open.
fn flags_of(spec: &KeySpec, request: &Request) -> KeyFlags {
    let args = request.args;
    let from = |index: usize| args.from(index);
    let read_write = KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE);
    match request.command.verb {
        Verb::Set if from(3).any(|arg| arg.eq_ignore_ascii_case(b"get")) => read_write,
        Verb::Set => KeyFlags::OW.with(KeyFlags::UPDATE),
        Verb::Bitfield if bitfield_only_reads(args) => KeyFlags::RO.with(KeyFlags::ACCESS),
        Verb::Bitfield => read_write,
        _ => spec.flags,
    }
}

/// Returns whether every operation of a BITFIELD is a GET.
fn bitfield_only_reads(args: Args) -> bool {
    let mut index = 2;
    while let Some(word) = args.get(index) {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if (is(b"set") || is(b"incrby")) && args.len() > index + 3 {
            return false;
        }
        index += if is(b"get") && args.len() > index + 2 {
            3
        } else if is(b"overflow") && args.len() > index + 1 {
            2
        } else {
            return false;
        };
    }
    true
}

/// Visits SORT's key, and the key of its STORE option. The last STORE counts. BY, GET and LIMIT are
/// skipped with their values, which may look like it.
fn sort_keys(args: Args, visit: Visit<'_>) {
    visit(1, KeyFlags::RO.with(KeyFlags::ACCESS));
    let mut store = None;
    let mut index = 2;
    while let Some(word) = args.get(index) {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        index += if is(b"limit") {
            3
        } else if is(b"get") || is(b"by") {
            2
        } else if is(b"store") && index + 1 < args.len() {
            store = Some(index + 1);
            2
        } else {
            1
        };
    }
    if let Some(store) = store {
        visit(store, KeyFlags::OW.with(KeyFlags::UPDATE));
    }
}

/// Returns the key that GEORADIUS or GEORADIUSBYMEMBER writes: the last of those after STORE and
/// STOREDIST. It is returned only if the specs do not find it. They find the first after each.
fn last_store(args: Args, mut index: usize) -> Option<usize> {
    let (mut last, mut found) = (None, [false; 2]);
    while let Some(word) = args.get(index) {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        let kind = [is(b"store"), is(b"storedist")].iter().position(|is_it| *is_it);
        index += match kind.filter(|_| index + 1 < args.len()) {
            Some(kind) => {
                last = std::mem::replace(&mut found[kind], true).then_some(index + 1);
                2
            }
            None if is(b"count") => 2,
            None => 1,
        };
    }
    last
}

/// Visits MIGRATE's one key or, if that is empty, all arguments after KEYS. Both together are an
/// error, and no key is visited.
fn migrate_keys(args: Args, visit: Visit<'_>) {
    let flags = KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE);
    let mut index = 6;
    while let Some(word) = args.get(index) {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if is(b"keys") && index + 1 < args.len() {
            if args[3].is_empty() {
                (index + 1..args.len()).for_each(|key| visit(key, flags));
            }
            return;
        }
        index += if is(b"auth") {
            2
        } else if is(b"auth2") {
            3
        } else {
            1
        };
    }
    visit(3, flags);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{COMMANDS, Handling};
    use keyway_base::ByteRange;
    use proptest::prelude::*;

    /// Calls `check` with the request of these words.
    fn with_request<T>(words: &[&[u8]], check: impl FnOnce(Request) -> T) -> Option<T> {
        let buf = words.concat();
        let mut end = 0;
        let range = |word: &&[u8]| {
            end += word.len();
            ByteRange::new(end - word.len(), end)
        };
        let ranges: Vec<_> = words.iter().map(range).collect();
        Request::resolve(Args::new(&buf, &ranges)).ok().map(check)
    }

    fn keys_of(line: &str) -> Result<Vec<u32>, KeysFault> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        with_request(&words, |request| {
            let mut keys = vec![77];
            request.keys(&mut keys).map(|()| keys)
        })
        .expect("the line is a request")
    }

    #[test]
    fn keys_are_found_by_place_by_count_and_by_keyword() {
        assert_eq!(keys_of("GET k"), Ok(vec![1]));
        assert_eq!(keys_of("MSET a 1 b 2"), Ok(vec![1, 3]));
        assert_eq!(keys_of("EVAL s 2 a b c"), Ok(vec![3, 4]));
        assert_eq!(keys_of("EVAL s 0 a"), Ok(vec![]));
        assert_eq!(keys_of("ZUNIONSTORE d 2 a b"), Ok(vec![1, 3, 4]));
        assert_eq!(keys_of("XREAD COUNT 1 STREAMS a b 0 0"), Ok(vec![4, 5]));
        assert_eq!(keys_of("XREADGROUP GROUP streams streams STREAMS a >"), Ok(vec![5]));
        let late = "XREADGROUP COUNT 1 NOACK GROUP streams streams BLOCK 0 STREAMS a b > >";
        assert_eq!(keys_of(late), Ok(vec![10, 11]));
        assert_eq!(keys_of("XREADGROUP COUNT 1 GROUP g streams STREAMS a >"), Ok(vec![7]));
        assert_eq!(keys_of("XREADGROUP GROUP g c STREAMS a streams > 0"), Ok(vec![5, 6]));
        assert_eq!(keys_of("SORT k LIMIT 0 1 STORE d"), Ok(vec![1, 6]));
        assert_eq!(keys_of("GEORADIUS k 1 2 3 m STORE d"), Ok(vec![1, 7]));
        assert_eq!(keys_of("GEORADIUS k 1 2 3 m STORE d storedist e"), Ok(vec![1, 7, 9]));
        assert_eq!(keys_of("GEORADIUS k 1 2 3 m STORE d STORE e store f"), Ok(vec![1, 7, 11]));
        assert_eq!(keys_of("GEORADIUSBYMEMBER k m 3 m STOREDIST d STOREDIST e"), Ok(vec![1, 6, 8]));
        assert_eq!(keys_of("GEORADIUSBYMEMBER k m 3 m ASC STORE"), Ok(vec![1]));
        assert_eq!(keys_of("PING"), Ok(vec![]));
    }

    #[test]
    fn a_wrong_count_of_keys_is_a_fault() {
        let bad = ["x", "01", "+1", "1.0", "-", "-0", "-01", "", "18446744073709551617"];
        for count in bad {
            assert_eq!(keys_of(&format!("EVAL s {count} a")), Err(KeysFault::BadCount), "{count}");
        }
        for count in ["-1", "-9223372036854775808"] {
            assert_eq!(keys_of(&format!("EVAL s {count} a")), Err(KeysFault::Negative), "{count}");
        }
        for count in ["2", "999999999", "4294967297", "9223372036854775807"] {
            assert_eq!(keys_of(&format!("EVAL s {count} a")), Err(KeysFault::TooMany), "{count}");
        }
        assert_eq!(keys_of("ZUNIONSTORE d 9223372036854775807 a"), Err(KeysFault::TooMany));
        assert_eq!(keys_of("ZUNIONSTORE d 0 a"), Err(KeysFault::ZeroCount));
        assert_eq!(keys_of("XREAD COUNT 1 a"), Err(KeysFault::None));
    }

    #[test]
    fn the_arity_of_a_command_with_keys_in_range_reaches_its_first_key() {
        let all = || COMMANDS.iter().flat_map(|it| [it].into_iter().chain(it.subcommands));
        for command in all().filter(|command| command.keys_in_range) {
            assert!(command.first_key > 0 && command.key_step > 0, "{}", command.name);
            assert!(command.arity.abs() > command.first_key, "{}", command.name);
        }
    }

    fn word() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::sample::select(vec![
                "STREAMS",
                "store",
                "keys",
                "limit",
                "get",
                "by",
                "block",
                "count",
                "group",
                "overflow",
                "0",
                "1",
                "2",
                "-1",
                "3",
                "99",
                "4294967296",
                "9223372036854775807",
                "",
            ])
            .prop_map(|word| word.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..4),
        ]
    }

    proptest! {
        #[test]
        fn any_arguments_give_keys_among_them_or_a_fault(
            index in 0..COMMANDS.len(),
            subcommand in any::<prop::sample::Index>(),
            words in prop::collection::vec(word(), 0..14),
        ) {
            let command = &COMMANDS[index];
            let mut line: Vec<&[u8]> = vec![command.name.as_bytes()];
            if !command.subcommands.is_empty() {
                line.push(subcommand.get(command.subcommands).last_name().as_bytes());
            }
            line.extend(words.iter().map(Vec::as_slice));
            with_request(&line, |request| {
                let mut keys = Vec::new();
                let found = request.keys(&mut keys);
                assert!(keys.iter().all(|key| (1..line.len()).contains(&(*key as usize))));
                assert_eq!(request.first_key(), keys.first().map(|key| *key as usize));
                assert!(found.is_ok() || keys.is_empty());
                if found.is_ok() && request.handling() == Handling::Forward {
                    assert!(!keys.is_empty(), "a forwarded request has a key");
                }
            });
        }
    }
}
