//! The process: its files and commands, start and end, reload and upgrade, metrics and admin API.
//!
//! `make test` runs each module as a program of its own.

mod admin_api;
mod admin_description;
mod command_line;
mod imports;
mod lifecycle;
mod metrics;
mod monitoring;
mod packaging;
mod reload;
mod secrets;
mod soak;
mod tls_client;
mod top;
mod upgrade;
mod upgrade_replicas;
mod upgrade_store;
mod upgrading;
mod workers;
