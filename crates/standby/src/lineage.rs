//! The history of a store's data, by its names and offsets, and the feed of its replicas.
//!
//! ```text
//!  snapshot of a primary ──► its id, its offset; its stream is relayed
//!  promotion ──► an id of our own; the primary's id up to the offset that was reached
//!  demotion ──► the replica asks to go on from our id and offset
//! ```
//! As in Redis 4 and later: a replica that takes over, and its fellows, go on without a snapshot
//! where their offsets allow it.

use crate::audience::Audience;
use crate::source::{SourceParts, StoreSource, StoreStream};
use keyway_base::Clock;
use keyway_rdb::replication::ReplicationId;
use keyway_replica::feed::{self, Candidate, Feed, FeedSettings, ReplicaStatus};
use keyway_replica::{Position, System};
use keyway_script::Registry;
use keyway_store::{EffectLimits, EffectReader, Store};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Bounds of a store as the primary of replicas.
#[derive(Clone, Copy, Debug)]
pub struct FeedConfig {
    /// Bytes of the stream that are kept: for replicas that come back, and for slow ones.
    pub limits: EffectLimits,
    /// Most bytes of items that change before a replica's snapshot has them.
    pub snapshot_buffer: u64,
    /// Bounds of the feed.
    pub feed: FeedSettings,
}

impl Default for FeedConfig {
    /// Redis's backlog of 1 MiB, and buffers of 256 MiB.
    fn default() -> Self {
        Self {
            limits: EffectLimits { room: 256 << 20, history: 1 << 20 },
            snapshot_buffer: 256 << 20,
            feed: FeedSettings::default(),
        }
    }
}

/// A store as a primary, at one moment.
#[derive(Clone, Debug)]
pub struct FeedStatus {
    /// The id of the history.
    pub id: ReplicationId,
    /// Its id before, and the offset up to which that was its id.
    pub second: Option<(ReplicationId, u64)>,
    /// The offset of the data.
    pub offset: u64,
    /// The offset from which on the stream is kept; `None` if none of it is.
    pub kept_from: Option<u64>,
    /// Bytes of the stream that are kept for replicas that come back.
    pub history: u64,
    /// The replicas.
    pub replicas: Vec<ReplicaStatus>,
}

struct State {
    names: feed::Lineage,
    feed: Option<Arc<Feed>>,
}

/// Redis's reply to a replica of a replica that has no link.
const NO_LINK: &str = "NOMASTERLINK Can't SYNC while not connected with my master";
/// The reply to a replica of a replica with a log.
const HAS_LOG: &str = "NOMASTERLINK a replica with a log feeds no replicas: follow its primary";
/// The reply to a follower of the server's own.
const OF_ITSELF: &str = "ERR a server cannot be the replica of itself: this address is its own";

/// The history of one store's data.
pub(crate) struct Lineage {
    /// Tells this server from others, as long as it runs.
    node: ReplicationId,
    store: Arc<Store>,
    scripts: Arc<Registry>,
    audience: Arc<dyn Audience>,
    clock: fn() -> Clock,
    config: FeedConfig,
    system: Arc<dyn System>,
    /// Held while the history changes. Figures are told meanwhile: who asks for them may hold
    /// shards that a change waits for.
    order: Mutex<()>,
    /// Held for moments, and never while shards are locked.
    state: Mutex<State>,
}

impl Lineage {
    pub(crate) fn new(
        store: &Arc<Store>,
        scripts: &Arc<Registry>,
        audience: &Arc<dyn Audience>,
        clock: fn() -> Clock,
        config: FeedConfig,
        system: &Arc<dyn System>,
    ) -> Self {
        let names = feed::Lineage { id: random_id(clock), second: None };
        Self {
            node: names.id,
            store: Arc::clone(store),
            scripts: Arc::clone(scripts),
            audience: Arc::clone(audience),
            clock,
            config,
            system: Arc::clone(system),
            order: Mutex::new(()),
            state: Mutex::new(State { names, feed: None }),
        }
    }

    /// Takes a replica in. The error is the text of a reply.
    pub(crate) fn attach(&self, candidate: Candidate, said: Vec<u8>) -> Result<(), String> {
        if candidate.profile.node() == Some(self.node) {
            return Err(OF_ITSELF.to_owned());
        }
        let _order = self.order.lock();
        if self.store.is_replica() && !self.store.is_relaying() && !self.store.is_loading() {
            let text = if self.relays() { NO_LINK } else { HAS_LOG };
            return Err(text.to_owned());
        }
        let feed =
            self.started().map_err(|error| format!("ERR no thread for replicas: {error}"))?;
        feed.attach_with(candidate, said).map_err(|error| format!("ERR {error}"))
    }

    /// The feed, which is started at its first use.
    fn started(&self) -> std::io::Result<Arc<Feed>> {
        if let Some(feed) = self.feed() {
            return Ok(feed);
        }
        let names = self.state.lock().names;
        let scripts = Arc::clone(&self.scripts);
        let libraries =
            move || scripts.libraries().iter().map(|library| Arc::clone(&library.code)).collect();
        let [told, parted, settled] = [(); 3].map(|()| Arc::clone(&self.audience));
        let source = StoreSource::new(SourceParts {
            store: Arc::clone(&self.store),
            libraries: Box::new(libraries),
            clock: self.clock,
            limits: self.config.limits,
            twin: None,
            snapshot_buffer: self.config.snapshot_buffer,
            acknowledged: Box::new(move || told.acknowledged()),
            parted: Box::new(move |address, parting| parted.parted(address, parting)),
        });
        let source = source.settling(Box::new(move || settled.settle()));
        let feed =
            Arc::new(Feed::start_in(&self.system, Arc::new(source), names.id, self.config.feed)?);
        feed.rename(names);
        self.state.lock().feed = Some(Arc::clone(&feed));
        Ok(feed)
    }

    /// Names the data, and tells replicas.
    fn rename(&self, names: feed::Lineage) {
        self.state.lock().names = names;
        if let Some(feed) = self.feed() {
            feed.rename(names);
        }
    }

    /// A snapshot replaces the data: it is of no history until that is whole.
    pub(crate) fn begin_snapshot(&self) {
        if self.relays() {
            self.store.drop_stream();
        } else {
            self.end();
        }
    }

    /// The data is that of a primary at a position, whose stream follows.
    pub(crate) fn took_snapshot(&self, position: Position) {
        let _order = self.order.lock();
        self.rename(feed::Lineage { id: position.id, second: None });
        self.relay_from(position);
    }

    /// The data is that of a primary at a position that a log, a snapshot or the process before has
    /// told.
    pub(crate) fn resumed(&self, position: Position) {
        let _order = self.order.lock();
        if self.store.is_relaying() && self.store.effects_offset() != position.offset {
            self.store.drop_stream();
        }
        self.rename(feed::Lineage { id: position.id, second: None });
    }

    /// Returns whether the stream of this store, as a replica, is its primary's. With a log it is
    /// not: the log takes the effects of this store instead, and no replica is fed meanwhile.
    fn relays(&self) -> bool {
        self.store.log().is_none()
    }

    /// The data is a copy of that of the process before at a position of its stream. What follows is
    /// kept at the same offsets, so that the replicas of that process can go on here.
    pub(crate) fn copied(&self, position: Position) {
        let _order = self.order.lock();
        self.relay_from(position);
    }

    /// The copy takes the place of a primary, whose replicas know the history by `before`. They go on
    /// where they were. Without an id nothing is kept for them.
    pub(crate) fn succeeded(&self, before: Option<ReplicationId>) {
        let _order = self.order.lock();
        let Some(before) = before else { return self.end() };
        self.begin_own(before);
    }

    /// Begins a history of this store's own, which goes on from the one that was relayed: `before` is
    /// its id up to the offset that was reached.
    fn begin_own(&self, before: ReplicationId) {
        let second = self.store.end_relaying().map(|offset| (before, offset));
        self.rename(feed::Lineage { id: random_id(self.clock), second });
        if let Some(feed) = self.feed() {
            feed.keep_while_used();
        }
    }

    /// The id by which replicas of this store, if there are any or were a short time ago, know the
    /// history of its data.
    pub(crate) fn told_id(&self) -> Option<ReplicationId> {
        let is_apart = self.store.is_replica() && !self.store.is_relaying();
        let is_kept = self.feed().is_some_and(|feed| feed.keeps_stream());
        (is_kept && !is_apart).then(|| self.id())
    }

    /// Relays what follows an offset, with nothing kept of what was before.
    fn relay_from(&self, position: Position) {
        if !self.relays() {
            return;
        }
        // Without a thread this replica follows all the same. It only cannot feed others.
        if let Ok(feed) = self.started() {
            let reader = self.store.begin_relaying(
                self.config.limits,
                position.offset,
                database_of(position),
            );
            feed.keep(stream_of(reader));
        }
    }

    /// A unit of the primary was executed that ends at a position. If the stream had no room for it,
    /// it begins anew.
    pub(crate) fn look(&self, position: Position) {
        if self.relays() && !self.store.is_relaying() {
            let _order = self.order.lock();
            self.relay_from(position);
        }
    }

    /// The primary has given its history another name.
    pub(crate) fn renamed(&self, before: ReplicationId, position: Position) {
        let second = Some((before, position.offset));
        let _order = self.order.lock();
        self.rename(feed::Lineage { id: position.id, second });
    }

    /// The store becomes a primary. No unit of a primary comes any more, and clients do not write
    /// yet.
    pub(crate) fn promoted(&self) {
        let _order = self.order.lock();
        self.begin_own(self.id());
    }

    /// The store becomes a replica; clients write no more. Returns the position of its data, if
    /// that has one.
    pub(crate) fn demoted(&self) -> Option<Position> {
        let _order = self.order.lock();
        if !self.relays() {
            // Replicas of this store are cut off.
            let offset = self.feed().and_then(|_| self.store.kept_effects()).map(|(_, end)| end)?;
            self.end();
            return Some(Position { id: self.id(), offset, database: None });
        }
        let anchor = self.store.follow_on(keyway_store::Keeping::Newest);
        let offset = self.store.relay_on()?;
        if let (Some(feed), Some(reader)) = (self.feed(), anchor) {
            feed.keep(stream_of(reader));
        }
        Some(Position { id: self.id(), offset, database: None })
    }

    pub(crate) fn status(&self) -> FeedStatus {
        let (names, feed) = {
            let state = self.state.lock();
            (state.names, state.feed.clone())
        };
        let kept = self.store.kept_effects();
        FeedStatus {
            id: names.id,
            second: names.second,
            offset: self.store.effects_offset(),
            kept_from: kept.map(|(start, _)| start),
            history: self.config.limits.history as u64,
            replicas: feed.as_ref().map_or_else(Vec::new, |feed| feed.replicas()),
        }
    }

    fn feed(&self) -> Option<Arc<Feed>> {
        self.state.lock().feed.clone()
    }

    /// The number of replicas that have acknowledged an offset.
    pub(crate) fn acknowledged(&self, offset: u64) -> usize {
        self.feed().map_or(0, |feed| feed.acknowledged(offset))
    }

    /// The number of replicas that follow, and were heard within a time.
    pub(crate) fn following(&self, lag: Duration) -> usize {
        self.feed().map_or(0, |feed| feed.following(lag))
    }

    pub(crate) fn ask_for_offsets(&self) {
        if let Some(feed) = self.feed() {
            feed.ask_for_offsets();
        }
    }

    /// The id that tells this server from others.
    pub(crate) fn node(&self) -> ReplicationId {
        self.node
    }

    pub(crate) fn id(&self) -> ReplicationId {
        self.state.lock().names.id
    }

    /// Ends the feed, and all its replicas with it.
    pub(crate) fn end(&self) {
        let feed = self.state.lock().feed.take();
        // Others may hold it for a moment. They do not wait for its threads.
        feed.into_iter().for_each(|feed| feed.end());
    }
}

fn database_of(position: Position) -> Option<u32> {
    position.database.and_then(|database| u32::try_from(database).ok())
}

fn stream_of(reader: EffectReader) -> Box<dyn feed::Stream> {
    Box::new(StoreStream::new(reader))
}

/// An id by chance. Where the system gives none, a time stands in: ids of two histories must differ.
fn random_id(clock: fn() -> Clock) -> ReplicationId {
    feed::random_id().unwrap_or_else(|_| {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&clock().unix_micros.to_le_bytes());
        ReplicationId::of_random(bytes)
    })
}
