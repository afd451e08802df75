//! Certificates: read again on SIGHUP, and shown in metrics.

use keyway_config::{Config, ListenerTlsConfig};
use keyway_tls::{ClientTls, Dated, ServerTls};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Makes the remaining parts of the configuration in force use the certificates that were read with
/// `new`. New connections use them; open ones go on. Returns the files whose certificates have
/// changed.
pub fn replace(config: &Config, before: &Config, new: &Config) -> Vec<String> {
    let mut changed = BTreeSet::new();
    let mut note = |old: &[Dated], new: &[Dated]| {
        let is_new = |file: &&Dated| !old.contains(file);
        changed.extend(new.iter().filter(is_new).map(|file| file.path.display().to_string()));
    };
    let name = |settings: &ListenerTlsConfig| settings.settings.clone();
    for listener in &config.listeners {
        let other = new.listeners.iter().find(|other| other.bind == listener.bind);
        let other = other.and_then(|other| other.access.tls.as_ref());
        if let (Some(old), Some(new)) = (&listener.access.tls, other)
            && name(old) == name(new)
            && let (Some(old), Some(new)) = (&old.loaded, &new.loaded)
        {
            note(&old.files(), &new.files());
            old.replace(new);
        }
    }
    if let (Some(old), Some(new)) = (&config.server.admin_tls, &new.server.admin_tls)
        && name(old) == name(new)
        && let (Some(old), Some(new)) = (&old.loaded, &new.loaded)
    {
        note(&old.files(), &new.files());
        old.replace(new);
    }
    let tls = |pool: &keyway_config::PoolConfig| pool.kind.servers()?.1.tls.clone();
    for pool in
        config.pools.iter().filter(|pool| before.pools.iter().any(|it| it.name == pool.name))
    {
        let other = new.pools.iter().find(|other| other.name == pool.name).and_then(tls);
        if let (Some(old), Some(new)) = (tls(pool), other)
            && old.settings == new.settings
            && let (Some(old), Some(new)) = (old.loaded, new.loaded)
        {
            note(&old.files(), &new.files());
            old.replace(&new);
        }
    }
    changed.into_iter().collect()
}

/// Makes listeners, and the admin listener, keep their loaded TLS state if their TLS settings are
/// the same. So clients whose handshake is under way get certificates that are replaced later.
pub fn keep_listeners(old: &Config, new: &mut Config) {
    if let (Some(old), Some(new)) = (&old.server.admin_tls, &mut new.server.admin_tls)
        && old.settings == new.settings
    {
        new.loaded.clone_from(&old.loaded);
    }
    for (old, new) in old.listeners.iter().zip(&mut new.listeners) {
        let is_same_place = old.bind == new.bind;
        if let (Some(old), Some(new)) = (&old.access.tls, &mut new.access.tls)
            && old.settings == new.settings
            && is_same_place
        {
            new.loaded.clone_from(&old.loaded);
        }
    }
}

/// Returns every file with certificates in use, and when the first of them expires: of the
/// listeners and the pools at those positions, and of the admin listener.
pub fn expiries(
    config: &Config,
    is_listener: impl Fn(usize) -> bool,
    is_pool: impl Fn(usize) -> bool,
) -> impl Fn() -> Vec<(String, i64)> + Send + Sync + 'static {
    let listeners = config.listeners.iter().enumerate().filter(|(index, _)| is_listener(*index));
    let listeners = listeners.filter_map(|(_, listener)| listener.access.tls.as_ref());
    let listeners: Vec<ServerTls> =
        listeners.chain(&config.server.admin_tls).filter_map(|tls| tls.loaded.clone()).collect();
    let pools = config.pools.iter().enumerate().filter(|(index, _)| is_pool(*index));
    let pools = pools.filter_map(|(_, pool)| pool.kind.servers()?.1.tls.as_ref());
    let pools: Vec<ClientTls> = pools.filter_map(|tls| tls.loaded.clone()).collect();
    move || {
        let of_listeners = listeners.iter().map(ServerTls::files);
        by_file(of_listeners.chain(pools.iter().map(ClientTls::files)))
    }
}

/// Returns each of the files, and when the first of its certificates expires.
pub fn by_file(all: impl Iterator<Item = Arc<[Dated]>>) -> Vec<(String, i64)> {
    let mut by_file = BTreeMap::new();
    for dated in all.flat_map(|files| files.to_vec()) {
        let first: &mut i64 =
            by_file.entry(dated.path.display().to_string()).or_insert(dated.not_after);
        *first = dated.not_after.min(*first);
    }
    by_file.into_iter().collect()
}
