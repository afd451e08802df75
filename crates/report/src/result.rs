//! What a run is, as it is written to a file: JSON, with the names of the fields below.
//!
//! Times are seconds as numbers with a fraction, or nanoseconds where a name says so; lengths are
//! bytes; times of day are text in UTC as RFC 3339 has it. A field that is left out has its
//! empty value. A reader ignores fields that it does not know, so new ones may be added; what
//! changes the meaning of old ones needs another [`VERSION`].

use crate::histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What [`Run::format`] says.
pub const FORMAT: &str = "keyway-bench";

/// The version of this schema.
pub const VERSION: u32 = 1;

/// A benchmark, from its start to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`]: tells such a file from other JSON.
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The name of the scenario, which says how its table looks: `codis-vs-twemproxy`,
    /// `twemproxy-memcached`, `cluster-proxies`, `aerospike-cache`, `atbus` or any other.
    pub scenario: String,
    /// The same for people.
    #[serde(default)]
    pub title: String,
    /// What was typed.
    #[serde(default)]
    pub command: String,
    /// When it began.
    #[serde(default)]
    pub started: String,
    /// Where it ran.
    #[serde(default)]
    pub machine: Machine,
    /// What holds for all of it: scale, seconds of each measurement, seed.
    #[serde(default)]
    pub parameters: BTreeMap<String, Scalar>,
    /// What was measured, in the order of the table.
    pub systems: Vec<System>,
    /// The system that the others' ratios are to; without one the first that was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// The system that a digest compares the others with as well, where the baseline has no
    /// processor time of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// What each system was asked to do, in the order of the table.
    pub items: Vec<Item>,
    /// The measurements: at most one for each system and item.
    pub cells: Vec<Cell>,
    /// True if it was ended before all was measured.
    #[serde(default)]
    pub interrupted: bool,
    /// What a reader should know: how far the work was scaled down, what was left out.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The model of its processor.
    #[serde(default)]
    pub cpu: String,
    /// How many cores the run could use.
    #[serde(default)]
    pub cores: u32,
    /// Its memory.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its kernel's name and release.
    #[serde(default)]
    pub kernel: String,
}

/// One of the systems that are laid side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Its name, unique in the run.
    pub name: String,
    /// What it says its version is.
    #[serde(default)]
    pub version: String,
    /// What started it: a command, or the address it was found at.
    #[serde(default)]
    pub started_by: String,
    /// Why it was not measured, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// One work that every system is asked to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Its name, unique in the run and the same in every run of the scenario.
    pub id: String,
    /// The same for people.
    #[serde(default)]
    pub title: String,
    /// Items of a group share a table.
    #[serde(default)]
    pub group: String,
    /// What tells it from others: `connections`, `threads`, `pipeline`, `command`,
    /// `value_bytes`, `read_write`, `packet_len`, `nodes`.
    #[serde(default)]
    pub parameters: BTreeMap<String, Scalar>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// yes or no
    Flag(bool),
    /// A number.
    Number(f64),
    /// Anything else.
    Text(String),
}

/// What one system did on one item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// [`System::name`].
    pub system: String,
    /// [`Item::id`].
    pub item: String,
    /// One for each round, in order: the n-th rounds of all systems lie beside each other.
    pub rounds: Vec<Round>,
}

/// One measurement of a cell, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Round {
    /// It was measured.
    Measured(Box<Measured>),
    /// It was tried and failed: the reason.
    Failed(String),
}

/// What the load generator and the system say of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How long it took, without warm-up.
    pub seconds: f64,
    /// Requests that were answered without an error. Rates count these.
    pub requests: u64,
    /// Bytes sent to the system.
    #[serde(default)]
    pub bytes_sent: u64,
    /// Bytes it sent.
    #[serde(default)]
    pub bytes_received: u64,
    /// Failures by kind: error replies, lost connections, time-outs.
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    /// Replies by kind: stored, not_found, value.
    #[serde(default)]
    pub replies: BTreeMap<String, u64>,
    /// From the time a request was due to the end of its reply, for replies without an error.
    pub latency: Histogram,
    /// Connections opened while it was measured, if that is part of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connects: Option<Connects>,
    /// What processes used meanwhile.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// The machine's load average over one minute, at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Second by second.
    #[serde(default)]
    pub series: Vec<Second>,
    /// What looking at the values found, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
}

/// Connections, for work that opens them over and over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connects {
    /// How many were opened.
    pub count: u64,
    /// From a connection's start to its end.
    #[serde(default)]
    pub lifetime: Histogram,
    /// From the call that connects until it stands.
    #[serde(default)]
    pub connect: Histogram,
}

/// Whose processor time it is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The system's own: this is what requests per CPU-second are divided by.
    #[default]
    Tested,
    /// Servers behind it.
    Backend,
    /// The load generator's.
    Load,
}

/// What a group of processes used during a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// What it is called: `proxy`, `redis`, `sender`.
    pub name: String,
    /// Whose it is.
    pub role: Role,
    /// Processor time outside the kernel.
    pub user_seconds: f64,
    /// Processor time in the kernel.
    pub system_seconds: f64,
    /// Both, where they are known better than the kernel's ticks of 10 ms tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// The most memory that was resident.
    #[serde(default)]
    pub resident_bytes: u64,
    /// Context switches, of its own will or not.
    #[serde(default)]
    pub context_switches: u64,
}

/// One second of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// When it ended, since the measurement's start.
    pub at: f64,
    /// Requests answered in it.
    pub requests: u64,
    /// Errors among them.
    #[serde(default)]
    pub errors: u64,
    /// Their latencies.
    pub latency: Histogram,
}

/// What looking at the values found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Values that were looked at.
    pub checked: u64,
    /// Values of another key, or changed.
    pub wrong: u64,
    /// Older values than one that was acknowledged.
    pub stale: u64,
    /// Values that should have been there.
    pub missing: u64,
}

impl Run {
    /// What the systems' ratios are to: [`Run::baseline`], or else the first system that was
    /// there.
    pub fn baseline(&self) -> Option<&str> {
        let first = || self.systems.iter().find(|one| one.missing.is_none());
        self.baseline.as_deref().or_else(|| first().map(|one| one.name.as_str()))
    }

    /// What `system` did on `item`.
    pub fn cell(&self, system: &str, item: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.system == system && cell.item == item)
    }

    /// An item's name; behind it the parameters that tell it from others of that name.
    pub fn label(&self, item: &Item) -> String {
        let name = item.name();
        let others = || self.items.iter().filter(|one| one.id != item.id && one.name() == name);
        let differs = |name: &String, value: &Scalar| {
            others().any(|other| other.parameters.get(name) != Some(value))
        };
        let own = item.parameters.iter().filter(|(name, value)| differs(name, value));
        let own = own.map(|(name, value)| value.told(name));
        std::iter::once(name.to_owned()).chain(own).collect::<Vec<_>>().join(", ")
    }

    /// The title, or the scenario's name where there is none.
    pub fn heading(&self) -> &str {
        if self.title.is_empty() { &self.scenario } else { &self.title }
    }
}

impl Item {
    /// The title, or the id where there is none.
    pub fn name(&self) -> &str {
        if self.title.is_empty() { &self.id } else { &self.title }
    }

    /// The parameter as a number; none when it is left out or is text.
    pub fn number(&self, parameter: &str) -> Option<f64> {
        match self.parameters.get(parameter)? {
            Scalar::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The parameter for a table; empty when it is left out.
    pub fn text(&self, parameter: &str) -> String {
        self.parameters.get(parameter).map(ToString::to_string).unwrap_or_default()
    }
}

impl Cell {
    /// The rounds that were measured.
    pub fn measured(&self) -> impl Iterator<Item = &Measured> {
        self.rounds.iter().filter_map(Round::measured)
    }

    /// Why the first round that failed did so.
    pub fn failure(&self) -> Option<&str> {
        self.rounds.iter().find_map(|round| match round {
            Round::Failed(why) => Some(why.as_str()),
            Round::Measured(_) => None,
        })
    }
}

impl Round {
    /// The measurement, if there is one.
    pub fn measured(&self) -> Option<&Measured> {
        match self {
            Round::Measured(measured) => Some(measured),
            Round::Failed(_) => None,
        }
    }
}

impl Scalar {
    /// With the parameter's name: `pipeline 75`. Text speaks for itself.
    pub(crate) fn told(&self, name: &str) -> String {
        match self {
            Scalar::Text(text) => text.clone(),
            _ => format!("{} {self}", name.replace('_', " ")),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Flag(flag) => f.write_str(if *flag { "yes" } else { "no" }),
            Scalar::Number(number) => number.fmt(f),
            Scalar::Text(text) => f.write_str(text),
        }
    }
}
