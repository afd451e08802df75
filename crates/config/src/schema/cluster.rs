use super::circuit::OUTLIERS;
use super::failover::GROUP_FAILOVER;
use super::key::{Key, Table, hours, key, ms};
use super::kind::{Absent, Choices, Kind};
use super::memcached::{as_sharded, is_same};
use super::pool_kinds::POOL_KINDS;
use Absent::{Is, Refused, Unset};
use Kind::{Choice, Count, Servers};

/// Returns the key of that name in the table of a cluster, which means the same here.
const fn as_cluster(name: &str) -> Key {
    let mut index = 0;
    while index < CLUSTER.keys.len() {
        if is_same(CLUSTER.keys[index].name.as_bytes(), name.as_bytes()) {
            return CLUSTER.keys[index];
        }
        index += 1;
    }
    panic!("no such key")
}

const fn seeds() -> Key {
    key(
        "servers",
        Servers,
        Refused,
        "Some servers of the cluster, `\"HOST:PORT\"` each, to ask for the others: primaries or replicas, at least one of which answers. They are asked again when no other does.",
    )
    .known_elsewhere_as(&["seeds", "nodes", "startup_nodes", "hosts", "backends"])
}

pub(crate) static CLUSTER: Table = Table {
    header: "[pool.NAME] of kind \"cluster\"",
    doc: "A Redis Cluster, of Redis 3.2 or later or Valkey, for clients that know nothing of clusters. Who has which slot is asked of its servers, `MOVED` and `ASK` are followed, and a request with keys of several slots is split and joined where its command allows that.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"cluster\"`."),
        seeds(),
        key(
            "discovery",
            Choice(&Choices { now: &["slots", "shards", "nodes"], later: &[] }),
            Is("\"slots\""),
            "What servers are asked for who has which slot: CLUSTER SLOTS, which every version knows, CLUSTER SHARDS (Redis 7) or CLUSTER NODES. Addresses come as the cluster announces them.",
        ),
        key(
            "refresh",
            Kind::Duration { min: ms(100), max: hours(24) },
            Is("\"10s\""),
            "How often that is asked when nothing has changed; after a `MOVED` or a failed connection it is asked at once.",
        ),
        key(
            "nodes_max",
            Count { min: 3, max: 1000 },
            Is("64"),
            "Most servers of the cluster, replicas counted. Room for the figures of each is set aside at start, some KiB per worker.",
        ),
        key(
            "redirections_max",
            Count { min: 1, max: 100 },
            Is("8"),
            "How often one request may be sent on or tried again, because its slot is moving, before its client gets the server's error.",
        ),
        key(
            "read_from",
            Kind::ReadFrom,
            Is("\"primary\""),
            "Which servers answer commands that only read: `\"primary\"`; `\"prefer-replica\"`, the primary while no replica can be read; `\"replica\"`, an error then; `\"nearest\"`, whichever of them answers fastest; or `\"zone:NAME\"`, those of that availability zone, which Valkey tells with `discovery = \"shards\"`, else as `\"prefer-replica\"`. What a replica answers may be older than what a client has just written.",
        )
        .known_elsewhere_as(&["readonly", "slave_read", "master_read_priority", "read_mode"]),
        key(
            "pin_after_write",
            Kind::Duration { min: ms(1), max: hours(1) },
            Unset("a client may read from replicas at once"),
            "For so long after a write a connection of a client of this pool reads from primaries, so that it finds what it has written unless replicas are further behind. Another connection of the same client does not know of the write.",
        ),
        key(
            "replica_lag_max",
            Kind::Duration { min: ms(1000), max: hours(1) },
            Unset("replicas are read however far they are behind"),
            "A replica that has not told its primary for longer how far it is, or lacked for longer then what the primary had, is not read, as the primary says in INFO; to about a second.",
        ),
        key(
            "read_weights",
            Servers,
            Unset("all are read as often"),
            "`\"HOST:PORT:WEIGHT\"` of servers that are read more often than the others, which count 1; up to 100.",
        ),
        key(
            "read_from_primary",
            Kind::Commands,
            Is("[]"),
            "Commands that primaries answer though they only read, such as `[\"ttl\", \"xread\"]`.",
        ),
        key(
            "outliers",
            Kind::Table(&OUTLIERS),
            Unset("off: all that can be reached are read"),
            "Leave servers out of those that are read which are much slower than the others, or fail.",
        ),
        key(
            "hedge_after",
            Kind::HedgeAfter,
            Unset("a read is sent once"),
            "A read that has no answer after so long is sent to another server too that may answer it by `read_from`, and the first answer counts: a fixed time, or `\"p99\"`, as long as 99 of 100 requests of the pool took in the last seconds.",
        )
        .known_elsewhere_as(&["hedge", "hedging", "hedge_delay", "speculative_retry"]),
        key(
            "hedge_after_min",
            Kind::Duration { min: ms(1), max: ms(60_000) },
            Is("\"1ms\""),
            "With `\"p99\"`, a read is not sent again sooner.",
        ),
        key(
            "hedge_after_max",
            Kind::Duration { min: ms(1), max: ms(60_000) },
            Is("\"100ms\""),
            "With `\"p99\"`, it is sent again at the latest after so long, also while too little is known.",
        ),
        key(
            "hedge_budget",
            Kind::Share,
            Is("\"5%\""),
            "The share of reads that may be sent twice, of those of the last second; one in a second in any case, by each worker. The others wait for their server.",
        ),
        key(
            "retry_budget",
            Kind::Share,
            Unset("requests are sent again whenever they may be"),
            "How many requests are sent again because a server could not take them or was lost, as a share of those of the last ten seconds; ten in any case, by each worker. When it is used up, clients get the server's error. What `MOVED` and `ASK` send elsewhere does not count.",
        )
        .known_elsewhere_as(&["retries", "retry_ratio", "max_retries"]),
        key(
            "wait_for_primary",
            Kind::Duration { min: ms(1), max: hours(1) },
            Unset("a request fails at once while its primary is gone"),
            "Longest time that an unsent request waits for its primary while that cannot be reached or is not known. Then the client gets the error. `timeout` counts from when the request is sent. A request that may have been executed never waits and is never sent again.",
        )
        .known_elsewhere_as(&["failover_timeout", "wait_for_failover", "failover_wait"]),
        as_sharded("timeout"),
        as_sharded("connect_timeout"),
        as_sharded("server_connections"),
        as_sharded("preconnect"),
        as_sharded("password"),
        as_sharded("password_file"),
        as_sharded("password_env"),
        as_sharded("client_password"),
        as_sharded("allow_flush"),
        as_sharded("slowlog_log_slower_than"),
        as_sharded("slowlog_max_len"),
        as_sharded("circuit"),
        as_sharded("tls"),
        as_sharded("reconnect"),
        as_sharded("clients_max"),
        as_sharded("queue_len_max"),
    ],
};

pub(crate) static SLOTS: Table = Table {
    header: "[pool.NAME] of kind \"slots\"",
    doc: "Groups of servers, each a primary with its replicas, and a number of slots that they share. The slot of a key says to which group it belongs, as in Codis and in Redis Cluster; the servers are plain ones that know nothing of it. docs/slots.md has examples.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"slots\"`."),
        key(
            "slots",
            Count { min: 1024, max: 16384 },
            Refused,
            "`1024`: a key's slot is Codis's, by CRC-32, and an empty `{}` is a tag. `16384`: it is Redis Cluster's, by CRC-16, and an empty `{}` is none.",
        ),
        key(
            "groups",
            Kind::List(&SLOT_GROUP),
            Refused,
            "The groups, each with its servers and slots. Every slot belongs to one of them.",
        ),
        key(
            "refresh",
            Kind::Duration { min: ms(100), max: hours(1) },
            Is("\"500ms\""),
            "How often servers are asked which of them are primaries.",
        ),
        as_cluster("redirections_max"),
        as_cluster("read_from"),
        as_cluster("pin_after_write"),
        as_cluster("replica_lag_max"),
        as_cluster("read_weights"),
        as_cluster("read_from_primary"),
        as_cluster("outliers"),
        as_cluster("hedge_after"),
        as_cluster("hedge_after_min"),
        as_cluster("hedge_after_max"),
        as_cluster("hedge_budget"),
        as_cluster("retry_budget"),
        as_cluster("wait_for_primary"),
        key(
            "failover",
            Kind::Table(&GROUP_FAILOVER),
            Unset("servers tell the primary"),
            "Let the control plane decide which server of each group is its primary, and fail over. `keyway ctl` calls a group `POOL:GROUP`.",
        ),
        as_sharded("timeout"),
        as_sharded("connect_timeout"),
        as_sharded("server_connections"),
        as_sharded("preconnect"),
        as_sharded("password"),
        as_sharded("password_file"),
        as_sharded("password_env"),
        as_sharded("client_password"),
        as_sharded("allow_flush"),
        as_sharded("slowlog_log_slower_than"),
        as_sharded("slowlog_max_len"),
        as_sharded("circuit"),
        as_sharded("tls"),
        as_sharded("reconnect"),
        as_sharded("clients_max"),
        as_sharded("queue_len_max"),
    ],
};

pub(crate) static SLOT_GROUP: Table = Table {
    header: "[[pool.NAME.groups]]",
    doc: "`groups = [{ name = \"a\", servers = [\"HOST:PORT\"], slots = \"0-511\" }]` in a pool of kind `\"slots\"`.",
    keys: &[
        key("name", Kind::Text, Refused, "Its name in logs and commands: 1 to 31 letters, digits, `-`, `_` and `.`."),
        key(
            "servers",
            Servers,
            Refused,
            "A primary and its replicas, `\"HOST:PORT\"` each. Every one is asked which it is. Of several that say they are primaries the one with most replicas counts.",
        )
        .known_elsewhere_as(&["nodes", "hosts", "backends"]),
        key(
            "slots",
            Kind::Text,
            Refused,
            "Its slots: ranges and single slots, `\"0-511\"` or `\"0-99, 200\"`; `\"\"`: none.",
        ),
    ],
};

pub(crate) static REPLICATED: Table = Table {
    header: "[pool.NAME] of kind \"replicated\"",
    doc: "A primary and its replicas, or several such primaries over which keys are spread by hash. Who is the primary is asked of Sentinel, or, of servers that are listed, of themselves.",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"replicated\"`."),
        key(
            "sentinels",
            Servers,
            Unset("`servers` are listed"),
            "Sentinels, `\"HOST:PORT\"` each. All of them are asked every `refresh`, and at once when one of them tells of a fail-over (`+switch-master`); what one says that is older than what another has said counts for nothing.",
        )
        .known_elsewhere_as(&["sentinel"]),
        key(
            "primaries",
            Kind::Names,
            Unset("`servers` are listed"),
            "What Sentinel calls the primaries: `[\"mymaster\"]`. Of several each key is one's, by `hash` and `distribution` over these names.",
        )
        .known_elsewhere_as(&["masters", "master_name", "service_name"]),
        key(
            "sentinel_password",
            Kind::Secret,
            Unset("none is sent"),
            "What is sent to sentinels with AUTH.",
        ),
        key(
            "sentinel_password_file",
            Kind::Path,
            Unset("none is sent"),
            "A file that holds that password; one newline at its end is ignored.",
        ),
        key(
            "sentinel_password_env",
            Kind::Variable,
            Unset("none is sent"),
            "The variable of the environment that holds that password.",
        ),
        key(
            "servers",
            Servers,
            Unset("they are found through `sentinels`"),
            "One primary and its replicas, `\"HOST:PORT\"` each, without Sentinel: every one is asked twice a second which it is. Of several that say they are primaries the one with most replicas counts.",
        )
        .known_elsewhere_as(&["nodes", "hosts", "backends"]),
        as_sharded("hash"),
        as_sharded("distribution"),
        as_sharded("hash_tag"),
        key(
            "refresh",
            Kind::Duration { min: ms(100), max: hours(1) },
            Is("\"500ms\""),
            "How often that is asked.",
        ),
        as_cluster("nodes_max"),
        as_cluster("redirections_max"),
        as_cluster("read_from"),
        as_cluster("pin_after_write"),
        as_cluster("replica_lag_max"),
        as_cluster("read_weights"),
        as_cluster("read_from_primary"),
        as_cluster("outliers"),
        as_cluster("hedge_after"),
        as_cluster("hedge_after_min"),
        as_cluster("hedge_after_max"),
        as_cluster("hedge_budget"),
        as_cluster("retry_budget"),
        as_cluster("wait_for_primary"),
        key(
            "failover",
            Kind::Table(&GROUP_FAILOVER),
            Unset("servers or sentinels tell the primary"),
            "Let the control plane decide which of the `servers` is the primary, and fail over.",
        ),
        as_sharded("timeout"),
        as_sharded("connect_timeout"),
        as_sharded("server_connections"),
        as_sharded("preconnect"),
        as_sharded("password"),
        as_sharded("password_file"),
        as_sharded("password_env"),
        as_sharded("client_password"),
        as_sharded("allow_flush"),
        as_sharded("slowlog_log_slower_than"),
        as_sharded("slowlog_max_len"),
        as_sharded("circuit"),
        as_sharded("tls"),
        super::tls::OF_SENTINELS,
        as_sharded("reconnect"),
        as_sharded("clients_max"),
        as_sharded("queue_len_max"),
    ],
};
