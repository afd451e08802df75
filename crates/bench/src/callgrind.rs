//! Counts the instructions of Keyway for a request with callgrind. This figure does not depend on
//! the load of the machine.
//!
//! Each case runs twice, with N and with 2N requests, on one connection. The difference divided by
//! N leaves out the start and the end.

use keyway_load::Until;
use rustix::process::Signal;

use crate::error::Error;
use crate::load::{Dataset, Shape, Work, plan};
use crate::systems::{Kind, Site, System, words};

/// One case to count.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name in the table.
    pub title: &'static str,
    kind: Kind,
    work: Work,
    dataset: Dataset,
    depth: usize,
}

/// The cases of the table.
pub const CASES: [Case; 14] = [
    case("proxy, GET, depth 1", Kind::Keyway, Work::Get, 1),
    case("proxy, GET, depth 16", Kind::Keyway, Work::Get, 16),
    case("store, GET, depth 1", Kind::KeywayStore, Work::Get, 1),
    case("store, GET, depth 16", Kind::KeywayStore, Work::Get, 16),
    case("store, SET, depth 1", Kind::KeywayStore, Work::Set, 1),
    case("store, SET, depth 16", Kind::KeywayStore, Work::Set, 16),
    hashes(case("store, HGETALL of one field, depth 16", Kind::KeywayStore, Work::Get, 16)),
    hashes(case("store, HMSET of one field, depth 16", Kind::KeywayStore, Work::Set, 16)),
    case("store, memcached port, get, depth 1", Kind::KeywayStoreMemcached, Work::Get, 1),
    case("store, memcached port, get, depth 16", Kind::KeywayStoreMemcached, Work::Get, 16),
    case("store, memcached port, set, depth 16", Kind::KeywayStoreMemcached, Work::Set, 16),
    case("proxy of memcached, get, depth 1", Kind::KeywayMemcached, Work::Get, 1),
    case("proxy of memcached, set, depth 1", Kind::KeywayMemcached, Work::Set, 1),
    case("proxy of memcached, get, depth 75", Kind::KeywayMemcached, Work::Get, 75),
];

const fn case(title: &'static str, kind: Kind, work: Work, depth: usize) -> Case {
    Case { title, kind, work, dataset: STRINGS, depth }
}

const fn hashes(case: Case) -> Case {
    Case { dataset: HASHES, ..case }
}

impl Case {
    /// Returns whether it has servers of memcached behind it.
    pub fn needs_memcached(&self) -> bool {
        self.kind == Kind::KeywayMemcached
    }
}

/// A key space that is small enough to be filled under callgrind.
const STRINGS: Dataset = Dataset::strings("key:", 2_000, 100);
/// The same number of hashes of one field.
const HASHES: Dataset = Dataset { shape: Shape::Hash, ..STRINGS };

/// Counts the user-space instructions of one request of `case`.
///
/// # Errors
/// Returns [`Error::Program`] if valgrind or Keyway cannot be started, and the errors of the load.
pub fn instructions_per_request(site: &Site<'_>, case: &Case, requests: u64) -> Result<f64, Error> {
    let once = instructions(site, case, requests)?;
    let twice = instructions(site, case, requests * 2)?;
    Ok(twice.saturating_sub(once) as f64 / requests as f64)
}

/// Returns the instructions of a whole run with this many requests.
fn instructions(site: &Site<'_>, case: &Case, count: u64) -> Result<u64, Error> {
    let out_file = site.scratch.directory().join("callgrind.out");
    let out_file = format!("--callgrind-out-file={}", out_file.display());
    let mut system =
        site.start_under(case.kind, &words(&["valgrind", "--tool=callgrind", &out_file]))?;
    if let Err(error) = send(&system, case, count) {
        // The state of the process says more than a broken connection.
        return system.check_running().and(Err(error));
    }
    let Some(process) = &mut system.process else {
        return Err(Error::parse("a process of this run", &system.name));
    };
    process.end_with(Signal::TERM)?;
    let path = process.log();
    let output = std::fs::read(path).map_err(Error::io(path.display().to_string()))?;
    parse_collected(&String::from_utf8_lossy(&output))
}

/// Writes every key, and then sends the requests that are counted.
fn send(system: &System, case: &Case, count: u64) -> Result<(), Error> {
    system.served.fill(case.dataset)?;
    let plan = plan(1, case.depth, Until::Requests(count));
    system.served.load_all(&case.work.on(case.dataset), &plan).map(drop)
}

/// Parses the `Collected :` line at the end of callgrind's output.
fn parse_collected(text: &str) -> Result<u64, Error> {
    let collected = text.lines().rev().find_map(|line| line.split_once("Collected :"));
    collected
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| Error::parse("instructions", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_collected_line_is_found_among_other_output() {
        let text = "keyway: listening\n==7== \n==7== Events    : Ir\n==7== Collected : 1234567\n";
        assert_eq!(parse_collected(text).unwrap(), 1_234_567);
        assert!(parse_collected("==7== Events : Ir").is_err());
    }
}
