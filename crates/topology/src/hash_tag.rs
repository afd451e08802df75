use std::fmt;

/// The two characters that enclose the part of a key that decides its server. With `{}`,
/// `user:{42}:name` and `user:{42}:mail` go to the same server.
///
/// The rule is twemproxy's: the tag lies between the first opening character and the first closing
/// one after it. If there is no such pair, or nothing between, the whole key counts. (Redis Cluster
/// has the same rule for `{}`.) Both characters may be the same. Codis takes an empty pair for a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashTag {
    /// The byte before the tag.
    pub open: u8,
    /// The byte after the tag.
    pub close: u8,
    /// True if nothing between the two is a tag as well. Keys with such a pair go together.
    pub may_be_empty: bool,
}

impl HashTag {
    /// `{}`.
    pub const BRACES: HashTag = HashTag { open: b'{', close: b'}', may_be_empty: false };
    /// `{}` by Codis's rule.
    pub const CODIS: HashTag = HashTag { may_be_empty: true, ..HashTag::BRACES };

    /// Reads the two characters; `None` when `text` is not exactly two bytes.
    pub fn parse(text: &str) -> Option<HashTag> {
        match *text.as_bytes() {
            [open, close] => Some(HashTag { open, close, may_be_empty: false }),
            _ => None,
        }
    }

    /// Returns the part of `key` that is hashed.
    #[inline]
    pub fn of(self, key: &[u8]) -> &[u8] {
        match position(key, self.open) {
            None => key,
            Some(open) => self.enclosed(key, open).unwrap_or(key),
        }
    }

    /// Returns the tag behind the opening character at `open`, if it is closed and may be as long as it is.
    #[inline(never)]
    fn enclosed(self, key: &[u8], open: usize) -> Option<&[u8]> {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == self.close)?;
        (close > 0 || self.may_be_empty).then(|| &rest[..close])
    }
}

/// Returns the first position of `sought`. Keys are short: they are searched eight bytes at a time.
/// If the length is not a multiple of eight, the last step overlaps the one before.
#[inline(always)]
fn position(key: &[u8], sought: u8) -> Option<usize> {
    let (eights, _) = key.as_chunks::<8>();
    let Some(last) = key.last_chunk::<8>() else {
        return key.iter().position(|&byte| byte == sought);
    };
    for (index, eight) in eights.iter().enumerate() {
        if let Some(at) = first_of_eight(*eight, sought) {
            return Some(index * 8 + at);
        }
    }
    first_of_eight(*last, sought).map(|at| key.len() - 8 + at)
}

/// Returns the position of `sought` among eight bytes. Subtracting one from a zero byte borrows.
#[inline(always)]
fn first_of_eight(eight: [u8; 8], sought: u8) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let differs = u64::from_le_bytes(eight) ^ (ONES * u64::from(sought));
    let found = differs.wrapping_sub(ONES) & !differs & (ONES * 0x80);
    (found != 0).then(|| (found.trailing_zeros() / 8) as usize)
}

impl fmt::Display for HashTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", char::from(self.open), char::from(self.close))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_the_first_non_empty_pair_or_else_the_whole_key() {
        for (key, hashed) in [
            ("user:{42}:name", "42"),
            ("{42}", "42"),
            ("a{b}c{d}", "b"),
            ("a{{b}}", "{b"),
            ("a}b{c}", "c"),
            ("a{}b{c}", "a{}b{c}"),
            ("a{b", "a{b"),
            ("a}b", "a}b"),
            ("{", "{"),
            ("}{", "}{"),
            ("", ""),
            ("plain", "plain"),
        ] {
            assert_eq!(HashTag::BRACES.of(key.as_bytes()), hashed.as_bytes(), "{key}");
        }
    }

    #[test]
    fn codis_takes_an_empty_pair_for_a_tag() {
        for (key, hashed) in [("a{}b{c}", ""), ("{}", ""), ("a{b", "a{b"), ("a{b}c", "b")] {
            assert_eq!(HashTag::CODIS.of(key.as_bytes()), hashed.as_bytes(), "{key}");
        }
    }

    #[test]
    fn a_byte_is_found_where_it_is_first() {
        for len in 0..40 {
            for at in 0..=len {
                let mut key = vec![b'z'; len];
                key.iter_mut().skip(at).step_by(3).for_each(|byte| *byte = b'{');
                let expected = key.iter().position(|&byte| byte == b'{');
                assert_eq!(position(&key, b'{'), expected, "{len} {at}");
                key.iter_mut().for_each(|byte| *byte ^= 0x81);
                let expected = key.iter().position(|&byte| byte == b'{' ^ 0x81);
                assert_eq!(position(&key, b'{' ^ 0x81), expected, "{len} {at}");
            }
        }
    }

    #[test]
    fn open_and_close_may_be_the_same_byte() {
        let tag = HashTag::parse("$$").unwrap();
        assert_eq!(tag.of(b"a$b$c"), b"b");
        assert_eq!(tag.of(b"a$$c$"), b"a$$c$");
        assert_eq!(tag.of(b"a$b"), b"a$b");
    }

    #[test]
    fn only_two_bytes_make_a_tag() {
        assert_eq!(HashTag::parse("{}"), Some(HashTag::BRACES));
        assert_eq!(HashTag::BRACES.to_string(), "{}");
        for text in ["", "{", "{}}", "é}"] {
            assert_eq!(HashTag::parse(text), None);
        }
    }
}
