//! The leader's part of groups: it watches the servers with the observers, decides, and has the
//! servers follow.
//!
//! In: [`Leader::set_groups`] with what the document says, reports of members, [`Leader::probed`]
//! with what the node itself sees, [`Leader::commanded`] with the outcome of each
//! [`super::Action::Command`], and [`Leader::failover`]. The coordinator has the state, so a new
//! leader carries on each step. Decisions are written first; servers and members are told after.

mod decide;
mod tend;
#[cfg(test)]
mod tests;
mod view;

pub use view::{GroupState, GroupView, ServerView};

use super::{Action, ApplyFault, Leader, OrderId, Place};
use crate::audit::Author;
use crate::facts::{self, DECISIONS, GROUPS};
use crate::groups::{
    Group, GroupSeen, GroupSettings, Observers, Phase, PublishedGroups, Users, Verdict,
};
use crate::limits::{
    ABSENT_MAX, BELIEVED_MAX, GROUP_NAME_LEN_MAX, GROUPS_MAX, ORDERS_MAX, SERVERS_MAX, USERS_EVERY,
};
use crate::{Fact, Note, Version};
use keyway_base::Time;
use keyway_bus::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time between two looks because of views. With a shorter one the views of a thousand members cost
/// the leader more.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time within which a server that answers becomes the primary, or another one is chosen.
const PROMOTED_WITHIN: Duration = Duration::from_secs(5);

/// Time for which a server is not chosen that did not become the primary.
const UNFIT_FOR: Duration = Duration::from_secs(60);

/// Longest time of an order of an operator.
const ORDER_MAX: Duration = Duration::from_secs(12);

/// An order of an operator: another server becomes the primary of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// Its id, which the answer has.
    pub id: OrderId,
    /// The name of the pool.
    pub pool: String,
    /// The server; the best replica if `None`.
    pub to: Option<String>,
    /// The time, in seconds since 1970.
    pub at: u64,
    /// The operator.
    pub by: Author,
}

/// An order that is going on.
#[derive(Debug)]
struct Pending {
    order: Failover,
    until: Time,
    /// The decision that was sent to the coordinator for it: the epoch, and the server.
    sent: Option<(u64, String)>,
    /// The server that was chosen, as soon as the coordinator has it.
    begun: Option<String>,
    /// The reason why the servers did not switch.
    failed: Option<String>,
}

/// The groups, as the leader knows them.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// `None` until the owner has read the document.
    settings: Option<BTreeMap<String, GroupSettings>>,
    observers: BTreeMap<String, Observers>,
    /// The members that use each pool, and when that was looked at.
    users: BTreeMap<String, Users>,
    users_at: Option<Time>,
    published: Option<(PublishedGroups, Time)>,
    /// The number of the order that the servers of a pool are carrying out.
    running: BTreeMap<String, u64>,
    /// Earliest time of the next order to the servers of a pool.
    again: BTreeMap<String, Time>,
    /// The outcome of the latest order to switch, by pool.
    switched: BTreeMap<String, Result<(), String>>,
    /// The servers that were not promoted as ordered, by pool and address: since when, and why. They
    /// are not chosen for [`UNFIT_FOR`].
    unfit: BTreeMap<(String, String), (Time, String)>,
    /// The epoch of a decision by which a server is to be promoted, and since when, by pool.
    promoting: BTreeMap<String, (u64, Time)>,
    /// The latest order to the servers of a pool that has failed, and why.
    refused: BTreeMap<String, String>,
    /// The servers that were made replicas: of whom, and when last.
    followed: BTreeMap<(String, String), (String, Time)>,
    next_number: u64,
    pending: BTreeMap<String, Pending>,
    /// The largest number of a decision that members have, about any pool.
    highest: u64,
    /// The largest epoch of a decision that members obey and the coordinator did not know, by pool.
    ahead: BTreeMap<String, u64>,
    states: BTreeMap<String, (GroupState, Time)>,
    told: BTreeMap<String, GroupState>,
    due: Option<Time>,
    /// True if something has changed that is to be looked at now.
    is_urgent: bool,
    /// True if views that may change something have come since the latest look.
    has_views: bool,
    looked_at: Option<Time>,
}

impl Groups {
    /// Leads no more: nothing that a leader knows is of use to a follower.
    pub fn clear(&mut self) {
        // The outcome of an order of before must not be taken for that of another one.
        let (highest, next_number) = (self.highest, self.next_number);
        let ahead = std::mem::take(&mut self.ahead);
        *self = Groups { highest, ahead, next_number, ..Groups::default() };
    }

    /// Returns when something is due.
    pub fn due(&self) -> Option<Time> {
        let views = self.looked_at.filter(|_| self.has_views).map(|at| at + LOOK_EVERY);
        self.due.into_iter().chain(views).min()
    }

    /// Has everything looked at now.
    pub fn urge(&mut self) {
        self.is_urgent = true;
    }

    /// Returns whether it is time to look at the groups.
    pub fn takes_look(&mut self, now: Time) -> bool {
        let is_old = self.looked_at.is_none_or(|at| now.since(at) >= LOOK_EVERY);
        let is_due = self.due.is_some_and(|due| due <= now);
        if !is_old && !self.is_urgent && !is_due {
            return false;
        }
        (self.is_urgent, self.has_views, self.looked_at) = (false, false, Some(now));
        true
    }

    /// Takes the views of an observer. `stored` returns the epoch of what the coordinator knows of a
    /// pool. Every view of this node itself has the groups looked at; views of a thousand members do
    /// so if they may change something.
    pub fn take(
        &mut self,
        (from, is_own): (NodeId, bool),
        groups: Vec<GroupSeen>,
        stored: impl Fn(&str) -> u64,
        now: Time,
    ) {
        for seen in groups {
            let known = self.settings.as_ref().is_some_and(|all| all.contains_key(&seen.pool));
            if seen.epoch <= BELIEVED_MAX {
                self.highest = self.highest.max(seen.epoch);
                if known && seen.epoch > stored(&seen.pool) {
                    let ahead = self.ahead.entry(seen.pool.clone()).or_default();
                    self.has_views |= *ahead < seen.epoch;
                    *ahead = seen.epoch.max(*ahead);
                }
            }
            if known {
                let observers = self.observers.entry(seen.pool.clone()).or_default();
                self.has_views |= observers.take(from, seen, now) || is_own;
            }
        }
    }

    /// Takes the number of decisions that a member has taken.
    pub fn note_decisions(&mut self, decisions: u64) {
        if decisions <= BELIEVED_MAX {
            self.highest = self.highest.max(decisions);
        }
    }

    /// Returns a group of the document.
    pub fn settings(&self, pool: &str) -> Option<&GroupSettings> {
        self.settings.as_ref()?.get(pool)
    }

    /// Returns the largest number of a decision that members have.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    pub fn forget(&mut self, id: NodeId) {
        self.observers.values_mut().for_each(|observers| observers.forget(id));
        // It counts as one that does not agree from now on.
        self.users_at = None;
    }
}

/// Returns whether the leader can watch a group.
fn is_fit(group: &GroupSettings) -> bool {
    let is_short = |name: &String| !name.is_empty() && name.len() <= GROUP_NAME_LEN_MAX;
    is_short(&group.pool)
        && group.servers.iter().all(is_short)
        && group.servers.len() <= SERVERS_MAX
}

fn stored_in(facts: &BTreeMap<String, Fact>, pool: &str) -> Option<Group> {
    Group::decode(&facts.get(&facts::group_key(pool))?.value)
}

impl Leader {
    /// Takes the groups of the current document. A group that it lacks is forgotten, also in the
    /// coordinator. Groups past [`GROUPS_MAX`] are not watched.
    pub fn set_groups(&mut self, groups: Vec<GroupSettings>, now: Time) {
        let fit = groups.into_iter().filter(is_fit).take(GROUPS_MAX);
        let settings: BTreeMap<_, _> = fit.map(|group| (group.pool.clone(), group)).collect();
        self.groups.observers.retain(|pool, _| settings.contains_key(pool));
        self.groups.ahead.retain(|pool, _| settings.contains_key(pool));
        if matches!(self.place, Place::Leads { .. }) {
            self.groups.settings = Some(settings);
            self.groups.users_at = None;
            // A thread that the owner has ended answers no order.
            self.groups.running.clear();
            self.groups.urge();
            self.decide(now);
        }
    }

    /// Takes what this node sees of a group by itself.
    pub fn probed(&mut self, seen: GroupSeen, now: Time) {
        if matches!(self.place, Place::Leads { .. }) {
            self.take_views(self.me.node, vec![seen], now);
            self.decide(now);
        }
    }

    /// Looks at which members use each group, from time to time.
    fn follow_users(&mut self, now: Time) {
        if self.groups.users_at.is_some_and(|at| now.since(at) < USERS_EVERY) {
            return;
        }
        let Some(settings) = &self.groups.settings else { return };
        let mut all: BTreeMap<String, Users> = BTreeMap::new();
        for (id, known) in self.roster.members() {
            let until = known.silent_since.map(|since| since + ABSENT_MAX);
            if until.is_some_and(|until| until <= now) {
                continue;
            }
            let pools = known.report.about.pools.iter();
            for pool in pools.filter(|pool| settings.contains_key(*pool)) {
                all.entry(pool.clone()).or_default().insert(id, until);
            }
        }
        (self.groups.users, self.groups.users_at) = (all, Some(now));
    }

    /// Returns the verdict of the observers of a group about a server.
    fn verdict_of(&self, settings: &GroupSettings, address: &str, now: Time) -> Verdict {
        let Some(observers) = self.groups.observers.get(&settings.pool) else {
            return Verdict::default();
        };
        let none = Users::new();
        let users = self.groups.users.get(&settings.pool).unwrap_or(&none);
        observers.verdict(settings, address, users, now)
    }

    /// Takes what an observer sees of groups.
    pub(super) fn take_views(&mut self, from: NodeId, seen: Vec<GroupSeen>, now: Time) {
        let (facts, count) = (&self.facts, self.decision_count().unwrap_or(0));
        // A pool without a decision may have lost it by the latest one.
        let stored = |pool: &str| stored_in(facts, pool).map_or(count, |group| group.epoch);
        let is_own = from == self.me.node;
        self.groups.take((from, is_own), seen, stored, now);
    }

    /// Takes the outcome of [`super::Action::Command`].
    pub fn commanded(
        &mut self,
        (pool, number): (&str, u64),
        outcome: Result<(), String>,
        now: Time,
    ) {
        if self.groups.running.get(pool) != Some(&number) {
            return;
        }
        self.groups.running.remove(pool);
        self.groups.urge();
        let group = self.group(pool);
        // The servers are another than they were seen. A server that is not promoted is as it was,
        // and another one is chosen by the views that there are.
        let is_promoting = group.as_ref().is_some_and(|group| group.phase == Phase::Promoting);
        let is_as_before = is_promoting && outcome.is_err();
        if !is_as_before && let Some(observers) = self.groups.observers.get_mut(pool) {
            observers.forget(self.me.node);
        }
        match &outcome {
            Ok(()) => drop(self.groups.refused.remove(pool)),
            Err(why) => drop(self.groups.refused.insert(pool.to_owned(), why.clone())),
        }
        match (&outcome, group.as_ref().and_then(Group::next)) {
            (_, Some(_)) => {
                self.groups.switched.insert(pool.to_owned(), outcome);
            }
            (Err(why), None) => {
                self.notes.push_back(Note::NotCommanded(pool.to_owned(), why.clone()))
            }
            (Ok(()), None) => {}
        }
        self.decide(now);
    }

    /// Takes an order of an operator. Its answer is [`super::Action::Answer`], with the epoch of the
    /// leader and that of the decision.
    pub fn failover(&mut self, order: Failover, now: Time) {
        let id = order.id;
        let is_busy = self.groups.pending.contains_key(&order.pool);
        if let Place::Below(leader) = &self.place {
            let leader = Some(leader.clone());
            return self.answer(id, Err(ApplyFault::NotLeading(leader)));
        }
        if self.place == Place::Adrift {
            return self.answer(id, Err(ApplyFault::NotLeading(None)));
        }
        if is_busy || self.groups.pending.len() >= ORDERS_MAX {
            return self.answer(id, Err(ApplyFault::Busy));
        }
        let until = now + ORDER_MAX;
        let pending = Pending { until, sent: None, begun: None, failed: None, order };
        self.groups.pending.insert(pending.order.pool.clone(), pending);
        self.groups.urge();
        self.decide(now);
    }

    /// Answers the orders of operators about groups, as this node leads no more.
    pub(super) fn forget_groups(&mut self) {
        for (_, pending) in std::mem::take(&mut self.groups.pending) {
            let fault = match pending.begun {
                None => ApplyFault::NotLeading(None),
                Some(_) => ApplyFault::Unknown("another control node leads".to_owned()),
            };
            self.answer(pending.order.id, Err(fault));
        }
        self.groups.clear();
    }

    /// Returns a group of the coordinator; `None` if it is not decided or is damaged.
    pub(super) fn group(&self, pool: &str) -> Option<Group> {
        stored_in(&self.facts, pool)
    }

    /// Returns whether members have a decision about a pool that the coordinator does not know.
    pub(super) fn is_ahead(&self, pool: &str) -> bool {
        let stored = self.group(pool).map_or(0, |group| group.epoch);
        let is_ahead = self.groups.ahead.get(pool).is_some_and(|epoch| *epoch > stored);
        is_ahead || self.decision_count().is_none()
    }

    /// Returns all groups of the coordinator, by pool.
    pub(super) fn stored_groups(&self) -> impl Iterator<Item = (&str, Group)> {
        let all = self.facts.range(GROUPS.to_owned()..);
        let all = all.map_while(|(key, fact)| Some((key.strip_prefix(GROUPS)?, fact)));
        all.filter_map(|(pool, fact)| Some((pool, Group::decode(&fact.value)?))).take(GROUPS_MAX)
    }

    /// Returns the number of decisions so far; `None` if that is damaged.
    pub(super) fn decision_count(&self) -> Option<u64> {
        self.facts.get(DECISIONS).map_or(Some(0), |fact| facts::number(&fact.value))
    }

    /// Publishes the decisions, if they are not what was published, as soon as the document is read:
    /// before, it is not known which pools were removed.
    pub(super) fn publish_groups(&mut self, epoch: u64, now: Time) {
        let Some(settings) = &self.groups.settings else { return };
        if !self.knows_slots() {
            return;
        }
        let Some(revision) = self.decision_count().filter(|count| *count > 0) else { return };
        let version = Version { epoch, revision };
        let known = self.groups.published.as_ref().map(|(published, _)| published.version);
        if known.is_some_and(|known| known == version || !version.covers(known)) {
            return;
        }
        // An older decision than that of others is of no use to a member that has none.
        let current = self.stored_groups().filter(|(pool, _)| !self.is_ahead(pool));
        let groups = current.map(|(pool, group)| group.decided(pool)).collect();
        // A pool of the document without a decision may have had one before the coordinator went
        // back, which a member has told to an earlier leader, or to none yet.
        let is_lost = |pool: &&String| self.is_ahead(pool) || self.group(pool).is_none();
        let lost = settings.keys().filter(is_lost).cloned().collect();
        let (cluster, leader) = (self.me.cluster.clone(), self.me.node.0);
        let slots = self.published_slots();
        let published = PublishedGroups { cluster, leader, version, groups, lost, slots };
        self.groups.published = Some((published.clone(), now));
        self.actions.push_back(Action::PublishGroups(published));
    }
}
