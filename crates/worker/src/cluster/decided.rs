//! Primaries that the control plane has decided, and what a pool sees of its servers for that.
//!
//! While a primary is decided, what servers say of themselves decides nothing: a primary of before
//! that comes back is neither read nor written.

use super::{Cluster, Speaker};
use keyway_base::Time;
use keyway_topology::{ClusterMap, Endpoint, GroupView, InfoReplication, NodeHealth};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A decided primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidedPrimary {
    /// The primary.
    pub primary: Endpoint,
    /// The server to which it hands over. That one is the primary as soon as it says so.
    pub next: Option<Endpoint>,
}

/// A server, as the pool sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenServer {
    /// Its address.
    pub endpoint: Endpoint,
    /// The time of its latest answer, or of the first question if it never has answered.
    pub answered: Time,
    /// The time of its latest answer, if it has not answered the latest question.
    pub silent_since: Option<Time>,
    /// Its latest answer.
    pub role: Option<InfoReplication>,
}

/// The decisions about the groups of a pool, and its view of their servers.
#[derive(Debug, Default)]
pub(super) struct Decision {
    /// By the number of the group. A pool of one list of servers has the group 0.
    decided: Mutex<BTreeMap<u16, DecidedPrimary>>,
    seen: Mutex<Option<(Time, Vec<SeenServer>)>>,
}

impl Cluster {
    /// Obeys a decision about a group from now on; `None` goes back to what servers say. A decided
    /// primary that is not of the group counts for nothing. Returns whether that is a change.
    pub fn decide(&self, group: u16, decided: Option<DecidedPrimary>, now: Time) -> bool {
        let is_of_group = |endpoint: &Endpoint| self.group_of(endpoint) == Some(group);
        let mut all = self.decision.decided.lock();
        let before = match decided.clone() {
            Some(decided) => all.insert(group, decided),
            None => all.remove(&group),
        };
        drop(all);
        if before == decided {
            return false;
        }
        if let Some(decided) = decided {
            let map = self.map();
            let serving = |endpoint: &Endpoint| {
                map.index_of(endpoint).is_some_and(|at| map.is_serving(usize::from(at)))
            };
            let has_switched = decided.next.as_ref().is_some_and(serving);
            if map.index_of(&decided.primary).is_some()
                && is_of_group(&decided.primary)
                && !has_switched
                && !serving(&decided.primary)
            {
                // Nothing more goes to the primary of before, also if no server answers for now.
                let others = map.nodes().filter(|(_, node)| {
                    node.endpoint != decided.primary && is_of_group(&node.endpoint)
                });
                let failed = others.map(|(_, node)| (node.endpoint.clone(), NodeHealth::Failed));
                let replicas = failed.collect();
                let view = GroupView { group, primary: decided.primary, epoch: None, replicas };
                // The next answers of the servers tell the rest.
                let _ = self.learn_group(&view, Speaker { server: 0, of: 1, times: 1 }, now);
            }
        }
        self.ask_again();
        true
    }

    /// Returns the decided primary of a group.
    pub(crate) fn decided(&self, group: u16) -> Option<DecidedPrimary> {
        self.decision.decided.lock().get(&group).cloned()
    }

    /// Returns whether the primary of a group hands over to another server.
    pub(crate) fn hands_over(&self, group: u16) -> bool {
        self.decided(group).is_some_and(|decided| decided.next.is_some())
    }

    /// Returns whether the primary of a group is decided.
    pub(crate) fn has_decisions(&self) -> bool {
        !self.decision.decided.lock().is_empty()
    }

    /// Returns the servers of a group as they were seen last, and when.
    pub fn seen(&self, group: u16) -> Option<(Time, Vec<SeenServer>)> {
        let (at, mut servers) = self.decision.seen.lock().clone()?;
        servers.retain(|server| self.group_of(&server.endpoint) == Some(group));
        Some((at, servers))
    }

    /// Notes the answers of a round of questions to the servers of a list, and when each has come: a
    /// round lasts until the slowest server has answered.
    pub(crate) fn note_roles(
        &self,
        map: &ClusterMap,
        (roles, answered): (&BTreeMap<u16, InfoReplication>, &BTreeMap<u16, Time>),
        now: Time,
    ) {
        let mut seen = self.decision.seen.lock();
        let before = seen.take();
        let server = |(server, node): (u16, &keyway_topology::KnownNode)| {
            let endpoint = node.endpoint.clone();
            let mut known = before.iter().flat_map(|(_, all)| all);
            let known = known.find(|one| one.endpoint == endpoint);
            // A server that loads its data counts as silent: it answers no client.
            match roles.get(&server).filter(|role| !role.is_loading) {
                Some(role) => {
                    let answered = answered.get(&server).copied().unwrap_or(now);
                    SeenServer { endpoint, answered, silent_since: None, role: Some(role.clone()) }
                }
                None => {
                    let answered = known.map_or(now, |one| one.answered);
                    let role = known.and_then(|one| one.role.clone());
                    SeenServer { endpoint, answered, silent_since: Some(answered), role }
                }
            }
        };
        *seen = Some((now, map.nodes().map(server).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_topology::{
        Discovery, PrimarySource, ReplicatedPool, ServerGroup, SlotMap, SlotSpace, SlotsPool,
    };
    use std::time::Duration;

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::tcp("10.0.0.1", port).unwrap()
    }

    fn pool() -> Cluster {
        let seeds = (1..=3).map(endpoint).collect();
        Cluster::of_primaries(&ReplicatedPool::new(
            PrimarySource::Servers,
            Discovery::new(seeds, 3),
        ))
    }

    fn primary(pool: &Cluster) -> Option<Endpoint> {
        let map = pool.map();
        let at = map.primary(0)?;
        Some(map.node(usize::from(at))?.endpoint.clone())
    }

    fn decided(port: u16, next: Option<u16>) -> Option<DecidedPrimary> {
        Some(DecidedPrimary { primary: endpoint(port), next: next.map(endpoint) })
    }

    #[test]
    fn a_decision_counts_at_once_and_before_any_server_answers() {
        let pool = pool();
        assert_eq!(primary(&pool), None);
        assert!(pool.decide(0, decided(2, None), Time(1)));
        assert!(!pool.decide(0, decided(2, None), Time(2)), "it is no change");
        assert_eq!(primary(&pool), Some(endpoint(2)));
        assert!(pool.decide(0, decided(2, Some(3)), Time(3)));
        assert_eq!(primary(&pool), Some(endpoint(2)), "it has not handed over yet");
        assert!(pool.decide(0, decided(3, None), Time(4)));
        assert_eq!(primary(&pool), Some(endpoint(3)));
        assert!(pool.decide(0, decided(9, None), Time(5)));
        assert_eq!(primary(&pool), Some(endpoint(3)), "a stranger is not of the pool");
        assert!(pool.decide(0, None, Time(6)) && !pool.has_decisions());
    }

    #[test]
    fn a_decision_about_one_group_concerns_no_other() {
        let group = |name: &str, ports: &[u16]| ServerGroup {
            name: name.to_owned(),
            servers: ports.iter().map(|&port| endpoint(port)).collect(),
        };
        let mut map = SlotMap::new(SlotSpace::Codis);
        map.give(0, 1023, 0).unwrap();
        let groups = vec![group("a", &[1, 2]), group("b", &[3, 4])];
        let discovery = Discovery::new(Vec::new(), 0);
        let pool = Cluster::of_groups(&SlotsPool::new(map, groups, discovery));
        let primary = |group: u16| {
            let map = pool.map();
            let at = map.primary(group)?;
            Some(map.node(usize::from(at))?.endpoint.clone())
        };
        assert!(pool.decide(1, decided(4, None), Time(1)));
        assert_eq!((primary(0), primary(1)), (None, Some(endpoint(4))));
        assert!(pool.decide(0, decided(3, None), Time(2)), "a server of the other group");
        assert_eq!((primary(0), primary(1)), (None, Some(endpoint(4))));
        assert!(pool.decide(0, decided(1, None), Time(3)));
        assert_eq!((primary(0), primary(1)), (Some(endpoint(1)), Some(endpoint(4))));
        pool.note_roles(&pool.map(), (&BTreeMap::new(), &BTreeMap::new()), Time(4));
        let seen = |group| -> Vec<Endpoint> {
            let (_, servers) = pool.seen(group).unwrap();
            servers.into_iter().map(|server| server.endpoint).collect()
        };
        assert_eq!(
            (seen(0), seen(1)),
            (vec![endpoint(1), endpoint(2)], vec![endpoint(3), endpoint(4)])
        );
    }

    #[test]
    fn a_server_is_silent_since_its_latest_answer() {
        let pool = pool();
        let at = |seconds: u64| Time(0) + Duration::from_secs(seconds);
        let role = InfoReplication::from_text("role:master\r\nmaster_repl_offset:7\r\n").unwrap();
        let map = pool.map();
        let first = map.index_of(&endpoint(1)).unwrap();
        let answers = BTreeMap::from([(first, role)]);
        let none = (&BTreeMap::new(), &BTreeMap::new());
        pool.note_roles(&map, (&answers, &BTreeMap::from([(first, at(1))])), at(1));
        // Another server is slow, and the round lasts longer.
        pool.note_roles(&map, (&answers, &BTreeMap::from([(first, at(2))])), at(3));
        for second in 4..6 {
            pool.note_roles(&map, none, at(second));
        }
        let (when, seen) = pool.seen(0).unwrap();
        assert_eq!(when, at(5));
        let silent = |port| seen.iter().find(|it| it.endpoint == endpoint(port)).unwrap();
        assert_eq!(silent(1).silent_since, Some(at(2)));
        assert_eq!(silent(1).role.as_ref().map(|role| role.replication_offset), Some(7));
        assert_eq!(silent(2).silent_since, Some(at(1)), "it never answered");
        pool.note_roles(&map, (&answers, &BTreeMap::from([(first, at(6))])), at(6));
        assert_eq!(pool.seen(0).unwrap().1[usize::from(first)].silent_since, None);
    }

    #[test]
    fn a_primary_that_was_chosen_before_a_decision_does_not_replace_the_decided_one() {
        let pool = pool();
        assert!(pool.decide(0, decided(1, None), Time(1)));
        let before = pool.decided(0);
        let others = [2, 3].map(|port| (endpoint(port), NodeHealth::Online));
        let view = GroupView {
            group: 0,
            primary: endpoint(1),
            epoch: None,
            replicas: others.into_iter().collect(),
        };
        assert!(pool.decide(0, decided(2, None), Time(2)));
        let by = Speaker { server: 0, of: 1, times: 1 };
        assert!(pool.learn_chosen(&view, before.as_ref(), by, Time(3)).is_none());
        assert_eq!(primary(&pool), Some(endpoint(2)));
        assert!(pool.decide(0, decided(1, None), Time(4)));
        assert!(pool.learn_chosen(&view, before.as_ref(), by, Time(5)).is_some());
        assert_eq!(primary(&pool), Some(endpoint(1)));
    }
}
