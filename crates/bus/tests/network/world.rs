//! Nodes on virtual time, with links that are slow, cut, silent or lost as a seed decides.

use keyway_base::Time;
use keyway_bus::{Action, DialKey, Event, Line, Node, NodeId, PeerKey, Settings, Upstream, Url};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Most bytes on the way in one direction: what a driver is ahead of the system.
const AHEAD_LEN: usize = 128 << 10;

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

#[derive(Default)]
struct Pipe {
    packets: VecDeque<(Time, Vec<u8>)>,
    len: usize,
    free_at: Time,
}

struct Conn {
    ends: [(usize, PeerKey); 2],
    pipes: [Pipe; 2],
    /// Time at which both ends learn that it is gone.
    ends_at: Option<Time>,
}

struct Dial {
    at: Time,
    from: usize,
    dial: DialKey,
    to: Option<usize>,
}

/// Everything that nodes have reported.
#[derive(Default)]
pub struct Log {
    /// By node, the events of its user.
    pub events: BTreeMap<usize, Vec<Event>>,
    /// The events of processes that are gone.
    pub past: Vec<(usize, Vec<Event>)>,
}

pub struct World {
    pub now: Time,
    pub nodes: Vec<Option<Node>>,
    pub random: Random,
    pub log: Log,
    conns: Vec<Option<Conn>>,
    by_end: BTreeMap<(usize, u64), usize>,
    dials: Vec<Dial>,
    /// Pairs between which nothing arrives, without either noticing. The bytes come late if the
    /// connection still exists when they can hear each other again, as with TCP.
    silent: BTreeSet<(usize, usize)>,
    /// Latency of each byte and each packet.
    pub latency: Duration,
    pub bytes_per_ms: u64,
    /// True if users take events.
    pub takes_events: bool,
    writable: BTreeSet<(usize, u64)>,
    /// True if dials fail without notice.
    pub hang_dials: bool,
    /// Pairs whose connections are made, but on which nothing arrives.
    mute: BTreeSet<(usize, usize)>,
    /// True if packets are cut at random places.
    pub cuts: bool,
    /// True if transports report that connections stay within one host.
    pub is_one_host: bool,
    /// By node, the turns in which its deadline had come.
    pub timeouts: BTreeMap<usize, u64>,
}

pub fn id(index: usize) -> NodeId {
    NodeId::of(1, 3, 1, index as u64 + 1).unwrap()
}

pub fn url(index: usize) -> Url {
    format!("mem://n{index}").parse().unwrap()
}

/// Returns the settings of a node of a bus with one token, below `upstreams`.
pub fn settings(index: usize, upstreams: &[usize]) -> Settings {
    let mut settings = Settings::of(id(index));
    settings.tokens.add(b"the token of all these nodes").unwrap();
    settings.urls = vec![url(index)];
    settings.place = keyway_bus::Place { host: [1; 16], process: 1 };
    settings.incarnation = 1 << 20;
    settings.upstreams =
        upstreams.iter().map(|at| Upstream { id: id(*at), urls: vec![url(*at)] }).collect();
    assert!(settings.faults().is_empty());
    settings
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            now: Time(1_000_000_000),
            nodes: Vec::new(),
            random: Random::new(seed),
            log: Log::default(),
            conns: Vec::new(),
            by_end: BTreeMap::new(),
            dials: Vec::new(),
            silent: BTreeSet::new(),
            latency: Duration::from_micros(200),
            bytes_per_ms: 1 << 20,
            takes_events: true,
            is_one_host: false,
            timeouts: BTreeMap::new(),
            writable: BTreeSet::new(),
            hang_dials: false,
            mute: BTreeSet::new(),
            cuts: false,
        }
    }

    pub fn add(&mut self, settings: Settings) -> usize {
        assert_eq!(settings.faults(), [""; 0]);
        let random = self.random.next();
        self.nodes.push(Some(Node::new(settings, random, self.now)));
        self.nodes.len() - 1
    }

    pub fn node(&mut self, index: usize) -> &mut Node {
        self.nodes[index].as_mut().unwrap()
    }

    fn pair(a: usize, b: usize) -> (usize, usize) {
        (a.min(b), a.max(b))
    }

    fn is_silent(&self, conn: &Conn) -> bool {
        let pair = Self::pair(conn.ends[0].0, conn.ends[1].0);
        self.silent.contains(&pair) || self.mute.contains(&pair)
    }

    /// Lets nothing arrive between the two from now on.
    pub fn silence(&mut self, a: usize, b: usize) {
        self.silent.insert(Self::pair(a, b));
    }

    /// Lets the two connect, but lets nothing arrive.
    pub fn silence_later(&mut self, a: usize, b: usize) {
        self.mute.insert(Self::pair(a, b));
    }

    pub fn heal(&mut self) {
        self.silent.clear();
    }

    /// Ends all connections of the two; bytes in flight are lost.
    pub fn reset(&mut self, a: usize, b: usize) {
        for conn in self.conns.iter_mut().flatten() {
            if Self::pair(conn.ends[0].0, conn.ends[1].0) == Self::pair(a, b) {
                conn.pipes.iter_mut().for_each(|pipe| pipe.packets.clear());
                conn.ends_at = Some(self.now);
            }
        }
    }

    /// Kills a process; the system closes its connections.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index] = None;
        let heard = self.log.events.remove(&index).unwrap_or_default();
        self.log.past.push((index, heard));
        for conn in self.conns.iter_mut().flatten() {
            if conn.ends.iter().any(|end| end.0 == index) {
                conn.ends_at = Some(self.now);
            }
        }
    }

    pub fn restart(&mut self, index: usize, settings: Settings) {
        let random = self.random.next();
        self.nodes[index] = Some(Node::new(settings, random, self.now));
    }

    fn line(&mut self) -> Line {
        let mut nonce = [0; 32];
        nonce[..8].copy_from_slice(&self.random.next().to_le_bytes());
        Line {
            binding: b"mem".to_vec(),
            nonce,
            is_within_host: self.is_one_host,
            ..Line::default()
        }
    }

    /// Runs the world for `span`.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        self.turn();
        while let Some(at) = self.next_time().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.turn();
        }
        self.now = end;
        self.turn();
    }

    /// Runs the world until `is_so` holds; panics if it does not after `span`.
    pub fn run_until(
        &mut self,
        span: Duration,
        what: &str,
        mut is_so: impl FnMut(&mut World) -> bool,
    ) {
        let end = self.now + span;
        self.turn();
        while !is_so(self) {
            let at = self.next_time().unwrap_or(end);
            assert!(at <= end, "not within {span:?}: {what}");
            self.now = self.now.max(at);
            self.turn();
        }
    }

    fn next_time(&self) -> Option<Time> {
        let nodes = self.nodes.iter().flatten().map(|node| node.poll_deadline());
        // Bytes held up by silence come when that ends.
        let is_heard = |conn: &&Conn| !self.is_silent(conn);
        let conns = self.conns.iter().flatten().filter(is_heard);
        let packets =
            conns.clone().flat_map(|conn| &conn.pipes).filter_map(|pipe| pipe.packets.front());
        let ends = conns.filter_map(|conn| conn.ends_at);
        let dials = self.dials.iter().map(|dial| dial.at);
        nodes.chain(packets.map(|(at, _)| *at)).chain(ends).chain(dials).min()
    }

    fn turn(&mut self) {
        let now = self.now;
        self.finish_dials();
        self.deliver();
        for index in 0..self.nodes.len() {
            if let Some(node) = &mut self.nodes[index] {
                if node.poll_deadline() <= now {
                    *self.timeouts.entry(index).or_default() += 1;
                }
                for _ in 0..100 {
                    if node.poll_deadline() > now {
                        break;
                    }
                    node.handle_timeout(now);
                }
                assert!(node.poll_deadline() > now, "node {index} does not come to rest");
            }
        }
        for index in 0..self.nodes.len() {
            self.serve(index);
        }
        let writable = std::mem::take(&mut self.writable);
        for (index, key) in writable {
            self.write(index, PeerKey::from_bits(key));
        }
    }

    fn finish_dials(&mut self) {
        let now = self.now;
        let (due, later) =
            std::mem::take(&mut self.dials).into_iter().partition(|dial| dial.at <= now);
        self.dials = later;
        let due: Vec<Dial> = due;
        for Dial { from, dial, to, .. } in due {
            let (ours, theirs) = (self.line(), self.line());
            let to = to.filter(|to| !self.silent.contains(&Self::pair(from, *to)));
            let accepted = to
                .and_then(|to| Some((to, self.nodes[to].as_mut()?.handle_accepted(&theirs, now)?)));
            let Some(node) = &mut self.nodes[from] else { continue };
            let Some(accepted) = accepted else {
                node.handle_dial_failed(dial, keyway_bus::Reason::NobodyListens, now);
                continue;
            };
            let Some(key) = node.handle_connected(dial, &ours, now) else { continue };
            let ends = [(from, key), accepted];
            let at = self.conns.len();
            ends.iter().for_each(|(node, key)| {
                self.by_end.insert((*node, key.to_bits()), at);
            });
            self.conns.push(Some(Conn { ends, pipes: Default::default(), ends_at: None }));
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        for at in 0..self.conns.len() {
            if self.conns[at].as_ref().is_none_or(|conn| self.is_silent(conn)) {
                continue;
            }
            for side in 0..2 {
                while let Some(conn) = &mut self.conns[at]
                    && conn.pipes[side].packets.front().is_some_and(|(due, _)| *due <= now)
                {
                    let (_, bytes) = conn.pipes[side].packets.pop_front().unwrap();
                    conn.pipes[side].len -= bytes.len();
                    let (from, to) = (conn.ends[side], conn.ends[1 - side]);
                    self.writable.insert((from.0, from.1.to_bits()));
                    let cut =
                        if self.cuts { self.random.below(bytes.len() as u64) as usize } else { 0 };
                    if let Some(node) = &mut self.nodes[to.0] {
                        node.handle_input(to.1, &bytes[..cut], now);
                        node.handle_input(to.1, &bytes[cut..], now);
                    }
                }
            }
            let is_over = self.conns[at]
                .as_ref()
                .is_some_and(|conn| conn.ends_at.is_some_and(|end| end <= now));
            if is_over {
                let Some(conn) = self.conns[at].take() else { continue };
                for (node, key) in conn.ends {
                    self.by_end.remove(&(node, key.to_bits()));
                    if let Some(node) = &mut self.nodes[node] {
                        node.handle_closed(key, None, now);
                    }
                }
            }
        }
    }

    /// Carries out a node's orders, and sends its output.
    fn serve(&mut self, index: usize) {
        let now = self.now;
        while let Some(node) = &mut self.nodes[index] {
            if let Some(action) = node.poll_action() {
                self.act(index, action);
                continue;
            }
            if let Some(key) = node.poll_dirty() {
                self.write(index, key);
                continue;
            }
            if self.takes_events
                && let Some(event) = node.poll_event()
            {
                self.on_event(index, &event, now);
                self.log.events.entry(index).or_default().push(event);
                continue;
            }
            return;
        }
    }

    fn on_event(&mut self, index: usize, event: &Event, now: Time) {
        let node = self.nodes[index].as_mut().unwrap();
        match event {
            Event::Push { topic, epoch, version, .. } => {
                let stamp = keyway_bus::Stamp { epoch: *epoch, version: *version };
                node.applied(topic, stamp, true, now);
            }
            Event::Command { from, seq, args } => {
                let _ = node.reply(*from, *seq, 0, args, now);
            }
            _ => {}
        }
    }

    fn act(&mut self, index: usize, action: Action) {
        match action {
            Action::Dial { dial, url } => {
                let text = url.to_string();
                let to = text.strip_prefix("mem://n").and_then(|text| text.parse::<usize>().ok());
                let jitter = Duration::from_micros(self.random.below(500));
                let at = self.now + self.latency + jitter;
                let to = to.filter(|to| *to < self.nodes.len());
                if self.hang_dials {
                    return;
                }
                self.dials.push(Dial { at, from: index, dial, to });
            }
            Action::Close { peer, last_words } => {
                let Some(at) = self.by_end.remove(&(index, peer.to_bits())) else { return };
                let Some(conn) = &mut self.conns[at] else { return };
                let side = usize::from(conn.ends[1] == (index, peer));
                let pipe = &mut conn.pipes[side];
                let due = pipe.free_at.max(self.now + self.latency);
                pipe.packets.push_back((due, last_words.clone()));
                pipe.len += last_words.len();
                // Earlier bytes arrive earlier.
                let end = due + Duration::from_nanos(1);
                conn.ends_at = Some(conn.ends_at.map_or(end, |known| known.min(end)));
            }
        }
    }

    fn write(&mut self, index: usize, key: PeerKey) {
        let Some(at) = self.by_end.get(&(index, key.to_bits())).copied() else { return };
        let (now, latency) = (self.now, self.latency);
        let jitter = Duration::from_nanos(self.random.below(latency.as_nanos() as u64 / 4 + 1));
        let Some(conn) = &mut self.conns[at] else { return };
        let side = usize::from(conn.ends[1] == (index, key));
        let pipe = &mut conn.pipes[side];
        let Some(node) = &mut self.nodes[index] else { return };
        while pipe.len < AHEAD_LEN {
            let mut out = Vec::new();
            let has_more = node.poll_output(key, &mut out, 16 << 10, now);
            if out.is_empty() {
                return;
            }
            let span = Duration::from_nanos(out.len() as u64 * 1_000_000 / self.bytes_per_ms);
            pipe.free_at = pipe.free_at.max(now + latency + jitter) + span;
            pipe.len += out.len();
            pipe.packets.push_back((pipe.free_at, out));
            if !has_more {
                return;
            }
        }
    }

    pub fn events(&self, index: usize) -> &[Event] {
        self.log.events.get(&index).map_or(&[], Vec::as_slice)
    }

    pub fn count(&self, index: usize, is_one: impl Fn(&Event) -> bool) -> usize {
        self.events(index).iter().filter(|event| is_one(event)).count()
    }
}
