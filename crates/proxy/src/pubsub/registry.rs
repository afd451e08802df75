use super::{Hashing, SubscriptionKind};
use indexmap::{IndexMap, IndexSet};
use keyway_base::glob;
use std::hash::Hash;
use std::sync::Arc;

/// The name of a channel, or a pattern. All holders share it.
pub type Name = Arc<[u8]>;

type Subscribers<K> = IndexSet<K, Hashing>;

/// The subscribers of each name.
#[derive(Debug)]
pub struct Registry<K> {
    /// By the number of the kind.
    names: [IndexMap<Name, Subscribers<K>, Hashing>; 3],
}

impl<K> Default for Registry<K> {
    fn default() -> Self {
        Self { names: Default::default() }
    }
}

impl<K: Copy + Eq + Hash> Registry<K> {
    /// Adds a subscriber. Returns whether it is the first of this name.
    pub fn add(&mut self, kind: SubscriptionKind, name: &Name, who: K) -> bool {
        let names = &mut self.names[kind as usize];
        if let Some(subscribers) = names.get_mut(&**name) {
            subscribers.insert(who);
            return false;
        }
        let mut subscribers = Subscribers::default();
        subscribers.insert(who);
        names.insert(Arc::clone(name), subscribers);
        true
    }

    /// Removes a subscriber. Returns whether it was the last of this name.
    pub fn remove(&mut self, kind: SubscriptionKind, name: &[u8], who: K) -> bool {
        let names = &mut self.names[kind as usize];
        let Some(subscribers) = names.get_mut(name) else { return false };
        subscribers.swap_remove(&who);
        let is_last = subscribers.is_empty();
        if is_last {
            names.swap_remove(name);
        }
        is_last
    }

    /// Returns the subscribers of exactly this name.
    #[inline]
    pub fn subscribers(&self, kind: SubscriptionKind, name: &[u8]) -> impl Iterator<Item = K> {
        self.names[kind as usize].get(name).into_iter().flatten().copied()
    }

    /// Returns the patterns that match `channel`.
    pub fn matching<'a>(&'a self, channel: &'a [u8]) -> impl Iterator<Item = &'a Name> + 'a {
        self.names(SubscriptionKind::Pattern).filter(|pattern| glob::matches(pattern, channel))
    }

    /// Returns every name of a kind with subscribers.
    pub fn names(&self, kind: SubscriptionKind) -> impl ExactSizeIterator<Item = &Name> {
        self.names[kind as usize].keys()
    }

    /// Returns whether there are no subscribers.
    pub fn is_empty(&self) -> bool {
        self.names.iter().all(IndexMap::is_empty)
    }

    /// Returns whether this name has subscribers.
    pub fn contains(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.names[kind as usize].contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SubscriptionKind::{Channel, Pattern, Shard};

    fn name(text: &str) -> Name {
        Name::from(text.as_bytes())
    }

    #[test]
    fn the_first_and_the_last_of_a_name_are_told_apart_from_the_others() {
        let mut registry = Registry::default();
        assert!(registry.add(Channel, &name("a"), 1));
        assert!(!registry.add(Channel, &name("a"), 1), "again");
        assert!(!registry.add(Channel, &name("a"), 2));
        assert!(registry.add(Shard, &name("a"), 2), "a name space of its own");
        assert_eq!(registry.subscribers(Channel, b"a").collect::<Vec<_>>(), [1, 2]);
        assert!(!registry.remove(Channel, b"a", 3), "it never subscribed");
        assert!(!registry.remove(Channel, b"a", 1));
        assert!(registry.remove(Channel, b"a", 2));
        assert!(!registry.remove(Channel, b"a", 2));
        assert!(!registry.is_empty());
        assert!(registry.remove(Shard, b"a", 2));
        assert!(registry.is_empty());
    }

    #[test]
    fn only_patterns_match_by_pattern() {
        let mut registry = Registry::default();
        registry.add(Channel, &name("n*"), 1);
        registry.add(Pattern, &name("n*"), 1);
        registry.add(Pattern, &name("*s"), 1);
        registry.add(Pattern, &name("x"), 1);
        let matching: Vec<_> = registry.matching(b"news").cloned().collect();
        assert_eq!(matching, [name("n*"), name("*s")]);
    }
}
