//! Sets of integers (`src/intset.c` of Redis 7.0): the width of a value and
//! their number, in four bytes each, then the values in ascending order.

use super::source::{Refusal, Visit};
use crate::collections::integers;
use keyway_base::rdb::{Reader, Text};

const HEADER_LEN: usize = 8;

/// Visits the values of such a set, which has some.
pub(super) fn visit(bytes: &[u8], visit: &mut Visit<'_>) -> Result<(), Refusal> {
    let mut reader = Reader::new(bytes);
    let width = u32::from_le_bytes(reader.array().ok_or(Refusal::Form)?);
    let count = u32::from_le_bytes(reader.array().ok_or(Refusal::Form)?);
    let values = &bytes[HEADER_LEN..];
    let is_whole = u64::from(width) * u64::from(count) == values.len() as u64;
    if !matches!(width, 2 | 4 | 8) || count == 0 || !is_whole {
        return Err(Refusal::Form);
    }
    let mut before = None;
    for value in values.chunks_exact(width as usize) {
        let mut wide = [0; 8];
        wide[..value.len()].copy_from_slice(value);
        let shift = 64 - 8 * width;
        let value = i64::from_le_bytes(wide) << shift >> shift;
        if before.is_some_and(|before| value <= before) {
            return Err(Refusal::Form);
        }
        before = Some(value);
        visit(Text::Integer(value))?;
    }
    Ok(())
}

/// The form of a set as it is stored, which has the same values in the same
/// order and of the same width.
pub(super) fn compose(stored: &[u8]) -> Vec<u8> {
    let (at, width) = integers::offset_of(stored, 0);
    let values = stored.get(at..).unwrap_or_default();
    let mut bytes = Vec::with_capacity(HEADER_LEN + values.len());
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&(integers::len(stored) as u32).to_le_bytes());
    bytes.extend_from_slice(values);
    bytes
}
