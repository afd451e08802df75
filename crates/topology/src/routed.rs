use std::time::Duration;

/// Most pools to which one pool sends requests on.
pub const CHILDREN_MAX: usize = 16;

/// Most pools in a row, from the pool that clients talk to down to a pool with servers or a store.
/// A request passes all of them.
pub const DEPTH_MAX: usize = 8;

/// Most times that one request for one key may be asked, over all pools that it leads to. Pools
/// that ask several pools, which lead to other such pools, multiply it.
pub const ASKED_MAX: u64 = 256;

/// A pool without servers of its own. It decides to which other pools a request goes. Those are
/// identified by their index in the topology, and never lead back to this pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutedPool {
    /// The beginning of the key decides.
    Prefix(PrefixPool),
    /// The first pool that answers.
    Failover(FailoverPool),
    /// All pools hold the same data.
    Mirror(MirrorPool),
    /// Some requests are sent to another pool as well.
    Shadow(ShadowPool),
    /// A pool is asked when the one before it has a miss.
    MissThen(MissThenPool),
    /// A bounded rate of requests.
    RateLimited(RateLimitedPool),
    /// Writes go to one pool, reads to another that has the same data.
    ReadWriteSplit(ReadWriteSplitPool),
}

/// Settings of [`RoutedPool::Prefix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixPool {
    /// Each prefix with its pool.
    routes: Vec<(Box<[u8]>, u16)>,
    /// The pool of all other keys.
    pub default: Option<u16>,
}

impl PrefixPool {
    /// Creates a pool with these prefixes.
    pub fn new(mut routes: Vec<(Box<[u8]>, u16)>, default: Option<u16>) -> Self {
        // The longest come first, so that the first that matches is the longest match.
        routes.sort_by(|(one, _), (other, _)| (other.len(), one).cmp(&(one.len(), other)));
        Self { routes, default }
    }

    /// Returns each prefix with its pool, the longest first.
    pub fn routes(&self) -> impl Iterator<Item = (&[u8], u16)> {
        self.routes.iter().map(|(prefix, pool)| (&**prefix, *pool))
    }

    /// Returns the pool of a key: that of the longest prefix of the key.
    #[inline]
    pub fn pick(&self, key: &[u8]) -> Option<u16> {
        let fitting = self.routes.iter().find(|(prefix, _)| key.starts_with(prefix));
        fitting.map_or(self.default, |(_, pool)| Some(*pool))
    }
}

/// Settings of [`RoutedPool::Failover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverPool {
    /// The pools, in the order in which they are asked.
    pub children: Vec<u16>,
    /// The pool that is asked last.
    pub gutter: Option<Gutter>,
}

/// A pool that stands in for others for a short time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gutter {
    /// The index of the pool.
    pub pool: u16,
    /// Longest expiry of an item there.
    pub ttl_max: Duration,
}

/// Settings of [`RoutedPool::Mirror`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorPool {
    /// The pools that hold the data, two or more.
    pub children: Vec<u16>,
    /// Position among the children of the pool that is read.
    pub read_from: u16,
    /// The pools for which a write waits.
    pub wait: Wait,
}

/// The pools for which a write to a mirror waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// All children.
    All,
    /// The first child that has executed it.
    First,
}

/// Settings of [`RoutedPool::Shadow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowPool {
    /// The pool that answers.
    pub main: u16,
    /// The pool to which some requests are sent as well.
    pub shadow: u16,
    /// Percentage of requests that are shadowed.
    pub percent: u8,
    /// What decides which requests are shadowed.
    pub by: ShadowBy,
    /// Most requests of one worker on their way to the shadow; further ones are dropped.
    pub in_flight_max: u32,
}

/// What decides whether a request is shadowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowBy {
    /// Its key: either all requests for a key are shadowed or none.
    Key,
    /// A random number.
    Chance,
}

impl ShadowPool {
    /// Returns whether a request for `key` is shadowed. `random` is a random number.
    #[inline]
    pub fn takes(&self, key: &[u8], random: u64) -> bool {
        let drawn = match self.by {
            ShadowBy::Key => scattered(key),
            ShadowBy::Chance => random >> 32,
        };
        drawn % 100 < u64::from(self.percent)
    }
}

/// Hashes a key for shadowing. It differs from the hashes of rings: those would shadow all keys of
/// one server, and none of another.
fn scattered(key: &[u8]) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = key.iter().fold(0x6b65_7977_6179_0001, fnv);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// Settings of [`RoutedPool::MissThen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissThenPool {
    /// The pools in the order in which they are asked, two or more.
    pub children: Vec<u16>,
    /// Longest expiry of an item that a later pool has and that is stored in the first. `None`:
    /// nothing is stored.
    pub fill_ttl_max: Option<Duration>,
}

/// Settings of [`RoutedPool::RateLimited`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitedPool {
    /// The pool behind it.
    pub child: u16,
    /// Requests per second, over all workers.
    pub requests_per_second: u64,
    /// Most requests at once after a pause.
    pub burst: u64,
}

/// Settings of [`RoutedPool::ReadWriteSplit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadWriteSplitPool {
    /// The pool for writes, and for every command that is not known to read only.
    pub write: u16,
    /// The pool for reads.
    pub read: u16,
    /// Time for which a client's reads go to `write` after a write of its own.
    pub pin_after_write: Option<Duration>,
    /// True if reads that fail in `read` go to `write`.
    pub read_fallback: bool,
    /// Names of Redis commands that go to `write` although they only read.
    pub write_commands: Vec<Box<str>>,
}

impl RoutedPool {
    /// Returns the name of the kind in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            RoutedPool::Prefix(_) => "prefix",
            RoutedPool::Failover(_) => "failover",
            RoutedPool::Mirror(_) => "mirror",
            RoutedPool::Shadow(_) => "shadow",
            RoutedPool::MissThen(_) => "miss-then",
            RoutedPool::RateLimited(_) => "rate-limited",
            RoutedPool::ReadWriteSplit(_) => "read-write-split",
        }
    }

    /// Returns every pool to which requests are sent on, each once, in the order of the
    /// configuration (a gutter and a default last).
    pub fn children(&self) -> Vec<u16> {
        let mut children = match self {
            RoutedPool::Prefix(pool) => pool.routes().map(|(_, child)| child).collect(),
            RoutedPool::Failover(pool) => pool.children.clone(),
            RoutedPool::Mirror(pool) => pool.children.clone(),
            RoutedPool::Shadow(pool) => vec![pool.main, pool.shadow],
            RoutedPool::MissThen(pool) => pool.children.clone(),
            RoutedPool::RateLimited(pool) => vec![pool.child],
            RoutedPool::ReadWriteSplit(pool) => vec![pool.write, pool.read],
        };
        match self {
            RoutedPool::Prefix(pool) => children.extend(pool.default),
            RoutedPool::Failover(pool) => children.extend(pool.gutter.map(|gutter| gutter.pool)),
            _ => {}
        }
        let mut seen = std::collections::BTreeSet::new();
        children.retain(|child| seen.insert(*child));
        children
    }

    /// Returns the same settings over other pools. `at` maps the index of each child to its new
    /// index.
    #[must_use]
    pub fn with_children(&self, at: impl Fn(u16) -> u16) -> RoutedPool {
        let all = |children: &[u16]| children.iter().map(|&child| at(child)).collect();
        match self.clone() {
            RoutedPool::Prefix(pool) => {
                let routes = pool.routes.into_iter().map(|(prefix, child)| (prefix, at(child)));
                RoutedPool::Prefix(PrefixPool::new(routes.collect(), pool.default.map(&at)))
            }
            RoutedPool::Failover(pool) => RoutedPool::Failover(FailoverPool {
                children: all(&pool.children),
                gutter: pool.gutter.map(|gutter| Gutter { pool: at(gutter.pool), ..gutter }),
            }),
            RoutedPool::Mirror(pool) => {
                RoutedPool::Mirror(MirrorPool { children: all(&pool.children), ..pool })
            }
            RoutedPool::Shadow(pool) => RoutedPool::Shadow(ShadowPool {
                main: at(pool.main),
                shadow: at(pool.shadow),
                ..pool
            }),
            RoutedPool::MissThen(pool) => {
                RoutedPool::MissThen(MissThenPool { children: all(&pool.children), ..pool })
            }
            RoutedPool::RateLimited(pool) => {
                RoutedPool::RateLimited(RateLimitedPool { child: at(pool.child), ..pool })
            }
            RoutedPool::ReadWriteSplit(pool) => RoutedPool::ReadWriteSplit(ReadWriteSplitPool {
                write: at(pool.write),
                read: at(pool.read),
                ..pool
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let routes = [(&b"a"[..], 1), (b"ab", 2), (b"abc", 3), (b"b", 4)];
        let routes = routes.map(|(prefix, pool)| (prefix.into(), pool)).to_vec();
        let pool = PrefixPool::new(routes.clone(), Some(9));
        for (key, expected) in [(&b"a"[..], 1), (b"abb", 2), (b"abcd", 3), (b"ba", 4), (b"", 9)] {
            assert_eq!(pool.pick(key), Some(expected), "{}", key.escape_ascii());
        }
        assert_eq!(PrefixPool::new(routes, None).pick(b"c"), None);
    }

    #[test]
    fn a_share_of_the_keys_is_shadowed_and_always_the_same() {
        for percent in [0, 1, 10, 50, 100] {
            let by = ShadowBy::Key;
            let pool = ShadowPool { main: 0, shadow: 1, percent, by, in_flight_max: 1 };
            let keys = (0..20_000).map(|nth| format!("key:{nth}"));
            let taken = keys.filter(|key| pool.takes(key.as_bytes(), 0)).count();
            let expected = 200 * usize::from(percent);
            assert!(taken.abs_diff(expected) <= expected / 10, "{taken} of {expected}");
        }
    }
}
