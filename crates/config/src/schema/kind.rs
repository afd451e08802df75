use super::key::Table;
use std::time::Duration;

/// What a key takes.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Bool,
    /// `"400ms"`.
    Duration { min: Duration, max: Duration },
    /// `"64MiB"`.
    Size { min: u64, max: u64 },
    /// A whole number.
    Count { min: u64, max: u64 },
    /// A number of worker threads, or `{ min = …, max = … }`.
    Workers,
    /// One of a few words.
    Choice(&'static Choices),
    /// Where we listen for clients.
    Listen,
    /// Where we listen for HTTP: TCP only.
    Admin,
    /// Backends.
    Servers,
    /// `"serve"`, `"flush"`, `"quarantine"` or `"quarantine 10m"`.
    Rejoin,
    /// Two characters, or none.
    HashTag,
    /// Letters for classes of keyspace events.
    KeyspaceEvents,
    /// What keys begin with.
    Prefix,
    /// A name said to servers.
    UserName,
    /// A host name, or an IP address.
    HostName,
    /// The name of a pool.
    PoolName,
    /// The names of pools.
    PoolNames,
    /// The names of commands.
    Commands,
    /// Names that others have given.
    Names,
    /// Which servers are read: one of some words, or `"zone:NAME"`.
    ReadFrom,
    /// How long a read waits before it is sent again: a duration, or `"p99"`.
    HedgeAfter,
    /// A share in percent: `"5%"`.
    Share,
    /// Permission bits of a unix socket: `"0660"`.
    Mode,
    /// Numbers of users of the system.
    Uids,
    /// Addresses and ranges of them.
    Networks,
    /// A password; never shown.
    Secret,
    /// Hashed passwords; never shown.
    Hashes,
    /// The name of a variable of the environment.
    Variable,
    /// What a user may do, in Redis's words.
    Rules,
    /// A path of a file: absolute, or from the folder of the configuration file on.
    Path,
    /// A table of its own.
    Table(&'static Table),
    /// Any number of tables: `[[listener]]`.
    List(&'static Table),
    /// Tables by name, each after its `kind`: `[pool.NAME]`.
    Pools,
}

/// Words a key takes, with those it may take one day.
pub(crate) struct Choices {
    pub(crate) now: &'static [&'static str],
    pub(crate) later: &'static [&'static str],
}

/// What holds when a key is absent.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// The file is refused.
    Refused,
    /// Nothing: the feature is off, or the value comes from elsewhere, as the
    /// text tells.
    Unset(&'static str),
    /// This value, as it would be written in the file.
    Is(&'static str),
}
