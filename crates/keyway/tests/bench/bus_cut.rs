//! Nodes of the bus between which packets are lost. A dead host is noticed in time, messages take
//! the other upstream or are reported as failed, and the nodes return to the primary.
//!
//! ```text
//!   a namespace apart             the tests' namespace
//!   the primary ══ cut here ══ sender, receiver: nodes of the test's own
//!                              the standby
//! ```

#![allow(clippy::disallowed_methods, reason = "how long it takes is what is tested")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use keyway_bus::{Event, NodeId, Reason, SendOptions, Settings, Upstream};
use keyway_channel::{Driver, DriverSettings, clock, here};
use keyway_testkit::{Apart, Cut, Process, TempDir, free_port, wait_until, watchdog};

const TOKEN: &str = "a token for these processes";
const PRIMARY: &str = "z1.control.0.1";
const STANDBY: &str = "z1.control.0.2";
const SENDER: &str = "z1.proxy.0.1";
const RECEIVER: &str = "z1.proxy.0.2";

/// Longest time until a dead host is noticed.
const SILENCE: Duration = Duration::from_millis(3500);

/// Time between two pings. If only packets to the primary are lost, one ping of its own may still
/// arrive after the cut, but no further one, because it is not acknowledged.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Time between two messages.
const PACE: Duration = Duration::from_millis(5);

/// Longest wait for the acknowledgement of a message.
const ACK: Duration = Duration::from_secs(5);

const SOON: Duration = Duration::from_secs(20);

fn id(text: &str) -> NodeId {
    text.parse().unwrap()
}

/// Starts a node in a process of its own, in the other namespace or here.
fn process(
    name: &str,
    address: IpAddr,
    apart: Option<&Apart>,
    scratch: &TempDir,
) -> (Process, String) {
    let url = format!("tcp://{address}:{}", free_port());
    let token = scratch.write("token", TOKEN);
    let text =
        format!("id = \"{name}\"\nlisten = [\"{url}\"]\ntoken_files = [\"{}\"]\n", token.display());
    let file = scratch.write(&format!("{name}.toml"), text);
    let mut words = apart.map_or_else(Vec::new, Apart::command);
    words.push(env!("CARGO_BIN_EXE_keyway").to_owned());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["bus", "node"]).arg(file);
    let process = Process::spawn(name, &mut command, scratch.path());
    wait_until("it is ready", SOON, || process.log().contains("ready "));
    (process, url)
}

/// Starts a node of this process below both upstreams.
fn node(name: &str, primary: &str, standby: &str) -> Driver {
    let mut settings = Settings::of(id(name));
    settings.tokens.add(TOKEN.as_bytes()).unwrap();
    settings.place = here();
    // The incarnation is later than in earlier tests, because numbers of messages only grow.
    settings.incarnation = clock().0;
    let upstream = |name, url: &str| Upstream { id: id(name), urls: vec![url.parse().unwrap()] };
    settings.upstreams = vec![upstream(PRIMARY, primary), upstream(STANDBY, standby)];
    Driver::new(settings, DriverSettings::default()).unwrap()
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrived,
    Failed { maybe: bool },
}

/// The sender and the receiver, and everything they have seen.
struct Pair {
    sender: Driver,
    receiver: Driver,
    sent: BTreeMap<u64, u64>,
    fates: BTreeMap<u64, Fate>,
    got: BTreeSet<u64>,
    last: Option<u64>,
    next: u64,
    due: Instant,
    /// When the sender and the receiver lost their primary, and the reason.
    lost: [Option<(Instant, Reason)>; 2],
}

impl Pair {
    fn new(sender: Driver, receiver: Driver) -> Pair {
        Pair {
            sender,
            receiver,
            sent: BTreeMap::new(),
            fates: BTreeMap::new(),
            got: BTreeSet::new(),
            last: None,
            next: 0,
            due: Instant::now(),
            lost: [None; 2],
        }
    }

    fn upstreams(&mut self) -> [Option<NodeId>; 2] {
        [self.sender.node().upstream(), self.receiver.node().upstream()]
    }

    /// Runs both nodes, sending messages, until `is_so` holds.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Pair) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < 2 * SOON, "not in time: {what}: {:?}", self.upstreams());
            self.send();
            self.turn();
        }
    }

    fn send(&mut self) {
        if Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + PACE;
        let body = self.next.to_le_bytes();
        let options = SendOptions { ack_within: Some(ACK), no_upstream: false };
        // A message that is refused at once was not sent.
        if let Ok(seq) = self.sender.node().send(id(RECEIVER), &body, options, clock()) {
            self.sent.insert(seq, self.next);
            self.next += 1;
        }
    }

    fn turn(&mut self) {
        self.sender.turn(Duration::from_millis(1)).unwrap();
        self.receiver.turn(Duration::from_millis(1)).unwrap();
        while let Some(event) = self.sender.poll_event() {
            self.note_lost(0, &event);
            let (seq, fate) = match event {
                Event::Acked { seq } => (seq, Fate::Arrived),
                Event::Failed { seq, maybe, .. } => (seq, Fate::Failed { maybe }),
                _ => continue,
            };
            let number = self.sent[&seq];
            assert_eq!(self.fates.insert(number, fate), None, "message {number} is told of twice");
        }
        while let Some(event) = self.receiver.poll_event() {
            self.note_lost(1, &event);
            if let Event::Message { body, .. } = event {
                let number = u64::from_le_bytes(body[..].try_into().unwrap());
                assert!(self.last < Some(number), "{number} comes behind {:?}", self.last);
                self.last = Some(number);
                self.got.insert(number);
            }
        }
    }

    fn note_lost(&mut self, who: usize, event: &Event) {
        if let Event::PeerDown { id: gone, reason } = event
            && *gone == id(PRIMARY)
        {
            self.lost[who] = Some((Instant::now(), *reason));
        }
    }

    /// Waits until messages arrive again that were sent from now on.
    fn until_arriving(&mut self, what: &str) {
        let from = self.next;
        self.until(what, |pair| pair.fates.range(from..).any(|(_, fate)| *fate == Fate::Arrived));
    }

    /// Waits for the outcome of all messages, and compares the reported outcomes with the real
    /// ones.
    fn check(&mut self) -> usize {
        let begun = Instant::now();
        while self.fates.len() < self.sent.len() {
            assert!(begun.elapsed() < ACK + SOON, "nobody tells of some");
            self.turn();
        }
        for (number, fate) in &self.fates {
            match fate {
                Fate::Arrived => assert!(self.got.contains(number), "{number} did not arrive"),
                Fate::Failed { maybe: true } => {}
                Fate::Failed { maybe: false } => {
                    assert!(!self.got.contains(number), "{number} has arrived for all that");
                }
            }
        }
        self.fates.values().filter(|fate| **fate != Fate::Arrived).count()
    }
}

fn cut_and_heal(cut: Cut, what: &str) {
    let _watch = watchdog(Duration::from_secs(120), what);
    let Some(apart) = Apart::new(what) else { return };
    let scratch = TempDir::new();
    let (primary, primary_url) = process(PRIMARY, apart.inside(), Some(&apart), &scratch);
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (_standby, standby_url) = process(STANDBY, here, None, &scratch);
    let node = |name| node(name, &primary_url, &standby_url);
    let mut pair = Pair::new(node(SENDER), node(RECEIVER));
    pair.until("both are below the primary", |pair| pair.upstreams() == [Some(id(PRIMARY)); 2]);
    // The standby must be connected, or there is no other way.
    pair.until("both know the standby", |pair| {
        let has_both =
            |driver: &mut Driver| driver.node().peers().filter(|it| it.is_open).count() == 2;
        has_both(&mut pair.sender) && has_both(&mut pair.receiver)
    });
    pair.until_arriving("messages arrive");

    apart.cut(cut);
    let begun = Instant::now();
    pair.until("both have lost the primary", |pair| pair.lost.iter().all(Option::is_some));
    let bound = if cut == Cut::Requests { SILENCE + HEARTBEAT } else { SILENCE };
    for (at, reason) in pair.lost.map(Option::unwrap) {
        println!("lost after {:?}: {reason}", at - begun);
        assert!(at - begun <= bound, "lost after {:?}: {reason}", at - begun);
    }
    assert_eq!(pair.upstreams(), [Some(id(STANDBY)); 2], "the standby takes over at once");
    pair.until_arriving("messages go through the standby");
    println!("arriving after {:?}", begun.elapsed());
    // The node on the other side of the cut notices the same.
    pair.until("the primary has lost them", |_| {
        let log = primary.log();
        [SENDER, RECEIVER].iter().all(|name| log.contains(&format!("lost {name}: ")))
    });

    apart.heal();
    pair.until("both are below the primary again", |pair| {
        pair.upstreams() == [Some(id(PRIMARY)); 2]
    });
    pair.until_arriving("messages arrive through the primary");
    let failed = pair.check();
    println!("{failed} of {} messages failed or are not known of", pair.sent.len());
    assert!(
        failed < pair.sent.len() / 2 && pair.sent.len() > 1_000,
        "{} were sent",
        pair.sent.len()
    );
    // Its processes must end before their network does.
    drop(primary);
}

#[test]
fn an_upstream_that_is_cut_off_is_given_up_in_time_and_returned_to() {
    cut_and_heal(Cut::Whole, "an upstream of the bus is cut off");
}

#[test]
fn an_upstream_that_nothing_arrives_at_is_given_up_in_time_and_returned_to() {
    cut_and_heal(Cut::Requests, "what goes to an upstream of the bus is lost");
}

#[test]
fn an_upstream_of_which_nothing_arrives_is_given_up_in_time_and_returned_to() {
    cut_and_heal(Cut::Replies, "what comes from an upstream of the bus is lost");
}
