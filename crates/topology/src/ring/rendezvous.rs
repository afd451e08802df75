//! Rendezvous hashing (highest random weight, Thaler and Ravishankar 1998),
//! with weights by the logarithm (Schindelhauer and Schomaker 2005).
//!
//! A server's *seed* is the first eight bytes of the MD5 of its ring name, little-endian. Its
//! *draw* for a key is `mix(seed ^ hash * 0x9e3779b97f4a7c15)`, with [`mix`]. If weights are equal,
//! the highest draw wins. Otherwise the server with the lowest `-log2(draw / 2^64) / weight` wins,
//! where the logarithm is [`negative_log2`]. Among equal quotients the higher draw wins. If the
//! draws are equal too, the server whose ring name is shorter, then lower, wins. None of this ever
//! changes: keys would move.

use super::mix::{GOLDEN, mix, seeds};
use crate::Server;

#[derive(Clone, Copy, Debug)]
struct Drawer {
    seed: u64,
    weight: u32,
    server: u16,
}

/// The members that draw, by ring name.
#[derive(Clone, Debug)]
pub(super) struct Rendezvous {
    drawers: Vec<Drawer>,
    is_weighted: bool,
}

impl Rendezvous {
    /// Builds a table of one member or more, in order of ring name.
    pub(super) fn build(servers: &[Server], members: &[u16]) -> Rendezvous {
        let drawers: Vec<Drawer> = members
            .iter()
            .map(|&server| {
                let of = &servers[usize::from(server)];
                Drawer { seed: seeds(&of.ring_name()).0, weight: of.weight, server }
            })
            .collect();
        let is_weighted = drawers.iter().any(|drawer| drawer.weight != drawers[0].weight);
        Rendezvous { drawers, is_weighted }
    }

    #[inline]
    pub(super) fn pick(&self, hash: u32) -> u16 {
        let key = u64::from(hash).wrapping_mul(GOLDEN);
        if self.is_weighted {
            return self.pick_weighted(key);
        }
        let (mut highest, mut winner) = (0, self.drawers[0].server);
        for drawer in &self.drawers {
            let draw = mix(drawer.seed ^ key);
            if draw > highest {
                (highest, winner) = (draw, drawer.server);
            }
        }
        winner
    }

    /// Picks the winner by weight. Cheap bounds exclude most servers, and usually all but one; only
    /// the rest needs logarithms.
    fn pick_weighted(&self, key: u64) -> u16 {
        let mut leader = Quotient { distance: u64::MAX, weight: 1 };
        let mut winner = self.drawers[0].server;
        for drawer in &self.drawers {
            let farthest = bounds(mix(drawer.seed ^ key)).1;
            let quotient = Quotient { distance: farthest, weight: drawer.weight };
            if quotient.is_below(leader) {
                (leader, winner) = (quotient, drawer.server);
            }
        }
        let may_win = |drawer: &&Drawer| {
            let nearest = bounds(mix(drawer.seed ^ key)).0;
            !leader.is_below(Quotient { distance: nearest, weight: drawer.weight })
        };
        // The leader itself may win. If it is the only one, it wins.
        if self.drawers.iter().filter(may_win).nth(1).is_none() {
            return winner;
        }
        self.pick_exactly(key, may_win)
    }

    /// Returns the winner among the servers for which `may_win` holds, by the definition.
    fn pick_exactly(&self, key: u64, may_win: impl Fn(&&Drawer) -> bool) -> u16 {
        let mut best = (Quotient { distance: u64::MAX, weight: 1 }, 0);
        let mut winner = self.drawers[0].server;
        for drawer in self.drawers.iter().filter(may_win) {
            let draw = mix(drawer.seed ^ key);
            let quotient = Quotient { distance: negative_log2(draw), weight: drawer.weight };
            let is_equal = !quotient.is_below(best.0) && !best.0.is_below(quotient);
            if quotient.is_below(best.0) || (is_equal && draw > best.1) {
                (best, winner) = ((quotient, draw), drawer.server);
            }
        }
        winner
    }
}

/// A distance over a weight.
#[derive(Clone, Copy)]
struct Quotient {
    distance: u64,
    weight: u32,
}

impl Quotient {
    #[inline]
    fn is_below(self, other: Quotient) -> bool {
        u128::from(self.distance) * u128::from(other.weight)
            < u128::from(other.distance) * u128::from(self.weight)
    }
}

/// Returns a lower and an upper bound, both included, of [`negative_log2`] of `draw`. Between
/// powers of two the logarithm lies above its chord: by 0.0861 at most, and by no more than 0.2787
/// times the distance to the next power.
#[inline]
fn bounds(draw: u64) -> (u64, u64) {
    const ONE: u64 = 1 << 32;
    const ABOVE_CHORD_MAX: u64 = 369_700_000;
    const SLOPE: u64 = 1_197_000_000;
    let draw = draw.max(1);
    let zeros = draw.leading_zeros();
    // The 32 bits behind the leading one.
    let to_next_power = ONE - ((draw << zeros) << 1 >> 32);
    let chord = (u64::from(zeros) << 32) + to_next_power;
    // The error of rounding here and in `negative_log2` is less than 64.
    let above = ABOVE_CHORD_MAX.min((to_next_power * SLOPE) >> 32) + 64;
    (chord.saturating_sub(above), chord + 64)
}

/// Returns `-log2(draw / 2^64)` in units of 2^-32. A draw of 0 counts as 1. Only whole numbers are
/// used, so that every machine rounds alike. Each binary digit of the logarithm comes from squaring
/// the mantissa, cut to 64 bits, 32 times.
fn negative_log2(draw: u64) -> u64 {
    let draw = draw.max(1);
    let zeros = draw.leading_zeros();
    let mut mantissa = draw << zeros;
    let mut fraction = 0u64;
    for _ in 0..32 {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let carry = (square >> 64) as u64;
        mantissa = (square >> carry) as u64;
        fraction = fraction << 1 | carry;
    }
    (u64::from(zeros + 1) << 32) - fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_is_the_real_one_and_never_rises() {
        for draw in [1, 2, 3, 1 << 20, 12_345_678_901, 1 << 63, u64::MAX / 3, u64::MAX - 1] {
            let exact = 64.0 - (draw as f64).log2();
            let ours = negative_log2(draw) as f64 / 4_294_967_296.0;
            assert!((exact - ours).abs() < 1e-8, "{draw}: {exact} {ours}");
        }
        assert_eq!(negative_log2(0), negative_log2(1));
        assert_eq!(negative_log2(1), 64 << 32);
        assert_eq!(negative_log2(1 << 63), 1 << 32);
        assert_eq!(negative_log2(u64::MAX), 1);
        let mut draw = 1u64;
        for step in 0..10_000u64 {
            let next = draw.saturating_add((draw >> 9).max(1) + step % 7);
            assert!(negative_log2(next) <= negative_log2(draw), "{draw} {next}");
            draw = next;
        }
    }

    #[test]
    fn equal_weights_choose_as_no_weights_do() {
        let servers: Vec<Server> =
            (0..7).map(|nth| Server::parse(&format!("h{nth}:1:5")).unwrap()).collect();
        let members: Vec<u16> = (0..7).collect();
        let ring = Rendezvous::build(&servers, &members);
        assert!(!ring.is_weighted);
        for hash in (0..u32::MAX).step_by(400_009) {
            let key = u64::from(hash).wrapping_mul(GOLDEN);
            assert_eq!(ring.pick(hash), ring.pick_weighted(key));
            assert_eq!(ring.pick(hash), ring.pick_exactly(key, |_| true));
        }
    }

    #[test]
    fn a_glance_rules_out_no_winner() {
        for weights in [&[1u32, 2][..], &[3, 1, 10, 7], &[1, 1, 1, 1, 2, 2_147_483_647], &[5; 40]] {
            let weighted = |(nth, weight)| Server::parse(&format!("h{nth}:1:{weight}")).unwrap();
            let servers: Vec<Server> = weights.iter().enumerate().map(weighted).collect();
            let members: Vec<u16> = (0..servers.len() as u16).collect();
            let ring = Rendezvous::build(&servers, &members);
            for hash in (0..u32::MAX).step_by(200_003) {
                let key = u64::from(hash).wrapping_mul(GOLDEN);
                assert_eq!(ring.pick_weighted(key), ring.pick_exactly(key, |_| true));
            }
        }
    }

    /// Returns two seeds whose draws differ but have the same logarithm, the lower draw first.
    fn twins() -> [u64; 2] {
        let mut seeds: Vec<u64> = (0..1 << 18).collect();
        seeds.sort_by_key(|&seed| mix(seed));
        let is_twin = |pair: &&[u64]| negative_log2(mix(pair[0])) == negative_log2(mix(pair[1]));
        let pair = seeds.windows(2).find(is_twin).expect("so many draws have equal logarithms");
        [pair[0], pair[1]]
    }

    #[test]
    fn of_equal_quotients_the_higher_draw_wins_and_of_equal_draws_the_first() {
        let drawer = |(seed, server): (u64, u16)| Drawer { seed, weight: 1, server };
        let winner = |drawers: &[(u64, u16)]| {
            let drawers = drawers.iter().copied().map(drawer).collect();
            Rendezvous { drawers, is_weighted: true }.pick_exactly(0, |_| true)
        };
        let [low, high] = twins();
        assert_eq!(winner(&[(low, 1), (high, 2)]), 2);
        assert_eq!(winner(&[(high, 2), (low, 1)]), 2);
        assert_eq!(winner(&[(low, 1), (low, 2)]), 1);
        let same: Vec<Server> = ["h:1", "h:1"].map(|line| Server::parse(line).unwrap()).into();
        for members in [[0, 1], [1, 0]] {
            let ring = Rendezvous::build(&same, &members);
            for hash in 0..100 {
                assert_eq!(ring.pick(hash), members[0]);
            }
        }
    }

    #[test]
    fn logarithm_lies_between_its_bounds() {
        let mut draws: Vec<u64> = (0..64u32).flat_map(|bit| [1 << bit, (1 << bit) - 1]).collect();
        draws.extend((0..100_000u64).map(|nth| mix(nth.wrapping_mul(GOLDEN))));
        draws.extend((0..1000u64).map(|nth| u64::MAX - nth * nth * nth * 1_000_003));
        // Draws at which the logarithm is farthest above its chord.
        draws.extend((0..64u32).map(|zeros| 13_306_513_097_844_322_492 >> zeros));
        for draw in draws {
            let (nearest, farthest) = bounds(draw);
            let distance = negative_log2(draw);
            assert!((nearest..=farthest).contains(&distance), "{draw}: {nearest} {distance}");
        }
    }
}
