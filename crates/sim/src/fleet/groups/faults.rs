//! The faults: processes that are killed, hang and are cut off, servers that fail and are changed, and
//! a coordinator that comes back from a backup.

use super::GroupsWorld;
use crate::fleet::people::{Control, control_id};
use std::time::Duration;

impl GroupsWorld {
    pub(super) fn harm(&mut self) {
        let nth = self.random.index(self.controls.len());
        let long = self.now + Duration::from_millis(self.random.scaled(50, 8000));
        match self.random.below(17) {
            0..2 => self.kill_or_start(nth),
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
                for pool in self.hit() {
                    let servers = self.pools[pool].servers();
                    let what = servers.kill_or_restart(&mut self.random, self.now);
                    self.tell(|| what);
                }
            }
            9..11 => {
                let observer = self.random.index(self.observers.len());
                let ids = [self.observers[observer].id(), control_id(nth)];
                let id = ids[self.random.index(2)];
                for pool in self.hit() {
                    self.pools[pool].servers().cut_or_mend(id, &mut self.random, self.now);
                }
            }
            11 => {
                for pool in self.hit() {
                    self.pools[pool].servers().meddle(&mut self.random);
                }
            }
            12..14 => {
                let nth = self.random.index(self.observers.len());
                let clocks = self.clocks();
                self.observers[nth].restart(clocks);
            }
            14 => {
                let nth = self.random.index(self.observers.len());
                self.observers[nth].hang(long);
                let id = self.observers[nth].id();
                for control in self.controls.iter_mut().flatten() {
                    control.leader.handle_left(id, control.clocks.at(self.now));
                }
            }
            15 => self.change_document(),
            _ if self.may_go_back => self.back_up_or_restore(),
            _ => {}
        }
    }

    /// Returns a pool that faults may hit.
    pub(super) fn any_hit(&mut self) -> Option<usize> {
        let all: Vec<usize> =
            (0..self.pools.len()).filter(|pool| !self.pools[*pool].is_calm()).collect();
        (!all.is_empty()).then(|| all[self.random.index(all.len())])
    }

    /// Returns the pools that a fault hits: one, or at times two at once.
    fn hit(&mut self) -> Vec<usize> {
        let (first, second) = (self.any_hit(), self.any_hit());
        let second = second.filter(|second| Some(*second) != first && self.random.percent(30));
        first.into_iter().chain(second).collect()
    }

    /// Somebody applies a document with one pool less or more, or with another setting.
    fn change_document(&mut self) {
        if let Some(pool) = self.listed.change(&mut self.random) {
            self.pools[pool].change_settings(&mut self.random);
            let listed = self.listed.pools();
            self.tell(|| format!("the document has the pools {listed:?}"));
        }
    }

    fn kill_or_start(&mut self, nth: usize) {
        self.report.kills += 1;
        self.tell(|| format!("control {nth} is killed, or starts"));
        if let Some(Control { session: Some((session, _)), .. }) = &self.controls[nth]
            && self.random.percent(50)
        {
            self.engine.end(*session);
        }
        let starts = self.controls[nth].is_none() || self.random.percent(50);
        let clocks = self.clocks();
        self.replace(nth, starts.then(|| Control::new(nth, clocks)));
    }

    fn back_up_or_restore(&mut self) {
        if self.backups.is_empty() || self.random.percent(50) {
            return self.backups.push(self.engine.clone());
        }
        let at = self.random.index(self.backups.len());
        self.tell(|| "the coordinator is restored from a backup".to_owned());
        let backup = self.backups[at].clone();
        self.engine.restore(&backup);
        self.pools.iter_mut().for_each(|pool| pool.restore(&backup));
        self.went_back = true;
        self.report.restores += 1;
    }
}
