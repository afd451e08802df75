//! The lines of INFO about a store's role and its replicas, in Redis's words.

use super::Fields;
use keyway_worker::{FeedFigures, ReplicaFigures};

/// The section Replication of a store.
pub(super) fn of_store(replica: Option<&ReplicaFigures>, feed: &FeedFigures, fields: &mut Fields) {
    match replica {
        Some(replica) => of_replica(replica, feed, fields),
        None => drop(fields.put("role", "master")),
    }
    fields.put("connected_slaves", feed.replicas.len());
    if replica.is_none() && feed.replicas_min > 0 {
        fields.put("min_slaves_good_slaves", feed.replicas_good);
    }
    for (index, it) in feed.replicas.iter().enumerate() {
        let value = format_args!(
            "ip={},port={},state={},offset={},lag={}",
            it.address, it.port, it.state, it.offset, it.lag_seconds
        );
        fields.put(&format!("slave{index}"), value);
    }
    let none = "0".repeat(40);
    let second = feed.second.as_ref();
    let kept = feed.kept_from.filter(|from| *from <= feed.offset);
    fields
        .put("master_failover_state", feed.failover)
        .put("master_replid", &feed.id)
        .put("master_replid2", second.map_or(&none, |(id, _)| id))
        .put("master_repl_offset", feed.offset)
        // The first byte behind that offset; the bytes are counted from 1.
        .put("second_repl_offset", second.map_or(-1, |(_, offset)| *offset as i64 + 1))
        .put("repl_backlog_active", u8::from(kept.is_some()))
        .put("repl_backlog_size", feed.history)
        .put("repl_backlog_first_byte_offset", kept.map_or(0, |from| from + 1))
        .put("repl_backlog_histlen", kept.map_or(0, |from| feed.offset - from));
}

fn of_replica(replica: &ReplicaFigures, feed: &FeedFigures, fields: &mut Fields) {
    let seconds = |seconds: Option<u64>| seconds.map_or(-1, |seconds| seconds as i64);
    // As Redis: of a link that is down there is none.
    let last_io = replica.last_io_seconds.filter(|_| replica.is_up());
    let is_syncing = replica.state == "sync";
    fields
        .put("role", "slave")
        .put("master_host", &replica.host)
        .put("master_port", replica.port)
        .put("master_link_status", if replica.is_up() { "up" } else { "down" })
        .put("master_last_io_seconds_ago", seconds(last_io))
        .put("master_sync_in_progress", u8::from(is_syncing))
        .put("slave_read_repl_offset", replica.offset)
        .put("slave_repl_offset", replica.offset);
    if is_syncing {
        let (read, len) = (replica.received, replica.len.unwrap_or(0));
        fields
            .put("master_sync_total_bytes", len)
            .put("master_sync_read_bytes", read)
            .put("master_sync_left_bytes", len as i64 - read as i64)
            .put("master_sync_perc", format_args!("{:.2}", super::ratio(100 * read, len)))
            .put("master_sync_last_io_seconds_ago", seconds(replica.last_io_seconds));
    }
    if let Some(down) = replica.down_seconds {
        fields.put("master_link_down_since_seconds", down);
    }
    if let Some(reason) = &replica.down_reason {
        fields.put("master_link_down_reason", reason);
    }
    fields
        .put("slave_priority", feed.priority)
        .put("slave_read_only", 1)
        .put("replica_announced", 1);
}
