//! The observers of a group, and whether they agree that a server is down.

use super::{GroupSeen, GroupSettings, ServerSeen};
use crate::limits::VIEW_FRESH;
use keyway_base::Time;
use keyway_bus::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A view with the time at which it came.
#[derive(Clone, Debug)]
struct View {
    at: Time,
    seen: GroupSeen,
}

impl View {
    fn is_fresh(&self, now: Time) -> bool {
        now.since(self.at) < VIEW_FRESH
    }

    /// Returns for how long a server has been silent; `None` if it answers.
    fn silent_for(&self, server: &ServerSeen, now: Time) -> Option<Duration> {
        let told = Duration::from_millis(server.silent_ms?);
        Some(told.saturating_add(now.since(self.at)))
    }
}

/// The members that use a group, as far as control knows, and until when a silent one counts.
pub(crate) type Users = BTreeMap<NodeId, Option<Time>>;

/// The verdict of the observers about a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Observers with a fresh view.
    pub observers: u32,
    /// Members that use the group, and whose view is missing.
    pub absent: u32,
    /// Observers for which the server is down.
    pub down: u32,
    /// Observers that the server answers.
    pub up: u32,
    /// True if the observers agree that it is down.
    pub is_down: bool,
    /// The earliest time at which the next observer may find it down.
    pub due: Option<Time>,
}

/// Returns whether two views differ in no more than offsets, roles and the length of silence.
fn is_alike(one: &GroupSeen, other: &GroupSeen) -> bool {
    let mut pairs = one.servers.iter().zip(&other.servers);
    one.epoch == other.epoch
        && one.servers.len() == other.servers.len()
        && pairs.all(|(a, b)| a.address == b.address && a.is_reached() == b.is_reached())
}

/// The observers of a group: proxies that use it, and the leader.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observers {
    views: BTreeMap<NodeId, View>,
}

impl Observers {
    /// Takes a view. Returns false if the verdict about every server is what it was: the observer
    /// had a fresh view by the same decision, of the same servers, and the same ones answered. The
    /// time at which a silent server is found down was told by [`Verdict::due`].
    pub fn take(&mut self, from: NodeId, seen: GroupSeen, now: Time) -> bool {
        let before = self.fresh(from, now);
        let is_news = before.is_none_or(|before| !is_alike(before, &seen));
        self.views.insert(from, View { at: now, seen });
        is_news
    }

    pub fn forget(&mut self, id: NodeId) {
        self.views.remove(&id);
    }

    /// Returns the fresh view of an observer.
    pub fn fresh(&self, id: NodeId, now: Time) -> Option<&GroupSeen> {
        self.views.get(&id).filter(|view| view.is_fresh(now)).map(|view| &view.seen)
    }

    /// Returns all fresh views.
    pub fn all_fresh(&self, now: Time) -> impl Iterator<Item = (NodeId, &GroupSeen)> {
        let fresh = self.views.iter().filter(move |(_, view)| view.is_fresh(now));
        fresh.map(|(id, view)| (*id, &view.seen))
    }

    /// Returns the verdict about a server.
    ///
    /// The server is down if it is down for a quorum, and for more observers than it answers. Where
    /// there are observers in several zones, it must be down in two zones. A user of the group whose
    /// view is missing is an observer that does not agree, unless the document says the quorum: so a
    /// minority that is cut off from the others does not decide.
    pub fn verdict(
        &self,
        settings: &GroupSettings,
        address: &str,
        users: &Users,
        now: Time,
    ) -> Verdict {
        let (mut verdict, mut zones, mut down_zones) =
            (Verdict::default(), BTreeSet::new(), BTreeSet::new());
        for (id, view) in self.views.iter().filter(|(_, view)| view.is_fresh(now)) {
            let Some(server) = view.seen.server(address) else { continue };
            verdict.observers += 1;
            zones.insert(id.zone());
            match view.silent_for(server, now) {
                None => verdict.up += 1,
                Some(silent) if silent >= settings.down_after => {
                    verdict.down += 1;
                    down_zones.insert(id.zone());
                }
                Some(silent) => {
                    let at = now + settings.down_after.saturating_sub(silent);
                    verdict.due = Some(verdict.due.map_or(at, |due| due.min(at)));
                }
            }
        }
        let counts = |until: &Option<Time>| until.is_none_or(|until| now < until);
        let sees = |id| self.fresh(id, now).is_some_and(|seen| seen.server(address).is_some());
        for (id, _) in users.iter().filter(|(id, until)| counts(until) && !sees(**id)) {
            verdict.absent += 1;
            if settings.quorum.is_none() {
                zones.insert(id.zone());
            }
        }
        let all = verdict.observers + verdict.absent;
        let quorum = settings.quorum.unwrap_or(all / 2 + 1);
        verdict.is_down = verdict.down >= quorum.max(1)
            && verdict.down > verdict.up
            && (zones.len() < 2 || down_zones.len() >= 2);
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(quorum: Option<u32>) -> GroupSettings {
        GroupSettings {
            pool: "a".to_owned(),
            servers: vec!["p:1".to_owned()],
            down_after: Duration::from_secs(5),
            quorum,
        }
    }

    fn seen(silent_ms: Option<u64>) -> GroupSeen {
        let server = ServerSeen { address: "p:1".to_owned(), silent_ms, role: None };
        GroupSeen { pool: "a".to_owned(), epoch: 0, servers: vec![server] }
    }

    /// Returns the verdict over views of these zones, each with the silence that it tells.
    fn verdict(views: &[(u64, Option<u64>)], quorum: Option<u32>) -> Verdict {
        let mut observers = Observers::default();
        for (nth, (zone, silent_ms)) in views.iter().enumerate() {
            let id = NodeId::of(*zone, 1, 0, nth as u64).unwrap();
            observers.take(id, seen(*silent_ms), Time(0));
        }
        observers.verdict(&settings(quorum), "p:1", &Users::new(), Time(0))
    }

    #[test]
    fn a_majority_and_two_zones_must_agree() {
        let (up, down, soon) = (None, Some(5000), Some(4999));
        assert!(!verdict(&[], None).is_down, "nobody sees it");
        assert!(verdict(&[(1, down)], None).is_down, "nobody else sees it");
        assert!(!verdict(&[(1, soon)], None).is_down);
        assert!(!verdict(&[(1, down), (2, up)], None).is_down);
        assert!(!verdict(&[(1, down), (1, up), (1, up)], Some(1)).is_down, "most see it");
        assert!(verdict(&[(1, down), (2, down), (2, up)], None).is_down);
        assert!(!verdict(&[(1, down), (1, down), (2, up)], None).is_down, "one zone is cut off");
        assert!(verdict(&[(1, down), (1, down), (1, up)], None).is_down, "there is one zone");
        assert!(!verdict(&[(1, down), (2, down), (2, soon)], Some(3)).is_down);
        assert_eq!(verdict(&[(1, soon)], None).due, Some(Time(1_000_000)));
    }

    #[test]
    fn a_view_is_news_if_it_may_change_a_verdict() {
        let mut observers = Observers::default();
        let mut take = |seen, at| observers.take(NodeId(1), seen, Time(0) + at);
        let second = Duration::from_secs(1);
        assert!(take(seen(None), second), "it is the first one");
        assert!(!take(seen(None), second * 2));
        assert!(take(seen(Some(10)), second * 3), "the server is silent");
        assert!(!take(seen(Some(1010)), second * 4), "it is silent still");
        assert!(take(GroupSeen { epoch: 1, ..seen(Some(2010)) }, second * 5), "another decision");
        let late = second * 5 + VIEW_FRESH;
        assert!(take(GroupSeen { epoch: 1, ..seen(Some(6010)) }, late), "the observer was absent");
        assert!(take(GroupSeen { epoch: 1, ..GroupSeen::default() }, late), "other servers");
    }

    #[test]
    fn a_view_that_is_old_counts_for_nothing() {
        let mut observers = Observers::default();
        observers.take(NodeId(1), seen(Some(60_000)), Time(0));
        let at = |time: Duration| {
            observers.verdict(&settings(None), "p:1", &Users::new(), Time(0) + time)
        };
        assert!(at(VIEW_FRESH - Duration::from_millis(1)).is_down);
        assert!(!at(VIEW_FRESH).is_down);
    }

    #[test]
    fn a_minority_that_is_cut_off_from_the_others_decides_nothing() {
        let id = |zone, nth| NodeId::of(zone, 1, 0, nth).unwrap();
        let mut observers = Observers::default();
        let (long, now) = (seen(Some(60_000)), Time(0) + Duration::from_secs(60));
        observers.take(id(1, 1), long.clone(), now);
        let is_down = |observers: &Observers, users: &Users, quorum| {
            observers.verdict(&settings(quorum), "p:1", users, now).is_down
        };
        let user = |zone, nth, until| (id(zone, nth), until);
        let users = Users::from([user(1, 1, None), user(1, 2, None), user(1, 3, None)]);
        assert!(is_down(&observers, &Users::new(), None));
        assert!(!is_down(&observers, &users, None), "it is one of three");
        assert!(is_down(&observers, &users, Some(1)), "the operator says so");
        let silent = |until| Users::from([user(1, 1, None), user(1, 2, Some(until))]);
        assert!(!is_down(&observers, &silent(now + Duration::from_secs(1)), None));
        assert!(is_down(&observers, &silent(now), None), "it is silent for too long");
        observers.take(id(1, 2), long.clone(), now);
        assert!(is_down(&observers, &users, None), "two of three");
        let mut other_zone = users.clone();
        other_zone.extend([user(2, 4, None)]);
        observers.take(id(1, 3), long, now);
        assert!(!is_down(&observers, &other_zone, None), "the other zone is not heard");
        assert!(is_down(&observers, &other_zone, Some(3)), "the operator says so");
        let verdict = observers.verdict(&settings(None), "p:1", &other_zone, now);
        assert_eq!((verdict.observers, verdict.absent), (3, 1));
    }
}
