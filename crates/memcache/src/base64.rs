//! Base64 for keys of meta commands that hold bytes a line cannot.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The six bits of a letter, or a number above 63.
fn bits(letter: u8) -> u8 {
    match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => u8::MAX,
    }
}

/// Appends what `text` encodes to `out`. False, with `out` as it was, where
/// `text` is empty or no padded base64. memcached skips letters that are none;
/// here they are refused.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let before = out.len();
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return false;
    }
    let padding = text.iter().rev().take_while(|&&letter| letter == b'=').count();
    if padding > 2 {
        return false;
    }
    let letters = &text[..text.len() - padding];
    for group in letters.chunks(4) {
        let mut word = 0u32;
        for &letter in group {
            let six = bits(letter);
            if six > 63 {
                out.truncate(before);
                return false;
            }
            word = word << 6 | u32::from(six);
        }
        word <<= 6 * (4 - group.len());
        out.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    true
}

/// Appends `bytes` in padded base64.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        for place in 0..4 {
            let letter = ALPHABET[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= group.len() { letter } else { b'=' });
        }
    }
}

/// Length of `len` bytes in base64.
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
