//! Primaries and replicas: the store as either, and pools of replicated servers.
//!
//! `make test` runs each module as a program of its own.

mod primary;
mod primary_sentinel;
mod read_write_split;
mod replica_of;
mod replicated;
mod replicated_failover;
mod sentinel_notices;
mod wait;
