//! The metrics of a control node, and their exposition. They stand beside those of its node of the
//! bus.

use crate::catalogue::*;
use crate::exposition::family;

/// The figures of a control node. The fields have the names of the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the catalogue says what each is")]
pub struct FleetFigures {
    pub leads: bool,
    pub leader_epoch: u64,
    pub document_revision: u64,
    /// Members by state, with every state that exists.
    pub members: Vec<(&'static str, u64)>,
    pub elections: u64,
    pub coordinator_faults: u64,
    pub rolling_out: u64,
    /// Rollouts that went on, and those that went back.
    pub rollouts_ended: [u64; 2],
    /// Groups of servers, if this node leads.
    pub groups: Vec<GroupFigures>,
    /// Fail-overs by themselves, and by order.
    pub failovers: [u64; 2],
    pub audit_entry: u64,
    pub audit_is_tampered: bool,
    pub events_kept: u64,
    pub events_dropped: u64,
}

/// The figures of a group of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the catalogue says what each is")]
pub struct GroupFigures {
    pub pool: String,
    /// Every state that exists, and whether the group is in it.
    pub states: Vec<(&'static str, bool)>,
    pub epoch: u64,
    pub replicas: u64,
    pub down: u64,
}

/// Appends the metrics in the Prometheus text format.
pub fn write_fleet(figures: &FleetFigures, out: &mut String) {
    let mut one = |metric, value: u64| family(out, metric).sample(&[], value);
    one(&FLEET_LEADING, u64::from(figures.leads));
    one(&FLEET_EPOCH, figures.leader_epoch);
    one(&FLEET_REVISION, figures.document_revision);
    one(&FLEET_ELECTIONS, figures.elections);
    one(&FLEET_FAULTS, figures.coordinator_faults);
    one(&FLEET_ROLLING_OUT, figures.rolling_out);
    one(&FLEET_AUDIT_ENTRY, figures.audit_entry);
    one(&FLEET_AUDIT_TAMPERED, u64::from(figures.audit_is_tampered));
    one(&FLEET_EVENTS, figures.events_kept);
    one(&FLEET_EVENTS_DROPPED, figures.events_dropped);
    let mut rollouts = family(out, &FLEET_ROLLOUTS);
    for (result, count) in ["went-on", "went-back"].iter().zip(figures.rollouts_ended) {
        rollouts.sample(&[result], count);
    }
    let mut failovers = family(out, &FLEET_FAILOVERS);
    for (reason, count) in ["primary-down", "order"].iter().zip(figures.failovers) {
        failovers.sample(&[reason], count);
    }
    let mut states = family(out, &GROUP_STATE);
    for group in &figures.groups {
        for (state, is_it) in &group.states {
            states.sample(&[&group.pool, state], u64::from(*is_it));
        }
    }
    let mut of_groups = |metric, value: fn(&GroupFigures) -> u64| {
        let mut family = family(out, metric);
        for group in &figures.groups {
            family.sample(&[&group.pool], value(group));
        }
    };
    of_groups(&GROUP_EPOCH, |group| group.epoch);
    of_groups(&GROUP_REPLICAS, |group| group.replicas);
    of_groups(&GROUP_DOWN, |group| group.down);
    let mut members = family(out, &FLEET_MEMBERS);
    for (state, count) in &figures.members {
        members.sample(&[state], *count);
    }
}
