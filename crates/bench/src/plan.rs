//! The rows of the comparison: the work, the connections, and Keyway's target.

use keyway_load::Protocol;

use crate::figures::Target;
use crate::load::{Dataset, Work};

/// The systems that a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Proxies in front of the same four servers.
    Proxy,
    /// Proxies in front of the same four servers of memcached.
    MemcachedProxy,
    /// Proxies in front of the same Redis Cluster.
    ClusterProxy,
    /// The embedded store and a bare server.
    Store,
}

/// Every side, in the order of the tables.
pub const SIDES: [Side; 4] = [Side::Proxy, Side::ClusterProxy, Side::MemcachedProxy, Side::Store];

/// The load generator of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `keyway-load`.
    Own,
    /// `keyway-load`, with connections that end after this many requests. Connections are counted,
    /// not requests.
    Short(u32),
    /// `redis-benchmark`, to check `keyway-load`. It sends only GET.
    RedisBenchmark,
}

/// One row: a kind of work, measured on every system of its side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The name on the command line: `GROUP-work`.
    pub id: &'static str,
    /// The name in the tables.
    pub title: &'static str,
    /// The systems that take part.
    pub side: Side,
    /// What a request does.
    pub work: Work,
    /// The keys that it uses.
    pub dataset: Dataset,
    /// Number of client connections.
    pub connections: usize,
    /// Number of requests in flight for each connection.
    pub depth: usize,
    /// The load generator.
    pub driver: Driver,
    /// The target, or `None` for a row that is only shown.
    pub target: Option<Target>,
}

impl Row {
    /// Returns whether a server of this protocol can do its work.
    pub fn fits(&self, protocol: Protocol) -> bool {
        self.work.fits(protocol) && self.dataset.fits(protocol)
    }
}

const fn proxy(
    id: &'static str,
    title: &'static str,
    work: Work,
    connections: usize,
    depth: usize,
    target: [f64; 2],
) -> Row {
    let target = Some(Target { at_least: target[0], aim: target[1] });
    let (side, dataset, driver) = (Side::Proxy, Dataset::SMALL, Driver::Own);
    Row { id, title, side, work, dataset, connections, depth, driver, target }
}

const fn store(id: &'static str, title: &'static str, work: Work, depth: usize, mark: f64) -> Row {
    let row = proxy(id, title, work, 50, depth, [mark, mark]);
    Row { side: Side::Store, dataset: Dataset::ITEMS, ..row }
}

const fn records(row: Row) -> Row {
    Row { dataset: Dataset::RECORDS, ..row }
}

const fn over(connections: usize, row: Row) -> Row {
    Row { connections, ..row }
}

const fn large(row: Row) -> Row {
    Row { dataset: Dataset::LARGE, ..row }
}

const fn memcached(row: Row) -> Row {
    Row { side: Side::MemcachedProxy, ..row }
}

const fn cluster(row: Row) -> Row {
    Row { side: Side::ClusterProxy, ..row }
}

/// Returns the row without a target.
const fn shown(row: Row) -> Row {
    Row { target: None, ..row }
}

const fn short(requests: u32, row: Row) -> Row {
    Row { driver: Driver::Short(requests), ..row }
}

const fn cross_check(row: Row) -> Row {
    Row { driver: Driver::RedisBenchmark, target: None, ..row }
}

/// Every row, in the order of the tables.
pub const ROWS: [Row; 47] = [
    proxy("depth1-get", "GET, 50 clients, depth 1", Work::Get, 50, 1, [1.3, 1.5]),
    proxy("depth1-set", "SET, 50 clients, depth 1", Work::Set, 50, 1, [1.3, 1.5]),
    cross_check(proxy(
        "check-get",
        "the first row again, sent by redis-benchmark",
        Work::Get,
        50,
        1,
        [1.3, 1.5],
    )),
    proxy("clients500-get", "GET, 500 clients, depth 1", Work::Get, 500, 1, [1.3, 1.5]),
    proxy("clients500-set", "SET, 500 clients, depth 1", Work::Set, 500, 1, [1.3, 1.5]),
    proxy("depth16-get", "GET, 50 clients, depth 16", Work::Get, 50, 16, [1.6, 2.0]),
    proxy("depth16-set", "SET, 50 clients, depth 16", Work::Set, 50, 16, [1.6, 2.0]),
    proxy("depth75-mixed", "SET and GET 1:1, 50 clients, depth 75", Work::Mixed, 50, 75, [4., 5.]),
    proxy("mget20", "MGET of 20 keys, 50 clients, depth 1", Work::Mget(20), 50, 1, [1.5, 2.0]),
    large(proxy("large-get", "GET 16 KiB, 50 clients, depth 1", Work::Get, 50, 1, [1.15, 1.4])),
    large(proxy("large-set", "SET 16 KiB, 50 clients, depth 1", Work::Set, 50, 1, [1.15, 1.4])),
    large(proxy(
        "large-depth16-get",
        "GET 16 KiB, 50 clients, depth 16",
        Work::Get,
        50,
        16,
        [1.4, 1.4],
    )),
    large(proxy(
        "large-depth16-set",
        "SET 16 KiB, 50 clients, depth 16",
        Work::Set,
        50,
        16,
        [1.4, 1.4],
    )),
    cluster(over(1, proxy("cl-1-get", "GET, 1 client", Work::Get, 1, 1, [1.2, 1.4]))),
    cluster(proxy("cl-depth1-get", "GET, 50 clients, depth 1", Work::Get, 50, 1, [1.2, 1.4])),
    cluster(proxy("cl-depth1-set", "SET, 50 clients, depth 1", Work::Set, 50, 1, [1.2, 1.4])),
    cluster(proxy("cl-clients120-get", "GET, 120 clients, depth 1", Work::Get, 120, 1, [1.2, 1.4])),
    cluster(proxy("cl-depth16-get", "GET, 50 clients, depth 16", Work::Get, 50, 16, [1.6, 2.0])),
    cluster(proxy("cl-depth16-set", "SET, 50 clients, depth 16", Work::Set, 50, 16, [1.6, 2.0])),
    cluster(proxy("cl-depth20-get", "GET, 120 clients, depth 20", Work::Get, 120, 20, [1.6, 2.0])),
    cluster(proxy(
        "cl-depth75-mixed",
        "SET and GET 1:1, 50 clients, depth 75",
        Work::Mixed,
        50,
        75,
        [2.5, 3.0],
    )),
    cluster(proxy("cl-mget20", "MGET of 20 keys, 50 clients", Work::Mget(20), 50, 1, [1.5, 2.0])),
    cluster(proxy("cl-mset10", "MSET of 10 keys, 50 clients", Work::Mset(10), 50, 1, [1.5, 2.0])),
    cluster(proxy("cl-mset20", "MSET of 20 keys, 50 clients", Work::Mset(20), 50, 1, [1.5, 2.0])),
    cluster(proxy(
        "cl-lrange600",
        "LRANGE of 600 elements, 50 clients",
        Work::Range,
        50,
        1,
        [1.0, 1.0],
    )),
    memcached(proxy("mc-depth1-get", "get, 50 clients, depth 1", Work::Get, 50, 1, [1.3, 1.5])),
    memcached(proxy("mc-depth1-set", "set, 50 clients, depth 1", Work::Set, 50, 1, [1.3, 1.5])),
    memcached(proxy("mc-depth16-get", "get, 50 clients, depth 16", Work::Get, 50, 16, [1.6, 2.0])),
    memcached(proxy("mc-depth16-set", "set, 50 clients, depth 16", Work::Set, 50, 16, [1.6, 2.0])),
    memcached(proxy(
        "mc-depth75-mixed",
        "set and get 1:1, 50 clients, depth 75",
        Work::Mixed,
        50,
        75,
        [4.0, 5.0],
    )),
    memcached(proxy(
        "mc-mget100",
        "get of 100 keys, 50 clients, depth 1",
        Work::Mget(100),
        50,
        1,
        [3.0, 3.0],
    )),
    short(
        10,
        memcached(proxy(
            "mc-connections",
            "connections of 10 sets each, 50 at a time",
            Work::Set,
            50,
            1,
            [1.3, 1.3],
        )),
    ),
    store("store-depth1-get", "GET, 50 clients, depth 1", Work::Get, 1, 1.2),
    store("store-depth1-set", "SET, 50 clients, depth 1", Work::Set, 1, 1.2),
    over(500, store("store-clients500-get", "GET, 500 clients, depth 1", Work::Get, 1, 1.8)),
    over(500, store("store-clients500-set", "SET, 500 clients, depth 1", Work::Set, 1, 1.8)),
    store("store-depth16-get", "GET, 50 clients, depth 16", Work::Get, 16, 2.0),
    store("store-depth16-set", "SET, 50 clients, depth 16", Work::Set, 16, 2.0),
    shown(large(store("store-large-get", "GET 16 KiB, 50 clients, depth 1", Work::Get, 1, 1.0))),
    shown(large(store("store-large-set", "SET 16 KiB, 50 clients, depth 1", Work::Set, 1, 1.0))),
    shown(large(store(
        "store-large-depth16-get",
        "GET 16 KiB, 50 clients, depth 16",
        Work::Get,
        16,
        1.0,
    ))),
    shown(large(store(
        "store-large-depth16-set",
        "SET 16 KiB, 50 clients, depth 16",
        Work::Set,
        16,
        1.0,
    ))),
    records(store(
        "store-ycsb-hgetall",
        "HGETALL of one field, 50 clients, depth 1",
        Work::Get,
        1,
        1.3,
    )),
    records(store(
        "store-ycsb-hmset",
        "HMSET of one field, 50 clients, depth 1",
        Work::Set,
        1,
        1.3,
    )),
    over(
        1,
        store(
            "store-zadd-load",
            "ZADD of 1,000,000 members to one key, depth 64",
            Work::SortedLoad,
            64,
            1.0,
        ),
    ),
    shown(store("store-eval-depth1", "EVAL of a GET, 50 clients, depth 1", Work::Script, 1, 1.0)),
    shown(store(
        "store-eval-depth16",
        "EVAL of a GET, 50 clients, depth 16",
        Work::Script,
        16,
        1.0,
    )),
];

/// Parts of a run that are no rows, but are selected like rows.
pub const EXTRAS: [&str; 3] = ["memory", "syscalls", "items"];

/// The rows and extras to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Vec<String>);

impl Selection {
    /// Reads a comma-separated list of row names, groups of them (`depth1` means `depth1-get` and
    /// `depth1-set`) and extras.
    ///
    /// # Errors
    /// Returns the first name that selects nothing.
    pub fn parse(list: &str) -> Result<Selection, String> {
        let names: Vec<String> =
            list.split(',').map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()).collect();
        let known = ROWS.iter().map(|row| row.id).chain(EXTRAS);
        match names.iter().find(|name| !known.clone().any(|id| matches(name, id))) {
            Some(unknown) => Err(unknown.clone()),
            None => Ok(Selection(names)),
        }
    }

    /// Returns whether everything is selected.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the list from which it was read.
    pub fn names(&self) -> String {
        self.0.join(",")
    }

    /// Returns whether the row or extra `id` is selected.
    pub fn has(&self, id: &str) -> bool {
        self.is_all() || self.0.iter().any(|name| matches(name, id))
    }

    /// Returns the selected rows of `side`.
    pub fn rows(&self, side: Side) -> Vec<Row> {
        ROWS.into_iter().filter(|row| row.side == side && self.has(row.id)).collect()
    }
}

fn matches(name: &str, id: &str) -> bool {
    id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_selects_its_rows_and_no_longer_name() {
        let selection = Selection::parse("depth1,mget20").unwrap();
        let ids: Vec<&str> = selection.rows(Side::Proxy).iter().map(|row| row.id).collect();
        assert_eq!(ids, ["depth1-get", "depth1-set", "mget20"]);
        assert!(selection.rows(Side::Store).is_empty() && !selection.has("memory"));
    }

    #[test]
    fn an_unknown_row_is_named() {
        assert_eq!(Selection::parse("depth1,depth2"), Err("depth2".to_owned()));
    }

    #[test]
    fn no_list_selects_everything() {
        let selection = Selection::default();
        assert_eq!(
            SIDES.map(|side| selection.rows(side).len()).into_iter().sum::<usize>(),
            ROWS.len()
        );
        assert!(selection.has("memory") && selection.has("syscalls"));
    }

    #[test]
    fn row_names_are_unique() {
        let mut ids: Vec<&str> = ROWS.iter().map(|row| row.id).chain(EXTRAS).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ROWS.len() + EXTRAS.len());
    }
}
