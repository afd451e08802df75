use super::key::Table;
use std::time::Duration;

/// The type of a key's value.
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
    /// The address of a listener for clients.
    Listen,
    /// The address of the HTTP listener: TCP only.
    Admin,
    /// Addresses of backends.
    Servers,
    /// `"serve"`, `"flush"`, `"quarantine"` or `"quarantine 10m"`.
    Rejoin,
    /// Two characters, or an empty string.
    HashTag,
    /// Letters that stand for classes of keyspace events.
    KeyspaceEvents,
    /// A prefix of keys.
    Prefix,
    /// A user name that is sent to servers.
    UserName,
    /// Text that is checked where its table is read.
    Text,
    /// A host name, or an IP address.
    HostName,
    /// The address of a primary, perhaps with a password; never shown.
    Primary,
    /// The name of a pool.
    PoolName,
    /// The names of pools.
    PoolNames,
    /// The names of commands.
    Commands,
    /// Names that other programs define.
    Names,
    /// The servers that are read: one of some words, or `"zone:NAME"`.
    ReadFrom,
    /// Time for which a read waits before it is sent again: a duration, or `"p99"`.
    HedgeAfter,
    /// A share in percent: `"5%"`.
    Share,
    /// Permission bits of a unix socket: `"0660"`.
    Mode,
    /// Numbers of users of the system.
    Uids,
    /// Addresses and ranges of addresses.
    Networks,
    /// A password; never shown.
    Secret,
    /// Hashed passwords; never shown.
    Hashes,
    /// The name of an environment variable.
    Variable,
    /// A user's rights, as ACL rules of Redis.
    Rules,
    /// A path of a file: absolute, or relative to the folder of the configuration file.
    Path,
    /// A nested table.
    Table(&'static Table),
    /// Any number of tables: `[[listener]]`.
    List(&'static Table),
    /// Tables by name, whose keys depend on their `kind`: `[pool.NAME]`.
    Pools,
}

/// The words that a key accepts, and words that it may accept one day.
pub(crate) struct Choices {
    pub(crate) now: &'static [&'static str],
    pub(crate) later: &'static [&'static str],
}

/// The meaning of an absent key.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// The file is refused.
    Refused,
    /// No value: the feature is off, or the value comes from elsewhere. The text says which.
    Unset(&'static str),
    /// This value, as it would be written in the file.
    Is(&'static str),
}
