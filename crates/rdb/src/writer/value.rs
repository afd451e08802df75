//! Writes values part by part.

use super::WriteFault;
use super::stream::StreamWriter;
use crate::event::{Kind, Opened, Part};
use crate::format::{write_len, write_text};
use crate::kind;
use crate::version::Version;

/// Writes one value: what follows its type and, in a file, its key.
///
/// Collections are written element by element, in forms that every version reads.
#[derive(Debug)]
pub struct ValueWriter(State);

#[derive(Debug)]
enum State {
    Text { is_written: bool },
    Plain { kind: Kind, left: u64, times: Times },
    Stream(StreamWriter),
}

/// How the times of fields are written.
#[derive(Clone, Copy, Debug)]
enum Times {
    None,
    /// Before a field, relative to this time, which counts as 1.
    From(u64),
    /// After a field.
    Behind,
}

impl ValueWriter {
    /// Returns the type with which a version writes a value.
    ///
    /// # Errors
    /// Returns [`WriteFault::Version`] if the version has no such type.
    pub fn kind_of(version: Version, value: &Opened) -> Result<u8, WriteFault> {
        if value.count.is_none() && value.kind != Kind::Text {
            return Err(WriteFault::Uncounted);
        }
        Ok(match value.kind {
            Kind::Text => kind::STRING,
            Kind::List => kind::LIST,
            Kind::Set => kind::SET,
            Kind::Sorted => kind::SORTED,
            Kind::Hash => kind::HASH,
            Kind::ExpiringHash if version.is_of_valkey() => kind::HASH_TIMES_EARLY,
            Kind::ExpiringHash if version >= Version::Redis12 => kind::HASH_TIMES,
            Kind::ExpiringHash => return Err(WriteFault::Version(version)),
            Kind::Stream => match version {
                Version::Redis9 => kind::STREAM_5,
                Version::Redis10 => kind::STREAM,
                _ => kind::STREAM_72,
            },
        })
    }

    /// Begins a value of the type of [`ValueWriter::kind_of`], and appends what precedes its parts.
    /// If the fields of a hash expire, no time may be before [`Opened::earliest_ms`]. Without an
    /// earliest time, times take a few bytes more.
    ///
    /// # Errors
    /// Returns [`WriteFault`].
    pub fn open(version: Version, value: &Opened, out: &mut Vec<u8>) -> Result<Self, WriteFault> {
        let kind = Self::kind_of(version, value)?;
        if value.kind == Kind::Text {
            return Ok(Self(State::Text { is_written: false }));
        }
        let count = value.count.ok_or(WriteFault::Uncounted)?;
        let times = match kind {
            kind::HASH_TIMES => {
                let earliest = value.earliest_ms.unwrap_or(0);
                out.extend_from_slice(&earliest.to_le_bytes());
                Times::From(earliest)
            }
            kind::HASH_TIMES_EARLY => Times::Behind,
            _ => Times::None,
        };
        write_len(count, out);
        Ok(Self(match value.kind {
            Kind::Stream => State::Stream(StreamWriter::new(kind, count)),
            kind => State::Plain { kind, left: count, times },
        }))
    }

    /// Appends a part of the value.
    ///
    /// # Errors
    /// Returns [`WriteFault::Order`], also for more elements than were announced and for a time
    /// before the earliest one.
    pub fn part(&mut self, part: &Part<'_>, out: &mut Vec<u8>) -> Result<(), WriteFault> {
        match &mut self.0 {
            State::Text { is_written } => match part {
                Part::Text(text) if !*is_written => {
                    write_text(text, out);
                    *is_written = true;
                    Ok(())
                }
                _ => Err(WriteFault::Order),
            },
            State::Plain { kind, left, times } => {
                let rest = left.checked_sub(1).ok_or(WriteFault::Order)?;
                element(*kind, *times, part, out)?;
                *left = rest;
                Ok(())
            }
            State::Stream(stream) => stream.part(part, out),
        }
    }

    /// Checks that the value is complete.
    ///
    /// # Errors
    /// Returns [`WriteFault::Missing`] if it is not.
    pub fn finish(&self) -> Result<(), WriteFault> {
        let is_whole = match &self.0 {
            State::Text { is_written } => *is_written,
            State::Plain { left, .. } => *left == 0,
            State::Stream(stream) => stream.is_whole(),
        };
        if is_whole { Ok(()) } else { Err(WriteFault::Missing) }
    }
}

/// Appends an element of a collection that is no stream.
fn element(kind: Kind, times: Times, part: &Part<'_>, out: &mut Vec<u8>) -> Result<(), WriteFault> {
    match (kind, part) {
        (Kind::List, Part::Element(text)) | (Kind::Set, Part::Member(text)) => {
            write_text(text, out);
        }
        (Kind::Sorted, Part::Scored { member, score }) => {
            write_text(member, out);
            out.extend_from_slice(&score.to_le_bytes());
        }
        (Kind::Hash, Part::Field { name, value, expires_ms: None }) => {
            write_text(name, out);
            write_text(value, out);
        }
        (Kind::ExpiringHash, Part::Field { name, value, expires_ms }) => {
            if let Times::From(earliest) = times {
                let past = expires_ms.map(|time| time.checked_sub(earliest)?.checked_add(1));
                write_len(past.unwrap_or(Some(0)).ok_or(WriteFault::Order)?, out);
            }
            write_text(name, out);
            write_text(value, out);
            if let Times::Behind = times {
                let time = expires_ms.map_or(-1, |time| i64::try_from(time).unwrap_or(i64::MAX));
                out.extend_from_slice(&time.to_le_bytes());
            }
        }
        _ => return Err(WriteFault::Order),
    }
    Ok(())
}
