//! Sets of integers: a byte with the width of a value, then the values in
//! ascending order, all of that width.

/// Most integers of such a set, Redis's `set-max-intset-entries`.
pub(crate) const INTEGERS_MAX: usize = 512;
const HEADER_LEN: usize = 1;

/// The narrowest width of a value, in bytes.
pub(crate) fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

fn width(bytes: &[u8]) -> usize {
    bytes.first().map_or(2, |width| usize::from(*width))
}

/// Values there are.
pub(crate) fn len(bytes: &[u8]) -> usize {
    bytes.len().saturating_sub(HEADER_LEN) / width(bytes)
}

/// Where value `index` starts, and its width.
pub(crate) fn offset_of(bytes: &[u8], index: usize) -> (usize, usize) {
    (HEADER_LEN + index * width(bytes), width(bytes))
}

/// Value `index`, which is there.
pub(crate) fn get(bytes: &[u8], index: usize) -> i64 {
    let (at, width) = offset_of(bytes, index);
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(&bytes[at..at + width]);
    let shift = 64 - 8 * width as u32;
    i64::from_le_bytes(wide) << shift >> shift
}

/// The index of a value, or the one to insert it at.
pub(crate) fn find(bytes: &[u8], value: i64) -> Result<usize, usize> {
    let (mut from, mut to) = (0, len(bytes));
    while from < to {
        let middle = (from + to) / 2;
        match get(bytes, middle).cmp(&value) {
            std::cmp::Ordering::Less => from = middle + 1,
            std::cmp::Ordering::Greater => to = middle,
            std::cmp::Ordering::Equal => return Ok(middle),
        }
    }
    Err(from)
}

/// Returns whether a value fits in beside those there are.
pub(crate) fn fits(bytes: &[u8], value: i64) -> bool {
    width_of(value) <= width(bytes)
}

/// All values, in ascending order.
pub(crate) fn iter(bytes: &[u8]) -> impl Iterator<Item = i64> + '_ {
    (0..len(bytes)).map(|index| get(bytes, index))
}

/// The bytes of a set of these values, which ascend, as wide as `value` needs.
pub(crate) fn encode(values: impl Iterator<Item = i64>, value: i64) -> Vec<u8> {
    let width = width_of(value);
    let mut bytes = vec![width as u8];
    values.for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()[..width]));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_read_back_in_order_at_any_width(
            values in proptest::collection::btree_set(
                prop_oneof![-5..5i64, -40_000..40_000i64, any::<i64>()], 0..40),
            other: i64,
        ) {
            let widest = values.iter().copied().max_by_key(|value| width_of(*value)).unwrap_or(0);
            let bytes = encode(values.iter().copied(), widest);
            prop_assert_eq!(iter(&bytes).collect::<Vec<_>>(), values.iter().copied().collect::<Vec<_>>());
            for (index, value) in values.iter().enumerate() {
                prop_assert_eq!(find(&bytes, *value), Ok(index));
            }
            let before = values.range(..other).count();
            prop_assert_eq!(find(&bytes, other).unwrap_or_else(|at| at), before);
        }
    }
}
