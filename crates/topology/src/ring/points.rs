//! Points on a circle of hashes, and the search for the next one.

/// A server's claim to the hashes after the previous point, up to and including `value`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) value: u32,
    pub(super) server: u16,
}

/// Number of points that are checked one after the other before a binary search of the rest. Hashes
/// that spread well need two or three steps. Hashes of 15 or 16 bits crowd hundreds of points into
/// one bucket.
const STEPS_MAX: usize = 8;

/// A continuum. A table holds, for each value of a hash's top bits, the first point that can match.
/// MD5 spreads the points so evenly that the answer is rarely more than two steps on. A binary
/// search over 640 points takes ten mispredicted steps.
#[derive(Clone, Debug)]
pub(super) struct Points {
    /// The points by value, without duplicates. The last one, at `u32::MAX`, leads back to the
    /// first.
    points: Vec<Point>,
    /// For each bucket of hashes, the first point not below the bucket's lowest hash.
    starts: Vec<u32>,
    /// The shift that turns a hash into its bucket.
    shift: u32,
}

impl Points {
    /// Builds a continuum from one or more points in any order. Of two equal points the first
    /// counts.
    pub(super) fn new(mut points: Vec<Point>) -> Points {
        points.sort_by_key(|point| point.value);
        points.dedup_by_key(|point| point.value);
        points.push(Point { value: u32::MAX, server: points[0].server });
        let bits = (points.len() * 2).next_power_of_two().ilog2();
        let shift = u32::BITS - bits;
        let starts = (0..1u64 << bits)
            .map(|bucket| {
                let lowest = (bucket << shift) as u32;
                points.partition_point(|point| point.value < lowest) as u32
            })
            .collect();
        Points { points, starts, shift }
    }

    /// Returns the server of the first point not below `hash`, else of the first point.
    #[inline]
    pub(super) fn pick(&self, hash: u32) -> u16 {
        let start = self.starts[(hash >> self.shift) as usize] as usize;
        let rest = &self.points[start..];
        for point in rest.iter().take(STEPS_MAX) {
            if point.value >= hash {
                return point.server;
            }
        }
        // No hash is above the last point, `u32::MAX`.
        rest[rest.partition_point(|point| point.value < hash)].server
    }

    /// Returns the points, for tests that look up hashes on and beside them.
    #[cfg(test)]
    pub(super) fn all(&self) -> &[Point] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_crowd_are_found_as_those_that_spread() {
        // Many points in one bucket, half of them with the value of another, and some far away.
        let crowd = (0..200u32).map(|nth| (5_000 + nth * 3 % 300, nth as u16));
        let spread = (0..20u32).map(|nth| (nth << 27 | 1, 1_000 + nth as u16));
        let list: Vec<(u32, u16)> = crowd.chain(spread).collect();
        let first = |hash| {
            let above = list.iter().filter(|&&(value, _)| value >= hash);
            // The first listed of two equal ones counts.
            above.min_by_key(|(value, _)| *value).or(list.iter().min_by_key(|(value, _)| *value))
        };
        let point = |&(value, server): &(u32, u16)| Point { value, server };
        let points = Points::new(list.iter().map(point).collect());
        for hash in (0..6_000).chain((0..1000).map(|nth| nth << 22)).chain([u32::MAX]) {
            assert_eq!(Some(points.pick(hash)), first(hash).map(|it| it.1), "{hash}");
        }
    }
}
