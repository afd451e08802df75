//! For tests: a leader with groups, whose coordinator is a map.

use super::Leader;
use crate::facts::{self, DECISIONS, LEADER};
use crate::groups::{Group, GroupOrder, GroupSeen, GroupSettings, Phase, RoleSeen, ServerSeen};
use crate::slots::{MoverOrder, SlotsSeen};
use crate::{
    About, ApplyFault, Author, Fact, Failover, GroupState, Identity, KeyChange, LeaderAction,
    LeaderFact, OrderId, PublishedGroups, Report, Version, Write, Written,
};
use keyway_base::Time;
use keyway_bus::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

pub(in crate::leader) struct World {
    pub leader: Leader,
    pub facts: BTreeMap<String, Fact>,
    pub revision: u64,
    pub now: Time,
    pub published: Option<PublishedGroups>,
    pub answers: Vec<Result<Version, ApplyFault>>,
    pub commands: Vec<GroupOrder>,
    /// The number of decisions that reports tell.
    pub members_have: u64,
    /// The orders to movers that were not looked at yet, and the pools whose movers were ended.
    pub moves: Vec<MoverOrder>,
    pub ended: Vec<String>,
    /// The maps that a report tells.
    pub slots: Vec<SlotsSeen>,
}

pub(in crate::leader) fn id(nth: u64) -> NodeId {
    NodeId::of(1, 1, 0, nth).unwrap()
}

pub(in crate::leader) fn settled(epoch: u64, primary: &str) -> Group {
    let (primary, why) = (primary.to_owned(), String::new());
    Group { epoch, primary, old: None, phase: Phase::Settled, at: 0, why }
}

pub(in crate::leader) fn server(
    address: &str,
    silent_ms: Option<u64>,
    of: Option<&str>,
) -> ServerSeen {
    let role = match of {
        None => RoleSeen::Primary { offset: 1, replicas: 0 },
        Some(of) => RoleSeen::Replica {
            of: of.to_owned(),
            offset: 1,
            is_linked: true,
            down_ms: None,
            is_syncing: false,
            priority: 100,
        },
    };
    ServerSeen { address: address.to_owned(), silent_ms, role: Some(role) }
}

pub(in crate::leader) fn seen(pool: &str, epoch: u64, servers: &[ServerSeen]) -> GroupSeen {
    GroupSeen { pool: pool.to_owned(), epoch, servers: servers.to_vec() }
}

/// Returns the settings of a pool with the servers 1 and 2.
pub(in crate::leader) fn two(pool: &str) -> GroupSettings {
    GroupSettings {
        pool: pool.to_owned(),
        servers: vec![format!("{pool}:1"), format!("{pool}:2")],
        down_after: Duration::from_secs(5),
        quorum: None,
    }
}

impl World {
    /// Begins with these decisions in the coordinator. Each pool has the servers 1 and 2.
    pub fn new(groups: &[(&str, Group)], decisions: u64) -> World {
        let node = id(1);
        let leads = LeaderFact { node: node.0, epoch: 5, token: 7, urls: Vec::new(), admin: None };
        let fact = |value: Vec<u8>| Fact { value: value.into(), modified: 1 };
        let mut facts = BTreeMap::from([
            (LEADER.to_owned(), fact(leads.encode())),
            (DECISIONS.to_owned(), fact(decisions.to_string().into_bytes())),
        ]);
        for (pool, group) in groups {
            facts.insert(facts::group_key(pool), fact(group.encode()));
        }
        World::begin(facts, groups.iter().map(|(pool, _)| two(pool)).collect())
    }

    /// Begins as another node that leads, with what the coordinator has.
    pub fn of_facts(mut facts: BTreeMap<String, Fact>) -> World {
        let node = id(1);
        let leads = LeaderFact { node: node.0, epoch: 6, token: 7, urls: Vec::new(), admin: None };
        let fact = Fact { value: leads.encode().into(), modified: 1000 };
        facts.insert(LEADER.to_owned(), fact);
        let pools = facts.keys().filter_map(|key| key.strip_prefix(facts::GROUPS));
        let groups = pools.map(two).collect();
        World::begin(facts, groups)
    }

    fn begin(facts: BTreeMap<String, Fact>, groups: Vec<GroupSettings>) -> World {
        let node = id(1);
        let identity = Identity { cluster: "prod".to_owned(), node, urls: Vec::new(), admin: None };
        let now = Time(0) + Duration::from_secs(60);
        let mut leader = Leader::new(identity);
        leader.handle_session(Some(7), now);
        let revision = facts.values().map(|fact| fact.modified).max().unwrap_or(1);
        leader.handle_listed(revision, facts.clone(), now);
        leader.set_groups(groups, now);
        let (published, answers, commands) = (None, Vec::new(), Vec::new());
        let members_have = 0;
        let mut world = World {
            leader,
            facts,
            revision,
            now,
            published,
            answers,
            commands,
            members_have,
            moves: Vec::new(),
            ended: Vec::new(),
            slots: Vec::new(),
        };
        world.settle();
        world
    }

    pub fn settle(&mut self) {
        for _ in 0..4 {
            self.now = self.now + Duration::from_millis(100);
            self.leader.handle_timeout(self.now);
            while let Some(action) = self.leader.poll_action() {
                match action {
                    LeaderAction::Write(ticket, write) => {
                        let changes = self.execute(write);
                        let done = Written::Done(self.revision);
                        self.leader.handle_written(ticket, done, self.now);
                        self.leader.handle_changes(self.revision, changes, self.now);
                    }
                    LeaderAction::PublishGroups(published) => self.published = Some(published),
                    LeaderAction::Answer(_, outcome) => self.answers.push(outcome),
                    LeaderAction::Command(order) => self.commands.push(order),
                    LeaderAction::Move(order) => self.moves.push(order),
                    LeaderAction::EndMove(pool) => self.ended.push(pool),
                    _ => {}
                }
            }
        }
    }

    pub fn execute(&mut self, write: Write) -> Vec<KeyChange> {
        self.revision += 1;
        let mut changes = Vec::new();
        for (key, value) in write.put.into_iter().chain(write.put_bound) {
            let fact = Fact { value: value.into(), modified: self.revision };
            self.facts.insert(key.clone(), fact.clone());
            changes.push(KeyChange { key, fact: Some(fact) });
        }
        for key in write.delete {
            self.facts.remove(&key);
            changes.push(KeyChange { key, fact: None });
        }
        changes
    }

    pub fn probe(&mut self, pool: &str, servers: &[ServerSeen]) {
        self.leader.probed(seen(pool, 0, servers), self.now);
        self.settle();
    }

    pub fn report(&mut self, from: NodeId, groups: Vec<GroupSeen>) {
        let pools = groups.iter().map(|group| group.pool.clone()).collect();
        let report = Report {
            cluster: "prod".to_owned(),
            about: About { pools, ..About::default() },
            saved: None,
            running: None,
            refused: None,
            measured: None,
            groups,
            decisions: self.members_have,
            slots: self.slots.clone(),
            events: None,
        };
        self.leader.handle_report(from, &report.encode(), self.now);
        self.settle();
    }

    pub fn fail_over(&mut self, pool: &str, to: Option<&str>) {
        let by = Author { name: "eva".to_owned(), address: String::new() };
        let (pool, to) = (pool.to_owned(), to.map(str::to_owned));
        self.leader.failover(Failover { id: OrderId(1), pool, to, at: 9, by }, self.now);
        self.settle();
    }

    pub fn group(&self, pool: &str) -> Group {
        Group::decode(&self.facts[&facts::group_key(pool)].value).unwrap()
    }

    pub fn state(&self, pool: &str) -> Option<GroupState> {
        let views = self.leader.group_views(self.now);
        views.iter().find(|view| view.pool == pool).map(|view| view.state)
    }

    /// Returns the text of the latest entry of the audit log.
    pub fn audited(&self) -> String {
        let mut entries =
            self.facts.iter().filter(|(key, _)| key.starts_with(crate::audit::ENTRIES));
        let last = entries.next_back().map(|(_, fact)| fact.value.to_vec()).unwrap_or_default();
        String::from_utf8(last).unwrap()
    }

    pub fn refusal(&mut self) -> String {
        match self.answers.pop() {
            Some(Err(fault)) => fault.to_string(),
            other => panic!("{other:?} is no refusal"),
        }
    }
}
