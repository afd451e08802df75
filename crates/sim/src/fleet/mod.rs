//! Fleets: control nodes, members and a coordinator, on virtual time, with faults.
//!
//! The machines are those that ship ([`Leader`], [`Member`]). The coordinator, the bus and the disks
//! are simulated. A seed decides everything: who is killed at which step, what is lost, doubled and
//! late, who hangs and still believes to lead, and when the coordinator comes back from a backup.

mod audit;
mod clock;
mod engine;
mod groups;
mod people;
mod rollouts;
mod sight;
mod world;

use std::fmt;

/// The events of a run, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetReport {
    /// Times that a control node began to lead.
    pub elections: u64,
    /// Documents that were answered as stored.
    pub documents: u64,
    /// Orders whose outcome was not known.
    pub unknown: u64,
    /// Publications that members refused.
    pub refusals: u64,
    /// Control nodes and members that were killed.
    pub kills: u64,
    /// Times that two nodes believed to lead.
    pub rivals: u64,
    /// Times that the coordinator was restored from a backup.
    pub restores: u64,
    /// Rollouts that have begun.
    pub rollouts: u64,
    /// The rollouts that went on to all members.
    pub went_on: u64,
    /// The rollouts that went back.
    pub went_back: u64,
    /// Times that another primary was decided.
    pub failovers: u64,
    /// The part of these that operators have ordered.
    pub switches: u64,
    /// Groups that were forgotten, as the document lacked their pool.
    pub forgotten: u64,
    /// Orders to fail over that were carried out while all servers of another pool were dead.
    pub beside: u64,
    /// Entries of the audit log.
    pub audited: u64,
    /// The entries of refused requests.
    pub refused: u64,
    /// Events of members that control nodes have taken.
    pub events: u64,
}

impl fmt::Display for FleetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FleetReport { elections, documents, unknown, refusals, kills, rivals, .. } = self;
        let FleetReport { restores, rollouts, went_on, went_back, failovers, switches, .. } = self;
        let FleetReport { forgotten, beside, audited, refused, events, .. } = self;
        write!(
            f,
            "{elections} elections, {documents} documents, {unknown} unknown, {refusals} refusals, \
             {kills} kills, {rivals} rivals, {restores} restored backups, {rollouts} rollouts, \
             {went_on} went on, {went_back} went back, {failovers} fail-overs, {switches} by hand, \
             {forgotten} groups forgotten, {beside} orders beside a dead pool, \
             {audited} audited, {refused} of them refused, {events} events"
        )
    }
}

impl FleetReport {
    fn add(&mut self, other: &FleetReport) {
        self.elections += other.elections;
        self.documents += other.documents;
        self.unknown += other.unknown;
        self.refusals += other.refusals;
        self.kills += other.kills;
        self.rivals += other.rivals;
        self.restores += other.restores;
        self.rollouts += other.rollouts;
        self.went_on += other.went_on;
        self.went_back += other.went_back;
        self.failovers += other.failovers;
        self.switches += other.switches;
        self.forgotten += other.forgotten;
        self.beside += other.beside;
        self.audited += other.audited;
        self.refused += other.refused;
        self.events += other.events;
    }
}

/// Runs one seed.
///
/// # Errors
/// Returns the law that was broken, with what happened before if `has_story`.
pub fn run_fleet(seed: u64, has_story: bool) -> Result<FleetReport, String> {
    let mut report = world::World::new(seed, has_story).run()?;
    report.add(&groups::GroupsWorld::new(seed, has_story).run()?);
    Ok(report)
}

/// Runs many seeds. Returns the sum of what happened, and every violation.
pub fn run_many_fleets(from: u64, seeds: u64) -> (FleetReport, Vec<String>) {
    let (mut total, mut violations) = (FleetReport::default(), Vec::new());
    for seed in from..from + seeds {
        match run_fleet(seed, false) {
            Ok(report) => total.add(&report),
            Err(violation) => violations.push(violation),
        }
    }
    (total, violations)
}
