//! Groups of a pool that serve writes while the primary of another group hands over.

use crate::PoolPlan;
use crate::core::Plane;
use crate::core::request::RequestContext;
use keyway_command::Verb;

impl Plane {
    /// Returns whether a pause of the pool is for groups that hand over, and the request has keys, none
    /// of which belongs to one of them.
    #[cold]
    pub(in crate::core) fn spares(&mut self, pool: &PoolPlan, incoming: &RequestContext) -> bool {
        if !pool.pause.is_for_hand_over(self.clock.now) {
            return false;
        }
        let RequestContext { session, request, .. } = incoming;
        if request.command.verb == Verb::Exec {
            let stateful = session.stateful.as_ref();
            let home = stateful.and_then(|it| it.transaction.as_ref()?.home());
            return home.is_some_and(|home| self.is_steady(session.pool, home));
        }
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let is_known = request.keys(&mut keys).is_ok();
        let named = keys.iter().filter_map(|&at| request.args.get(at as usize));
        let spares = is_known && self.spares_keys(pool, session.pool, named);
        self.keys = keys;
        spares
    }

    /// Does the same for keys of the pool at `index`.
    #[cold]
    pub(in crate::core) fn spares_keys<'k>(
        &self,
        pool: &PoolPlan,
        index: u16,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        let mut keys = keys.peekable();
        let is_steady = |key: &[u8]| {
            let home = self.moving_home_of(index, key);
            home.is_some_and(|home| self.is_steady(index, home))
        };
        pool.pause.is_for_hand_over(self.clock.now) && keys.peek().is_some() && keys.all(is_steady)
    }

    /// Returns whether the group that has this slot does not hand over. In a pool without groups that
    /// share slots no home is steady.
    fn is_steady(&self, pool: u16, slot: u16) -> bool {
        let Some(state) = self.cluster_state(pool) else { return false };
        let group = state.slots.as_ref().and_then(|slots| slots.now().map.group_of(slot));
        group.is_some_and(|group| !state.shared.hands_over(group))
    }
}
