//! The settings in force, and their replacement.

use super::merge::{Before, GENERATIONS_MAX, ending_generations, merge};
use super::{Cause, Diff, Merge, Refusal, ReloadTally, diff};
use crate::admin::Process;
use crate::member::{self, Ordered, SharedAbout};
use crate::plan::{self, Sources, Version};
use crate::registrations::Registrations;
use crate::replicas::Replicas;
use crate::snapshots::Snapshots;
use crate::store_logs::StoreLogs;
use crate::upgrade::Held;
use crate::workers::Workers;
use crate::{certificates, log, peers};
use keyway_base::Clock;
use keyway_config::{Config, ListenAddr};
use keyway_control::Access;
use keyway_fleet::Document;
use keyway_net::Listener;
use keyway_worker::Retired;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait of a reload for earlier ones to end the pools that they replaced.
const ROOM_PATIENCE: Duration = Duration::from_secs(2);

/// The consequence of a missing watcher.
const NOT_WATCHED: &str = "clients are told that all of the cluster's other Keyways are there";

/// The settings in force.
pub struct Live {
    /// The document of the control plane, if there is one.
    pub document: Option<Document>,
    /// The facts about this process for the control plane.
    pub about: SharedAbout,
    /// The file; the built-in configuration if `None`.
    pub path: Option<PathBuf>,
    /// The configuration as it was read.
    pub file: Config,
    /// The configuration with every pool and listener at its position.
    pub config: Config,
    /// The version that the workers use.
    pub version: Version,
    /// The address at which each listener listens, if by TCP.
    pub addresses: Vec<Option<SocketAddr>>,
    /// Counts of reloads.
    pub tally: Arc<ReloadTally>,
    /// The clock at the start of the process.
    pub clock: Clock,
    /// A random number that an attacker cannot guess.
    pub seed: u64,
    /// The verifier of slow password hashes.
    pub passwords: crate::passwords::Passwords,
    /// The access settings of the admin listener.
    pub access: Access,
    /// Snapshots of embedded stores.
    pub snapshots: Snapshots,
    /// Logs of embedded stores.
    pub logs: StoreLogs,
    /// Their roles.
    pub replicas: Replicas,
    /// The entries by which clients find the listeners.
    pub registrations: Registrations,
    /// The stores, while they are held for the next process.
    pub held: Option<Held>,
}

impl Live {
    /// Reads the configuration again and puts it in force, or changes nothing. Counts and logs the
    /// outcome.
    pub fn reload(&mut self, workers: &mut Workers, process: &Process) -> Result<Diff, Refusal> {
        let result = self.try_reload(workers, process);
        self.note(result)
    }

    /// Serves by a document of the control plane from now on, or goes on as before.
    pub fn apply(
        &mut self,
        ordered: &Ordered,
        workers: &mut Workers,
        process: &Process,
    ) -> Result<Diff, Refusal> {
        let before = self.document.replace(ordered.document().clone());
        let result = self.reload(workers, process);
        if result.is_err() {
            self.document = before;
        }
        result
    }

    /// Refuses a reload while another process starts: that process would not see the change.
    pub fn refuse_reload(&self) -> Result<Diff, Refusal> {
        let reason = "an upgrade is going on: try again when it is over".to_owned();
        self.note(Err(Refusal::new(Cause::Upgrading, vec![reason])))
    }

    fn note(&self, result: Result<Diff, Refusal>) -> Result<Diff, Refusal> {
        self.tally.note(&result);
        match &result {
            Err(refusal) => {
                for reason in &refusal.reasons {
                    tracing::error!("{reason}");
                }
                tracing::error!(
                    target: "keyway::event::reload-refused",
                    generation = self.version.plan.generation,
                    reason = refusal.cause.label(),
                    "reload refused: nothing was changed"
                );
            }
            Ok(diff) => {
                for warning in &diff.warnings {
                    tracing::warn!("{warning}");
                }
                for change in &diff.changes {
                    tracing::info!("reload: {change}");
                }
                for told in diff.told_rereads() {
                    tracing::info!("reload: {told}");
                }
                let generation = diff.generation;
                match diff.changes.len() {
                    0 => tracing::info!(
                        target: "keyway::event::reloaded",
                        generation,
                        "reloaded: the configuration says what it said; certificates were read \
                         again"
                    ),
                    changes => tracing::info!(
                        target: "keyway::event::reloaded",
                        generation,
                        changes,
                        "reloaded"
                    ),
                }
            }
        }
        result
    }

    fn try_reload(&mut self, workers: &mut Workers, process: &Process) -> Result<Diff, Refusal> {
        let mut new = self.read()?;
        let warnings = new.warnings.iter().map(ToString::to_string).collect();
        new.warnings.clear();
        let changes = diff(&self.file, &new);
        let plan = &self.version.plan;
        if !has_room(&plan.retired) {
            let reason = format!(
                "pools that the last {GENERATIONS_MAX} reloads have replaced are still being \
                 ended; try again when keyway_config_ending_pools is lower (at the latest after \
                 drain_timeout)"
            );
            return Err(Refusal::new(Cause::Draining, vec![reason]));
        }
        let mut merged = self
            .merge(&new, workers.len())
            .map_err(|faults| Refusal::new(Cause::NeedsRestart, faults))?;
        if changes.is_empty()
            && merged.is_same.iter().all(|is_same| *is_same)
            && !self.has_new_users(&merged)
        {
            // The files that the configuration names were read too.
            let rereads = certificates::replace(&self.config, &self.file, &new);
            let generation = plan.generation;
            // Another version of a document may say the same.
            process.set_config(&new);
            self.registrations.follow(&new);
            return Ok(Diff { generation, changes, rereads, warnings });
        }
        let opened = self.open(&merged)?;
        let addresses = self.addresses_with(&merged, &opened);
        certificates::keep_listeners(&self.config, &mut merged.config);
        let sources = Sources {
            config: &merged.config,
            addresses: &addresses,
            clock: self.clock,
            seed: self.seed,
            reloads: &self.tally,
            verifier: self.passwords.verifier(),
        };
        let version = plan::next_plan(&sources, &self.version, &merged);
        self.passwords.start_for(&version.plan).map_err(|error| {
            Refusal::new(Cause::Invalid, vec![format!("cannot start a thread: {error}")])
        })?;
        let logs = self
            .logs
            .of_new_pools(&version.plan, &merged.config)
            .map_err(|error| Refusal::new(Cause::Invalid, vec![format!("{error:#}")]))?;
        let behind = self.follow_with(workers, (&version, &merged.config), opened)?;
        // Nothing fails from here on, so state that is shared with the old settings may change now.
        let rereads = certificates::replace(&self.config, &self.file, &new);
        version.plan.transactions.set_len_max(new.limits.transactions_len_max);
        if behind > 0 {
            tracing::warn!(
                workers = behind,
                "workers serve by the settings before: what they are at, such as a script, takes \
                 long; they change over when it is over"
            );
        }
        process.follow(&version.plan, &version.registry, |index| merged.heir_of[index]);
        process.set_config(&new);
        let token = new.server.admin_token.as_ref();
        crate::operators::admit(&self.access, token, &new.operators);
        peers::watch(&version.plan, Some(&self.version.plan)).unwrap_or_else(|error| {
            tracing::warn!("cannot start a thread: {error}; {NOT_WATCHED}")
        });
        self.snapshots.follow(&version.plan, &merged.config, &self.logs);
        self.logs.adopt(logs);
        self.replicas.follow(&version.plan, &merged.config);
        if self.file.server.log.level != new.server.log.level {
            log::set_level(new.server.log.level);
        }
        self.remove_ended_sockets(&merged);
        self.registrations.follow(&new);
        self.about.set(&new, &version.registry);
        self.version = version;
        self.addresses = addresses;
        self.config = merged.config;
        self.file = new;
        Ok(Diff { generation: merged.generation, changes, rereads, warnings })
    }

    /// Has the workers serve by another plan, whose pools obey the control plane before. Returns how many
    /// workers are behind.
    fn follow_with(
        &self,
        workers: &mut Workers,
        (version, config): (&Version, &Config),
        opened: Vec<(u16, Listener)>,
    ) -> Result<usize, Refusal> {
        self.about.groups().attach(&version.plan, config);
        let behind = workers.follow(&version.plan, &version.registry, opened);
        behind.map_err(|error| {
            self.about.groups().attach(&self.version.plan, &self.config);
            Refusal::new(Cause::Invalid, vec![format!("{error:#}")])
        })
    }

    fn read(&self) -> Result<Config, Refusal> {
        let Some(path) = &self.path else { return Ok(self.file.clone()) };
        let loaded = match &self.document {
            Some(document) => member::load_with(path, document),
            None => Config::load(path),
        };
        loaded.map_err(|errors| {
            Refusal::new(Cause::Invalid, errors.iter().map(ToString::to_string).collect())
        })
    }

    fn merge(&self, new: &Config, workers: usize) -> Result<Merge, Vec<String>> {
        let plan = &self.version.plan;
        let is_left = |index: usize| plan.listeners[index].access.tally.connected() == 0;
        let ended = |index: usize| plan.listeners[index].is_ended.then(|| is_left(index));
        let ended: Vec<Option<bool>> = (0..plan.listeners.len()).map(ended).collect();
        let before = Before {
            config: &self.config,
            generation: plan.generation,
            retired: &plan.retired,
            ended: &ended,
            until: plan::monotonic() + plan.drain_timeout,
            workers,
        };
        merge(&before, new)
    }

    /// Returns the address of each listener of the new settings, if it has one.
    fn addresses_with(
        &self,
        merged: &Merge,
        opened: &[(u16, Listener)],
    ) -> Vec<Option<SocketAddr>> {
        let mut addresses = self.addresses.clone();
        addresses.resize(merged.config.listeners.len(), None);
        for (index, listener) in opened {
            addresses[usize::from(*index)] = listener.local_addr();
        }
        for (address, _) in addresses.iter_mut().zip(&merged.ended).filter(|(_, ended)| **ended) {
            *address = None;
        }
        addresses
    }

    /// Returns whether users have changed. The changes that are reported do not show passwords.
    fn has_new_users(&self, merged: &Merge) -> bool {
        merged.same_users.iter().any(|is_same| !is_same)
    }

    /// Listens on the addresses that are new.
    fn open(&self, merged: &Merge) -> Result<Vec<(u16, Listener)>, Refusal> {
        let mut opened = Vec::new();
        let mut faults = Vec::new();
        for &index in &merged.opened {
            let settings = &merged.config.listeners[index];
            match Listener::bind(&plan::options(settings, &merged.config)) {
                Ok(listener) => opened.push((index as u16, listener)),
                Err(error) => faults.push(match plan::unusable_path(&settings.bind) {
                    Some(why) => format!("cannot listen on {}: {why}", settings.bind),
                    None => error.to_string(),
                }),
            }
        }
        match faults.is_empty() {
            true => Ok(opened),
            false => Err(Refusal::new(Cause::Invalid, faults)),
        }
    }

    /// Removes the files of unix sockets that no listener uses any more.
    fn remove_ended_sockets(&self, merged: &Merge) {
        let before = self.version.plan.listeners.iter().zip(&self.config.listeners);
        for ((plan, settings), _) in
            before.zip(&merged.ended).filter(|((plan, _), ended)| **ended && !plan.is_ended)
        {
            debug_assert!(!plan.is_ended);
            if let ListenAddr::Unix(path) = &settings.bind {
                // A file that is gone already needs no removal.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Returns whether another version may have ending pools. Waits a little for an earlier version to
/// end its own, which takes a tenth of a second if no request is in flight.
#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
fn has_room(retired: &[Retired]) -> bool {
    let since = Instant::now();
    loop {
        if ending_generations(retired) < GENERATIONS_MAX {
            return true;
        }
        if since.elapsed() > ROOM_PATIENCE {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
