//! Clients to be told of one change: usually one or two, sometimes thousands.

use crate::invalidations::Client;
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use smallvec::SmallVec;

/// Number of clients that are searched one by one. With more, each read of a key with many readers
/// would cost more. Fewer would take more memory.
const FEW_MAX: usize = 32;

/// Number of bytes that a client takes in a list.
const FEW_COST: usize = 16;

/// Number of bytes that a client takes in a set.
const MANY_COST: usize = 48;

/// A set of clients.
#[derive(Clone, Debug)]
pub(crate) enum Readers {
    Few(SmallVec<[Client; 2]>),
    Many(Box<IndexSet<Client, RandomState>>),
}

impl Default for Readers {
    fn default() -> Self {
        Readers::Few(SmallVec::new())
    }
}

impl Readers {
    /// Creates a set of one client.
    pub(crate) fn of(client: Client) -> Self {
        Readers::Few(SmallVec::from_slice(&[client]))
    }

    /// Adds a client. Returns whether it is new.
    pub(crate) fn insert(&mut self, client: Client) -> bool {
        match self {
            Readers::Many(clients) => clients.insert(client),
            Readers::Few(clients) if clients.contains(&client) => false,
            Readers::Few(clients) if clients.len() < FEW_MAX => {
                clients.push(client);
                true
            }
            Readers::Few(clients) => {
                let all = clients.iter().copied().chain([client]);
                *self = Readers::Many(Box::new(all.collect()));
                true
            }
        }
    }

    /// Removes a client. Returns whether it was there.
    pub(crate) fn remove(&mut self, client: Client) -> bool {
        match self {
            Readers::Many(clients) => clients.swap_remove(&client),
            Readers::Few(clients) => match clients.iter().position(|other| *other == client) {
                Some(at) => clients.swap_remove(at) == client,
                None => false,
            },
        }
    }

    /// Keeps the clients for which `is_kept` is true.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(Client) -> bool) {
        match self {
            Readers::Many(clients) => clients.retain(|client| is_kept(*client)),
            Readers::Few(clients) => clients.retain(|client| is_kept(*client)),
        }
    }

    pub(crate) fn contains(&self, client: Client) -> bool {
        match self {
            Readers::Many(clients) => clients.contains(&client),
            Readers::Few(clients) => clients.contains(&client),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Readers::Many(clients) => clients.len(),
            Readers::Few(clients) => clients.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Client> + '_ {
        let (few, many) = match self {
            Readers::Few(clients) => (Some(clients.iter().copied()), None),
            Readers::Many(clients) => (None, Some(clients.iter().copied())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }

    /// Returns the approximate number of bytes that they take.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Readers::Few(clients) => clients.len() * FEW_COST,
            Readers::Many(clients) => clients.len() * MANY_COST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn few_and_many_are_the_same_set() {
        let (mut readers, mut model) = (Readers::default(), BTreeSet::new());
        let mut state = 5u64;
        for round in 0..4000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let client = state >> 33;
            let client = client % (2 + round / 20);
            match state >> 60 {
                0..=9 => assert_eq!(readers.insert(client), model.insert(client)),
                10..=14 => assert_eq!(readers.remove(client), model.remove(&client)),
                _ if round % 100 == 0 => {
                    readers.retain(|client| client % 3 != 0);
                    model.retain(|client| client % 3 != 0);
                }
                _ => assert_eq!(readers.contains(client), model.contains(&client)),
            }
            assert_eq!((readers.len(), readers.is_empty()), (model.len(), model.is_empty()));
        }
        assert!(matches!(readers, Readers::Many(_)), "{}", model.len());
        assert_eq!(readers.iter().collect::<BTreeSet<_>>(), model);
        let few = Readers::of(3);
        assert!(few.iter().eq([3]) && few.cost() < readers.cost());
    }
}
