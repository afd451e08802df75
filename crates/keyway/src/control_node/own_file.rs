//! The file of a control node, and the parts of it that are read again on SIGHUP.

use crate::certificates::by_file;
use crate::expiry::Expiry;
use keyway_base::Time;
use keyway_config::{BusTls, ControlNodeConfig};
use keyway_control::{Access, Engine};
use keyway_fleet::Event;
use keyway_tls::{ClientTls, ServerTls};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A control node's file, with the certificates that it names.
pub(super) struct OwnFile {
    path: PathBuf,
    access: Access,
    admin: SocketAddr,
    /// The certificate of the admin listener.
    admin_tls: Option<ServerTls>,
    /// The authorities of the coordinator.
    coordinator_tls: Option<ClientTls>,
    expiry: Expiry,
}

impl OwnFile {
    pub fn new(path: &Path, config: &ControlNodeConfig, access: Access, engine: &Engine) -> Self {
        OwnFile {
            path: path.to_owned(),
            access,
            admin: config.admin,
            admin_tls: config.admin_tls.as_ref().and_then(|tls| tls.loaded.clone()),
            coordinator_tls: match engine {
                Engine::Files(_) => None,
                Engine::Etcd(settings) => settings.tls.clone(),
                Engine::ZooKeeper(settings) => settings.tls.clone(),
            },
            expiry: Expiry::default(),
        }
    }

    /// Reads the operators and the certificate of the admin listener again. Requests and connections
    /// from now on use the new ones.
    pub fn reread(&self) {
        let config = match ControlNodeConfig::load(&self.path) {
            Ok(config) => config,
            Err(errors) => {
                errors.iter().for_each(|error| tracing::error!("{error}"));
                tracing::error!("operators not read again: those of before are used");
                return;
            }
        };
        if config.admin != self.admin {
            tracing::error!(
                "operators not read again: admin is another address in the file, and {} is \
                 listened at until a restart",
                self.admin
            );
            return;
        }
        crate::operators::admit(&self.access, config.admin_token.as_ref(), &config.operators);
        tracing::info!(operators = config.operators.len(), "operators read again");
        let newer = config.admin_tls.as_ref().and_then(|tls| tls.loaded.as_ref());
        match (&self.admin_tls, newer) {
            (Some(tls), Some(newer)) => {
                tls.replace(newer);
                tracing::info!("certificate of the admin listener read again");
            }
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => {
                tracing::error!("admin_tls was added or removed: that takes a restart");
            }
        }
    }

    /// Returns events about certificates that are about to expire, once an hour: those of this file
    /// and those of the bus.
    pub fn expiries(&mut self, bus: Option<&BusTls>, now: Time, unix_seconds: u64) -> Vec<Event> {
        if !self.expiry.is_due(now) {
            return Vec::new();
        }
        let of_admin = self.admin_tls.iter().map(ServerTls::files);
        let of_coordinator = self.coordinator_tls.iter().map(ClientTls::files);
        let of_bus = bus.into_iter().map(|tls| tls.loaded.files());
        self.expiry.look(by_file(of_admin.chain(of_coordinator).chain(of_bus)), unix_seconds)
    }
}
