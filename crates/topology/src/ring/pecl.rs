//! The two strategies of PHP's extension memcache, as its releases 3, 4 and 8
//! have them.

use std::fmt::Write;

use crate::{Distribution, Hash, Server};

/// Points per unit of weight.
const POINTS_PER_WEIGHT: u64 = 160;
/// Buckets between which the consistent strategy chooses.
const BUCKETS: u32 = 1024;
/// From the lowest hash of one bucket to the next one's.
const STEP: u32 = u32::MAX / BUCKETS;

/// The number that the standard strategy takes modulo the sum of the weights.
#[inline]
pub(super) fn standard_hash(hash: u32) -> u32 {
    (hash >> 16 & 0x7fff).max(1)
}

/// Of each bucket its server: that of the first point not below the bucket's
/// lowest hash, or else of the lowest point.
#[derive(Clone, Debug)]
pub(super) struct Buckets(Box<[u16]>);

impl Buckets {
    /// Of one member or more, in the order listed: of equal points the first
    /// counts.
    ///
    /// Keeps the lowest point at or above each bucket's lowest hash instead of
    /// all points sorted: they are 160 to each unit of weight.
    pub(super) fn build(hash: Hash, servers: &[Server], members: &[u16]) -> Buckets {
        // One more than buckets: what lies above them all.
        let mut lowest: Vec<Option<(u32, u16)>> = vec![None; BUCKETS as usize + 1];
        for &member in members {
            let server = &servers[usize::from(member)];
            let mut text = format!("{}-", Distribution::PhpMemcacheConsistent.ring_name(server));
            let name_len = text.len();
            for point in 0..u64::from(server.weight) * POINTS_PER_WEIGHT {
                text.truncate(name_len);
                let _ = write!(text, "{point}");
                let value = hash.hash(text.as_bytes());
                let slot = &mut lowest[(value / STEP) as usize];
                if slot.is_none_or(|(known, _)| value < known) {
                    *slot = Some((value, member));
                }
            }
        }
        let first = lowest.iter().flatten().next().map_or(members[0], |&(_, server)| server);
        let mut next = first;
        let mut buckets = vec![first; BUCKETS as usize];
        for (index, slot) in lowest.iter().enumerate().rev() {
            next = slot.map_or(next, |(_, server)| server);
            if let Some(bucket) = buckets.get_mut(index) {
                *bucket = next;
            }
        }
        Buckets(buckets.into())
    }

    #[inline]
    pub(super) fn pick(&self, hash: u32) -> u16 {
        self.0[(hash % BUCKETS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_points_the_first_listed_counts() {
        // 16 bits of hash, and more points of each server: both have one at 0.
        let servers = ["a:1:1000", "b:1:1000"].map(|line| Server::parse(line).unwrap());
        for members in [[0, 1], [1, 0]] {
            let buckets = Buckets::build(Hash::Crc16Xmodem, &servers, &members);
            assert!((0..BUCKETS).all(|hash| buckets.pick(hash) == members[0]), "{members:?}");
        }
    }
}
