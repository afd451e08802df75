use super::{Hashing, Name, SubscriptionKind};
use indexmap::{IndexMap, IndexSet};
use keyway_base::Time;

/// What one client has subscribed to.
#[derive(Debug, Default)]
pub struct Subscriptions {
    /// By the number of the kind.
    names: [IndexSet<Name, Hashing>; 3],
    /// The request whose subscriptions are not confirmed yet. The client's
    /// next request waits for it.
    pub pending: Option<Box<Pending>>,
    /// Since when more is undelivered than the soft bound allows.
    pub over_soft_since: Option<Time>,
    /// The client does not keep up and is about to be closed: it gets nothing
    /// more.
    pub is_dropped: bool,
}

/// What became of one name of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has not confirmed it yet.
    Waiting,
    /// It is subscribed.
    Fine,
    /// It cannot be: the error reply, whole.
    Failed(Vec<u8>),
}

/// A request to subscribe that waits for a server.
#[derive(Debug)]
pub struct Pending {
    /// To what.
    pub kind: SubscriptionKind,
    /// Place of its replies in the session's order.
    pub sequence: u32,
    /// When what is not confirmed fails.
    pub deadline: Time,
    /// The names of the request, in its order.
    names: Vec<Name>,
    /// The outcome of each of them.
    outcomes: IndexMap<Name, Outcome, Hashing>,
    /// How many of them are waited for.
    waiting: usize,
}

impl Pending {
    /// A request for these names, with what is known of each name. Whatever is still
    /// waited for at `deadline` fails.
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

    /// Notes what became of a name. Returns whether nothing is waited for any more.
    pub fn settle(&mut self, name: &[u8], outcome: Outcome) -> bool {
        if let Some(slot) = self.outcomes.get_mut(name)
            && *slot == Outcome::Waiting
        {
            *slot = outcome;
            self.waiting -= 1;
        }
        self.is_settled()
    }

    /// Returns whether nothing is waited for.
    pub fn is_settled(&self) -> bool {
        self.waiting == 0
    }

    /// The names that are waited for, each once.
    pub fn waited_for(&self) -> impl Iterator<Item = &Name> {
        self.outcomes.iter().filter(|(_, it)| **it == Outcome::Waiting).map(|(name, _)| name)
    }

    /// The names of the request in its order, each as often as it was named, with what became of it.
    pub fn names(&self) -> impl Iterator<Item = (&Name, &Outcome)> {
        self.names.iter().map(|name| (name, &self.outcomes[name]))
    }
}

impl Subscriptions {
    /// Adds a name; whether it is new.
    pub fn add(&mut self, kind: SubscriptionKind, name: &Name) -> bool {
        self.names[kind as usize].insert(Name::clone(name))
    }

    /// Removes a name; whether it was there.
    pub fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.names[kind as usize].swap_remove(name)
    }

    /// Whether the client has subscribed to this.
    pub fn contains(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.names[kind as usize].contains(name)
    }

    /// Every name of a kind.
    pub fn names(&self, kind: SubscriptionKind) -> impl ExactSizeIterator<Item = &Name> {
        self.names[kind as usize].iter()
    }

    /// The number a confirmation of this kind tells: channels and patterns are
    /// counted together, shard channels for themselves.
    pub fn count_told(&self, kind: SubscriptionKind) -> usize {
        let count = |kind: SubscriptionKind| self.names[kind as usize].len();
        match kind {
            SubscriptionKind::Shard => count(SubscriptionKind::Shard),
            _ => count(SubscriptionKind::Channel) + count(SubscriptionKind::Pattern),
        }
    }

    /// Whether the client has subscriptions: with RESP2 it may do little else.
    pub fn is_subscriber(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }

    /// Whether nothing is subscribed nor about to be.
    pub fn is_idle(&self) -> bool {
        !self.is_subscriber() && self.pending.is_none() && !self.is_dropped
    }
}
