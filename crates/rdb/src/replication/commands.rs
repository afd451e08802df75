//! The stream of commands that a primary sends to its replicas.

use keyway_base::ByteRange;
use keyway_resp::{ParseLimits, Parsed, RequestFault, parse_integer, parse_request};
use std::fmt;

/// Reads the stream of commands from bytes that arrive in pieces of any size.
///
/// The caller owns the buffer, as with [`Reader`](crate::Reader). The stream needs one whole
/// command in it, at most as long as [`ParseLimits`] allow. A stream cannot be used after a fault.
#[derive(Debug)]
pub struct CommandStream {
    limits: ParseLimits,
    offset: u64,
    settled: u64,
    database: Option<u64>,
    in_transaction: bool,
    args: Vec<ByteRange>,
    inline: Vec<u8>,
}

/// The result of [`CommandStream::read`].
#[derive(Clone, Copy, Debug)]
pub enum CommandStep<'a> {
    /// A command.
    Command {
        /// Number of its bytes, which are consumed.
        consumed: usize,
        /// The command.
        command: Command<'a>,
    },
    /// More bytes are needed.
    More {
        /// Smallest total number of bytes from which reading again can succeed. Do not reserve
        /// memory for them: they may not arrive.
        at_least: usize,
    },
}

/// The meaning of a command for the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// A command on the data, or one that only the caller knows.
    Other,
    /// The database of the commands that follow.
    Select(u64),
    /// The start of a transaction.
    Multi,
    /// The end of a transaction, which may be executed now.
    Exec,
    /// A sign of life of the primary.
    Ping,
    /// The primary asks for the offset at once: the one after this command.
    GetAck,
    /// No command: an empty line, which primaries send to keep a connection alive, or an empty
    /// array.
    Nothing,
}

/// A command of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    kind: CommandKind,
    start: u64,
    end: u64,
    database: Option<u64>,
    in_transaction: bool,
    is_inline: bool,
    raw: &'a [u8],
    words: &'a [u8],
    args: &'a [ByteRange],
}

impl<'a> Command<'a> {
    /// Returns its meaning for the stream.
    pub fn kind(&self) -> CommandKind {
        self.kind
    }

    /// Returns the offset before it.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the offset after it.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the database to which it applies, or after a SELECT the new one. Returns `None` if
    /// the stream began in an unknown database.
    pub fn database(&self) -> Option<u64> {
        self.database
    }

    /// Returns whether it is part of a transaction, which includes MULTI and EXEC.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Returns its bytes as received.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Returns whether it came as a line of text. No primary sends commands in that form
    /// ([`CommandKind::Nothing`] is no command), so one is a sign of a damaged
    /// stream.
    pub fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// Returns where its name and arguments lie in [`Command::raw`]; `None` for an inline command.
    pub fn ranges(&self) -> Option<&'a [ByteRange]> {
        (!self.is_inline).then_some(self.args)
    }

    /// Returns its name and arguments.
    pub fn words(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let words = self.words;
        self.args.iter().map(move |range| range.of(words))
    }
}

/// What is wrong with the stream, and at which offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFault {
    offset: u64,
    wrong: CommandWrong,
}

impl CommandFault {
    /// Returns the offset before the wrong command.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns what is wrong with it.
    pub fn wrong(&self) -> CommandWrong {
        self.wrong
    }
}

/// What is wrong with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandWrong {
    /// It is no command, or longer than allowed.
    Frame(RequestFault),
    /// SELECT names no database.
    Database,
    /// There is a MULTI within a transaction.
    Nested,
    /// There is an EXEC without MULTI.
    Unopened,
}

impl fmt::Display for CommandFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replication stream, offset {}: ", self.offset)?;
        match self.wrong {
            CommandWrong::Frame(fault) => {
                let mut reply = Vec::new();
                fault.write_error(&mut reply);
                let text = String::from_utf8_lossy(&reply);
                f.write_str(text.trim_start_matches("-ERR ").trim_end())
            }
            CommandWrong::Database => f.write_str("SELECT names no database"),
            CommandWrong::Nested => f.write_str("MULTI within a transaction"),
            CommandWrong::Unopened => f.write_str("EXEC without MULTI"),
        }
    }
}

impl std::error::Error for CommandFault {}

impl CommandStream {
    /// Creates a stream that begins at this offset: that of `+FULLRESYNC`, or the one up to which
    /// everything was processed. `database` is that of the snapshot (`repl-stream-db`), or the
    /// current one of the stream.
    pub fn new(offset: u64, database: Option<u64>, limits: ParseLimits) -> Self {
        Self {
            limits,
            offset,
            settled: offset,
            database,
            in_transaction: false,
            args: Vec::new(),
            inline: Vec::new(),
        }
    }

    /// Returns the offset after the last command that was read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the offset to acknowledge and to resume from: the one after the last command, or
    /// before an incomplete transaction.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Returns the database of the next command, if it is known.
    pub fn database(&self) -> Option<u64> {
        self.database
    }

    /// Reads the next command from `input`, which must contain all bytes that have arrived and were
    /// not consumed.
    ///
    /// # Errors
    /// Returns [`CommandFault`].
    pub fn read<'a>(&'a mut self, input: &'a [u8]) -> Result<CommandStep<'a>, CommandFault> {
        let fault = |wrong| CommandFault { offset: self.offset, wrong };
        let parsed = parse_request(input, &self.limits, &mut self.args, &mut self.inline);
        let parsed = parsed.map_err(|wrong| fault(CommandWrong::Frame(wrong)))?;
        let (consumed, words, is_inline) = match parsed {
            Parsed::NeedMore { at_least } => return Ok(CommandStep::More { at_least }),
            Parsed::Ready { consumed } => (consumed, input, false),
            Parsed::Inline { consumed } => (consumed, &self.inline[..], true),
        };
        let word = |at: usize| self.args.get(at).map(|range| range.of(words));
        let kind = kind_of(self.args.len(), word).ok_or(fault(CommandWrong::Database))?;
        let mut in_transaction = self.in_transaction;
        match kind {
            CommandKind::Select(database) => self.database = Some(database),
            CommandKind::Multi if in_transaction => return Err(fault(CommandWrong::Nested)),
            CommandKind::Exec if !in_transaction => return Err(fault(CommandWrong::Unopened)),
            CommandKind::Multi => (self.in_transaction, in_transaction) = (true, true),
            CommandKind::Exec => self.in_transaction = false,
            _ => {}
        }
        let start = self.offset;
        self.offset = start.saturating_add(consumed as u64);
        if !self.in_transaction {
            self.settled = self.offset;
        }
        let command = Command {
            kind,
            start,
            end: self.offset,
            database: self.database,
            in_transaction,
            is_inline,
            raw: &input[..consumed],
            words,
            args: &self.args,
        };
        Ok(CommandStep::Command { consumed, command })
    }
}

/// Returns the kind of a command with this number of words, or `None` for a SELECT without a valid
/// database.
fn kind_of<'a>(count: usize, word: impl Fn(usize) -> Option<&'a [u8]>) -> Option<CommandKind> {
    let Some(name) = word(0) else { return Some(CommandKind::Nothing) };
    let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
    let says = |text: &str| word(1).is_some_and(|word| word.eq_ignore_ascii_case(text.as_bytes()));
    if is("select") {
        let database = word(1).and_then(parse_integer).and_then(|number| number.try_into().ok());
        return database.filter(|_| count == 2).map(CommandKind::Select);
    }
    Some(if is("multi") {
        CommandKind::Multi
    } else if is("exec") {
        CommandKind::Exec
    } else if is("ping") {
        CommandKind::Ping
    } else if is("replconf") && says("getack") {
        CommandKind::GetAck
    } else {
        CommandKind::Other
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Limits;

    fn stream(offset: u64) -> CommandStream {
        CommandStream::new(offset, None, ParseLimits::of(&Limits::default()))
    }

    /// Returns the kinds and offsets of the commands in `bytes`, read from pieces of `size`.
    fn read(bytes: &[u8], size: usize) -> Result<Vec<(CommandKind, u64, u64)>, CommandFault> {
        let (mut stream, mut kept, mut found) = (stream(1000), Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            kept.extend_from_slice(piece);
            while let CommandStep::Command { consumed, command } = stream.read(&kept)? {
                found.push((command.kind(), command.start(), command.end()));
                assert_eq!(command.raw().len(), consumed);
                assert_eq!(command.is_inline(), command.kind() == CommandKind::Nothing);
                for (range, word) in command.ranges().into_iter().flatten().zip(command.words()) {
                    assert_eq!(range.of(command.raw()), word);
                }
                kept.drain(..consumed);
            }
        }
        Ok(found)
    }

    const STREAM: &[u8] = b"*1\r\n$4\r\nPING\r\n\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*1\r\n$5\r\nMULTI\r\n\
        *3\r\n$3\r\nset\r\n$1\r\nk\r\n$4\r\n\r\n*1\r\n*1\r\n$4\r\nEXEC\r\n*3\r\n$8\r\nREPLCONF\r\n$6\r\n\
        GETACK\r\n$1\r\n*\r\n";

    #[test]
    fn commands_have_their_offsets_in_pieces_of_any_size() {
        let expected = vec![
            (CommandKind::Ping, 1000, 1014),
            (CommandKind::Nothing, 1014, 1015),
            (CommandKind::Select(3), 1015, 1038),
            (CommandKind::Multi, 1038, 1053),
            (CommandKind::Other, 1053, 1083),
            (CommandKind::Exec, 1083, 1097),
            (CommandKind::GetAck, 1097, 1134),
        ];
        for size in 1..=STREAM.len() {
            assert_eq!(read(STREAM, size), Ok(expected.clone()), "{size}");
        }
    }

    #[test]
    fn a_transaction_is_settled_as_a_whole() {
        let mut stream = stream(0);
        let bytes = STREAM;
        let (mut at, mut settled) = (0, Vec::new());
        while let CommandStep::Command { consumed, command } = stream.read(&bytes[at..]).unwrap() {
            let state = (command.database(), command.in_transaction());
            at += consumed;
            settled.push((state, stream.settled()));
            if at == bytes.len() {
                break;
            }
        }
        assert_eq!(
            settled,
            [
                ((None, false), 14),
                ((None, false), 15),
                ((Some(3), false), 38),
                ((Some(3), true), 38),
                ((Some(3), true), 38),
                ((Some(3), true), 97),
                ((Some(3), false), 134),
            ]
        );
    }

    #[test]
    fn a_stream_that_is_wrong_is_refused_with_its_offset() {
        let ping = b"*1\r\n$4\r\nPING\r\n";
        let multi = b"*1\r\n$5\r\nMULTI\r\n";
        for (bytes, offset, wrong) in [
            (
                &b"*1\r\n:1\r\n"[..],
                1000,
                CommandWrong::Frame(RequestFault::ExpectedBulk { got: b':' }),
            ),
            (
                &[&ping[..], b"*99999999999\r\n"].concat(),
                1014,
                CommandWrong::Frame(RequestFault::MultibulkLength),
            ),
            (b"*1\r\n$4\r\nEXEC\r\n", 1000, CommandWrong::Unopened),
            (&[&multi[..], multi].concat(), 1015, CommandWrong::Nested),
            (b"*2\r\n$6\r\nselect\r\n$2\r\n-1\r\n", 1000, CommandWrong::Database),
            (b"*1\r\n$6\r\nselect\r\n", 1000, CommandWrong::Database),
            (b"*3\r\n$6\r\nselect\r\n$1\r\n1\r\n$1\r\n1\r\n", 1000, CommandWrong::Database),
        ] {
            assert_eq!(read(bytes, bytes.len()), Err(CommandFault { offset, wrong }));
        }
        let fault =
            CommandFault { offset: 7, wrong: CommandWrong::Frame(RequestFault::BulkLength) };
        let text = "replication stream, offset 7: Protocol error: invalid bulk length";
        assert_eq!(fault.to_string(), text);
    }
}
