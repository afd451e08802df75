//! Log lines: one per change of state, on standard error.

use crate::cli::LogFormat;
use keyway_config::{LogConfig, LogLevel};
use std::sync::OnceLock;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// What the process logs by, once it does.
static FILTER: OnceLock<Filter> = OnceLock::new();

/// What decides which lines are written; it may change while the process runs.
#[derive(Clone)]
pub struct Filter(reload::Handle<LevelFilter, Registry>);

impl Filter {
    /// The least important lines that are written.
    pub fn level(&self) -> keyway_control::LogLevel {
        use keyway_control::LogLevel;
        // Gone only with the subscriber, which stays.
        match self.0.clone_current().unwrap_or(LevelFilter::INFO) {
            LevelFilter::OFF | LevelFilter::ERROR => LogLevel::Error,
            LevelFilter::WARN => LogLevel::Warn,
            LevelFilter::INFO => LogLevel::Info,
            LevelFilter::DEBUG => LogLevel::Debug,
            LevelFilter::TRACE => LogLevel::Trace,
        }
    }

    /// Changes it.
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

/// Starts logging; once per process.
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
    tracing_subscriber::registry().with(filter).with(lines).init();
    FILTER.get_or_init(|| Filter(handle)).clone()
}

/// Writes messages of this level and the more important ones from here on.
pub fn set_level(level: LogLevel) {
    if let Some(filter) = FILTER.get() {
        // Fails only when logging has ended.
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
