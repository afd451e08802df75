//! Finds out which server has which slot. One worker asks one server, and all workers act on its
//! answer.

use super::ClusterState;
use super::groups::VIEW_PAUSE;
use crate::cluster::{Learned, Speaker, Telling, ViewUpdate};
use crate::core::pools::FoundState;
use crate::core::pools::cluster::state::About;
use crate::core::pools::cluster::state::Heard;
use crate::core::{Connection, ConnectionKey, Core, Plane};
use crate::{MapSource, Upstream};
use keyway_base::{BackendFault, Fault, Time};
use keyway_command::Request;
use keyway_proxy::{Internal, LinkState, Owner, fault_words, write_fault};
use keyway_resp::{Protocol, reply};
use keyway_topology::{
    ClusterMap, ClusterView, Endpoint, KnownRole, LeftOut, PrimarySource, SLOT_COUNT, ServerId,
    SlotQuery, ViewError, ViewSource,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// At least this many servers of a cluster must have told of the same earlier epoch before it is
/// believed. In a smaller cluster, one server must have told of it this often.
const EARLIER_TOLD_MIN: usize = 3;

/// A refresh comes earlier by a random part of its interval, at most one over this number.
const JITTER: u32 = 8;

impl Core {
    /// Asks the clusters that are due to be asked, and handles the answers that have come.
    #[inline]
    pub(crate) fn tend_clusters(&mut self) {
        if !self.plane.cluster.pools.is_empty() {
            self.tend_each();
        }
    }

    #[inline(never)]
    fn tend_each(&mut self) {
        self.hear_views();
        self.tend_rounds();
        self.send_retries();
        self.end_held_waits();
        self.ask_names_if_due();
        self.end_waits_for_maps();
        self.listen_to_sentinels();
        for at in 0..self.plane.cluster.pools.len() {
            let pool = self.plane.cluster.pools[at];
            self.ask_if_due(pool);
            self.ask_lags_if_due(pool);
            self.plane.tend_repeats(pool);
            self.plane.tell_redundancy(pool);
        }
    }

    /// Returns whether answers wait to be looked at.
    #[inline]
    pub(super) fn has_heard_of_clusters(&self) -> bool {
        self.plane.cluster.has_heard()
    }

    /// Handles what servers have answered since.
    pub(super) fn hear_views(&mut self) {
        for (server, number) in std::mem::take(&mut self.plane.cluster.unanswered) {
            let pool = server.pool;
            if self.plane.hears_groups(pool) {
                self.miss_group(server, number);
            } else if self.plane.take_question(pool, server.server, number).is_some()
                && self.plane.is_round_over(pool)
            {
                self.plane.end_unanswered(pool);
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
            Internal::Names => return self.hear_names(heard.server, &heard.reply),
            _ => {}
        }
        let Internal::Cluster(number) = heard.what else { return };
        let Heard { server, ref reply, .. } = *heard;
        if self.plane.hears_groups(server.pool) {
            return self.hear_group(server, number, reply);
        }
        let asked = self.plane.take_question(server.pool, server.server, number);
        if let Some(About::Slots(query)) = asked {
            self.hear_slots(server, query, reply);
        }
    }

    /// Handles a server's answer about its cluster.
    fn hear_slots(&mut self, server: ServerId, query: SlotQuery, reply: &[u8]) {
        let Some(state) = self.plane.cluster_state(server.pool) else { return };
        let Some(node) = state.map.node(usize::from(server.server)) else {
            return self.plane.end_unanswered(server.pool);
        };
        let (shared, map) = (Arc::clone(&state.shared), Arc::clone(&state.map));
        let from = node.endpoint.clone();
        let wants_tls = self.plane.plan.pools[usize::from(server.pool)].kind.tls().is_some();
        let asked = ViewSource { endpoint: &from, wants_tls };
        let knows_slots = map.is_known() && map.owners().owned_count() > 0;
        let view = read_view(query, reply, asked).and_then(|view| {
            match view.owners.owned_count() {
                // The server was reset, or is not in a cluster yet.
                0 if knows_slots => Err(ViewError::NoSlots),
                _ => Ok(view),
            }
        });
        if matches!(&view, Ok(view) if view.owners.owned_count() == 0) {
            let what = format!("what {from} says of it {}", ViewError::NoSlots);
            shared.note_reason(what, Telling::Cause, self.plane.clock.now);
        }
        match view {
            Ok(view) if self.asks_another_before(server.pool, query, &view) => {}
            Ok(view) => self.learn_slots(server, &view),
            Err(error) => {
                let what = format!("what {from} says of it {error}");
                shared.note_reason(what, Telling::Cause, self.plane.clock.now);
                if shared.notice.is_due(self.plane.clock.now) {
                    let name = &self.plane.plan.pools[usize::from(server.pool)].name;
                    tracing::warn!(
                        pool = name,
                        backend = %from,
                        "what {from} says of the cluster of pool {name} {error}; told at most once a \
                         minute"
                    );
                }
                self.plane.distrust(server);
                if self.plane.is_round_over(server.pool) {
                    self.plane.end_unanswered(server.pool);
                }
            }
        }
    }

    /// Asks another server if the answer has slots without a server that are known to have one, or
    /// if no map is known yet. The cluster may just be being created, or the server may know too
    /// little. The next answer is believed. Returns whether a server was asked.
    fn asks_another_before(&mut self, pool: u16, asked: SlotQuery, view: &ClusterView) -> bool {
        let Some(state) = self.plane.cluster_state(pool) else { return false };
        // Asked this way, some servers leave out the slots of a shard whose primary is dead.
        let may_omit = asked == SlotQuery::Shards;
        let may_be_more = may_omit || !state.map.is_known() || state.map.loses_slots_by(view);
        let Some(round) = self.plane.cluster.rounds.get_mut(&pool) else { return false };
        if view.is_whole() || !may_be_more || std::mem::replace(&mut round.is_doubted, true) {
            return false;
        }
        // Only answers in the pool's own form tell epochs.
        self.ask_someone(pool, if may_omit { SlotQuery::Slots } else { asked })
    }

    fn learn_slots(&mut self, server: ServerId, view: &ClusterView) {
        let now = self.plane.clock.now;
        let drawn = self.plane.next_random() as u32;
        self.plane.end_round(server.pool);
        let Some(state) = self.plane.cluster_state(server.pool) else { return };
        let shared = Arc::clone(&state.shared);
        self.plane.tell_unreached(server, view);
        let present = state.map.nodes().filter(|(_, node)| node.absent_since.is_none());
        let of = present.count();
        // The servers are asked at random. In a small cluster, a majority of answers could come
        // from one server that is asked again and again.
        let times = if of < EARLIER_TOLD_MIN { EARLIER_TOLD_MIN as u32 } else { 1 };
        let update = shared.learn(view, Speaker { server: server.server, of, times }, now);
        let is_stale = matches!(update, ViewUpdate::Stale);
        match update {
            ViewUpdate::New(learned) => {
                tell_changes(&self.plane.plan.pools[usize::from(server.pool)].name, &learned);
            }
            ViewUpdate::Stale => self.plane.tell_stale(server.pool, server),
            ViewUpdate::Same => {}
        }
        let refresh = shared.settings().refresh;
        let earlier = refresh.mul_f64(f64::from(drawn) / f64::from(u32::MAX)) / JITTER;
        let mut after = refresh - earlier;
        if is_stale || !view.is_whole() {
            after = after.min(VIEW_PAUSE);
        }
        shared.note_answered(now, after);
        self.plane.trust_all(server.pool);
    }

    pub(super) fn ask_if_due(&mut self, pool: u16) {
        let plan = Arc::clone(&self.plane.plan);
        let kind = &plan.pools[usize::from(pool)].kind;
        let (Some(Upstream { options, .. }), Some(shared)) = (kind.upstream(), kind.cluster())
        else {
            return;
        };
        let now = self.plane.clock.now;
        let patience = options.connect_timeout + options.timeout.unwrap_or(options.connect_timeout);
        if !shared.try_claim(now, now + patience) {
            return;
        }
        let is_asked = match shared.source() {
            MapSource::Primaries(PrimarySource::Sentinels { .. }) => self.ask_sentinels(pool),
            MapSource::Primaries(PrimarySource::Servers | PrimarySource::Groups(_)) => {
                self.ask_roles(pool)
            }
            MapSource::Slots(query) => {
                self.plane.begin_round(pool);
                self.ask_someone(pool, *query)
            }
        };
        if !is_asked {
            let asks_sentinels = shared.sentinels().is_some();
            let state = self.plane.cluster_state(pool).filter(|state| !state.has_slots());
            if let Some(state) = state.filter(|_| !asks_sentinels) {
                shared.note_roles(&state.map, (&BTreeMap::new(), &BTreeMap::new()), now);
            }
            self.plane.end_unanswered(pool);
        }
    }

    /// Returns the index of a server that may answer, with its link. Prefers links that are
    /// connected, and does not always take the same server.
    pub(super) fn someone_to_ask(&mut self, pool: u16) -> Option<(u16, ConnectionKey)> {
        let now = self.plane.clock.now;
        let drawn = self.plane.next_random() as usize;
        let FoundState { servers, cluster, .. } = self.plane.pools[usize::from(pool)].found()?;
        let map = &cluster.map;
        // A server that has left the cluster, by what the others say, knows least of it. But when
        // all servers mislead, they may be right together.
        let asked = self.plane.asked_in_round(pool);
        let is_trusted = |server: u16| {
            let is_behind = cluster.shared.is_behind(server, map.epoch(None));
            !is_behind && !cluster.misleading.contains(&server)
        };
        let is_new =
            |server: u16| !asked.contains(&server) && !self.plane.owes_answers(pool, server);
        let is_open = |server: u16| self.plane.is_question_open(pool, server);
        let candidates: Vec<((u16, ConnectionKey), bool)> = map
            .nodes()
            .map(|(server, node)| {
                let is_fit = node.absent_since.is_none() && is_trusted(server) && is_new(server);
                ((server, servers.link(server, 0, Protocol::Resp2)), is_fit)
            })
            .collect();
        let count = candidates.len();
        let turned = || (0..count).map(|at| candidates[(at + drawn % count) % count]);
        let is_ready = |index: ConnectionKey| self.links[index].link.state() == LinkState::Ready;
        let may_be = |index: ConnectionKey| !self.links[index].link.is_down(now);
        turned()
            .find(|&((_, index), is_fit)| is_fit && is_ready(index))
            .or_else(|| turned().find(|&((_, index), is_fit)| is_fit && may_be(index)))
            .or_else(|| turned().find(|&((server, index), _)| is_new(server) && may_be(index)))
            .or_else(|| turned().find(|&((server, index), _)| !is_open(server) && may_be(index)))
            .map(|(candidate, _)| candidate)
    }

    /// Asks a server about its cluster. Returns whether there was a server to ask.
    pub(super) fn ask_someone(&mut self, pool: u16, query: SlotQuery) -> bool {
        let Some((server, index)) = self.someone_to_ask(pool) else { return false };
        let word: &[u8] = match query {
            SlotQuery::Slots => b"SLOTS",
            SlotQuery::Shards => b"SHARDS",
            SlotQuery::Nodes => b"NODES",
        };
        self.ask_about(pool, server, index, &[b"CLUSTER", word], About::Slots(query));
        true
    }

    /// Sends a question about a pool to one server.
    pub(super) fn ask_about(
        &mut self,
        pool: u16,
        server: u16,
        index: ConnectionKey,
        words: &[&[u8]],
        about: About,
    ) {
        let number = self.plane.note_question(pool, server, about);
        self.ask_server(index, words, Internal::Cluster(number));
    }

    /// Sends a request of the worker itself to a server.
    pub(super) fn ask_server(&mut self, index: ConnectionKey, words: &[&[u8]], what: Internal) {
        let index = self.clear_link(index);
        let Core { links, plane, .. } = self;
        let connection = &mut links[index];
        plane.mark_link_dirty(index, connection);
        if !connection.link.is_awaited() {
            plane.wake_link(index, connection);
        }
        connection.link.enqueue_own(Owner::Internal(what), words, plane.clock.now);
    }
}

impl Plane {
    /// Takes a server's answer about its cluster. It is looked at later, when no link is borrowed.
    #[cold]
    pub(in crate::core) fn hear_of_cluster(
        &mut self,
        what: Internal,
        server: ServerId,
        reply: &[u8],
    ) {
        self.cluster.heard.push(Heard { what, server, reply: reply.to_vec() });
    }

    /// Notes that a server has not answered.
    #[cold]
    pub(in crate::core) fn miss_of_cluster(&mut self, server: ServerId, number: u32, fault: Fault) {
        let about = self.cluster_state(self.asked_about(server.pool));
        if let (Some(state), Fault::Backend { fault, .. }) = (about, fault) {
            let backend = self.describe_backend(server);
            let (why, telling) = self.why_unanswered(server, fault);
            state.shared.note_reason(format!("{backend} {why}"), telling, self.clock.now);
        }
        self.distrust(server);
        self.cluster.unanswered.push((server, number));
    }

    /// Returns in words why a server has not answered. A question that waited in vain for a
    /// connection was not answered because of the fault that kept the connection from being made.
    fn why_unanswered(&self, server: ServerId, fault: BackendFault) -> (String, Telling) {
        let words = fault_words(fault);
        match (fault, self.unreached(server)) {
            (BackendFault::Connect | BackendFault::Timeout, Some(reason)) => {
                let cannot = fault_words(BackendFault::Connect);
                (format!("{cannot}: {}", reason.text()), Telling::Cause)
            }
            (BackendFault::Timeout, None) => (words.to_owned(), Telling::Silence),
            _ => (words.to_owned(), Telling::Cause),
        }
    }

    /// Appends the error for a request that no server of a pool is known for.
    #[cold]
    pub(in crate::core) fn write_unrouted(
        &mut self,
        pool: u16,
        request: Option<&Request>,
        out: &mut Vec<u8>,
    ) {
        // For a request with keys, it matters which servers have the keys.
        let is_keyed = request.is_some_and(|request| self.has_slotted_keys(pool, request));
        let is_left_out = match request.filter(|_| is_keyed) {
            Some(request) => self.is_left_out(pool, request),
            None => self.leaves_out(pool),
        };
        match self.unknown_server(pool, is_left_out) {
            Some(text) => reply::error(out, &text),
            None => write_fault(Fault::Unrouted, &self.plan.pools[usize::from(pool)].name, out),
        }
    }

    /// Returns the code and words of that error, for a command that a transaction does not take.
    #[cold]
    pub(in crate::core) fn unrouted_words(&mut self, pool: u16, request: &Request) -> String {
        let mut told = Vec::new();
        self.write_unrouted(pool, Some(request), &mut told);
        let told = String::from_utf8_lossy(&told);
        told.trim_start_matches('-').trim_end().to_owned()
    }

    /// Logs shards that have turned out to have no replicas since the last call, or have one now.
    fn tell_redundancy(&self, pool: u16) {
        let Some(state) = self.cluster_state(pool) else { return };
        let pool = &self.plan.pools[usize::from(pool)].name;
        for change in state.shared.redundancy_changes(self.clock.now) {
            let primary = change.primary;
            match (change.is_redundant, change.had) {
                (true, true) => tracing::info!(pool, primary, "shard has a replica again"),
                (true, false) => tracing::info!(pool, primary, "shard has a replica now"),
                (false, true) => tracing::warn!(
                    pool,
                    primary,
                    "shard has no replica left; if its primary fails, its keys cannot be served"
                ),
                (false, false) => tracing::warn!(
                    pool,
                    primary,
                    "shard has no replica, though another shard of the pool has had one; if its \
                     primary fails, its keys cannot be served"
                ),
            }
        }
    }

    /// Makes the worker ask other servers first from now on.
    pub(super) fn distrust(&mut self, server: ServerId) {
        if let Some(FoundState { cluster, .. }) = self.pools[usize::from(server.pool)].found_mut()
            && !cluster.misleading.contains(&server.server)
        {
            cluster.misleading.push(server.server);
        }
    }

    fn trust_all(&mut self, pool: u16) {
        if let Some(FoundState { cluster, .. }) = self.pools[usize::from(pool)].found_mut() {
            cluster.misleading.clear();
        }
    }

    pub(super) fn note_unanswered(&mut self, pool: u16) {
        let Some(state) = self.cluster_state(pool) else { return };
        let now = self.clock.now;
        let asks_seeds = state.shared.note_unanswered(now);
        if asks_seeds && state.shared.notice.is_due(now) {
            let state = self.cluster_state(pool);
            let has_slots = state.is_some_and(ClusterState::has_slots);
            let why = state.map(|state| state.shared.reason());
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

    /// Logs that a server tells of an earlier epoch than is known.
    #[cold]
    pub(super) fn tell_stale(&self, pool: u16, server: ServerId) {
        let Some(state) = self.cluster_state(pool) else { return };
        if state.shared.notice.is_due(self.clock.now) {
            tracing::info!(
                pool = self.plan.pools[usize::from(pool)].name,
                backend = self.describe_backend(server),
                "it tells of an earlier epoch than is known, and is not believed until most do; \
                 told at most once a minute"
            );
        }
    }

    /// Logs that the cluster gives other addresses than the configured one that answers, and that
    /// none of those addresses answered.
    fn tell_unreached(&self, server: ServerId, view: &ClusterView) {
        let Some(state) = self.cluster_state(server.pool) else { return };
        let Some(node) = state.map.node(usize::from(server.server)) else { return };
        if node.role != KnownRole::Seed || !state.map.is_known() {
            return;
        }
        let told: Vec<&Endpoint> =
            view.nodes.iter().filter_map(|node| node.endpoint.as_ref()).collect();
        let Some(announced) = told.first().filter(|_| !told.contains(&&node.endpoint)) else {
            return;
        };
        if state.shared.notice_unreached.is_due(self.clock.now) {
            tracing::warn!(
                pool = self.plan.pools[usize::from(server.pool)].name,
                backend = %node.endpoint,
                %announced,
                "the cluster announces addresses of which none answers; see cluster-announce-ip; \
                 told at most once a minute"
            );
        }
    }

    /// Asks the cluster soon because a key's slot has no server.
    #[cold]
    pub(in crate::core) fn request_view_for_unowned(&self, pool: u16) {
        if let Some(state) = self.cluster_state(pool) {
            state.shared.ask_about_unowned(self.clock.now);
        }
    }

    /// Asks the cluster soon because a connection to one of its servers failed.
    #[cold]
    pub(in crate::core) fn request_view(&self, connection: &Connection) {
        if let Some(state) = self.cluster_state(connection.server_id.pool) {
            state.shared.ask_soon();
        }
    }

    pub(super) fn asked_endpoint(&self, server: ServerId) -> Option<Endpoint> {
        let state = self.cluster_state(server.pool)?;
        Some(state.map.node(usize::from(server.server))?.endpoint.clone())
    }

    /// Notes the latest time at which the cluster needs attention again.
    pub(super) fn note_cluster_deadline(&mut self, at: Time) {
        self.note_deadline(Some(at));
    }
}

fn read_view(
    query: SlotQuery,
    reply: &[u8],
    asked: ViewSource<'_>,
) -> Result<ClusterView, ViewError> {
    match query {
        SlotQuery::Shards => ClusterView::from_shards(reply, asked),
        SlotQuery::Nodes => ClusterView::from_nodes(reply, asked),
        _ => ClusterView::from_slots(reply, asked),
    }
}

/// Logs which servers came and went, and which server has which slots.
pub(super) fn tell_changes(pool: &str, learned: &Learned) {
    let Learned { before, map, left_out, is_earlier } = learned;
    if *is_earlier {
        tracing::warn!(
            pool,
            "most tell of an earlier epoch than was known: believed. A primary was watched anew, \
             a node was forgotten, or who told of the later one was wrong"
        );
    }
    tell_left_out(pool, left_out);
    let has_slots = map.primaries().is_empty();
    if !before.is_known() && has_slots {
        let serving = (0..map.index_count()).filter(|&server| map.is_serving(server)).count();
        let slots = map.owners().owned_count();
        let servers = map.nodes().count();
        if slots == 0 {
            return tracing::warn!(pool, servers, "the cluster {}", ViewError::NoSlots);
        }
        if slots < SLOT_COUNT {
            tracing::warn!(pool, slots, "the cluster does not serve all of its 16384 slots");
        }
        return tracing::info!(pool, servers, serving, slots, "the cluster is known");
    }
    for (server, node) in map.nodes() {
        let server = usize::from(server);
        let was = before.node(server).filter(|was| was.tenure == node.tenure);
        let backend = node.endpoint.to_string();
        if was.is_none() {
            tracing::info!(pool, backend, "a server was found");
        }
        let owned = if was.is_some() { before.owned_by(server) } else { 0 };
        if owned == 0 && map.owned_by(server) > 0 && !has_slots {
            let was = node.group.and_then(|group| before.primary(group));
            let was = was.and_then(|was| before.node(usize::from(was)));
            let was = was.map(|was| was.endpoint.to_string());
            tracing::info!(pool, backend, was, "a server is the primary now");
        }
    }
    tell_moves(pool, before, map);
    for (server, node) in before.nodes() {
        let stays = map.node(usize::from(server)).is_some_and(|it| it.endpoint == node.endpoint);
        // The configured servers are asked now and then while no other server answers.
        if !stays && node.role != KnownRole::Seed {
            tracing::info!(pool, backend = %node.endpoint, "a server is not of the pool any more");
        }
    }
}

/// Logs the servers that were left out for want of room.
fn tell_left_out(pool: &str, left_out: &[LeftOut]) {
    if left_out.is_empty() {
        return;
    }
    let [primaries, replicas] = [true, false].map(|is_primary| names_of(left_out, is_primary));
    tracing::error!(
        pool,
        left_out = left_out.len(),
        primaries,
        replicas,
        "there are more servers than nodes_max: those named have no place; requests for the keys of \
         such primaries fail, and such replicas are not read; set it higher"
    );
}

/// Returns their addresses, as many as fit on one line of the log, or `None` if there are none.
fn names_of(left_out: &[LeftOut], is_primary: bool) -> Option<String> {
    const NAMED_MAX: usize = 16;
    let those = || left_out.iter().filter(|server| server.is_primary == is_primary);
    let count = those().count();
    let named: Vec<String> =
        those().take(NAMED_MAX).map(|server| server.endpoint.to_string()).collect();
    match count.saturating_sub(NAMED_MAX) {
        _ if count == 0 => None,
        0 => Some(named.join(", ")),
        more => Some(format!("{} and {more} more", named.join(", "))),
    }
}

/// Logs which server has which slots now, where a server has got its first slot or lost its last,
/// or some slots have no server.
fn tell_moves(pool: &str, before: &ClusterMap, map: &ClusterMap) {
    let mut moves: BTreeMap<(Option<u16>, Option<u16>), u16> = BTreeMap::new();
    let tenant = |map: &ClusterMap, owner: Option<u16>| {
        owner.and_then(|at| Some((at, map.node(usize::from(at))?.tenure)))
    };
    for slot in 0..SLOT_COUNT as u16 {
        let (from, to) = (before.owners().of(slot), map.owners().of(slot));
        if tenant(before, from) != tenant(map, to) {
            *moves.entry((from, to)).or_default() += 1;
        }
    }
    let name = |map: &ClusterMap, at| map.node(usize::from(at)).map(|it| it.endpoint.to_string());
    for ((from, to), slots) in moves {
        let from_name = from.and_then(|from| name(before, from));
        let to_name = to.and_then(|to| name(map, to));
        let is_last = from.is_some_and(|from| map.owned_by(usize::from(from)) == 0);
        let is_first = to.is_some_and(|to| before.owned_by(usize::from(to)) == 0);
        match (from_name, to_name) {
            (Some(from), Some(to)) if is_last || is_first => {
                tracing::info!(pool, from, to, slots, "who has slots has changed");
            }
            (Some(from), None) => tracing::warn!(pool, from, slots, "slots have no server now"),
            (None, Some(to)) => tracing::info!(pool, to, slots, "slots have a server again"),
            _ => {}
        }
    }
}
