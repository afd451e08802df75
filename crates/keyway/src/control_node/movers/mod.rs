//! Movers: threads that copy slots between groups while this node leads, as the leader orders it.
//!
//! A pool has one thread at most. A thread that was ended writes nothing more before the next one of
//! its pool begins, because that one waits for its end.

mod thread;

use super::groups::Watched;
use keyway_fleet::limits::GROUPS_MAX;
use keyway_fleet::{MoverOrder, MoverReport, MoverWork};
use keyway_tls::ClientTls;
use rustix::fd::OwnedFd;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use thread::Moving;

/// Orders that wait for a thread: another pace, and the order to finish.
const ORDERS_MAX: usize = 8;

/// Reports of all threads that wait for the node's thread. While there are more, threads wait.
const TOLD_MAX: usize = 4 * GROUPS_MAX;

/// The way to the servers of a group.
#[derive(Clone, Default)]
struct Way {
    password: Option<String>,
    tls: Option<ClientTls>,
}

/// A report of a thread.
pub struct Told {
    pub pool: String,
    pub number: u64,
    pub report: MoverReport,
    plan: u64,
}

/// The channel to the node's thread.
#[derive(Clone)]
struct Telling {
    told: SyncSender<Told>,
    wake: Arc<OwnedFd>,
}

impl Telling {
    fn tell(&self, told: Told) {
        // Without a node there is nobody to be told.
        let _ = self.told.send(told);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// A thread. It ends by itself soon after this is dropped.
struct Thread {
    number: u64,
    orders: SyncSender<MoverOrder>,
    is_over: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Has the thread end. Returns what waits for its end.
    fn end(mut self) -> Option<JoinHandle<()>> {
        self.handle.take()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // ORDER: the flag itself is the only data
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The movers of all pools.
pub struct Movers {
    threads: BTreeMap<String, Thread>,
    /// The latest thread of each pool that was told to end.
    ending: BTreeMap<String, JoinHandle<()>>,
    /// The way to each group.
    ways: BTreeMap<String, Way>,
    /// The plan whose servers were looked at, and the keys that it moves, by pool.
    totals: BTreeMap<String, (u64, u64)>,
    telling: Telling,
    told: Receiver<Told>,
}

impl Movers {
    /// Begins without movers. `wake` wakes the node's thread.
    pub fn new(wake: Arc<OwnedFd>) -> Movers {
        let (tell, told) = sync_channel(TOLD_MAX);
        Movers {
            threads: BTreeMap::new(),
            ending: BTreeMap::new(),
            ways: BTreeMap::new(),
            totals: BTreeMap::new(),
            telling: Telling { told: tell, wake },
            told,
        }
    }

    /// Takes the ways to the servers of groups. Movers that are at work keep theirs.
    pub fn follow(&mut self, groups: &[Watched]) {
        let way = |group: &Watched| {
            let way = Way { password: group.password.clone(), tls: group.tls.clone() };
            (group.settings.pool.clone(), way)
        };
        self.ways = groups.iter().map(way).collect();
    }

    /// Carries out an order of the leader with this epoch.
    ///
    /// # Errors
    /// Returns the reason why there is no mover.
    pub fn order(&mut self, order: MoverOrder, epoch: u64) -> Result<(), String> {
        let is_its = |thread: &&Thread| match order.work {
            MoverWork::Finish => true,
            _ => thread.number == order.number,
        };
        if let Some(thread) = self.threads.get(&order.pool).filter(is_its) {
            let sent = thread.orders.try_send(order);
            return sent.map_err(|_| "the mover has ended".to_owned());
        }
        if order.work == MoverWork::Finish {
            return Err("there is no copy to finish".to_owned());
        }
        let pool = order.pool.clone();
        self.end(&pool);
        let thread = self.start(order, epoch);
        let thread = thread.map_err(|error| format!("no thread: {error}"))?;
        self.threads.insert(pool, thread);
        Ok(())
    }

    fn start(&mut self, order: MoverOrder, epoch: u64) -> std::io::Result<Thread> {
        let (orders, ordered) = sync_channel(ORDERS_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let number = order.number;
        let way = |group: &str| self.ways.get(group).cloned().unwrap_or_default();
        let total = self.totals.get(&order.pool).filter(|(plan, _)| *plan == order.plan);
        let moving = Moving {
            ways: [way(&order.from.group), way(&order.to.group)],
            total: total.map(|(_, keys)| *keys),
            before: self.ending.remove(&order.pool),
            number: Cell::new(number),
            order,
            epoch,
            orders: ordered,
            telling: self.telling.clone(),
            is_over: Arc::clone(&is_over),
        };
        let handle = std::thread::Builder::new()
            .name("keyway-mover".to_owned())
            .spawn(move || moving.run())?;
        Ok(Thread { number, orders, is_over, handle: Some(handle) })
    }

    /// Ends the mover of a pool.
    pub fn end(&mut self, pool: &str) {
        if let Some(handle) = self.threads.remove(pool).and_then(Thread::end) {
            self.ending.insert(pool.to_owned(), handle);
        }
    }

    /// Ends all movers: this node leads no more.
    pub fn clear(&mut self) {
        let pools: Vec<String> = self.threads.keys().cloned().collect();
        pools.iter().for_each(|pool| self.end(pool));
        self.totals.clear();
    }

    /// Returns what was told, if there is something.
    pub fn poll(&mut self) -> Option<Told> {
        let told = self.told.try_recv().ok()?;
        if let MoverReport::Done(progress) = &told.report
            && let Some(total) = progress.keys_total
        {
            self.totals.insert(told.pool.clone(), (told.plan, total));
        }
        Some(told)
    }
}
