//! Files, written piece by piece.

mod stream;
mod value;

use crate::crc64::Crc64;
use crate::event::{Event, Key};
use crate::kind;
use crate::pieces;
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

    /// Returns whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the file has its end.
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
                pieces::aux(name, value, &mut self.out);
            }
            Event::Library(code) => pieces::library(code, &mut self.out),
            Event::Database(number) => pieces::database(*number, &mut self.out),
            Event::Sizes { keys, expiring } => pieces::sizes(*keys, *expiring, &mut self.out),
            Event::SlotSizes { slot, keys, expiring } => {
                // A hint, which no server before these reads.
                if self.version >= Version::Redis12 {
                    let sizes = [*slot, *keys, *expiring];
                    pieces::numbers(kind::OPCODE_SLOT_SIZES, &sizes, &mut self.out);
                }
            }
            Event::Key(key) => {
                let kind = ValueWriter::kind_of(self.version, &key.value)?;
                pieces::key(key, kind, &mut self.out);
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
        pieces::key(key, *kind, &mut self.out);
        self.out.extend_from_slice(value);
        Ok(())
    }

    fn start(&mut self) {
        if self.stage == Stage::Start {
            pieces::header(self.version, &mut self.out);
            self.stage = Stage::Between;
        }
    }

    fn end(&mut self, checked: bool) {
        self.sum_up();
        pieces::end(&mut self.crc, checked, &mut self.out);
        self.summed = self.out.len();
        self.stage = Stage::Over;
    }

    fn sum_up(&mut self) {
        self.crc.update(&self.out[self.summed..]);
        self.summed = self.out.len();
    }
}
