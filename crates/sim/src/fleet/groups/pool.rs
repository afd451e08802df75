//! A pool: its servers, all that was decided about it, and the laws of that.

use super::observer::Observer;
use super::servers::{Server, Servers, address};
use crate::fleet::engine::Engine;
use crate::fleet::people::control_id;
use crate::random::Random;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::{Command, Decided, Group, GroupSeen, GroupSettings, Phase, Write};
use std::collections::BTreeMap;
use std::time::Duration;

/// A server that an observer has reached for so long must not be down for it: longer than a view
/// counts.
const SEEN_FOR: Duration = Duration::from_secs(5);

/// The servers of a decision: the primary, and the one to which it hands over.
type Named = (String, Option<String>);

/// A pool.
#[derive(Debug)]
pub(super) struct Pool {
    settings: GroupSettings,
    servers: Servers,
    /// The group, as the coordinator has it.
    stored: Option<Group>,
    decided: BTreeMap<u64, Named>,
    /// The latest time at which each observer's view has reached each control node.
    heard: BTreeMap<(NodeId, usize), Time>,
    /// The epoch that each observer obeys.
    obeyed: Vec<u64>,
}

impl Pool {
    pub fn new(name: &str, servers: usize, down_after: Duration, observers: usize) -> Pool {
        let servers = Servers::new(name, servers);
        let names = (0..servers.len()).map(address).collect();
        let pool = name.to_owned();
        let settings = GroupSettings { pool, servers: names, down_after, quorum: None };
        let (stored, decided, heard) = (None, BTreeMap::new(), BTreeMap::new());
        Pool { settings, servers, stored, decided, heard, obeyed: vec![0; observers] }
    }

    pub fn name(&self) -> &str {
        &self.settings.pool
    }

    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    pub fn servers(&mut self) -> &mut Servers {
        &mut self.servers
    }

    pub fn is_decided(&self) -> bool {
        self.stored.is_some()
    }

    /// Returns one of the addresses.
    pub fn any_address(&self, random: &mut Random) -> String {
        address(random.index(self.servers.len()))
    }

    /// Returns what an observer sees, with the epoch that it obeys.
    pub fn seen_by(&mut self, by: NodeId, epoch: u64, now: Time) -> GroupSeen {
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

    /// Looks at the coordinator after a transaction. Returns the group of before if another primary
    /// was decided.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn look(&mut self, engine: &Engine, went_back: bool) -> Result<Option<&Group>, String> {
        let now = engine.value(&self.key()).and_then(Group::decode);
        let before = std::mem::replace(&mut self.stored, now.clone());
        if went_back || before == now {
            return Ok(None);
        }
        let Some(now) = now else { return Err("a group is lost".to_owned()) };
        let before_epoch = before.as_ref().map_or(0, |before| before.epoch);
        if now.epoch < before_epoch {
            return Err(format!("the epoch went from {before_epoch} to {}", now.epoch));
        }
        let named = (now.primary.clone(), now.next().map(str::to_owned));
        let known = self.decided.entry(now.epoch).or_insert_with(|| named.clone());
        if *known != named {
            return Err(format!("epoch {} has two primaries: {known:?}, {named:?}", now.epoch));
        }
        let is_other = before.is_some_and(|before| before.primary != now.primary);
        Ok(self.stored.as_ref().filter(|_| is_other))
    }

    /// No fail-over is decided by itself while more observers see the primary than do not, nor by a
    /// minority of the observers that this control node has heard.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_write(
        &self,
        nth: usize,
        write: &Write,
        observers: &[Observer],
        now: Time,
    ) -> Result<(), String> {
        let key = self.key();
        let put = write.put.iter().find(|(known, _)| *known == key);
        let Some(group) = put.and_then(|(_, value)| Group::decode(value)) else { return Ok(()) };
        let (Some(old), Phase::Promoting) = (&group.old, &group.phase) else { return Ok(()) };
        if group.why.starts_with("by order") {
            return Ok(());
        }
        let fresh = |id: NodeId| {
            let heard = self.heard.get(&(id, nth));
            heard.is_some_and(|at| now.since(*at) < Duration::from_secs(4))
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

    /// Checks that an order of an operator has had its effect.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_answer(&self, epoch: u64, to: &str) -> Result<(), String> {
        let decided = self.decided.get(&epoch);
        match decided.is_some_and(|(primary, _)| primary != to) {
            true => Err(format!("{to} was ordered, and {decided:?} came")),
            false => Ok(()),
        }
    }

    /// Checks that no observer goes back, and that it obeys what was decided.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_obeyed(&mut self, observers: &[Observer], went_back: bool) -> Result<(), String> {
        for (nth, observer) in observers.iter().enumerate() {
            let epoch = observer.epoch(&self.settings.pool);
            let before = std::mem::replace(&mut self.obeyed[nth], epoch);
            if epoch < before {
                return Err(format!("observer {nth} went from {before} to {epoch}"));
            }
            let obeyed = observer.obeyed(&self.settings.pool).filter(|_| !went_back);
            let Some(Decided { primary, next, .. }) = obeyed else { continue };
            let known = self.decided.get(&epoch);
            if known.is_none_or(|known| (&known.0, &known.1) != (primary, next)) {
                return Err(format!("observer {nth} obeys {obeyed:?}, not {known:?}"));
            }
        }
        Ok(())
    }

    /// Checks the laws that hold when faults have stopped.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn check_rest(&self, observers: &[Observer]) -> Result<(), String> {
        let Some(group) = &self.stored else {
            return Err("no primary is decided in peace".to_owned());
        };
        if group.phase != Phase::Settled {
            return Err(format!("a fail-over never ends: {group:?}"));
        }
        for nth in 0..self.servers.len() {
            let server = self.servers.at(nth);
            let is_primary = address(nth) == group.primary;
            let is_right = match server {
                Server { of: None, .. } => is_primary,
                Server { of: Some(of), .. } => !is_primary && address(*of) == group.primary,
            };
            if !is_right || !server.is_alive {
                return Err(format!("{} is {server:?} in peace, and {group:?}", address(nth)));
            }
        }
        let obeys = |one: &&Observer| one.epoch(&self.settings.pool) == group.epoch;
        match observers.iter().find(|one| !obeys(one)) {
            Some(one) => Err(format!("{one:?} does not obey {group:?} in peace")),
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
