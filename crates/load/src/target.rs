//! The target of a load: a server, or a server of a cluster.

use keyway_net::Address;
use keyway_tls::ClientTls;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The protocol that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP, version 2.
    Resp2,
    /// RESP, version 3. A connection begins with `HELLO 3`.
    Resp3,
    /// memcached's classic text protocol.
    MemcachedText,
    /// memcached's meta commands.
    MemcachedMeta,
    /// memcached's binary protocol.
    MemcachedBinary,
}

impl Protocol {
    /// All protocols with the names that options use.
    pub const NAMES: [(&'static str, Protocol); 5] = [
        ("resp2", Protocol::Resp2),
        ("resp3", Protocol::Resp3),
        ("memcached-text", Protocol::MemcachedText),
        ("memcached-meta", Protocol::MemcachedMeta),
        ("memcached-binary", Protocol::MemcachedBinary),
    ];

    /// Returns whether the protocol is one of Redis's.
    pub fn is_redis(self) -> bool {
        matches!(self, Protocol::Resp2 | Protocol::Resp3)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Protocol::NAMES.iter().find(|(_, known)| known == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Protocol, String> {
        let found = Protocol::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, protocol)| *protocol).ok_or_else(|| {
            let names = Protocol::NAMES.map(|(name, _)| name).join(", ");
            format!("{text:?} is no protocol: {names} are")
        })
    }
}

/// The target of a load: its address and how to connect.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address of its listener.
    pub address: Address,
    /// The protocol that is spoken.
    pub protocol: Protocol,
    /// The name of the user, beside a password.
    pub user: Option<String>,
    /// The password. It is sent by AUTH, in memcached's binary protocol by SASL PLAIN, and in its
    /// text protocols as the value of a first `set`.
    pub password: Option<String>,
    /// The TLS of connections, over TCP only.
    pub tls: Option<ClientTls>,
    /// The database to select, on Redis only.
    pub database: u32,
    /// True if the target is one server of a Redis Cluster. Each primary is then asked directly for
    /// its own slots.
    pub is_cluster: bool,
    /// Longest time until a connection is established, and until the first reply on it.
    pub patience: Duration,
}

impl Target {
    /// Creates a target without a password.
    pub fn new(address: Address, protocol: Protocol) -> Target {
        Target {
            address,
            protocol,
            user: None,
            password: None,
            tls: None,
            database: 0,
            is_cluster: false,
            patience: Duration::from_secs(5),
        }
    }
}
