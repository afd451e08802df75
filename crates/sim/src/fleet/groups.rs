//! A group of servers under control nodes that fail, on virtual time: who is the primary, and who is
//! told so.
//!
//! Observers are proxies: they see the servers over links that fail, report, and obey decisions. An
//! order to the servers may be executed late, by a node that leads no more, or in part.

use super::FleetReport;
use super::engine::Engine;
use super::people::{CLUSTER, Control, Sent, control_id};
use super::servers::{Server, Servers, address};
use crate::random::Random;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::{
    About, Apply, ApplyFault, Author, Command, Decisions, Failover, Group, GroupOrder, GroupSeen,
    GroupSettings, LeaderAction, OrderId, Phase, PublishedGroups, Report, Version, Written,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Steps with faults.
const STEPS: u64 = 2500;
/// Steps in peace within which everything must come to rest.
const PEACE: u64 = 5000;
/// A server that an observer has reached for so long must not be down for it: longer than a view
/// counts.
const SEEN_FOR: Duration = Duration::from_secs(5);

pub(super) const POOL: &str = "main";

/// A proxy that uses the group.
#[derive(Debug)]
struct Observer {
    id: NodeId,
    decisions: Decisions,
    disk: Option<Vec<u8>>,
    hangs_until: Time,
}

impl Observer {
    fn start(id: NodeId, disk: Option<Vec<u8>>) -> Observer {
        let decisions = disk.as_deref().and_then(Decisions::decode);
        let decisions = decisions.unwrap_or_else(|| Decisions::new(CLUSTER));
        Observer { id, decisions, disk, hangs_until: Time(0) }
    }

    fn epoch(&self) -> u64 {
        self.decisions.of(POOL).map_or(0, |decided| decided.epoch)
    }
}

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
    servers: Servers,
    settings: GroupSettings,
    /// The latest time at which each observer's view has reached each control node.
    heard: BTreeMap<(NodeId, usize), Time>,
    /// Orders of operators that are not answered: the node that was asked, and the server.
    asked: BTreeMap<OrderId, (usize, Option<String>)>,
    seen: Option<Group>,
    /// The primary of each epoch.
    decided: BTreeMap<u64, (String, Option<String>)>,
    epochs: Vec<u64>,
    went_back: bool,
    may_go_back: bool,
    is_peace: bool,
    next_order: u64,
    report: FleetReport,
    story: Option<String>,
}

impl GroupsWorld {
    pub fn new(seed: u64, has_story: bool) -> GroupsWorld {
        let mut random = Random::new(seed ^ 0x67_726f_7570);
        let controls = random.between(1, 3) as usize;
        let observers = random.between(1, 5) as usize;
        let zones = random.between(1, 3);
        let servers = Servers::new(random.between(2, 4) as usize);
        let down_after = Duration::from_millis(random.between(1000, 3000));
        let names = (0..servers.len()).map(address).collect();
        let settings =
            GroupSettings { pool: POOL.to_owned(), servers: names, down_after, quorum: None };
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
            servers,
            settings,
            heard: BTreeMap::new(),
            asked: BTreeMap::new(),
            seen: None,
            decided: BTreeMap::new(),
            epochs: vec![0; observers],
            went_back: false,
            may_go_back: random.percent(20),
            is_peace: false,
            next_order: 0,
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

    pub fn run(mut self) -> Result<FleetReport, String> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.make_peace();
        for _ in 0..PEACE {
            self.step()?;
        }
        if self.went_back {
            // An operator applies the right document, which also gives the leader a large epoch.
            self.apply_by_leader();
            for _ in 0..PEACE {
                self.step()?;
            }
        }
        if self.went_back || self.seen.is_none() {
            self.fail_over_by_leader();
            for _ in 0..PEACE {
                self.step()?;
            }
        }
        self.check_rest()?;
        Ok(self.report)
    }

    fn make_peace(&mut self) {
        self.tell(|| "peace".to_owned());
        self.is_peace = true;
        self.servers.heal(self.now);
        for nth in 0..self.controls.len() {
            let has_ended = self.controls[nth].as_ref().is_none_or(|one| {
                one.leader.view(self.now).fault.is_some_and(|fault| fault.contains("went back"))
            });
            if has_ended || self.went_back {
                self.replace(nth, Some(Control::new(nth)));
            }
        }
    }

    fn replace(&mut self, nth: usize, control: Option<Control>) {
        self.controls[nth] = control;
        self.topics[nth] = None;
        self.heard.retain(|(_, of), _| *of != nth);
        self.asked.retain(|_, (asked, _)| *asked != nth);
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
            90..94 => self.servers.live(&mut self.random, self.now),
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

    /// The laws of the coordinator's key.
    fn look(&mut self) -> Result<(), String> {
        let now = self.engine.value("groups/main").and_then(Group::decode);
        let before = std::mem::replace(&mut self.seen, now.clone());
        if self.went_back || before == now {
            return Ok(());
        }
        let Some(now) = now else { return Err(self.broken("a group is lost")) };
        let before_epoch = before.as_ref().map_or(0, |before| before.epoch);
        if now.epoch < before_epoch {
            return Err(self.broken(format!("the epoch went from {before_epoch} to {}", now.epoch)));
        }
        let decided = (now.primary.clone(), now.next().map(str::to_owned));
        let known = self.decided.entry(now.epoch).or_insert_with(|| decided.clone());
        if *known != decided {
            let law = format!("epoch {} has two primaries: {known:?}, {decided:?}", now.epoch);
            return Err(self.broken(law));
        }
        if before.as_ref().is_some_and(|before| before.primary != now.primary) {
            self.report.failovers += 1;
            self.report.switches += u64::from(now.why.starts_with("by order"));
        }
        Ok(())
    }

    /// An observer looks at the servers and reports to whoever it believes to lead.
    fn observe(&mut self) {
        let nth = self.random.index(self.observers.len());
        if self.observers[nth].hangs_until > self.now {
            return;
        }
        let (id, epoch) = (self.observers[nth].id, self.observers[nth].epoch());
        let seen = self.servers.seen_by(id, epoch, self.now);
        let saved = self.observers[nth].decisions.version();
        let report = Report {
            cluster: CLUSTER.to_owned(),
            about: About { pools: vec![POOL.to_owned()], ..About::default() },
            saved: (saved.epoch > 0).then_some(Version { epoch: saved.epoch, revision: 0 }),
            running: None,
            refused: None,
            measured: None,
            groups: vec![seen],
            events: None,
        };
        let body = report.encode();
        for to in 0..self.controls.len() {
            if !self.is_peace && self.random.percent(15) {
                continue;
            }
            let Some(control) = &mut self.controls[to] else { continue };
            if control.hangs_until <= self.now {
                control.leader.handle_report(id, &body, self.now);
                self.heard.insert((id, to), self.now);
            }
        }
    }

    fn probe(&mut self) {
        let Some(nth) = self.living() else { return };
        let seen = self.servers.seen_by(control_id(nth), 0, self.now);
        if let Some(control) = &mut self.controls[nth] {
            control.leader.probed(seen, self.now);
            self.heard.insert((control_id(nth), nth), self.now);
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
        let outcome = self.servers.execute(control_id(nth), &order.what, is_bad, self.now);
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
        if observer.hangs_until > self.now || (!self.is_peace && self.random.percent(10)) {
            return;
        }
        let outcome = observer.decisions.take(&published);
        if outcome == Ok(true) {
            observer.disk = Some(observer.decisions.encode());
        }
        self.report.refusals += u64::from(outcome.is_err());
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
        let at = self.random.index(self.servers.len());
        let to = self.random.percent(60).then(|| address(at));
        self.order_of(nth, to);
    }

    fn order_of(&mut self, nth: usize, to: Option<String>) {
        self.next_order += 1;
        let id = OrderId(self.next_order);
        let pool = POOL.to_owned();
        let by = Author { name: format!("sim-{}", id.0), address: String::new() };
        let Some(control) = &mut self.controls[nth] else { return };
        self.asked.insert(id, (nth, to.clone()));
        control.leader.failover(Failover { id, pool, to, at: 0, by }, self.now);
    }

    fn leading(&self) -> Option<usize> {
        let leads = |one: &Option<Control>| one.as_ref().is_some_and(|one| one.leader.leads());
        self.controls.iter().position(leads)
    }

    fn apply_by_leader(&mut self) {
        let Some(nth) = self.leading() else { return };
        self.next_order += 1;
        let id = OrderId(self.next_order);
        let Some(control) = &mut self.controls[nth] else { return };
        let base = control.leader.revision();
        let order = Apply {
            id,
            base,
            text: "# right".into(),
            at: 0,
            by: Author { name: format!("sim-{}", id.0), address: String::new() },
            back_to: None,
            changes: Vec::new(),
            rollout: None,
        };
        self.asked.insert(id, (nth, None));
        control.leader.apply(order, self.now);
    }

    fn fail_over_by_leader(&mut self) {
        let Some(nth) = self.leading() else { return };
        // The operator knows what the proxies use.
        let used = self.observers.iter().max_by_key(|one| one.epoch());
        let used = used.and_then(|one| one.decisions.of(POOL)).map(|one| one.primary.clone());
        self.order_of(nth, Some(used.unwrap_or_else(|| address(0))));
    }

    fn harm(&mut self) {
        let nth = self.random.index(self.controls.len());
        let long = self.now + Duration::from_millis(self.random.scaled(50, 8000));
        match self.random.below(16) {
            0..2 => {
                self.report.kills += 1;
                self.tell(|| format!("control {nth} is killed, or starts"));
                if let Some(Control { session: Some((session, _)), .. }) = &self.controls[nth]
                    && self.random.percent(50)
                {
                    self.engine.end(*session);
                }
                let starts = self.controls[nth].is_none() || self.random.percent(50);
                self.replace(nth, starts.then(|| Control::new(nth)));
            }
            2..4 => {
                if let Some(control) = &mut self.controls[nth] {
                    control.hangs_until = long;
                }
            }
            4 => {
                if let Some(control) = &mut self.controls[nth] {
                    control.cut_until = long;
                }
            }
            5..9 => {
                let what = self.servers.kill_or_restart(&mut self.random, self.now);
                self.tell(|| what);
            }
            9..11 => {
                let observer = self.random.index(self.observers.len());
                let ids = [self.observers[observer].id, control_id(nth)];
                let id = ids[self.random.index(2)];
                self.servers.cut_or_mend(id, &mut self.random, self.now);
            }
            11 => self.servers.meddle(&mut self.random),
            12..14 => {
                let nth = self.random.index(self.observers.len());
                let observer = &mut self.observers[nth];
                *observer = Observer::start(observer.id, observer.disk.take());
            }
            14 => {
                let nth = self.random.index(self.observers.len());
                self.observers[nth].hangs_until = long;
                let id = self.observers[nth].id;
                for control in self.controls.iter_mut().flatten() {
                    control.leader.handle_left(id, self.now);
                }
            }
            _ if self.may_go_back => self.back_up_or_restore(),
            _ => {}
        }
    }

    fn back_up_or_restore(&mut self) {
        if self.backups.is_empty() || self.random.percent(50) {
            return self.backups.push(self.engine.clone());
        }
        let at = self.random.index(self.backups.len());
        self.tell(|| "the coordinator is restored from a backup".to_owned());
        let backup = self.backups[at].clone();
        self.engine.restore(&backup);
        self.went_back = true;
        self.report.restores += 1;
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
                let key = write.put.iter().find(|(key, _)| key == "groups/main");
                let group = key.and_then(|(_, value)| Group::decode(value));
                control.sent = Some(Sent { ticket, write, session });
                if let Some(group) = group {
                    self.check_decision(nth, &group)?;
                }
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
                self.heard.retain(|(_, of), _| *of != nth);
                control.leader.set_groups(vec![self.settings.clone()], self.now);
            }
            LeaderAction::Publish(_) => {}
        }
        Ok(())
    }

    /// No fail-over is decided by itself while more observers see the primary than do not, nor by a
    /// minority of the observers that this leader has heard.
    fn check_decision(&mut self, nth: usize, group: &Group) -> Result<(), String> {
        let (Some(old), Phase::Promoting) = (&group.old, &group.phase) else { return Ok(()) };
        if group.why.starts_with("by order") {
            return Ok(());
        }
        let fresh = |id: NodeId| {
            let heard = self.heard.get(&(id, nth));
            heard.is_some_and(|at| self.now.since(*at) < Duration::from_secs(4))
        };
        let ids = self.observers.iter().map(|one| one.id).chain([control_id(nth)]);
        let fresh: Vec<NodeId> = ids.filter(|id| fresh(*id)).collect();
        let sees = |id: &&NodeId| self.servers.is_seen(**id, old, SEEN_FOR, self.now);
        let seeing = fresh.iter().filter(sees).count();
        let blind = fresh.len() - seeing;
        if seeing > blind {
            return Err(self.broken(format!(
                "{old} is replaced, and {seeing} of {} observers see it",
                fresh.len()
            )));
        }
        // Also an observer that is not heard any more counts.
        let known = self.heard.keys().filter(|(_, of)| *of == nth).count();
        match blind * 2 > known {
            true => Ok(()),
            false => Err(self.broken(format!(
                "{old} is replaced by a minority: {blind} of {known} observers do not see it"
            ))),
        }
    }

    fn note_answer(
        &mut self,
        id: OrderId,
        outcome: Result<Version, ApplyFault>,
    ) -> Result<(), String> {
        let Some((_, to)) = self.asked.remove(&id) else {
            return Err(self.broken("an order is answered twice"));
        };
        match (outcome, to) {
            (Ok(version), Some(to)) => {
                let decided = self.decided.get(&version.revision);
                match decided.is_some_and(|(primary, _)| *primary != to) && !self.went_back {
                    true => Err(self.broken(format!("{to} was ordered, and {decided:?} came"))),
                    false => Ok(()),
                }
            }
            (Err(ApplyFault::Unknown(_)), _) => {
                self.report.unknown += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        for nth in 0..self.observers.len() {
            let observer = &self.observers[nth];
            let epoch = observer.epoch();
            let before = std::mem::replace(&mut self.epochs[nth], epoch);
            if epoch < before {
                return Err(self.broken(format!("observer {nth} went from {before} to {epoch}")));
            }
            let Some(obeyed) = observer.decisions.of(POOL).filter(|_| !self.went_back) else {
                continue;
            };
            let known = self.decided.get(&epoch);
            if known
                .is_none_or(|(primary, next)| *primary != obeyed.primary || *next != obeyed.next)
            {
                return Err(self.broken(format!("observer {nth} obeys {obeyed:?}, not {known:?}")));
            }
        }
        Ok(())
    }

    /// The laws that hold when faults have stopped.
    fn check_rest(&mut self) -> Result<(), String> {
        let group = self.seen.clone();
        let Some(group) = group else { return Err(self.broken("no primary is decided in peace")) };
        if group.phase != Phase::Settled {
            return Err(self.broken(format!("a fail-over never ends: {group:?}")));
        }
        for nth in 0..self.servers.len() {
            let server = self.servers.at(nth);
            let is_primary = address(nth) == group.primary;
            let is_right = match server {
                Server { of: None, .. } => is_primary,
                Server { of: Some(of), .. } => !is_primary && address(*of) == group.primary,
            };
            if !is_right || !server.is_alive {
                let law = format!("{} is {server:?} in peace, and {group:?}", address(nth));
                return Err(self.broken(law));
            }
        }
        if let Some(one) = self.observers.iter().find(|one| one.epoch() != group.epoch) {
            return Err(self.broken(format!("{one:?} does not obey {group:?} in peace")));
        }
        match self.asked.len() {
            0 => Ok(()),
            waiting => Err(self.broken(format!("{waiting} orders were never answered"))),
        }
    }
}

/// Returns the parts of an order that must succeed.
pub(super) fn target(what: &Command) -> &str {
    match what {
        Command::Promote { primary, .. } => primary,
        Command::Follow { server, .. } => server,
        Command::Switch { to, .. } => to,
    }
}

/// Returns a view without servers.
pub(super) fn empty_view(epoch: u64) -> GroupSeen {
    GroupSeen { pool: POOL.to_owned(), epoch, servers: Vec::new() }
}
