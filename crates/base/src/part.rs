//! Bytes that are shared by those who have yet to send some of them, in place of copies.

use std::sync::Arc;

/// What was read at once.
pub type Block = Arc<[u8]>;

/// Bytes of a block, which stays as long as a part of it is held.
#[derive(Clone, Debug)]
pub struct Part {
    block: Block,
    start: u32,
    end: u32,
}

impl Part {
    /// The part of `block` that `bytes` are, if they lie in it.
    pub fn of(block: &Block, bytes: &[u8]) -> Option<Part> {
        let start = (bytes.as_ptr() as usize).checked_sub(block.as_ptr() as usize)?;
        let end = start.checked_add(bytes.len())?;
        let is_inside = end <= block.len() && end <= u32::MAX as usize;
        is_inside.then(|| Part { block: Arc::clone(block), start: start as u32, end: end as u32 })
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.block[self.start as usize..self.end as usize]
    }

    /// How many they are.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether none are left.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Lets the first `len` bytes go.
    ///
    /// # Panics
    /// When there are less.
    pub fn advance(&mut self, len: usize) {
        assert!(len <= self.len(), "more bytes are let go than there are");
        self.start += len as u32;
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
}
