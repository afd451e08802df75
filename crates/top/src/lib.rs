//! `keyway top`: what running processes do, on a terminal or as text.
//!
//! It knows processes by their admin listeners alone: reads `/metrics`, `/backends`,
//! `/readyz` and `/v1/hot-keys` of each over HTTP every few seconds and shows what changed between two readings.
//! It must never cost a process, or the machine it runs on, more than about a hundredth of a
//! core ([`pace`]), keep more than two readings of a process, or leave a terminal as no shell
//! wants it.
//!
//! Read first: [`reading::Reading`] (what a process said at one time), [`change::Change`] (what
//! happened between two of them) and [`tables`] (the rows and columns made of that, for the
//! screen and the plain form alike).

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a viewer reads the clock and waits; nothing here runs inside a server"
)]

pub mod change;
pub mod exposition;
pub mod fetch;
pub mod figures;
pub mod keys;
mod layout;
pub mod pace;
pub mod plain;
pub mod reading;
pub mod screen;
pub mod tables;
pub mod text;
pub mod view;
pub mod watch;

pub use fetch::{Credentials, members, no_admin_address, spoken_at};
pub use screen::{print, show};
pub use tables::SORTS;
pub use watch::{TARGETS_MAX, Watch};

use std::time::Duration;

/// What was asked for.
#[derive(Clone)]
pub struct Options {
    /// Admin listeners, `HOST:PORT` each, with `https://` before it for those that speak TLS, or what
    /// [`members`] returns; from 1 to [`TARGETS_MAX`].
    pub targets: Vec<String>,
    /// What admin listeners want to be shown.
    pub credentials: Credentials,
    /// Time between readings.
    pub interval: Duration,
    /// What rows are ordered by at first; an entry of [`SORTS`].
    pub sort: usize,
    /// Only rows whose names hold this are shown; empty for all.
    pub filter: String,
    /// True if rows of the same name in several processes are added up.
    pub is_merged: bool,
    /// True if colours are left out.
    pub is_plain: bool,
}
