//! The process as the API shows and changes it: its state, clients, slow requests and settings.

use crate::backends::as_utc;
use crate::key_stats::KeyStatsList;
use serde::{Deserialize, Serialize};

/// The parts of the API beyond [`AdminState`](crate::AdminState). It is called on the listener's
/// thread, one call at a time, so a call should take milliseconds at most.
pub trait Api: Send + Sync {
    /// Returns the status of the process.
    fn status(&self) -> ProcessStatus;

    /// Returns clients, the oldest first, at most `limit` of them. If a pool is named, only its
    /// clients.
    ///
    /// # Errors
    /// Returns a text with the names of all pools if there is no such pool.
    fn connections(&self, pool: Option<&str>, limit: usize) -> Result<Connections, String>;

    /// Returns slow requests, the latest first, at most `limit` of them. If a pool is named, only
    /// its requests.
    ///
    /// # Errors
    /// Returns a text with the names of all pools if there is no such pool.
    fn slow_log(&self, pool: Option<&str>, limit: usize) -> Result<Vec<SlowRequest>, String>;

    /// Returns hot and big keys, at most `limit` of each pool and kind. If a pool is named, only
    /// its keys.
    ///
    /// # Errors
    /// Returns a text with the names of all pools if there is no such pool.
    fn key_stats(&self, pool: Option<&str>, limit: usize) -> Result<KeyStatsList, String>;

    /// Takes a server out of use until it is restored. Returns false if it was out of use already.
    ///
    /// # Errors
    /// Returns a text with the existing names if there is no such pool or server.
    fn eject(&self, pool: &str, server: &str) -> Result<bool, String>;

    /// Returns the settings in force, without secrets.
    fn config(&self) -> EffectiveConfig;

    /// Returns the least important level that is logged.
    fn log_level(&self) -> LogLevel;

    /// Changes the log level, until the process ends.
    fn set_log_level(&self, level: LogLevel);

    /// Makes the process accept no more clients and answer requests in flight. Does not wait for
    /// that. A second call with `Exit` ends a process that was to wait.
    fn drain(&self, then: AfterDrain);

    /// Reads the settings again that may change while the process runs.
    ///
    /// # Errors
    /// Returns everything that is wrong. Then nothing has changed.
    fn reload(&self) -> Result<Reloaded, Vec<String>>;

    /// Starts a process that is to take this one's place. Does not wait for it:
    /// [`ProcessStatus::upgrade`] has its outcome. The data of the process's own stores goes
    /// over.
    ///
    /// # Errors
    /// Returns the reasons why none is started.
    fn upgrade(&self) -> Result<(), Vec<String>>;
}

/// The status of the process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessStatus {
    /// Its version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Time at which it began to serve, in seconds since the Unix epoch.
    #[serde(rename = "started", serialize_with = "as_utc")]
    pub started_unix_seconds: u64,
    /// Time for which it has served, in seconds.
    pub uptime_seconds: u64,
    /// True if it accepts no more clients.
    pub draining: bool,
    /// Number of threads that serve clients.
    pub workers: u64,
    /// Number of connected clients.
    pub clients: u64,
    /// The status of the latest upgrade, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradeStatus>,
}

/// The status of an upgrade, as the process that is to be replaced sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UpgradeStatus {
    /// Its state.
    pub state: UpgradeState,
    /// The reasons of a failure.
    pub reasons: Vec<String>,
}

/// The state of an upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UpgradeState {
    /// The next process is starting.
    #[default]
    Starting,
    /// It did not start, and this one goes on serving.
    Failed,
    /// It serves, and this one serves only the clients it had.
    Done,
}

/// The connected clients.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Connections {
    /// Number of clients, with those that are left out.
    pub total: u64,
    /// The first clients.
    pub clients: Vec<ClientStatus>,
}

/// A client.
#[derive(Clone, Debug, Serialize)]
pub struct ClientStatus {
    /// Its id, as in CLIENT LIST.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// The address to which it connected.
    pub listener: String,
    /// Its pool.
    pub pool: String,
    /// Its user.
    pub user: String,
    /// Its name; empty if it has set none.
    pub name: String,
    /// Time of its connection, in seconds since the Unix epoch.
    #[serde(rename = "since", serialize_with = "as_utc")]
    pub since_unix_seconds: u64,
    /// The number of its worker.
    pub worker: u16,
}

/// A slow request.
#[derive(Clone, Debug, Serialize)]
pub struct SlowRequest {
    /// Its name in the log.
    pub trace: String,
    /// Time at which its reply was complete, in seconds since the Unix epoch.
    #[serde(rename = "at", serialize_with = "as_utc")]
    pub at_unix_seconds: u64,
    /// Its pool.
    pub pool: String,
    /// Its server.
    pub server: String,
    /// Time that it waited for its turn on the connection to the server, in microseconds.
    pub queue_us: u64,
    /// Time until the first bytes of the reply, in microseconds.
    pub server_us: u64,
    /// Time until the rest of the reply had arrived, in microseconds.
    pub receive_us: u64,
    /// Time from then until the system had accepted the reply for the client, in microseconds.
    /// `None` while it has not, or if that is not measured.
    pub write_us: Option<u64>,
    /// The sum of these times, in microseconds.
    pub total_us: u64,
    /// Address of the client; empty if it is gone.
    pub client: String,
    /// Name of the client; empty if it has set none.
    pub name: String,
    /// The command and its arguments, cut as SLOWLOG cuts them.
    pub arguments: Vec<String>,
}

/// The settings of a running process.
#[derive(Clone, Debug, Serialize)]
pub struct EffectiveConfig {
    /// The configuration file, if there is one.
    pub file: Option<String>,
    /// Every setting with its value in force, in the form of a configuration file. Passwords and
    /// tokens are masked.
    pub toml: String,
    /// The document of the control plane, for people, if there is one.
    pub document: Option<String>,
    /// The pools that are from it. All other pools are from the file.
    pub document_pools: Vec<String>,
    /// True if all users are from it; else they are from the file.
    pub document_users: bool,
    /// True if `[limits]` is from it; else it is from the file.
    pub document_limits: bool,
}

/// The least important level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Failures that need attention.
    Error,
    /// Events that may need attention.
    Warn,
    /// State changes.
    Info,
    /// More details, for a search for faults.
    Debug,
    /// Everything.
    Trace,
}

/// What a process does after it has answered everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterDrain {
    /// It ends.
    Exit,
    /// It waits until it is told to end, and answers questions meanwhile.
    Wait,
}

/// The result of a reload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reloaded {
    /// The changes, a line for each.
    pub changed: Vec<String>,
    /// Warnings about the file.
    pub warnings: Vec<String>,
}
