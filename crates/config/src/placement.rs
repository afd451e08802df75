//! The keys that decide the placement of a pool's keys, as far as they depend on each other.

use crate::error::{Problem, Report, any_of, quoted};
use crate::section::Section;
use keyway_topology::{Distribution, Hash, Server};

/// Reads the hash and the distribution of a pool over these servers.
pub(crate) fn resolve(
    section: &Section,
    servers: &[Server],
    report: &mut Report<'_>,
) -> (Hash, Distribution) {
    let distribution = section.text("distribution").and_then(Distribution::from_name);
    let distribution = distribution.unwrap_or(Distribution::Ketama);
    let hash = section.text("hash").and_then(Hash::from_name);
    let hash = hash.unwrap_or(distribution.default_hash());
    refuse_foreign_hash(section, distribution, hash, report);
    refuse_large_weights(section, distribution, servers, report);
    warn_of_lost_weights(section, distribution, servers, report);
    (hash, distribution)
}

/// Refuses a hash that the client of the distribution does not have: the client would not find the
/// keys.
fn refuse_foreign_hash(
    section: &Section,
    distribution: Distribution,
    hash: Hash,
    report: &mut Report<'_>,
) {
    if distribution.hashes().contains(&hash) {
        return;
    }
    let what = format!(
        "hash in {}: {} is none that goes with distribution {}",
        section.header,
        quoted(hash.name()),
        quoted(distribution.name()),
    );
    let names = distribution.hashes().iter().map(|hash| hash.name());
    let hint =
        format!("write {}, PHP's crc32 and fnv, or remove the key for the first", any_of(names));
    report.consequence(section.place("hash"), Problem::new(what, hint));
}

fn refuse_large_weights(
    section: &Section,
    distribution: Distribution,
    servers: &[Server],
    report: &mut Report<'_>,
) {
    let sum: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
    let Some(max) = distribution.weight_sum_max().filter(|max| sum > *max) else { return };
    let what = format!(
        "servers in {}: their weights come to {sum}, and distribution {} takes {max} together",
        section.header,
        quoted(distribution.name()),
    );
    let hint = "divide all weights by the same number, in the clients too";
    report.consequence(section.place("servers"), Problem::new(what, hint));
}

fn warn_of_lost_weights(
    section: &Section,
    distribution: Distribution,
    servers: &[Server],
    report: &mut Report<'_>,
) {
    let is_lost = distribution == Distribution::ModulaLibmemcached;
    if is_lost && servers.iter().any(|server| server.weight != 1) {
        let what = format!(
            "servers in {}: distribution {} ignores weights, as libmemcached does",
            section.header,
            quoted(distribution.name()),
        );
        let hint =
            "remove them, or choose \"ketama-weighted-libmemcached\" here and in the clients";
        report.warning(section.place("servers"), Problem::new(what, hint));
    }
}
