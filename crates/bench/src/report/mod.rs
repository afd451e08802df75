//! The results of a run, as tables for people and as JSON for programs.

mod json;
mod tables;

pub use json::to_json;
pub(crate) use tables::setting_lines;
pub use tables::{callgrind_markdown, comparison_markdown};

use keyway_report::Machine;

use crate::items::COUNTS;
use crate::memory::Memory;
use crate::rounds::RowResult;
use crate::session::Absent;
use crate::syscalls::Syscalls;

/// A figure for each system, or the text of a failure.
pub type BySystem<T> = Vec<(String, Result<T, String>)>;

/// Where and how figures were measured.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The machine.
    pub machine: Machine,
    /// The day, `YYYY-MM-DD`, UTC.
    pub date: String,
    /// The command that repeats it.
    pub command: String,
    /// Pairs of system and version.
    pub versions: Vec<(String, String)>,
}

/// All results of one comparison.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where and how it was measured.
    pub setting: Setting,
    /// Number of interleaved rounds for each row.
    pub rounds: usize,
    /// Number of runnable tasks (average of 1 minute) before the first and after the last
    /// measurement, as the kernel counts them.
    pub load_average: [Option<f64>; 2],
    /// The rows of all sides.
    pub rows: Vec<RowResult>,
    /// Systems that took no part.
    pub absent: Vec<Absent>,
    /// Memory by system.
    pub memory: BySystem<Memory>,
    /// System calls by system.
    pub syscalls: BySystem<Syscalls>,
    /// Bytes for an item by system, for each number of items.
    pub items: BySystem<[f64; COUNTS.len()]>,
}

impl Report {
    /// Returns every failure as text. A report with failures is no evidence.
    pub fn failures(&self) -> Vec<String> {
        let absent = self.absent.iter().filter(|absent| absent.is_failure);
        let absent = absent.map(|absent| format!("{}: {}", absent.name, absent.why));
        let rows = self.rows.iter().flat_map(|result| {
            let id = result.row.id;
            let failed = result
                .columns
                .iter()
                .filter_map(|column| Some((&column.name, column.failure.as_ref()?)));
            failed.map(move |(name, failure)| format!("{id}: {name}: {failure}"))
        });
        let memory = self.memory.iter().map(|(name, result)| (name, result.as_ref().err()));
        let syscalls = self.syscalls.iter().map(|(name, result)| (name, result.as_ref().err()));
        let items = self.items.iter().map(|(name, result)| (name, result.as_ref().err()));
        let others = memory
            .map(|(name, failure)| ("memory", name, failure))
            .chain(syscalls.map(|(name, failure)| ("syscalls", name, failure)))
            .chain(items.map(|(name, failure)| ("items", name, failure)))
            .filter_map(|(part, name, failure)| Some(format!("{part}: {name}: {}", failure?)));
        absent.chain(rows).chain(others).collect()
    }
}
