//! Keys that stand out, as the API tells of them. Names come as [`AdminState`] writes them: with
//! everything that is no printable character escaped.
//!
//! [`AdminState`]: crate::AdminState

use crate::backends::as_utc;
use serde::{Serialize, Serializer};

/// The keys that stand out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NotedKeyList {
    /// One request in so many is looked at for hot keys; 0 when none is.
    pub hot_keys_every: u32,
    /// Bytes from which a value is large; 0 when none is looked for.
    pub big_values_from: u32,
    /// Those of each pool.
    pub pools: Vec<NotedKeysOfPool>,
}

/// The keys of a pool that stand out.
#[derive(Clone, Debug, Serialize)]
pub struct NotedKeysOfPool {
    /// The pool.
    pub pool: String,
    /// Those read most.
    pub reads: HotKeyList,
    /// Those written most.
    pub writes: HotKeyList,
    /// Those with the largest values, the largest first.
    pub big: Vec<BigKeyStatus>,
}

/// The keys that are accessed most, the hottest first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HotKeyList {
    /// How often any key of the pool is accessed like that in a second.
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
    /// Its part of all such accesses, from 0 to 1.
    #[serde(serialize_with = "to_millionths")]
    pub share: f64,
    /// How far that may be off, either way.
    #[serde(serialize_with = "to_millionths")]
    pub share_error: f64,
    /// How often it is accessed in a second.
    #[serde(serialize_with = "to_thousandths")]
    pub rate: f64,
}

/// A key with a large value.
#[derive(Clone, Debug, Serialize)]
pub struct BigKeyStatus {
    /// Its name.
    pub key: String,
    /// Bytes that went by.
    pub bytes: u64,
    /// The command that had them.
    pub command: &'static str,
    /// `request` where they were written, `reply` where they were read.
    pub direction: &'static str,
    /// When, in seconds since the Unix epoch.
    #[serde(rename = "at", serialize_with = "as_utc")]
    pub at_unix_seconds: u64,
}

fn to_thousandths<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e3).round() / 1e3)
}

fn to_millionths<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e6).round() / 1e6)
}
