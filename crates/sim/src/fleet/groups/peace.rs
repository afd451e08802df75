//! The end of a run: faults stop, operators mend what control cannot, and everything comes to rest.

use super::GroupsWorld;
use super::servers::address;
use crate::fleet::FleetReport;
use crate::fleet::people::Control;
use keyway_fleet::Apply;

/// Steps with faults.
const STEPS: u64 = 2500;
/// Steps in peace within which everything must come to rest.
const PEACE: u64 = 5000;

impl GroupsWorld {
    pub fn run(mut self) -> Result<FleetReport, String> {
        self.take_steps(STEPS)?;
        self.make_peace();
        self.take_steps(PEACE)?;
        if self.went_back {
            // An operator applies the right document, which also gives the leader a large epoch.
            self.apply_by_leader();
            self.take_steps(PEACE)?;
        }
        if self.went_back || !self.pool.is_decided() {
            self.fail_over_by_leader();
            self.take_steps(PEACE)?;
        }
        self.check_rest()?;
        Ok(self.report)
    }

    fn take_steps(&mut self, count: u64) -> Result<(), String> {
        (0..count).try_for_each(|_| self.step())
    }

    fn make_peace(&mut self) {
        self.tell(|| "peace".to_owned());
        self.is_peace = true;
        self.pool.servers().heal(self.now);
        for nth in 0..self.controls.len() {
            let has_ended = self.controls[nth].as_ref().is_none_or(|one| {
                one.leader.view(self.now).fault.is_some_and(|fault| fault.contains("went back"))
            });
            if has_ended || self.went_back {
                self.replace(nth, Some(Control::new(nth)));
            }
        }
    }

    fn leading(&self) -> Option<usize> {
        let leads = |one: &Option<Control>| one.as_ref().is_some_and(|one| one.leader.leads());
        self.controls.iter().position(leads)
    }

    fn apply_by_leader(&mut self) {
        let Some(nth) = self.leading() else { return };
        let Some(control) = &mut self.controls[nth] else { return };
        let base = control.leader.revision();
        let (id, by) = self.operators.ask(nth, None);
        let order = Apply {
            id,
            base,
            text: "# right".into(),
            at: 0,
            by,
            back_to: None,
            changes: Vec::new(),
            rollout: None,
        };
        control.leader.apply(order, self.now);
    }

    fn fail_over_by_leader(&mut self) {
        let Some(nth) = self.leading() else { return };
        // The operator knows what the proxies use.
        let pool = self.pool.name();
        let used = self.observers.iter().max_by_key(|one| one.epoch(pool));
        let used = used.and_then(|one| one.obeyed(pool)).map(|one| one.primary.clone());
        self.order_of(nth, Some(used.unwrap_or_else(|| address(0))));
    }

    /// The laws that hold when faults have stopped.
    fn check_rest(&self) -> Result<(), String> {
        self.pool.check_rest(&self.observers).map_err(|law| self.broken(law))?;
        match self.operators.waiting() {
            0 => Ok(()),
            waiting => Err(self.broken(format!("{waiting} orders were never answered"))),
        }
    }
}
