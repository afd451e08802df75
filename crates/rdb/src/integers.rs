//! Sets of integers (`src/intset.c` of Redis 7.0): the width of a value and the number of values,
//! in four bytes each, and then the values in ascending order.

use crate::element::{Damaged, Text};

const HEADER_LEN: usize = 8;

/// A position in such a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    width: usize,
    at: usize,
    before: Option<i64>,
}

/// Returns the first position, and the number of values. A set is never empty.
pub(crate) fn start(bytes: &[u8]) -> Result<(Walk, u64), Damaged> {
    let (header, values) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Damaged)?;
    let [a, b, c, d, e, f, g, h] = *header;
    let (width, count) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let is_whole = u64::from(width) * u64::from(count) == values.len() as u64;
    if !matches!(width, 2 | 4 | 8) || count == 0 || !is_whole {
        return Err(Damaged);
    }
    Ok((Walk { width: width as usize, at: HEADER_LEN, before: None }, count.into()))
}

impl Walk {
    /// Returns whether no value is left.
    pub(crate) fn is_over(&self, bytes: &[u8]) -> bool {
        self.at >= bytes.len()
    }

    /// Returns the next value, which is greater than the one before.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Text<'a>>, Damaged> {
        let Some(value) = bytes.get(self.at..self.at + self.width) else { return Ok(None) };
        let mut wide = [0; 8];
        wide[..value.len()].copy_from_slice(value);
        let shift = 64 - 8 * self.width;
        let value = i64::from_le_bytes(wide) << shift >> shift;
        if self.before.is_some_and(|before| value <= before) {
            return Err(Damaged);
        }
        self.before = Some(value);
        self.at += self.width;
        Ok(Some(Text::Integer(value)))
    }
}

/// Creates such a set. `values` contains all values in ascending order, each of `width` bytes with
/// the lowest first.
pub fn compose(width: usize, values: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + values.len());
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&((values.len() / width.max(1)) as u32).to_le_bytes());
    bytes.extend_from_slice(values);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, texts_of};
    use crate::fault::Form;
    use proptest::prelude::*;

    fn texts(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
        texts_of(Block::start(Form::Integers, bytes).ok()?.0, bytes)
    }

    #[test]
    fn values_of_every_width_are_read_in_order() {
        for (width, low, high) in
            [(2, -0x8000, 0x7fff), (4, -0x8000_0000, 0x7fff_ffff), (8, i64::MIN, i64::MAX)]
        {
            let values: Vec<u8> =
                [low, -1, 0, high].iter().flat_map(|v| v.to_le_bytes()[..width].to_vec()).collect();
            let bytes = compose(width, &values);
            let expected = [low, -1, 0, high].map(|value| value.to_string().into_bytes());
            assert_eq!(texts(&bytes), Some(expected.to_vec()));
            assert!((0..bytes.len()).all(|len| texts(&bytes[..len]).is_none()));
        }
        assert_eq!(texts(&compose(2, &[2, 0, 1, 0])), None);
        assert_eq!(texts(&compose(2, &[1, 0, 1, 0])), None);
        assert_eq!(texts(&compose(2, &[])), None);
        assert_eq!(texts(&compose(3, &[1, 0, 0])), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = texts(&bytes);
        }
    }
}
