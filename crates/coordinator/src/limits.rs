//! Every bound of the crate. Each comment says what breaks if the bound is larger or smaller.

use std::time::Duration;

/// Bytes of a key. A key with its escape is one name in ZooKeeper's tree; longer names make
/// listings of children longer than one reply.
pub const KEY_LEN_MAX: usize = 200;

/// Bytes of a value. ZooKeeper takes requests of 1 MiB, and a transaction holds each value twice
/// there.
pub const VALUE_LEN_MAX: usize = 384 << 10;

/// Bytes of a transaction: keys, values and [`OPERATION_LEN`] for each comparison and operation.
/// Twice this must fit into ZooKeeper's requests of 1 MiB.
pub const TXN_LEN_MAX: usize = 448 << 10;

/// Comparisons of a transaction, and also operations. etcd allows 128 of each by default.
pub const TXN_OPERATIONS_MAX: usize = 64;

/// Bytes that an operation counts for beside its key and value.
pub const OPERATION_LEN: usize = 256;

/// Bytes of all entries that a listing returns. More is refused: the caller would hold it in
/// memory.
pub const LIST_LEN_MAX: usize = 64 << 20;

/// Entries of a cluster in files and in ZooKeeper. More would make ZooKeeper's listing of children
/// longer than [`FRAME_LEN_MAX`].
pub const ENTRIES_MAX: usize = 16_384;

/// Sessions that exist at once in files and in ZooKeeper.
pub const SESSIONS_MAX: usize = 1_024;

/// Bytes of a frame of ZooKeeper that are accepted.
pub(crate) const FRAME_LEN_MAX: usize = 8 << 20;

/// Bytes of a reply of etcd that are accepted: a page of entries in base64.
pub(crate) const BODY_LEN_MAX: usize = 40 << 20;

/// Entries that one page of etcd's listing has. A page of the largest values stays below
/// [`BODY_LEN_MAX`].
pub(crate) const PAGE_ENTRIES: usize = 48;

/// Bytes of a line of etcd's watch. A fragment has at most 1.5 MiB and one event, in base64.
pub(crate) const LINE_LEN_MAX: usize = 8 << 20;

/// Transactions that files and ZooKeeper remember for watches, unless settings say otherwise. A
/// watch that is further behind lists again.
pub const HISTORY_MAX: usize = 512;

/// Bytes of changes that are remembered, of the same.
pub(crate) const HISTORY_LEN_MAX: usize = 8 << 20;

/// Batches that a watch holds for its caller. More are read when these are taken.
pub(crate) const PENDING_MAX: usize = 64;

/// The shortest lease. Renewals of a shorter one would compete with the scheduler.
pub const TTL_MIN: Duration = Duration::from_secs(1);

/// The longest lease: how long keys of a killed process may stay.
pub const TTL_MAX: Duration = Duration::from_secs(600);

/// Tries of a transaction against concurrent ones before it is refused as busy.
pub(crate) const CONFLICTS_MAX: usize = 200;

/// How long a watch without news believes that its connection works.
pub(crate) const WATCH_IDLE: Duration = Duration::from_secs(3);
