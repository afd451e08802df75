//! Who has which slot: one worker asks one server, and all go by what it says.

use super::super::pools::PoolState;
use super::super::{Core, LinkIndex, LinkSlot, Plane};
use super::ClusterState;
use crate::PoolKind;
use crate::cluster::Learned;
use keyway_base::{Fault, Time};
use keyway_proxy::{Internal, LinkState, Owner, fault_words, write_fault};
use keyway_resp::{Protocol, reply};
use keyway_topology::{
    Asked, ClusterView, ConnectedReplica, Discovery, Endpoint, InfoReplication, SLOT_COUNT,
    ViewError,
};
use std::sync::Arc;

/// What a server said when it was asked about its cluster.
pub(super) struct Heard {
    what: Internal,
    pool: u16,
    place: u16,
    reply: Vec<u8>,
}

/// A refresh comes earlier by chance, by up to one part in so many.
const JITTER: u32 = 8;

impl Core {
    /// Asks about the clusters of which it is time to, and hears what was said.
    #[inline]
    pub fn tend_clusters(&mut self) {
        if !self.plane.cluster.pools.is_empty() {
            self.tend_each();
        }
    }

    #[inline(never)]
    fn tend_each(&mut self) {
        self.hear_views();
        self.send_retries();
        self.ask_names_if_due();
        self.end_waits_for_maps();
        self.listen_to_sentinels();
        for at in 0..self.plane.cluster.pools.len() {
            let pool = self.plane.cluster.pools[at];
            self.ask_if_due(pool);
            self.ask_lags_if_due(pool);
            self.plane.tend_repeats(pool);
        }
    }

    /// Whether views wait to be looked at.
    #[inline]
    pub(crate) fn has_heard_of_clusters(&self) -> bool {
        let cluster = &self.plane.cluster;
        !cluster.heard.is_empty()
            || !cluster.unanswered.is_empty()
            || !cluster.told_about.is_empty()
            || cluster.named.has_missed()
    }

    /// Goes by what servers have said since.
    pub(super) fn hear_views(&mut self) {
        for (pool, place) in std::mem::take(&mut self.plane.cluster.unanswered) {
            if self.plane.hears_groups(pool) {
                self.miss_group(pool, place);
            } else {
                self.plane.note_unanswered(pool);
            }
        }
        self.miss_names();
        for heard in std::mem::take(&mut self.plane.cluster.heard) {
            self.hear(&heard);
        }
    }

    fn hear(&mut self, heard: &Heard) {
        match heard.what {
            Internal::Replication => return self.hear_lags(heard),
            Internal::Names => {
                return self.hear_names((heard.pool, heard.place), &heard.reply);
            }
            _ => {}
        }
        let now = self.plane.clock.now;
        let drawn = self.plane.next_random() as u32;
        if self.plane.hears_groups(heard.pool) {
            return self.hear_group(heard.pool, heard.place, &heard.reply);
        }
        let Some(state) = self.plane.cluster_state(heard.pool) else { return };
        let Some(node) = state.map.node(usize::from(heard.place)) else {
            return self.plane.note_unanswered(heard.pool);
        };
        let shared = Arc::clone(&state.shared);
        let name = &self.plane.plan.pools[usize::from(heard.pool)].name;
        let from = node.endpoint.clone();
        let wants_tls = self.plane.plan.pools[usize::from(heard.pool)].kind.tls().is_some();
        let asked = Asked { endpoint: &from, wants_tls };
        let view = read_view(shared.settings().discovery, &heard.reply, asked);
        let knows_slots = state.map.is_known() && state.map.owners().owned_count() > 0;
        let view = view.and_then(|view| match view.owners.owned_count() {
            // It was reset, or is not of a cluster yet.
            0 if knows_slots => Err(ViewError::NoSlots),
            _ => Ok(view),
        });
        match view {
            Ok(view) => {
                if let Some(learned) = shared.learn(&view, now) {
                    tell_changes(name, &learned);
                }
                let refresh = shared.settings().refresh;
                let earlier = refresh.mul_f64(f64::from(drawn) / f64::from(u32::MAX)) / JITTER;
                shared.note_answered(now, refresh - earlier);
                self.plane.trust_all(heard.pool);
            }
            Err(error) => {
                shared.note_trouble(format!("what {from} says of it {error}"));
                if self.plane.plan.notices.cluster.is_due(now) {
                    tracing::warn!(
                        pool = name,
                        backend = %from,
                        "what it says of its cluster {error}; told at most once a minute"
                    );
                }
                self.plane.distrust(heard.pool, heard.place);
                self.plane.note_unanswered(heard.pool);
            }
        }
    }

    /// Notes how far the replicas of a primary are behind it.
    fn hear_lags(&self, heard: &Heard) {
        let Some(state) = self.plane.cluster_state(heard.pool) else { return };
        let Ok(told) = InfoReplication::from_reply(&heard.reply) else { return };
        for (place, node) in state.map.replicas_of(heard.place) {
            let is_it = |replica: &&ConnectedReplica| {
                replica.endpoint.as_ref() == Some(&node.endpoint) && replica.is_online
            };
            let replica = told.replicas.iter().find(is_it);
            let millis = replica.map_or(u64::MAX, |replica| replica.lag_seconds * 1000);
            state.shared.note_lag(place, millis);
        }
    }

    /// Asks every primary how far its replicas are behind, where that matters.
    fn ask_lags_if_due(&mut self, pool: u16) {
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let shared = Arc::clone(&state.shared);
        let now = self.plane.clock.now;
        if shared.settings().reads.lag_max.is_none() || !shared.try_claim_lags(now) {
            return;
        }
        let PoolState::Sharded(sharded) = &self.plane.pools[usize::from(pool)] else { return };
        let primaries = (0..state.map.place_count()).filter(|&place| state.map.is_serving(place));
        let links: Vec<LinkIndex> =
            primaries.map(|place| sharded.link(place as u16, 0, Protocol::Resp2)).collect();
        for index in links {
            if !self.links[index].link.is_down(now) {
                self.ask_server(index, &[b"INFO", b"replication"], Internal::Replication);
            }
        }
    }

    pub(super) fn ask_if_due(&mut self, pool: u16) {
        let plan = Arc::clone(&self.plane.plan);
        let PoolKind::Sharded { options, cluster: Some(shared), .. } =
            &plan.pools[usize::from(pool)].kind
        else {
            return;
        };
        let now = self.plane.clock.now;
        let patience = options.connect_timeout + options.timeout.unwrap_or(options.connect_timeout);
        if !shared.try_claim(now, now + patience) {
            return;
        }
        let is_asked = match shared.settings().discovery {
            Discovery::Sentinel => self.ask_sentinels(pool),
            Discovery::Roles => self.ask_roles(pool),
            discovery => match self.someone_to_ask(pool) {
                Some(index) => {
                    self.ask_about_cluster(index, discovery);
                    true
                }
                None => false,
            },
        };
        if !is_asked {
            self.plane.note_unanswered(pool);
        }
    }

    /// The link to a server that may answer: one that stands rather than one that is
    /// to be made, and not always the same.
    pub(super) fn someone_to_ask(&mut self, pool: u16) -> Option<LinkIndex> {
        let now = self.plane.clock.now;
        let drawn = self.plane.next_random() as usize;
        let PoolState::Sharded(state) = &self.plane.pools[usize::from(pool)] else { return None };
        let cluster = state.cluster.as_ref()?;
        let map = &cluster.map;
        // One that has left, as the others say, knows least of them. All that mislead may
        // be right together.
        let is_trusted = |place: u16| !cluster.misleading.contains(&place);
        let candidates: Vec<(LinkIndex, bool)> = map
            .nodes()
            .map(|(place, node)| {
                let is_fit = node.absent_since.is_none() && is_trusted(place);
                (state.link(place, 0, Protocol::Resp2), is_fit)
            })
            .collect();
        let count = candidates.len();
        let turned = || (0..count).map(|at| candidates[(at + drawn % count) % count]);
        let is_ready = |index: LinkIndex| self.links[index].link.state() == LinkState::Ready;
        let may_be = |index: LinkIndex| !self.links[index].link.is_down(now);
        turned()
            .find(|&(index, is_present)| is_present && is_ready(index))
            .or_else(|| turned().find(|&(index, is_present)| is_present && may_be(index)))
            .or_else(|| turned().find(|&(index, _)| may_be(index)))
            .map(|(index, _)| index)
    }

    fn ask_about_cluster(&mut self, index: LinkIndex, discovery: Discovery) {
        let word: &[u8] = match discovery {
            Discovery::Shards => b"SHARDS",
            Discovery::Nodes => b"NODES",
            _ => b"SLOTS",
        };
        self.ask_server(index, &[b"CLUSTER", word], Internal::Cluster);
    }

    /// Asks a server something for the worker itself.
    pub(super) fn ask_server(&mut self, index: LinkIndex, words: &[&[u8]], what: Internal) {
        let Core { links, plane, .. } = self;
        let slot = &mut links[index];
        plane.mark_link_dirty(index, slot);
        if !slot.link.is_awaited() {
            plane.wake_link(index, slot);
        }
        let out = slot.link.request_buf();
        let start = out.len();
        reply::array(out, words.len());
        words.iter().for_each(|word| reply::bulk(out, word));
        let len = out.len() - start;
        slot.link.enqueue(Owner::Internal(what), 0, len, plane.clock.now);
    }

    /// Clients that wait for a map get their errors once it is not to be expected.
    fn end_waits_for_maps(&mut self) {
        if self.plane.cluster.waiting.is_empty() {
            return;
        }
        let now = self.plane.clock.now;
        let waiting = std::mem::take(&mut self.plane.cluster.waiting);
        let Core { sessions, plane, .. } = self;
        for key in waiting {
            let Some(session) = sessions.get_mut(key) else { continue };
            let may_wait = |state: &ClusterState| state.shared.may_be_known_soon(now);
            if plane.cluster_state(session.pool).is_some_and(may_wait) {
                plane.cluster.waiting.push(key);
            } else {
                session.waits_for_link = false;
                plane.mark_session_resuming(key, session);
            }
        }
    }
}

impl Plane {
    /// A server has answered the question about its cluster; what it said is looked
    /// at when no link is borrowed.
    #[cold]
    pub(in super::super) fn hear_of_cluster(
        &mut self,
        what: Internal,
        (pool, place): (u16, u16),
        reply: &[u8],
    ) {
        self.cluster.heard.push(Heard { what, pool, place, reply: reply.to_vec() });
    }

    /// A server has not answered.
    #[cold]
    pub(in super::super) fn miss_of_cluster(&mut self, (pool, place): (u16, u16), fault: Fault) {
        let about = self.cluster_state(self.asked_about(pool));
        if let (Some(state), Fault::Backend { fault, .. }) = (about, fault) {
            let backend = self.describe_backend(pool, place);
            state.shared.note_trouble(format!("{backend} {}", fault_words(fault)));
        }
        self.distrust(pool, place);
        self.cluster.unanswered.push((pool, place));
    }

    /// Appends the error for a request that no server of a pool is known for.
    #[cold]
    pub(in super::super) fn write_unrouted(&self, pool: u16, out: &mut Vec<u8>) {
        match self.unknown_server(pool) {
            Some(text) => reply::error(out, &text),
            None => write_fault(Fault::Unrouted, &self.plan.pools[usize::from(pool)].name, out),
        }
    }

    /// Others are asked first from now on.
    fn distrust(&mut self, pool: u16, place: u16) {
        if let PoolState::Sharded(state) = &mut self.pools[usize::from(pool)]
            && let Some(cluster) = &mut state.cluster
            && !cluster.misleading.contains(&place)
        {
            cluster.misleading.push(place);
        }
    }

    fn trust_all(&mut self, pool: u16) {
        if let PoolState::Sharded(state) = &mut self.pools[usize::from(pool)]
            && let Some(cluster) = &mut state.cluster
        {
            cluster.misleading.clear();
        }
    }

    pub(super) fn note_unanswered(&mut self, pool: u16) {
        let Some(state) = self.cluster_state(pool) else { return };
        let now = self.clock.now;
        let asks_seeds = state.shared.note_unanswered(now);
        if asks_seeds && self.plan.notices.cluster.is_due(now) {
            let state = self.cluster_state(pool);
            let has_slots = state.is_some_and(ClusterState::has_slots);
            let why = state.map(|state| state.shared.trouble());
            let pool = &self.plan.pools[usize::from(pool)].name;
            if has_slots {
                tracing::warn!(
                    pool,
                    why,
                    "no server tells who has which slot of the cluster; asking those configured as \
                     well; told at most once a minute"
                );
            } else {
                tracing::warn!(
                    pool,
                    why,
                    "nobody tells who is the primary; told at most once a minute"
                );
            }
        }
    }

    /// Sees to it that a connection of a cluster that fails has the cluster asked.
    #[cold]
    pub(in super::super) fn doubt_cluster(&self, slot: &LinkSlot) {
        if let Some(state) = self.cluster_state(slot.pool) {
            state.shared.ask_soon();
        }
    }

    pub(super) fn asked_endpoint(&self, pool: u16, place: u16) -> Option<Endpoint> {
        let state = self.cluster_state(pool)?;
        Some(state.map.node(usize::from(place))?.endpoint.clone())
    }

    /// By when something is to be done about a cluster at the latest.
    pub(super) fn note_cluster_deadline(&mut self, at: Time) {
        self.note_deadline(Some(at));
    }
}

fn read_view(
    discovery: Discovery,
    reply: &[u8],
    asked: Asked<'_>,
) -> Result<ClusterView, ViewError> {
    match discovery {
        Discovery::Shards => ClusterView::from_shards(reply, asked),
        Discovery::Nodes => ClusterView::from_nodes(reply, asked),
        _ => ClusterView::from_slots(reply, asked),
    }
}

/// Says in the log which servers came and went, and whose slots are whose.
pub(super) fn tell_changes(pool: &str, learned: &Learned) {
    let Learned { before, map, left_out } = learned;
    if *left_out > 0 {
        tracing::error!(
            pool,
            left_out,
            "the cluster has more servers than nodes_max: requests to these fail; set it higher"
        );
    }
    let has_slots = map.primaries().is_empty();
    if !before.is_known() && has_slots {
        let serving = (0..map.place_count()).filter(|&place| map.is_serving(place)).count();
        let slots = map.owners().owned_count();
        let servers = map.nodes().count();
        if slots < SLOT_COUNT {
            tracing::warn!(pool, slots, "the cluster does not serve all of its 16384 slots");
        }
        return tracing::info!(pool, servers, serving, slots, "the cluster is known");
    }
    for (place, node) in map.nodes() {
        let place = usize::from(place);
        let was = before.node(place).filter(|was| was.tenure == node.tenure);
        let backend = node.endpoint.to_string();
        if was.is_none() {
            tracing::info!(pool, backend, "a server was found");
        }
        let owned = if was.is_some() { before.owned_by(place) } else { 0 };
        if owned == 0 && map.owned_by(place) > 0 && !has_slots {
            tracing::info!(pool, backend, "a server is the primary now");
        } else if (owned == 0) != (map.owned_by(place) == 0) && has_slots {
            let slots = map.owned_by(place);
            tracing::info!(pool, backend, slots, "who has slots has changed");
        }
    }
    for (place, node) in before.nodes() {
        let stays = map.node(usize::from(place)).is_some_and(|it| it.endpoint == node.endpoint);
        if !stays {
            tracing::info!(pool, backend = %node.endpoint, "a server is not of the pool any more");
        }
    }
}
