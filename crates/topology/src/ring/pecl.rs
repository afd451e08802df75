//! The two strategies of PHP's extension memcache, as its releases 3, 4 and 8
//! have them.

use std::fmt::Write;

use crate::{Distribution, Hash, Server};

/// Points per unit of weight.
const POINTS_PER_WEIGHT: u64 = 160;
/// Buckets of the consistent strategy.
const BUCKETS: u32 = 1024;
/// Distance between the lowest hashes of two neighbouring buckets.
const STEP: u32 = u32::MAX / BUCKETS;

/// Returns the number that the standard strategy takes modulo the sum of the weights.
#[inline]
pub(super) fn standard_hash(hash: u32) -> u32 {
    (hash >> 16 & 0x7fff).max(1)
}

/// The server of each bucket: that of the first point not below the bucket's lowest hash, else that
/// of the lowest point.
#[derive(Clone, Debug)]
pub(super) struct Buckets(Box<[u16]>);

impl Buckets {
    /// Builds the buckets of one member or more, in the order listed. Of equal points the first
    /// counts.
    ///
    /// Keeps only the lowest point at or above each bucket's lowest hash, instead of all points
    /// sorted: there are 160 points for each unit of weight.
    pub(super) fn build(hash: Hash, servers: &[Server], members: &[u16]) -> Buckets {
        // There is one entry more than buckets, for points above them all.
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
        // With a hash of 16 bits and more points than hashes, both servers have a point at 0.
        let servers = ["a:1:1000", "b:1:1000"].map(|line| Server::parse(line).unwrap());
        for members in [[0, 1], [1, 0]] {
            let buckets = Buckets::build(Hash::Crc16Xmodem, &servers, &members);
            assert!((0..BUCKETS).all(|hash| buckets.pick(hash) == members[0]), "{members:?}");
        }
    }
}
