//! One run: workers take turns while virtual time passes, and a verdict.

mod clusters;
mod farewell;
mod holds;
mod mirrors;
mod reloads;
mod rest;
mod setup;
mod stores;
mod visits;

use crate::client::Client;
use crate::counting;
use crate::io::{PollRequest, SimIo};
use crate::ledger::Ledger;
use crate::network::{MICRO, Nanos, Network, RingFigures, SECOND};
use crate::random::Random;
use crate::scenario::{Driver, Options, Scenario};
use crate::server::Server;
use crate::visitor::Visitor;
use crate::world::World;
use keyway_metrics::Registry;
use keyway_net::{Mailbox, Mailer};
use keyway_store::Store;
use keyway_topology::Rejoin;
use keyway_worker::{ClusterTotals, Mail, Plan, PoolKind, Worker};
use setup::{build_world, links_of, plan, registry};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The result of a run without a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of replies that were checked.
    pub replies: u64,
    /// Number of error replies that a fault excused.
    pub excused: u64,
    /// Number of faults that occurred.
    pub faults: usize,
    /// Number of turns of all workers.
    pub turns: u64,
    /// The virtual time that passed.
    pub virtual_time: Duration,
    /// Number of transactions that were executed.
    pub commits: u64,
    /// Number of elements of lists that reached a client.
    pub deliveries: u64,
    /// Number of entries of streams that clients read.
    pub entries: u64,
    /// Number of messages that clients received.
    pub messages: u64,
    /// Number of cached values that clients were told to drop.
    pub invalidations: u64,
    /// Number of items that were copied from one server to another.
    pub moves: u64,
    /// Number of items that were the same in all children of a mirror.
    pub mirrored: u64,
    /// Number of requests that went to another pool because one had failed or missed.
    pub led_on: u64,
    /// Number of requests that servers of a cluster redirected.
    pub redirected: u64,
    /// Number of reads that were also sent to a second server.
    pub hedged: u64,
    /// Number of reads that went to another server because their connection was lost, and of
    /// requests that were retried later.
    pub retried: u64,
    /// Number of requests that no server of a cluster could take.
    pub refused: u64,
    /// Number of new versions of the settings that workers adopted.
    pub reloads: u64,
    /// How often servers were ejected by hand.
    pub holds: u64,
    /// Number of stores with a memory bound.
    pub bounded: u64,
    /// Number of those that were full at some time.
    pub filled: u64,
    /// Number of writes that such a store refused because it had no room.
    pub refused_for_room: u64,
    /// Number of reads that missed keys which were evicted.
    pub gone: u64,
    /// How often the special cases of drivers by io_uring have happened.
    pub ring: RingFigures,
    /// A digest of everything that happened: the same seed gives the same.
    pub digest: u64,
}

/// A run that broke a law.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// How the workers' sockets were driven.
    pub io: Driver,
    /// The kind of the seed: [`Options::kind_words`].
    pub kind: String,
    /// The violation.
    pub text: String,
    /// The last lines of the story, if one was recorded.
    pub story: Vec<String>,
}

/// Number of turns in a row in which a worker may find nothing to do although it asked not to wait.
const SPINS_MAX: u32 = 100;
/// On average, one of this many turns is followed by a count of all that a worker holds.
const FIGURES_EVERY: u64 = 3;
/// Largest number of turns of a run.
const TURNS_MAX: u64 = 5_000_000;
/// Virtual time that a client may wait after the last fault without any byte moving.
const PATIENCE: Nanos = 5 * SECOND;
/// How late a timeout may be noticed: some turns.
const LATENESS_MAX: Duration = Duration::from_millis(20);
/// Virtual time for which the workers are left alone, to check that they rest.
const REST: Nanos = 3 * SECOND;
/// Number of turns that a worker may take in a second of rest. Upkeep is due ten times, each wait
/// takes two turns here, and the other worker's mail and answers of servers come in between.
const RESTING_TURNS_PER_SECOND: u64 = 40;
/// A little longer than the claim to empty a server of memcached lasts.
const CLAIM_LASTS: Nanos = 11 * SECOND;
/// How long workers may take to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// One worker, with what the driver knows of it.
struct Seat {
    worker: Option<Worker<SimIo>>,
    mailer: Mailer<Mail>,
    /// The time until which it sleeps unless something happens.
    asleep_until: Option<Nanos>,
    spins: u32,
    turns: u64,
    /// Number of turns in which it read bytes and did nothing else.
    fed: u64,
    /// True if a request was overdue at the last count of what the worker holds.
    is_late: bool,
}

/// A running simulation.
pub struct Sim {
    scenario: Scenario,
    world: Rc<RefCell<World>>,
    seats: Vec<Seat>,
    plan: Arc<Plan>,
    registry: Arc<Registry>,
    random: Random,
    /// Decides after which turns the worker's holdings are counted.
    counted: Random,
    turns: u64,
    /// The time until which a fault may explain that nothing moves.
    calm_from: Nanos,
    next_audit: Nanos,
    mirrored: u64,
    followed: clusters::Followed,
    reloads: Option<Box<reloads::Reloads>>,
}

/// Runs one seed. The run is the same each time, except with a memory bound. Stores of a process
/// share the pages of collections, which count towards the bound. So such a run in a process that
/// has had other runs may evict at other times than in a process of its own.
///
/// # Errors
/// Returns the first violation of a law.
pub fn run_seed(seed: u64, options: &Options) -> Result<Report, Violation> {
    let mut sim = Sim::new(seed, options);
    match sim.run() {
        Ok(report) => Ok(report),
        Err(text) => {
            let story = sim.world.borrow_mut().network.story.take();
            let io = Driver::of(seed, options);
            let story = story.into_iter().flatten().collect();
            Err(Violation { seed, io, kind: options.kind_words(), text, story })
        }
    }
}

impl Sim {
    /// Creates the simulation of `seed`, before anything has happened.
    pub fn new(seed: u64, options: &Options) -> Self {
        let mut sim = Self::of(Scenario::new(seed, options), seed, options);
        sim.begin_reloads(seed, options);
        sim
    }

    /// Creates the simulation of a scenario, before anything has happened. `seed` is for what is
    /// drawn later.
    pub fn of(scenario: Scenario, seed: u64, options: &Options) -> Self {
        let mut random = Random::new(!seed);
        let plan = plan(&scenario, seed);
        let world =
            Rc::new(RefCell::new(build_world(&scenario, &plan, (options, seed), &mut random)));
        let registry = registry(&scenario);
        let mut seats = Vec::new();
        for index in 0..scenario.workers {
            let mailbox = Mailbox::new(64).expect("a descriptor for a mailbox");
            let mailer = mailbox.mailer();
            plan.mailers.lock().push(mailer.clone());
            let io = SimIo::new(Rc::clone(&world), index, &mailbox).expect("a descriptor");
            let cells = registry.start_worker().expect("cells for each worker");
            let worker = Worker::new(io, Arc::clone(&plan), cells, mailbox, random.bits());
            let worker = Some(worker);
            seats.push(Seat {
                worker,
                mailer,
                asleep_until: None,
                spins: 0,
                turns: 0,
                fed: 0,
                is_late: false,
            });
        }
        let calm_from = scenario.faults.iter().map(|fault| fault.at + fault.lasts).max();
        let ends_at = scenario.cluster.as_ref().map(|plan| plan.ends_at);
        let calm_from = calm_from.max(ends_at).unwrap_or(0) + scenario.recovery();
        Self {
            scenario,
            world,
            seats,
            plan,
            registry,
            random,
            counted: Random::new(seed ^ 0x636f_756e_7473),
            turns: 0,
            calm_from,
            next_audit: 0,
            mirrored: 0,
            followed: clusters::Followed::default(),
            reloads: None,
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn run(&mut self) -> Result<Report, String> {
        if let Some(at) = self.scenario.drain_at {
            self.run_until(|sim, now| now >= at || sim.is_quiet(now))?;
            self.drain()?;
            return Ok(self.report());
        }
        self.run_until(|sim, now| sim.is_quiet(now))?;
        // A proxy that was cut off while it emptied a server has left its claim there.
        if self.scenario.servers_looked_at() > 0 {
            let claims_end = self.now() + CLAIM_LASTS;
            self.run_until(|sim, now| now >= claims_end || sim.check_health().is_ok())?;
        }
        self.check_health()?;
        self.check_cluster()?;
        self.run_last_clients()?;
        self.check_rest()?;
        self.check_reloads()?;
        self.check_told()?;
        self.check_farewell()?;
        self.drain()?;
        Ok(self.report())
    }

    /// Continues until this many replies were checked.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn run_replies(&mut self, replies: u64) -> Result<(), String> {
        self.run_until(|sim, _| sim.world.borrow().ledger.replies >= replies)
    }

    fn report(&self) -> Report {
        let world = self.world.borrow();
        Report {
            replies: world.ledger.replies,
            excused: world.ledger.excused,
            faults: self.scenario.faults.len(),
            turns: self.turns,
            virtual_time: Duration::from_nanos(world.network.now),
            commits: world.ledger.commits,
            deliveries: world.ledger.deliveries,
            entries: world.ledger.entries,
            moves: world.ledger.moves,
            mirrored: self.mirrored,
            led_on: self.led_on(),
            messages: world.ledger.messages_told(),
            invalidations: world.ledger.invalidations,
            redirected: world.ledger.refused().0,
            hedged: self.of_clusters(|totals| &totals.hedged),
            retried: self.of_clusters(|totals| &totals.retried),
            refused: world.ledger.refused().1,
            reloads: self.reloads_done(),
            holds: world.ledger.holds(),
            bounded: u64::from(self.scenario.bound.is_some()),
            filled: u64::from(world.ledger.filled_percent() >= 90),
            refused_for_room: world.ledger.refused_for_room,
            gone: world.ledger.gone,
            ring: world.network.ring_figures(),
            digest: world.network.digest,
        }
    }

    /// Returns whether every client has asked all that it wanted, and no fault has an effect any
    /// more.
    fn is_quiet(&self, now: Nanos) -> bool {
        let world = self.world.borrow();
        let clients = &world.clients[..self.scenario.clients.len()];
        let are_done = clients.iter().all(Client::is_done);
        now > self.calm_from && are_done && world.visitors.iter().all(Visitor::is_done)
    }

    fn now(&self) -> Nanos {
        self.world.borrow().network.now
    }

    /// Lets workers and time continue until `done`.
    fn run_until(&mut self, done: impl Fn(&Sim, Nanos) -> bool) -> Result<(), String> {
        loop {
            self.world.borrow_mut().settle();
            self.check_world()?;
            let now = self.now();
            if done(self, now) {
                return Ok(());
            }
            self.interfere(now);
            let first = self.random.index(self.seats.len());
            let count = self.seats.len();
            let runnable = (0..count)
                .map(|offset| (first + offset) % count)
                .find(|&index| self.is_runnable(index, now));
            match runnable {
                Some(index) => self.take_turn(index)?,
                None => self.pass_time()?,
            }
        }
    }

    /// Does to the workers what the process around them does.
    fn interfere(&mut self, now: Nanos) {
        self.interfere_by_reloads(now);
        for &(from, until) in &self.scenario.exhaustions {
            if (from..until).contains(&now) {
                for station in &mut self.world.borrow_mut().network.stations {
                    station.exhausted_until = until;
                }
            }
        }
        while self.scenario.handovers.last().is_some_and(|&at| at <= now) {
            self.scenario.handovers.pop();
            let from = self.random.index(self.seats.len());
            let to = self.seats[(from + 1) % self.seats.len()].mailer.clone();
            let count = self.random.between(1, 6) as usize;
            // If the mailbox is full, nothing is handed over.
            let _ = self.seats[from].mailer.post(Mail::GiveAway { count, to });
        }
    }

    fn is_runnable(&mut self, index: usize, now: Nanos) -> bool {
        let seat = &mut self.seats[index];
        let Some(worker) = &mut seat.worker else { return false };
        worker.io_mut().check_mail();
        seat.asleep_until.is_none_or(|until| until <= now)
            || self.world.borrow().network.has_events(index)
    }

    fn take_turn(&mut self, index: usize) -> Result<(), String> {
        let now = self.now();
        let seat = &mut self.seats[index];
        let Some(worker) = &mut seat.worker else { return Ok(()) };
        worker.io_mut().asked = None;
        {
            let station = &mut self.world.borrow_mut().network.stations[index];
            (station.moved, station.fed) = (0, 0);
        }
        let goes_on = {
            let _counted = counting::begin();
            worker.turn(true)
        };
        self.turns += 1;
        seat.turns += 1;
        if let Some(bound) = &self.scenario.bound {
            // A store keeps its index over reloads.
            let ledger = &mut self.world.borrow_mut().ledger;
            stores::check_memory(&self.plan, (bound, bound.pool), ledger);
        }
        let asked = worker.io_mut().asked.take();
        if !goes_on {
            seat.worker = None;
            return Ok(());
        }
        let Some(PollRequest { wait, events, clock_before }) = asked else {
            return Err("a turn without a poll".to_owned());
        };
        if seat.is_late && wait.is_none_or(|wait| wait > LATENESS_MAX) {
            return Err(format!(
                "worker {index} would sleep for {wait:?} beside an overdue request"
            ));
        }
        let (moved, fed) = {
            let station = &self.world.borrow().network.stations[index];
            (station.moved, station.fed)
        };
        seat.fed += u64::from(fed > 0 && fed == moved);
        if events > 0 || moved > 0 {
            seat.spins = 0;
            seat.asleep_until = None;
            self.world.borrow_mut().network.now += self.random.between(2, 40) * MICRO;
        } else {
            let until = wait
                .map_or(Nanos::MAX, |wait| clock_before.saturating_add(wait.as_nanos() as Nanos));
            if until > now {
                seat.spins = 0;
                seat.asleep_until = Some(until);
            } else {
                seat.spins += 1;
                seat.asleep_until = None;
                self.world.borrow_mut().network.now += MICRO;
            }
        }
        if seat.spins > SPINS_MAX {
            return Err(format!("worker {index} is busy with nothing: {:?}", self.figures(index)));
        }
        if self.turns > TURNS_MAX {
            return Err("the run does not end".to_owned());
        }
        // It takes a third of a seed's time to count all that a worker holds. So it is done after
        // random turns. Then no rhythm of turns can hide anything.
        let is_late = self.seats[index].is_late;
        if is_late || self.counted.below(FIGURES_EVERY) == 0 {
            self.check_figures(index)
        } else {
            Ok(())
        }
    }

    /// Moves to the next time, because nothing is due now.
    fn pass_time(&mut self) -> Result<(), String> {
        let mut world = self.world.borrow_mut();
        let sleeps = self.seats.iter().filter(|seat| seat.worker.is_some());
        let wake = sleeps.filter_map(|seat| seat.asleep_until).min();
        let next = world.network.next_at().into_iter().chain(wake).min();
        match next {
            Some(at) if at < Nanos::MAX => {
                world.network.now = world.network.now.max(at);
                Ok(())
            }
            _ => Err("nothing will ever happen again".to_owned()),
        }
    }

    fn figures(&self, index: usize) -> Option<keyway_worker::Figures> {
        let worker = self.seats[index].worker.as_ref()?;
        // The worker's own time is used.
        Some(worker.core().figures(worker.core().clock().now))
    }

    /// Checks that a worker keeps its limits.
    fn check_figures(&mut self, index: usize) -> Result<(), String> {
        let Some(figures) = self.figures(index) else { return Ok(()) };
        let limits = &self.scenario.limits;
        // Clients that publish have longer values than others.
        let longest = self.scenario.clients.iter().map(|habits| habits.large_len).max();
        let value = self.scenario.value_len_max.max(longest.unwrap_or(0) + 128);
        // A request of several values, and its reply.
        let request = value * 6 + 1024;
        let in_flight = limits.session_in_flight_max as usize;
        // The values of a client that does not read may all be large.
        let large = if self.scenario.has_mutes { 3 * 64 } else { 8 };
        let read = self.scenario.network.given_max();
        let output = limits.session_output_len_soft as usize;
        // Each message counts for each subscription to it, and so does each change of a cached
        // value.
        let (messages, changes) = self.world.borrow().ledger.tellable();
        let told_max = messages * 4 * 320 + changes * 100 + self.scenario.unread_max;
        let bounds = [
            ("requests of a client in flight", figures.session_in_flight_max, in_flight),
            ("unparsed bytes of a client", figures.session_input_max, request + read),
            (
                "undelivered bytes of a client",
                figures.session_output_max,
                output + output * 4 + in_flight.min(large) * request + in_flight * 1024 + told_max,
            ),
            // A request may bring a SELECT with it.
            (
                "requests in flight on a link",
                figures.link_in_flight_max,
                limits.link_in_flight_max as usize
                    + 2
                    + self.scenario.probes_max()
                    + self.scenario.clients.len() * 4
                    + self.scenario.unasked_max()
                    + self.scenario.redirected_max() * limits.link_in_flight_max as usize,
            ),
            (
                "unsent bytes on a link",
                figures.link_output_max,
                // A transaction may take half of it.
                (limits.link_output_len_max as usize * 3 / 2 + request)
                    * (1 + self.scenario.redirected_max()),
            ),
            ("bytes of a reply", figures.link_input_max, request + read),
            (
                "bytes of large replies that clients do not take",
                figures.stalled_output,
                // Also what arrived for each client with one read, or the reply to one request at
                // once.
                limits.released_len_max() as usize + self.scenario.clients.len() * read + request,
            ),
        ];
        for (what, found, bound) in bounds {
            if found > bound {
                return Err(format!("worker {index}: {found} {what}, at most {bound} allowed"));
            }
        }
        // A turn may end with a request that is overdue because of what the turn has just learned,
        // for example that a server is no longer a primary for which requests wait longer. The next
        // turn has to handle it, and the worker must not sleep before that.
        let was_late =
            std::mem::replace(&mut self.seats[index].is_late, figures.overdue > LATENESS_MAX);
        if was_late && figures.overdue > LATENESS_MAX {
            return Err(format!("worker {index} is late for a timeout by {:?}", figures.overdue));
        }
        Ok(())
    }

    /// Checks for violations that others have noted, and for clients that wait without result.
    fn check_world(&mut self) -> Result<(), String> {
        {
            let World { network, ledger, .. } = &mut *self.world.borrow_mut();
            ledger.check_rejoins();
            ledger.note_rings(network.now);
        }
        self.check_reigns()?;
        let world = self.world.borrow();
        if let Some(text) = &world.ledger.violation {
            return Err(text.clone());
        }
        if let Some(text) = &world.network.misuse {
            return Err(text.clone());
        }
        let now = world.network.now;
        if now < self.next_audit {
            return Ok(());
        }
        self.next_audit = now + SECOND / 10;
        self.check_visitors()?;
        self.check_holds()?;
        for client in &world.clients {
            let Some(since) = client.waiting_since() else { continue };
            if now > since.max(self.calm_from) + PATIENCE {
                let figures: Vec<_> = (0..self.seats.len()).map(|i| self.figures(i)).collect();
                return Err(format!("{} hangs; workers: {figures:?}", client.describe()));
            }
            let is_overdue = client.is_unblock_overdue(&world.ledger, now);
            if is_overdue && now > self.calm_from + PATIENCE {
                return Err(format!("{} was to be unblocked", client.describe()));
            }
        }
        Ok(())
    }

    /// Checks that ejected servers are back in use.
    fn check_health(&self) -> Result<(), String> {
        let Plan { topology, health, .. } = &*self.plan;
        for position in self.own_positions() {
            let ejection = topology.pools()[position].ejection();
            if ejection.is_some_and(|it| it.rejoin == Rejoin::Quarantine(None)) {
                continue;
            }
            let mut ids = topology.backend_ids(position);
            if let Some(id) = ids.find(|&id| !health.is_usable(id)) {
                let state = health.state(id);
                return Err(format!(
                    "server {} is still {state:?}, although all is well",
                    id.index()
                ));
            }
        }
        Ok(())
    }

    /// Checks that everything works without an error once every fault is over.
    fn run_last_clients(&mut self) -> Result<(), String> {
        let first = self.scenario.clients.len();
        {
            let mut world = self.world.borrow_mut();
            let now = world.network.now;
            for index in first..world.clients.len() {
                world.network.wake_client(index, now);
            }
        }
        self.run_until(|sim, _| sim.world.borrow().clients.iter().all(Client::is_done))
    }

    fn of_clusters(&self, which: fn(&ClusterTotals) -> &AtomicU64) -> u64 {
        let totals = self.plan.pools.iter().filter_map(|pool| Some(&pool.kind.cluster()?.totals));
        totals.map(|totals| which(totals).load(Ordering::Relaxed)).sum()
    }

    fn led_on(&self) -> u64 {
        let figures = self.plan.pools.iter().filter_map(|pool| match &pool.kind {
            PoolKind::Routed(routes) => Some(routes.totals.figures()),
            _ => None,
        });
        figures.map(|figures| figures.failovers + figures.lookups).sum()
    }

    /// Stops the workers.
    fn drain(&mut self) -> Result<(), String> {
        self.end_reloads();
        // For this long, clients that have their last reply may still be sending.
        let slack = 2 * SECOND + SECOND / 2;
        {
            let mut world = self.world.borrow_mut();
            let World { network, clients, .. } = &mut *world;
            let habits = self.scenario.clients.iter().chain(&self.scenario.last_clients);
            for (client, habits) in clients.iter_mut().zip(habits) {
                client.on_drain(network, self.scenario.unhindered_max(habits));
            }
        }
        for seat in &self.seats {
            let _ = seat.mailer.post(Mail::Drain);
        }
        let until = self.now() + DRAIN_TIMEOUT.as_nanos() as Nanos + slack;
        self.run_until(|sim, now| now >= until || sim.seats.iter().all(|s| s.worker.is_none()))?;
        if let Some(index) = self.seats.iter().position(|seat| seat.worker.is_some()) {
            return Err(format!("worker {index} does not stop: {:?}", self.figures(index)));
        }
        self.check_shared_leftovers()
    }
}
