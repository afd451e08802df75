//! A group of servers under control nodes that fail, on virtual time: who is the primary, and who is
//! told so.
//!
//! Observers are proxies: they see the servers over links that fail, report, and obey decisions. An
//! order to the servers may be executed late, by a node that leads no more, or in part.

mod faults;
mod observer;
mod orders;
mod peace;
mod pool;
mod servers;

use super::FleetReport;
use super::engine::Engine;
use super::people::{Control, Sent, control_id};
use crate::random::Random;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::{
    ApplyFault, Failover, GroupOrder, LeaderAction, OrderId, PublishedGroups, Version, Written,
};
use observer::Observer;
use orders::Operators;
use pool::Pool;
use std::fmt::Write as _;
use std::time::Duration;

const POOL: &str = "main";

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
    pool: Pool,
    operators: Operators,
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
        let servers = random.between(2, 4) as usize;
        let down_after = Duration::from_millis(random.between(1000, 3000));
        let id = |nth: usize| NodeId::of(1 + nth as u64 % zones, 3, 0, nth as u64 + 1);
        GroupsWorld {
            seed,
            now: Time(1_000_000_000),
            engine: Engine::default(),
            backups: Vec::new(),
            controls: (0..controls).map(|nth| Some(Control::new(nth))).collect(),
            topics: vec![None; controls],
            orders: Vec::new(),
            observers: (0..observers)
                .map(|nth| Observer::start(id(nth).unwrap_or_default(), None))
                .collect(),
            pool: Pool::new(POOL, servers, down_after, observers),
            operators: Operators::default(),
            went_back: false,
            may_go_back: random.percent(20),
            is_peace: false,
            report: FleetReport::default(),
            story: has_story.then(String::new),
            random,
        }
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

    fn replace(&mut self, nth: usize, control: Option<Control>) {
        self.controls[nth] = control;
        self.topics[nth] = None;
        self.pool.forget_heard(nth);
        self.operators.forget(nth);
        if self.random.percent(50) {
            self.orders.retain(|(of, _)| *of != nth);
        }
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
            90..94 => self.pool.servers().live(&mut self.random, self.now),
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
        control.speak(&mut self.engine, &mut self.random, self.now);
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
            control.leader.handle_written(ticket, written, self.now);
        }
        self.look()
    }

    /// Looks at the coordinator after a transaction.
    fn look(&mut self) -> Result<(), String> {
        match self.pool.look(&self.engine, self.went_back) {
            Ok(Some(group)) => {
                self.report.failovers += 1;
                self.report.switches += u64::from(group.why.starts_with("by order"));
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(law) => Err(self.broken(law)),
        }
    }

    /// An observer looks at the servers and reports to whoever it believes to lead.
    fn observe(&mut self) {
        let nth = self.random.index(self.observers.len());
        let observer = &self.observers[nth];
        if observer.hangs(self.now) {
            return;
        }
        let id = observer.id();
        let seen = self.pool.seen_by(id, observer.epoch(POOL), self.now);
        let body = observer.report(vec![seen]).encode();
        for to in 0..self.controls.len() {
            if !self.is_peace && self.random.percent(15) {
                continue;
            }
            let Some(control) = &mut self.controls[to] else { continue };
            if control.hangs_until <= self.now {
                control.leader.handle_report(id, &body, self.now);
                self.pool.note_heard(id, to, self.now);
            }
        }
    }

    fn probe(&mut self) {
        let Some(nth) = self.living() else { return };
        let seen = self.pool.seen_by(control_id(nth), 0, self.now);
        if let Some(control) = &mut self.controls[nth] {
            control.leader.probed(seen, self.now);
            self.pool.note_heard(control_id(nth), nth, self.now);
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
        let servers = self.pool.servers();
        let outcome = servers.execute(control_id(nth), &order.what, is_bad, self.now);
        self.tell(|| format!("control {nth}: {:?}: {outcome:?}", order.what));
        if let Some(control) = &mut self.controls[nth] {
            control.leader.commanded((&order.pool, order.number), outcome, self.now);
        }
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
                control.leader.handle_timeout(self.now);
            }
        }
    }

    fn order(&mut self) {
        let Some(nth) = self.living() else { return };
        if self.is_peace {
            return;
        }
        let to = self.pool.any_address(&mut self.random);
        let to = self.random.percent(60).then_some(to);
        self.order_of(nth, to);
    }

    fn order_of(&mut self, nth: usize, to: Option<String>) {
        let Some(control) = &mut self.controls[nth] else { return };
        let (id, by) = self.operators.ask(nth, to.clone());
        let pool = self.pool.name().to_owned();
        control.leader.failover(Failover { id, pool, to, at: 0, by }, self.now);
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
                let checked = self.pool.check_write(nth, &write, &self.observers, self.now);
                control.sent = Some(Sent { ticket, write, session });
                checked.map_err(|law| self.broken(law))?;
            }
            LeaderAction::List => control.watched = None,
            LeaderAction::Follow(_) | LeaderAction::Adrift => self.topics[nth] = None,
            LeaderAction::PublishGroups(published) => {
                let is_later = self.topics[nth].as_ref().is_none_or(|known| {
                    let stamp = |one: &PublishedGroups| (one.version.epoch, one.version.revision);
                    stamp(known) < stamp(&published)
                });
                if is_later {
                    self.topics[nth] = Some(published);
                }
            }
            LeaderAction::Command(order) => self.orders.push((nth, order)),
            LeaderAction::Answer(id, outcome) => self.note_answer(id, outcome)?,
            LeaderAction::Lead => {
                self.report.elections += 1;
                self.pool.forget_heard(nth);
                control.leader.set_groups(vec![self.pool.settings().clone()], self.now);
            }
            LeaderAction::Publish(_) => {}
        }
        Ok(())
    }

    fn note_answer(
        &mut self,
        id: OrderId,
        outcome: Result<Version, ApplyFault>,
    ) -> Result<(), String> {
        let Some(asked) = self.operators.take(id) else {
            return Err(self.broken("an order is answered twice"));
        };
        match (outcome, &asked.to) {
            (Ok(version), Some(to)) if !self.went_back => {
                let checked = self.pool.check_answer(version.revision, to);
                checked.map_err(|law| self.broken(law))
            }
            (Err(ApplyFault::Unknown(_)), _) => {
                self.report.unknown += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let checked = self.pool.check_obeyed(&self.observers, self.went_back);
        checked.map_err(|law| self.broken(law))
    }
}
