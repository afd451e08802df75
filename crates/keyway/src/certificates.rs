//! Certificates: read again on SIGHUP, and told of in metrics.

use keyway_config::{Config, ListenerTlsConfig, PoolKindConfig, TlsConfig, read_file};
use keyway_tls::{ClientTls, FileFault, ServerTls};
use std::collections::BTreeMap;

/// What connections are secured with, and how its files are named.
struct Users<'c> {
    listeners: Vec<(String, &'c ListenerTlsConfig)>,
    pools: Vec<(String, &'c TlsConfig)>,
}

fn users(config: &Config) -> Users<'_> {
    let listeners = config.listeners.iter().filter_map(|listener| {
        Some((format!("listener {}", listener.bind), listener.entrance.tls.as_ref()?))
    });
    let pools = config.pools.iter().filter_map(|pool| match &pool.kind {
        PoolKindConfig::Sharded(sharded) => {
            Some((format!("pool {}", pool.name), sharded.tls.as_ref()?))
        }
        _ => None,
    });
    let admin = config.server.admin_tls.iter().map(|tls| ("admin".to_owned(), tls));
    Users { listeners: listeners.chain(admin).collect(), pools: pools.collect() }
}

/// What came of reading the files again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reread {
    /// How many listeners have certificates, that of the admin address counted.
    pub listeners: usize,
    /// How many pools have.
    pub pools: usize,
    /// What is suspicious about the files.
    pub warnings: Vec<String>,
}

/// Reads the files again that the configuration names. Connections from now on are made with
/// what is in them, those that stand go on.
///
/// # Errors
/// Everything that is wrong with them: then nothing has changed.
pub fn reread(config: &Config) -> Result<Reread, Vec<String>> {
    let Users { listeners, pools } = users(config);
    let (mut faults, mut warnings) = (Vec::new(), Vec::new());
    let (mut servers, mut clients) = (Vec::new(), Vec::new());
    for (name, tls) in &listeners {
        match ServerTls::load(&tls.settings, &read_file) {
            Ok(loaded) => {
                warnings.extend(told(name, &loaded.warnings));
                servers.extend(tls.loaded.as_ref().map(|old| (old, loaded.tls)));
            }
            Err(wrong) => faults.extend(told(name, &wrong)),
        }
    }
    for (name, tls) in &pools {
        match ClientTls::load(&tls.settings, &read_file) {
            Ok(loaded) => {
                warnings.extend(told(name, &loaded.warnings));
                clients.extend(tls.loaded.as_ref().map(|old| (old, loaded.tls)));
            }
            Err(wrong) => faults.extend(told(name, &wrong)),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    servers.iter().for_each(|(old, new)| old.replace(new));
    clients.iter().for_each(|(old, new)| old.replace(new));
    Ok(Reread { listeners: listeners.len(), pools: pools.len(), warnings })
}

fn told<'f>(name: &'f str, faults: &'f [FileFault]) -> impl Iterator<Item = String> + 'f {
    faults.iter().map(move |fault| format!("{name}: {}; {}", fault.what, fault.hint))
}

/// Every file with certificates, and when they expire.
pub fn expiries(config: &Config) -> impl Fn() -> Vec<(String, i64)> + Send + Sync + 'static {
    let Users { listeners, pools } = users(config);
    let listeners: Vec<ServerTls> =
        listeners.into_iter().filter_map(|(_, tls)| tls.loaded.clone()).collect();
    let pools: Vec<ClientTls> =
        pools.into_iter().filter_map(|(_, tls)| tls.loaded.clone()).collect();
    move || {
        let of_listeners = listeners.iter().map(ServerTls::files);
        let all = of_listeners.chain(pools.iter().map(ClientTls::files));
        let mut by_file = BTreeMap::new();
        for dated in all.flat_map(|files| files.to_vec()) {
            by_file.insert(dated.path.display().to_string(), dated.not_after);
        }
        by_file.into_iter().collect()
    }
}
