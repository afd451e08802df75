//! The keys of a pool of sharded servers, many of which other pools of servers share.

use super::circuit::CIRCUIT;
use super::key::{Key, Table, hours, key, ms};
use super::kind::{Absent, Choices, Kind};
use super::pool_kinds::POOL_KINDS;
use Absent::{Is, Refused, Unset};
use Kind::{Bool, Choice, Count, HashTag, Path, Rejoin, Secret, Servers};
use std::time::Duration;

/// The time above which a request is slow, in every kind of pool that has a slow log.
pub(super) const SLOWER_THAN: Kind = Kind::Duration { min: ms(0), max: hours(1) };

/// Number of slow requests that are kept.
pub(super) const SLOW_KEPT: Kind = Count { min: 0, max: 10_000 };

/// The function that hashes keys, in every kind of pool that distributes them.
pub(super) const HASH: Key = key(
    "hash",
    Choice(&Choices {
        now: &[
            "one_at_a_time",
            "md5",
            "crc16",
            "crc32",
            "crc32a",
            "fnv1_64",
            "fnv1a_64",
            "fnv1_32",
            "fnv1a_32",
            "hsieh",
            "murmur",
            "jenkins",
            "crc16_xmodem",
        ],
        later: &[],
    }),
    Unset("what goes with `distribution`: `\"fnv1a_64\"`, or the client's own (docs/placement.md)"),
    "How a key becomes a number. Changing it moves nearly every key. With `ketama`, `crc16`, `crc32`, `fnv1_64` and `fnv1a_64` leave keys together that differ in their last characters alone (docs/operations.md, Keys and servers); the others spread them.",
);

/// The way from a hash to a server, in every kind of pool that distributes keys.
pub(super) const DISTRIBUTION: Key = key(
    "distribution",
    Choice(&Choices {
        now: &[
            "ketama",
            "modula",
            "random",
            "ketama-libmemcached",
            "ketama-weighted-libmemcached",
            "modula-libmemcached",
            "php-memcache-standard",
            "php-memcache-consistent",
            "rendezvous",
            "maglev",
        ],
        later: &[],
    }),
    Is("\"ketama\""),
    "How that number chooses a server. `ketama`, `modula` and `random` are twemproxy's: `ketama` moves few keys when servers change, `modula` nearly all; `random` places by chance, whatever the key, so that a read may miss what was written. The names that end in `libmemcached` or begin with `php` find keys where those clients put them. `rendezvous` and `maglev` share keys out more evenly than `ketama`. Which to choose, and which client's setting is which: docs/placement.md.",
);

pub(crate) static SHARDED: Table = Table {
    header: "[pool.NAME] of kind \"sharded\"",
    doc: "Keys spread over Redis or Valkey servers by hash. Every key goes where twemproxy with the same `hash`, `distribution`, `hash_tag` and `servers` sends it, or a client whose distribution is chosen (docs/placement.md).",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"sharded\"`."),
        key(
            "servers",
            Servers,
            Refused,
            "`\"HOST:PORT:WEIGHT NAME\"`, `\"unix:///PATH:WEIGHT NAME\"` or `\"shm:///PATH:WEIGHT NAME\"` each; weight (1) and name may be left out. Names (or else addresses) decide which keys a server gets: give names, and a server can move without its keys moving. The order of the list matters with the distributions of libmemcached and PHP alone.",
        )
        .known_elsewhere_as(&["backends", "nodes", "hosts", "upstreams"]),
        HASH,
        DISTRIBUTION,
        key(
            "hash_tag",
            HashTag,
            Is("\"\""),
            "Two characters, such as `\"{}\"`: when both are found in a key, only what stands between them is hashed, so that related keys share a server. Empty for none.",
        ),
        key(
            "timeout",
            Kind::Duration { min: ms(1), max: hours(1) },
            Is("\"1s\""),
            "How long a request may wait for its reply; then it alone fails. The default answers before most clients' own time limit does, yet leaves a thousand times what Redis needs for a usual command; raise it for slow scripts.",
        )
        .known_elsewhere_as(&["server_timeout"]),
        key(
            "connect_timeout",
            Kind::Duration { min: ms(1), max: hours(1) },
            Is("\"500ms\""),
            "How long a connection to a server may take to stand, handshake included.",
        ),
        key(
            "server_connections",
            Count { min: 1, max: 64 },
            Is("1"),
            "Connections to each server, per worker. One is fastest: more means smaller batches.",
        ),
        key(
            "preconnect",
            Bool,
            Is("false"),
            "All workers connect to every server at start; else one does, to see which answer.",
        ),
        key(
            "password",
            Secret,
            Unset("none is sent"),
            "What is sent to the servers with AUTH.",
        )
        .known_elsewhere_as(&["redis_auth", "auth", "masterauth"]),
        key(
            "password_file",
            Path,
            Unset("none is sent"),
            "A file that holds that password; one newline at its end is ignored.",
        ),
        key(
            "password_env",
            Kind::Variable,
            Unset("none is sent"),
            "The variable of the environment that holds that password.",
        ),
        key(
            "client_password",
            Secret,
            Unset("clients need none"),
            "What clients must send with AUTH, on every listener of this pool that has no `password` of its own.",
        )
        .known_elsewhere_as(&["requirepass"]),
        key(
            "database",
            Count { min: 0, max: 65_535 },
            Is("0"),
            "The servers' database that clients see as database 0.",
        )
        .known_elsewhere_as(&["redis_db", "db"]),
        key(
            "databases",
            Count { min: 1, max: 1024 },
            Is("1"),
            "Databases clients may SELECT, numbered from 0; database N is the servers' `database` + N.",
        ),
        key(
            "allow_flush",
            Bool,
            Is("false"),
            "Let clients empty every server in use with FLUSHDB and FLUSHALL. Otherwise both are refused. With `databases = 1`, FLUSHALL empties the pool's one database and leaves the servers' others alone.",
        ),
        key(
            "slowlog_log_slower_than",
            SLOWER_THAN,
            Is("\"10ms\""),
            "A request that its server takes this long for, or longer, is kept for SLOWLOG. The time is from when the server had nothing else to do for that connection to the first bytes of its reply, so those who waited behind a slow one are not slow.",
        )
        .or_word("off")
        .known_elsewhere_as(&["slowlog-log-slower-than", "slowlog_slower_than"]),
        key(
            "slowlog_max_len",
            SLOW_KEPT,
            Is("128"),
            "Slow requests kept: the latest.",
        )
        .known_elsewhere_as(&["slowlog-max-len"]),
        key(
            "ejection",
            Kind::Table(&EJECTION),
            Unset("off: a failing server keeps its keys, and requests for them fail"),
            "Take a failing server out and spread its keys over the others.",
        )
        .known_elsewhere_as(&[
            "auto_eject_hosts",
            "server_failure_limit",
            "server_retry_timeout",
        ]),
        super::tls::OF_POOL,
        key(
            "circuit",
            Kind::Table(&CIRCUIT),
            Unset("off: a server that fails is asked all the same"),
            "Do not ask a server for a while too many of whose requests failed: they fail at once then, and its keys stay where they are.",
        )
        .known_elsewhere_as(&["circuit_breaker", "outlier_detection"]),
        key(
            "reconnect",
            Kind::Table(&RECONNECT),
            Is("{}"),
            "Pauses between attempts to reach a server.",
        )
        .known_elsewhere_as(&["backoff"]),
        key(
            "clients_max",
            Count { min: 1, max: 1_000_000 },
            Unset("`clients_max` in `[limits]`"),
            "Clients of this pool connected at once, over all workers; at most `clients_max` in `[limits]`.",
        )
        .known_elsewhere_as(&["client_connections"]),
        key(
            "queue_len_max",
            Count { min: 16, max: 1 << 24 },
            Unset("`link_in_flight_max` in `[limits]`"),
            "Requests queued on one connection to a server before clients that need it are left unread; at most `link_in_flight_max` in `[limits]`.",
        ),
    ],
};

pub(crate) static EJECTION: Table = Table {
    header: "ejection in [pool.NAME]",
    doc: "`ejection = { after_failures = 3, for = \"30s\", rejoin = \"flush\" }` in a pool of kind `\"sharded\"` or `\"memcached\"`. Without it, no server is ever ejected; an empty `{}` turns it on with the defaults.",
    keys: &[
        key(
            "after_failures",
            Count { min: 1, max: 100_000 },
            Is("3"),
            "Failures in a row that eject a server: failed requests and connections. What began before the latest failure that counted does not count: one stall, or the end of all connections at once, is one failure.",
        )
        .known_elsewhere_as(&["server_failure_limit"]),
        key(
            "for",
            Kind::Duration { min: ms(1), max: hours(24) },
            Is("\"30s\""),
            "How long until the server is tried again.",
        )
        .known_elsewhere_as(&["server_retry_timeout"]),
        key(
            "rejoin",
            Rejoin,
            Is("\"serve\""),
            "What happens to what the server held before, which may be stale by now: `\"serve\"` gives it to clients as it is; `\"flush\"` empties the server's database first, and that server's alone: what the others took over meanwhile stays with them, and is served again, old, at its next ejection unless it has expired by then; `\"quarantine 10m\"` keeps the server out that much longer, so that what has a shorter expiry is gone; `\"quarantine\"` keeps it out until an operator restores it or Keyway restarts.",
        ),
    ],
};

pub(crate) static RECONNECT: Table = Table {
    header: "reconnect in [pool.NAME]",
    doc: "`reconnect = { min = \"50ms\", max = \"2s\" }` in a pool of kind `\"sharded\"` or `\"memcached\"`. The pause doubles from `min` to `max`, each shortened by chance so that not all workers try at once.",
    keys: &[
        key(
            "min",
            Kind::Duration { min: ms(1), max: hours(1) },
            Is("\"50ms\""),
            "The first pause.",
        ),
        key(
            "max",
            Kind::Duration { min: ms(1), max: hours(1) },
            Is("\"2s\""),
            "The longest pause; at least `min`.",
        ),
    ],
};

/// Longest quarantine that is not unlimited: 30 days.
pub(crate) const QUARANTINE_MAX: Duration = hours(30 * 24);
