//! Resident memory per item: fresh processes filled with small items.

use crate::clock;
use crate::error::Error;
use crate::load::Dataset;
use crate::systems::{Kind, Site};
use std::time::Duration;

/// How many items are written, one column each.
pub const COUNTS: [u32; 2] = [1_000_000, 5_000_000];
/// How long a system has before its memory is read.
const SETTLE: Duration = Duration::from_secs(1);

/// Resident bytes per item of 16-byte keys and 64-byte values, for each of
/// [`COUNTS`]: what the process grew by, divided.
///
/// # Errors
/// Whatever keeps the process from starting or taking the items.
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
