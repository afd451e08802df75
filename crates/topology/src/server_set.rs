use std::fmt;
use std::time::Duration;

use keyway_base::Limits;

use crate::{Circuit, Distribution, Hash, HashTag, Ring, Server};

/// A secret sent to backends or expected from clients. Printing it does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<str>);

impl Password {
    /// Wraps the secret.
    pub fn new(secret: &str) -> Password {
        Password(secret.into())
    }

    /// Returns the secret itself, to be sent on the wire only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}

/// What happens when an ejected server answers again. Meanwhile its keys were written to other
/// servers, so its values may be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin {
    /// It serves at once, with stale values (as in twemproxy).
    Serve,
    /// It is emptied first, then it serves.
    Flush,
    /// It stays out of use for this long after it answered. `None`: until an operator restores it.
    Quarantine(Option<Duration>),
}

/// The settings that decide when a failing server is taken out of the ring and how it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Failures in a row that eject it, 1 or more (twemproxy: `server_failure_limit`, 2 by
    /// default). They are counted up to 100,000.
    pub after_failures: u32,
    /// Time for which it stays out before it is tried again (twemproxy: `server_retry_timeout`, 30
    /// s by default).
    pub for_: Duration,
    /// What happens when it answers again.
    pub rejoin: Rejoin,
}

/// The servers of a pool, which server a key belongs to, and how Keyway connects to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSet {
    /// The servers, 1 to 65,535, in the order configured. The order affects placement with the
    /// distributions of libmemcached and PHP's memcache only. In a pool that finds its servers
    /// itself, each of these is a position that a server may take.
    pub servers: Vec<Server>,
    /// The function that hashes keys.
    pub hash: Hash,
    /// The way from a hash to a server.
    pub distribution: Distribution,
    /// The part of a key that is hashed. `None`: the whole key.
    pub hash_tag: Option<HashTag>,
    /// Times, bounds and credentials.
    pub options: ServerOptions,
}

/// How Keyway connects to servers, whatever kind of pool they are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Longest wait for a reply once a request was sent. `Duration::MAX`: no bound.
    pub timeout: Duration,
    /// Longest time for a connection and its handshake.
    pub connect_timeout: Duration,
    /// Connections of a worker to each server, 1 or more. With more than one, requests for
    /// different keys may overtake each other.
    pub server_connections: u16,
    /// Whether to connect to every server at the start rather than at the first request.
    pub preconnect: bool,
    /// The password sent to servers with `AUTH`, or with SASL PLAIN.
    pub password: Option<Password>,
    /// Database selected on every server connection, from 0.
    pub database: u32,
    /// Number of databases that a client may `SELECT`, from 0 on. 1 allows only database 0.
    pub databases_allowed: u32,
    /// True if clients may empty every server with `FLUSHDB` and `FLUSHALL`.
    pub allow_flush: bool,
    /// Least time after which a request counts as slow. `Duration::MAX`: no request does.
    pub slower_than: Duration,
    /// Number of slow requests kept.
    pub slow_log_len_max: u32,
    /// When servers are ejected. `None`: never.
    pub ejection: Option<Ejection>,
    /// When servers are not asked for a while. `None`: they are always asked.
    pub circuit: Option<Circuit>,
    /// Wait before the first attempt to reconnect. It doubles with each failure.
    pub reconnect_min: Duration,
    /// Longest wait between attempts to reconnect.
    pub reconnect_max: Duration,
    /// Most requests queued on one connection, sent or not. Beyond that, clients that need the
    /// connection are left unread.
    pub link_in_flight_max: u32,
    /// Most unsent bytes on one connection. Beyond that, clients that need the connection are left
    /// unread.
    pub link_output_len_max: u32,
}

impl Default for ServerOptions {
    /// Returns options without ejection, and with times that suit a local network.
    fn default() -> ServerOptions {
        let limits = Limits::default();
        ServerOptions {
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_millis(500),
            server_connections: 1,
            preconnect: false,
            password: None,
            database: 0,
            databases_allowed: 1,
            allow_flush: false,
            slower_than: Duration::from_millis(10),
            slow_log_len_max: 128,
            ejection: None,
            circuit: None,
            reconnect_min: Duration::from_millis(50),
            reconnect_max: Duration::from_secs(5),
            link_in_flight_max: limits.link_in_flight_max,
            link_output_len_max: limits.link_output_len_max,
        }
    }
}

impl ServerSet {
    /// Creates a set with every setting at its default, and twemproxy's placement (`fnv1a_64`,
    /// `ketama`, no tag).
    pub fn new(servers: Vec<Server>) -> ServerSet {
        ServerSet {
            servers,
            hash: Hash::Fnv1a64,
            distribution: Distribution::Ketama,
            hash_tag: None,
            options: ServerOptions::default(),
        }
    }

    /// Returns the hash that decides the server of `key`. If the key has a tag, the tag is hashed.
    /// As in twemproxy, an empty key hashes to 0 under every function, and a pool of one server
    /// hashes nothing.
    #[inline]
    pub fn hash_key(&self, key: &[u8]) -> u32 {
        if self.servers.len() == 1 {
            return 0;
        }
        let hashed = match self.hash_tag {
            Some(tag) => tag.of(key),
            None => key,
        };
        if hashed.is_empty() { 0 } else { self.hash.hash(hashed) }
    }

    /// Returns the ring over the servers for which `live` holds, by index.
    pub fn ring(&self, live: impl Fn(usize) -> bool) -> Ring {
        Ring::build(self.distribution, self.hash, &self.servers, live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_never_printed() {
        let mut set = ServerSet::new(vec![Server::parse("h:1").unwrap()]);
        set.options.password = Some(Password::new("open sesame"));
        assert!(!format!("{set:?}").contains("sesame"));
        let password = set.options.password.unwrap();
        assert_eq!(password.expose(), "open sesame");
    }

    #[test]
    fn empty_keys_and_pools_of_one_server_are_not_hashed() {
        let mut set = ServerSet::new(vec![Server::parse("h:1").unwrap()]);
        set.hash = Hash::Md5;
        assert_eq!(set.hash_key(b"key"), 0);
        set.servers.push(Server::parse("h:2").unwrap());
        assert_eq!(set.hash_key(b""), 0);
        assert_eq!(set.hash_key(b"a{b}"), Hash::Md5.hash(b"a{b}"));
        set.hash_tag = Some(HashTag::BRACES);
        assert_eq!(set.hash_key(b"a{b}"), Hash::Md5.hash(b"b"));
    }
}
