//! Every key of the file, declared once: its type, range, default and meaning. The reader, the
//! hints for unknown keys, `describe` and `docs/config.md` are all derived from here.

mod circuit;
mod cluster;
mod control;
mod failover;
mod key;
mod kind;
mod limits;
mod listener;
mod memcached;
mod operator;
mod pool_kinds;
mod register;
mod routes;
mod server;
mod sharded;
mod store;
mod tls;
mod user;

pub(crate) use circuit::{CIRCUIT, OUTLIERS};
pub(crate) use cluster::{CLUSTER, REPLICATED, SLOT_GROUP, SLOTS};
pub(crate) use control::{CONTROL, CONTROL_COORDINATOR, CONTROL_TLS};
pub(crate) use failover::GROUP_FAILOVER;
pub(crate) use key::{Key, Table};
pub(crate) use kind::{Absent, Choices, Kind};
pub(crate) use limits::LIMITS;
pub(crate) use listener::LISTENER;
pub(crate) use memcached::MEMCACHED;
pub(crate) use operator::OPERATOR;
pub(crate) use register::REGISTER;
pub(crate) use routes::{
    FAILOVER, MIRROR, MISS_THEN, PREFIX, PREFIX_ROUTE, RATE_LIMITED, READ_WRITE_SPLIT, SHADOW,
};
pub(crate) use server::{LOG, SERVER, WORKERS, WORKERS_MAX};
pub(crate) use sharded::{EJECTION, QUARANTINE_MAX, RECONNECT, SHARDED};
pub(crate) use store::{QUOTAS, REPLICATION, SNAPSHOT, STORE, STORE_LOG};
pub(crate) use tls::{ADMIN_TLS, LISTENER_CERTIFICATES, LISTENER_TLS, TLS};
pub(crate) use user::USER;

use Absent::{Is, Refused, Unset};
use Kind::{List, Pools};
use key::key;

/// The top level of the file.
pub(crate) static ROOT: Table = Table {
    header: "the file",
    doc: "",
    keys: &[
        key("server", Kind::Table(&SERVER), Is("{}"), "The process itself."),
        key("limits", Kind::Table(&LIMITS), Is("{}"), "Bounds on what clients may use."),
        key(
            "control",
            Kind::Table(&CONTROL),
            Unset("the process is on its own"),
            "The control plane.",
        ),
        key(
            "operator",
            List(&OPERATOR),
            Unset("as `admin_token_file` says"),
            "Operators of the admin address.",
        ),
        key("listener", List(&LISTENER), Refused, "Where clients connect."),
        key("user", List(&USER), Unset("as the listeners say"), "Who may do what."),
        key("pool", Pools, Refused, "Where requests go."),
    ],
};

/// Every table with keys of its own, in the order of the documentation.
pub(crate) static TABLES: [&Table; 39] = [
    &SERVER,
    &WORKERS,
    &LOG,
    &ADMIN_TLS,
    &OPERATOR,
    &LIMITS,
    &CONTROL,
    &CONTROL_COORDINATOR,
    &CONTROL_TLS,
    &LISTENER,
    &REGISTER,
    &LISTENER_TLS,
    &LISTENER_CERTIFICATES,
    &USER,
    &STORE,
    &SNAPSHOT,
    &STORE_LOG,
    &REPLICATION,
    &QUOTAS,
    &SHARDED,
    &CLUSTER,
    &REPLICATED,
    &SLOTS,
    &SLOT_GROUP,
    &MEMCACHED,
    &EJECTION,
    &CIRCUIT,
    &OUTLIERS,
    &GROUP_FAILOVER,
    &RECONNECT,
    &TLS,
    &PREFIX,
    &PREFIX_ROUTE,
    &FAILOVER,
    &MIRROR,
    &SHADOW,
    &MISS_THEN,
    &RATE_LIMITED,
    &READ_WRITE_SPLIT,
];

/// The kinds of pools, each with its table.
pub(crate) static POOLS: [(&str, &Table); 13] = [
    ("store", &STORE),
    ("sharded", &SHARDED),
    ("cluster", &CLUSTER),
    ("replicated", &REPLICATED),
    ("slots", &SLOTS),
    ("memcached", &MEMCACHED),
    ("prefix", &PREFIX),
    ("failover", &FAILOVER),
    ("mirror", &MIRROR),
    ("shadow", &SHADOW),
    ("miss-then", &MISS_THEN),
    ("rate-limited", &RATE_LIMITED),
    ("read-write-split", &READ_WRITE_SPLIT),
];
