//! The cells of one worker, as plain structs: arrays indexed by pool, backend
//! and command class in the order of the [`crate::Layout`].

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use keyway_base::{BackendFault, Fault, LimitFault, ReplyBound, Sent, Time};

use crate::cell::{Counter, Gauge};
use crate::histogram::{Latency, LatencyHistogram, SizeHistogram};
use crate::layout::{Layout, PoolLayout};

/// One fault for every value of the `fault` label, in the order of the exposition.
pub(crate) const FAULTS: [Fault; 15] = [
    Fault::Client,
    Fault::Denied,
    Fault::Unrouted,
    backend_fault(BackendFault::Connect),
    backend_fault(BackendFault::Timeout),
    backend_fault(BackendFault::Closed),
    backend_fault(BackendFault::Protocol),
    backend_fault(BackendFault::Handshake),
    backend_fault(BackendFault::NotReady),
    backend_fault(BackendFault::Reply(ReplyBound::Len)),
    backend_fault(BackendFault::Full),
    backend_fault(BackendFault::CircuitOpen),
    backend_fault(BackendFault::Ejected),
    Fault::Limit(LimitFault::Clients),
    Fault::StoreFull,
];

/// The faults of requests refused before routing.
pub(crate) const REFUSALS: [Fault; 3] =
    [Fault::Client, Fault::Denied, Fault::Limit(LimitFault::Clients)];

/// The faults of requests that were accepted for serving.
pub(crate) const REQUEST_FAULTS: [Fault; 12] = [
    Fault::Unrouted,
    backend_fault(BackendFault::Connect),
    backend_fault(BackendFault::Timeout),
    backend_fault(BackendFault::Closed),
    backend_fault(BackendFault::Protocol),
    backend_fault(BackendFault::Handshake),
    backend_fault(BackendFault::NotReady),
    backend_fault(BackendFault::Reply(ReplyBound::Len)),
    backend_fault(BackendFault::Full),
    backend_fault(BackendFault::CircuitOpen),
    backend_fault(BackendFault::Ejected),
    Fault::StoreFull,
];

pub(crate) const BACKEND_FAULTS: [BackendFault; 10] = [
    BackendFault::Connect,
    BackendFault::Timeout,
    BackendFault::Closed,
    BackendFault::Protocol,
    BackendFault::Handshake,
    BackendFault::NotReady,
    BackendFault::Reply(ReplyBound::Len),
    BackendFault::Full,
    BackendFault::CircuitOpen,
    BackendFault::Ejected,
];

pub(crate) const fn backend_fault(fault: BackendFault) -> Fault {
    Fault::Backend { fault, sent: Sent::Maybe }
}

/// One counter per value of the `fault` label.
#[derive(Debug, Default)]
pub struct FaultCounters([Counter; FAULTS.len()]);

impl FaultCounters {
    /// Returns the counter of `fault`; those sharing a label share a counter.
    #[inline]
    pub fn of(&self, fault: Fault) -> &Counter {
        let index = match fault {
            Fault::Client => 0,
            Fault::Denied => 1,
            Fault::Unrouted => 2,
            Fault::Backend { fault, .. } => 3 + backend_fault_index(fault),
            Fault::Limit(_) => 13,
            Fault::StoreFull => 14,
        };
        &self.0[index]
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }
}

/// One counter per way a backend can fail.
#[derive(Debug, Default)]
pub struct BackendFaultCounters([Counter; BACKEND_FAULTS.len()]);

impl BackendFaultCounters {
    /// Returns the counter of `fault`.
    #[inline]
    pub fn of(&self, fault: BackendFault) -> &Counter {
        &self.0[backend_fault_index(fault)]
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }
}

#[inline]
fn backend_fault_index(fault: BackendFault) -> usize {
    match fault {
        BackendFault::Connect => 0,
        BackendFault::Timeout => 1,
        BackendFault::Closed => 2,
        BackendFault::Protocol => 3,
        BackendFault::Handshake => 4,
        BackendFault::NotReady => 5,
        BackendFault::Reply(_) => 6,
        BackendFault::Full => 7,
        BackendFault::CircuitOpen => 8,
        BackendFault::Ejected => 9,
    }
}

/// The reason why a client's connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed it, or asked to with QUIT.
    Left,
    /// The connection was reset or failed in the kernel.
    Reset,
    /// The client broke the protocol.
    Client,
    /// The client exceeded a bound, such as that on undelivered replies.
    Limit,
    /// An operator closed it (CLIENT KILL), or removed its user or one of its rights by a reload.
    Killed,
    /// The process is shutting down.
    Drained,
    /// The client sent no request for longer than it may.
    Idle,
    /// A backend failed after a part of its large reply was sent to the client.
    Backend,
    /// The log of an embedded store has lost writes, perhaps those of the client.
    Log,
}

impl CloseReason {
    pub(crate) const ALL: [CloseReason; 9] = [
        CloseReason::Left,
        CloseReason::Reset,
        CloseReason::Client,
        CloseReason::Limit,
        CloseReason::Killed,
        CloseReason::Drained,
        CloseReason::Idle,
        CloseReason::Backend,
        CloseReason::Log,
    ];

    /// Returns the value of the `fault` label; `none` if the client left by itself.
    pub fn label(self) -> &'static str {
        match self {
            CloseReason::Left => "none",
            CloseReason::Reset => "reset",
            CloseReason::Client => "client",
            CloseReason::Limit => "limit",
            CloseReason::Killed => "killed",
            CloseReason::Drained => "drained",
            CloseReason::Idle => "idle",
            CloseReason::Backend => "backend",
            CloseReason::Log => "log",
        }
    }
}

/// One counter per [`CloseReason`].
#[derive(Debug, Default)]
pub struct CloseCounters([Counter; CloseReason::ALL.len()]);

impl CloseCounters {
    /// Returns the counter of `reason`.
    #[inline]
    pub fn of(&self, reason: CloseReason) -> &Counter {
        &self.0[reason as usize]
    }
}

/// How usable a worker finds a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthLevel {
    /// It takes requests, and has neither answered nor failed yet.
    #[default]
    Unknown = 0,
    /// It takes requests, and the last ones succeeded.
    Healthy = 1,
    /// It takes requests, but the last ones failed.
    Failing = 2,
    /// It is out of use until it is tried again.
    Ejected = 3,
    /// It answers again, and is kept out of use because its data may be stale.
    Quarantined = 4,
}

impl HealthLevel {
    /// Returns the value of its metric, which is below zero while nothing is known.
    pub(crate) fn value(self) -> i64 {
        self as i64 - HealthLevel::Healthy as i64
    }

    /// Returns the word for it.
    pub fn label(self) -> &'static str {
        match self {
            HealthLevel::Unknown => "unknown",
            HealthLevel::Healthy => "up",
            HealthLevel::Failing => "failing",
            HealthLevel::Ejected => "ejected",
            HealthLevel::Quarantined => "quarantined",
        }
    }
}

/// Requests of one command class in one pool.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct ClassCells {
    /// Requests accepted for serving, counted when they are parsed.
    pub(crate) requests: Counter,
    /// Requests answered with an error of Keyway's own.
    pub(crate) errors: FaultCounters,
    /// Requests answered with an error of the store or of a backend.
    pub(crate) error_replies: Counter,
    /// Time from the parsed request to the reply in the client's output.
    pub(crate) latency: LatencyHistogram,
    /// Time of the turns in which they were answered, divided evenly among all requests of a turn,
    /// in nanoseconds. Requests that a server answers are not included.
    pub(crate) worked: Counter,
}

impl ClassCells {
    fn new() -> Self {
        Self {
            requests: Counter::new(),
            errors: FaultCounters::default(),
            error_replies: Counter::new(),
            latency: LatencyHistogram::new(),
            worked: Counter::new(),
        }
    }
}

/// Number of commands whose cells are in one block. With more, memory is used for commands that no
/// client calls. With fewer, finding a block costs more memory: 16 bytes for each.
const COMMAND_BLOCK: usize = 16;

type CommandBlock = [CommandCells; COMMAND_BLOCK];

/// Requests for one command in one pool.
#[derive(Debug, Default)]
pub(crate) struct CommandCells {
    /// Requests accepted for serving.
    pub(crate) calls: Counter,
    /// Requests answered with an error, whatever its origin.
    pub(crate) errors: Counter,
    /// Requests whose latency was measured.
    pub(crate) replies: Counter,
    /// Sum of their latencies, in nanoseconds.
    pub(crate) nanos: Counter,
    /// Time as in [`ClassCells::worked`].
    pub(crate) worked: Counter,
}

/// The cells in which requests are counted: those of their class, and those of their command.
#[derive(Clone, Copy, Debug)]
pub struct RequestCells<'a> {
    class: &'a ClassCells,
    command: &'a CommandCells,
}

impl RequestCells<'_> {
    /// Counts a request that was accepted for serving.
    #[inline]
    pub fn call(&self) {
        self.calls(1);
    }

    /// Counts `count` requests that were accepted for serving.
    #[inline]
    pub fn calls(&self, count: u64) {
        self.class.requests.add(count);
        self.command.calls.add(count);
    }

    /// Counts a request that was answered with an error of Keyway's own.
    #[cold]
    pub fn fault(&self, fault: Fault) {
        self.class.errors.of(fault).add(1);
        self.command.errors.add(1);
    }

    /// Counts a request that was answered with an error of the store or of a backend.
    #[cold]
    pub fn error_reply(&self) {
        self.class.error_replies.add(1);
        self.command.errors.add(1);
    }

    /// Records a request that was parsed at `start` and answered at `end`.
    #[inline]
    pub fn latency(&self, start: Time, end: Time) {
        self.latencies(Latency::between(start, end), 1);
    }

    /// Records `count` requests with this latency.
    #[inline]
    pub fn latencies(&self, latency: Latency, count: u64) {
        self.class.latency.add(latency, count);
        self.command.replies.add(count);
        self.command.nanos.add(latency.nanos().saturating_mul(count));
    }

    /// Adds the part of a turn's time that was spent on the requests, in nanoseconds.
    #[inline]
    pub fn worked(&self, nanos: u64) {
        self.class.worked.add(nanos);
        self.command.worked.add(nanos);
    }
}

/// The clients of one pool.
#[derive(Debug, Default)]
pub struct ClientCells {
    /// Clients connected now.
    pub connected: Gauge,
    /// Clients accepted.
    pub accepted: Counter,
    /// Clients that left, by reason.
    pub closed: CloseCounters,
    /// Bytes read from clients.
    pub received_bytes: Counter,
    /// Bytes written to clients.
    pub sent_bytes: Counter,
    /// Times that a client's input was left unread because a queue was full.
    pub pauses: Counter,
}

/// Requests of memcached clients on a store, for their `stats`.
#[derive(Debug, Default)]
pub struct MemcachedCells {
    /// Requests to store a value.
    pub sets: Counter,
    /// Requests of these that stored it.
    pub stored: Counter,
    /// Requests to change an expiry, with or without reading the value.
    pub touches: Counter,
    /// Requests to empty the store.
    pub flushes: Counter,
}

/// Publish and subscribe in one pool.
#[derive(Debug, Default)]
pub struct PubSubCells {
    /// Channels and shard channels with subscribers.
    pub channels: Gauge,
    /// Patterns with subscribers.
    pub patterns: Gauge,
    /// Clients that have subscribed to something.
    pub clients: Gauge,
    /// Names to which servers were subscribed.
    pub upstream: Gauge,
    /// Messages written to subscribers.
    pub delivered: Counter,
    /// Subscribers closed because they did not keep up.
    pub dropped: Counter,
}

impl PubSubCells {
    fn clear_levels(&self) {
        for level in [&self.channels, &self.patterns, &self.clients, &self.upstream] {
            level.set(0);
        }
    }
}

/// One backend of one pool.
#[derive(Debug)]
#[repr(align(64))]
pub struct BackendCells {
    /// Requests and fragments queued for the backend.
    pub requests: Counter,
    /// Requests and fragments that got no reply.
    pub errors: BackendFaultCounters,
    /// Replies of the backend that were errors.
    pub error_replies: Counter,
    /// Bytes written to the backend.
    pub sent_bytes: Counter,
    /// Bytes read from the backend.
    pub received_bytes: Counter,
    /// Requests and fragments waiting for their reply now.
    pub in_flight: Gauge,
    /// Bytes queued for the backend that the kernel has not accepted yet.
    pub unsent_bytes: Gauge,
    /// Links being established: connecting or in their handshake.
    pub links_connecting: Gauge,
    /// Links that take requests.
    pub links_ready: Gauge,
    /// Links established.
    pub connects: Counter,
    /// Links established in place of one that was lost.
    pub reconnects: Counter,
    /// Replies skipped because their request had timed out.
    pub late_replies: Counter,
    /// Replies dropped because their client had left.
    pub unclaimed_replies: Counter,
    /// Pushes dropped because no client had asked for them.
    pub unasked_pushes: Counter,
    /// Times the backend was taken out of use.
    pub ejections: Counter,
    /// Times its circuit opened.
    pub circuit_opens: Counter,
    /// Times it was left out of the servers that reads may go to.
    pub outliers: Counter,
    /// Reads that were sent to it when there were several servers.
    pub reads_chosen: Counter,
    /// Its circuit: 0 closed, 1 half-open, 2 open.
    pub circuit: Gauge,
    /// Whether it is left out of the servers that reads may go to: 0 or 1.
    pub outlier: Gauge,
    /// Its estimated reply latency, by which a server for reads is chosen, in microseconds; 0 if
    /// nothing is known.
    pub read_micros: Gauge,
    /// Time from the queued request to its complete reply.
    pub latency: LatencyHistogram,
    health: Gauge,
}

impl BackendCells {
    fn new() -> Self {
        Self {
            requests: Counter::new(),
            errors: BackendFaultCounters::default(),
            error_replies: Counter::new(),
            sent_bytes: Counter::new(),
            received_bytes: Counter::new(),
            in_flight: Gauge::new(),
            unsent_bytes: Gauge::new(),
            links_connecting: Gauge::new(),
            links_ready: Gauge::new(),
            connects: Counter::new(),
            reconnects: Counter::new(),
            late_replies: Counter::new(),
            unclaimed_replies: Counter::new(),
            unasked_pushes: Counter::new(),
            ejections: Counter::new(),
            circuit_opens: Counter::new(),
            outliers: Counter::new(),
            reads_chosen: Counter::new(),
            circuit: Gauge::new(),
            outlier: Gauge::new(),
            read_micros: Gauge::new(),
            latency: LatencyHistogram::new(),
            health: Gauge::new(),
        }
    }

    /// Sets how usable the backend is found.
    pub fn set_health(&self, level: HealthLevel) {
        self.health.set(level as u64);
    }

    pub(crate) fn health_level(&self) -> HealthLevel {
        match self.health.get() {
            0 => HealthLevel::Unknown,
            1 => HealthLevel::Healthy,
            2 => HealthLevel::Failing,
            3 => HealthLevel::Ejected,
            _ => HealthLevel::Quarantined,
        }
    }

    /// Restarts the counts from zero, because another backend has taken its index. Levels of
    /// connections and requests in flight stay.
    pub fn restart(&self) {
        let counters = [
            &self.requests,
            &self.error_replies,
            &self.sent_bytes,
            &self.received_bytes,
            &self.connects,
            &self.reconnects,
            &self.late_replies,
            &self.unclaimed_replies,
            &self.unasked_pushes,
            &self.ejections,
            &self.circuit_opens,
            &self.outliers,
            &self.reads_chosen,
        ];
        self.errors.0.iter().chain(counters).for_each(Counter::restart);
        self.latency.restart();
    }

    fn clear_levels(&self) {
        self.in_flight.set(0);
        self.unsent_bytes.set(0);
        self.links_connecting.set(0);
        self.links_ready.set(0);
        self.health.set(0);
        self.circuit.set(0);
        self.outlier.set(0);
        self.read_micros.set(0);
    }
}

/// The cells of one pool.
#[derive(Clone, Debug)]
pub struct PoolCells {
    own: Arc<OwnCells>,
    backends: Box<[Arc<BackendCells>]>,
}

/// The cells of a pool, without those of its backends.
#[derive(Debug)]
#[repr(align(64))]
pub struct OwnCells {
    /// The pool's clients.
    pub clients: ClientCells,
    /// Subscriptions and messages.
    pub pubsub: PubSubCells,
    /// Requests of memcached clients.
    pub memcached: MemcachedCells,
    /// Requests refused before a command class was known or routing began.
    pub refused: FaultCounters,
    classes: Box<[ClassCells]>,
    /// Blocks of cells by the index in [`Layout::commands`]. A block is made when one of its
    /// commands is first called, because a pool sees few of the commands.
    commands: Box<[OnceLock<Box<CommandBlock>>]>,
}

impl Deref for PoolCells {
    type Target = OwnCells;

    #[inline]
    fn deref(&self) -> &OwnCells {
        &self.own
    }
}

impl PoolCells {
    fn new(of: &Layout, layout: &PoolLayout) -> Self {
        let own = OwnCells {
            clients: ClientCells::default(),
            pubsub: PubSubCells::default(),
            memcached: MemcachedCells::default(),
            refused: FaultCounters::default(),
            classes: of.classes.iter().map(|_| ClassCells::new()).collect(),
            commands: of.commands.chunks(COMMAND_BLOCK).map(|_| OnceLock::new()).collect(),
        };
        let backends = layout.backends.iter().map(|_| Arc::new(BackendCells::new()));
        Self { own: Arc::new(own), backends: backends.collect() }
    }

    /// Returns cells that go on counting for the pool of `layout`, and for those of its backends
    /// that keep their names.
    fn succeeded_by(&self, (old, new): (&PoolLayout, &PoolLayout)) -> Self {
        let backend = |name: &String| {
            let at = old.backends.iter().position(|old| old == name);
            at.map_or_else(|| Arc::new(BackendCells::new()), |at| Arc::clone(&self.backends[at]))
        };
        Self { own: Arc::clone(&self.own), backends: new.backends.iter().map(backend).collect() }
    }
}

impl OwnCells {
    /// Returns the cells of the command class at `index` of [`Layout::classes`].
    ///
    /// # Panics
    /// Panics if there is no such class.
    #[inline]
    pub(crate) fn class(&self, index: usize) -> &ClassCells {
        &self.classes[index]
    }

    /// Returns the number of requests accepted of the command class at `index` of
    /// [`Layout::classes`].
    ///
    /// # Panics
    /// Panics if there is no such class.
    pub fn calls_of_class(&self, index: usize) -> u64 {
        self.classes[index].requests.get()
    }

    /// Returns the cells for requests whose class and command have these indices in
    /// [`Layout::classes`] and [`Layout::commands`].
    ///
    /// # Panics
    /// Panics if there is no such class or command.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    pub fn requests(&self, class: usize, command: usize) -> RequestCells<'_> {
        let block = self.commands[command / COMMAND_BLOCK].get_or_init(Default::default);
        RequestCells { class: &self.classes[class], command: &block[command % COMMAND_BLOCK] }
    }

    /// Returns the cells of commands with their indices in [`Layout::commands`]. Commands that
    /// cannot have been called are left out.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (usize, &CommandCells)> {
        let blocks = self.commands.iter().enumerate().filter_map(|(at, it)| Some((at, it.get()?)));
        blocks.flat_map(|(at, block)| (at * COMMAND_BLOCK..).zip(block.iter()))
    }

    pub(crate) fn classes(&self) -> &[ClassCells] {
        &self.classes
    }
}

impl PoolCells {
    /// Returns the cells of the backend at `index` of [`PoolLayout::backends`].
    ///
    /// # Panics
    /// Panics if there is no such backend.
    #[inline]
    pub fn backend(&self, index: usize) -> &BackendCells {
        &self.backends[index]
    }
}

/// The cells of the worker's own loop.
#[derive(Debug)]
pub struct TurnCells {
    /// Turns of the loop.
    pub turns: Counter,
    /// Readiness events and completions handled.
    pub events: Counter,
    /// Polls that had to wait, so that the worker slept.
    pub wakeups: Counter,
    /// Time for which polls have polled shared memory instead of sleeping, in nanoseconds.
    pub looked_nanos: Counter,
    /// System calls that read from a socket.
    pub recv_calls: Counter,
    /// System calls that wrote to a socket.
    pub send_calls: Counter,
    /// System calls that asked for events.
    pub poll_calls: Counter,
    /// Connections that are closed on this side, while the client may still be sending.
    pub lingering: Gauge,
    /// Requests parsed in one turn; turns without any are not recorded.
    pub batch: SizeHistogram,
}

/// All cells of one worker, as the registry keeps them.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Cells {
    pub(crate) turn: Arc<TurnCells>,
    pub(crate) pools: Box<[PoolCells]>,
}

impl Cells {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            turn: Arc::new(TurnCells {
                turns: Counter::new(),
                events: Counter::new(),
                wakeups: Counter::new(),
                looked_nanos: Counter::new(),
                recv_calls: Counter::new(),
                send_calls: Counter::new(),
                poll_calls: Counter::new(),
                lingering: Gauge::new(),
                batch: SizeHistogram::new(),
            }),
            pools: layout.pools.iter().map(|pool| PoolCells::new(layout, pool)).collect(),
        }
    }

    /// Returns the cells for another layout. The cells of each pool continue those of the pool
    /// whose index `heir_of` returns.
    pub(crate) fn succeeded_by(
        &self,
        (old, new): (&Layout, &Layout),
        heir_of: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        let pool = |(index, layout): (usize, &PoolLayout)| match heir_of(index) {
            Some(at) => self.pools[at].succeeded_by((&old.pools[at], layout)),
            None => PoolCells::new(new, layout),
        };
        Self {
            turn: Arc::clone(&self.turn),
            pools: new.pools.iter().enumerate().map(pool).collect(),
        }
    }

    /// Sets every level to its value without a running worker. Counts stay.
    pub(crate) fn clear_levels(&self) {
        self.turn.lingering.set(0);
        for pool in &self.pools {
            pool.clients.connected.set(0);
            pool.pubsub.clear_levels();
            pool.backends.iter().for_each(|backend| backend.clear_levels());
        }
    }
}

#[cfg(test)]
mod tests;
