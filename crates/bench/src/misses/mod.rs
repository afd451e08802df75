//! Compares how many of the requested keys a full cache has: the misses of the embedded store,
//! `redis-server` and `memcached` with the same requests and the same memory.
//!
//! A client asks for keys and writes the missing ones. Memory is made equal in two ways: by each
//! server's own limit, and by the RAM that the process takes at the end, for which each limit is
//! searched. Misses count from the middle of the requests on, when every cache has been full for
//! long.

mod client;
mod trace;

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use keyway_load::resident_bytes;
use keyway_scenario::ports::free_port;
use keyway_scenario::process::Scratch;
use keyway_scenario::start::redis_words;

use crate::comparison::setting;
use crate::error::Error;
use crate::interrupt;
use crate::options::Options;
use crate::report::setting_lines;
use crate::systems::{Kind, start, version_of, words};
use client::{BATCH, Client, Words};
use trace::{MIXES, Mix};

/// Length of a value in bytes. A key has 16.
const VALUE_BYTES: usize = 64;
/// Each server's own memory limit, in bytes. A fifth to a third of the requested keys fit.
const BOUND: u64 = 32 << 20;
/// Resident memory of the second comparison, in bytes.
const RESIDENT: u64 = 40 << 20;
/// How far the resident memory may be from that, as a ratio.
const RESIDENT_ERROR: f64 = 0.01;
/// Number of runs after which a search for a limit ends.
const TRIES_MAX: usize = 6;
/// Number of requests of a run.
const REQUESTS: usize = 1_500_000;
/// Number of requests with `--quick`.
const REQUESTS_QUICK: usize = 400_000;

const KINDS: [Kind; 3] = [Kind::Redis, Kind::Memcached, Kind::KeywayStore];

/// One run.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    bound: u64,
    miss_ratio: f64,
    items: u64,
    resident: u64,
}

/// Runs all mixes on all systems. Returns the text for the document, and whether the store missed
/// no more than the others on every mix.
///
/// # Errors
/// Returns an error if a system does not start or answer.
pub fn compare_misses(options: &Options) -> Result<(String, bool), Error> {
    let requests = if options.quick { REQUESTS_QUICK } else { REQUESTS };
    let site = Site { options, scratch: Scratch::new(&options.programs.guard)? };
    let mut setting = setting(options, &[Kind::KeywayStore]);
    let memcached = version_of(&memcached_path(options), "--version");
    setting.versions.extend(memcached.map(|version| ("memcached".to_owned(), version)));
    let mut out = setting_lines(&setting);
    let _ = writeln!(
        out,
        "- {requests} requests a run over {} keys of 16 bytes, values of {VALUE_BYTES}",
        trace::KEYS
    );
    let traces: Vec<(Mix, Vec<u32>)> = MIXES.map(|mix| (mix, mix.trace(requests))).into();
    let mut is_met = true;
    let _ = writeln!(out, "\nAt a bound of {} of each server's own:\n", mebibytes(BOUND));
    is_met &= table(&site, &traces, [BOUND; 3], &mut out)?;
    let mut bounds = [BOUND; 3];
    for (kind, bound) in KINDS.into_iter().zip(&mut bounds) {
        *bound = site.bound_for_resident(kind, &traces[0].1)?;
    }
    let _ = writeln!(
        out,
        "\nAt {} of resident memory of the whole process (bounds: {}):\n",
        mebibytes(RESIDENT),
        bounds.map(mebibytes).join(", ")
    );
    is_met &= table(&site, &traces, bounds, &mut out)?;
    Ok((out, is_met))
}

fn table(
    site: &Site,
    traces: &[(Mix, Vec<u32>)],
    bounds: [u64; 3],
    out: &mut String,
) -> Result<bool, Error> {
    let mut is_met = true;
    out.push_str("| mix | redis-server `allkeys-lfu` | memcached | keyway store | verdict |\n");
    out.push_str("| --- | --- | --- | --- | --- |\n");
    for (mix, trace) in traces {
        let mut outcomes = Vec::new();
        for (kind, bound) in KINDS.into_iter().zip(bounds) {
            eprintln!("misses: {}, {}", mix.title, kind.name());
            outcomes.push(site.run(kind, bound, trace)?);
        }
        let best = outcomes[0].miss_ratio.min(outcomes[1].miss_ratio);
        let own = outcomes[2].miss_ratio;
        is_met &= own <= best;
        let verdict = if own <= best { "met" } else { "**missed**" };
        let cells: Vec<String> = outcomes.iter().map(Outcome::cell).collect();
        let _ = writeln!(out, "| {} | {} | {verdict} |", mix.title, cells.join(" | "));
    }
    out.push_str("\nMisses of all GETs (items held, resident memory of the process).\n");
    Ok(is_met)
}

impl Outcome {
    fn cell(&self) -> String {
        let Outcome { miss_ratio, items, resident, .. } = self;
        format!("{:.2} % ({} k, {})", miss_ratio * 100.0, items / 1000, mebibytes(*resident))
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

struct Site<'a> {
    options: &'a Options,
    scratch: Scratch,
}

impl Site<'_> {
    /// Sends the requests to a fresh process with this memory limit.
    fn run(&self, kind: Kind, bound: u64, trace: &[u32]) -> Result<Outcome, Error> {
        let port = free_port()?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let line = self.command(kind, port, bound)?;
        let process = start(&self.scratch, kind.name(), &line, port)?;
        let words = if kind == Kind::Memcached { Words::Memcached } else { Words::Redis };
        let mut client = Client::connect(addr, words, VALUE_BYTES)?;
        let (warming, measured) = trace.split_at(trace.len() / 2);
        send(&mut client, warming)?;
        let missing = send(&mut client, measured)?;
        let miss_ratio = missing as f64 / measured.len() as f64;
        let items = client.count_items()?;
        let resident = resident_bytes(process.pid());
        let resident = resident.ok_or_else(|| Error::parse("resident memory", kind.name()))?;
        Ok(Outcome { bound, miss_ratio, items, resident })
    }

    fn command(&self, kind: Kind, port: u16, bound: u64) -> Result<Vec<String>, Error> {
        let programs = &self.options.programs;
        let program = |path: &Path| vec![path.display().to_string()];
        Ok(match kind {
            Kind::Memcached => {
                let mebibytes = (bound as f64 / f64::from(1 << 20)).round();
                let line = format!("-l 127.0.0.1 -p {port} -t 1 -m {mebibytes} -u root");
                let line = words(&line.split(' ').collect::<Vec<_>>());
                [program(&memcached_path(self.options)), line].concat()
            }
            Kind::Redis => {
                let bound = bound.to_string();
                let policy = ["--maxmemory", &bound, "--maxmemory-policy", "allkeys-lfu"];
                let line = redis_words(port, self.scratch.directory());
                [program(&programs.redis_server), line, words(&policy)].concat()
            }
            _ => {
                let text = format!(
                    "[server]\nworkers = 1\nadmin = \"off\"\n\n[[listener]]\n\
                     bind = \"tcp://127.0.0.1:{port}\"\nprotocol = \"redis\"\npool = \"cache\"\n\n\
                     [pool.cache]\nkind = \"store\"\nmemory_max = \"{}KiB\"\n",
                    bound >> 10
                );
                let file = self.scratch.write(&format!("misses-{port}.toml"), &text)?;
                [program(&programs.keyway), words(&["serve", &file.display().to_string()])].concat()
            }
        })
    }

    /// Returns the limit with which a process ends at [`RESIDENT`].
    fn bound_for_resident(&self, kind: Kind, trace: &[u32]) -> Result<u64, Error> {
        let (mut low, mut high): (Option<Outcome>, Option<Outcome>) = (None, None);
        let mut bound = BOUND;
        for _ in 0..TRIES_MAX {
            eprintln!("misses: {} with a bound of {}", kind.name(), mebibytes(bound));
            let outcome = self.run(kind, bound, trace)?;
            let error = outcome.resident as f64 / RESIDENT as f64 - 1.0;
            if error.abs() <= RESIDENT_ERROR {
                break;
            }
            *(if error < 0.0 { &mut low } else { &mut high }) = Some(outcome);
            let next = match (low, high) {
                (Some(low), Some(high)) if high.resident > low.resident => {
                    let part =
                        (RESIDENT - low.resident) as f64 / (high.resident - low.resident) as f64;
                    low.bound + ((high.bound - low.bound) as f64 * part) as u64
                }
                _ => (bound + RESIDENT).saturating_sub(outcome.resident),
            };
            // memcached accepts only whole mebibytes.
            if next >> 16 == bound >> 16
                || kind == Kind::Memcached && (next + (1 << 19)) >> 20 == bound >> 20
            {
                break;
            }
            bound = next.max(4 << 20);
        }
        Ok(bound)
    }
}

fn memcached_path(options: &Options) -> PathBuf {
    options.programs.memcached.clone().unwrap_or_else(|| PathBuf::from("memcached"))
}

/// Sends requests. Returns how many keys were missing.
fn send(client: &mut Client, trace: &[u32]) -> Result<usize, Error> {
    let mut missing = 0;
    for keys in trace.chunks(BATCH) {
        missing += client.get_or_set(keys)?;
        interrupt::check()?;
    }
    Ok(missing)
}
