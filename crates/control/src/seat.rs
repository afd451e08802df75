//! The thread that speaks to the coordinator for a control node.
//!
//! It keeps a session, lists and watches everything of the cluster, and executes transactions. The
//! node's own thread takes what it tells by [`Seat::poll`], and never waits for it.

use keyway_coordinator::{
    Change, Compare, Coordinator, Etcd, EtcdSettings, Event, Fault, FaultKind, Files,
    FilesSettings, Key, Outcome, Prefix, Session, Txn, Watch, ZooKeeper, ZooKeeperSettings,
};
use keyway_fleet::{Fact, KeyChange, Ticket, When, Write, Written};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Orders that wait. The node has one transaction and one listing on their way at most.
const ORDERS_MAX: usize = 16;

/// Reports that wait for the node's thread. While there are more the coordinator is not read.
const TOLD_MAX: usize = 256;

/// Pause after the coordinator could not be reached.
const AGAIN: Duration = Duration::from_millis(300);

/// Threads for reading and writing files. One may wait for the disk, and another renews the
/// session meanwhile.
const FILE_THREADS: usize = 4;

/// Which coordinator it is.
#[derive(Clone, Debug)]
pub enum Engine {
    /// Files of this host.
    Files(FilesSettings),
    /// etcd.
    Etcd(EtcdSettings),
    /// ZooKeeper.
    ZooKeeper(ZooKeeperSettings),
}

impl Engine {
    async fn open(&self) -> Result<Arc<dyn Coordinator>, Fault> {
        Ok(match self.clone() {
            Engine::Files(settings) => Arc::new(Files::open(settings).await?),
            Engine::Etcd(settings) => Arc::new(Etcd::open(settings).await?),
            Engine::ZooKeeper(settings) => Arc::new(ZooKeeper::open(settings).await?),
        })
    }
}

/// The answers and events of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A session has begun, or is lost. A listing follows on a beginning.
    Session(Option<u64>),
    /// Everything of the cluster, as of one revision.
    Listed(u64, BTreeMap<String, Fact>),
    /// The changes of a later revision.
    Changed(u64, Vec<KeyChange>),
    /// The outcome of a transaction.
    Written(Ticket, Written),
    /// It cannot be reached, or refuses. If that is final, nothing else is told.
    Fault {
        /// The reason, for people.
        what: String,
        /// True if the coordinator went back to an older state.
        is_final: bool,
    },
}

enum Order {
    Write(Ticket, Write),
    List,
    End,
}

/// A running thread.
#[derive(Debug)]
pub struct Seat {
    orders: Sender<Order>,
    told: Receiver<Told>,
    thread: Option<JoinHandle<()>>,
}

/// The channel to the owner of the thread.
#[derive(Clone)]
struct Telling {
    told: Sender<Told>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Telling {
    async fn tell(&self, told: Told) {
        // The node has ended if nobody takes it.
        let _ = self.told.send(told).await;
        (self.wake)();
    }

    async fn fault(&self, fault: &Fault) -> bool {
        let is_final = fault.kind() == FaultKind::RolledBack;
        self.tell(Told::Fault { what: fault.to_string(), is_final }).await;
        is_final
    }
}

impl Seat {
    /// Starts the thread. It calls `wake` whenever there is something to poll.
    ///
    /// # Errors
    /// Returns an error if the system refuses a thread.
    pub fn start(
        engine: Engine,
        lease: Duration,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Seat> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(FILE_THREADS)
            .enable_all()
            .build()?;
        let (orders, ordered) = channel(ORDERS_MAX);
        let (tell, told) = channel(TOLD_MAX);
        let telling = Telling { told: tell, wake: Arc::new(wake) };
        let thread = std::thread::Builder::new()
            .name("keyway-coordinator".to_owned())
            .spawn(move || runtime.block_on(run(engine, lease, ordered, telling)))?;
        Ok(Seat { orders, told, thread: Some(thread) })
    }

    /// Returns what was told, if there is something.
    pub fn poll(&mut self) -> Option<Told> {
        self.told.try_recv().ok()
    }

    /// Orders a transaction. Returns false if there is no room, and it is not executed.
    pub fn write(&self, ticket: Ticket, write: Write) -> bool {
        self.orders.try_send(Order::Write(ticket, write)).is_ok()
    }

    /// Orders another listing.
    pub fn list(&self) {
        // If there is no room, a listing is on its way already.
        let _ = self.orders.try_send(Order::List);
    }

    /// Ends the session, so that another node leads at once, and returns when the thread has ended.
    /// The thread needs as long as the coordinator, at most the lease.
    pub fn end(mut self) {
        let _ = self.orders.try_send(Order::End);
        self.told.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The reason why a session is not followed any more.
enum Over {
    Lost,
    Final,
    Ended,
}

async fn run(engine: Engine, lease: Duration, mut orders: Receiver<Order>, telling: Telling) {
    let coordinator = loop {
        match engine.open().await {
            Ok(coordinator) => break coordinator,
            Err(fault) => {
                if telling.fault(&fault).await || refuse_orders(&mut orders, &telling).await {
                    return;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    };
    loop {
        match coordinator.session(lease).await {
            Ok(session) => {
                telling.tell(Told::Session(Some(session.id().0))).await;
                let over = follow(&coordinator, &session, &mut orders, &telling).await;
                if matches!(over, Over::Ended) {
                    return session.end().await;
                }
                telling.tell(Told::Session(None)).await;
                if matches!(over, Over::Final) {
                    return;
                }
            }
            Err(fault) => {
                if telling.fault(&fault).await {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
        if refuse_orders(&mut orders, &telling).await {
            return;
        }
    }
}

/// Refuses what was ordered while there is no session. Returns whether the thread is to end.
async fn refuse_orders(orders: &mut Receiver<Order>, telling: &Telling) -> bool {
    loop {
        match orders.try_recv() {
            Ok(Order::Write(ticket, _)) => {
                let why = "the coordinator does not answer".to_owned();
                telling.tell(Told::Written(ticket, Written::Failed(why))).await;
            }
            Ok(Order::List) => {}
            Ok(Order::End) => return true,
            Err(error) => return error == tokio::sync::mpsc::error::TryRecvError::Disconnected,
        }
    }
}

/// Lists, watches and executes orders while the session lasts.
async fn follow(
    coordinator: &Arc<dyn Coordinator>,
    session: &Session,
    orders: &mut Receiver<Order>,
    telling: &Telling,
) -> Over {
    let mut watch = None;
    loop {
        tokio::select! {
            () = session.lost() => return Over::Lost,
            order = orders.recv() => match order {
                Some(Order::Write(ticket, write)) => {
                    execute(coordinator, session, (ticket, write), telling);
                }
                Some(Order::List) => watch = None,
                Some(Order::End) | None => return Over::Ended,
            },
            told = next(coordinator, &mut watch) => match told {
                Ok(Some(told)) => telling.tell(told).await,
                Ok(None) => {}
                Err(fault) => {
                    if telling.fault(&fault).await {
                        return Over::Final;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            },
        }
    }
}

/// Waits for the next news. Dropping the future loses nothing.
async fn next(
    coordinator: &Arc<dyn Coordinator>,
    watch: &mut Option<Watch>,
) -> Result<Option<Told>, Fault> {
    let Some(watching) = watch else {
        let all = Prefix::all();
        let listing = coordinator.list(&all).await?;
        *watch = Some(coordinator.watch(&all, listing.revision));
        let facts = listing.entries.into_iter().map(|entry| {
            let fact = Fact { value: entry.value, modified: entry.modified.0 };
            (entry.key.as_str().to_owned(), fact)
        });
        return Ok(Some(Told::Listed(listing.revision.0, facts.collect())));
    };
    match watching.next().await? {
        Event::Changes(batch) => {
            let changes = batch.changes.into_iter().map(|change| match change {
                Change::Put(entry) => KeyChange {
                    key: entry.key.as_str().to_owned(),
                    fact: Some(Fact { value: entry.value, modified: entry.modified.0 }),
                },
                Change::Deleted(key) => KeyChange { key: key.as_str().to_owned(), fact: None },
            });
            Ok(Some(Told::Changed(batch.revision.0, changes.collect())))
        }
        Event::ListAgain => {
            *watch = None;
            Ok(None)
        }
    }
}

/// Executes a transaction beside everything else. The node orders one at a time.
fn execute(
    coordinator: &Arc<dyn Coordinator>,
    session: &Session,
    (ticket, write): (Ticket, Write),
    telling: &Telling,
) {
    let (coordinator, telling) = (Arc::clone(coordinator), telling.clone());
    let txn = composed(write, session);
    tokio::spawn(async move {
        let outcome = match txn {
            Ok(txn) => coordinator.txn(txn).await,
            Err(fault) => Err(fault),
        };
        let written = match outcome {
            Ok(Outcome::Done { revision }) => Written::Done(revision.0),
            Ok(Outcome::Refused { .. }) => Written::Refused,
            Err(fault) if fault.kind() == FaultKind::Unknown => Written::Unknown(fault.to_string()),
            Err(fault) => {
                if fault.kind() == FaultKind::RolledBack {
                    telling.fault(&fault).await;
                }
                Written::Failed(fault.to_string())
            }
        };
        telling.tell(Told::Written(ticket, written)).await;
    });
}

fn composed(write: Write, session: &Session) -> Result<Txn, Fault> {
    let mut txn = Txn::new();
    for when in &write.when {
        txn = txn.when(match when {
            When::Absent(key) => Compare::Absent(Key::new(key)?),
            When::Modified(key, revision) => {
                Compare::Modified(Key::new(key)?, keyway_coordinator::Revision(*revision))
            }
        });
    }
    for (key, value) in write.put {
        txn = txn.put(&Key::new(&key)?, value);
    }
    for (key, value) in write.put_bound {
        txn = txn.put_bound(&Key::new(&key)?, value, session);
    }
    for key in &write.delete {
        txn = txn.delete(&Key::new(key)?);
    }
    Ok(txn)
}
