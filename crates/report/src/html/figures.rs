//! Plots with what stands around them: a title, words for who cannot see them, and their figures
//! as a table.

use crate::cell::{Figures, Metric};
use crate::histogram::Histogram;
use crate::number;
use crate::plot::DrawError;
use crate::plot::axis::{Axis, Scale};
use crate::plot::curve::{self, Curve, Point};
use crate::plot::heat::Map;
use crate::plot::rows::{self, Band};
use crate::result::{Cell, Item, Measured, Run};
use crate::statistics::Spread;
use crate::table::{Align, Column, Row, Table, Value};

/// A plot and what stands around it.
pub struct Figure {
    /// Above it.
    pub title: String,
    /// Below the title; may be empty.
    pub says: String,
    /// Said instead of the plot by what reads aloud.
    pub described: String,
    /// The systems in it, by their places in the run.
    pub systems: Vec<usize>,
    /// The plot.
    pub svg: String,
    /// What is drawn, as figures.
    pub table: Table,
}

/// The shares whose latencies are drawn, and those that have a tick.
const SHARES: [f64; 15] =
    [0.0, 0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999];
const TICKS: [(f64, &str); 7] = [
    (0.0, "least"),
    (0.5, "50%"),
    (0.9, "90%"),
    (0.99, "99%"),
    (0.999, "99.9%"),
    (0.9999, "99.99%"),
    (0.99999, "99.999%"),
];

/// The systems' spreads of a figure on one item, by their places.
pub fn spreads(
    run: &Run,
    item: &Item,
    figure: impl Fn(&Measured) -> Option<f64>,
) -> Vec<(usize, Spread)> {
    let spread = |(nth, system): (usize, &crate::result::System)| {
        let cell = run.cell(&system.name, &item.id)?;
        Some((nth, Figures::of(cell, &figure).spread()?))
    };
    run.systems.iter().enumerate().filter_map(spread).collect()
}

fn systems_of(spreads: &[Vec<(usize, Spread)>]) -> Vec<usize> {
    let mut all: Vec<usize> = spreads.iter().flatten().map(|(nth, _)| *nth).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A table with a row for each head, and the systems' spreads in columns.
fn spread_table(
    run: &Run,
    head: &str,
    rows: impl Iterator<Item = String>,
    spreads: &[Vec<(usize, Spread)>],
    text: impl Fn(f64) -> String,
) -> Table {
    let systems = systems_of(spreads);
    let value = |found: &[(usize, Spread)], nth: usize| {
        let spread = found.iter().find(|(system, _)| *system == nth);
        spread.map_or_else(Value::absent, |(_, spread)| Value::spread(*spread, &text))
    };
    let rows = rows.zip(spreads).map(|(name, found)| {
        let values = systems.iter().map(|nth| value(found, *nth));
        Row { values: std::iter::once(Value::text(name)).chain(values).collect(), remark: None }
    });
    Table {
        columns: columns(head, systems.iter().map(|nth| run.systems[*nth].name.as_str())),
        rows: rows.collect(),
        ..Table::default()
    }
}

fn columns<'a>(head: &str, figures: impl Iterator<Item = &'a str>) -> Vec<Column> {
    let column = |title: &str, align| Column { title: title.to_owned(), align };
    let figures = figures.map(|title| column(title, Align::Right));
    std::iter::once(column(head, Align::Left)).chain(figures).collect()
}

/// Throughput against connections, for items that differ in little else.
pub fn throughput(run: &Run, title: &str, items: &[&Item]) -> Result<Option<Figure>, DrawError> {
    let mut items: Vec<(f64, &Item)> =
        items.iter().filter_map(|item| Some((item.number("connections")?, *item))).collect();
    items.sort_by(|one, other| one.0.total_cmp(&other.0));
    let found: Vec<Vec<(usize, Spread)>> =
        items.iter().map(|(_, item)| spreads(run, item, |m| Metric::Throughput.of(m))).collect();
    let systems = systems_of(&found);
    if systems.is_empty() {
        return Ok(None);
    }
    let counts: Vec<f64> = items.iter().map(|(count, _)| *count).collect();
    let x = Axis::at_values("connections", &counts);
    let most = found.iter().flatten().map(|(_, spread)| spread.max);
    let y = Axis::new("requests/s", Scale::Linear, most, number::short);
    let curves = systems.iter().map(|system| {
        let point = |(count, found): (&f64, &Vec<(usize, Spread)>)| {
            let (_, spread) = found.iter().find(|(nth, _)| nth == system)?;
            let range = (spread.min < spread.max).then_some((spread.min, spread.max));
            Some(Point { x: *count, y: spread.median, range, is_marked: true })
        };
        Curve { system: *system, points: counts.iter().zip(&found).filter_map(point).collect() }
    });
    let svg = curve::draw(&x, &y, &curves.collect::<Vec<_>>())?;
    let heads = counts.iter().map(|count| number::plain(*count).trim_end_matches(".00").to_owned());
    Ok(Some(Figure {
        title: title.to_owned(),
        says: String::new(),
        described: format!(
            "Requests a second against connections, a line for each system: {title}. The figures \
             are in the table below."
        ),
        table: spread_table(run, "Connections", heads, &found, number::plain),
        systems,
        svg,
    }))
}

/// One figure for many items, as lines below each other.
pub fn bars(
    run: &Run,
    (title, unit): (&str, &str),
    items: &[&Item],
    figure: impl Fn(&Measured) -> Option<f64>,
    text: fn(f64) -> String,
) -> Result<Option<Figure>, DrawError> {
    let found: Vec<(&Item, Vec<(usize, Spread)>)> = items
        .iter()
        .map(|item| (*item, spreads(run, item, &figure)))
        .filter(|(_, found)| !found.is_empty())
        .collect();
    if found.is_empty() {
        return Ok(None);
    }
    let most = found.iter().flat_map(|(_, found)| found).map(|(_, spread)| spread.max);
    let x = Axis::new(unit, Scale::Linear, most, number::short);
    let bands = found
        .iter()
        .map(|(item, systems)| Band { name: run.label(item), systems: systems.clone() });
    let svg = rows::draw(&x, &bands.collect::<Vec<_>>(), text)?;
    let (items, found): (Vec<&Item>, Vec<_>) = found.into_iter().unzip();
    let heads = items.iter().map(|item| run.label(item));
    Ok(Some(Figure {
        title: title.to_owned(),
        says: String::new(),
        described: format!(
            "{unit}, a line for each system below each work: {title}. The figures are in the \
             table below."
        ),
        table: spread_table(run, "Work", heads, &found, text),
        systems: systems_of(&found),
        svg,
    }))
}

/// All of a cell's rounds in one histogram.
fn latencies(cell: &Cell) -> Histogram {
    Histogram::merged(cell.measured().map(|one| &one.latency))
}

/// Percentiles of latency on an item, a line for each system.
pub fn percentiles(run: &Run, item: &Item) -> Result<Option<Figure>, DrawError> {
    let cell = |(nth, system): (usize, &crate::result::System)| {
        let found = latencies(run.cell(&system.name, &item.id)?);
        (found.count() > 0).then_some((nth, found))
    };
    let found: Vec<(usize, Histogram)> = run.systems.iter().enumerate().filter_map(cell).collect();
    if found.is_empty() {
        return Ok(None);
    }
    // A percentile that less than one request lies beyond says nothing.
    let shown =
        |histogram: &Histogram, share: f64| (1.0 - share) * histogram.count() as f64 >= 1.0 - 1e-9;
    let nines = |share: f64| -(1.0 - share).log10();
    let curves: Vec<Curve> = found
        .iter()
        .map(|(system, histogram)| {
            let point = |share: &f64| {
                let ns = histogram.quantile_ns(*share).filter(|_| shown(histogram, *share))?;
                let is_marked = TICKS.iter().any(|(tick, _)| tick == share);
                Some(Point { x: nines(*share), y: ns as f64, range: None, is_marked })
            };
            Curve { system: *system, points: SHARES.iter().filter_map(point).collect() }
        })
        .collect();
    let last = curves.iter().filter_map(|curve| curve.points.last()).map(|point| point.x);
    let last = last.fold(nines(0.5), f64::max);
    let ticks = TICKS.iter().map(|(share, text)| (nines(*share), (*text).to_owned()));
    // There is no room for words beside the first.
    let ticks = ticks.skip(1).filter(|(place, _)| *place <= last + 1e-9);
    let x = Axis::with_ticks("of requests are no slower", last, ticks.collect());
    let ys = curves.iter().flat_map(|curve| &curve.points).map(|point| point.y);
    let y = Axis::new("latency", Scale::Log, ys, number::time_ns);
    Ok(Some(Figure {
        title: run.label(item),
        says: String::new(),
        described: format!(
            "Percentiles of latency on a logarithmic axis, a line for each system: {}. The \
             figures are in the table below.",
            run.label(item)
        ),
        systems: found.iter().map(|(nth, _)| *nth).collect(),
        svg: curve::draw(&x, &y, &curves)?,
        table: percentile_table(run, &found, shown),
    }))
}

fn percentile_table(
    run: &Run,
    found: &[(usize, Histogram)],
    shown: impl Fn(&Histogram, f64) -> bool,
) -> Table {
    let value = |ns: Option<u64>| match ns {
        Some(ns) => Value::number(ns as f64, number::time_ns(ns as f64)),
        None => Value::absent(),
    };
    let row = |name: &str, ns: &dyn Fn(&Histogram) -> Option<u64>| {
        let values = found.iter().map(|(_, histogram)| value(ns(histogram)));
        Row { values: std::iter::once(Value::text(name)).chain(values).collect(), remark: None }
    };
    let mut rows: Vec<Row> = TICKS
        .iter()
        .map(|(share, name)| {
            row(name, &|one| one.quantile_ns(*share).filter(|_| shown(one, *share)))
        })
        .collect();
    rows.push(row("most", &|one| one.quantile_ns(1.0)));
    let names = found.iter().map(|(nth, _)| run.systems[*nth].name.as_str());
    Table { columns: columns("Share", names), rows, ..Table::default() }
}

/// Heat maps of an item: a system each, on one axis of latency.
pub fn heat_maps(run: &Run, item: &Item) -> Result<Vec<Figure>, DrawError> {
    let typical = |(nth, system): (usize, &crate::result::System)| {
        let (round, measured) = typical(run.cell(&system.name, &item.id)?)?;
        Some((nth, round, measured))
    };
    let found: Vec<(usize, usize, &Measured)> =
        run.systems.iter().enumerate().filter_map(typical).collect();
    let axis = Map::axis(found.iter().map(|(.., measured)| *measured));
    let mut figures = Vec::new();
    for (nth, round, measured) in found {
        let Some(map) = Map::of(measured, &axis) else { continue };
        let name = &run.systems[nth].name;
        figures.push(Figure {
            title: name.clone(),
            says: format!("Round {} of {}", round + 1, run.label(item)),
            described: format!(
                "Heat map of latency over time of {name}, {}: the figures of each second are in \
                 the table below.",
                run.label(item)
            ),
            systems: vec![nth],
            svg: map.draw()?,
            table: seconds(measured),
        });
    }
    Ok(figures)
}

/// The round with the median throughput, of those with a series; of an even number, the slower
/// one of the middle two.
fn typical(cell: &Cell) -> Option<(usize, &Measured)> {
    let rounds = cell.rounds.iter().enumerate();
    let rounds = rounds.filter_map(|(nth, round)| Some((nth, round.measured()?)));
    let mut rounds: Vec<(usize, &Measured)> =
        rounds.filter(|(_, measured)| !measured.series.is_empty()).collect();
    let rate = |measured: &Measured| measured.requests as f64 / measured.seconds;
    rounds.sort_by(|one, other| rate(one.1).total_cmp(&rate(other.1)));
    rounds.get(rounds.len().saturating_sub(1) / 2).copied()
}

/// More rows than this nobody reads: the maps stay whole, and the JSON has each second.
const SECONDS_MAX: usize = 300;

fn seconds(measured: &Measured) -> Table {
    let row = |second: &crate::result::Second| {
        let quantile = |share| match second.latency.quantile_ns(share) {
            Some(ns) => Value::number(ns as f64, number::time_ns(ns as f64)),
            None => Value::absent(),
        };
        let count = |count: u64| Value::number(count as f64, number::plain(count as f64));
        let at = format!("{:.0}", second.at);
        let figures = [count(second.requests), quantile(0.5), quantile(0.99), quantile(1.0)];
        let errors = Value::number(second.errors as f64, second.errors.to_string());
        let values = std::iter::once(Value::text(at)).chain(figures).chain([errors]);
        Row { values: values.collect(), remark: None }
    };
    let heads = ["Requests", "p50", "p99", "Most", "Errors"];
    let left_out = measured.series.len().saturating_sub(SECONDS_MAX);
    let note = format!("{left_out} more seconds are in the JSON.");
    Table {
        columns: columns("Second", heads.into_iter()),
        rows: measured.series.iter().take(SECONDS_MAX).map(row).collect(),
        notes: if left_out > 0 { vec![note] } else { Vec::new() },
        ..Table::default()
    }
}
