//! A control node in a process that serves: the file has `coordinator` in `[control]`.
//!
//! Its thread drives the node of the bus. The member of the same process reaches it within the
//! process, and other processes at the addresses of `listen`. The admin listener is that of the
//! process, and asks the thread.
//!
//! In an upgrade two processes have the file. The one that is replaced ends its session and leaves the
//! addresses as soon as the next one serves; the node of the next one tries to listen until then.

use super::admin::{Ask, Audited, State};
use super::{Asking, Parts, Running, bus_metrics, listen, not_listening};
use crate::bus::Signalled;
use crate::member::Secret;
use anyhow::{Context, Result};
use keyway_bus::{Settings, Tokens, Url};
use keyway_channel::{Driver, DriverSettings, clock};
use keyway_config::{ControlConfig, InsideConfig, OWN_URL};
use keyway_control::{Engine, EventLog};
use keyway_coordinator::FilesSettings;
use keyway_metrics::BusMetrics;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause between two tries to listen at an address that the process before has still.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Time after which the log tells of an address that is not left. The process before needs
/// milliseconds.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// The node's side of an [`Asking`].
pub struct Desk {
    pub(super) asks: Receiver<Ask>,
    pub(super) noted: Receiver<Audited>,
    pub(super) state: Arc<State>,
    pub(super) metrics: Arc<BusMetrics>,
    pub(super) events: Arc<EventLog>,
}

/// A control node that is to run in this process.
pub struct Staying {
    asking: Arc<Asking>,
    desk: Desk,
    inside: InsideConfig,
    cluster: String,
    tokens: Tokens,
    /// Addresses of other control nodes do not matter: the coordinator tells who leads.
    listen: Vec<Url>,
}

impl Staying {
    /// Prepares the control node, if the configuration has one.
    ///
    /// # Errors
    /// Returns what is wrong with the token.
    pub fn new(control: &ControlConfig, secret: &Secret) -> Result<Option<Staying>> {
        let Some(inside) = &control.inside else { return Ok(None) };
        let (asking, desk) = Asking::new(bus_metrics());
        let own = OWN_URL.parse::<Url>().context("the address within the process")?;
        Ok(Some(Staying {
            asking: Arc::new(asking),
            desk,
            inside: inside.clone(),
            cluster: control.cluster.clone(),
            tokens: secret.tokens()?,
            listen: [own].into_iter().chain(inside.listen.iter().cloned()).collect(),
        }))
    }

    /// Returns the node for the admin listener. Its questions are refused until the node runs.
    pub fn asking(&self) -> Arc<Asking> {
        Arc::clone(&self.asking)
    }

    /// Starts the node. `admin` is the address of the admin listener. With `is_upgrade` it begins
    /// when the process before has left the addresses, and this call does not wait for that.
    ///
    /// # Errors
    /// Returns the address on which the system refuses to listen, or that there is no thread.
    pub fn start(self, admin: String, is_upgrade: bool) -> Result<Inside> {
        let signalled = Arc::new(Signalled::default());
        let (end, ended) = channel();
        let asking = self.asking();
        let starting = Starting { stay: self, admin, is_upgrade, ended };
        let (tell, told) = sync_channel(1);
        let told_over = Arc::clone(&signalled);
        // The node of the bus stays on the thread that makes it.
        let thread = std::thread::Builder::new()
            .name("keyway-control".to_owned())
            .spawn(move || match starting.begin(&told_over) {
                Ok(Some(running)) => {
                    // In an upgrade nobody waits for it.
                    let _ = tell.send(Ok(()));
                    if let Err(error) = running.run() {
                        tracing::error!("the control node in this process ends: {error:#}");
                    }
                }
                Ok(None) => {}
                Err(error) if is_upgrade => {
                    tracing::error!("no control node runs in this process: {error:#}");
                }
                Err(error) => drop(tell.send(Err(error))),
            })
            .context("cannot start a thread")?;
        let inside = Inside { signalled, asking, end, thread: Some(thread) };
        if !is_upgrade {
            told.recv().context("the thread has ended")??;
        }
        Ok(inside)
    }
}

/// The parts of a node that is about to listen.
struct Starting {
    stay: Staying,
    admin: String,
    is_upgrade: bool,
    /// The order to end, while the node tries to listen.
    ended: Receiver<()>,
}

impl Starting {
    /// Listens. Returns `None` if it was told to end before.
    fn begin(self, signalled: &Arc<Signalled>) -> Result<Option<Running>> {
        let Some(driver) = self.listened()? else { return Ok(None) };
        let Staying { asking, desk, inside, cluster, .. } = self.stay;
        asking.set_waker(driver.waker());
        let files = FilesSettings::new(inside.dir.clone(), &cluster);
        let parts = Parts {
            cluster,
            id: inside.id,
            engine: Engine::Files(FilesSettings { patience: super::engine::PATIENCE, ..files }),
            shown: format!("files in {}", inside.dir.display()),
            lease: inside.lease,
            tls: None,
            admin: self.admin,
        };
        Running::new(driver, parts, (desk, None), Arc::clone(signalled)).map(Some)
    }

    fn listened(&self) -> Result<Option<Driver>> {
        let mut settings = Settings::of(self.stay.inside.id);
        settings.urls = self.stay.listen.clone();
        settings.tokens = self.stay.tokens.clone();
        let since = clock();
        let mut is_told = false;
        loop {
            match listen(settings.clone(), DriverSettings::default()) {
                Ok(driver) => return Ok(Some(driver)),
                Err(error) if self.is_upgrade && error.kind() == ErrorKind::AddrInUse => {
                    if !is_told && clock().since(since) >= TELL_AFTER {
                        is_told = true;
                        tracing::warn!(
                            "the control node in this process waits for an address: {error}"
                        );
                    }
                }
                Err(error) => return Err(not_listening(&error)),
            }
            match self.ended.recv_timeout(TRY_EVERY) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}

/// A control node that runs in this process. Dropping it waits for its end.
pub struct Inside {
    signalled: Arc<Signalled>,
    asking: Arc<Asking>,
    end: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Inside {
    /// Has the node end its session and leave the bus, and does not wait for that.
    pub fn end(&self) {
        // ORDER: the flag itself is the only data
        self.signalled.is_over.store(true, Ordering::Relaxed);
        // The thread reads this only while it waits for an address. A running node ends by `is_over`.
        let _ = self.end.send(());
        self.asking.wake();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}
