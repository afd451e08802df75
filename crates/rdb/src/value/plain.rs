//! Collections that are written element by element.

use super::ReadLimits;
use super::score;
use super::text::Held;
use crate::event::Part;
use crate::fault::What;
use crate::format::{Cursor, Stop};

/// The latest time at which a field in Redis can expire: 48 bits.
pub(super) const FIELD_TIME_MAX: u64 = (1 << 48) - 1;

/// The parts of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Elements,
    Members,
    Pairs,
    /// A member, and its score in eight bytes.
    Scores,
    /// A member, and its score as digits, preceded by their number.
    TextScores,
    /// A time, a field and a value. A time of 0 means never. With `are_relative` the other times
    /// are relative to the earliest one, which comes first and counts as 1.
    Times {
        are_relative: bool,
    },
    /// A field, a value and a time in eight bytes. -1 means never.
    TimesBehind,
}

/// A collection that is being read.
#[derive(Debug)]
pub(super) struct Plain {
    layout: Layout,
    left: u64,
    earliest: Option<u64>,
}

impl Plain {
    /// Reads what precedes the elements. Returns the earliest time if that is a part of it.
    pub(super) fn open(
        layout: Layout,
        cursor: &mut Cursor<'_>,
    ) -> Result<(Self, Option<u64>), Stop> {
        let earliest = match layout {
            Layout::Times { are_relative: true } => Some(cursor.number()?),
            _ => None,
        };
        let left = cursor.read_len()?;
        Ok((Self { layout, left, earliest }, earliest))
    }

    /// Returns the number of unread elements.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn next<'a, 'b: 'a>(
        &mut self,
        held: &'a mut Held,
        limits: ReadLimits,
        cursor: &mut Cursor<'b>,
    ) -> Result<Option<Part<'a>>, Stop> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let mut ahead = *cursor;
        let part = match self.layout {
            Layout::Elements => Part::Element(held.first(&mut ahead, limits)?),
            Layout::Members => Part::Member(held.first(&mut ahead, limits)?),
            Layout::Pairs => {
                let (name, value) = held.both(&mut ahead, limits)?;
                Part::Field { name, value, expires_ms: None }
            }
            Layout::Scores => {
                let member = held.first(&mut ahead, limits)?;
                let start = ahead;
                let score = f64::from_bits(ahead.number()?);
                if score.is_nan() {
                    return Err(start.fault(What::Score).into());
                }
                Part::Scored { member, score }
            }
            Layout::TextScores => {
                let member = held.first(&mut ahead, limits)?;
                Part::Scored { member, score: text_score(&mut ahead)? }
            }
            Layout::Times { .. } => {
                let start = ahead;
                let time = ahead.read_len()?;
                let expires_ms = absolute(time, self.earliest).map_err(|what| start.fault(what))?;
                let (name, value) = held.both(&mut ahead, limits)?;
                Part::Field { name, value, expires_ms }
            }
            Layout::TimesBehind => {
                let (name, value) = held.both(&mut ahead, limits)?;
                let start = ahead;
                let time = ahead.number()? as i64;
                let expires_ms = if time == -1 {
                    None
                } else {
                    Some(u64::try_from(time).map_err(|_| start.fault(What::Time))?)
                };
                Part::Field { name, value, expires_ms }
            }
        };
        self.left = left;
        *cursor = ahead;
        Ok(Some(part))
    }
}

/// Returns when a field expires whose written time is `time`.
fn absolute(time: u64, earliest: Option<u64>) -> Result<Option<u64>, What> {
    let Some(past_earliest) = time.checked_sub(1) else { return Ok(None) };
    let time = match earliest {
        Some(earliest) => earliest.checked_add(past_earliest).ok_or(What::Time)?,
        None => time,
    };
    if time <= FIELD_TIME_MAX { Ok(Some(time)) } else { Err(What::Time) }
}

/// Reads a score in decimal digits, preceded by their number.
fn text_score(cursor: &mut Cursor<'_>) -> Result<f64, Stop> {
    let start = *cursor;
    let score = match cursor.byte()? {
        255 => Some(f64::NEG_INFINITY),
        254 => Some(f64::INFINITY),
        253 => None,
        len => score::parse(cursor.take(len.into())?),
    };
    score.ok_or(Stop::Wrong(start.fault(What::Score)))
}
