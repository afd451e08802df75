//! libmemcached's continua, as its releases 1.0 and 1.1 build them.

use super::points::{Point, Points};
use crate::hash::md5_digest_words;
use crate::{Distribution, Hash, Server};

/// Points of a server if weights do not count.
const POINTS_PER_SERVER: u32 = 100;
/// Points of the average server if weights count.
const POINTS_PER_WEIGHTED_SERVER: u32 = 160;
/// Points made from one MD5 digest.
const POINTS_PER_DIGEST: u32 = 4;

/// Returns the continuum of the members, in the order listed.
///
/// A client adds servers one by one. The first server that weighs more than 1 turns a plain
/// continuum into a weighted one for good, whether it is in use or not.
pub(super) fn continuum(
    distribution: Distribution,
    hash: Hash,
    servers: &[Server],
    members: &[u16],
) -> Points {
    let is_weighted = distribution == Distribution::KetamaWeightedLibmemcached
        || servers.iter().any(|server| server.weight > 1);
    let name = |server: u16| distribution.ring_name(&servers[usize::from(server)]);
    let mut points = Vec::new();
    if is_weighted {
        let weight = |server: u16| servers[usize::from(server)].weight;
        let total = members.iter().map(|&server| u64::from(weight(server))).sum();
        for &server in members {
            for digest in 0..digests_of_share(weight(server), total, members.len()) {
                let text = format!("{}-{digest}", name(server));
                let words = md5_digest_words(text.as_bytes());
                points.extend(words.map(|value| Point { value, server }));
            }
        }
    } else {
        for &server in members {
            points.extend((0..POINTS_PER_SERVER).map(|point| {
                let text = format!("{}-{point}", name(server));
                Point { value: hash.hash(text.as_bytes()), server }
            }));
        }
    }
    Points::new(points)
}

/// Returns the number of digests whose points a server of `weight` gets. The rounding is part of
/// the placement: single precision throughout, unlike twemproxy's. The heaviest server's share is
/// never below the average, so some server gets points.
fn digests_of_share(weight: u32, total_weight: u64, live_count: usize) -> u32 {
    let share = weight as f32 / total_weight as f32;
    let points_per_server = POINTS_PER_WEIGHTED_SERVER as f32;
    let digests = share * points_per_server / POINTS_PER_DIGEST as f32 * live_count as f32;
    (digests + 0.000_000_000_1_f32) as u32
}
