//! Every key of the file, once: its type, range, default and meaning. The
//! reader, the hints for unknown keys, `describe` and `docs/config.md` all
//! come from here.

mod circuit;
mod cluster;
mod kind;
mod listener;
mod memcached;
mod routes;
mod tls;
mod user;

use routes::POOL_KINDS;

pub(crate) use circuit::{CIRCUIT, OUTLIERS};
pub(crate) use cluster::{CLUSTER, REPLICATED};
pub(crate) use kind::{Absent, Choices, Kind};
pub(crate) use listener::LISTENER;
pub(crate) use memcached::MEMCACHED;
pub(crate) use routes::{
    FAILOVER, MIRROR, MISS_THEN, PREFIX, PREFIX_ROUTE, RATE_LIMITED, READ_WRITE_SPLIT, SHADOW,
};

pub(crate) use tls::{ADMIN_TLS, LISTENER_CERTIFICATES, LISTENER_TLS, TLS};
pub(crate) use user::USER;

use std::time::Duration;

/// One key.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// A word taken besides what `kind` says, such as `"off"`.
    pub(crate) word: Option<&'static str>,
    pub(crate) absent: Absent,
    /// What other programs call it, for the hint to an unknown key.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) doc: &'static str,
}

/// The keys of one table.
pub(crate) struct Table {
    /// As a reader finds it in the file: `[server]`.
    pub(crate) header: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) keys: &'static [Key],
}

impl Table {
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.keys.iter().map(|key| key.name)
    }
}

const fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

const fn key(name: &'static str, kind: Kind, absent: Absent, doc: &'static str) -> Key {
    Key { name, kind, word: None, absent, aliases: &[], doc }
}

impl Key {
    pub(crate) fn is_pools(&self) -> bool {
        matches!(self.kind, Kind::Pools)
    }

    const fn or_word(mut self, word: &'static str) -> Self {
        self.word = Some(word);
        self
    }

    const fn known_elsewhere_as(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }
}

use Absent::{Is, Refused, Unset};
use Kind::{
    Bool, Choice, Count, HashTag, List, Path, Pools, Prefix, Rejoin, Secret, Servers, Size, Workers,
};

/// The file itself.
pub(crate) static ROOT: Table = Table {
    header: "the file",
    doc: "",
    keys: &[
        key("server", Kind::Table(&SERVER), Is("{}"), "The process itself."),
        key("limits", Kind::Table(&LIMITS), Is("{}"), "Bounds on what clients may use."),
        key("listener", List(&LISTENER), Refused, "Where clients connect."),
        key("user", List(&USER), Unset("as the listeners say"), "Who may do what."),
        key("pool", Pools, Refused, "Where requests go."),
    ],
};

pub(crate) static SERVER: Table = Table {
    header: "[server]",
    doc: "The process itself. The whole table may be left out.",
    keys: &[
        key(
            "workers",
            Workers,
            Is("\"auto\""),
            "Threads that serve requests. `\"auto\"` starts one and adds another while all are busy, up to the number of cores: one busy worker costs less CPU per request than two half idle ones. A number fixes the count; `{ min = 2, max = 8 }` bounds it.",
        )
        .or_word("auto")
        .known_elsewhere_as(&["worker_threads", "threads", "io_threads"]),
        key(
            "admin",
            Kind::Admin,
            Is("\"tcp://127.0.0.1:9380\""),
            "Where `/metrics`, `/healthz` and the admin API are served over HTTP (docs/admin.md). TCP only. Other machines reach it only with a token or certificates: an address that is not of the loopback interface is refused without `admin_token_file`, `admin_token_env` or `admin_tls` with a `ca_file`.",
        )
        .or_word("off")
        .known_elsewhere_as(&["stats_port", "stats_addr", "metrics"]),
        key(
            "admin_token_file",
            Path,
            Unset("no token is asked for"),
            "A file that holds the token that requests to the admin address have to show, but for health and readiness; one newline at its end is ignored. 16 characters at least.",
        ),
        key(
            "admin_token_env",
            Kind::Variable,
            Unset("no token is asked for"),
            "The variable of the environment that holds that token.",
        ),
        tls::OF_ADMIN,
        key("log", Kind::Table(&LOG), Is("{}"), "What is logged, and how."),
        key(
            "drain_timeout",
            Kind::Duration { min: ms(0), max: hours(1) },
            Is("\"10s\""),
            "How long requests in flight may take to finish after SIGTERM before they are cut off.",
        )
        .known_elsewhere_as(&["shutdown_timeout", "grace_period"]),
        key(
            "drain_notice",
            Kind::Duration { min: ms(0), max: ms(600_000) },
            Is("\"0ms\""),
            "How long clients are still accepted after SIGTERM or `keyway ctl drain`, while `/readyz` says 503 already: for load balancers that take a while to look. A second SIGTERM cuts it short.",
        )
        .known_elsewhere_as(&["drain_delay", "shutdown_delay", "grace_time"]),
        key(
            "upgrade_timeout",
            Kind::Duration { min: ms(100), max: hours(1) },
            Is("\"30s\""),
            "How long a process that is to take this one's place (docs/upgrade.md) may take until it can serve. It is ended then, and this one serves on.",
        ),
        key(
            "upgrade_grace",
            Kind::Duration { min: ms(0), max: hours(24) },
            Is("\"30s\""),
            "How long a process whose place another has taken serves the clients that it has, unless they leave; then it drains as after SIGTERM.",
        )
        .known_elsewhere_as(&["hard_stop_after", "worker_shutdown_timeout"]),
        key(
            "io",
            Choice(&Choices { now: &["epoll", "io_uring", "auto"], later: &[] }),
            Is("\"epoll\""),
            "How workers talk to the kernel. `\"io_uring\"` needs Linux 6.1 and a system that allows it (containers often do not), and Keyway does not start where it cannot have it; `\"auto\"` takes it where it can and epoll elsewhere, worker by worker, and the log says which and why. `--io` overrides it. docs/performance.md has what either costs: it depends on what the machine takes for a system call.",
        )
        .known_elsewhere_as(&["event_loop", "io_backend"]),
        key(
            "spin",
            Kind::Duration { min: us(1), max: ms(1) },
            Is("\"20us\""),
            "How long a worker looks at shared memory before it sleeps, where that has brought bytes lately; waking it takes some 50us. Only clients and servers of `shm://` are looked for, by no more workers than half of the cores, and where there is one core by none.",
        )
        .or_word("off"),
    ],
};

pub(crate) static LOG: Table = Table {
    header: "log in [server]",
    doc: "`log = { format = \"json\", level = \"info\" }` in `[server]`.",
    keys: &[
        key(
            "format",
            Choice(&Choices { now: &["human", "json"], later: &[] }),
            Is("\"human\""),
            "`\"json\"` writes one object per line.",
        ),
        key(
            "level",
            Choice(&Choices { now: &["error", "warn", "info", "debug", "trace"], later: &[] }),
            Is("\"info\""),
            "The least important messages still written; `keyway ctl log-level` changes it. No level logs requests, but `debug` some of those that are slow.",
        )
        .known_elsewhere_as(&["loglevel", "verbosity"]),
    ],
};

pub(crate) static LIMITS: Table = Table {
    header: "[limits]",
    doc: "Every bound on what a client or a backend can make Keyway hold. The whole table may be left out; the defaults are those of Redis where Redis has one.",
    keys: &[
        key(
            "clients_max",
            Count { min: 1, max: 1_000_000 },
            Is("100000"),
            "Clients connected at once, over all workers; one more is refused with an error. Each costs a file descriptor and under 1 KiB.",
        )
        .known_elsewhere_as(&["maxclients", "max_clients", "max_connections", "client_connections"]),
        key(
            "bulk_len_max",
            Size { min: KIB, max: GIB },
            Is("\"512MiB\""),
            "Longest argument of a request.",
        )
        .known_elsewhere_as(&["proto_max_bulk_len", "proto-max-bulk-len"]),
        key(
            "request_args_max",
            Count { min: 64, max: 1 << 24 },
            Is("1048576"),
            "Most arguments of one request.",
        ),
        key(
            "request_len_max",
            Size { min: KIB, max: 2 * GIB },
            Is("\"576MiB\""),
            "Longest whole request; at least `bulk_len_max`.",
        ),
        key(
            "inline_len_max",
            Size { min: 64, max: 16 * MIB },
            Is("\"64KiB\""),
            "Longest request line without RESP framing, as typed into telnet.",
        ),
        key(
            "reply_len_max",
            Size { min: KIB, max: 3 * GIB },
            Is("\"1GiB\""),
            "Longest reply taken from a backend; a longer one closes that connection. Below 64KiB replies to INFO, KEYS and SCAN may not fit.",
        ),
        key(
            "reply_depth_max",
            Count { min: 2, max: 100_000 },
            Is("10000"),
            "Deepest nesting of arrays taken from a backend; a deeper one closes that connection. A script can return 7,995 levels.",
        ),
        key(
            "failed_logins_max",
            Count { min: 0, max: 1000 },
            Is("10"),
            "Logins of one user from one address (of IPv6, from one /64) that may fail one after the other. Those behind them are refused without a look at the password, and one more is looked at each second. 0 looks at all.",
        ),
        key(
            "monitor_every",
            Count { min: 0, max: 1_000_000 },
            Is("1"),
            "MONITOR shows one in this many requests, chosen by chance: all with 1. With 0 MONITOR is refused. A monitor with more than 1MiB unread misses lines and is told how many.",
        ),
        key(
            "hot_keys_every",
            Count { min: 0, max: 1_000_000 },
            Is("200"),
            "One request in this many, chosen by chance, is looked at for the keys that are asked for most, which the admin API, `keyway ctl hot-keys`, `keyway top` and HOTKEYS tell. Smaller is more exact and costs more. 0 turns it off.",
        ),
        key(
            "big_values_from",
            Size { min: 0, max: GIB },
            Is("\"64KiB\""),
            "Requests and replies of so many bytes or more are looked at for the keys with the largest values, which are told of beside the hot ones. 0B turns it off.",
        ),
        key(
            "session_in_flight_max",
            Count { min: 1, max: 1 << 20 },
            Is("1024"),
            "Requests of one client in flight before no more are read from it. Smaller slows deep pipelines; larger lets one client hold more memory.",
        ),
        key(
            "session_output_len_soft",
            Size { min: 4 * KIB, max: GIB },
            Is("\"1MiB\""),
            "Replies a client has not read above which no more of its requests are read.",
        ),
        key(
            "session_output_len_hard",
            Size { min: 64 * KIB, max: TIB },
            Is("\"1GiB\""),
            "Replies a client has not read above which it is disconnected; at least `session_output_len_soft`.",
        )
        .known_elsewhere_as(&["client_output_buffer_limit"]),
        key(
            "link_in_flight_max",
            Count { min: 16, max: 1 << 24 },
            Is("65536"),
            "Requests queued on one connection to a backend before clients that need it are left unread.",
        ),
        key(
            "link_output_len_max",
            Size { min: 64 * KIB, max: 3 * GIB },
            Is("\"16MiB\""),
            "Unsent bytes on one connection to a backend before clients that need it are left unread.",
        ),
        key(
            "transactions_len_max",
            Size { min: 64 * KIB, max: TIB },
            Is("\"256MiB\""),
            "Commands of all clients that wait for EXEC, together. One more is answered with `-OOM`, and the EXEC of its transaction with `-EXECABORT`. Those of one client may come to half of `link_output_len_max`.",
        ),
        key(
            "read_len_per_turn",
            Size { min: 4 * KIB, max: 64 * MIB },
            Is("\"256KiB\""),
            "Bytes read from one connection before the others get their turn.",
        ),
        key(
            "pubsub_output_len_hard",
            Size { min: 64 * KIB, max: TIB },
            Is("\"32MiB\""),
            "Messages a subscriber has not read above which it is disconnected (the hard limit of Redis's `client-output-buffer-limit pubsub`).",
        )
        .or_word("off"),
        key(
            "pubsub_output_len_soft",
            Size { min: 4 * KIB, max: TIB },
            Is("\"8MiB\""),
            "Messages a subscriber has not read above which it is disconnected once it has been above for `pubsub_output_soft_for`.",
        )
        .or_word("off"),
        key(
            "pubsub_output_soft_for",
            Kind::Duration { min: ms(1000), max: hours(24) },
            Is("\"60s\""),
            "How long a subscriber may stay above `pubsub_output_len_soft`; whole seconds count.",
        ),
        key(
            "tracking_keys_max",
            Count { min: 1, max: 1 << 28 },
            Is("1000000"),
            "Keys of one store that clients with CLIENT TRACKING have read and are to be told of, and 256 bytes for each on the average: names longer than 100 bytes and more than two readers make it fewer. Above it some are told that a key has changed when it has not (Redis's `tracking-table-max-keys`).",
        )
        .known_elsewhere_as(&["tracking-table-max-keys", "tracking_table_max_keys"]),
    ],
};

/// What makes a request slow, in every kind of pool that has a slow log.
const SLOWER_THAN: Kind = Kind::Duration { min: ms(0), max: hours(1) };

/// How many slow requests are kept.
const SLOW_KEPT: Kind = Count { min: 0, max: 10_000 };

pub(crate) static STORE: Table = Table {
    header: "[pool.NAME] of kind \"store\"",
    doc: "The embedded store: Keyway itself holds the data, in memory.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"store\"`."),
        key(
            "memory_max",
            Size { min: MIB, max: 64 * TIB },
            Is("\"auto\""),
            "Memory for data, beyond which `eviction` begins. `\"auto\"`: half the memory of the machine or container, shared by all stores that say so, printed at start.",
        )
        .or_word("auto")
        .known_elsewhere_as(&["maxmemory", "max_memory"]),
        key(
            "eviction",
            Choice(&Choices {
                now: &[
                    "allkeys-s3fifo",
                    "allkeys-lru",
                    "allkeys-lfu",
                    "allkeys-random",
                    "volatile-lru",
                    "volatile-lfu",
                    "volatile-random",
                    "volatile-ttl",
                    "noeviction",
                ],
                later: &[],
            }),
            Is("\"allkeys-s3fifo\""),
            "What gives way when memory is full: Redis's `maxmemory-policy` names, and S3-FIFO, which keeps the working set through scans. `\"noeviction\"` refuses writes instead.",
        )
        .known_elsewhere_as(&["maxmemory_policy", "maxmemory-policy", "policy"]),
        key(
            "databases",
            Count { min: 1, max: 1024 },
            Is("16"),
            "Databases clients may SELECT, numbered from 0.",
        ),
        key(
            "notify_keyspace_events",
            Kind::KeyspaceEvents,
            Is("\"\""),
            "Which changes of keys are published to channels, in Redis's letters: `K` for `__keyspace@db__:key`, `E` for `__keyevent@db__:event`, and the classes `g` (generic), `$` (strings), `x` (expired), `e` (evicted), or `A` for all of `g$lshzxetd`. `n` (new keys) and `m` (keys that were read and are not there) are told only where they are named. Empty for none: each event costs as much as a PUBLISH.",
        )
        .known_elsewhere_as(&["notify-keyspace-events"]),
        key(
            "script_time_max",
            Kind::Duration { min: ms(1), max: hours(1) },
            Is("\"5s\""),
            "How long a script or function may run before it is ended with an error; what it wrote until then stays. While one runs, its worker serves nobody else (with one worker that is everybody, SCRIPT KILL included), and on other workers requests for keys of the shards it has touched, and other scripts, wait as long as `script_busy_after` says: what runs long belongs elsewhere.",
        )
        .known_elsewhere_as(&["lua-time-limit", "lua_time_limit"]),
        key(
            "script_busy_after",
            Kind::Duration { min: ms(1), max: hours(1) },
            Is("\"1s\""),
            "How long others wait for a script or function that holds what they need. Once it has run for longer, they get the error BUSY at once, and SCRIPT KILL, FUNCTION KILL and CLIENT KILL of its client are read by every worker but its own. Below `script_time_max` to be of use; with one worker it is of none.",
        )
        .known_elsewhere_as(&["busy-reply-threshold", "busy_reply_threshold"]),
        key(
            "script_memory_max",
            Size { min: MIB, max: 16 * GIB },
            Is("\"64MiB\""),
            "Memory for Lua in each worker: variables of the script that runs, garbage it has left, and compiled scripts. A script that needs more is ended with an error.",
        ),
        key(
            "slowlog_log_slower_than",
            SLOWER_THAN,
            Is("\"10ms\""),
            "A request that the store works on for this long, or longer, is kept for SLOWLOG. Timed one by one are commands that may work long though what they are sent and answer is small (KEYS, SORT, SINTER, DEL, scripts, ...) and requests and replies of 64 KiB or more; below `\"1ms\"` all are but those that may wait, which costs each some ten nanoseconds. Waiting, as BLPOP does or for a script of another client, is no work.",
        )
        .or_word("off")
        .known_elsewhere_as(&["slowlog-log-slower-than", "slowlog_slower_than"]),
        key("slowlog_max_len", SLOW_KEPT, Is("128"), "Slow requests kept: the latest.")
            .known_elsewhere_as(&["slowlog-max-len"]),
        key(
            "expire_after_read",
            Kind::Duration { min: ms(1000), max: hours(10 * 365 * 24) },
            Is("\"off\""),
            "Reading a key that has an expiry moves it to this long from then, if less than `expire_after_read_percent` of it is left. A later expiry is left as it is, and keys without one never get one. EXISTS, TYPE, TTL, OBJECT, DUMP, SCAN, KEYS and RANDOMKEY are no reads, nor is what a command reads in order to write. Nobody is told of the new expiry: no event, no invalidation.",
        )
        .or_word("off")
        .known_elsewhere_as(&["default-read-touch-ttl", "sliding_expiration"]),
        key(
            "expire_after_read_percent",
            Count { min: 1, max: 100 },
            Is("50"),
            "How much of `expire_after_read` may be left for a read to move the expiry: less of it costs fewer moves, and lets keys expire sooner after their last read.",
        )
        .known_elsewhere_as(&["default-read-touch-ttl-pct"]),
        key(
            "quotas",
            List(&QUOTAS),
            Unset("none"),
            "What the keys of some prefixes may take: `[[pool.NAME.quotas]]`, up to 64.",
        ),
    ],
};

pub(crate) static QUOTAS: Table = Table {
    header: "[[pool.NAME.quotas]]",
    doc: "What the keys that begin with `prefix`, of all databases together, may take of a store. A write that would pass it evicts other keys of that prefix first, by the pool's `eviction`, and never anybody else's; with `\"noeviction\"`, or when there is nothing to evict, it is answered with an `OOM` error. What no command of Redis refuses when memory is full, such as RENAME, is not refused here either, and makes room afterwards. INFO has a section Quotas, and there are metrics of each. Each quota takes about 200 bytes for each of the store's shards (at least 1024), and another kilobyte where its keys expire; a pool without quotas pays nothing.",
    keys: &[
        key(
            "prefix",
            Prefix,
            Refused,
            "What the keys begin with, 1 to 128 bytes; of several that fit a key, the longest counts, and only that one.",
        ),
        key(
            "memory_max",
            Size { min: 64 * KIB, max: 64 * TIB },
            Unset("no bound"),
            "Memory for these keys with their values. What finds them, some 20 bytes for each, counts towards the pool's `memory_max` only.",
        ),
        key(
            "items_max",
            Count { min: 1, max: 1 << 40 },
            Unset("no bound"),
            "How many of them there may be. Every quota has one of these bounds, or both.",
        ),
    ],
};

/// How keys become numbers, in every kind of pool that spreads them.
const HASH: Key = key(
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

/// How numbers become servers, likewise.
const DISTRIBUTION: Key = key(
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
        tls::OF_POOL,
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

/// `workers` as a table.
pub(crate) static WORKERS: Table = Table {
    header: "workers in [server]",
    doc: "`workers = { min = 2, max = 8 }` in `[server]`, in place of `\"auto\"` or a number.",
    keys: &[
        key("min", Count { min: 1, max: WORKERS_MAX as u64 }, Refused, "Workers at start."),
        key(
            "max",
            Count { min: 1, max: WORKERS_MAX as u64 },
            Refused,
            "Workers at most; at least `min`.",
        ),
    ],
};

/// Most workers: more cores than any machine has, and a typing error stops
/// here instead of at the thread limit.
pub(crate) const WORKERS_MAX: u16 = 1024;

/// Longest quarantine that is not for ever: 30 days.
pub(crate) const QUARANTINE_MAX: Duration = hours(30 * 24);

/// Every table with keys of its own, in the order of the documentation.
pub(crate) static TABLES: [&Table; 28] = [
    &SERVER,
    &WORKERS,
    &LOG,
    &ADMIN_TLS,
    &LIMITS,
    &LISTENER,
    &LISTENER_TLS,
    &LISTENER_CERTIFICATES,
    &USER,
    &STORE,
    &QUOTAS,
    &SHARDED,
    &CLUSTER,
    &REPLICATED,
    &MEMCACHED,
    &EJECTION,
    &CIRCUIT,
    &OUTLIERS,
    &RECONNECT,
    &TLS,
    &PREFIX,
    &PREFIX_ROUTE,
    &FAILOVER,
    &MIRROR,
    &SHADOW,
    &MISS_THEN,
    &RATE_LIMITED,
    &READ_WRITE_SPLIT,
];

/// The kinds of pools, each with its table.
pub(crate) static POOLS: [(&str, &Table); 12] = [
    ("store", &STORE),
    ("sharded", &SHARDED),
    ("cluster", &CLUSTER),
    ("replicated", &REPLICATED),
    ("memcached", &MEMCACHED),
    ("prefix", &PREFIX),
    ("failover", &FAILOVER),
    ("mirror", &MIRROR),
    ("shadow", &SHADOW),
    ("miss-then", &MISS_THEN),
    ("rate-limited", &RATE_LIMITED),
    ("read-write-split", &READ_WRITE_SPLIT),
];
