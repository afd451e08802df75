use super::{Hashing, Name, SubscriptionKind};
use indexmap::{IndexMap, IndexSet};
use keyway_base::Time;

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub struct Subscriptions {
    /// By the number of the kind.
    names: [IndexSet<Name, Hashing>; 3],
    /// The request whose subscriptions are not confirmed yet. The client's next request waits for
    /// it.
    pub pending: Option<Box<Pending>>,
    /// Since when more is undelivered than the soft limit allows.
    pub over_soft_since: Option<Time>,
    /// True if the client does not keep up and is about to be closed. It gets nothing more.
    pub is_dropped: bool,
}

/// The outcome of one name of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has not confirmed it yet.
    Waiting,
    /// It is subscribed.
    Fine,
    /// It failed, with the complete error reply.
    Failed(Vec<u8>),
}

/// A subscribe request that waits for a server.
#[derive(Debug)]
pub struct Pending {
    /// The kind of its names.
    pub kind: SubscriptionKind,
    /// Index of its replies in the session's order.
    pub sequence: u32,
    /// When unconfirmed names fail.
    pub deadline: Time,
    /// The names of the request, in its order.
    names: Vec<Name>,
    /// The outcome of each of them.
    outcomes: IndexMap<Name, Outcome, Hashing>,
    /// Number of names that still wait.
    waiting: usize,
}

impl Pending {
    /// Creates a request for these names, with the known outcome of each name. Names that still
    /// wait at `deadline` fail.
    pub fn new(
        kind: SubscriptionKind,
        deadline: Time,
        names: Vec<Name>,
        mut outcome_of: impl FnMut(&Name) -> Outcome,
    ) -> Self {
        let mut outcomes = IndexMap::with_capacity_and_hasher(names.len(), Hashing::default());
        for name in &names {
            outcomes.entry(Name::clone(name)).or_insert_with(|| outcome_of(name));
        }
        let waiting = outcomes.values().filter(|it| **it == Outcome::Waiting).count();
        Pending { kind, sequence: 0, deadline, names, outcomes, waiting }
    }

    /// Notes the outcome of a name. Returns whether no name waits any more.
    pub fn settle(&mut self, name: &[u8], outcome: Outcome) -> bool {
        if let Some(slot) = self.outcomes.get_mut(name)
            && *slot == Outcome::Waiting
        {
            *slot = outcome;
            self.waiting -= 1;
        }
        self.is_settled()
    }

    /// Returns whether no name waits.
    pub fn is_settled(&self) -> bool {
        self.waiting == 0
    }

    /// Returns the names that wait, each once.
    pub fn waited_for(&self) -> impl Iterator<Item = &Name> {
        self.outcomes.iter().filter(|(_, it)| **it == Outcome::Waiting).map(|(name, _)| name)
    }

    /// Returns the names of the request in its order, repeated as in the request, with their
    /// outcomes.
    pub fn names(&self) -> impl Iterator<Item = (&Name, &Outcome)> {
        self.names.iter().map(|name| (name, &self.outcomes[name]))
    }
}

impl Subscriptions {
    /// Adds a name. Returns whether it is new.
    pub fn add(&mut self, kind: SubscriptionKind, name: &Name) -> bool {
        self.names[kind as usize].insert(Name::clone(name))
    }

    /// Removes a name. Returns whether it existed.
    pub fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.names[kind as usize].swap_remove(name)
    }

    /// Returns whether the client has subscribed to this name.
    pub fn contains(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.names[kind as usize].contains(name)
    }

    /// Returns every name of a kind.
    pub fn names(&self, kind: SubscriptionKind) -> impl ExactSizeIterator<Item = &Name> {
        self.names[kind as usize].iter()
    }

    /// Returns the number in a confirmation of this kind. Channels and patterns are counted
    /// together, shard channels separately.
    pub fn count_told(&self, kind: SubscriptionKind) -> usize {
        let count = |kind: SubscriptionKind| self.names[kind as usize].len();
        match kind {
            SubscriptionKind::Shard => count(SubscriptionKind::Shard),
            _ => count(SubscriptionKind::Channel) + count(SubscriptionKind::Pattern),
        }
    }

    /// Returns whether the client has subscriptions. With RESP2 it may then do little else.
    pub fn is_subscriber(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }

    /// Returns whether nothing is subscribed nor about to be.
    pub fn is_idle(&self) -> bool {
        !self.is_subscriber() && self.pending.is_none() && !self.is_dropped
    }
}
