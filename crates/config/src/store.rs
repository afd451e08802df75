//! The pool of the embedded store.

use crate::error::{Problem, Report, quoted};
use crate::model::{
    Eviction, LogFsync, QuotaConfig, ReplicaConfig, SnapshotConfig, StoreConfig, StoreLogConfig,
};
use crate::replica;
use crate::secret::ReadFile;
use crate::section::{NamedPool, Section, Value};
use crate::servers::{SLOW_LOG_LEN, slower_than};
use keyway_base::KeyspaceEvents;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// Memory that a snapshot, or a log, may take above the data, in bytes.
const BUFFER: u64 = 256 << 20;

/// Stands for a pool that was refused, so that the indices of other pools stay right.
pub(crate) const STORE_PLACEHOLDER: StoreConfig = StoreConfig {
    memory_max: None,
    eviction: Eviction::AllKeysS3Fifo,
    databases: 1,
    notify_keyspace_events: KeyspaceEvents::NONE,
    script_time_max: Duration::from_secs(5),
    script_busy_after: Duration::from_secs(1),
    script_memory_max: 64 << 20,
    slower_than: Duration::from_millis(10),
    slow_log_len_max: 128,
    expire_after_read: None,
    expire_after_read_percent: 50,
    quotas: Vec::new(),
    snapshot: None,
    log: None,
    replica: ReplicaConfig::NONE,
};

/// Reads a pool of the embedded store.
pub(crate) fn store(
    section: &Section,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> StoreConfig {
    let name = section.text("eviction").unwrap_or_default();
    let eviction = Eviction::ALL.into_iter().find(|eviction| eviction.name() == name);
    let log = section.section("log").and_then(log);
    let replica = replica::resolve(section, read_file, report);
    StoreConfig {
        memory_max: section.number("memory_max"),
        eviction: eviction.unwrap_or(Eviction::AllKeysS3Fifo),
        databases: section.number_u32("databases"),
        notify_keyspace_events: match section.value("notify_keyspace_events") {
            Some(Value::KeyspaceEvents(events)) => *events,
            _ => KeyspaceEvents::NONE,
        },
        script_time_max: section.duration("script_time_max").unwrap_or(Duration::MAX),
        script_busy_after: section.duration("script_busy_after").unwrap_or(Duration::MAX),
        script_memory_max: section.number("script_memory_max").unwrap_or(u64::MAX),
        slower_than: slower_than(section),
        slow_log_len_max: section.number_u32(SLOW_LOG_LEN),
        expire_after_read: section.duration("expire_after_read"),
        expire_after_read_percent: section.number("expire_after_read_percent").unwrap_or(50) as u8,
        quotas: quotas(section, report),
        snapshot: section.section("snapshot").and_then(snapshot),
        log,
        replica,
    }
}

fn snapshot(section: &Section) -> Option<SnapshotConfig> {
    let Some(Value::Path(file)) = section.value("file") else { return None };
    Some(SnapshotConfig {
        file: file.clone(),
        every: section.duration("every"),
        on_shutdown: section.bool("on_shutdown"),
        rate_max: section.number("rate_max"),
        buffer: section.number("buffer").unwrap_or(BUFFER),
    })
}

fn log(section: &Section) -> Option<StoreLogConfig> {
    let Some(Value::Path(dir)) = section.value("dir") else { return None };
    let word = section.text("fsync").unwrap_or_default();
    let fsync = LogFsync::ALL.into_iter().find(|fsync| fsync.name() == word);
    Some(StoreLogConfig {
        dir: dir.clone(),
        fsync: fsync.unwrap_or(LogFsync::EverySecond),
        buffer: section.number("buffer").unwrap_or(BUFFER),
    })
}

/// Refuses files that two pools would write: the same snapshot, the same directory of a log, or a
/// snapshot in the directory of a log, which removes files that it does not know.
pub(crate) fn refuse_shared_files(named: &[NamedPool], report: &mut Report<'_>) {
    let mut files = BTreeMap::new();
    let mut dirs = BTreeMap::new();
    for pool in named {
        let Some(("store", section)) = &pool.section else { continue };
        for (table, key, taken) in [("snapshot", "file", &mut files), ("log", "dir", &mut dirs)] {
            let Some(of_table) = section.section(table) else { continue };
            let Some(Value::Path(path)) = of_table.value(key) else { continue };
            let at = of_table.place(key);
            match taken.entry(plain(path)) {
                Entry::Vacant(entry) => _ = entry.insert(at),
                Entry::Occupied(entry) => {
                    let what = format!(
                        "{} is taken: {} names it already",
                        quoted(&path.display().to_string()),
                        report.line_text_of(*entry.get())
                    );
                    report.consequence(at, Problem::new(what, "give each pool its own"));
                }
            }
        }
    }
    for (file, at) in &files {
        if let Some(dir) = file.parent().and_then(|parent| dirs.get(parent)) {
            let what = format!(
                "the snapshot {} is in the directory of a log, that of {}",
                quoted(&file.display().to_string()),
                report.line_text_of(*dir)
            );
            report.consequence(*at, Problem::new(what, "put the snapshot into another directory"));
        }
    }
}

/// A path from the root on, without `.` and `..`, by its letters alone.
fn plain(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let mut plain = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain
}

/// Most quotas of a store; the store takes no more.
const QUOTAS_MAX: usize = 64;

fn quotas(store: &Section, report: &mut Report<'_>) -> Vec<QuotaConfig> {
    let sections = store.sections("quotas");
    if let Some(beyond) = sections.get(QUOTAS_MAX) {
        let what = format!("{} has {} quotas", store.header, sections.len());
        report.consequence(beyond.at, Problem::new(what, format!("write up to {QUOTAS_MAX}")));
    }
    let mut quotas: Vec<QuotaConfig> = Vec::new();
    for section in sections.iter().take(QUOTAS_MAX) {
        let Some(prefix) = section.text("prefix") else { continue };
        let is_wrong = ["memory_max", "items_max"]
            .iter()
            .any(|bound| section.given(bound).is_some() && section.number(bound).is_none());
        let (memory_max, items_max) = (section.number("memory_max"), section.number("items_max"));
        if memory_max.is_none() && items_max.is_none() && !is_wrong {
            let what = format!("the quota of {} in {} has no bound", quoted(prefix), store.header);
            report.consequence(section.at, Problem::new(what, "write memory_max or items_max"));
        }
        if quotas.iter().any(|other| other.prefix == prefix) {
            let what = format!("quotas in {}: {} is there twice", store.header, quoted(prefix));
            let hint = "leave one of them: of keys with the same prefix all count together";
            report.consequence(section.place("prefix"), Problem::new(what, hint));
        }
        quotas.push(QuotaConfig { prefix: prefix.to_owned(), memory_max, items_max });
    }
    quotas
}
