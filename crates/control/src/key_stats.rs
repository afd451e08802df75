//! Hot keys and big keys, for the API. Names are written by [`AdminState`], with everything that is
//! not printable escaped.
//!
//! [`AdminState`]: crate::AdminState

use crate::backends::as_utc;
use serde::{Serialize, Serializer};

/// The hot and big keys of all pools.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KeyStatsList {
    /// One request in this many is counted for hot keys; 0: none.
    pub hot_keys_every: u32,
    /// Length in bytes from which a value is large; 0: none is noted.
    pub big_values_from: u32,
    /// The keys of each pool.
    pub pools: Vec<KeyStatsOfPool>,
}

/// The hot and big keys of a pool.
#[derive(Clone, Debug, Serialize)]
pub struct KeyStatsOfPool {
    /// The pool.
    pub pool: String,
    /// The keys that are read most.
    pub reads: HotKeyList,
    /// The keys that are written most.
    pub writes: HotKeyList,
    /// The keys with the largest values, the largest first.
    pub big: Vec<BigKeyStatus>,
}

/// The keys that are accessed most, the hottest first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HotKeyList {
    /// Accesses per second of all keys of the pool.
    #[serde(serialize_with = "to_thousandths")]
    pub rate: f64,
    /// The keys.
    pub keys: Vec<HotKeyStatus>,
}

/// A key that is accessed often.
#[derive(Clone, Debug, Serialize)]
pub struct HotKeyStatus {
    /// Its name.
    pub key: String,
    /// Its share of all such accesses, from 0 to 1.
    #[serde(serialize_with = "to_millionths")]
    pub share: f64,
    /// The error of the share, in either direction.
    #[serde(serialize_with = "to_millionths")]
    pub share_error: f64,
    /// Accesses per second.
    #[serde(serialize_with = "to_thousandths")]
    pub rate: f64,
}

/// A key with a large value.
#[derive(Clone, Debug, Serialize)]
pub struct BigKeyStatus {
    /// Its name.
    pub key: String,
    /// Length of the value, in bytes.
    pub bytes: u64,
    /// The command that carried it.
    pub command: &'static str,
    /// `request` if it was written, `reply` if it was read.
    pub direction: &'static str,
    /// The time, in seconds since the Unix epoch.
    #[serde(rename = "at", serialize_with = "as_utc")]
    pub at_unix_seconds: u64,
}

fn to_thousandths<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e3).round() / 1e3)
}

fn to_millionths<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e6).round() / 1e6)
}
