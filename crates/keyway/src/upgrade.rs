//! Upgrades: another process takes this one's place, and no client is refused.
//!
//! The serving process starts the next one as it was started itself, and hands over its listening
//! sockets ([`keyway_net::Handover`]). `attempt` is the side of the serving process, on a thread of
//! its own; `take_over` is the side of the next one. Until the next process says that it is ready
//! to serve, the first one can go on as if nothing had happened. Only the main thread begins and
//! ends an upgrade, as with reloads.

mod attempt;
mod change_over;
mod giving;
mod notify;
mod pacer;
mod pid_file;
mod take_over;
mod taking;

pub use attempt::{Successor, SuccessorFailed};
pub use change_over::{Held, Holding};
pub use notify::{tell_of_start, tell_of_successor};
pub use pid_file::PidFile;
pub use take_over::TakeOver;
pub use taking::Taking;

use crate::reload::{Live, Wake};
use crate::workers::Workers;
use attempt::{Attempt, Order};
use giving::Giving;
use keyway_control::{AdminHandle, UpgradeState, UpgradeStatus};
use keyway_net::{Handed, Place};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Longest wait until the next process is started, which takes a millisecond. A reload may come
/// first.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time between two looks whether the thread of an upgrade that is given up has ended.
const ABORTED_EVERY: Duration = Duration::from_millis(5);

/// Time for starting a process, if that begins at the last moment.
const STARTED_WITHIN: Duration = Duration::from_secs(1);

/// The reasons why no process was started, or why it was ended, a line for each.
pub type Reasons = Vec<String>;

/// A request for an upgrade, whose sender waits to learn whether it begins.
pub struct UpgradeRequest {
    /// The time after which it is too late to begin: the sender has been told that none began.
    pub until: Instant,
    /// The channel for the answer.
    pub tell: SyncSender<Result<(), Reasons>>,
}

/// Asks the main thread for an upgrade, from another thread.
///
/// # Errors
/// Returns the reasons why none begins.
pub fn request(wake: &Sender<Wake>) -> Result<(), Reasons> {
    let (tell, told) = sync_channel(1);
    let stopping = || Err(vec!["Keyway is stopping".to_owned()]);
    let until = now() + PATIENCE;
    if wake.send(Wake::Upgrade(UpgradeRequest { until, tell })).is_err() {
        return stopping();
    }
    match told.recv_timeout(PATIENCE + STARTED_WITHIN) {
        Ok(begun) => begun,
        Err(RecvTimeoutError::Timeout) => Err(too_late()),
        Err(RecvTimeoutError::Disconnected) => stopping(),
    }
}

fn too_late() -> Reasons {
    let secs = PATIENCE.as_secs();
    vec![format!("it did not begin within {secs} s, as something else goes on; it does not begin")]
}

#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
fn now() -> Instant {
    Instant::now()
}

/// The status of the latest upgrade, for any thread.
pub type Told = Arc<Mutex<Option<UpgradeStatus>>>;

/// The upgrades of this process, one at a time.
pub struct Upgrades {
    wake: Sender<Wake>,
    told: Told,
    running: Option<Attempt>,
}

impl Upgrades {
    /// Creates it without an upgrade. `wake` is told when one has ended.
    pub fn new(wake: Sender<Wake>, told: Told) -> Self {
        Self { wake, told, running: None }
    }

    /// Returns whether the next process is starting.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts the next process for a request, unless its sender was told already that none is
    /// started.
    pub fn answer(
        &mut self,
        from: (&Live, &Workers, Option<&AdminHandle>),
        asked: &UpgradeRequest,
    ) {
        let begun = match now() < asked.until {
            true => self.begin(from),
            false => Err(too_late()),
        };
        // The sender may have stopped waiting.
        let _ = asked.tell.send(begun);
    }

    /// Starts the next process. Logs the reason if it cannot.
    pub fn begin(&mut self, from: (&Live, &Workers, Option<&AdminHandle>)) -> Result<(), Reasons> {
        let begun = self.try_begin(from);
        if let Err(reasons) = &begun {
            log_reasons(reasons);
            tracing::error!(
                target: "keyway::event::upgrade-refused",
                "upgrade refused: no process was started, this one serves on"
            );
        }
        begun
    }

    fn try_begin(
        &mut self,
        (live, workers, admin): (&Live, &Workers, Option<&AdminHandle>),
    ) -> Result<(), Reasons> {
        if self.is_running() {
            return Err(vec!["another upgrade is going on".to_owned()]);
        }
        if std::process::id() == 1 {
            let why = "this is the first process of its container, which ends with it; start \
                       another container instead";
            return Err(vec![why.to_owned()]);
        }
        let no_descriptor = |error| vec![format!("no file descriptor for a socket: {error}")];
        let sockets = sockets(live, workers, admin).map_err(no_descriptor)?;
        let order = Order {
            sockets,
            plan: Arc::clone(&live.version.plan),
            giving: Giving::of(live),
            timeout: live.file.server.upgrade_timeout,
            wake: self.wake.clone(),
        };
        self.running = Some(Attempt::start(order)?);
        *self.told.lock() = Some(UpgradeStatus::default());
        Ok(())
    }

    /// Notes the outcome of an upgrade. Returns the next process if it serves.
    pub fn end(&mut self, outcome: Result<Successor, Reasons>) -> Option<Successor> {
        if let Some(attempt) = self.running.take() {
            attempt.join();
        }
        let (state, reasons) = match &outcome {
            Ok(_) => (UpgradeState::Done, Vec::new()),
            Err(reasons) => (UpgradeState::Failed, reasons.clone()),
        };
        *self.told.lock() = Some(UpgradeStatus { state, reasons });
        match outcome {
            Ok(successor) => Some(successor),
            Err(reasons) => {
                log_reasons(&reasons);
                tracing::error!(
                    target: "keyway::event::upgrade-failed",
                    "upgrade failed: this process serves on as before"
                );
                None
            }
        }
    }

    /// Ends the next process if it is still starting. Returns it if it serves already, which was
    /// about to be reported.
    pub fn abort(&mut self, woken: &Receiver<Wake>) -> Option<Successor> {
        let attempt = self.running.take()?;
        let (mut serves, mut others) = (None, Vec::new());
        attempt.cut();
        loop {
            let has_ended = attempt.has_ended();
            for wake in woken.try_iter() {
                match wake {
                    Wake::Upgraded(outcome) => serves = outcome.ok(),
                    // The thread that asks learns that nothing is held.
                    Wake::Hold(_) => {}
                    other => others.push(other),
                }
            }
            if has_ended {
                break;
            }
            std::thread::park_timeout(ABORTED_EVERY);
        }
        attempt.join();
        // Other events that came meanwhile are left to the code that ends this process.
        others.into_iter().for_each(|other| drop(self.wake.send(other)));
        match &serves {
            Some(Successor { pid, .. }) => {
                tracing::warn!(pid, "process {pid} has taken over in the meantime, and serves on");
            }
            None => tracing::warn!("the upgrade that was going on is given up"),
        }
        serves
    }
}

fn log_reasons(reasons: &[String]) {
    for reason in reasons {
        tracing::error!("upgrade: {reason}");
    }
}

/// Returns every socket on which this process listens.
fn sockets(
    live: &Live,
    workers: &Workers,
    admin: Option<&AdminHandle>,
) -> std::io::Result<Vec<Handed>> {
    let mut all = Vec::new();
    for (index, listener) in live.config.listeners.iter().enumerate() {
        if live.version.plan.listeners[index].is_ended {
            continue;
        }
        let addr = live.addresses[index];
        let mut sockets = workers.sockets(index)?;
        if addr.is_none() {
            // Workers share a unix socket.
            sockets.truncate(1);
        }
        let place = Place::Listener(index as u16);
        all.push(Handed { place, bind: listener.bind.to_string(), addr, sockets });
    }
    if let (Some(bind), Some(admin)) = (&live.config.server.admin, admin) {
        all.push(Handed {
            place: Place::Admin,
            bind: bind.to_string(),
            addr: Some(admin.local_addr()),
            sockets: admin.socket()?.into_iter().collect(),
        });
    }
    Ok(all)
}
