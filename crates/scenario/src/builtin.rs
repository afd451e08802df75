//! The scenarios that come with Keyway.

use crate::error::Error;
use crate::model::Scenario;
use crate::reader::instead;
use keyway_report::Run;

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

/// Has a result that names no peer, as those of earlier versions, take that of the scenario whose
/// table it has.
pub(crate) fn name_peer(run: &mut Run) {
    let found = BUILT_IN.iter().find(|(name, _)| *name == run.scenario);
    let scenario = found.and_then(|(name, text)| Scenario::parse(name, name, text).ok());
    let peer = scenario.and_then(|scenario| scenario.peer);
    let is_there = |name: &String| run.systems.iter().any(|system| system.name == *name);
    run.peer = run.peer.take().or(peer.filter(is_there));
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

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_report::System;

    #[test]
    fn a_result_without_a_peer_takes_its_scenarios_if_that_is_there() {
        let system = |name: &str| System { name: name.to_owned(), ..System::default() };
        let peer = |scenario: &str, peer: Option<&str>, systems: &[&str]| {
            let mut run = Run {
                scenario: scenario.to_owned(),
                peer: peer.map(str::to_owned),
                systems: systems.iter().map(|name| system(name)).collect(),
                ..Run::default()
            };
            name_peer(&mut run);
            run.peer
        };
        let both = ["direct", "predixy"];
        assert_eq!(peer("cluster-proxies", None, &both).as_deref(), Some("predixy"));
        assert_eq!(peer("cluster-proxies", Some("direct"), &both).as_deref(), Some("direct"));
        assert_eq!(peer("cluster-proxies", None, &["direct"]), None);
        assert_eq!(peer("atbus", None, &both), None);
        assert_eq!(peer("mine", None, &both), None);
    }
}
