//! When two figures differ: medians, spreads, ratios within rounds, and how often chance alone
//! would part two series as far as they are.
//!
//! A run has few rounds, three to ten, and nothing is known of how they are distributed: on a
//! machine that others use, too, they are not normal. So nothing here assumes it. [`chance`]
//! counts orders (Mann and Whitney's test, exact), and [`interval`] draws from the rounds
//! themselves (the bootstrap's percentiles). A difference is shown when both say so.

/// The middle and the ends of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; of an even number of values, the mean of the middle two.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; none when there is no value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Spread { median: middle(&sorted), min, max })
    }

    /// Returns whether values lie on both sides of `value`, or on it.
    pub fn holds(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }
}

/// The median of values in order; there is at least one.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => f64::midpoint(sorted[half - 1], sorted[half]),
        _ => sorted[half],
    }
}

/// The spread of ours / theirs, round by round, over the rounds that both have: what disturbed a
/// whole round disturbs no ratio. None when there is no such round.
pub fn ratios(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<Spread> {
    let pairs = ours.iter().zip(theirs).filter_map(|(&ours, &theirs)| Some((ours?, theirs?)));
    Spread::of(pairs.filter(|&(_, theirs)| theirs > 0.0).map(|(ours, theirs)| ours / theirs))
}

/// Series longer than this are compared by the normal approximation, which is good to two
/// thousandths there; the exact count takes the square of their product.
const EXACT_MAX: usize = 30;

/// How likely two series from the same source are at least as far apart in their orders as these
/// are, in either direction: the two-sided Mann-Whitney test, exact for up to [`EXACT_MAX`]
/// values a side. Equal values count as if they lay closer: the figure is never too small. 1
/// when a series is empty.
pub fn chance(left: &[f64], right: &[f64]) -> f64 {
    if left.is_empty() || right.is_empty() {
        return 1.0;
    }
    let pairs = || left.iter().flat_map(|one| right.iter().map(move |other| (one, other)));
    let above = pairs().filter(|(one, other)| one > other).count();
    let below = pairs().filter(|(one, other)| one < other).count();
    // The side that is rarer, and ties on the other one's: the larger count of the two tails.
    let rarer = left.len() * right.len() - above.max(below);
    let tail = match left.len().max(right.len()) <= EXACT_MAX {
        true => exact_tail(left.len(), right.len(), rarer),
        false => normal_tail(left.len(), right.len(), rarer),
    };
    (2.0 * tail).min(1.0)
}

/// The least [`chance`] that so many rounds a side can have: two whole series apart.
pub fn least_chance(left_len: usize, right_len: usize) -> f64 {
    if left_len == 0 || right_len == 0 || left_len.max(right_len) > EXACT_MAX {
        return if left_len.min(right_len) == 0 { 1.0 } else { 0.0 };
    }
    (2.0 * exact_tail(left_len, right_len, 0)).min(1.0)
}

/// The share of all orders of `left_len` and `right_len` values in which at most `rarer` pairs
/// have the left one above.
fn exact_tail(left_len: usize, right_len: usize, rarer: usize) -> f64 {
    // ways[n][u]: orders of n left values and as many right ones as the loop has reached, with u
    // pairs of that kind, as shares of all orders of them: no number grows.
    let most = left_len * right_len;
    let mut shares = vec![vec![0.0; most + 1]; left_len + 1];
    for row in &mut shares {
        row[0] = 1.0;
    }
    for right in 1..=right_len {
        for left in 1..=left_len {
            for pairs in (0..=left * right).rev() {
                // The greatest of all is a left value, above every right one, or a right one.
                let is_left = left as f64 / (left + right) as f64;
                let with_left = if pairs >= right { shares[left - 1][pairs - right] } else { 0.0 };
                shares[left][pairs] = is_left * with_left + (1.0 - is_left) * shares[left][pairs];
            }
        }
    }
    shares[left_len][..=rarer].iter().sum()
}

fn normal_tail(left_len: usize, right_len: usize, rarer: usize) -> f64 {
    let (left, right) = (left_len as f64, right_len as f64);
    let deviation = (left * right * (left + right + 1.0) / 12.0).sqrt();
    normal_below((rarer as f64 + 0.5 - left * right / 2.0) / deviation)
}

/// The share of the normal distribution below `z`, to seven digits (Abramowitz and Stegun,
/// 26.2.17).
fn normal_below(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let factors = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let above = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if z > 0.0 { 1.0 - above } else { above }
}

/// How often rounds are drawn anew for an interval: its ends are good to a thousandth of its
/// width; more is only slower.
const DRAWS: usize = 4000;

/// Between what the ratio of the medians, new / old, lies in 95 of 100 draws of the rounds,
/// among themselves and with repeats. The same rounds have the same interval. None when a series
/// is empty or a median of the old one is 0.
pub fn interval(old: &[f64], new: &[f64]) -> Option<(f64, f64)> {
    if old.is_empty() || new.is_empty() {
        return None;
    }
    let mut chance = Draws(0x9e37_79b9_7f4a_7c15);
    let mut drawn = Vec::with_capacity(old.len().max(new.len()));
    let mut ratios = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let below = chance.median_of(old, &mut drawn);
        let above = chance.median_of(new, &mut drawn);
        if below <= 0.0 {
            return None;
        }
        ratios.push(above / below);
    }
    ratios.sort_by(f64::total_cmp);
    Some((ratios[DRAWS / 40], ratios[DRAWS - 1 - DRAWS / 40]))
}

/// Numbers that look drawn by chance, the same each time (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The median of as many draws from `values` as there are values.
    fn median_of(&mut self, values: &[f64], drawn: &mut Vec<f64>) -> f64 {
        drawn.clear();
        for _ in values {
            let nth = (u128::from(self.next()) * values.len() as u128) >> 64;
            drawn.push(values[nth as usize]);
        }
        drawn.sort_by(f64::total_cmp);
        middle(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Normal values around `mean`, by Box and Muller.
    fn normal(draws: &mut Draws, count: usize, mean: f64, deviation: f64) -> Vec<f64> {
        let share = |draws: &mut Draws| (draws.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut one = || {
            let (left, right) = (1.0 - share(draws), share(draws));
            (-2.0 * left.ln()).sqrt() * (2.0 * std::f64::consts::PI * right).cos()
        };
        (0..count).map(|_| mean + deviation * one()).collect()
    }

    #[test]
    fn the_median_is_the_middle_of_the_sorted_values() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_only_where_both_have_figures() {
        // The second round ran on a machine half as fast: the ratio holds.
        let ours = [Some(20.0), Some(10.0), None, Some(40.0)];
        let theirs = [Some(10.0), Some(5.0), Some(1.0), None];
        assert_eq!(ratios(&ours, &theirs).unwrap().median, 2.0);
        assert_eq!(ratios(&ours, &[None, None, None, Some(0.0)]), None);
    }

    #[test]
    fn chance_is_what_the_tables_of_the_test_say() {
        // Two series wholly apart: 2 of the C(n + m, n) orders.
        let series =
            |from: u32, count: u32| (from..from + count).map(f64::from).collect::<Vec<_>>();
        for (count, orders) in [(1, 2.0), (2, 6.0), (3, 20.0), (4, 70.0), (5, 252.0), (8, 12870.0)]
        {
            let found = chance(&series(0, count), &series(100, count));
            assert!((found - 2.0 / orders).abs() < 1e-12, "{count}: {found}");
            assert_eq!(found, least_chance(count as usize, count as usize));
        }
        // U = 2 of 25 for five and five: 0.0317 in the published tables; U = 3: 0.0556.
        let left = [1.0, 2.0, 3.0, 4.0, 7.5];
        assert!((chance(&left, &[6.0, 7.0, 8.0, 9.0, 10.0]) - 8.0 / 252.0).abs() < 1e-12);
        let left = [1.0, 2.0, 3.0, 4.0, 8.5];
        assert!((chance(&left, &[6.0, 7.0, 8.0, 9.0, 10.0]) - 14.0 / 252.0).abs() < 1e-12);
    }

    #[test]
    fn equal_values_are_never_a_difference() {
        assert_eq!(chance(&[5.0; 10], &[5.0; 10]), 1.0);
        assert_eq!(chance(&[], &[1.0]), 1.0);
        assert_eq!(interval(&[5.0; 3], &[10.0; 3]), Some((2.0, 2.0)));
        assert_eq!(interval(&[0.0; 3], &[10.0; 3]), None);
    }

    #[test]
    fn the_approximation_meets_the_exact_count_where_it_takes_over() {
        for rarer in [250, 300, 350, 400, 450] {
            let (exact, normal) = (exact_tail(30, 30, rarer), normal_tail(30, 30, rarer));
            assert!((exact - normal).abs() < 2e-3, "{rarer}: {exact} and {normal}");
        }
    }

    #[test]
    fn chance_alone_shows_a_difference_no_more_often_than_it_says() {
        let mut draws = Draws(7);
        let tries = 4000;
        for count in [4, 5, 10, 40] {
            let shown = (0..tries).filter(|_| {
                let old = normal(&mut draws, count, 100.0, 5.0);
                let new = normal(&mut draws, count, 100.0, 5.0);
                chance(&old, &new) <= 0.05
            });
            let share = shown.count() as f64 / f64::from(tries);
            assert!(share <= 0.06, "{count} rounds: {share}");
        }
    }

    #[test]
    fn a_difference_of_four_deviations_is_found_in_five_rounds() {
        let mut draws = Draws(11);
        let found = (0..500).filter(|_| {
            let old = normal(&mut draws, 5, 100.0, 5.0);
            let new = normal(&mut draws, 5, 120.0, 5.0);
            chance(&old, &new) <= 0.05
        });
        assert!(found.count() > 480);
    }

    #[test]
    fn intervals_hold_the_true_ratio_about_as_often_as_they_say() {
        let mut draws = Draws(13);
        let held = (0..300).filter(|_| {
            let old = normal(&mut draws, 15, 100.0, 5.0);
            let new = normal(&mut draws, 15, 130.0, 5.0);
            let (low, high) = interval(&old, &new).unwrap();
            (low..=high).contains(&1.3)
        });
        let held = held.count();
        assert!((270..=300).contains(&held), "{held} of 300");
    }

    proptest! {
        #[test]
        fn chance_knows_no_direction_and_no_unit(
            left in prop::collection::vec(1.0_f64..100.0, 1..8),
            right in prop::collection::vec(1.0_f64..100.0, 1..8),
        ) {
            let there = chance(&left, &right);
            prop_assert!((there - chance(&right, &left)).abs() < 1e-9);
            prop_assert!(there <= 1.0);
            prop_assert!(there >= least_chance(left.len(), right.len()) - 1e-12);
            let log = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
            prop_assert!((there - chance(&log(&left), &log(&right))).abs() < 1e-9);
        }

        #[test]
        fn an_interval_lies_between_the_extreme_ratios(
            old in prop::collection::vec(1.0_f64..100.0, 1..8),
            new in prop::collection::vec(1.0_f64..100.0, 1..8),
        ) {
            let (low, high) = interval(&old, &new).unwrap();
            let (old, new) = (Spread::of(old).unwrap(), Spread::of(new).unwrap());
            prop_assert!(low >= new.min / old.max && high <= new.max / old.min && low <= high);
        }
    }
}
