//! Listeners with shared memory: `shm://`.

use crate::address::ListenAddr;
use crate::error::{Problem, Report};
use crate::model::{Config, ShmConfig};
use crate::section::{Section, Value};
use crate::value::format_size;
use keyway_topology::{Endpoint, Server};
use std::fmt::Write;
use toml::Spanned;
use toml::de::DeValue;

/// Default size of the largest ring, in bytes.
const RING_MAX: u64 = 1 << 20;

const UIDS_HINT: &str = "write numbers of users: [1000, 1001]";

/// Most users that a listener may name.
const UIDS_MAX: usize = 1024;

/// Reads `[1000, 1001]`.
pub(crate) fn read_uids(value: &DeValue<'_>) -> Result<Value, Problem> {
    let wrong = |what: &str| Problem::new(what.to_owned(), UIDS_HINT);
    let list = value.as_array().ok_or_else(|| wrong("it is not a list"))?;
    if list.len() > UIDS_MAX {
        return Err(Problem::new(
            format!("{} users are listed", list.len()),
            format!("list up to {UIDS_MAX}"),
        ));
    }
    let uid = |item: &Spanned<DeValue<'_>>| {
        let text = item.get_ref().as_integer().map(|number| number.to_string());
        // The last number stands for "no user".
        let uid = text.and_then(|text| text.parse().ok()).filter(|&uid: &u32| uid < u32::MAX);
        uid.ok_or_else(|| wrong("one of them is not the number of a user"))
    };
    list.iter().map(uid).collect::<Result<_, _>>().map(Value::Uids)
}

/// Reads the settings of shared memory of a listener.
pub(crate) fn of_listener(section: &Section, bind: &ListenAddr) -> Option<ShmConfig> {
    let ListenAddr::Shm(_) = bind else { return None };
    let allow_uids = match section.value("allow_uids") {
        Some(Value::Uids(uids)) => uids.clone(),
        _ => Vec::new(),
    };
    let ring_max = section.number("ring_max").unwrap_or(RING_MAX);
    // The capacity of a ring is a power of two.
    Some(ShmConfig { allow_uids, ring_max: 1 << ring_max.ilog2() })
}

/// Returns the default settings.
pub(crate) fn by_default(bind: &ListenAddr) -> Option<ShmConfig> {
    let ListenAddr::Shm(_) = bind else { return None };
    Some(ShmConfig { allow_uids: Vec::new(), ring_max: RING_MAX })
}

/// Both rings of a connection to a server: the size that is asked for at most, in bytes.
const LINK_RINGS: u64 = 2 << 20;

/// Adds the memory that connections through shared memory may use.
pub(crate) fn describe_memory(config: &Config, text: &mut String) {
    let rings = config.listeners.iter().filter_map(|listener| listener.shm.as_ref());
    if let Some(ring_max) = rings.map(|shm| shm.ring_max).max() {
        let both = format_size(ring_max.saturating_mul(2));
        let _ =
            writeln!(text, "  clients of shm://: rings of {both} each, while something is in them");
    }
    let mut sets = config.pools.iter().filter_map(|pool| pool.kind.servers());
    let is_shm = |server: &Server| matches!(server.endpoint, Endpoint::Shm { .. });
    let has_shm = sets.any(|(set, _)| set.servers.iter().any(is_shm));
    if has_shm {
        let both = format_size(LINK_RINGS);
        let _ = writeln!(text, "  servers of shm://: rings of {both} for each connection");
    }
}

/// Refuses keys that are for listeners of other schemes than `scheme`.
pub(crate) fn refuse_stray_keys(section: &Section, scheme: &str, report: &mut Report<'_>) {
    const KEYS: [(&str, &[&str]); 6] = [
        ("tcp_keepalive", &["tcp"]),
        ("mode", &["unix", "shm"]),
        ("owner", &["unix", "shm"]),
        ("group", &["unix", "shm"]),
        ("allow_uids", &["shm"]),
        ("ring_max", &["shm"]),
    ];
    for (key, schemes) in KEYS {
        if let (Some(at), false) = (section.given(key), schemes.contains(&scheme)) {
            let schemes: Vec<_> = schemes.iter().map(|scheme| format!("{scheme}://")).collect();
            let what =
                format!("{key} in [[listener]] is for {} listeners only", schemes.join(" and "));
            report.consequence(at, Problem::new(what, format!("remove {key}")));
        }
    }
}
