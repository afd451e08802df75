//! Redis Cluster behind Keyway: its map, redirections, failures and members.
//!
//! `make test` runs each module as a program of its own.

mod circuit;
mod cluster_cut;
mod cluster_emulated;
mod cluster_failover;
mod cluster_families;
mod cluster_hostile;
mod cluster_members;
mod cluster_operations;
mod cluster_pubsub;
mod cluster_reshard;
mod cluster_scripts;
mod cluster_setup;
mod discovery;
mod tls_discovered;
mod wait_for_primary;
