//! Reads one TOML file into a checked [`Config`], or reports every mistake in it at once. Also
//! converts other proxies' files ([`import`]).
//!
//! Never opens a socket, never looks a name up, never reads a clock. Reads files only in
//! [`Config::load`]. Every key is declared once, in `schema/`. Reading, hints for unknown keys,
//! [`describe`] and `docs/config.md` are all derived from there. Read first: [`Config`],
//! [`ConfigError`], [`describe`].

#![forbid(unsafe_code)]

mod access;
mod address;
mod addresses;
mod admin;
mod bus;
mod circuit;
mod cluster;
mod commands;
mod control;
mod control_node;
mod copies;
mod describe;
mod document;
mod document_changes;
mod document_masks;
mod emulate;
mod error;
mod examples;
mod group_servers;
mod hedge;
pub mod import;
mod kinds;
mod limits;
mod listener;
mod load;
mod model;
mod named;
mod operators;
mod overlay;
mod placement;
mod reader;
mod register;
mod replica;
mod resolve;
mod routes;
mod schema;
mod secret;
mod section;
mod server_config;
mod servers;
mod shm;
mod slots;
mod store;
mod strangers;
mod syntax;
mod tls;
mod toml_text;
mod users;
mod value;
mod warnings;
mod without_effect;

pub use address::ListenAddr;
pub use bus::{BusConfig, BusTls, read_token};
pub use control_node::{ControlNodeConfig, CoordinatorConfig, EngineConfig};
pub use describe::{MemoryBound, describe, kind_text};
pub use document::reference;
pub use document_changes::DocumentChange;
pub use error::ConfigError;
pub use group_servers::{ControlledGroup, ControlledSlots};
pub use load::read_file;
pub use model::{
    AccessConfig, ClusterModeConfig, Config, ControlConfig, DocumentConfig, Eviction, InsideConfig,
    IoDriver, ListenerConfig, ListenerTlsConfig, LogConfig, LogFormat, LogFsync, LogLevel, OWN_URL,
    PoolConfig, PoolKindConfig, Protocol, QuotaConfig, ReplicaConfig, ReplicationConfig,
    RoutedConfig, SecretSource, ServerConfig, ServersConfig, SnapshotConfig, StoreConfig,
    StoreLogConfig, TlsConfig, UserConfig, Workers,
};
pub use operators::OperatorConfig;
pub use register::{RegisterConfig, RegistryKind};
pub use value::{counted, size_text};
