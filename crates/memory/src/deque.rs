//! A deque in the memory of nodes (`nodes.rs`). The standard library's takes memory from the C
//! library. It consists of two vectors. The front one is in reverse order.

use crate::nodes::{self, Node};
use std::ops::{Index, IndexMut};

/// Unused capacity above which a mostly empty vector frees some.
const ROOM_MIN: usize = 16;

/// A queue with cheap insertions and removals at both ends. Insertions in between are possible.
#[derive(Clone)]
pub struct Deque<T> {
    /// The first elements. The very first is at its end.
    front: Node<T>,
    back: Node<T>,
}

impl<T> Default for Deque<T> {
    fn default() -> Self {
        Self { front: nodes::empty(), back: nodes::empty() }
    }
}

impl<T> Deque<T> {
    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.front.len() + self.back.len()
    }

    /// Returns whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that it takes.
    pub fn bytes(&self) -> usize {
        nodes::bytes(&self.front) + nodes::bytes(&self.back)
    }

    /// Returns the element at an index, counted from the front.
    pub fn get(&self, index: usize) -> Option<&T> {
        match self.front.len().checked_sub(index + 1) {
            Some(at) => self.front.get(at),
            None => self.back.get(index - self.front.len()),
        }
    }

    /// Returns the element at an index, mutably.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match self.front.len().checked_sub(index + 1) {
            Some(at) => self.front.get_mut(at),
            None => self.back.get_mut(index - self.front.len()),
        }
    }

    /// Returns the last element.
    pub fn last(&self) -> Option<&T> {
        self.back.last().or_else(|| self.front.first())
    }

    /// Returns the elements in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.front.iter().rev().chain(&self.back)
    }

    #[inline]
    /// Appends an element.
    pub fn push_back(&mut self, value: T) {
        self.back.push(value);
    }

    #[inline]
    /// Removes and returns the first element.
    pub fn pop_front(&mut self) -> Option<T> {
        if self.front.is_empty() {
            self.share_back();
        }
        let value = self.front.pop();
        trim(&mut self.front);
        value
    }

    /// Removes and returns the last element.
    pub fn pop_back(&mut self) -> Option<T> {
        let value = self.back.pop();
        trim(&mut self.back);
        value.or_else(|| self.remove(self.front.len().checked_sub(1)?))
    }

    /// Inserts an element before the one at `index`, which must not exceed the length.
    pub fn insert(&mut self, index: usize, value: T) {
        let front = self.front.len();
        let is_in_front = index < front || index == front && front <= self.back.len();
        match is_in_front {
            true => self.front.insert(front - index, value),
            false => self.back.insert(index - front, value),
        }
    }

    /// Removes and returns the element at an index, if there is one.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        if index >= self.len() {
            return None;
        }
        if index == 0 {
            return self.pop_front();
        }
        let front = self.front.len();
        let (vector, at) = match front.checked_sub(index + 1) {
            Some(at) => (&mut self.front, at),
            None => (&mut self.back, index - front),
        };
        let value = vector.remove(at);
        trim(vector);
        Some(value)
    }

    /// Moves the vectors that are on pages which should become empty. Returns how many were moved.
    pub fn relocate(&mut self) -> u64 {
        u64::from(nodes::relocate(&mut self.front)) + u64::from(nodes::relocate(&mut self.back))
    }

    /// Moves half of the back vector to the front one, which is empty. In a queue each element is
    /// moved once on average.
    #[cold]
    fn share_back(&mut self) {
        let half = self.back.len().div_ceil(2);
        self.front.reserve_exact(half);
        self.front.extend(self.back.drain(..half).rev());
        trim(&mut self.back);
    }
}

/// Frees capacity that is hardly used.
#[inline]
fn trim<T>(vector: &mut Node<T>) {
    if vector.capacity() > 4 * vector.len() + ROOM_MIN {
        vector.shrink_to(2 * vector.len());
    }
}

impl<T> Index<usize> for Deque<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        self.get(index).expect("an element that is there")
    }
}

impl<T> IndexMut<usize> for Deque<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.get_mut(index).expect("an element that is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::vec::Vec as NodeVec;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn it_does_what_that_of_the_standard_library_does(
            steps in proptest::collection::vec((0..6u8, any::<usize>()), 1..400),
        ) {
            let (mut deque, mut model) = (Deque::default(), VecDeque::new());
            for (number, (step, place)) in steps.into_iter().enumerate() {
                let (value, count) = (Box::new(number), model.len());
                match step {
                    0 => (0..place % 40).for_each(|nth| {
                        deque.push_back(Box::new(nth));
                        model.push_back(Box::new(nth));
                    }),
                    1 => for _ in 0..place % 20 {
                        prop_assert_eq!(deque.pop_front(), model.pop_front());
                    },
                    2 => prop_assert_eq!(deque.pop_back(), model.pop_back()),
                    3 => {
                        deque.insert(place % (count + 1), value.clone());
                        model.insert(place % (count + 1), value);
                    }
                    4 => prop_assert_eq!(
                        deque.remove(place % (count + 1)),
                        model.remove(place % (count + 1))
                    ),
                    _ => (0..place % 10).for_each(|_| {
                        deque.insert(0, value.clone());
                        model.push_front(value.clone());
                    }),
                }
                prop_assert_eq!(deque.len(), model.len());
                prop_assert_eq!(deque.is_empty(), model.is_empty());
                prop_assert!(deque.iter().eq(model.iter()));
                prop_assert!(deque.iter().rev().eq(model.iter().rev()));
                prop_assert_eq!(deque.last(), model.back());
                let at = place % (model.len() + 2);
                prop_assert_eq!(deque.get(at), model.get(at));
                prop_assert_eq!(deque.get_mut(at), model.get_mut(at));
                let room = deque.front.capacity() + deque.back.capacity();
                prop_assert_eq!(deque.bytes() >= room * size_of::<Box<usize>>(), true);
                deque.relocate();
            }
        }
    }

    #[test]
    fn it_takes_as_much_memory_as_it_has_elements() {
        let mut queue = Deque::default();
        for value in 0..100_000u32 {
            queue.push_back(value);
            if value >= 1000 {
                assert_eq!(queue.pop_front(), Some(value - 1000));
            }
        }
        assert!(queue.bytes() < 16 << 10, "{}", queue.bytes());
        while queue.pop_back().is_some() {}
        assert!(queue.bytes() < 256, "{}", queue.bytes());
    }

    #[test]
    fn an_element_at_the_seam_goes_to_the_shorter_vector() {
        for (front, back) in [(3, 5), (5, 3), (4, 4)] {
            let mut deque = Deque::default();
            (0..front).for_each(|value| deque.front.push(value));
            (0..back).for_each(|value| deque.back.push(value));
            deque.insert(front, 9);
            let grown = (deque.front.len() - front, deque.back.len() - back);
            assert_eq!(grown, if front <= back { (1, 0) } else { (0, 1) });
            assert_eq!(deque[front], 9);
        }
    }

    #[test]
    fn room_is_given_back_once_most_of_it_is_unused() {
        for (capacity, len) in (0..80).flat_map(|room| (0..=room).map(move |len| (room, len))) {
            let mut vector: Node<u64> = NodeVec::with_capacity_in(capacity, nodes::Nodes);
            vector.extend(0..len as u64);
            trim(&mut vector);
            let is_unused = capacity > 4 * len + ROOM_MIN;
            assert_eq!(vector.capacity(), if is_unused { 2 * len } else { capacity });
            assert!(vector.iter().copied().eq(0..len as u64));
        }
    }

    #[test]
    fn vectors_on_sparse_pages_move_and_are_counted() {
        // Both vectors take 2,560 bytes, a length that nothing else in this process has.
        let mut deques: Vec<Deque<u64>> = Vec::new();
        for _ in 0..200 {
            let mut deque = Deque::default();
            deque.front.reserve_exact(320);
            deque.back.reserve_exact(320);
            deque.front.extend((0..3).rev());
            deque.back.extend(3..6);
            assert_eq!(deque.bytes(), 2 * 2_560);
            deques.push(deque);
        }
        let mut nth = 0;
        deques.retain(|_| {
            nth += 1;
            nth % 5 == 0
        });
        let (mut moved, mut seen) = (0, [0; 3]);
        for deque in &mut deques {
            let places = [deque.front.as_ptr(), deque.back.as_ptr()];
            let count = deque.relocate();
            let changed = [deque.front.as_ptr() != places[0], deque.back.as_ptr() != places[1]];
            assert_eq!(count, changed.map(u64::from).iter().sum::<u64>());
            assert!(deque.iter().copied().eq(0..6));
            moved += count;
            seen[count as usize] += 1;
        }
        assert!(moved > 20 && seen[0] > 0, "{seen:?}");
    }

    #[test]
    fn room_is_given_back_whichever_way_elements_leave() {
        for way in 0..4 {
            let mut deque = Deque::default();
            (0..1_000).for_each(|value| deque.push_back(value));
            (0..1_000).for_each(|value| deque.insert(0, value));
            while !deque.is_empty() {
                let (len, middle) = (deque.len(), deque.front.len());
                let taken = match way {
                    0 => deque.pop_front(),
                    1 => deque.pop_back(),
                    2 => deque.remove(1.min(len - 1)),
                    _ => deque.remove(middle.min(len - 1)),
                };
                assert!(taken.is_some());
                for vector in [&deque.front, &deque.back] {
                    let (room, len) = (vector.capacity(), vector.len());
                    assert!(room <= 4 * len + ROOM_MIN, "{room} for {len}, way {way}");
                }
            }
        }
    }
}
