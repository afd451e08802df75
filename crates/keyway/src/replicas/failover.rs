//! FAILOVER: the store is handed over to one of its replicas.
//!
//! ```text
//!  idle ─► waiting: writes are held until a replica has everything
//!       ─► handing: the store is a replica, and its link says PSYNC … FAILOVER
//!       ─► idle: the replica has taken over, or the store is the primary again
//! ```

use super::role::Role;
use keyway_replica::{Cause, Stage, State};
use keyway_worker::Failover;
use std::time::{Duration, Instant};

/// How long the store waits, with writes refused, until a replica has also what expired since it
/// had everything. Replicas speak once a second.
const PATIENCE: Duration = Duration::from_millis(2500);

/// How far a FAILOVER is.
#[derive(Clone, Debug, Default)]
pub(super) enum Progress {
    #[default]
    Idle,
    /// Until a replica has everything.
    Waiting { to: Option<(String, u16)>, until: Option<Instant>, is_forced: bool },
    /// Until the replica has taken over.
    Handing { to: (String, u16) },
}

impl Progress {
    /// Returns Redis's word for it.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Idle => "no-failover",
            Self::Waiting { .. } => "waiting-for-sync",
            Self::Handing { .. } => "failover-in-progress",
        }
    }
}

impl Role {
    /// Begins a FAILOVER, or gives one up.
    pub(super) fn fail_over(&self, asked: Failover) -> Result<&'static str, String> {
        let progress = self.progress();
        let Failover::Begin { to, timeout, is_forced } = asked else {
            if matches!(progress, Progress::Idle) {
                return Err("ERR No failover in progress.".to_owned());
            }
            self.give_up("an operator has ended it");
            return Ok("OK");
        };
        let refuse = |text: &str| Err(format!("ERR {text}"));
        if !matches!(progress, Progress::Idle) {
            return refuse("FAILOVER already in progress.");
        }
        if self.standby.store().is_replica() {
            return refuse("FAILOVER is not valid when server is a replica.");
        }
        self.allows("FAILOVER")?;
        let replicas = self.standby.feed_status().replicas;
        if replicas.is_empty() {
            return refuse("FAILOVER requires connected replicas.");
        }
        if let Some((host, port)) = &to {
            let found = replicas.iter().find(|it| it.address == *host && it.port == Some(*port));
            match found.map(|replica| replica.stage) {
                None => return refuse("FAILOVER target HOST and PORT is not a replica."),
                Some(keyway_replica::feed::Stage::Online) => {}
                Some(_) => return refuse("FAILOVER target replica is not online."),
            }
        }
        let until = timeout.and_then(|timeout| super::now().checked_add(timeout));
        tracing::info!(pool = self.name(), "the store is to be handed over to a replica");
        self.pause().set_handed_over(true);
        self.set_progress(Progress::Waiting { to, until, is_forced });
        self.standby.ask_for_offsets();
        Ok("OK")
    }

    /// Takes the next step of a FAILOVER.
    pub(super) fn step_failover(&self) {
        match self.progress() {
            Progress::Idle => {}
            Progress::Waiting { .. } if self.standby.store().is_replica() => self.end_failover(),
            Progress::Waiting { to, until, is_forced } => {
                let is_late = until.is_some_and(|until| until <= super::now());
                let is_pressed = is_late && is_forced;
                let found = self.successor(to.as_ref());
                let target = found.or_else(|| to.filter(|_| is_pressed));
                let patience = if is_pressed { Duration::ZERO } else { PATIENCE };
                match target {
                    Some(target) if self.hand_over(&target, patience) => {
                        self.set_progress(Progress::Handing { to: target });
                    }
                    _ if is_late => self.give_up("no replica had everything in time"),
                    // It is tried again.
                    _ => {}
                }
            }
            Progress::Handing { to: (host, port) } => {
                self.look_at_successor(&format!("{host}:{port}"));
            }
        }
    }

    /// A replica that has everything: this one, or any.
    fn successor(&self, to: Option<&(String, u16)>) -> Option<(String, u16)> {
        let status = self.standby.feed_status();
        let has_all = |it: &&keyway_replica::feed::ReplicaStatus| {
            let is_online = it.stage == keyway_replica::feed::Stage::Online;
            is_online && it.acknowledged >= status.offset
        };
        let mut replicas = status.replicas.iter().filter(has_all);
        replicas.find_map(|replica| {
            let address = (replica.address.clone(), replica.port?);
            to.is_none_or(|to| *to == address).then_some(address)
        })
    }

    /// Looks whether the replica has taken over.
    fn look_at_successor(&self, to: &str) {
        let Some(status) = self.standby.status() else {
            // Somebody has made the store a primary.
            return self.end_failover();
        };
        if status.link.state == State::Online {
            tracing::info!(pool = self.name(), primary = to, "the replica has taken over");
            return self.end_failover();
        }
        let is_refused = status.link.reason.as_ref().is_some_and(|reason| {
            reason.stage() == Stage::Handshake && matches!(reason.cause(), Cause::Handshake(_))
        });
        // One that cannot be reached may have taken over already: it is asked again.
        if is_refused || status.link.state == State::Stopped {
            self.give_up("the replica has refused to take over");
        }
    }

    /// Stays the primary, or becomes it again.
    fn give_up(&self, why: &str) {
        tracing::warn!(pool = self.name(), "the store is not handed over: {why}");
        if matches!(self.progress(), Progress::Handing { .. }) {
            self.take_back();
        }
        self.end_failover();
    }

    fn end_failover(&self) {
        self.set_progress(Progress::Idle);
        self.pause().set_handed_over(false);
    }
}
