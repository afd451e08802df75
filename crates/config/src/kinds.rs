//! What serves the pools of each kind. A check asks here instead of listing the kinds that it is
//! about, so a new kind gets one line.

/// What serves the pools of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedBy {
    /// The embedded store.
    Store,
    /// Servers of Redis that are listed, each with a part of the keys.
    Redis,
    /// Servers of memcached that are listed, each with a part of the keys.
    Memcached,
    /// Servers of Redis that the pool discovers, among them replicas.
    Discovered,
    /// Other pools.
    Pools,
}

/// The word of each kind, and what serves its pools.
pub(crate) const KINDS: [(&str, ServedBy); 13] = [
    ("store", ServedBy::Store),
    ("sharded", ServedBy::Redis),
    ("cluster", ServedBy::Discovered),
    ("replicated", ServedBy::Discovered),
    ("slots", ServedBy::Discovered),
    ("memcached", ServedBy::Memcached),
    ("prefix", ServedBy::Pools),
    ("failover", ServedBy::Pools),
    ("mirror", ServedBy::Pools),
    ("shadow", ServedBy::Pools),
    ("miss-then", ServedBy::Pools),
    ("rate-limited", ServedBy::Pools),
    ("read-write-split", ServedBy::Pools),
];

/// The word of each kind.
pub(crate) const WORDS: [&str; KINDS.len()] = {
    let mut words = [""; KINDS.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = KINDS[at].0;
        at += 1;
    }
    words
};

/// Returns what serves pools of a kind, or `None` for a word that is no kind.
pub(crate) fn served_by(kind: &str) -> Option<ServedBy> {
    KINDS.iter().find(|(word, _)| *word == kind).map(|(_, served_by)| *served_by)
}

/// Returns whether a pool of this kind has servers of its own.
pub(crate) fn has_servers(kind: &str) -> bool {
    lists_servers(kind) || discovers(kind)
}

/// Returns whether a pool of this kind has the servers that its table lists, and no others.
pub(crate) fn lists_servers(kind: &str) -> bool {
    matches!(served_by(kind), Some(ServedBy::Redis | ServedBy::Memcached))
}

/// Returns whether a pool of this kind discovers its servers, which may be replicas.
pub(crate) fn discovers(kind: &str) -> bool {
    served_by(kind) == Some(ServedBy::Discovered)
}

/// Returns whether the servers of a pool of this kind speak Redis's protocol.
pub(crate) fn has_redis_servers(kind: &str) -> bool {
    matches!(served_by(kind), Some(ServedBy::Redis | ServedBy::Discovered))
}

/// Returns whether the servers of a pool of this kind speak memcached's protocol.
pub(crate) fn has_memcached_servers(kind: &str) -> bool {
    served_by(kind) == Some(ServedBy::Memcached)
}

/// Returns whether a pool of this kind sends requests on to other pools.
pub(crate) fn leads_to_pools(kind: &str) -> bool {
    served_by(kind) == Some(ServedBy::Pools)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::POOLS;

    #[test]
    fn each_kind_with_a_table_is_listed() {
        assert_eq!(
            POOLS.iter().map(|(word, _)| *word).collect::<Vec<_>>(),
            KINDS.iter().map(|(word, _)| *word).collect::<Vec<_>>()
        );
    }
}
