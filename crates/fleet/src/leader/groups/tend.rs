//! Orders to the servers, answers to operators, and what is told of the states of groups.

use super::{GroupState, Leader, PROMOTED_WITHIN, UNFIT_FOR};
use crate::groups::{
    Command, Group, GroupOrder, GroupSeen, GroupSettings, Phase, RoleSeen, ServerSeen,
};
use crate::leader::{Action, ApplyFault};
use crate::limits::{COMMAND_AGAIN, OBEYED_WITHIN};
use crate::{LeaderFact, Note, Version};
use keyway_base::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for which a state must last before it is told. A group that has just failed over lacks its
/// replicas for a moment.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// Time for writes that proxies had sent before they knew that the primary hands over.
const HOLD_FOR: Duration = Duration::from_millis(50);

/// Time until a server is made a replica again that was told before. A server that writes the address
/// of its primary in another way would be told all the time otherwise.
const FOLLOW_AGAIN: Duration = Duration::from_secs(5);

/// Time until that is told again.
const TELL_AGAIN: Duration = Duration::from_secs(60);

impl Leader {
    /// Orders what the servers of groups are to do, answers orders, and tells states.
    pub(in crate::leader) fn tend_groups(&mut self, leader: &LeaderFact, now: Time) {
        self.follow_users(now);
        self.answer_failovers(leader, now);
        let settings = self.groups.settings.clone().unwrap_or_default();
        let mut due: Option<Time> = None;
        let mut note = |at: Time| due = Some(due.map_or(at, |due| due.min(at)));
        for (pool, group) in &settings {
            if let Some(at) = self.command_next(group, now) {
                note(at);
            }
            self.follow_promotion(group, now).into_iter().for_each(&mut note);
            self.tell_state(group, now);
            let primary = self.group(pool).map(|group| group.primary);
            if let Some(primary) = primary {
                self.verdict_of(group, &primary, now).due.into_iter().for_each(&mut note);
            }
        }
        self.groups.pending.values().for_each(|pending| note(pending.until));
        self.groups.due = due.map(|due| due.max(now));
        self.groups.states.retain(|pool, _| settings.contains_key(pool));
        self.groups.told.retain(|pool, _| settings.contains_key(pool));
        self.groups.followed.retain(|(pool, _), _| settings.contains_key(pool));
        self.groups.refused.retain(|pool, _| settings.contains_key(pool));
        self.groups.promoting.retain(|pool, _| settings.contains_key(pool));
        self.groups.unfit.retain(|(pool, _), (since, _)| {
            settings.contains_key(pool) && now.since(*since) < UNFIT_FOR
        });
    }

    /// Notes a server that has not become the primary in time: another one is chosen then. Returns
    /// when that is to be looked at.
    fn follow_promotion(&mut self, settings: &GroupSettings, now: Time) -> Option<Time> {
        let pool = &settings.pool;
        let Some(group) = self.group(pool).filter(|it| it.phase == Phase::Promoting) else {
            self.groups.promoting.remove(pool);
            return None;
        };
        let key = (pool.clone(), group.primary.clone());
        let known = self.groups.promoting.get(pool).filter(|(epoch, _)| *epoch == group.epoch);
        let Some((_, since)) = known.copied() else {
            self.groups.promoting.insert(pool.clone(), (group.epoch, now));
            self.groups.unfit.remove(&key);
            return None;
        };
        let until = since + PROMOTED_WITHIN.max(settings.down_after);
        if self.groups.unfit.contains_key(&key) {
            return None;
        }
        if now < until {
            return Some(until);
        }
        let server = self.own_view(pool, now)?.server(&group.primary)?;
        if server.is_reached() && server.is_primary() {
            return None;
        }
        let why = match self.groups.refused.get(pool) {
            Some(why) => why.clone(),
            None if server.is_reached() => "it stays a replica".to_owned(),
            None => "it does not answer control".to_owned(),
        };
        self.groups.unfit.insert(key, (now, why));
        self.groups.urge();
        None
    }

    /// Returns whether a server may be chosen: the document lists it, it is not down for the
    /// observers, and it did become the primary when it was to.
    pub(super) fn may_lead(
        &self,
        settings: &GroupSettings,
        server: &ServerSeen,
        now: Time,
    ) -> bool {
        let address = &server.address;
        let key = (settings.pool.clone(), address.clone());
        let is_unfit =
            self.groups.unfit.get(&key).is_some_and(|(since, _)| now.since(*since) < UNFIT_FOR);
        settings.servers.contains(address)
            && !is_unfit
            && !self.verdict_of(settings, address, now).is_down
    }

    /// Orders what the servers of a group are to do next. Returns when it is to be looked at again.
    fn command_next(&mut self, settings: &GroupSettings, now: Time) -> Option<Time> {
        let pool = &settings.pool;
        if self.groups.running.contains_key(pool) || self.is_ahead(pool) {
            return None;
        }
        if let Some(at) = self.groups.again.get(pool).filter(|at| **at > now) {
            return Some(*at);
        }
        let group = self.group(pool).filter(|group| settings.servers.contains(&group.primary))?;
        let what = match &group.phase {
            Phase::Promoting => promote(settings, &group),
            Phase::Switching { to } => {
                let obeyed = self.awaits_members(pool, group.epoch, now);
                if let Some(until) = obeyed {
                    return Some(until);
                }
                let from = group.primary.clone();
                let is_other = |server: &&String| **server != from && *server != to;
                let others = settings.servers.iter().filter(is_other).cloned().collect();
                Command::Switch { from, to: to.clone(), others }
            }
            Phase::Settled => {
                let is_told = |server: &String| {
                    let told = self.groups.followed.get(&(pool.clone(), server.clone()));
                    told.is_some_and(|(of, at)| {
                        *of == group.primary && now.since(*at) < FOLLOW_AGAIN
                    })
                };
                corrected(settings, &group, self.own_view(pool, now)?, is_told)?
            }
        };
        if let Command::Follow { server, primary } = &what {
            let (server, primary) = (server.clone(), primary.clone());
            let of = (primary.clone(), now);
            let before = self.groups.followed.insert((pool.clone(), server.clone()), of);
            let is_news =
                before.is_none_or(|(of, at)| of != primary || now.since(at) >= TELL_AGAIN);
            let pool = pool.clone();
            self.notes.extend(is_news.then_some(Note::MadeReplica { pool, server, primary }));
        }
        self.groups.next_number += 1;
        let number = self.groups.next_number;
        self.groups.running.insert(pool.clone(), number);
        self.groups.again.insert(pool.clone(), now + COMMAND_AGAIN);
        let pool = pool.clone();
        self.actions.push_back(Action::Command(GroupOrder { pool, number, what }));
        None
    }

    /// Returns until when members are waited for that do not know the decision yet.
    fn awaits_members(&self, pool: &str, epoch: u64, now: Time) -> Option<Time> {
        let (published, at) = self.groups.published.as_ref()?;
        let (soon, until) = (*at + HOLD_FOR, *at + OBEYED_WITHIN);
        if published.version.revision < epoch || now >= until {
            return None;
        }
        if now < soon {
            return Some(soon);
        }
        let mut others = self.groups.observers.get(pool)?.all_fresh(now);
        let is_behind = others.any(|(id, seen)| id != self.me.node && seen.epoch < epoch);
        is_behind.then_some(until)
    }

    /// Answers the orders of operators that have ended, or that are refused.
    fn answer_failovers(&mut self, leader: &LeaderFact, now: Time) {
        if self.groups.pending.is_empty() {
            return;
        }
        let mut answers = Vec::new();
        let mut kept = BTreeMap::new();
        for (pool, mut pending) in std::mem::take(&mut self.groups.pending) {
            let group = self.group(&pool);
            let is_sent = |(epoch, to): &(u64, String)| {
                let decided = group.as_ref().filter(|group| group.epoch == *epoch);
                decided.is_some_and(|group| group.next().unwrap_or(&group.primary) == to)
            };
            if let Some((_, to)) = pending.sent.take_if(|sent| is_sent(sent)) {
                pending.begun.get_or_insert(to);
            }
            if let Some(Err(why)) = self.groups.switched.get(&pool) {
                pending.failed = Some(why.clone());
            }
            let id = pending.order.id;
            match (&pending.begun, &group) {
                (Some(to), Some(group)) if group.phase == Phase::Settled => {
                    let version = Version { epoch: leader.epoch, revision: group.epoch };
                    let why = pending.failed.clone().unwrap_or_default();
                    let outcome = match group.primary == *to {
                        true => Ok(version),
                        false => Err(ApplyFault::NotFit(format!(
                            "{to} did not become the primary, and {} is: {why}",
                            group.primary
                        ))),
                    };
                    answers.push((id, outcome));
                }
                (Some(_), _) if now >= pending.until => {
                    let why = "the servers have not switched yet: see keyway ctl groups";
                    answers.push((id, Err(ApplyFault::Unknown(why.to_owned()))));
                }
                (Some(_), _) => drop(kept.insert(pool, pending)),
                (None, _) => match self.failover_refusal(&pool, &pending, (leader, now)) {
                    Some(fault) => answers.push((id, Err(fault))),
                    None if now >= pending.until => {
                        let why = self.fault.as_deref().unwrap_or("it does not answer");
                        answers.push((id, Err(ApplyFault::Coordinator(why.to_owned()))));
                    }
                    None => drop(kept.insert(pool, pending)),
                },
            }
        }
        self.groups.pending = kept;
        answers.into_iter().for_each(|(id, outcome)| self.answer(id, outcome));
    }

    /// Returns why an order that has not begun never will.
    fn failover_refusal(
        &self,
        pool: &str,
        pending: &super::Pending,
        (leader, now): (&LeaderFact, Time),
    ) -> Option<ApplyFault> {
        let settings = self.groups.settings.as_ref();
        let fault = match settings.map(|all| all.get(pool)) {
            None => ApplyFault::NotYet,
            Some(None) => {
                return Some(ApplyFault::NoGroup(format!(
                    "the document has no pool {pool} of kind \"replicated\" with servers and \
                     failover, and no pool of kind \"slots\" with failover and a group that is \
                     called so, as POOL:GROUP"
                )));
            }
            Some(Some(settings)) => self.begin(pending, settings, (leader, 0), now).err()?,
        };
        match fault {
            // The node has not asked the servers yet.
            ApplyFault::NotYet if now < pending.until => None,
            fault => Some(fault),
        }
    }

    /// Tells the state of a group that has lasted for a while, once.
    fn tell_state(&mut self, settings: &GroupSettings, now: Time) {
        let pool = &settings.pool;
        let state = self.group_state(settings, now);
        // The servers have just been ordered something, or the decision cannot be written.
        let waits = state == GroupState::PrimaryDown && self.fault.is_some();
        if state == GroupState::Unknown || waits {
            return;
        }
        let known = self.groups.states.get(pool).filter(|(known, _)| *known == state);
        let since = known.map_or(now, |(_, since)| *since);
        self.groups.states.insert(pool.clone(), (state, since));
        let told = self.groups.told.get(pool).copied();
        if told == Some(state) || now.since(since) < TELL_AFTER {
            return;
        }
        self.groups.told.insert(pool.clone(), state);
        // A group that is well at first is no news.
        if told.is_some() || state != GroupState::Healthy {
            self.notes.push_back(Note::GroupIs(pool.clone(), state));
        }
    }
}

fn promote(settings: &GroupSettings, group: &Group) -> Command {
    let primary = group.primary.clone();
    let old = group.old.clone().filter(|old| *old != primary && settings.servers.contains(old));
    let is_other = |server: &&String| **server != primary && Some(*server) != old.as_ref();
    let others = settings.servers.iter().filter(is_other).cloned().collect();
    Command::Promote { primary, old, others }
}

/// Returns the order that corrects a server that is not what was decided.
/// Servers for which `is_told` holds are left out.
fn corrected(
    settings: &GroupSettings,
    group: &Group,
    seen: &GroupSeen,
    is_told: impl Fn(&String) -> bool,
) -> Option<Command> {
    let primary = &group.primary;
    let decided = seen.server(primary).filter(|server| server.is_reached())?;
    if !decided.is_primary() {
        let follows = |of: &String| {
            settings.servers.contains(of) && seen.server(of).is_some_and(|it| it.is_primary())
        };
        return match &decided.role {
            // It catches up with another primary, which is decided then.
            Some(RoleSeen::Replica { of, .. }) if follows(of) => None,
            Some(RoleSeen::Replica { .. }) => Some(promote(settings, group)),
            _ => None,
        };
    }
    let is_wrong = |address: &&String| {
        let server = seen.server(address).filter(|server| server.is_reached());
        match server.and_then(|server| server.role.as_ref()) {
            Some(RoleSeen::Primary { .. }) => true,
            Some(RoleSeen::Replica { of, .. }) => of != primary,
            None => false,
        }
    };
    let others = settings.servers.iter().filter(|address| *address != primary);
    let mut others = others.filter(|address| !is_told(address));
    let server = others.find(is_wrong)?.clone();
    Some(Command::Follow { server, primary: primary.clone() })
}
