//! Collections in blocks: a small one in a single block, a list in nodes.

use super::plain::FIELD_TIME_MAX;
use super::text::{Held, element};
use super::{ReadLimits, score};
use crate::block::Block;
use crate::element::{Damaged, Text};
use crate::event::Part;
use crate::fault::{Fault, Form, What};
use crate::format::{Cursor, Stop};

/// What the elements of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Elements,
    Members,
    /// Alternating fields and values.
    Pairs,
    /// Alternating members and scores.
    Scored,
    /// Alternating fields, values and times. A time of 0 means never.
    Timed,
}

impl Layout {
    /// Returns the number of the block's elements for one element of the collection.
    fn step(self) -> u64 {
        match self {
            Self::Elements | Self::Members => 1,
            Self::Pairs | Self::Scored => 2,
            Self::Timed => 3,
        }
    }
}

/// The form of a list's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeForm {
    Ziplists,
    /// Listpacks and single elements. Each node says which it is.
    Listpacks,
}

/// The containers of nodes of the second form.
const SINGLE: u64 = 1;
const LISTPACK: u64 = 2;

/// A collection that is being read.
#[derive(Debug)]
pub(super) struct Blocks {
    layout: Layout,
    at: Place,
    form: NodeForm,
    /// Number of nodes after this position.
    nodes_left: u64,
}

/// The position of the next element.
#[derive(Debug)]
enum Place {
    /// Between two nodes.
    Between,
    /// The whole block is a single element.
    Single,
    Within {
        form: Form,
        block: Block,
    },
}

impl Blocks {
    /// Returns a collection in a single block, and the number of its elements.
    pub(super) fn single(
        form: Form,
        layout: Layout,
        held: &mut Held,
        limits: ReadLimits,
        cursor: &mut Cursor<'_>,
    ) -> Result<(Self, u64), Stop> {
        held.take_block(cursor, limits)?;
        let fault = Fault::new(held.block_at, What::Block(form));
        let (block, count) = Block::start(form, &held.block).map_err(|_| fault)?;
        let count = match count {
            Some(count) => count,
            None => block.count(&held.block).map_err(|_| fault)?,
        };
        if !count.is_multiple_of(layout.step()) {
            return Err(fault.into());
        }
        let at = Place::Within { form, block };
        let blocks = Self { layout, at, form: NodeForm::Listpacks, nodes_left: 0 };
        Ok((blocks, count / layout.step()))
    }

    /// Creates the reader of a list of this number of nodes.
    pub(super) fn nodes(form: NodeForm, count: u64) -> Self {
        Self { layout: Layout::Elements, at: Place::Between, form, nodes_left: count }
    }

    pub(super) fn next<'a, 'b: 'a>(
        &mut self,
        held: &'a mut Held,
        limits: ReadLimits,
        cursor: &mut Cursor<'b>,
    ) -> Result<Option<Part<'a>>, Stop> {
        self.find_element(held, limits, cursor)?;
        match &mut self.at {
            Place::Between => Ok(None),
            Place::Single => {
                self.at = Place::Between;
                Ok(Some(Part::Element(&held.block)))
            }
            Place::Within { form, block } => {
                let fault = |what| Stop::Wrong(Fault::new(held.block_at, what));
                let rooms = (&mut held.first, &mut held.second);
                let form = *form;
                match part(self.layout, block, &held.block, rooms) {
                    Ok(part) => Ok(Some(part)),
                    Err(Wrong::Damaged) => Err(fault(What::Block(form))),
                    Err(Wrong::Other(what)) => Err(fault(what)),
                }
            }
        }
    }

    /// Moves to the next node that has elements, unless this one has more.
    fn find_element(
        &mut self,
        held: &mut Held,
        limits: ReadLimits,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), Stop> {
        loop {
            match &mut self.at {
                Place::Single => return Ok(()),
                Place::Within { form, block } => {
                    if !block.is_over(&held.block) {
                        return Ok(());
                    }
                    let fault = Fault::new(held.block_at, What::Block(*form));
                    block.next(&held.block).map_err(|_| fault)?;
                    self.at = Place::Between;
                }
                Place::Between => {
                    let Some(left) = self.nodes_left.checked_sub(1) else { return Ok(()) };
                    self.at = take_node(self.form, held, limits, cursor)?;
                    self.nodes_left = left;
                }
            }
        }
    }
}

/// Takes the next node of a list from the cursor.
fn take_node(
    form: NodeForm,
    held: &mut Held,
    limits: ReadLimits,
    cursor: &mut Cursor<'_>,
) -> Result<Place, Stop> {
    let mut ahead = *cursor;
    let container = match form {
        NodeForm::Ziplists => None,
        NodeForm::Listpacks => Some(ahead.read_len()?),
    };
    let form = match container {
        None => Form::Ziplist,
        Some(LISTPACK | SINGLE) => Form::Listpack,
        Some(other) => return Err(cursor.fault(What::Container(other)).into()),
    };
    held.take_block(&mut ahead, limits)?;
    let fault = Fault::new(held.block_at, What::Block(form));
    let place = if held.block.is_empty() {
        return Err(fault.into());
    } else if container == Some(SINGLE) {
        Place::Single
    } else {
        let (block, _) = Block::start(form, &held.block).map_err(|_| fault)?;
        Place::Within { form, block }
    };
    *cursor = ahead;
    Ok(place)
}

/// What is wrong with an element.
enum Wrong {
    Damaged,
    Other(What),
}

impl From<Damaged> for Wrong {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

fn part<'a>(
    layout: Layout,
    block: &mut Block,
    bytes: &'a [u8],
    (first, second): (&'a mut Vec<u8>, &'a mut Vec<u8>),
) -> Result<Part<'a>, Wrong> {
    let mut next = || block.next(bytes)?.ok_or(Damaged);
    let text = next()?;
    Ok(match layout {
        Layout::Elements => Part::Element(element(text, first)),
        Layout::Members => Part::Member(element(text, first)),
        Layout::Pairs => {
            let value = element(next()?, second);
            Part::Field { name: element(text, first), value, expires_ms: None }
        }
        Layout::Scored => {
            let score = match next()? {
                Text::Integer(value) => Some(value as f64),
                Text::Plain(digits) => score::parse(digits),
            };
            let score = score.ok_or(Wrong::Other(What::Score))?;
            Part::Scored { member: element(text, first), score }
        }
        Layout::Timed => {
            let value = element(next()?, second);
            let Text::Integer(time) = next()? else { return Err(Wrong::Other(What::Time)) };
            let time = u64::try_from(time).ok().filter(|time| *time <= FIELD_TIME_MAX);
            let time = time.ok_or(Wrong::Other(What::Time))?;
            let expires_ms = (time != 0).then_some(time);
            Part::Field { name: element(text, first), value, expires_ms }
        }
    })
}
