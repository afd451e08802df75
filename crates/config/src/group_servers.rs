//! Groups of servers whose primary the control plane decides: pools of kind replicated, and the groups
//! of pools of kind slots, with `failover`.

use crate::Config;
use crate::error::{ConfigError, Problem, Report, quoted};
use crate::model::{PoolConfig, PoolKindConfig, TlsConfig};
use keyway_topology::{Endpoint, FailoverPolicy, Server, ServerGroup, ServerOptions, SlotSpace};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// The host and port of a server, in the form that other spellings of the same address have too.
type Place = (String, u16);

/// A group of servers whose primary the control plane decides.
#[derive(Clone, Debug)]
pub struct ControlledGroup<'c> {
    /// The name of its pool, or for a group of several `POOL:GROUP`.
    pub name: String,
    /// Its number in the pool.
    pub number: u16,
    /// The addresses of its servers.
    pub servers: &'c [Endpoint],
    /// How its primary is decided.
    pub failover: &'c FailoverPolicy,
    /// How often its servers are asked.
    pub refresh: Duration,
    /// How Keyway connects to its servers.
    pub options: &'c ServerOptions,
    /// The TLS settings of these connections.
    pub tls: Option<&'c TlsConfig>,
}

impl PoolConfig {
    /// Returns the groups of the pool whose primary the control plane decides.
    pub fn controlled_groups(&self) -> Vec<ControlledGroup<'_>> {
        let (lists, discovery, failover): (Vec<(String, &[Endpoint])>, _, _) = match &self.kind {
            PoolKindConfig::Replicated(pool, _) => {
                let list = (self.name.clone(), &pool.discovery.seeds[..]);
                (vec![list], &pool.discovery, &pool.failover)
            }
            PoolKindConfig::Slots(pool, _) => {
                let groups = pool.groups.iter();
                let lists =
                    groups.map(|group| (name_of(&self.name, &group.name), &group.servers[..]));
                (lists.collect(), &pool.discovery, &pool.failover)
            }
            PoolKindConfig::Store(_)
            | PoolKindConfig::Sharded(..)
            | PoolKindConfig::Memcached(..)
            | PoolKindConfig::Cluster(..)
            | PoolKindConfig::Sentinels(..)
            | PoolKindConfig::Routed(_) => return Vec::new(),
        };
        let (Some(failover), Some((set, config))) = (failover, self.kind.servers()) else {
            return Vec::new();
        };
        let group = |(number, (name, servers))| ControlledGroup {
            name,
            number,
            servers,
            failover,
            refresh: discovery.refresh,
            options: &set.options,
            tls: config.tls.as_ref(),
        };
        (0..).zip(lists).map(group).collect()
    }
}

/// A pool whose slots the control plane may move.
#[derive(Clone, Debug)]
pub struct ControlledSlots {
    /// The name of the pool.
    pub pool: String,
    /// The slots, and the rule by which a key has one.
    pub space: SlotSpace,
    /// The groups, each with the ranges of slots that the document gives to it.
    pub groups: Vec<(String, Vec<(u16, u16)>)>,
}

impl PoolConfig {
    /// Returns what the control plane may move; `None` unless the pool is one of kind slots with
    /// `failover`.
    pub fn controlled_slots(&self) -> Option<ControlledSlots> {
        let PoolKindConfig::Slots(pool, _) = &self.kind else { return None };
        pool.failover.as_ref()?;
        let ranges =
            |(number, group): (u16, &ServerGroup)| (group.name.clone(), pool.map.ranges_of(number));
        let groups = (0..).zip(&pool.groups).map(ranges).collect();
        Some(ControlledSlots { pool: self.name.clone(), space: pool.map.space(), groups })
    }
}

fn name_of(pool: &str, group: &str) -> String {
    format!("{pool}:{group}")
}

/// A server that a group lists.
struct Listed {
    /// The name of the group.
    pool: String,
    /// The position of the server in the text.
    at: usize,
    /// The address without a weight and a name.
    shown: String,
    place: Place,
}

impl Config {
    /// Checks that no server of a document is in two groups. Two groups would give one server two
    /// primaries, and each change of its primary empties it. Names of hosts are not resolved: two
    /// names of one host count as two hosts.
    ///
    /// # Errors
    /// Returns every server that is in two groups.
    pub fn check_groups(name: &str, text: &str) -> Result<(), Vec<ConfigError>> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut report = Report::new(name, text);
        refuse_shared_servers(text, &mut report);
        report.finish().map(drop)
    }

    /// Returns the pool and the address of each server that a group of the new document has, and
    /// that the group of the same pool in the old document has not.
    pub fn new_group_servers(old: &str, new: &str) -> Vec<(String, String)> {
        let (old, new) = (DeTable::parse_recoverable(old).0, DeTable::parse_recoverable(new).0);
        let before = listed(old.get_ref());
        let before: BTreeSet<(&str, &Place)> =
            before.iter().map(|one| (&*one.pool, &one.place)).collect();
        let after = listed(new.get_ref()).into_iter();
        let found = after.filter(|one| !before.contains(&(&*one.pool, &one.place)));
        found.map(|one| (one.pool, one.shown)).collect()
    }

    /// Returns the first of these pools, each with a server, that is a group of the document whose
    /// list lacks the server.
    pub fn group_without<'p>(text: &str, of: &[(&'p str, &'p str)]) -> Option<(&'p str, &'p str)> {
        let document = DeTable::parse_recoverable(text).0;
        let all = listed(document.get_ref());
        let lacks = |(pool, server): &&(&str, &str)| {
            let mut its = all.iter().filter(|one| one.pool == *pool).peekable();
            let place = server.parse().ok().as_ref().and_then(place_of);
            its.peek().is_some()
                && !its.any(|one| one.shown == *server || place.as_ref() == Some(&one.place))
        };
        of.iter().find(lacks).copied()
    }

    /// Returns the pools of kind store that the new document has, and the old one has not.
    pub fn new_stores(old: &str, new: &str) -> Vec<String> {
        let (old, new) = (DeTable::parse_recoverable(old).0, DeTable::parse_recoverable(new).0);
        let before = stores(old.get_ref());
        let after = stores(new.get_ref()).into_iter();
        after.filter(|pool| !before.contains(pool)).map(str::to_owned).collect()
    }
}

/// Refuses a server that is in two groups, or twice in one by two spellings.
pub(crate) fn refuse_shared_servers(text: &str, report: &mut Report<'_>) {
    // Most files have no groups, and some have tens of thousands of pools.
    if !text.contains("failover") {
        return;
    }
    let document = DeTable::parse_recoverable(text).0;
    let all = listed(document.get_ref());
    let mut first: BTreeMap<&Place, &Listed> = BTreeMap::new();
    for one in &all {
        let Some(other) = first.get(&one.place) else {
            first.insert(&one.place, one);
            continue;
        };
        let same = match one.shown == other.shown {
            true => one.shown.clone(),
            false => format!("{}, which is {},", one.shown, other.shown),
        };
        if one.pool != other.pool {
            let what = format!(
                "server {same} is in two pools with failover, {} and {}",
                quoted(&other.pool),
                quoted(&one.pool)
            );
            let hint = "leave it in one of them: control would give it two primaries, and it \
                        would lose its data";
            report.consequence(one.at, Problem::new(what, hint));
        } else if one.shown != other.shown {
            let what = format!("server {same} is twice in pool {}", quoted(&one.pool));
            report.consequence(one.at, Problem::new(what, "list each server once"));
        }
    }
}

/// Returns the pools of kind store.
fn stores<'t>(document: &'t DeTable<'_>) -> BTreeSet<&'t str> {
    let pools = document.get("pool").and_then(|pools| pools.get_ref().as_table());
    let pools = pools.into_iter().flat_map(|pools| pools.iter());
    let is_store = |pool: &DeValue<'_>| {
        let kind = pool.as_table().and_then(|pool| pool.get("kind"));
        kind.and_then(|kind| kind.get_ref().as_str()) == Some("store")
    };
    let stores = pools.filter(|(_, pool)| is_store(pool.get_ref()));
    stores.map(|(name, _)| &**name.get_ref()).collect()
}

/// Returns the servers of all groups in the order of the text. Wrong ones are left out.
fn listed(document: &DeTable<'_>) -> Vec<Listed> {
    let pools = document.get("pool").and_then(|pools| pools.get_ref().as_table());
    let mut all = Vec::new();
    for (name, pool) in pools.into_iter().flat_map(|pools| pools.iter()) {
        let Some(pool_table) = pool.get_ref().as_table() else { continue };
        let value = |key: &str| pool_table.get(key).map(|value| value.get_ref());
        if value("failover").is_none() {
            continue;
        }
        match value("kind").and_then(DeValue::as_str) {
            Some("replicated") => add(name.get_ref(), value("servers"), &mut all),
            Some("slots") => {
                let groups = value("groups").and_then(DeValue::as_array);
                for group in groups.into_iter().flat_map(|groups| groups.iter()) {
                    let Some(group) = group.get_ref().as_table() else { continue };
                    let value = |key: &str| group.get(key).map(|value| value.get_ref());
                    let own = value("name").and_then(DeValue::as_str).unwrap_or_default();
                    add(&name_of(name.get_ref(), own), value("servers"), &mut all);
                }
            }
            _ => {}
        }
    }
    all.sort_by_key(|one| one.at);
    all
}

fn add(group: &str, servers: Option<&DeValue<'_>>, all: &mut Vec<Listed>) {
    let servers = servers.and_then(DeValue::as_array);
    for server in servers.into_iter().flat_map(|servers| servers.iter()) {
        let parsed = server.get_ref().as_str().map(Server::parse);
        let Some(Ok(Server { endpoint, .. })) = parsed else { continue };
        let Some(place) = place_of(&endpoint) else { continue };
        let (at, shown) = (server.span().start, endpoint.to_string());
        all.push(Listed { pool: group.to_owned(), at, shown, place });
    }
}

fn place_of(endpoint: &Endpoint) -> Option<Place> {
    let Endpoint::Tcp { host, port } = endpoint else { return None };
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let host = match name.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        // A connection to these reaches this host.
        Ok(ip) if ip.is_unspecified() || ip == Ipv6Addr::LOCALHOST => {
            Ipv4Addr::LOCALHOST.to_string()
        }
        Ok(ip) => ip.to_string(),
        Err(_) if name == "localhost" => Ipv4Addr::LOCALHOST.to_string(),
        Err(_) => name,
    };
    Some((host, *port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(pool: &str, servers: &[&str]) -> String {
        let servers: Vec<String> = servers.iter().map(|server| format!("\"{server}\"")).collect();
        let servers = servers.join(", ");
        format!("[pool.{pool}]\nkind = \"replicated\"\nservers = [{servers}]\nfailover = {{}}\n")
    }

    fn errors(text: &str) -> Vec<String> {
        let errors = Config::check_new_document("d", text).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_server_in_two_groups_is_refused_whatever_its_spelling() {
        let spellings = [
            ("127.0.0.1:7001", "localhost:7001"),
            ("LOCALHOST:7001", "[::1]:7001"),
            ("Cache.example.com:7001", "cache.EXAMPLE.com.:7001"),
            ("10.0.0.1:7001", "[::ffff:10.0.0.1]:07001"),
            ("[fd00::1]:7001", "[fd00:0:0::0:1]:7001"),
            ("0.0.0.0:7001", "127.0.0.1:7001"),
            ("h:7001", "h:7001"),
        ];
        for (one, other) in spellings {
            let text = group("a", &[one]) + &group("b", &["10.9.9.9:1", other]);
            let told = errors(&text);
            assert_eq!(told.len(), 1, "{one} {other}: {told:?}");
            for part in ["d:7: server ", "two pools with failover, \"a\" and \"b\"", "7001"] {
                assert!(told[0].contains(part), "{part}: {}", told[0]);
            }
            let mine = errors(&group("a", &[one, other]));
            assert_eq!(mine.len(), 1, "{one} {other}: {mine:?}");
            assert!(mine[0].contains("twice"), "{mine:?}");
            // A file is refused like a document.
            let file =
                format!("[[listener]]\nbind = \"tcp://127.0.0.1:6380\"\npool = \"a\"\n{text}");
            let told = Config::from_str(&file, "f").unwrap_err();
            assert!(told.iter().any(|error| error.what.contains("two pools")), "{told:?}");
        }
        let apart = ["127.0.0.1:7002", "127.0.0.2:7001", "h:7001", "10.0.0.1:7001"];
        assert_eq!(errors(&(group("a", &["127.0.0.1:7001"]) + &group("b", &apart))), [""; 0]);
        // Pools that control does not change may read the servers of a group.
        let reader = group("b", &["127.0.0.1:7001"]).replace("failover = {}\n", "");
        assert_eq!(errors(&(group("a", &["127.0.0.1:7001"]) + &reader)), [""; 0]);
    }

    #[test]
    fn a_server_is_new_in_a_group_that_has_not_had_it() {
        let new = |old: &str, new: &str| Config::new_group_servers(old, new).into_iter().next();
        let (one, two) = (group("a", &["h:1", "h:2"]), group("a", &["H:2", "h:3", "h:1"]));
        assert_eq!(new(&one, &one), None);
        assert_eq!(new(&two, &one), None);
        assert_eq!(new(&one, &two), Some(("a".to_owned(), "h:3".to_owned())));
        let moved = one.replace("pool.a", "pool.b");
        assert_eq!(new(&one, &moved), Some(("b".to_owned(), "h:1".to_owned())));
        // A pool becomes a group by `failover`, and its servers are new in it.
        let plain = one.replace("failover = {}\n", "");
        assert_eq!(new(&one, &plain), None);
        assert_eq!(new(&plain, &one), Some(("a".to_owned(), "h:1".to_owned())));
        assert_eq!(new("", ""), None);
        assert_eq!(Config::new_group_servers("", &one).len(), 2);
        let lacks = |pool, server| Config::group_without(&one, &[(pool, server)]).is_some();
        assert!(!lacks("a", "H:1") && lacks("a", "h:3") && !lacks("b", "h:1"));
    }

    #[test]
    fn groups_of_slots_are_groups_by_their_pool_and_name() {
        let slots = |a: &str, b: &str| {
            format!(
                "[pool.p]\nkind = \"slots\"\nslots = 1024\nfailover = {{}}\ngroups = [\n{{ name = \
                 \"a\", servers = [{a}], slots = \"0-1023\" }},\n{{ name = \"b\", servers = [{b}], \
                 slots = \"\" }}]\n"
            )
        };
        let one = slots("\"h:1\", \"h:2\"", "\"h:3\"");
        assert_eq!(errors(&one), [""; 0]);
        let config = Config::check_new_document("d", &one).unwrap();
        let groups: Vec<ControlledGroup<'_>> =
            config.pools.iter().flat_map(PoolConfig::controlled_groups).collect();
        let told: Vec<(&str, u16, usize)> =
            groups.iter().map(|it| (&*it.name, it.number, it.servers.len())).collect();
        assert_eq!(told, [("p:a", 0, 2), ("p:b", 1, 1)]);
        let more = slots("\"h:1\", \"h:2\"", "\"h:3\", \"h:4\"");
        assert_eq!(Config::new_group_servers(&one, &more), [("p:b".to_owned(), "h:4".to_owned())]);
        let lacks = |group, server| Config::group_without(&one, &[(group, server)]).is_some();
        assert!(!lacks("p:a", "h:1") && lacks("p:a", "h:3") && !lacks("p:c", "h:1"));
        let told = errors(&(one + &group("other", &["h:2"])));
        assert!(told.iter().any(|it| it.contains("\"p:a\" and \"other\"")), "{told:?}");
    }

    #[test]
    fn a_store_is_new_in_a_document_that_has_had_none_of_its_name() {
        let (store, other) = ("[pool.a]\nkind = \"store\"\n", group("a", &["h:1"]));
        assert_eq!(Config::new_stores("", store), ["a"]);
        assert_eq!(Config::new_stores(&other, store), ["a"]);
        assert_eq!(Config::new_stores(store, store), [""; 0]);
        assert_eq!(Config::new_stores(store, &other), [""; 0]);
    }

    proptest! {
        /// A document is refused exactly if a server is in two of its groups.
        #[test]
        fn groups_have_no_server_in_common(
            groups in prop::collection::vec(prop::collection::btree_set(1u16..30, 1..4), 1..6),
        ) {
            let text = |(nth, ports): (usize, &BTreeSet<u16>)| {
                let servers = ports.iter().map(|port| format!("10.0.0.1:{port}"));
                let servers: Vec<String> = servers.collect();
                group(&format!("p{nth}"), &servers.iter().map(|it| &**it).collect::<Vec<_>>())
            };
            let document: String = groups.iter().enumerate().map(text).collect();
            let count: usize = groups.iter().map(BTreeSet::len).sum();
            let all: BTreeSet<u16> = groups.iter().flatten().copied().collect();
            let checked = Config::check_groups("d", &document);
            prop_assert_eq!(checked.is_ok(), all.len() == count);
            prop_assert_eq!(checked.err().unwrap_or_default().len(), count - all.len());
            prop_assert_eq!(Config::new_group_servers(&document, &document), Vec::new());
        }
    }
}
