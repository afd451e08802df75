//! Laws of a member, over drawn sequences of publications, crashes, full disks and documents that
//! cannot be applied.

use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::limits::{NEWS_WITHIN, SEEN_EVERY};
use keyway_fleet::{
    About, Begun, Document, GroupSeen, Measured, Member, MemberAction, Published, PublishedRollout,
    Refusal, Report, Saved, ServerSeen, Share, Version,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

const CLUSTER: &str = "prod";
const ID: NodeId = NodeId(3);

/// A step of the world.
#[derive(Clone, Debug)]
enum Step {
    /// Any version that some leader may publish, also an old one.
    Publish(u64, u64),
    /// A version with a rollout of the revision that is so much larger, for this member or others.
    PublishRollout((u64, u64), u64, bool),
    /// The next outcome of what was ordered.
    Finish {
        is_good: bool,
    },
    /// The next report arrives or not.
    Reported(bool),
    Crash,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..6u64, 0..8u64).prop_map(|(epoch, revision)| Step::Publish(epoch, revision)),
        2 => ((1..6u64, 0..8u64), 1..4u64, any::<bool>())
            .prop_map(|(version, more, is_in)| Step::PublishRollout(version, more, is_in)),
        6 => prop::bool::weighted(0.8).prop_map(|is_good| Step::Finish { is_good }),
        2 => any::<bool>().prop_map(Step::Reported),
        1 => Just(Step::Crash),
        1 => Just(Step::Wait),
    ];
    prop::collection::vec(step, 1..120)
}

/// A member with its disk and what it serves by.
struct World {
    member: Member,
    disk: Option<Vec<u8>>,
    running: Option<Document>,
    pending: VecDeque<MemberAction>,
    reports: VecDeque<Report>,
    /// The rollout that was published last, and how often it was measured.
    rollout: Option<u64>,
    measures: u64,
    now: Time,
}

fn text(revision: u64) -> String {
    // Some documents are the same again, and some cannot be applied.
    if revision == 0 { String::new() } else { format!("# {}", revision % 5) }
}

/// Returns a share with this member in it, or with another one alone.
fn share(is_in: bool) -> Share {
    let both = [ID, NodeId(ID.0 + 1)];
    let shares = (0..).filter_map(|salt| Share::choose(salt, 50, &both));
    let mut shares = shares.map(|(share, _)| share);
    shares.find(|share| share.includes(ID) == is_in).expect("chance gives both")
}

fn can_be_applied(document: &Document) -> bool {
    &*document.text != "# 4"
}

impl World {
    fn start(disk: Option<Vec<u8>>, now: Time) -> World {
        let saved = disk.as_deref().map(|bytes| Saved::decode(bytes).expect("what was saved"));
        let choices = saved.iter().flat_map(|saved| [Some(&saved.newest), saved.good.as_ref()]);
        let running = choices.flatten().find(|one| can_be_applied(one)).cloned();
        let newest = saved.as_ref().map(|saved| saved.newest.version);
        let begun = Begun {
            running: running.as_ref().map(|one| one.version),
            refused: (newest != running.as_ref().map(|one| one.version)).then(|| "no".to_owned()),
        };
        let member = Member::new((CLUSTER, ID), About::default(), saved, begun);
        let (pending, reports) = Default::default();
        World { member, disk, running, pending, reports, rollout: None, measures: 0, now }
    }

    fn take(&mut self) {
        while let Some(action) = self.member.poll_action() {
            match action {
                MemberAction::Report { body, .. } | MemberAction::Tell { body, .. } => {
                    self.reports.push_back(Report::decode(&body).expect("a report"));
                }
                MemberAction::Applied { .. } => {}
                MemberAction::Measure { rollout, revision } => {
                    assert_eq!(Some(rollout), self.rollout, "only what goes on is measured");
                    let running = self.member.running().map_or(0, |running| running.revision);
                    assert_eq!(revision, running);
                    self.measures += 1;
                    let measured = Measured { rollout, revision, ..Measured::default() };
                    self.member.handle_measured(measured, self.now);
                }
                other => self.pending.push_back(other),
            }
        }
        assert!(self.pending.len() <= 1, "one step at a time");
    }

    fn finish(&mut self, is_good: bool) {
        match self.pending.pop_front() {
            Some(MemberAction::Save(saved)) if is_good => {
                self.disk = Some(saved.encode());
                self.member.handle_saved(Ok(()), self.now);
            }
            Some(MemberAction::Save(_)) => {
                self.member.handle_saved(Err("full".to_owned()), self.now);
            }
            Some(MemberAction::Apply(document)) => {
                let on_disk = Saved::decode(self.disk.as_deref().expect("a file")).expect("whole");
                assert_eq!(on_disk.newest, document, "only what is on the disk is applied");
                let outcome = match can_be_applied(&document) {
                    true => {
                        self.running = Some(document);
                        Ok(())
                    }
                    false => Err("no".to_owned()),
                };
                self.member.handle_applied(outcome, self.now);
            }
            _ => {}
        }
        self.take();
    }

    fn publish(&mut self, version: Version) -> Result<bool, Refusal> {
        self.publish_with(version, None)
    }

    fn publish_with(
        &mut self,
        version: Version,
        rollout: Option<(u64, bool)>,
    ) -> Result<bool, Refusal> {
        let document = Document { version, text: text(version.revision).into() };
        let rollout = rollout.map(|(more, is_in)| {
            let revision = version.revision + more;
            let version = Version { revision, ..version };
            PublishedRollout {
                document: Document { version, text: text(revision).into() },
                share: share(is_in),
                measure_every: Duration::from_secs(1),
            }
        });
        let (cluster, leader) = (CLUSTER.to_owned(), NodeId(1));
        let published = Published { cluster, leader, document, rollout };
        let bytes = published.encode();
        assert_eq!(Published::decode(&bytes).as_ref(), Ok(&published));
        let going_on = published.rollout.as_ref().map(|one| one.document.version.revision);
        let outcome = self.member.handle_published(Published::decode(&bytes).unwrap(), self.now);
        if outcome.is_ok() {
            self.rollout = going_on;
        }
        self.take();
        outcome
    }

    fn check(&self, before: Option<Version>) {
        // The version on the disk only grows.
        let saved = self.member.saved();
        assert!(before.is_none_or(|before| saved.is_some_and(|saved| saved.covers(before))));
        let on_disk = self.disk.as_deref().map(|bytes| Saved::decode(bytes).unwrap());
        assert_eq!(saved, on_disk.as_ref().map(|saved| saved.newest.version));
        for report in &self.reports {
            // A version that is acknowledged is on the disk, and stays there.
            let told = report.saved.into_iter().chain(report.running);
            assert!(told.clone().all(|told| saved.is_some_and(|saved| saved.covers(told))));
        }
        // The member serves by the version that it tells.
        let served = self.running.as_ref().map_or("", |one| &one.text);
        let said = self.member.running().map_or(String::new(), |one| text(one.revision));
        assert_eq!(served, said);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn versions_only_grow_and_what_is_acknowledged_is_on_the_disk(steps in steps()) {
        let mut world = World::start(None, Time(0));
        for step in steps {
            let before = world.member.saved();
            match step {
                Step::Publish(epoch, revision) => {
                    let version = Version { epoch, revision };
                    let outcome = world.publish(version);
                    if before.is_some_and(|before| !version.covers(before)) {
                        prop_assert!(outcome.is_err());
                    }
                }
                Step::PublishRollout((epoch, revision), more, is_in) => {
                    let version = Version { epoch, revision };
                    let meant = Version { epoch, revision: revision + if is_in { more } else { 0 } };
                    let outcome = world.publish_with(version, Some((more, is_in)));
                    if before.is_some_and(|before| !meant.covers(before)) {
                        prop_assert!(outcome.is_err());
                    }
                }
                Step::Finish { is_good } => world.finish(is_good),
                Step::Reported(has_arrived) => world.member.handle_reported(has_arrived, world.now),
                Step::Crash => world = World::start(world.disk.take(), world.now),
                Step::Wait => {
                    world.now = world.now + Duration::from_secs(6);
                    world.member.handle_timeout(world.now);
                }
            }
            world.take();
            world.check(before);
        }
        // Once nothing fails any more, the latest version is there, and its leader is told.
        let version = Version { epoch: 9, revision: 12 };
        prop_assert!(world.publish(version).is_ok());
        for _ in 0..12 {
            world.finish(true);
            world.now = world.now + Duration::from_secs(6);
            world.member.handle_timeout(world.now);
            world.member.handle_reported(true, world.now);
            world.take();
        }
        prop_assert_eq!(world.member.running(), Some(version));
        prop_assert_eq!(world.reports.back().unwrap().running, Some(version));
        prop_assert_eq!(world.member.poll_deadline(), None);
    }

    #[test]
    fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0..300usize) {
        let _ = Published::decode(&bytes);
        let _ = Report::decode(&bytes);
        prop_assert!(Saved::decode(&bytes).is_err());
        let newest = Document { version: Version { epoch: 3, revision: 4 }, text: "abc".into() };
        let saved = Saved { cluster: CLUSTER.to_owned(), newest, good: None };
        let mut whole = saved.encode();
        prop_assert_eq!(Saved::decode(&whole), Ok(saved));
        whole.truncate(cut.min(whole.len() - 1));
        prop_assert!(Saved::decode(&whole).is_err());
    }
}

#[test]
fn each_refusal_says_what_is_wrong() {
    let mut world = World::start(None, Time(0));
    let version = |epoch, revision| Version { epoch, revision };
    assert_eq!(world.publish(version(3, 7)), Ok(true));
    assert_eq!(world.publish(version(3, 7)), Ok(false));
    assert!(matches!(world.publish(version(2, 9)), Err(Refusal::OldLeader { .. })));
    let refusal = world.publish(version(4, 6)).expect_err("an older document");
    assert!(refusal.to_string().contains("restored backup"), "{refusal}");
    let document = Document { version: version(4, 7), text: "# another".into() };
    let (cluster, leader) = (CLUSTER.to_owned(), NodeId(1));
    let one = Published { cluster, leader, document, rollout: None };
    let other = Published { cluster: "test".to_owned(), ..one.clone() };
    let differs = world.member.handle_published(one, Time(0));
    assert_eq!(differs, Err(Refusal::Differs { theirs: version(4, 7) }));
    let refusal = world.member.handle_published(other, Time(0)).expect_err("another cluster");
    assert!(refusal.to_string().contains("\"test\""), "{refusal}");
}

/// A publisher that is refused learns what the member has.
#[test]
fn a_refused_publisher_is_told_the_newer_version() {
    let mut world = World::start(None, Time(0));
    world.publish(Version { epoch: 3, revision: 7 }).expect("new");
    world.finish(true);
    world.finish(true);
    world.reports.clear();
    world.publish(Version { epoch: 1, revision: 1 }).expect_err("old");
    let newest = Some(Version { epoch: 3, revision: 7 });
    assert!(world.reports.iter().any(|report| report.saved == newest));
}

/// A member counts requests while a rollout goes on, and no longer.
#[test]
fn a_rollout_is_measured_until_it_ends() {
    let mut world = World::start(None, Time(0));
    let version = Version { epoch: 3, revision: 5 };
    world.publish_with(version, Some((1, true))).expect("new");
    world.finish(true);
    world.finish(true);
    for _ in 0..5 {
        world.now = world.now + Duration::from_secs(1);
        world.member.handle_timeout(world.now);
        world.take();
        world.member.handle_reported(true, world.now);
        world.take();
    }
    assert!(world.measures >= 5, "{}", world.measures);
    let measured = world.reports.back().and_then(|report| report.measured);
    assert_eq!(measured.map(|one| (one.rollout, one.revision)), Some((6, 6)));
    world.publish(Version { epoch: 3, revision: 7 }).expect("the end");
    assert_eq!(
        world.reports.back().and_then(|report| report.measured).map(|one| one.rollout),
        Some(6)
    );
    world.member.handle_reported(true, world.now);
    world.take();
    assert_eq!(world.reports.back().and_then(|report| report.measured), None);
}

/// Returns a view of a group whose server answers or is silent.
fn seen(is_silent: bool) -> Vec<GroupSeen> {
    let silent_ms = is_silent.then_some(100);
    let server = ServerSeen { address: "p:1".to_owned(), silent_ms, role: None };
    vec![GroupSeen { pool: "a".to_owned(), epoch: 1, servers: vec![server] }]
}

/// Returns whether the latest report tells of a server that is silent.
fn is_told(world: &World) -> bool {
    let told = world.reports.back().and_then(|report| report.groups.first());
    told.is_some_and(|group| group.servers.iter().any(|server| server.silent_ms.is_some()))
}

impl World {
    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.member.handle_timeout(self.now);
        self.take();
    }

    fn see(&mut self, is_silent: bool) {
        self.member.observe(seen(is_silent), self.now);
        self.take();
    }
}

/// Begins with a leader that knows the view, and with no report on its way.
fn watching() -> World {
    let mut world = World::start(None, Time(0));
    world.publish(Version { epoch: 3, revision: 7 }).expect("new");
    world.finish(true);
    world.finish(true);
    world.see(false);
    while world.member.poll_deadline().is_some() {
        world.member.handle_reported(true, world.now);
        world.take();
    }
    world.reports.clear();
    world
}

#[test]
fn a_view_that_changes_is_reported_at_once_and_again_until_it_is_acknowledged() {
    let mut world = watching();
    world.see(true);
    assert!(is_told(&world), "at once");
    assert_eq!(world.member.poll_deadline(), Some(world.now + NEWS_WITHIN));
    for sent in 2..5 {
        world.pass(NEWS_WITHIN);
        assert_eq!(world.reports.len(), sent, "the acknowledgement is lost");
    }
    world.member.handle_reported(false, world.now);
    world.pass(NEWS_WITHIN);
    assert_eq!(world.reports.len(), 5, "it has not arrived");
    world.member.handle_reported(true, world.now);
    world.pass(NEWS_WITHIN);
    assert_eq!((world.reports.len(), world.member.poll_deadline()), (5, None));
}

#[test]
fn a_view_that_changes_does_not_wait_for_the_acknowledgement_of_an_earlier_report() {
    let mut world = watching();
    world.pass(SEEN_EVERY);
    world.see(false);
    assert_eq!(world.reports.len(), 1, "it is due");
    world.see(true);
    assert!(!is_told(&world), "one is on its way");
    let mut acknowledged = watching();
    world.pass(NEWS_WITHIN);
    assert!(is_told(&world), "its acknowledgement is late");
    acknowledged.pass(SEEN_EVERY);
    acknowledged.see(false);
    acknowledged.see(true);
    acknowledged.member.handle_reported(true, acknowledged.now);
    acknowledged.take();
    assert!(is_told(&acknowledged), "as soon as it has come");
}

#[test]
fn another_leader_is_told_at_once_while_a_report_to_the_one_before_is_on_its_way() {
    let mut world = watching();
    world.see(true);
    world.reports.clear();
    world.publish(Version { epoch: 4, revision: 7 }).expect("another leader");
    world.take();
    assert!(is_told(&world));
}
