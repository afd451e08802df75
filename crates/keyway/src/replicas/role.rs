//! One store's role.

use super::Ask;
use super::failover::Progress;
use super::link_log::LinkLog;
use super::refusals::Refusals;
use super::waits::Waits;
use keyway_config::ReplicaConfig;
use keyway_net::{FinalStore, Followed};
use keyway_rdb::replication::ReplicationId;
use keyway_replica::feed::{Candidate, ReplicaStatus};
use keyway_replica::{FollowerSettings, Position, State};
use keyway_standby::{FeedStatus, Primary, Standby, StandbyStatus};
use keyway_store::{Loading, Store};
use keyway_topology::Endpoint;
use keyway_worker::{
    Failover, FedReplica, FeedFigures, Pause, Plan, ReplicaFigures, ReplicaLink, ReplicaWait,
    Replication, RoleReply, Wish,
};
use parking_lot::Mutex;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// A store with its settings.
pub(super) struct Role {
    name: String,
    pub(super) standby: Standby,
    /// The index of the pool, which is the same in later versions of the plan.
    place: (Arc<Plan>, usize),
    settings: Mutex<ReplicaConfig>,
    /// The store is to follow its primary once its file is loaded.
    is_waiting: Mutex<bool>,
    port: Option<u16>,
    log: Mutex<LinkLog>,
    /// How far a FAILOVER is.
    progress: Mutex<Progress>,
    /// Redis's word for it. Workers ask for it while the thread takes a step.
    failover: Mutex<&'static str>,
    /// Bytes that the stream may take in memory.
    room: u64,
    /// Clients that wait for replicas.
    waits: Mutex<Waits>,
    /// True while writes are refused as too few replicas follow.
    is_alone: AtomicBool,
    /// The replicas that followed the process before, and until when they count as following.
    before: Mutex<Option<(usize, Instant)>>,
    /// Bytes of writes that an upgrade keeps beside the store.
    spooled: Arc<AtomicU64>,
    /// True while an upgrade copies the store to the next process.
    is_copied: Arc<AtomicBool>,
    /// Replicas that were taken in, and those that were cut off for being slow.
    attached: AtomicU64,
    cut_off: Arc<AtomicU64>,
    refusals: Refusals,
}

impl Role {
    pub(super) fn new(
        name: &str,
        standby: Standby,
        settings: ReplicaConfig,
        place: (Arc<Plan>, usize),
        cut_off: Arc<AtomicU64>,
    ) -> Self {
        let port = super::port_of(&place.0, place.1);
        Self {
            place,
            progress: Mutex::default(),
            failover: Mutex::new(Progress::Idle.word()),
            room: super::limits_of(&settings.feed, standby.store()).room as u64,
            waits: Mutex::default(),
            is_alone: AtomicBool::new(false),
            before: Mutex::default(),
            spooled: Arc::default(),
            is_copied: Arc::default(),
            attached: AtomicU64::new(0),
            refusals: Refusals::default(),
            cut_off,
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

    /// How far a FAILOVER is. For the thread of roles.
    pub(super) fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    pub(super) fn set_progress(&self, progress: Progress) {
        *self.failover.lock() = progress.word();
        *self.progress.lock() = progress;
    }

    /// The pause of the pool's writes.
    pub(super) fn pause(&self) -> &Pause {
        &self.place.0.pools[self.place.1].pause
    }

    pub(super) fn settings(&self) -> ReplicaConfig {
        self.settings.lock().clone()
    }

    /// Changes the role as a client wants it.
    pub(super) fn change(&self, wish: &Wish) -> RoleReply {
        if !matches!(self.progress(), Progress::Idle) {
            return Err("ERR REPLICAOF not allowed while failing over.".to_owned());
        }
        match wish {
            Wish::Primary => {
                self.promote();
                Ok("OK")
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
                self.allows("REPLICAOF")?;
                self.follow(primary, endpoint).map_err(|error| {
                    format!("ERR the replica cannot follow its primary: {error}")
                })?;
                Ok("OK")
            }
        }
    }

    /// Refuses a command that replaces the data while an upgrade copies it: the copy would be of no
    /// use, and the upgrade fail.
    pub(super) fn allows(&self, command: &str) -> Result<(), String> {
        match self.is_copied.load(Ordering::Relaxed) {
            true => Err(format!(
                "ERR {command} not allowed while an upgrade copies the data. Try again in a moment."
            )),
            false => Ok(()),
        }
    }

    pub(super) fn promote(&self) {
        *self.is_waiting.lock() = false;
        if self.standby.is_filling() {
            let pool = &*self.name;
            tracing::warn!(pool, "the snapshot of the primary was not whole: the store is empty");
        }
        if !self.standby.promote() {
            return;
        }
        tracing::info!(pool = self.name, "the store is a primary now");
        let configured = self.configured();
        if !configured.is_empty() {
            tracing::warn!(
                pool = self.name,
                replica_of = configured,
                "the file still has `replica_of`: a restart would make the store a replica again, and \
                 it would lose what is written from now on; take that line out of the file"
            );
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
        tracing::info!(pool = self.name, primary = %primary, "the store becomes a replica");
        let settings = FollowerSettings { resume, ..self.follower_settings(endpoint) };
        self.standby.follow(primary, settings)
    }

    /// Makes the store the replica of one of its replicas, which takes over. Returns whether that
    /// was begun.
    pub(super) fn hand_over(&self, to: &(String, u16), patience: Duration) -> bool {
        let (host, port) = to.clone();
        let endpoint = match Endpoint::tcp(&host, port) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                tracing::error!(pool = self.name, "the replica has no usable address: {error}");
                return false;
            }
        };
        let settings = self.follower_settings(endpoint);
        let acknowledged = || {
            let replicas = self.standby.feed_status().replicas;
            let is_it = |it: &&ReplicaStatus| it.address == to.0 && it.port == Some(to.1);
            replicas.iter().find(is_it).map_or(0, |it| it.acknowledged)
        };
        let primary = Primary { host, port };
        let is_begun = self.standby.hand_over(primary, settings, &acknowledged, patience);
        is_begun.unwrap_or_else(|error| {
            tracing::error!(pool = self.name, "the store cannot be handed over: {error}");
            self.take_back();
            false
        })
    }

    /// Is the primary again, as the replica has not taken over.
    pub(super) fn take_back(&self) {
        self.promote();
        self.standby.restore_flushes();
    }

    fn follower_settings(&self, endpoint: Endpoint) -> FollowerSettings {
        let ReplicaConfig { username, password, tls, .. } = self.settings();
        FollowerSettings {
            username,
            password: password.map(|password| password.expose().to_owned()),
            tls: tls.and_then(|tls| tls.loaded),
            listening_port: self.port,
            snapshot_limits: Loading::limits(),
            ..FollowerSettings::new(endpoint)
        }
    }

    /// Feeds a replica. A refusal is sent to it.
    pub(super) fn attach(&self, link: ReplicaLink) {
        let ReplicaLink { socket, peer, profile, request, said } = link;
        let kept = socket.try_clone();
        let replica = with_port(&peer, profile.listening_port());
        let taken = self.taken_over(&request).and_then(|()| {
            self.standby.attach(Candidate { socket, peer: peer.clone(), profile, request }, said)
        });
        match taken {
            Ok(()) => {
                tracing::info!(pool = self.name, replica, "a replica asks for the stream");
                self.refusals.clear();
                self.attached.fetch_add(1, Ordering::Relaxed);
            }
            Err(text) => {
                if self.refusals.note(&peer, &text) {
                    let pool = &*self.name;
                    tracing::warn!(pool, replica, "a replica is refused: {text}");
                }
                if let Ok(socket) = kept {
                    // One that takes nothing is closed without the text.
                    let mut socket = std::net::TcpStream::from(socket);
                    let _ = socket.write(format!("-{text}\r\n").as_bytes());
                }
            }
        }
    }

    /// Becomes the primary if the one before asks for it, by PSYNC … FAILOVER.
    fn taken_over(&self, request: &keyway_rdb::replication::Request) -> Result<(), String> {
        if !request.takes_over() {
            return Ok(());
        }
        if !self.standby.store().is_replica() {
            return Err("ERR PSYNC FAILOVER can't be sent to a master.".to_owned());
        }
        let id = request.resume().map(|(id, _)| id);
        if id != Some(self.standby.replication_id()) {
            return Err("ERR PSYNC FAILOVER replid must match my replid.".to_owned());
        }
        tracing::info!(pool = self.name, "the primary hands over to this replica");
        self.promote();
        Ok(())
    }

    /// Has a client wait for replicas.
    pub(super) fn wait(&self, wait: ReplicaWait) {
        self.waits.lock().add(wait, &self.standby, super::now());
    }

    /// The time at which a client is to be answered.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waits.lock().deadline()
    }

    /// The number of replicas that were heard within `min_replicas_max_lag`, by this process or by the
    /// one before.
    pub(super) fn following(&self) -> usize {
        let lag_max = self.settings.lock().feed.lag_max;
        let mut before = self.before.lock();
        before.take_if(|(_, until)| *until <= super::now());
        self.standby.following(lag_max).max(before.map_or(0, |(count, _)| count))
    }

    /// Refuses writes while too few replicas follow.
    fn look_at_replicas(&self) {
        let feed = self.settings.lock().feed;
        let store = self.standby.store();
        let is_alone = feed.replicas_min > 0
            && !store.is_replica()
            && self.following() < feed.replicas_min as usize;
        store.set_alone(is_alone);
        if self.is_alone.swap(is_alone, Ordering::Relaxed) != is_alone {
            let min = feed.replicas_min;
            match is_alone {
                true => tracing::warn!(
                    pool = self.name,
                    min_replicas = min,
                    "writes are refused: too few replicas follow"
                ),
                false => tracing::info!(
                    pool = self.name,
                    min_replicas = min,
                    "writes are served again: enough replicas follow"
                ),
            }
        }
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
        let is_copied = self.is_copied.load(Ordering::Relaxed);
        if *self.is_waiting.lock() && !self.standby.store().is_loading() && !is_copied {
            let primary = self.settings.lock().primary.clone();
            primary.into_iter().for_each(|endpoint| self.follow_configured(endpoint));
        }
        self.standby.look();
        self.look_at_replicas();
        self.waits.lock().look(&self.standby, super::now());
        self.step_failover();
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

    /// Has the stream of a copy go on as that of the store of the process before has ended, so that its
    /// replicas go on here. In front of the log, whose writes are in the same stream.
    pub(super) fn succeed(&self, last: &FinalStore, configured_before: &str) {
        let settings = self.settings();
        let is_same = shown(settings.primary.as_ref()) == configured_before;
        let history = last.history.as_ref().and_then(|id| ReplicationId::parse(id.as_bytes()));
        let is_primary = match is_same {
            true => last.primary.is_none(),
            false => settings.primary.is_none(),
        };
        if is_primary {
            self.standby.succeed(history);
        } else if !is_same || history.is_none() {
            self.standby.end();
        }
        if let Some(until) = super::now().checked_add(settings.feed.lag_max) {
            *self.before.lock() = Some((last.replicas as usize, until));
        }
        self.look_at_replicas();
    }

    /// The id by which replicas know the history of the data, as text.
    pub(super) fn history(&self) -> Option<String> {
        self.standby.told_id().map(|id| id.to_string())
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
        self.standby.store().end_history();
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

    /// Returns whether a FAILOVER is in progress.
    pub(super) fn is_failing_over(&self) -> bool {
        *self.failover.lock() != Progress::Idle.word()
    }

    pub(super) fn spooled(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.spooled)
    }

    /// Notes that an upgrade copies the store, until what is returned is dropped.
    pub(super) fn copied(&self) -> Copied {
        self.is_copied.store(true, Ordering::Relaxed);
        Copied(Arc::clone(&self.is_copied))
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        self.standby.store()
    }

    /// Ends the link, and the waits of clients.
    pub(super) fn end(&self) {
        self.waits.lock().end(&self.standby);
        self.standby.end();
    }

    fn feed(&self) -> FeedFigures {
        let FeedStatus { id, second, offset, kept_from, history, replicas } =
            self.standby.feed_status();
        let store = self.standby.store();
        let link = self.standby.status().filter(|_| store.is_replica() && !store.is_relaying());
        // The effects of a replica with a log are of no history. Its data is where its link is.
        let (offset, kept_from) = match link {
            Some(StandbyStatus { link, .. }) => (link.offset, None),
            None => (offset, kept_from),
        };
        let config = self.settings.lock().feed;
        let on_their_way = replicas.iter().map(|it| it.buffered).sum::<u64>();
        let text = |id: ReplicationId| id.to_string();
        FeedFigures {
            id: text(id),
            second: second.map(|(id, offset)| (text(id), offset)),
            offset,
            kept_from,
            history,
            room: self.room,
            stream_bytes: store.effects_len() as u64,
            unsent_bytes: on_their_way + self.spooled.load(Ordering::Relaxed),
            replicas: replicas.iter().map(fed).collect(),
            replicas_min: config.replicas_min.into(),
            lag_max: config.lag_max,
            replicas_good: self.following() as u64,
            priority: config.priority,
            failover: *self.failover.lock(),
            attached: self.attached.load(Ordering::Relaxed),
            cut_off: self.cut_off.load(Ordering::Relaxed),
        }
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
        let fault = link.reason.as_ref().filter(|_| link.state != State::Online);
        Some(ReplicaFigures {
            down_reason: fault.map(ToString::to_string),
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

fn fed(replica: &ReplicaStatus) -> FedReplica {
    FedReplica {
        address: replica.address.clone(),
        port: replica.port.unwrap_or(0),
        state: replica.stage.word(),
        offset: replica.acknowledged,
        lag_seconds: replica.lag.as_secs(),
    }
}

/// A store is being copied to the next process while this is there.
pub struct Copied(Arc<AtomicBool>);

impl Drop for Copied {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
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

/// Returns the address of a replica, with the port that it has announced, if there is one.
fn with_port(peer: &str, port: Option<u16>) -> String {
    match (peer.contains(':'), port) {
        (_, None) => peer.to_owned(),
        (true, Some(port)) => format!("[{peer}]:{port}"),
        (false, Some(port)) => format!("{peer}:{port}"),
    }
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

    fn feed(&self) -> FeedFigures {
        self.role.feed()
    }

    fn attach(&self, link: ReplicaLink) {
        // The thread ends with the process, and the link with it.
        let _ = self.tell.send(Ask::Attach { role: Arc::clone(&self.role), link: Box::new(link) });
    }

    fn wait(&self, wait: ReplicaWait) {
        let _ = self.tell.send(Ask::Wait { role: Arc::clone(&self.role), wait });
    }

    fn acknowledged(&self) -> u64 {
        let standby = &self.role.standby;
        standby.acknowledged(standby.store().effects_offset()) as u64
    }

    fn fail_over(&self, failover: Failover, done: Box<dyn FnOnce(RoleReply) + Send>) {
        let _ = self.tell.send(Ask::Failover { role: Arc::clone(&self.role), failover, done });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_named_with_its_port() {
        assert_eq!(with_port("127.0.0.1", Some(7001)), "127.0.0.1:7001");
        assert_eq!(with_port("::1", Some(7001)), "[::1]:7001");
        assert_eq!(with_port("127.0.0.1", None), "127.0.0.1");
    }
}
