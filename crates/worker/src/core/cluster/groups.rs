//! Primaries with replicas that are no cluster: who is the primary is asked of
//! sentinels, or of all servers where there are none.

use super::super::pools::PoolState;
use super::super::{Core, LinkIndex, Plane};
use super::discover::tell_changes;
use crate::{Plan, PoolKind};
use keyway_proxy::{Internal, LinkState};
use keyway_resp::Protocol;
use keyway_topology::{
    Discovery, Endpoint, GroupView, InfoReplication, NodeHealth, ViewError, WatchedPrimary,
    WatchedReplica,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was asked, in the order in which answers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// `SENTINEL MASTER`, of the primary of this number.
    Primary(u16),
    /// `SENTINEL REPLICAS`, of that primary.
    Replicas(u16),
    /// `INFO replication`, of the server at this place.
    Role(u16),
}

/// What was told so far of what was asked.
#[derive(Debug, Default)]
pub(super) struct Told {
    primary: Option<WatchedPrimary>,
    roles: BTreeMap<u16, InfoReplication>,
}

/// The pools of sentinels, each with the pool they are asked about.
pub(super) fn sentinels(plan: &Plan) -> BTreeMap<u16, u16> {
    let position = |name: &str| plan.pools.iter().position(|pool| pool.name == name);
    let of_pool = |(index, pool): (usize, &crate::PoolPlan)| match &pool.kind {
        PoolKind::Sharded { cluster: Some(cluster), .. } => {
            let name = cluster.settings().sentinels.as_deref()?;
            Some((position(name)? as u16, index as u16))
        }
        _ => None,
    };
    plan.pools.iter().enumerate().filter_map(of_pool).collect()
}

impl Core {
    /// Asks one sentinel about every primary of a pool. Returns whether there was one to
    /// ask.
    pub(super) fn ask_sentinel(&mut self, pool: u16) -> bool {
        let Some(index) = self.sentinel_to_ask(pool) else { return false };
        let Some(state) = self.plane.cluster_state(pool) else { return false };
        let names = state.shared.settings().primaries.clone();
        let mut questions = std::collections::VecDeque::new();
        for (group, name) in names.iter().enumerate() {
            let name = name.as_bytes();
            self.ask_server(index, &[b"SENTINEL", b"MASTER", name], Internal::Cluster);
            // The later word for it is not known before Redis 5.
            self.ask_server(index, &[b"SENTINEL", b"SLAVES", name], Internal::Cluster);
            questions.push_back(Question::Primary(group as u16));
            questions.push_back(Question::Replicas(group as u16));
        }
        self.plane.cluster.questions.insert(pool, questions);
        self.plane.cluster.told.insert(pool, Told::default());
        true
    }

    /// The link to a sentinel, one that stands rather than another; not always the same.
    fn sentinel_to_ask(&mut self, pool: u16) -> Option<LinkIndex> {
        let now = self.plane.clock.now;
        let drawn = self.plane.next_random() as usize;
        let sentinels = self.plane.cluster.sentinels.iter();
        let (&of, _) = sentinels.into_iter().find(|&(_, &about)| about == pool)?;
        let count = self.plane.plan.topology.pools()[usize::from(of)].servers().len();
        let PoolState::Sharded(state) = &self.plane.pools[usize::from(of)] else { return None };
        let link =
            |at: usize| state.link(((at + drawn % count) % count) as u16, 0, Protocol::Resp2);
        let links = || (0..count).map(link);
        let is_ready = |&index: &LinkIndex| self.links[index].link.state() == LinkState::Ready;
        let may_be = |&index: &LinkIndex| !self.links[index].link.is_down(now);
        links().find(is_ready).or_else(|| links().find(may_be))
    }

    /// Asks every server of a pool what it is. Returns whether there was one to ask.
    pub(super) fn ask_roles(&mut self, pool: u16) -> bool {
        let now = self.plane.clock.now;
        let PoolState::Sharded(state) = &self.plane.pools[usize::from(pool)] else { return false };
        let Some(cluster) = &state.cluster else { return false };
        let links: Vec<(u16, LinkIndex)> = cluster
            .map
            .nodes()
            .map(|(place, _)| (place, state.link(place, 0, Protocol::Resp2)))
            .filter(|&(_, index)| !self.links[index].link.is_down(now))
            .collect();
        let questions = links.iter().map(|&(place, _)| Question::Role(place)).collect();
        self.plane.cluster.questions.insert(pool, questions);
        self.plane.cluster.told.insert(pool, Told::default());
        for &(_, index) in &links {
            self.ask_server(index, &[b"INFO", b"replication"], Internal::Cluster);
        }
        !links.is_empty()
    }

    /// Hears what a sentinel, or a server itself, has said.
    pub(super) fn hear_group(&mut self, from: u16, place: u16, reply: &[u8]) {
        let pool = self.plane.asked_about(from);
        let Some(question) = self.plane.take_question(pool, place) else { return };
        let outcome = match question {
            Question::Primary(group) => self.hear_primary(pool, group, reply),
            Question::Replicas(group) => self.hear_replicas(pool, group, (from, place), reply),
            Question::Role(place) => self.hear_role(pool, place, reply),
        };
        if let Err(error) = outcome {
            self.tell_useless(pool, (from, place), &error);
            self.plane.cluster.questions.remove(&pool);
            return self.plane.note_unanswered(pool);
        }
        self.end_questions(pool);
    }

    /// A question was not answered.
    pub(super) fn miss_group(&mut self, from: u16) {
        let pool = self.plane.asked_about(from);
        let Some(questions) = self.plane.cluster.questions.get_mut(&pool) else { return };
        if from == pool {
            // Of all the servers that are asked, which one does not matter.
            questions.pop_front();
            return self.end_questions(pool);
        }
        self.plane.cluster.questions.remove(&pool);
        self.plane.note_unanswered(pool);
    }

    /// Goes by what was told once all is answered.
    fn end_questions(&mut self, pool: u16) {
        let is_over = self.plane.cluster.questions.get(&pool).is_some_and(|left| left.is_empty());
        if !is_over {
            return;
        }
        self.plane.cluster.questions.remove(&pool);
        let told = self.plane.cluster.told.remove(&pool).unwrap_or_default();
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let shared = Arc::clone(&state.shared);
        let now = self.plane.clock.now;
        if shared.settings().discovery == Discovery::Roles {
            match self.elect(pool, &told.roles) {
                Some(view) => self.learn_group(pool, &view),
                None => return self.plane.note_unanswered(pool),
            }
        }
        shared.note_answered(now, shared.settings().refresh);
    }

    fn hear_primary(&mut self, pool: u16, _group: u16, reply: &[u8]) -> Result<(), ViewError> {
        let primary = WatchedPrimary::from_primary(reply)?;
        if let Some(told) = self.plane.cluster.told.get_mut(&pool) {
            told.primary = Some(primary);
        }
        Ok(())
    }

    fn hear_replicas(
        &mut self,
        pool: u16,
        group: u16,
        (_from, _place): (u16, u16),
        reply: &[u8],
    ) -> Result<(), ViewError> {
        let replicas = WatchedReplica::from_replicas(reply)?;
        let told = self.plane.cluster.told.get_mut(&pool);
        let Some(primary) = told.and_then(|told| told.primary.take()) else { return Ok(()) };
        let view = GroupView {
            group,
            primary: primary.endpoint,
            epoch: primary.config_epoch,
            replicas: replicas.into_iter().map(replica).collect(),
        };
        self.learn_group(pool, &view);
        Ok(())
    }

    fn hear_role(&mut self, pool: u16, place: u16, reply: &[u8]) -> Result<(), ViewError> {
        let role = InfoReplication::from_reply(reply)?;
        if let Some(told) = self.plane.cluster.told.get_mut(&pool) {
            told.roles.insert(place, role);
        }
        Ok(())
    }

    fn learn_group(&mut self, pool: u16, view: &GroupView) {
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let (shared, before) = (Arc::clone(&state.shared), Arc::clone(&state.map));
        if let Some((map, left_out)) = shared.learn_group(view, self.plane.clock.now) {
            let name = &self.plane.plan.pools[usize::from(pool)].name;
            tell_changes(name, &before, &map, left_out);
        }
    }

    /// Which of the servers that have told what they are is the primary: of several that
    /// say so the one with most replicas, and rather the one that it was.
    fn elect(&self, pool: u16, roles: &BTreeMap<u16, InfoReplication>) -> Option<GroupView> {
        let map = &self.plane.cluster_state(pool)?.map;
        let endpoint = |place: u16| Some(map.node(usize::from(place))?.endpoint.clone());
        let primaries = roles.iter().filter(|(_, role)| !role.is_replica());
        let online =
            |role: &InfoReplication| role.replicas.iter().filter(|it| it.is_online).count();
        let (&primary, _) = primaries
            .max_by_key(|&(&place, role)| (online(role), map.is_serving(usize::from(place))))?;
        let others = map.nodes().filter(|&(place, _)| place != primary);
        let replicas = others.filter_map(|(place, node)| {
            let health = match roles.get(&place) {
                Some(role) if role.is_replica() => {
                    let is_linked = role.link.as_ref().is_some_and(|link| link.is_up);
                    if is_linked { NodeHealth::Online } else { NodeHealth::Failing }
                }
                Some(_) => NodeHealth::Failing,
                None => NodeHealth::Failed,
            };
            Some((node.endpoint.clone(), health))
        });
        let replicas = replicas.collect();
        Some(GroupView { group: 0, primary: endpoint(primary)?, epoch: None, replicas })
    }

    #[cold]
    fn tell_useless(&self, pool: u16, (from, place): (u16, u16), error: &ViewError) {
        if self.plane.plan.notices.cluster.is_due(self.plane.clock.now) {
            let plan = &self.plane.plan.pools;
            tracing::warn!(
                pool = plan[usize::from(pool)].name,
                backend = plan[usize::from(from)].kind.label(usize::from(place)),
                "what it says of the primary {error}; told at most once a minute"
            );
        }
    }
}

/// Where a replica is, and how it is.
fn replica(told: WatchedReplica) -> (Endpoint, NodeHealth) {
    let health = match (told.state.is_reached(), told.is_linked) {
        (false, _) => NodeHealth::Failed,
        (true, false) => NodeHealth::Failing,
        (true, true) => NodeHealth::Online,
    };
    (told.endpoint, health)
}

impl Plane {
    /// Whether what servers of a pool say is about a primary and its replicas.
    pub(super) fn hears_groups(&self, pool: u16) -> bool {
        let is_group = |state: &super::ClusterState| !state.has_slots();
        self.cluster.sentinels.contains_key(&pool) || self.cluster_state(pool).is_some_and(is_group)
    }

    /// The pool that servers are asked about: their own, or that of sentinels.
    fn asked_about(&self, pool: u16) -> u16 {
        self.cluster.sentinels.get(&pool).copied().unwrap_or(pool)
    }

    /// The question that the server at `place` has answered.
    fn take_question(&mut self, pool: u16, place: u16) -> Option<Question> {
        let questions = self.cluster.questions.get_mut(&pool)?;
        let is_it = |question: &Question| match *question {
            Question::Role(of) => of == place,
            Question::Primary(_) | Question::Replicas(_) => true,
        };
        let at = questions.iter().position(is_it)?;
        questions.remove(at)
    }
}
