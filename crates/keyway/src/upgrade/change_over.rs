//! The change-over: all requests that may reach an embedded store are held, and nothing changes
//! any more, until the next process serves or this one goes on.

use super::Reasons;
use crate::reload::Live;
use keyway_net::{FinalStore, Followed};
use keyway_store::{Keeping, Store};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Longest time for which requests are held while a worker is at a request that it had begun.
const PASS_PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for a script, during which nothing is held.
const SCRIPT_PATIENCE: Duration = Duration::from_secs(10);
/// Ids that clients may get until this process accepts no more.
const IDS_APART: u64 = 1 << 20;

/// An order to hold all stores.
pub struct Holding {
    /// The channel for the stores as they are then, or why they cannot be held.
    pub tell: SyncSender<Result<Vec<FinalStore>, Reasons>>,
}

/// Stores that are held.
pub struct Held {
    /// Whom each store followed.
    followed: Vec<Option<Followed>>,
}

impl Live {
    /// Holds all stores, until [`Live::go_on`] or the end of the process.
    ///
    /// # Errors
    /// Why they cannot be held. They go on then.
    pub fn hold(&mut self) -> Result<Vec<FinalStore>, Reasons> {
        let plan = Arc::clone(&self.version.plan);
        let stores = self.replicas.stores();
        if let Some(pool) = self.logs.not_open() {
            return Err(vec![format!(
                "the log of pool {pool} has failed, or its first base is not whole yet: try again \
                 when the log has begun, which this process logs"
            )]);
        }
        if let Some(pool) = self.replicas.failing_over() {
            return Err(vec![format!("the store of pool {pool} is in a FAILOVER: try again")]);
        }
        await_scripts(&stores);
        plan.hold_stores(true);
        stores.iter().for_each(|(.., store)| store.set_held(true));
        if !plan.settle(PASS_PATIENCE) {
            release(self, &stores);
            return Err(vec![format!(
                "a request, or a script, took longer than {PASS_PATIENCE:?}: try again"
            )]);
        }
        let followed = self.replicas.rest();
        if let Err(why) = self.logs.hand_on() {
            self.replicas.go_on(&followed);
            release(self, &stores);
            return Err(vec![why]);
        }
        let clients = plan.next_client_id.load(Ordering::Relaxed) + IDS_APART;
        let pairs = stores.iter().zip(&followed).map(|((pool, _, store), primary)| {
            let mut last = settle(pool, store, primary, clients)?;
            self.replicas.note_replicas(&mut last);
            Ok(last)
        });
        let finals: Result<Vec<_>, _> = pairs.collect();
        self.held = Some(Held { followed });
        if finals.is_err() {
            self.go_on();
        }
        finals
    }

    /// Goes on with stores that were held, as the other process does not serve.
    pub fn go_on(&mut self) {
        let Some(held) = self.held.take() else { return };
        self.logs.take_back();
        self.replicas.go_on(&held.followed);
        let stores = self.replicas.stores();
        release(self, &stores);
    }
}

/// Returns the state of a store that is held.
fn settle(
    pool: &str,
    store: &Arc<Store>,
    primary: &Option<Followed>,
    clients: u64,
) -> Result<FinalStore, Reasons> {
    let reader = store.follow_on(Keeping::Newest).filter(|_| !store.is_loading());
    let Some(reader) = reader else {
        return Err(vec![format!(
            "pool {pool}: the copy has lost its place, as all data was replaced or a script wrote \
             while it began: try again"
        )]);
    };
    Ok(FinalStore {
        pool: pool.to_owned(),
        offset: reader.start(),
        numbers: store.numbers_max(),
        clients,
        flushes: store.flushes_to_come(),
        primary: primary.clone(),
        history: None,
        replicas: 0,
    })
}

fn release(live: &Live, stores: &[(String, String, Arc<Store>)]) {
    stores.iter().for_each(|(.., store)| store.set_held(false));
    live.version.plan.hold_stores(false);
}

/// Waits until no script runs, or not for too long.
#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
fn await_scripts(stores: &[(String, String, Arc<Store>)]) {
    let until = Instant::now() + SCRIPT_PATIENCE;
    while stores.iter().any(|(.., store)| store.has_script()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}
