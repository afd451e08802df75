//! The fleet, in the form of the admin API and of metrics.

use keyway_control::{
    FleetStatus, GroupServerStatus, GroupStatus, LeaderStatus, MemberState, MemberStatus,
    PlanProgress, PlanStatus, RolloutPhase, RolloutStatus, ServingStatus, SlotsOfGroup,
    SlotsStatus, TallyStatus,
};
use keyway_fleet::{
    FleetView, GroupState, GroupView, MemberView, MoverProgress, Outcome, PlanView, RoleSeen,
    RolloutState, RolloutView, ServerView, Serving, SlotsView, Tally,
};
use keyway_metrics::{FleetFigures, GroupFigures};

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
        rollout: view.rollout.as_ref().filter(|it| it.is_active).map(|it| it.rollout.revision),
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
        serves: member.about.serves.iter().map(serving).collect(),
        in_share: member.is_in_share,
        saved: member.saved.map(|version| version.to_string()),
        running: member.running.map(|version| version.to_string()),
        refused: member.refused.as_ref().map(|one| format!("{}: {}", one.version, one.why)),
        silent_seconds: member.silent_for.filter(|_| leads).map(seconds),
        behind_seconds: member.behind_for.map(seconds),
    }
}

fn serving(one: &Serving) -> ServingStatus {
    let Serving { pool, protocol, address } = one.clone();
    ServingStatus { pool, protocol, address }
}

/// Returns a rollout for the API.
pub fn rollout(view: &RolloutView) -> RolloutStatus {
    let rollout = &view.rollout;
    let (phase, end) = match &rollout.state {
        RolloutState::Ended { outcome: Outcome::WentOn, end, .. } => {
            (RolloutPhase::WentOn, Some(*end))
        }
        RolloutState::Ended { outcome: Outcome::WentBack, end, .. } => {
            (RolloutPhase::WentBack, Some(*end))
        }
        _ if !view.is_active => (RolloutPhase::Superseded, None),
        RolloutState::Paused => (RolloutPhase::Paused, None),
        RolloutState::Watching => (RolloutPhase::Watching, None),
    };
    RolloutStatus {
        revision: rollout.revision,
        base: rollout.base,
        phase,
        percent: rollout.percent,
        chosen: rollout.chosen,
        started_unix_seconds: rollout.at,
        by: rollout.by.clone(),
        watch_seconds: rollout.watch_seconds,
        watched_seconds: view.watched_for.map(|time| time.as_secs()),
        end,
        says: view.says.clone(),
        share: tally(&view.share),
        rest: tally(&view.rest),
    }
}

fn tally(tally: &Tally) -> TallyStatus {
    let Tally { members, serving, requests, errors, p99_micros } = *tally;
    TallyStatus { members, serving, requests, errors, p99_ms: p99_micros / 1000.0 }
}

/// Returns the figures for metrics.
pub fn figures(
    view: &FleetView,
    (elections, coordinator_faults): (u64, u64),
    rollouts_ended: [u64; 2],
) -> FleetFigures {
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
        rolling_out: u64::from(view.rollout.as_ref().is_some_and(|rollout| rollout.is_active)),
        rollouts_ended,
        ..FleetFigures::default()
    }
}

/// Returns a group for the API.
pub fn group(view: &GroupView) -> GroupStatus {
    let group = view.group.as_ref();
    GroupStatus {
        pool: view.pool.clone(),
        state: view.state.name(),
        says: view.says(),
        state_seconds: view.since.map(|since| since.as_secs()),
        primary: group.map(|group| group.primary.clone()),
        next: group.and_then(|group| group.next()).map(str::to_owned),
        epoch: group.map_or(0, |group| group.epoch),
        decided_unix_seconds: group.map(|group| group.at),
        why: group.map(|group| group.why.clone()),
        servers: view.servers.iter().map(group_server).collect(),
    }
}

fn group_server(view: &ServerView) -> GroupServerStatus {
    let seen = &view.seen;
    let (role, follows, linked) = match &seen.role {
        None => ("unknown", None, false),
        Some(RoleSeen::Primary { .. }) => ("primary", None, false),
        Some(RoleSeen::Replica { of, is_linked, .. }) => ("replica", Some(of.clone()), *is_linked),
    };
    GroupServerStatus {
        server: seen.address.clone(),
        role,
        reached: seen.is_reached(),
        silent_seconds: seen.silent_ms.map(|ms| ms / 1000),
        follows,
        linked,
        offset: seen.offset(),
        lag_bytes: view.lag,
        observers: view.observers,
        down: view.down,
    }
}

/// Returns a pool whose slots may move, for the API.
pub fn slots(view: &SlotsView) -> SlotsStatus {
    let group = |name: &String| {
        let slots = view.owners.get(name).cloned().unwrap_or_default();
        SlotsOfGroup { group: name.clone(), count: slots.len(), slots }
    };
    // A group that has slots is shown even if the document has it no more.
    let strange = view.owners.keys().filter(|name| !view.groups.contains(name));
    SlotsStatus {
        pool: view.pool.clone(),
        slots: view.count,
        epoch: view.epoch,
        groups: view.groups.iter().chain(strange).map(group).collect(),
        plans: view.plans.iter().map(plan).collect(),
    }
}

fn plan(view: &PlanView) -> PlanStatus {
    let plan = &view.plan;
    PlanStatus {
        plan: plan.id,
        slots: plan.slots.clone(),
        from: plan.from.clone(),
        to: plan.to.clone(),
        step: plan.phase.word(),
        paused: plan.is_paused,
        over: plan.phase.is_over(),
        waits_for: view.waits_for.clone(),
        why: plan.why.clone(),
        by: plan.by.clone(),
        since_unix_seconds: plan.at,
        pace: plan.pace,
        progress: view.progress.as_ref().map(progress),
    }
}

fn progress(progress: &MoverProgress) -> PlanProgress {
    let MoverProgress { keys, keys_total, bytes, keys_per_second, behind, .. } = *progress;
    PlanProgress { keys, keys_total, bytes, keys_per_second, behind_bytes: behind }
}

/// Returns the figures of groups for metrics. A node that does not lead has none.
pub fn group_figures(views: &[GroupView]) -> Vec<GroupFigures> {
    let led = views.iter().filter(|view| !view.servers.is_empty());
    let figures = led.map(|view| {
        let primary = view.group.as_ref().map(|group| group.primary.as_str());
        let follows = |server: &&ServerView| match &server.seen.role {
            Some(RoleSeen::Replica { of, is_linked, .. }) => {
                server.seen.is_reached() && *is_linked && primary == Some(of.as_str())
            }
            _ => false,
        };
        let of_primary = view.servers.iter().find(|it| primary == Some(it.seen.address.as_str()));
        GroupFigures {
            pool: view.pool.clone(),
            states: GroupState::ALL.map(|(state, name)| (name, state == view.state)).to_vec(),
            epoch: view.group.as_ref().map_or(0, |group| group.epoch),
            replicas: view.servers.iter().filter(follows).count() as u64,
            down: of_primary.map_or(0, |server| u64::from(server.down)),
        }
    });
    figures.collect()
}
