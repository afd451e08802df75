//! A node's labels, by which others find it.

use crate::wire::{Reader, Writer};
use std::fmt;

/// Most labels of one node: they are sent in every announcement of it.
pub const LABELS_MAX: usize = 16;
/// Longest name or value, in bytes.
pub const LABEL_LEN_MAX: usize = 63;

/// Names with values, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Vec<(String, String)>);

/// The reason why a label is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelFault {
    /// There are more than [`LABELS_MAX`].
    TooMany,
    /// It is longer than [`LABEL_LEN_MAX`], or its name is empty.
    Length,
    /// A name or value has characters other than letters, digits, `-`, `_`, `.`, `/` and `:`.
    Character,
}

impl fmt::Display for LabelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelFault::TooMany => write!(f, "more than {LABELS_MAX} labels"),
            LabelFault::Length => write!(
                f,
                "a label's name has 1 to {LABEL_LEN_MAX} bytes, its value at most as many"
            ),
            LabelFault::Character => f.write_str("labels are letters, digits and -_./:"),
        }
    }
}

impl std::error::Error for LabelFault {}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte))
}

impl Labels {
    /// Sets a label.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), LabelFault> {
        if name.is_empty() || name.len() > LABEL_LEN_MAX || value.len() > LABEL_LEN_MAX {
            return Err(LabelFault::Length);
        }
        if !is_plain(name) || !is_plain(value) {
            return Err(LabelFault::Character);
        }
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(at) => value.clone_into(&mut self.0[at].1),
            Err(_) if self.0.len() >= LABELS_MAX => return Err(LabelFault::TooMany),
            Err(at) => self.0.insert(at, (name.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// Returns the value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(&self.0[at].1)
    }

    /// Returns all labels.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        out.u8(self.0.len() as u8);
        for (name, value) in &self.0 {
            out.text(name);
            out.text(value);
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let mut labels = Labels::default();
        for _ in 0..from.u8()? {
            let (name, value) = (from.text()?, from.text()?);
            labels.set(name, value).ok()?;
        }
        Some(labels)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded_plain_and_found_by_name() {
        let mut labels = Labels::default();
        labels.set("rack", "b2").unwrap();
        labels.set("az", "eu-1").unwrap();
        labels.set("rack", "b3").unwrap();
        assert_eq!(labels.to_string(), "az=eu-1,rack=b3");
        assert_eq!(labels.get("rack"), Some("b3"));
        assert_eq!(labels.set("a b", ""), Err(LabelFault::Character));
        assert_eq!(labels.set("", ""), Err(LabelFault::Length));
        for number in 0..LABELS_MAX - 2 {
            labels.set(&format!("n{number}"), "").unwrap();
        }
        assert_eq!(labels.set("one-more", ""), Err(LabelFault::TooMany));
        let mut bytes = Vec::new();
        labels.write(&mut Writer::new(&mut bytes));
        assert_eq!(Labels::read(&mut Reader::new(&bytes)), Some(labels));
    }
}
