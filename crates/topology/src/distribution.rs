use std::borrow::Cow;

use crate::{Endpoint, Hash, Server};

/// How the hash of a key leads to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Consistent hashing, as in twemproxy. When a server is added or removed, only its own share
    /// of the keys moves.
    Ketama,
    /// The hash modulo the sum of the weights. When a server is added or removed, nearly every key
    /// moves.
    Modula,
    /// A random server, whatever the key and the weights.
    Random,
    /// libmemcached's continuum of its behaviour `ketama`: 100 points for each server, placed by
    /// the pool's own hash. As soon as one server weighs more than 1, the continuum is that of
    /// [`Distribution::KetamaWeightedLibmemcached`].
    KetamaLibmemcached,
    /// libmemcached's continuum of its behaviour `ketama_weighted`: 160 points for the average
    /// server, placed by MD5 whichever hash the keys have.
    KetamaWeightedLibmemcached,
    /// libmemcached's default: the hash modulo the number of servers, in the
    /// order listed; weights do not count.
    ModulaLibmemcached,
    /// Strategy `standard` of PHP's extension memcache: 15 bits of the hash
    /// modulo the sum of the weights, servers in the order listed.
    PhpMemcacheStandard,
    /// Strategy `consistent` of PHP's extension memcache: 1024 buckets over 160
    /// points per unit of weight, placed by the pool's own hash.
    PhpMemcacheConsistent,
    /// Highest random weight: each server draws a number for the key, and the highest wins. Only
    /// keys that have to move do. A lookup visits every server.
    Rendezvous,
    /// Google's Maglev: a table of 65,537 entries that the servers fill in turn. Shares are exact.
    /// A change also moves a few keys of servers that stay.
    Maglev,
}

impl Distribution {
    /// Every distribution.
    pub const ALL: [Distribution; 10] = [
        Distribution::Ketama,
        Distribution::Modula,
        Distribution::Random,
        Distribution::KetamaLibmemcached,
        Distribution::KetamaWeightedLibmemcached,
        Distribution::ModulaLibmemcached,
        Distribution::PhpMemcacheStandard,
        Distribution::PhpMemcacheConsistent,
        Distribution::Rendezvous,
        Distribution::Maglev,
    ];

    /// The distributions that twemproxy has, under its names.
    pub const TWEMPROXY: [Distribution; 3] =
        [Distribution::Ketama, Distribution::Modula, Distribution::Random];

    /// Returns the name in configuration files. For [`Distribution::TWEMPROXY`] it is also
    /// twemproxy's name.
    pub const fn name(self) -> &'static str {
        match self {
            Distribution::Ketama => "ketama",
            Distribution::Modula => "modula",
            Distribution::Random => "random",
            Distribution::KetamaLibmemcached => "ketama-libmemcached",
            Distribution::KetamaWeightedLibmemcached => "ketama-weighted-libmemcached",
            Distribution::ModulaLibmemcached => "modula-libmemcached",
            Distribution::PhpMemcacheStandard => "php-memcache-standard",
            Distribution::PhpMemcacheConsistent => "php-memcache-consistent",
            Distribution::Rendezvous => "rendezvous",
            Distribution::Maglev => "maglev",
        }
    }

    /// Returns the distribution called `name`.
    pub fn from_name(name: &str) -> Option<Distribution> {
        Distribution::ALL.into_iter().find(|distribution| distribution.name() == name)
    }

    /// Returns the default hash: that of the client whose distribution it is, else twemproxy's.
    pub const fn default_hash(self) -> Hash {
        match self {
            Distribution::KetamaLibmemcached | Distribution::ModulaLibmemcached => Hash::OneAtATime,
            Distribution::KetamaWeightedLibmemcached => Hash::Md5,
            Distribution::PhpMemcacheStandard | Distribution::PhpMemcacheConsistent => Hash::Crc32a,
            Distribution::Ketama
            | Distribution::Modula
            | Distribution::Random
            | Distribution::Rendezvous
            | Distribution::Maglev => Hash::Fnv1a64,
        }
    }

    /// Returns the hashes that may be used with it: those of the client whose distribution it is.
    pub const fn hashes(self) -> &'static [Hash] {
        match self {
            Distribution::PhpMemcacheStandard | Distribution::PhpMemcacheConsistent => {
                &[Hash::Crc32a, Hash::Fnv1a32]
            }
            _ => &Hash::ALL,
        }
    }

    /// Returns the largest sum of weights of a pool, or `None` if there is no bound. With more,
    /// building a ring would take so long that clients notice: 10,000 mean 1.6 million points.
    pub const fn weight_sum_max(self) -> Option<u64> {
        match self {
            Distribution::PhpMemcacheConsistent => Some(10_000),
            _ => None,
        }
    }

    /// Returns the text by which this distribution hashes a server: its name if it has one, else
    /// its address as the clients of the distribution write it. libmemcached leaves out port 11211,
    /// and writes port 0 for a unix socket. PHP's memcache leaves out nothing.
    pub fn ring_name(self, server: &Server) -> Cow<'_, str> {
        match (self, &server.name, &server.endpoint) {
            (
                Distribution::KetamaLibmemcached
                | Distribution::KetamaWeightedLibmemcached
                | Distribution::ModulaLibmemcached,
                None,
                Endpoint::Unix { path } | Endpoint::Shm { path },
            ) => Cow::Owned(format!("{}:0", path.display())),
            (
                Distribution::PhpMemcacheStandard | Distribution::PhpMemcacheConsistent,
                None,
                Endpoint::Unix { path } | Endpoint::Shm { path },
            ) => Cow::Owned(format!("unix://{}:0", path.display())),
            (
                Distribution::PhpMemcacheStandard | Distribution::PhpMemcacheConsistent,
                None,
                Endpoint::Tcp { host, port },
            ) => Cow::Owned(format!("{host}:{port}")),
            _ => server.ring_name(),
        }
    }

    /// Returns whether the order of the servers' list matters, if only between two servers that
    /// claim the same point. Other distributions go by names.
    pub(crate) const fn keeps_the_order_listed(self) -> bool {
        match self {
            Distribution::KetamaLibmemcached
            | Distribution::KetamaWeightedLibmemcached
            | Distribution::ModulaLibmemcached
            | Distribution::PhpMemcacheStandard
            | Distribution::PhpMemcacheConsistent => true,
            Distribution::Ketama
            | Distribution::Modula
            | Distribution::Random
            | Distribution::Rendezvous
            | Distribution::Maglev => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_distributions() {
        for distribution in Distribution::ALL {
            assert_eq!(Distribution::from_name(distribution.name()), Some(distribution));
            assert!(distribution.hashes().contains(&distribution.default_hash()));
        }
        for distribution in Distribution::TWEMPROXY {
            assert_eq!(distribution.default_hash(), Hash::Fnv1a64);
        }
        assert_eq!(Distribution::from_name("modulo"), None);
    }

    #[test]
    fn servers_are_called_as_each_client_calls_them() {
        use Distribution::{Ketama, KetamaLibmemcached, Maglev, PhpMemcacheConsistent};
        for (line, twemproxy, libmemcached, php) in [
            ("h:11212", "h:11212", "h:11212", "h:11212"),
            ("h:11211", "h", "h", "h:11211"),
            ("h:11211:3 alpha", "alpha", "alpha", "alpha"),
            ("[::1]:11212", "::1:11212", "::1:11212", "::1:11212"),
            ("/run/m.sock", "/run/m.sock:", "/run/m.sock:0", "unix:///run/m.sock:0"),
            ("/run/m.sock:2 beta", "beta", "beta", "beta"),
        ] {
            let server = Server::parse(line).unwrap();
            assert_eq!(Ketama.ring_name(&server), twemproxy, "{line}");
            assert_eq!(Maglev.ring_name(&server), twemproxy, "{line}");
            assert_eq!(KetamaLibmemcached.ring_name(&server), libmemcached, "{line}");
            assert_eq!(PhpMemcacheConsistent.ring_name(&server), php, "{line}");
        }
    }
}
