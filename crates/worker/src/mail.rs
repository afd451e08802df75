use crate::{HandedClient, Heir, Plan};
use keyway_metrics::Registry;
use keyway_net::{Listener, Mailer, Socket};
use keyway_proxy::Identity;
use keyway_proxy::local::Unblock;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// A client at rest that is handed over from one worker to another. Its indices are those of the
/// sender's plan. The receiver has that plan or a later one: all workers are mailed a plan before
/// any worker is asked to hand clients over by it. In a later plan the indices still are those of
/// the listener and of the pool, or of the pool as a retired one.
#[derive(Debug)]
pub struct Adopted {
    /// Its socket. The holder of this owns the descriptor.
    pub socket: Socket,
    /// Index of its pool.
    pub pool: u16,
    /// Index of its listener.
    pub listener: u16,
    /// The settings of the client.
    pub identity: Identity,
}

/// Another version of the settings.
pub struct Follow {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The registry for counts from now on.
    pub registry: Arc<Registry>,
    /// New listeners, each with its index.
    pub listeners: Vec<(u16, Listener)>,
}

/// A request of another thread to a worker.
pub enum Mail {
    /// Stop accepting, answer requests in flight, then end.
    Drain,
    /// Stop accepting, because another process accepts now. End when the clients have left, or
    /// drain when this time is over.
    Leave(Duration),
    /// Serve this client from now on.
    Adopt(Box<Adopted>),
    /// Give the clients of embedded stores to another process.
    HandOn {
        /// The way there.
        heir: Arc<dyn Heir>,
        /// To be dropped once those that were ready are given.
        done: Sender<()>,
    },
    /// Serve this client of another process from now on.
    TakeIn(Box<HandedClient>, OwnedFd),
    /// Hand up to `count` clients at rest to another worker.
    GiveAway {
        /// Number of clients.
        count: usize,
        /// The other worker.
        to: Mailer<Mail>,
    },
    /// Use other settings from now on.
    Follow(Box<Follow>),
    /// Accept the clients that wait at the sockets of other workers: one of these workers is busy
    /// with a script.
    Relieve,
    /// Messages wait for this worker's subscribers, or its clients that cache.
    Published,
    /// Something other than a worker has changed the store of this pool: tell clients of it.
    Changed {
        /// Index of the pool.
        pool: u16,
        /// To be cleared first: what changes later is another mail.
        is_asked: Arc<AtomicBool>,
    },
    /// Drop this: whoever waits for it knows that every request of an earlier turn is over.
    Pass(Sender<()>),
    /// Close these clients, if they are here. The ids are in ascending order.
    Kill(Vec<u64>),
    /// End this client's blocking command, if the client is here.
    Unblock(Unblock),
}
