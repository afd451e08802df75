//! Checks the examples in the pages: they name no address of other machines, and whole files are
//! valid.

use keyway_config::Config;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Files and folders, from the top of the repository, that readers paste examples from.
const READ: [&str; 4] = ["README.md", "docs", "deploy", "clients/python/README.md"];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn collect(path: PathBuf, pages: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.for_each(|entry| collect(entry, pages));
    } else {
        pages.push(path);
    }
}

/// Returns every page with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    READ.into_iter().for_each(|name| collect(top().join(name), &mut paths));
    paths.sort();
    assert!(paths.len() > 50, "only {} pages", paths.len());
    let texts = paths.into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path, text))
    });
    texts.collect()
}

/// Returns the IPv4 addresses of a line.
fn addresses(line: &str) -> impl Iterator<Item = Ipv4Addr> {
    let words = line.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    words.filter_map(|word| word.trim_matches('.').parse().ok())
}

/// Returns the words of a line that may be an address or a host with a port. A character that is in
/// none of these ends a word, as `/` and `"` do.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".:-_".contains(c);
    line.split(move |c: char| !is_part(c)).map(|word| word.trim_end_matches(['.', ':', '-']))
}

/// Returns the IPv6 addresses of a line, apart from those that stand for IPv4 addresses.
fn ipv6_addresses(line: &str) -> impl Iterator<Item = Ipv6Addr> {
    let addresses = words(line).filter_map(|word| word.parse::<Ipv6Addr>().ok());
    addresses.filter(|address| address.to_ipv4_mapped().is_none())
}

/// Returns whether an address is loopback, "every address", or in the range that RFC 3849 keeps for
/// documentation.
fn is_harmless(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    address.is_loopback() || address.is_unspecified() || (first, second) == (0x2001, 0xdb8)
}

/// Extensions of files whose names have a line number behind them, not a port.
const SOURCES: [&str; 8] = ["c", "cc", "cpp", "go", "md", "py", "rs", "toml"];

/// Returns the host names of a line that have a port. A text that looks like a key (`user:42`), a
/// time, a path or a line of a file does not count. A name without a dot counts if its port is 1024
/// or above, or if it is where a URL has its host.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    let bare = |word| {
        let (host, port) = str::rsplit_once(word, ':')?;
        let before = line.split_once(word).map_or("", |(before, _)| before);
        let is_of_url = before.ends_with("://") || before.ends_with('@');
        let is_of_path = before.ends_with('/') && !is_of_url;
        let port: u16 = port.parse().ok()?;
        let ending = host.rsplit('.').next().filter(|ending| *ending != host);
        let is_word = |label: &str| !label.is_empty() && !label.contains(['_', ':']);
        let is_host = !is_of_path
            && host.split('.').all(is_word)
            && host.contains(|c: char| c.is_ascii_lowercase())
            && ending.is_none_or(|ending| !SOURCES.contains(&ending))
            && (port >= 1024 || ending.is_some() || is_of_url);
        is_host.then_some(host)
    };
    words(line).filter_map(bare)
}

/// Returns whether a host is this machine, or has a name that RFC 2606 keeps for examples and
/// tests.
fn is_nobodys(host: &str) -> bool {
    let kept = ["localhost", "example", "invalid", "test"];
    kept.contains(&host.rsplit('.').next().unwrap_or(host))
}

#[test]
fn hosts_are_told_from_keys_times_and_lines_of_files() {
    let found = |line| hosts(line).collect::<Vec<_>>();
    for line in [
        "servers = [\"redis-1.internal:6379\"]",
        "keyway top -a cache-1:9380",
        "redis://user@cache:80/0",
        "ask db.internal:53.",
    ] {
        assert!(found(line).iter().any(|host| !is_nobodys(host)), "{line}");
    }
    for line in [
        "GET user:42",
        "`nc_redis.c:2818-2945`, `session.go:332-500`",
        "2026-01-02T04:52:10Z",
        "--admin HOST:9380",
        "servers = [\"shm:///run/keyway.shm:1 store\"]",
        "std::net::Ipv6Addr::from 127.0.0.1:6379 [::1]:6379",
        "localhost:6379 control-b.example:6390",
    ] {
        assert!(found(line).iter().all(|host| is_nobodys(host)), "{line}: {:?}", found(line));
    }
    let foreign = |line| ipv6_addresses(line).filter(|one| !is_harmless(*one)).count();
    assert_eq!(foreign("bind = \"tcp://[2a00:1450::8a]:6379\" fe80::1"), 2);
    assert_eq!(foreign("[::1]:6379 [::]:80 2001:db8::1/48 ::ffff:192.0.2.1 a::Case 04:52:10"), 0);
}

/// Examples reach this machine or none. Their addresses are loopback, "every address", or of the
/// ranges that RFC 5737 and RFC 3849 keep for documentation. Their names are `localhost` or of RFC
/// 2606.
#[test]
fn pages_name_no_address_of_somebody_elses_machine() {
    let (mut seen, mut seen_hosts) = (0, 0);
    let mut strangers = Vec::new();
    for (path, text) in pages() {
        // These are labels of series in tests of alerts: no program connects to them.
        let has_hosts = !path.ends_with("prometheus/keyway.test.yml");
        for (number, line) in text.lines().enumerate() {
            let mut note = |what: &dyn std::fmt::Display| {
                strangers.push(format!("{}:{}: {what}", path.display(), number + 1));
            };
            for address in addresses(line) {
                seen += 1;
                let is_own = address.is_loopback() || address.is_unspecified();
                if !is_own && !address.is_documentation() {
                    note(&address);
                }
            }
            ipv6_addresses(line).filter(|one| !is_harmless(*one)).for_each(|one| note(&one));
            for host in hosts(line).filter(|_| has_hosts) {
                seen_hosts += 1;
                if !is_nobodys(host) {
                    note(&host);
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} addresses were found");
    assert!(seen_hosts > 2, "only {seen_hosts} host names were found");
    assert!(strangers.is_empty(), "{}", strangers.join("\n"));
}

/// Returns the blocks of a page that are whole configurations, with a listener and a pool.
fn configurations(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains("[[listener]]") && block.contains("[pool."))
}

#[test]
fn whole_configurations_on_the_pages_are_valid() {
    let mut tried = 0;
    for (path, text) in pages() {
        for block in configurations(&text) {
            tried += 1;
            let name = path.display().to_string();
            if let Err(errors) = Config::from_str(block, &name) {
                let errors: String = errors.iter().map(|error| format!("{error}\n")).collect();
                panic!("{errors}{block}");
            }
        }
    }
    assert!(tried >= 3, "only {tried} configurations were found");
}
