//! A run: steps drawn by chance, then peace, and the laws.

use super::FleetReport;
use super::audit::Audit;
use super::clock::Clocks;
use super::engine::Engine;
use super::people::{Control, Proxy, Sent, control_id, member_id};
use super::rollouts::Rollouts;
use crate::random::Random;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::limits::EVENTS_WAITING_MAX;
use keyway_fleet::{
    Apply, ApplyFault, Author, LeaderAction, MemberAction, OrderId, Published, RefusedRequest,
    RolloutOrder, Steer, Steering, Version, Written,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// Steps with faults. More find rarer orders of events, and take longer.
const STEPS: u64 = 1500;
/// Steps in peace within which everything must come to rest.
const PEACE: u64 = 4000;

/// Returns the author of an order, who asks for nothing else.
fn author(order: OrderId) -> Author {
    Author { name: format!("op{}", order.0), address: "127.0.0.1:1".to_owned() }
}

/// Something on the bus.
#[derive(Clone, Debug)]
enum Message {
    Push {
        to: usize,
        published: Published,
    },
    Report {
        from: usize,
        to: NodeId,
        body: Vec<u8>,
        /// The number by which its sender awaits the word about it.
        awaited: Option<u64>,
    },
    /// The word to a member whether its report has arrived.
    Word {
        to: usize,
        awaited: u64,
        has_arrived: bool,
    },
}

pub(super) struct World {
    seed: u64,
    random: Random,
    now: Time,
    engine: Engine,
    backups: Vec<Engine>,
    controls: Vec<Option<Control>>,
    proxies: Vec<Proxy>,
    messages: Vec<Message>,
    /// Orders that wait: the control node that was asked, and the text that all are to get.
    orders: BTreeMap<OrderId, (usize, Option<String>)>,
    stored: BTreeMap<u64, String>,
    published: BTreeMap<(u64, u64), String>,
    /// The session that had each epoch.
    leaders: BTreeMap<u64, u64>,
    saved: Vec<Option<Version>>,
    rollouts: Rollouts,
    audit: Audit,
    /// The events that some control node has taken.
    events: BTreeSet<(NodeId, String)>,
    next_process: u64,
    /// Processes that were started later.
    started: u64,
    went_back: bool,
    may_go_back: bool,
    is_peace: bool,
    next_order: u64,
    report: FleetReport,
    story: Option<String>,
}

impl World {
    pub fn new(seed: u64, has_story: bool) -> World {
        let mut random = Random::new(seed);
        let (controls, members) = (random.between(1, 3), random.between(1, 5));
        let may_go_back = random.percent(30);
        World {
            seed,
            random,
            now: Time(1_000_000_000),
            engine: Engine::default(),
            backups: Vec::new(),
            controls: (0..controls as usize)
                .map(|nth| Some(Control::new(nth, Clocks::of(seed, nth as u64))))
                .collect(),
            proxies: (0..members)
                .map(|nth| Proxy::start(nth as usize, None, Clocks::of(seed, 8 + nth)))
                .collect(),
            messages: Vec::new(),
            orders: BTreeMap::new(),
            stored: BTreeMap::new(),
            published: BTreeMap::new(),
            leaders: BTreeMap::new(),
            saved: vec![None; members as usize],
            rollouts: Rollouts::default(),
            audit: Audit::default(),
            events: BTreeSet::new(),
            next_process: 0,
            started: 0,
            went_back: false,
            may_go_back,
            is_peace: false,
            next_order: 0,
            report: FleetReport::default(),
            story: has_story.then(String::new),
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
        format!("{story}seed {}: {}; --fleet --from {0} --seeds 1 --story", self.seed, law.into())
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
            // An operator decides what is right.
            self.order_by_leader();
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
        for nth in 0..self.controls.len() {
            let has_ended = self.controls[nth].as_ref().is_none_or(|one| {
                one.leader
                    .view(one.clocks.at(self.now))
                    .fault
                    .is_some_and(|fault| fault.contains("went back"))
            });
            if has_ended || self.went_back {
                // Operators start again what refuses to go on.
                let clocks = self.clocks();
                self.replace(nth, Some(Control::new(nth, clocks)));
            }
        }
    }

    /// Ends the process of a control node, if it lives, and starts another one. Whoever waits for an
    /// answer of the first one learns that it has ended.
    fn replace(&mut self, nth: usize, control: Option<Control>) {
        self.controls[nth] = control;
        self.orders.retain(|_, (asked, _)| *asked != nth);
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(100) {
            0..25 => self.speak(),
            25..40 => self.execute()?,
            40..60 => self.deliver(),
            60..75 => self.work(),
            75..88 => self.sync(),
            88..93 => self.pass_time(),
            93..95 => self.change_view(),
            95..97 => self.order(),
            97 => self.steer(),
            _ if self.is_peace => self.pass_time(),
            _ => self.harm(),
        }
        self.carry_out()?;
        self.check_sights()?;
        self.check()
    }

    /// A member's view of a group of servers changes.
    fn change_view(&mut self) {
        let nth = self.random.index(self.proxies.len());
        if self.proxies[nth].hangs_until <= self.now {
            self.proxies[nth].change_view(self.now);
        }
    }

    fn check_sights(&mut self) -> Result<(), String> {
        let checked = (0..self.proxies.len()).try_for_each(|nth| {
            let proxy = &self.proxies[nth];
            let is_well = proxy.hangs_until <= self.now;
            let checked = if is_well { proxy.check_sight(self.now) } else { Ok(()) };
            checked.map_err(|law| format!("member {nth}: {law}"))
        });
        checked.map_err(|law| self.broken(law))
    }

    fn living(&mut self) -> Option<usize> {
        let nth = self.random.index(self.controls.len());
        let now = self.now;
        let lives = |one: &Control| one.hangs_until <= now;
        self.controls[nth].as_ref().is_some_and(lives).then_some(nth)
    }

    fn speak(&mut self) {
        let Some(nth) = self.living() else { return };
        if let Some(control) = &mut self.controls[nth] {
            control.speak(&mut self.engine, &mut self.random, self.now);
        }
    }

    /// A transaction arrives at the coordinator, or not, and its answer at the node, or not.
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
        let looked = self.rollouts.look(&self.engine, &mut self.report);
        match looked.and_then(|()| self.audit.look(&self.engine)) {
            Err(_) if self.went_back => Ok(()),
            Err(law) => Err(self.broken(law)),
            Ok(()) => Ok(()),
        }
    }

    fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let at = self.random.index(self.messages.len());
        let is_doubled = !self.is_peace && self.random.percent(5);
        let message = match is_doubled {
            true => self.messages[at].clone(),
            false => self.messages.swap_remove(at),
        };
        if !self.is_peace && self.random.percent(15) {
            if let Message::Report { from, awaited: Some(awaited), .. } = message {
                self.messages.push(Message::Word { to: from, awaited, has_arrived: false });
            }
            return;
        }
        match message {
            Message::Push { to, published } => self.push(to, published),
            Message::Word { to, awaited, has_arrived } => {
                let proxy = &mut self.proxies[to];
                if proxy.awaited.take_if(|number| *number == awaited).is_some() {
                    proxy.sight.note_word(awaited, has_arrived);
                    proxy.member.handle_reported(has_arrived, proxy.clocks.at(self.now));
                }
            }
            Message::Report { from, to, body, awaited } => {
                let nth = (0..self.controls.len()).find(|nth| control_id(*nth) == to);
                let control = nth.and_then(|nth| self.controls[nth].as_mut());
                let has_arrived = control.is_some();
                if let Some(control) = control {
                    control.leader.handle_report(
                        member_id(from),
                        &body,
                        control.clocks.at(self.now),
                    );
                }
                if let Some(awaited) = awaited {
                    self.messages.push(Message::Word { to: from, awaited, has_arrived });
                }
            }
        }
    }

    fn push(&mut self, to: usize, published: Published) {
        let version = published.stamp();
        let topic = &mut self.proxies[to].topic;
        *topic = (*topic).max(Some((version.epoch, version.revision)));
        let proxy = &mut self.proxies[to];
        let before = proxy.member.leader();
        let outcome = proxy.member.handle_published(published, proxy.clocks.at(self.now));
        if proxy.member.leader() != before {
            proxy.sight.note_leader();
        }
        self.tell(|| format!("member {to}: push {version}: {outcome:?}"));
        self.report.refusals += u64::from(outcome.is_err());
    }

    fn work(&mut self) {
        let nth = self.random.index(self.proxies.len());
        let is_full = !self.is_peace && self.random.percent(5);
        if self.proxies[nth].hangs_until <= self.now {
            self.proxies[nth].work(is_full, self.now);
        }
    }

    /// The bus brings the topic of a control node to a member whose node has an older one. Now and
    /// then it brings it anyway, as after a member's restart.
    fn sync(&mut self) {
        let Some(nth) = self.living() else { return };
        let to = self.random.index(self.proxies.len());
        let is_anyway = self.random.percent(10);
        let Some(control) = &mut self.controls[nth] else { return };
        let Some(published) = control.topic.clone() else { return };
        let version = published.stamp();
        let stamp = (version.epoch, version.revision);
        let known = self.proxies[to].topic;
        if let Some((epoch, revision)) = known.filter(|known| *known > stamp) {
            control.leader.handle_latest_below(Version { epoch, revision });
        }
        if is_anyway || known.is_none_or(|known| known < stamp) {
            self.messages.push(Message::Push { to, published });
        }
    }

    fn pass_time(&mut self) {
        self.now = self.now + Duration::from_millis(self.random.scaled(1, 400));
        self.engine.expire(self.now);
        for control in self.controls.iter_mut().flatten() {
            if control.hangs_until <= self.now {
                let wall = control.clocks.wall();
                control.leader.set_wall_clock(wall);
                control.leader.handle_timeout(control.clocks.at(self.now));
            }
        }
        for proxy in &mut self.proxies {
            if proxy.hangs_until <= self.now {
                proxy.member.handle_timeout(proxy.clocks.at(self.now));
            }
        }
    }

    fn order(&mut self) {
        if self.is_peace {
            return;
        }
        let Some(nth) = self.living() else { return };
        let base = match self.controls[nth].as_ref() {
            Some(control) if self.random.percent(90) => control.leader.revision(),
            _ => self.random.below(9),
        };
        self.order_of(nth, base);
    }

    fn order_of(&mut self, nth: usize, base: u64) {
        self.next_order += 1;
        let id = OrderId(self.next_order);
        let kind = match self.random.below(100) {
            0..15 if !self.is_peace => "bad",
            15..40 if !self.is_peace => "sick",
            _ => "good",
        };
        let is_rollout = !self.is_peace && self.random.percent(50);
        let (percent, seconds) = (self.random.between(1, 99) as u8, self.random.between(1, 5));
        let watch = Duration::from_secs(seconds);
        let rollout = is_rollout.then_some(RolloutOrder { percent, watch });
        let text = format!("# {kind} {}", self.next_order);
        self.orders.insert(id, (nth, (!is_rollout).then(|| text.clone())));
        let (text, by, changes) = (text.into(), author(id), vec!["something".to_owned()]);
        if let Some(control) = &mut self.controls[nth] {
            let at = control.clocks.wall();
            let order = Apply { id, base, text, at, by, back_to: None, changes, rollout };
            control.leader.apply(order, control.clocks.at(self.now));
        }
    }

    /// An operator has the rollout do something. In peace operators resume what is paused.
    fn steer(&mut self) {
        let Some(nth) = self.living() else { return };
        let what = match self.random.below(10) {
            _ if self.is_peace => Steering::Resume,
            0..4 => Steering::Pause,
            4..8 => Steering::Resume,
            8 => Steering::Abort,
            _ => Steering::Finish,
        };
        self.steer_of(nth, what);
    }

    fn steer_of(&mut self, nth: usize, what: Steering) {
        self.next_order += 1;
        let id = OrderId(self.next_order);
        let Some(control) = &mut self.controls[nth] else { return };
        let at = control.clocks.wall();
        let order = Steer { id, what, at, by: author(id), revision: None };
        self.orders.insert(id, (nth, None));
        control.leader.steer(order, control.clocks.at(self.now));
    }

    /// An operator has the leader go on after a restored backup.
    fn order_by_leader(&mut self) {
        let leads = |one: &Option<Control>| one.as_ref().is_some_and(|one| one.leader.leads());
        let Some(nth) = self.controls.iter().position(leads) else { return };
        let Some(control) = &self.controls[nth] else { return };
        let view = control.leader.view(control.clocks.at(self.now));
        match view.rollout.is_some_and(|rollout| rollout.is_active) {
            true => self.steer_of(nth, Steering::Abort),
            false => self.order_of(nth, view.revision),
        }
    }

    fn harm(&mut self) {
        let nth = self.random.index(self.controls.len());
        let long = self.now + Duration::from_millis(self.random.scaled(50, 6000));
        match self.random.below(13) {
            0..3 => {
                self.report.kills += 1;
                self.tell(|| format!("control {nth} is killed, or starts"));
                let another = Control::new(nth, self.clocks());
                if let Some(Control { session: Some((session, _)), .. }) = &self.controls[nth]
                    && self.random.percent(50)
                {
                    self.engine.end(*session);
                }
                let is_dead = self.controls[nth].is_none();
                let starts = is_dead || self.random.percent(50);
                self.replace(nth, starts.then_some(another));
            }
            3..6 => {
                self.tell(|| format!("control {nth} hangs"));
                if let Some(control) = &mut self.controls[nth] {
                    control.hangs_until = long;
                }
            }
            6..8 => {
                self.tell(|| format!("control {nth} is cut off"));
                if let Some(control) = &mut self.controls[nth] {
                    control.cut_until = long;
                }
            }
            8..10 => {
                self.report.kills += 1;
                let nth = self.random.index(self.proxies.len());
                self.tell(|| format!("member {nth} is killed"));
                let disk = self.proxies[nth].disk.take();
                self.proxies[nth] = Proxy::start(nth, disk, self.clocks());
                self.next_process += 1;
                self.proxies[nth].process = self.next_process;
                self.proxies[nth].member.set_process(self.next_process);
            }
            10 => {
                let nth = self.random.index(self.proxies.len());
                let count = self.random.between(1, 50);
                self.proxies[nth].happen(count, self.now);
                self.proxies[nth].hangs_until = long;
                // The bus notices, or not.
                if self.random.percent(50) {
                    for control in self.controls.iter_mut().flatten() {
                        control.leader.handle_left(member_id(nth), control.clocks.at(self.now));
                    }
                }
            }
            11 => self.refuse_many(nth),
            _ if self.may_go_back => self.back_up_or_restore(),
            _ => {}
        }
    }

    /// A flood of requests that a control node refuses.
    fn refuse_many(&mut self, nth: usize) {
        for _ in 0..self.random.between(1, 40) {
            self.next_order += 1;
            let by = author(OrderId(self.next_order));
            let (what, why) = ("POST /v1/fleet/document".to_owned(), "a viewer".to_owned());
            if let Some(control) = &mut self.controls[nth] {
                let at = control.clocks.wall();
                control.leader.note_refused(
                    RefusedRequest { at, by, what, why },
                    control.clocks.at(self.now),
                );
            }
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

    /// Carries out what the machines order.
    fn carry_out(&mut self) -> Result<(), String> {
        for nth in 0..self.controls.len() {
            while let Some(action) =
                self.controls[nth].as_mut().and_then(|control| control.leader.poll_action())
            {
                self.carry_out_of(nth, action)?;
            }
            while self.controls[nth].as_mut().and_then(|one| one.leader.poll_note()).is_some() {}
            self.take_events(nth)?;
        }
        for nth in 0..self.proxies.len() {
            while let Some(action) = self.proxies[nth].member.poll_action() {
                match action {
                    MemberAction::Report { to, body } => {
                        self.next_order += 1;
                        let (from, awaited) = (nth, Some(self.next_order));
                        let proxy = &mut self.proxies[nth];
                        proxy.awaited = awaited;
                        proxy.sight.note_sent(self.next_order, &body, proxy.clocks.at(self.now));
                        self.messages.push(Message::Report { from, to, body, awaited });
                    }
                    MemberAction::Tell { to, body } => {
                        let (from, awaited) = (nth, None);
                        self.messages.push(Message::Report { from, to, body, awaited });
                    }
                    MemberAction::Applied { .. } => {}
                    MemberAction::Measure { rollout, revision } => {
                        self.proxies[nth].measure(rollout, revision, &mut self.random, self.now);
                    }
                    other => self.proxies[nth].pending.push_back(other),
                }
            }
        }
        Ok(())
    }

    /// A control node takes no event twice.
    fn take_events(&mut self, nth: usize) -> Result<(), String> {
        while let Some((from, event)) =
            self.controls[nth].as_mut().and_then(|control| control.leader.poll_event())
        {
            self.report.events += 1;
            self.events.insert((from, event.text.clone()));
            let is_new =
                self.controls[nth].as_mut().is_none_or(|it| it.had.insert((from, event.text)));
            if !is_new {
                return Err(self.broken(format!("control {nth} has taken an event twice")));
            }
        }
        Ok(())
    }

    fn carry_out_of(&mut self, nth: usize, action: LeaderAction) -> Result<(), String> {
        self.tell(|| format!("control {nth}: {action:?}"));
        match action {
            LeaderAction::Write(ticket, write) => {
                let Some(control) = &mut self.controls[nth] else { return Ok(()) };
                let session = control.session.map_or(0, |(session, _)| session);
                if control.sent.is_some() {
                    return Err(self.broken("a node has two transactions on their way"));
                }
                control.sent = Some(Sent { ticket, write, session });
            }
            LeaderAction::List => {
                if let Some(control) = &mut self.controls[nth] {
                    control.watched = None;
                }
            }
            LeaderAction::Lead => self.note_lead(),
            LeaderAction::Follow(_) | LeaderAction::Adrift => {
                if let Some(control) = &mut self.controls[nth] {
                    control.topic = None;
                }
            }
            LeaderAction::Publish(published) => self.note_published(nth, published)?,
            // A document without groups.
            LeaderAction::PublishGroups(_)
            | LeaderAction::Command(_)
            | LeaderAction::Move(_)
            | LeaderAction::EndMove(_) => {}
            LeaderAction::Answer(order, outcome) => self.note_answer(order, outcome)?,
        }
        Ok(())
    }

    fn note_lead(&mut self) {
        self.report.elections += 1;
        let leading = self.controls.iter().flatten().filter(|one| one.leader.leads()).count();
        self.report.rivals += u64::from(leading > 1);
    }

    fn note_published(&mut self, nth: usize, published: Published) -> Result<(), String> {
        self.rollouts.note_published(&published);
        let stamp = published.stamp();
        let version = published.document.version;
        let text = published.document.text.to_string();
        let known = self.published.insert((version.epoch, version.revision), text.clone());
        if known.is_some_and(|known| known != text) && !self.went_back {
            return Err(self.broken(format!("two documents are published as {version}")));
        }
        let fact = self.controls[nth]
            .as_ref()
            .and_then(|one| one.leader.view(one.clocks.at(self.now)).leader);
        if let Some(leader) = fact {
            let known = self.leaders.insert(leader.fact.epoch, leader.fact.token);
            if known.is_some_and(|known| known != leader.fact.token) && !self.went_back {
                return Err(self.broken(format!("epoch {} has two leaders", leader.fact.epoch)));
            }
        }
        if let Some(control) = &mut self.controls[nth] {
            // As the bus does, which refuses an older version than its own.
            let is_later = control.topic.as_ref().is_none_or(|topic| {
                let topic = topic.stamp();
                (topic.epoch, topic.revision) < (stamp.epoch, stamp.revision)
            });
            if is_later {
                control.topic = Some(published);
            }
        }
        Ok(())
    }

    fn note_answer(
        &mut self,
        order: OrderId,
        outcome: Result<Version, ApplyFault>,
    ) -> Result<(), String> {
        let Some((_, text)) = self.orders.remove(&order) else {
            return Err(self.broken("an order is answered twice"));
        };
        self.audit.note_answer(&author(order).name, &outcome);
        match outcome {
            Ok(version) => {
                self.report.documents += 1;
                let Some(text) = text else { return Ok(()) };
                let known = self.stored.insert(version.revision, text);
                if known.is_some() && !self.went_back {
                    let law = format!("revision {} is answered twice", version.revision);
                    return Err(self.broken(law));
                }
            }
            Err(ApplyFault::Unknown(_)) => self.report.unknown += 1,
            Err(_) => {}
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        for nth in 0..self.proxies.len() {
            let running = self.proxies[nth].running.as_ref();
            if let Some(running) = running.filter(|_| !self.went_back)
                && !self.rollouts.may_serve(member_id(nth), &running.text)
            {
                let law = format!("member {nth} serves by {} before the share", running.version);
                return Err(self.broken(law));
            }
            let saved = self.proxies[nth].saved;
            let before = std::mem::replace(&mut self.saved[nth], saved);
            if before.is_some_and(|before| !saved.is_some_and(|saved| saved.covers(before))) {
                return Err(self.broken(format!("member {nth} went back to {saved:?}")));
            }
            let member = &self.proxies[nth].member;
            let told = member.running().into_iter().chain(member.saved());
            if told.into_iter().any(|told| !saved.is_some_and(|saved| saved.covers(told))) {
                return Err(self.broken(format!("member {nth} has said more than is on its disk")));
            }
        }
        Ok(())
    }

    /// The laws of the audit log that hold when faults have stopped.
    fn check_audit(&mut self, leader: usize) -> Result<(), String> {
        let log = self.controls[leader].as_ref().map(|one| one.leader.audit()).unwrap_or_default();
        if let Err(tampered) = log.verify() {
            return Err(self.broken(format!("the audit log is not whole: {tampered}")));
        }
        self.report.audited += log.head.map_or(0, |head| head.number);
        self.report.refused += self.audit.refused;
        if self.went_back {
            return Ok(());
        }
        let ended = self.report.went_on + self.report.went_back;
        if self.audit.ended > ended {
            return Err(self.broken("a rollout that never ended has an entry of its end"));
        }
        self.audit.check_rest().map_err(|law| self.broken(law))
    }

    /// The laws that hold when faults have stopped.
    fn check_rest(&mut self) -> Result<(), String> {
        let leading: Vec<usize> = (0..self.controls.len())
            .filter(|nth| self.controls[*nth].as_ref().is_some_and(|one| one.leader.leads()))
            .collect();
        let [leader] = leading[..] else {
            return Err(self.broken(format!("{} nodes lead in peace", leading.len())));
        };
        self.check_audit(leader)?;
        let Some(control) = &self.controls[leader] else { return Ok(()) };
        let view = control.leader.view(control.clocks.at(self.now));
        let documents = control.leader.documents();
        let newest = view.published;
        let text = documents.first().map(|one| one.text.to_string()).unwrap_or_default();
        let is_bad = text.starts_with("# bad");
        if !self.went_back {
            for (revision, text) in &self.stored {
                let found = documents.iter().find(|one| one.revision == *revision);
                let is_kept = documents.last().is_some_and(|last| last.revision <= *revision);
                if is_kept && found.is_none_or(|found| &*found.text != text.as_str()) {
                    return Err(self.broken(format!("the document of {revision} is lost")));
                }
            }
        }
        for (nth, proxy) in self.proxies.iter().enumerate() {
            let has_come = proxy.member.saved() == newest;
            let serves = proxy.running.as_ref().map(|one| one.text.to_string()).unwrap_or_default();
            let is_right = if is_bad { serves != text } else { serves == text };
            if !has_come || !is_right {
                let saved = proxy.member.saved();
                let law = format!("member {nth} has {saved:?} in peace, not {newest:?}");
                return Err(self.broken(law));
            }
            let told = view.members.iter().find(|one| one.id == member_id(nth));
            if told
                .is_none_or(|told| told.saved != newest || told.running != proxy.member.running())
            {
                return Err(self.broken(format!("the leader does not know member {nth}: {told:?}")));
            }
        }
        for (nth, proxy) in self.proxies.iter().enumerate() {
            // Fewer than wait at most, so none is lost.
            for event in proxy.happened.saturating_sub(EVENTS_WAITING_MAX as u64)..proxy.happened {
                let text = format!("{} {event}", proxy.process);
                if !self.events.contains(&(member_id(nth), text)) {
                    let law = format!("event {event} of member {nth} never arrived");
                    return Err(self.broken(law));
                }
            }
        }
        if let Some(rollout) = view.rollout.filter(|rollout| rollout.is_active) {
            return Err(self.broken(format!("a rollout never ends: {rollout:?}")));
        }
        match self.orders.len() {
            0 => Ok(()),
            waiting => Err(self.broken(format!("{waiting} orders were never answered"))),
        }
    }
}
