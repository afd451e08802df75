//! `keyway control`: a control node. It campaigns for the leadership of its cluster, and as leader
//! publishes the document and knows the members.
//!
//! Three threads: the main one drives the node of the bus and decides (`keyway_fleet::Leader`), one
//! speaks to the coordinator (`keyway_control::Seat`), one is the admin listener. The others wake
//! the main one, which waits for none of them. [`Inside`] is the same in a process that serves, with
//! a thread in place of the main one.

mod admin;
mod audit;
mod audit_file;
mod document;
mod engine;
mod events_file;
mod groups;
mod inside;
mod movers;
mod own_file;
mod pace;
mod passing;
mod questions;
mod show;

pub use admin::Asking;
pub use document::changes;
pub use inside::{Desk, Inside, Staying};
pub use passing::{ANSWERED, NOT_ANSWERED};

use crate::bus::{
    Failures, Repeats, Signalled, incarnation, not_let_in, not_reached, note, watch_signals,
};
use admin::{Ask, Audited, Tell};
use anyhow::{Context, Result};
use audit::Audit;
use audit_file::AuditFile;
use events_file::EventsFile;
use keyway_base::Time;
use keyway_bus::{Event, NodeId, Settings, Stamp, Upstream, Url};
use keyway_channel::{Driver, DriverSettings, clock, here};
use keyway_config::{BusTls, ConfigError, ControlNodeConfig};
use keyway_control::{Access, Admin, AdminHandle, AdminOptions, Engine, EventLog, Seat, Told};
use keyway_fleet::{
    Event as FleetEvent, GROUPS_TOPIC, Identity, Leader, LeaderAction, LeaderFact, MoverOrder,
    MoverReport, Note, OrderId, Outcome, TOPIC, Version,
};
use keyway_metrics::BusMetrics;
use keyway_tls::ClientCertificates;
use own_file::OwnFile;
use pace::Pace;
use passing::Passing;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Longest wait when nothing is due. Other threads wake the main one earlier.
const TURN: Duration = Duration::from_secs(60);

/// How often the versions of nodes below are looked at, which tell of a coordinator that went back.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Checks the file of a control node. Prints that it is right, or every mistake in it.
pub fn check(file: &Path, is_quiet: bool) -> Result<ExitCode> {
    let config = match ControlNodeConfig::load(file) {
        Ok(_) if is_quiet => return Ok(ExitCode::SUCCESS),
        loaded => told(loaded),
    };
    let Some(config) = config else { return Ok(ExitCode::from(2)) };
    crate::bus::say!("cluster = \"{}\"", config.cluster)?;
    crate::bus::say!("coordinator: {}", engine::shown(&config))?;
    crate::bus::say!("id = \"{}\"", config.bus.settings.id)?;
    for url in &config.bus.settings.urls {
        crate::bus::say!("listens at {url}")?;
    }
    crate::bus::say!("admin at {}", config.admin)?;
    eprintln!("{}: a control node, no errors", file.display());
    Ok(ExitCode::SUCCESS)
}

/// Reports the warnings or errors of a file that was read.
fn told(loaded: Result<ControlNodeConfig, Vec<ConfigError>>) -> Option<ControlNodeConfig> {
    match loaded {
        Ok(config) => {
            let warnings = config.warnings.iter().chain(&config.bus.warnings);
            warnings.for_each(|warning| eprintln!("warning: {warning}"));
            Some(config)
        }
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{error}"));
            eprintln!("keyway: {}; not valid", keyway_config::counted(errors.len(), "error"));
            None
        }
    }
}

/// Runs a control node until a signal.
pub fn run(file: &Path) -> Result<ExitCode> {
    let loaded = ControlNodeConfig::load(file);
    if loaded.is_err() {
        crate::cli::tell_of_other_command(file, "control");
    }
    let Some(config) = told(loaded) else { return Ok(ExitCode::from(2)) };
    crate::log::start(&config.log, None);
    crate::serve::raise_descriptor_limit();
    start(file, &config)?.run()?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// A control node, by whatever process it runs in.
struct Running {
    driver: Driver,
    leader: Leader,
    seat: Seat,
    /// True while the seat has a session.
    has_session: bool,
    watchers: groups::Watchers,
    movers: movers::Movers,
    signalled: Arc<Signalled>,
    asks: Receiver<Ask>,
    /// Requests for the audit log.
    noted: Receiver<Audited>,
    events: Arc<EventLog>,
    audit: Audit,
    /// The file of a control node; `None` in a process that serves.
    file: Option<OwnFile>,
    /// The threads that wait for the outcome of an order.
    orders: BTreeMap<OrderId, Tell>,
    next_order: u64,
    /// The requests that members are answering.
    passing: Passing,
    look_at: Time,
    pace: Pace,
    tls: Option<BusTls>,
    id: NodeId,
    elections: u64,
    faults: u64,
    /// Rollouts that went on, and those that went back.
    rollouts: [u64; 2],
    /// Fail-overs that this node has begun: by itself, and by hand.
    failovers: [u64; 2],
    failures: Failures,
    repeats: Repeats,
    metrics: Arc<BusMetrics>,
    state: Arc<admin::State>,
    /// The file of events ends with the node, when the other parts have told all.
    _events_file: Option<EventsFile>,
    /// The admin listener ends with the node. That of a process that serves outlives it.
    _admin: Option<AdminHandle>,
}

/// The parts of a node that its file, or that of a process that serves, decides.
struct Parts {
    cluster: String,
    id: NodeId,
    engine: Engine,
    /// The coordinator, for people.
    shown: String,
    lease: Duration,
    tls: Option<BusTls>,
    /// The address of the admin listener, for other control nodes to name.
    admin: String,
}

/// Listens on the bus, as nobody's root yet. Members and other control nodes join below: nobody
/// beside this node can speak for the leader.
fn listen(mut settings: Settings, channels: DriverSettings) -> std::io::Result<Driver> {
    (settings.place, settings.incarnation) = (here(), incarnation());
    settings.has_siblings = false;
    let mut driver = Driver::new(settings, channels)?;
    // Nobody is known to lead yet.
    driver.node().set_upstreams(Vec::new(), true, clock());
    Ok(driver)
}

/// Returns the error of an address on which the system refuses to listen.
fn not_listening(error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow::anyhow!("cannot listen at {error}: another process does")
        }
        _ => anyhow::anyhow!("cannot listen at {error}"),
    }
}

/// Returns the metrics of the bus of a node that starts now.
fn bus_metrics() -> Arc<BusMetrics> {
    let start_micros = crate::serve::wall_clock().unix_micros;
    Arc::new(BusMetrics::new(env!("CARGO_PKG_VERSION"), start_micros))
}

/// Starts the node of a control node's file.
fn start(file: &Path, config: &ControlNodeConfig) -> Result<Running> {
    let audit_file = config.audit_file.as_deref().map(AuditFile::open).transpose()?;
    crate::events::want();
    let tls = config.bus.tls.as_ref().map(|tls| tls.loaded.clone());
    let channels = DriverSettings { share_with: config.bus.share_with.clone(), tls };
    let driver = listen(config.bus.settings.clone(), channels).map_err(|it| not_listening(&it))?;
    let (asking, desk) = Asking::new(bus_metrics());
    asking.set_waker(driver.waker());
    let events_file = config.events_file.as_deref();
    let events_file =
        events_file.map(|file| EventsFile::start(file, Arc::clone(&desk.events))).transpose()?;
    let access = access(config);
    // The configuration was loaded with its files.
    let admin_tls = config.admin_tls.as_ref().and_then(|tls| tls.loaded.clone());
    let options = AdminOptions { access: access.clone(), tls: admin_tls, ..Default::default() };
    let admin = Admin::start_with(options, &config.admin.to_string(), Arc::new(asking))
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let engine = engine::engine(config)?;
    let own_file = OwnFile::new(file, config, access, &engine);
    let parts = Parts {
        cluster: config.cluster.clone(),
        id: config.bus.settings.id,
        engine,
        shown: engine::shown(config),
        lease: config.lease,
        tls: config.bus.tls.clone(),
        admin: admin.local_addr().to_string(),
    };
    let signalled = watch_signals(&driver)?;
    let mut running = Running::new(driver, parts, (desk, audit_file), signalled)?;
    (running._events_file, running._admin) = (events_file, Some(admin));
    running.file = Some(own_file);
    Ok(running)
}

/// Returns the access settings of the admin listener.
fn access(config: &ControlNodeConfig) -> Access {
    let access = Access::default();
    crate::operators::admit(&access, config.admin_token.as_ref(), &config.operators);
    let clients = config.admin_tls.as_ref().map(|tls| &tls.settings.clients);
    match clients {
        Some(ClientCertificates::Required(_)) => access.with_certificates(),
        _ => access,
    }
}

fn unix_seconds() -> u64 {
    crate::serve::wall_clock().unix_micros / 1_000_000
}

impl Running {
    fn new(
        driver: Driver,
        parts: Parts,
        (desk, audit_file): (Desk, Option<AuditFile>),
        signalled: Arc<Signalled>,
    ) -> Result<Running> {
        let waker = driver.waker();
        let wake = move || {
            let _ = rustix::io::write(&*waker, &1u64.to_ne_bytes());
        };
        let seat = Seat::start(parts.engine, parts.lease, wake).context("cannot start a thread")?;
        // Nobody else reaches an address within this process.
        let urls = driver.urls().into_iter().filter(|url| !matches!(url, Url::Mem(_)));
        let me = Identity {
            cluster: parts.cluster,
            node: parts.id,
            urls: urls.map(|url| url.to_string()).collect(),
            admin: Some(parts.admin),
        };
        tracing::info!(
            cluster = me.cluster,
            coordinator = parts.shown,
            bus = me.urls.join(" "),
            admin = me.admin,
            "control node {} runs",
            me.node
        );
        let Desk { asks, noted, state, metrics, events } = desk;
        Ok(Running {
            signalled,
            leader: Leader::new(me),
            seat,
            has_session: false,
            watchers: groups::Watchers::new(driver.waker()),
            movers: movers::Movers::new(driver.waker()),
            asks,
            noted,
            events,
            audit: Audit::new(audit_file),
            file: None,
            orders: BTreeMap::new(),
            next_order: 0,
            passing: Passing::default(),
            look_at: clock(),
            pace: Pace::default(),
            tls: parts.tls,
            id: parts.id,
            elections: 0,
            faults: 0,
            rollouts: [0; 2],
            failovers: [0; 2],
            failures: Failures::default(),
            repeats: Repeats::default(),
            metrics,
            state,
            driver,
            _events_file: None,
            _admin: None,
        })
    }

    fn run(mut self) -> Result<()> {
        loop {
            if let Some(pause) = self.pace.pause(clock()) {
                std::thread::park_timeout(pause);
            }
            let now = clock();
            let next = self.leader.poll_deadline(now);
            let due = next.map_or(TURN, |at| at.since(now));
            self.driver.turn(due.min(LOOK_EVERY))?;
            self.take_events();
            while let Some(told) = self.seat.poll() {
                self.on_told(told);
            }
            while let Some(told) = self.watchers.poll() {
                self.on_watched(told);
            }
            while let Some(movers::Told { pool, number, report, .. }) = self.movers.poll() {
                self.leader.moved((&pool, number), report, clock());
            }
            while let Ok(ask) = self.asks.try_recv() {
                self.on_ask(ask);
            }
            let now = clock();
            self.leader.set_wall_clock(unix_seconds());
            self.take_noted(now);
            if next.is_some_and(|at| at <= now) {
                self.leader.handle_timeout(now);
            }
            self.look(now);
            self.watch_groups(now);
            self.carry_out();
            // ORDER: the flags themselves are the only data
            if self.signalled.is_to_reread.swap(false, Ordering::Relaxed) {
                self.reread_certificates();
                if let Some(file) = &self.file {
                    file.reread();
                }
            }
            if self.signalled.is_to_upgrade.swap(false, Ordering::Relaxed) {
                tracing::warn!(
                    "SIGUSR2 is ignored: a control node has no upgrade; restart it, and another \
                     control node leads meanwhile"
                );
            }
            if self.signalled.is_over.load(Ordering::Relaxed) {
                return self.leave();
            }
        }
    }

    /// Ends in order: first the session, so that another node leads at once.
    fn leave(mut self) -> Result<()> {
        match (self.leader.leads(), self.has_session) {
            (true, _) => {
                tracing::info!("leaving: the session ends, and another control node leads");
            }
            (false, true) => tracing::info!("leaving: the session ends"),
            (false, false) => tracing::info!("leaving; there is no session of the coordinator"),
        }
        self.state.set_leaving();
        self.watchers.clear();
        self.movers.clear();
        self.seat.end();
        self.driver.node().leave(clock());
        loop {
            while let Some(event) = self.driver.poll_event() {
                if event == Event::Gone {
                    return Ok(());
                }
            }
            self.driver.turn(TURN)?;
        }
    }

    fn on_told(&mut self, told: Told) {
        let now = clock();
        match told {
            Told::Session(session) => {
                self.has_session = session.is_some();
                self.leader.handle_session(session, now);
            }
            Told::Listed(revision, facts) => {
                self.leader.handle_listed(revision, facts, now);
                self.follow_audit();
                self.take_own_events();
            }
            Told::Changed(revision, changes) => {
                let is_audited = changes.iter().any(|change| change.key.starts_with("audit"));
                self.leader.handle_changes(revision, changes, now);
                if is_audited {
                    self.follow_audit();
                }
            }
            Told::Written(ticket, written) => {
                self.faults += u64::from(matches!(written, keyway_fleet::Written::Failed(_)));
                self.leader.handle_written(ticket, written, now);
            }
            Told::Fault { what, is_final } => {
                self.faults += 1;
                self.leader.handle_fault(&what, is_final, now);
            }
        }
        self.carry_out();
    }

    /// Carries out the orders of the leader's machine, and logs what has changed.
    fn carry_out(&mut self) {
        let now = clock();
        while let Some(action) = self.leader.poll_action() {
            match action {
                LeaderAction::Write(ticket, write) => {
                    if !self.seat.write(ticket, write) {
                        let why = "too many transactions wait".to_owned();
                        let failed = keyway_fleet::Written::Failed(why);
                        self.leader.handle_written(ticket, failed, now);
                    }
                }
                LeaderAction::List => self.seat.list(),
                LeaderAction::Lead => {
                    self.elections += 1;
                    self.driver.node().set_upstreams(Vec::new(), false, now);
                }
                LeaderAction::Follow(leader) => self.follow(&leader, now),
                LeaderAction::Adrift => self.driver.node().set_upstreams(Vec::new(), true, now),
                LeaderAction::Publish(published) => {
                    let Version { epoch, revision: version } = published.stamp();
                    let stamp = Stamp { epoch, version };
                    let body = published.encode();
                    if let Err(fault) = self.driver.node().publish(TOPIC, stamp, body) {
                        tracing::error!(
                            "document {} is not published: {fault}; nodes of the bus have a later \
                             one: the coordinator went back, as after a restored backup",
                            published.stamp()
                        );
                    }
                }
                LeaderAction::PublishGroups(published) => {
                    let Version { epoch, revision: version } = published.version;
                    let body = published.encode();
                    let published =
                        self.driver.node().publish(GROUPS_TOPIC, Stamp { epoch, version }, body);
                    if let Err(fault) = published {
                        tracing::error!("the decided primaries are not published: {fault}");
                    }
                }
                LeaderAction::Command(order) => {
                    let (pool, number) = (order.pool.clone(), order.number);
                    if !self.watchers.order(order) {
                        let why = "no thread watches the servers".to_owned();
                        self.leader.commanded((&pool, number), Err(why), now);
                    }
                }
                LeaderAction::Move(order) => self.order_mover(order, now),
                LeaderAction::EndMove(pool) => self.movers.end(&pool),
                LeaderAction::Answer(order, outcome) => {
                    if let Some(tell) = self.orders.remove(&order) {
                        // The asking thread may have given up.
                        let _ = tell.try_send(outcome);
                    }
                }
            }
        }
        while let Some(said) = self.leader.poll_note() {
            self.log(&said);
        }
        while let Some((from, event)) = self.leader.poll_event() {
            self.events.take(&from.to_string(), event, unix_seconds());
        }
        self.state.set_leader(self.leader.has_leader());
    }

    fn follow_audit(&mut self) {
        let node = self.id.to_string();
        self.audit.follow(&self.leader, (&node, unix_seconds()), &self.events);
    }

    /// Takes the events of this process. In a process that serves, its member has them.
    fn take_own_events(&mut self) {
        let Some(file) = &mut self.file else { return };
        let expiries = file.expiries(self.tls.as_ref(), clock(), unix_seconds());
        let node = self.id.to_string();
        for event in crate::events::take().into_iter().chain(expiries) {
            self.events.take(&node, event, unix_seconds());
        }
    }

    /// Takes requests of the admin listener that get an entry of the audit log of their own.
    fn take_noted(&mut self, now: Time) {
        self.leader.note_unlisted(self.state.take_unlisted());
        while let Ok(request) = self.noted.try_recv() {
            match request {
                Audited::Refused(request) => self.leader.note_refused(request, now),
                Audited::Passed(request) => self.leader.note_passed(request, now),
            }
        }
    }

    fn log(&mut self, said: &Note) {
        if let Note::RolloutEnded(_, outcome, ..) = said {
            let [went_on, went_back] = &mut self.rollouts;
            *(if *outcome == Outcome::WentOn { went_on } else { went_back }) += 1;
        }
        match said {
            Note::FailoverBegun { .. } => self.failovers[0] += 1,
            Note::SwitchBegun { .. } => self.failovers[1] += 1,
            _ => {}
        }
        let what = said.to_string();
        if let Note::NotCommanded(pool, _) = said
            && !self.repeats.is_news(pool, &what, clock())
        {
            return;
        }
        if matches!(said, Note::Fault(_)) && !self.repeats.is_news("coordinator", &what, clock()) {
            return;
        }
        let member = said.node().unwrap_or(self.id).to_string();
        let event = FleetEvent::new(unix_seconds(), said.kind(), said.severity(), &what);
        let event = match said.pool() {
            Some(pool) => event.of_pool(pool, None),
            None => event,
        };
        self.events.take(&member, event, unix_seconds());
        match said.is_warning() {
            true => tracing::warn!("{what}"),
            false => tracing::info!("{what}"),
        }
    }

    /// Watches the groups of the current document while this node leads.
    fn watch_groups(&mut self, now: Time) {
        let Some(of) = self.leader.leads_document() else {
            self.movers.clear();
            return self.watchers.clear();
        };
        if !self.watchers.is_other(of) {
            return;
        }
        let document = self.leader.document();
        let is_there = document.is_some() || self.leader.revision() == 0;
        let text = document.map_or_else(|| "".into(), |document| document.text);
        let (watched, faults) = groups::of_document(&text);
        let Some(watched) = watched.filter(|_| is_there) else {
            // Without its groups nothing is decided, and what was decided stays.
            if self.repeats.is_news("groups", "unreadable", now) {
                tracing::error!("the groups of the document are not watched: it cannot be read");
            }
            return;
        };
        for fault in faults {
            tracing::error!("a password or certificate of a group is not read: {fault}");
        }
        let groups::OfDocument { groups, slots } = watched;
        self.watchers.follow(of, &groups);
        self.movers.follow(&groups);
        self.leader.set_groups(groups.into_iter().map(|one| one.settings).collect(), now);
        self.leader.set_slots(slots, now);
    }

    fn order_mover(&mut self, order: MoverOrder, now: Time) {
        let (pool, number) = (order.pool.clone(), order.number);
        let epoch = self.leader.leads_document().map_or(0, |(epoch, _)| epoch);
        if let Err(why) = self.movers.order(order, epoch) {
            let report = MoverReport::Failed { why, is_final: false };
            self.leader.moved((&pool, number), report, now);
        }
    }

    fn on_watched(&mut self, told: groups::Told) {
        let now = clock();
        match told {
            groups::Told::Seen(seen) => self.leader.probed(seen, now),
            groups::Told::Done { pool, number, outcome } => {
                self.leader.commanded((&pool, number), outcome, now);
            }
        }
        self.carry_out();
    }

    /// Goes below the leader on the bus, so that members that are below this node reach it.
    fn follow(&mut self, leader: &LeaderFact, now: Time) {
        let urls: Vec<Url> = leader.urls.iter().filter_map(|url| url.parse().ok()).collect();
        let upstream = Upstream { id: leader.id(), urls };
        let upstreams = if upstream.urls.is_empty() { Vec::new() } else { vec![upstream] };
        self.driver.node().set_upstreams(upstreams, true, now);
    }

    fn look(&mut self, now: Time) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_EVERY;
        self.take_own_events();
        self.follow_audit();
        if let Some(Stamp { epoch, version: revision }) = self.driver.node().latest_below(TOPIC) {
            self.leader.handle_latest_below(Version { epoch, revision });
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.driver.poll_event() {
            self.on_event(event);
        }
        if let Some(error) = self.driver.poll_not_accepted() {
            let why = error.to_string();
            if self.repeats.is_news("accept", &why, clock()) {
                tracing::warn!("cannot accept on the bus: {why}");
            }
        }
        while let Some(took) = self.driver.node().poll_round_trip() {
            self.metrics.note_round_trip(took);
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = clock();
        self.pace.note_event();
        match event {
            Event::Message { from, body, .. } => self.leader.handle_report(from, &body, now),
            Event::Joined(id) => self.leader.handle_joined(id),
            Event::Left(id) => {
                self.leader.handle_left(id, now);
                self.passing.on_left(id);
            }
            // It is for the nodes below; this one needs it only to pass it on.
            Event::Push { topic, epoch, version, .. } => {
                self.driver.node().applied(&topic, Stamp { epoch, version }, true, now);
            }
            Event::Command { from, seq, .. } => {
                let why = ["a control node has no commands"];
                let _ = self.driver.node().reply(from, seq, 1, &why, now);
            }
            Event::PeerDown { reason, .. } => note(&mut self.failures.lost, reason),
            Event::Result { seq, status, items, .. } => {
                self.passing.on_result(seq, status, items);
            }
            Event::Failed { seq, reason, maybe, .. } => {
                note(&mut self.failures.messages, reason);
                self.passing.on_failed(seq, reason, maybe);
            }
            Event::Unreached { at, reason, .. } => {
                let why = reason.to_string();
                if self.repeats.is_news(&at.to_string(), &why, now) {
                    let at = format!("the leader at {at}");
                    tracing::warn!("{}", not_reached(&at, reason));
                }
            }
            Event::Refused { id, from, reason } => {
                note(&mut self.failures.refused, reason);
                if let Some(from) = from {
                    let why = reason.to_string();
                    if self.repeats.is_news(&format!("{id}"), &why, now) {
                        tracing::warn!("{}", not_let_in(id, &from, reason));
                    }
                }
            }
            _ => {}
        }
    }

    /// Reads the certificate files again. New connections use what is in them.
    fn reread_certificates(&mut self) {
        match self.tls.as_ref().map(|tls| tls.reread(self.id)) {
            None => tracing::info!("no certificates to read again"),
            Some(Ok(warnings)) => {
                warnings.iter().for_each(|warning| tracing::warn!("certificates: {warning}"));
                tracing::info!("certificates read again");
            }
            Some(Err(faults)) => {
                faults.iter().for_each(|fault| tracing::error!("certificates: {fault}"));
                tracing::error!("certificates not read again: those of before are used");
            }
        }
    }
}
