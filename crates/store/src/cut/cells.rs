//! The parts of a table that were written before the walk came to them.

/// Cells for each bucket of the table, as a power of two: about one item a cell. Fewer write more
/// neighbours along with an item that changes, more take more memory.
const CELLS_PER_BUCKET_BITS: u32 = 3;

/// A bit for each part of a table. A cell is the items whose hashes have the same low bits, however
/// the table grows and shrinks.
pub(crate) struct Cells {
    bits: u32,
    words: Box<[u64]>,
}

impl Cells {
    /// Cells of a table with so many buckets, none of them marked.
    pub(crate) fn new(bucket_count: usize) -> Self {
        let bits = bucket_count.max(1).next_power_of_two().ilog2() + CELLS_PER_BUCKET_BITS;
        let bits = bits.min(u32::BITS);
        Self { bits, words: vec![0; (1_usize << bits).div_ceil(64)].into() }
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.words[..])
    }

    /// The cell of a hash.
    pub(crate) fn of(&self, hash: u32) -> u32 {
        (u64::from(hash) & ((1 << self.bits) - 1)) as u32
    }

    /// The hashes of a cell, reversed: from `start` up to `end`.
    pub(crate) fn span(&self, cell: u32) -> std::ops::Range<u64> {
        let start = u64::from(cell.reverse_bits());
        start..start + (1 << (u32::BITS - self.bits))
    }

    pub(crate) fn is_marked(&self, cell: u32) -> bool {
        self.words[cell as usize / 64] >> (cell % 64) & 1 == 1
    }

    /// Marks a cell; returns whether it was not marked before.
    pub(crate) fn mark(&mut self, cell: u32) -> bool {
        let is_new = !self.is_marked(cell);
        self.words[cell as usize / 64] |= 1 << (cell % 64);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_span_of_a_cell_has_the_hashes_of_the_cell_and_no_others(
            buckets in 1..5000_usize,
            hash: u32,
            other: u32,
        ) {
            let mut cells = Cells::new(buckets);
            let cell = cells.of(hash);
            for hash in [hash, other] {
                let is_in = cells.span(cell).contains(&u64::from(hash.reverse_bits()));
                prop_assert_eq!(is_in, cells.of(hash) == cell);
            }
            prop_assert!(cells.mark(cell));
            prop_assert!(!cells.mark(cell));
            prop_assert_eq!(cells.is_marked(cells.of(other)), cells.of(other) == cell);
        }
    }
}
