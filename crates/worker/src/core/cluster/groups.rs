//! Primaries with replicas that are no cluster: who is the primary is asked of
//! sentinels, or of all servers where there are none.

use super::super::pools::PoolState;
use super::super::{Core, LinkIndex, Plane};
use super::discover::tell_changes;
use crate::{Plan, PoolKind};
use keyway_proxy::Internal;
use keyway_resp::Protocol;
use keyway_topology::{
    Discovery, Endpoint, GroupView, InfoReplication, NodeHealth, ViewError, WatchedPrimary,
    WatchedReplica, primary_address,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What was asked of one server, in the order in which answers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// Who was asked: a sentinel, or a server of the pool.
    place: u16,
    about: About,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// `SENTINEL GET-MASTER-ADDR-BY-NAME`, of the primary of this number: while a sentinel
    /// leads a fail-over its other answers are still about the old one.
    Address(u16),
    /// `SENTINEL MASTER`, of that primary.
    Primary(u16),
    /// `SENTINEL SLAVES`, of that primary.
    Replicas(u16),
    /// `INFO replication`, of itself.
    Role,
}

/// What was told so far of what was asked.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By the sentinel that has told it.
    addresses: BTreeMap<u16, Endpoint>,
    primaries: BTreeMap<u16, WatchedPrimary>,
    roles: BTreeMap<u16, InfoReplication>,
    /// Whether anybody has answered in full.
    is_answered: bool,
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
    /// Asks every sentinel about every primary of a pool: they hear of a fail-over one
    /// after the other. Returns whether there was one to ask.
    pub(super) fn ask_sentinels(&mut self, pool: u16) -> bool {
        let now = self.plane.clock.now;
        let of = self.plane.cluster.sentinels.iter().find(|&(_, &about)| about == pool);
        let Some((&of, _)) = of else { return false };
        let Some(state) = self.plane.cluster_state(pool) else { return false };
        let names = state.shared.settings().primaries.clone();
        let PoolState::Sharded(state) = &self.plane.pools[usize::from(of)] else { return false };
        let count = self.plane.plan.topology.pools()[usize::from(of)].servers().len() as u16;
        let links: Vec<(u16, LinkIndex)> = (0..count)
            .map(|place| (place, state.link(place, 0, Protocol::Resp2)))
            .filter(|&(_, index)| !self.links[index].link.is_down(now))
            .collect();
        let mut questions = VecDeque::new();
        for &(place, index) in &links {
            for (group, name) in (0..).zip(&names) {
                let name = name.as_bytes();
                let address = b"GET-MASTER-ADDR-BY-NAME";
                self.ask_server(index, &[b"SENTINEL", address, name], Internal::Cluster);
                self.ask_server(index, &[b"SENTINEL", b"MASTER", name], Internal::Cluster);
                // The later word for it is not known before Redis 5.
                self.ask_server(index, &[b"SENTINEL", b"SLAVES", name], Internal::Cluster);
                let about = [About::Address(group), About::Primary(group), About::Replicas(group)];
                questions.extend(about.map(|about| Question { place, about }));
            }
        }
        self.plane.cluster.questions.insert(pool, questions);
        self.plane.cluster.told.insert(pool, Told::default());
        !links.is_empty()
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
        let role = |&(place, _): &(u16, LinkIndex)| Question { place, about: About::Role };
        let questions = links.iter().map(role).collect();
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
        let Some(about) = self.plane.take_question(pool, place) else { return };
        let outcome = match about {
            About::Address(_) => self.hear_address(pool, place, reply),
            About::Primary(_) => self.hear_primary(pool, place, reply),
            About::Replicas(group) => self.hear_replicas(pool, group, place, reply),
            About::Role => self.hear_role(pool, place, reply),
        };
        match (outcome, self.plane.cluster.told.get_mut(&pool)) {
            (Ok(()), Some(told)) => {
                told.is_answered |= matches!(about, About::Replicas(_) | About::Role);
            }
            (Ok(()), None) => {}
            (Err(error), _) => {
                self.tell_useless(pool, (from, place), &error);
                self.plane.forget_questions(pool, place);
            }
        }
        self.end_questions(pool);
    }

    /// A question was not answered.
    pub(super) fn miss_group(&mut self, from: u16, place: u16) {
        let pool = self.plane.asked_about(from);
        self.plane.forget_questions(pool, place);
        self.end_questions(pool);
    }

    /// Goes by what was told once all have answered, or will not.
    fn end_questions(&mut self, pool: u16) {
        let is_over = self.plane.cluster.questions.get(&pool).is_some_and(VecDeque::is_empty);
        if !is_over {
            return;
        }
        self.plane.cluster.questions.remove(&pool);
        let told = self.plane.cluster.told.remove(&pool).unwrap_or_default();
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let shared = Arc::clone(&state.shared);
        if !told.is_answered {
            return self.plane.note_unanswered(pool);
        }
        if shared.settings().discovery == Discovery::Roles {
            match self.elect(pool, &told.roles) {
                Some(view) => self.learn_group(pool, &view),
                None => return self.plane.note_unanswered(pool),
            }
        }
        shared.note_answered(self.plane.clock.now, shared.settings().refresh);
    }

    fn hear_address(&mut self, pool: u16, place: u16, reply: &[u8]) -> Result<(), ViewError> {
        let address = primary_address(reply)?;
        if let (Some(told), Some(address)) = (self.plane.cluster.told.get_mut(&pool), address) {
            told.addresses.insert(place, address);
        }
        Ok(())
    }

    fn hear_primary(&mut self, pool: u16, place: u16, reply: &[u8]) -> Result<(), ViewError> {
        let primary = WatchedPrimary::from_primary(reply)?;
        if let Some(told) = self.plane.cluster.told.get_mut(&pool) {
            told.primaries.insert(place, primary);
        }
        Ok(())
    }

    fn hear_replicas(
        &mut self,
        pool: u16,
        group: u16,
        place: u16,
        reply: &[u8],
    ) -> Result<(), ViewError> {
        let replicas = WatchedReplica::from_replicas(reply)?;
        let Some(told) = self.plane.cluster.told.get_mut(&pool) else { return Ok(()) };
        let Some(primary) = told.primaries.remove(&place) else { return Ok(()) };
        let view = GroupView {
            group,
            primary: told.addresses.remove(&place).unwrap_or(primary.endpoint),
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
        if let Some(learned) = state.shared.learn_group(view, self.plane.clock.now) {
            tell_changes(&self.plane.plan.pools[usize::from(pool)].name, &learned);
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
        let replicas = others.map(|(place, node)| {
            let health = match roles.get(&place) {
                Some(role) if role.is_replica() => {
                    let is_linked = role.link.as_ref().is_some_and(|link| link.is_up);
                    if is_linked { NodeHealth::Online } else { NodeHealth::Failing }
                }
                Some(_) => NodeHealth::Failing,
                None => NodeHealth::Failed,
            };
            (node.endpoint.clone(), health)
        });
        let replicas = replicas.collect();
        Some(GroupView { group: 0, primary: endpoint(primary)?, epoch: None, replicas })
    }

    #[cold]
    fn tell_useless(&self, pool: u16, (from, place): (u16, u16), error: &ViewError) {
        if let Some(state) = self.plane.cluster_state(pool) {
            let backend = self.plane.plan.pools[usize::from(from)].kind.label(usize::from(place));
            state.shared.note_trouble(format!("what {backend} says of it {error}"));
        }
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
    pub(super) fn asked_about(&self, pool: u16) -> u16 {
        self.cluster.sentinels.get(&pool).copied().unwrap_or(pool)
    }

    /// What the server at `place` has answered.
    fn take_question(&mut self, pool: u16, place: u16) -> Option<About> {
        let questions = self.cluster.questions.get_mut(&pool)?;
        let at = questions.iter().position(|question| question.place == place)?;
        Some(questions.remove(at)?.about)
    }

    /// The server at `place` will not answer.
    fn forget_questions(&mut self, pool: u16, place: u16) {
        if let Some(questions) = self.cluster.questions.get_mut(&pool) {
            questions.retain(|question| question.place != place);
        }
    }
}
