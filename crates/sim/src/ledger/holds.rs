//! Servers that an operator has ejected by hand.

use super::*;
use crate::network::SECOND;

/// How long requests may still be in flight to a server that was ejected.
const UNDER_WAY_MAX: Nanos = SECOND / 4;

/// The servers that are ejected by hand, as far as is known.
#[derive(Default)]
pub(super) struct Held {
    /// By server: since when it is out of use.
    since: BTreeMap<usize, Nanos>,
    /// By pool: how often keys have moved because of that.
    pub(super) moves: BTreeMap<usize, u64>,
    count: u64,
}

impl Ledger {
    /// Notes that servers of a pool may be ejected by hand, which moves keys.
    pub fn know_moving(&mut self, pool: usize) {
        if let Some(known) = &mut self.pools[pool] {
            known.is_static = false;
        }
    }

    /// Notes that a server of a pool is ejected by hand, or restored. Requests may fail for a
    /// while.
    pub fn on_hold(
        &mut self,
        (pool, at): (usize, usize),
        is_held: bool,
        (from, until): (Nanos, Nanos),
    ) {
        let servers = self.servers_of(pool);
        servers.iter().for_each(|&server| self.on_trouble(server, from, until));
        *self.held.moves.entry(pool).or_default() += 1;
        self.held.count += u64::from(is_held);
        match is_held {
            true => drop(self.held.since.insert(servers[at], from)),
            false => drop(self.held.since.remove(&servers[at])),
        }
    }

    /// Returns how often servers of clients' pools were ejected by hand.
    pub fn holds(&self) -> u64 {
        self.held.count
    }

    /// Checks that a server that is asked for data may be asked. One that is ejected by hand must
    /// not be, except for requests in flight and those that a fault has delayed.
    pub fn check_asked(&mut self, server: usize, now: Nanos) {
        let Some(&since) = self.held.since.get(&server) else { return };
        let of_hold = since + UNDER_WAY_MAX;
        let mut faults = self.troubles[server].iter().filter(|(from, _)| *from != since);
        let is_late = faults.any(|&(start, end)| start <= now && since <= end);
        if now > of_hold && !is_late {
            self.fail(|| format!("server {server} was asked while it was ejected by hand"));
        }
    }
}
