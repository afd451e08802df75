//! Examples in the pages: they name no address of other machines, and whole files are valid.

use keyway_config::Config;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Files and folders, from the top of the repository, that readers paste examples from.
const READ: [&str; 3] = ["README.md", "docs", "deploy"];

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

/// Every page with its text.
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

/// The IPv4 addresses of a line.
fn addresses(line: &str) -> impl Iterator<Item = Ipv4Addr> {
    let words = line.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    words.filter_map(|word| word.trim_matches('.').parse().ok())
}

/// Examples reach this machine or none: loopback, every address, or the ranges that RFC 5737 keeps
/// for documentation.
#[test]
fn pages_name_no_address_of_somebody_elses_machine() {
    let mut seen = 0;
    let mut strangers = Vec::new();
    for (path, text) in pages() {
        for (number, line) in text.lines().enumerate() {
            for address in addresses(line) {
                seen += 1;
                let is_own = address.is_loopback() || address.is_unspecified();
                if !is_own && !address.is_documentation() {
                    strangers.push(format!("{}:{}: {address}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} addresses were found");
    assert!(strangers.is_empty(), "{}", strangers.join("\n"));
}

/// The blocks of a page that are whole configurations, with a listener and a pool.
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
