//! Plots as SVG, drawn by plotters.
//!
//! Every colour is one of the constants here, as it is on a light page; a page's style sheet
//! gives them other values by that in the dark (`svg [fill="#0072B2"]`), since plotters writes
//! colours as attributes, which any rule outranks. Lengths are in units of a drawing that is
//! [`WIDTH`] wide; letters of [`LETTER`] are 11 pixels high on a phone and 16 on a desk, since
//! plotters writes sizes 1.24 times smaller than they are given.

pub mod axis;
pub mod curve;
pub mod heat;
pub mod rows;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// How wide a plot is.
pub const WIDTH: u32 = 1000;
/// How high letters are.
pub const LETTER: u32 = 42;

/// Text and axes.
pub const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
/// Lines behind the figures.
pub const GRID: RGBColor = RGBColor(0xd9, 0xdd, 0xe2);
/// Systems, in their order; tried with simulations of the common kinds of colour blindness, and
/// each has a mark of its own besides.
pub const SYSTEMS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xc4, 0x4e, 0x00),
    RGBColor(0x00, 0x82, 0x5f),
    RGBColor(0xa8, 0x48, 0x8a),
    RGBColor(0x8f, 0x6b, 0x00),
    RGBColor(0x4b, 0x4b, 0x4b),
    RGBColor(0x3b, 0x3f, 0xa8),
    RGBColor(0xa3, 0x1f, 0x34),
];
/// The marks of systems, as letters for legends.
pub const MARKS: [&str; 8] = ["●", "▲", "■", "◆", "✕", "▼", "✚", "○"];
/// Few requests to many, in a heat map: from the page's own colour to its opposite, in one hue.
pub const HEAT: [RGBColor; 7] = [
    RGBColor(0xd6, 0xe8, 0xf7),
    RGBColor(0xb0, 0xd2, 0xee),
    RGBColor(0x83, 0xb7, 0xe0),
    RGBColor(0x54, 0x98, 0xcc),
    RGBColor(0x2d, 0x77, 0xb1),
    RGBColor(0x12, 0x56, 0x8e),
    RGBColor(0x06, 0x33, 0x5f),
];

/// A plot could not be drawn; nothing that is read from a file makes this happen.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw a plot: {0}")]
pub struct DrawError(String);

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for DrawError {
    fn from(error: DrawingAreaErrorKind<E>) -> DrawError {
        DrawError(error.to_string())
    }
}

/// What is drawn on.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws on an area of [`WIDTH`] and `height`; gives the SVG.
fn svg(
    height: u32,
    draw: impl FnOnce(&Area) -> Result<(), DrawError>,
) -> Result<String, DrawError> {
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, (WIDTH, height)).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    Ok(out)
}

fn font<'a>() -> TextStyle<'a> {
    TextStyle::from(("sans-serif", LETTER).into_font()).color(&INK)
}

fn anchored<'a>(h: HPos, v: VPos) -> TextStyle<'a> {
    font().pos(Pos::new(h, v))
}

/// The colour of the nth system.
pub fn colour(nth: usize) -> RGBColor {
    SYSTEMS[nth % SYSTEMS.len()]
}

/// The mark of the nth system, around the place it is put at: as [`MARKS`] has it.
fn mark(nth: usize) -> (Vec<(i32, i32)>, bool) {
    const R: i32 = 11;
    match nth % MARKS.len() {
        1 => (vec![(0, -R - 2), (R + 2, R), (-R - 2, R)], true),
        2 => (vec![(-R, -R), (R, -R), (R, R), (-R, R)], true),
        3 => (vec![(0, -R - 4), (R + 4, 0), (0, R + 4), (-R - 4, 0)], true),
        4 => (star(R, true), true),
        5 => (vec![(0, R + 2), (R + 2, -R), (-R - 2, -R)], true),
        6 => (star(R, false), true),
        7 => (round(R), false),
        _ => (round(R), true),
    }
}

/// A cross of two bars, upright or not.
fn star(r: i32, is_tilted: bool) -> Vec<(i32, i32)> {
    let bar = 4;
    let upright = [
        (-bar, -r),
        (bar, -r),
        (bar, -bar),
        (r, -bar),
        (r, bar),
        (bar, bar),
        (bar, r),
        (-bar, r),
        (-bar, bar),
        (-r, bar),
        (-r, -bar),
        (-bar, -bar),
    ];
    let turn = |(x, y): (i32, i32)| ((x - y) * 7 / 10, (x + y) * 7 / 10);
    upright.into_iter().map(|place| if is_tilted { turn(place) } else { place }).collect()
}

fn round(r: i32) -> Vec<(i32, i32)> {
    let corner = |nth: u32| {
        let angle = f64::from(nth) * std::f64::consts::TAU / 16.0;
        ((angle.cos() * f64::from(r)).round() as i32, (angle.sin() * f64::from(r)).round() as i32)
    };
    (0..16).map(corner).collect()
}

/// Draws the mark of the nth system at a place in the drawing.
fn put_mark(area: &Area, nth: usize, (x, y): (i32, i32)) -> Result<(), DrawError> {
    let (corners, is_full) = mark(nth);
    let corners: Vec<(i32, i32)> = corners.into_iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
    match is_full {
        true => area.draw(&Polygon::new(corners, colour(nth).filled()))?,
        false => {
            let closed: Vec<(i32, i32)> = corners.iter().chain(corners.first()).copied().collect();
            area.draw(&PathElement::new(closed, colour(nth).stroke_width(4)))?;
        }
    }
    Ok(())
}
