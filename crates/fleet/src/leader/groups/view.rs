//! Groups, for people.

use super::Leader;
use crate::groups::{Group, GroupSettings, Phase, RoleSeen, ServerSeen};
use keyway_base::Time;
use std::fmt;
use std::time::Duration;

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupState {
    /// The primary answers, and a replica follows it.
    Healthy,
    /// The primary answers, and no replica follows it.
    NoReplica,
    /// The primary does not answer this node, and the observers do not agree that it is down.
    PrimarySilent,
    /// The observers agree that the primary is down, and no replica can become it.
    PrimaryDown,
    /// Another primary is decided, and has not told yet that it is one; or it is handed over.
    FailingOver,
    /// No primary is decided: none of the servers says that it is one, or several do, or one does
    /// not answer.
    Undecided,
    /// Members have a decision that the coordinator does not know: the coordinator went back.
    Ahead,
    /// This node does not lead, or has not asked the servers yet.
    Unknown,
}

impl GroupState {
    /// All states, with their names.
    pub const ALL: [(GroupState, &'static str); 8] = [
        (GroupState::Healthy, "healthy"),
        (GroupState::NoReplica, "no-replica"),
        (GroupState::PrimarySilent, "primary-silent"),
        (GroupState::PrimaryDown, "primary-down"),
        (GroupState::FailingOver, "failing-over"),
        (GroupState::Undecided, "undecided"),
        (GroupState::Ahead, "ahead"),
        (GroupState::Unknown, "unknown"),
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        let mut all = GroupState::ALL.iter();
        all.find(|(state, _)| *state == self).map_or("unknown", |(_, name)| name)
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GroupState::Healthy => "the primary answers, and a replica follows it",
            GroupState::NoReplica => "the primary has no replica: its data is on one server alone",
            GroupState::PrimarySilent => {
                "the primary does not answer control as one, and the observers do not agree that it is down"
            }
            GroupState::PrimaryDown => {
                "the primary is down, and no replica that answers can become the primary"
            }
            GroupState::FailingOver => "a fail-over is going on",
            GroupState::Undecided => {
                "no primary is decided: exactly one server must say that it is the primary, and all \
                 must answer; or name one by keyway ctl failover POOL --to HOST:PORT"
            }
            GroupState::Ahead => {
                "proxies have a decision that the coordinator does not know: the coordinator went \
                 back, as after a restored backup; name the primary by keyway ctl failover POOL \
                 --to HOST:PORT"
            }
            GroupState::Unknown => "not known yet",
        })
    }
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The name of its pool.
    pub pool: String,
    /// Its state.
    pub state: GroupState,
    /// The reason why a fail-over does not go on, if there is one.
    pub fault: Option<String>,
    /// For how long it is in this state.
    pub since: Option<Duration>,
    /// The decision, if there is one.
    pub group: Option<Group>,
    /// Its servers, in the order of the document.
    pub servers: Vec<ServerView>,
}

/// A server of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// The server, as this node sees it.
    pub seen: ServerSeen,
    /// Bytes of the primary's stream that it lacks, if that is known.
    pub lag: Option<u64>,
    /// Observers with a fresh view of it, this node included.
    pub observers: u32,
    /// Observers for which it is down.
    pub down: u32,
}

impl GroupView {
    /// Returns the state in words, with the reason why a fail-over does not go on.
    pub fn says(&self) -> String {
        match (&self.fault, self.state) {
            (None, state) => state.to_string(),
            // The replicas are not the reason.
            (Some(fault), GroupState::PrimaryDown) => format!("the primary is down: {fault}"),
            (Some(fault), state) => format!("{state}: {fault}"),
        }
    }
}

impl Leader {
    /// Returns the groups, in the order of their pools. A node that does not lead knows the
    /// decisions alone.
    pub fn group_views(&self, now: Time) -> Vec<GroupView> {
        match &self.groups.settings {
            Some(settings) => settings.values().map(|one| self.group_view(one, now)).collect(),
            None => {
                let stored = self.stored_groups();
                let view = |(pool, group): (&str, Group)| GroupView {
                    pool: pool.to_owned(),
                    state: GroupState::Unknown,
                    fault: None,
                    since: None,
                    group: Some(group),
                    servers: Vec::new(),
                };
                stored.map(view).collect()
            }
        }
    }

    fn group_view(&self, settings: &GroupSettings, now: Time) -> GroupView {
        let pool = &settings.pool;
        let state = self.group_state(settings, now);
        let known = self.groups.states.get(pool).filter(|(known, _)| *known == state);
        let group = self.group(pool);
        let seen = self.own_view(pool, now);
        let primary = group.as_ref().and_then(|group| seen?.server(&group.primary)?.offset());
        let server = |address: &String| {
            let unknown = ServerSeen { address: address.clone(), silent_ms: Some(0), role: None };
            let seen = seen.and_then(|seen| seen.server(address)).cloned().unwrap_or(unknown);
            let verdict = self.verdict_of(settings, address, now);
            let lag = primary.zip(seen.offset()).map(|(all, own)| all.saturating_sub(own));
            ServerView { seen, lag, observers: verdict.observers, down: verdict.down }
        };
        let unwritten = || {
            let fault = self.fault.as_ref().filter(|_| state != GroupState::Healthy);
            fault.map(|fault| format!("decisions cannot be written: {fault}"))
        };
        let refused = self.groups.refused.get(pool).filter(|_| state == GroupState::FailingOver);
        GroupView {
            pool: pool.clone(),
            fault: unwritten().or_else(|| refused.cloned()),
            state,
            since: known.map(|(_, since)| now.since(*since)),
            servers: settings.servers.iter().map(server).collect(),
            group,
        }
    }

    pub(super) fn group_state(&self, settings: &GroupSettings, now: Time) -> GroupState {
        let pool = &settings.pool;
        let Some(seen) = self.own_view(pool, now) else { return GroupState::Unknown };
        if self.is_ahead(pool) {
            return GroupState::Ahead;
        }
        let group = self.group(pool).filter(|group| settings.servers.contains(&group.primary));
        let Some(group) = group else { return GroupState::Undecided };
        if group.phase != Phase::Settled {
            return GroupState::FailingOver;
        }
        if self.verdict_of(settings, &group.primary, now).is_down {
            return GroupState::PrimaryDown;
        }
        if !seen.server(&group.primary).is_some_and(|server| server.is_primary()) {
            return GroupState::PrimarySilent;
        }
        let follows = |server: &&ServerSeen| {
            let of_it = |of: &String| *of == group.primary;
            let role = server.role.as_ref().filter(|_| server.is_reached());
            matches!(role, Some(RoleSeen::Replica { of, is_linked: true, .. }) if of_it(of))
        };
        match seen.servers.iter().any(|server| follows(&server)) {
            true => GroupState::Healthy,
            false => GroupState::NoReplica,
        }
    }
}
