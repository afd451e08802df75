//! Embedded stores and their clients, on their way to the next process.
//!
//! ```text
//!  Store + socket ─► a feed: snapshot, then every write as it happens
//!  Ready ─► the main thread holds all requests ─► scripts ─► Final ─► Begin ─► Serving
//!        ─► workers give their clients ([`GivenClients`])
//! ```

use super::Reasons;
use super::change_over::Holding;
use super::pacer::{Pace, Pacer};
use crate::reload::{Live, Wake};
use crate::replicas::Copied;
use crate::serve::wall_clock;
use keyway_base::CopyBounds;
use keyway_net::{HandedStore, Handover, Message, Parcels};
use keyway_rdb::replication::ReplicationId;
use keyway_replica::feed::{Candidate, Feed, FeedSettings, Parting, Stage};
use keyway_script::Registry;
use keyway_standby::{SourceParts, StoreSource, Twin, TwinProgress};
use keyway_store::{EffectLimits, Keeping, Store};
use keyway_worker::{HandedClient, Heir, Plan};
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rooms that the buffers of effects take before replicas that are late lose their places. Workers
/// wait at half of it.
const ROOMS: usize = 2;

/// Bytes of writes that the next process may lack when the stores are held. More holds requests for
/// longer.
const NEAR_LEN: u64 = 256 << 10;
/// Longest wait for that while requests are served, and while they are held because it has not come.
/// After the second the stores are held in any case.
const NEAR_PATIENCE: Duration = Duration::from_millis(500);
const NEAR_HELD_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks.
const NEAR_LOOK: Duration = Duration::from_millis(5);

/// How long the copy waits for requests under way before it begins. After that, a write that goes on
/// may cost the copy a second beginning.
const SETTLE_PATIENCE: Duration = Duration::from_secs(2);
/// Longest time in which the main thread holds the stores: it waits for scripts that run.
const HOLD_PATIENCE: Duration = Duration::from_secs(30);

/// Longest time for the next process to take one client or script.
const TAKE_PATIENCE: Duration = Duration::from_secs(5);

/// First byte of a parcel: what it has.
pub(super) const SCRIPT: u8 = b's';
pub(super) const LOADED_SCRIPT: u8 = b'S';
pub(super) const SCRIPTS_END: u8 = b'D';
pub(super) const CLIENT: u8 = b'C';
pub(super) const CLIENTS_END: u8 = b'E';

/// The stores of this process.
pub struct Giving {
    seed: u64,
    stores: Vec<Given>,
}

struct Given {
    handed: HandedStore,
    store: Arc<Store>,
    scripts: Arc<Registry>,
    plan: Arc<Plan>,
    spooled: Arc<AtomicU64>,
    copied: Option<Copied>,
}

impl Giving {
    /// Of a process that serves.
    pub fn of(live: &Live) -> Self {
        let plan = &live.version.plan;
        let pools = &plan.pools;
        let stores = live.replicas.stores().into_iter().filter_map(|(pool, primary, store)| {
            let scripts = pools.iter().find(|plan| plan.name == pool)?.scripts.clone();
            let log = live.logs.directory(&pool);
            let handed = HandedStore { pool, log, primary };
            let spooled = live.replicas.spooled(&handed.pool);
            let copied = live.replicas.copied(&handed.pool);
            Some(Given { handed, store, scripts, plan: Arc::clone(plan), spooled, copied })
        });
        Self { seed: live.seed, stores: stores.collect() }
    }

    /// Returns whether there is a store.
    pub fn has_any(&self) -> bool {
        !self.stores.is_empty()
    }

    /// Begins to send all data. `None` if there is no store.
    pub fn begin(
        self,
        talk: &Handover,
        plan: &Arc<Plan>,
        timeout: Duration,
    ) -> io::Result<Option<Feeding>> {
        if self.stores.is_empty() {
            return Ok(None);
        }
        let (parcels, clients) = Parcels::pair()?;
        talk.say(&Message::Origin { seed: self.seed, clients }, timeout)?;
        let clients = Arc::new(GivenClients { parcels: Mutex::new(parcels) });
        let mut feeds = Vec::new();
        let mut scripts = Vec::new();
        for given in self.stores {
            scripts.push((given.handed.pool.clone(), Arc::clone(&given.scripts)));
            feeds.push(Fed::begin(given, talk, timeout)?);
        }
        let paces = feeds.iter().map(|fed| fed.pace(plan)).collect();
        let pacer = Some(Pacer::begin(paces, Arc::clone(plan))?);
        Ok(Some(Feeding { feeds, scripts, clients, pacer }))
    }
}

/// A store that is fed to the next process.
struct Fed {
    pool: String,
    store: Arc<Store>,
    /// Bytes of writes that may wait.
    room: usize,
    /// What was fetched for the next process.
    progress: Arc<TwinProgress>,
    /// Bytes of writes that are kept beside the store.
    spooled: Arc<AtomicU64>,
    feed: Arc<Feed>,
    introduction: Option<JoinHandle<()>>,
    /// The store's data is not replaced meanwhile.
    _copied: Option<Copied>,
}

impl Fed {
    fn begin(given: Given, talk: &Handover, timeout: Duration) -> io::Result<Self> {
        let Given { handed, store, scripts, plan, spooled, copied } = given;
        let bounds = CopyBounds::of(Some(store.config().memory_max));
        let room = bounds.room as usize;
        let (pool, name) = (handed.pool.clone(), handed.pool.clone());
        let progress: Arc<TwinProgress> = Arc::default();
        let source = StoreSource::new(SourceParts {
            store: Arc::clone(&store),
            libraries: Box::new(move || {
                scripts.libraries().iter().map(|library| Arc::clone(&library.code)).collect()
            }),
            clock: wall_clock,
            limits: EffectLimits { room: ROOMS * room, history: 0 },
            twin: Some(Twin {
                spool_max: bounds.spool as usize,
                progress: Arc::clone(&progress),
                spooled: Arc::clone(&spooled),
            }),
            snapshot_buffer: bounds.items,
            acknowledged: Box::new(|| ()),
            parted: Box::new(move |_, parting| match parting {
                Parting::Closed | Parting::Stopped => {
                    tracing::debug!(pool, "upgrade: the store is fed no longer: {parting}");
                }
                _ => tracing::warn!(pool, "upgrade: the store is fed no longer: {parting}"),
            }),
        });
        let source = source.settling(Box::new(move || {
            plan.settle(SETTLE_PATIENCE);
        }));
        let settings = FeedSettings {
            timeout,
            // The offset at which the stores are held must be the last one.
            ping_period: Duration::MAX,
            ..FeedSettings::default()
        };
        let feed = Arc::new(Feed::start(Arc::new(source), random_id(), settings)?);
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        talk.say(&Message::Store { store: handed, socket: theirs.into() }, timeout)?;
        let fed = Arc::clone(&feed);
        let introduce = move || {
            let candidate = Candidate::introduced(ours.into(), "the next process", timeout);
            // The other side notices the end of the connection, and says so.
            let _ = candidate.map(|candidate| fed.attach(candidate));
        };
        let thread = std::thread::Builder::new().name("keyway-feed-front".into());
        let introduction = Some(thread.spawn(introduce)?);
        Ok(Self { pool: name, store, room, progress, spooled, feed, introduction, _copied: copied })
    }

    fn pace(&self, plan: &Plan) -> Pace {
        let (store, progress) = (Arc::clone(&self.store), Arc::clone(&self.progress));
        let is_its = |at: &usize| {
            plan.pools[*at].kind.store().is_some_and(|store| Arc::ptr_eq(store, &self.store))
        };
        let pool = (0..plan.pools.len()).find(is_its).unwrap_or_default();
        let (name, feed) = (self.pool.clone(), Arc::clone(&self.feed));
        Pace { name, store, pool, room: self.room, progress, feed }
    }

    /// Returns whether the next process lacks little of what was written until now. Asks it how far
    /// it is.
    fn is_near(&self) -> bool {
        let end = self.store.follow_on(Keeping::Newest).map(|reader| reader.start());
        let has = self.feed.replicas().first().map(|replica| replica.acknowledged);
        self.feed.ask_for_offsets();
        // Where nothing is fed any more, there is nothing to wait for.
        end.zip(has).is_none_or(|(end, has)| end.saturating_sub(has) <= NEAR_LEN)
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        // The other side has asked, or is gone.
        let _ = self.introduction.take().map(JoinHandle::join);
        self.feed.end();
        self.spooled.store(0, Ordering::Relaxed);
    }
}

fn random_id() -> ReplicationId {
    let mut bytes = [0; 20];
    for chunk in bytes.chunks_mut(8) {
        let word = RandomState::new().hash_one(0_u8).to_ne_bytes();
        chunk.iter_mut().zip(word).for_each(|(byte, random)| *byte = random);
    }
    ReplicationId::of_random(bytes)
}

/// All stores, while they are fed to the next process.
pub struct Feeding {
    feeds: Vec<Fed>,
    scripts: Vec<(String, Arc<Registry>)>,
    clients: Arc<GivenClients>,
    pacer: Option<Pacer>,
}

impl Feeding {
    /// Returns whether a snapshot is on its way.
    pub fn is_sending(&self) -> bool {
        let is_sending =
            |fed: &Fed| fed.feed.replicas().iter().any(|replica| replica.stage != Stage::Online);
        self.feeds.iter().any(is_sending)
    }

    /// Has the main thread hold all stores, and tells the next process what they are then.
    ///
    /// # Errors
    /// Why they cannot be held, or the next process not be told.
    pub fn change_over(&mut self, talk: &Handover, wake: &Sender<Wake>) -> Result<(), Reasons> {
        let failed = |error: io::Error| vec![format!("the stores cannot be handed over: {error}")];
        self.await_near();
        self.pacer = None;
        if let Some(fed) = self.feeds.iter().find(|fed| fed.feed.replicas().is_empty()) {
            return Err(vec![format!(
                "pool {}: the next process gets no writes any more; this process has logged why",
                fed.pool
            )]);
        }
        let (tell, told) = sync_channel(1);
        let ending = || vec!["Keyway is stopping".to_owned()];
        wake.send(Wake::Hold(Holding { tell })).map_err(|_| ending())?;
        let stores = told.recv_timeout(HOLD_PATIENCE).map_err(|_| ending())??;
        self.give_scripts().map_err(failed)?;
        for store in stores {
            talk.say(&Message::Final(store), TAKE_PATIENCE).map_err(failed)?;
        }
        Ok(())
    }

    /// Waits until little is left to be sent. Requests are served at first, and then held: under more
    /// writes than the next process can execute it would never be near, nor under long ones.
    #[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
    fn await_near(&self) {
        let began = Instant::now();
        while !self.feeds.iter().all(Fed::is_near) {
            let waited = began.elapsed();
            if waited > NEAR_PATIENCE + NEAR_HELD_PATIENCE {
                return;
            }
            if waited > NEAR_PATIENCE {
                self.pacer.iter().for_each(Pacer::hold);
            }
            std::thread::park_timeout(NEAR_LOOK);
        }
    }

    /// Sends the scripts that clients call by their digests.
    fn give_scripts(&self) -> io::Result<()> {
        for (pool, scripts) in &self.scripts {
            for (body, is_loaded) in scripts.bodies() {
                let mut parcel = vec![if is_loaded { LOADED_SCRIPT } else { SCRIPT }];
                parcel.extend_from_slice(&(pool.len() as u32).to_le_bytes());
                parcel.extend_from_slice(pool.as_bytes());
                parcel.extend_from_slice(&body);
                self.clients.send(&parcel, None)?;
            }
        }
        self.clients.send(&[SCRIPTS_END], None)
    }

    /// Ends the feeds. Returns the way for clients.
    pub fn into_heir(self) -> Arc<GivenClients> {
        self.clients
    }
}

/// The way on which clients go to the process that serves now.
pub struct GivenClients {
    parcels: Mutex<Parcels>,
}

impl GivenClients {
    fn send(&self, parcel: &[u8], socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.parcels.lock().send(parcel, socket, TAKE_PATIENCE)
    }

    /// Tells that every client that was ready has been given.
    pub fn note_end(&self) {
        // If that process is gone, the next look at it says so.
        let _ = self.send(&[CLIENTS_END], None);
    }
}

impl Heir for GivenClients {
    fn take(&self, client: &HandedClient, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut parcel = vec![CLIENT];
        client.write(&mut parcel);
        self.send(&parcel, Some(socket))
    }
}
