//! What a process keeps of its clients, against what there is of them: the list of clients, the
//! gauges that count what clients hold, and the descriptors of files.
//!
//! A test may still hold clients at its end. The law for those is that each client of the list has
//! a socket. A process without clients has to be as it was at its start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::http::Metrics;
use crate::left::{LISTEN, other_inodes_of, socket_inodes, table};

/// Gauges that are zero without clients.
const HELD_BY_CLIENTS: &[&str] = &[
    "keyway_pubsub_active_channels",
    "keyway_pubsub_active_patterns",
    "keyway_pubsub_subscribed_clients",
    "keyway_transaction_held_bytes",
    "keyway_cluster_primary_waiting_clients",
];

/// Flag of a listening socket in the system's table of Unix sockets.
const LISTENS: u64 = 0x1_0000;

/// Descriptors of files and pipes that a process has at its start.
#[derive(Debug, Default)]
pub(crate) struct AtStart {
    files: Vec<String>,
}

impl AtStart {
    pub(crate) fn of(pid: u32) -> AtStart {
        AtStart { files: files(pid) }
    }
}

/// One listed client.
struct Listed {
    words: String,
    /// Port of its listener; none if that is not TCP.
    port: Option<u16>,
}

/// Describes what the process keeps of clients that are gone. A process whose admin listener is
/// off, wants a token or belongs to another process tells nothing of its clients.
pub(crate) fn kept(pid: u32, admin: SocketAddr, start: &AtStart) -> Vec<String> {
    if crate::serving_process(admin) != Some(pid) {
        return Vec::new();
    }
    let Some(page) = page(admin, "/v1/connections?limit=1000") else { return Vec::new() };
    let Some((total, clients)) = listed(&page) else { return vec![format!("not a list: {page}")] };
    let mut kept = without_sockets(&clients, &sockets_by_port(pid));
    let metrics = self::page(admin, "/metrics").map(|text| Metrics::parse(&text));
    kept.extend(metrics.map(|metrics| held(total, &metrics)).unwrap_or_default());
    let clients_are_gone = total == 0 && kept.is_empty();
    let now = if clients_are_gone { files(pid) } else { Vec::new() };
    if now.len() > start.files.len() {
        kept.push(format!("files {now:?}, at the start {:?}", start.files));
    }
    kept
}

/// The body of a page of the admin listener; none if it is refused.
pub(crate) fn page(admin: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&admin, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    let is_told = head.starts_with("HTTP/1.1 200 ") && !head.contains("chunked");
    is_told.then(|| body.to_owned())
}

/// How many clients there are, and those that the page has.
fn listed(page: &str) -> Option<(u64, Vec<Listed>)> {
    let page: serde_json::Value = serde_json::from_str(page).ok()?;
    let client = |it: &serde_json::Value| {
        let listener = it["listener"].as_str()?;
        let words = format!("client {} from {} at {listener}", it["id"], it["address"]);
        let is_tcp = !listener.contains("unix") && !listener.contains("shm");
        let port = listener.rsplit(':').next().filter(|_| is_tcp);
        Some(Listed { words, port: port.and_then(|port| port.parse().ok()) })
    };
    let clients: Option<Vec<Listed>> = page["clients"].as_array()?.iter().map(client).collect();
    Some((page["total"].as_u64()?, clients?))
}

/// The clients of listeners that list more clients than they have sockets.
fn without_sockets(clients: &[Listed], sockets: &BTreeMap<Option<u16>, usize>) -> Vec<String> {
    let mut by_port: BTreeMap<Option<u16>, Vec<&str>> = BTreeMap::new();
    for client in clients {
        by_port.entry(client.port).or_default().push(&client.words);
    }
    let too_many = by_port.iter().filter_map(|(port, clients)| {
        let sockets = sockets.get(port).copied().unwrap_or(0);
        let is_over = clients.len() > sockets;
        is_over.then(|| format!("in the list, with {sockets} sockets: {}", clients.join(", ")))
    });
    too_many.collect()
}

/// What gauges count that is not there.
fn held(total: u64, metrics: &Metrics) -> Vec<String> {
    let mut held = Vec::new();
    let counted = metrics.sum("keyway_client_connections", &[]);
    if counted != total as f64 {
        held.push(format!("keyway_client_connections {counted}, and clients in the list {total}"));
    }
    if total == 0 {
        let of = HELD_BY_CLIENTS.iter().map(|name| (name, metrics.sum(name, &[])));
        held.extend(of.filter(|it| it.1 != 0.0).map(|(name, value)| format!("{name} {value}")));
    }
    held
}

/// The number of the process's connections by their own port; under `None` those that are not TCP.
fn sockets_by_port(pid: u32) -> BTreeMap<Option<u16>, usize> {
    let own = socket_inodes(pid);
    let mut ports: BTreeMap<Option<u16>, usize> = BTreeMap::new();
    for entry in ["tcp", "tcp6"].iter().flat_map(|name| table(pid, name)) {
        let port = entry.local.rsplit(':').next().map(|port| u16::from_str_radix(port, 16));
        if let (true, Some(Ok(port))) = (own.contains(&entry.inode), port)
            && entry.state != LISTEN
        {
            *ports.entry(Some(port)).or_default() += 1;
        }
    }
    let others: BTreeSet<u64> = other_inodes_of(pid, "unix", 6, |words| {
        let flags = words.get(3).and_then(|flags| u64::from_str_radix(flags, 16).ok());
        flags.is_some_and(|flags| flags & LISTENS == 0)
    });
    ports.insert(None, own.intersection(&others).count());
    ports
}

/// Names of the descriptors that are neither sockets nor the kernel's own objects, of which each
/// worker has some. Segments of a store's log come and go without clients.
fn files(pid: u32) -> Vec<String> {
    let Ok(list) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let names = list.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let is_segment = |name: &str| {
        let number = name.rsplit_once("/log.").map(|(_, number)| number);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_file = |name: &String| {
        !name.starts_with("socket:") && !name.starts_with("anon_inode:") && !is_segment(name)
    };
    let mut names: Vec<String> = names.filter(is_file).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn one_client(port: u16) -> Vec<Listed> {
        let page = format!(
            r#"{{"total": 1, "clients": [{{"id": 7, "address": "127.0.0.1:5",
                "listener": "127.0.0.1:{port}"}}]}}"#
        );
        let (total, clients) = listed(&page).expect("a list");
        assert_eq!((total, clients.len(), clients[0].port), (1, 1, Some(port)));
        clients
    }

    #[test]
    fn a_listed_client_without_a_socket_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let clients = one_client(address.port());
        let kept = || without_sockets(&clients, &sockets_by_port(std::process::id()));
        let words = format!("client 7 from \"127.0.0.1:5\" at {address}");
        assert_eq!(kept(), [format!("in the list, with 0 sockets: {words}")]);
        let _theirs = TcpStream::connect(address).expect("a client");
        let ours = listener.accept().expect("it waits");
        assert!(kept().is_empty());
        drop(ours);
        crate::wait_until("its end", Duration::from_secs(10), || !kept().is_empty());
    }

    #[test]
    fn gauges_have_to_agree_with_the_list() {
        let of = |total, text: &str| held(total, &Metrics::parse(text)).join("; ");
        let two =
            "keyway_client_connections{pool=\"a\"} 1\nkeyway_client_connections{pool=\"b\"} 1\n";
        assert_eq!(of(2, two), "");
        assert_eq!(of(1, two), "keyway_client_connections 2, and clients in the list 1");
        let subscribed = "keyway_client_connections{pool=\"a\"} 0\n\
                          keyway_pubsub_active_channels{pool=\"a\"} 3\n";
        assert_eq!(of(0, subscribed), "keyway_pubsub_active_channels 3");
        let theirs = subscribed.replace("} 0", "} 1");
        assert_eq!(of(1, &theirs), "");
    }

    #[test]
    fn an_open_file_is_among_the_files_and_a_socket_is_not() {
        let directory = crate::TempDir::new();
        let path = directory.write("kept", "");
        let has = || files(std::process::id()).iter().any(|name| *name == path.to_string_lossy());
        assert!(!has());
        let file = fs::File::open(&path).expect("it is there");
        assert!(has());
        drop(file);
        assert!(!has());
        let _socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        assert!(files(std::process::id()).iter().all(|name| !name.starts_with("socket:")));
    }
}
