//! Figures that are read when they are asked for, from whoever keeps them.

/// Reloads of the configuration.
#[derive(Clone, Debug, Default)]
pub struct ReloadFigures {
    /// Which settings are in force.
    pub generation: u64,
    /// When they were last reloaded, in seconds since 1970; 0 if they never were.
    pub last_unix_seconds: u64,
    /// Pools that are still being ended.
    pub ending_pools: u64,
    /// How many had each result.
    pub results: Vec<(&'static str, u64)>,
}

/// What an embedded store counts, read when somebody scrapes.
#[derive(Clone, Debug, Default)]
pub struct StoreFigures {
    /// Databases worth showing: at least those that hold a key.
    pub databases: Vec<DatabaseFigures>,
    /// Bytes held for items and tables.
    pub memory_bytes: u64,
    /// Look-ups by reading commands that found their key.
    pub hits: u64,
    /// Look-ups by reading commands that did not.
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
    /// 1 while one is being loaded.
    pub loading: u64,
}

/// The scripts and functions of [`StoreFigures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptFigures {
    /// Those that were run.
    pub runs: u64,
    /// Of these, those whose reply was an error.
    pub errors: u64,
    /// Of these, those that were ended.
    pub ended: u64,
    /// How long all of them ran.
    pub seconds: f64,
    /// Scripts that are kept.
    pub cached: u64,
    /// Bytes of Lua's memory.
    pub memory_bytes: u64,
}

/// One quota of [`StoreFigures`].
#[derive(Clone, Debug, Default)]
pub struct QuotaFigures {
    /// What its keys begin with.
    pub prefix: String,
    /// Bytes that they take.
    pub memory_bytes: u64,
    /// How many they are.
    pub items: u64,
    /// Of them, those removed to stay within it.
    pub evictions: u64,
    /// Writes refused because of it.
    pub refusals: u64,
}

/// What came of the clients of a listener, read when somebody scrapes.
#[derive(Clone, Debug, Default)]
pub struct EntranceFigures {
    /// Clients connected now.
    pub connected: u64,
    /// Connections that were secured.
    pub secured: u64,
    /// Clients turned away, by why.
    pub turned_away: Vec<(&'static str, u64)>,
}

/// How clients come in, read when somebody scrapes.
#[derive(Clone, Debug, Default)]
pub struct FrontFigures {
    /// Of every listener, with its address.
    pub listeners: Vec<(String, EntranceFigures)>,
    /// Files with certificates, and when these expire, in seconds since 1970.
    pub certificates: Vec<(String, i64)>,
}

/// What the clients' transactions take together, read when somebody scrapes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionFigures {
    /// Bytes held for them now.
    pub held_bytes: u64,
    /// As many they may take.
    pub limit_bytes: u64,
    /// Commands refused because of that.
    pub refused_commands: u64,
}

/// The logins that failed at a listener, read when somebody scrapes.
#[derive(Clone, Debug, Default)]
pub struct LoginFigures {
    /// Where it listens.
    pub listener: String,
    /// How many failed for which reason.
    pub failures: Vec<(&'static str, u64)>,
}

/// How far a pool is warmed up from another, read when somebody scrapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmUpFigures {
    /// Reads that found a key with another server in the old pool in the new one.
    pub new_hits: u64,
    /// Keys looked for in the old pool.
    pub lookups: u64,
    /// Of these, those found.
    pub old_hits: u64,
    /// Items brought over.
    pub fills: u64,
    /// Items not brought over, since the new server did not take them.
    pub failed_fills: u64,
    /// Items taken back, since the old pool lost them meanwhile.
    pub withdrawn_fills: u64,
    /// Of these, those of which that failed.
    pub stranded_fills: u64,
    /// Requests to the old pool that failed.
    pub old_errors: u64,
    /// Whether it goes on.
    pub is_active: bool,
}

/// What a cluster came to, read when somebody scrapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFigures {
    /// The name of the server at each place; `None` where there is none.
    pub backends: Vec<Option<String>>,
    /// What each of them does.
    pub roles: Vec<Option<BackendRole>>,
    /// What is said of those of them that are known to be down.
    pub down: Vec<Option<&'static str>>,
    /// Requests sent on by `MOVED`.
    pub moved: u64,
    /// Requests sent on by `ASK`.
    pub asked: u64,
    /// Requests tried again a little later, or of another server.
    pub retried: u64,
    /// Requests that were not, for want of budget.
    pub retries_refused: u64,
    /// Reads that a second server was sent.
    pub hedged: u64,
    /// Those that it answered first.
    pub hedges_won: u64,
    /// Those that it was not sent, for want of budget.
    pub hedges_refused: u64,
    /// Requests whose client got such an error.
    pub given_up: u64,
    /// Clients of which a request waits for a primary now.
    pub primary_waiting: u64,
    /// Requests that have waited for a primary.
    pub primary_waits: u64,
    /// Requests that waited so and were refused in the end.
    pub primary_waits_over: u64,
    /// Answers to the question who has which slot.
    pub views: u64,
    /// Such questions that were not answered.
    pub unanswered: u64,
    /// Answers that were of before what was known.
    pub stale: u64,
    /// What sentinels told unasked of its primaries.
    pub notices: u64,
    /// Slots that a server has; `None` where keys have no slots.
    pub slots: Option<u64>,
    /// Slots of which the server can be reached.
    pub reachable_slots: Option<u64>,
    /// Primaries with keys that can be reached.
    pub reachable_primaries: u64,
    /// Shards that had replicas and have none any more.
    pub unreplicated_shards: u64,
}

/// What a server does whose role is found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRole {
    /// `primary`, `replica` or `none`.
    pub role: &'static str,
    /// The primary that it copies, or the name of its primary; empty where there is none.
    pub of: String,
}

/// What a pool that leads to others has done, read when somebody scrapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteFigures {
    /// Requests asked of another child since one could not serve them.
    pub failovers: u64,
    /// Children that could not serve a request they were asked.
    pub child_failures: u64,
    /// Reads asked of another child since one had nothing.
    pub lookups: u64,
    /// Items filled in.
    pub fills: u64,
    /// Items that were to be filled in and were not taken.
    pub failed_fills: u64,
    /// Requests copied to a shadow.
    pub shadowed: u64,
    /// Requests that were to be copied and were not.
    pub shadow_drops: u64,
    /// Requests refused for their rate.
    pub rate_limited: u64,
}

/// One database of [`StoreFigures`].
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseFigures {
    /// Its number.
    pub database: u32,
    /// Keys.
    pub items: u64,
    /// Keys with an expiry.
    pub expiring_items: u64,
}
