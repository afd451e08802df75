use keyway_base::glob;

/// A glob pattern of keys or channels. The usual shapes are recognised, so that they need no
/// matcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Box<[u8]>,
    shape: Shape,
    /// For a short prefix its bytes as a number, and a mask of the bits that count.
    short: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// The pattern matches only itself.
    Exact,
    /// The pattern is a star after a literal text that is not empty.
    Prefix,
    /// The pattern is anything else.
    Glob,
}

impl Pattern {
    pub(crate) fn new(text: &[u8]) -> Self {
        let is_plain = |text: &[u8]| !text.iter().any(|byte| b"*?[\\".contains(byte));
        let shape = match text {
            [begin @ .., b'*'] if !begin.is_empty() && is_plain(begin) => Shape::Prefix,
            text if is_plain(text) => Shape::Exact,
            _ => Shape::Glob,
        };
        let short = match (shape, text) {
            (Shape::Prefix, [begin @ .., _]) if begin.len() <= 8 => {
                let mut word = [0; 8];
                word[..begin.len()].copy_from_slice(begin);
                Some((u64::from_le_bytes(word), u64::MAX >> (64 - 8 * begin.len())))
            }
            _ => None,
        };
        Self { text: text.into(), shape, short }
    }

    /// Returns the pattern as it was written.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    #[inline]
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        match (self.short, name.first_chunk()) {
            (Some((word, mask)), Some(first)) => u64::from_le_bytes(*first) & mask == word,
            _ => self.matches_any(name),
        }
    }

    fn matches_any(&self, name: &[u8]) -> bool {
        match self.shape {
            Shape::Exact => *self.text == *name,
            Shape::Prefix => name.starts_with(&self.text[..self.text.len() - 1]),
            Shape::Glob => glob::matches(&self.text, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_shape_matches_as_the_glob_does(
            pattern in "([ab*?\\[\\]\\\\]{0,5}|[ab]{0,10}\\*)",
            name in "[ab*]{0,12}",
        ) {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(Pattern::new(pattern).matches(name), glob::matches(pattern, name));
        }
    }
}
