//! Primaries with replicas that form no cluster. The worker asks sentinels which server is the
//! primary or, where there are no sentinels, all servers.

use super::discover::tell_changes;
use crate::cluster::{DecidedPrimary, Speaker, Telling, ViewUpdate};
use crate::core::pools::FoundState;
use crate::core::pools::cluster::state::About;
use crate::core::pools::cluster::state::Told;
use crate::core::{ConnectionKey, Core, Plane};
use keyway_resp::Protocol;
use keyway_topology::{
    Endpoint, GroupView, InfoReplication, NodeHealth, ServerId, ViewError, WatchedPrimary,
    WatchedReplica, primary_address,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often each sentinel of a majority must have told of the same earlier epoch before it is
/// believed. Once is not enough, because sentinels learn of a fail-over one after the other.
const EARLIER_TIMES: u32 = 3;

/// The pause before the sentinels are asked again when most of them tell of an earlier epoch.
pub(super) const VIEW_PAUSE: Duration = Duration::from_secs(1);

/// The pause before servers are asked again while a group of several has no primary.
const LACKING_PAUSE: Duration = Duration::from_millis(250);

/// The error text of a sentinel for a name that it does not watch.
const UNWATCHED: &str = "No such master";

impl Core {
    /// Asks every sentinel about every primary of a pool, because sentinels learn of a fail-over
    /// one after the other. Returns whether there was a sentinel to ask.
    pub(super) fn ask_sentinels(&mut self, pool: u16) -> bool {
        let now = self.plane.clock.now;
        let Some(of) = self.plane.sentinels_of(pool) else { return false };
        let Some(state) = self.plane.cluster_state(pool) else { return false };
        let names = state.shared.primaries().to_vec();
        let Some(state) = self.plane.pools[usize::from(of)].servers() else { return false };
        let count = self.plane.plan.topology.pools()[usize::from(of)].servers().len() as u16;
        let links: Vec<(u16, ConnectionKey)> = (0..count)
            .map(|server| (server, state.link(server, 0, Protocol::Resp2)))
            .filter(|&(server, index)| {
                !self.links[index].link.is_down(now) && !self.plane.owes_answers(pool, server)
            })
            .collect();
        self.plane.begin_round(pool);
        for &(server, index) in links.iter() {
            for (group, name) in (0..).zip(&names) {
                let name = name.as_bytes();
                // Redis knows `REPLICAS`, the later word for `SLAVES`, only from version 5 on.
                let questions: [(&[u8], About); 3] = [
                    (b"GET-MASTER-ADDR-BY-NAME", About::Address(group)),
                    (b"MASTER", About::Primary(group)),
                    (b"SLAVES", About::Replicas(group)),
                ];
                for (word, about) in questions {
                    self.ask_about(pool, server, index, &[b"SENTINEL", word, name], about);
                }
            }
        }
        !links.is_empty()
    }

    /// Asks every server of a pool for its role. Returns whether there was a server to ask.
    pub(super) fn ask_roles(&mut self, pool: u16) -> bool {
        let now = self.plane.clock.now;
        let Some(FoundState { servers, cluster, .. }) = self.plane.pools[usize::from(pool)].found()
        else {
            return false;
        };
        let links: Vec<(u16, ConnectionKey)> = cluster
            .map
            .nodes()
            .map(|(server, _)| (server, servers.link(server, 0, Protocol::Resp2)))
            .filter(|&(server, index)| {
                !self.links[index].link.is_down(now) && !self.plane.owes_answers(pool, server)
            })
            .collect();
        // Only the whole of it tells that a server loads its data, which the control plane wants.
        let is_decided = cluster.shared.has_decisions();
        let words: &[&[u8]] = if is_decided { &[b"INFO"] } else { &[b"INFO", b"replication"] };
        self.plane.begin_round(pool);
        for &(server, index) in links.iter() {
            self.ask_about(pool, server, index, words, About::Role);
        }
        !links.is_empty()
    }

    /// Takes a sentinel's or a server's reply to the question with the given number.
    pub(super) fn hear_group(&mut self, server: ServerId, number: u32, reply: &[u8]) {
        let pool = self.plane.asked_about(server.pool);
        let Some(about) = self.plane.take_question(pool, server.server, number) else { return };
        let outcome = match about {
            About::Address(_) => self.hear_address(pool, server.server, reply),
            About::Primary(group) => self.hear_primary(pool, group, server.server, reply),
            About::Replicas(group) => self.hear_replicas(pool, group, server.server, reply),
            About::Role => self.hear_role(pool, server.server, reply),
            About::Slots(_) => Ok(()),
        };
        if let Err(error) = outcome {
            if !self.note_unwatched(pool, about, &error) {
                self.tell_useless(pool, server, &error);
            }
            self.plane.forget_questions(pool, server.server, about);
        }
        if self.plane.is_round_over(pool) {
            self.end_group_round(pool);
        }
    }

    /// Notes that the question with the given number was not answered.
    pub(super) fn miss_group(&mut self, server: ServerId, number: u32) {
        let pool = self.plane.asked_about(server.pool);
        if self.plane.take_question(pool, server.server, number).is_some()
            && self.plane.is_round_over(pool)
        {
            self.end_group_round(pool);
        }
    }

    /// Returns whether the answers so far determine every primary that servers tell of, or one that
    /// sentinels tell of.
    pub(super) fn is_decided(&self, pool: u16) -> bool {
        let Some(told) = self.plane.cluster.rounds.get(&pool).map(|round| &round.told) else {
            return false;
        };
        let Some(state) = self.plane.cluster_state(pool) else { return false };
        if state.shared.sentinels().is_some() {
            return !told.known.is_empty();
        }
        let groups = state.shared.primaries().len() as u16;
        (0..groups).all(|group| self.elect(pool, group, &told.roles).is_some())
    }

    /// Ends the round and acts on its answers. All servers have answered, or are not waited for any
    /// longer.
    pub(super) fn end_group_round(&mut self, pool: u16) {
        let Some(told) = self.plane.end_round(pool) else { return };
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let shared = Arc::clone(&state.shared);
        let refresh = shared.settings().refresh;
        self.tell_unwatched(pool, &told);
        let again = if shared.sentinels().is_none() {
            let now = self.plane.clock.now;
            shared.note_roles(&state.map, (&told.roles, &told.answered), now);
            let groups = shared.primaries().len() as u16;
            let learned = (0..groups).filter(|&group| self.learn_roles(pool, group, &told)).count();
            match usize::from(groups) - learned {
                0 => refresh,
                _ if learned == 0 => return self.plane.note_unanswered(pool),
                _ => LACKING_PAUSE,
            }
        } else if told.known.is_empty() {
            return self.plane.note_unanswered(pool);
        } else if told.stale * 2 > self.sentinel_count(pool) {
            // The sentinels that tell of an earlier epoch may become the majority.
            VIEW_PAUSE
        } else {
            refresh
        };
        shared.note_answered(self.plane.clock.now, refresh.min(again));
    }

    /// Learns the primary of a group from the roles of its servers. Returns whether there is one.
    fn learn_roles(&mut self, pool: u16, group: u16, told: &Told) -> bool {
        let Some(state) = self.plane.cluster_state(pool) else { return false };
        let shared = Arc::clone(&state.shared);
        self.tell_rivals(pool, group, &told.roles);
        let decided = shared.decided(group);
        let Some(view) = self.elect(pool, group, &told.roles) else {
            self.note_no_primary(pool, group, told);
            return false;
        };
        if !self.learn_elected(pool, &view, decided.as_ref()) {
            // The next answers tell of the servers for the decision that counts now.
            shared.ask_again();
        }
        true
    }

    fn told(&mut self, pool: u16) -> Option<&mut Told> {
        Some(&mut self.plane.cluster.rounds.get_mut(&pool)?.told)
    }

    fn hear_address(&mut self, pool: u16, server: u16, reply: &[u8]) -> Result<(), ViewError> {
        let address = primary_address(reply)?;
        if let Some(told) = self.told(pool) {
            match address {
                Some(address) => told.addresses.insert(server, address),
                None => told.addresses.remove(&server),
            };
        }
        Ok(())
    }

    fn hear_primary(
        &mut self,
        pool: u16,
        group: u16,
        server: u16,
        reply: &[u8],
    ) -> Result<(), ViewError> {
        let primary = WatchedPrimary::from_primary(reply)?;
        let Some(state) = self.plane.cluster_state(pool) else { return Ok(()) };
        let name = state.shared.primaries().get(usize::from(group));
        if name.is_none_or(|name| **name != *primary.name) {
            return Err(ViewError::Expected("the primary that it was asked about"));
        }
        if let Some(told) = self.told(pool) {
            told.primaries.insert(server, primary);
        }
        Ok(())
    }

    fn hear_replicas(
        &mut self,
        pool: u16,
        group: u16,
        server: u16,
        reply: &[u8],
    ) -> Result<(), ViewError> {
        let replicas = WatchedReplica::from_replicas(reply)?;
        let Some(told) = self.told(pool) else { return Ok(()) };
        told.known.insert(group);
        let Some(primary) = told.primaries.remove(&server) else { return Ok(()) };
        let address = told.addresses.remove(&server);
        let Some(state) = self.plane.cluster_state(pool) else { return Ok(()) };
        let known = state.map.primary(group).and_then(|server| state.map.node(usize::from(server)));
        let known = known.map(|node| (&node.endpoint, state.map.epoch(Some(group))));
        let Some(at) = address_of_epoch(&primary, address, known) else {
            state.shared.ask_again();
            return Ok(());
        };
        let view = GroupView {
            group,
            primary: at,
            epoch: primary.config_epoch,
            replicas: replicas.into_iter().map(replica).collect(),
        };
        let is_stale = self.learn_group(pool, server, &view);
        if let Some(told) = self.told(pool) {
            told.stale += usize::from(is_stale);
        }
        Ok(())
    }

    fn hear_role(&mut self, pool: u16, server: u16, reply: &[u8]) -> Result<(), ViewError> {
        let role = InfoReplication::from_reply(reply)?;
        let now = self.plane.clock.now;
        if let Some(told) = self.told(pool) {
            told.roles.insert(server, role);
            told.answered.insert(server, now);
        }
        Ok(())
    }

    /// Learns what was told of a primary. Returns whether the answer is older than what is known.
    fn learn_group(&mut self, pool: u16, server: u16, view: &GroupView) -> bool {
        let of = self.sentinel_count(pool);
        let Some(state) = self.plane.cluster_state(pool) else { return false };
        let shared = Arc::clone(&state.shared);
        let now = self.plane.clock.now;
        let by = Speaker { server, of, times: EARLIER_TIMES };
        match shared.learn_group(view, by, now) {
            ViewUpdate::Same => false,
            ViewUpdate::New(learned) => {
                tell_changes(&self.plane.plan.pools[usize::from(pool)].name, &learned);
                false
            }
            ViewUpdate::Stale => {
                let from = self.plane.sentinels_of(pool).unwrap_or(pool);
                self.plane.tell_stale(pool, ServerId { pool: from, server });
                true
            }
        }
    }

    /// Learns the primary that was elected while this decision counted. Returns whether it still does.
    fn learn_elected(&self, pool: u16, view: &GroupView, decided: Option<&DecidedPrimary>) -> bool {
        let Some(state) = self.plane.cluster_state(pool) else { return true };
        let by = Speaker { server: 0, of: 1, times: EARLIER_TIMES };
        let learned = state.shared.learn_chosen(view, decided, by, self.plane.clock.now);
        match learned {
            None => return false,
            Some(ViewUpdate::New(learned)) => {
                tell_changes(&self.plane.plan.pools[usize::from(pool)].name, &learned);
            }
            Some(ViewUpdate::Same | ViewUpdate::Stale) => {}
        }
        true
    }

    /// Returns how many sentinels a pool has, or 1 without sentinels.
    fn sentinel_count(&self, pool: u16) -> usize {
        let count = |of: u16| self.plane.plan.topology.pools()[usize::from(of)].servers().len();
        self.plane.sentinels_of(pool).map_or(1, count)
    }

    /// Notes that a sentinel does not watch a primary. Returns whether the error said so.
    fn note_unwatched(&mut self, pool: u16, about: About, error: &ViewError) -> bool {
        let (About::Address(group) | About::Primary(group) | About::Replicas(group)) = about else {
            return false;
        };
        let is_unwatched = matches!(error, ViewError::Refused(text) if text.contains(UNWATCHED));
        if let Some(told) = self.told(pool).filter(|_| is_unwatched) {
            told.unwatched.insert(group);
        }
        is_unwatched
    }

    /// Logs primaries that no sentinel watches.
    fn tell_unwatched(&self, pool: u16, told: &Told) {
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let names = &state.shared.primaries();
        let named = told.unwatched.difference(&told.known);
        let Some(primary) = named.filter_map(|&group| names.get(usize::from(group))).next() else {
            return;
        };
        let name = &self.plane.plan.pools[usize::from(pool)].name;
        let why = format!("no sentinel knows {primary:?}; check primaries in [pool.{name}]");
        if state.shared.notice.is_due(self.plane.clock.now) {
            tracing::warn!(pool = name, "{why}; told at most once a minute");
        }
        state.shared.note_reason(why, Telling::Cause, self.plane.clock.now);
    }

    /// Notes that servers of a group told their roles, and that none of them is the primary.
    fn note_no_primary(&self, pool: u16, group: u16, told: &Told) {
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let count = self.of_group(pool, group, &told.roles).count();
        if count > 0 {
            let of = self.words_of_group(pool, group);
            let why = format!("none of the {count} {of}that answered is a primary");
            state.shared.note_reason(why, Telling::Cause, self.plane.clock.now);
        }
    }

    /// Returns the words that name a group of several, with a space behind them.
    fn words_of_group(&self, pool: u16, group: u16) -> String {
        let state = self.plane.cluster_state(pool);
        let names = state.map_or(&[][..], |state| state.shared.primaries());
        match names.get(usize::from(group)) {
            Some(name) if names.len() > 1 => format!("of group {name} "),
            _ => String::new(),
        }
    }

    /// Returns the servers of a group that told their roles.
    fn of_group<'t>(
        &self,
        pool: u16,
        group: u16,
        roles: &'t BTreeMap<u16, InfoReplication>,
    ) -> impl Iterator<Item = (u16, &'t InfoReplication)> {
        let state = self.plane.cluster_state(pool);
        let is_its = move |server: u16| {
            let node = state.and_then(|state| Some((state, state.map.node(usize::from(server))?)));
            node.is_some_and(|(state, node)| state.shared.group_of(&node.endpoint) == Some(group))
        };
        roles
            .iter()
            .filter(move |(server, _)| is_its(**server))
            .map(|(&server, role)| (server, role))
    }

    /// Logs servers of one group that are each a primary: the keys of all but one are out of reach.
    fn tell_rivals(&self, pool: u16, group: u16, roles: &BTreeMap<u16, InfoReplication>) {
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let primaries: Vec<u16> = self
            .of_group(pool, group, roles)
            .filter(|(_, role)| !role.is_replica())
            .map(|(server, _)| server)
            .collect();
        let lasts = state.shared.note_rivals(group, primaries.len() > 1);
        if !lasts || !state.shared.notice_rivals.is_due(self.plane.clock.now) {
            return;
        }
        let taken = self.elect(pool, group, roles).map(|view| view.primary.to_string());
        let names: Vec<String> = primaries
            .iter()
            .map(|&server| self.plane.describe_backend(ServerId { pool, server }))
            .collect();
        tracing::warn!(
            pool = self.plane.plan.pools[usize::from(pool)].name,
            primaries = names.join(", "),
            taken,
            "several servers of the list say that they are primaries: one is taken for it, and keys \
             of the others are not found; list one primary and its replicas, or make the others its \
             replicas; told at most once a minute"
        );
    }

    /// Returns the primary of a group: the one that the control plane has decided, whatever servers say, or
    /// one of the servers that told their roles. Of several that claim to be the primary, it takes
    /// the one with most replicas, and prefers the one that was the primary before.
    fn elect(
        &self,
        pool: u16,
        group: u16,
        roles: &BTreeMap<u16, InfoReplication>,
    ) -> Option<GroupView> {
        let state = self.plane.cluster_state(pool)?;
        let (shared, map) = (&state.shared, &state.map);
        let endpoint = |server: u16| Some(map.node(usize::from(server))?.endpoint.clone());
        let decided = shared.decided(group).and_then(|decided| {
            let says = |server: &u16| roles.get(server).is_some_and(|role| !role.is_replica());
            let next = decided.next.and_then(|next| map.index_of(&next)).filter(says);
            let is_its = |server: &u16| {
                endpoint(*server).is_some_and(|it| shared.group_of(&it) == Some(group))
            };
            next.or_else(|| map.index_of(&decided.primary)).filter(is_its)
        });
        let primaries = self.of_group(pool, group, roles).filter(|(_, role)| !role.is_replica());
        let online =
            |role: &InfoReplication| role.replicas.iter().filter(|it| it.is_online).count();
        let rank = |&(server, role): &(u16, &InfoReplication)| {
            (online(role), map.is_serving(usize::from(server)))
        };
        let primary = decided.or_else(|| Some(primaries.max_by_key(rank)?.0))?;
        // A replica of another server than the decided one may lack writes, or have others.
        let followed = decided.and_then(endpoint);
        let follows = |of: &Endpoint| followed.as_ref().is_none_or(|it| shared.are_same(it, of));
        let others = map.nodes().filter(|&(server, node)| {
            server != primary && shared.group_of(&node.endpoint) == Some(group)
        });
        let replicas = others.map(|(server, node)| {
            let health = match roles.get(&server) {
                Some(role) if role.is_replica() => {
                    let link = role.link.as_ref();
                    let is_linked = link.is_some_and(|link| link.is_up && follows(&link.primary));
                    if is_linked { NodeHealth::Online } else { NodeHealth::Failing }
                }
                Some(_) => NodeHealth::Failing,
                None => NodeHealth::Failed,
            };
            (node.endpoint.clone(), health)
        });
        let replicas = replicas.collect();
        Some(GroupView { group, primary: endpoint(primary)?, epoch: None, replicas })
    }

    #[cold]
    fn tell_useless(&self, pool: u16, server: ServerId, error: &ViewError) {
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let backend = self.plane.describe_backend(server);
        let name = &self.plane.plan.pools[usize::from(pool)].name;
        let (log, why) = match error {
            ViewError::Refused(said) if server.pool != pool && is_unknown_command(said) => {
                let what = format!(
                    "{backend} answers, but is no sentinel: it said '{said}'; check sentinels in \
                     [pool.{name}]"
                );
                (what.clone(), what)
            }
            _ => (
                format!("what {backend} says of the primary of pool {name} {error}"),
                format!("what {backend} says of it {error}"),
            ),
        };
        if state.shared.notice.is_due(self.plane.clock.now) {
            tracing::warn!(pool = name, backend, "{log}; told at most once a minute");
        }
        state.shared.note_reason(why, Telling::Cause, self.plane.clock.now);
    }
}

/// Returns whether a server's error to SENTINEL says that it has no such command.
fn is_unknown_command(said: &str) -> bool {
    said.to_ascii_lowercase().contains("unknown command")
}

/// Returns the address of a primary, from a sentinel that first told its `address` and then the
/// rest with the epoch. Returns `None` if a fail-over may have come in between, so that the address
/// is the old primary's and the epoch the new one's. `known` is the primary that is known, with its
/// epoch.
fn address_of_epoch(
    told: &WatchedPrimary,
    address: Option<Endpoint>,
    known: Option<(&Endpoint, Option<u64>)>,
) -> Option<Endpoint> {
    if !told.state.is_failing_over {
        // The sentinel knows one address at any moment, and this is the later answer.
        return Some(told.endpoint.clone());
    }
    let address = address.unwrap_or_else(|| told.endpoint.clone());
    let is_torn = known.is_some_and(|(endpoint, epoch)| {
        let is_known = told.config_epoch == epoch && *endpoint == address;
        address == told.endpoint && told.config_epoch >= epoch && !is_known
    });
    (!is_torn).then_some(address)
}

/// Returns the address and the health of a replica.
fn replica(told: WatchedReplica) -> (Endpoint, NodeHealth) {
    let health = match (told.state.is_reached(), told.is_linked) {
        (false, _) => NodeHealth::Failed,
        (true, false) => NodeHealth::Failing,
        (true, true) => NodeHealth::Online,
    };
    (told.endpoint, health)
}

impl Plane {
    /// Returns whether the servers of a pool are asked about a primary and its replicas.
    pub(super) fn hears_groups(&self, pool: u16) -> bool {
        let is_group = |state: &super::ClusterState| !state.has_slots();
        self.cluster.sentinels.contains_key(&pool) || self.cluster_state(pool).is_some_and(is_group)
    }

    /// Returns the pool that servers of `pool` are asked about: their own or, for sentinels, the
    /// pool they watch.
    pub(super) fn asked_about(&self, pool: u16) -> u16 {
        self.cluster.sentinels.get(&pool).copied().unwrap_or(pool)
    }

    /// Returns the pool of sentinels that are asked about a pool.
    fn sentinels_of(&self, pool: u16) -> Option<u16> {
        let mut pairs = self.cluster.sentinels.iter();
        pairs.find(|&(_, &about)| about == pool).map(|(&of, _)| of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(port: u16, flags: &str, epoch: u64) -> WatchedPrimary {
        let words = ["name", "a", "ip", "10.0.0.1", "port", &port.to_string(), "flags", flags]
            .map(str::to_owned);
        let words = words.into_iter().chain(["config-epoch".to_owned(), epoch.to_string()]);
        let words: Vec<String> =
            words.map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        let reply = format!("*{}\r\n{}", words.len(), words.concat());
        WatchedPrimary::from_primary(reply.as_bytes()).unwrap()
    }

    #[test]
    fn an_address_of_before_is_not_taken_with_the_epoch_of_a_fail_over() {
        let [old, new] = [1, 2].map(|port| Endpoint::tcp("10.0.0.1", port).unwrap());
        let address = |told: &WatchedPrimary, address: &Endpoint, known: (&Endpoint, u64)| {
            address_of_epoch(told, Some(address.clone()), Some((known.0, Some(known.1))))
        };
        // A sentinel that does not lead the fail-over tells of one address, and MASTER was asked
        // later.
        assert_eq!(address(&primary(2, "master", 5), &old, (&old, 4)).as_ref(), Some(&new));
        let leads = primary(1, "master,failover_in_progress", 5);
        assert_eq!(address(&leads, &new, (&old, 4)).as_ref(), Some(&new));
        assert_eq!(address(&leads, &old, (&old, 4)), None, "it may be of the new one");
        assert_eq!(address(&leads, &old, (&new, 5)), None, "as others have told");
        assert_eq!(address(&leads, &old, (&old, 5)).as_ref(), Some(&old), "it has just begun");
        assert_eq!(address(&leads, &old, (&new, 6)).as_ref(), Some(&old), "it is stale anyway");
        let first = address_of_epoch(&leads, Some(old.clone()), None);
        assert_eq!(first.as_ref(), Some(&old), "better than nothing");
    }
}
