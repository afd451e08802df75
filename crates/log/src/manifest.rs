//! The manifest: which files are the log.
//!
//! ```text
//!  keyway-log 1
//!  id 4d8f00d41f7a9d11
//!  base 7 4096            number of the base, and the offset of its cut
//!  segment 8 4096         number, and the offset at which it begins
//!  segment 9 67108911
//!  sum 0f3c5a2b11d09e44   CRC-64 of the lines before
//! ```

use keyway_rdb::Crc64;
use std::fmt::Write as _;

pub(crate) const NAME: &str = "manifest";
const FIRST_LINE: &str = "keyway-log 1";
/// Longest manifest that is read.
pub(crate) const LEN_MAX: u64 = 16 << 20;

/// A file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    /// The offset of the stream at which it begins; of a base, that of its cut.
    pub(crate) offset: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) id: u64,
    pub(crate) base: Numbered,
    /// Consecutive ones, the first of which begins at the cut of the base.
    pub(crate) segments: Vec<Numbered>,
}

pub(crate) fn base_name(number: u64) -> String {
    format!("base.{number}.rdb")
}

pub(crate) fn segment_name(number: u64) -> String {
    format!("log.{number}")
}

/// The number in the name of a base or segment.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let number = match name.strip_prefix("base.") {
        Some(rest) => rest.strip_suffix(".rdb")?,
        None => name.strip_prefix("log.")?,
    };
    number.parse().ok()
}

impl Manifest {
    pub(crate) fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nid {:016x}\n", self.id);
        let _ = writeln!(text, "base {} {}", self.base.number, self.base.offset);
        for segment in &self.segments {
            let _ = writeln!(text, "segment {} {}", segment.number, segment.offset);
        }
        let sum = sum_of(&text);
        let _ = writeln!(text, "sum {sum:016x}");
        text
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// The fault in it.
    pub(crate) fn decode(text: &str) -> Result<Self, String> {
        let at = text.rfind("sum ").ok_or("it has no line `sum`")?;
        let (lines, sum) = text.split_at(at);
        if sum != format!("sum {:016x}\n", sum_of(lines)) {
            return Err("its checksum is not that of its lines".to_owned());
        }
        let mut lines = lines.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(format!("it does not begin with `{FIRST_LINE}`"));
        }
        let id = lines.next().and_then(|line| line.strip_prefix("id "));
        let id = id.and_then(|id| u64::from_str_radix(id, 16).ok()).ok_or("it has no id")?;
        let base = lines.next().and_then(|line| numbered(line, "base ")).ok_or("it has no base")?;
        let segments: Option<Vec<_>> = lines.map(|line| numbered(line, "segment ")).collect();
        let segments = segments.ok_or("a line is no segment")?;
        if segments.first().is_none_or(|first| first.offset != base.offset) {
            return Err("no segment begins at the cut of the base".to_owned());
        }
        let ascends =
            |pair: &[Numbered]| pair[0].number < pair[1].number && pair[0].offset <= pair[1].offset;
        if !segments.windows(2).all(ascends) {
            return Err("its segments are not in their order".to_owned());
        }
        Ok(Self { id, base, segments })
    }

    /// A number that no file of it has, and none had before.
    pub(crate) fn next_number(&self) -> u64 {
        let last = self.segments.last().map_or(0, |segment| segment.number);
        last.max(self.base.number).saturating_add(1)
    }
}

fn numbered(line: &str, word: &str) -> Option<Numbered> {
    let (number, offset) = line.strip_prefix(word)?.split_once(' ')?;
    Some(Numbered { number: number.parse().ok()?, offset: offset.parse().ok()? })
}

fn sum_of(text: &str) -> u64 {
    let mut sum = Crc64::default();
    sum.update(text.as_bytes());
    sum.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_any_change_is_seen() {
        let numbered = |number, offset| Numbered { number, offset };
        let segments = vec![numbered(8, 4096), numbered(9, 4096), numbered(12, 70_000)];
        let manifest = Manifest { id: 0x4d8f, base: numbered(7, 4096), segments };
        let text = manifest.encode();
        assert_eq!(Manifest::decode(&text).as_ref(), Ok(&manifest));
        assert_eq!(manifest.next_number(), 13);
        for at in 0..text.len() {
            assert!(Manifest::decode(&text[..at]).is_err(), "cut at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Manifest::decode(&changed).is_err(), "{changed}");
        }
    }
}
