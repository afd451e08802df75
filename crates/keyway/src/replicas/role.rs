//! One store's role.

use super::Ask;
use super::link_log::LinkLog;
use keyway_config::ReplicaConfig;
use keyway_net::Followed;
use keyway_rdb::replication::ReplicationId;
use keyway_replica::{FollowerSettings, Position, State};
use keyway_standby::{Primary, Standby, StandbyStatus};
use keyway_store::{Loading, Store};
use keyway_topology::Endpoint;
use keyway_worker::{ReplicaFigures, Replication, RoleReply, Wish};
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// A store with its settings.
pub(super) struct Role {
    name: String,
    standby: Standby,
    settings: Mutex<ReplicaConfig>,
    /// The store is to follow its primary once its file is loaded.
    is_waiting: Mutex<bool>,
    port: Option<u16>,
    log: Mutex<LinkLog>,
}

impl Role {
    pub(super) fn new(
        name: &str,
        standby: Standby,
        settings: ReplicaConfig,
        port: Option<u16>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            standby,
            is_waiting: Mutex::new(settings.primary.is_some()),
            settings: Mutex::new(settings),
            port,
            log: Mutex::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn settings(&self) -> ReplicaConfig {
        self.settings.lock().clone()
    }

    /// Changes the role as a client wants it.
    pub(super) fn change(&self, wish: &Wish) -> RoleReply {
        match wish {
            Wish::Primary => {
                self.promote();
                Ok("OK")
            }
            Wish::ReplicaOf { .. } if self.standby.store().log().is_some() => {
                Err("ERR a store with a log cannot be a replica: remove `log` from its pool"
                    .to_owned())
            }
            Wish::ReplicaOf { host, port } => {
                let primary = Primary { host: host.clone(), port: *port };
                let is_same = |status: StandbyStatus| {
                    status.primary == primary && status.link.state != State::Stopped
                };
                if self.standby.status().is_some_and(is_same) {
                    return Ok("OK Already connected to specified master");
                }
                let endpoint = Endpoint::tcp(host, *port)
                    .map_err(|error| format!("ERR Invalid master host: {error}"))?;
                self.follow(primary, endpoint).map_err(|error| {
                    format!("ERR the replica cannot follow its primary: {error}")
                })?;
                Ok("OK")
            }
        }
    }

    fn promote(&self) {
        *self.is_waiting.lock() = false;
        if self.standby.store().is_loading() {
            let pool = &*self.name;
            tracing::warn!(pool, "the snapshot of the primary was not whole: the store is empty");
        }
        if self.standby.promote() {
            tracing::info!(pool = self.name, "the store is a primary now");
        }
    }

    fn follow(&self, primary: Primary, endpoint: Endpoint) -> std::io::Result<()> {
        self.follow_from(primary, endpoint, None)
    }

    fn follow_from(
        &self,
        primary: Primary,
        endpoint: Endpoint,
        resume: Option<Position>,
    ) -> std::io::Result<()> {
        *self.is_waiting.lock() = false;
        let ReplicaConfig { username, password, tls, .. } = self.settings();
        let settings = FollowerSettings {
            username,
            password: password.map(|password| password.expose().to_owned()),
            tls: tls.and_then(|tls| tls.loaded),
            listening_port: self.port,
            snapshot_limits: Loading::limits(),
            resume,
            ..FollowerSettings::new(endpoint)
        };
        tracing::info!(pool = self.name, primary = %primary, "the store becomes a replica");
        self.standby.follow(primary, settings)
    }

    /// Takes over the settings of a reload. A primary that is another one than before, or none,
    /// changes the role.
    pub(super) fn follow_settings(&self, settings: ReplicaConfig) {
        let old = std::mem::replace(&mut *self.settings.lock(), settings.clone());
        self.standby.set_serves_stale(settings.serves_stale);
        let same_link = ReplicaConfig { serves_stale: old.serves_stale, ..settings.clone() } == old;
        match settings.primary {
            Some(_) if same_link => {}
            Some(endpoint) => self.follow_configured(endpoint),
            None if old.primary.is_some() => self.promote(),
            None => {}
        }
    }

    fn follow_configured(&self, endpoint: Endpoint) {
        let Endpoint::Tcp { host, port } = &endpoint else { return };
        let primary = Primary { host: host.to_string(), port: *port };
        if let Err(error) = self.follow(primary, endpoint.clone()) {
            tracing::error!(pool = self.name, "the replica cannot follow its primary: {error}");
        }
    }

    /// Looks at the link. A store whose file is loaded by now begins to follow.
    pub(super) fn look(&self) {
        if *self.is_waiting.lock() && !self.standby.store().is_loading() {
            let primary = self.settings.lock().primary.clone();
            primary.into_iter().for_each(|endpoint| self.follow_configured(endpoint));
        }
        self.standby.look();
        self.log.lock().look(&self.name, self.standby.status().as_ref());
    }

    /// Takes the data of the process before over from a socket.
    pub(super) fn take_over(&self, socket: OwnedFd) -> std::io::Result<()> {
        let path = Endpoint::unix("/the-process-before").map_err(std::io::Error::other)?;
        let settings =
            FollowerSettings { snapshot_limits: Loading::limits(), ..FollowerSettings::new(path) };
        self.standby.take_over(socket, settings)
    }

    /// How far the data of the process before has come.
    pub(super) fn taken(&self) -> Taken {
        let Some(StandbyStatus { link, .. }) = self.standby.status() else {
            return Taken::Failed("nothing comes".to_owned());
        };
        match link.state {
            State::Online => Taken::UpTo(link.offset),
            State::Stopped => {
                let reason = link.reason.as_ref().map(ToString::to_string);
                Taken::Failed(reason.unwrap_or_else(|| "the link has ended".to_owned()))
            }
            _ => Taken::Begun,
        }
    }

    /// Begins as the process before has ended: as a primary, or as the replica of the same
    /// primary from the same position on. If the configuration names another primary than it did
    /// for that process, it is followed instead.
    pub(super) fn begin_as(&self, before: Option<&Followed>, configured_before: &str) {
        let configured = self.settings.lock().primary.clone();
        if shown(configured.as_ref()) != configured_before {
            match configured {
                // The thread does it.
                Some(_) => {
                    let _ = self.standby.rest();
                    *self.is_waiting.lock() = true;
                }
                None => self.begin_as_primary(),
            }
            return;
        }
        let Some(Followed { host, port, position }) = before else {
            return self.begin_as_primary();
        };
        let resume = position.as_ref().and_then(|(id, offset, database)| {
            let id = ReplicationId::parse(id.as_bytes())?;
            Some(Position { id, offset: *offset, database: *database })
        });
        let primary = Primary { host: host.clone(), port: *port };
        let followed = Endpoint::tcp(host, *port)
            .map_err(std::io::Error::other)
            .and_then(|endpoint| self.follow_from(primary, endpoint, resume));
        if let Err(error) = followed {
            tracing::error!(pool = self.name, "the replica cannot follow its primary: {error}");
        }
    }

    fn begin_as_primary(&self) {
        *self.is_waiting.lock() = false;
        self.standby.promote();
    }

    /// Ends the link of a replica for a while. Returns how another process, or this one, goes on.
    pub(super) fn rest(&self) -> Option<Followed> {
        if !self.standby.store().is_replica() {
            return None;
        }
        if let Some((primary, position)) = self.standby.rest() {
            let position = position.map(|it| (it.id.to_string(), it.offset, it.database));
            return Some(Followed { host: primary.host, port: primary.port, position });
        }
        let configured = self.settings.lock().primary.clone();
        match configured {
            Some(Endpoint::Tcp { host, port }) => {
                Some(Followed { host: host.to_string(), port, position: None })
            }
            _ => None,
        }
    }

    /// Goes on where [`Role::rest`] has ended.
    pub(super) fn go_on(&self, followed: &Option<Followed>) {
        if followed.is_some() {
            self.begin_as(followed.as_ref(), &self.configured());
        }
    }

    /// The primary that the configuration names, as text; empty if it names none.
    pub(super) fn configured(&self) -> String {
        shown(self.settings.lock().primary.as_ref())
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        self.standby.store()
    }

    /// Ends the link.
    pub(super) fn end(&self) {
        self.standby.end();
    }

    fn figures(&self) -> Option<ReplicaFigures> {
        // A client that is told that the link is up is served from then on.
        self.standby.look();
        let store = self.standby.store();
        let Some(StandbyStatus { primary, link, applied, failed }) = self.standby.status() else {
            let endpoint = self.settings.lock().primary.clone();
            return store.is_replica().then(|| ReplicaFigures::waiting(&endpoint));
        };
        let (received, len) = match link.state {
            State::Transfer { received, len } => (received, len),
            _ => (0, None),
        };
        Some(ReplicaFigures {
            host: primary.host,
            port: primary.port,
            state: match link.state {
                State::Connect | State::Stopped => "connect",
                State::Connecting => "connecting",
                State::Handshake => "handshake",
                State::Transfer { .. } => "sync",
                State::Online => "connected",
            },
            last_io_seconds: link.since_last_io.map(|since| since.as_secs()),
            down_seconds: link.down_for.map(|down| down.as_secs()),
            id: link.id.map(|id| id.to_string()),
            offset: link.offset,
            received,
            len,
            full_resyncs: link.full_resyncs,
            partial_resyncs: link.partial_resyncs,
            failures: link.failures,
            applied,
            failed,
        })
    }
}

/// How far a store has come that takes over from another process.
pub(super) enum Taken {
    /// Its snapshot is on its way.
    Begun,
    /// It has all up to this offset.
    UpTo(u64),
    /// Nothing comes any more. The text says why.
    Failed(String),
}

fn shown(primary: Option<&Endpoint>) -> String {
    primary.map(ToString::to_string).unwrap_or_default()
}

/// A role, as workers know it.
pub(super) struct RoleHandle {
    pub(super) role: Arc<Role>,
    pub(super) tell: Sender<Ask>,
}

impl Replication for RoleHandle {
    fn change(&self, wish: Wish, done: Box<dyn FnOnce(RoleReply) + Send>) {
        let ask = Ask::Change { role: Arc::clone(&self.role), wish, done };
        if let Err(unsent) = self.tell.send(ask)
            && let Ask::Change { done, .. } = unsent.0
        {
            done(Err("ERR the process ends".to_owned()));
        }
    }

    fn figures(&self) -> Option<ReplicaFigures> {
        self.role.figures()
    }
}
