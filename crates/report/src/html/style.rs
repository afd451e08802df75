//! The page's style sheet: its own rules, and the plots' colours by day and by night.

use crate::plot::{GRID, HEAT, INK, SYSTEMS};
use plotters::style::RGBColor;
use std::fmt::Write;

/// [`SYSTEMS`] on a dark page.
const SYSTEMS_DARK: [&str; 8] =
    ["#56b4e9", "#ff8f4d", "#2fcf9f", "#e79ac6", "#f0d24a", "#c0c6cc", "#a5a8ff", "#ff7f8f"];
/// [`HEAT`] on a dark page: there, more is lighter.
const HEAT_DARK: [&str; 7] =
    ["#12304a", "#164768", "#1c628d", "#2f82b2", "#56a5d0", "#93cbe9", "#dcf1ff"];
const INK_DARK: &str = "#e6e9ec";
const GRID_DARK: &str = "#38424d";

/// All rules.
pub fn sheet() -> String {
    let mut out = include_str!("style.css").to_owned();
    let plain = [(INK, INK_DARK), (GRID, GRID_DARK)];
    let all = SYSTEMS.iter().copied().zip(SYSTEMS_DARK);
    let all = all.chain(HEAT.iter().copied().zip(HEAT_DARK)).chain(plain);
    for (nth, colour) in SYSTEMS.iter().enumerate() {
        let _ = writeln!(out, ".s{nth} {{ color: {}; }}", hex(*colour));
    }
    for (nth, colour) in HEAT.iter().enumerate() {
        let _ = writeln!(out, ".h{nth} {{ background: {}; }}", hex(*colour));
    }
    out.push_str("@media (prefers-color-scheme: dark) {\n");
    for (light, dark) in all {
        let light = hex(light);
        let _ = writeln!(out, ".plot [fill=\"{light}\"] {{ fill: {dark}; }}");
        let _ = writeln!(out, ".plot [stroke=\"{light}\"] {{ stroke: {dark}; }}");
    }
    for (nth, dark) in SYSTEMS_DARK.iter().enumerate() {
        let _ = writeln!(out, ".s{nth} {{ color: {dark}; }}");
    }
    for (nth, dark) in HEAT_DARK.iter().enumerate() {
        let _ = writeln!(out, ".h{nth} {{ background: {dark}; }}");
    }
    out.push_str("}\n");
    out
}

/// As plotters writes it.
fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrast of two colours as WCAG 2 has it, from 1 to 21.
    fn contrast(one: &str, other: &str) -> f64 {
        let light = |colour: &str| {
            let part = |at: usize| {
                let share = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
                if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
        };
        let (one, other) = (light(one), light(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn marks_are_seen_on_either_page() {
        for (light, dark) in SYSTEMS.iter().zip(SYSTEMS_DARK) {
            assert!(contrast(&hex(*light), "#ffffff") >= 4.5, "{}", hex(*light));
            assert!(contrast(dark, "#0f1419") >= 4.5, "{dark}");
        }
    }

    #[test]
    fn every_step_of_a_heat_map_is_further_from_the_page() {
        let lights: Vec<String> = HEAT.iter().map(|colour| hex(*colour)).collect();
        for (colours, page) in [
            (lights.iter().map(String::as_str).collect::<Vec<_>>(), "#ffffff"),
            (HEAT_DARK.to_vec(), "#0f1419"),
        ] {
            let steps: Vec<f64> = colours.iter().map(|colour| contrast(colour, page)).collect();
            assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
            assert!(steps[0] > 1.2, "{steps:?}");
        }
    }
}
