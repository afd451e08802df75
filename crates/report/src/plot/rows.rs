//! Rows: one figure for many works, a line for each system, from the least to the most with a
//! mark at the median.

use super::axis::Axis;
use super::{Area, DrawError, GRID, INK, WIDTH, anchored, colour, put_mark, svg};
use crate::statistics::Spread;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// A work, and what each system needed or did.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// The work's name.
    pub name: String,
    /// The system's place in the run, and its figures.
    pub systems: Vec<(usize, Spread)>,
}

const LINE: i32 = 44;
const GAP: i32 = 22;
const SIDE: i32 = 40;
const FOOT: i32 = 110;
/// Letters that fit above a band.
const NAME_LEN_MAX: usize = 46;

/// Draws the bands below each other; values are written behind their lines by `text`.
pub fn draw(x: &Axis, bands: &[Band], text: impl Fn(f64) -> String) -> Result<String, DrawError> {
    let height = |band: &Band| LINE * (1 + band.systems.len() as i32) + GAP;
    let sum: i32 = bands.iter().map(height).sum::<i32>() + FOOT;
    svg(sum.unsigned_abs(), |area| {
        grid(area, x, sum - FOOT)?;
        let mut top = 0;
        for band in bands {
            draw_band(area, x, band, top, &text)?;
            top += height(band);
        }
        Ok(())
    })
}

/// Where a value lies: room is left behind for what is written there.
fn across(x: &Axis, value: f64) -> i32 {
    let room = f64::from(WIDTH as i32 - 2 * SIDE - 150);
    SIDE + (x.share(value) * room).round() as i32
}

fn grid(area: &Area, x: &Axis, bottom: i32) -> Result<(), DrawError> {
    for (value, text) in &x.ticks {
        let at = across(x, *value);
        area.draw(&PathElement::new(vec![(at, 0), (at, bottom)], GRID.stroke_width(2)))?;
        let style = anchored(HPos::Center, VPos::Top);
        area.draw(&Text::new(text.clone(), (at, bottom + 10), style))?;
    }
    let ends = vec![(SIDE, bottom), (across(x, x.ticks.last().map_or(1.0, |tick| tick.0)), bottom)];
    area.draw(&PathElement::new(ends, INK.stroke_width(2)))?;
    let below = (WIDTH as i32 / 2, bottom + FOOT - 8);
    area.draw(&Text::new(x.label.clone(), below, anchored(HPos::Center, VPos::Bottom)))?;
    Ok(())
}

fn draw_band(
    area: &Area,
    x: &Axis,
    band: &Band,
    top: i32,
    text: impl Fn(f64) -> String,
) -> Result<(), DrawError> {
    let style = anchored(HPos::Left, VPos::Center);
    let name = cut(&band.name);
    area.draw(&Text::new(name, (SIDE + 8, top + LINE / 2), style.clone()))?;
    for (nth, (system, spread)) in band.systems.iter().enumerate() {
        let y = top + LINE * (nth as i32 + 1) + LINE / 2;
        let [least, middle, most] =
            [spread.min, spread.median, spread.max].map(|value| across(x, value));
        let colour = colour(*system);
        let start = vec![(SIDE, y), (middle, y)];
        area.draw(&PathElement::new(start, colour.stroke_width(3)))?;
        let ends = [(least, y - 7), (most, y + 7)];
        area.draw(&Rectangle::new(ends, colour.stroke_width(3)))?;
        put_mark(area, *system, (middle, y))?;
        area.draw(&Text::new(text(spread.median), (most + 22, y), style.clone()))?;
    }
    Ok(())
}

/// Names of works come from files and have any length.
fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME_LEN_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
