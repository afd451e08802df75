//! Measures the resident memory for each item, in fresh processes that are filled with small items.

use crate::clock;
use crate::error::Error;
use crate::load::Dataset;
use crate::systems::{Kind, Site};
use std::time::Duration;

/// Number of items that are written, one for each column.
pub const COUNTS: [u32; 2] = [1_000_000, 5_000_000];
/// How long a system has before its memory is read.
const SETTLE: Duration = Duration::from_secs(1);

/// Returns the resident bytes for each item of 16-byte keys and 64-byte values, for each of
/// [`COUNTS`]: the growth of the process, divided by the number of items.
///
/// # Errors
/// Returns an error if the process does not start or take the items.
pub fn measure_items(site: &Site<'_>, kind: Kind) -> Result<[f64; COUNTS.len()], Error> {
    let mut figures = [0.0; COUNTS.len()];
    for (figure, count) in figures.iter_mut().zip(COUNTS) {
        let system = site.start(kind)?;
        clock::pause(SETTLE)?;
        let before = system.resident_bytes()?;
        system.served.fill(Dataset::strings("itm:", count, 64))?;
        clock::pause(SETTLE)?;
        let grown = system.resident_bytes()?.saturating_sub(before);
        *figure = grown as f64 / f64::from(count);
    }
    Ok(figures)
}
