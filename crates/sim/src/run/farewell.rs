//! The end of a run: which clients have missed a message, and what is left when all have left.

use super::*;

impl Sim {
    /// Checks that all clients received what they had to.
    pub(super) fn check_told(&self) -> Result<(), String> {
        let world = self.world.borrow();
        let mut clients = world.clients.iter();
        clients.try_for_each(|client| client.check_told_all(&world.ledger, world.network.now))
    }

    /// Checks that nothing subscribes to anything, at workers or servers, when every client has
    /// left, and that nothing is remembered of what they have read.
    pub(super) fn check_farewell(&mut self) -> Result<(), String> {
        {
            let mut world = self.world.borrow_mut();
            let World { network, clients, visitors, ledger, .. } = &mut *world;
            clients.iter_mut().for_each(|client| client.leave_for_good(network, ledger));
            visitors.iter_mut().for_each(|visitor| visitor.leave_for_good(network));
        }
        // Clients that have left are removed from the tables a step per tick.
        let until = self.now() + REST;
        self.run_until(|_, now| now >= until)?;
        for index in 0..self.seats.len() {
            let Some(figures) = self.figures(index) else { continue };
            let held = figures.sessions
                + figures.leases
                + figures.subscriptions
                + figures.subscriber_links
                + figures.tracked;
            if held > 0 {
                return Err(format!("worker {index} holds something for nobody: {figures:?}"));
            }
        }
        self.check_leftovers()?;
        let world = self.world.borrow();
        let heard: usize = world.servers.iter().map(Server::subscriptions).sum();
        if heard > 0 {
            return Err(format!("{heard} subscriptions at servers for nobody"));
        }
        Ok(())
    }
}
