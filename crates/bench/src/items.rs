//! Resident memory per item: fresh processes filled with small items.

use crate::clock;
use crate::error::Error;
use crate::load::{Dataset, Limit, Loader, Requests};
use crate::process::resident_bytes;
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
        let before = resident_bytes(system.pid())?;
        let dataset = Dataset::strings("itm:", count, 64);
        let mut first = 0;
        while first < count {
            let requests = Requests::fill(dataset, kind.dialect(), first);
            let mut loader = Loader::connect(system.addr, 1, 100, &requests)?;
            loader.run(Limit::Requests(requests.count() as u64))?.check()?;
            first += requests.count() as u32;
        }
        clock::pause(SETTLE)?;
        let grown = resident_bytes(system.pid())?.saturating_sub(before);
        *figure = grown as f64 / f64::from(count);
    }
    Ok(figures)
}
