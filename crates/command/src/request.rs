use crate::keys::StreamOption;
use crate::{Command, Condition, Handling, Verb, lookup};
use keyway_base::ByteRange;
use std::time::Duration;

/// The arguments of one request (the command name is argument 0), as ranges into the buffer into
/// which they were read.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    buf: &'a [u8],
    ranges: &'a [ByteRange],
}

impl<'a> Args<'a> {
    /// Creates the arguments at `ranges` of `buf`. Every range must be inside `buf`.
    pub fn new(buf: &'a [u8], ranges: &'a [ByteRange]) -> Self {
        Self { buf, ranges }
    }

    /// Returns the number of arguments, including the command name.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether there is not even a command name.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns argument `index`, or `None` after the end.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|range| range.of(self.buf))
    }

    /// Returns the arguments from `index` on.
    pub fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.ranges.iter().skip(index).map(|range| range.of(self.buf))
    }

    /// Returns the ranges of all arguments, which locate them in the received bytes.
    #[inline]
    pub fn ranges(&self) -> &'a [ByteRange] {
        self.ranges
    }

    /// Returns the buffer to which the ranges refer.
    #[inline]
    pub fn buf(&self) -> &'a [u8] {
        self.buf
    }
}

impl std::ops::Index<usize> for Args<'_> {
    type Output = [u8];
    /// # Panics
    /// Panics after the end. Only arguments that the arity check has proved present may be indexed.
    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        self.ranges[index].of(self.buf)
    }
}

/// A command with its arguments. The command exists, and the number of arguments is right.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The command, or the subcommand if there is one.
    pub command: &'static Command,
    /// Its arguments, from the command's name on.
    pub args: Args<'a>,
}

impl<'a> Request<'a> {
    /// Returns the request of `args`.
    ///
    /// # Errors
    /// Returns [`Refusal`] if there is no such command or subcommand, or if the number of arguments
    /// is wrong for it.
    #[inline]
    pub fn resolve(args: Args<'a>) -> Result<Request<'a>, Refusal> {
        let Some(name) = args.get(0) else { return Err(Refusal::Empty) };
        let Some(mut command) = lookup(name) else { return Err(Refusal::Unknown) };
        if !command.subcommands.is_empty()
            && let Some(name) = args.get(1)
        {
            command = match command.subcommand(name) {
                Some(subcommand) => subcommand,
                None => return Err(Refusal::UnknownSubcommand(command)),
            };
        }
        if !command.accepts(args.len()) || !splits_evenly(command, args.len()) {
            return Err(Refusal::Arity(command));
        }
        Ok(Request { command, args })
    }

    /// Returns what a sharded pool does with this request: the command's handling, unless its
    /// arguments violate the condition.
    #[inline]
    pub fn handling(&self) -> Handling {
        match self.command.condition {
            None => self.command.handling,
            Some(condition) if self.holds(condition) => self.command.handling,
            Some(condition) => condition.otherwise(),
        }
    }

    /// Returns whether the arguments fulfil `condition`. It accepts arguments that are too wrong to
    /// decide: a server answers them with its own error.
    #[cold]
    fn holds(&self, condition: Condition) -> bool {
        match condition {
            Condition::NotBlocking => !self.blocks(),
            Condition::NoPatterns => !self.reads_by_pattern(),
            Condition::NoDatabase => !self.args.from(3).any(|arg| arg.eq_ignore_ascii_case(b"db")),
        }
    }

    /// Returns whether an XREAD or XREADGROUP has the BLOCK option.
    pub fn blocks(&self) -> bool {
        self.stream_options().any(|(_, option)| option == StreamOption::Block)
    }

    /// Returns how long a blocking command asks to wait at most, or `None` for no limit. It is zero
    /// if the arguments are wrong, because a server refuses them at once.
    pub fn wait_max(&self) -> Option<Duration> {
        let asked = self.wait_place().and_then(|(index, unit)| {
            let number = std::str::from_utf8(self.args.get(index)?).ok()?.parse::<f64>().ok()?;
            Some(number * unit.as_secs_f64())
        });
        match asked {
            Some(0.0) => None,
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).unwrap_or_default()),
            None => Some(Duration::ZERO),
        }
    }

    /// Returns the index of the argument of a blocking command that gives the time, and its unit.
    fn wait_place(&self) -> Option<(usize, Duration)> {
        const SECOND: Duration = Duration::from_secs(1);
        const MILLISECOND: Duration = Duration::from_millis(1);
        let last = self.args.len() - 1;
        match self.command.verb {
            Verb::Blmpop | Verb::Bzmpop => Some((1, SECOND)),
            Verb::Wait => Some((2, MILLISECOND)),
            Verb::Xread | Verb::Xreadgroup => {
                let is_block = |option: &StreamOption| *option == StreamOption::Block;
                let found = self.stream_options().find(|(_, option)| is_block(option));
                found.map(|(index, _)| (index + 1, MILLISECOND)).filter(|(at, _)| *at <= last)
            }
            _ => Some((last, SECOND)),
        }
    }

    /// Returns the argument that makes a blocking command wait for `wait`, with its index. It never
    /// means less, and never "for ever".
    pub fn wait_words(&self, wait: Duration) -> Option<(usize, String)> {
        let millis = wait.as_nanos().div_ceil(1_000_000).max(1);
        self.wait_place().map(|(index, unit)| match unit.as_secs() {
            0 => (index, millis.to_string()),
            _ => (index, format!("{}.{:03}", millis / 1000, millis % 1000)),
        })
    }

    /// Returns whether a SORT reads keys that it does not name: it has a BY pattern with a star, or
    /// a GET pattern other than `#`.
    pub fn reads_by_pattern(&self) -> bool {
        let mut index = 2;
        while let Some(word) = self.args.get(index) {
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            let value = self.args.get(index + 1).unwrap_or_default();
            index += match () {
                () if is(b"by") && value.contains(&b'*') => return true,
                () if is(b"get") && value != b"#" => return true,
                () if is(b"by") || is(b"get") || is(b"store") => 2,
                () if is(b"limit") => 3,
                () => 1,
            };
        }
        false
    }
}

/// Returns whether every key of a split command has all that belongs to it: the last key of an MSET
/// has its value. Redis calls the fault a wrong number of arguments.
#[inline]
fn splits_evenly(command: &Command, arg_count: usize) -> bool {
    match command.handling {
        Handling::Split(split) => (arg_count - 1).is_multiple_of(usize::from(split.args_per_key)),
        _ => true,
    }
}

/// Why arguments are no request. The connection stays open, and each fault is answered with an
/// error reply.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// There is no command name.
    Empty,
    /// There is no such command.
    Unknown,
    /// The container has no such subcommand.
    UnknownSubcommand(&'static Command),
    /// The number of arguments is wrong for the command.
    Arity(&'static Command),
}

/// Redis truncates the name, and all arguments together, to this many bytes.
const ECHO_LEN_MAX: usize = 128;

impl Refusal {
    /// Appends the error line of Redis 7 for `args`, including CRLF.
    pub fn write_error(&self, args: Args, out: &mut Vec<u8>) {
        let start = out.len() + 1;
        match self {
            // Any refused EXEC ends its transaction, and the error says so.
            Refusal::Arity(command) if command.verb == Verb::Exec => {
                out.extend_from_slice(b"-EXECABORT Transaction discarded because of: ");
            }
            _ => out.extend_from_slice(b"-ERR "),
        }
        match self {
            Refusal::Empty => out.extend_from_slice(b"empty command"),
            Refusal::Unknown => write_unknown(args, out),
            Refusal::UnknownSubcommand(container) => {
                out.extend_from_slice(b"unknown subcommand '");
                push_text(args.get(1).unwrap_or_default(), ECHO_LEN_MAX, out);
                out.extend_from_slice(b"'. Try ");
                out.extend(container.name.bytes().map(|byte| byte.to_ascii_uppercase()));
                out.extend_from_slice(b" HELP.");
            }
            Refusal::Arity(command) => {
                out.extend_from_slice(b"wrong number of arguments for '");
                out.extend_from_slice(command.name.as_bytes());
                out.extend_from_slice(b"' command");
            }
        }
        for byte in &mut out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn write_unknown(args: Args, out: &mut Vec<u8>) {
    out.extend_from_slice(b"unknown command '");
    push_text(args.get(0).unwrap_or_default(), ECHO_LEN_MAX, out);
    out.extend_from_slice(b"', with args beginning with: ");
    let start = out.len();
    for arg in args.from(1) {
        let written = out.len() - start;
        if written >= ECHO_LEN_MAX {
            break;
        }
        out.push(b'\'');
        push_text(arg, ECHO_LEN_MAX - written, out);
        out.extend_from_slice(b"' ");
    }
}

/// Appends at most `len_max` bytes of `text` up to its first NUL, where the C string in Redis's
/// error ends.
fn push_text(text: &[u8], len_max: usize, out: &mut Vec<u8>) {
    let text = &text[..text.len().min(len_max)];
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    out.extend_from_slice(&text[..end]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resolved<T>(words: &[&[u8]], check: impl FnOnce(Args, Result<Request, Refusal>) -> T) -> T {
        let buf = words.concat();
        let mut end = 0;
        let range = |word: &&[u8]| {
            end += word.len();
            ByteRange::new(end - word.len(), end)
        };
        let ranges: Vec<_> = words.iter().map(range).collect();
        let args = Args::new(&buf, &ranges);
        check(args, Request::resolve(args))
    }

    fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }

    fn name_of(line: &str) -> &'static str {
        resolved(&words(line), |_, request| request.expect("a request").command.name)
    }

    fn error_of(words: &[&[u8]]) -> String {
        resolved(words, |args, request| {
            let mut out = Vec::new();
            request.expect_err("no request").write_error(args, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        })
    }

    fn handling_of(line: &str) -> Handling {
        resolved(&words(line), |_, request| request.expect("a request").handling())
    }

    #[test]
    fn a_request_is_resolved_down_to_its_subcommand() {
        assert_eq!(name_of("gEt k"), "get");
        assert_eq!(name_of("CLIENT list"), "client|list");
        assert_eq!(name_of("client SETINFO lib-name x"), "client|setinfo");
        assert_eq!(name_of("COMMAND"), "command");
    }

    #[test]
    fn a_refusal_says_what_redis_says() {
        assert_eq!(error_of(&[]), "-ERR empty command\r\n");
        assert_eq!(
            error_of(&words("foo a b")),
            "-ERR unknown command 'foo', with args beginning with: 'a' 'b' \r\n"
        );
        assert_eq!(
            error_of(&words("CLIENT x")),
            "-ERR unknown subcommand 'x'. Try CLIENT HELP.\r\n"
        );
        assert_eq!(error_of(&words("get")), "-ERR wrong number of arguments for 'get' command\r\n");
        assert_eq!(
            error_of(&words("mset a 1 b")),
            "-ERR wrong number of arguments for 'mset' command\r\n"
        );
        assert_eq!(
            error_of(&words("config get")),
            "-ERR wrong number of arguments for 'config|get' command\r\n"
        );
    }

    #[test]
    fn a_condition_on_the_arguments_decides_between_forward_and_refused() {
        let refused = Condition::otherwise;
        assert_eq!(handling_of("XREAD COUNT 1 STREAMS block 0"), Handling::Forward);
        assert_eq!(handling_of("XREAD block 0 STREAMS s 0"), refused(Condition::NotBlocking));
        assert_eq!(handling_of("XREADGROUP GROUP block c STREAMS s >"), Handling::Forward);
        assert_eq!(
            handling_of("XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS s >"),
            refused(Condition::NotBlocking)
        );
        assert_eq!(handling_of("SORT k BY nosort GET # STORE by"), Handling::Forward);
        assert_eq!(handling_of("SORT k STORE get"), Handling::Forward);
        assert_eq!(handling_of("SORT k BY w_*"), refused(Condition::NoPatterns));
        assert_eq!(handling_of("SORT_RO k GET o_*"), refused(Condition::NoPatterns));
        assert_eq!(handling_of("COPY db db"), Handling::Forward);
        assert_eq!(handling_of("COPY a b REPLACE"), Handling::Forward);
        assert_eq!(handling_of("COPY a b DB 1"), refused(Condition::NoDatabase));
        assert_eq!(handling_of("COPY a b replace db 0"), refused(Condition::NoDatabase));
    }

    proptest! {
        #[test]
        fn a_refusal_is_one_line_of_bounded_length(
            name in prop::sample::select(vec!["", "get", "client", "memory", "exec"]),
            rest in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
        ) {
            let mut line = vec![name.as_bytes()];
            line.extend(rest.iter().map(Vec::as_slice));
            resolved(&line, |args, request| {
                let Err(refusal) = request else { return };
                let mut out = b"before".to_vec();
                refusal.write_error(args, &mut out);
                let line = out.strip_prefix(b"before-").and_then(|line| line.strip_suffix(b"\r\n"));
                let line = line.expect("an error line behind what was there");
                assert!(!line.iter().any(|byte| b"\r\n".contains(byte)));
                assert!(line.len() < 512);
            });
        }
    }
}
