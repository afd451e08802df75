//! Curves: one figure against another, a line for each system.

use super::axis::Axis;
use super::{Area, DrawError, GRID, INK, LETTER, anchored, colour, put_mark, svg};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// A line: its system's place in the run, and its points in order of x.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Which system.
    pub system: usize,
    /// Its points.
    pub points: Vec<Point>,
}

/// A point, and from where to where its rounds lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// On the axis below.
    pub x: f64,
    /// On the axis to the left.
    pub y: f64,
    /// The least and the most.
    pub range: Option<(f64, f64)>,
    /// True if it has its system's mark; else the line only goes through it.
    pub is_marked: bool,
}

const HEIGHT: u32 = 640;
const LEFT: u32 = 150;
const BOTTOM: u32 = 100;
const TOP: u32 = 60;

/// Draws the curves.
pub fn draw(x: &Axis, y: &Axis, curves: &[Curve]) -> Result<String, DrawError> {
    svg(HEIGHT, |area| on(area, x, y, curves))
}

fn on(area: &Area, x: &Axis, y: &Axis, curves: &[Curve]) -> Result<(), DrawError> {
    let mut chart = ChartBuilder::on(area)
        .margin_right(76)
        .margin_top(TOP)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(2))
        .axis_style(INK.stroke_width(2))
        .label_style(super::font())
        .set_all_tick_mark_size(8)
        .x_labels(x.ticks.len().max(1))
        .y_labels(y.ticks.len().max(1))
        .draw()?;
    area.draw(&Text::new(y.label.clone(), (0, 4), anchored(HPos::Left, VPos::Top)))?;
    let below = (super::WIDTH as i32 / 2 + LEFT as i32 / 2, HEIGHT as i32 - 4);
    area.draw(&Text::new(x.label.clone(), below, anchored(HPos::Center, VPos::Bottom)))?;
    for curve in curves {
        let style = colour(curve.system).stroke_width(5);
        let places = curve.points.iter().map(|point| (point.x, point.y));
        chart.draw_series(std::iter::once(PathElement::new(places.collect::<Vec<_>>(), style)))?;
        for point in &curve.points {
            let at = |value: f64| chart.backend_coord(&(point.x, value));
            if let Some((least, most)) = point.range {
                whisker(area, curve.system, at(least), at(most))?;
            }
            if point.is_marked {
                put_mark(area, curve.system, at(point.y))?;
            }
        }
    }
    Ok(())
}

/// A line from the least to the most, with ends across.
fn whisker(
    area: &Area,
    system: usize,
    least: (i32, i32),
    most: (i32, i32),
) -> Result<(), DrawError> {
    let style = colour(system).stroke_width(3);
    let across = LETTER as i32 / 4;
    area.draw(&PathElement::new(vec![least, most], style))?;
    for (x, y) in [least, most] {
        area.draw(&PathElement::new(vec![(x - across, y), (x + across, y)], style))?;
    }
    Ok(())
}
