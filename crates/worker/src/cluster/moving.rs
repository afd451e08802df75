//! The map of slots that move between the groups of a pool, and the fence of those that move now.
//!
//! The thread of the control plane changes both; workers follow at their next turn. A worker holds
//! every command for a fenced slot as soon as it has followed. It has *drained* the fence when each
//! command that it had sent before has had its reply.

use keyway_base::Time;
use keyway_topology::{SLOT_COUNT, SlotMap, SlotSpace};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Longest time for which commands for fenced slots wait. Then they get an error until the fence ends:
/// who has fenced the slots may be gone.
const HELD_MAX: Duration = Duration::from_secs(1);

/// Wakes the thread that waits for a fence to be drained.
pub type DrainedHook = Arc<dyn Fn() + Send + Sync>;

/// The slots for which commands are held.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Fence {
    /// A bit for each slot.
    slots: Box<[u64; SLOT_COUNT / 64]>,
    since: Time,
}

impl Fence {
    fn new(ranges: &[(u16, u16)], since: Time) -> Option<Fence> {
        let mut slots = Box::new([0; SLOT_COUNT / 64]);
        for slot in ranges.iter().flat_map(|&(first, last)| first..=last) {
            if let Some(word) = slots.get_mut(usize::from(slot) / 64) {
                *word |= 1 << (slot % 64);
            }
        }
        slots.iter().any(|word| *word != 0).then_some(Fence { slots, since })
    }

    /// Returns whether commands for a slot are held.
    pub(crate) fn holds(&self, slot: u16) -> bool {
        let word = self.slots.get(usize::from(slot) / 64);
        word.is_some_and(|word| word & (1 << (slot % 64)) != 0)
    }

    /// Returns whether commands have waited for long enough.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        now.since(self.since) >= HELD_MAX
    }
}

/// The map, and the fence.
pub(crate) struct SlotsNow {
    pub(crate) epoch: u64,
    pub(crate) map: Arc<SlotMap>,
    pub(crate) fence: Option<Fence>,
}

/// A map that a pool is to obey.
#[derive(Clone, Debug)]
pub struct ObeyedSlots {
    /// Its epoch.
    pub epoch: u64,
    /// The slots of each group, by its name.
    pub owners: Vec<(String, Vec<(u16, u16)>)>,
    /// The slots for which commands are held.
    pub fenced: Vec<(u16, u16)>,
}

#[derive(Clone, Copy, Default)]
struct Followed {
    followed: u64,
    drained: u64,
}

/// The map of a pool, shared by its workers.
pub(crate) struct MovingSlots {
    now: Mutex<Arc<SlotsNow>>,
    followers: Mutex<(u64, BTreeMap<u64, Followed>)>,
    hook: Mutex<Option<DrainedHook>>,
}

impl fmt::Debug for MovingSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MovingSlots(epoch {})", self.now().epoch)
    }
}

impl MovingSlots {
    pub(super) fn new(map: Arc<SlotMap>) -> Arc<MovingSlots> {
        let now = Mutex::new(Arc::new(SlotsNow { epoch: 0, map, fence: None }));
        Arc::new(MovingSlots { now, followers: Mutex::default(), hook: Mutex::default() })
    }

    pub(super) fn now(&self) -> Arc<SlotsNow> {
        Arc::clone(&self.now.lock())
    }

    /// Obeys another map. Returns whether it is one; an earlier one is none.
    pub(super) fn obey(&self, slots: &ObeyedSlots, groups: &[String], at: Time) -> bool {
        let mut now = self.now.lock();
        if slots.epoch <= now.epoch {
            return false;
        }
        let Some(map) = map_of(now.map.space(), slots, groups) else { return false };
        // A command that waits under a fence goes on waiting under the next one.
        let since = now.fence.as_ref().map_or(at, |fence| fence.since);
        let fence = Fence::new(&slots.fenced, since);
        let map = if *now.map == map { Arc::clone(&now.map) } else { Arc::new(map) };
        *now = Arc::new(SlotsNow { epoch: slots.epoch, map, fence });
        true
    }

    /// Has a worker follow. It is counted until the follower is dropped.
    pub(crate) fn follow(self: &Arc<Self>) -> SlotsFollower {
        let now = self.now();
        let mut followers = self.followers.lock();
        followers.0 += 1;
        let id = followers.0;
        // It has no clients yet.
        let followed = Followed { followed: now.epoch, drained: now.epoch };
        followers.1.insert(id, followed);
        drop(followers);
        SlotsFollower { id, shared: Arc::clone(self), now }
    }

    pub(super) fn set_hook(&self, hook: DrainedHook) {
        *self.hook.lock() = Some(hook);
    }

    fn all(&self, has: impl Fn(&Followed, u64) -> bool) -> bool {
        let epoch = self.now().epoch;
        self.followers.lock().1.values().all(|followed| has(followed, epoch))
    }

    /// Returns whether every worker has drained the latest fence, or there is none.
    pub(super) fn is_drained(&self) -> bool {
        self.all(|followed, epoch| followed.drained >= epoch)
    }

    /// Returns whether every worker follows the latest map.
    pub(super) fn is_followed(&self) -> bool {
        self.all(|followed, epoch| followed.followed >= epoch)
    }
}

/// Returns the map of owners; `None` if a group or a slot is not of the pool, or a slot has two groups.
fn map_of(space: SlotSpace, slots: &ObeyedSlots, groups: &[String]) -> Option<SlotMap> {
    let mut map = SlotMap::new(space);
    for (name, ranges) in &slots.owners {
        let group = groups.iter().position(|group| group == name)? as u16;
        for &(first, last) in ranges {
            map.give(first, last, group).ok()?;
        }
    }
    Some(map)
}

/// A worker that follows the map of a pool.
pub(crate) struct SlotsFollower {
    id: u64,
    shared: Arc<MovingSlots>,
    now: Arc<SlotsNow>,
}

impl SlotsFollower {
    /// Returns the map and the fence that this worker follows.
    pub(crate) fn now(&self) -> &SlotsNow {
        &self.now
    }

    /// Follows the latest map. Returns the one before, if that is another.
    pub(crate) fn adopt(&mut self) -> Option<Arc<SlotsNow>> {
        let latest = self.shared.now();
        if latest.epoch == self.now.epoch {
            return None;
        }
        let before = std::mem::replace(&mut self.now, latest);
        if let Some(followed) = self.shared.followers.lock().1.get_mut(&self.id) {
            followed.followed = self.now.epoch;
        }
        Some(before)
    }

    /// Notes that every command that was sent before the fence has had its reply.
    pub(crate) fn note_drained(&self) {
        let mut followers = self.shared.followers.lock();
        let Some(followed) = followers.1.get_mut(&self.id) else { return };
        if followed.drained == self.now.epoch {
            return;
        }
        followed.drained = self.now.epoch;
        drop(followers);
        if self.shared.is_drained()
            && let Some(hook) = self.shared.hook.lock().clone()
        {
            hook();
        }
    }
}

impl Drop for SlotsFollower {
    fn drop(&mut self) {
        self.shared.followers.lock().1.remove(&self.id);
        // The last one that others waited for may be this one.
        if let Some(hook) = self.shared.hook.lock().clone() {
            hook();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> (Arc<MovingSlots>, Vec<String>) {
        let mut map = SlotMap::new(SlotSpace::Codis);
        map.give(0, 511, 0).unwrap();
        map.give(512, 1023, 1).unwrap();
        (MovingSlots::new(Arc::new(map)), vec!["a".to_owned(), "b".to_owned()])
    }

    fn obeyed(epoch: u64, split: u16, fenced: &[(u16, u16)]) -> ObeyedSlots {
        let owners =
            vec![("a".to_owned(), vec![(0, split)]), ("b".to_owned(), vec![(split + 1, 1023)])];
        ObeyedSlots { epoch, owners, fenced: fenced.to_vec() }
    }

    #[test]
    fn a_fence_is_drained_when_every_worker_has_said_so() {
        let (slots, groups) = slots();
        let (mut one, mut other) = (slots.follow(), slots.follow());
        assert!(slots.is_drained() && slots.is_followed());
        assert!(slots.obey(&obeyed(3, 511, &[(7, 9)]), &groups, Time(1)));
        assert!(!slots.obey(&obeyed(2, 600, &[]), &groups, Time(1)), "it is an earlier one");
        assert!(!slots.is_drained());
        for follower in [&mut one, &mut other] {
            assert!(!slots.is_drained());
            assert!(follower.adopt().is_some() && follower.adopt().is_none());
            let fence = follower.now().fence.as_ref().unwrap();
            assert!(!fence.holds(6) && fence.holds(7) && fence.holds(9) && !fence.holds(10));
            follower.note_drained();
        }
        assert!(slots.is_drained() && slots.is_followed());
        assert!(slots.obey(&obeyed(4, 6, &[]), &groups, Time(2)));
        one.adopt();
        one.note_drained();
        assert!(!slots.is_drained());
        drop(other);
        assert!(slots.is_drained(), "a worker that ends has no clients");
        assert_eq!(one.now().map.group_of(7), Some(1));
        assert!(slots.follow().now().fence.is_none());
    }

    #[test]
    fn a_map_with_a_stranger_or_a_slot_twice_is_not_obeyed() {
        let (slots, groups) = slots();
        let mut stranger = obeyed(1, 5, &[]);
        stranger.owners[0].0 = "c".to_owned();
        let mut twice = obeyed(1, 5, &[]);
        twice.owners[1].1 = vec![(5, 1023)];
        for wrong in [stranger, twice] {
            assert!(!slots.obey(&wrong, &groups, Time(1)));
        }
        assert_eq!(slots.now().epoch, 0);
    }

    #[test]
    fn a_fence_that_follows_another_does_not_begin_anew() {
        let (slots, groups) = slots();
        assert!(slots.obey(&obeyed(1, 511, &[(1, 1)]), &groups, Time(0)));
        let later = Time(0) + HELD_MAX;
        assert!(slots.obey(&obeyed(2, 511, &[(1, 1)]), &groups, later));
        assert!(slots.now().fence.as_ref().is_some_and(|fence| fence.is_over(later)));
    }
}
