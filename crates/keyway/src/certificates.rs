//! Certificates: read again on SIGHUP, and told of in metrics.

use keyway_config::{Config, ListenerTlsConfig, PoolKindConfig, TlsConfig};
use keyway_tls::{ClientTls, ServerTls};
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

/// Has what stays of the configuration in force use the certificates that were read with
/// another: connections from now on are made with them, those that stand go on.
pub fn replace(config: &Config, before: &Config, new: &Config) {
    let name = |settings: &ListenerTlsConfig| settings.settings.clone();
    for listener in &config.listeners {
        let other = new.listeners.iter().find(|other| other.bind == listener.bind);
        let other = other.and_then(|other| other.entrance.tls.as_ref());
        if let (Some(old), Some(new)) = (&listener.entrance.tls, other)
            && name(old) == name(new)
            && let (Some(old), Some(new)) = (&old.loaded, &new.loaded)
        {
            old.replace(new);
        }
    }
    if let (Some(old), Some(new)) = (&config.server.admin_tls, &new.server.admin_tls)
        && name(old) == name(new)
        && let (Some(old), Some(new)) = (&old.loaded, &new.loaded)
    {
        old.replace(new);
    }
    let tls = |pool: &keyway_config::PoolConfig| match &pool.kind {
        PoolKindConfig::Sharded(sharded) => sharded.tls.clone(),
        _ => None,
    };
    for pool in
        config.pools.iter().filter(|pool| before.pools.iter().any(|it| it.name == pool.name))
    {
        let other = new.pools.iter().find(|other| other.name == pool.name).and_then(tls);
        if let (Some(old), Some(new)) = (tls(pool), other)
            && old.settings == new.settings
            && let (Some(old), Some(new)) = (old.loaded, new.loaded)
        {
            old.replace(&new);
        }
    }
}

/// Has listeners whose settings of TLS are the same share what they were read into, so that
/// clients who are coming in meet what is there then.
pub fn keep_listeners(old: &Config, new: &mut Config) {
    for (old, new) in old.listeners.iter().zip(&mut new.listeners) {
        let is_same_place = old.bind == new.bind;
        if let (Some(old), Some(new)) = (&old.entrance.tls, &mut new.entrance.tls)
            && old.settings == new.settings
            && is_same_place
        {
            new.loaded.clone_from(&old.loaded);
        }
    }
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
