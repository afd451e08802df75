//! Embedded stores and their clients, as they come from the process before.
//!
//! ```text
//!  Store + socket ─► the store follows ─► Ready once all data is there
//!  Final ─► it has all up to that offset ─► its role, its log ─► Serving
//!  a thread: scripts ─► clients to the workers ─► the hold ends
//! ```

use super::TakeOver;
use super::giving::{CLIENT, CLIENTS_END, LOADED_SCRIPT, SCRIPT, SCRIPTS_END};
use crate::replicas::Replicas;
use crate::store_logs::StoreLogs;
use anyhow::{Context, Result, anyhow, bail};
use keyway_config::{Config, PoolKindConfig};
use keyway_net::{FinalStore, HandedStore, Parcels};
use keyway_script::Engine;
use keyway_worker::{HandedClient, Mail, Plan, PoolKind};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Time between two looks at how far the data has come. Longer holds requests for longer.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Longest time for what was written in front of the change-over to come.
const LAST_PATIENCE: Duration = Duration::from_secs(8);
/// Longest time for which clients of the stores are held when this process serves: the process
/// before gives its clients meanwhile.
const CLIENTS_PATIENCE: Duration = Duration::from_secs(3);
/// Time between two looks at how long clients have been held.
const HELD_LOOK: Duration = Duration::from_millis(250);
/// Bytes of one client or script at most.
const PARCEL_LEN_MAX: usize = 1 << 30;

/// The stores of the process before, while this one takes them over.
pub struct Taking {
    stores: Vec<HandedStore>,
    /// Tells that all scripts are there.
    scripts: Option<Receiver<()>>,
}

impl Taking {
    /// Begins to take over. `None` if there is nothing.
    ///
    /// # Errors
    /// The error says what keeps this process from taking a store over.
    pub fn begin(
        before: &mut TakeOver,
        (plan, config): (&Arc<Plan>, &Config),
        replicas: &Replicas,
    ) -> Result<Option<Self>> {
        let Some(parcels) = before.take_parcels() else { return Ok(None) };
        let mut stores = Vec::new();
        for (store, socket) in before.take_stores() {
            check(&store, config)?;
            replicas
                .take_over(&store.pool, socket)
                .with_context(|| format!("pool {} cannot take over", store.pool))?;
            stores.push(store);
        }
        let (tell, told) = channel();
        let places = before.places(config);
        let taker = Taker { parcels, plan: Arc::clone(plan), places, next: 0, tell: Some(tell) };
        let thread = std::thread::Builder::new().name("keyway-heir".into());
        thread.spawn(move || taker.run()).context("cannot start a thread")?;
        Ok(Some(Self { stores, scripts: Some(told) }))
    }

    /// Waits until all data is there, and what is written follows.
    ///
    /// # Errors
    /// Why a store does not get its data.
    pub fn await_data(&self, replicas: &Replicas) -> Result<()> {
        for store in &self.stores {
            while taken(store, replicas)?.is_none() {
                std::thread::park_timeout(LOOK_EVERY);
            }
            tracing::info!(pool = store.pool, "upgrade: the store has its data");
        }
        Ok(())
    }

    /// Takes over for good: every store is as it was held, with its role and its log.
    ///
    /// # Errors
    /// Why one cannot be. The process before goes on then.
    #[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
    pub fn finish(
        &mut self,
        finals: &[FinalStore],
        (plan, config): (&Arc<Plan>, &Config),
        (replicas, logs): (&Replicas, &mut StoreLogs),
    ) -> Result<()> {
        let until = Instant::now() + LAST_PATIENCE;
        for store in &self.stores {
            let last = finals.iter().find(|last| last.pool == store.pool);
            let last = last.with_context(|| format!("pool {}: its end is not told", store.pool))?;
            while taken(store, replicas)?.is_none_or(|offset| offset < last.offset) {
                if Instant::now() > until {
                    bail!("pool {}: its last writes do not come", store.pool);
                }
                std::thread::park_timeout(LOOK_EVERY);
            }
            let pool = plan.pools.iter().find(|pool| pool.name == store.pool);
            if let Some(PoolKind::Store(store)) = pool.map(|pool| &pool.kind) {
                store.raise_numbers(last.numbers.saturating_add(1));
                store.set_flushes_to_come(&last.flushes);
            }
            replicas.succeed(last, &store.primary);
            plan.next_client_id.fetch_max(last.clients, Ordering::Relaxed);
        }
        // The logs come first: they are told where the data of a replica is in its history.
        logs.resume(plan, config)?;
        for store in &self.stores {
            if let Some(last) = finals.iter().find(|last| last.pool == store.pool) {
                replicas.begin_as(&store.pool, last.primary.as_ref(), &store.primary);
            }
        }
        logs.start().context("cannot start a thread")?;
        if let Some(scripts) = self.scripts.take() {
            let left = until.saturating_duration_since(Instant::now());
            scripts.recv_timeout(left).map_err(|_| anyhow!("the scripts do not come"))?;
        }
        plan.hold_stores(true);
        Ok(())
    }
}

fn taken(store: &HandedStore, replicas: &Replicas) -> Result<Option<u64>> {
    replicas.taken(&store.pool).map_err(|why| {
        anyhow!("pool {}: its data does not come from the process before: {why}", store.pool)
    })
}

/// Looks whether the configuration lets a store go on.
fn check(store: &HandedStore, config: &Config) -> Result<()> {
    let HandedStore { pool, log, .. } = store;
    let settings = config.pools.iter().find(|settings| settings.name == *pool);
    let Some(PoolKindConfig::Store(settings)) = settings.map(|settings| &settings.kind) else {
        bail!(
            "the file has no pool {pool} of kind store any more, and what it holds would be lost: \
             restart Keyway to remove it"
        );
    };
    let configured = settings.log.as_ref().map(|log| log.dir.display().to_string());
    if configured.unwrap_or_default() != *log {
        bail!("`log` of pool {pool} has changed: restart Keyway to change it");
    }
    Ok(())
}

/// The thread that takes scripts and clients.
struct Taker {
    parcels: Parcels,
    plan: Arc<Plan>,
    /// For each listener of the process before its position here.
    places: Vec<(u16, u16)>,
    /// The worker that gets the next client.
    next: usize,
    tell: Option<Sender<()>>,
}

impl Taker {
    #[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
    fn run(mut self) {
        let mut held_since = None;
        loop {
            match self.parcels.receive(PARCEL_LEN_MAX, HELD_LOOK) {
                Ok((parcel, socket)) => self.take(&parcel, socket),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => {
                    if error.kind() != ErrorKind::UnexpectedEof {
                        tracing::warn!("upgrade: no more clients come: {error}");
                    }
                    return self.plan.hold_stores(false);
                }
            }
            if self.is_holding()
                && held_since.get_or_insert_with(Instant::now).elapsed() > CLIENTS_PATIENCE
            {
                self.plan.hold_stores(false);
            }
        }
    }

    fn is_holding(&self) -> bool {
        let pools = self.plan.pools_on_stores();
        pools.first().is_some_and(|at| self.plan.pools[*at].pause.is_held())
    }

    fn take(&mut self, parcel: &[u8], socket: Option<OwnedFd>) {
        let Some((kind, rest)) = parcel.split_first() else { return };
        match (*kind, socket) {
            (SCRIPT | LOADED_SCRIPT, None) => self.take_script(rest, *kind == LOADED_SCRIPT),
            (SCRIPTS_END, None) => {
                // The main thread waits for it, or has given up.
                let _ = self.tell.take().map(|tell| tell.send(()));
            }
            (CLIENT, Some(socket)) => self.take_client(rest, socket),
            (CLIENTS_END, None) => self.plan.hold_stores(false),
            _ => tracing::warn!("upgrade: the process before gives what is not known here"),
        }
    }

    fn take_script(&self, parcel: &[u8], is_loaded: bool) {
        let parts = parcel
            .split_first_chunk()
            .and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize));
        let Some((pool, body)) = parts else { return };
        let pool = self.plan.pools.iter().find(|plan| plan.name.as_bytes() == pool);
        if let Some(pool) = pool
            && let Err(why) = Engine::new(Arc::clone(&pool.scripts)).load(body, is_loaded)
        {
            tracing::warn!(pool = pool.name, "upgrade: a script cannot be taken over: {why}");
        }
    }

    /// Gives a client to the workers in turn.
    fn take_client(&mut self, parcel: &[u8], socket: OwnedFd) {
        let Some(mut client) = HandedClient::read(parcel) else {
            return tracing::warn!("upgrade: a client of the process before is not understood");
        };
        let place = self.places.iter().find(|(before, _)| *before == client.listener);
        // A client of a listener that is gone is closed with its socket.
        let Some((_, here)) = place else { return };
        client.listener = *here;
        let mut mail = Mail::TakeIn(Box::new(client), socket);
        loop {
            let mailers = self.plan.mailers.lock();
            self.next = (self.next + 1) % mailers.len().max(1);
            let Some(mailer) = mailers.get(self.next) else { return };
            match mailer.post(mail) {
                Ok(()) => return,
                Err(unsent) => mail = unsent,
            }
            drop(mailers);
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}
