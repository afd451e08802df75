use crate::address::{ListenAddr, parse_typed};
use crate::error::{ConfigError, Problem, Report};
use crate::model::{Config, DocumentConfig};
use crate::reader;
use crate::resolve::resolve;
use crate::secret::ReadFile;
use crate::strangers;
use crate::warnings;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest configuration or password file that is read. It is far above any in use, and stops the
/// reading of a wrong path such as a device.
const FILE_LEN_MAX: u64 = 16 << 20;

/// The configuration of `keyway serve` without a file.
const DEFAULT_STORE: &str = r#"
[[listener]]
bind = "tcp://127.0.0.1:6380"
pool = "default"

[pool.default]
kind = "store"
"#;

impl Config {
    /// Reads `text`, which came from the file called `path` (for messages). Password files are not
    /// read: their passwords are `None`.
    ///
    /// # Errors
    /// Returns everything wrong with the file, in line order.
    pub fn from_str(text: &str, path: &str) -> Result<Config, Vec<ConfigError>> {
        read(text, Report::new(path, trimmed(text)), None)
    }

    /// Reads the file and the files that it names. Relative paths refer to its folder.
    ///
    /// # Errors
    /// Returns everything wrong with the files, in line order, or that the file cannot be read.
    pub fn load(path: &Path) -> Result<Config, Vec<ConfigError>> {
        let text = read_configuration(path, "TOML")?;
        let shown = path.display().to_string();
        let report = Report::new(&shown, trimmed(&text)).in_folder_of(path);
        read(&text, report, Some(&read_file))
    }

    /// Reads the file alone, as [`Config::from_str`] does, for callers that need no passwords and
    /// may not be allowed to read them.
    ///
    /// # Errors
    /// Returns everything wrong with the file, in line order, or that it cannot be read.
    pub fn load_without_passwords(path: &Path) -> Result<Config, Vec<ConfigError>> {
        let text = read_configuration(path, "TOML")?;
        let shown = path.display().to_string();
        let report = Report::new(&shown, trimmed(&text)).in_folder_of(path);
        read(&text, report, None)
    }

    /// Returns whether a file configures a process that serves: it has a table that only such files
    /// have. It may lack others.
    pub fn is_one(path: &Path) -> bool {
        let text = read_configuration(path, "TOML").unwrap_or_default();
        let (document, _) = toml::de::DeTable::parse_recoverable(&text);
        crate::control_node::OF_SERVE.iter().any(|key| document.get_ref().contains_key(*key))
    }

    /// Returns the configuration of `keyway serve` without a file: the embedded store on
    /// `tcp://127.0.0.1:6380`, with every other setting at its default.
    pub fn default_store() -> Config {
        Config::from_str(DEFAULT_STORE, "built-in configuration")
            .expect("the built-in configuration is checked by a test")
    }

    /// Returns the configuration of `keyway serve --bind ADDRESS`: that of
    /// [`Config::default_store`], on this address (`HOST:PORT`, or as a file has it).
    ///
    /// # Errors
    /// Returns an error with the path `--bind` if `address` is not an address.
    pub fn default_store_at(address: &str) -> Result<Config, ConfigError> {
        let bind = parse_typed(address).map_err(|problem| ConfigError {
            path: "--bind".to_owned(),
            line: 0,
            column: 0,
            what: problem.what,
            hint: problem.hint,
        })?;
        let mut config = Config::default_store();
        if !matches!(bind, ListenAddr::Tcp(_)) {
            config.listeners[0].tcp_keepalive = None;
        }
        config.listeners[0].shm = crate::shm::by_default(&bind);
        if warnings::is_open(&bind) {
            let Problem { what, hint } = warnings::open_listener(&bind);
            let hint = format!("{hint}, in a configuration file");
            let path = "--bind".to_owned();
            config.warnings.push(ConfigError { path, line: 0, column: 0, what, hint });
        }
        config.listeners[0].bind = bind;
        Ok(config)
    }
}

/// A document whose parts replace parts of a file.
pub(crate) struct Overlay<'a> {
    /// The name for messages.
    pub(crate) name: &'a str,
    /// A text with `[pool.NAME]`, `[[user]]` and `[limits]` tables.
    pub(crate) text: &'a str,
}

impl Overlay<'_> {
    /// Returns the part of a configuration that is from the overlay.
    fn found_in(&self, config: &Config) -> DocumentConfig {
        let parts = crate::overlay::Parts::of(trimmed(self.text));
        let control = config.control.as_ref();
        let left = control.map_or(&[][..], |control| &control.pools[..]);
        let its: BTreeSet<&String> = parts.pools.iter().collect();
        let pools = left.iter().filter(|pool| its.contains(pool)).cloned().collect();
        DocumentConfig {
            name: self.name.to_owned(),
            pools,
            users: parts.users && control.is_some_and(|control| control.users),
            limits: parts.limits && control.is_some_and(|control| control.limits),
        }
    }
}

/// Reads `text`, which came from the file called `shown`, with an overlay. Relative paths refer to
/// the folder of `path`. With `reads_files` the files that it names are read.
///
/// Both texts are read as one, the overlay behind the file, so that every place is in one of them.
pub(crate) fn read_with(
    text: &str,
    path: Option<&Path>,
    shown: &str,
    overlay: &Overlay<'_>,
    reads_files: bool,
) -> Result<Config, Vec<ConfigError>> {
    let file = trimmed(text);
    let both = format!("{file}\n{}", trimmed(overlay.text));
    let mut report = Report::new(shown, &both);
    if let Some(path) = path {
        report = report.in_folder_of(path);
    }
    let mut report = report.with_document(overlay.name, file.len() + 1);
    let root = crate::overlay::read_both(&both, file.len() + 1, &mut report);
    let read_file: Option<ReadFile<'_>> = if reads_files { Some(&read_file) } else { None };
    let config = resolve(&root, read_file, &mut report);
    let lines = file.matches('\n').count() + 1;
    let placed = |mut error: ConfigError| {
        if error.line > lines {
            error.line -= lines;
            overlay.name.clone_into(&mut error.path);
        }
        error
    };
    let place = |all: Vec<ConfigError>| all.into_iter().map(placed).collect();
    match report.finish() {
        Ok(warnings) => {
            let document = Some(overlay.found_in(&config));
            Ok(Config { warnings: place(warnings), document, ..config })
        }
        Err(errors) => Err(place(errors)),
    }
}

fn read(
    text: &str,
    mut report: Report<'_>,
    read_file: Option<ReadFile<'_>>,
) -> Result<Config, Vec<ConfigError>> {
    let text = trimmed(text);
    let path = report.path().to_owned();
    let root = reader::read(text, &mut report);
    let config = resolve(&root, read_file, &mut report);
    crate::group_servers::refuse_shared_servers(text, &mut report);
    let warnings = report.finish().map_err(|errors| strangers::explain(text, &path, errors))?;
    Ok(Config { warnings, ..config })
}

/// Cuts off a byte order mark, because offsets must refer to the text that the parser sees.
fn trimmed(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Reads the text of a configuration file in `format`. Its only error is that the file cannot be
/// read.
pub(crate) fn read_configuration(path: &Path, format: &str) -> Result<String, Vec<ConfigError>> {
    read_file(path).map_err(|what| {
        let hint = format!("give the path of a readable {format} file in UTF-8");
        vec![ConfigError { path: path.display().to_string(), line: 0, column: 0, what, hint }]
    })
}

/// Reads the text of a file. Longer files than a configuration ever has are refused.
///
/// # Errors
/// Returns the reason why it cannot be read.
pub fn read_file(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(format!("is larger than {} MiB", FILE_LEN_MAX >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Eviction, LogFormat, LogLevel, PoolKindConfig, ReplicaConfig, StoreConfig, Workers,
    };
    use keyway_base::Limits;

    #[test]
    fn without_a_file_the_embedded_store_is_served() {
        let config = Config::default_store();
        assert_eq!(config.listeners[0].bind.to_string(), "tcp://127.0.0.1:6380");
        let admin = config.server.admin.as_ref().map(|addr| addr.to_string());
        assert_eq!(admin.as_deref(), Some("tcp://127.0.0.1:9380"));
        assert_eq!(config.server.workers, Workers::Auto);
        assert_eq!(config.server.log.format, LogFormat::Human);
        assert_eq!(config.server.log.level, LogLevel::Info);
        assert_eq!(
            config.pool_of(&config.listeners[0]).kind,
            PoolKindConfig::Store(StoreConfig {
                memory_max: None,
                eviction: Eviction::AllKeysS3Fifo,
                databases: 16,
                notify_keyspace_events: keyway_base::KeyspaceEvents::NONE,
                script_time_max: std::time::Duration::from_secs(5),
                script_busy_after: std::time::Duration::from_secs(1),
                script_memory_max: 64 << 20,
                slower_than: std::time::Duration::from_millis(10),
                slow_log_len_max: 128,
                expire_after_read: None,
                expire_after_read_percent: 50,
                quotas: Vec::new(),
                snapshot: None,
                log: None,
                replica: ReplicaConfig::NONE,
            })
        );
        assert_eq!(config.warnings, []);
    }

    #[test]
    fn another_address_changes_nothing_but_that() {
        let mut expected = Config::default_store();
        let config = Config::default_store_at("127.0.0.1:7000").unwrap();
        expected.listeners[0].bind = config.listeners[0].bind.clone();
        assert_eq!(config, expected);
        assert_eq!(config.listeners[0].bind.to_string(), "tcp://127.0.0.1:7000");
        assert_eq!(
            Config::default_store_at("foo").unwrap_err().to_string(),
            "--bind: \"foo\" has no port; write HOST:PORT, such as 127.0.0.1:6380 or [::1]:6380"
        );
    }

    #[test]
    fn an_address_that_other_machines_reach_draws_a_warning() {
        let warnings = |address| Config::default_store_at(address).unwrap().warnings;
        for address in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:///run/keyway.sock"]
        {
            assert_eq!(warnings(address), [], "{address}");
        }
        for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
            assert_eq!(warnings(address).len(), 1, "{address}");
        }
    }

    #[test]
    fn default_limits_are_those_of_the_base_crate() {
        assert_eq!(Config::default_store().limits, Limits::default());
    }
}
