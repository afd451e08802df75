//! The elements of blocks, and the unread bytes that they are read from.

/// A block that does not have the form that it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// An element of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text<'a> {
    /// Its bytes.
    Plain(&'a [u8]),
    /// The decimal digits of a number.
    Integer(i64),
}

/// The unread bytes of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice<'a>(&'a [u8]);

impl<'a> Slice<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Damaged> {
        self.array().map(|[byte]| byte)
    }
}
