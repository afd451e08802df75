use std::fmt;

/// The two characters that enclose the part of a key that decides where it
/// goes: with `{}`, `user:{42}:name` and `user:{42}:mail` land together.
///
/// The rule is twemproxy's: the first opening character, then the first closing
/// one after it; when there is no such pair or nothing between, the whole key
/// counts. (Redis Cluster has the same rule for `{}`.) Both characters may be
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashTag {
    /// The byte before the tag.
    pub open: u8,
    /// The byte after the tag.
    pub close: u8,
}

impl HashTag {
    /// `{}`.
    pub const BRACES: HashTag = HashTag { open: b'{', close: b'}' };

    /// Reads the two characters; `None` when `text` is not exactly two bytes.
    pub fn parse(text: &str) -> Option<HashTag> {
        match *text.as_bytes() {
            [open, close] => Some(HashTag { open, close }),
            _ => None,
        }
    }

    /// The part of `key` that is hashed.
    #[inline]
    pub fn of(self, key: &[u8]) -> &[u8] {
        let Some(open) = key.iter().position(|&byte| byte == self.open) else { return key };
        let rest = &key[open + 1..];
        match rest.iter().position(|&byte| byte == self.close) {
            Some(close) if close > 0 => &rest[..close],
            _ => key,
        }
    }
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
