//! The orders to the servers of a group. Each step may be repeated.

use super::thread::{ANSWER_WITHIN, Watching};
use super::wire::addresses;
use keyway_channel::clock;
use keyway_fleet::Command;
use keyway_topology::{ConnectedReplica, Endpoint, InfoReplication};
use std::time::Duration;

/// Time for which the primary before holds writes while another one is made. Its clients would
/// otherwise write what is lost.
const HOLD_MS: &str = "3000";

/// Longest time for a primary to hand over by FAILOVER, in milliseconds. Proxies hold writes for 5 s.
const SWITCH_MS: &str = "3500";

/// The same until the order is given up: a little more.
const SWITCH_WITHIN: Duration = Duration::from_millis(4500);

/// Time between two looks at whether a primary has handed over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Longest wait for an answer to an order.
const ORDER_WITHIN: Duration = Duration::from_secs(1);

impl Watching {
    /// Carries out an order.
    ///
    /// # Errors
    /// Returns the reason why the servers are not what they were ordered to be.
    pub fn carry_out(&mut self, what: &Command) -> Result<(), String> {
        match what {
            Command::Promote { primary, old, others } => {
                self.promote(primary, old.as_deref(), others)
            }
            Command::Follow { server, primary } => self.make_replica(server, primary),
            Command::Switch { from, to, others } => {
                self.switch(from, to)?;
                for other in others {
                    self.make_replica_if_it_answers(other, to);
                }
                Ok(())
            }
        }
    }

    fn promote(
        &mut self,
        primary: &str,
        old: Option<&str>,
        others: &[String],
    ) -> Result<(), String> {
        let new = self.find(primary)?;
        let old = old.filter(|old| self.answers(old));
        if let Some(old) = old.and_then(|old| self.find(old).ok()) {
            let _ = self.order(old, &["CLIENT", "PAUSE", HOLD_MS, "WRITE"], ANSWER_WITHIN);
        }
        // The leader chooses another one soon if this one is gone. This order must be over by then.
        let within = if self.answers(primary) { ORDER_WITHIN } else { ANSWER_WITHIN };
        self.order(new, &["REPLICAOF", "NO", "ONE"], within)?;
        self.keep(new);
        if let Some(old) = old
            && self.make_replica(old, primary).is_ok()
            && let Ok(nth) = self.find(old)
        {
            // Writes that were held are refused now, and go to the new primary.
            let _ = self.order(nth, &["CLIENT", "UNPAUSE"], ANSWER_WITHIN);
        }
        for other in others {
            self.make_replica_if_it_answers(other, primary);
        }
        Ok(())
    }

    /// Returns whether a server has answered the latest question.
    fn answers(&self, server: &str) -> bool {
        self.servers.iter().any(|one| one.address == server && one.is_reached)
    }

    /// Makes a server a replica, if it answers. Otherwise it becomes one when it does: nobody waits for
    /// a server that is gone.
    fn make_replica_if_it_answers(&mut self, server: &str, primary: &str) {
        if self.answers(server) {
            let _ = self.make_replica(server, primary);
        }
    }

    fn make_replica(&mut self, server: &str, primary: &str) -> Result<(), String> {
        let nth = self.find(server)?;
        let Ok(Endpoint::Tcp { host, port }) = primary.parse::<Endpoint>() else {
            return Err(format!("{primary} has no host and port"));
        };
        let port = port.to_string();
        self.order(nth, &["REPLICAOF", &host, &port], ORDER_WITHIN)?;
        self.keep(nth);
        Ok(())
    }

    /// Has a server write its role into its file, so that it starts with it.
    fn keep(&mut self, nth: usize) {
        // A server without a file refuses, and is made a replica when it comes back.
        let _ = self.order(nth, &["CONFIG", "REWRITE"], ORDER_WITHIN);
    }

    fn switch(&mut self, from: &str, to: &str) -> Result<(), String> {
        let (old, new) = (self.find(from)?, self.find(to)?);
        if self.has_switched(old, new) {
            return Ok(());
        }
        let told = self.role(old)?;
        let replica = replica_at(&told.replicas, to)
            .ok_or_else(|| format!("{from} does not know a replica at {to}"))?;
        let Some(Endpoint::Tcp { host, port }) = &replica.endpoint else {
            return Err(format!("{from} does not tell the address of {to}"));
        };
        let port = port.to_string();
        let words = ["FAILOVER", "TO", host, &port, "TIMEOUT", SWITCH_MS];
        match self.order(old, &words, ORDER_WITHIN) {
            Ok(()) => {}
            Err(why) if why.contains("already in progress") => {}
            Err(why) => return Err(format!("{from}: {why}")),
        }
        let until = clock() + SWITCH_WITHIN;
        while clock() < until {
            if self.has_switched(old, new) {
                self.keep(old);
                self.keep(new);
                return Ok(());
            }
            if self.has_given_up(old) {
                break;
            }
            self.pause()?;
        }
        let _ = self.order(old, &["FAILOVER", "ABORT"], ORDER_WITHIN);
        Err(format!("{to} did not get everything from {from} in time"))
    }

    fn has_switched(&mut self, old: usize, new: usize) -> bool {
        let is_replica = |told: Result<InfoReplication, String>| told.map(|it| it.is_replica());
        is_replica(self.role(new)) == Ok(false) && is_replica(self.role(old)) == Ok(true)
    }

    /// Returns whether a primary hands over no more, and is a primary still.
    fn has_given_up(&mut self, old: usize) -> bool {
        let reply = self.ask(old, &["INFO", "replication"], ANSWER_WITHIN).unwrap_or_default();
        let text = String::from_utf8_lossy(&reply);
        text.contains("role:master") && text.contains("master_failover_state:no-failover")
    }

    fn role(&mut self, nth: usize) -> Result<InfoReplication, String> {
        let reply = self.ask(nth, &["INFO", "replication"], ANSWER_WITHIN)?;
        InfoReplication::from_reply(&reply).map_err(|fault| fault.to_string())
    }

    /// Sends an order to a server.
    ///
    /// # Errors
    /// Returns the server's error, or that there is no answer.
    fn order(&mut self, nth: usize, words: &[&str], within: Duration) -> Result<(), String> {
        if self.is_over() {
            return Err("this control node leads no more".to_owned());
        }
        let reply = self.ask(nth, words, within).inspect_err(|_| {
            // The other steps of an order do not wait for it once more.
            if let Some(server) = self.servers.get_mut(nth) {
                server.is_reached = false;
            }
        })?;
        match reply.strip_prefix(b"-") {
            Some(error) => Err(String::from_utf8_lossy(error).trim().to_owned()),
            None => Ok(()),
        }
    }

    /// Waits a little. Orders that come meanwhile stay in the queue.
    fn pause(&self) -> Result<(), String> {
        std::thread::park_timeout(LOOK_EVERY);
        match self.is_over() {
            false => Ok(()),
            true => Err("this control node leads no more".to_owned()),
        }
    }
}

/// Returns the replica at an address, which its primary may know by another name of the host.
fn replica_at<'r>(replicas: &'r [ConnectedReplica], address: &str) -> Option<&'r ConnectedReplica> {
    let wanted: Endpoint = address.parse().ok()?;
    let exact = replicas.iter().find(|replica| replica.endpoint.as_ref() == Some(&wanted));
    if exact.is_some() {
        return exact;
    }
    let all_of = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp { host, port } => addresses(host, *port),
        Endpoint::Unix { .. } | Endpoint::Shm { .. } => Vec::new(),
    };
    let known = all_of(&wanted);
    let is_it = |replica: &&ConnectedReplica| {
        let told = replica.endpoint.as_ref().map(all_of).unwrap_or_default();
        told.iter().any(|one| known.contains(one))
    };
    replicas.iter().find(is_it)
}
