use std::time::Duration;

/// Most pools that one pool sends requests on to.
pub const CHILDREN_MAX: usize = 16;

/// Most pools in a row, from the one that clients talk to down to one that has
/// servers or a store: a request crosses all of them.
pub const DEPTH_MAX: usize = 8;

/// How often one request for one key may be asked at most, of all pools that it is led
/// to: pools that ask several, and lead to others that do, multiply it.
pub const ASKED_MAX: u64 = 256;

/// A pool without servers of its own: it says to which other pools a request goes.
/// Those are named by their position in the topology, and never lead back here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutedPool {
    /// What the key begins with decides.
    Prefix(PrefixPool),
    /// The first that answers.
    Failover(FailoverPool),
    /// All of them hold the same.
    Mirror(MirrorPool),
    /// Some requests are sent to another pool as well.
    Shadow(ShadowPool),
    /// What one misses, the next may have.
    MissThen(MissThenPool),
    /// So many requests and no more.
    RateLimited(RateLimitedPool),
    /// Writes go to one pool, reads to another that has the same.
    ReadWriteSplit(ReadWriteSplitPool),
}

/// See [`RoutedPool::Prefix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixPool {
    /// Each prefix with its pool.
    routes: Vec<(Box<[u8]>, u16)>,
    /// The pool of all other keys.
    pub default: Option<u16>,
}

impl PrefixPool {
    /// A pool with these prefixes.
    pub fn new(mut routes: Vec<(Box<[u8]>, u16)>, default: Option<u16>) -> Self {
        // The longest first, so that the first that fits is the one.
        routes.sort_by(|(one, _), (other, _)| (other.len(), one).cmp(&(one.len(), other)));
        Self { routes, default }
    }

    /// Each prefix with its pool, the longest first.
    pub fn routes(&self) -> impl Iterator<Item = (&[u8], u16)> {
        self.routes.iter().map(|(prefix, pool)| (&**prefix, *pool))
    }

    /// The pool of a key: that of the longest prefix it begins with.
    #[inline]
    pub fn pick(&self, key: &[u8]) -> Option<u16> {
        let fitting = self.routes.iter().find(|(prefix, _)| key.starts_with(prefix));
        fitting.map_or(self.default, |(_, pool)| Some(*pool))
    }
}

/// See [`RoutedPool::Failover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverPool {
    /// In the order in which they are asked.
    pub children: Vec<u16>,
    /// ViewSource last.
    pub gutter: Option<Gutter>,
}

/// A pool that stands in for others, for a short time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gutter {
    /// Which one.
    pub pool: u16,
    /// How long an item lives there at most.
    pub ttl_max: Duration,
}

/// See [`RoutedPool::Mirror`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorPool {
    /// All of them, two or more.
    pub children: Vec<u16>,
    /// Position among the children of the one that is read.
    pub read_from: u16,
    /// For whom a write waits.
    pub wait: Wait,
}

/// For whom a write to a mirror waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For all children.
    All,
    /// For the first that has done it.
    First,
}

/// See [`RoutedPool::Shadow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowPool {
    /// The pool that answers.
    pub main: u16,
    /// The pool that some requests are sent to as well.
    pub shadow: u16,
    /// How many of a hundred.
    pub percent: u8,
    /// Which ones.
    pub by: ShadowBy,
    /// Requests of one worker on their way to the shadow; one more is dropped.
    pub in_flight_max: u32,
}

/// What decides whether a request is shadowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowBy {
    /// Its key: one that is in is always in.
    Key,
    /// Chance.
    Chance,
}

impl ShadowPool {
    /// Whether a request for `key` is shadowed; `random` is a number by chance.
    #[inline]
    pub fn takes(&self, key: &[u8], random: u64) -> bool {
        let drawn = match self.by {
            ShadowBy::Key => scattered(key),
            ShadowBy::Chance => random >> 32,
        };
        drawn % 100 < u64::from(self.percent)
    }
}

/// A hash of its own: that of a ring would take all keys of one server, and none of
/// another.
fn scattered(key: &[u8]) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = key.iter().fold(0x6b65_7977_6179_0001, fnv);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// See [`RoutedPool::MissThen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissThenPool {
    /// In the order in which they are asked, two or more.
    pub children: Vec<u16>,
    /// What a later one has is stored in the first, for this long at most.
    pub fill_ttl_max: Option<Duration>,
}

/// See [`RoutedPool::RateLimited`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitedPool {
    /// The pool behind it.
    pub child: u16,
    /// Requests a second, over all workers.
    pub requests_per_second: u64,
    /// Requests at once after a rest.
    pub burst: u64,
}

/// See [`RoutedPool::ReadWriteSplit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadWriteSplitPool {
    /// Where writes go, and all that is not known to read only.
    pub write: u16,
    /// Where reads go.
    pub read: u16,
    /// For so long after a write of a client its reads go to `write`.
    pub pin_after_write: Option<Duration>,
    /// Whether reads that fail in `read` go to `write`.
    pub read_fallback: bool,
    /// Commands of Redis that go to `write` though they only read, by their names.
    pub write_commands: Vec<Box<str>>,
}

impl RoutedPool {
    /// The name of the kind in the configuration.
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

    /// Every pool that requests are sent on to, each once, in the order of the
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

    /// The same over the pools at the positions that `at` says for those of its children.
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
