//! The figures of a measurement, and their series over the rounds of a cell.

use crate::number;
use crate::result::{Cell, Measured, Process, Role};
use crate::statistics::Spread;

/// A figure that runs are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Requests a second.
    Throughput,
    /// Requests for a second of the tested processes' processor time.
    PerCpuSecond,
    /// The latency that half of the requests do not exceed, in nanoseconds.
    Half,
    /// The same of 99 of 100.
    P99,
    /// The same of 999 of 1000.
    P999,
    /// The most memory that the tested processes had resident, in bytes.
    Resident,
}

impl Metric {
    /// Those that runs are compared by.
    pub const ALL: [Metric; 6] = [
        Metric::Throughput,
        Metric::PerCpuSecond,
        Metric::Half,
        Metric::P99,
        Metric::P999,
        Metric::Resident,
    ];

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Throughput => "requests/s",
            Metric::PerCpuSecond => "requests/CPU-s",
            Metric::Half => "p50",
            Metric::P99 => "p99",
            Metric::P999 => "p99.9",
            Metric::Resident => "memory",
        }
    }

    /// Returns whether more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Metric::Throughput | Metric::PerCpuSecond)
    }

    /// Its value in one measurement; none when it was not measured.
    pub fn of(self, measured: &Measured) -> Option<f64> {
        let quantile = |share| measured.latency.quantile_ns(share).map(|ns| ns as f64);
        match self {
            Metric::Throughput => Some(measured.requests as f64 / measured.seconds),
            Metric::PerCpuSecond => measured.per_cpu_second(),
            Metric::Half => quantile(0.5),
            Metric::P99 => quantile(0.99),
            Metric::P999 => quantile(0.999),
            Metric::Resident => measured.resident_bytes(Role::Tested),
        }
    }

    /// As people read it.
    pub fn text(self, value: f64) -> String {
        match self {
            Metric::Throughput | Metric::PerCpuSecond => number::plain(value),
            Metric::Half | Metric::P99 | Metric::P999 => number::time_ns(value),
            Metric::Resident => number::bytes(value),
        }
    }
}

impl Process {
    /// User and system time together, as well as they are known.
    pub fn all_cpu_seconds(&self) -> f64 {
        self.cpu_seconds.unwrap_or(self.user_seconds + self.system_seconds)
    }
}

impl Measured {
    /// Processes of a role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(move |one| one.role == role)
    }

    /// Their processor time in percent of one core; none when there are none.
    pub fn cpu_percent(&self, role: Role) -> Option<f64> {
        self.sum_of(role, |one| one.all_cpu_seconds() / self.seconds * 100.0)
    }

    /// The most memory that they had resident.
    pub fn resident_bytes(&self, role: Role) -> Option<f64> {
        self.sum_of(role, |one| one.resident_bytes as f64).filter(|bytes| *bytes > 0.0)
    }

    /// Their context switches, a second.
    pub fn context_switches(&self, role: Role) -> Option<f64> {
        self.sum_of(role, |one| one.context_switches as f64 / self.seconds)
    }

    /// What all processes used, in percent of one core.
    pub fn cpu_percent_of_all(&self) -> Option<f64> {
        let sum: f64 = self.processes.iter().map(Process::all_cpu_seconds).sum();
        (!self.processes.is_empty()).then(|| sum / self.seconds * 100.0)
    }

    fn sum_of(&self, role: Role, figure: impl Fn(&Process) -> f64) -> Option<f64> {
        let mut all = self.of_role(role).map(figure).peekable();
        all.peek()?;
        Some(all.sum())
    }

    /// Requests for a second of the tested processes' processor time.
    pub fn per_cpu_second(&self) -> Option<f64> {
        let cpu = self.sum_of(Role::Tested, Process::all_cpu_seconds)?;
        (cpu > 0.0).then(|| self.requests as f64 / cpu)
    }

    /// The tested processes' processor time for a request, in nanoseconds.
    pub fn cpu_ns_per_request(&self) -> Option<f64> {
        let cpu = self.sum_of(Role::Tested, Process::all_cpu_seconds)?;
        (self.requests > 0).then(|| cpu * 1e9 / self.requests as f64)
    }

    /// All failures, those that verification found among them.
    pub fn failures(&self) -> u64 {
        let wrong = self.verified.unwrap_or_default();
        let found = [wrong.wrong, wrong.stale, wrong.missing];
        let all = self.errors.values().chain(&found);
        all.fold(0, |sum: u64, one| sum.saturating_add(*one))
    }
}

/// A figure of a cell, by round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// One for each round; none where it failed or has no such figure.
    pub rounds: Vec<Option<f64>>,
}

impl Figures {
    /// `figure` of every round of `cell`.
    pub fn of(cell: &Cell, figure: impl Fn(&Measured) -> Option<f64>) -> Figures {
        let rounds = cell.rounds.iter().map(|round| figure(round.measured()?));
        Figures { rounds: rounds.collect() }
    }

    /// Those that are there.
    pub fn known(&self) -> Vec<f64> {
        self.rounds.iter().flatten().copied().collect()
    }

    /// Their spread.
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(self.known())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let process = |name: &str, role, user_seconds, system_seconds| Process {
            name: name.to_owned(),
            role,
            user_seconds,
            system_seconds,
            cpu_seconds: None,
            resident_bytes: 1 << 20,
            context_switches: 100,
        };
        Measured {
            seconds: 2.0,
            requests: 100_000,
            processes: vec![
                process("proxy", Role::Tested, 0.5, 0.5),
                process("redis", Role::Backend, 0.25, 0.0),
                process("redis", Role::Backend, 0.25, 0.0),
                process("load", Role::Load, 0.5, 1.0),
            ],
            ..Measured::default()
        }
    }

    #[test]
    fn processor_time_is_of_one_core_and_only_the_tested_ones_are_divided_by() {
        let measured = measured();
        assert_eq!(measured.cpu_percent(Role::Tested), Some(50.0));
        assert_eq!(measured.cpu_percent(Role::Backend), Some(25.0));
        assert_eq!(measured.cpu_percent_of_all(), Some(150.0));
        assert_eq!(measured.per_cpu_second(), Some(100_000.0));
        assert_eq!(measured.cpu_ns_per_request(), Some(10_000.0));
        assert_eq!(measured.context_switches(Role::Backend), Some(100.0));
    }

    #[test]
    fn what_was_not_measured_is_not_nought() {
        let unseen = Measured { processes: Vec::new(), ..measured() };
        assert_eq!(unseen.cpu_percent(Role::Tested), None);
        assert_eq!(unseen.per_cpu_second(), None);
        assert_eq!(Metric::Half.of(&unseen), None);
        assert_eq!(Metric::Throughput.of(&unseen), Some(50_000.0));
    }
}
