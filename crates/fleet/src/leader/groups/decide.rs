//! The decisions: what is written next about a group.

use super::{Leader, Pending};
use crate::audit::{AuditOutcome, Author, Record};
use crate::facts::{self, DECISIONS, LEADER};
use crate::groups::{Group, GroupSeen, GroupSettings, Phase, RoleSeen, ServerSeen, best, fitness};
use crate::leader::{ApplyFault, Purpose};
use crate::limits::BELIEVED_MAX;
use crate::{LeaderFact, Note, When, Write};
use keyway_base::Time;
use std::time::Duration;

/// A decision that is to be written; `None` deletes the group.
pub(super) struct Step {
    pub group: Option<Group>,
    /// The line of the log, when it is written.
    pub note: Option<Note>,
    /// The operator who has ordered it, and when; `None` if control decides by itself.
    pub by: Option<(Author, u64)>,
}

impl Step {
    fn of(group: Group, note: Note) -> Option<Step> {
        Some(Step { group: Some(group), note: Some(note), by: None })
    }
}

impl Leader {
    /// Orders the transaction of the next decision, if there is one.
    pub(in crate::leader) fn write_group(
        &mut self,
        leader: &LeaderFact,
        modified: u64,
        now: Time,
    ) -> bool {
        let Some(settings) = self.groups.settings.clone() else { return false };
        let removed = self.stored_groups().find(|(pool, _)| !settings.contains_key(*pool));
        if let Some(pool) = removed.map(|(pool, _)| pool.to_owned()) {
            let Some(count) = self.next_decision() else { return false };
            self.write_step(&pool, Step { group: None, note: None, by: None }, (count, modified));
            return true;
        }
        for (pool, group) in &settings {
            let Some(count) = self.next_decision() else { return false };
            if let Some(step) = self.next_step(group, (leader, count), now) {
                let decided = step.group.as_ref().filter(|group| group.epoch == count);
                let to = decided.map(|group| group.next().unwrap_or(&group.primary).to_owned());
                if let Some(pending) = self.groups.pending.get_mut(pool)
                    && pending.begun.is_none()
                {
                    pending.sent = to.map(|to| (count, to));
                }
                self.write_step(pool, step, (count, modified));
                return true;
            }
        }
        false
    }

    /// Returns the number of the next decision. It is above all that members have.
    pub(in crate::leader) fn next_decision(&self) -> Option<u64> {
        let next = self.decision_count()?.max(self.groups.highest) + 1;
        (next <= BELIEVED_MAX + 1).then_some(next)
    }

    fn write_step(&mut self, pool: &str, step: Step, (count, modified): (u64, u64)) {
        let key = facts::group_key(pool);
        let as_known = |key: &str| match self.facts.get(key) {
            Some(fact) => When::Modified(key.to_owned(), fact.modified),
            None => When::Absent(key.to_owned()),
        };
        let leads = When::Modified(LEADER.to_owned(), modified);
        let when = vec![leads, as_known(&key), as_known(DECISIONS)];
        let mut write = Write { when, ..Write::default() };
        // A step of the same decision is not published anew.
        if step.group.as_ref().is_none_or(|group| group.epoch == count) {
            write.put.push((DECISIONS.to_owned(), count.to_string().into_bytes()));
            // The orders of the next decision wait for none of the one before.
            self.groups.again.remove(pool);
        }
        match &step.group {
            Some(group) => write.put.push((key, group.encode())),
            None => write.delete.push(key),
        }
        if let Some(record) = self.record_of(pool, &step) {
            self.put_audit(&mut write, record);
        }
        self.groups.switched.remove(pool);
        self.write(write, Purpose::Group(step.note));
    }

    /// Returns the entry of the audit log for a decision that names another primary, for a primary that
    /// an operator names, and for a hand-over that has failed.
    fn record_of(&self, pool: &str, step: &Step) -> Option<Record> {
        let begins = |what: &str| format!("{what} of pool {pool} begins");
        let (what, change, why) = match step.note.as_ref()? {
            Note::FailoverBegun { from, to, why, .. } => {
                (begins("fail-over"), format!("{from} -> {to}"), why.as_str())
            }
            Note::SwitchBegun { from, to, .. } => {
                (begins("fail-over by hand"), format!("{from} -> {to}"), "")
            }
            Note::PrimaryTaken(_, to) if step.by.is_some() => {
                let group = step.group.as_ref();
                let change = match group.and_then(|group| group.old.as_ref()) {
                    Some(old) => format!("{old} -> {to}"),
                    None => to.clone(),
                };
                let why = group.map_or("", |group| group.why.as_str());
                (format!("the primary of pool {pool} is named"), change, why)
            }
            Note::NotSwitched(_, to, why) => {
                let kept = step.group.as_ref().map_or("", |group| group.primary.as_str());
                let what = format!("fail-over by hand of pool {pool} has failed");
                (what, format!("{kept}, and not {to}"), why.as_str())
            }
            _ => return None,
        };
        let by_itself = || (Author::control(), self.wall_clock);
        let (by, at) = step.by.clone().unwrap_or_else(by_itself);
        Some(Record {
            at,
            by,
            what,
            before: None,
            after: None,
            changes: vec![format!("primary of pool {pool}: {change}")],
            outcome: AuditOutcome::Done,
            why: why.to_owned(),
            unlisted: 0,
        })
    }

    /// Returns what this node sees of a group.
    pub(super) fn own_view(&self, pool: &str, now: Time) -> Option<&GroupSeen> {
        self.groups.observers.get(pool)?.fresh(self.me.node, now)
    }

    fn next_step(
        &self,
        settings: &GroupSettings,
        (leader, count): (&LeaderFact, u64),
        now: Time,
    ) -> Option<Step> {
        let pool = &settings.pool;
        let seen = self.own_view(pool, now)?;
        let group = match self.facts.get(&facts::group_key(pool)) {
            // A damaged key is not overwritten.
            Some(fact) => Some(Group::decode(&fact.value)?),
            None => None,
        };
        let pending = self.groups.pending.get(pool).filter(|it| it.begun.is_none());
        // The faults of an order are told elsewhere.
        let begin = |pending| self.begin(pending, settings, (leader, count), now).ok();
        if let Some(step) = pending.and_then(begin) {
            return Some(step);
        }
        if self.is_ahead(pool) {
            return None;
        }
        let Some(group) = group.filter(|group| settings.servers.contains(&group.primary)) else {
            return self.adopt(settings, seen, count);
        };
        match &group.phase {
            Phase::Settled => self
                .fail_over(settings, seen, &group, count, now)
                .or_else(|| self.adopt_switched(settings, seen, &group, count)),
            Phase::Promoting => match seen.server(&group.primary).is_some_and(|it| it.is_primary())
            {
                true => {
                    let note = Note::FailedOver(pool.clone(), group.primary.clone());
                    Step::of(Group { phase: Phase::Settled, ..group }, note)
                }
                false => self
                    .fail_over(settings, seen, &group, count, now)
                    .or_else(|| self.choose_another(settings, seen, &group, (count, now))),
            },
            Phase::Switching { to } => self
                .end_switch(settings, seen, (&group, to), (count, now))
                .or_else(|| self.fail_over(settings, seen, &group, count, now)),
        }
    }

    fn decided(&self, epoch: u64, primary: &str, phase: Phase, why: &str) -> Group {
        let (primary, at) = (primary.to_owned(), self.wall_clock);
        Group { epoch, primary, old: None, phase, at, why: String::new() }.with_why(why)
    }

    /// Takes the primary that there is: every server answers, and one of them says that it is.
    fn adopt(&self, settings: &GroupSettings, seen: &GroupSeen, count: u64) -> Option<Step> {
        let all = settings.servers.iter().map(|address| seen.server(address));
        let all: Option<Vec<_>> = all.collect();
        let all = all.filter(|all| all.iter().all(|server| server.is_reached()))?;
        let mut primaries = all.iter().filter(|server| server.is_primary());
        let primary = primaries.next().filter(|_| primaries.next().is_none())?;
        let why = "it says that it is the primary, and no other server of the group does";
        let group = self.decided(count, &primary.address, Phase::Settled, why);
        Step::of(group, Note::PrimaryTaken(settings.pool.clone(), primary.address.clone()))
    }

    /// Decides another primary, if the observers agree that the one that is decided is down.
    fn fail_over(
        &self,
        settings: &GroupSettings,
        seen: &GroupSeen,
        group: &Group,
        count: u64,
        now: Time,
    ) -> Option<Step> {
        let verdict = self.verdict_of(settings, &group.primary, now);
        if !verdict.is_down {
            return None;
        }
        let why = format!(
            "{} was down for {} of {} observers",
            group.primary,
            verdict.down,
            verdict.observers + verdict.absent
        );
        // A server to which it was handing over has everything.
        let next = group.next().and_then(|to| seen.server(to)).filter(|server| server.is_primary());
        let silent = seen.server(&group.primary).and_then(|server| server.silent_ms).unwrap_or(0);
        let silent = settings.down_after.max(Duration::from_millis(silent));
        let chosen = next
            .or_else(|| best(seen, group, silent, |server| self.may_lead(settings, server, now)))?;
        // The replicas of one that was never promoted follow the primary before.
        let of_old = group.old.clone().filter(|_| group.phase == Phase::Promoting);
        let old = of_old.or_else(|| Some(group.primary.clone()));
        let old = old.filter(|old| *old != chosen.address);
        let phase = Phase::Promoting;
        let decided = Group { old, ..self.decided(count, &chosen.address, phase, &why) };
        let (from, to) = (group.primary.clone(), chosen.address.clone());
        Step::of(decided, Note::FailoverBegun { pool: settings.pool.clone(), from, to, why })
    }

    /// Decides another server, if the one that is decided did not become the primary: the next
    /// replica, or the primary before if that answers again.
    fn choose_another(
        &self,
        settings: &GroupSettings,
        seen: &GroupSeen,
        group: &Group,
        (count, now): (u64, Time),
    ) -> Option<Step> {
        let pool = &settings.pool;
        let key = (pool.clone(), group.primary.clone());
        let (_, why) = self.groups.unfit.get(&key)?;
        let counts = |server: &ServerSeen| self.may_lead(settings, server, now);
        let before = group.old.as_ref().and_then(|old| seen.server(old));
        let before = before.filter(|it| it.is_reached() && it.is_primary() && counts(it));
        let chosen = best(seen, group, settings.down_after, counts).or(before)?;
        let why = format!("{} did not become the primary: {why}", group.primary);
        let old = group.old.clone().filter(|old| *old != chosen.address);
        let decided = Group { old, ..self.decided(count, &chosen.address, Phase::Promoting, &why) };
        let (from, to) = (group.primary.clone(), chosen.address.clone());
        Step::of(decided, Note::FailoverBegun { pool: pool.clone(), from, to, why })
    }

    /// Takes another primary that somebody has made one by hand at the servers: the decided one
    /// follows it and has all of its data.
    fn adopt_switched(
        &self,
        settings: &GroupSettings,
        seen: &GroupSeen,
        group: &Group,
        count: u64,
    ) -> Option<Step> {
        let server = seen.server(&group.primary).filter(|server| server.is_reached())?;
        let Some(RoleSeen::Replica { of, is_linked: true, .. }) = &server.role else { return None };
        let listed = settings.servers.contains(of);
        let primary = seen.server(of).filter(|server| listed && server.is_primary())?;
        let why = format!("{} follows it, by order of somebody else", group.primary);
        let old = Some(group.primary.clone());
        let decided = Group { old, ..self.decided(count, &primary.address, Phase::Settled, &why) };
        Step::of(decided, Note::PrimaryTaken(settings.pool.clone(), primary.address.clone()))
    }

    /// Ends a switch by what the servers say after the order.
    fn end_switch(
        &self,
        settings: &GroupSettings,
        seen: &GroupSeen,
        (group, to): (&Group, &String),
        (count, now): (u64, Time),
    ) -> Option<Step> {
        let pool = &settings.pool;
        let outcome = self.groups.switched.get(pool)?;
        let from = &group.primary;
        let reached = |address: &str| seen.server(address).filter(|server| server.is_reached());
        let is_primary = |address: &str| reached(address).is_some_and(|it| it.is_primary());
        // Proxies use the next one as soon as it says that it is a primary.
        if is_primary(to) && (reached(from).is_some() || outcome.is_ok()) {
            let group = Group { old: Some(from.clone()), ..group.clone() };
            let settled =
                Group { epoch: count, primary: to.clone(), phase: Phase::Settled, ..group };
            return Step::of(settled, Note::FailedOver(pool.clone(), to.clone()));
        }
        let is_lost = || self.verdict_of(settings, to, now).is_down;
        let goes_back = match (is_primary(from), reached(from), reached(to)) {
            (true, ..) => true,
            // Somebody else has changed the servers. They are corrected as those of any group.
            (false, Some(_), Some(_)) => true,
            // It may have handed over, and has everything then.
            (false, Some(_), None) => is_lost(),
            // The observers say whether it is down.
            (false, None, _) => false,
        };
        if !goes_back {
            return None;
        }
        let why = outcome.as_ref().err().cloned().unwrap_or_default();
        let note = Note::NotSwitched(pool.clone(), to.clone(), why);
        Step::of(Group { epoch: count, phase: Phase::Settled, ..group.clone() }, note)
    }

    /// Begins a switch by order of an operator.
    ///
    /// # Errors
    /// Returns why it is refused.
    pub(super) fn begin(
        &self,
        pending: &Pending,
        settings: &GroupSettings,
        (leader, count): (&LeaderFact, u64),
        now: Time,
    ) -> Result<Step, ApplyFault> {
        let refuse = |why: String| Err(ApplyFault::NotFit(why));
        let (order, pool) = (&pending.order, &settings.pool);
        let Some(seen) = self.own_view(pool, now) else {
            return Err(ApplyFault::NotYet);
        };
        if self.roster.highest().epoch > leader.epoch {
            return Err(ApplyFault::WentBack);
        }
        if let Some(to) = order.to.as_ref().filter(|to| !settings.servers.contains(to)) {
            return refuse(format!(
                "{to} is not of pool {pool}, which has {}",
                settings.servers.join(", ")
            ));
        }
        let stored = self.group(pool);
        let by = Some((order.by.clone(), order.at));
        let why = format!("by order of {}", order.by.name);
        // The operator says what is right.
        let name = |to: &String, why: &str| {
            if !seen.server(to).is_some_and(|server| server.is_reached()) {
                return refuse(format!("{to} does not answer control"));
            }
            let before = stored.as_ref().and_then(|group| match group.phase {
                Phase::Promoting => group.old.clone(),
                _ => Some(group.primary.clone()),
            });
            let old = before.filter(|old| old != to);
            let decided = Group { old, ..self.decided(count, to, Phase::Promoting, why) };
            let note = Some(Note::PrimaryTaken(pool.clone(), to.clone()));
            Ok(Step { group: Some(decided), note, by: by.clone() })
        };
        let counts = |group: &&Group| settings.servers.contains(&group.primary);
        let group = stored.as_ref().filter(counts).filter(|_| !self.is_ahead(pool));
        let Some(group) = group else {
            return match &order.to {
                Some(to) => name(to, &why),
                None => refuse(format!(
                    "no primary of pool {pool} is decided that counts: name one with --to"
                )),
            };
        };
        let verdict = self.verdict_of(settings, &group.primary, now);
        if verdict.is_down {
            let (down, all) = (verdict.down, verdict.observers + verdict.absent);
            let is_down = format!("{} was down for {down} of {all} observers", group.primary);
            return match &order.to {
                Some(to) if *to != group.primary => name(to, &format!("{why}: {is_down}")),
                _ => refuse(format!(
                    "{is_down}: control fails over by itself if a replica can become the primary; \
                     name another server that answers with --to if none can"
                )),
            };
        }
        if group.phase == Phase::Promoting
            && let Some(to) = order.to.as_ref().filter(|to| **to != group.primary)
        {
            return name(to, &format!("{why}: {} is not the primary yet", group.primary));
        }
        if group.phase != Phase::Settled {
            return refuse(format!("a fail-over of pool {pool} is going on: wait for its end"));
        }
        let primary = &group.primary;
        if !seen.server(primary).is_some_and(|server| server.is_primary()) {
            return refuse(format!(
                "{primary}, the primary of pool {pool}, does not answer control as one: control \
                 fails over by itself when the observers agree"
            ));
        }
        if order.to.as_ref() == Some(primary) {
            // Members that have taken more decisions refuse this one, so it is made again.
            if self.decision_count().is_some_and(|count| count < self.groups.highest) {
                return name(primary, &why);
            }
            return refuse(format!("{primary} is the primary of pool {pool} already"));
        }
        let chosen = match &order.to {
            Some(to) => seen.server(to),
            None => best(seen, group, Duration::ZERO, |it| self.may_lead(settings, it, now)),
        };
        let Some(chosen) = chosen else {
            return refuse(format!("pool {pool} has no replica that can become the primary"));
        };
        let to = chosen.address.clone();
        let is_linked = match &chosen.role {
            Some(RoleSeen::Replica { of, .. }) if of != primary => {
                return refuse(format!("{to} follows {of} and not {primary} yet: try again"));
            }
            Some(RoleSeen::Replica { is_linked, .. }) => *is_linked,
            _ => true,
        };
        match fitness(chosen) {
            Err(why) => return refuse(format!("{to} {why}")),
            Ok(_) if !is_linked => {
                return refuse(format!("{to} is not connected to its primary"));
            }
            Ok(_) => {}
        }
        let (from, phase) = (primary.clone(), Phase::Switching { to: to.clone() });
        let decided = Group { old: group.old.clone(), ..self.decided(count, &from, phase, &why) };
        let note = Note::SwitchBegun { pool: pool.clone(), from, to, by: order.by.name.clone() };
        Ok(Step { group: Some(decided), note: Some(note), by })
    }
}
