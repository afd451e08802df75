//! The process as the API shows and changes it: its state, clients, slow requests and settings.

use crate::backends::as_utc;
use crate::noted::NotedKeyList;
use serde::{Deserialize, Serialize};

/// What the API shows and may change beyond [`AdminState`](crate::AdminState). Called on the listener's
/// thread, one call at a time, so a call should take milliseconds at most.
pub trait Api: Send + Sync {
    /// The process as a whole.
    fn status(&self) -> ProcessStatus;

    /// Clients, those that came first before the others, at most `limit` of them; of one pool
    /// only if one is named.
    ///
    /// # Errors
    /// When there is no such pool: a text with the names there are.
    fn connections(&self, pool: Option<&str>, limit: usize) -> Result<Connections, String>;

    /// Requests that servers took long for, the latest first, at most `limit` of them; of one
    /// pool only if one is named.
    ///
    /// # Errors
    /// When there is no such pool: a text with the names there are.
    fn slow_log(&self, pool: Option<&str>, limit: usize) -> Result<Vec<SlowRequest>, String>;

    /// The keys that stand out, at most `limit` of each pool in each respect; of one pool only
    /// if one is named.
    ///
    /// # Errors
    /// When there is no such pool: a text with the names there are.
    fn noted_keys(&self, pool: Option<&str>, limit: usize) -> Result<NotedKeyList, String>;

    /// Takes a server out of use until it is restored. False when it was so already.
    ///
    /// # Errors
    /// When there is no such pool or server: a text with the names there are.
    fn eject(&self, pool: &str, server: &str) -> Result<bool, String>;

    /// The settings in force, without secrets.
    fn config(&self) -> EffectiveConfig;

    /// The least important messages that are logged.
    fn log_level(&self) -> LogLevel;

    /// Changes that, until the process ends.
    fn set_log_level(&self, level: LogLevel);

    /// Has the process take no more clients and answer what is in flight. Does not wait for
    /// it. Asked for again, `Exit` ends a process that was to wait.
    fn drain(&self, then: AfterDrain);

    /// Reads again what may change while the process runs.
    ///
    /// # Errors
    /// Everything that is wrong: then nothing has changed.
    fn reload(&self) -> Result<Reloaded, Vec<String>>;

    /// Starts a process that is to take this one's place. Does not wait for it:
    /// [`ProcessStatus::upgrade`] tells what comes of it. What the process's own stores hold is
    /// lost with it, which has to be said to be right.
    ///
    /// # Errors
    /// Why none is started.
    fn upgrade(&self, discard_store: bool) -> Result<(), Vec<String>>;
}

/// The process as a whole.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessStatus {
    /// Its version.
    pub version: String,
    /// Its id at the system.
    pub pid: u32,
    /// When it began to serve, in seconds since the Unix epoch.
    #[serde(rename = "started", serialize_with = "as_utc")]
    pub started_unix_seconds: u64,
    /// For how long it has served.
    pub uptime_seconds: u64,
    /// Whether it takes no more clients.
    pub draining: bool,
    /// Threads that serve clients.
    pub workers: u64,
    /// Clients connected.
    pub clients: u64,
    /// What has come of the latest upgrade, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradeStatus>,
}

/// What comes of an upgrade, as the process tells whose place is to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UpgradeStatus {
    /// How far it is.
    pub state: UpgradeState,
    /// Why it has failed.
    pub reasons: Vec<String>,
}

/// How far an upgrade is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UpgradeState {
    /// The next process comes up.
    #[default]
    Starting,
    /// It has not come up, and this one serves on.
    Failed,
    /// It serves, and this one only the clients it had.
    Done,
}

/// Who is connected.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Connections {
    /// How many there are, those left out counted.
    pub total: u64,
    /// The first of them.
    pub clients: Vec<ClientStatus>,
}

/// A client.
#[derive(Clone, Debug, Serialize)]
pub struct ClientStatus {
    /// Its id, as in CLIENT LIST.
    pub id: u64,
    /// Where it connects from.
    pub address: String,
    /// Where it connected to.
    pub listener: String,
    /// The pool that it talks to.
    pub pool: String,
    /// Its user.
    pub user: String,
    /// What it calls itself; empty if it does not.
    pub name: String,
    /// When it connected, in seconds since the Unix epoch.
    #[serde(rename = "since", serialize_with = "as_utc")]
    pub since_unix_seconds: u64,
    /// Which worker serves it.
    pub worker: u16,
}

/// A request that a server took long for.
#[derive(Clone, Debug, Serialize)]
pub struct SlowRequest {
    /// What it is called in the log.
    pub trace: String,
    /// When its reply was there, in seconds since the Unix epoch.
    #[serde(rename = "at", serialize_with = "as_utc")]
    pub at_unix_seconds: u64,
    /// The pool it was for.
    pub pool: String,
    /// The server that was asked.
    pub server: String,
    /// How long it waited for its turn on the connection to the server, in microseconds.
    pub queue_us: u64,
    /// How long the server took to the first bytes of the reply, in microseconds.
    pub server_us: u64,
    /// How long the rest of the reply took to arrive, in microseconds.
    pub receive_us: u64,
    /// How long it took from there until the system had taken the reply for the client, in
    /// microseconds; none while it has not, or where that is not seen.
    pub write_us: Option<u64>,
    /// All of these together.
    pub total_us: u64,
    /// Address of the client; empty when it is gone.
    pub client: String,
    /// What the client calls itself; empty if it does not.
    pub name: String,
    /// The command and its arguments, cut as SLOWLOG cuts them.
    pub arguments: Vec<String>,
}

/// The settings that a process runs with.
#[derive(Clone, Debug, Serialize)]
pub struct EffectiveConfig {
    /// The configuration file, if there is one.
    pub file: Option<String>,
    /// Every setting with its value in force, as a configuration file has it; passwords and
    /// tokens are masked.
    pub toml: String,
}

/// The least important messages that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What failed and needs somebody.
    Error,
    /// What may need somebody.
    Warn,
    /// What changed.
    Info,
    /// More, for who looks for a fault.
    Debug,
    /// Everything there is.
    Trace,
}

/// What a process does that has answered everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterDrain {
    /// It ends.
    Exit,
    /// It waits until it is told to end, and tells of itself meanwhile.
    Wait,
}

/// What was read again.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reloaded {
    /// What is different now, a line for each.
    pub changed: Vec<String>,
    /// What is suspicious about it.
    pub warnings: Vec<String>,
}
