//! The values that CONFIG GET shows. Settings that Keyway does not have are absent, except those
//! that clients and tools ask of every server. These show what holds here (nothing is saved, no
//! client has a timeout, no events are notified).

use super::PoolFacts;
use keyway_base::Limits;
use keyway_worker::FeedFigures;
use std::net::SocketAddr;
use std::time::Duration;

/// Returns the pool's settings by Redis's names, in alphabetical order.
pub(super) fn of(pool: &PoolFacts) -> Vec<(&'static str, String)> {
    let listening = &pool.listening;
    let join = |words: Vec<String>| words.join(" ");
    let hosts = listening.tcp.iter().map(SocketAddr::ip);
    let bind = join(hosts.map(|host| host.to_string()).collect());
    let sockets = join(listening.unix.iter().map(|path| path.display().to_string()).collect());
    let keepalive = listening.keepalive.map_or(0, |silence| silence.as_secs());
    let memory_max = pool.store.as_ref().map_or(0, |store| (store.read)().memory_max);
    let slow_log_len_max = pool.slow_log.as_ref().map_or(0, |log| log.len_max());
    let notify = pool.store.as_ref().map_or(String::new(), |store| store.notify.clone());
    let text = |text: &str| text.to_owned();
    let feed = pool.role.get().map(|role| role.feed());
    let feed_number = |number: fn(&FeedFigures) -> u64| feed.as_ref().map_or(0, number).to_string();
    vec![
        ("appendonly", text("no")),
        ("bind", bind),
        ("client-output-buffer-limit", output_limits_of(pool, feed.as_ref())),
        ("client-query-buffer-limit", pool.request_len_max.to_string()),
        ("cluster-enabled", text("no")),
        ("databases", pool.databases.to_string()),
        ("latency-monitor-threshold", text("0")),
        ("maxclients", pool.clients_max.to_string()),
        ("maxmemory", memory_max.to_string()),
        ("maxmemory-policy", text(policy(pool))),
        ("min-replicas-max-lag", feed_number(|it| it.lag_max.as_secs())),
        ("min-replicas-to-write", feed_number(|it| it.replicas_min)),
        ("notify-keyspace-events", notify),
        ("port", listening.port().to_string()),
        ("proto-max-bulk-len", pool.bulk_len_max.to_string()),
        ("repl-backlog-size", feed_number(|it| it.history)),
        ("replica-priority", feed_number(|it| it.priority.into())),
        ("save", String::new()),
        ("slowlog-log-slower-than", slower_than(pool)),
        ("slowlog-max-len", slow_log_len_max.to_string()),
        ("tcp-backlog", listening.backlog.to_string()),
        ("tcp-keepalive", keepalive.to_string()),
        ("timeout", text("0")),
        ("tracking-table-max-keys", pool.tracking_keys_max.to_string()),
        ("unixsocket", sockets),
    ]
}

/// Returns the time in microseconds, as Redis shows it; -1 if no request is slow.
fn slower_than(pool: &PoolFacts) -> String {
    let slower_than = pool.slow_log.as_ref().map_or(Duration::MAX, |log| log.slower_than());
    match slower_than {
        Duration::MAX => "-1".to_owned(),
        slower_than => slower_than.as_micros().to_string(),
    }
}

/// Returns the bounds on undelivered bytes with that of replicas, which are cut off when they lack
/// more than half of what the stream may take.
fn output_limits_of(pool: &PoolFacts, feed: Option<&FeedFigures>) -> String {
    let room = feed.map_or(0, |feed| feed.room / 2);
    pool.output_limits.replace("slave 0 0 0", &format!("slave {room} 0 0"))
}

/// Returns the bounds on undelivered bytes by kind of client: the hard bound, the soft bound and
/// the time in seconds for which the soft bound may be exceeded; 0 for none. There are no replicas.
pub(super) fn output_limits(limits: &Limits) -> String {
    format!(
        "normal {} 0 0 slave 0 0 0 pubsub {} {} {}",
        limits.session_output_len_hard,
        limits.pubsub_output_len_hard,
        limits.pubsub_output_len_soft,
        limits.pubsub_output_soft_secs
    )
}

/// Returns the eviction policy; `noeviction` if there is no store.
pub(super) fn policy(pool: &PoolFacts) -> &'static str {
    pool.store.as_ref().map_or("noeviction", |store| store.policy)
}
