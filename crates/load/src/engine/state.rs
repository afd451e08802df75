//! What a thread knows: its clients, their connections, and how far the run is.

use super::joined::Joins;
use super::link::{Framer, Link, Role, Sent, Stage};
use super::pacer::Pacer;
use crate::draw::Draw;
use crate::error::Error;
use crate::greeting;
use crate::plan::Until;
use crate::random::Random;
use crate::record::{Record, Slice};
use crate::setup::{Setup, nanos};
use crate::verify::Check;
use keyway_net::{Address, ConnectFault, Socket, Token};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A connection that was lost or refused is tried again after so long.
const PAUSE: u64 = 50_000_000;

/// How long a server may answer nothing once the run is to end: half a second tells that no reply is
/// on its way.
const STOPPED_SILENCE_MAX: u64 = 500_000_000;

/// Bits of a token that are the link's number; those above its generation.
const LINK_BITS: u32 = 32;

/// Generations fit between a link's number and the bits that are the driver's.
const GENERATION_MASK: u32 = (1 << 24) - 1;

/// No connection to that server yet.
const NO_LINK: u32 = u32::MAX;

/// Why a connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It was closed or reset.
    Lost,
    /// It brought what is no reply.
    Protocol,
}

/// One client: its requests and when they may be sent.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) random: Random,
    pub(super) reads: Draw,
    pub(super) writes: Draw,
    pub(super) owner: (u64, u64),
    pub(super) in_flight: usize,
    pub(super) joins: Joins,
    /// True if it is in `State::ready`.
    pub(super) is_ready: bool,
    /// By server.
    links: Vec<u32>,
}

/// What a thread knows.
pub(super) struct State {
    pub(super) setup: Arc<Setup>,
    thread: usize,
    pub(super) links: Vec<Link>,
    pub(super) clients: Vec<Client>,
    pub(super) record: Record,
    pub(super) nodes: Vec<Address>,
    pub(super) slots: Vec<u16>,
    /// Clients whose batch is answered.
    pub(super) idle: Vec<u32>,
    /// Open loop: clients that can take a request.
    pub(super) ready: VecDeque<u32>,
    /// Links with something to send.
    pub(super) dirty: Vec<u32>,
    /// Links that have had all their calls.
    pub(super) spent: Vec<u32>,
    /// Links to be opened again, and when.
    pausing: VecDeque<(u64, u32)>,
    pub(super) pace: Option<Pacer>,
    /// All requests can go the short way.
    pub(super) is_plain: bool,
    pub(super) opening: usize,
    pub(super) in_flight: u64,
    /// Requests that may still be sent.
    pub(super) quota: u64,
    pub(super) is_started: bool,
    is_measuring: bool,
    pub(super) is_sending: bool,
    pub(super) is_silent: bool,
    pub(super) measured_from: u64,
    measure_at: u64,
    end: u64,
    pub(super) last_progress: u64,
    pub(super) scratch: Vec<u8>,
    pub(super) again: Vec<Check>,
    pub(super) fatal: Option<Error>,
    pub(super) answered: u64,
    pub(super) answered_badly: u64,
}

impl State {
    pub(super) fn new(setup: &Arc<Setup>, thread: usize) -> Result<State, Error> {
        let plan = &setup.plan;
        let mut state = State {
            setup: Arc::clone(setup),
            thread,
            links: Vec::new(),
            clients: Vec::with_capacity(plan.connections),
            record: Record::new(setup.program.ops.len())?,
            nodes: setup.nodes.clone(),
            slots: setup.slots.clone(),
            idle: Vec::new(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            spent: Vec::new(),
            pausing: VecDeque::new(),
            pace: Pacer::new(plan, thread),
            is_plain: super::plain::is_plain(setup),
            opening: 0,
            in_flight: 0,
            quota: 0,
            is_started: false,
            is_measuring: false,
            is_sending: false,
            is_silent: false,
            measured_from: 0,
            measure_at: 0,
            end: u64::MAX,
            last_progress: nanos(),
            scratch: Vec::new(),
            again: Vec::new(),
            fatal: None,
            answered: 0,
            answered_badly: 0,
        };
        for index in 0..plan.connections {
            let (number, of) = ((thread * plan.connections + index) as u64, plan.clients() as u64);
            let (reads, writes) = setup.program.draws(number, of);
            let random = Random::stream(plan.seed, number);
            let links = Vec::with_capacity(setup.nodes.len());
            state.clients.push(Client {
                random,
                reads,
                writes,
                owner: (number, of),
                in_flight: 0,
                joins: Joins::default(),
                is_ready: false,
                links,
            });
            for node in 0..setup.nodes.len() {
                state.add_link(index as u32, node as u16);
            }
        }
        Ok(state)
    }

    fn add_link(&mut self, client: u32, node: u16) -> u32 {
        let framer = match greeting::wire(self.setup.target.protocol) {
            None => Framer::Redis(greeting::framer(self.setup.target.protocol)),
            Some(_) => Framer::Memcached(None),
        };
        let index = self.links.len() as u32;
        self.links.push(Link::new(client, node, framer));
        let links = &mut self.clients[client as usize].links;
        links.resize(links.len().max(usize::from(node) + 1), NO_LINK);
        links[usize::from(node)] = index;
        index
    }

    /// The link of a client to a server.
    #[inline]
    pub(super) fn link_to(&mut self, client: u32, node: u16) -> u32 {
        match self.clients[client as usize].links.get(usize::from(node)) {
            Some(&link) if link != NO_LINK => link,
            _ => self.add_link(client, node),
        }
    }

    /// Returns whether it has to be opened before it can send.
    #[inline]
    pub(super) fn wants_opening(&self, link: u32) -> bool {
        let link = &self.links[link as usize];
        link.stage == Stage::Closed && !link.is_pausing
    }

    /// A connection is about to be made: the name it goes by, and to whom.
    pub(super) fn open(&mut self, index: u32, now: u64) -> (Token, usize) {
        let target = &self.setup.target;
        let link = &mut self.links[index as usize];
        // What waited for it to be opened stays behind the greeting.
        let (waiting, sent) = (std::mem::take(&mut link.out), std::mem::take(&mut link.sent));
        let greeted = greeting::compose(target, &mut link.out);
        for number in 1..=greeted {
            let role = Role::Handshake { is_last: number == greeted };
            link.sent.push_back(Sent { at: now, seed: 0, key: 0, op: 0, hops: 0, role, join: 0 });
        }
        link.out.extend_from_slice(&waiting);
        link.sent.extend(sent);
        link.generation = (link.generation + 1) & GENERATION_MASK;
        (link.stage, link.is_pausing, link.opened_at) = (Stage::Connecting, false, now);
        link.calls_left = self.setup.plan.calls.unwrap_or(u64::MAX);
        self.opening += 1;
        let token = u64::from(link.generation) << LINK_BITS | u64::from(index);
        (Token(token), usize::from(link.node))
    }

    pub(super) fn connected(&mut self, index: u32, socket: Socket, now: u64) {
        let link = &mut self.links[index as usize];
        link.socket = Some(socket);
        self.record.opened += 1;
        self.record.connect.saturating_record(now.saturating_sub(link.opened_at).max(1));
        let is_greeted =
            matches!(link.sent.front(), Some(Sent { role: Role::Handshake { .. }, .. }));
        link.stage = Stage::Greeting;
        self.last_progress = now;
        if !is_greeted {
            self.let_in(index);
        }
    }

    /// A connection has had all its calls, and is closed.
    pub(super) fn lived(&mut self, index: u32, now: u64) {
        let opened_at = self.links[index as usize].opened_at;
        self.record.lifetime.saturating_record(now.saturating_sub(opened_at).max(1));
    }

    /// A connection can be used.
    pub(super) fn let_in(&mut self, index: u32) {
        let link = &mut self.links[index as usize];
        link.stage = Stage::Open;
        self.opening -= 1;
        let client = link.client;
        if self.is_started {
            self.rest(client);
        }
    }

    /// The link that a token is of, unless it is that of a connection that was.
    #[inline]
    pub(super) fn link_of(&self, token: Token) -> Option<u32> {
        let index = token.0 as u32;
        let link = self.links.get(index as usize)?;
        (u64::from(link.generation) == token.0 >> LINK_BITS).then_some(index)
    }

    /// Why a connection was not made, in words.
    #[cold]
    pub(super) fn explained(&self, index: u32, fault: ConnectFault) -> String {
        let address = &self.nodes[usize::from(self.links[index as usize].node)];
        super::explain(&self.setup.target, address, fault)
    }

    pub(super) fn connect_failed(&mut self, index: u32, why: &str, now: u64) {
        if !self.is_started {
            let address = self.nodes[usize::from(self.links[index as usize].node)].to_string();
            self.fatal = Some(Error::Connect { address, why: why.to_owned() });
            return;
        }
        self.record.failed += 1;
        self.opening -= 1;
        self.avoid(self.links[index as usize].node);
        self.forget(index, now);
    }

    /// A connection is gone: what it waited for is lost, and it is opened again after a pause.
    pub(super) fn lost(&mut self, index: u32, fault: Fault, now: u64) {
        if !self.is_started {
            let what = match fault {
                Fault::Lost => "it closes the connection",
                Fault::Protocol => "what comes is no reply of that protocol",
            };
            let error = self.protocol_error(what);
            self.fatal.get_or_insert(error);
            return;
        }
        let link = &self.links[index as usize];
        if matches!(link.stage, Stage::Connecting | Stage::Greeting) {
            self.opening -= 1;
        }
        self.record.lost += 1;
        self.forget(index, now);
    }

    /// Asks another server of a cluster for the slots of one that is not there: it tells who has
    /// them once somebody does.
    fn avoid(&mut self, node: u16) {
        let other = (usize::from(node) + 1) % self.nodes.len();
        self.slots.iter_mut().filter(|owner| **owner == node).for_each(|owner| {
            *owner = other as u16;
        });
    }

    fn forget(&mut self, index: u32, now: u64) {
        let link = &mut self.links[index as usize];
        let joins = &mut self.clients[link.client as usize].joins;
        let ops = &self.setup.program.ops;
        // Of a request in pieces others may come yet.
        let is_over = |sent: &&Sent| match sent.role {
            Role::Step(_) if ops[usize::from(sent.op)].pieces > 1 => joins.lose(sent.join),
            Role::Apart => joins.lose(sent.join),
            role => matches!(role, Role::Step(_) | Role::Found { is_last: true }),
        };
        let lost = link.sent.iter().filter(is_over).count();
        link.clear();
        (link.stage, link.is_pausing) = (Stage::Closed, true);
        let client = link.client;
        self.record.unanswered += lost as u64;
        self.in_flight -= lost as u64;
        self.clients[client as usize].in_flight -= lost;
        self.pausing.push_back((now + PAUSE, index));
        if !self.slots.is_empty() {
            // Its other servers may be there.
            self.rest(client);
        }
    }

    pub(super) fn retry_due(&mut self, now: u64) -> Option<u32> {
        let (_, link) = *self.pausing.front().filter(|(due, _)| *due <= now)?;
        self.pausing.pop_front();
        // It may have been opened for something else meanwhile.
        self.links[link as usize].is_pausing.then_some(link)
    }

    pub(super) fn is_opening(&self) -> bool {
        self.opening > 0
    }

    pub(super) fn protocol_error(&self, what: &str) -> Error {
        Error::Protocol {
            address: self.setup.target.address.to_string(),
            protocol: self.setup.target.protocol.to_string(),
            what: what.to_owned(),
        }
    }

    pub(super) fn silent_error(&self) -> Error {
        if self.links.iter().any(|link| link.stage == Stage::Connecting) {
            let address = self.setup.target.address.to_string();
            return Error::Connect { address, why: "no answer in time".to_owned() };
        }
        self.protocol_error("no answer in time")
    }

    /// The run begins.
    pub(super) fn begin(&mut self, start: u64) {
        let plan = &self.setup.plan;
        self.measure_at = start + plan.warm_up.as_nanos() as u64;
        self.quota = u64::MAX;
        (self.is_started, self.is_sending, self.last_progress) = (true, true, start);
        if let Some(pace) = &mut self.pace {
            pace.begin(start);
        }
        if plan.warm_up.is_zero() {
            self.begin_measuring(start);
        }
        for client in 0..self.clients.len() as u32 {
            self.rest(client);
        }
    }

    fn begin_measuring(&mut self, now: u64) {
        let plan = &self.setup.plan;
        (self.is_measuring, self.measured_from) = (true, now);
        match plan.until {
            Until::Time(length) => self.end = now + length.as_nanos() as u64,
            Until::Requests(all) => {
                let (threads, own) = (plan.threads as u64, self.thread as u64);
                self.quota = all / threads + u64::from(own < all % threads);
            }
        }
    }

    pub(super) fn pass_time(&mut self, now: u64) -> Result<(), Error> {
        let is_stopped = self.setup.is_stopped.load(Ordering::Relaxed);
        if !self.is_measuring && (now >= self.measure_at || is_stopped) {
            self.record.begin()?;
            self.begin_measuring(now);
        }
        if self.is_sending {
            if is_stopped || now >= self.end {
                self.stop_sending(now);
            } else if self.is_measuring && self.quota == 0 {
                self.is_sending = false;
            }
        }
        let waits = self.in_flight > 0 || !self.pausing.is_empty() || self.opening > 0;
        let limit = self.setup.plan.silence_max.as_nanos() as u64;
        // A user who ends it does not wait for a server that answers nothing.
        let limit = if is_stopped { limit.min(STOPPED_SILENCE_MAX) } else { limit };
        if !waits {
            self.last_progress = self.last_progress.max(now.saturating_sub(limit / 2));
        } else if now.saturating_sub(self.last_progress) > limit {
            self.stop_sending(now);
            self.is_silent = true;
            self.record.unanswered += self.in_flight;
            self.in_flight = 0;
        }
        Ok(())
    }

    fn stop_sending(&mut self, now: u64) {
        self.end = self.end.min(now);
        if let Some(pace) = &self.pace
            && self.is_sending
        {
            self.record.unsent += pace.left_before(self.end);
        }
        self.is_sending = false;
    }

    /// A second of the measured time that has ended, if one has.
    pub(super) fn ended_second(&mut self, now: u64) -> Result<Option<Slice>, Error> {
        if !self.is_measuring {
            return Ok(None);
        }
        let second = now.saturating_sub(self.measured_from) / 1_000_000_000;
        if self.record.slice.second >= second {
            return Ok(None);
        }
        let next = self.record.slice.second + 1;
        self.record.end_second(next).map(Some)
    }

    /// Until when a turn may wait.
    pub(super) fn deadline(&self, now: u64) -> u64 {
        let mut deadline = now + super::WAIT_MAX;
        if !self.is_measuring {
            deadline = deadline.min(self.measure_at);
        }
        if self.is_sending {
            deadline = deadline.min(self.end);
            if let Some(pace) = &self.pace
                && !self.ready.is_empty()
            {
                deadline = deadline.min(pace.due());
            }
        }
        if let Some((due, _)) = self.pausing.front() {
            deadline = deadline.min(*due);
        }
        deadline
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_started && !self.is_sending && self.in_flight == 0
    }

    /// When the measured time ended: with the last reply, or when it was to end.
    pub(super) fn ended_at(&self) -> u64 {
        match self.setup.plan.until {
            Until::Time(_) if self.end != u64::MAX => self.end.max(self.last_progress),
            _ => self.last_progress,
        }
    }

    pub(super) fn tell_gauge(&self) {
        let gauge = &self.setup.gauges[self.thread];
        // ORDER: figures to look at, nothing else goes by them.
        gauge.requests.store(self.answered, Ordering::Relaxed);
        gauge.errors.store(self.answered_badly, Ordering::Relaxed);
    }
}
