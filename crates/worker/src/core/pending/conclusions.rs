//! The conclusion of a request that was sent everywhere, once every server has answered.

use crate::core::Plane;
use crate::core::pending::state::Conclusion;
use keyway_base::Key;
use keyway_proxy::{Join, Operation};

impl Plane {
    /// Keeps what follows from the replies with the request's join. It must be called when a
    /// request was sent everywhere.
    pub(super) fn keep_conclusion(&mut self, key: Key<Operation>) {
        match (self.pending.conclusions.next.take(), self.pending.get_mut::<Join>(key)) {
            (Some(Conclusion::Certain(certain)), Some(join)) => join.certain = certain,
            (Some(Conclusion::Report(report)), Some(join)) => join.report = Some(report),
            (Some(conclusion), Some(_)) => {
                self.pending.conclusions.of_joins.insert(key.to_bits(), conclusion);
            }
            _ => {}
        }
    }

    /// Handles a complete join. It must be called when a join is complete.
    #[inline]
    pub(super) fn conclude(&mut self, key: Key<Operation>, pool: u16, join: &Join) {
        let of_joins = &mut self.pending.conclusions.of_joins;
        if !of_joins.is_empty()
            && let Some(Conclusion::Loads(loads)) = of_joins.remove(&key.to_bits())
        {
            self.learn_loads(pool, join, loads);
        }
    }
}
