//! Writes the items that a shard held at the moment of a snapshot's cut, bit by bit while the shard
//! changes.
//!
//! ```text
//!  spaces of the shard:  done │ the walk is here ─► │ later      each in the order of reversed hashes
//!                                     ▲
//!  an item changes ──────────────────┴─ before that, its cell is written and marked
//! ```
//! The walk writes the cells behind its position that are not marked. Nothing else has to be
//! remembered of an item, whether it is changed, removed or new. All items of a marked cell, and
//! all that the walk has passed, were written as they were at the cut. A database that is emptied
//! is held as it is until the walk has passed it. A large collection is written in pieces; before
//! it changes, its rest is written at once.

use super::quotas::Quotas;
use super::shard::Shard;
use super::space::Space;
use crate::cut::{Cells, ItemWriter, Pieces, Queue};
use crate::dump::{self, Large};
use crate::items::{Position, Table};
use keyway_rdb::pieces;

/// Reversed hashes there are.
const HASHES: u64 = 1 << 32;
/// Items and bytes that a step of the walk writes, or some more: some ten microseconds by estimate. More lets
/// requests for keys of the shard wait longer, less takes its lock more often.
const STEP_ITEMS: usize = 64;
const STEP_LEN: usize = 64 << 10;
/// Empty buckets that a step passes.
const STEP_BUCKETS: usize = 256;

/// The means to write a shard's items.
#[derive(Clone, Copy)]
pub(crate) struct CutDoor<'a> {
    pub(crate) writer: ItemWriter<'a>,
    pub(crate) queue: &'a Queue,
}

/// The progress of a shard with a snapshot.
#[derive(Default)]
pub(crate) enum Cut {
    /// Nothing is to be written.
    #[default]
    None,
    /// Nothing was written, and nothing has changed since the cut.
    Begun,
    Walked(Box<Walk>),
}

/// The result of a step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutStep {
    /// All of the shard is written.
    Done,
    /// More is to come.
    More,
    /// More is to come, and the last value is not whole: nothing else may be written between.
    Within,
}

/// The walk over one shard.
pub(crate) struct Walk {
    /// The spaces that had items at the cut.
    spaces: Vec<Walked>,
    /// The first that is not written.
    current: usize,
    /// Keys of large collections in the bucket that the walk has passed last, with their hashes.
    large: Vec<(u32, Box<[u8]>)>,
    /// The last of them, if it was begun.
    partial: Option<Large>,
    /// The rest of it, if it was to change.
    rest: Pieces,
}

/// A space as it was at the cut.
struct Walked {
    /// Its index in the shard.
    index: usize,
    database: u32,
    /// The reversed hash that the walk is at.
    reversed: u64,
    cells: Option<Cells>,
    /// The space itself, once its database was emptied.
    held: Option<Box<Space>>,
}

impl Cut {
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl Walk {
    fn of(shard: &Shard, door: &CutDoor<'_>) -> Self {
        let index_of = |index: usize| {
            let space = shard.space_to_read(index)?;
            (space.table.len() > 0).then(|| Walked {
                index,
                database: door.queue.database_at(index),
                reversed: 0,
                cells: None,
                held: None,
            })
        };
        Self {
            spaces: (0..shard.database_count()).filter_map(index_of).collect(),
            current: 0,
            large: Vec::new(),
            partial: None,
            rest: Pieces::default(),
        }
    }

    /// Writes what a change of items with `hash` in a space, whose table is given, would take away.
    pub(super) fn before_change(
        &mut self,
        table: &Table,
        index: usize,
        hash: u32,
        door: &CutDoor<'_>,
    ) {
        let is_it = |walked: &Walked| walked.index == index && walked.held.is_none();
        let Some(at) = self.spaces.iter().position(is_it).filter(|at| *at >= self.current) else {
            return;
        };
        if at == self.current {
            self.finish_large(table, hash, door);
        }
        let walked = &mut self.spaces[at];
        if u64::from(hash.reverse_bits()) < walked.reversed {
            return;
        }
        let cells = walked.cells.get_or_insert_with(|| {
            let cells = Cells::new(table.bucket_count());
            door.queue.charge(cells.bytes() as u64);
            cells
        });
        let cell = cells.of(hash);
        // Items that come into a cell from now on do not belong to the snapshot, even if the cell
        // is empty now.
        if !cells.mark(cell) || table.len() == 0 {
            return;
        }
        let mut out = Pieces::default();
        pieces::database(walked.database.into(), out.bytes());
        let before = out.len();
        let (span, done) = (cells.span(cell), walked.reversed);
        let mut reversed = span.start;
        while reversed < span.end {
            let bucket = table.bucket_of((reversed as u32).reverse_bits());
            for position in table.positions(bucket) {
                let item = table.item(position);
                let hash = door.writer.means.hash(item.key());
                if cells.of(hash) == cell && u64::from(hash.reverse_bits()) >= done {
                    write_whole(table, position, door, &mut out);
                }
            }
            reversed = table.span(bucket).end;
        }
        if out.len() > before {
            door.queue.push(out);
        }
    }

    /// As [`Walk::before_change`], of an item that has expired and is to be removed.
    pub(super) fn before_expiry(
        &mut self,
        table: &Table,
        index: usize,
        hash: u32,
        door: &CutDoor<'_>,
    ) {
        let current = self.spaces.get(self.current);
        if current.is_some_and(|walked| walked.index == index && walked.held.is_none()) {
            self.finish_large(table, hash, door);
        }
    }

    /// Writes large collections of a hash that the walk has met: the rest of the one it has begun,
    /// and others as a whole.
    #[inline]
    fn finish_large(&mut self, table: &Table, hash: u32, door: &CutDoor<'_>) {
        if self.large.iter().any(|(other, _)| *other == hash) {
            self.finish_large_ones(table, hash, door);
        }
    }

    #[cold]
    fn finish_large_ones(&mut self, table: &Table, hash: u32, door: &CutDoor<'_>) {
        let is_begun = self.large.last().is_some_and(|(other, _)| *other == hash);
        if let Some(mut partial) = self.partial.take_if(|_| is_begun)
            && let Some((_, key)) = self.large.pop()
            && let Some(position) = position_of(table, hash, &key)
        {
            let (item, means) = (table.item(position), door.writer.means);
            let before = self.rest.len();
            while !partial.go_on(item, means, self.rest.bytes()) {}
            door.queue.charge((self.rest.len() - before) as u64);
        }
        let mut out = Pieces::default();
        pieces::database(self.spaces[self.current].database.into(), out.bytes());
        for (_, key) in self.large.extract_if(.., |(other, _)| *other == hash) {
            if let Some(position) = position_of(table, hash, &key) {
                write_whole(table, position, door, &mut out);
            }
        }
        door.queue.push(out);
    }

    /// The next step of the walk, over spaces of the shard where they are not held.
    fn step(&mut self, shard: &Shard, door: &CutDoor<'_>, out: &mut Pieces) -> CutStep {
        if !self.rest.is_empty() {
            door.queue.release(self.rest.len() as u64);
            out.append(std::mem::take(&mut self.rest));
            return CutStep::More;
        }
        let at = self.current;
        let Some(walked) = self.spaces.get_mut(at) else { return CutStep::Done };
        let held = walked.held.take();
        let Some(space) = held.as_deref().or_else(|| shard.space_to_read(walked.index)) else {
            self.current += 1;
            return CutStep::More;
        };
        let step = match self.large.is_empty() {
            true => self.write_buckets(&space.table, door, out),
            false => self.write_large(&space.table, door, out),
        };
        self.spaces[at].held = held;
        step
    }

    fn write_buckets(&mut self, table: &Table, door: &CutDoor<'_>, out: &mut Pieces) -> CutStep {
        let walked = &mut self.spaces[self.current];
        pieces::database(walked.database.into(), out.bytes());
        let (start, mut items) = (out.len(), 0);
        for _ in 0..STEP_BUCKETS {
            if walked.reversed >= HASHES || table.len() == 0 {
                if let Some(cells) = walked.cells.take() {
                    door.queue.release(cells.bytes() as u64);
                }
                self.current += 1;
                break;
            }
            items += walked.write_bucket(table, door, &mut self.large, out);
            if items >= STEP_ITEMS || out.len() - start >= STEP_LEN || !self.large.is_empty() {
                break;
            }
        }
        CutStep::More
    }

    /// Writes a piece of the large collection whose turn it is.
    fn write_large(&mut self, table: &Table, door: &CutDoor<'_>, out: &mut Pieces) -> CutStep {
        let Some((hash, key)) = self.large.last() else { return CutStep::More };
        let position = position_of(table, *hash, key);
        let partial = self.partial.take();
        let partial = match (partial, position) {
            (None, Some(position)) => {
                let database = self.spaces[self.current].database;
                pieces::database(database.into(), out.bytes());
                door.writer.begin(table.item(position), table.marks(position), out)
            }
            (partial, _) => partial,
        };
        if let (Some(mut partial), Some(position)) = (partial, position) {
            let (item, means) = (table.item(position), door.writer.means);
            if !partial.go_on(item, means, out.bytes()) {
                self.partial = Some(partial);
                return CutStep::Within;
            }
        }
        self.large.pop();
        CutStep::More
    }

    /// Frees what it has; spaces that were held are given to `free`.
    fn end(self, queue: &Queue, mut free: impl FnMut(Space)) -> Pieces {
        for walked in self.spaces {
            if let Some(cells) = walked.cells {
                queue.release(cells.bytes() as u64);
            }
            if let Some(space) = walked.held {
                free(*space);
            }
        }
        queue.release(self.rest.len() as u64);
        self.rest
    }
}

impl Walked {
    /// Writes the items of the bucket that the walk is at, but large ones, whose keys go to `large`;
    /// how many items there are.
    fn write_bucket(
        &mut self,
        table: &Table,
        door: &CutDoor<'_>,
        large: &mut Vec<(u32, Box<[u8]>)>,
        out: &mut Pieces,
    ) -> usize {
        let bucket = table.bucket_of((self.reversed as u32).reverse_bits());
        let span = table.span(bucket);
        // Of a bucket that others were merged into, the walk may have passed a part.
        let looks_closely = self.cells.is_some() || span.start < self.reversed;
        let mut count = 0;
        for position in table.positions(bucket) {
            count += 1;
            let item = table.item(position);
            if looks_closely {
                let hash = door.writer.means.hash(item.key());
                let is_marked = |cells: &Cells| cells.is_marked(cells.of(hash));
                let is_passed = u64::from(hash.reverse_bits()) < self.reversed;
                if is_passed || self.cells.as_ref().is_some_and(is_marked) {
                    continue;
                }
            }
            if dump::is_large(&item) {
                large.push((door.writer.means.hash(item.key()), item.key().into()));
            } else {
                door.writer.write(item, table.marks(position), out);
            }
        }
        self.reversed = span.end;
        count
    }
}

/// Where the item of a key is.
fn position_of(table: &Table, hash: u32, key: &[u8]) -> Option<Position> {
    table.find(hash, |item, _| item.key() == key)
}

/// Writes an item, however large, at once.
fn write_whole(table: &Table, position: Position, door: &CutDoor<'_>, out: &mut Pieces) {
    let (item, marks) = (table.item(position), table.marks(position));
    if !dump::is_large(&item) {
        return door.writer.write(item, marks, out);
    }
    if let Some(mut large) = door.writer.begin(item, marks, out) {
        while !large.go_on(item, door.writer.means, out.bytes()) {}
    }
}

impl Shard {
    /// Notes that this is the moment of a snapshot.
    pub(crate) fn begin_cut(&mut self, queue: &Queue) -> Pieces {
        let left = self.end_cut(queue);
        self.cut = Cut::Begun;
        left
    }

    /// Ends a snapshot, whether it is whole or not; bytes that nobody wants any more.
    pub(crate) fn end_cut(&mut self, queue: &Queue) -> Pieces {
        match std::mem::take(&mut self.cut) {
            Cut::Walked(walk) => walk.end(queue, |space| self.garbage.push(space)),
            Cut::None | Cut::Begun => Pieces::default(),
        }
    }

    /// Lets a snapshot write the items of a hash before one of them changes, is removed or added.
    #[inline]
    pub(crate) fn before_change<'a>(
        &mut self,
        index: usize,
        hash: u32,
        door: impl FnOnce() -> CutDoor<'a>,
    ) {
        if !self.cut.is_none() {
            self.write_before_change(index, hash, &door());
        }
    }

    #[cold]
    fn write_before_change(&mut self, index: usize, hash: u32, door: &CutDoor<'_>) {
        let Some(mut walk) = self.take_walk(door) else { return };
        if !door.queue.has_overflowed()
            && let Some(space) = self.space_to_read(index)
        {
            walk.before_change(&space.table, index, hash, door);
        }
        self.cut = Cut::Walked(walk);
    }

    /// The next step of a snapshot.
    pub(crate) fn step_cut(&mut self, door: &CutDoor<'_>, out: &mut Pieces) -> CutStep {
        let Some(mut walk) = self.take_walk(door) else { return CutStep::Done };
        let step = walk.step(self, door, out);
        self.cut = Cut::Walked(walk);
        if step == CutStep::Done {
            let left = self.end_cut(door.queue);
            debug_assert!(left.is_empty(), "the rest was taken by the step before");
        }
        step
    }

    pub(super) fn take_walk(&mut self, door: &CutDoor<'_>) -> Option<Box<Walk>> {
        match std::mem::take(&mut self.cut) {
            Cut::None => None,
            Cut::Begun => Some(Box::new(Walk::of(self, door))),
            Cut::Walked(walk) => Some(walk),
        }
    }

    /// Empties a space at once. Later upkeep frees its memory, or a snapshot does once it has
    /// written the items. Returns whether there is anything to free.
    pub(crate) fn flush(&mut self, index: usize, quotas: &Quotas, door: &CutDoor<'_>) -> bool {
        let mut walk = self.take_walk(door);
        let old = self.take_space(index, quotas);
        let is_freed = old.is_some();
        if let Some(old) = old {
            let is_it = |walked: &&mut Walked| walked.index == index && walked.held.is_none();
            let left = walk.as_mut().map(|walk| walk.spaces[walk.current..].iter_mut());
            match left.and_then(|mut left| left.find(is_it)) {
                Some(walked) => walked.held = Some(Box::new(old)),
                None => self.garbage.push(old),
            }
        }
        if let Some(walk) = walk {
            self.cut = Cut::Walked(walk);
        }
        is_freed
    }
}
