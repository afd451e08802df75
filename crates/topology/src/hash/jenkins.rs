//! Bob Jenkins' lookup3, function `hashlittle`. twemproxy's initial value is 13.

use super::word;

const INITIAL_VALUE: u32 = 13;

pub(super) fn jenkins(key: &[u8]) -> u32 {
    lookup3(key, INITIAL_VALUE)
}

/// The three words of state.
struct State(u32, u32, u32);

impl State {
    /// Adds twelve bytes.
    #[inline(always)]
    fn add(&mut self, block: &[u8]) {
        self.0 = self.0.wrapping_add(word(block));
        self.1 = self.1.wrapping_add(word(&block[4..]));
        self.2 = self.2.wrapping_add(word(&block[8..]));
    }

    /// Reversible mixing between blocks.
    #[inline(always)]
    fn mix(&mut self) {
        let State(a, b, c) = self;
        let step = |x: &mut u32, y: &mut u32, z: u32, rotation: u32| {
            *x = x.wrapping_sub(*y) ^ y.rotate_left(rotation);
            *y = y.wrapping_add(z);
        };
        step(a, c, *b, 4);
        step(b, a, *c, 6);
        step(c, b, *a, 8);
        step(a, c, *b, 16);
        step(b, a, *c, 19);
        step(c, b, *a, 4);
    }

    /// Last mixing; the third word is the hash.
    #[inline(always)]
    fn finish(self) -> u32 {
        let State(mut a, mut b, mut c) = self;
        let step = |x: u32, y: u32, rotation: u32| (x ^ y).wrapping_sub(y.rotate_left(rotation));
        c = step(c, b, 14);
        a = step(a, c, 11);
        b = step(b, a, 25);
        c = step(c, b, 16);
        a = step(a, c, 4);
        b = step(b, a, 14);
        step(c, b, 24)
    }
}

#[inline(always)]
fn lookup3(key: &[u8], initial_value: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32).wrapping_add(initial_value);
    let mut state = State(start, start, start);
    if key.is_empty() {
        return start;
    }
    let mut rest = key;
    while rest.len() > 12 {
        state.add(rest);
        state.mix();
        rest = &rest[12..];
    }
    // A short last block is padded with zeros.
    let mut block = [0u8; 12];
    block[..rest.len()].copy_from_slice(rest);
    state.add(&block);
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check of SMHasher: the hashes of `[]`, `[0]`, `[0, 1]`, ... under
    /// falling seeds, hashed once more.
    #[test]
    fn published_verification_value_holds() {
        let bytes: Vec<u8> = (0..=255).collect();
        let hashes: Vec<u8> = (0..256usize)
            .flat_map(|len| lookup3(&bytes[..len], 256 - len as u32).to_le_bytes())
            .collect();
        assert_eq!(lookup3(&hashes, 0), 0x3d83_917a);
    }

    #[test]
    fn initial_value_is_thirteen() {
        assert_eq!(jenkins(b""), 0xdead_beef + 13);
        assert_eq!(jenkins(b"key"), lookup3(b"key", 13));
    }

    #[test]
    fn vectors_of_lookup3_hold() {
        for (key, initial_value, hash) in [
            ("", 0, 0xdead_beef),
            ("", 0xdead_beef, 0xbd5b_7dde),
            ("Four score and seven years ago", 0, 0x1777_0551),
            ("Four score and seven years ago", 1, 0xcd62_8161),
        ] {
            assert_eq!(lookup3(key.as_bytes(), initial_value), hash, "{key} {initial_value}");
        }
    }
}
