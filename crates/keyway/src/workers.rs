//! Worker threads: few at the start, more while the existing ones are busy.
//!
//! One worker that is not full costs least per request: a second worker halves the batches and
//! doubles the links and wake-ups. So a worker is added only after every existing one has been
//! busy. Then it is given its share of clients.

use crate::driver::{self, Driver, MakeRing};
use anyhow::{Context, Result};
use keyway_metrics::Registry;
use keyway_net::{Listener, ListenerHold, ListenerTemplate, Mailbox, Mailer};
use keyway_net::{Ring, Ringed, Secured};
use keyway_worker::{Follow, Mail, Plan, Worker};
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most mail that waits for one worker. Handing over clients fills it; a full mailbox ends the
/// round.
const MAILBOX_LEN: usize = 4096;

/// Share of the time above which a worker counts as busy: it ran, or was ready to run and waited
/// for a core. A lower share adds workers that are not needed. A share near one would never be
/// measured.
const BUSY_SHARE: f64 = 0.85;

/// Number of busy samples in a row before a worker is added.
const BUSY_SAMPLES: u32 = 3;

/// Pause after a worker could not be added: the missing resource (descriptors, threads) seldom
/// comes back at once.
pub const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Longest wait for workers to change to other settings before a delay is reported. A script keeps
/// its worker from reading mail.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(5);

/// Time between two samples.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(500);

struct Running {
    thread: JoinHandle<()>,
    mailer: Mailer<Mail>,
    /// Kernel id of its thread, to read how it spends its time.
    thread_id: i32,
    awake_nanos: u64,
    /// How long it has polled shared memory instead of sleeping, in nanoseconds.
    looked_nanos: u64,
}

/// The workers of the process.
pub struct Workers {
    plan: Arc<Plan>,
    registry: Arc<Registry>,
    /// For each listener, a template for further sockets; `None` if it has ended.
    templates: Vec<Option<ListenerTemplate>>,
    /// For each listener, the sockets on which workers accept.
    holds: Vec<Vec<ListenerHold>>,
    running: Vec<Running>,
    /// Workers that have started, and serve no client before [`Workers::begin`].
    waiting: Option<Vec<Sender<()>>>,
    count_max: usize,
    driver: (Driver, MakeRing),
    busy_samples: u32,
    /// The rest of [`RETRY_AFTER`].
    pause: Duration,
    seed: u64,
}

impl Workers {
    /// Starts `count` workers, to which others may be added up to `count_max`. `sockets` has at
    /// least one and at most `count` sockets of each listener; further workers open more. They
    /// serve from [`Workers::begin`] on.
    pub fn start(
        plan: Arc<Plan>,
        registry: Arc<Registry>,
        mut sockets: Vec<Vec<Listener>>,
        (count, count_max): (usize, usize),
        (driver, seed): (Driver, u64),
    ) -> Result<Self> {
        let template =
            |sockets: &Vec<Listener>| sockets.first().map(Listener::template).transpose();
        let templates = sockets.iter().map(template).collect::<std::io::Result<_>>()?;
        for of_listener in &mut sockets {
            // Sockets that were taken over do not know of each other yet.
            if let Some((first, others)) = of_listener.split_first_mut() {
                others.iter_mut().for_each(|other| other.join(first));
            }
        }
        let mut sockets: Vec<_> = sockets.into_iter().map(Vec::into_iter).collect();
        let mut workers = Self {
            plan,
            registry,
            templates,
            holds: Vec::new(),
            running: Vec::new(),
            waiting: Some(Vec::new()),
            count_max,
            driver: (driver, Ring::new),
            busy_samples: 0,
            pause: Duration::ZERO,
            seed,
        };
        for _ in 0..count {
            let there = sockets.iter_mut().map(Iterator::next).collect();
            workers.add_sibling(there)?;
        }
        Ok(workers)
    }

    /// Lets all workers serve.
    pub fn begin(&mut self) {
        for worker in self.waiting.take().into_iter().flatten() {
            // A worker whose thread has ended does not receive it.
            let _ = worker.send(());
        }
    }

    /// Adds workers, which serve at once, until there are `count`. Logs if there are fewer.
    pub fn grow(&mut self, count: usize) {
        while self.running.len() < count {
            if let Err(error) = self.add_sibling(Vec::new()) {
                let workers = self.running.len();
                return tracing::warn!(workers, "fewer workers than `workers` says: {error:#}");
            }
        }
    }

    /// Duplicates the descriptors of the sockets on which workers accept, for one listener.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is left.
    pub fn sockets(&self, listener: usize) -> std::io::Result<Vec<OwnedFd>> {
        let holds = self.holds.get(listener).into_iter().flatten();
        holds.filter_map(|hold| hold.socket().transpose()).collect()
    }

    /// Applies the listen options of the settings to sockets that another process has opened. Logs
    /// what the system refuses.
    pub fn settle(&self) {
        for hold in self.holds.iter().flatten() {
            if let Err(error) = hold.settle() {
                tracing::warn!("upgrade: a socket that was taken over stays as it was: {error}");
            }
        }
    }

    /// Makes every worker serve only the clients it has, until they leave or the time is over.
    pub fn leave(&mut self, grace: Duration) {
        // No more workers are added. If a unix socket stayed open here, clients would still come by
        // it after the process that owns it is gone.
        self.templates.clear();
        for worker in &self.running {
            post(&worker.mailer, Mail::Leave(grace));
        }
    }

    /// Returns whether every worker has ended.
    pub fn have_ended(&self) -> bool {
        self.running.iter().all(|worker| worker.thread.is_finished())
    }

    /// Number of workers.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Adds a worker, with the sockets that exist for it.
    fn add_sibling(&mut self, mut sockets: Vec<Option<Listener>>) -> Result<()> {
        sockets.resize_with(self.templates.len(), || None);
        let there = (0..).zip(&self.templates).zip(sockets);
        let there = there.filter_map(|((index, template), socket)| {
            let template = template.as_ref()?;
            Some(socket.map_or_else(|| template.bind(), Ok).map(|listener| (index, listener)))
        });
        let listeners = there.collect::<Result<_, keyway_net::BindError>>()?;
        self.add(listeners)
    }

    fn hold(&mut self, holds: Vec<(u16, ListenerHold)>) {
        for (index, hold) in holds {
            let index = usize::from(index);
            if self.holds.len() <= index {
                self.holds.resize_with(index + 1, Vec::new);
            }
            self.holds[index].push(hold);
        }
    }

    fn add(&mut self, listeners: Vec<(u16, Listener)>) -> Result<()> {
        let index = self.running.len();
        let mailbox = Mailbox::new(MAILBOX_LEN).context("no file descriptor for a mailbox")?;
        let mailer = mailbox.mailer();
        let holds = holds_of(&listeners);
        // This is done before it serves any client: mail in its inboxes is announced once, and a
        // worker that missed that would never look.
        self.plan.mailers.lock().push(mailer.clone());
        match self.start_thread(index, listeners, mailbox) {
            Ok((thread, thread_id)) => {
                self.hold(holds);
                self.running.push(Running {
                    thread,
                    mailer,
                    thread_id,
                    awake_nanos: 0,
                    looked_nanos: 0,
                });
                Ok(())
            }
            Err(error) => {
                self.plan.mailers.lock().truncate(index);
                Err(error)
            }
        }
    }

    /// Starts the thread of worker `index`. Returns the thread and its kernel id, once it serves
    /// clients.
    fn start_thread(
        &mut self,
        index: usize,
        listeners: Vec<(u16, Listener)>,
        mailbox: Mailbox<Mail>,
    ) -> Result<(JoinHandle<()>, i32)> {
        let cells = self.registry.start_worker().context("no room for another worker's metrics")?;
        let plan = Arc::clone(&self.plan);
        let seed = self.seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (tell, told) = channel();
        let (driver, make_ring) = self.driver;
        let (begin, begun) = channel();
        match &mut self.waiting {
            Some(waiting) => waiting.push(begin),
            None => begin.send(()).expect("the other end is here"),
        }
        let thread = std::thread::Builder::new()
            .name(format!("keyway-worker-{index}"))
            .spawn(move || {
                debug_assert_eq!(cells.index() + 1, plan.mailers.lock().len(), "it can be told");
                let io = match driver::sockets(driver, make_ring, listeners, &mailbox) {
                    Ok(io) => io,
                    Err(error) => return drop(tell.send(Err(error))),
                };
                cells.attach_thread();
                let _ = tell.send(Ok(rustix::thread::gettid().as_raw_nonzero().get()));
                if begun.recv().is_err() {
                    // The process is not going to start.
                    return;
                }
                let filters = plan.listeners.iter().map(|one| one.access.filter.clone()).collect();
                let io = Secured::with_filters(Ringed::new(io, plan.spin), filters);
                Worker::new(io, plan, cells, mailbox, seed).run();
            })
            .context("cannot start a worker thread")?;
        let thread_id = match told.recv().context("a worker thread ended at once")? {
            Ok(thread_id) => thread_id,
            Err(error) => {
                // Its resources are free for another one then.
                let _ = thread.join();
                return Err(error);
            }
        };
        Ok((thread, thread_id))
    }

    /// Samples how busy the workers are. Adds one if all of them have been busy for a while.
    /// Returns whether one was added.
    ///
    /// # Errors
    /// Returns an error if one was wanted and the system refused. The existing workers are not
    /// affected, and no other attempt is made for [`RETRY_AFTER`].
    pub fn sample(&mut self, elapsed: Duration) -> Result<bool> {
        let mut all_busy = true;
        for (index, worker) in self.running.iter_mut().enumerate() {
            let now = thread_awake_nanos(worker.thread_id).unwrap_or(worker.awake_nanos);
            let awake = now.saturating_sub(worker.awake_nanos);
            worker.awake_nanos = now;
            // A worker that only polls has time for more.
            let looked_before = worker.looked_nanos;
            worker.looked_nanos = self.registry.looked_nanos(index);
            let awake = awake.saturating_sub(worker.looked_nanos - looked_before);
            all_busy &= awake as f64 > BUSY_SHARE * elapsed.as_nanos() as f64;
        }
        self.busy_samples = if all_busy { self.busy_samples + 1 } else { 0 };
        self.pause = self.pause.saturating_sub(elapsed);
        let is_full = self.running.len() >= self.count_max;
        if self.busy_samples < BUSY_SAMPLES || is_full || !self.pause.is_zero() {
            return Ok(false);
        }
        self.busy_samples = 0;
        self.pause = RETRY_AFTER;
        self.add_sibling(Vec::new())?;
        self.pause = Duration::ZERO;
        self.share_out();
        Ok(true)
    }

    /// Makes the other workers give the newest one its share of clients.
    fn share_out(&self) {
        let Some((newest, others)) = self.running.split_last() else { return };
        let share = self.plan.clients.len() / self.running.len();
        let each = share / others.len().max(1);
        for worker in others {
            let mail = Mail::GiveAway { count: each, to: newest.mailer.clone() };
            // A worker with a full mailbox has more urgent work; new clients even things out.
            let _ = worker.mailer.post(mail);
        }
    }

    /// Makes every worker use another version of the settings, and waits until all do. Returns how
    /// many do not yet, because their current work takes long.
    ///
    /// # Errors
    /// Returns an error if no further socket can be opened for a new listener. Nothing has changed
    /// then.
    pub fn follow(
        &mut self,
        plan: &Arc<Plan>,
        registry: &Arc<Registry>,
        opened: Vec<(u16, Listener)>,
    ) -> Result<usize> {
        let mut templates = Vec::new();
        for (index, listener) in &opened {
            let template = listener.template().context("no file descriptor for a listener")?;
            templates.push((*index, template));
        }
        let mut sockets = vec![opened];
        for _ in 1..self.running.len() {
            let others = templates.iter().map(|(index, template)| Ok((*index, template.bind()?)));
            sockets.push(others.collect::<Result<_, keyway_net::BindError>>()?);
        }
        self.templates.resize_with(plan.listeners.len(), || None);
        for (index, template) in templates {
            self.templates[usize::from(index)] = Some(template);
        }
        for listeners in &sockets {
            self.hold(holds_of(listeners));
        }
        for (template, listener) in self.templates.iter_mut().zip(&plan.listeners) {
            if listener.is_ended {
                *template = None;
            }
        }
        // The workers have ended it, or will in a moment.
        for (holds, listener) in self.holds.iter_mut().zip(&plan.listeners) {
            if listener.is_ended {
                holds.clear();
            }
        }
        (self.plan, self.registry) = (Arc::clone(plan), Arc::clone(registry));
        for (worker, listeners) in self.running.iter().zip(sockets) {
            let (plan, registry) = (Arc::clone(plan), Arc::clone(registry));
            post(&worker.mailer, Mail::Follow(Box::new(Follow { plan, registry, listeners })));
        }
        Ok(self.await_followers())
    }

    /// Waits until every worker uses the latest settings. Returns how many do not.
    #[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
    fn await_followers(&self) -> usize {
        let since = Instant::now();
        loop {
            // ORDER: pairs with the addition of the worker that follows.
            let behind =
                self.running.len().saturating_sub(self.plan.followers.load(Ordering::Acquire));
            if behind == 0 || since.elapsed() > FOLLOW_PATIENCE {
                return behind;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Tells every worker to stop accepting, answer and end. [`Workers::have_ended`] tells when
    /// they have.
    pub fn drain(&mut self) {
        self.templates.clear();
        for worker in &self.running {
            post(&worker.mailer, Mail::Drain);
        }
    }
}

fn holds_of(listeners: &[(u16, Listener)]) -> Vec<(u16, ListenerHold)> {
    listeners.iter().map(|(index, listener)| (*index, listener.hold())).collect()
}

/// Posts mail, and waits for room for it.
fn post(mailer: &Mailer<Mail>, mut mail: Mail) {
    while let Err(refused) = mailer.post(mail) {
        mail = refused;
        std::thread::yield_now();
    }
}

/// Returns how long a thread of this process has not slept, in nanoseconds: it ran, or waited for a
/// core. By processor time alone, a worker that shares its core with another process would never
/// count as busy, however long its queues are.
fn thread_awake_nanos(thread_id: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread_id}/schedstat")).ok()?;
    let mut fields = text.split_whitespace().map_while(|field| field.parse::<u64>().ok());
    Some(fields.next()? + fields.next()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upgrade::TakeOver;
    use crate::{plan, serve};
    use keyway_config::Config;
    use parking_lot::Mutex;
    use rustix::io::Errno;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::OnceLock;

    /// Creates workers without any thread: they count as fully busy.
    fn without_workers() -> Workers {
        let mut config = Config::default_store();
        config.listeners[0].bind =
            keyway_config::ListenAddr::Tcp("127.0.0.1:0".parse().expect("an address"));
        let (listeners, _files) =
            plan::bind(&config, &mut TakeOver::default()).expect("a free port");
        let listeners: Vec<Listener> = listeners.into_iter().flatten().collect();
        let clock = serve::wall_clock();
        let registry = plan::registry(&config.topology(keyway_topology::Epoch(1)), 1, clock);
        let addresses: Vec<_> = listeners.iter().map(Listener::local_addr).collect();
        let sources = plan::Sources {
            config: &config,
            addresses: &addresses,
            clock,
            seed: 1,
            reloads: &Arc::default(),
            verifier: &Arc::default(),
        };
        let plan = plan::plan(&sources, &registry).plan;
        let templates =
            listeners.iter().map(|listener| Some(listener.template().unwrap())).collect();
        Workers {
            plan,
            registry,
            templates,
            holds: Vec::new(),
            running: Vec::new(),
            waiting: None,
            count_max: 1,
            driver: (Driver::Epoll, Ring::new),
            busy_samples: 0,
            pause: Duration::ZERO,
            seed: 1,
        }
    }

    #[test]
    fn a_worker_that_cannot_be_added_is_tried_again_after_a_pause() {
        let mut workers = without_workers();
        let name = workers.plan.listeners[0].name.clone();
        // It is bound without SO_REUSEPORT, so no other socket gets the port.
        let taken = std::net::TcpListener::bind(&*name).expect("the port is free again");
        let outcomes: Vec<_> =
            (0..BUSY_SAMPLES).map(|_| workers.sample(SAMPLE_EVERY).is_err()).collect();
        assert_eq!(outcomes, [false, false, true]);
        drop(taken);
        let pauses = RETRY_AFTER.as_millis() / SAMPLE_EVERY.as_millis();
        for _ in 1..pauses {
            assert!(!workers.sample(SAMPLE_EVERY).unwrap(), "it waits");
        }
        assert!(workers.sample(SAMPLE_EVERY).unwrap(), "it tries again");
        assert_eq!(workers.len(), 1);
        workers.drain();
    }

    /// Takes enough busy samples for a worker to be added.
    fn sampled(workers: &mut Workers) -> Result<bool> {
        let mut samples = (0..BUSY_SAMPLES).map(|_| workers.sample(SAMPLE_EVERY));
        samples.find(|outcome| !matches!(outcome, Ok(false))).unwrap_or(Ok(false))
    }

    #[test]
    fn a_worker_that_is_refused_a_ring_is_not_added_and_nobody_was_sent_to_it() {
        static AT: OnceLock<SocketAddr> = OnceLock::new();
        static HEARD: Mutex<Vec<bool>> = Mutex::new(Vec::new());
        let mut workers = without_workers();
        AT.set(workers.plan.listeners[0].name.parse().unwrap()).unwrap();
        workers.driver = (Driver::IoUring, || {
            let connected = TcpStream::connect(AT.get().unwrap());
            HEARD.lock().push(connected.is_ok());
            Err(Errno::NOMEM.into())
        });
        let error = format!("{:#}", sampled(&mut workers).expect_err("it is refused"));
        assert!(error.contains("io_uring") && error.contains("memory"), "{error}");
        assert!(!error.contains("ulimit -l"), "{error}");
        assert_eq!(*HEARD.lock(), [false], "it listened before there was a worker");
        assert!(workers.holds.iter().all(Vec::is_empty) && workers.plan.mailers.lock().is_empty());
        // The existing workers are not affected, and one is added once there are enough resources.
        workers.driver = (Driver::Epoll, Ring::new);
        (workers.pause, workers.busy_samples) = (Duration::ZERO, 0);
        assert!(sampled(&mut workers).unwrap());
        assert_answers(*AT.get().unwrap());
        workers.drain();
    }

    #[test]
    fn a_worker_that_is_refused_a_ring_it_can_do_without_goes_by_epoll() {
        for fault in [Errno::NOMEM, Errno::MFILE, Errno::PERM] {
            let mut workers = without_workers();
            let at = workers.plan.listeners[0].name.parse().unwrap();
            workers.driver = (
                Driver::IoUringOrEpoll,
                match fault {
                    Errno::NOMEM => || Err(Errno::NOMEM.into()),
                    Errno::MFILE => || Err(Errno::MFILE.into()),
                    _ => || Err(Errno::PERM.into()),
                },
            );
            assert!(sampled(&mut workers).unwrap(), "{fault}");
            assert_answers(at);
            workers.drain();
        }
    }

    fn assert_answers(at: SocketAddr) {
        let mut client = TcpStream::connect(at).expect("it listens");
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        client.read_exact(&mut reply).expect("it answers");
        assert_eq!(&reply, b"+PONG\r\n");
    }
}
