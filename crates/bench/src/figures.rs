//! Which peer is the best, and whether a ratio is what is asked for.

use keyway_report::statistics::Spread;

/// One figure per round; none where the round failed.
pub type Series = Vec<Option<f64>>;

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
