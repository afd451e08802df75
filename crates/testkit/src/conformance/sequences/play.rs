//! Plays a sequence on both sides in step.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::differences::{DIFFERENCES, Seen};
use super::generate::{CONNECTIONS, Step, Words};
use super::wire::{Frame, Wire};
use super::{Reach, show};
use crate::client::encode;
use crate::value::Value;
use crate::watchdog::wait_until;

/// How long the system under test may take to say what the bare server said.
const SOON: Duration = Duration::from_secs(2);

/// How long the bare server takes at most to end a wait of 10 ms.
const SHORT_WAIT: Duration = Duration::from_millis(500);

/// What came of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every reply was the bare server's, or its difference is known.
    Same,
    /// Up to a known difference after which the two hold different keys.
    EndsEarly,
    /// Something else came.
    Differs {
        /// The step, from 0.
        at: usize,
        /// What was wanted and what came.
        what: String,
    },
}

/// What was played.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Sequences.
    pub sequences: u64,
    /// Requests, on each side.
    pub requests: u64,
    /// Frames compared.
    pub frames: u64,
    /// How often each difference was met, by name.
    pub differences: BTreeMap<&'static str, u64>,
}

/// A bare server and a system under test.
#[derive(Debug)]
pub struct Stage {
    reach: Reach,
    bare: SocketAddr,
    system: SocketAddr,
    /// Connections past everything in between.
    bare_control: Wire,
    /// The servers of a pool; of a store, itself.
    servers: Vec<Wire>,
}

/// One connection of a sequence, on both sides.
struct Pair {
    theirs: Wire,
    ours: Wire,
    /// The ids of the two connections, as they were told.
    ids: [String; 2],
    /// Requests since nothing was open: what replies may be about.
    recent: Vec<Words>,
    is_blocked: bool,
}

/// The frames that one connection got in one step, on both sides.
struct Got {
    wanted: Vec<Frame>,
    got: Vec<Frame>,
}

impl Stage {
    /// The system at `system`, which is a pool of `servers` (none: a store),
    /// beside the bare server at `bare`.
    pub fn new(reach: Reach, bare: SocketAddr, system: SocketAddr, servers: &[SocketAddr]) -> Self {
        let counted = if servers.is_empty() { &[system][..] } else { servers };
        let servers = counted.iter().map(|at| Wire::connect(*at)).collect();
        Stage { reach, bare, system, bare_control: Wire::connect(bare), servers }
    }

    /// Which system it is.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Plays one sequence from empty servers on.
    pub fn play(&mut self, steps: &[Step], tally: &mut Tally) -> Outcome {
        self.empty();
        tally.sequences += 1;
        let mut pairs: Vec<Pair> = (0..CONNECTIONS).map(|_| self.pair()).collect();
        for (at, step) in steps.iter().enumerate() {
            if pairs[step.connection].is_blocked {
                continue;
            }
            tally.requests += step.requests.len() as u64;
            let outcome = match walk_of(step) {
                Some(request) => self.walk(&mut pairs[step.connection], request),
                None => self.step(&mut pairs, step, tally),
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => return Outcome::EndsEarly,
                Err(what) => {
                    return Outcome::Differs { at, what: format!("{}\n{what}", show(step)) };
                }
            }
            if pairs[step.connection].theirs.is_closed() {
                pairs[step.connection] = self.pair();
            }
        }
        match self.surplus(&mut pairs) {
            None => Outcome::Same,
            Some(what) => Outcome::Differs { at: steps.len() - 1, what },
        }
    }

    /// Whether to go on, or what differs.
    fn step(&mut self, pairs: &mut [Pair], step: &Step, tally: &mut Tally) -> Result<bool, String> {
        let ids: Vec<[String; 2]> = pairs.iter().map(|pair| pair.ids.clone()).collect();
        let pair = &mut pairs[step.connection];
        if !pair.recent.iter().any(|words| is_verb(words, "MULTI")) {
            pair.recent.clear();
        }
        pair.recent.extend(step.requests.iter().cloned());
        let bytes = |side: usize| -> Vec<u8> {
            step.requests.iter().flat_map(|words| encode(&with_ids(words, &ids, side))).collect()
        };
        pair.theirs.send(&bytes(0));
        pair.ours.send(&bytes(1));
        let all_wanted = self.wanted(pairs, step);
        let blocked = blocked_clients(&mut self.bare_control);
        let mut goes_on = true;
        let mut all_wanted: Vec<_> = all_wanted.into_iter().enumerate().collect();
        // What the others get follows from what the one that asked gets.
        all_wanted.sort_by_key(|(nth, _)| *nth != step.connection);
        for (nth, wanted) in all_wanted {
            if !goes_on {
                break;
            }
            let pair = &mut pairs[nth];
            let mut got = Vec::new();
            while got.len() < wanted.len() {
                let Some(frame) = pair.ours.frame_within(SOON) else { break };
                got.push(frame);
            }
            tally.frames += wanted.len() as u64;
            let is_answered = wanted.len() >= step.requests.len();
            if nth == step.connection {
                pair.is_blocked = blocked > 0 && !is_answered;
            } else if !wanted.is_empty() {
                pair.is_blocked = false;
            }
            goes_on &= compare(self.reach, pair, &Got { wanted, got }, tally)
                .map_err(|what| format!("connection {nth}:\n{what}"))?;
            let last_of = |verbs: &[&str]| {
                let is_one = |words: &Words| verbs.iter().any(|verb| is_verb(words, verb));
                step.requests.iter().rposition(is_one)
            };
            let end = last_of(&["EXEC", "DISCARD", "RESET"]);
            if nth == step.connection && end.is_some() && end > last_of(&["MULTI"]) {
                pair.recent.clear();
            }
        }
        let pair = &mut pairs[step.connection];
        if goes_on && pair.theirs.is_closed() && !pair.ours.closes_within(SOON) {
            return Err("the bare server closed the connection".to_owned());
        }
        if !goes_on || self.wait_blocked(blocked, &mut pair.ours) {
            return Ok(goes_on);
        }
        // Perhaps it was answered instead.
        let got: Vec<Frame> = pair.ours.frame_now().into_iter().collect();
        if !got.is_empty() {
            return compare(self.reach, pair, &Got { wanted: Vec::new(), got }, tally);
        }
        let here: i64 = self.servers.iter_mut().map(blocked_clients).sum();
        Err(format!("{blocked} wait on the bare server, {here} on the servers"))
    }

    /// Everything the bare server says about a step, by connection.
    fn wanted(&mut self, pairs: &mut [Pair], step: &Step) -> Vec<Vec<Frame>> {
        self.settle_bare();
        let mut all: Vec<Vec<Frame>> = pairs.iter_mut().map(frames_of_bare).collect();
        let is_short = |words: &Words| words.iter().any(|word| word == b"0.01" || word == b"10");
        while step.requests.iter().any(is_short)
            && all[step.connection].len() < step.requests.len()
            && let Some(frame) = pairs[step.connection].theirs.frame_within(SHORT_WAIT)
        {
            all[step.connection].push(frame);
            self.settle_bare();
            for (nth, pair) in pairs.iter_mut().enumerate() {
                all[nth].extend(frames_of_bare(pair));
            }
        }
        all
    }

    /// A single thread answers one connection after the other, and writes all
    /// replies of a round at its end: after two rounds all of it is here.
    fn settle_bare(&mut self) {
        self.bare_control.ask("PING");
        self.bare_control.ask("PING");
    }

    /// Whether as many clients wait on the servers as on the bare server, soon
    /// and before the one in question is told something.
    fn wait_blocked(&mut self, blocked: i64, ours: &mut Wire) -> bool {
        let end = std::time::Instant::now() + SOON;
        loop {
            let here: i64 = self.servers.iter_mut().map(blocked_clients).sum();
            if here == blocked {
                return true;
            }
            if std::time::Instant::now() > end || ours.has_frame() {
                return false;
            }
        }
    }

    /// Walks to the end on both sides and compares what was found.
    fn walk(&mut self, pair: &mut Pair, request: &Words) -> Result<bool, String> {
        let theirs = walked(&mut pair.theirs, request);
        let ours = walked(&mut pair.ours, request);
        if theirs == ours {
            return Ok(true);
        }
        Err(format!("wanted {theirs:?}\ngot    {ours:?}"))
    }

    /// Whatever came that nobody asked for.
    fn surplus(&mut self, pairs: &mut [Pair]) -> Option<String> {
        Wire::connect(self.system).ask("PING");
        pairs.iter_mut().enumerate().find_map(|(nth, pair)| {
            let frame = pair.ours.frame_now()?;
            Some(format!("connection {nth}: at the end, unasked: {:?}", frame.value))
        })
    }

    fn pair(&self) -> Pair {
        let (mut theirs, mut ours) = (Wire::connect(self.bare), Wire::connect(self.system));
        let ids =
            [theirs.ask("CLIENT ID"), ours.ask("CLIENT ID")].map(|id| id.integer().to_string());
        Pair { theirs, ours, ids, recent: Vec::new(), is_blocked: false }
    }

    /// Nothing is left of the sequence before: no key, no script, nobody who
    /// waits, and no subscription at any server.
    fn empty(&mut self) {
        let mut system = Wire::connect(self.system);
        for line in ["FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH"] {
            self.bare_control.ask(line);
            if self.reach != Reach::Store || line == "FLUSHALL" {
                assert_eq!(system.ask(line), Value::simple("OK"), "{line}");
            }
        }
        let mut watched: Vec<&mut Wire> = self.servers.iter_mut().collect();
        watched.push(&mut self.bare_control);
        watched.push(&mut system);
        for server in watched {
            wait_until("the last sequence's clients left nothing", SOON, || {
                let is_bare = |reply: &Value| reply.array().is_empty();
                is_bare(&server.ask("PUBSUB CHANNELS"))
                    && is_bare(&server.ask("PUBSUB SHARDCHANNELS"))
                    && server.ask("PUBSUB NUMPAT") == Value::Integer(0)
                    && blocked_clients(server) == 0
            });
        }
    }
}

fn frames_of_bare(pair: &mut Pair) -> Vec<Frame> {
    std::iter::from_fn(|| pair.theirs.frame_now()).collect()
}

/// What differs between the frames of one connection in one step; whether to
/// go on if all of that is known.
fn compare(reach: Reach, pair: &Pair, frames: &Got, tally: &mut Tally) -> Result<bool, String> {
    let Got { wanted, got } = frames;
    if wanted == got {
        return Ok(true);
    }
    let mut known = |wanted: &[Frame], got: &[Frame]| -> Option<bool> {
        let seen = Seen { reach, requests: &pair.recent, wanted, got };
        let difference = DIFFERENCES.iter().find(|difference| (difference.matches)(&seen))?;
        *tally.differences.entry(difference.name).or_default() += 1;
        Some(!difference.ends)
    };
    let mut all_known = wanted.len() == got.len();
    for (wanted, got) in wanted.iter().zip(got) {
        if wanted == got {
            continue;
        }
        match known(std::slice::from_ref(wanted), std::slice::from_ref(got)) {
            Some(true) => {}
            Some(false) => return Ok(false),
            None => {
                all_known = false;
                break;
            }
        }
    }
    if all_known {
        return Ok(true);
    }
    if let Some(goes_on) = known(wanted, got) {
        return Ok(goes_on);
    }
    let values = |frames: &[Frame]| -> Vec<Value> {
        frames.iter().map(|frame| frame.value.clone()).collect()
    };
    let (wanted, got) = (values(wanted), values(got));
    Err(format!("  wanted {wanted:?}\n  got    {got:?}"))
}

pub(super) fn is_verb(words: &Words, verb: &str) -> bool {
    words.first().is_some_and(|word| word.eq_ignore_ascii_case(verb.as_bytes()))
}

fn with_ids(words: &Words, ids: &[[String; 2]], side: usize) -> Words {
    let one = |word: &Vec<u8>| -> Vec<u8> {
        let nth = word.strip_prefix(b"CLIENT").and_then(|rest| match rest {
            [digit @ b'0'..=b'9'] => ids.get(usize::from(digit - b'0')),
            _ => None,
        });
        nth.map_or_else(|| word.clone(), |ids| ids[side].clone().into_bytes())
    };
    words.iter().map(one).collect()
}

/// The request of a step that is a walk.
fn walk_of(step: &Step) -> Option<&Words> {
    let [request] = &step.requests[..] else { return None };
    request.iter().any(|word| word == b"walk").then_some(request)
}

/// What a walk found, or the first reply that is none of a walk.
fn walked(wire: &mut Wire, request: &Words) -> Result<Vec<Value>, Option<Value>> {
    let mut cursor = b"0".to_vec();
    let mut found = Vec::new();
    loop {
        let words: Words = request
            .iter()
            .map(|word| if word == b"walk" { cursor.clone() } else { word.clone() })
            .collect();
        wire.send(&encode(&words));
        let reply = wire.frame_within(SOON).ok_or(None)?.value;
        match &reply {
            Value::Array(parts) if parts.len() == 2 => {
                if let (Value::Bulk(next), Value::Array(items)) = (&parts[0], &parts[1]) {
                    let in_pairs = is_verb(request, "HSCAN") || is_verb(request, "ZSCAN");
                    let width = if in_pairs { 2 } else { 1 };
                    let items = items.chunks(width).map(|items| Value::Array(items.to_vec()));
                    found.extend(items);
                    cursor.clone_from(next);
                }
            }
            _ => return Err(Some(reply)),
        }
        if cursor == b"0" {
            found.sort();
            found.dedup();
            return Ok(found);
        }
    }
}

/// How many clients of a server wait; a system that does not say has none.
fn blocked_clients(server: &mut Wire) -> i64 {
    let text = server.ask("INFO clients").text();
    let line = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}
