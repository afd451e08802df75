//! Log lines: one for each change of state, on standard error.

use crate::cli::LogFormat;
use keyway_config::{LogConfig, LogLevel};
use std::sync::OnceLock;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// The filter of the process, once it logs.
static FILTER: OnceLock<Filter> = OnceLock::new();

/// The filter of log lines. It may be changed while the process runs.
#[derive(Clone)]
pub struct Filter(reload::Handle<LevelFilter, Registry>);

impl Filter {
    /// Returns the least important level that is written.
    pub fn level(&self) -> keyway_control::LogLevel {
        use keyway_control::LogLevel;
        // The filter is gone only if the subscriber is, which stays.
        match self.0.clone_current().unwrap_or(LevelFilter::INFO) {
            LevelFilter::OFF | LevelFilter::ERROR => LogLevel::Error,
            LevelFilter::WARN => LogLevel::Warn,
            LevelFilter::INFO => LogLevel::Info,
            LevelFilter::DEBUG => LogLevel::Debug,
            LevelFilter::TRACE => LogLevel::Trace,
        }
    }

    /// Changes the level.
    pub fn set_level(&self, level: keyway_control::LogLevel) {
        use keyway_control::LogLevel;
        let filter = match level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        };
        let _ = self.0.reload(filter);
    }
}

/// Starts logging. Called once per process.
pub fn start(config: &LogConfig, format: Option<LogFormat>) -> Filter {
    let json = match format {
        Some(format) => format == LogFormat::Json,
        None => config.format == keyway_config::LogFormat::Json,
    };
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let (filter, handle) = reload::Layer::new(filter_of(config.level));
    let lines = fmt::layer()
        .with_target(false)
        .with_ansi(is_terminal && !json)
        .with_writer(std::io::stderr);
    let lines = if json { lines.json().flatten_event(true).boxed() } else { lines.boxed() };
    let events = crate::events::Events.with_filter(crate::events::filter());
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(events).init();
    FILTER.get_or_init(|| Filter(handle)).clone()
}

/// Writes messages of this level and of more important ones from now on.
pub fn set_level(level: LogLevel) {
    if let Some(filter) = FILTER.get() {
        // This fails only after logging has ended.
        let _ = filter.0.reload(filter_of(level));
    }
}

fn filter_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
