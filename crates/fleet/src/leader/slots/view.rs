//! The slots of pools, as they are told.

use super::decide::listed;
use super::is_tailing;
use crate::leader::Leader;
use crate::slots::{MoverProgress, MoverReport, Plan, PlanPhase, SlotRanges};
use keyway_base::Time;
use std::collections::BTreeMap;

/// A pool whose slots may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotsView {
    /// The name of the pool.
    pub pool: String,
    /// The number of its slots.
    pub count: u16,
    /// The epoch of its map; 0 if that is the document's.
    pub epoch: u64,
    /// The names of its groups.
    pub groups: Vec<String>,
    /// The slots of each group that has some.
    pub owners: BTreeMap<String, SlotRanges>,
    /// The plans, in the order of their numbers.
    pub plans: Vec<PlanView>,
}

/// A plan, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanView {
    /// The plan.
    pub plan: Plan,
    /// The numbers of its mover, if that has told some.
    pub progress: Option<MoverProgress>,
    /// The next thing that it waits for; empty if it is over.
    pub waits_for: String,
}

impl Leader {
    /// Returns the pools whose slots may move. It is empty unless this node leads.
    pub fn slots_views(&self, now: Time) -> Vec<SlotsView> {
        let settings = self.moves.settings.iter().flatten();
        let view = settings.filter_map(|(pool, settings)| {
            let fact = self.slots_fact(pool)?;
            let active = fact.active().map(|plan| plan.id);
            let plans = fact.plans.iter().map(|plan| self.plan_view(pool, plan, active, now));
            Some(SlotsView {
                pool: pool.clone(),
                count: settings.count,
                epoch: fact.epoch,
                groups: settings.groups.iter().map(|(name, _)| name.clone()).collect(),
                owners: fact.owners.clone(),
                plans: plans.collect(),
            })
        });
        view.collect()
    }

    fn plan_view(&self, pool: &str, plan: &Plan, active: Option<u64>, now: Time) -> PlanView {
        let running = self.moves.running.get(pool).filter(|it| it.order.plan == plan.id);
        let report = running.and_then(|running| running.report.as_ref());
        let progress = report.and_then(|report| match report {
            MoverReport::Going(progress) | MoverReport::Done(progress) => Some(*progress),
            MoverReport::Failed { .. } => None,
        });
        let waits_for = match active {
            _ if plan.phase.is_over() => String::new(),
            _ if plan.is_paused && plan.phase.is_before_flip() => {
                "it is paused: keyway ctl slots resume".to_owned()
            }
            Some(id) if id != plan.id => format!("plan {id}"),
            _ => self.waits_for(pool, plan, report, now),
        };
        PlanView { plan: plan.clone(), progress, waits_for }
    }

    fn waits_for(
        &self,
        pool: &str,
        plan: &Plan,
        report: Option<&MoverReport>,
        now: Time,
    ) -> String {
        let pausing =
            self.moves.pausing.get(pool).filter(|it| it.plan == plan.id && now < it.until);
        if let Some(pausing) = pausing {
            let seconds = pausing.until.since(now).as_secs() + 1;
            return format!("the next try in {seconds} s: {}", pausing.why);
        }
        if !self.moves.running.contains_key(pool) {
            return "both groups to have a primary, and no fail-over".to_owned();
        }
        let epoch = self.slots_fact(pool).map_or(0, |fact| fact.epoch);
        let lag = self.laggards(pool, epoch);
        match plan.phase {
            PlanPhase::Planned => "the servers to be looked at".to_owned(),
            PlanPhase::Copying if !is_tailing(report) => "keys to be copied".to_owned(),
            PlanPhase::Copying if !lag.is_empty() => format!(
                "all proxies to obey the map: {}; if a process has ended for good: keyway ctl \
                 forget",
                listed(&lag)
            ),
            PlanPhase::Copying => "the copy to catch up with writes".to_owned(),
            PlanPhase::Fenced if !lag.is_empty() => format!("proxies to drain: {}", listed(&lag)),
            PlanPhase::Fenced => "the last writes to be applied".to_owned(),
            PlanPhase::Cleaning => format!("the copies at {} to be deleted", plan.from),
            PlanPhase::Aborting => format!("the copies at {} to be deleted", plan.to),
            PlanPhase::Done | PlanPhase::Aborted => String::new(),
        }
    }
}
