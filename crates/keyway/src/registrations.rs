//! The entries in etcd and ZooKeeper by which clients find the listeners of this process.
//!
//! Each entry has a thread. Nothing waits for a registry: the process serves without it, and the
//! thread tries again. In an upgrade the next process replaces the entry, so it is there all the
//! time.

use keyway_config::{Config, ListenerConfig, RegisterConfig, RegistryKind};
use keyway_control::utc;
use keyway_coordinator::{
    Credentials, EtcdSettings, Keeper, Kept, Key, Registry, ZooKeeperSettings,
};
use keyway_tls::{ClientSettings, ClientTls, MinVersion, Trust};
use serde_json::json;
use std::time::{Duration, Instant};

/// Longest wait for the registry when a process ends: until clients no longer find it, and until
/// it exits.
const END_WITHIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// The entries of the listeners.
pub struct Registrations {
    entries: Vec<Entry>,
    /// Entries that are being deleted.
    ending: Vec<Keeper>,
    /// The address of the admin listener, or empty text.
    admin: String,
    /// True if the process is ending.
    is_over: bool,
}

struct Entry {
    config: RegisterConfig,
    /// The text of `ca_file`.
    authorities: Option<Vec<u8>>,
    keeper: Keeper,
}

impl Registrations {
    /// Creates it without entries. They are made by [`Registrations::follow`].
    pub fn new(admin: String) -> Registrations {
        Registrations { entries: Vec::new(), ending: Vec::new(), admin, is_over: false }
    }

    /// Makes the entries of a configuration, and deletes those that it does not have. Unchanged
    /// entries are not touched.
    pub fn follow(&mut self, config: &Config) {
        if self.is_over {
            return;
        }
        let register = |listener: &ListenerConfig| listener.register.clone();
        let of_file = |config: RegisterConfig| {
            let authorities = config.ca_file.as_ref().and_then(|file| std::fs::read(file).ok());
            (config, authorities)
        };
        let wanted: Vec<_> = config.listeners.iter().filter_map(register).map(of_file).collect();
        self.ending.retain(|keeper| !keeper.wait(Duration::ZERO));
        let is_wanted = |entry: &Entry| {
            wanted.iter().any(|(config, authorities)| {
                entry.config == *config && entry.authorities == *authorities
            })
        };
        let (kept, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.entries).into_iter().partition(is_wanted);
        self.entries = kept;
        for mut entry in gone {
            entry.keeper.end();
            self.ending.push(entry.keeper);
        }
        for (config, authorities) in wanted {
            if self.entries.iter().any(|entry| entry.config == config) {
                continue;
            }
            match self.keeper(&config) {
                Ok(keeper) => self.entries.push(Entry { config, authorities, keeper }),
                Err(why) => tracing::error!("{} is not registered: {why}", config.address),
            }
        }
    }

    /// Deletes the entries. Waits for that, but not for long.
    pub fn end(&mut self) {
        self.is_over = true;
        for mut entry in std::mem::take(&mut self.entries) {
            entry.keeper.end();
            self.ending.push(entry.keeper);
        }
        self.wait(END_WITHIN[0]);
    }

    /// Leaves the entries to the process in this one's place, which replaces them.
    pub fn leave(&mut self) {
        self.is_over = true;
        self.entries.iter_mut().for_each(|entry| entry.keeper.leave());
    }

    /// Waits until the entries that are being deleted are gone, for this time in all.
    #[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
    fn wait(&mut self, within: Duration) {
        let until = Instant::now() + within;
        self.ending.retain(|keeper| !keeper.wait(until.saturating_duration_since(Instant::now())));
    }

    fn keeper(&self, entry: &RegisterConfig) -> Result<Keeper, String> {
        let name = Key::new(&entry.name).map_err(|fault| fault.to_string())?;
        let value = value(entry, &self.admin).into_bytes();
        let shown = shown(entry);
        let mut last = None;
        let tell = move |kept| match kept {
            Kept::Registered => {
                last = None;
                tracing::info!("registered as {shown}");
            }
            // The log has each kind of reason once, whichever server gives it.
            Kept::Failed(fault) if last != Some(fault.kind()) => {
                last = Some(fault.kind());
                tracing::warn!("not registered as {shown}: {fault}; it is tried again");
            }
            Kept::Failed(_) => {}
            Kept::Lost(Some(fault)) => {
                tracing::warn!("the entry {shown} is lost: {fault}; it is made anew");
            }
            Kept::Lost(None) => tracing::warn!("the entry {shown} is lost; it is made anew"),
            Kept::Ended => tracing::info!("no longer registered as {shown}"),
        };
        Keeper::start(registry(entry)?, name, value, entry.lease, tell)
            .map_err(|error| format!("cannot start a thread: {error}"))
    }
}

impl Drop for Registrations {
    fn drop(&mut self) {
        self.wait(END_WITHIN[1]);
    }
}

/// Returns the entry for people.
fn shown(entry: &RegisterConfig) -> String {
    let kind = match entry.kind {
        RegistryKind::Etcd => "etcd",
        RegistryKind::ZooKeeper => "ZooKeeper",
    };
    format!("{}/{} in {kind} at {}", entry.path, entry.name, entry.endpoints.join(", "))
}

/// Returns the bytes of the entry, in the form that clients of jodis read.
fn value(entry: &RegisterConfig, admin: &str) -> String {
    let start = utc(crate::serve::wall_clock().unix_micros / 1_000_000);
    json!({
        "addr": entry.address,
        "admin": admin,
        "start": start,
        "token": entry.name,
        "state": "online",
    })
    .to_string()
}

fn registry(entry: &RegisterConfig) -> Result<Registry, String> {
    // A path begins with a slash.
    let (root, cluster) = entry.path.rsplit_once('/').unwrap_or_default();
    let password = entry.password.as_ref().map(|password| password.expose().to_owned());
    let user = entry.user.clone().zip(password);
    let user = user.map(|(name, password)| Credentials { name, password });
    let (tls, endpoints, root) = (tls(entry)?, entry.endpoints.clone(), root.to_owned());
    Ok(match entry.kind {
        RegistryKind::Etcd => {
            let usual = EtcdSettings::new(&[], cluster);
            Registry::Etcd(EtcdSettings { endpoints, tls, user, root, ..usual })
        }
        RegistryKind::ZooKeeper => {
            let usual = ZooKeeperSettings::new(&[], cluster);
            Registry::ZooKeeper(ZooKeeperSettings { endpoints, tls, user, root, ..usual })
        }
    })
}

fn tls(entry: &RegisterConfig) -> Result<Option<ClientTls>, String> {
    let Some(ca_file) = &entry.ca_file else { return Ok(None) };
    let settings = ClientSettings {
        trust: Trust::Authorities(ca_file.clone()),
        identity: None,
        server_name: None,
        min_version: MinVersion::V1_2,
    };
    let loaded = ClientTls::load(&settings, &keyway_config::read_file);
    loaded.map(|loaded| Some(loaded.tls)).map_err(|faults| {
        let lines = faults.iter().map(|fault| format!("{}; {}", fault.what, fault.hint));
        lines.collect::<Vec<_>>().join("; ")
    })
}
