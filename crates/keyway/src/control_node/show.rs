//! The fleet, in the form of the admin API and of metrics.

use keyway_control::{FleetStatus, LeaderStatus, MemberState, MemberStatus};
use keyway_fleet::{FleetView, MemberView};
use keyway_metrics::FleetFigures;

/// Returns the fleet for the API.
pub fn status(view: &FleetView) -> FleetStatus {
    let leader = view.leader.as_ref();
    let leads = leader.is_some_and(|leader| leader.is_me);
    FleetStatus {
        cluster: view.cluster.clone(),
        node: view.node.to_string(),
        leads,
        leader: leader.map(|leader| LeaderStatus {
            node: leader.fact.id().to_string(),
            epoch: leader.fact.epoch,
            admin: leader.fact.admin.clone(),
        }),
        revision: view.revision,
        published: view.published.map(|version| version.to_string()),
        fault: view.fault.clone(),
        members: view.members.iter().map(|member| member_status(member, leads)).collect(),
    }
}

fn state(member: &MemberView, leads: bool) -> MemberState {
    match member {
        _ if !leads => MemberState::Known,
        MemberView { silent_for: Some(_), .. } => MemberState::Silent,
        MemberView { is_ahead: true, .. } => MemberState::Ahead,
        MemberView { refused: Some(_), .. } => MemberState::Refused,
        MemberView { behind_for: Some(_), .. } => MemberState::Behind,
        _ => MemberState::Current,
    }
}

fn member_status(member: &MemberView, leads: bool) -> MemberStatus {
    let seconds = |time: std::time::Duration| time.as_secs();
    MemberStatus {
        id: member.id.to_string(),
        zone: member.id.zone(),
        state: state(member, leads),
        version: member.about.version.clone(),
        listeners: member.about.listeners.clone(),
        pools: member.about.pools.clone(),
        saved: member.saved.map(|version| version.to_string()),
        running: member.running.map(|version| version.to_string()),
        refused: member.refused.as_ref().map(|one| format!("{}: {}", one.version, one.why)),
        silent_seconds: member.silent_for.filter(|_| leads).map(seconds),
        behind_seconds: member.behind_for.map(seconds),
    }
}

/// Returns the figures for metrics.
pub fn figures(view: &FleetView, elections: u64, coordinator_faults: u64) -> FleetFigures {
    let leads = view.leader.as_ref().is_some_and(|leader| leader.is_me);
    let count = |wanted: MemberState| {
        view.members.iter().filter(|member| state(member, leads) == wanted).count() as u64
    };
    FleetFigures {
        leads,
        leader_epoch: view.leader.as_ref().map_or(0, |leader| leader.fact.epoch),
        document_revision: view.revision,
        members: MemberState::ALL.iter().map(|(state, name)| (*name, count(*state))).collect(),
        elections,
        coordinator_faults,
    }
}
