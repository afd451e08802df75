//! The entries in etcd and ZooKeeper by which clients find the listeners of this process.
//!
//! Each entry has a thread. Nothing waits for a registry: the process serves without it, and the
//! thread tries again. In an upgrade the next process replaces the entry, so it is there all the
//! time.

use keyway_config::{Config, RegisterConfig, RegistryKind};
use keyway_control::utc;
use keyway_coordinator::{
    Credentials, EtcdSettings, Keeper, Kept, Key, Registry, ZooKeeperSettings,
};
use keyway_tls::{ClientSettings, ClientTls, MinVersion, Trust};
use serde_json::json;

/// The entries of the listeners.
#[derive(Default)]
pub struct Registrations {
    entries: Vec<(RegisterConfig, Keeper)>,
    /// Entries that are being deleted.
    ending: Vec<Keeper>,
    /// The address of the admin listener, or empty text.
    admin: String,
    /// True if the process is ending.
    is_over: bool,
}

impl Registrations {
    /// Creates it without entries. They are made by [`Registrations::follow`].
    pub fn new(admin: String) -> Registrations {
        Registrations { admin, ..Registrations::default() }
    }

    /// Makes the entries of a configuration, and deletes those that it does not have. Entries that
    /// stay as they are, are left alone.
    pub fn follow(&mut self, config: &Config) {
        if self.is_over {
            return;
        }
        let wanted: Vec<&RegisterConfig> =
            config.listeners.iter().filter_map(|listener| listener.register.as_ref()).collect();
        // Dropping one that is not over waits for the registry.
        self.ending.retain(|keeper| !keeper.is_over());
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|(entry, _)| wanted.contains(&entry));
        self.entries = kept;
        self.ending.extend(gone.into_iter().map(|(_, mut keeper)| {
            keeper.end();
            keeper
        }));
        for entry in wanted {
            if self.entries.iter().any(|(other, _)| other == entry) {
                continue;
            }
            match self.keeper(entry) {
                Ok(keeper) => self.entries.push((entry.clone(), keeper)),
                Err(why) => tracing::error!("{} is not registered: {why}", entry.address),
            }
        }
    }

    /// Deletes the entries, and does not wait for that. Dropping waits for a moment.
    pub fn end(&mut self) {
        self.is_over = true;
        self.entries.iter_mut().for_each(|(_, keeper)| keeper.end());
    }

    /// Leaves the entries to the process in this one's place, which replaces them.
    pub fn leave(&mut self) {
        self.is_over = true;
        self.entries.iter_mut().for_each(|(_, keeper)| keeper.leave());
    }

    fn keeper(&self, entry: &RegisterConfig) -> Result<Keeper, String> {
        let name = Key::new(&entry.name).map_err(|fault| fault.to_string())?;
        let value = value(entry, &self.admin).into_bytes();
        let shown = shown(entry);
        let mut last = String::new();
        let tell = move |kept| match kept {
            Kept::Registered => {
                last.clear();
                tracing::info!("registered as {shown}");
            }
            // The log has each reason once.
            Kept::Failed(fault) if last != fault.to_string() => {
                last = fault.to_string();
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
