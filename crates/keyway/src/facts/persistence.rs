//! The section of INFO about snapshots of an embedded store, in Redis's words.

use super::Fields;
use keyway_store::{Compaction, LogState, LogStatus, SnapshotStatus};

/// The figures of a pool without a store. Nothing of it is ever loading, saved or failing.
pub(super) fn nothing(fields: &mut Fields) {
    let status = SnapshotStatus { saved_millis: -1, ..SnapshotStatus::default() };
    saved(&status, None, 0, 0, fields);
}

/// The figures of a store with so many changes since the start, at a second since the Unix epoch.
pub(super) fn saved(
    status: &SnapshotStatus,
    log: Option<&LogStatus>,
    changes: u64,
    now: u64,
    fields: &mut Fields,
) {
    let running_seconds = match status.is_saving {
        true => now.saturating_sub(status.began) as i64,
        false => -1,
    };
    let last_seconds = if status.saved_millis < 0 { -1 } else { status.saved_millis / 1000 };
    fields
        .put("loading", u8::from(status.is_loading))
        .put("async_loading", 0)
        .put("current_cow_peak", if status.is_saving { status.buffered_peak } else { 0 })
        .put("current_cow_size", if status.is_saving { status.buffered } else { 0 })
        .put("rdb_changes_since_last_save", changes.saturating_sub(status.saved_changes))
        .put("rdb_bgsave_in_progress", u8::from(status.is_saving))
        .put("rdb_last_save_time", status.saved_at)
        .put("rdb_last_bgsave_status", if status.last_failed { "err" } else { "ok" })
        .put("rdb_last_bgsave_time_sec", last_seconds)
        .put("rdb_current_bgsave_time_sec", running_seconds)
        .put("rdb_saves", status.saves)
        .put("rdb_last_cow_size", status.buffered_peak)
        .put("rdb_last_load_keys_expired", status.load_expired)
        .put("rdb_last_load_keys_loaded", status.load_keys);
    logged(log, now, fields);
    if status.is_loading {
        loading(status, now, fields);
    }
}

/// The figures of a log, or of none.
fn logged(status: Option<&LogStatus>, now: u64, fields: &mut Fields) {
    let none = LogStatus::default();
    let log = status.unwrap_or(&none);
    let last_seconds = log.last_compaction_seconds.map_or(-1, |seconds| seconds as i64);
    let is_running = log.compaction == Compaction::Running;
    let running_seconds = match (is_running, log.compaction_began) {
        (false, _) => -1,
        (true, 0) => 0,
        (true, began) => now.saturating_sub(began) as i64,
    };
    let ok = |is_ok: bool| if is_ok { "ok" } else { "err" };
    fields
        .put("aof_enabled", u8::from(status.is_some()))
        .put("aof_rewrite_in_progress", u8::from(is_running))
        .put("aof_rewrite_scheduled", u8::from(log.compaction == Compaction::Scheduled))
        .put("aof_last_rewrite_time_sec", last_seconds)
        .put("aof_current_rewrite_time_sec", running_seconds)
        .put("aof_last_bgrewrite_status", ok(!log.last_compaction_failed))
        .put("aof_rewrites", log.compactions)
        .put("aof_last_write_status", ok(log.state != LogState::Lost));
    if status.is_some() {
        fields
            .put("aof_current_size", log.base_len + log.segments_len)
            .put("aof_base_size", log.base_len)
            .put("aof_pending_rewrite", 0)
            .put("aof_pending_bio_fsync", u8::from(log.is_unsynced));
    }
}

/// How far loading is.
fn loading(status: &SnapshotStatus, now: u64, fields: &mut Fields) {
    let (read, len) = (status.load_read, status.load_len);
    let elapsed = now.saturating_sub(status.load_began);
    let eta = match read {
        0 => 1,
        read => (elapsed as f64 * len.saturating_sub(read) as f64 / read as f64).ceil() as u64,
    };
    fields
        .put("loading_start_time", status.load_began)
        .put("loading_total_bytes", len)
        .put("loading_loaded_bytes", read)
        .put("loading_loaded_perc", format_args!("{:.2}", super::ratio(100 * read, len)))
        .put("loading_eta_seconds", eta);
}
