use crate::heap::Memory;
use crate::nodes::{self, Node};
use std::ptr::NonNull;

/// Number of entries of a segment, 1 KiB. If it were larger, more would be wasted at the end of a
/// page. If it were smaller, the directory of segments would be too large for the caches.
const SEGMENT_LEN: usize = 16;
/// Size of an entry, in bytes: a cache line.
const LINE_LEN: usize = 64;

/// An array of cache lines that grows and shrinks without being moved as a whole. Its segments come
/// from the heap, and the first one grows by doubling. The owner must clear it before dropping it.
/// Otherwise its memory is lost.
pub struct Lines<T> {
    segments: Node<NonNull<T>>,
    len: usize,
    /// Number of entries for which the segments have room.
    capacity: u32,
    /// Number of bytes of the directory of segments. It is read with every write to a table, and
    /// computed when it changes.
    directory_len: u32,
}

// SAFETY: the segments are owned like a vector's memory.
unsafe impl<T: Send> Send for Lines<T> {}

impl<T: Copy> Default for Lines<T> {
    fn default() -> Self {
        Lines::new()
    }
}

impl<T: Copy> Lines<T> {
    /// Creates an empty array, which takes no memory.
    pub const fn new() -> Self {
        const { assert!(size_of::<T>() == LINE_LEN && align_of::<T>() <= LINE_LEN) };
        Self { segments: nodes::empty(), len: 0, capacity: 0, directory_len: 0 }
    }

    /// Returns the number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that it takes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.capacity as usize * LINE_LEN + self.directory_len as usize
    }

    #[inline]
    fn address(&self, index: usize) -> NonNull<T> {
        assert!(index < self.len);
        // SAFETY: every segment but the first has SEGMENT_LEN entries, the
        // first at least as many as there are, so the entry lies in its segment.
        unsafe { self.segments[index / SEGMENT_LEN].add(index % SEGMENT_LEN) }
    }

    /// Returns the address of an entry, to prefetch it.
    #[inline]
    pub fn place(&self, index: usize) -> *const T {
        self.address(index).as_ptr()
    }

    /// Returns the entry at `index`.
    ///
    /// # Panics
    /// Panics if there is no such entry.
    #[inline]
    pub fn get(&self, index: usize) -> &T {
        // SAFETY: entries below the length are initialised, and borrowed with
        // the array.
        unsafe { self.address(index).as_ref() }
    }

    /// Returns the entry at `index`, mutably.
    ///
    /// # Panics
    /// Panics if there is no such entry.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: entries below the length are initialised, and borrowed
        // mutably with the array.
        unsafe { self.address(index).as_mut() }
    }

    /// Appends an entry.
    pub fn push(&mut self, memory: Memory<'_>, value: T) {
        if self.len == self.capacity as usize {
            self.grow(memory);
        }
        self.len += 1;
        // SAFETY: the entry lies in its segment; nothing is dropped by
        // overwriting it.
        unsafe { self.address(self.len - 1).write(value) };
    }

    #[cold]
    fn grow(&mut self, memory: Memory<'_>) {
        if self.capacity == 0 {
            self.set_first(memory, 1);
        } else if self.capacity < SEGMENT_LEN as u32 {
            self.set_first(memory, self.capacity as usize * 2);
        } else {
            let segment = memory.heap.slot(memory.arena, SEGMENT_LEN * LINE_LEN);
            self.segments.push(segment.cast());
            self.capacity += SEGMENT_LEN as u32;
            self.note_directory();
        }
    }

    fn note_directory(&mut self) {
        self.directory_len = nodes::bytes(&self.segments) as u32;
    }

    /// Resizes the only segment for `capacity` entries.
    fn set_first(&mut self, memory: Memory<'_>, capacity: usize) {
        let new = memory.heap.slot(memory.arena, capacity * LINE_LEN).cast::<T>();
        if let Some(old) = self.segments.pop() {
            // SAFETY: both segments have room for the entries there are; the
            // old one is not used again.
            unsafe {
                new.copy_from_nonoverlapping(old, self.len);
                memory.heap.free_slot(old.cast());
            }
        }
        self.segments.push(new);
        self.capacity = capacity as u32;
        self.note_directory();
    }

    /// Removes and returns the last entry.
    pub fn pop(&mut self, memory: Memory<'_>) -> Option<T> {
        let value = *self.get(self.len.checked_sub(1)?);
        self.len -= 1;
        let capacity = self.capacity as usize;
        if capacity > SEGMENT_LEN && self.len <= capacity - SEGMENT_LEN {
            if let Some(segment) = self.segments.pop() {
                // SAFETY: no entry is left in the segment.
                unsafe { memory.heap.free_slot(segment.cast()) };
            }
            self.capacity -= SEGMENT_LEN as u32;
        } else if capacity <= SEGMENT_LEN && self.len <= capacity / 4 {
            match self.len {
                0 => self.clear(memory),
                len => self.set_first(memory, len.next_power_of_two()),
            }
        }
        Some(value)
    }

    /// Moves a segment from a sparse page to another. Returns whether it moved.
    pub fn compact(&mut self, memory: Memory<'_>, segment: usize) -> bool {
        let has_moved = segment == 0 && nodes::relocate(&mut self.segments);
        if has_moved {
            self.note_directory();
        }
        let Some(segment) = self.segments.get_mut(segment) else { return has_moved };
        // SAFETY: segments are live slots of the heap, known from here alone.
        unsafe {
            if !memory.heap.is_sparse(segment.cast()) {
                return has_moved;
            }
            *segment = memory.heap.relocate(memory.arena, segment.cast()).cast();
        }
        true
    }

    /// Returns the number of segments.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Removes all entries and frees the memory.
    pub fn clear(&mut self, memory: Memory<'_>) {
        for segment in std::mem::replace(&mut self.segments, nodes::empty()) {
            // SAFETY: the segment is not used again.
            unsafe { memory.heap.free_slot(segment.cast()) };
        }
        (self.len, self.capacity, self.directory_len) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;

    /// Checks that each segment has room for its entries, and that little more is taken than used.
    fn check_room(lines: &Lines<[u64; 8]>) {
        let room = lines.capacity as usize;
        assert_eq!(lines.segment_count(), room.div_ceil(SEGMENT_LEN));
        for segment in &lines.segments {
            // SAFETY: a segment is a live slot.
            let slot = unsafe { crate::slot_capacity(segment.cast()) };
            assert_eq!(slot, room.min(SEGMENT_LEN) * LINE_LEN);
        }
        assert_eq!(lines.bytes(), room * LINE_LEN + nodes::bytes(&lines.segments));
        let unused = room - lines.len();
        assert!(unused < SEGMENT_LEN && (room > SEGMENT_LEN || room <= 4 * lines.len()));
        for index in [0, lines.len().saturating_sub(1)].into_iter().filter(|_| !lines.is_empty()) {
            assert!(std::ptr::eq(lines.place(index), lines.get(index)));
        }
    }

    #[test]
    fn lines_agree_with_a_vector_and_give_their_memory_back() {
        let heap = Heap::new(1);
        let memory = Memory { heap: &heap, arena: 0 };
        let mut lines: Lines<[u64; 8]> = Lines::new();
        let mut model = Vec::new();
        let mut state = 5u64;
        let steps = if cfg!(miri) { 1000 } else { 20_000 };
        for step in 0..steps {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let grows = state >> 60 < if step < steps / 2 { 9 } else { 7 };
            let (before, room) = (lines.len(), lines.capacity as usize);
            if grows {
                lines.push(memory, [step; 8]);
                model.push([step; 8]);
            } else {
                assert_eq!(lines.pop(memory), model.pop());
            }
            // A short array moves when it is full, and when three quarters of it are unused.
            let is_kept = if grows { before < room } else { lines.len() > room / 4 };
            if room <= SEGMENT_LEN && is_kept {
                assert_eq!(lines.capacity as usize, room);
            }
            assert_eq!((lines.len(), lines.is_empty()), (model.len(), model.is_empty()));
            check_room(&lines);
            assert_eq!(heap.slot_bytes(), i64::from(lines.capacity) * LINE_LEN as i64);
            assert_eq!(lines.directory_len as usize, nodes::bytes(&lines.segments));
            if let Some(index) = model.len().checked_sub(1).map(|last| state as usize % (last + 1))
            {
                lines.get_mut(index)[1] = step;
                model[index][1] = step;
                assert_eq!(lines.get(index), &model[index]);
            }
        }
        while lines.pop(memory).is_some() {}
        assert_eq!(lines.bytes(), 0);
        lines.push(memory, [1; 8]);
        lines.clear(memory);
        assert_eq!((lines.bytes(), heap.slot_bytes()), (0, 0));
    }

    #[test]
    fn segments_on_sparse_pages_move_and_keep_their_entries() {
        let heap = Heap::new(1);
        let memory = Memory { heap: &heap, arena: 0 };
        let mut all: Vec<Lines<[u64; 8]>> = (0..200)
            .map(|nth| {
                let mut lines = Lines::new();
                (0..40).for_each(|at| lines.push(memory, [nth * 100 + at; 8]));
                lines
            })
            .collect();
        // A table of a few entries is left in each page.
        for (nth, lines) in all.iter_mut().enumerate() {
            if nth % 8 != 0 {
                lines.clear(memory);
                assert!(lines.is_empty() && lines.bytes() == 0 && !lines.compact(memory, 0));
            }
        }
        let (mut moved, mut stayed) = (0, 0);
        for (nth, lines) in all.iter_mut().enumerate().step_by(8) {
            assert_eq!(lines.segment_count(), 3);
            for segment in 0..4 {
                let places = lines.segments.clone();
                let directory = lines.segments.as_ptr();
                let has_moved = lines.compact(memory, segment);
                let is_elsewhere = lines.segments.as_ptr() != directory;
                let changed = places.iter().zip(&lines.segments).map(|(old, new)| old != new);
                let changed: Vec<usize> =
                    changed.enumerate().filter_map(|(at, is)| is.then_some(at)).collect();
                assert!(changed.iter().all(|at| *at == segment));
                assert!(!is_elsewhere || segment == 0);
                assert_eq!(has_moved, is_elsewhere || !changed.is_empty());
                moved += changed.len();
                stayed += usize::from(!has_moved);
                check_room(lines);
            }
            for at in 0..40 {
                assert_eq!(lines.get(at), &[nth as u64 * 100 + at as u64; 8]);
            }
        }
        assert!(moved > 20 && stayed > 25, "{moved} moved, {stayed} stayed");
    }

    #[cfg_attr(miri, ignore = "millions of entries")]
    #[test]
    fn only_the_first_segment_brings_the_directory_along() {
        // A directory of 500 segments takes 4,096 bytes.
        let heap = Heap::new(1);
        let memory = Memory { heap: &heap, arena: 0 };
        let mut all: Vec<Lines<[u64; 8]>> = (0..60)
            .map(|_| {
                let mut lines = Lines::new();
                (0..500 * SEGMENT_LEN as u64).for_each(|at| lines.push(memory, [at; 8]));
                lines
            })
            .collect();
        for lines in all.iter_mut().enumerate().filter(|(nth, _)| nth % 5 != 0) {
            lines.1.clear(memory);
        }
        let mut moved = 0;
        for lines in all.iter_mut().step_by(5) {
            let directory = lines.segments.as_ptr();
            lines.compact(memory, 1);
            assert_eq!(lines.segments.as_ptr(), directory);
            lines.compact(memory, 0);
            moved += usize::from(lines.segments.as_ptr() != directory);
            assert!(lines.get(8_000 - 1) == &[7_999; 8] && lines.get(3) == &[3; 8]);
        }
        assert!(moved > 0);
    }
}
