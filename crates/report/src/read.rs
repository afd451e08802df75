//! Reading and writing results. A file may come from anywhere: what cannot be a result is
//! refused, with the place in the file, before anything is computed from it.

use crate::histogram::Histogram;
use crate::result::{
    Cell, FORMAT, Item, Measured, Process, Round, Run, Scalar, Second, System, VERSION,
};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::path::Path;
use thiserror::Error;

/// Longer files are refused. Ten minutes of an hour's cells, second by second, are some 20 MB.
pub const FILE_LEN_MAX: u64 = 256 << 20;
/// More than any table that a human reads.
const SYSTEMS_MAX: usize = 64;
const ITEMS_MAX: usize = 1000;
const CELLS_MAX: usize = 10_000;
const ROUNDS_MAX: usize = 1000;
/// A day of seconds.
const SERIES_MAX: usize = 86_400;
/// A histogram with three digits from a nanosecond to an hour has fewer buckets.
const BUCKETS_MAX: usize = 100_000;
const TEXT_LEN_MAX: usize = 4096;
const ENTRIES_MAX: usize = 256;
/// Ten years: what is larger was not measured, and would make plots of nothing but it.
const SECONDS_MAX: f64 = 3.2e8;
const COUNT_MAX: u64 = 1 << 53;

/// Why a file is no result.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It cannot be read or written.
    #[error("cannot {what} {path}: {why}")]
    Io {
        /// read or write
        what: &'static str,
        /// The file.
        path: String,
        /// What the system says.
        why: std::io::Error,
    },
    /// It is longer than [`FILE_LEN_MAX`].
    #[error("{path} is longer than {} MiB, which no result of a benchmark is", FILE_LEN_MAX >> 20)]
    Long {
        /// The file.
        path: String,
    },
    /// It is JSON of something else, or no JSON.
    #[error("{path} is no result of keyway bench: {why}; write one with --json")]
    Foreign {
        /// The file.
        path: String,
        /// What was expected.
        why: String,
    },
    /// It is of another version.
    #[error(
        "{path} has version {found} of the results' schema and this keyway reads version {VERSION}: \
         {}", if *found > VERSION { "use a newer keyway" } else { "run the benchmark again" }
    )]
    Version {
        /// The file.
        path: String,
        /// Its version.
        found: u32,
    },
    /// A value in it cannot be.
    #[error("{path}: {at}: {why}")]
    Value {
        /// The file.
        path: String,
        /// Where, as `cells[2].rounds[0]`.
        at: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Reads and checks a file.
///
/// # Errors
/// When it cannot be read or is no result; the text says why.
pub fn read(path: &Path) -> Result<Run, ReadError> {
    read_slice(&read_bytes(path)?, &path.display().to_string())
}

/// The bytes of a file that may be a result: not more than [`FILE_LEN_MAX`].
///
/// # Errors
/// When it cannot be read or is longer.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, ReadError> {
    let shown = path.display().to_string();
    let failed = |why| ReadError::Io { what: "read", path: shown.clone(), why };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > FILE_LEN_MAX {
        true => Err(ReadError::Long { path: shown }),
        false => Ok(bytes),
    }
}

/// What tells a result from other JSON, and its version: looked at before all else.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    format: String,
    version: Option<u32>,
}

/// The same from bytes; `path` is for errors.
///
/// # Errors
/// When they are no result.
pub fn read_slice(bytes: &[u8], path: &str) -> Result<Run, ReadError> {
    let foreign = |why: String| ReadError::Foreign { path: path.to_owned(), why };
    let head: Head = serde_json::from_slice(bytes).map_err(|error| {
        foreign(match error.is_data() {
            true => "its \"format\" or \"version\" has the wrong type".to_owned(),
            false => format!("it is no JSON: line {}", error.line().max(1)),
        })
    })?;
    if head.format != FORMAT {
        return Err(foreign(format!("its \"format\" is not \"{FORMAT}\"")));
    }
    let found = head.version.ok_or_else(|| foreign("it has no \"version\"".to_owned()))?;
    if found != VERSION {
        return Err(ReadError::Version { path: path.to_owned(), found });
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let run: Run = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (at, why) = (error.path().to_string(), error.into_inner().to_string());
        ReadError::Value { path: path.to_owned(), at, why }
    })?;
    check(&run).map_err(|(at, why)| ReadError::Value { path: path.to_owned(), at, why })?;
    Ok(run)
}

/// Writes a result: beside the file first, so that an interrupted write leaves the old one.
///
/// # Errors
/// When it cannot be written, or a value in it could not be read back.
pub fn write(run: &Run, path: &Path) -> Result<(), ReadError> {
    let shown = path.display().to_string();
    check(run).map_err(|(at, why)| ReadError::Value { path: shown.clone(), at, why })?;
    let failed = |why| ReadError::Io { what: "write", path: shown.clone(), why };
    let mut json = serde_json::to_vec(run)
        .map_err(|error| failed(std::io::Error::new(ErrorKind::InvalidData, error)))?;
    json.push(b'\n');
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, json).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}

/// Where something is wrong, and what.
type Fault = (String, String);

fn fault(at: impl Into<String>, why: impl Into<String>) -> Fault {
    (at.into(), why.into())
}

/// Returns whether the values of `run` can be.
///
/// # Errors
/// The first that cannot: where it is, and what is wrong with it.
pub fn check(run: &Run) -> Result<(), Fault> {
    head(run)?;
    let systems = names("systems", SYSTEMS_MAX, run.systems.iter().map(|one| &one.name))?;
    let items = names("items", ITEMS_MAX, run.items.iter().map(|one| &one.id))?;
    for (nth, one) in run.systems.iter().enumerate() {
        system(one).map_err(|(at, why)| fault(format!("systems[{nth}].{at}"), why))?;
    }
    for (nth, one) in run.items.iter().enumerate() {
        item(one).map_err(|(at, why)| fault(format!("items[{nth}].{at}"), why))?;
    }
    for (place, name) in [("baseline", &run.baseline), ("peer", &run.peer)] {
        if let Some(name) = name.as_deref().filter(|name| !systems.contains(name)) {
            return Err(fault(place, format!("there is no system {name:?}")));
        }
    }
    length("cells", run.cells.len(), CELLS_MAX)?;
    let mut seen = BTreeSet::new();
    for (nth, one) in run.cells.iter().enumerate() {
        let at = |within: &str| format!("cells[{nth}]{within}");
        if !systems.contains(one.system.as_str()) {
            return Err(fault(at(".system"), format!("there is no system {:?}", one.system)));
        }
        if !items.contains(one.item.as_str()) {
            return Err(fault(at(".item"), format!("there is no item {:?}", one.item)));
        }
        if !seen.insert((&one.system, &one.item)) {
            return Err(fault(at(""), "this system has a cell for this item already"));
        }
        cell(one).map_err(|(within, why)| fault(at(&within), why))?;
    }
    Ok(())
}

fn head(run: &Run) -> Result<(), Fault> {
    if run.format != FORMAT || run.version != VERSION {
        return Err(fault("format", format!("it is not {FORMAT:?} of version {VERSION}")));
    }
    let machine = &run.machine;
    let texts = [
        ("scenario", &run.scenario),
        ("title", &run.title),
        ("command", &run.command),
        ("started", &run.started),
        ("machine.cpu", &machine.cpu),
        ("machine.kernel", &machine.kernel),
    ];
    texts.into_iter().try_for_each(|(at, value)| text(at, value))?;
    length("notes", run.notes.len(), ENTRIES_MAX)?;
    run.notes.iter().try_for_each(|note| text("notes", note))?;
    parameters(&run.parameters)?;
    count("machine.memory_bytes", machine.memory_bytes)
}

fn names<'a>(
    at: &str,
    max: usize,
    all: impl Iterator<Item = &'a String>,
) -> Result<BTreeSet<&'a str>, Fault> {
    let mut seen = BTreeSet::new();
    for (nth, name) in all.enumerate() {
        length(at, nth + 1, max)?;
        text(&format!("{at}[{nth}]"), name)?;
        if name.is_empty() {
            return Err(fault(format!("{at}[{nth}]"), "it has no name"));
        }
        if !seen.insert(name.as_str()) {
            return Err(fault(format!("{at}[{nth}]"), format!("{name:?} is there twice")));
        }
    }
    Ok(seen)
}

fn system(system: &System) -> Result<(), Fault> {
    text("version", &system.version)?;
    text("started_by", &system.started_by)?;
    text("missing", system.missing.as_deref().unwrap_or_default())
}

fn item(item: &Item) -> Result<(), Fault> {
    text("title", &item.title)?;
    text("group", &item.group)?;
    parameters(&item.parameters)
}

fn parameters(all: &std::collections::BTreeMap<String, Scalar>) -> Result<(), Fault> {
    length("parameters", all.len(), ENTRIES_MAX)?;
    for (name, value) in all {
        text("parameters", name)?;
        match value {
            Scalar::Text(value) => text(&format!("parameters.{name}"), value)?,
            Scalar::Number(value) if !value.is_finite() => {
                return Err(fault(format!("parameters.{name}"), "it is no number"));
            }
            Scalar::Number(_) | Scalar::Flag(_) => {}
        }
    }
    Ok(())
}

fn cell(cell: &Cell) -> Result<(), Fault> {
    length(".rounds", cell.rounds.len(), ROUNDS_MAX)?;
    for (nth, round) in cell.rounds.iter().enumerate() {
        let found = match round {
            Round::Measured(one) => measured(one),
            Round::Failed(why) => text("failed", why),
        };
        found.map_err(|(at, why)| fault(format!(".rounds[{nth}].{at}"), why))?;
    }
    Ok(())
}

fn measured(one: &Measured) -> Result<(), Fault> {
    seconds("seconds", one.seconds)?;
    if one.seconds <= 0.0 {
        return Err(fault("seconds", "a measurement takes some time"));
    }
    count("requests", one.requests)?;
    count("bytes_sent", one.bytes_sent)?;
    count("bytes_received", one.bytes_received)?;
    counts("errors", &one.errors)?;
    counts("replies", &one.replies)?;
    histogram(&one.latency).map_err(|(at, why)| fault(format!("latency.{at}"), why))?;
    if let Some(connects) = &one.connects {
        count("connects.count", connects.count)?;
        for (name, one) in [("lifetime", &connects.lifetime), ("connect", &connects.connect)] {
            let found = histogram(one);
            found.map_err(|(at, why)| fault(format!("connects.{name}.{at}"), why))?;
        }
    }
    length("processes", one.processes.len(), ENTRIES_MAX)?;
    one.processes.iter().try_for_each(process)?;
    seconds("load_average", one.load_average.unwrap_or_default())?;
    series(&one.series)?;
    let verified = one.verified.unwrap_or_default();
    [verified.checked, verified.wrong, verified.stale, verified.missing]
        .into_iter()
        .try_for_each(|found| count("verified", found))
}

fn process(one: &Process) -> Result<(), Fault> {
    text("processes", &one.name)?;
    seconds("processes.user_seconds", one.user_seconds)?;
    seconds("processes.system_seconds", one.system_seconds)?;
    seconds("processes.cpu_seconds", one.cpu_seconds.unwrap_or_default())?;
    count("processes.resident_bytes", one.resident_bytes)?;
    count("processes.context_switches", one.context_switches)
}

fn series(all: &[Second]) -> Result<(), Fault> {
    length("series", all.len(), SERIES_MAX)?;
    let mut before = 0.0;
    for (nth, one) in all.iter().enumerate() {
        let at = |within: &str| format!("series[{nth}].{within}");
        seconds(&at("at"), one.at)?;
        if one.at <= before {
            return Err(fault(at("at"), "it is not after the one before"));
        }
        before = one.at;
        count(&at("requests"), one.requests)?;
        count(&at("errors"), one.errors)?;
        histogram(&one.latency).map_err(|(within, why)| fault(at(&within), why))?;
    }
    Ok(())
}

fn histogram(histogram: &Histogram) -> Result<(), Fault> {
    length("buckets_ns", histogram.buckets_ns.len(), BUCKETS_MAX)?;
    let (mut before, mut sum) = (None, 0_u64);
    for &(upper, found) in &histogram.buckets_ns {
        if before >= Some(upper) {
            return Err(fault("buckets_ns", "the buckets do not ascend"));
        }
        before = Some(upper);
        count("buckets_ns", found)?;
        sum = sum.saturating_add(found);
        count("buckets_ns", sum)?;
        seconds("buckets_ns", upper as f64 / 1e9)?;
    }
    seconds("min_ns", histogram.min_ns as f64 / 1e9)?;
    seconds("max_ns", histogram.max_ns as f64 / 1e9)?;
    let most = before.unwrap_or_default().max(histogram.max_ns) as f64 * sum as f64;
    if !(0.0..=most * 1.01).contains(&histogram.sum_ns) {
        return Err(fault("sum_ns", "it is no sum of the values in the buckets"));
    }
    Ok(())
}

fn counts(at: &str, all: &std::collections::BTreeMap<String, u64>) -> Result<(), Fault> {
    length(at, all.len(), ENTRIES_MAX)?;
    all.iter().try_for_each(|(name, value)| {
        text(at, name)?;
        count(&format!("{at}.{name}"), *value)
    })
}

fn count(at: &str, value: u64) -> Result<(), Fault> {
    if value <= COUNT_MAX { Ok(()) } else { Err(fault(at, format!("{value} is no count"))) }
}

fn seconds(at: &str, value: f64) -> Result<(), Fault> {
    if (0.0..=SECONDS_MAX).contains(&value) {
        return Ok(());
    }
    Err(fault(at, format!("{value} was never measured: 0 to {SECONDS_MAX:e} can be")))
}

/// Text goes to terminals and pages: no escape may ride along.
fn text(at: &str, value: &str) -> Result<(), Fault> {
    length(at, value.len(), TEXT_LEN_MAX)?;
    if value.chars().any(char::is_control) {
        return Err(fault(at, "it has a control character"));
    }
    Ok(())
}

fn length(at: &str, len: usize, max: usize) -> Result<(), Fault> {
    if len <= max { Ok(()) } else { Err(fault(at, format!("it has more than {max} entries"))) }
}
