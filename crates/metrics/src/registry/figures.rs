//! Figures that are read on request from the component that keeps them.

/// Reloads of the configuration.
#[derive(Clone, Debug, Default)]
pub struct ReloadFigures {
    /// The number of the settings in force.
    pub generation: u64,
    /// Time of the last reload, in seconds since 1970; 0 if there was none.
    pub last_unix_seconds: u64,
    /// Pools that are still being ended.
    pub ending_pools: u64,
    /// Number of reloads with each result.
    pub results: Vec<(&'static str, u64)>,
}

/// Figures of an embedded store, read at each scrape.
#[derive(Clone, Debug, Default)]
pub struct StoreFigures {
    /// Databases worth showing: at least those that hold a key.
    pub databases: Vec<DatabaseFigures>,
    /// Bytes held for items and tables.
    pub memory_bytes: u64,
    /// Look-ups by reading commands that found their key.
    pub hits: u64,
    /// Look-ups by reading commands that did not find their key.
    pub misses: u64,
    /// Keys removed to stay within the memory bound.
    pub evictions: u64,
    /// Keys removed because they had expired.
    pub expirations: u64,
    /// Fields of hashes removed because they had expired.
    pub expired_fields: u64,
    /// Quotas of its keys.
    pub quotas: Vec<QuotaFigures>,
    /// Its scripts.
    pub scripts: ScriptFigures,
    /// Its snapshots, if it has a file for them.
    pub snapshots: Option<SnapshotFigures>,
    /// Its log, if it has one.
    pub log: Option<LogFigures>,
    /// 1 while it is loaded from a file, 0 if it could be.
    pub loading: Option<u64>,
    /// Its link to a primary, if it is a replica.
    pub replica: Option<ReplicaFigures>,
    /// Its replicas, if it may have any.
    pub feed: Option<FeedFigures>,
}

/// The log of [`StoreFigures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LogFigures {
    /// 1 while it takes no writes.
    pub has_failed: u64,
    /// How often it began to take none.
    pub losses: u64,
    /// Attempts to take writes again that failed.
    pub failed_attempts: u64,
    /// Bytes of writes that were written.
    pub written_bytes: u64,
    /// Its length.
    pub bytes: u64,
    /// Calls of fsync.
    pub fsyncs: u64,
    /// How long they took.
    pub fsync_seconds: f64,
    /// Compactions that are done.
    pub compactions: u64,
    /// Compactions that failed.
    pub compaction_failures: u64,
}

/// The link to its primary of [`StoreFigures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaFigures {
    /// 1 while the stream comes.
    pub is_up: u64,
    /// Seconds since the last byte came.
    pub last_io_seconds: u64,
    /// The offset of what was executed.
    pub offset_bytes: u64,
    /// Snapshots that were taken whole.
    pub full_resyncs: u64,
    /// Links that went on where the one before had ended.
    pub partial_resyncs: u64,
    /// Links that ended or did not come about.
    pub failures: u64,
    /// Commands of the stream that were executed.
    pub commands: u64,
    /// Of these, the ones that failed.
    pub failed_commands: u64,
}

/// The replicas of [`StoreFigures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FeedFigures {
    /// Those that are fed.
    pub replicas: u64,
    /// Those that follow and have spoken lately.
    pub good: u64,
    /// The offset of the data.
    pub offset_bytes: u64,
    /// Bytes that the latest of those that follow lacks.
    pub lag_bytes: u64,
    /// Bytes of the stream in memory.
    pub stream_bytes: u64,
    /// Bytes on their way to replicas, and to the next process of an upgrade.
    pub unsent_bytes: u64,
    /// Those that came since the process started.
    pub attached: u64,
    /// Of these, the ones that were cut off as they were slow.
    pub cut_off: u64,
}

/// The snapshots of [`StoreFigures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotFigures {
    /// Those that were written whole.
    pub saved: u64,
    /// Those that failed.
    pub failures: u64,
    /// 1 if the last one failed.
    pub has_failed: u64,
    /// 1 while one is being written.
    pub running: u64,
    /// When the last whole one was made.
    pub saved_unix_seconds: u64,
    /// Its length.
    pub bytes: u64,
    /// How long the last one took.
    pub seconds: f64,
    /// The most that it held in memory above the data.
    pub buffer_bytes: u64,
}

/// The scripts and functions of [`StoreFigures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptFigures {
    /// Scripts and functions that were run.
    pub runs: u64,
    /// Runs of these whose reply was an error.
    pub errors: u64,
    /// Runs of these that were ended.
    pub ended: u64,
    /// Total run time, in seconds.
    pub seconds: f64,
    /// Scripts that are cached.
    pub cached: u64,
    /// Bytes of Lua's memory.
    pub memory_bytes: u64,
}

/// One quota of [`StoreFigures`].
#[derive(Clone, Debug, Default)]
pub struct QuotaFigures {
    /// Its key prefix.
    pub prefix: String,
    /// Memory of its keys, in bytes.
    pub memory_bytes: u64,
    /// Number of its keys.
    pub items: u64,
    /// Keys of these removed to stay within it.
    pub evictions: u64,
    /// Writes refused because of it.
    pub refusals: u64,
}

/// Figures of the clients of a listener, read at each scrape.
#[derive(Clone, Debug, Default)]
pub struct AccessFigures {
    /// Clients connected now.
    pub connected: u64,
    /// Connections that were secured.
    pub secured: u64,
    /// Refused clients, by reason.
    pub turned_away: Vec<(&'static str, u64)>,
}

/// Figures of arriving clients, read at each scrape.
#[derive(Clone, Debug, Default)]
pub struct FrontFigures {
    /// The figures of every listener, with its address.
    pub listeners: Vec<(String, AccessFigures)>,
    /// Files with certificates, with their time of expiry in seconds since 1970.
    pub certificates: Vec<(String, i64)>,
}

/// Figures of all clients' transactions together, read at each scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionFigures {
    /// Bytes held for them now.
    pub held_bytes: u64,
    /// Most bytes that they may take.
    pub limit_bytes: u64,
    /// Commands refused because of that bound.
    pub refused_commands: u64,
}

/// Failed logins at a listener, read at each scrape.
#[derive(Clone, Debug, Default)]
pub struct LoginFigures {
    /// The address of the listener.
    pub listener: String,
    /// Number of failures for each reason.
    pub failures: Vec<(&'static str, u64)>,
}

/// Figures of the warm-up of a pool from another, read at each scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmUpFigures {
    /// Reads that found a key in the new pool, of keys with another server in the old pool.
    pub new_hits: u64,
    /// Keys looked up in the old pool.
    pub lookups: u64,
    /// Keys of these that were found.
    pub old_hits: u64,
    /// Items copied.
    pub fills: u64,
    /// Items not copied, because the new server refused them.
    pub failed_fills: u64,
    /// Items removed again, because the old pool lost them meanwhile.
    pub withdrawn_fills: u64,
    /// Removals of these that failed.
    pub stranded_fills: u64,
    /// Requests to the old pool that failed.
    pub old_errors: u64,
    /// True if the warm-up is still active.
    pub is_active: bool,
}

/// Figures of a cluster, read at each scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFigures {
    /// The name of the server with each index; `None` if there is none.
    pub backends: Vec<Option<String>>,
    /// The role of each of them.
    pub roles: Vec<Option<BackendRole>>,
    /// The reported state of those that are known to be down.
    pub down: Vec<Option<&'static str>>,
    /// Requests sent on because of `MOVED`.
    pub moved: u64,
    /// Requests sent on because of `ASK`.
    pub asked: u64,
    /// Requests tried again a little later, or by another server.
    pub retried: u64,
    /// Requests that were not tried again because the budget was used up.
    pub retries_refused: u64,
    /// Reads that were sent to a second server.
    pub hedged: u64,
    /// Reads of these that the second server answered first.
    pub hedges_won: u64,
    /// Reads that were not sent to a second server because the budget was used up.
    pub hedges_refused: u64,
    /// Requests whose client got such an error.
    pub given_up: u64,
    /// Clients with a request that waits for a primary now.
    pub primary_waiting: u64,
    /// Requests that have waited for a primary.
    pub primary_waits: u64,
    /// Requests that have waited and were refused in the end.
    pub primary_waits_over: u64,
    /// Answers to the question for the owners of slots.
    pub views: u64,
    /// Such questions without an answer.
    pub unanswered: u64,
    /// Answers that were older than the known state.
    pub stale: u64,
    /// Unasked notices of sentinels about its primaries.
    pub notices: u64,
    /// Slots that have a server; `None` if keys have no slots.
    pub slots: Option<u64>,
    /// Slots whose server can be reached.
    pub reachable_slots: Option<u64>,
    /// Primaries with keys that can be reached.
    pub reachable_primaries: u64,
    /// Shards that had replicas and have none now.
    pub unreplicated_shards: u64,
}

/// The role of a server that was discovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRole {
    /// `primary`, `replica` or `none`.
    pub role: &'static str,
    /// The primary that it copies, or the name of its primary; empty if there is none.
    pub of: String,
}

/// Figures of a pool that leads to others, read at each scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteFigures {
    /// Requests sent to another child because one could not serve them.
    pub failovers: u64,
    /// Failures of children to serve a request.
    pub child_failures: u64,
    /// Reads sent to another child because one had a miss.
    pub lookups: u64,
    /// Items filled in.
    pub fills: u64,
    /// Items that were to be filled in and were refused.
    pub failed_fills: u64,
    /// Requests copied to a shadow.
    pub shadowed: u64,
    /// Requests that were to be copied and were dropped.
    pub shadow_drops: u64,
    /// Requests refused because of the rate limit.
    pub rate_limited: u64,
}

/// One database of [`StoreFigures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseFigures {
    /// Its number.
    pub database: u32,
    /// Number of keys.
    pub items: u64,
    /// Number of keys with an expiry.
    pub expiring_items: u64,
}
