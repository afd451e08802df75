//! Log lines: one per change of state, on standard error.

use crate::cli::LogFormat;
use keyway_config::{LogConfig, LogLevel};
use tracing::level_filters::LevelFilter;

/// Starts logging; once per process.
pub fn start(config: &LogConfig, format: Option<LogFormat>) {
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let json = match format {
        Some(format) => format == LogFormat::Json,
        None => config.format == keyway_config::LogFormat::Json,
    };
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(is_terminal && !json)
        .with_writer(std::io::stderr);
    if json {
        builder.json().flatten_event(true).init();
    } else {
        builder.init();
    }
}
