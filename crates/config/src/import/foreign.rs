//! Helpers shared by the importers.

use crate::address::{ListenAddr, parse_listen};
use crate::error::{ConfigError, Problem, quoted};
use crate::model::Config;
use crate::reader::{POOL_NAME_LEN_MAX, check_pool_name};
use crate::value::format_duration;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use super::Import;

/// The timeout in place of another proxy's "for ever". It is far above the latency of any reply
/// that a client still waits for, but a server that hangs does not hold its requests for good.
pub(super) const TIMEOUT_FOR_EVER: Duration = Duration::from_secs(30);

/// Longest `timeout` of a pool.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Longest time for connecting, also used in place of "for ever". It allows for some lost packets,
/// but a server that is gone is noticed.
pub(super) const CONNECT_TIMEOUT_FOR_EVER: Duration = Duration::from_secs(5);

/// The words of a note about keys that go to other servers than before.
pub(super) const MISSING_AT_FIRST: &str = "missing at first";

const ADMIN_DEFAULT: &str = "tcp://127.0.0.1:9380";

/// Returns `value`, or the nearest value that Keyway accepts, with a note.
pub(super) fn clamp(
    name: &str,
    value: u64,
    (min, max): (u64, u64),
    notes: &mut Vec<String>,
) -> u64 {
    let taken = value.clamp(min, max);
    if taken != value {
        notes.push(format!("{name} was {value}, which Keyway does not take: now {taken}"));
    }
    taken
}

/// Returns `time`, or the nearest time that Keyway accepts, with a note.
pub(super) fn clamp_time(
    name: &str,
    time: Duration,
    (min, max): (Duration, Duration),
    notes: &mut Vec<String>,
) -> Duration {
    let taken = Duration::from_millis(time.as_millis().try_into().unwrap_or(u64::MAX));
    let taken = taken.clamp(min, max);
    if taken != time {
        let text = format_duration(taken);
        notes.push(format!("{name} was {time:?}, which Keyway does not take: now {text}"));
    }
    taken
}

/// Makes names that Keyway accepts and no other pool has.
#[derive(Default)]
pub(super) struct PoolNames {
    taken: BTreeSet<String>,
    /// For each converted name, the next number to try.
    next: BTreeMap<String, u64>,
}

impl PoolNames {
    pub(super) fn claim(&mut self, original: &str, notes: &mut Vec<String>) -> String {
        let mut name = original.to_owned();
        if check_pool_name(original).is_err() {
            let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            let plain = original.chars().map(|c| if fits(c) { c } else { '_' });
            // This leaves room for a number that makes the name unique.
            name = plain.take(POOL_NAME_LEN_MAX - 8).collect();
        }
        if !self.taken.insert(name.clone()) {
            let base = name;
            let next = self.next.entry(base.clone()).or_insert(2);
            loop {
                name = format!("{base}_{next}");
                *next += 1;
                if self.taken.insert(name.clone()) {
                    break;
                }
            }
        }
        if name != original {
            notes.push(format!("was called {}", quoted(original)));
        }
        name
    }
}

/// Reads `IP:PORT`, `localhost:PORT` or `/PATH`.
pub(super) fn parse_bind(text: &str) -> Result<ListenAddr, Problem> {
    if text.starts_with('/') {
        return parse_listen(&format!("unix://{text}"));
    }
    let hint = "write \"IP:PORT\" or \"/PATH\"";
    let (host, port) = text
        .rsplit_once(':')
        .ok_or_else(|| Problem::new(format!("{} has no port", quoted(text)), hint))?;
    if port == "0" {
        return Err(Problem::new(format!("{} has port 0", quoted(text)), hint));
    }
    let listen = match host.parse::<std::net::Ipv6Addr>() {
        Ok(_) => format!("tcp://[{host}]:{port}"),
        // In Go, an empty host means every address.
        Err(_) if host.is_empty() => format!("tcp://0.0.0.0:{port}"),
        Err(_) => format!("tcp://{host}:{port}"),
    };
    parse_listen(&listen)
}

/// The head of a converted file, and the notes about it.
pub(super) struct Head<'a> {
    /// The path of the original.
    pub(super) path: &'a str,
    /// The program whose file it is.
    pub(super) of: &'static str,
    /// The addresses of its listeners.
    pub(super) listeners: &'a [ListenAddr],
    /// A text about the new place of statistics, up to the address.
    pub(super) metrics: &'static str,
}

impl Head<'_> {
    /// Returns the whole file, made of its tables and the notes so far. The file is checked.
    pub(super) fn finish(
        &self,
        tables: &str,
        mut notes: Vec<String>,
    ) -> Result<Import, Vec<ConfigError>> {
        let source: String = self.path.chars().filter(|c| !c.is_control()).collect();
        let keys = match notes.iter().any(|note| note.contains(MISSING_AT_FIRST)) {
            true => {
                "Keys stay on the servers they are on, except keys that a note below names as missing at\n# \
                 first"
            }
            false => "Every key stays on the server it is on",
        };
        let mut toml = format!(
            "# Imported from {source}, a file of {}. See what it means with `keyway check`.\n\
             # {keys}. {}, tcp://127.0.0.1:9380 by default.\n",
            self.of, self.metrics,
        );
        let admin = parse_listen(ADMIN_DEFAULT);
        if admin.is_ok_and(|admin| self.listeners.iter().any(|own| own.clashes_with(&admin))) {
            let note = format!(
                "{ADMIN_DEFAULT}, where metrics would be served, is a pool's: they are off"
            );
            let _ = write!(toml, "\n# Note: {note}.\n[server]\nadmin = \"off\"\n");
            notes.push(note);
        }
        toml.push_str(tables);
        match Config::from_str(&toml, self.path) {
            Ok(_) => Ok(Import { toml, notes }),
            Err(errors) => Err(errors.into_iter().map(refused_after_import).collect()),
        }
    }
}

/// Removes the line of an error: it refers to the imported text, which was never shown.
fn refused_after_import(error: ConfigError) -> ConfigError {
    let what = format!("the imported file would not be valid: {}", error.what);
    ConfigError { line: 0, column: 0, what, ..error }
}

/// Returns the timeouts of requests and of connecting, for a file that has one timeout for both.
pub(super) fn timeouts(
    name: &str,
    time: Duration,
    of: &str,
    notes: &mut Vec<String>,
) -> (Duration, Duration) {
    if time.is_zero() {
        notes.push(format!(
            "{of} without {name} waits for ever, which Keyway does not: a request fails after {}, \
             alone; lower it to what clients wait",
            format_duration(TIMEOUT_FOR_EVER)
        ));
        return (TIMEOUT_FOR_EVER, CONNECT_TIMEOUT_FOR_EVER);
    }
    let timeout = clamp_time(name, time, (Duration::from_millis(1), TIMEOUT_MAX), notes);
    (timeout, timeout.min(CONNECT_TIMEOUT_FOR_EVER))
}
