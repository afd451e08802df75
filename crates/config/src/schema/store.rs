//! The keys of a pool of the embedded store.

use super::key::{GIB, KIB, MIB, TIB, Table, hours, key, ms};
use super::kind::{Absent, Choices, Kind};
use super::pool_kinds::POOL_KINDS;
use super::sharded::{SLOW_KEPT, SLOWER_THAN};
use Absent::{Is, Refused, Unset};
use Kind::{Bool, Choice, Count, List, Path, Prefix, Size};

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
            "snapshot",
            Kind::Table(&SNAPSHOT),
            Unset("none: what the pool holds ends with the process"),
            "Save the data to a file, and load it at the start.",
        )
        .known_elsewhere_as(&["save", "dbfilename", "rdb"]),
        key(
            "log",
            Kind::Table(&STORE_LOG),
            Unset("none: what was written since the last snapshot ends with the process"),
            "Log every write, and load the log at the start.",
        )
        .known_elsewhere_as(&["appendonly", "appenddirname", "aof"]),
        key(
            "replica_of",
            Kind::Primary,
            Unset("the store is a primary"),
            "Make the store a replica of a redis-server: `\"redis://[USER:PASSWORD@]HOST:PORT\"`, or `\"rediss://…\"` with `replica_tls`. In a user or password `%40` stands for `@`, and so on. Clients cannot write then. `REPLICAOF NO ONE` makes the store a primary until the process ends; a reload follows this key only if it has changed (docs/replicas.md). A promoted store that restarts with this key follows the server again and loses its own writes: remove the key after a promotion.",
        )
        .known_elsewhere_as(&["replicaof", "slaveof", "replica-of"]),
        key(
            "replica_user",
            Kind::UserName,
            Unset("the default user"),
            "The user at the primary, also for REPLICAOF.",
        )
        .known_elsewhere_as(&["masteruser", "primaryuser"]),
        key(
            "replica_password",
            Kind::Secret,
            Unset("none is sent"),
            "The password at the primary, also for REPLICAOF.",
        )
        .known_elsewhere_as(&["masterauth", "primaryauth"]),
        key(
            "replica_password_file",
            Path,
            Unset("none is sent"),
            "A file that holds that password; one newline at its end is ignored.",
        ),
        key(
            "replica_password_env",
            Kind::Variable,
            Unset("none is sent"),
            "An environment variable that holds that password.",
        ),
        super::tls::OF_REPLICA,
        key(
            "replica_serve_stale_data",
            Bool,
            Is("true"),
            "Let a replica answer with what it has while the link to its primary is down. `false`: clients get the error `MASTERDOWN` then.",
        )
        .known_elsewhere_as(&["replica-serve-stale-data", "slave-serve-stale-data"]),
        key(
            "replication",
            Kind::Table(&REPLICATION),
            Unset("as with the defaults of its keys"),
            "Bounds of the store as the primary of replicas.",
        )
        .known_elsewhere_as(&[
            "repl-backlog-size",
            "min-replicas-to-write",
            "min-slaves-to-write",
            "min-replicas-max-lag",
            "replica-priority",
            "repl-timeout",
        ]),
        key(
            "quotas",
            List(&QUOTAS),
            Unset("none"),
            "What the keys of some prefixes may take: `[[pool.NAME.quotas]]`, up to 64.",
        ),
    ],
};

pub(crate) static SNAPSHOT: Table = Table {
    header: "snapshot in [pool.NAME]",
    doc: "`snapshot = { file = \"/var/lib/keyway/cache.rdb\" }` in a pool of kind `\"store\"`. The file is in Redis's RDB format: Redis 7 and Valkey read it, and theirs is read here. At the start Keyway loads the file; until then clients get the error `LOADING`. A file that cannot be read whole ends the process with an error. A snapshot is of one moment, by BGSAVE, SAVE, `every` and `on_shutdown`. Clients are served meanwhile. A new snapshot is written beside the old file and takes its place once it is whole on disk, so that the directory needs room for both.",
    keys: &[
        key(
            "file",
            Path,
            Refused,
            "Where the snapshot is. The directory must be there; the file need not.",
        ),
        key(
            "every",
            Kind::Duration { min: ms(1000), max: hours(31 * 24) },
            Is("\"5m\""),
            "How often a snapshot is made, if a key has changed since the last one. `\"off\"`: only when asked for.",
        )
        .or_word("off"),
        key(
            "on_shutdown",
            Bool,
            Is("true"),
            "Make a snapshot when the process stops, after the last client has left. Give the manager of the process time for that (`TimeoutStopSec` of systemd).",
        ),
        key(
            "rate_max",
            Size { min: MIB, max: TIB },
            Is("\"off\""),
            "Most bytes of a snapshot that are written in a second. Less leaves more of the disk and of a processor to others, and takes longer. `\"off\"`: as fast as the disk is.",
        )
        .or_word("off"),
        key(
            "buffer",
            Size { min: MIB, max: TIB },
            Is("\"256MiB\""),
            "Most memory that a snapshot takes above the data. Keys that change before they were written wait there. If they need more, the snapshot is given up, and the last file stays.",
        ),
    ],
};

pub(crate) static STORE_LOG: Table = Table {
    header: "log in [pool.NAME]",
    doc: "`log = { dir = \"/var/lib/keyway/cache\", fsync = \"1s\" }` in a pool of kind `\"store\"`. Keyway appends every write to files in the directory, and executes them again at the start; until then clients get the error `LOADING`. A log that is there is loaded, and then a `snapshot` is not. A log that has grown to twice its size is compacted while clients are served, so that the directory needs room for three times the data. A damaged log ends the process with an error. docs/log.md says more.",
    keys: &[
        key(
            "dir",
            Path,
            Refused,
            "The directory of the log. It must be there, and no other pool or process may use it.",
        ),
        key(
            "fsync",
            Choice(&Choices { now: &["always", "1s", "no"], later: &[] }),
            Is("\"1s\""),
            "When a write is on the disk. `\"always\"`: before its reply; workers that wait share one fsync, and writes are refused while the disk cannot take them. `\"1s\"`: about a second later. `\"no\"`: when the system puts it there. A process that is killed loses the writes of the last milliseconds with `\"1s\"` and `\"no\"`, of more on a disk that is slower than the clients, and a system that stops loses more.",
        )
        .known_elsewhere_as(&["appendfsync"]),
        key(
            "buffer",
            Size { min: 4 * MIB, max: 2 * GIB },
            Is("\"256MiB\""),
            "Most memory for writes that wait for the disk. From half of it on, clients are left unread until the disk has caught up. A longer value or transaction is let through alone, and a longer script gets `-OOM`. A compaction may hold as much again.",
        ),
    ],
};

pub(crate) static REPLICATION: Table = Table {
    header: "replication in [pool.NAME]",
    doc: "`replication = { backlog = \"16MiB\", min_replicas = 1 }` in a pool of kind `\"store\"`. Every store feeds replicas: a redis-server from 7.0 on, a Valkey or another Keyway that is told to be a replica of this one (docs/replicas.md). Without replicas nothing is kept. `min_replicas`, `min_replicas_max_lag` and `priority` follow a reload; the other keys hold from the start of the process on.",
    keys: &[
        key(
            "backlog",
            Size { min: 16 * KIB, max: GIB },
            Is("\"1MiB\""),
            "Bytes of the stream that are kept for replicas that come back: one that lacks more takes a whole snapshot. They count towards `memory_max`, of which they are an eighth at most. They are freed an hour after the last replica has left; a replica keeps them always.",
        )
        .known_elsewhere_as(&["repl-backlog-size", "size"]),
        key(
            "buffer",
            Size { min: MIB, max: 64 * GIB },
            Is("\"256MiB\""),
            "Most memory for the stream. A replica that is slower than the writes by half of it is cut off, and takes a snapshot. It counts towards `memory_max`, of which it is a quarter at most. A replica's snapshot may take as much again above the data.",
        )
        .known_elsewhere_as(&["client-output-buffer-limit"]),
        key(
            "replicas_max",
            Count { min: 1, max: 1024 },
            Is("64"),
            "Replicas at a time. Each takes a thread.",
        ),
        key(
            "timeout",
            Kind::Duration { min: ms(1000), max: hours(24) },
            Is("\"60s\""),
            "Longest silence of a replica before it is cut off.",
        )
        .known_elsewhere_as(&["repl-timeout"]),
        key(
            "ping_every",
            Kind::Duration { min: ms(100), max: hours(1) },
            Is("\"10s\""),
            "How often replicas are sent a sign of life.",
        )
        .known_elsewhere_as(&["repl-ping-replica-period"]),
        key(
            "min_replicas",
            Count { min: 0, max: 1024 },
            Is("0"),
            "Writes get the error `NOREPLICAS` while fewer replicas follow. 0: writes need none.",
        )
        .known_elsewhere_as(&["min-replicas-to-write", "min-slaves-to-write"]),
        key(
            "min_replicas_max_lag",
            Kind::Duration { min: ms(1000), max: hours(24) },
            Is("\"10s\""),
            "Longest silence of a replica that counts for `min_replicas`. Replicas speak once a second.",
        )
        .known_elsewhere_as(&["min-replicas-max-lag", "min-slaves-max-lag"]),
        key(
            "priority",
            Count { min: 0, max: 1 << 30 },
            Is("100"),
            "What a replica shows as `slave_priority`: sentinels promote the one with the lowest, and never one with 0.",
        )
        .known_elsewhere_as(&["replica-priority", "slave-priority"]),
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
