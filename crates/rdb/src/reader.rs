//! Reads files piece by piece.
//!
//! ```text
//!  file: REDIS or VALKEY, version in digits, 9 bytes │ opcode or type ... │ 255 │ checksum, 8
//!  key:  [expiry] [idle or frequency] type │ name │ value
//! ```

use crate::crc64::Crc64;
use crate::event::{Event, Key};
use crate::fault::{Fault, ModuleName, What};
use crate::format::{Cursor, Stop};
use crate::kind;
use crate::value::{ReadLimits, ValueReader, text};
use crate::version::Version;

/// Number of bytes before everything else.
const HEADER_LEN: usize = 9;
/// Largest buffer that [`Feed`] keeps while it is empty. With a larger limit, the memory of a long
/// string would be held until the end of the file.
const KEPT_LEN_MAX: usize = 1 << 20;

/// Reads a file from bytes that arrive in pieces of any size.
///
/// The caller owns the buffer. [`Reader::read`] gets all bytes that are not yet consumed and
/// returns how many it has consumed. [`Feed`] owns the buffer for a caller that only has pieces. A
/// reader cannot be used after a fault.
///
/// A reader holds a few strings and one block, each within [`ReadLimits`].
#[derive(Debug)]
pub struct Reader {
    stage: Stage,
    /// Number of bytes consumed so far, and their checksum.
    offset: u64,
    crc: Crc64,
    limits: ReadLimits,
    value: ValueReader,
    /// What was read before the next key.
    ahead: Attributes,
    name: Vec<u8>,
    other: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    Between,
    Value,
    Over,
}

/// What precedes a key.
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    expires_ms: Option<u64>,
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
}

/// The result of [`Reader::read`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// A piece of the file.
    Event {
        /// Number of consumed bytes, which may be 0.
        consumed: usize,
        /// The piece.
        event: Event<'a>,
    },
    /// More bytes are needed.
    More {
        /// Number of consumed bytes, which may be greater than 0.
        consumed: usize,
        /// Smallest number of bytes after those from which reading again can succeed. The length is
        /// checked against the limits, but the file may not have so many bytes: do not reserve
        /// memory for them.
        at_least: usize,
    },
    /// The file is over. Bytes that follow do not belong to it.
    Over,
}

/// What an opcode led to.
enum Found {
    /// Something that is no piece of its own.
    Nothing,
    /// A type of value.
    Type(u8),
    /// The opcode of a piece.
    Opcode(u8),
}

impl Reader {
    /// Creates a reader of one file.
    pub fn new(limits: ReadLimits) -> Self {
        Self {
            stage: Stage::Header,
            offset: 0,
            crc: Crc64::default(),
            limits,
            value: ValueReader::new(Version::Redis9, limits),
            ahead: Attributes::default(),
            name: Vec::new(),
            other: Vec::new(),
        }
    }

    /// Returns the number of consumed bytes of the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether the file has been read to its end.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Returns the fault of the file if no more bytes arrive.
    ///
    /// # Errors
    /// Returns [`What::Early`] unless the file is over.
    pub fn finish(&self) -> Result<(), Fault> {
        if self.is_over() { Ok(()) } else { Err(Fault::new(self.offset, What::Early)) }
    }

    /// Reads the next piece from `input`, which must contain all bytes that have arrived and were
    /// not consumed.
    ///
    /// # Errors
    /// Returns the [`Fault`] of the bytes.
    pub fn read<'a>(&'a mut self, input: &'a [u8]) -> Result<Step<'a>, Fault> {
        self.read_behind(None, input)
    }

    /// Reads the next piece as [`Reader::read`] does. With `before`, the bytes that were consumed
    /// since the latest [`Reader::sum_up`], it leaves the checksum to that function: many pieces at
    /// once are summed up faster.
    fn read_behind<'a>(
        &'a mut self,
        before: Option<&[u8]>,
        input: &'a [u8],
    ) -> Result<Step<'a>, Fault> {
        let mut cursor = Cursor::at_offset(input, self.offset);
        // Opcodes about the next key are no pieces of their own.
        let found = match self.find(&mut cursor) {
            Ok(found) => found,
            Err(stop) => return self.stopped(stop, &cursor, before, input),
        };
        let (offset, crc) = (self.offset, &mut self.crc);
        let read = match self.stage {
            Stage::Over => return Ok(Step::Over),
            Stage::Header => header(&mut cursor).map(|version| {
                self.value.set_version(version);
                self.stage = Stage::Between;
                Event::Start(version)
            }),
            Stage::Value => match self.value.next(&mut cursor) {
                Ok(Some(part)) => Ok(Event::Part(part)),
                Ok(None) => {
                    self.stage = Stage::Between;
                    Ok(Event::KeyEnd)
                }
                Err(stop) => Err(stop),
            },
            Stage::Between => {
                let rooms = (&mut self.name, &mut self.other);
                match found {
                    Found::Nothing => Err(Stop::Short { at_least: input.len() + 1 }),
                    Found::Type(kind) => {
                        let ahead = std::mem::take(&mut self.ahead);
                        let key =
                            key(kind, ahead, &mut self.value, &mut cursor, self.limits, rooms.0);
                        match key {
                            Ok(key) => {
                                self.stage = Stage::Value;
                                Ok(Event::Key(key))
                            }
                            Err(stop) => {
                                self.ahead = ahead;
                                Err(stop)
                            }
                        }
                    }
                    Found::Opcode(kind::OPCODE_END) => {
                        let start = cursor.consumed() + 1;
                        let mut sum = *crc;
                        sum.update(before.unwrap_or_default());
                        sum.update(&input[..start.min(input.len())]);
                        end(&mut cursor, sum).inspect(|_| self.stage = Stage::Over)
                    }
                    Found::Opcode(opcode) => {
                        piece(opcode, self.value.version(), &mut cursor, self.limits, rooms)
                    }
                }
            }
        };
        let consumed = cursor.consumed();
        if before.is_none() {
            crc.update(&input[..consumed]);
        }
        self.offset = offset + consumed as u64;
        match read {
            Ok(event) => Ok(Step::Event { consumed, event }),
            Err(Stop::Wrong(fault)) => Err(fault),
            Err(Stop::Short { at_least }) => Ok(more(consumed, at_least)),
        }
    }

    /// Adds bytes to the checksum that were consumed without.
    fn sum_up(&mut self, consumed: &[u8]) {
        self.crc.update(consumed);
    }

    /// Returns the step for bytes in which nothing was found.
    fn stopped<'a>(
        &mut self,
        stop: Stop,
        cursor: &Cursor<'_>,
        before: Option<&[u8]>,
        input: &[u8],
    ) -> Result<Step<'a>, Fault> {
        let consumed = cursor.consumed();
        if before.is_none() {
            self.crc.update(&input[..consumed]);
        }
        self.offset += consumed as u64;
        match stop {
            Stop::Wrong(fault) => Err(fault),
            Stop::Short { at_least } => Ok(more(consumed, at_least)),
        }
    }

    /// Consumes the attributes of the next key, and finds the next piece. The cursor is then before
    /// its first byte.
    fn find(&mut self, cursor: &mut Cursor<'_>) -> Result<Found, Stop> {
        if self.stage != Stage::Between {
            return Ok(Found::Nothing);
        }
        loop {
            let mut ahead = *cursor;
            let wrong = |cursor: &Cursor<'_>, what| Stop::Wrong(cursor.fault(what));
            let found = ahead.byte()?;
            match found {
                kind::OPCODE_EXPIRES => {
                    let seconds = u32::from_le_bytes(ahead.array()?);
                    self.ahead.expires_ms = Some(u64::from(seconds) * 1000);
                }
                kind::OPCODE_EXPIRES_MS => {
                    let millis = i64::try_from(ahead.number()?);
                    let millis = millis.map_err(|_| wrong(cursor, What::Time))?;
                    self.ahead.expires_ms = Some(millis as u64);
                }
                kind::OPCODE_IDLE => self.ahead.idle_seconds = Some(ahead.read_len()?),
                kind::OPCODE_FREQUENCY => self.ahead.frequency = Some(ahead.byte()?),
                kind::OPCODE_LEAST.. => return Ok(Found::Opcode(found)),
                kind => {
                    self.value.check(kind).map_err(|what| wrong(cursor, what))?;
                    return Ok(Found::Type(kind));
                }
            }
            *cursor = ahead;
        }
    }
}

fn more<'a>(consumed: usize, at_least: usize) -> Step<'a> {
    Step::More { consumed, at_least: at_least.saturating_sub(consumed).max(1) }
}

/// Reads the first bytes of a file.
fn header(cursor: &mut Cursor<'_>) -> Result<Version, Stop> {
    let start = *cursor;
    // A few wrong bytes are reported at once.
    let have = cursor.left().min(HEADER_LEN);
    let begins = |word: &[u8]| {
        let seen = cursor.clone().take(have.min(word.len()));
        seen.is_ok_and(|seen| word.starts_with(seen))
    };
    let digits_at = match (begins(b"REDIS"), begins(b"VALKEY")) {
        (true, _) => 5,
        (_, true) => 6,
        _ => return Err(start.fault(What::Signature).into()),
    };
    if have < HEADER_LEN {
        return Err(Stop::Short { at_least: have + 1 });
    }
    let bytes = cursor.take(HEADER_LEN)?;
    let digits = std::str::from_utf8(&bytes[digits_at..]).ok();
    let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
    let number: u16 = digits
        .and_then(|digits| digits.parse().ok())
        .ok_or(Stop::Wrong(start.fault(What::Signature)))?;
    let version = Version::of_number(number);
    let is_of_valkey = digits_at == 6;
    let version = version.filter(|version| version.is_of_valkey() == is_of_valkey);
    version.ok_or(Stop::Wrong(start.fault(What::Version(number))))
}

/// Reads a key at the cursor, and opens its value.
fn key<'a>(
    kind: u8,
    attributes: Attributes,
    value: &mut ValueReader,
    cursor: &mut Cursor<'a>,
    limits: ReadLimits,
    room: &'a mut Vec<u8>,
) -> Result<Key<'a>, Stop> {
    let mut ahead = *cursor;
    ahead.byte()?;
    let name = text(&mut ahead, limits, room)?;
    let opened = value.open(kind, &mut ahead)?;
    *cursor = ahead;
    let Attributes { expires_ms, idle_seconds, frequency } = attributes;
    Ok(Key { name, expires_ms, idle_seconds, frequency, value: opened })
}

/// Reads the end of a file, whose checksum so far is `crc`.
fn end<'a>(cursor: &mut Cursor<'a>, crc: Crc64) -> Result<Event<'a>, Stop> {
    let mut ahead = *cursor;
    ahead.byte()?;
    let at = ahead;
    let found = ahead.number()?;
    let computed = crc.sum();
    // A server that computes no checksum writes 0.
    if found != 0 && found != computed {
        return Err(at.fault(What::Checksum { found, computed }).into());
    }
    *cursor = ahead;
    Ok(Event::End { checked: found != 0 })
}

/// Reads a piece that is neither a key nor the end.
fn piece<'a>(
    opcode: u8,
    version: Version,
    cursor: &mut Cursor<'a>,
    limits: ReadLimits,
    (name, other): (&'a mut Vec<u8>, &'a mut Vec<u8>),
) -> Result<Event<'a>, Stop> {
    let mut ahead = *cursor;
    ahead.byte()?;
    let what = match opcode {
        kind::OPCODE_AUX => {
            let name = text(&mut ahead, limits, name)?;
            let value = text(&mut ahead, limits, other)?;
            *cursor = ahead;
            return Ok(Event::Aux { name, value });
        }
        kind::OPCODE_LIBRARY => {
            let code = text(&mut ahead, limits, name)?;
            *cursor = ahead;
            return Ok(Event::Library(code));
        }
        kind::OPCODE_DATABASE => {
            let event = Event::Database(ahead.read_len()?);
            *cursor = ahead;
            return Ok(event);
        }
        kind::OPCODE_SIZES => {
            let event = Event::Sizes { keys: ahead.read_len()?, expiring: ahead.read_len()? };
            *cursor = ahead;
            return Ok(event);
        }
        kind::OPCODE_SLOT_SIZES => {
            let (slot, keys) = (ahead.read_len()?, ahead.read_len()?);
            let event = Event::SlotSizes { slot, keys, expiring: ahead.read_len()? };
            *cursor = ahead;
            return Ok(event);
        }
        kind::OPCODE_MODULE => What::ModuleData(ModuleName::of(ahead.read_len()?)),
        kind::OPCODE_LIBRARY_EARLY => What::EarlyLibrary,
        kind::OPCODE_SLOT_IMPORT if version.is_of_valkey() => What::SlotImport,
        kind::OPCODE_SLOT_IMPORT => What::KeyMetadata,
        kind::OPCODE_COMMAND if version.is_of_valkey() => What::InlineCommand,
        other => What::Opcode(other),
    };
    Err(cursor.fault(what).into())
}

/// Reads a file from pieces, and keeps incomplete parts of them.
#[derive(Debug)]
pub struct Feed {
    reader: Reader,
    /// Bytes that have arrived and were not consumed.
    kept: Vec<u8>,
    /// Smallest number of them from which reading again can succeed.
    at_least: usize,
}

/// Why feeding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedError<E> {
    /// The file is wrong.
    Fault(Fault),
    /// The visitor has ended it.
    Visitor(E),
}

impl Feed {
    /// Creates a reader of one file.
    pub fn new(limits: ReadLimits) -> Self {
        Self { reader: Reader::new(limits), kept: Vec::new(), at_least: 0 }
    }

    /// Returns the reader, which knows how much of the file was read.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Passes the next bytes to the reader and each piece to `visit`. Returns how many of the bytes
    /// belong to the file: all of them, unless it is over.
    ///
    /// # Errors
    /// Returns the fault of the file, or the error of `visit`.
    pub fn feed<E>(
        &mut self,
        bytes: &[u8],
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<usize, FeedError<E>> {
        if self.kept.is_empty() {
            let (consumed, at_least) = read_all(&mut self.reader, bytes, visit)?;
            if !self.reader.is_over() {
                self.kept.extend_from_slice(&bytes[consumed..]);
                self.at_least = at_least;
                return Ok(bytes.len());
            }
            return Ok(consumed);
        }
        self.kept.extend_from_slice(bytes);
        if self.kept.len() < self.at_least {
            return Ok(bytes.len());
        }
        let (consumed, at_least) = read_all(&mut self.reader, &self.kept, visit)?;
        if self.reader.is_over() {
            let foreign = self.kept.len() - consumed;
            self.kept = Vec::new();
            return Ok(bytes.len().saturating_sub(foreign));
        }
        self.kept.drain(..consumed);
        if self.kept.is_empty() && self.kept.capacity() > KEPT_LEN_MAX {
            self.kept = Vec::new();
        }
        self.at_least = at_least;
        Ok(bytes.len())
    }

    /// Ends the input. It must be called when no more bytes arrive.
    ///
    /// # Errors
    /// Returns [`What::Early`] unless the file is over.
    pub fn finish(&self) -> Result<(), Fault> {
        self.reader.finish()
    }
}

/// Reads all complete pieces of `input`. Returns how many bytes were consumed, and how many must
/// follow those.
fn read_all<E>(
    reader: &mut Reader,
    input: &[u8],
    visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
) -> Result<(usize, usize), FeedError<E>> {
    let mut at = 0;
    loop {
        let (before, rest) = input.split_at(at);
        match reader.read_behind(Some(before), rest).map_err(FeedError::Fault)? {
            Step::Event { consumed, event } => {
                visit(event).map_err(FeedError::Visitor)?;
                at += consumed;
            }
            Step::More { consumed, at_least } => {
                reader.sum_up(&input[..at + consumed]);
                return Ok((at + consumed, at_least));
            }
            Step::Over => return Ok((at, 0)),
        }
    }
}
