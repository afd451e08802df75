//! The scenarios that come with Keyway.

use crate::error::Error;
use crate::model::Scenario;
use crate::reader::instead;

/// All of them: the name, and the file.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("codis-vs-twemproxy", include_str!("../scenarios/codis-vs-twemproxy.toml")),
    ("twemproxy-memcached", include_str!("../scenarios/twemproxy-memcached.toml")),
    ("cluster-proxies", include_str!("../scenarios/cluster-proxies.toml")),
    ("aerospike-cache", include_str!("../scenarios/aerospike-cache.toml")),
    ("atbus", include_str!("../scenarios/atbus.toml")),
];

/// The file of a scenario by its name.
///
/// # Errors
/// [`Error::Asked`] when there is none.
pub fn text(name: &str) -> Result<&'static str, Error> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| {
        let hint = instead(name, &BUILT_IN.map(|(name, _)| name));
        Error::Asked(format!("no scenario is called \"{name}\"; {hint}"))
    })
}

/// A scenario by its name, or of a file: what has a slash or ends with `.toml` is one.
///
/// # Errors
/// When there is no such scenario, or the file cannot be read or is wrong.
pub fn load(name: &str) -> Result<Scenario, Error> {
    if !name.contains('/') && !name.ends_with(".toml") {
        return Scenario::parse(name, name, text(name)?);
    }
    let text = std::fs::read_to_string(name)
        .map_err(|why| Error::system(format!("cannot read {name}"), why))?;
    let stem = std::path::Path::new(name).file_stem().unwrap_or_default();
    Scenario::parse(&stem.to_string_lossy(), name, &text)
}
