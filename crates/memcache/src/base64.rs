//! Base64 for keys of meta commands that contain bytes which a line cannot. Keys must be padded.
//! The unused bits need not be zero, as in memcached.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Appends the bytes that `text` encodes to `out`. Returns false and leaves `out` unchanged if
/// `text` is empty or no padded base64. memcached skips letters that are not base64. Here they are
/// refused.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let before = out.len();
    let is_decoded = !text.is_empty() && ENGINE.decode_vec(text, out).is_ok();
    if !is_decoded {
        out.truncate(before);
    }
    is_decoded
}

/// Appends `bytes` in padded base64.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + encoded_len(bytes.len()), 0);
    let written = ENGINE.encode_slice(bytes, &mut out[start..]);
    debug_assert_eq!(written, Ok(out.len() - start));
}

/// Returns the length of `len` bytes in base64.
pub(crate) fn encoded_len(len: usize) -> usize {
    len.div_ceil(3) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for len in 1..60 {
            let bytes: Vec<u8> = (0..len).map(|place| (place * 37 + len) as u8).collect();
            let (mut text, mut back) = (Vec::new(), Vec::new());
            encode(&bytes, &mut text);
            assert_eq!(text.len(), encoded_len(bytes.len()));
            assert!(decode(&text, &mut back), "{bytes:?}");
            assert_eq!(back, bytes);
        }
        let mut text = Vec::new();
        encode(b"key", &mut text);
        encode(b"a", &mut text);
        encode(b"ab", &mut text);
        assert_eq!(text, b"a2V5YQ==YWI=");
    }

    #[test]
    fn what_is_no_base64_is_refused_and_leaves_nothing() {
        for text in ["", "k", "ab=", "a===", "====", "a!bc", "ab=c", "a2V5a!bc", "ab c"] {
            let mut out = b"before".to_vec();
            assert!(!decode(text.as_bytes(), &mut out), "{text}");
            assert_eq!(out, b"before");
        }
    }
}
