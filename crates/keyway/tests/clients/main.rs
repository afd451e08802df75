//! Clients of Redis, and what they may do: commands, connections, values, rights.
//!
//! `make test` runs each module as a program of its own.

mod access;
mod bad_input;
mod blocking;
mod client_library;
mod client_placement;
mod clients;
mod conformance;
mod fields;
mod info;
mod keyspace_events;
mod large_value_copies;
mod large_values;
mod leaving;
mod limits;
mod linearizability;
mod monitor;
mod multi_key;
mod oracle;
mod pipelining;
mod pubsub;
mod resp3;
mod scripts;
mod sessions;
mod shm_clients;
#[path = "../process/tls_client/mod.rs"]
mod tls_client;
mod tls_clients;
mod tracking;
mod transactions;
mod users;
