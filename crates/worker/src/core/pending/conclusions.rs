//! What follows when every server has answered a request that was sent everywhere.

use crate::core::Plane;
use crate::core::pools::servers::info::Report;
use crate::core::pools::servers::scripts::Loads;
use keyway_base::Key;
use keyway_proxy::{Join, Operation};
use std::collections::BTreeMap;

/// What follows when every server has answered.
pub(in crate::core) enum Conclusion {
    /// What was to be loaded or forgotten.
    Loads(Loads),
    /// Elements that are one whatever they say.
    Certain(Vec<bool>),
    /// Make one text of them.
    Report(Box<Report>),
}

/// The conclusions of requests that are on their way everywhere.
#[derive(Default)]
pub(in crate::core::pending) struct Conclusions {
    /// That of the request that is about to be sent.
    next: Option<Conclusion>,
    /// Those of joins, by their key.
    of_joins: BTreeMap<u64, Conclusion>,
}

impl Conclusions {
    /// Number of conclusions that are to be drawn.
    pub(in crate::core::pending) fn len(&self) -> usize {
        self.of_joins.len() + usize::from(self.next.is_some())
    }
}

impl super::State {
    /// What follows from the replies to what is sent everywhere next.
    pub(in crate::core) fn expect(&mut self, conclusion: Conclusion) {
        self.conclusions.next = Some(conclusion);
    }

    /// Nothing more follows from what is sent everywhere.
    pub(in crate::core) fn expect_nothing(&mut self) {
        self.conclusions.next = None;
    }
}

impl Plane {
    /// To be called when a request was sent everywhere: its join keeps what follows from the
    /// replies.
    pub(in crate::core::pending) fn keep_conclusion(&mut self, key: Key<Operation>) {
        match (self.pending.conclusions.next.take(), self.pending.get_mut::<Join>(key)) {
            (Some(Conclusion::Certain(certain)), Some(join)) => join.certain = certain,
            (Some(Conclusion::Report(report)), Some(join)) => join.report = Some(report),
            (Some(conclusion), Some(_)) => {
                self.pending.conclusions.of_joins.insert(key.to_bits(), conclusion);
            }
            _ => {}
        }
    }

    /// To be called when a join is complete.
    #[inline]
    pub(in crate::core::pending) fn conclude(
        &mut self,
        key: Key<Operation>,
        pool: u16,
        join: &Join,
    ) {
        let of_joins = &mut self.pending.conclusions.of_joins;
        if !of_joins.is_empty()
            && let Some(Conclusion::Loads(loads)) = of_joins.remove(&key.to_bits())
        {
            self.learn_loads(pool, join, loads);
        }
    }
}
