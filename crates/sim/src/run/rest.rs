//! What workers may hold, and do, while all clients rest.

use super::*;

impl Sim {
    /// Checks that without work nothing is done and nothing is held.
    pub(super) fn check_rest(&mut self) -> Result<(), String> {
        self.check_idle_turns()?;
        if let Some(conn) = self.world.borrow().network.unnoticed_end() {
            return Err(format!("no worker has noticed the end of connection {conn}"));
        }
        {
            let ledger = &mut self.world.borrow_mut().ledger;
            ledger.check_elements();
            stores::check(&self.plan, ledger);
        }
        self.check_mirrors();
        if let Some(text) = &self.world.borrow().ledger.violation {
            return Err(text.clone());
        }
        let sessions = self.check_sessions()?;
        self.check_links(sessions)
    }

    /// Checks that resting workers take few turns and hold no request.
    fn check_idle_turns(&mut self) -> Result<(), String> {
        // The worker first notices what clients closed, and the last words of links.
        let settled = self.now() + SECOND;
        self.run_until(|_, now| now >= settled)?;
        // A long answer arrives in many small pieces. Each takes a turn, and often there is one
        // more turn that finds nothing.
        let idle = |seat: &Seat| seat.turns.saturating_sub(2 * seat.fed);
        let before: Vec<_> = self.seats.iter().map(idle).collect();
        let until = self.now() + REST;
        self.run_until(|_, now| now >= until)?;
        // A look at a server's marker takes a few turns.
        let looked_at = self.scenario.servers_looked_at() + self.cluster_questions() as u64;
        let allowed = (RESTING_TURNS_PER_SECOND + 8 * looked_at) * REST / SECOND;
        for (index, before) in before.into_iter().enumerate() {
            let turns = idle(&self.seats[index]).saturating_sub(before);
            if turns > allowed {
                return Err(format!("worker {index} took {turns} turns while at rest"));
            }
            let Some(figures) = self.figures(index) else { continue };
            // The connections of a tracked client are probed as well.
            let probed = if figures.tracked > 0 { figures.leases } else { 0 };
            let is_looking = figures.in_flight <= looked_at as usize + probed;
            let in_flight = if is_looking { 0 } else { figures.in_flight };
            if figures.sessions_busy
                + in_flight
                + figures.operations
                + figures.sub_requests
                + figures.hedges
                > 0
            {
                return Err(format!("worker {index} holds something at rest: {figures:?}"));
            }
        }
        Ok(())
    }

    /// Checks that workers, metrics and the list of clients have a session for each client that is
    /// connected, and returns how many these are.
    fn check_sessions(&self) -> Result<usize, String> {
        let sessions: usize =
            (0..self.seats.len()).filter_map(|i| self.figures(i)).map(|f| f.sessions).sum();
        let world = self.world.borrow();
        let resting = world.clients.iter().filter(|client| client.is_connected()).count();
        if sessions != resting {
            return Err(format!("{sessions} sessions for {resting} clients"));
        }
        let pools = self.own_positions().into_iter();
        let counted: u64 = pools.map(|p| self.registry.pool_totals(p).clients_connected).sum();
        if counted != sessions as u64 || self.plan.clients.len() != sessions {
            let listed = self.plan.clients.len();
            return Err(format!("{sessions} sessions, {counted} counted, {listed} listed"));
        }
        Ok(sessions)
    }

    /// Checks that workers at rest have no more connections to servers than they may keep, and no
    /// sockets besides these and those of clients.
    fn check_links(&self, sessions: usize) -> Result<(), String> {
        let links: usize = self.scenario.topology.pools().iter().map(links_of).sum();
        let links = links * self.seats.len();
        let figures = (0..self.seats.len()).filter_map(|i| self.figures(i));
        let (private, leases, tracked, subscriber_links) =
            figures.fold((0, 0, 0, 0), |sum, one| {
                (
                    sum.0 + one.private_links,
                    sum.1 + one.leases,
                    sum.2 + one.tracked,
                    sum.3 + one.subscriber_links,
                )
            });
        let blocked = self.plan.clients.blocked_len();
        // A tracked client has a link to each server.
        let own_max = tracked * self.scenario.topology.backend_count();
        if leases > own_max || blocked > 0 {
            return Err(format!("{leases} leases and {blocked} clients blocked at rest"));
        }
        let idle_max = 32 * self.seats.len() * self.scenario.topology.backend_count() + own_max;
        if private > idle_max {
            return Err(format!("{private} private links at rest"));
        }
        let sockets = self.world.borrow().network.worker_sockets;
        // Each server may have one of each protocol for large values, and one around them.
        let beside = 2 * self.scenario.topology.backend_count() * self.seats.len();
        let links = (links + beside) * 2 + subscriber_links;
        if sockets > links + private + sessions {
            return Err(format!("{sockets} sockets for {sessions} clients and {links} links"));
        }
        Ok(())
    }
}
