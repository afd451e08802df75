//! Decides which peer is the best, and whether a ratio meets its target.

use keyway_report::statistics::Spread;

/// One figure for each round, or `None` if the round failed.
pub type Series = Vec<Option<f64>>;

/// Returns the index of the series with the highest median.
pub fn best<'a>(series: impl IntoIterator<Item = &'a [Option<f64>]>) -> Option<usize> {
    let medians = series.into_iter().map(|values| Spread::of(values.iter().flatten().copied()));
    let known = medians.enumerate().filter_map(|(index, spread)| Some((index, spread?.median)));
    known.max_by(|(_, left), (_, right)| left.total_cmp(right)).map(|(index, _)| index)
}

/// The target of a row for the ratio to the best peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Below this the row has missed its target.
    pub at_least: f64,
    /// The ratio that is hoped for.
    pub aim: f64,
}

/// How a ratio compares with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is below what is required.
    Missed,
    /// It is at least what is required.
    Met,
    /// It is at least what is hoped for.
    AimReached,
}

impl Target {
    /// Judges `ratio`, exactly as measured and not as rounded for printing.
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
    /// Returns its text in the tables.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Missed => "missed",
            Verdict::Met => "met",
            Verdict::AimReached => "aim reached",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
