//! Measures the control plane: how fast a change reaches many members, and what that costs control.
//!
//! A real `keyway control` runs over files of this host. The members run in this process: each has
//! the machine of a proxy (`keyway_fleet::Member`) and a node of the bus with a connection of its
//! own. They serve no clients, save into memory, and apply at once. So the figures are those of
//! control, of the bus and of the kernel's TCP, without the disks and pools of proxies.

mod control;
mod crowd;
mod loss;

pub use loss::INSIDE;

use std::fmt::Write;
use std::time::Duration;

use keyway_channel::clock;
use keyway_fleet::limits::{MEMBERS_EVERY, MEMBERS_PER_WRITE};
use keyway_load::resident_bytes;

use crate::clock::{now, pause, wait_until};
use crate::error::Error;
use crate::options::Options;
use control::Control;
use crowd::Crowd;

/// Longest time until all members are on the bus, and until all have a change.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for the reports about a change, before the next one.
const BETWEEN: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(30);
const REST_QUICK: Duration = Duration::from_secs(3);
/// Changes with `--quick`.
const CHANGES_QUICK: u64 = 3;

/// The figures of one number of members.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Number of members.
    pub members: usize,
    /// Time from the start of the first member until control has a report of each.
    pub joined: Duration,
    /// For each change and member, the time from the request to the moment at which the member has
    /// saved the document; in milliseconds, ascending.
    pub arrived_ms: Vec<f64>,
    /// Time until the request was answered, for each change; in milliseconds, ascending.
    pub answered_ms: Vec<f64>,
    /// Processor time of control at rest, as a share of a core.
    pub rest_share: f64,
    /// Reports that control had from all members in a second, at rest.
    pub rest_reports: f64,
    /// Processor time of control for a change, its reports included.
    pub change_cpu: Duration,
    /// Processor time of control while it writes the entries of all members after the changes, as a
    /// share of a core.
    pub entries_share: f64,
    /// Resident memory of control at the end, in bytes.
    pub resident: u64,
    /// Connections that members have lost.
    pub lost: u64,
}

/// Measures each number of members. Returns the text to print.
///
/// # Errors
/// Returns an error if control does not start or answer, or if a change does not reach all members
/// within a minute.
pub fn measure_fleet(options: &Options) -> Result<String, Error> {
    if options.loss > 0.0 && !options.is_inside {
        return Err(loss::enter());
    }
    if options.loss > 0.0 {
        loss::prepare()?;
    }
    let mut out = String::new();
    for (nth, members) in options.members.iter().enumerate() {
        let control = Control::start(&options.programs, *members, options.has_group)?;
        if options.loss > 0.0 {
            loss::begin(control.bus_port(), options.loss)?;
        }
        let changes = if options.quick { CHANGES_QUICK } else { options.changes };
        let rest = if options.quick { REST_QUICK } else { REST };
        let figures = measure(control, *members, changes, rest)?;
        if nth == 0 {
            out += &heading(options, changes);
        }
        out += &row(&figures);
    }
    Ok(out)
}

/// Measures one number of members over a control node that has no document yet.
///
/// # Errors
/// Returns the errors of [`measure_fleet`].
fn measure(
    mut control: Control,
    members: usize,
    changes: u64,
    rest: Duration,
) -> Result<Figures, Error> {
    let begun = clock();
    let crowd = Crowd::start(members, &control.site())?;
    await_all(&crowd, "a report to control", &mut control, |crowd| crowd.known())?;
    let joined = crowd.last_known().since(begun);
    // The first document is another than the changes: before it members have nothing to report.
    control.apply()?;
    let revision = control.revision();
    await_all(&crowd, "the first document", &mut control, |crowd| crowd.at(revision))?;
    settle(members)?;
    let (rest_share, rest_reports) = at_rest(&control, &crowd, rest)?;
    let before = control.cpu()?;
    let (mut arrived_ms, mut answered_ms) = (Vec::new(), Vec::new());
    for _ in 0..changes {
        let asked = control.prepare()?;
        let begun = clock();
        control.send(asked)?;
        answered_ms.push(milliseconds(clock().since(begun)));
        let revision = control.revision();
        await_all(&crowd, "a change", &mut control, |crowd| crowd.at(revision))?;
        arrived_ms.extend(crowd.saved().map(|at| milliseconds(at.since(begun))));
        pause(BETWEEN)?;
    }
    let after = control.cpu()?;
    let change_cpu = (after - before) / u32::try_from(changes.max(1)).unwrap_or(u32::MAX);
    let (cpu, writing) = (control.cpu()?, now());
    settle(members)?;
    let entries_share = share(control.cpu()? - cpu, writing.elapsed());
    arrived_ms.sort_by(f64::total_cmp);
    answered_ms.sort_by(f64::total_cmp);
    Ok(Figures {
        members,
        joined,
        arrived_ms,
        answered_ms,
        rest_share,
        rest_reports,
        change_cpu,
        entries_share,
        resident: resident_bytes(control.pid()).unwrap_or_default(),
        lost: crowd.lost(),
    })
}

/// Waits until all members are that far.
fn await_all(
    crowd: &Crowd,
    what: &str,
    control: &mut Control,
    count: impl Fn(&Crowd) -> usize,
) -> Result<(), Error> {
    let is_done = wait_until(PATIENCE, || {
        control.check()?;
        crowd.check()?;
        Ok(count(crowd) == crowd.len())
    })?;
    match is_done {
        true => Ok(()),
        false => {
            let (some, all, within) = (count(crowd), crowd.len(), PATIENCE.as_secs());
            Err(Error::Load(format!("{what}: {some} of {all} members within {within} s")))
        }
    }
}

/// Waits until control has written the entries of all members. It writes some of them each second.
fn settle(members: usize) -> Result<(), Error> {
    let writes = u32::try_from(members.div_ceil(MEMBERS_PER_WRITE)).unwrap_or(u32::MAX);
    pause(MEMBERS_EVERY.saturating_mul(writes + 2))
}

/// Returns the processor time of control as a share of a core, and the reports in a second.
fn at_rest(control: &Control, crowd: &Crowd, length: Duration) -> Result<(f64, f64), Error> {
    let (cpu, reports, begun) = (control.cpu()?, crowd.reports(), now());
    pause(length)?;
    let took = begun.elapsed();
    let reports = crowd.reports().saturating_sub(reports) as f64 / took.as_secs_f64();
    Ok((share(control.cpu()? - cpu, took), reports))
}

fn share(cpu: Duration, of: Duration) -> f64 {
    cpu.as_secs_f64() / of.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

fn heading(options: &Options, changes: u64) -> String {
    let document = control::document(0);
    let mut out = format!("- `{}`, {}", options.command(), crate::clock::today());
    if let Some(load) = keyway_scenario::load_average() {
        let _ = write!(out, ", load average {load:.1} at the end");
    }
    let _ = writeln!(
        out,
        "\n- {changes} changes of a document of {} servers, {:.1} KiB; {}",
        control::SERVERS,
        document.len() as f64 / 1024.0,
        if options.has_group { "one group of two servers" } else { "no group" }
    );
    out += "\n| members | all on the bus | change at a member: median | p99 | worst | answered: \
            median | control at rest | reports/s | CPU of a change | while entries are written | \
            resident | lost connections |\n\
            |---|---|---|---|---|---|---|---|---|---|---|---|\n";
    out
}

fn row(figures: &Figures) -> String {
    let at = |share| percentile(&figures.arrived_ms, share);
    format!(
        "| {} | {:.2} s | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms | {:.1} % | {:.0} | {:.0} ms | \
         {:.1} % | {:.1} MiB | {} |\n",
        figures.members,
        figures.joined.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
        percentile(&figures.answered_ms, 0.5),
        figures.rest_share * 100.0,
        figures.rest_reports,
        milliseconds(figures.change_cpu),
        figures.entries_share * 100.0,
        figures.resident as f64 / f64::from(1 << 20),
        figures.lost
    )
}

/// Returns the least value that this share of the ascending values does not exceed; 0 without any.
fn percentile(ascending: &[f64], share: f64) -> f64 {
    let rank = (ascending.len() as f64 * share).ceil() as usize;
    ascending.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let at = |share| percentile(&values, share);
        assert_eq!([at(0.0), at(0.5), at(0.99), at(1.0)], [1.0, 100.0, 198.0, 200.0]);
        assert_eq!([percentile(&[], 0.5), percentile(&[7.0], 0.99)], [0.0, 7.0]);
    }
}
