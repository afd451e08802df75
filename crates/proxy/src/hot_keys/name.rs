//! The name of a key that is reported later: its first bytes, without an allocation.

/// Number of bytes of a key that are kept. With fewer, long names would look alike. More would take
/// memory for each counted key.
pub const KEY_LEN_MAX: usize = 118;

/// Number of bytes at the end of a longer key that distinguish it from others.
const END_LEN: usize = 16;

/// The first bytes of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    len: u8,
    is_cut: bool,
    bytes: [u8; KEY_LEN_MAX],
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown_key(self.bytes(), self.is_cut))
    }
}

impl Name {
    pub(super) const EMPTY: Name = Name { len: 0, is_cut: false, bytes: [0; KEY_LEN_MAX] };

    pub(super) fn new(key: &[u8]) -> Name {
        let len = key.len().min(KEY_LEN_MAX);
        let mut name = Name { len: len as u8, is_cut: len < key.len(), ..Name::EMPTY };
        name.bytes[..len].copy_from_slice(&key[..len]);
        name
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns whether the key was longer.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns whether it is the name of this key. The hashes must be equal.
    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        let len = key.len().min(KEY_LEN_MAX);
        self.is_cut == (len < key.len()) && self.bytes() == &key[..len]
    }

    /// Returns a number that distinguishes keys before their bytes are compared. For a long key it
    /// is computed from its beginning, its end and its length, so that the cost is the same for any
    /// key.
    pub(super) fn hash(key: &[u8]) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(ODD);
        let (begin, end) = key.split_at(key.len().min(KEY_LEN_MAX));
        let end = &end[end.len() - end.len().min(END_LEN)..];
        let mut hash = key.len() as u64;
        for chunk in begin.chunks(8).chain(end.chunks(8)) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash, u64::from_le_bytes(word));
        }
        hash ^ (hash >> 32)
    }
}

/// Formats a key for people and programs: non-printable characters become `\xNN`, a backslash is
/// doubled, and three dots represent what was cut off.
pub fn shown_key(key: &[u8], is_cut: bool) -> String {
    let mut shown = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str("\\\\"),
                c if is_plain(c) => shown.push(c),
                c => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_byte(&mut shown, byte))
                }
            }
        }
        chunk.invalid().iter().for_each(|&byte| push_byte(&mut shown, byte));
    }
    if is_cut {
        shown.push_str("...");
    }
    shown
}

/// Returns whether a character is visible and neither moves the cursor nor reverses the direction
/// of the line.
fn is_plain(c: char) -> bool {
    let is_format = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}');
    !c.is_control() && !is_format
}

fn push_byte(shown: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    shown.push_str("\\x");
    shown.push(char::from(DIGITS[usize::from(byte >> 4)]));
    shown.push(char::from(DIGITS[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_again_by_what_is_kept_of_it() {
        for len in [0, 1, 7, 8, 9, KEY_LEN_MAX - 1, KEY_LEN_MAX, KEY_LEN_MAX + 1, 5000] {
            let key = vec![b'k'; len];
            let name = Name::new(&key);
            assert!(name.is_of(&key) && name.bytes().len() == len.min(KEY_LEN_MAX));
            assert_eq!(name.is_cut(), len > KEY_LEN_MAX);
            let mut other = key.clone();
            other.push(b'k');
            assert!(Name::hash(&key) != Name::hash(&other), "{len}");
        }
        let [mut one, mut other] = [vec![b'k'; 5000], vec![b'k'; 5000]];
        (one[4999], other[4999]) = (b'1', b'2');
        assert_ne!(Name::hash(&one), Name::hash(&other));
    }

    #[test]
    fn what_is_shown_moves_no_cursor_and_is_not_ambiguous() {
        for (key, shown) in [
            (&b"user:1"[..], "user:1"),
            (b"\x1b[2J\r\n", "\\x1b[2J\\x0d\\x0a"),
            (b"a\\x00", "a\\\\x00"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("é".as_bytes(), "é"),
            ("\u{202e}x".as_bytes(), "\\xe2\\x80\\xaex"),
            (b"", ""),
        ] {
            assert_eq!(shown_key(key, false), shown);
        }
        assert_eq!(shown_key(b"long", true), "long...");
    }
}
