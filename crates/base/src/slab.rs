use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// Names one entry of a [`Slab`]: position plus generation. A key kept after its entry was removed
/// never reaches the entry that took its place.
pub struct Key<T> {
    index: u32,
    generation: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    /// A key that no slab ever returns.
    pub const NONE: Key<T> = Key { index: u32::MAX, generation: 0, of: PhantomData };

    /// Rebuilds a key from [`Key::to_bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Key { index: bits as u32, generation: (bits >> 32) as u32, of: PhantomData }
    }

    /// Returns the key as one word, for interfaces that carry only integers (such as an epoll user
    /// word).
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Returns the position in the slab. It is unique only together with the generation.
    pub const fn index(self) -> u32 {
        self.index
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Key<T> {}
impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}
impl<T> Eq for Key<T> {}
impl<T> Hash for Key<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_bits().hash(state);
    }
}
impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}v{}", self.index, self.generation)
    }
}

/// Generations have 29 bits, so that a key fits a word with three bits left for its carrier (a
/// socket's token). Zero is never used.
const GENERATION_MAX: u32 = (1 << 29) - 1;

fn next_generation(generation: u32) -> u32 {
    if generation == GENERATION_MAX { 1 } else { generation + 1 }
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Entries owned by one worker, addressed by generation-checked [`Key`]s. Insertion and removal are
/// O(1). A vacated position is used again.
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// Creates an empty slab, which allocates on first use.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new() }
    }

    /// Returns the number of live entries.
    pub fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    /// Returns whether there is no live entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores the value that `make` builds from its own key.
    pub fn insert_with(&mut self, make: impl FnOnce(Key<T>) -> T) -> Key<T> {
        let index = match self.vacant.pop() {
            Some(index) => index,
            None => {
                assert!(self.entries.len() < u32::MAX as usize, "slab is full");
                self.entries.push(Entry { generation: 1, value: None });
                self.entries.len() as u32 - 1
            }
        };
        let entry = &mut self.entries[index as usize];
        let key = Key { index, generation: entry.generation, of: PhantomData };
        entry.value = Some(make(key));
        key
    }

    /// Stores `value`.
    pub fn insert(&mut self, value: T) -> Key<T> {
        self.insert_with(|_| value)
    }

    /// Returns the entry, unless it has been removed.
    #[inline]
    pub fn get(&self, key: Key<T>) -> Option<&T> {
        match self.entries.get(key.index as usize) {
            Some(entry) if entry.generation == key.generation => entry.value.as_ref(),
            _ => None,
        }
    }

    /// Returns the entry, unless it has been removed.
    #[inline]
    pub fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        match self.entries.get_mut(key.index as usize) {
            Some(entry) if entry.generation == key.generation => entry.value.as_mut(),
            _ => None,
        }
    }

    /// Takes the entry out. Its key is stale from then on.
    pub fn remove(&mut self, key: Key<T>) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = next_generation(entry.generation);
        self.vacant.push(key.index);
        Some(value)
    }

    /// Live entries with their keys, by position.
    pub fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let key = Key { index: index as u32, generation: entry.generation, of: PhantomData };
            entry.value.as_ref().map(|value| (key, value))
        })
    }

    /// Returns the live entries with their keys, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key<T>, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(index, entry)| {
            let key = Key { index: index as u32, generation: entry.generation, of: PhantomData };
            entry.value.as_mut().map(|value| (key, value))
        })
    }

    /// Returns the keys of the live entries, by position. They are collected so that the slab may
    /// be changed while they are visited.
    pub fn keys(&self) -> Vec<Key<T>> {
        self.iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn stale_key_never_reaches_the_successor() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(first.index(), second.index());
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.get(Key::NONE), None);
    }

    #[test]
    fn slab_agrees_with_a_map() {
        let mut slab = Slab::new();
        let mut model: BTreeMap<u64, u32> = BTreeMap::new();
        let mut keys = Vec::new();
        let mut state = 7u64;
        for step in 0..20_000u32 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (state >> 33) as usize;
            if !pick.is_multiple_of(3) || keys.is_empty() {
                let key = slab.insert(step);
                model.insert(key.to_bits(), step);
                keys.push(key);
            } else {
                let key = keys[pick % keys.len()];
                assert_eq!(slab.remove(key), model.remove(&key.to_bits()));
            }
            assert_eq!(slab.len(), model.len());
        }
        for key in keys {
            assert_eq!(slab.get(key).copied(), model.get(&key.to_bits()).copied());
        }
    }
}
