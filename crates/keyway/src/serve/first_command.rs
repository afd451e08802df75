//! The command that the log suggests at the start. It writes only to an embedded store. Other pools
//! lead to servers, whose keys belong to an application.

use keyway_config::{Config, ListenerConfig, PoolKindConfig, Protocol};

/// Returns a command for the first listener that a person can talk to. `names` are the addresses of
/// the listeners.
pub(super) fn of(config: &Config, names: &[String]) -> Option<String> {
    // A person cannot type a header of the PROXY protocol.
    let is_typed = |listener: &ListenerConfig| listener.access.proxies.is_none();
    let mut listeners = config.listeners.iter().zip(names);
    let (listener, name) = listeners.find(|(listener, _)| is_typed(listener))?;
    let is_store = matches!(config.pool_of(listener).kind, PoolKindConfig::Store(_));
    match listener.protocol {
        Protocol::Redis => redis_command(listener, name, is_store),
        Protocol::Memcached { .. } => memcached_command(listener, name, is_store),
    }
}

fn redis_command(listener: &ListenerConfig, name: &str, is_store: bool) -> Option<String> {
    // The operator decides which user logs in and what that user may do.
    if !listener.users.is_empty() {
        return None;
    }
    let tls = if listener.access.tls.is_some() { "--tls --cacert CA.pem " } else { "" };
    let (login, is_store) = match listener.password {
        Some(_) => (" --askpass", false),
        None => ("", is_store),
    };
    // A client that sends no hello is served over the socket of `shm://` as well.
    if let Some(path) = name.strip_prefix("unix://").or(name.strip_prefix("shm://")) {
        return Some(format!("redis-cli {tls}-s {path}{login} ping"));
    }
    let (host, port) = name.rsplit_once(':')?;
    let host = match host.trim_start_matches('[').trim_end_matches(']') {
        "127.0.0.1" | "0.0.0.0" => String::new(),
        host => format!("-h {host} "),
    };
    let command = if is_store { "set greeting hello" } else { "ping" };
    Some(format!("redis-cli {tls}{host}-p {port}{login} {command}"))
}

fn memcached_command(listener: &ListenerConfig, name: &str, is_store: bool) -> Option<String> {
    if listener.access.tls.is_some() || listener.password.is_some() || !listener.users.is_empty() {
        return None;
    }
    let at = match name.strip_prefix("unix://") {
        Some(path) => format!("-U {path}"),
        None => {
            let (host, port) = name.rsplit_once(':')?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            format!("{} {port}", if host == "0.0.0.0" { "127.0.0.1" } else { host })
        }
    };
    let commands = match is_store {
        true => r"set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n",
        false => r"version\r\nquit\r\n",
    };
    Some(format!("printf '{commands}' | nc {at}"))
}
