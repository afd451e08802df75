use super::key::{Table, key};
use super::kind::{Absent, Choices, Kind};
use super::memcached::as_sharded;
use super::pool_kinds::POOL_KINDS;
use Absent::{Is, Refused, Unset};
use Kind::{Bool, Choice, Count, List, PoolName, PoolNames};
use std::time::Duration;

const fn span(min: Duration, days: u64) -> Kind {
    Kind::Duration { min, max: Duration::from_secs(days * 24 * 60 * 60) }
}

const SECOND: Duration = Duration::from_secs(1);

pub(crate) static PREFIX: Table = Table {
    header: "[pool.NAME] of kind \"prefix\"",
    doc: "What a key begins with chooses the pool it goes to. docs/routes.md has examples for this kind and those that follow; what they name are other pools, of any kind, which need no listener.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"prefix\"`."),
        key(
            "routes",
            List(&PREFIX_ROUTE),
            Refused,
            "The prefixes, each with its pool. Of several that fit a key the longest counts.",
        )
        .known_elsewhere_as(&["policies", "prefixes"]),
        key(
            "default",
            PoolName,
            Unset("such requests are refused"),
            "The pool of keys that begin with none of the prefixes.",
        )
        .known_elsewhere_as(&["wildcard"]),
        as_sharded("clients_max"),
    ],
};

pub(crate) static PREFIX_ROUTE: Table = Table {
    header: "[[pool.NAME.routes]]",
    doc: "`routes = [{ prefix = \"user:\", pool = \"users\" }]` in a pool of kind `\"prefix\"`.",
    keys: &[
        key("prefix", Kind::Prefix, Refused, "What the keys begin with: 1 to 128 bytes."),
        key("pool", PoolName, Refused, "The pool they go to, with the prefix."),
    ],
};

pub(crate) static FAILOVER: Table = Table {
    header: "[pool.NAME] of kind \"failover\"",
    doc: "Pools in order: a request whose server is down, ejected, does not answer in time or answers that it cannot serve goes to the next one.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"failover\"`."),
        key("children", PoolNames, Refused, "The pools, in the order in which they are asked."),
        key(
            "gutter",
            PoolName,
            Unset("there is none"),
            "A pool that is asked after all children, and where items live for `gutter_ttl_max` at most.",
        ),
        key(
            "gutter_ttl_max",
            span(SECOND, 30),
            Is("\"10s\""),
            "With `gutter`: the longest expiry of what is written there. Whole seconds count.",
        )
        .known_elsewhere_as(&["failover_exptime"]),
        as_sharded("clients_max"),
    ],
};

pub(crate) static MIRROR: Table = Table {
    header: "[pool.NAME] of kind \"mirror\"",
    doc: "Writes go to all of the pools, reads to one.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"mirror\"`."),
        key("children", PoolNames, Refused, "The pools, two or more."),
        key(
            "read_from",
            PoolName,
            Unset("the first of them"),
            "The one of the children that is read. When it fails, the others are read in their order.",
        ),
        key(
            "wait",
            Choice(&Choices { now: &["all", "first"], later: &[] }),
            Is("\"all\""),
            "For whom a write waits. `\"all\"`: for every child, and its client is told what `read_from` said, or the first of the others that did not fail. `\"first\"`: for the first that did not fail, whose reply it is. Only when all fail the client is told of a failure.",
        ),
        as_sharded("clients_max"),
    ],
};

pub(crate) static SHADOW: Table = Table {
    header: "[pool.NAME] of kind \"shadow\"",
    doc: "All requests go to one pool, and some of them to another as well, whose replies are thrown away.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"shadow\"`."),
        key("main", PoolName, Refused, "The pool that answers."),
        key("shadow", PoolName, Refused, "The pool that gets copies."),
        key(
            "percent",
            Count { min: 0, max: 100 },
            Is("100"),
            "How many of a hundred requests are copied.",
        ),
        key(
            "by",
            Choice(&Choices { now: &["key", "chance"], later: &[] }),
            Is("\"key\""),
            "`\"key\"`: a key (the first of a request) is always copied or never. `\"chance\"`: every request for itself.",
        ),
        key(
            "in_flight_max",
            Count { min: 1, max: 1 << 16 },
            Is("1024"),
            "Copies of one worker that wait for a reply; one more is dropped and counted. So is what would make them hold more than 16MiB together.",
        ),
        as_sharded("clients_max"),
    ],
};

pub(crate) static MISS_THEN: Table = Table {
    header: "[pool.NAME] of kind \"miss-then\"",
    doc: "A read that misses in the first pool is looked up in the next; writes and deletes go to all of them.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"miss-then\"`."),
        key(
            "children",
            PoolNames,
            Refused,
            "The pools, two or more, in the order in which they are asked.",
        ),
        key(
            "fill",
            Bool,
            Is("false"),
            "Store in the first pool what a later one has, unless something is there by then.",
        ),
        key(
            "fill_ttl_max",
            span(SECOND, 30),
            Is("\"1h\""),
            "With `fill`: the longest expiry of what is stored so. What has less time left where it was found gets that.",
        ),
        as_sharded("clients_max"),
    ],
};

pub(crate) static RATE_LIMITED: Table = Table {
    header: "[pool.NAME] of kind \"rate-limited\"",
    doc: "So many requests a second, over all workers, and no more: others are answered with an error.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"rate-limited\"`."),
        key("child", PoolName, Refused, "The pool behind it.").known_elsewhere_as(&["target"]),
        key(
            "requests_per_second",
            Count { min: 1, max: 100_000_000 },
            Refused,
            "As many requests as may come in each second. One for many keys counts as one.",
        )
        .known_elsewhere_as(&["rate", "rates", "sets_rate", "gets_rate"]),
        key(
            "burst",
            Count { min: 1, max: 100_000_000 },
            Unset("a tenth of `requests_per_second`"),
            "As many may come at once after a rest.",
        )
        .known_elsewhere_as(&["sets_burst", "gets_burst"]),
        as_sharded("clients_max"),
    ],
};

pub(crate) static READ_WRITE_SPLIT: Table = Table {
    header: "[pool.NAME] of kind \"read-write-split\"",
    doc: "Writes go to one pool, reads to another that has the same: replicas, another data centre, a copy that something else keeps up.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"read-write-split\"`."),
        key(
            "write",
            PoolName,
            Refused,
            "The pool that is written to. Everything goes there that is not known to read only, and what belongs to a connection: transactions, WATCH, blocking commands, publish and subscribe.",
        ),
        key("read", PoolName, Refused, "The pool that reads go to."),
        key(
            "pin_after_write",
            Kind::Duration { min: Duration::from_millis(1), max: Duration::from_secs(3600) },
            Unset("a client may read from `read` at once"),
            "For so long after a write a connection of a client reads from `write`, so that it finds what it has written. Another connection of the same client does not know of the write.",
        ),
        key(
            "read_fallback",
            Bool,
            Is("false"),
            "Reads that fail in `read` go to `write`, as in a pool of kind `\"failover\"`, and cost what they cost there. Without it, such a read is answered with the error.",
        )
        .known_elsewhere_as(&["fallback"]),
        key(
            "write_commands",
            Kind::Commands,
            Is("[]"),
            "Commands of Redis that go to `write` though they only read, such as `[\"ttl\", \"xread\"]`.",
        )
        .known_elsewhere_as(&["read_from_primary"]),
        as_sharded("clients_max"),
    ],
};
