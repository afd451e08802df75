//! Bodies compressed with LZ4, from end to end: nodes on the way do not decompress them.

/// Shorter bodies are sent as they are: the gain does not pay for the work.
pub const COMPRESS_LEN_MIN: usize = 1024;

/// Longer bodies are sent as they are: a node does nothing else while it compresses, and its peers
/// wait.
pub const COMPRESS_LEN_MAX: usize = 1 << 20;

/// Returns `body` compressed, with its length in front, if that is at least an eighth shorter.
pub(crate) fn compressed(body: &[u8]) -> Option<Vec<u8>> {
    if !(COMPRESS_LEN_MIN..=COMPRESS_LEN_MAX).contains(&body.len()) {
        return None;
    }
    let packed = lz4_flex::block::compress_prepend_size(body);
    (packed.len() <= body.len() - body.len() / 8).then_some(packed)
}

/// Returns the decompressed body; `None` if it is invalid, or longer than `len_max`.
pub(crate) fn decompressed(packed: &[u8], len_max: usize) -> Option<Vec<u8>> {
    let (len, block) = packed.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    // LZ4 expands a block at most 255 times, so a false length reserves no memory.
    if len > len_max.min(COMPRESS_LEN_MAX) || len / 255 > block.len() {
        return None;
    }
    let body = lz4_flex::block::decompress(block, len).ok()?;
    (body.len() == len).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_get_shorter_stays() {
        assert_eq!(compressed(&[7; COMPRESS_LEN_MIN - 1]), None);
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .take(5000)
        .collect();
        assert_eq!(compressed(&noise), None);
        let packed = compressed(&[7; 5000]).unwrap();
        assert_eq!(decompressed(&packed, 5000).unwrap(), [7; 5000]);
        assert_eq!(decompressed(&packed, 4999), None);
    }

    #[test]
    fn a_lie_about_the_length_reserves_nothing() {
        assert_eq!(decompressed(&[0xff, 0xff, 0xff, 0x03, 1, 2, 3], 64 << 20), None);
        // Even the largest body that a block of that length could be would not exceed the bound.
        let bomb = [&(COMPRESS_LEN_MAX as u32 + 1).to_le_bytes()[..], &[0; 8000]].concat();
        assert_eq!(decompressed(&bomb, usize::MAX), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decompressed(&bytes, 1 << 20);
        }
    }
}
