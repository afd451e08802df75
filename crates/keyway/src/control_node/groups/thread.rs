//! The thread of a group.

use super::wire::Wire;
use super::{Telling, Told, Watched};
use crate::member::role_seen;
use keyway_base::Time;
use keyway_channel::clock;
use keyway_fleet::{GroupOrder, GroupSeen, RoleSeen, ServerSeen};
use keyway_topology::{Endpoint, InfoReplication};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Time between two questions to each server.
const EVERY: Duration = Duration::from_millis(500);

/// Longest wait for an answer to a question.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_millis(400);

/// A server of the group.
pub(super) struct Server {
    /// The address, as the document writes it.
    pub address: String,
    endpoint: Option<Endpoint>,
    wire: Option<Wire>,
    answered: Time,
    /// True if it has answered the latest question.
    pub is_reached: bool,
    role: Option<RoleSeen>,
}

/// The thread.
pub(super) struct Watching {
    watched: Watched,
    pub servers: Vec<Server>,
    pub orders: Receiver<GroupOrder>,
    telling: Telling,
    is_over: Arc<AtomicBool>,
}

impl Watching {
    pub fn new(
        watched: Watched,
        orders: Receiver<GroupOrder>,
        telling: Telling,
        is_over: Arc<AtomicBool>,
    ) -> Watching {
        let server = |address: &String| Server {
            address: address.clone(),
            endpoint: address.parse().ok(),
            wire: None,
            answered: clock(),
            is_reached: true,
            role: None,
        };
        let servers = watched.settings.servers.iter().map(server).collect();
        Watching { watched, servers, orders, telling, is_over }
    }

    pub fn run(mut self) {
        let mut next = clock();
        while !self.is_over() {
            match self.orders.recv_timeout(next.since(clock())) {
                Ok(GroupOrder { pool, number, what }) => {
                    let outcome = self.carry_out(&what);
                    if !self.telling.tell(Told::Done { pool, number, outcome }) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Also after an order: the leader waits for what the servers say now.
            next = clock() + EVERY;
            let seen = self.look();
            if !self.telling.tell(Told::Seen(seen)) {
                return;
            }
        }
    }

    /// Returns whether this node leads no more, or the group is another.
    pub fn is_over(&self) -> bool {
        // ORDER: the flag itself is the only data
        self.is_over.load(Ordering::Relaxed)
    }

    /// Asks every server for its role, all at once: one that is silent holds up no other one.
    fn look(&mut self) -> GroupSeen {
        let watched = &self.watched;
        let mut servers = self.servers.iter_mut();
        // This thread would wait otherwise.
        let own = servers.next();
        std::thread::scope(|scope| {
            for server in servers {
                scope.spawn(|| server.look(watched));
            }
            own.into_iter().for_each(|server| server.look(watched));
        });
        let pool = self.watched.settings.pool.clone();
        GroupSeen { pool, epoch: 0, servers: self.servers.iter().map(Server::seen).collect() }
    }

    /// Returns the position of a server.
    ///
    /// # Errors
    /// Returns a text if the group has no such server.
    pub fn find(&self, address: &str) -> Result<usize, String> {
        let found = self.servers.iter().position(|server| server.address == address);
        found.ok_or_else(|| format!("{address} is not of the group any more"))
    }

    /// Sends a command to a server, and returns its reply. See [`Server::ask`].
    ///
    /// # Errors
    /// Returns the reason why there is no reply.
    pub fn ask(&mut self, nth: usize, words: &[&str], within: Duration) -> Result<Vec<u8>, String> {
        let server = self.servers.get_mut(nth).ok_or("no such server")?;
        server.ask(&self.watched, words, within)
    }
}

impl Server {
    /// Asks for the role, and notes the answer.
    fn look(&mut self, watched: &Watched) {
        let answer = self.ask(watched, &["INFO"], ANSWER_WITHIN);
        let told = answer.as_ref().ok().map(|reply| InfoReplication::from_reply(reply));
        // A server that loads its data counts as silent: it answers no client.
        let is_loading = matches!(&told, Some(Ok(told)) if told.is_loading);
        // One that loads its data refuses writes by itself.
        self.is_reached = told.is_some() && !is_loading;
        if self.is_reached {
            self.answered = clock();
        }
        match told {
            Some(Ok(told)) => self.role = Some(role_seen(&told)),
            // It answers, and tells no role: as without the right password.
            Some(Err(_)) => self.role = None,
            None => {}
        }
    }

    fn seen(&self) -> ServerSeen {
        let silent = clock().since(self.answered).as_millis() as u64;
        ServerSeen {
            address: self.address.clone(),
            silent_ms: (!self.is_reached).then_some(silent),
            role: self.role.clone(),
        }
    }

    /// Sends a command, and returns its reply. A connection that was broken is made again. A server
    /// that has not answered in time is not asked twice: each order would take twice as long.
    ///
    /// # Errors
    /// Returns the reason why there is no reply.
    fn ask(
        &mut self,
        watched: &Watched,
        words: &[&str],
        within: Duration,
    ) -> Result<Vec<u8>, String> {
        let until = clock() + within;
        if let Some(wire) = &mut self.wire {
            match wire.ask(words, within) {
                Ok(reply) => return Ok(reply),
                Err(why) => {
                    self.wire = None;
                    if until <= clock() {
                        return Err(why);
                    }
                }
            }
        }
        let endpoint = self.endpoint.as_ref().ok_or("its address cannot be read")?;
        let Watched { password, tls, .. } = watched;
        let mut wire = Wire::connect(endpoint, password.as_deref(), tls.as_ref(), within)?;
        let reply = wire.ask(words, within)?;
        self.wire = Some(wire);
        Ok(reply)
    }
}
