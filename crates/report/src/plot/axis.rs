//! From values to places along an axis, and where its ticks are.

use crate::number;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// How values are laid along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By their logarithm; all values are above 0.
    Log,
}

/// An axis: what it measures, and its ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Said beside it.
    pub label: String,
    scale: Scale,
    low: f64,
    high: f64,
    /// Values, and what stands at them.
    pub ticks: Vec<(f64, String)>,
}

/// As many as fit beside each other on a phone.
const TICKS_MAX: usize = 7;

impl Axis {
    /// An axis that all of `values` are on, with ticks at round values, written by `text`.
    /// Values that are no numbers, and those below what a logarithm has, are left aside.
    pub fn new(
        label: impl Into<String>,
        scale: Scale,
        values: impl IntoIterator<Item = f64>,
        text: impl Fn(f64) -> String,
    ) -> Axis {
        let fits = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (low, high) = values
            .into_iter()
            .filter(fits)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        let (low, high, ticks) = match scale {
            Scale::Linear => linear(high.max(low)),
            Scale::Log => log(low, high),
        };
        let ticks = ticks.into_iter().map(|value| (value, text(value))).collect();
        Axis { label: label.into(), scale, low, high, ticks }
    }

    /// An axis with a tick at each of `values`, where there is room: connections are few and
    /// chosen.
    pub fn at_values(label: impl Into<String>, values: &[f64]) -> Axis {
        let mut values: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = (values.first().unwrap_or(&1.0), values.last().unwrap_or(&1.0));
        let room = (high / low).max(1.25).powf(0.06);
        let (low, high) = (low / room, high * room);
        let step = (values.len().div_ceil(TICKS_MAX)).max(1);
        let apart = (high / low).powf(0.08);
        let mut ticks: Vec<(f64, String)> = Vec::new();
        for value in values.into_iter().step_by(step) {
            if ticks.last().is_none_or(|(before, _)| value / before >= apart) {
                ticks.push((value, number::short(value)));
            }
        }
        Axis { label: label.into(), scale: Scale::Log, low, high, ticks }
    }

    /// An axis from 0 to `high` with given ticks.
    pub fn with_ticks(label: impl Into<String>, high: f64, ticks: Vec<(f64, String)>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear, low: 0.0, high, ticks }
    }

    /// An axis from 0 to just `end`, with ticks at round values: time.
    pub fn up_to(label: impl Into<String>, end: f64) -> Axis {
        let mut axis = Axis::new(label, Scale::Linear, [end], number::short);
        axis.high = end.max(f64::MIN_POSITIVE);
        axis.ticks.retain(|(value, _)| *value <= end);
        axis
    }

    /// Which share of the axis lies before `value`.
    pub fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// The value that this share of the axis lies before.
    pub fn value(&self, share: f64) -> f64 {
        match self.scale {
            Scale::Linear => self.low + (self.high - self.low) * share,
            Scale::Log => self.low * (self.high / self.low).powf(share),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share(*value) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.iter().map(|(value, _)| *value).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| tick == value);
        tick.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

/// From 0 to a round value at or above `high`.
fn linear(high: f64) -> (f64, f64, Vec<f64>) {
    let high = if high > 0.0 { high } else { 1.0 };
    let unit = 10_f64.powf((high / 5.0).log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * unit);
    let step = step.into_iter().find(|step| high / step <= 5.0).unwrap_or(unit * 10.0);
    let count = (high / step - 1e-9).ceil().max(1.0);
    let ticks = (0..=count as u32).map(|nth| f64::from(nth) * step).collect();
    (0.0, count * step, ticks)
}

/// From a round value at or below `low` to one at or above `high`; ticks at powers of ten alone
/// where more of them would not fit.
fn log(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let marks = marks_between(low, high, &[1.0, 2.0, 5.0]);
    let (first, last) = (marks[0], marks[marks.len() - 1]);
    if marks.len() <= TICKS_MAX + 1 {
        return (first, last, marks);
    }
    let within = |mark: &f64| (first * 0.999..=last * 1.001).contains(mark);
    let powers: Vec<f64> = marks_between(first, last, &[1.0]).into_iter().filter(within).collect();
    let every = powers.len().div_ceil(TICKS_MAX + 1).max(1);
    (first, last, powers.into_iter().step_by(every).collect())
}

/// Powers of ten times `factors`, from the last at or below `low` to the first at or above
/// `high`.
fn marks_between(low: f64, high: f64, factors: &[f64]) -> Vec<f64> {
    let (from, to) = (low.log10().floor() as i32 - 1, high.log10().ceil() as i32 + 1);
    let all = (from..=to).flat_map(|power| factors.iter().map(move |one| one * 10_f64.powi(power)));
    let all: Vec<f64> = all.collect();
    let first = all.iter().rposition(|mark| *mark <= low * (1.0 + 1e-9)).unwrap_or(0);
    let last = all.iter().position(|mark| *mark >= high * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1).min(all.len() - 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round() {
        let axis = Axis::new("x", Scale::Linear, [3.0, 187_000.0], number::short);
        assert_eq!(texts(&axis), ["0", "50k", "100k", "150k", "200k"]);
        let axis = Axis::new("x", Scale::Log, [90_000.0, 2_100_000.0], number::time_ns);
        assert_eq!(texts(&axis), ["50 µs", "100 µs", "200 µs", "500 µs", "1 ms", "2 ms", "5 ms"]);
        let axis = Axis::new("x", Scale::Log, [900.0, 2e9], number::time_ns);
        assert_eq!(texts(&axis), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
        assert_eq!(texts(&Axis::at_values("x", &[50.0, 400.0, 100.0, 50.0])), ["50", "100", "400"]);
    }

    #[test]
    fn an_axis_of_nothing_is_an_axis() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = Axis::new("x", scale, [f64::NAN, f64::INFINITY], number::short);
            assert!(axis.range().start < axis.range().end);
        }
        let axis = Axis::at_values("x", &[]);
        assert!(axis.range().start < axis.range().end && axis.ticks.is_empty());
    }

    proptest! {
        #[test]
        fn every_value_lies_on_the_axis(
            values in prop::collection::vec(1e-3_f64..1e12, 1..20), is_log in any::<bool>(),
        ) {
            let scale = if is_log { Scale::Log } else { Scale::Linear };
            let axis = Axis::new("x", scale, values.iter().copied(), number::short);
            let ticks: Vec<f64> = axis.ticks.iter().map(|(value, _)| *value).collect();
            prop_assert!((2..=TICKS_MAX + 1).contains(&ticks.len()), "{ticks:?}");
            for value in values.into_iter().chain(ticks) {
                let share = axis.share(value);
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&share), "{value} at {share}");
                prop_assert!((axis.value(share) - value).abs() <= value * 1e-6);
            }
        }
    }
}
