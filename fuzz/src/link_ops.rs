//! One link, driven in any order its worker could drive it, against a plain
//! queue: every exchange has exactly one outcome, replies go to whom they
//! belong, and the bytes on the wire are those of the requests in flight.

use crate::Choices;
use crate::invariants::shown;
use keyway_base::{BackendFault, Key, Limits, Sent, Time};
use keyway_command::Counted;
use keyway_proxy::{Internal, Link, LinkOptions, LinkState, Owner};
use keyway_resp::{Kind, Protocol};
use std::collections::VecDeque;
use std::time::Duration;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut driver = Driver::new(&mut choices);
    while !choices.is_over() {
        driver.step(&mut choices);
        driver.check();
    }
    driver.finish();
}

/// A request that the link holds.
struct Asked {
    id: u32,
    bytes: Vec<u8>,
    owner: Owner,
    /// From when its timeout counts: it may have waited elsewhere before.
    since: Time,
    /// It is enqueued with the next ones at one time.
    started: Time,
    /// Answered already, with a timeout.
    expired: bool,
}

impl Asked {
    fn is_select(&self) -> bool {
        self.owner == Owner::Internal(Internal::Select)
    }

    /// Whom its reply goes to: a late one to nobody, but for what matters to
    /// the requests behind it.
    fn owner(&self) -> Owner {
        if self.expired && !self.is_select() { Owner::None } else { self.owner }
    }
}

struct Driver {
    link: Link,
    options: LinkOptions,
    limits: Limits,
    now: Time,
    held: VecDeque<Asked>,
    /// What is to be sent on this connection, from its first request on.
    wire: Vec<u8>,
    sent: usize,
    next_id: u32,
    /// The last `SELECT` was refused: what follows it is answered with that.
    refused: bool,
    /// Outcomes so far, by id: each request has one in the end.
    outcomes: Vec<u8>,
}

impl Driver {
    fn new(choices: &mut Choices) -> Self {
        let password = choices.flip().then(|| "secret".to_owned());
        let choice = choices.below(4) as u32;
        let database = choice % 2;
        let protocol = if choice < 2 { Protocol::Resp2 } else { Protocol::Resp3 };
        let options = LinkOptions {
            memcached: None,
            password,
            database,
            databases: choices.pick(&[1, 3]),
            // The laws of the link itself hold how time counts behind large transfers, of which
            // there are none here.
            timeout: choices.flip().then(|| Duration::from_millis(400)),
            connect_timeout: Duration::from_millis(300),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            in_flight_max: Limits::default().link_in_flight_max,
            output_len_max: Limits::default().link_output_len_max,
            slower_than: if choices.flip() { Duration::from_millis(5) } else { Duration::MAX },
        };
        let limits = Limits { reply_len_max: 64, reply_depth_max: 3, ..Limits::default() };
        Self {
            link: Link::new(protocol),
            options,
            limits,
            now: Time(1),
            held: VecDeque::new(),
            wire: Vec::new(),
            sent: 0,
            next_id: 0,
            refused: false,
            outcomes: Vec::new(),
        }
    }

    fn step(&mut self, choices: &mut Choices) {
        match choices.below(10) {
            0..=2 => self.ask(choices),
            3 if choices.below(4) == 0 => self.backdate(choices),
            3 => self.advance(choices),
            4 | 5 => self.answer(choices),
            6 => self.input(choices.bytes(40)),
            7 => self.pass_time(choices),
            8 if matches!(self.link.state(), LinkState::Connecting { .. }) => {
                self.link.on_connected(&self.options, self.now);
            }
            9 if choices.below(4) == 0 && self.is_connection() => self.lose(choices.byte()),
            _ => {}
        }
    }

    fn is_connection(&self) -> bool {
        !matches!(self.link.state(), LinkState::Idle | LinkState::Backoff { .. })
    }

    fn ask(&mut self, choices: &mut Choices) {
        if self.link.is_down(self.now) {
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.outcomes.push(0);
        let owner = match choices.below(8) {
            0 => Owner::Unheard(Key::NONE),
            1 => Owner::Internal(Internal::Probe),
            2 => Owner::Internal(Internal::Select),
            _ => Owner::Session { session: Key::NONE, sequence: id },
        };
        let bytes = [format!("<{id}:").as_bytes(), choices.bytes(20), b">"].concat();
        self.link.request_buf().extend_from_slice(&bytes);
        self.link.enqueue(owner, Counted::OWN, bytes.len(), self.now);
        self.wire.extend_from_slice(&bytes);
        let (since, started) = (self.now, self.now);
        self.held.push_back(Asked { id, bytes, owner, since, started, expired: false });
        if self.link.wants_connection(self.now) {
            self.link.on_connecting(&self.options, self.now);
        }
    }

    /// The last request has waited elsewhere for its server.
    fn backdate(&mut self, choices: &mut Choices) {
        // A link counts that in milliseconds.
        let waited = Duration::from_millis(choices.span().as_millis() as u64);
        let since = Time(self.now.0.saturating_sub(waited.as_nanos() as u64));
        let waited = self.now.since(since).as_millis() as u64;
        let Some(last) = self.held.back_mut() else { return };
        let is_new = last.started == self.now && matches!(last.owner, Owner::Session { .. });
        if !is_new || last.expired {
            return;
        }
        last.since = Time(self.now.0 - waited * 1_000_000);
        let owner = last.owner;
        let is_found = self.link.backdate_last(|it| it == owner, since, self.now);
        assert!(is_found, "a request that was enqueued now");
        // The worker looks at once.
        self.look();
    }

    fn advance(&mut self, choices: &mut Choices) {
        let len = choices.below(256).min(self.link.unsent().len());
        if len == 0 {
            return;
        }
        if self.link.state() == LinkState::Ready {
            self.sent += len;
        }
        self.link.advance(len);
    }

    /// A reply such as the backend owes, cut in two.
    fn answer(&mut self, choices: &mut Choices) {
        let reply: &[u8] = match self.link.state() {
            LinkState::Handshaking { .. } => {
                choices.pick(&[&b"+OK\r\n"[..], b"+OK\r\n", b"%0\r\n", b"-ERR unknown command\r\n"])
            }
            LinkState::Ready if !self.held.is_empty() => choices.pick(&[
                &b"$3\r\nabc\r\n"[..],
                b":1\r\n",
                b"*2\r\n*1\r\n$-1\r\n+x\r\n",
                b"-ERR\r\n",
                b"+OK\r\n",
            ]),
            _ => return,
        };
        let (first, second) = reply.split_at(choices.below(reply.len()));
        self.input(first);
        if self.is_connection() {
            self.input(second);
        }
    }

    fn input(&mut self, bytes: &[u8]) {
        if !matches!(self.link.state(), LinkState::Handshaking { .. } | LinkState::Ready)
            || bytes.is_empty()
        {
            return;
        }
        let Driver { link, held, refused, outcomes, limits, now, .. } = self;
        let outcome = link.handle_input(bytes, limits, *now, |exchange, kind, reply| {
            let asked = held.pop_front().expect("a reply for no request");
            assert_eq!(exchange.owner, asked.owner(), "request {}", asked.id);
            if asked.is_select() {
                *refused = kind != Kind::Simple;
            }
            let is_refusal = reply.windows(6).any(|words| words == b"SELECT");
            assert_eq!(is_refusal, *refused && !asked.is_select(), "request {}", asked.id);
            assert!(!reply.is_empty());
            // A translation may be longer than what was translated, by a little.
            assert!(is_refusal || reply.len() <= 3 * limits.reply_len_max as usize);
            if !asked.expired {
                outcomes[asked.id as usize] += 1;
            }
        });
        if outcome.is_err() {
            self.lose(0);
        }
    }

    fn pass_time(&mut self, choices: &mut Choices) {
        self.now = self.now + choices.span();
        self.look();
    }

    /// The link does what is due.
    fn look(&mut self) {
        let due = self.link.deadline(&self.options).is_some_and(|deadline| deadline <= self.now);
        let is_ready = self.link.state() == LinkState::Ready;
        let mut expired = Vec::new();
        let outcome = self.link.handle_timeout(&self.options, self.now, |exchange| {
            expired.push(exchange.owner);
        });
        assert_eq!(due, !expired.is_empty() || outcome.is_err(), "a deadline for nothing");
        // Replies to these matter however late they are, and nobody is told.
        expired.retain(|owner| !matches!(owner, Owner::None | Owner::Internal(Internal::Select)));
        assert_eq!(expired, self.expire(is_ready));
        match outcome {
            Ok(()) => {
                let next = self.link.deadline(&self.options);
                assert!(next.is_none_or(|next| next > self.now), "a deadline that has passed");
            }
            Err(BackendFault::Connect | BackendFault::Timeout) => self.lose(0),
            Err(fault) => panic!("{fault:?} by the clock"),
        }
    }

    /// What is overdue: on a connection that stands it may have been sent, and
    /// its reply is still to come; before, it is taken back, but for the
    /// worker's own.
    fn expire(&mut self, is_ready: bool) -> Vec<Owner> {
        let Some(timeout) = self.options.timeout else { return Vec::new() };
        let mut owners = Vec::new();
        for asked in &mut self.held {
            let is_own = matches!(asked.owner, Owner::Internal(_));
            let is_over = self.now >= asked.since + timeout;
            if !is_over || asked.expired || asked.is_select() || (is_own && !is_ready) {
                continue;
            }
            asked.expired = true;
            self.outcomes[asked.id as usize] += 1;
            owners.push(asked.owner);
        }
        if !is_ready {
            self.held.retain(|asked| !asked.expired);
            self.wire = self.held.iter().flat_map(|asked| asked.bytes.clone()).collect();
        }
        owners
    }

    fn lose(&mut self, jitter: u8) {
        let state = self.link.state();
        let keep = state == LinkState::Ready && self.options.databases <= 1;
        let mut unsent_from = self.wire.len();
        let mut lost = Vec::new();
        self.link.on_lost(keep, |one| lost.push((one.exchange.owner, one.sent)));
        // What is kept, counted from the end of the wire.
        // It ends at the first request that is not to go out again.
        let mut keeps = keep;
        let mut kept = VecDeque::new();
        let mut expected = Vec::new();
        while let Some(asked) = self.held.pop_back() {
            unsent_from = unsent_from.saturating_sub(asked.bytes.len());
            let unsent = unsent_from >= self.sent;
            keeps &= unsent && !asked.expired && !matches!(asked.owner, Owner::Internal(_));
            if keeps {
                kept.push_front(asked);
                continue;
            }
            expected.push((asked.owner(), if unsent { Sent::No } else { Sent::Maybe }));
            if !asked.expired {
                self.outcomes[asked.id as usize] += 1;
            }
        }
        expected.reverse();
        assert_eq!(lost, expected);
        self.held = kept;
        self.wire = self.held.iter().flat_map(|asked| asked.bytes.clone()).collect();
        self.sent = 0;
        self.refused = false;
        if state != LinkState::Ready {
            self.link.on_backoff(&self.options, self.now, u64::from(jitter) << 20);
        } else if !self.held.is_empty() {
            self.link.on_connecting(&self.options, self.now);
        }
    }

    fn check(&self) {
        assert_eq!(self.link.in_flight(), self.held.len());
        assert_eq!(self.link.unsent_len(), self.wire.len() - self.sent);
        match self.link.state() {
            LinkState::Ready => {
                let unsent = self.link.unsent();
                assert_eq!(shown(unsent), shown(&self.wire[self.sent..]));
            }
            LinkState::Handshaking { left, .. } => assert!((1..=3).contains(&left)),
            _ => assert!(self.link.unsent().is_empty()),
        }
        assert!(self.outcomes.iter().all(|count| *count <= 1), "two outcomes of one request");
    }

    /// With the connection gone for good, everything has had its outcome.
    fn finish(&mut self) {
        if !self.is_connection() && self.held.is_empty() {
            return;
        }
        self.link.on_lost(false, |_| ());
        for asked in self.held.drain(..).filter(|asked| !asked.expired) {
            self.outcomes[asked.id as usize] += 1;
        }
        assert_eq!(self.link.in_flight(), 0);
        assert_eq!(self.link.unsent_len(), 0);
        assert!(self.outcomes.iter().all(|count| *count == 1), "requests without an outcome");
    }
}
