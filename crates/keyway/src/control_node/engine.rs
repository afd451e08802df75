//! The coordinator of a control node, from its file.

use anyhow::{Result, bail};
use keyway_config::{ControlNodeConfig, CoordinatorConfig, EngineConfig};
use keyway_control::Engine;
use keyway_coordinator::{Credentials, EtcdSettings, FilesSettings, Patience, ZooKeeperSettings};
use keyway_tls::{ClientSettings, ClientTls, MinVersion, Trust};
use std::time::Duration;

/// How long calls take at most. A node that waits longer is no leader any more.
pub(super) const PATIENCE: Patience =
    Patience { request: Duration::from_secs(1), call: Duration::from_secs(3) };

/// Returns the coordinator for people.
pub fn shown(config: &ControlNodeConfig) -> String {
    match &config.coordinator {
        CoordinatorConfig::Files(dir) => format!("files in {}", dir.display()),
        CoordinatorConfig::Etcd(engine) => format!("etcd at {}", engine.endpoints.join(", ")),
        CoordinatorConfig::ZooKeeper(engine) => {
            format!("ZooKeeper at {}", engine.endpoints.join(", "))
        }
    }
}

/// Returns the settings of the coordinator.
///
/// # Errors
/// Returns what is wrong with the files for TLS.
pub fn engine(config: &ControlNodeConfig) -> Result<Engine> {
    let cluster = &config.cluster;
    Ok(match &config.coordinator {
        CoordinatorConfig::Files(dir) => {
            let settings = FilesSettings::new(dir.clone(), cluster);
            Engine::Files(FilesSettings { patience: PATIENCE, ..settings })
        }
        CoordinatorConfig::Etcd(engine) => {
            let settings = EtcdSettings::new(&[], cluster);
            Engine::Etcd(EtcdSettings {
                endpoints: engine.endpoints.clone(),
                tls: tls(engine)?,
                user: user(engine),
                root: engine.root.clone().unwrap_or(settings.root),
                patience: PATIENCE,
                ..EtcdSettings::new(&[], cluster)
            })
        }
        CoordinatorConfig::ZooKeeper(engine) => {
            let settings = ZooKeeperSettings::new(&[], cluster);
            Engine::ZooKeeper(ZooKeeperSettings {
                endpoints: engine.endpoints.clone(),
                tls: tls(engine)?,
                user: user(engine),
                root: engine.root.clone().unwrap_or(settings.root),
                patience: PATIENCE,
                ..ZooKeeperSettings::new(&[], cluster)
            })
        }
    })
}

fn user(engine: &EngineConfig) -> Option<Credentials> {
    let (name, password) = engine.user.as_ref()?;
    Some(Credentials { name: name.clone(), password: password.expose().to_owned() })
}

fn tls(engine: &EngineConfig) -> Result<Option<ClientTls>> {
    let Some(ca_file) = &engine.ca_file else { return Ok(None) };
    let settings = ClientSettings {
        trust: Trust::Authorities(ca_file.clone()),
        identity: None,
        server_name: None,
        min_version: MinVersion::V1_2,
    };
    match ClientTls::load(&settings, &keyway_config::read_file) {
        Ok(loaded) => Ok(Some(loaded.tls)),
        Err(faults) => {
            let lines = faults.iter().map(|fault| format!("{}; {}", fault.what, fault.hint));
            bail!("{}", lines.collect::<Vec<_>>().join("\n"))
        }
    }
}
