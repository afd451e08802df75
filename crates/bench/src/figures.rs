//! The arithmetic of a comparison: medians, spreads, ratios within a round,
//! and whether a ratio is what is asked for.

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
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Spread { median, min, max })
    }
}

/// One figure per round; none where the round failed.
pub type Series = Vec<Option<f64>>;

/// The spread of ours / theirs taken round by round, over the rounds in which
/// both have a figure: what disturbed a whole round disturbs no ratio.
pub fn ratio_spread(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<Spread> {
    let pairs = ours.iter().zip(theirs).filter_map(|(&ours, &theirs)| Some((ours?, theirs?)));
    Spread::of(pairs.filter(|&(_, theirs)| theirs > 0.0).map(|(ours, theirs)| ours / theirs))
}

/// The position of the series with the highest median.
pub fn best<'a>(series: impl IntoIterator<Item = &'a [Option<f64>]>) -> Option<usize> {
    let medians = series.into_iter().map(|values| Spread::of(values.iter().flatten().copied()));
    let known = medians.enumerate().filter_map(|(index, spread)| Some((index, spread?.median)));
    known.max_by(|(_, left), (_, right)| left.total_cmp(right)).map(|(index, _)| index)
}

/// What a row asks of the ratio against the best peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Below this the row has missed.
    pub at_least: f64,
    /// What is hoped for.
    pub aim: f64,
}

/// How a ratio stands against its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Below what is asked for.
    Missed,
    /// At least what is asked for.
    Met,
    /// At least what is hoped for.
    AimReached,
}

impl Target {
    /// Judges `ratio`, exactly as measured and not as rounded for print.
    pub fn judge(self, ratio: f64) -> Verdict {
        if ratio >= self.aim {
            Verdict::AimReached
        } else if ratio >= self.at_least {
            Verdict::Met
        } else {
            Verdict::Missed
        }
    }
}

impl Verdict {
    /// For the tables.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Missed => "**missed**",
            Verdict::Met => "met",
            Verdict::AimReached => "aim reached",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(ratio_spread(&ours, &theirs).unwrap().median, 2.0);
        assert_eq!(ratio_spread(&ours, &[None, None, None, Some(0.0)]), None);
    }

    #[test]
    fn the_median_of_ratios_is_not_the_ratio_of_medians() {
        let ours = [Some(10.0), Some(30.0), Some(20.0)];
        let theirs = [Some(10.0), Some(10.0), Some(40.0)];
        assert_eq!(ratio_spread(&ours, &theirs).unwrap().median, 1.0);
    }

    #[test]
    fn the_best_peer_is_the_one_with_the_highest_median() {
        let series = [vec![Some(1.0), Some(9.0), Some(1.0)], vec![Some(2.0); 3], vec![None; 3]];
        assert_eq!(best(series.iter().map(Vec::as_slice)), Some(1));
        assert_eq!(best([[None].as_slice()]), None);
    }

    #[test]
    fn a_ratio_is_judged_at_both_marks() {
        let target = Target { at_least: 1.3, aim: 1.5 };
        assert_eq!(target.judge(1.2999), Verdict::Missed);
        assert_eq!(target.judge(1.3), Verdict::Met);
        assert_eq!(target.judge(1.5), Verdict::AimReached);
    }
}
