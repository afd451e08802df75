//! Bytes that several owners share instead of copying, until each has sent them.

use std::fmt;
use std::sync::Arc;

/// The bytes of one read.
pub type Block = Arc<[u8]>;

/// Bytes that keep their value and their place as long as this is held.
pub trait Lent: Send + Sync {
    /// Returns the bytes, the same ones each time.
    fn bytes(&self) -> &[u8];
}

/// A range of a block or of lent bytes, which stay as long as a part of them is held.
#[derive(Clone)]
pub struct Part {
    holder: Holder,
    start: u32,
    end: u32,
}

#[derive(Clone)]
enum Holder {
    Block(Block),
    Lent(Arc<dyn Lent>),
}

impl Part {
    /// Returns the part of `block` that `bytes` are, if they lie in it.
    pub fn of(block: &Block, bytes: &[u8]) -> Option<Part> {
        let start = (bytes.as_ptr() as usize).checked_sub(block.as_ptr() as usize)?;
        let end = start.checked_add(bytes.len())?;
        let is_inside = end <= block.len() && end <= u32::MAX as usize;
        let holder = Holder::Block(Arc::clone(block));
        is_inside.then(|| Part { holder, start: start as u32, end: end as u32 })
    }

    /// Returns all of the lent bytes, if they are less than 4 GiB.
    pub fn of_lent(lent: Arc<dyn Lent>) -> Option<Part> {
        let end = u32::try_from(lent.bytes().len()).ok()?;
        Some(Part { holder: Holder::Lent(lent), start: 0, end })
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let all = match &self.holder {
            Holder::Block(block) => block,
            Holder::Lent(lent) => lent.bytes(),
        };
        &all[self.start as usize..self.end as usize]
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Returns whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `len` bytes.
    ///
    /// # Panics
    /// Panics if there are fewer.
    pub fn advance(&mut self, len: usize) {
        assert!(len <= self.len(), "more bytes are let go than there are");
        self.start += len as u32;
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Part({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_by_where_it_lies() {
        let block: Block = Arc::from(&b"0123456789"[..]);
        let mut part = Part::of(&block, &block[2..5]).unwrap();
        assert_eq!((part.bytes(), part.len(), Arc::strong_count(&block)), (&b"234"[..], 3, 2));
        part.advance(2);
        assert_eq!(part.bytes(), b"4");
        part.advance(1);
        assert!(part.is_empty());
        assert!(Part::of(&block, &block[..]).is_some_and(|part| part.len() == 10));
        let elsewhere = block.to_vec();
        assert!(Part::of(&block, &elsewhere[2..5]).is_none());
        drop(part);
        assert_eq!(Arc::strong_count(&block), 1);
    }

    struct Value(Vec<u8>);

    impl Lent for Value {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    #[test]
    fn what_is_lent_stays_until_the_last_part_is_gone() {
        let value = Arc::new(Value(b"0123456789".to_vec()));
        let mut part = Part::of_lent(Arc::clone(&value) as Arc<dyn Lent>).unwrap();
        let other = part.clone();
        part.advance(7);
        assert_eq!((part.bytes(), other.bytes()), (&b"789"[..], &b"0123456789"[..]));
        drop(part);
        assert_eq!(Arc::strong_count(&value), 2);
        drop(other);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
