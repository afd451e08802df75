//! Reads values part by part.

mod blocks;
mod plain;
mod score;
mod stream;
mod text;

use crate::event::{Kind, Opened, Part};
use crate::fault::{Form, ModuleName, What};
use crate::format::{Cursor, Stop};
use crate::kind;
use crate::version::Version;
use blocks::{Blocks, Layout, NodeForm};
use plain::{Layout as PlainLayout, Plain};
use stream::{StreamForm, StreamReader};
use text::Held;
pub(crate) use text::text;

/// Limits of what a reader may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Length of the longest string: a name, a value, an element. Servers accept strings of up to
    /// 512 MB (`proto-max-bulk-len`), so with a smaller limit some of their files are refused.
    pub string_len_max: u64,
    /// Length of the longest block: a small collection, or a node of a list or a stream. With the
    /// servers' default settings blocks have 8 KB, unless a single element or entry is longer.
    pub block_len_max: u64,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { string_len_max: 512 << 20, block_len_max: 512 << 20 }
    }
}

/// Reads one value after the other, each part by part.
///
/// Legal order: [`ValueReader::open`], then [`ValueReader::next`] until it returns `None`. Both
/// consume bytes of a cursor. If the cursor has too few bytes, both return [`Stop::Short`]. The
/// caller then calls again with a new cursor, which has the unconsumed bytes and more.
#[derive(Debug)]
pub struct ValueReader {
    limits: ReadLimits,
    version: Version,
    state: State,
    held: Held,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each reader")]
enum State {
    Over,
    Text,
    Plain(Plain),
    Blocks(Blocks),
    Stream(StreamReader),
}

/// The layout of a type of value.
enum Shape {
    Text,
    Plain(Kind, PlainLayout),
    Block { kind: Kind, form: Form, layout: Layout, has_earliest: bool },
    Nodes(NodeForm),
    Stream(StreamForm),
    Module,
}

impl ValueReader {
    /// Creates a reader of values in this version.
    pub fn new(version: Version, limits: ReadLimits) -> Self {
        Self { limits, version, state: State::Over, held: Held::default() }
    }

    /// Sets the version, which defines the meaning of types from now on.
    pub(crate) fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Returns the version that defines the meaning of types.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Checks that a type exists, so that [`ValueReader::open`] accepts it.
    ///
    /// # Errors
    /// Returns [`What::Type`] if it does not.
    pub fn check(&self, kind: u8) -> Result<(), What> {
        self.shape(kind).map(|_| ())
    }

    /// Begins a value of this type, which starts at the cursor. The rest of the one before is
    /// discarded. If there are too few bytes, nothing was consumed.
    ///
    /// # Errors
    /// Returns [`Stop`].
    pub fn open(&mut self, kind: u8, cursor: &mut Cursor<'_>) -> Result<Opened, Stop> {
        let shape = self.shape(kind).map_err(|what| Stop::Wrong(cursor.fault(what)))?;
        let mut ahead = *cursor;
        let (state, opened) = match shape {
            Shape::Text => {
                (State::Text, Opened { kind: Kind::Text, count: None, earliest_ms: None })
            }
            Shape::Plain(kind, layout) => {
                let (plain, earliest_ms) = Plain::open(layout, &mut ahead)?;
                let opened = Opened { earliest_ms, ..Opened::new(kind, plain.left()) };
                (State::Plain(plain), opened)
            }
            Shape::Block { kind, form, layout, has_earliest } => {
                let earliest_ms = if has_earliest { Some(ahead.number()?) } else { None };
                let (blocks, count) =
                    Blocks::single(form, layout, &mut self.held, self.limits, &mut ahead)?;
                (State::Blocks(blocks), Opened { earliest_ms, ..Opened::new(kind, count) })
            }
            Shape::Nodes(form) => {
                let blocks = Blocks::nodes(form, ahead.read_len()?);
                let opened = Opened { kind: Kind::List, count: None, earliest_ms: None };
                (State::Blocks(blocks), opened)
            }
            Shape::Stream(form) => {
                let count = ahead.read_len()?;
                let opened = Opened::new(Kind::Stream, count);
                (State::Stream(StreamReader::new(form, count)), opened)
            }
            Shape::Module => {
                let name = ModuleName::of(ahead.read_len()?);
                return Err(cursor.fault(What::ModuleValue(name)).into());
            }
        };
        self.state = state;
        *cursor = ahead;
        Ok(opened)
    }

    /// Returns the next part of the value, or `None` at its end. If there are too few bytes, the
    /// cursor is after those that were consumed.
    ///
    /// # Errors
    /// Returns [`Stop`].
    pub fn next<'a, 'b: 'a>(
        &'a mut self,
        cursor: &mut Cursor<'b>,
    ) -> Result<Option<Part<'a>>, Stop> {
        let (held, limits) = (&mut self.held, self.limits);
        match &mut self.state {
            State::Over => Ok(None),
            State::Text => {
                let text = held.first(cursor, limits)?;
                self.state = State::Over;
                Ok(Some(Part::Text(text)))
            }
            State::Plain(plain) => plain.next(held, limits, cursor),
            State::Blocks(blocks) => blocks.next(held, limits, cursor),
            State::Stream(stream) => stream.next(held, limits, cursor),
        }
    }

    fn shape(&self, kind: u8) -> Result<Shape, What> {
        let block = |kind, form, layout| Shape::Block { kind, form, layout, has_earliest: false };
        Ok(match kind {
            kind::STRING => Shape::Text,
            kind::LIST => Shape::Plain(Kind::List, PlainLayout::Elements),
            kind::SET => Shape::Plain(Kind::Set, PlainLayout::Members),
            kind::SORTED_TEXT => Shape::Plain(Kind::Sorted, PlainLayout::TextScores),
            kind::HASH => Shape::Plain(Kind::Hash, PlainLayout::Pairs),
            kind::SORTED => Shape::Plain(Kind::Sorted, PlainLayout::Scores),
            kind::MODULE_EARLY | kind::MODULE => Shape::Module,
            kind::HASH_ZIPMAP => block(Kind::Hash, Form::Zipmap, Layout::Pairs),
            kind::LIST_ZIPLIST => block(Kind::List, Form::Ziplist, Layout::Elements),
            kind::SET_INTEGERS => block(Kind::Set, Form::Integers, Layout::Members),
            kind::SORTED_ZIPLIST => block(Kind::Sorted, Form::Ziplist, Layout::Scored),
            kind::HASH_ZIPLIST => block(Kind::Hash, Form::Ziplist, Layout::Pairs),
            kind::LIST_ZIPLISTS => Shape::Nodes(NodeForm::Ziplists),
            kind::STREAM_5 => Shape::Stream(StreamForm::Redis5),
            kind::HASH_LISTPACK => block(Kind::Hash, Form::Listpack, Layout::Pairs),
            kind::SORTED_LISTPACK => block(Kind::Sorted, Form::Listpack, Layout::Scored),
            kind::LIST_LISTPACKS => Shape::Nodes(NodeForm::Listpacks),
            kind::STREAM => Shape::Stream(StreamForm::Redis7),
            kind::SET_LISTPACK => block(Kind::Set, Form::Listpack, Layout::Members),
            kind::STREAM_72 => Shape::Stream(StreamForm::Redis72),
            kind::HASH_TIMES_EARLY if self.version.is_of_valkey() => {
                Shape::Plain(Kind::ExpiringHash, PlainLayout::TimesBehind)
            }
            _ if self.version.is_of_valkey() => return Err(What::Type(kind)),
            kind::HASH_TIMES_EARLY => {
                Shape::Plain(Kind::ExpiringHash, PlainLayout::Times { are_relative: false })
            }
            kind::HASH_TIMES_LISTPACK_EARLY => {
                block(Kind::ExpiringHash, Form::Listpack, Layout::Timed)
            }
            kind::HASH_TIMES => {
                Shape::Plain(Kind::ExpiringHash, PlainLayout::Times { are_relative: true })
            }
            kind::HASH_TIMES_LISTPACK => Shape::Block {
                kind: Kind::ExpiringHash,
                form: Form::Listpack,
                layout: Layout::Timed,
                has_earliest: true,
            },
            _ => return Err(What::Type(kind)),
        })
    }
}
