//! The servers of a group: roles, offsets, and who reaches whom.

use super::pool::target;
use crate::fleet::clock::Clocks;
use crate::random::Random;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::{Command, GroupSeen, RoleSeen, ServerSeen};
use std::collections::BTreeMap;
use std::time::Duration;

/// A server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub is_alive: bool,
    /// Its primary; `None` if it is one itself.
    pub of: Option<usize>,
    pub offset: u64,
}

/// A link of an observer to a server.
#[derive(Clone, Copy, Debug, Default)]
struct Sight {
    is_cut: bool,
    /// Since when it does not answer.
    silent_since: Option<Time>,
    /// Since when it answers.
    seen_since: Time,
}

#[derive(Debug)]
pub(super) struct Servers {
    /// The name of their pool, and its number.
    pool: String,
    of: usize,
    servers: Vec<Server>,
    sights: BTreeMap<(NodeId, usize), Sight>,
}

/// Returns how the addresses of a pool begin.
pub(super) fn network(pool: usize) -> String {
    format!("10.0.{pool}.")
}

impl Servers {
    pub fn new((of, pool): (usize, &str), count: usize) -> Servers {
        let server =
            |nth: usize| Server { is_alive: true, of: (nth > 0).then_some(0), offset: 100 };
        let (pool, sights) = (pool.to_owned(), BTreeMap::new());
        Servers { pool, of, servers: (0..count).map(server).collect(), sights }
    }

    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns an address, which no server of another pool has.
    pub fn address(&self, nth: usize) -> String {
        format!("{}{}:6379", network(self.of), nth + 1)
    }

    pub fn addresses(&self) -> Vec<String> {
        (0..self.len()).map(|nth| self.address(nth)).collect()
    }

    pub fn at(&self, nth: usize) -> &Server {
        &self.servers[nth]
    }

    fn find(&self, name: &str) -> Option<usize> {
        (0..self.servers.len()).find(|nth| self.address(*nth) == name)
    }

    /// Notes for how long each observer has seen each server.
    fn follow(&mut self, now: Time) {
        for ((_, nth), sight) in &mut self.sights {
            let answers = self.servers[*nth].is_alive && !sight.is_cut;
            match (answers, sight.silent_since) {
                (true, Some(_)) => (sight.silent_since, sight.seen_since) = (None, now),
                (false, None) => sight.silent_since = Some(now),
                _ => {}
            }
        }
    }

    fn sight(&mut self, by: NodeId, nth: usize, now: Time) -> Sight {
        let new = Sight { seen_since: now, ..Sight::default() };
        self.sights.entry((by, nth)).or_insert(new);
        self.follow(now);
        self.sights[&(by, nth)]
    }

    fn reaches(&mut self, by: NodeId, nth: usize, now: Time) -> bool {
        self.sight(by, nth, now).silent_since.is_none()
    }

    /// Returns whether an observer has reached a server for so long without a break.
    pub fn is_seen(&self, by: NodeId, name: &str, long: Duration, now: Time) -> bool {
        let sight = self.find(name).and_then(|nth| self.sights.get(&(by, nth)));
        sight.is_some_and(|it| it.silent_since.is_none() && now.since(it.seen_since) >= long)
    }

    /// Returns what an observer sees, by its own clock.
    pub fn seen_by(&mut self, (by, clocks): (NodeId, &Clocks), epoch: u64, now: Time) -> GroupSeen {
        let mut seen = GroupSeen { pool: self.pool.clone(), epoch, servers: Vec::new() };
        for nth in 0..self.servers.len() {
            let sight = self.sight(by, nth, now);
            let silent_ms = sight
                .silent_since
                .map(|since| clocks.at(now).since(clocks.at(since)).as_millis() as u64);
            let server = &self.servers[nth];
            let role = match server.of {
                None => RoleSeen::Primary { offset: server.offset, replicas: 0 },
                Some(of) => RoleSeen::Replica {
                    of: self.address(of),
                    offset: server.offset,
                    is_linked: self.servers[of].is_alive && self.servers[of].of.is_none(),
                    down_ms: None,
                    is_syncing: false,
                    priority: 100,
                },
            };
            let role = silent_ms.is_none().then_some(role);
            seen.servers.push(ServerSeen { address: self.address(nth), silent_ms, role });
        }
        seen
    }

    /// Clients write, and replicas follow.
    pub fn live(&mut self, random: &mut Random, now: Time) {
        self.follow(now);
        let nth = random.index(self.servers.len());
        let of = self.servers[nth].of.filter(|of| self.servers[*of].is_alive);
        match of {
            Some(of) => self.servers[nth].offset = self.servers[of].offset,
            None if self.servers[nth].of.is_none() => {
                self.servers[nth].offset += random.below(50);
            }
            None => {}
        }
    }

    /// Executes an order. With `is_bad` it is executed in part.
    pub fn execute(
        &mut self,
        by: NodeId,
        what: &Command,
        is_bad: bool,
        now: Time,
    ) -> Result<(), String> {
        let nth = self.find(target(what)).ok_or("no such server")?;
        if !self.reaches(by, nth, now) {
            return Err("it does not answer".to_owned());
        }
        match what {
            Command::Promote { primary: _, old, others } => {
                self.servers[nth].of = None;
                let all: Vec<usize> =
                    old.iter().chain(others).filter_map(|it| self.find(it)).collect();
                for other in all.into_iter().take(if is_bad { 1 } else { usize::MAX }) {
                    if self.reaches(by, other, now) {
                        self.servers[other].of = Some(nth);
                    }
                }
            }
            Command::Follow { primary, .. } => {
                self.servers[nth].of = self.find(primary);
            }
            Command::Switch { from, others, .. } => {
                let from = self.find(from).ok_or("no such server")?;
                if self.servers[nth].of.is_none() && self.servers[from].of == Some(nth) {
                    return Ok(());
                }
                let follows = self.servers[nth].of == Some(from);
                if is_bad || !self.reaches(by, from, now) || !follows {
                    return Err("it was not handed over".to_owned());
                }
                self.servers[nth].offset = self.servers[from].offset;
                (self.servers[nth].of, self.servers[from].of) = (None, Some(nth));
                for other in others.iter().filter_map(|it| self.find(it)).collect::<Vec<_>>() {
                    if self.reaches(by, other, now) {
                        self.servers[other].of = Some(nth);
                    }
                }
            }
        }
        match is_bad {
            true => Err("no answer".to_owned()),
            false => Ok(()),
        }
    }

    /// A server comes back as what its file says: the first one as a primary, the others as its
    /// replicas; or as what it was.
    pub fn kill_or_restart(&mut self, random: &mut Random, now: Time) -> String {
        let nth = random.index(self.servers.len());
        let by_file = random.percent(50);
        let server = &mut self.servers[nth];
        server.is_alive = !server.is_alive;
        if server.is_alive && by_file {
            server.of = (nth > 0).then_some(0);
        }
        let told = format!("{}{}: {server:?}", network(self.of), nth + 1);
        self.follow(now);
        told
    }

    pub fn cut_or_mend(&mut self, by: NodeId, random: &mut Random, now: Time) {
        let nth = random.index(self.servers.len());
        self.sight(by, nth, now);
        if let Some(sight) = self.sights.get_mut(&(by, nth)) {
            sight.is_cut = !sight.is_cut;
        }
        self.follow(now);
    }

    /// Somebody makes a server a primary, or another one's replica, past control.
    pub fn meddle(&mut self, random: &mut Random) {
        let (nth, other) = (random.index(self.servers.len()), random.index(self.servers.len()));
        self.servers[nth].of = (nth != other && random.percent(50)).then_some(other);
    }

    /// All of them are killed.
    pub fn kill_all(&mut self, now: Time) {
        self.servers.iter_mut().for_each(|server| server.is_alive = false);
        self.follow(now);
    }

    pub fn heal(&mut self, now: Time) {
        self.servers.iter_mut().for_each(|server| server.is_alive = true);
        self.sights.values_mut().for_each(|sight| sight.is_cut = false);
        self.follow(now);
    }
}
