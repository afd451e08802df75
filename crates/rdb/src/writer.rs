//! Files, written piece by piece.

mod stream;
mod value;

use crate::crc64::Crc64;
use crate::event::{Event, Key};
use crate::format::{write_bytes, write_len, write_text};
use crate::kind;
use crate::version::Version;
use std::fmt;
pub use value::ValueWriter;

/// Why a piece is not written. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// The version has no form of such a value: of a hash whose fields expire
    /// before [`Version::Redis12`], for instance.
    Version(Version),
    /// A collection whose elements were not counted.
    Uncounted,
    /// A piece in a place where none of its kind can be.
    Order,
    /// A collection with fewer elements than were announced.
    Missing,
}

impl fmt::Display for WriteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "RDB version {} cannot hold such a value", version.number())
            }
            Self::Uncounted => f.write_str("the number of a collection's elements is not known"),
            Self::Order => f.write_str("a piece of RDB is out of its order"),
            Self::Missing => f.write_str("a collection has fewer elements than it was said to"),
        }
    }
}

impl std::error::Error for WriteFault {}

/// Writes a file. It takes what [`Reader`](crate::Reader) gives.
///
/// Output stays in the writer until the caller takes it with
/// [`Writer::take_output`]. A caller that does so after each piece holds one
/// string, or one block of a stream, at a time. The writer writes collections
/// element by element. [`Writer::dumped`] takes a value in the form of DUMP,
/// which is shorter for small collections.
#[derive(Debug)]
pub struct Writer {
    version: Version,
    out: Vec<u8>,
    /// Bytes that were taken, and the checksum of those and of so many that
    /// wait.
    taken: u64,
    crc: Crc64,
    summed: usize,
    value: Option<ValueWriter>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Start,
    Between,
    Over,
}

impl Writer {
    /// A writer of a file that servers of this version read.
    pub fn new(version: Version) -> Self {
        Self {
            version,
            out: Vec::new(),
            taken: 0,
            crc: Crc64::default(),
            summed: 0,
            value: None,
            stage: Stage::Start,
        }
    }

    /// The version it writes.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes of the file so far.
    pub fn len(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the file has its end.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// What was written and not yet taken.
    pub fn output(&self) -> &[u8] {
        &self.out
    }

    /// Appends what was written to `sink`, and forgets it.
    pub fn take_output(&mut self, sink: &mut Vec<u8>) {
        self.sum_up();
        sink.extend_from_slice(&self.out);
        self.taken += self.out.len() as u64;
        self.out.clear();
        self.summed = 0;
    }

    /// Writes a piece. [`Event::Start`] may be left out and counts for nothing:
    /// the version is the writer's own.
    ///
    /// # Errors
    /// [`WriteFault`].
    pub fn write(&mut self, event: &Event<'_>) -> Result<(), WriteFault> {
        let is_of_value = matches!(event, Event::Part(_) | Event::KeyEnd);
        if self.stage == Stage::Over || is_of_value != self.value.is_some() {
            return Err(WriteFault::Order);
        }
        if let Event::Key(key) = event {
            ValueWriter::kind_of(self.version, &key.value)?;
        }
        self.start();
        match event {
            Event::Start(_) => {}
            Event::Aux { name, value } => {
                self.out.push(kind::OPCODE_AUX);
                write_text(name, &mut self.out);
                write_text(value, &mut self.out);
            }
            Event::Library(code) => {
                self.out.push(kind::OPCODE_LIBRARY);
                write_bytes(code, &mut self.out);
            }
            Event::Database(number) => self.numbers(kind::OPCODE_DATABASE, &[*number]),
            Event::Sizes { keys, expiring } => {
                self.numbers(kind::OPCODE_SIZES, &[*keys, *expiring]);
            }
            Event::SlotSizes { slot, keys, expiring } => {
                // A hint, which no server before these reads.
                if self.version >= Version::Redis12 {
                    self.numbers(kind::OPCODE_SLOT_SIZES, &[*slot, *keys, *expiring]);
                }
            }
            Event::Key(key) => {
                let kind = ValueWriter::kind_of(self.version, &key.value)?;
                self.key(key, kind);
                self.value = Some(ValueWriter::open(self.version, &key.value, &mut self.out)?);
            }
            Event::Part(part) => {
                let value = self.value.as_mut().ok_or(WriteFault::Order)?;
                value.part(part, &mut self.out)?;
            }
            Event::KeyEnd => {
                self.value.as_ref().ok_or(WriteFault::Order)?.finish()?;
                self.value = None;
            }
            Event::End { checked } => self.end(*checked),
        }
        Ok(())
    }

    /// Writes a key with its whole value as DUMP has it, without the footer.
    /// `version` is that of the footer: types above 21 differ between Redis and
    /// Valkey. The writer ignores [`Key::value`].
    ///
    /// # Errors
    /// [`WriteFault`].
    pub fn dumped(
        &mut self,
        key: &Key<'_>,
        version: Version,
        dump: &[u8],
    ) -> Result<(), WriteFault> {
        let (kind, value) = dump.split_first().ok_or(WriteFault::Missing)?;
        if self.stage == Stage::Over || self.value.is_some() {
            return Err(WriteFault::Order);
        }
        let is_ambiguous = *kind > kind::STREAM_72;
        let is_foreign = version.is_of_valkey() != self.version.is_of_valkey();
        if !self.version.knows(*kind) || (is_ambiguous && is_foreign) {
            return Err(WriteFault::Version(self.version));
        }
        self.start();
        self.key(key, *kind);
        self.out.extend_from_slice(value);
        Ok(())
    }

    fn start(&mut self) {
        if self.stage == Stage::Start {
            let (word, width) =
                if self.version.is_of_valkey() { ("VALKEY", 3) } else { ("REDIS", 4) };
            let header = format!("{word}{:0width$}", self.version.number());
            self.out.extend_from_slice(header.as_bytes());
            self.stage = Stage::Between;
        }
    }

    fn numbers(&mut self, opcode: u8, numbers: &[u64]) {
        self.out.push(opcode);
        numbers.iter().for_each(|number| write_len(*number, &mut self.out));
    }

    fn key(&mut self, key: &Key<'_>, kind: u8) {
        if let Some(millis) = key.expires_ms {
            self.out.push(kind::OPCODE_EXPIRES_MS);
            // Later times cannot be written, and are as good as never.
            let millis = i64::try_from(millis).unwrap_or(i64::MAX);
            self.out.extend_from_slice(&millis.to_le_bytes());
        }
        if let Some(seconds) = key.idle_seconds {
            self.numbers(kind::OPCODE_IDLE, &[seconds]);
        }
        if let Some(frequency) = key.frequency {
            self.out.extend_from_slice(&[kind::OPCODE_FREQUENCY, frequency]);
        }
        self.out.push(kind);
        write_text(key.name, &mut self.out);
    }

    fn end(&mut self, checked: bool) {
        self.out.push(kind::OPCODE_END);
        self.sum_up();
        let sum = if checked { self.crc.sum() } else { 0 };
        self.out.extend_from_slice(&sum.to_le_bytes());
        self.stage = Stage::Over;
    }

    fn sum_up(&mut self) {
        self.crc.update(&self.out[self.summed..]);
        self.summed = self.out.len();
    }
}
