//! The `[server]` table: settings of the process as a whole.

use crate::error::Report;
use crate::model::{IoDriver, LogConfig, LogFormat, LogLevel, ServerConfig, Workers};
use crate::secret::ReadFile;
use crate::section::{Section, Value};
use std::time::Duration;

/// Returns the settings without a `[server]` table.
pub(crate) fn server_defaults() -> ServerConfig {
    ServerConfig {
        workers: Workers::Auto,
        admin: None,
        admin_token: None,
        admin_token_from: None,
        admin_tls: None,
        log: LogConfig { format: LogFormat::Human, level: LogLevel::Info },
        drain_timeout: Duration::ZERO,
        drain_notice: Duration::ZERO,
        io: IoDriver::Epoll,
        upgrade_timeout: Duration::ZERO,
        upgrade_grace: Duration::ZERO,
        spin: Duration::ZERO,
    }
}

/// Reads the `[server]` table. With `has_operators` the file has operators of the admin address.
pub(crate) fn server(
    section: &Section,
    has_operators: bool,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> ServerConfig {
    let workers = match section.value("workers") {
        Some(Value::Workers(workers)) => *workers,
        _ => Workers::Auto,
    };
    let admin = match section.value("admin") {
        Some(Value::Listen(addr)) => Some(addr.clone()),
        _ => None,
    };
    let admin = crate::admin::resolve(section, (admin, has_operators), read_file, report);
    let log = section.section("log");
    let format = match log.and_then(|log| log.text("format")) {
        Some("json") => LogFormat::Json,
        _ => LogFormat::Human,
    };
    let level = match log.and_then(|log| log.text("level")) {
        Some("error") => LogLevel::Error,
        Some("warn") => LogLevel::Warn,
        Some("debug") => LogLevel::Debug,
        Some("trace") => LogLevel::Trace,
        _ => LogLevel::Info,
    };
    ServerConfig {
        workers,
        admin: admin.bind,
        admin_token: admin.token,
        admin_token_from: admin.token_from,
        admin_tls: admin.tls,
        log: LogConfig { format, level },
        drain_timeout: section.duration("drain_timeout").unwrap_or_default(),
        drain_notice: section.duration("drain_notice").unwrap_or_default(),
        io: match section.text("io") {
            Some("io_uring") => IoDriver::IoUring,
            Some("auto") => IoDriver::Auto,
            _ => IoDriver::Epoll,
        },
        upgrade_timeout: section.duration("upgrade_timeout").unwrap_or_default(),
        upgrade_grace: section.duration("upgrade_grace").unwrap_or_default(),
        spin: section.duration("spin").unwrap_or_default(),
    }
}
