//! Blocks: strings and numbers one after the other in a single string. Servers use them for small
//! collections and for the nodes of large lists and streams.

use crate::element::{Damaged, Text};
use crate::fault::Form;
use crate::{integers, listpack, ziplist, zipmap};

/// A position in a block. It does not hold the block: every call gets the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Block {
    Listpack(listpack::Walk),
    Ziplist(ziplist::Walk),
    Zipmap(zipmap::Walk),
    Integers(integers::Walk),
}

impl Block {
    /// Returns the position of the first element of a block, and the number of elements if the
    /// block contains it.
    pub(crate) fn start(form: Form, bytes: &[u8]) -> Result<(Self, Option<u64>), Damaged> {
        Ok(match form {
            Form::Listpack => {
                let (walk, count) = listpack::start(bytes)?;
                (Self::Listpack(walk), count)
            }
            Form::Ziplist => {
                let (walk, count) = ziplist::start(bytes)?;
                (Self::Ziplist(walk), count)
            }
            Form::Zipmap => {
                let (walk, count) = zipmap::start(bytes)?;
                (Self::Zipmap(walk), count)
            }
            Form::Integers => {
                let (walk, count) = integers::start(bytes)?;
                (Self::Integers(walk), Some(count))
            }
        })
    }

    /// Returns whether no element is left. Only [`Block::next`] finds out whether the block is
    /// complete.
    pub(crate) fn is_over(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Listpack(walk) => walk.is_over(bytes),
            Self::Ziplist(walk) => walk.is_over(bytes),
            Self::Zipmap(walk) => walk.is_over(bytes),
            Self::Integers(walk) => walk.is_over(bytes),
        }
    }

    /// Returns the next element, or `None` at the end of a complete block.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Text<'a>>, Damaged> {
        match self {
            Self::Listpack(walk) => walk.next(bytes),
            Self::Ziplist(walk) => walk.next(bytes),
            Self::Zipmap(walk) => walk.next(bytes),
            Self::Integers(walk) => walk.next(bytes),
        }
    }

    /// Counts the elements from here on.
    pub(crate) fn count(mut self, bytes: &[u8]) -> Result<u64, Damaged> {
        let mut count = 0;
        while self.next(bytes)?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

/// Returns all elements of a block from a position on, or `None` if it is damaged.
#[cfg(test)]
pub(crate) fn texts_of(mut block: Block, bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut texts = Vec::new();
    while let Some(text) = block.next(bytes).ok()? {
        texts.push(match text {
            Text::Plain(bytes) => bytes.to_vec(),
            Text::Integer(value) => value.to_string().into_bytes(),
        });
    }
    Some(texts)
}
