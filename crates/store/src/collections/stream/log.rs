//! The entries of a stream, in blocks.

use super::block::{Block, Entry};
use super::id::{Id, Wanted};
use keyway_memory::allocated;
use keyway_memory::steps_of_block;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Stands for the number of entries that a group has read, if it is not known.
pub(crate) const UNKNOWN: i64 = -1;

/// Blocks in a leaf of the tree, which has room for eleven, when they are added
/// in order; as many leaves are below an inner node.
const LEAF_BLOCKS: usize = 6;
/// Bytes of a leaf with its share of the inner nodes.
const LEAF_BYTES: usize = (allocated(11 * size_of::<(Id, Block)>() + 16)) * 7 / 6;

/// Blocks that are looked at at a time when nodes are moved.
const COMPACTED_BLOCKS: usize = 64;

/// Entries in the order of their ids, and what is known of those that were.
pub(crate) struct Log {
    /// By the id of the first entry that they ever had.
    blocks: BTreeMap<Id, Block>,
    len: u64,
    /// The first and the last entry that is there; zero without one.
    first: Id,
    last: Id,
    /// The greatest id ever given.
    newest: Id,
    /// The greatest one removed by its id.
    deleted: Id,
    /// Entries ever added.
    added: u64,
    /// Bytes that the blocks take, without the tree.
    room: usize,
    /// The block that is looked at next when nodes are moved.
    compacted: Id,
}

impl Clone for Log {
    fn clone(&self) -> Self {
        let blocks: BTreeMap<_, _> = self.blocks.clone();
        let room = blocks.values().map(Block::room).sum();
        Self { blocks, room, ..*self }
    }
}

/// The entries that trimming keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// So many entries.
    Len(u64),
    /// The entries from an id on.
    From(Id),
}

/// The rule by which a stream is trimmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trim {
    pub(crate) keep: Keep,
    /// Only blocks as a whole are removed.
    pub(crate) approximate: bool,
    /// Most entries that are removed; 0 for any number.
    pub(crate) limit: u64,
}

/// A block that Redis has written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restored {
    /// Its id: no entry is before it.
    pub(crate) first: Id,
    /// Its bytes.
    pub(crate) len: usize,
    /// Its entries, removed ones included.
    pub(crate) entries: u64,
}

/// Why XSETID is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetFault {
    BehindLast,
    AddedBelowLen,
}

impl Log {
    pub(crate) const fn new() -> Self {
        let zero = Id::ZERO;
        Self {
            blocks: BTreeMap::new(),
            len: 0,
            first: zero,
            last: zero,
            newest: zero,
            deleted: zero,
            added: 0,
            room: 0,
            compacted: zero,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The first entry; zero without one.
    pub(crate) fn first(&self) -> Id {
        self.first
    }

    /// The last entry; zero without one.
    pub(crate) fn last(&self) -> Id {
        self.last
    }

    /// The greatest id ever given.
    pub(crate) fn newest(&self) -> Id {
        self.newest
    }

    /// The greatest id of those removed by their ids.
    pub(crate) fn deleted(&self) -> Id {
        self.deleted
    }

    /// Entries ever added.
    pub(crate) fn added(&self) -> u64 {
        self.added
    }

    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.room + self.blocks.len().div_ceil(LEAF_BLOCKS) * LEAF_BYTES
    }

    /// The id that a new entry is to have, if it is greater than all before.
    pub(crate) fn choose(&self, wanted: Wanted, now_millis: u64) -> Option<Id> {
        let id = match wanted {
            Wanted::This(id) => id,
            Wanted::Next if now_millis > self.newest.ms => Id { ms: now_millis, seq: 0 },
            Wanted::Next => self.newest.next()?,
            Wanted::NextIn(ms) if ms == self.newest.ms => {
                Id { ms, seq: self.newest.seq.checked_add(1)? }
            }
            Wanted::NextIn(ms) => Id { ms, seq: 0 },
        };
        (id > self.newest).then_some(id)
    }

    /// Adds an entry, whose id [`Log::choose`] chose.
    pub(crate) fn push<'a>(
        &mut self,
        id: Id,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) {
        let len = pairs.clone().map(|(name, value)| name.len() + value.len()).sum();
        let names = pairs.clone().map(|(name, _)| name);
        let open = match self.blocks.last_entry() {
            Some(mut tail) if !tail.get().takes(len) => {
                self.room -= tail.get().room();
                tail.get_mut().close();
                self.room += tail.get().room();
                None
            }
            tail => tail.map(|tail| (*tail.key(), tail.into_mut())),
        };
        let (first, block) = match open {
            Some((first, block)) => {
                self.room -= block.room();
                (first, block)
            }
            None => (id, self.blocks.entry(id).or_insert_with(|| Block::new(names))),
        };
        block.push(first, id, pairs);
        self.room += block.room();
        self.len += 1;
        self.added = self.added.wrapping_add(1);
        (self.newest, self.last) = (id, id);
        if self.len == 1 {
            self.first = id;
        }
    }

    /// Moves blocks from sparse pages, see `Boxed::compact`.
    pub(super) fn compact(&mut self, visits: &mut u32, moved: &mut u64) {
        let mut next = Id::ZERO;
        for (count, (id, block)) in self.blocks.range_mut(self.compacted..).enumerate() {
            if *visits == 0 || count == COMPACTED_BLOCKS {
                next = *id;
                break;
            }
            *visits -= 1;
            *moved += u64::from(block.relocate());
        }
        self.compacted = next;
    }

    /// The blocks by the ids they are called after, from `first` on.
    pub(crate) fn blocks_from(&self, first: Id) -> impl Iterator<Item = (Id, &Block)> {
        self.blocks.range(first..).map(|(first, block)| (*first, block))
    }

    /// Adds a block behind the others, its names and its entries with their
    /// ids, which go up. One larger than blocks are here becomes several.
    pub(crate) fn restore<'a, P>(
        &mut self,
        restored: Restored,
        names: impl Iterator<Item = &'a [u8]> + Clone,
        entries: impl Iterator<Item = (Id, P)>,
    ) where
        P: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let mut open = (restored.first, Block::new(names));
        for (id, pairs) in entries {
            let len = pairs.clone().map(|(name, value)| name.len() + value.len()).sum();
            if open.1.live() > 0 && !open.1.takes(len) {
                let next = (id, Block::new(pairs.clone().map(|(name, _)| name)));
                self.close(std::mem::replace(&mut open, next));
            }
            open.1.push(open.0, id, pairs);
            if self.len == 0 {
                self.first = id;
            }
            self.len += 1;
            (self.newest, self.last) = (id, id);
        }
        open.1.count_removed(restored.len, restored.entries);
        self.close(open);
    }

    fn close(&mut self, (first, mut block): (Id, Block)) {
        if block.live() > 0 {
            block.close();
            self.room += block.room();
            self.blocks.insert(first, block);
        }
    }

    /// Sets how many entries were ever added.
    pub(crate) fn set_added(&mut self, added: u64) {
        self.added = added;
    }

    /// The block that an id belongs to, if it is anywhere.
    fn block_of(&self, id: Id) -> Option<(Id, &Block)> {
        self.blocks.range(..=id).next_back().map(|(first, block)| (*first, block))
    }

    /// The entry of an id.
    pub(crate) fn get(&self, id: Id) -> Option<Entry<'_>> {
        let (first, block) = self.block_of(id)?;
        block.entries(first).find(|entry| entry.id >= id).filter(|entry| entry.id == id)
    }

    /// Visits the entries between two ids, both included, the last one first if
    /// `reverse`, until `visit` breaks off.
    pub(crate) fn visit<'s>(
        &'s self,
        (from, to): (Id, Id),
        reverse: bool,
        mut visit: impl FnMut(Entry<'s>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if from > to {
            return ControlFlow::Continue(());
        }
        let start = self.block_of(from).map_or(from, |(first, _)| first);
        let mut blocks = self.blocks.range(start..=to);
        let entries = |(first, block): (&Id, &'s Block)| block.entries(*first);
        if reverse {
            while let Some(entries) = blocks.next_back().map(entries) {
                let mut wanted = entries.reversed().skip_while(|entry| entry.id > to);
                wanted.try_for_each(|entry| match entry.id >= from {
                    true => visit(entry),
                    false => ControlFlow::Break(()),
                })?;
            }
        } else {
            while let Some(entries) = blocks.next().map(entries) {
                let mut wanted = entries.skip_while(|entry| entry.id < from);
                wanted.try_for_each(|entry| match entry.id <= to {
                    true => visit(entry),
                    false => ControlFlow::Break(()),
                })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The first entry that is there, found in the blocks.
    fn find_first(&self) -> Id {
        let found = self.blocks.iter().find_map(|(first, block)| block.entries(*first).next());
        found.map_or(Id::ZERO, |entry| entry.id)
    }

    fn find_last(&self) -> Id {
        let mut blocks = self.blocks.iter().rev();
        let found = blocks.find_map(|(first, block)| block.entries(*first).last());
        found.map_or(Id::ZERO, |entry| entry.id)
    }

    /// Removes an entry; whether it was there.
    pub(crate) fn remove(&mut self, id: Id) -> bool {
        let Some((first, block)) = self.blocks.range_mut(..=id).next_back() else { return false };
        let (first, room) = (*first, block.room());
        if !block.remove(first, id) {
            return false;
        }
        self.room -= room;
        if block.live() == 0 {
            self.blocks.remove(&first);
        } else {
            self.room += block.room();
        }
        self.len -= 1;
        self.deleted = self.deleted.max(id);
        if id == self.first {
            self.first = self.find_first();
        }
        if id == self.last {
            self.last = self.find_last();
        }
        true
    }

    /// Removes entries from the first one on; how many.
    pub(crate) fn trim(&mut self, trim: Trim) -> u64 {
        let mut removed = 0;
        while let Some(mut head) = self.blocks.first_entry() {
            let excess = match trim.keep {
                Keep::Len(len) => self.len.saturating_sub(len),
                Keep::From(_) => u64::MAX,
            };
            let live = u64::from(head.get().live());
            if excess == 0 || (trim.limit > 0 && removed + live > trim.limit) {
                break;
            }
            let goes = match trim.keep {
                Keep::Len(_) => live <= excess,
                Keep::From(id) => head.get().last() < id,
            };
            if goes {
                self.room -= head.remove().room();
                self.len -= live;
                removed += live;
                continue;
            }
            if !trim.approximate {
                self.room -= head.get().room();
                let (first, mut count) = (*head.key(), 0);
                let gone = head.get_mut().trim(first, |id| {
                    count += 1;
                    match trim.keep {
                        Keep::Len(_) => count <= excess,
                        Keep::From(from) => id < from,
                    }
                });
                self.room += head.get().room();
                self.len -= u64::from(gone);
                removed += u64::from(gone);
            }
            break;
        }
        if removed > 0 {
            self.first = self.find_first();
        }
        if self.len == 0 {
            self.last = Id::ZERO;
        }
        removed
    }

    /// Sets the greatest id ever given, and what else there is to set.
    pub(crate) fn set_newest(
        &mut self,
        newest: Id,
        added: Option<u64>,
        deleted: Option<Id>,
    ) -> Result<(), SetFault> {
        if self.len > 0 && newest < self.last {
            return Err(SetFault::BehindLast);
        }
        if self.len > 0 && added.is_some_and(|added| added < self.len) {
            return Err(SetFault::AddedBelowLen);
        }
        self.newest = newest;
        self.added = added.unwrap_or(self.added);
        self.deleted = deleted.unwrap_or(self.deleted);
        Ok(())
    }

    /// Returns whether an entry was removed by its id from `from` on, as far as that is
    /// known.
    pub(super) fn has_gap_from(&self, from: Id) -> bool {
        let deleted = self.deleted;
        self.len > 0 && deleted != Id::ZERO && self.first <= deleted && from <= deleted
    }

    /// Returns the number of entries that were ever added up to an id, or `UNKNOWN`.
    pub(crate) fn added_up_to(&self, id: Id) -> i64 {
        let added = self.added as i64;
        let before = added.wrapping_sub(self.len as i64);
        if self.added == 0 {
            return 0;
        }
        if id == self.newest || (self.len == 0 && id < self.newest) {
            return added;
        }
        let has_gaps = self.deleted != Id::ZERO && self.deleted >= self.first;
        match id {
            id if id > self.newest || has_gaps => UNKNOWN,
            id if id < self.first => before,
            id if id == self.first => before.wrapping_add(1),
            _ => UNKNOWN,
        }
    }

    /// Frees up to `steps` blocks; whether none is left.
    pub(super) fn free_some(&mut self, steps: &mut u32) -> bool {
        while *steps > 0 {
            let Some((_, block)) = self.blocks.pop_last() else { return true };
            self.room -= block.room();
            *steps = steps.saturating_sub(1 + steps_of_block(block.room()));
        }
        self.blocks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    #[derive(Clone, Debug)]
    enum Op {
        Push { ms: u64, seq: u64, pairs: Pairs, copies: u8 },
        Remove(usize),
        Trim { keep: usize, by_id: bool, approximate: bool, limit: u64 },
    }

    fn any_pairs() -> impl Strategy<Value = Pairs> {
        let name = proptest::sample::select(vec![&b"a"[..], b"b", b"17", b""]);
        let value = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..6),
            any::<i64>().prop_map(|value| value.to_string().into_bytes()),
            Just(vec![b'x'; 700]),
        ];
        proptest::collection::vec((name.prop_map(<[u8]>::to_vec), value), 1..4)
    }

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (prop_oneof![0..3u64, Just(1 << 40)], 0..3u64, any_pairs(), 1..60u8)
                .prop_map(|(ms, seq, pairs, copies)| Op::Push { ms, seq, pairs, copies }),
            3 => any::<usize>().prop_map(Op::Remove),
            1 => (any::<usize>(), any::<bool>(), any::<bool>(), 0..200u64)
                .prop_map(|(keep, by_id, approximate, limit)| Op::Trim {
                    keep, by_id, approximate, limit
                }),
        ]
    }

    fn read(log: &Log, range: (Id, Id), reverse: bool) -> Vec<(Id, Pairs)> {
        let mut all = Vec::new();
        let _ = log.visit(range, reverse, |entry| {
            let bytes = |text: super::super::code::Text<'_>| text.with_bytes(<[u8]>::to_vec);
            all.push((
                entry.id,
                entry.pairs.map(|(name, value)| (bytes(name), bytes(value))).collect(),
            ));
            ControlFlow::Continue(())
        });
        all
    }

    fn check(log: &Log, model: &BTreeMap<Id, Pairs>) {
        let everything = (Id::ZERO, Id::MAX);
        let mut all: Vec<_> = model.clone().into_iter().collect();
        assert_eq!(read(log, everything, false), all);
        all.reverse();
        assert_eq!(read(log, everything, true), all);
        assert_eq!(log.len(), model.len() as u64);
        let end = |end: Option<(&Id, &Pairs)>| end.map_or(Id::ZERO, |(id, _)| *id);
        assert_eq!(log.first(), end(model.first_key_value()));
        assert_eq!(log.last(), end(model.last_key_value()));
        assert_eq!(log.room, log.blocks.values().map(Block::room).sum::<usize>());
    }

    proptest! {
        #[test]
        fn a_log_has_what_was_added_and_not_removed(ops in proptest::collection::vec(any_op(), 1..40)) {
            let (mut log, mut model) = (Log::new(), BTreeMap::new());
            for op in ops {
                match op {
                    Op::Push { ms, seq, pairs, copies } => for _ in 0..copies {
                        let newest = log.newest();
                        let next = Id { ms: newest.ms + ms, seq: seq + if ms == 0 { newest.seq + 1 } else { 0 } };
                        let Some(id) = log.choose(Wanted::This(next), 0) else { continue };
                        log.push(id, pairs.iter().map(|(name, value)| (&name[..], &value[..])));
                        model.insert(id, pairs.clone());
                    },
                    Op::Remove(nth) => {
                        let found = model.keys().nth(nth % model.len().max(1)).copied();
                        if let Some(id) = found {
                            prop_assert!(log.get(id).is_some());
                            prop_assert!(log.remove(id) && !log.remove(id));
                            prop_assert!(log.get(id).is_none());
                            prop_assert!(log.deleted() >= id);
                            model.remove(&id);
                        }
                    }
                    Op::Trim { keep, by_id, approximate, limit } => {
                        let keep = keep % (model.len() + 1);
                        let from = model.keys().nth(keep).map_or(Id::MAX, |id| *id);
                        let wanted = if by_id { keep } else { model.len() - keep };
                        let limit = if approximate { limit } else { 0 };
                        let trim = Trim {
                            keep: if by_id { Keep::From(from) } else { Keep::Len(keep as u64) },
                            approximate,
                            limit,
                        };
                        let removed = log.trim(trim) as usize;
                        prop_assert!(removed == wanted || (approximate && removed < wanted));
                        prop_assert!(limit == 0 || removed as u64 <= limit);
                        (0..removed).for_each(|_| drop(model.pop_first()));
                    }
                }
                check(&log, &model);
            }
            check(&log.clone(), &model);
            let ids: Vec<Id> = model.keys().copied().collect();
            for pair in ids.windows(2).step_by(7) {
                let (from, to) = (pair[0].next().unwrap(), pair[1]);
                prop_assert_eq!(read(&log, (from, to), false).len(), 1);
                prop_assert_eq!(read(&log, (from, to), true).len(), 1);
                prop_assert_eq!(read(&log, (to, pair[0]), false).len(), 0);
            }
            while !log.free_some(&mut 3) {}
            prop_assert_eq!((log.room, log.bytes()), (0, 0));
        }
    }

    #[test]
    fn ids_go_up_whatever_the_clock_does() {
        let mut log = Log::new();
        for (wanted, now, chosen) in [
            (Wanted::Next, 5, Some((5, 0))),
            (Wanted::Next, 5, Some((5, 1))),
            (Wanted::Next, 3, Some((5, 2))),
            (Wanted::NextIn(4), 9, None),
            (Wanted::NextIn(5), 9, Some((5, 3))),
            (Wanted::NextIn(7), 9, Some((7, 0))),
            (Wanted::This(Id { ms: 7, seq: 0 }), 9, None),
            (Wanted::This(Id { ms: 7, seq: u64::MAX }), 9, Some((7, u64::MAX))),
            (Wanted::NextIn(7), 9, None),
            (Wanted::Next, 7, Some((8, 0))),
            (Wanted::This(Id::MAX), 9, Some((u64::MAX, u64::MAX))),
            (Wanted::Next, 9, None),
        ] {
            let id = log.choose(wanted, now);
            assert_eq!(id.map(|id| (id.ms, id.seq)), chosen, "{wanted:?}");
            if let Some(id) = id {
                log.push(id, [(&b"a"[..], &b"b"[..])].into_iter());
            }
        }
    }
}
