//! Log lines: one per change of state, on standard error.

use crate::cli::LogFormat;
use keyway_config::{LogConfig, LogLevel};
use std::sync::OnceLock;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// What sets the level of a process that logs.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts logging; once per process.
pub fn start(config: &LogConfig, format: Option<LogFormat>) {
    let json = match format {
        Some(format) => format == LogFormat::Json,
        None => config.format == keyway_config::LogFormat::Json,
    };
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let (filter, handle) = reload::Layer::new(filter(config.level));
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(is_terminal && !json)
        .with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry.with(lines.json().flatten_event(true)).init();
    } else {
        registry.with(lines).init();
    }
    let _ = LEVEL.set(handle);
}

/// Writes messages of this level and the more important ones from here on.
pub fn set_level(level: LogLevel) {
    if let Some(handle) = LEVEL.get() {
        // Fails only when logging has ended.
        let _ = handle.reload(filter(level));
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
