use keyway_base::glob;

/// A glob pattern of keys or channels, with the usual shapes told apart so that
/// they need no matcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Box<[u8]>,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// It stands for itself.
    Exact,
    /// A star behind what stands for itself, which is not empty.
    Prefix,
    /// Anything else.
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
        Self { text: text.into(), shape }
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
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
        fn every_shape_matches_as_the_glob_does(pattern in "[ab*?\\[\\]\\\\]{0,5}", name in "[ab*]{0,5}") {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(Pattern::new(pattern).matches(name), glob::matches(pattern, name));
        }
    }
}
