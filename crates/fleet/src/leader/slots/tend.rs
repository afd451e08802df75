//! Orders to movers.

use super::{Pausing, Running, work_of};
use crate::Note;
use crate::groups::Phase;
use crate::leader::{Action, Leader};
use crate::slots::{MoverGroup, MoverOrder, MoverReport, MoverWork, Plan, PlanPhase, SlotsFact};
use keyway_base::Time;
use std::time::Duration;

/// Shortest pause in front of another try of a plan. It doubles with each try.
const AGAIN_MIN: Duration = Duration::from_secs(1);

/// Longest such pause.
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// Time for a fence to be drained by all members, and for the last writes to be applied. Proxies
/// answer with an error soon after.
pub(super) const FENCE_MAX: Duration = Duration::from_millis(1500);

impl Leader {
    /// Orders what movers are to do.
    pub(in crate::leader) fn tend_slots(&mut self, now: Time) {
        let Some(settings) = &self.moves.settings else { return };
        let pools: Vec<String> = settings.keys().cloned().collect();
        let known = |pool: &String| pools.contains(pool);
        let ended: Vec<String> =
            self.moves.running.keys().filter(|pool| !known(pool)).cloned().collect();
        ended.iter().for_each(|pool| self.end_mover(pool));
        self.moves.pausing.retain(|pool, _| pools.contains(pool));
        self.moves.fenced.retain(|pool, _| pools.contains(pool));
        let mut due: Option<Time> = None;
        for pool in &pools {
            let Some(fact) = self.slots_fact(pool) else { continue };
            let at = self.tend_pool(pool, &fact, now);
            due = due.into_iter().chain(at).min();
        }
        self.moves.due = due;
    }

    /// Tends a pool. Returns when something is due there.
    fn tend_pool(&mut self, pool: &str, fact: &SlotsFact, now: Time) -> Option<Time> {
        let Some(plan) = fact.active().cloned() else {
            self.end_mover(pool);
            self.moves.pausing.remove(pool);
            self.moves.fenced.remove(pool);
            return None;
        };
        let is_other = |id: u64| id != plan.id;
        if self.moves.running.get(pool).is_some_and(|running| is_other(running.order.plan)) {
            self.end_mover(pool);
        }
        self.moves.pausing.retain(|name, pausing| name != pool || pausing.plan == plan.id);
        if plan.phase == PlanPhase::Fenced {
            return self.tend_fence(pool, fact, &plan, now);
        }
        self.moves.fenced.remove(pool);
        let work = work_of(plan.phase)?;
        self.note_failed(pool, &plan, now);
        // A copy that was finished, or whose groups have other primaries, is no copy any more.
        let is_stale = self.moves.running.get(pool).is_some_and(|running| {
            let is_of_step = running.order.work == work;
            !is_of_step || running.is_finishing || !self.is_of_now(pool, &plan, running)
        });
        if is_stale {
            self.end_mover(pool);
        }
        if let Some(running) = self.moves.running.get_mut(pool) {
            if running.order.pace != plan.pace {
                running.order.pace = plan.pace;
                let order = running.order.clone();
                self.actions.push_back(Action::Move(order));
            }
            return None;
        }
        let until = self.moves.pausing.get(pool).map(|pausing| pausing.until);
        if let Some(until) = until.filter(|until| now < *until) {
            return Some(until);
        }
        self.start_mover(pool, fact, &plan, work);
        None
    }

    /// Has the mover finish when the fence is drained. Returns when the fence is to be taken back.
    fn tend_fence(&mut self, pool: &str, fact: &SlotsFact, plan: &Plan, now: Time) -> Option<Time> {
        let known = self.moves.fenced.get(pool).filter(|(epoch, _)| *epoch == fact.epoch);
        let since = known.map_or(now, |(_, since)| *since);
        self.moves.fenced.insert(pool.to_owned(), (fact.epoch, since));
        let is_drained = self.laggards(pool, fact.epoch).is_empty();
        let is_fit = self.moves.running.get(pool).is_some_and(|running| {
            !running.is_finishing
                && super::is_tailing(running.report.as_ref())
                && self.is_of_now(pool, plan, running)
        });
        if is_drained && is_fit {
            self.moves.next_number += 1;
            let number = self.moves.next_number;
            if let Some(running) = self.moves.running.get_mut(pool) {
                running.is_finishing = true;
                running.report = None;
                running.order.number = number;
                let order = MoverOrder { work: MoverWork::Finish, ..running.order.clone() };
                self.actions.push_back(Action::Move(order));
            }
        }
        Some(since + FENCE_MAX)
    }

    /// Returns whether both groups have the primaries that they had when a mover was started.
    pub(super) fn is_of_now(&self, pool: &str, plan: &Plan, running: &Running) -> bool {
        self.groups_of(pool, plan) == Some(running.groups)
    }

    /// Returns the epochs of the decisions about both groups, if no fail-over is going on there.
    fn groups_of(&self, pool: &str, plan: &Plan) -> Option<(u64, u64)> {
        let settled = |group: &str| {
            let group = self.group(&format!("{pool}:{group}"))?;
            (group.phase == Phase::Settled).then_some(group.epoch)
        };
        Some((settled(&plan.from)?, settled(&plan.to)?))
    }

    fn mover_group(&self, pool: &str, group: &str) -> Option<MoverGroup> {
        let name = format!("{pool}:{group}");
        let primary = self.group(&name)?.primary;
        let settings = self.groups.settings(&name)?;
        let others = settings.servers.iter().filter(|server| **server != primary);
        Some(MoverGroup {
            primary: primary.clone(),
            others: others.cloned().collect(),
            group: name,
        })
    }

    fn start_mover(&mut self, pool: &str, fact: &SlotsFact, plan: &Plan, work: MoverWork) {
        let Some(count) = self.moves.settings.as_ref().and_then(|all| Some(all.get(pool)?.count))
        else {
            return;
        };
        let Some(groups) = self.groups_of(pool, plan) else { return };
        let found = self.mover_group(pool, &plan.from).zip(self.mover_group(pool, &plan.to));
        let Some((from, to)) = found else { return };
        // Slots that the target owns are left alone, whatever an earlier plan has left.
        let own = fact.owners.get(if work == MoverWork::Clean { &plan.from } else { &plan.to });
        let slots = own.map_or_else(|| plan.slots.clone(), |own| plan.slots.without(own));
        self.moves.next_number += 1;
        let number = self.moves.next_number;
        let (pool, pace) = (pool.to_owned(), plan.pace);
        let order = MoverOrder {
            pool: pool.clone(),
            plan: plan.id,
            number,
            work,
            slots,
            count,
            from,
            to,
            pace,
        };
        let running = Running { order: order.clone(), report: None, groups, is_finishing: false };
        self.moves.running.insert(pool, running);
        self.actions.push_back(Action::Move(order));
    }

    /// Ends the mover of a pool, if there is one.
    pub(super) fn end_mover(&mut self, pool: &str) {
        if self.moves.running.remove(pool).is_some() {
            self.actions.push_back(Action::EndMove(pool.to_owned()));
        }
    }

    /// Ends a mover that has failed. The next one begins after a pause.
    fn note_failed(&mut self, pool: &str, plan: &Plan, now: Time) {
        let Some(running) = self.moves.running.get(pool) else { return };
        let Some(MoverReport::Failed { why, is_final: false }) = &running.report else { return };
        let why = why.clone();
        self.pause_plan(pool, plan.id, &why, now);
        self.end_mover(pool);
    }

    /// Has the next try of a plan wait.
    pub(super) fn pause_plan(&mut self, pool: &str, plan: u64, why: &str, now: Time) {
        let before = self.moves.pausing.get(pool).filter(|pausing| pausing.plan == plan);
        let tries = before.map_or(0, |pausing| pausing.tries) + 1;
        let pause = AGAIN_MIN.saturating_mul(1 << (tries - 1).min(10)).min(AGAIN_MAX);
        let (until, why) = (now + pause, why.to_owned());
        self.notes.push_back(Note::PlanWaits(pool.to_owned(), plan, why.clone()));
        self.moves.pausing.insert(pool.to_owned(), Pausing { plan, tries, until, why });
    }
}
