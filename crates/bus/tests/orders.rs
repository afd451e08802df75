//! Nodes of a bus, each on a thread of its own, with rings between them, in orders of steps that
//! shuttle draws (`make shuttle`). Each message arrives once and in order or is reported as failed,
//! whichever node ends when, and no node sleeps while it has work. If all threads sleep, shuttle
//! ends the test.
//!
//! Channels have rings in memory of one process instead of a mapping, and a flag instead of the
//! socket for wake-ups. Nodes and rings are the real ones.

#![cfg(shuttle)]

use keyway_base::Time;
use keyway_bus::{
    Action, Event, Line, Node, NodeId, PeerKey, Reason, SendOptions, Settings, Stamp,
};
use keyway_bus::{Upstream, Url};
use keyway_ring::{Consumer, Ended, Header, Memory, Producer, Wait};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Smaller than most conversations: a writer has to wait for room.
const CAPACITY: usize = 1 << 10;
/// Bytes read, or asked of a node, at once.
const PIECE: usize = 700;
/// Messages of the sender.
const MESSAGES: usize = 6;
/// Length of one message that goes in parts.
const LARGE: usize = 70 << 10;
const DAY: Duration = Duration::from_secs(86_400);

fn rounds(usual: usize) -> usize {
    let told = std::env::var("KEYWAY_SHUTTLE_ROUNDS").ok().and_then(|text| text.parse().ok());
    told.unwrap_or(usual)
}

/// Memory of one process.
struct Bytes {
    header: Header,
    bytes: UnsafeCell<Vec<u8>>,
}

// SAFETY: threads of shuttle take turns, and end a turn only at atomics and locks.
unsafe impl Sync for Bytes {}
// SAFETY: as above.
unsafe impl Send for Bytes {}

#[derive(Clone)]
struct Ring(Arc<Bytes>);

impl Ring {
    fn new() -> Ring {
        let bytes = UnsafeCell::new(vec![0; CAPACITY]);
        Ring(Arc::new(Bytes { header: Header::default(), bytes }))
    }
}

// SAFETY: the header is always the same, and indices are taken modulo the capacity.
unsafe impl Memory for Ring {
    fn header(&self) -> &Header {
        &self.0.header
    }

    fn capacity(&self) -> usize {
        CAPACITY
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        // SAFETY: no other thread has its turn.
        let all = unsafe { &mut *self.0.bytes.get() };
        bytes.iter().enumerate().for_each(|(nth, byte)| all[(at + nth) % CAPACITY] = *byte);
    }

    fn copy_out(&self, at: usize, into: &mut [u8]) {
        // SAFETY: as above.
        let all = unsafe { &*self.0.bytes.get() };
        into.iter_mut().enumerate().for_each(|(nth, byte)| *byte = all[(at + nth) % CAPACITY]);
    }
}

/// The place where a node sleeps. It is woken there, once or often.
#[derive(Default)]
struct Bed {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bed {
    fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.rung.notify_one();
    }

    fn sleep(&self) {
        let mut is_rung = self.is_rung.lock().unwrap();
        while !*is_rung {
            is_rung = self.rung.wait(is_rung).unwrap();
        }
        *is_rung = false;
    }
}

/// A node's side of a connection.
struct Link {
    producer: Producer<Ring>,
    consumer: Consumer<Ring>,
    /// The other side's bed.
    bed: Arc<Bed>,
    peer: Option<PeerKey>,
    out: Vec<u8>,
    /// True if the node has output.
    is_dirty: bool,
    /// True if the node is done with it.
    is_closing: bool,
    is_over: bool,
}

impl Link {
    fn wake(&self, how: Option<Wait>) {
        if how.is_some() {
            self.bed.ring();
        }
    }

    fn end(&mut self) {
        let (one, other) = (self.producer.close(), self.consumer.close());
        self.wake(one);
        self.wake(other);
        self.is_over = true;
    }

    /// Announces that it sleeps. Returns `false` if there is work by now.
    fn park(&mut self) -> bool {
        let has_news = !matches!(self.consumer.park(Wait::Descriptor), Ok(Some(_)));
        let is_full =
            self.out.is_empty() || matches!(self.producer.park(Wait::Descriptor, 1), Ok(Some(_)));
        !has_news && is_full
    }

    fn unpark(&mut self) {
        self.consumer.unpark();
        self.producer.unpark();
    }
}

fn connect(one: &Arc<Bed>, other: &Arc<Bed>) -> [Link; 2] {
    let (there, back) = (Ring::new(), Ring::new());
    let link = |out: &Ring, into: &Ring, bed: &Arc<Bed>| Link {
        producer: Producer::new(out.clone()),
        consumer: Consumer::new(into.clone()),
        bed: Arc::clone(bed),
        peer: None,
        out: Vec::new(),
        is_dirty: false,
        is_closing: false,
        is_over: false,
    };
    [link(&there, &back, other), link(&back, &there, one)]
}

fn line(nonce: u8) -> Line {
    Line { binding: b"mem".to_vec(), vouch: None, nonce: [nonce; 32], ..Line::default() }
}

fn id(instance: u64) -> NodeId {
    NodeId::of(1, 3, 1, instance).unwrap()
}

fn settings(instance: u64, upstreams: &[u64]) -> Settings {
    let mut settings = Settings::of(id(instance));
    settings.tokens.add(b"the token of all these nodes").unwrap();
    settings.upstreams = upstreams
        .iter()
        .map(|at| Upstream { id: id(*at), urls: vec!["mem://there".parse::<Url>().unwrap()] })
        .collect();
    // Only bytes are to wake them.
    (settings.heartbeat, settings.handshake, settings.leave) = (DAY, DAY, DAY);
    settings.prefer_after = DAY;
    settings.retry = (DAY, DAY);
    settings
}

/// The clock of the nodes.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst) + 1_000_000_000)
    }
}

/// A node with its connections, like a real driver.
struct Driver {
    node: Node,
    links: Vec<Link>,
    bed: Arc<Bed>,
    clock: Clock,
}

impl Driver {
    /// Creates it. The links of a root are accepted; another node dials its link.
    fn new(settings: Settings, links: Vec<Link>, bed: Arc<Bed>, clock: Clock) -> Driver {
        let random = settings.id.0;
        let accepts = settings.upstreams.is_empty();
        let mut driver =
            Driver { node: Node::new(settings, random, clock.now()), links, bed, clock };
        let now = driver.clock.now();
        for (nth, link) in driver.links.iter_mut().enumerate().filter(|_| accepts) {
            link.peer = driver.node.handle_accepted(&line(nth as u8), now);
            assert!(link.peer.is_some());
        }
        driver
    }

    /// Does the work there is, and sleeps if there is none. Returns the events.
    fn turn(&mut self) -> Vec<Event> {
        let now = self.clock.now();
        let mut has_moved = self.read(now);
        self.serve(now);
        if now >= self.node.poll_deadline() {
            self.node.handle_timeout(now);
            self.serve(now);
        }
        let events: Vec<Event> = std::iter::from_fn(|| self.node.poll_event()).collect();
        has_moved |= !events.is_empty() || now >= self.node.poll_deadline();
        if !has_moved {
            self.sleep();
        }
        events
    }

    fn sleep(&mut self) {
        let mut may_sleep = true;
        for link in self.links.iter_mut().filter(|link| !link.is_over) {
            may_sleep &= link.park();
        }
        if may_sleep {
            self.bed.sleep();
        }
        self.links.iter_mut().filter(|link| !link.is_over).for_each(Link::unpark);
    }

    fn read(&mut self, now: Time) -> bool {
        let mut has_moved = false;
        for link in self.links.iter_mut().filter(|link| !link.is_over) {
            let mut piece = [0; PIECE];
            match link.consumer.read(&mut piece) {
                Ok(0) => {}
                Ok(len) => {
                    has_moved = true;
                    let how = link.consumer.release();
                    link.wake(how);
                    if let Some(peer) = link.peer.filter(|_| !link.is_closing) {
                        self.node.handle_input(peer, &piece[..len], now);
                    }
                }
                Err(ended) => {
                    assert_eq!(ended, Ended::Closed);
                    has_moved = true;
                    link.end();
                    if let Some(peer) = link.peer.filter(|_| !link.is_closing) {
                        self.node.handle_closed(peer, None, now);
                    }
                }
            }
        }
        has_moved
    }

    fn serve(&mut self, now: Time) {
        while let Some(action) = self.node.poll_action() {
            match action {
                Action::Dial { dial, .. } => {
                    let free = self.links.iter_mut().find(|link| link.peer.is_none());
                    match free {
                        Some(link) => link.peer = self.node.handle_connected(dial, &line(99), now),
                        None => self.node.handle_dial_failed(dial, Reason::DialFailed, now),
                    }
                }
                Action::Close { peer, last_words } => {
                    let link = self.links.iter_mut().find(|link| link.peer == Some(peer));
                    let link = link.expect("only what is there is closed");
                    link.out.extend_from_slice(&last_words);
                    link.is_closing = true;
                }
            }
        }
        while let Some(peer) = self.node.poll_dirty() {
            let of_it = self.links.iter_mut().filter(|link| link.peer == Some(peer));
            of_it.for_each(|link| link.is_dirty = true);
        }
        for at in 0..self.links.len() {
            self.write(at, now);
        }
    }

    fn write(&mut self, at: usize, now: Time) {
        let Driver { node, links, .. } = self;
        let link = &mut links[at];
        while !link.is_over {
            if link.out.is_empty() && !link.is_closing && link.is_dirty {
                let peer = link.peer.expect("only what the node knows is dirty");
                link.is_dirty = node.poll_output(peer, &mut link.out, PIECE, now);
            }
            if link.out.is_empty() {
                if link.is_closing {
                    link.end();
                }
                return;
            }
            // A link whose other side is gone notices that by reading.
            let Ok(len @ 1..) = link.producer.write(&link.out) else { return };
            link.out.drain(..len);
            let how = link.producer.publish();
            link.wake(how);
        }
    }

    fn is_alone(&self) -> bool {
        self.links.iter().all(|link| link.is_over)
    }
}

/// Returns the body of message number `nth`.
fn body(nth: usize) -> Vec<u8> {
    let len = if nth == MESSAGES / 2 { LARGE } else { 10 + nth * 90 };
    let mut bytes: Vec<u8> =
        (0..len).map(|at| (at * at + 7 * nth) as u8 ^ (at >> 7) as u8).collect();
    bytes[0] = nth as u8;
    bytes
}

/// Runs the root of two. It tells the sender when it may send, which is once both are there or the
/// other may be gone. It tells the receiver when the sender has ended.
fn root(mut driver: Driver, waits_for_both: bool) {
    let mut here = Vec::new();
    driver.node.publish("settings", Stamp { epoch: 1, version: 1 }, vec![7; 3000]).unwrap();
    let mut applied = Vec::new();
    while !driver.is_alone() {
        for event in driver.turn() {
            match event {
                Event::Joined(who) => {
                    here.push(who);
                    let is_time = if waits_for_both { here.len() == 2 } else { who == id(2) };
                    if is_time {
                        let now = driver.clock.now();
                        driver.node.send(id(2), b"go", SendOptions::default(), now).unwrap();
                    }
                }
                Event::Left(who) if who == id(2) => {
                    let now = driver.clock.now();
                    // It may be gone itself.
                    let _ = driver.node.send(id(3), b"end", SendOptions::default(), now);
                }
                Event::Applied { node, is_good, .. } if is_good => applied.push(node),
                _ => {}
            }
        }
    }
    applied.sort();
    applied.dedup();
    assert!(applied.contains(&id(2)), "what was published is applied: {applied:?}");
}

/// Sends once it is told to. It holds the outcome of each message, by its number.
struct Sender {
    seqs: Vec<u64>,
    acked: Vec<usize>,
    /// The failed ones, and whether each may have arrived.
    failed: Vec<(usize, bool)>,
    echoes: Vec<u8>,
}

fn apply(driver: &mut Driver, event: &Event) {
    if let Event::Push { topic, epoch, version, body } = event {
        assert_eq!(**body, [7; 3000]);
        let stamp = Stamp { epoch: *epoch, version: *version };
        let now = driver.clock.now();
        driver.node.applied(topic, stamp, true, now);
    }
}

fn send(mut driver: Driver, awaits_echoes: bool) -> Sender {
    let (mut seqs, mut acked, mut failed, mut echoes) = (vec![], vec![], vec![], vec![]);
    let mut has_applied = false;
    while !driver.is_alone() {
        for event in driver.turn() {
            apply(&mut driver, &event);
            let place = |seq| seqs.iter().position(|sent| *sent == seq).expect("one that was sent");
            match event {
                Event::Message { body: said, .. } if said == b"go" => {
                    let options = SendOptions { ack_within: Some(DAY / 2), no_upstream: false };
                    for nth in 0..MESSAGES {
                        let now = driver.clock.now();
                        seqs.push(driver.node.send(id(3), &body(nth), options, now).unwrap());
                    }
                }
                Event::Message { body: said, .. } => echoes.push(said[0]),
                Event::Acked { seq } => acked.push(place(seq)),
                Event::Failed { seq, maybe, .. } => failed.push((place(seq), maybe)),
                Event::Push { .. } => has_applied = true,
                _ => {}
            }
        }
        let is_told = !seqs.is_empty() && acked.len() + failed.len() == MESSAGES;
        if is_told && has_applied && (!awaits_echoes || echoes.len() == MESSAGES) {
            driver.node.leave(driver.clock.now());
        }
    }
    Sender { seqs, acked, failed, echoes }
}

/// Receives messages, sends their first bytes back, and ends when it is told to, or without a word
/// after `turns_max` turns. Returns what it received.
fn receive(mut driver: Driver, turns_max: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    for _ in 0..turns_max {
        if driver.is_alone() {
            return got;
        }
        for event in driver.turn() {
            apply(&mut driver, &event);
            let now = driver.clock.now();
            match event {
                Event::Message { body, .. } if body == b"end" => driver.node.leave(now),
                Event::Message { from, body, .. } => {
                    // Its way back may be gone.
                    let _ = driver.node.send(from, &body[..1], SendOptions::default(), now);
                    got.push(body);
                }
                _ => {}
            }
        }
    }
    driver.links.iter_mut().for_each(Link::end);
    got
}

struct Outcome {
    sender: Sender,
    got: Vec<Vec<u8>>,
}

/// Runs the three on threads. `clock` goes on by itself if `time_passes`.
fn play(turns_max: usize, time_passes: bool) -> Outcome {
    let clock = Clock::default();
    let beds: [Arc<Bed>; 3] = Default::default();
    let [above_one, one] = connect(&beds[0], &beds[1]);
    let [above_other, other] = connect(&beds[0], &beds[2]);
    let [root_bed, one_bed, other_bed] = beds.clone();
    let driver =
        |settings, links, bed, clock: &Clock| Driver::new(settings, links, bed, clock.clone());
    let is_over = Arc::new(AtomicBool::new(false));
    let at_root = driver(settings(1, &[]), vec![above_one, above_other], root_bed, &clock);
    let at_one = driver(settings(2, &[1]), vec![one], one_bed, &clock);
    let at_other = driver(settings(3, &[1]), vec![other], other_bed, &clock);
    let timekeeper = time_passes.then(|| {
        let (is_over, clock) = (Arc::clone(&is_over), clock.clone());
        thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                (0..200).for_each(|_| thread::yield_now());
                clock.0.fetch_add(DAY.as_nanos() as u64 / 24, Ordering::SeqCst);
                beds.iter().for_each(|bed| bed.ring());
            }
        })
    });
    let root_thread = thread::spawn(move || root(at_root, !time_passes));
    let receiver = thread::spawn(move || receive(at_other, turns_max));
    let sender = thread::spawn(move || send(at_one, !time_passes)).join().unwrap();
    let got = receiver.join().unwrap();
    root_thread.join().unwrap();
    is_over.store(true, Ordering::SeqCst);
    if let Some(timekeeper) = timekeeper {
        timekeeper.join().unwrap();
    }
    Outcome { sender, got }
}

/// Everything that was sent arrives, and all nodes leave.
fn all_arrive() {
    let Outcome { mut sender, got } = play(usize::MAX, false);
    let bodies: Vec<Vec<u8>> = (0..MESSAGES).map(body).collect();
    assert!(got == bodies, "once each, in order, as they were sent");
    sender.acked.sort_unstable();
    assert_eq!(sender.acked, (0..MESSAGES).collect::<Vec<_>>());
    assert_eq!(sender.echoes, (0..MESSAGES as u8).collect::<Vec<_>>());
    assert_eq!((sender.seqs.len(), sender.failed.len()), (MESSAGES, 0));
}

#[test]
fn whatever_the_order_of_steps_all_arrives_and_nobody_sleeps_for_ever() {
    shuttle::check_random(all_arrive, rounds(1_000));
    shuttle::check_pct(all_arrive, rounds(500), 3);
}

/// The receiver ends at some turn without a word. The outcome of each message is reported once, and
/// is true.
fn one_ends() {
    let turns = shuttle::rand::Rng::gen_range(&mut shuttle::rand::thread_rng(), 1..120);
    let Outcome { sender, got } = play(turns, true);
    let bodies: Vec<Vec<u8>> = (0..MESSAGES).map(body).collect();
    let mut places = got.iter().map(|body| bodies.iter().position(|sent| sent == body));
    let mut before = None;
    let arrived: Vec<usize> = std::iter::from_fn(|| places.next())
        .map(|place| place.expect("nothing but what was sent arrives"))
        .inspect(|place| {
            assert!(before < Some(*place), "once each, in order: {place} behind {before:?}");
            before = Some(*place);
        })
        .collect();
    let Sender { seqs, acked, failed, echoes } = sender;
    let mut told: Vec<usize> = failed.iter().map(|(nth, _)| *nth).chain(acked.clone()).collect();
    told.sort_unstable();
    assert_eq!(told, (0..seqs.len()).collect::<Vec<_>>(), "what came of each is told once");
    assert!(acked.iter().all(|nth| arrived.contains(nth)), "{acked:?} of {arrived:?}");
    let is_true = |(nth, maybe): &(usize, bool)| *maybe || !arrived.contains(nth);
    assert!(failed.iter().all(is_true), "{failed:?} of {arrived:?}");
    assert!(echoes.iter().all(|nth| arrived.contains(&usize::from(*nth))));
    let kinds = [!acked.is_empty(), failed.iter().any(|it| !it.1), failed.iter().any(|it| it.1)];
    let seen = SEEN.iter().zip(kinds).filter(|(_, is_seen)| *is_seen);
    seen.for_each(|(count, _)| {
        count.fetch_add(1, Ordering::SeqCst);
    });
}

/// Rounds with a message that arrived, with one that did not, and with one of unknown fate.
static SEEN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

#[test]
fn whoever_ends_when_what_came_of_each_message_is_told_once_and_true() {
    shuttle::check_random(one_ends, rounds(1_000));
    let seen = SEEN.each_ref().map(|count| count.load(Ordering::SeqCst));
    assert!(seen.iter().all(|count| *count > 0), "not all was tried: {seen:?}");
    println!("arrived, failed, unknown: {seen:?}");
}
