//! The kinds of pools.

use super::kind::Choices;

pub(super) const POOL_KINDS: Choices = Choices {
    now: &[
        "store",
        "sharded",
        "cluster",
        "replicated",
        "memcached",
        "prefix",
        "failover",
        "mirror",
        "shadow",
        "miss-then",
        "rate-limited",
        "read-write-split",
    ],
    later: &["slots"],
};
