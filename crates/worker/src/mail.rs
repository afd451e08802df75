use crate::Plan;
use keyway_metrics::Registry;
use keyway_net::{Listener, Mailer, Socket};
use keyway_proxy::Identity;
use keyway_proxy::local::Unblock;
use std::sync::Arc;
use std::time::Duration;

/// A client at rest on its way from one worker to another. Its positions are those of the sender's
/// plan. The receiver has that plan or a later one: all workers are mailed a plan before any worker
/// is asked to give clients away by it. In a later plan the positions still are those of the
/// listener and of the pool, or of the pool as a retired one.
#[derive(Debug)]
pub struct Adopted {
    /// Its socket; whoever holds this owns the descriptor.
    pub socket: Socket,
    /// Position of its pool.
    pub pool: u16,
    /// Position of its listener.
    pub listener: u16,
    /// What it has set.
    pub identity: Identity,
}

/// Another version of the settings.
pub struct Follow {
    /// They.
    pub plan: Arc<Plan>,
    /// Where to count from now on.
    pub registry: Arc<Registry>,
    /// Listeners that are new, each with its position.
    pub listeners: Vec<(u16, Listener)>,
}

/// What other threads ask of a worker.
pub enum Mail {
    /// Stop accepting, answer what is in flight, then end.
    Drain,
    /// Stop accepting, as another process does that now; end when the clients have left, or
    /// drain when this is over.
    Leave(Duration),
    /// Serve this client from now on.
    Adopt(Box<Adopted>),
    /// Hand up to `count` clients at rest to another worker.
    GiveAway {
        /// How many.
        count: usize,
        /// To whom.
        to: Mailer<Mail>,
    },
    /// Serve by other settings from now on.
    Follow(Box<Follow>),
    /// Accept the clients that wait at the sockets of other workers: one of these workers is busy
    /// with a script.
    Relieve,
    /// Messages wait for this worker's subscribers, or its clients that cache.
    Published,
    /// Close these clients, if they are here; they ascend.
    Kill(Vec<u64>),
    /// End this client's blocking command, if the client is here.
    Unblock(Unblock),
}
