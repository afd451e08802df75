//! The lines of INFO about a store that is a replica, in Redis's words.

use super::Fields;
use keyway_worker::ReplicaFigures;

/// The section Replication of a replica.
pub(super) fn of(replica: &ReplicaFigures, fields: &mut Fields) {
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
    fields
        .put("slave_priority", 100)
        .put("slave_read_only", 1)
        .put("replica_announced", 1)
        .put("connected_slaves", 0)
        .put("master_failover_state", "no-failover")
        .put("master_replid", replica.id.clone().unwrap_or_else(|| "0".repeat(40)))
        .put("master_replid2", "0".repeat(40))
        .put("master_repl_offset", replica.offset)
        .put("second_repl_offset", -1)
        .put("repl_backlog_active", 0)
        .put("repl_backlog_size", 0)
        .put("repl_backlog_first_byte_offset", 0)
        .put("repl_backlog_histlen", 0);
}
