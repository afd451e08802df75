use crate::collections::stream::id::Id;
use crate::items::STRING_LEN_MAX;
use keyway_rdb::Malformed;
use keyway_rdb::format::{Reader, Text, unpack};
use std::borrow::Cow;

/// Why a value is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no form there is.
    Form,
    /// It is larger than all memory there may be.
    Room,
}

impl From<Malformed> for Refusal {
    fn from(_: Malformed) -> Self {
        Self::Form
    }
}

/// What is done with each string of a value.
pub(super) type Visit<'a> = keyway_rdb::Visit<'a, Refusal>;

/// What values are read from.
pub(super) struct Source<'a> {
    pub(super) reader: Reader<'a>,
    /// Bytes that the value may take.
    pub(super) room: usize,
}

impl<'a> Source<'a> {
    pub(super) fn len(&mut self) -> Result<usize, Refusal> {
        self.reader.read_len().ok_or(Refusal::Form)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        self.reader.array().ok_or(Refusal::Form)
    }

    /// The id of an entry, as two lengths.
    pub(super) fn id(&mut self) -> Result<Id, Refusal> {
        Ok(Id { ms: self.len()? as u64, seq: self.len()? as u64 })
    }

    /// The bytes of a string.
    pub(super) fn bytes(&mut self) -> Result<Cow<'a, [u8]>, Refusal> {
        match self.reader.read_text().ok_or(Refusal::Form)? {
            Text::Plain(bytes) => Ok(Cow::Borrowed(bytes)),
            Text::Integer(value) => {
                let digits = value.to_string().into_bytes();
                if digits.len() > self.room { Err(Refusal::Room) } else { Ok(Cow::Owned(digits)) }
            }
            Text::Packed { len, .. } if len as u64 > STRING_LEN_MAX => Err(Refusal::Form),
            Text::Packed { len, .. } if len > self.room => Err(Refusal::Room),
            Text::Packed { packed, len } => {
                let mut bytes = Vec::new();
                unpack(packed, len, &mut bytes).ok_or(Refusal::Form)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}
