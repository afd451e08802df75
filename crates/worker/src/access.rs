//! How the clients of a listener are accepted, and the counts of that.

use crate::Notice;
use keyway_metrics::AccessFigures;
use keyway_net::{AWAY_LABELS, AcceptFilter, Away};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How the clients of a listener are accepted, and how long they may stay.
#[derive(Default)]
pub struct ListenerAccess {
    /// The filter for the first bytes of clients. `None`: no filter.
    pub filter: Option<Arc<AcceptFilter>>,
    /// Largest number of clients at once, over all workers. 0: no limit of its own.
    pub clients_max: u32,
    /// How long a client may send no request. `None`: without a limit.
    pub idle_timeout: Option<Duration>,
    /// The counts, over all workers.
    pub tally: Arc<Tally>,
}

/// The counts of the clients of a listener.
#[derive(Default)]
pub struct Tally {
    connected: AtomicU32,
    secured: AtomicU64,
    turned_away: [AtomicU64; AWAY_LABELS.len()],
    notices: [Notice; AWAY_LABELS.len()],
}

impl Tally {
    /// Returns the number of connected clients.
    pub fn connected(&self) -> u32 {
        self.connected.load(Ordering::Relaxed)
    }

    /// Counts one more connected client.
    pub(crate) fn note_in(&self, is_secured: bool) {
        self.connected.fetch_add(1, Ordering::Relaxed);
        if is_secured {
            self.secured.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts one connected client less.
    pub(crate) fn note_out(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a refused client. Returns the notice of its log line.
    pub(crate) fn note_away(&self, away: Away) -> &Notice {
        self.turned_away[away.index()].fetch_add(1, Ordering::Relaxed);
        &self.notices[away.index()]
    }

    /// Returns the counts for metrics.
    pub fn figures(&self) -> AccessFigures {
        let counts = self.turned_away.iter().map(|count| count.load(Ordering::Relaxed));
        AccessFigures {
            connected: u64::from(self.connected()),
            secured: self.secured.load(Ordering::Relaxed),
            turned_away: AWAY_LABELS.into_iter().zip(counts).collect(),
        }
    }
}
