//! Sets of integers (`src/intset.c` of Redis 7.0): the width of a value and
//! their number, in four bytes each, then the values in ascending order.

use crate::format::{Reader, Text};
use crate::{Malformed, Visit};

const HEADER_LEN: usize = 8;

/// Visits the values of such a set, which has some.
pub fn visit<E: From<Malformed>>(bytes: &[u8], visit: &mut Visit<'_, E>) -> Result<(), E> {
    let mut reader = Reader::new(bytes);
    let width = u32::from_le_bytes(reader.array().ok_or(Malformed)?);
    let count = u32::from_le_bytes(reader.array().ok_or(Malformed)?);
    let values = &bytes[HEADER_LEN..];
    let is_whole = u64::from(width) * u64::from(count) == values.len() as u64;
    if !matches!(width, 2 | 4 | 8) || count == 0 || !is_whole {
        return Err(Malformed.into());
    }
    let mut before = None;
    for value in values.chunks_exact(width as usize) {
        let mut wide = [0; 8];
        wide[..value.len()].copy_from_slice(value);
        let shift = 64 - 8 * width;
        let value = i64::from_le_bytes(wide) << shift >> shift;
        if before.is_some_and(|before| value <= before) {
            return Err(Malformed.into());
        }
        before = Some(value);
        visit(Text::Integer(value))?;
    }
    Ok(())
}

/// Such a set: `values` are all values one behind the other, in
/// ascending order, each of `width` bytes with the lowest first.
pub fn compose(width: usize, values: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + values.len());
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&((values.len() / width.max(1)) as u32).to_le_bytes());
    bytes.extend_from_slice(values);
    bytes
}
