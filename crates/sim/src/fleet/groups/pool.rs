//! A pool: its servers, all that was decided about it, and the laws of that.

use super::observer::Observer;
use super::servers::{Server, Servers};
use crate::fleet::clock::Clocks;
use crate::fleet::engine::Engine;
use crate::fleet::people::control_id;
use crate::random::Random;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::limits::VIEW_FRESH;
use keyway_fleet::{Command, Decided, Group, GroupSeen, GroupSettings, Phase, Write};
use std::collections::BTreeMap;
use std::time::Duration;

/// A server that an observer has reached for so long must not be down for it: longer than a view
/// counts.
const SEEN_FOR: Duration = Duration::from_secs(7);

/// The servers of a decision: the primary, and the one to which it hands over.
type Named = (String, Option<String>);

/// The change of a group by a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The next step of the decision that there was.
    Step,
    /// Another decision. With `is_other` its primary is another than that of before, and with
    /// `by_hand` an operator has ordered it.
    Decision { epoch: u64, is_other: bool, by_hand: bool },
    /// The group is forgotten.
    Removal,
}

/// A pool.
#[derive(Debug)]
pub(super) struct Pool {
    settings: GroupSettings,
    servers: Servers,
    /// True if no fault hits its servers, and no operator orders anything of it.
    is_calm: bool,
    /// The group, as the coordinator has it.
    stored: Option<Group>,
    decided: BTreeMap<u64, Named>,
    /// The number of the decision by which it was forgotten last.
    removed: u64,
    /// The latest time at which each observer's view has reached each control node.
    heard: BTreeMap<(NodeId, usize), Time>,
    /// The epoch that each observer obeys, and the largest one that it has obeyed.
    obeyed: Vec<(u64, u64)>,
}

impl Pool {
    /// Creates the pool with this number and name.
    pub fn new(
        (nth, name): (usize, &str),
        is_calm: bool,
        observers: usize,
        random: &mut Random,
    ) -> Pool {
        let servers = Servers::new((nth, name), random.between(2, 4) as usize);
        let settings = GroupSettings {
            pool: name.to_owned(),
            servers: servers.addresses(),
            down_after: Duration::from_millis(random.between(1000, 3000)),
            quorum: None,
        };
        Pool {
            settings,
            servers,
            is_calm,
            stored: None,
            decided: BTreeMap::new(),
            removed: 0,
            heard: BTreeMap::new(),
            obeyed: vec![(0, 0); observers],
        }
    }

    pub fn name(&self) -> &str {
        &self.settings.pool
    }

    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// The document says another time after which a server is down.
    pub fn change_settings(&mut self, random: &mut Random) {
        self.settings.down_after = Duration::from_millis(random.between(1000, 3000));
    }

    pub fn servers(&mut self) -> &mut Servers {
        &mut self.servers
    }

    pub fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// Operators may order something from now on.
    pub fn end_calm(&mut self) {
        self.is_calm = false;
    }

    pub fn stored(&self) -> Option<&Group> {
        self.stored.as_ref()
    }

    /// Returns one of the addresses.
    pub fn any_address(&self, random: &mut Random) -> String {
        self.servers.address(random.index(self.servers.len()))
    }

    /// Returns a server that is not the decided primary.
    pub fn any_replica(&self, random: &mut Random) -> Option<String> {
        let primary = &self.stored.as_ref()?.primary;
        let others = self.servers.addresses().into_iter().filter(|address| address != primary);
        let others: Vec<String> = others.collect();
        (!others.is_empty()).then(|| others[random.index(others.len())].clone())
    }

    /// Returns what an observer sees, with the epoch that it obeys.
    pub fn seen_by(&mut self, by: (NodeId, &Clocks), epoch: u64, now: Time) -> GroupSeen {
        self.servers.seen_by(by, epoch, now)
    }

    /// Notes that the view of an observer has reached a control node.
    pub fn note_heard(&mut self, id: NodeId, nth: usize, now: Time) {
        self.heard.insert((id, nth), now);
    }

    /// A control node begins anew: it has heard nobody.
    pub fn forget_heard(&mut self, nth: usize) {
        self.heard.retain(|(_, of), _| *of != nth);
    }

    /// Returns the key of the coordinator.
    fn key(&self) -> String {
        format!("groups/{}", self.settings.pool)
    }

    /// Takes what the coordinator has after it went back.
    pub fn restore(&mut self, engine: &Engine) {
        self.stored = engine.value(&self.key()).and_then(Group::decode);
    }

    /// Looks at the coordinator after a transaction, which has made `count` decisions of all. Returns
    /// the change.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn look(
        &mut self,
        engine: &Engine,
        (count, went_back): (u64, bool),
    ) -> Result<Option<Change>, String> {
        let now = engine.value(&self.key()).and_then(Group::decode);
        let before = std::mem::replace(&mut self.stored, now.clone());
        if before == now {
            return Ok(None);
        }
        let Some(now) = now else {
            self.removed = count;
            return Ok(Some(Change::Removal));
        };
        let before_epoch = before.as_ref().map_or(0, |before| before.epoch);
        let change = match now.epoch == before_epoch {
            true => Change::Step,
            false => Change::Decision {
                epoch: now.epoch,
                is_other: before.as_ref().is_some_and(|before| before.primary != now.primary),
                by_hand: now.why.starts_with("by order"),
            },
        };
        if went_back {
            return Ok(Some(change));
        }
        if now.epoch < before_epoch {
            return Err(format!("the epoch went from {before_epoch} to {}", now.epoch));
        }
        let named = (now.primary.clone(), now.next().map(str::to_owned));
        let known = self.decided.entry(now.epoch).or_insert_with(|| named.clone());
        if *known != named {
            return Err(format!("epoch {} has two primaries: {known:?}, {named:?}", now.epoch));
        }
        if self.is_calm
            && let Some(before) = before
        {
            return Err(format!("nothing has failed, and {before:?} became {now:?}"));
        }
        Ok(Some(change))
    }

    /// Checks a transaction of a control node that has taken a document with this pool, or without, or
    /// none: control forgets no group of the document, and decides about no other one.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_write(
        &self,
        (nth, is_listed): (usize, Option<bool>),
        write: &Write,
        observers: &[Observer],
        now: Time,
    ) -> Result<(), String> {
        let key = self.key();
        if write.delete.contains(&key) && is_listed != Some(false) {
            return Err("no document lacks it, and it is forgotten".to_owned());
        }
        let put = write.put.iter().find(|(known, _)| *known == key);
        let Some(group) = put.and_then(|(_, value)| Group::decode(value)) else { return Ok(()) };
        if is_listed != Some(true) {
            return Err(format!("the document does not have it, and there is {group:?}"));
        }
        if !self.settings.servers.contains(&group.primary) {
            return Err(format!("{group:?} has a primary of another pool"));
        }
        self.check_verdict(nth, &group, observers, now)
    }

    /// No fail-over is decided by itself while more observers see the primary than do not, nor by a
    /// minority of the observers that this control node has heard.
    fn check_verdict(
        &self,
        nth: usize,
        group: &Group,
        observers: &[Observer],
        now: Time,
    ) -> Result<(), String> {
        if group.phase != Phase::Promoting || group.why.starts_with("by order") {
            return Ok(());
        }
        // The primary before may be another one: a server can die before it becomes the primary.
        let Some((old, _)) = group.why.split_once(" was down for ") else { return Ok(()) };
        let fresh = |id: NodeId| {
            let heard = self.heard.get(&(id, nth));
            heard.is_some_and(|at| now.since(*at) < VIEW_FRESH)
        };
        let ids = observers.iter().map(Observer::id).chain([control_id(nth)]);
        let fresh: Vec<NodeId> = ids.filter(|id| fresh(*id)).collect();
        let sees = |id: &&NodeId| self.servers.is_seen(**id, old, SEEN_FOR, now);
        let seeing = fresh.iter().filter(sees).count();
        let blind = fresh.len() - seeing;
        if seeing > blind {
            return Err(format!(
                "{old} is replaced, and {seeing} of {} observers see it",
                fresh.len()
            ));
        }
        // Also an observer that is not heard any more counts.
        let known = self.heard.keys().filter(|(_, of)| *of == nth).count();
        match blind * 2 > known {
            true => Ok(()),
            false => Err(format!(
                "{old} is replaced by a minority: {blind} of {known} observers do not see it"
            )),
        }
    }

    /// Checks that an order names servers of this pool alone.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_command(&self, what: &Command) -> Result<(), String> {
        let named: Vec<&String> = match what {
            Command::Promote { primary, old, others } => {
                others.iter().chain([primary]).chain(old).collect()
            }
            Command::Follow { server, primary } => vec![server, primary],
            Command::Switch { from, to, others } => others.iter().chain([from, to]).collect(),
        };
        match named.iter().find(|address| !self.settings.servers.contains(*address)) {
            Some(stranger) => Err(format!("{what:?} is about {stranger} of another pool")),
            None => Ok(()),
        }
    }

    /// Checks that an order of an operator that was answered has had its effect, in this pool.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_answer(&self, epoch: u64, to: Option<&String>) -> Result<(), String> {
        match (self.decided.get(&epoch), to) {
            (None, _) => Err(format!("an order is answered by epoch {epoch} of another pool")),
            (Some((primary, _)), Some(to)) if primary != to => {
                Err(format!("{to} was ordered, and {primary} came"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no observer goes back, that it obeys what was decided, and that it forgets no
    /// group which was not removed.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_obeyed(
        &mut self,
        observers: &[Observer],
        (went_back, may_be_lost): (bool, bool),
    ) -> Result<(), String> {
        for (nth, observer) in observers.iter().enumerate() {
            let epoch = observer.epoch(&self.settings.pool);
            let (before, highest) = &mut self.obeyed[nth];
            let before = std::mem::replace(before, epoch);
            let obeyed = observer.obeyed(&self.settings.pool);
            let Some(obeyed) = obeyed else {
                if before > self.removed && !may_be_lost {
                    return Err(format!("observer {nth} has lost the decision {before}"));
                }
                // The coordinator may know an older decision than that which was forgotten.
                *highest = if went_back { 0 } else { *highest };
                continue;
            };
            if epoch < *highest {
                return Err(format!("observer {nth} went from {highest} to {epoch}"));
            }
            *highest = epoch;
            if went_back {
                continue;
            }
            let known = self.decided.get(&epoch);
            let Decided { primary, next, .. } = obeyed;
            if known.is_none_or(|known| (&known.0, &known.1) != (primary, next)) {
                return Err(format!("observer {nth} obeys {obeyed:?}, not {known:?}"));
            }
        }
        Ok(())
    }

    /// Checks the laws of a pool of the document that hold when faults have stopped. These observers
    /// must obey.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_rest<'o>(
        &self,
        mut observers: impl Iterator<Item = &'o Observer>,
    ) -> Result<(), String> {
        let Some(group) = &self.stored else {
            return Err("no primary is decided in peace".to_owned());
        };
        if group.phase != Phase::Settled {
            return Err(format!("a fail-over never ends: {group:?}"));
        }
        let primary = &group.primary;
        for nth in 0..self.servers.len() {
            let (server, address) = (self.servers.at(nth), self.servers.address(nth));
            let is_right = match server {
                Server { of: None, .. } => address == *primary,
                Server { of: Some(of), .. } => {
                    address != *primary && self.servers.address(*of) == *primary
                }
            };
            if !is_right || !server.is_alive {
                return Err(format!("{address} is {server:?} in peace, and {group:?}"));
            }
        }
        let obeys = |one: &&Observer| one.epoch(&self.settings.pool) == group.epoch;
        match observers.find(|one| !obeys(one)) {
            Some(one) => Err(format!("{one:?} does not obey {group:?} in peace")),
            None => Ok(()),
        }
    }

    /// Checks that nothing is left of a pool that the document does not have. With `has_returned` the
    /// document had it again after a removal. An observer that has missed the removal then may keep the
    /// decision of before: while the pool has none, control cannot tell it from one that was lost.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_gone(&self, observers: &[Observer], has_returned: bool) -> Result<(), String> {
        if let Some(group) = &self.stored {
            return Err(format!("the document does not have it, and there is {group:?}"));
        }
        let mut obeyed = observers.iter().filter_map(|one| one.obeyed(&self.settings.pool));
        let obeyed = obeyed.find(|obeyed| !has_returned || obeyed.epoch >= self.removed);
        match obeyed {
            Some(obeyed) => Err(format!("it was removed, and an observer obeys {obeyed:?}")),
            None => Ok(()),
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
