//! The end of a run: faults stop, operators mend what control cannot, and everything comes to rest.

use super::GroupsWorld;
use super::observer::Observer;
use super::orders::Asked;
use crate::fleet::FleetReport;
use crate::fleet::people::Control;
use keyway_fleet::{Apply, OrderId};

/// Steps with faults.
const STEPS: u64 = 2500;
/// Steps in peace within which everything must come to rest.
const PEACE: u64 = 5000;
/// Steps within which an order is carried out, if the leader stays.
const SERVED: u64 = 2500;
/// Times that an operator asks: the leader may be replaced meanwhile.
const TRIES: u64 = 4;

impl GroupsWorld {
    pub fn run(mut self) -> Result<FleetReport, String> {
        self.take_steps(STEPS)?;
        let dead = self.make_peace();
        self.take_steps(PEACE)?;
        if self.went_back {
            // An operator applies the right document, which also gives the leader a large epoch.
            self.apply_by_leader();
            self.take_steps(PEACE)?;
        }
        let living = self.listed.pools().into_iter().filter(|pool| Some(*pool) != dead);
        self.name_primaries(living.collect())?;
        if let Some(dead) = dead {
            self.serve_beside(dead)?;
            self.tell(|| "peace for all pools".to_owned());
            self.pools[dead].servers().heal(self.now);
            self.take_steps(PEACE)?;
            self.name_primaries(vec![dead])?;
        }
        self.check_rest(None)?;
        match self.operators.waiting() {
            0 => Ok(self.report),
            waiting => Err(self.broken(format!("{waiting} orders were never answered"))),
        }
    }

    fn take_steps(&mut self, count: u64) -> Result<(), String> {
        (0..count).try_for_each(|_| self.step())
    }

    /// Ends the faults. In some runs all servers of one pool stay dead: returns that pool.
    fn make_peace(&mut self) -> Option<usize> {
        self.tell(|| "peace".to_owned());
        self.is_peace = true;
        self.pools.iter_mut().for_each(|pool| pool.servers().heal(self.now));
        for nth in 0..self.controls.len() {
            let has_ended = self.controls[nth].as_ref().is_none_or(|one| {
                one.leader
                    .view(one.clocks.at(self.now))
                    .fault
                    .is_some_and(|fault| fault.contains("went back"))
            });
            if has_ended || self.went_back {
                let clocks = self.clocks();
                self.replace(nth, Some(Control::new(nth, clocks)));
            }
        }
        let listed = self.listed.pools();
        let is_whole = listed.len() < 2 || self.went_back || self.random.percent(50);
        let dead = (!is_whole).then(|| self.random.pick(&listed))?;
        self.pools[dead].end_calm();
        self.pools[dead].servers().kill_all(self.now);
        self.tell(|| format!("all servers of pool {dead} are dead"));
        Some(dead)
    }

    fn leading(&self) -> Option<usize> {
        let leads = |one: &Option<Control>| one.as_ref().is_some_and(|one| one.leader.leads());
        self.controls.iter().position(leads)
    }

    fn apply_by_leader(&mut self) {
        let Some(nth) = self.leading() else { return };
        let Some(control) = &mut self.controls[nth] else { return };
        let base = control.leader.revision();
        let (id, by) = self.operators.ask(Asked { nth, pool: None, to: None });
        let order = Apply {
            id,
            base,
            text: "# right".into(),
            at: control.clocks.wall(),
            by,
            back_to: None,
            changes: Vec::new(),
            rollout: None,
        };
        control.leader.apply(order, control.clocks.at(self.now));
    }

    /// An operator names the primaries that control does not decide by itself: all of them once if the
    /// coordinator went back, and those that are not decided.
    fn name_primaries(&mut self, pools: Vec<usize>) -> Result<(), String> {
        for nth in 0..TRIES {
            let mut pools = pools.clone();
            pools.retain(|pool| {
                (self.went_back && nth == 0) || self.pools[*pool].stored().is_none()
            });
            if pools.is_empty() {
                break;
            }
            pools.into_iter().for_each(|pool| self.name_primary(pool));
            self.take_steps(PEACE)?;
        }
        Ok(())
    }

    fn name_primary(&mut self, pool: usize) {
        let Some(nth) = self.leading() else { return };
        // The operator knows what the proxies use.
        let name = self.pools[pool].name();
        let used = self.observers.iter().max_by_key(|one| one.epoch(name));
        let used = used.and_then(|one| one.obeyed(name)).map(|one| one.primary.clone());
        let to = used.unwrap_or_else(|| self.pools[pool].settings().servers[0].clone());
        self.pools[pool].end_calm();
        self.order_of(nth, pool, Some(to));
    }

    /// All servers of a pool are dead. Nothing is decided about it, and operators fail over the other
    /// pools meanwhile.
    fn serve_beside(&mut self, dead: usize) -> Result<(), String> {
        self.check_rest(Some(dead))?;
        let before = self.pools[dead].stored().cloned();
        let mut waiting = self.listed.pools();
        waiting.retain(|pool| *pool != dead);
        for _ in 0..TRIES {
            self.order_beside(dead, None);
            let asked: Vec<Option<OrderId>> = waiting
                .iter()
                .map(|pool| {
                    self.pools[*pool].end_calm();
                    let to = self.pools[*pool].any_replica(&mut self.random);
                    self.order_beside(*pool, to)
                })
                .collect();
            self.take_steps(SERVED)?;
            let (mut asked, before) = (asked.into_iter(), waiting.len());
            waiting
                .retain(|_| !asked.next().flatten().is_some_and(|id| self.operators.is_done(id)));
            self.report.beside += (before - waiting.len()) as u64;
            if waiting.is_empty() {
                break;
            }
        }
        if let Some(pool) = waiting.first() {
            let law = "no order for it is carried out while all servers of another one are dead";
            return Err(self.broken_of(*pool, law));
        }
        match self.pools[dead].stored() == before.as_ref() {
            true => Ok(()),
            false => {
                let law = format!("all servers are dead, and {before:?} was replaced");
                Err(self.broken_of(dead, law))
            }
        }
    }

    fn order_beside(&mut self, pool: usize, to: Option<String>) -> Option<OrderId> {
        let nth = self.leading()?;
        self.order_of(nth, pool, to)
    }

    /// The laws that hold when faults have stopped, for all pools but one.
    fn check_rest(&self, but: Option<usize>) -> Result<(), String> {
        for (nth, pool) in self.pools.iter().enumerate().filter(|(nth, _)| Some(*nth) != but) {
            let checked = match self.listed.has(nth) {
                // An observer may have a later decision that the coordinator has lost, about a pool
                // that it does not use. Nobody is told of that.
                true => {
                    let obeys = |one: &&Observer| !self.went_back || one.uses(nth);
                    pool.check_rest(self.observers.iter().filter(obeys))
                }
                // Nothing counts a removal of which the coordinator knows no more.
                false if self.went_back => pool.check_gone(&[], false),
                false => pool.check_gone(&self.observers, self.listed.has_returned(nth)),
            };
            checked.map_err(|law| self.broken_of(nth, law))?;
        }
        Ok(())
    }
}
