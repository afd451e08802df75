//! The steps of plans: what is written next about the slots of a pool.

use super::tend::FENCE_MAX;
use super::{SlotsChange, SlotsOrder, has_caught_up};
use crate::audit::{AuditOutcome, Author, Record};
use crate::facts::{self, DECISIONS, LEADER};
use crate::leader::orders::Ordered;
use crate::leader::{ApplyFault, Leader, Purpose};
use crate::slots::{MoverReport, Plan, PlanPhase, SlotRanges, SlotsFact};
use crate::{LeaderFact, Note, Version, When, Write};
use keyway_base::Time;

/// Plans of a pool that go on at most.
const GOING_MAX: usize = 16;

/// Bytes of a pool's map and plans in the coordinator. A map of slots that alternate between groups has
/// more, and is not made.
const FACT_LEN_MAX: usize = 48 << 10;

/// A step that is to be written.
struct Step {
    pool: String,
    fact: SlotsFact,
    note: Note,
    /// True if the map or a fence changes. The fact then has the next epoch.
    changes_map: bool,
    /// The groups whose decisions must be those that are known.
    groups: Vec<String>,
    /// The entry of the audit log.
    record: Option<Record>,
}

impl Leader {
    /// Orders the transaction of the next step of a plan, or of an order about slots, if there is one.
    pub(in crate::leader) fn write_slots(
        &mut self,
        leader: &LeaderFact,
        modified: u64,
        now: Time,
    ) -> bool {
        while let Some(order) = self.moves.orders.pop_front() {
            let id = order.id;
            match self.begin_order(&order) {
                Ok((step, plan)) => {
                    let note = step.note.clone();
                    let Some(write) = self.write_of_slots(step, modified) else {
                        self.answer(id, Err(ApplyFault::Damaged));
                        continue;
                    };
                    let version = Version { epoch: leader.epoch, revision: plan };
                    let ordered = Ordered::new(id, version, &write);
                    self.notes.push_back(note);
                    self.write(write, Purpose::Order(ordered));
                    return true;
                }
                Err(fault) => self.answer(id, Err(fault)),
            }
        }
        let Some(settings) = &self.moves.settings else { return false };
        let pools: Vec<String> = settings.keys().cloned().collect();
        for pool in pools {
            let Some(step) = self.next_slots_step(&pool, now) else { continue };
            let note = step.note.clone();
            if let Some(write) = self.write_of_slots(step, modified) {
                self.write(write, Purpose::Group(Some(note)));
                return true;
            }
        }
        false
    }

    fn write_of_slots(&self, mut step: Step, modified: u64) -> Option<Write> {
        let key = facts::slots_key(&step.pool);
        let as_known = |key: &str| match self.facts.get(key) {
            Some(fact) => When::Modified(key.to_owned(), fact.modified),
            None => When::Absent(key.to_owned()),
        };
        let leads = When::Modified(LEADER.to_owned(), modified);
        let mut when = vec![leads, as_known(&key), as_known(DECISIONS)];
        when.extend(step.groups.iter().map(|group| as_known(&facts::group_key(group))));
        let mut write = Write { when, ..Write::default() };
        if step.changes_map {
            let count = self.next_decision()?;
            step.fact.epoch = count;
            write.put.push((DECISIONS.to_owned(), count.to_string().into_bytes()));
        }
        write.put.push((key, step.fact.encode()));
        if let Some(record) = step.record {
            self.put_audit(&mut write, record);
        }
        Some(write)
    }

    fn step(&self, pool: &str, fact: SlotsFact, plan: &Plan, phase: PlanPhase, why: &str) -> Step {
        let note = Note::PlanIs(pool.to_owned(), plan.id, phase, why.to_owned());
        let is_told = matches!(phase, PlanPhase::Cleaning | PlanPhase::Done | PlanPhase::Aborting);
        let record = is_told.then(|| Record {
            at: self.wall_clock,
            by: Author::control(),
            what: format!("plan {} of pool {pool} is {}", plan.id, phase.word()),
            before: None,
            after: None,
            changes: vec![described(plan)],
            outcome: AuditOutcome::Done,
            why: why.to_owned(),
            unlisted: 0,
        });
        let pool = pool.to_owned();
        Step { pool, fact, note, changes_map: false, groups: Vec::new(), record }
    }

    fn next_slots_step(&mut self, pool: &str, now: Time) -> Option<Step> {
        let fact = self.slots_fact(pool)?;
        let plan = fact.active()?.clone();
        let report = self.moves.running.get(pool).filter(|it| it.order.plan == plan.id);
        let report = report.and_then(|running| running.report.clone());
        let at = self.wall_clock;
        let to = |phase, why: &str| (fact.with_phase(plan.id, phase, at, why), phase);
        let failed = match &report {
            Some(MoverReport::Failed { why, is_final: true }) => Some(why.clone()),
            _ => None,
        };
        match plan.phase {
            PlanPhase::Planned => match (failed, report) {
                // Nothing was copied yet.
                (Some(why), _) => {
                    let (next, phase) = to(PlanPhase::Aborted, &why);
                    Some(self.step(pool, next, &plan, phase, &why))
                }
                (None, Some(MoverReport::Done(_))) => {
                    let (next, phase) = to(PlanPhase::Copying, "");
                    Some(self.step(pool, next, &plan, phase, ""))
                }
                _ => None,
            },
            PlanPhase::Copying => {
                if let Some(why) = failed {
                    let (next, phase) = to(PlanPhase::Aborting, &why);
                    return Some(self.step(pool, next, &plan, phase, &why));
                }
                self.may_fence(pool, &fact, &plan, now).then(|| {
                    let (next, phase) = to(PlanPhase::Fenced, "");
                    let step = self.step(pool, next, &plan, phase, "");
                    Step { changes_map: true, ..step }
                })
            }
            PlanPhase::Fenced => self.end_fence(pool, &fact, &plan, report, now),
            PlanPhase::Cleaning | PlanPhase::Aborting => {
                let next = match plan.phase {
                    PlanPhase::Cleaning => PlanPhase::Done,
                    _ => PlanPhase::Aborted,
                };
                matches!(report, Some(MoverReport::Done(_))).then(|| {
                    let (fact, phase) = to(next, &plan.why);
                    self.step(pool, fact, &plan, phase, &plan.why)
                })
            }
            PlanPhase::Done | PlanPhase::Aborted => None,
        }
    }

    /// Returns whether the slots of a plan may be fenced now.
    fn may_fence(&self, pool: &str, fact: &SlotsFact, plan: &Plan, now: Time) -> bool {
        let Some(running) = self.moves.running.get(pool) else { return false };
        let waits = self.moves.pausing.get(pool).is_some_and(|pausing| now < pausing.until);
        // A member that cannot be told would have the others hold their clients in vain.
        let is_absent = |(_, lacks): &(_, &str)| *lacks != "waits for replies";
        let lag = self.laggards(pool, fact.epoch);
        !running.is_finishing
            && has_caught_up(running.report.as_ref())
            && self.is_of_now(pool, plan, running)
            && !waits
            && !lag.iter().any(is_absent)
            && !self.is_behind()
    }

    /// Returns whether members have decisions that the coordinator does not know.
    fn is_behind(&self) -> bool {
        self.decision_count().is_none_or(|count| count < self.groups.highest())
    }

    /// Ends a fence: by the flip, or by taking it back.
    fn end_fence(
        &mut self,
        pool: &str,
        fact: &SlotsFact,
        plan: &Plan,
        report: Option<MoverReport>,
        now: Time,
    ) -> Option<Step> {
        let at = self.wall_clock;
        let running = self.moves.running.get(pool).filter(|it| it.order.plan == plan.id);
        let is_of_now = running.is_some_and(|running| self.is_of_now(pool, plan, running));
        let is_finishing = running.is_some_and(|running| running.is_finishing);
        if is_of_now && is_finishing && matches!(report, Some(MoverReport::Done(_))) {
            let step = self.step(pool, fact.flipped(plan.id, at), plan, PlanPhase::Cleaning, "");
            let groups = [&plan.from, &plan.to].map(|group| format!("{pool}:{group}")).to_vec();
            return Some(Step { changes_map: true, groups, ..step });
        }
        let known = self.moves.fenced.get(pool).filter(|(epoch, _)| *epoch == fact.epoch);
        let is_late = known.is_some_and(|(_, since)| now.since(*since) >= FENCE_MAX);
        let why = match &report {
            None if running.is_none() => "another control node leads".to_owned(),
            Some(MoverReport::Failed { why, .. }) => why.clone(),
            _ if !is_of_now => "a group has failed over".to_owned(),
            _ if is_late => {
                let lag = self.laggards(pool, fact.epoch);
                match lag.is_empty() {
                    true => "the last writes were not applied in time".to_owned(),
                    false => format!("not drained in time: {}", listed(&lag)),
                }
            }
            _ => return None,
        };
        self.pause_plan(pool, plan.id, &why, now);
        let fact = fact.with_phase(plan.id, PlanPhase::Copying, at, &why);
        let step = self.step(pool, fact, plan, PlanPhase::Copying, &why);
        Some(Step { changes_map: true, ..step })
    }

    /// Returns the step of an order, and the number of the first plan that it concerns.
    fn begin_order(&self, order: &SlotsOrder) -> Result<(Step, u64), ApplyFault> {
        let pool = &order.pool;
        let refuse = |why: String| Err(ApplyFault::NotFit(why));
        let Some(settings) = &self.moves.settings else { return Err(ApplyFault::NotYet) };
        let Some(settings) = settings.get(pool) else {
            return Err(ApplyFault::NoGroup(format!(
                "pool {pool} of the document is no pool of kind \"slots\" with `failover`, so \
                 control moves nothing there"
            )));
        };
        let mut fact = self.slots_fact(pool).ok_or(ApplyFault::Damaged)?;
        let first = match &order.what {
            SlotsChange::Move { slots, to, pace } => {
                let first = fact.next;
                let begun = self.new_plans(settings, &fact, order, (slots, to))?;
                for mut plan in begun {
                    plan.pace = *pace;
                    fact.next += 1;
                    fact.plans.push(plan);
                }
                let going = fact.plans.iter().filter(|plan| !plan.phase.is_over()).count();
                if going > GOING_MAX {
                    return refuse(format!("pool {pool} has {GOING_MAX} plans at most"));
                }
                if fact.encode().len() > FACT_LEN_MAX {
                    return refuse("so many ranges have no room: move longer ones".to_owned());
                }
                first
            }
            SlotsChange::Cancel(id)
            | SlotsChange::Pause(id)
            | SlotsChange::Resume(id)
            | SlotsChange::Pace(id, _) => {
                fact = changed(&fact, *id, order).map_err(ApplyFault::NotFit)?;
                *id
            }
        };
        let unfences = self.slots_fact(pool).is_some_and(|it| it.fenced() != fact.fenced());
        let what = order.what.words(pool);
        let record = Record {
            at: order.at,
            by: order.by.clone(),
            what: what.clone(),
            before: None,
            after: None,
            changes: fact.plans.iter().filter(|it| it.id >= first).map(described).collect(),
            outcome: AuditOutcome::Done,
            why: String::new(),
            unlisted: 0,
        };
        let note = Note::PlanOrdered(pool.clone(), first, what, order.by.name.clone());
        let pool = pool.clone();
        let record = Some(record);
        let step = Step { pool, fact, note, changes_map: unfences, groups: Vec::new(), record };
        Ok((step, first))
    }

    /// Returns the plans of an order to move slots.
    fn new_plans(
        &self,
        settings: &crate::slots::SlotsSettings,
        fact: &SlotsFact,
        order: &SlotsOrder,
        (slots, to): (&SlotRanges, &String),
    ) -> Result<Vec<Plan>, ApplyFault> {
        let refuse = |why: String| Err(ApplyFault::NotFit(why));
        let pool = &settings.pool;
        let is_group = |name: &String| settings.groups.iter().any(|(group, _)| group == name);
        if !is_group(to) {
            let names: Vec<&str> = settings.groups.iter().map(|(name, _)| &**name).collect();
            return refuse(format!("pool {pool} has no group {to}; it has {}", names.join(", ")));
        }
        if slots.is_empty() || slots.last().is_some_and(|last| last >= settings.count) {
            return refuse(format!("pool {pool} has the slots 0-{}", settings.count - 1));
        }
        let busy = slots.and(&fact.locked());
        if !busy.is_empty() {
            return refuse(format!(
                "slots {busy} are those of a plan that goes on: cancel it first"
            ));
        }
        let of_others = fact.owners.iter().filter(|(group, _)| *group != to);
        let parts = of_others.map(|(group, own)| (group, own.and(slots)));
        let parts: Vec<_> = parts.filter(|(_, part)| !part.is_empty()).collect();
        if parts.is_empty() {
            return refuse(format!("group {to} has these slots already"));
        }
        let plan = |(nth, (from, slots)): (usize, (&String, SlotRanges))| Plan {
            id: fact.next + nth as u64,
            slots,
            from: from.clone(),
            to: to.clone(),
            phase: PlanPhase::Planned,
            is_paused: false,
            pace: crate::slots::PlanPace::default(),
            at: order.at,
            by: order.by.name.clone(),
            why: String::new(),
        };
        Ok(parts.into_iter().enumerate().map(plan).collect())
    }
}

impl SlotsChange {
    /// Returns the order in a few words.
    fn words(&self, pool: &str) -> String {
        match self {
            SlotsChange::Move { slots, to, .. } => {
                format!("slots {slots} of pool {pool} move to {to}")
            }
            SlotsChange::Cancel(id) => format!("plan {id} of pool {pool} is cancelled"),
            SlotsChange::Pause(id) => format!("plan {id} of pool {pool} is paused"),
            SlotsChange::Resume(id) => format!("plan {id} of pool {pool} is resumed"),
            SlotsChange::Pace(id, _) => format!("plan {id} of pool {pool} gets another pace"),
        }
    }
}

/// Returns a fact after an order about one of its plans.
///
/// # Errors
/// Returns why the order is refused.
fn changed(fact: &SlotsFact, id: u64, order: &SlotsOrder) -> Result<SlotsFact, String> {
    let pool = &order.pool;
    let plan = fact.plan(id).ok_or_else(|| format!("pool {pool} has no plan {id}"))?;
    if !plan.phase.is_before_flip() {
        return Err(match plan.phase {
            PlanPhase::Cleaning | PlanPhase::Done => format!(
                "plan {id} is {}: group {} has its slots, so move them back instead",
                plan.phase.word(),
                plan.to
            ),
            _ => format!("plan {id} is {}", plan.phase.word()),
        });
    }
    let by = format!("by order of {}", order.by.name);
    let mut changed = fact.clone();
    match &order.what {
        SlotsChange::Cancel(_) => {
            // Before the copy the target has no key of it.
            let phase = match plan.phase {
                PlanPhase::Planned => PlanPhase::Aborted,
                _ => PlanPhase::Aborting,
            };
            return Ok(fact.with_phase(id, phase, order.at, &by));
        }
        SlotsChange::Pause(_) | SlotsChange::Resume(_) => {
            let pauses = matches!(order.what, SlotsChange::Pause(_));
            if plan.is_paused == pauses {
                let word = if pauses { "paused" } else { "not paused" };
                return Err(format!("plan {id} is {word}"));
            }
            if plan.phase == PlanPhase::Fenced {
                changed = fact.with_phase(id, PlanPhase::Copying, order.at, &by);
            }
            changed.plans.iter_mut().filter(|it| it.id == id).for_each(|it| it.is_paused = pauses);
        }
        SlotsChange::Pace(_, pace) => {
            changed.plans.iter_mut().filter(|it| it.id == id).for_each(|it| it.pace = *pace);
        }
        SlotsChange::Move { .. } => {}
    }
    Ok(changed)
}

fn described(plan: &Plan) -> String {
    format!("plan {}: slots {} of {} to {}", plan.id, plan.slots, plan.from, plan.to)
}

/// Returns members with what they lack, for people.
pub(super) fn listed(lag: &[(keyway_bus::NodeId, &str)]) -> String {
    let mut words: Vec<String> =
        lag.iter().take(3).map(|(id, lacks)| format!("{id} {lacks}")).collect();
    if lag.len() > 3 {
        words.push(format!("and {} others", lag.len() - 3));
    }
    words.join(", ")
}
