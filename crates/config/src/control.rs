//! `[control]`: the control plane that a process joins, and the settings that come from there.

use crate::error::{ConfigError, Problem, Report, nearest, quoted};
use crate::load::{Overlay, read_with};
use crate::model::{Config, ControlConfig, InsideConfig, OWN_URL};
use crate::named::NamedPools;
use crate::overlay::Parts;
use crate::reader::check_pool_name;
use crate::secret::ReadFile;
use crate::section::{Section, Value};
use keyway_bus::{NodeId, Tokens, URLS_MAX, Upstream, Url};
use keyway_tls::{Identity, PeerSettings};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Most addresses of control nodes: those of two upstreams.
const CONTROL_URLS_MAX: usize = 2 * URLS_MAX;

/// Most addresses of a control node in a process that serves. One more is its own.
const LISTEN_MAX: usize = URLS_MAX - 1;

/// Reads the table.
pub(crate) fn resolve(
    section: &Section,
    (named, has_admin): (&NamedPools<'_>, bool),
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Option<ControlConfig> {
    let id = parsed::<NodeId>(section, "id", section.text("id")?, report);
    if let Some(id) = id.filter(|id| id.is_none() || id.is_guest()) {
        let problem = Problem::new(format!("id {id} is none of a process"), "write z1.proxy.0.1");
        report.consequence(section.place("id"), problem);
    }
    let urls = urls(section, "urls", CONTROL_URLS_MAX, report);
    let inside = inside(section, id, has_admin, report);
    let token_file = path(section, "token_file");
    let tls = section.section("tls").and_then(tls);
    refuse_strangers(section, report);
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
        host: section.text("host").map(str::to_owned),
        pools: pools(section, named, report),
        users: section.bool("users"),
        limits: section.bool("limits"),
        inside,
    })
}

/// Refuses a table by which nobody could be told from a stranger, or that joins nobody.
fn refuse_strangers(section: &Section, report: &mut Report<'_>) {
    let has = |key: &str| section.given(key).is_some();
    let mut refuse = |key: &str, what: &str, hint: &str| {
        let at = section.place(key);
        report.consequence(at, Problem::new(what.to_owned(), hint.to_owned()));
    };
    if !has("urls") && !has("coordinator") {
        let what = "[control] has neither urls nor a coordinator";
        refuse("urls", what, "name the control nodes: urls = [\"tcp://192.0.2.1:6390\"]");
    }
    let has_others = has("urls") || has("listen") || !has("coordinator");
    if has_others && !has("token_file") && !has("tls") {
        let what = "[control] has neither a token nor certificates";
        refuse("token_file", what, "add token_file or tls: without them anybody could be control");
    }
    if has("coordinator") && has("tls") {
        let what = "a control node with certificates does not run in a process that serves";
        refuse("tls", what, "remove tls, or run keyway control with a file of its own");
    }
    for key in ["node", "listen"].into_iter().filter(|key| !has("coordinator") && has(key)) {
        let what = format!("{key} in [control] is of a control node, and there is no coordinator");
        refuse(key, &what, "add coordinator, or remove it");
    }
}

/// Reads the control node that runs in the process.
fn inside(
    section: &Section,
    id: Option<NodeId>,
    has_admin: bool,
    report: &mut Report<'_>,
) -> Option<InsideConfig> {
    let coordinator = section.section("coordinator")?;
    let listen = urls(section, "listen", LISTEN_MAX, report);
    if !has_admin {
        let what = "the control node in this process has no admin address";
        let hint = "set admin in [server]: keyway ctl reaches it there";
        report.consequence(section.place("coordinator"), Problem::new(what, hint));
    }
    let node = match section.text("node") {
        Some(text) => parsed::<NodeId>(section, "node", text, report)?,
        None => id?.as_control(),
    };
    if node.is_none() || node.is_guest() || Some(node) == id {
        let what = format!("{node} is none of a control node in this process");
        let problem = Problem::new(what, "write node = \"z1.control.0.1\"");
        report.consequence(section.place("node"), problem);
    }
    let (dir, lease) = (path(coordinator, "dir")?, coordinator.duration("lease")?);
    Some(InsideConfig { id: node, dir, lease, listen })
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

fn urls(section: &Section, key: &str, count_max: usize, report: &mut Report<'_>) -> Vec<Url> {
    let Some(Value::Names(names)) = section.value(key) else { return Vec::new() };
    let urls = names.iter().filter_map(|(_, text)| parsed(section, key, text, report));
    let urls: Vec<Url> = urls.collect();
    if names.is_empty() || urls.len() > count_max {
        let what = format!("{key} in [control] are 1 to {count_max} addresses");
        let problem = Problem::new(what, format!("write {key} = [\"tcp://192.0.2.1:6390\"]"));
        report.consequence(section.place(key), problem);
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
        if named.position(name).is_some() {
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
    /// the two upstreams in turn. The control node of this process comes first.
    pub fn upstreams(&self) -> Vec<Upstream> {
        let own = self.inside.iter().filter_map(|_| OWN_URL.parse().ok());
        let all: Vec<Url> = own.chain(self.urls.iter().cloned()).collect();
        let of = |odd: usize| {
            let urls = all.iter().enumerate().filter(|(at, _)| at % 2 == odd);
            let urls: Vec<Url> = urls.map(|(_, url)| url.clone()).collect();
            (!urls.is_empty()).then_some(Upstream { id: NodeId::NONE, urls })
        };
        [of(0), of(1)].into_iter().flatten().collect()
    }
}

impl Config {
    /// Reads the file as [`Config::load`] does, with the parts of a document in place of those that
    /// its `[control]` leaves to the control plane: pools, users, `[limits]`. Errors of the document
    /// have `name` as their path, and its lines.
    ///
    /// # Errors
    /// Returns everything wrong with both, or that a file cannot be read.
    pub fn load_with(path: &Path, name: &str, text: &str) -> Result<Config, Vec<ConfigError>> {
        let file = crate::load::read_configuration(path, "TOML")?;
        let overlay = Overlay { name, text };
        read_with(&file, Some(path), &path.display().to_string(), &overlay, true)
    }

    /// Checks a document of the control plane: `[pool.NAME]`, `[[user]]` and `[limits]` tables, and
    /// nothing else. Files that they name are on the hosts of the proxies and are not read. Returns a
    /// configuration that has all of it, and a listener. Its `document` tells which pools are the
    /// document's: there are others if users name pools of files.
    ///
    /// # Errors
    /// Returns everything wrong with it.
    pub fn check_document(name: &str, text: &str) -> Result<Config, Vec<ConfigError>> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let parts = Parts::of(text);
        let frame = frame(&parts, true);
        let config = read_with(&frame, None, name, &Overlay { name, text }, false)?;
        if parts.pools.is_empty() && !parts.users && !parts.limits {
            let mut report = Report::new(name, text);
            let hint = "write [pool.NAME], [[user]] or [limits], and its keys below";
            report.consequence(0, Problem::new("the document has nothing in it", hint));
            return Err(report.finish().err().unwrap_or_default());
        }
        Ok(config)
    }

    /// Reads the pools of a document alone, with the files of passwords and certificates that they
    /// name.
    ///
    /// # Errors
    /// Returns everything that is wrong with the pools, or with the files.
    pub fn load_document(name: &str, text: &str) -> Result<Config, Vec<ConfigError>> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let frame = frame(&Parts::of(text), false);
        read_with(&frame, None, name, &Overlay { name, text }, true)
    }
}

/// Returns a file for the parts of a document.
fn frame(parts: &Parts, with_users: bool) -> String {
    let string = crate::toml_text::string;
    let left: Vec<String> = parts.pools.iter().map(|pool| string(pool)).collect();
    // Something must listen in a file, and it must have a pool.
    let spare = parts.pools.is_empty().then(|| "none".to_owned());
    // A wrong name is told as one that no pool has.
    let is_of_file =
        |pool: &&String| with_users && !parts.pools.contains(pool) && check_pool_name(pool).is_ok();
    let of_users = parts.pools_of_users.iter().filter(is_of_file);
    let of_files: BTreeSet<&String> = of_users.chain(&spare).collect();
    let first = parts.pools.iter().chain(of_files.iter().copied()).next();
    // With a control node in the process no file of a token is needed, which would be read. The
    // listener has no users: the listeners of proxies are in their files. No server can have its port.
    let mut frame = format!(
        "[server]\nadmin = \"tcp://127.0.0.1:2\"\n[control]\ncluster = \"c\"\nid = \
         \"z1.proxy.0.1\"\ncoordinator = {{ dir = \"d\" }}\nstate_file = \"s\"\npools = [{}]\nusers \
         = {with_users}\nlimits = true\n[[listener]]\nbind = \"tcp://127.0.0.1:0\"\nusers = []\npool \
         = {}\n",
        left.join(", "),
        string(first.map(String::as_str).unwrap_or_default()),
    );
    for name in &parts.pools {
        frame += &format!("[pool.{}]\nkind = \"store\"\n", crate::toml_text::key(name));
    }
    for name in of_files {
        // A pool of this kind may have whatever a user says of its pool.
        let name = crate::toml_text::key(name);
        frame += &format!("[pool.{name}]\nkind = \"replicated\"\nservers = [\"127.0.0.1:3\"]\n");
    }
    frame
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
    fn a_server_of_a_document_may_have_any_address() {
        let servers: Vec<String> = (1..5).map(|port| format!("\"127.0.0.1:{port}\"")).collect();
        let servers = servers.join(", ");
        let text = format!("[pool.a]\nkind = \"sharded\"\nservers = [{servers}]\n");
        assert!(Config::check_document("d", &text).is_ok());
    }

    #[test]
    fn a_process_that_is_a_control_node_too_needs_no_address_and_no_token() {
        let keys = "urls = [\"tcp://127.0.0.1:1\", \"tcp://127.0.0.1:2\", \"tcp://127.0.0.1:3\"]\n\
                    token_file = \"token\"\n";
        let read = |other: &str| {
            let file = FILE.replace(keys, other);
            Config::from_str(&file, "keyway.toml").map_err(|errors| {
                errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
            })
        };
        let alone = "coordinator = { dir = \"control\" }\n";
        let control = read(alone).unwrap().control.unwrap();
        let inside = control.inside.as_ref().unwrap();
        assert_eq!(inside.id.to_string(), "z1.control.0.3");
        assert_eq!(inside.lease, std::time::Duration::from_secs(2));
        assert_eq!(control.upstreams()[0].urls[0].to_string(), OWN_URL);
        for (keys, told) in [
            ("", "neither urls nor a coordinator"),
            ("coordinator = { dir = \"d\", kind = \"etcd\" }\n", "etcd"),
            ("coordinator = {}\n", "dir"),
            ("coordinator = { dir = \"d\" }\nnode = \"z1.proxy.0.3\"\n", "none of a control node"),
            (
                "coordinator = { dir = \"d\" }\nlisten = [\"tcp://127.0.0.1:9\"]\n",
                "neither a token nor certificates",
            ),
            (
                "urls = [\"tcp://127.0.0.1:9\"]\ntoken_file = \"t\"\nnode = \"z1.control.0.3\"\n",
                "there is no coordinator",
            ),
            (
                "coordinator = { dir = \"d\" }\n\
                 tls = { ca_file = \"a\", cert_file = \"b\", key_file = \"c\" }\n",
                "certificates does not run in a process that serves",
            ),
        ] {
            let errors = read(keys).unwrap_err();
            assert!(errors.contains(told), "{keys}: {errors}");
        }
        let off = format!("[server]\nadmin = \"off\"\n{}", FILE.replace(keys, alone));
        let errors = Config::from_str(&off, "keyway.toml").unwrap_err();
        assert!(errors[0].to_string().contains("no admin address"), "{errors:?}");
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

    const USER: &str = "[[user]]\nname = \"app\"\nrules = \"+@read ~*\"\npassword_hashes = [\"#\
                        248a997db5dbd534cbac4dfc0b88feab66fcf5c50223ae8c0fd4370fa6e818a9\"]\n";
    const LIMITS: &str = "[limits]\nclients_max = 7\n";

    fn left(keys: &str, more: &str) -> String {
        FILE.replace("pools = [\"a\"]\n", &format!("pools = [\"a\"]\n{keys}")) + more
    }

    fn with_file(file: &str, document: &str) -> Result<Config, Vec<String>> {
        let overlay = Overlay { name: "document 7", text: document };
        read_with(file, None, "keyway.toml", &overlay, false)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    fn names(config: &Config) -> Vec<&str> {
        config.users.iter().map(|user| user.user.name().as_ref()).collect()
    }

    #[test]
    fn users_and_limits_are_from_the_document_only_where_the_file_leaves_them() {
        let own = "[limits]\nclients_max = 50\nbig_values_from = \"1KiB\"\n[[user]]\nname = \
                   \"own\"\nrules = \"off\"\n[[user]]\nname = \"app\"\nrules = \"off\"\n";
        let both = format!("{USER}{LIMITS}");
        for (keys, document, users, clients_max, flags) in [
            ("", &*both, &["own", "app"][..], 50, (false, false)),
            ("users = true\n", &both, &["app"], 50, (true, false)),
            ("limits = true\n", &both, &["own", "app"], 7, (false, true)),
            ("users = true\nlimits = true\n", &both, &["app"], 7, (true, true)),
            ("users = true\nlimits = true\n", LIMITS, &["own", "app"], 7, (false, true)),
            ("users = true\nlimits = true\n", USER, &["app"], 50, (true, false)),
            ("users = true\nlimits = true\n", "user = []\n", &["own", "app"], 50, (false, false)),
        ] {
            let config = with_file(&left(keys, own), document).unwrap();
            assert_eq!(names(&config), users, "{keys}{document}");
            assert_eq!(config.limits.clients_max, clients_max, "{keys}{document}");
            // The whole table is from one of them.
            let default = keyway_base::Limits::default().big_values_from;
            let big = if flags.1 { default } else { 1024 };
            assert_eq!(config.limits.big_values_from, big, "{keys}{document}");
            let found = config.document.as_ref().map(|found| (found.users, found.limits));
            assert_eq!(found, Some(flags), "{keys}{document}");
            let shown = crate::describe(&config);
            assert_eq!(shown.contains("# The user is from document 7.\n"), flags.0, "{shown}");
            assert_eq!(shown.contains("# The limits are from document 7.\n"), flags.1, "{shown}");
        }
    }

    #[test]
    fn users_of_a_document_fit_the_listeners_and_pools_of_the_file() {
        let keys = "users = true\nlimits = true\n";
        let file = left(keys, "");
        let refused = |file: &str, document: &str, told: &str| {
            let errors = with_file(file, document).unwrap_err().join("\n");
            assert!(errors.contains(told), "{errors}");
        };
        let of_pool = |pool: &str| format!("{USER}pool = \"{pool}\"\n");
        assert_eq!(with_file(&file, &of_pool("b")).unwrap().users[0].pool_index, Some(1));
        refused(&file, &of_pool("c"), "document 7:5: pool in [[user]]: there is no pool \"c\"");
        // The listener of the file names a user that the document does not have.
        let named = file.replace("pool = \"a\"\n", "pool = \"a\"\nusers = [\"old\"]\n")
            + "[[user]]\nname = \"old\"\nrules = \"off\"\n";
        assert!(with_file(&named, LIMITS).is_ok());
        refused(&named, USER, "there is no user \"old\"");
        let default = USER.replace("app", "default");
        let secret = file.replace("pool = \"a\"\n", "pool = \"a\"\npassword = \"secret\"\n");
        refused(&secret, &default, "whom line 1 of document 7 describes");
        // A bound of the file is above that of the document.
        let servers = "kind = \"sharded\"\nservers = [\"127.0.0.1:1\"]\nclients_max = 9\n";
        let wide = left(keys, &format!("[pool.c]\n{servers}"));
        refused(&wide, LIMITS, "keyway.toml:");
    }

    #[test]
    fn a_document_of_users_and_limits_alone_is_checked_with_the_pools_that_users_name() {
        let check = |text: &str| Config::check_new_document("d", text);
        for text in [
            USER.to_owned(),
            LIMITS.to_owned(),
            format!("{USER}pool = \"elsewhere\"\nread_from = \"replica\"\n"),
            format!("{USER}pool = \"a\"\n[pool.a]\nkind = \"store\"\n"),
            format!("{USER}pool = \"none\"\n{LIMITS}"),
        ] {
            let config = check(&text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
            let found = config.document.unwrap();
            assert_eq!(found.users, text.contains("[[user]]"));
            assert_eq!(found.limits, text.contains("[limits]"));
            assert_eq!(found.pools.len(), usize::from(text.contains("[pool.a]")));
        }
        let plain = USER.replace("password_hashes = [\"#", "password = \"").replace("\"]", "\"");
        for (text, line, told) in [
            (plain.clone(), 4, "keyway hash-password"),
            (format!("[limits]\nclients_max = \"many\"\n{USER}"), 2, "clients_max"),
            (format!("{LIMITS}{USER}{USER}"), 8, "there are two users \"app\""),
            (USER.replace("+@read", "+@reed"), 3, "reed"),
            (format!("{USER}pool = \"a b\"\n"), 5, "there is no pool"),
            ("user = 1\n".to_owned(), 1, "user"),
            ("[[user]]\nname = \"app\"\nrules = \"+get\"\n".to_owned(), 1, "has no password"),
            (USER.replace("#248a997db5dbd534", "#0000000000000000"), 4, "mask"),
            (
                "[pool.a]\nkind = \"sharded\"\nservers = [\"h:1\"]\npassword = \"********\"\n"
                    .to_owned(),
                4,
                "mask",
            ),
            ("[server]\nworkers = 1\n".to_owned(), 1, "[[user]] and [limits]"),
        ] {
            let text = text.replace(
                "#0000000000000000cbac4dfc0b88feab66fcf5c50223ae8c0fd4370f",
                crate::users::MASK_OF_HASH,
            );
            let errors = check(&text).err().unwrap_or_default();
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let first = errors.first().unwrap_or_else(|| panic!("{text} is not refused"));
            assert!(
                first.starts_with(&format!("d:{line}: ")) && first.contains(told),
                "{errors:?}"
            );
            assert!(!errors.join("").contains("248a997db5dbd534"), "{errors:?}");
        }
    }

    #[test]
    fn the_files_of_users_are_not_read_with_those_of_pools() {
        let user = "[[user]]\nname = \"app\"\nrules = \"+get\"\npassword_file = \"/nowhere\"\n";
        let config = Config::load_document("d", user).unwrap();
        assert!(config.users.is_empty());
        let pool = "[pool.a]\nkind = \"store\"\n";
        assert_eq!(Config::load_document("d", &format!("{pool}{user}")).unwrap().pools.len(), 1);
    }
}
