//! Entries in order, each with its rank: a tree whose inner nodes know how many
//! entries are below each child.
//!
//! ```text
//!  inner   [ first, len, child | first, len, child | ... ]     up to 32 children
//!  leaf    [ entry, entry, entry, ... ]                        up to 64 entries
//! ```
//! The tree does not know the order. The caller that inserts an entry says which entries come
//! before it. Everything else goes by rank.

use keyway_memory::nodes::{self, Node as Room, Nodes};
use std::mem;
use std::ops::{ControlFlow, Range};

const LEAF_MAX: usize = 64;
const CHILDREN_MAX: usize = 32;
/// Leaves of a tree that are looked at at a time when nodes are moved.
const COMPACTED_LEAVES: usize = 64;
/// Entries that a tree has room for at first; the only leaf then doubles.
const FIRST_ROOM: usize = 4;
/// Nodes of which one is this empty become one with their neighbour, if that
/// leaves some room.
const SPARSE: usize = 4;

enum Node<T> {
    Leaf(Room<T>),
    Inner(Room<Child<T>>),
}

struct Child<T> {
    /// Its first entry.
    first: T,
    /// Entries below it, never 0.
    len: usize,
    node: Node<T>,
}

/// The entries of a large sorted set.
pub(crate) struct Ranks<T> {
    root: Node<T>,
    len: usize,
    leaves: usize,
    inner: usize,
    /// The rank of the entry whose leaf is looked at next when nodes are moved.
    compacted: usize,
}

/// Nodes there are more than before.
#[derive(Default)]
struct Made {
    leaves: usize,
    inner: usize,
}

impl<T: Copy> Ranks<T> {
    pub(crate) const fn new() -> Self {
        Self { root: Node::Leaf(nodes::empty()), len: 0, leaves: 1, inner: 0, compacted: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        if let Node::Leaf(entries) = &self.root {
            return nodes::bytes(entries);
        }
        self.leaves * nodes::node_len(LEAF_MAX * size_of::<T>())
            + self.inner * nodes::node_len(CHILDREN_MAX * size_of::<Child<T>>())
    }

    /// Returns the number of entries, from the first on, for which `before` is true. It must be
    /// false for all entries behind the first for which it is false.
    pub(crate) fn count_before(&self, before: impl Fn(&T) -> bool) -> usize {
        let (mut node, mut rank) = (&self.root, 0);
        loop {
            match node {
                Node::Leaf(entries) => return rank + entries.partition_point(&before),
                Node::Inner(children) => {
                    let index = children.partition_point(|child| before(&child.first));
                    let Some(index) = index.checked_sub(1) else { return rank };
                    rank += children[..index].iter().map(|child| child.len).sum::<usize>();
                    node = &children[index].node;
                }
            }
        }
    }

    /// Inserts an entry behind those that are `before` it.
    pub(crate) fn insert(&mut self, entry: T, before: impl Fn(&T) -> bool) {
        let mut made = Made::default();
        if let Some(second) = self.root.insert(entry, &before, &mut made) {
            let first = mem::replace(&mut self.root, Node::Inner(room_for(CHILDREN_MAX)));
            made.inner += 1;
            if let Node::Inner(children) = &mut self.root {
                children.extend(Child::of(first));
                children.push(second);
            }
        }
        self.len += 1;
        self.leaves += made.leaves;
        self.inner += made.inner;
    }

    /// Removes the entry of a rank.
    pub(crate) fn remove(&mut self, rank: usize) -> Option<T> {
        if rank >= self.len {
            return None;
        }
        let mut gone = Made::default();
        let entry = self.root.remove(rank, &mut gone)?;
        self.len -= 1;
        while let Node::Inner(children) = &mut self.root {
            if children.len() > 1 {
                break;
            }
            gone.inner += 1;
            self.root = match children.pop() {
                Some(only) => only.node,
                None => {
                    self.leaves += 1;
                    Node::Leaf(nodes::empty())
                }
            };
        }
        self.leaves -= gone.leaves;
        self.inner -= gone.inner;
        Some(entry)
    }

    /// The leaf with the entry of a rank, and the rank of the leaf's first one.
    fn leaf(&self, rank: usize) -> Option<(&[T], usize)> {
        if rank >= self.len {
            return None;
        }
        let (mut node, mut start) = (&self.root, 0);
        loop {
            match node {
                Node::Leaf(entries) => return Some((entries, start)),
                Node::Inner(children) => {
                    let child = children.iter().find(|child| {
                        let is_behind = start + child.len <= rank;
                        start += if is_behind { child.len } else { 0 };
                        !is_behind
                    })?;
                    node = &child.node;
                }
            }
        }
    }

    /// The entry of a rank.
    pub(crate) fn get(&self, rank: usize) -> Option<&T> {
        self.leaf(rank).map(|(entries, start)| &entries[rank - start])
    }

    /// The entry of a rank, to be changed in what its place does not depend on.
    pub(crate) fn get_mut(&mut self, mut rank: usize) -> Option<&mut T> {
        let mut node = &mut self.root;
        loop {
            match node {
                Node::Leaf(entries) => return entries.get_mut(rank),
                Node::Inner(children) => {
                    let child = children.iter_mut().find(|child| {
                        let is_here = rank < child.len;
                        rank -= if is_here { 0 } else { child.len };
                        is_here
                    })?;
                    node = &mut child.node;
                }
            }
        }
    }

    /// Visits the entries of these ranks, as far as there are entries, the last one first if
    /// `reverse`, until `visit` breaks off.
    pub(crate) fn visit(
        &self,
        ranks: Range<usize>,
        reverse: bool,
        mut visit: impl FnMut(&T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (mut from, mut to) = (ranks.start, ranks.end.min(self.len));
        while from < to {
            let Some((entries, start)) = self.leaf(if reverse { to - 1 } else { from }) else {
                break;
            };
            let (first, end) = (from.max(start), to.min(start + entries.len()));
            let part = &entries[first - start..end - start];
            if reverse {
                part.iter().rev().try_for_each(&mut visit)?;
                to = first;
            } else {
                part.iter().try_for_each(&mut visit)?;
                from = end;
            }
        }
        ControlFlow::Continue(())
    }

    /// Moves leaves, and the nodes above them, from sparse pages, of a large
    /// tree the part whose turn it is; counts `visits` down and `moved` up.
    pub(crate) fn compact(&mut self, visits: &mut u32, moved: &mut u64) {
        for _ in 0..self.leaves.min(COMPACTED_LEAVES) {
            if *visits == 0 || self.len == 0 {
                return;
            }
            *visits -= 1;
            let from = if self.compacted < self.len { self.compacted } else { 0 };
            self.compacted = from + self.root.relocate(from, moved);
        }
    }

    /// Frees up to `steps` leaves; whether nothing is left.
    pub(crate) fn free_some(&mut self, steps: &mut u32) -> bool {
        let mut gone = Made::default();
        while *steps > 0 && self.len > 0 {
            self.len -= self.root.free_last(&mut gone);
            *steps -= 1;
        }
        self.leaves -= gone.leaves;
        self.inner -= gone.inner;
        if self.len == 0 {
            *self = Self::new();
        }
        self.len == 0
    }
}

/// A vector that never grows beyond this room.
fn room_for<T>(len: usize) -> Room<T> {
    Room::with_capacity_in(len, Nodes)
}

/// Cuts a full node in two, where `at` is to be inserted: one that is filled
/// from one end stays full.
fn cut<T>(items: &mut Room<T>, at: usize, max: usize) -> Room<T> {
    let middle = if at == items.len() { at } else { items.len() / 2 };
    let mut second = room_for(max);
    second.extend(items.drain(middle..));
    second
}

impl<T: Copy> Child<T> {
    /// None of a node without entries.
    fn of(node: Node<T>) -> Option<Self> {
        let first = *node.first()?;
        Some(Self { first, len: node.len(), node })
    }
}

impl<T: Copy> Node<T> {
    fn first(&self) -> Option<&T> {
        match self {
            Node::Leaf(entries) => entries.first(),
            Node::Inner(children) => children.first().map(|child| &child.first),
        }
    }

    fn len(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Inner(children) => children.iter().map(|child| child.len).sum(),
        }
    }

    /// Returns the number of entries or children of the node, and the largest possible number.
    fn fill(&self) -> (usize, usize) {
        match self {
            Node::Leaf(entries) => (entries.len(), LEAF_MAX),
            Node::Inner(children) => (children.len(), CHILDREN_MAX),
        }
    }

    /// Inserts an entry; the node that is to follow this one if it had to be
    /// cut in two.
    fn insert(
        &mut self,
        entry: T,
        before: &impl Fn(&T) -> bool,
        made: &mut Made,
    ) -> Option<Child<T>> {
        match self {
            Node::Leaf(entries) => {
                let at = entries.partition_point(before);
                if entries.len() < LEAF_MAX {
                    let len = entries.len();
                    if len == entries.capacity() {
                        // The only leaf: others come with all their room.
                        entries.reserve_exact(len.max(FIRST_ROOM).min(LEAF_MAX - len));
                    }
                    entries.insert(at, entry);
                    return None;
                }
                made.leaves += 1;
                let mut second = cut(entries, at, LEAF_MAX);
                match at.checked_sub(entries.len()) {
                    Some(at) if at > 0 || second.is_empty() => second.insert(at, entry),
                    _ => entries.insert(at, entry),
                }
                Child::of(Node::Leaf(second))
            }
            Node::Inner(children) => {
                let index =
                    children.partition_point(|child| before(&child.first)).saturating_sub(1);
                let child = &mut children[index];
                let second = child.node.insert(entry, before, made);
                child.len += 1;
                if let Some(first) = child.node.first() {
                    child.first = *first;
                }
                let second = second?;
                child.len -= second.len;
                let at = index + 1;
                if children.len() < CHILDREN_MAX {
                    children.insert(at, second);
                    return None;
                }
                made.inner += 1;
                let mut others = cut(children, at, CHILDREN_MAX);
                match at.checked_sub(children.len()) {
                    Some(at) if at > 0 || others.is_empty() => others.insert(at, second),
                    _ => children.insert(at, second),
                }
                Child::of(Node::Inner(others))
            }
        }
    }

    /// Removes the entry of a rank, which is there.
    fn remove(&mut self, mut rank: usize, gone: &mut Made) -> Option<T> {
        let children = match self {
            Node::Leaf(entries) => return Some(entries.remove(rank)),
            Node::Inner(children) => children,
        };
        let index = children.iter().position(|child| {
            let is_here = rank < child.len;
            rank -= if is_here { 0 } else { child.len };
            is_here
        })?;
        let child = &mut children[index];
        let entry = child.node.remove(rank, gone);
        child.len -= 1;
        match child.node.first() {
            Some(first) => child.first = *first,
            None => {
                child.node.count_into(gone);
                children.remove(index);
                return entry;
            }
        }
        let (fill, max) = child.node.fill();
        if fill * SPARSE < max {
            let left = index.saturating_sub(1);
            if left + 1 < children.len() {
                join(children, left, gone);
            }
        }
        entry
    }

    /// Moves the leaf with the entry of a rank, and what leads to it; how many
    /// entries from that one on it has.
    fn relocate(&mut self, mut rank: usize, moved: &mut u64) -> usize {
        match self {
            Node::Leaf(entries) => {
                *moved += u64::from(nodes::relocate(entries));
                entries.len() - rank
            }
            Node::Inner(children) => {
                *moved += u64::from(nodes::relocate(children));
                let child = children.iter_mut().find(|child| {
                    let is_here = rank < child.len;
                    rank -= if is_here { 0 } else { child.len };
                    is_here
                });
                child.map_or(1, |child| child.node.relocate(rank, moved))
            }
        }
    }

    fn count_into(&self, made: &mut Made) {
        match self {
            Node::Leaf(_) => made.leaves += 1,
            Node::Inner(_) => made.inner += 1,
        }
    }

    /// Frees the last leaf; the entries it had.
    fn free_last(&mut self, gone: &mut Made) -> usize {
        match self {
            Node::Leaf(entries) => {
                gone.leaves += 1;
                mem::replace(entries, nodes::empty()).len()
            }
            Node::Inner(children) => {
                let Some(last) = children.last_mut() else { return 0 };
                let freed = last.node.free_last(gone);
                last.len -= freed;
                if last.len == 0 {
                    gone.inner += usize::from(matches!(last.node, Node::Inner(_)));
                    children.pop();
                }
                freed
            }
        }
    }
}

/// Makes one of the nodes at `left` and behind it, if some room is left then.
fn join<T: Copy>(children: &mut Room<Child<T>>, left: usize, gone: &mut Made) {
    let ((fill, max), (other, _)) = (children[left].node.fill(), children[left + 1].node.fill());
    if fill + other > max / 4 * 3 {
        return;
    }
    let right = children.remove(left + 1);
    right.node.count_into(gone);
    let child = &mut children[left];
    child.len += right.len;
    match (&mut child.node, right.node) {
        (Node::Leaf(entries), Node::Leaf(others)) => entries.extend(others),
        (Node::Inner(nodes), Node::Inner(others)) => nodes.extend(others),
        // All leaves are equally deep.
        _ => debug_assert!(false, "neighbours of different kinds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(ranks: &Ranks<u32>, range: Range<usize>, reverse: bool) -> Vec<u32> {
        let mut all = Vec::new();
        let _ = ranks.visit(range, reverse, |entry| {
            all.push(*entry);
            ControlFlow::Continue(())
        });
        all
    }

    /// Counts nodes, and checks what inner nodes say of their children.
    fn check(node: &Node<u32>, made: &mut Made) {
        node.count_into(made);
        match node {
            Node::Leaf(entries) => assert!(entries.len() <= LEAF_MAX),
            Node::Inner(children) => {
                assert!(children.len() <= CHILDREN_MAX);
                for child in children {
                    assert_eq!(
                        (child.len, Some(&child.first)),
                        (child.node.len(), child.node.first())
                    );
                    assert!(child.len > 0);
                    check(&child.node, made);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn entries_have_the_ranks_that_a_sorted_vector_gives_them(
            steps in proptest::collection::vec((0..10u8, 0..3u8, any::<u16>()), 1..40),
        ) {
            let (mut ranks, mut model) = (Ranks::new(), Vec::<u32>::new());
            for (count, kind, start) in steps {
                for nth in 0..u32::from(count) * 60 {
                    let start = u32::from(start);
                    if kind == 2 && !model.is_empty() {
                        let rank = (start + 7 * nth) as usize % model.len();
                        prop_assert_eq!(ranks.remove(rank), Some(model.remove(rank)));
                        continue;
                    }
                    let entry = if kind == 0 { start + nth } else { (start * 31 + nth * 7919) % 65_536 };
                    if let Err(at) = model.binary_search(&entry) {
                        ranks.insert(entry, |other| *other < entry);
                        model.insert(at, entry);
                    }
                }
                let mut made = Made::default();
                check(&ranks.root, &mut made);
                prop_assert_eq!((ranks.leaves, ranks.inner), (made.leaves, made.inner));
                prop_assert_eq!(ranks.len(), model.len());
                prop_assert_eq!(&all(&ranks, 0..usize::MAX, false), &model);
                let (from, to) = (usize::from(start) % (model.len() + 1), model.len() / 2);
                let mut part: Vec<u32> = model.get(from..to).unwrap_or_default().to_vec();
                prop_assert_eq!(&all(&ranks, from..to, false), &part);
                part.reverse();
                prop_assert_eq!(all(&ranks, from..to, true), part);
                let bound = u32::from(start);
                let before = model.partition_point(|entry| *entry < bound);
                prop_assert_eq!(ranks.count_before(|entry| *entry < bound), before);
                prop_assert_eq!(ranks.get(before), model.get(before));
            }
            while !ranks.free_some(&mut 3) {
                let mut made = Made::default();
                check(&ranks.root, &mut made);
                prop_assert_eq!((ranks.leaves, ranks.inner), (made.leaves, made.inner));
            }
            prop_assert_eq!((ranks.len(), ranks.bytes()), (0, 0));
        }
    }

    #[test]
    fn what_is_added_in_order_fills_its_nodes() {
        let mut ranks = Ranks::new();
        for entry in 0..100_000 {
            ranks.insert(entry, |other| *other < entry);
        }
        assert!(ranks.leaves < 100_000 / LEAF_MAX + 2, "{}", ranks.leaves);
    }
}
