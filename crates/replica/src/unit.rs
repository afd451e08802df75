//! Units of the stream: a command, or a transaction as a whole.

use crate::fault::Cause;
use crate::target::Position;
use keyway_base::ByteRange;
use keyway_rdb::replication::{CommandKind, CommandStep, CommandStream};
use keyway_resp::ParseLimits;

/// A part of the stream that is applied as a whole: one command, or MULTI, EXEC
/// and everything between.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    start: u64,
    behind: Position,
    raw: &'a [u8],
    marks: &'a [Mark],
    ranges: &'a [ByteRange],
    is_transaction: bool,
    selected: Option<u64>,
}

/// A command of a [`Unit`].
#[derive(Clone, Copy, Debug)]
pub struct UnitCommand<'a> {
    database: u64,
    raw: &'a [u8],
    of: &'a [u8],
    ranges: &'a [ByteRange],
}

/// Where a command lies.
#[derive(Clone, Copy, Debug)]
struct Mark {
    database: u64,
    /// Its bytes in the unit.
    raw: ByteRange,
    /// Its words in the list of ranges.
    words: (u32, u32),
}

impl<'a> Unit<'a> {
    /// The offset in front of it.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The offset behind it.
    pub fn end(&self) -> u64 {
        self.behind.offset
    }

    /// The position behind it.
    pub fn behind(&self) -> Position {
        self.behind
    }

    /// Its bytes as they came, all of them: what a replica of this replica is to
    /// get.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The database that is selected behind it, if the stream has selected one.
    pub fn selected(&self) -> Option<u64> {
        self.selected
    }

    /// Returns whether it is a transaction.
    pub fn is_transaction(&self) -> bool {
        self.is_transaction
    }

    /// The commands to execute. What only concerns the stream is left out: PING,
    /// SELECT, MULTI, EXEC and REPLCONF GETACK. A unit may have no command at all.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = UnitCommand<'a>> + use<'a> {
        let Self { raw, ranges, .. } = *self;
        self.marks.iter().map(move |mark| UnitCommand {
            database: mark.database,
            raw: mark.raw.of(raw),
            of: raw,
            ranges: &ranges[mark.words.0 as usize..mark.words.1 as usize],
        })
    }
}

impl<'a> UnitCommand<'a> {
    /// The database it is for.
    pub fn database(&self) -> u64 {
        self.database
    }

    /// Its bytes as they came.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The same as a buffer and the places in it.
    pub fn frame(&self) -> (&'a [u8], &'a [ByteRange]) {
        (self.of, self.ranges)
    }

    /// Its name and arguments: at least the name.
    pub fn words(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let of = self.of;
        self.ranges.iter().map(move |range| range.of(of))
    }
}

/// Puts units together from a stream.
#[derive(Debug)]
pub(crate) struct Units {
    stream: CommandStream,
    /// The position in front of the unit.
    position: Position,
    len_max: usize,
    /// Bytes of the unit that were read.
    read: usize,
    marks: Vec<Mark>,
    ranges: Vec<ByteRange>,
    is_transaction: bool,
    wants_ack: bool,
}

/// What [`Units::read`] made of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitStep {
    /// A unit, of the first `len` bytes.
    Unit { len: usize },
    /// There must be so many bytes for reading on to be of use.
    More { at_least: usize },
}

/// Ranges whose memory is kept between units. More holds the memory of a long
/// transaction.
const RANGES_KEPT: usize = 4096;

impl Units {
    pub(crate) fn new(position: Position, limits: ParseLimits, len_max: usize) -> Self {
        Self {
            stream: CommandStream::new(position.offset, position.database, limits),
            position,
            // Ranges are of 32 bits.
            len_max: len_max.min(u32::MAX as usize),
            read: 0,
            marks: Vec::new(),
            ranges: Vec::new(),
            is_transaction: false,
            wants_ack: false,
        }
    }

    /// The position in front of the unit that is being read.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Reads on in `input`, which begins with the unit: all bytes that came and
    /// were not consumed by [`Units::finish`].
    pub(crate) fn read(&mut self, input: &[u8]) -> Result<UnitStep, Cause> {
        let too_long = Cause::TransactionLen { offset: self.position.offset, max: self.len_max };
        loop {
            let rest = input.get(self.read..).unwrap_or_default();
            let (consumed, command) = match self.stream.read(rest).map_err(Cause::Command)? {
                CommandStep::Command { consumed, command } => (consumed, command),
                CommandStep::More { at_least } => {
                    let at_least = self.read.saturating_add(at_least);
                    if self.read > 0 && at_least > self.len_max {
                        return Err(too_long);
                    }
                    return Ok(UnitStep::More { at_least });
                }
            };
            let end = self.read + consumed;
            if command.in_transaction() && end > self.len_max {
                return Err(too_long);
            }
            match command.kind() {
                CommandKind::Other => {
                    let inline = Cause::Inline { offset: command.start() };
                    let ranges = command.ranges().ok_or(inline)?;
                    let start = self.ranges.len();
                    let at = self.read;
                    let moved = |range: &ByteRange| {
                        ByteRange::new(at + range.start as usize, at + range.end as usize)
                    };
                    self.ranges.extend(ranges.iter().map(moved));
                    self.marks.push(Mark {
                        database: command.database().unwrap_or(0),
                        raw: ByteRange::new(at, end),
                        words: (start as u32, self.ranges.len() as u32),
                    });
                }
                CommandKind::GetAck => self.wants_ack = true,
                CommandKind::Nothing | CommandKind::Ping => {}
                CommandKind::Select(_) | CommandKind::Multi | CommandKind::Exec
                    if !command.is_inline() => {}
                _ => return Err(Cause::Inline { offset: command.start() }),
            }
            self.is_transaction |= command.in_transaction();
            self.read = end;
            if self.stream.settled() == self.stream.offset() {
                return Ok(UnitStep::Unit { len: end });
            }
        }
    }

    /// The unit that [`Units::read`] has found, of the same bytes.
    pub(crate) fn unit<'a>(&'a self, input: &'a [u8]) -> Unit<'a> {
        Unit {
            start: self.position.offset,
            behind: self.behind(),
            raw: input.get(..self.read).unwrap_or_default(),
            marks: &self.marks,
            ranges: &self.ranges,
            is_transaction: self.is_transaction,
            selected: self.stream.database(),
        }
    }

    /// The position behind the unit that was read.
    fn behind(&self) -> Position {
        let (offset, database) = (self.stream.offset(), self.stream.database());
        Position { offset, database, ..self.position }
    }

    /// The unit is done with; whether the primary wants an acknowledgement.
    pub(crate) fn finish(&mut self) -> bool {
        self.position = self.behind();
        self.read = 0;
        self.marks.clear();
        self.ranges.clear();
        if self.ranges.capacity() > RANGES_KEPT {
            self.ranges.shrink_to(RANGES_KEPT);
            self.marks.shrink_to(RANGES_KEPT);
        }
        self.is_transaction = false;
        std::mem::take(&mut self.wants_ack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Limits;
    use keyway_rdb::replication::ReplicationId;
    use keyway_testkit::encode_words;

    fn units(len_max: usize) -> Units {
        let id = ReplicationId::of_random([7; 20]);
        let position = Position { id, offset: 100, database: Some(2) };
        Units::new(position, ParseLimits::of(&Limits::default()), len_max)
    }

    /// Units of bytes that come in pieces of `size`, as lines of text, and the
    /// position behind the last one.
    fn read(bytes: &[u8], size: usize, len_max: usize) -> Result<(Vec<String>, Position), Cause> {
        let (mut units, mut kept, mut found) = (units(len_max), Vec::new(), Vec::new());
        let mut at_least = 0;
        for piece in bytes.chunks(size) {
            kept.extend_from_slice(piece);
            while kept.len() >= at_least.max(1) {
                match units.read(&kept)? {
                    UnitStep::Unit { len } => {
                        let unit = units.unit(&kept);
                        assert_eq!(unit.raw(), &kept[..len]);
                        assert_eq!(unit.end() - unit.start(), len as u64);
                        let shown = |command: UnitCommand<'_>| {
                            let words: Vec<_> =
                                command.words().map(String::from_utf8_lossy).collect();
                            assert_eq!(
                                command.raw(),
                                encode_words(&words.join(" ")),
                                "the words are those of the bytes"
                            );
                            format!("{}:{}", command.database(), words.join(" "))
                        };
                        let commands: Vec<String> = unit.commands().map(shown).collect();
                        let mark = if unit.is_transaction() { "+" } else { "" };
                        found.push(format!("{}{mark} {}", unit.start(), commands.join("; ")));
                        if units.finish() {
                            found.push("ack".to_owned());
                        }
                        kept.drain(..len);
                        at_least = 0;
                    }
                    UnitStep::More { at_least: least } => {
                        assert!(least > kept.len());
                        at_least = least;
                    }
                }
            }
        }
        Ok((found, units.position()))
    }

    fn bytes(lines: &[&str]) -> Vec<u8> {
        lines.iter().flat_map(|line| encode_words(line)).collect()
    }

    #[test]
    fn a_transaction_is_one_unit_in_pieces_of_any_size() {
        let mut stream = bytes(&["SET a 1", "PING", "MULTI", "SELECT 3", "INCR a", "DEL b c"]);
        let in_transaction = stream.len();
        stream.extend(bytes(&["EXEC", "REPLCONF GETACK *"]));
        stream.push(b'\n');
        stream.extend(bytes(&["DEL x"]));
        for size in 1..=stream.len() {
            let (found, position) = read(&stream, size, 1 << 20).expect("a stream");
            assert_eq!(
                found,
                [
                    "100 2:SET a 1",
                    "127 ",
                    "141+ 3:INCR a; 3:DEL b c",
                    "241 ",
                    "ack",
                    "278 ",
                    "279 3:DEL x"
                ]
            );
            assert_eq!((position.offset, position.database), (299, Some(3)));
            // The transaction is not whole: the position is in front of it.
            let (found, position) =
                read(&stream[..in_transaction], size, 1 << 20).expect("a stream");
            assert_eq!(found.len(), 2);
            assert_eq!((position.offset, position.database), (141, Some(2)));
        }
    }

    #[test]
    fn a_transaction_beyond_the_bound_is_refused_before_it_is_held() {
        let mut stream = bytes(&["MULTI", "SET a 1"]);
        let whole = stream.len() + bytes(&["EXEC"]).len();
        stream.extend(bytes(&["EXEC"]));
        assert!(read(&stream, 1, whole).is_ok());
        let refused = Err(Cause::TransactionLen { offset: 100, max: whole - 1 });
        assert_eq!(read(&stream, 1, whole - 1), refused);
        // A length alone is enough.
        let announced =
            [&bytes(&["MULTI"])[..], b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$9000\r\n"].concat();
        let refused = Err(Cause::TransactionLen { offset: 100, max: 1000 });
        assert_eq!(read(&announced, announced.len(), 1000), refused);
        // One command may be longer than that.
        let long = format!("SET a {}", "x".repeat(2000));
        assert_eq!(read(&bytes(&[&long]), 100, 1000).expect("a command").0.len(), 1);
    }

    #[test]
    fn a_line_of_text_is_no_command_of_a_stream() {
        for line in ["SET a 1\r\n", "SELECT 1\r\n", "MULTI\r\n"] {
            let stream = [&bytes(&["PING"])[..], line.as_bytes()].concat();
            assert_eq!(read(&stream, 9, 1000), Err(Cause::Inline { offset: 114 }), "{line}");
        }
    }
}
