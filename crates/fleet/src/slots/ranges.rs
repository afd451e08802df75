//! Sets of slots, as texts such as `0-511,600`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest number of slots of a pool.
const COUNT_MAX: u16 = 16384;

/// A set of slots: ranges of a first and a last slot, in ascending order, with a gap between two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SlotRanges(Vec<(u16, u16)>);

impl SlotRanges {
    /// Creates a set of ranges in any order. Each has its first slot in front of its last one, or is
    /// left out.
    pub fn new(ranges: impl IntoIterator<Item = (u16, u16)>) -> SlotRanges {
        let mut ranges: Vec<(u16, u16)> =
            ranges.into_iter().filter(|(first, last)| first <= last).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        SlotRanges(merged)
    }

    /// Returns the ranges.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    /// Returns all slots.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Returns whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of slots.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|&(first, last)| u32::from(last - first) + 1).sum()
    }

    /// Returns the largest slot.
    pub fn last(&self) -> Option<u16> {
        self.0.last().map(|&(_, last)| last)
    }

    /// Returns whether a slot is in the set.
    pub fn contains(&self, slot: u16) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= slot);
        after.checked_sub(1).is_some_and(|at| self.0.get(at).is_some_and(|it| slot <= it.1))
    }

    /// Returns the slots that are in both sets.
    #[must_use]
    pub fn and(&self, other: &SlotRanges) -> SlotRanges {
        let both = self.0.iter().flat_map(|&(first, last)| {
            other.0.iter().map(move |&(other, end)| (first.max(other), last.min(end)))
        });
        SlotRanges::new(both)
    }

    /// Returns the slots that are in at least one of both sets.
    #[must_use]
    pub fn or(&self, other: &SlotRanges) -> SlotRanges {
        SlotRanges::new(self.0.iter().chain(&other.0).copied())
    }

    /// Returns the slots of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &SlotRanges) -> SlotRanges {
        let mut left = Vec::new();
        for &(first, last) in &self.0 {
            let mut from = Some(first);
            for &(cut, end) in other.0.iter().filter(|it| it.0 <= last && it.1 >= first) {
                if let Some(from) = from.filter(|&from| from < cut) {
                    left.push((from, cut - 1));
                }
                from = end.checked_add(1).filter(|&next| next <= last);
            }
            left.extend(from.map(|from| (from, last)));
        }
        SlotRanges::new(left)
    }
}

impl fmt::Display for SlotRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (first, last)) in self.0.iter().enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// The reason why a text is no set of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRangesFault(String);

impl fmt::Display for SlotRangesFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no slot and no range: write them as 0-511,600", self.0)
    }
}

impl std::error::Error for SlotRangesFault {}

impl std::str::FromStr for SlotRanges {
    type Err = SlotRangesFault;

    fn from_str(text: &str) -> Result<SlotRanges, SlotRangesFault> {
        let mut ranges = Vec::new();
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let fault = || SlotRangesFault(part.chars().take(40).collect());
            let number = |text: &str| {
                let number = text.trim().parse::<u16>().ok();
                number.filter(|slot| *slot < COUNT_MAX).ok_or_else(fault)
            };
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(fault());
            }
            ranges.push((first, last));
        }
        Ok(SlotRanges::new(ranges))
    }
}

impl TryFrom<String> for SlotRanges {
    type Error = SlotRangesFault;

    fn try_from(text: String) -> Result<SlotRanges, SlotRangesFault> {
        text.parse()
    }
}

impl From<SlotRanges> for String {
    fn from(ranges: SlotRanges) -> String {
        ranges.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(ranges: &SlotRanges) -> BTreeSet<u16> {
        ranges.iter().collect()
    }

    proptest! {
        /// Sets of ranges are sets of slots.
        #[test]
        fn ranges_are_sets_of_slots(
            one in prop::collection::vec((0u16..60, 0u16..60), 0..6),
            other in prop::collection::vec((0u16..60, 0u16..60), 0..6),
        ) {
            let (one, other) = (SlotRanges::new(one), SlotRanges::new(other));
            let (slots, others) = (set(&one), set(&other));
            prop_assert_eq!(set(&one.and(&other)), &slots & &others);
            prop_assert_eq!(set(&one.or(&other)), &slots | &others);
            prop_assert_eq!(set(&one.without(&other)), &slots - &others);
            prop_assert_eq!(one.len() as usize, slots.len());
            prop_assert_eq!(one.last(), slots.last().copied());
            prop_assert!((0..70).all(|slot| one.contains(slot) == slots.contains(&slot)));
            prop_assert_eq!(one.to_string().parse::<SlotRanges>(), Ok(one));
        }
    }

    #[test]
    fn a_text_that_is_no_set_is_refused() {
        for text in ["a", "1-", "-", "5-4", "16384", "1,,2", "1-2-3", "-1"] {
            assert!(text.parse::<SlotRanges>().is_err(), "{text}");
        }
        assert_eq!("".parse(), Ok(SlotRanges::default()));
        let parsed: SlotRanges = " 3, 0-1,2".parse().unwrap();
        assert_eq!(parsed.to_string(), "0-3");
    }
}
