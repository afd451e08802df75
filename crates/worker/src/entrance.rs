//! How the clients of a listener come in, and what came of it.

use crate::Notice;
use keyway_metrics::EntranceFigures;
use keyway_net::{AWAY_LABELS, AcceptFilter, Away};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How the clients of a listener come in, and how long they may stay.
#[derive(Default)]
pub struct ListenerAccess {
    /// What they have to say first; nothing with `None`.
    pub gate: Option<Arc<AcceptFilter>>,
    /// Clients at once, over all workers; 0 for no bound but the others.
    pub clients_max: u32,
    /// How long a client may ask nothing; for ever with `None`.
    pub idle_timeout: Option<Duration>,
    /// What came of it, over all workers.
    pub tally: Arc<Tally>,
}

/// What came of the clients of a listener.
#[derive(Default)]
pub struct Tally {
    connected: AtomicU32,
    secured: AtomicU64,
    turned_away: [AtomicU64; AWAY_LABELS.len()],
    notices: [Notice; AWAY_LABELS.len()],
}

impl Tally {
    /// Clients connected now.
    pub fn connected(&self) -> u32 {
        self.connected.load(Ordering::Relaxed)
    }

    /// One more is connected.
    pub(crate) fn note_in(&self, is_secured: bool) {
        self.connected.fetch_add(1, Ordering::Relaxed);
        if is_secured {
            self.secured.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One fewer is.
    pub(crate) fn note_out(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// One was turned away; the line of the log that tells of it.
    pub(crate) fn note_away(&self, away: Away) -> &Notice {
        self.turned_away[away.index()].fetch_add(1, Ordering::Relaxed);
        &self.notices[away.index()]
    }

    /// The same for whoever scrapes.
    pub fn figures(&self) -> EntranceFigures {
        let counts = self.turned_away.iter().map(|count| count.load(Ordering::Relaxed));
        EntranceFigures {
            connected: u64::from(self.connected()),
            secured: self.secured.load(Ordering::Relaxed),
            turned_away: AWAY_LABELS.into_iter().zip(counts).collect(),
        }
    }
}
