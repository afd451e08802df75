//! What is put under load.

use keyway_net::Address;
use keyway_tls::ClientTls;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The protocol that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Redis's, version 2.
    Resp2,
    /// Redis's, version 3: a connection begins with `HELLO 3`.
    Resp3,
    /// memcached's classic text.
    MemcachedText,
    /// memcached's meta commands.
    MemcachedMeta,
    /// memcached's packets.
    MemcachedBinary,
}

impl Protocol {
    /// All, by the names they are asked for by.
    pub const NAMES: [(&'static str, Protocol); 5] = [
        ("resp2", Protocol::Resp2),
        ("resp3", Protocol::Resp3),
        ("memcached-text", Protocol::MemcachedText),
        ("memcached-meta", Protocol::MemcachedMeta),
        ("memcached-binary", Protocol::MemcachedBinary),
    ];

    /// Returns whether it is one of Redis's.
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

/// What is put under load: where it is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub address: Address,
    /// The protocol that is spoken.
    pub protocol: Protocol,
    /// The user to be, beside a password.
    pub user: Option<String>,
    /// The password to say: by AUTH, on memcached by SASL PLAIN in packets and else as the value of a
    /// first `set`.
    pub password: Option<String>,
    /// Connections are secured by this; over TCP only.
    pub tls: Option<ClientTls>,
    /// The database to select; Redis's only.
    pub database: u32,
    /// True if it is one server of a Redis Cluster, each of whose primaries is then asked
    /// directly for its own slots.
    pub is_cluster: bool,
    /// How long a connection, or the first answer on it, may take.
    pub patience: Duration,
}

impl Target {
    /// A server without password.
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
