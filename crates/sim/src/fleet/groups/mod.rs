//! Groups of servers under control nodes that fail, on virtual time: who is the primary, and who is
//! told so.
//!
//! A seed has one to three pools, each with servers and settings of its own. Observers are proxies:
//! they see the servers of their pools over links that fail, report, and obey decisions. An order to
//! the servers may be executed late, by a node that leads no more, or in part. The document gets
//! pools and loses them meanwhile.

mod document;
mod faults;
mod observer;
mod orders;
mod peace;
mod pool;
mod servers;

use super::FleetReport;
use super::clock::Clocks;
use super::engine::Engine;
use super::people::{Control, Sent, control_id};
use crate::random::Random;
use document::Listed;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::{
    ApplyFault, Failover, GroupOrder, LeaderAction, OrderId, PublishedGroups, Version, Written,
};
use observer::Observer;
use orders::{Asked, Operators};
use pool::{Change, Pool};
use servers::network;
use std::fmt::{self, Write as _};
use std::time::Duration;

/// The names of the pools. The leader looks at them in the order of their names.
const POOLS: [&str; 3] = ["main", "users", "carts"];

pub(super) struct GroupsWorld {
    seed: u64,
    random: Random,
    now: Time,
    engine: Engine,
    backups: Vec<Engine>,
    controls: Vec<Option<Control>>,
    topics: Vec<Option<PublishedGroups>>,
    /// Orders to the servers that a control node has given, also after it has stopped to lead.
    orders: Vec<(usize, GroupOrder)>,
    observers: Vec<Observer>,
    pools: Vec<Pool>,
    listed: Listed,
    /// The largest number of a decision about any pool.
    highest: u64,
    operators: Operators,
    /// Processes that were started later.
    started: u64,
    went_back: bool,
    may_go_back: bool,
    is_peace: bool,
    report: FleetReport,
    story: Option<String>,
}

impl GroupsWorld {
    pub fn new(seed: u64, has_story: bool) -> GroupsWorld {
        let mut random = Random::new(seed ^ 0x67_726f_7570);
        let controls = random.between(1, 3) as usize;
        let observers = random.between(1, 5) as usize;
        let zones = random.between(1, 3);
        let count = random.between(1, POOLS.len() as u64) as usize;
        let calm = (count > 1 && random.percent(50)).then(|| random.index(count));
        let pool = |nth| Pool::new((nth, POOLS[nth]), calm == Some(nth), observers, &mut random);
        let pools: Vec<Pool> = (0..count).map(pool).collect();
        let id = |nth: usize| NodeId::of(1 + nth as u64 % zones, 3, 0, nth as u64 + 1);
        GroupsWorld {
            seed,
            now: Time(1_000_000_000),
            engine: Engine::default(),
            backups: Vec::new(),
            controls: (0..controls)
                .map(|nth| Some(Control::new(nth, Clocks::of(seed, nth as u64))))
                .collect(),
            topics: vec![None; controls],
            orders: Vec::new(),
            observers: (0..observers)
                .map(|nth| {
                    let clocks = Clocks::of(seed, 8 + nth as u64);
                    Observer::start(id(nth).unwrap_or_default(), clocks, wants(count, &mut random))
                })
                .collect(),
            pools,
            listed: Listed::new(count, controls, &mut random),
            highest: 0,
            operators: Operators::default(),
            started: 0,
            went_back: false,
            may_go_back: random.percent(20),
            is_peace: false,
            report: FleetReport::default(),
            story: has_story.then(String::new),
            random,
        }
    }

    /// Returns the clocks of a process that starts.
    fn clocks(&mut self) -> Clocks {
        self.started += 1;
        Clocks::of(self.seed, 100 + self.started)
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let _ = writeln!(story, "{:>9.3} {}", self.now.0 as f64 / 1e9, what());
        }
    }

    fn broken(&self, law: impl Into<String>) -> String {
        let story = self.story.as_deref().unwrap_or_default();
        format!(
            "{story}seed {}: groups: {}; --fleet --from {0} --seeds 1 --story",
            self.seed,
            law.into()
        )
    }

    fn broken_of(&self, pool: usize, law: impl fmt::Display) -> String {
        self.broken(format!("pool {}: {law}", POOLS[pool]))
    }

    fn replace(&mut self, nth: usize, control: Option<Control>) {
        self.controls[nth] = control;
        self.topics[nth] = None;
        self.forget_lead(nth);
        self.operators.forget(nth);
        if self.random.percent(50) {
            self.orders.retain(|(of, _)| *of != nth);
        }
    }

    /// A control node leads no more, or begins to: it has heard nobody, and has read no document.
    fn forget_lead(&mut self, nth: usize) {
        self.pools.iter_mut().for_each(|pool| pool.forget_heard(nth));
        self.listed.forget(nth);
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(100) {
            0..20 => self.speak(),
            20..35 => self.execute()?,
            35..50 => self.observe(),
            50..60 => self.probe(),
            60..70 => self.command(),
            70..80 => self.sync(),
            80..90 => self.pass_time(),
            90..94 => {
                let pool = self.random.index(self.pools.len());
                self.pools[pool].servers().live(&mut self.random, self.now);
            }
            94..96 => self.order(),
            _ if self.is_peace => self.pass_time(),
            _ => self.harm(),
        }
        self.carry_out()?;
        self.check()
    }

    fn living(&mut self) -> Option<usize> {
        let nth = self.random.index(self.controls.len());
        let now = self.now;
        let lives = |one: &Control| one.hangs_until <= now;
        self.controls[nth].as_ref().is_some_and(lives).then_some(nth)
    }

    fn speak(&mut self) {
        let Some(nth) = self.living() else { return };
        let Some(control) = &mut self.controls[nth] else { return };
        let is_behind = control.leader.leads() && self.listed.is_behind(nth);
        if is_behind && self.random.percent(50) {
            return self.take_document(nth);
        }
        control.speak(&mut self.engine, &mut self.random, self.now);
    }

    /// A leader takes the groups of the current document.
    fn take_document(&mut self, nth: usize) {
        for gone in self.listed.take(nth) {
            self.pools[gone].forget_heard(nth);
        }
        let listed = self.listed.pools().into_iter();
        let settings = listed.map(|pool| self.pools[pool].settings().clone()).collect();
        if let Some(control) = &mut self.controls[nth] {
            control.leader.set_groups(settings, control.clocks.at(self.now));
        }
    }

    fn execute(&mut self) -> Result<(), String> {
        let nth = self.random.index(self.controls.len());
        let Some(control) = &mut self.controls[nth] else { return Ok(()) };
        let Some(Sent { ticket, write, session }) = control.sent.take() else { return Ok(()) };
        let fails = !self.is_peace && (control.cut_until > self.now || self.random.percent(8));
        let written = match (fails, self.random.percent(50)) {
            (true, true) => Written::Failed("cut off".to_owned()),
            (true, false) => {
                if self.random.percent(50) {
                    let _ = self.engine.execute(&write, session, self.now);
                }
                Written::Unknown("no answer".to_owned())
            }
            (false, _) => match self.engine.execute(&write, session, self.now) {
                Some(revision) => Written::Done(revision),
                None => Written::Refused,
            },
        };
        self.tell(|| format!("control {nth}: {written:?}"));
        if let Some(control) = &mut self.controls[nth] {
            control.leader.handle_written(ticket, written, control.clocks.at(self.now));
        }
        self.look()
    }

    /// Looks at the coordinator after a transaction, which is about one pool.
    fn look(&mut self) -> Result<(), String> {
        let count =
            self.engine.value("decisions").and_then(|it| str::from_utf8(it).ok()?.parse().ok());
        let count = count.unwrap_or(0);
        let mut changed = None;
        for pool in 0..self.pools.len() {
            let change = self.pools[pool].look(&self.engine, (count, self.went_back));
            let change = change.map_err(|law| self.broken_of(pool, law))?;
            let Some(change) = change else { continue };
            if let Some(other) = changed.replace(pool) {
                let law = format!("a transaction about it changes pool {}", POOLS[other]);
                return Err(self.broken_of(pool, law));
            }
            self.note_change(pool, change, count)?;
        }
        Ok(())
    }

    /// Each decision has a larger number than all before it, about whatever pool. A removal has one,
    /// too.
    fn note_change(&mut self, pool: usize, change: Change, count: u64) -> Result<(), String> {
        let number = match change {
            Change::Step => return Ok(()),
            Change::Decision { epoch, is_other, by_hand } => {
                self.report.failovers += u64::from(is_other);
                self.report.switches += u64::from(is_other && by_hand);
                epoch
            }
            Change::Removal => {
                self.report.forgotten += 1;
                count
            }
        };
        let before = std::mem::replace(&mut self.highest, number);
        match (number > before && number == count) || self.went_back {
            true => Ok(()),
            false => {
                let law = format!("{change:?} is number {number} of {count}, after {before}");
                Err(self.broken_of(pool, law))
            }
        }
    }

    /// An observer looks at the servers of its pools and reports to whoever it believes to lead.
    fn observe(&mut self) {
        let nth = self.random.index(self.observers.len());
        let observer = &mut self.observers[nth];
        if observer.hangs(self.now) {
            return;
        }
        if self.random.percent(30) {
            observer.take_document(self.listed.current());
        }
        let id = observer.id();
        let used: Vec<usize> = (0..self.pools.len()).filter(|pool| observer.uses(*pool)).collect();
        let views = used.iter().map(|pool| {
            let epoch = observer.epoch(POOLS[*pool]);
            self.pools[*pool].seen_by((id, observer.clocks()), epoch, self.now)
        });
        let body = observer.report(views.collect()).encode();
        for to in 0..self.controls.len() {
            if !self.is_peace && self.random.percent(15) {
                continue;
            }
            let Some(control) = &mut self.controls[to] else { continue };
            if control.hangs_until <= self.now {
                control.leader.handle_report(id, &body, control.clocks.at(self.now));
                for pool in used.iter().filter(|pool| self.listed.taken(to, **pool) == Some(true)) {
                    self.pools[*pool].note_heard(id, to, self.now);
                }
            }
        }
    }

    /// The threads of a control node look at their servers.
    fn probe(&mut self) {
        let Some(nth) = self.living() else { return };
        for pool in 0..self.pools.len() {
            if self.random.percent(20) {
                continue;
            }
            if let Some(control) = &mut self.controls[nth] {
                let by = (control_id(nth), &control.clocks);
                let seen = self.pools[pool].seen_by(by, 0, self.now);
                control.leader.probed(seen, control.clocks.at(self.now));
            }
            if self.listed.taken(nth, pool) == Some(true) {
                self.pools[pool].note_heard(control_id(nth), nth, self.now);
            }
        }
    }

    /// The thread of a control node executes an order, also if that node hangs or leads no more.
    fn command(&mut self) {
        if self.orders.is_empty() {
            return;
        }
        let at = self.random.index(self.orders.len());
        let (nth, order) = self.orders.remove(at);
        let is_bad = !self.is_peace && self.random.percent(20);
        let Some(pool) = self.pool_of(&order) else { return };
        let servers = self.pools[pool].servers();
        let outcome = servers.execute(control_id(nth), &order.what, is_bad, self.now);
        self.tell(|| format!("control {nth}: {:?}: {outcome:?}", order.what));
        if let Some(control) = &mut self.controls[nth] {
            control.leader.commanded(
                (&order.pool, order.number),
                outcome,
                control.clocks.at(self.now),
            );
        }
    }

    fn pool_of(&self, order: &GroupOrder) -> Option<usize> {
        self.pools.iter().position(|pool| pool.name() == order.pool)
    }

    /// The bus brings the decisions of a control node to an observer.
    fn sync(&mut self) {
        let Some(nth) = self.living() else { return };
        let to = self.random.index(self.observers.len());
        let Some(published) = self.topics[nth].clone() else { return };
        let observer = &mut self.observers[to];
        if observer.hangs(self.now) || (!self.is_peace && self.random.percent(10)) {
            return;
        }
        self.report.refusals += u64::from(!observer.take(&published));
    }

    fn pass_time(&mut self) {
        self.now = self.now + Duration::from_millis(self.random.scaled(1, 500));
        self.engine.expire(self.now);
        for control in self.controls.iter_mut().flatten() {
            if control.hangs_until <= self.now {
                let wall = control.clocks.wall();
                control.leader.set_wall_clock(wall);
                control.leader.handle_timeout(control.clocks.at(self.now));
            }
        }
    }

    fn order(&mut self) {
        let Some(nth) = self.living() else { return };
        if self.is_peace {
            return;
        }
        let Some(pool) = self.any_hit() else { return };
        // An operator may confuse the pools.
        let of = if self.random.percent(10) { self.random.index(self.pools.len()) } else { pool };
        let to = self.pools[of].any_address(&mut self.random);
        let to = self.random.percent(60).then_some(to);
        self.order_of(nth, pool, to);
    }

    fn order_of(&mut self, nth: usize, pool: usize, to: Option<String>) -> Option<OrderId> {
        let control = self.controls[nth].as_mut()?;
        let (id, by) = self.operators.ask(Asked { nth, pool: Some(pool), to: to.clone() });
        let pool = self.pools[pool].name().to_owned();
        let at = control.clocks.wall();
        control.leader.failover(Failover { id, pool, to, at, by }, control.clocks.at(self.now));
        Some(id)
    }

    fn carry_out(&mut self) -> Result<(), String> {
        for nth in 0..self.controls.len() {
            while let Some(action) =
                self.controls[nth].as_mut().and_then(|control| control.leader.poll_action())
            {
                self.carry_out_of(nth, action)?;
            }
            while let Some(note) = self.controls[nth].as_mut().and_then(|it| it.leader.poll_note())
            {
                self.tell(|| format!("control {nth}: {note}"));
            }
        }
        Ok(())
    }

    fn carry_out_of(&mut self, nth: usize, action: LeaderAction) -> Result<(), String> {
        self.tell(|| format!("control {nth}: {action:?}"));
        let Some(control) = &mut self.controls[nth] else { return Ok(()) };
        match action {
            LeaderAction::Write(ticket, write) => {
                let session = control.session.map_or(0, |(session, _)| session);
                control.sent = Some(Sent { ticket, write: write.clone(), session });
                for (pool, world) in self.pools.iter().enumerate() {
                    let taken = self.listed.taken(nth, pool);
                    let checked =
                        world.check_write((nth, taken), &write, &self.observers, self.now);
                    checked.map_err(|law| self.broken_of(pool, law))?;
                }
            }
            LeaderAction::List => control.watched = None,
            LeaderAction::Follow(_) | LeaderAction::Adrift => {
                self.topics[nth] = None;
                self.listed.forget(nth);
            }
            LeaderAction::PublishGroups(published) => {
                let is_later = self.topics[nth].as_ref().is_none_or(|known| {
                    let stamp = |one: &PublishedGroups| (one.version.epoch, one.version.revision);
                    stamp(known) < stamp(&published)
                });
                if is_later {
                    self.topics[nth] = Some(published);
                }
            }
            LeaderAction::Command(order) => {
                let Some(pool) = self.pool_of(&order) else {
                    return Err(self.broken(format!("{order:?} is about no pool")));
                };
                let checked = self.pools[pool].check_command(&order.what);
                checked.map_err(|law| self.broken_of(pool, law))?;
                self.orders.push((nth, order));
            }
            LeaderAction::Answer(id, outcome) => self.note_answer(id, outcome)?,
            LeaderAction::Lead => {
                self.report.elections += 1;
                self.forget_lead(nth);
                if self.random.percent(50) {
                    self.take_document(nth);
                }
            }
            // No pool here has slots that move.
            LeaderAction::Publish(_) | LeaderAction::Move(_) | LeaderAction::EndMove(_) => {}
        }
        Ok(())
    }

    fn note_answer(
        &mut self,
        id: OrderId,
        outcome: Result<Version, ApplyFault>,
    ) -> Result<(), String> {
        let asked = self.operators.take(id, &outcome).map_err(|law| self.broken(law))?;
        let Some(pool) = asked.pool else { return Ok(()) };
        match &outcome {
            Ok(version) if !self.went_back => {
                let checked = self.pools[pool].check_answer(version.revision, asked.to.as_ref());
                checked.map_err(|law| self.broken_of(pool, law))
            }
            Ok(_) => Ok(()),
            Err(fault) => self.note_fault(pool, &asked, fault),
        }
    }

    /// A refusal is about the pool that was named, and about no server of another one.
    fn note_fault(&mut self, pool: usize, asked: &Asked, fault: &ApplyFault) -> Result<(), String> {
        self.report.unknown += u64::from(matches!(fault, ApplyFault::Unknown(_)));
        let taken = self.listed.taken(asked.nth, pool);
        if matches!(fault, ApplyFault::NoGroup(_)) && taken == Some(true) {
            return Err(self.broken_of(pool, "the document has it, and an order is told of none"));
        }
        let said = fault.to_string().replace(asked.to.as_deref().unwrap_or("-"), "");
        let mut others = (0..self.pools.len()).filter(|other| *other != pool);
        match others.any(|other| said.contains(&network(other))) {
            true => {
                Err(self.broken_of(pool, format!("an order is refused by another one: {said}")))
            }
            false => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        for pool in 0..self.pools.len() {
            let excused = self.went_back && self.listed.was_dropped(pool);
            let checked = self.pools[pool].check_obeyed(&self.observers, (self.went_back, excused));
            checked.map_err(|law| self.broken_of(pool, law))?;
        }
        Ok(())
    }
}

/// Returns which pools an observer uses: all of them, or some.
fn wants(pools: usize, random: &mut Random) -> Vec<bool> {
    let (all, one) = (random.percent(60), random.index(pools));
    (0..pools).map(|nth| all || nth == one || random.percent(50)).collect()
}
