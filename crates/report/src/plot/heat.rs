//! Heat maps: how many requests took how long, over the time of a measurement.

use super::axis::{Axis, Scale};
use super::{Area, DrawError, GRID, HEAT, INK, anchored, font, svg};
use crate::histogram::Histogram;
use crate::number;
use crate::result::{Measured, Second};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// More columns than this could not be told apart on a phone: seconds are put together.
const COLUMNS_MAX: usize = 60;
/// Rows of latency, as long as they are on the logarithm's axis.
const ROWS: usize = 24;

const HEIGHT: u32 = 560;

/// A map: columns of time, rows of latency, and what share of a column's requests each has.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// When each column ends, in seconds.
    pub ends: Vec<f64>,
    /// Columns of rows: shares from 0 to 1.
    pub shares: Vec<Vec<f64>>,
    time: Axis,
    latency: Axis,
}

impl Map {
    /// The map of a measurement, on an axis of latency that all maps beside it share; none
    /// without a series.
    pub fn of(measured: &Measured, latency: &Axis) -> Option<Map> {
        let together = measured.series.len().div_ceil(COLUMNS_MAX).max(1);
        let columns: Vec<&[Second]> = measured.series.chunks(together).collect();
        let ends: Vec<f64> =
            columns.iter().filter_map(|seconds| Some(seconds.last()?.at)).collect();
        let last = *ends.last()?;
        let shares = columns.iter().map(|seconds| {
            let merged = Histogram::merged(seconds.iter().map(|second| &second.latency));
            rows(&merged, latency)
        });
        let time = Axis::up_to("seconds", last);
        Some(Map { shares: shares.collect(), ends, time, latency: latency.clone() })
    }

    /// The axis for maps of these measurements.
    pub fn axis<'a>(all: impl IntoIterator<Item = &'a Measured>) -> Axis {
        let seconds = all.into_iter().flat_map(|one| &one.series);
        let uppers = seconds.flat_map(|second| second.latency.buckets_ns.iter());
        let uppers = uppers.filter(|(_, count)| *count > 0).map(|(upper, _)| *upper as f64);
        Axis::new("latency", Scale::Log, uppers, number::time_ns)
    }

    /// Draws the map.
    pub fn draw(&self) -> Result<String, DrawError> {
        svg(HEIGHT, |area| self.on(area))
    }

    fn on(&self, area: &Area) -> Result<(), DrawError> {
        let (time, latency) = (&self.time, &self.latency);
        let mut chart = ChartBuilder::on(area)
            .margin_right(64)
            .margin_top(60)
            .x_label_area_size(100)
            .y_label_area_size(150)
            .build_cartesian_2d(time.clone(), latency.clone())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(INK.stroke_width(2))
            .label_style(font())
            .set_all_tick_mark_size(8)
            .x_labels(time.ticks.len())
            .y_labels(latency.ticks.len())
            .draw()?;
        area.draw(&Text::new("latency", (0, 4), anchored(HPos::Left, VPos::Top)))?;
        let below = (super::WIDTH as i32 / 2 + 75, HEIGHT as i32 - 4);
        area.draw(&Text::new("seconds", below, anchored(HPos::Center, VPos::Bottom)))?;
        chart.draw_series(self.boxes())?;
        Ok(())
    }

    fn boxes(&self) -> impl Iterator<Item = Rectangle<(f64, f64)>> {
        let starts = std::iter::once(0.0).chain(self.ends.iter().copied());
        let columns = starts.zip(&self.ends).zip(&self.shares);
        columns.flat_map(move |((start, end), shares)| {
            let edge = |row: usize| self.latency.value(row as f64 / ROWS as f64);
            shares.iter().enumerate().filter_map(move |(row, share)| {
                let corners = [(start, edge(row)), (*end, edge(row + 1))];
                Some(Rectangle::new(corners, HEAT[level(*share)?].filled()))
            })
        })
    }
}

/// What share of a column's requests lies in each row.
fn rows(histogram: &Histogram, latency: &Axis) -> Vec<f64> {
    let count = histogram.count().max(1) as f64;
    let mut rows = vec![0.0; ROWS];
    for (upper, found) in &histogram.buckets_ns {
        let row = ((latency.share(*upper as f64) * ROWS as f64) as usize).min(ROWS - 1);
        rows[row] += *found as f64 / count;
    }
    rows
}

/// Each colour is for three times the share of the one before: one request in a thousand is
/// seen beside the many. None where there is nothing.
pub fn level(share: f64) -> Option<usize> {
    let most = HEAT.len() as f64;
    (share > 0.0).then(|| (most + share.log10() * 2.0).floor().clamp(0.0, most - 1.0) as usize)
}

/// The least share that has a colour, in percent.
pub fn least_percent(level: usize) -> f64 {
    100.0 * 10_f64.powf((level as f64 - HEAT.len() as f64) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(seconds: usize) -> Measured {
        let second = |nth: usize| Second {
            at: nth as f64 + 1.0,
            requests: 1000,
            errors: 0,
            latency: Histogram {
                buckets_ns: vec![(100_000, 990), (10_000_000, 10)],
                ..Histogram::default()
            },
        };
        Measured { series: (0..seconds).map(second).collect(), ..Measured::default() }
    }

    #[test]
    fn every_request_is_in_one_row() {
        let measured = measured(300);
        let map = Map::of(&measured, &Map::axis([&measured])).unwrap();
        assert_eq!(map.ends.len(), 60);
        assert_eq!(map.ends.last(), Some(&300.0));
        for column in &map.shares {
            assert!((column.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert_eq!(column.iter().filter(|share| **share > 0.0).count(), 2);
        }
    }

    #[test]
    fn few_requests_are_seen_beside_many() {
        assert_eq!(level(0.0), None);
        assert_eq!(level(1e-9), Some(0));
        assert_eq!(level(1.0), Some(HEAT.len() - 1));
        for nth in 1..HEAT.len() {
            assert_eq!(level(least_percent(nth) / 100.0 * 1.001), Some(nth));
            assert_eq!(level(least_percent(nth) / 100.0 * 0.999), Some(nth - 1));
        }
        assert!(level(0.01) < level(0.99));
    }

    #[test]
    fn no_series_has_no_map() {
        let nothing = Measured::default();
        assert_eq!(Map::of(&nothing, &Map::axis([&nothing])), None);
    }
}
