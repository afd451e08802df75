//! `[control]`: the control plane that a process joins, and the pools that come from there.

use crate::error::{ConfigError, Problem, Report, nearest, quoted};
use crate::load::{Overlay, read_with};
use crate::model::{Config, ControlConfig};
use crate::named::NamedPools;
use crate::secret::ReadFile;
use crate::section::{Section, Value};
use keyway_bus::{NodeId, Tokens, URLS_MAX, Upstream, Url};
use keyway_tls::{Identity, PeerSettings};
use std::path::{Path, PathBuf};

/// Most addresses of control nodes: those of two upstreams.
const CONTROL_URLS_MAX: usize = 2 * URLS_MAX;

/// Reads the table.
pub(crate) fn resolve(
    section: &Section,
    named: &NamedPools<'_>,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Option<ControlConfig> {
    let id = parsed::<NodeId>(section, "id", section.text("id")?, report);
    if let Some(id) = id.filter(|id| id.is_none() || id.is_guest()) {
        let problem = Problem::new(format!("id {id} is none of a process"), "write z1.proxy.0.1");
        report.consequence(section.place("id"), problem);
    }
    let urls = urls(section, report);
    let token_file = path(section, "token_file");
    let tls = section.section("tls").and_then(tls);
    if token_file.is_none() && section.section("tls").is_none() {
        let hint = "add token_file or tls: without them anybody could be control";
        let problem = Problem::new("[control] has neither a token nor certificates", hint);
        report.consequence(section.at, problem);
    }
    if let (Some(file), Some(read)) = (&token_file, read_file) {
        let added = read(file).and_then(|text| {
            let first = text.lines().next().unwrap_or_default().as_bytes();
            Tokens::default().add(first).map_err(|fault| fault.to_string())
        });
        if let Err(what) = added {
            let what = format!("token_file in [control]: {what}");
            let hint = "make it with: head -c 24 /dev/urandom | base64 > FILE";
            report.mistake(section.place("token_file"), Problem::new(what, hint));
        }
    }
    Some(ControlConfig {
        cluster: section.text("cluster")?.to_owned(),
        id: id?,
        urls,
        token_file,
        tls,
        state_file: path(section, "state_file")?,
        pools: pools(section, named, report),
    })
}

fn parsed<T: std::str::FromStr<Err: ToString>>(
    section: &Section,
    key: &str,
    text: &str,
    report: &mut Report<'_>,
) -> Option<T> {
    text.parse()
        .map_err(|fault: T::Err| {
            let what = format!("{key} in [control]: {}", fault.to_string());
            report.consequence(section.place(key), Problem::new(what, "see docs/bus.md"));
        })
        .ok()
}

fn urls(section: &Section, report: &mut Report<'_>) -> Vec<Url> {
    let Some(Value::Names(names)) = section.value("urls") else { return Vec::new() };
    let urls = names.iter().filter_map(|(_, text)| parsed(section, "urls", text, report));
    let urls: Vec<Url> = urls.collect();
    if names.is_empty() || urls.len() > CONTROL_URLS_MAX {
        let what = format!("urls in [control] are 1 to {CONTROL_URLS_MAX} addresses");
        let problem = Problem::new(what, "name the control nodes: [\"tcp://192.0.2.1:6390\"]");
        report.consequence(section.place("urls"), problem);
    }
    urls
}

fn path(section: &Section, key: &str) -> Option<PathBuf> {
    match section.value(key) {
        Some(Value::Path(path)) => Some(path.clone()),
        _ => None,
    }
}

fn tls(section: &Section) -> Option<PeerSettings> {
    let [ca_file, cert_file, key_file] =
        ["ca_file", "cert_file", "key_file"].map(|key| path(section, key));
    let identity = Identity { cert_file: cert_file?, key_file: key_file? };
    Some(PeerSettings { ca_file: ca_file?, identity })
}

fn pools(section: &Section, named: &NamedPools<'_>, report: &mut Report<'_>) -> Vec<String> {
    let Some(Value::Names(names)) = section.value("pools") else { return Vec::new() };
    for (at, name) in names {
        if named.iter().any(|pool| pool.name == *name) {
            continue;
        }
        let hint = match nearest(name, named.iter().map(|pool| pool.name.as_str())) {
            Some(meant) => format!("did you mean {}?", quoted(meant)),
            None => format!("add [pool.{name}], by which is served before the first document"),
        };
        let what = format!("pools in [control]: there is no pool {}", quoted(name));
        report.consequence(*at, Problem::new(what, hint));
    }
    names.iter().map(|(_, name)| name.clone()).collect()
}

impl ControlConfig {
    /// Returns the upstreams on the bus: each address is of one control node, and goes to one of
    /// the two upstreams in turn.
    pub fn upstreams(&self) -> Vec<Upstream> {
        let of = |odd: usize| {
            let urls = self.urls.iter().enumerate().filter(|(at, _)| at % 2 == odd);
            let urls: Vec<Url> = urls.map(|(_, url)| url.clone()).collect();
            (!urls.is_empty()).then_some(Upstream { id: NodeId::NONE, urls })
        };
        [of(0), of(1)].into_iter().flatten().collect()
    }
}

impl Config {
    /// Reads the file as [`Config::load`] does, with the pools of a document in place of those that
    /// its `[control]` leaves to the control plane. Errors of the document have `name` as their
    /// path, and its lines.
    ///
    /// # Errors
    /// Returns everything wrong with both, or that a file cannot be read.
    pub fn load_with(path: &Path, name: &str, text: &str) -> Result<Config, Vec<ConfigError>> {
        let file = crate::load::read_configuration(path, "TOML")?;
        let overlay = Overlay { name, text };
        read_with(&file, Some(path), &path.display().to_string(), &overlay, true)
    }

    /// Checks a document of the control plane: `[pool.NAME]` tables and nothing else. Files that
    /// pools name are on the hosts of the proxies and are not read. Returns a configuration that
    /// has its pools, and a listener of the first.
    ///
    /// # Errors
    /// Returns everything wrong with it.
    pub fn check_document(name: &str, text: &str) -> Result<Config, Vec<ConfigError>> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let pools = crate::overlay::pool_names(text);
        // Something must listen in a file.
        let string = crate::toml_text::string;
        let first = string(pools.first().map(String::as_str).unwrap_or_default());
        let names: Vec<String> = pools.iter().map(|pool| string(pool)).collect();
        let mut frame = format!(
            "[control]\ncluster = \"c\"\nid = \"z1.proxy.0.1\"\nurls = [\"mem://c\"]\n\
             token_file = \"t\"\nstate_file = \"s\"\npools = [{}]\n[[listener]]\nbind = \
             \"tcp://127.0.0.1:1\"\npool = {first}\n",
            names.join(", ")
        );
        for name in &pools {
            frame += &format!("[pool.{}]\nkind = \"store\"\n", crate::toml_text::key(name));
        }
        if pools.is_empty() {
            let mut report = Report::new(name, text);
            crate::syntax::report_all(
                text,
                &toml::de::DeTable::parse_recoverable(text).1,
                &mut report,
            );
            let hint = "write [pool.NAME] and its keys below";
            report.consequence(0, Problem::new("the document has no pools", hint));
            return Err(report.finish().err().unwrap_or_default());
        }
        read_with(&frame, None, name, &Overlay { name, text }, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PoolKindConfig;

    const FILE: &str = r#"
[control]
cluster = "prod"
id = "z1.proxy.0.3"
urls = ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "tcp://127.0.0.1:3"]
token_file = "token"
state_file = "state"
pools = ["a"]
[[listener]]
bind = "tcp://127.0.0.1:6380"
pool = "a"
[pool.a]
kind = "store"
[pool.b]
kind = "store"
"#;

    fn with(document: &str) -> Result<Config, Vec<String>> {
        let overlay = Overlay { name: "document 7", text: document };
        read_with(FILE, None, "keyway.toml", &overlay, false)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_document_replaces_the_pools_that_the_file_leaves_to_control() {
        let document = "[pool.a]\nkind = \"sharded\"\nservers = [\"127.0.0.1:7001\"]\n\
                        [pool.b]\nkind = \"sharded\"\nservers = [\"127.0.0.1:7002\"]\n\
                        [pool.c]\nkind = \"store\"\n";
        let config = with(document).unwrap();
        let is_store = |at: usize| matches!(config.pools[at].kind, PoolKindConfig::Store(_));
        let names: Vec<_> = config.pools.iter().map(|pool| &*pool.name).collect();
        let at = |name| names.iter().position(|one| *one == name).unwrap();
        assert_eq!((names.len(), is_store(at("a")), is_store(at("b"))), (2, false, true));
        let control = config.control.unwrap();
        let upstreams = control.upstreams();
        assert_eq!(upstreams.iter().map(|one| one.urls.len()).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_wrong_document_is_told_with_its_own_lines() {
        let errors = with("# one\n[pool.a]\nkind = \"sharded\"\nserver = []\n").unwrap_err();
        assert!(errors.iter().any(|error| error.starts_with("document 7:4: ")), "{errors:?}");
        let errors = with("[pool.a\n").unwrap_err();
        assert!(errors[0].starts_with("document 7:1: "), "{errors:?}");
        let errors = with("[server]\nworkers = 1\n").unwrap_err();
        assert!(errors[0].starts_with("document 7:1: "), "{errors:?}");
    }

    #[test]
    fn a_document_is_checked_without_a_file() {
        let check = |text| Config::check_document("d", text);
        let config = check("[pool.a]\nkind = \"store\"\n[pool.b]\nkind = \"store\"\n").unwrap();
        assert_eq!(config.pools.len(), 2);
        for (text, line) in [("", "d"), ("[pool.a]\nkind = \"shard\"\n", "d:2"), ("x = 1\n", "d:1")]
        {
            let errors = check(text).unwrap_err();
            assert!(errors[0].to_string().starts_with(line), "{text:?}: {}", errors[0]);
        }
    }
}
