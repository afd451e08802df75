//! A leader with groups, whose coordinator is a map.

use super::{Failover, GroupState};
use crate::facts::{self, DECISIONS, LEADER};
use crate::groups::{
    Decided, Group, GroupOrder, GroupSeen, GroupSettings, Phase, RoleSeen, ServerSeen,
};
use crate::{
    About, ApplyFault, Author, Decisions, Fact, Identity, KeyChange, Leader, LeaderAction,
    LeaderFact, OrderId, PublishedGroups, Report, Version, Write, Written,
};
use keyway_base::Time;
use keyway_bus::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

struct World {
    leader: Leader,
    facts: BTreeMap<String, Fact>,
    revision: u64,
    now: Time,
    published: Option<PublishedGroups>,
    answers: Vec<Result<Version, ApplyFault>>,
    commands: Vec<GroupOrder>,
    /// The number of decisions that reports tell.
    members_have: u64,
}

fn id(nth: u64) -> NodeId {
    NodeId::of(1, 1, 0, nth).unwrap()
}

fn settled(epoch: u64, primary: &str) -> Group {
    let (primary, why) = (primary.to_owned(), String::new());
    Group { epoch, primary, old: None, phase: Phase::Settled, at: 0, why }
}

fn server(address: &str, silent_ms: Option<u64>, of: Option<&str>) -> ServerSeen {
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

fn seen(pool: &str, epoch: u64, servers: &[ServerSeen]) -> GroupSeen {
    GroupSeen { pool: pool.to_owned(), epoch, servers: servers.to_vec() }
}

/// Returns the settings of a pool with the servers 1 and 2.
fn two(pool: &str) -> GroupSettings {
    GroupSettings {
        pool: pool.to_owned(),
        servers: vec![format!("{pool}:1"), format!("{pool}:2")],
        down_after: Duration::from_secs(5),
        quorum: None,
    }
}

impl World {
    /// Begins with these decisions in the coordinator. Each pool has the servers 1 and 2.
    fn new(groups: &[(&str, Group)], decisions: u64) -> World {
        let node = id(1);
        let identity = Identity { cluster: "prod".to_owned(), node, urls: Vec::new(), admin: None };
        let leads = LeaderFact { node: node.0, epoch: 5, token: 7, urls: Vec::new(), admin: None };
        let fact = |value: Vec<u8>| Fact { value: value.into(), modified: 1 };
        let mut facts = BTreeMap::from([
            (LEADER.to_owned(), fact(leads.encode())),
            (DECISIONS.to_owned(), fact(decisions.to_string().into_bytes())),
        ]);
        for (pool, group) in groups {
            facts.insert(facts::group_key(pool), fact(group.encode()));
        }
        let now = Time(0) + Duration::from_secs(60);
        let mut leader = Leader::new(identity);
        leader.handle_session(Some(7), now);
        leader.handle_listed(1, facts.clone(), now);
        leader.set_groups(groups.iter().map(|(pool, _)| two(pool)).collect(), now);
        let (published, answers, commands) = (None, Vec::new(), Vec::new());
        let (revision, members_have) = (1, 0);
        let mut world =
            World { leader, facts, revision, now, published, answers, commands, members_have };
        world.settle();
        world
    }

    fn settle(&mut self) {
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
                    _ => {}
                }
            }
        }
    }

    fn execute(&mut self, write: Write) -> Vec<KeyChange> {
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

    fn probe(&mut self, pool: &str, servers: &[ServerSeen]) {
        self.leader.probed(seen(pool, 0, servers), self.now);
        self.settle();
    }

    fn report(&mut self, from: NodeId, groups: Vec<GroupSeen>) {
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
            events: None,
        };
        self.leader.handle_report(from, &report.encode(), self.now);
        self.settle();
    }

    fn fail_over(&mut self, pool: &str, to: Option<&str>) {
        let by = Author { name: "eva".to_owned(), address: String::new() };
        let (pool, to) = (pool.to_owned(), to.map(str::to_owned));
        self.leader.failover(Failover { id: OrderId(1), pool, to, at: 9, by }, self.now);
        self.settle();
    }

    fn group(&self, pool: &str) -> Group {
        Group::decode(&self.facts[&facts::group_key(pool)].value).unwrap()
    }

    fn state(&self, pool: &str) -> Option<GroupState> {
        let views = self.leader.group_views(self.now);
        views.iter().find(|view| view.pool == pool).map(|view| view.state)
    }

    /// Returns the text of the latest entry of the audit log.
    fn audited(&self) -> String {
        let mut entries =
            self.facts.iter().filter(|(key, _)| key.starts_with(crate::audit::ENTRIES));
        let last = entries.next_back().map(|(_, fact)| fact.value.to_vec()).unwrap_or_default();
        String::from_utf8(last).unwrap()
    }

    fn refusal(&mut self) -> String {
        match self.answers.pop() {
            Some(Err(fault)) => fault.to_string(),
            other => panic!("{other:?} is no refusal"),
        }
    }
}

#[test]
fn naming_a_primary_after_a_backup_leaves_other_pools_as_members_have_them() {
    let decided = |pool: &str, epoch, primary: &str| Decided {
        pool: pool.to_owned(),
        epoch,
        primary: primary.to_owned(),
        next: None,
    };
    let mut member = Decisions::new("prod");
    let groups = vec![decided("a", 8, "a:2"), decided("b", 9, "b:2")];
    let version = Version { epoch: 4, revision: 9 };
    let before =
        PublishedGroups { cluster: "prod".to_owned(), leader: 1, version, groups, lost: vec![] };
    assert_eq!(member.take(&before), Ok(true));
    let mut world = World::new(&[("a", settled(2, "a:1")), ("b", settled(3, "b:1"))], 3);
    let look = |world: &mut World, member: &Decisions| {
        let servers = |pool: &str| {
            let (first, second) = (format!("{pool}:1"), format!("{pool}:2"));
            [server(&first, None, Some(&second)), server(&second, None, None)]
        };
        let epoch = |pool: &str| member.of(pool).map_or(0, |decided| decided.epoch);
        let view = |pool: &str| seen(pool, epoch(pool), &servers(pool));
        world.report(id(2), vec![view("a"), view("b")]);
        ["a", "b"].iter().for_each(|pool| world.probe(pool, &servers(pool)));
    };
    look(&mut world, &member);
    assert_eq!(world.state("a"), Some(GroupState::Ahead));
    world.fail_over("a", Some("a:2"));
    assert_eq!((world.group("a").epoch, world.group("a").primary.as_str()), (10, "a:2"));
    assert_eq!(world.group("b"), settled(3, "b:1"));
    let published = world.published.clone().unwrap();
    assert_eq!(member.take(&published), Ok(true));
    assert_eq!(member.of("a").map(|it| it.epoch), Some(10));
    assert_eq!(member.of("b").map(|it| it.primary.as_str()), Some("b:2"));
    let mut fresh = Decisions::new("prod");
    assert_eq!(fresh.take(&published), Ok(true));
    assert_eq!(fresh.of("b"), None, "the older decision is of no use");
    look(&mut world, &member);
    assert_eq!(world.state("b"), Some(GroupState::Ahead));
    assert_eq!(world.group("b").epoch, 3, "nothing is decided about it");
    world.fail_over("b", Some("b:2"));
    assert_eq!(world.group("b").primary, "b:2");
    assert_eq!(member.take(&world.published.clone().unwrap()), Ok(true));
    assert_eq!(member.of("b").map(|it| it.epoch), Some(world.group("b").epoch));
    assert_ne!(world.state("b"), Some(GroupState::Ahead));
}

#[test]
fn members_forget_no_pool_of_the_document_that_the_coordinator_does_not_know() {
    // The coordinator is that of before pool b had a decision, and no member tells of that.
    let mut world = World::new(&[("a", settled(2, "a:1"))], 2);
    world.published = None;
    world.leader.handle_session(None, world.now);
    world.leader.handle_session(Some(7), world.now);
    world.leader.handle_listed(world.revision, world.facts.clone(), world.now);
    world.settle();
    assert_eq!(world.published, None, "the document is not read yet");
    world.leader.set_groups(vec![two("a"), two("b")], world.now);
    world.settle();
    let published = world.published.clone().unwrap();
    assert_eq!(published.lost, ["b"]);
    let mut member = Decisions::new("prod");
    let decided = Decided { pool: "b".to_owned(), ..settled(1, "b:2").decided("b") };
    let before = PublishedGroups {
        version: Version { epoch: 4, revision: 1 },
        groups: vec![decided],
        lost: Vec::new(),
        ..published.clone()
    };
    assert_eq!(member.take(&before), Ok(true));
    assert_eq!(member.take(&published), Ok(true));
    assert_eq!(member.of("b").map(|it| it.primary.as_str()), Some("b:2"));
    assert_eq!(member.of("a").map(|it| it.primary.as_str()), Some("a:1"));
}

#[test]
fn a_decision_is_above_all_that_members_have_taken() {
    let mut world = World::new(&[("a", settled(2, "a:1"))], 2);
    let servers = [server("a:1", None, None), server("a:2", None, Some("a:1"))];
    let look = |world: &mut World| {
        world.report(id(2), vec![seen("a", 2, &servers)]);
        world.probe("a", &servers);
    };
    look(&mut world);
    world.fail_over("a", Some("a:1"));
    assert!(world.refusal().contains("is the primary of pool a already"));
    // The coordinator is that of before a removal of pool b, which the member has taken.
    let mut member = Decisions::new("prod");
    let current = world.published.clone().unwrap();
    let version = Version { revision: 9, ..current.version };
    let before = PublishedGroups { version, groups: Vec::new(), ..current.clone() };
    assert_eq!(member.take(&before), Ok(true));
    assert!(member.take(&current).is_err());
    world.members_have = member.version().revision;
    look(&mut world);
    world.fail_over("a", Some("a:1"));
    look(&mut world);
    assert_eq!((world.group("a").epoch, world.group("a").primary.as_str()), (10, "a:1"));
    assert_eq!(world.answers.pop().map(|it| it.is_ok()), Some(true));
    assert_eq!(member.take(&world.published.clone().unwrap()), Ok(true));
    assert_eq!(member.of("a").map(|it| it.epoch), Some(10));
}

#[test]
fn an_operator_names_a_server_that_says_that_it_is_a_primary_when_the_decided_one_is_down() {
    let mut world = World::new(&[("a", settled(2, "a:1"))], 2);
    let servers = [server("a:1", Some(60_000), None), server("a:2", None, None)];
    let look = |world: &mut World| {
        world.report(id(2), vec![seen("a", 2, &servers)]);
        world.probe("a", &servers);
    };
    world.report(id(3), vec![seen("a", 2, &servers)]);
    world.now = world.now + Duration::from_secs(5);
    world.leader.handle_left(id(3), world.now);
    world.probe("a", &servers);
    assert_eq!(world.state("a"), Some(GroupState::PrimarySilent), "the leader is one of two");
    look(&mut world);
    assert_eq!(world.state("a"), Some(GroupState::PrimaryDown));
    assert_eq!(world.group("a"), settled(2, "a:1"), "no replica can become the primary");
    world.fail_over("a", None);
    assert!(world.refusal().contains("a:1 was down for 2 of 3 observers"));
    world.fail_over("a", Some("a:1"));
    assert!(world.refusal().contains("name another server"));
    world.fail_over("a", Some("a:2"));
    assert_eq!(world.group("a").primary, "a:2");
    let audited = world.audited();
    assert!(audited.contains("is named") && audited.contains("a:1 -> a:2"), "{audited}");
    assert!(audited.contains("eva"), "{audited}");
    look(&mut world);
    assert_eq!(
        (world.group("a").phase, world.answers.pop().map(|it| it.is_ok())),
        (Phase::Settled, Some(true))
    );
}

#[test]
fn a_stored_primary_that_has_left_the_document_does_not_count() {
    let mut world = World::new(&[("a", settled(2, "gone:1"))], 2);
    // Neither of them is taken by itself: both say that they are primaries.
    world.probe("a", &[server("a:1", None, None), server("a:2", None, None)]);
    assert_eq!(world.state("a"), Some(GroupState::Undecided));
    world.fail_over("a", None);
    assert!(world.refusal().contains("name one with --to"));
    world.fail_over("a", Some("a:2"));
    assert_eq!(world.group("a").primary, "a:2");
}

/// Begins with a pool of three servers, and its decided primary.
fn three(primary: &str) -> World {
    let mut world = World::new(&[("a", settled(2, primary))], 2);
    let settings = GroupSettings {
        pool: "a".to_owned(),
        servers: ["a:1", "a:2", "a:3"].map(str::to_owned).to_vec(),
        down_after: Duration::from_secs(5),
        quorum: None,
    };
    world.leader.set_groups(vec![settings], world.now);
    world.settle();
    world
}

#[test]
fn a_server_that_is_down_for_the_observers_is_not_chosen() {
    let mut world = three("a:1");
    let replica = |silent_ms| server("a:2", silent_ms, Some("a:1"));
    let own = [server("a:1", None, None), replica(None), server("a:3", None, Some("a:1"))];
    let away = |address| server(address, Some(60_000), None);
    let all_away = ["a:1", "a:2", "a:3"].map(away);
    let look = |world: &mut World, servers: &[ServerSeen]| {
        [2, 3].into_iter().for_each(|nth| world.report(id(nth), vec![seen("a", 2, servers)]));
        world.probe("a", &own);
    };
    for _ in 0..50 {
        look(&mut world, &all_away);
    }
    assert_eq!(world.group("a"), settled(2, "a:1"), "no other server is better off");
    assert_eq!(world.state("a"), Some(GroupState::PrimaryDown));
    look(&mut world, &[away("a:1"), replica(None), away("a:3")]);
    assert_eq!(world.group("a").primary, "a:2");
}

#[test]
fn another_server_is_chosen_if_one_does_not_become_the_primary() {
    let mut world = three("a:1");
    let look = |world: &mut World, first: &ServerSeen| {
        let others = ["a:2", "a:3"].map(|address| server(address, None, Some("a:1")));
        let servers = [&[first.clone()][..], &others].concat();
        [2, 3].into_iter().for_each(|nth| world.report(id(nth), vec![seen("a", 2, &servers)]));
        world.probe("a", &servers);
    };
    let refuse = |world: &mut World| {
        for order in std::mem::take(&mut world.commands) {
            let refused = Err("ERR unknown command".to_owned());
            world.leader.commanded(("a", order.number), refused, world.now);
        }
    };
    let down = server("a:1", Some(60_000), None);
    let chosen = |world: &mut World, first: &ServerSeen, rounds: u32| {
        for _ in 0..rounds {
            look(world, first);
            refuse(world);
        }
        look(world, first);
        world.group("a").primary
    };
    assert_eq!(chosen(&mut world, &down, 1), "a:2");
    let says = world.leader.group_views(world.now)[0].says();
    assert_eq!(says, "a fail-over is going on: ERR unknown command");
    assert_eq!(chosen(&mut world, &down, 10), "a:3", "{:?}", world.group("a"));
    assert_eq!(world.group("a").old.as_deref(), Some("a:1"));
    assert!(world.group("a").why.contains("a:2 did not become the primary: ERR unknown command"));
    assert_eq!(chosen(&mut world, &down, 10), "a:3", "none is left");
    // An operator need not wait.
    world.fail_over("a", Some("a:2"));
    assert_eq!(
        (world.group("a").primary.as_str(), world.group("a").phase),
        ("a:2", Phase::Promoting)
    );
    // The primary before comes back while nobody else takes its place.
    let back = server("a:1", None, None);
    assert_eq!(chosen(&mut world, &back, 20), "a:1");
    assert_eq!(world.group("a").phase, Phase::Settled);
    let begun = world.group("a").epoch;
    assert_eq!(chosen(&mut world, &back, 50), "a:1");
    assert_eq!(world.group("a").epoch, begun, "nothing is decided any more");
}
