//! Memory for the nodes of large collections: the runs of lists, the leaves of trees, the blocks of
//! streams. It comes from pages, like that of items. So the idle memory of pages is known, nodes
//! can be moved from sparse pages, and empty pages are returned to the system.
//!
//! Nodes free themselves wherever they are dropped. So there is one heap for the process, and the
//! stores share its idle memory (`resident.rs`).

use crate::heap::{Heap, SLOT_LEN_MAX, block_len};
use allocator_api2::alloc::{AllocError, Allocator};
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest number of arenas. Each holds a page of every size in use.
const ARENAS_MAX: usize = 8;
/// Alignment of the heap's slots.
const ALIGN_MAX: usize = 8;

static HEAP: LazyLock<Heap> = LazyLock::new(|| Heap::new(arena_count()));
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The arena of this thread, once it has one.
    static ARENA: Cell<Option<usize>> = const { Cell::new(None) };
}

fn arena_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(ARENAS_MAX)
}

/// Returns the arena from which this thread takes nodes.
fn arena() -> usize {
    // The number of arenas comes from the heap, because the processors of a thread can change.
    let next = || THREADS.fetch_add(1, Ordering::Relaxed) % HEAP.arena_count();
    // A thread that ends, and has no arena any more, uses any.
    let kept = ARENA.try_with(|kept| {
        kept.get().unwrap_or_else(|| {
            let arena = next();
            kept.set(Some(arena));
            arena
        })
    });
    kept.unwrap_or(0)
}

/// Returns the heap of all nodes.
pub fn heap() -> &'static Heap {
    &HEAP
}

/// Returns the bytes that a node for `len` bytes takes.
pub const fn node_len(len: usize) -> usize {
    if len == 0 { 0 } else { block_len(len) }
}

/// Returns the largest length of a node that takes no more than one of `len` bytes.
pub const fn node_room(len: usize) -> usize {
    if len <= SLOT_LEN_MAX { block_len(len) } else { len }
}

/// The allocator of nodes.
#[derive(Clone, Copy, Default)]
pub struct Nodes;

/// A node: a vector with memory of its own.
pub type Node<T> = Vec<T, Nodes>;

// SAFETY: a block is the caller's alone until given back, wherever the value of `Nodes` is;
// the length of a layout alone tells where its block came from.
unsafe impl Allocator for Nodes {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let len = layout.size();
        if layout.align() > ALIGN_MAX {
            return Err(AllocError);
        }
        if len == 0 {
            return Ok(NonNull::slice_from_raw_parts(NonNull::<u64>::dangling().cast(), 0));
        }
        let block = if len <= SLOT_LEN_MAX { HEAP.slot(arena(), len) } else { HEAP.large(len) };
        Ok(NonNull::slice_from_raw_parts(block, len))
    }

    /// # Safety
    /// As in the trait: `block` must come from `allocate` of any `Nodes` with this layout, and must
    /// not be used again.
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: by contract the block came from `allocate` with this layout.
        unsafe {
            match layout.size() {
                0 => {}
                1..=SLOT_LEN_MAX => _ = HEAP.free_slot(block),
                _ => _ = HEAP.free_large(block),
            }
        }
    }

    /// # Safety
    /// As in the trait: the conditions of `deallocate` apply, and `new` must not be shorter than
    /// `old`.
    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: by contract.
        unsafe { self.resize(block, old, new) }
    }

    /// # Safety
    /// As in the trait: the conditions of `deallocate` apply, and `new` must not be longer than
    /// `old`.
    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: by contract.
        unsafe { self.resize(block, old, new) }
    }
}

impl Nodes {
    /// Moves a block to one of another length. The longest ones may stay where they are.
    ///
    /// # Safety
    /// The conditions of `deallocate` apply.
    unsafe fn resize(
        self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: by contract; both blocks have room for what is copied.
        unsafe {
            if old.size() > SLOT_LEN_MAX && new.size() > SLOT_LEN_MAX && new.align() <= ALIGN_MAX {
                let moved = HEAP.resize_large(block, new.size());
                return Ok(NonNull::slice_from_raw_parts(moved, new.size()));
            }
            let moved = self.allocate(new)?;
            let kept = old.size().min(new.size());
            moved.cast::<u8>().copy_from_nonoverlapping(block, kept);
            self.deallocate(block, old);
            Ok(moved)
        }
    }
}

/// A node for one value.
pub type NodeBox<T> = Box<T, Nodes>;

/// Returns a node with a value.
pub fn boxed<T>(value: T) -> NodeBox<T> {
    Box::new_in(value, Nodes)
}

/// Returns an empty node, which takes no memory.
pub const fn empty<T>() -> Node<T> {
    Vec::new_in(Nodes)
}

/// Returns a node with a copy of some bytes.
pub fn copy_of(bytes: &[u8]) -> Node<u8> {
    let mut node = Vec::with_capacity_in(bytes.len(), Nodes);
    append(&mut node, bytes);
    node
}

/// Appends bytes to a node.
pub fn append(node: &mut Node<u8>, bytes: &[u8]) {
    let at = node.len();
    node.resize(at + bytes.len(), 0);
    node[at..].copy_from_slice(bytes);
}

/// Returns the bytes that a node takes.
pub fn bytes<T>(node: &Node<T>) -> usize {
    node_len(node.capacity() * size_of::<T>())
}

/// Moves a node if it is on a page that should become empty. Returns whether it was moved.
pub fn relocate<T>(node: &mut Node<T>) -> bool {
    let len = node.capacity() * size_of::<T>();
    if len == 0 || len > SLOT_LEN_MAX {
        return false;
    }
    let start = NonNull::new(node.as_mut_ptr());
    // SAFETY: a node of this length is a live slot of the heap.
    let is_sparse = start.is_some_and(|start| unsafe { HEAP.is_sparse(start.cast()) });
    if is_sparse {
        let mut moved = Vec::with_capacity_in(node.capacity(), Nodes);
        moved.append(node);
        *node = moved;
    }
    is_sparse
}

/// Moves a boxed value like [`relocate`].
pub fn relocate_boxed<T>(boxed: NodeBox<T>) -> (NodeBox<T>, bool) {
    if size_of::<T>() == 0 || size_of::<T>() > SLOT_LEN_MAX {
        return (boxed, false);
    }
    let start = Box::into_raw(boxed);
    // SAFETY: it is the box from above again; a value of this length is in a live slot
    // of the heap.
    let (boxed, is_sparse) = unsafe {
        (Box::from_raw_in(start, Nodes), HEAP.is_sparse(NonNull::new_unchecked(start).cast()))
    };
    if is_sparse { (self::boxed(Box::into_inner(boxed)), true) } else { (boxed, false) }
}

/// Returns the bytes that a boxed value takes.
pub const fn boxed_len<T>() -> usize {
    node_len(size_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_node_shrinks_to_nothing_and_grows_again() {
        let mut node = copy_of(b"bytes");
        node.clear();
        node.shrink_to_fit();
        assert_eq!(bytes(&node), 0);
        append(&mut node, b"others");
        assert_eq!(&*node, b"others");
    }

    #[test]
    fn a_node_keeps_what_is_in_it_when_it_grows_shrinks_and_moves() {
        let mut node: Node<u64> = empty();
        for value in 0..40_000 {
            node.push(value);
            if value % 5 == 0 {
                relocate(&mut node);
            }
        }
        node.truncate(300);
        node.shrink_to_fit();
        assert!(bytes(&node) >= 2400 && bytes(&node) <= 2700, "{}", bytes(&node));
        relocate(&mut node);
        assert!(node.iter().copied().eq(0..300));
    }

    #[test]
    fn nodes_on_sparse_pages_move_with_what_is_in_them() {
        // They take 1,408 bytes each, a length that nothing else in this process has.
        let mut all: Vec<Node<u64>> = Vec::new();
        let mut boxes: Vec<NodeBox<[u64; 176]>> = Vec::new();
        for nth in 0..400 {
            let mut node = Vec::with_capacity_in(176, Nodes);
            node.push(nth);
            all.push(node);
            boxes.push(boxed([nth; 176]));
        }
        assert_eq!((bytes(&all[0]), boxed_len::<[u64; 176]>()), (1_408, 1_408));
        let mut nth = 0;
        let mut is_kept = || {
            nth += 1;
            nth % 6 == 0
        };
        all.retain(|_| is_kept());
        boxes.retain(|_| is_kept());
        let (mut moved, mut stayed) = ([0; 2], [0; 2]);
        for node in &mut all {
            let (place, first, room) = (node.as_ptr(), node[0], node.capacity());
            let is_moved = relocate(node);
            assert_eq!(node.as_ptr() != place, is_moved);
            assert_eq!((&node[..], node.capacity()), (&[first][..], room));
            moved[0] += usize::from(is_moved);
            stayed[0] += usize::from(!is_moved);
        }
        for value in boxes {
            let (place, first) = (&raw const *value, value[0]);
            let (value, is_moved) = relocate_boxed(value);
            assert_eq!(&raw const *value != place, is_moved);
            assert!(value.iter().all(|it| *it == first));
            moved[1] += usize::from(is_moved);
            stayed[1] += usize::from(!is_moved);
        }
        assert!(moved.iter().chain(&stayed).all(|count| *count > 0), "{moved:?} {stayed:?}");
    }

    #[test]
    fn nodes_of_the_longest_slots_move_and_longer_ones_stay() {
        type Longest = [u8; SLOT_LEN_MAX];
        type Longer = [u8; SLOT_LEN_MAX + 1];
        let (mut nodes, mut boxes) = (Vec::<Node<u8>>::new(), Vec::<NodeBox<Longest>>::new());
        for _ in 0..90 {
            nodes.push(Vec::with_capacity_in(SLOT_LEN_MAX, Nodes));
            boxes.push(boxed([3; SLOT_LEN_MAX]));
        }
        let mut nth = 0;
        let mut is_kept = || {
            nth += 1;
            nth % 4 == 0
        };
        nodes.retain(|_| is_kept());
        boxes.retain(|_| is_kept());
        assert!(nodes.iter_mut().any(relocate));
        assert!(boxes.into_iter().any(|it| relocate_boxed(it).1));
        assert!(!relocate(&mut Vec::<u8, _>::with_capacity_in(SLOT_LEN_MAX + 1, Nodes)));
        assert!(!relocate(&mut empty::<u8>()));
        let (longer, is_moved) = relocate_boxed(boxed::<Longer>([4; SLOT_LEN_MAX + 1]));
        assert!(!is_moved && longer.iter().all(|byte| *byte == 4));
        assert!(!relocate_boxed(boxed(())).1);
    }

    #[test]
    fn threads_take_nodes_from_all_arenas_in_turn() {
        let count = HEAP.arena_count();
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(count, all.min(ARENAS_MAX));
        // These are more threads than other tests start meanwhile.
        let mut seen = vec![false; count];
        for _ in 0..64 * count {
            let (first, again) =
                std::thread::spawn(|| (arena(), arena())).join().expect("no panic");
            assert_eq!(first, again);
            seen[first] = true;
        }
        assert!(seen.iter().all(|is_seen| *is_seen), "{seen:?}");
    }

    #[test]
    fn a_node_takes_what_its_block_takes_and_may_use_all_of_a_slot() {
        assert_eq!((node_len(0), boxed_len::<()>()), (0, 0));
        for len in [1, 8, 9, 65, 1_000, SLOT_LEN_MAX] {
            assert_eq!(node_len(len), block_len(len));
            assert_eq!((node_room(len), node_len(node_room(len))), (block_len(len), node_len(len)));
        }
        assert_eq!(node_room(SLOT_LEN_MAX + 1), SLOT_LEN_MAX + 1);
        assert_eq!(boxed_len::<[u8; 9]>(), 16);
    }

    #[test]
    fn a_node_that_grows_and_shrinks_leaves_no_block_behind() {
        // 1,664 and 7,168 bytes, and one byte more than any slot has.
        let lens = [1_664, SLOT_LEN_MAX, SLOT_LEN_MAX + 1];
        let mut node = copy_of(&[5; 1_664]);
        assert_eq!(&*node, &[5; 1_664]);
        let mut places = [(); 3].map(|()| std::collections::BTreeSet::new());
        for round in 0..300 {
            let turn = round % 4;
            let at = if turn == 3 { 1 } else { turn };
            let more = lens[at].saturating_sub(node.len());
            append(&mut node, &[5; SLOT_LEN_MAX + 1][..more]);
            node.truncate(lens[at]);
            node.shrink_to_fit();
            assert!(node.capacity() == lens[at] && node.iter().all(|byte| *byte == 5));
            places[at].insert(node.as_ptr());
        }
        assert!(places.iter().all(|places| places.len() < 30), "blocks are used again");
    }

    #[test]
    fn the_longest_nodes_grow_without_a_second_block() {
        let mut node: Node<u64> = empty();
        (0..500_000).for_each(|value| node.push(value));
        node.reserve_exact(1_000_000);
        node.shrink_to_fit();
        assert_eq!(heap().discarded_bytes(), 0);
        assert!(node.iter().copied().eq(0..500_000));
    }
}
