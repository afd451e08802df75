//! The members: a thread and a connection each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use keyway_base::Time;
use keyway_bus::{Event, NodeId, SendOptions, Settings, Stamp, Upstream, Url};
use keyway_channel::{Driver, DriverSettings, clock, here};
use keyway_fleet::limits::{PUBLISHED_LEN_MAX, REPORT_WITHIN, SEEN_EVERY};
use keyway_fleet::{
    About, Begun, Decisions, GROUPS_TOPIC, GroupSeen, Member, MemberAction, Published,
    PublishedGroups, RoleSeen, ServerSeen, Serving, TOPIC, Version,
};

use super::control::{CLUSTER, GROUP, Site, TOKEN, pools};
use crate::clock::unix_ms;
use crate::error::Error;

/// Longest turn: how late a thread hears of the end.
const TURN: Duration = Duration::from_millis(500);
/// Bytes of a thread's stack. A thousand threads have as many.
const STACK_LEN: usize = 256 << 10;
/// The role of a proxy in an id.
const PROXY: u64 = 3;
/// Zones over which members are spread.
const ZONES: u64 = 4;

/// The state of a member. Its thread alone writes it.
#[derive(Debug, Default)]
struct Cell {
    /// Time at which control had the first report; 0 before.
    known_at: AtomicU64,
    /// Revision that was saved last, and when.
    revision: AtomicU64,
    saved_at: AtomicU64,
    /// Reports that control has acknowledged.
    reports: AtomicU64,
    lost: AtomicU64,
    /// True if its thread has failed.
    has_failed: AtomicBool,
}

/// All members. Dropping it ends them.
pub struct Crowd {
    cells: Arc<[Cell]>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// Starts members, which connect all at once.
    ///
    /// # Errors
    /// Returns an error if the system refuses threads or descriptors.
    pub fn start(members: usize, site: &Site) -> Result<Crowd, Error> {
        let cells: Arc<[Cell]> = (0..members).map(|_| Cell::default()).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut crowd = Crowd { cells, is_over, threads: Vec::new() };
        for nth in 0..members {
            let start = Start::new(nth, site, &crowd.cells)?;
            let is_over = Arc::clone(&crowd.is_over);
            let builder = std::thread::Builder::new().stack_size(STACK_LEN);
            let thread = builder.spawn(move || start.run(&is_over));
            crowd.threads.push(thread.map_err(Error::io("a thread of a member"))?);
        }
        Ok(crowd)
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Fails if the thread of a member has ended.
    ///
    /// # Errors
    /// Returns [`Error::Load`].
    pub fn check(&self) -> Result<(), Error> {
        // ORDER: the flags themselves are the only data
        match self.cells.iter().any(|cell| cell.has_failed.load(Ordering::Relaxed)) {
            true => Err(Error::Load("a member has failed: see above".into())),
            false => Ok(()),
        }
    }

    /// Returns the number of members that control knows.
    pub fn known(&self) -> usize {
        self.count(|cell| cell.known_at.load(Ordering::Relaxed) > 0)
    }

    /// Returns when control had the first report of the member that was last.
    pub fn last_known(&self) -> Time {
        let at = self.cells.iter().map(|cell| cell.known_at.load(Ordering::Relaxed));
        Time(at.max().unwrap_or_default())
    }

    /// Returns the number of members that have saved this revision or a later one.
    pub fn at(&self, revision: u64) -> usize {
        // ORDER: pairs with One::on_saved, whose time of this revision is seen
        self.count(|cell| cell.revision.load(Ordering::Acquire) >= revision)
    }

    /// Returns when each member has saved its latest revision.
    pub fn saved(&self) -> impl Iterator<Item = Time> {
        self.cells.iter().map(|cell| Time(cell.saved_at.load(Ordering::Relaxed)))
    }

    /// Returns the reports that control has acknowledged.
    pub fn reports(&self) -> u64 {
        self.cells.iter().map(|cell| cell.reports.load(Ordering::Relaxed)).sum()
    }

    /// Returns the connections that members have lost.
    pub fn lost(&self) -> u64 {
        self.cells.iter().map(|cell| cell.lost.load(Ordering::Relaxed)).sum()
    }

    fn count(&self, is_so: impl Fn(&Cell) -> bool) -> usize {
        self.cells.iter().filter(|cell| is_so(cell)).count()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // ORDER: the flag itself is the only data
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A member whose thread is about to start.
struct Start {
    settings: Settings,
    member: Member,
    nth: usize,
    cells: Arc<[Cell]>,
    group: Option<[String; 2]>,
}

impl Start {
    fn new(nth: usize, site: &Site, cells: &Arc<[Cell]>) -> Result<Start, Error> {
        let number = nth as u64;
        let wrong = |what: &str| Error::Usage(format!("member {nth} has {what}"));
        let id = NodeId::of(number % ZONES + 1, PROXY, 0, number + 1);
        let mut settings = Settings::of(id.ok_or_else(|| wrong("no id: there are too many"))?);
        (settings.place, settings.incarnation) = (here(), unix_ms() << 20);
        let url: Url = site.url.parse().map_err(|_| wrong("no address of control"))?;
        settings.upstreams = vec![Upstream { id: NodeId::NONE, urls: vec![url] }];
        let added = settings.tokens.add(TOKEN.as_bytes());
        added.map_err(|why| wrong(&why.to_string()))?;
        // As a proxy has them.
        settings.topics_max = 4;
        settings.topics_len_max = 8 * PUBLISHED_LEN_MAX;
        let about = about(&format!("10.2.{}.{}:6379", nth >> 8, nth & 255));
        let mut member = Member::new((CLUSTER, settings.id), about, None, Begun::default());
        member.set_process(settings.incarnation);
        Ok(Start { settings, member, nth, cells: Arc::clone(cells), group: site.group.clone() })
    }

    fn run(self, is_over: &AtomicBool) {
        let (id, nth, cells) = (self.settings.id, self.nth, Arc::clone(&self.cells));
        if let Err(why) = One::run(self, is_over) {
            eprintln!("member {id}: {why}");
            // ORDER: the flag itself is the only data
            cells[nth].has_failed.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns the facts about a proxy with this address, which serves all pools.
fn about(address: &str) -> About {
    let serving =
        |pool: String| Serving { pool, protocol: "redis".into(), address: address.to_owned() };
    About {
        version: env!("CARGO_PKG_VERSION").into(),
        listeners: vec![format!("tcp://{address}")],
        pools: pools(),
        serves: pools().into_iter().map(serving).collect(),
    }
}

/// A member with its node of the bus.
struct One {
    driver: Driver,
    member: Member,
    decisions: Decisions,
    id: NodeId,
    nth: usize,
    cells: Arc<[Cell]>,
    group: Option<[String; 2]>,
    /// The publication that came last.
    latest: Stamp,
    /// The report whose acknowledgement is awaited.
    report: Option<u64>,
    observe_at: Time,
}

impl One {
    fn run(start: Start, is_over: &AtomicBool) -> std::io::Result<()> {
        let Start { settings, member, nth, cells, group } = start;
        let id = settings.id;
        let mut one = One {
            driver: Driver::new(settings, DriverSettings::default())?,
            member,
            decisions: Decisions::new(CLUSTER),
            id,
            nth,
            cells,
            group,
            latest: Stamp { epoch: 0, version: 0 },
            report: None,
            observe_at: clock(),
        };
        // ORDER: the flag itself is the only data
        while !is_over.load(Ordering::Relaxed) {
            one.turn()?;
        }
        Ok(())
    }

    fn cell(&self) -> &Cell {
        &self.cells[self.nth]
    }

    fn turn(&mut self) -> std::io::Result<()> {
        let now = clock();
        let due = self.member.poll_deadline().into_iter().chain([self.observe_at]).min();
        self.driver.turn(due.map_or(TURN, |at| at.since(now)).min(TURN))?;
        while let Some(event) = self.driver.poll_event() {
            self.on_event(event);
        }
        let now = clock();
        // A proxy looks more often, and reports as often.
        if self.observe_at <= now {
            self.member.observe(self.seen(now), now);
            self.observe_at = now + SEEN_EVERY;
        }
        if self.member.poll_deadline().is_some_and(|at| at <= now) {
            self.member.handle_timeout(now);
        }
        self.carry_out();
        Ok(())
    }

    /// Returns the group as a proxy sees it: both servers answer, and the offset grows.
    fn seen(&self, now: Time) -> Vec<GroupSeen> {
        let Some([primary, replica]) = self.group.clone() else { return Vec::new() };
        let offset = now.as_millis();
        let role = RoleSeen::Primary { offset, replicas: 1 };
        let follows = RoleSeen::Replica {
            of: primary.clone(),
            offset,
            is_linked: true,
            down_ms: None,
            is_syncing: false,
            priority: 100,
        };
        let server = |address, role| ServerSeen { address, silent_ms: None, role: Some(role) };
        let epoch = self.decisions.of(GROUP).map_or(0, |decided| decided.epoch);
        let servers = vec![server(primary, role), server(replica, follows)];
        // Without a document there is no such pool.
        let has_it = self.member.running().is_some_and(|version| version.revision > 0);
        let seen = GroupSeen { pool: GROUP.to_owned(), epoch, servers };
        has_it.then_some(seen).into_iter().collect()
    }

    fn on_event(&mut self, event: Event) {
        let now = clock();
        match event {
            Event::Push { topic, body, .. } if topic == TOPIC => self.on_document(&body),
            Event::Push { topic, epoch, version, body, .. } if topic == GROUPS_TOPIC => {
                let taken = PublishedGroups::decode(&body).map(|it| self.decisions.take(&it));
                let is_good = taken.is_some_and(|taken| taken.is_ok());
                let stamp = Stamp { epoch, version };
                self.driver.node().applied(GROUPS_TOPIC, stamp, is_good, now);
            }
            Event::Acked { seq } if self.report == Some(seq) => {
                self.report = None;
                self.member.handle_reported(true, now);
                let cell = self.cell();
                cell.reports.fetch_add(1, Ordering::Relaxed);
                if cell.known_at.load(Ordering::Relaxed) == 0 {
                    cell.known_at.store(now.0, Ordering::Relaxed);
                }
            }
            Event::Failed { seq, .. } if self.report == Some(seq) => {
                self.report = None;
                self.member.handle_reported(false, now);
            }
            Event::Upstream(Some(_)) => self.member.handle_joined(now),
            Event::Upstream(None) => drop(self.cell().lost.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    fn on_document(&mut self, body: &[u8]) {
        let Ok(published) = Published::decode(body) else { return };
        let Version { epoch, revision } = published.stamp();
        let version = published.document_for(self.id).version;
        let Ok(is_new) = self.member.handle_published(published, clock()) else { return };
        self.latest = Stamp { epoch, version: revision };
        if !is_new && self.member.running() == Some(version) {
            self.tell_applied(true);
        }
    }

    fn tell_applied(&mut self, is_good: bool) {
        self.driver.node().applied(TOPIC, self.latest, is_good, clock());
    }

    /// Notes that a document is saved: it lies in memory.
    fn on_saved(&self, version: Version, now: Time) {
        let cell = self.cell();
        cell.saved_at.store(now.0, Ordering::Relaxed);
        // ORDER: pairs with Crowd::at, which reads the time behind it
        cell.revision.store(version.revision, Ordering::Release);
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.member.poll_action() {
            let now = clock();
            match action {
                MemberAction::Save(saved) => {
                    self.member.handle_saved(Ok(()), now);
                    self.on_saved(saved.newest.version, now);
                }
                MemberAction::Apply(_) => self.member.handle_applied(Ok(()), now),
                MemberAction::Applied { is_good, .. } => self.tell_applied(is_good),
                // No change of this scenario is a rollout.
                MemberAction::Measure { .. } => {}
                MemberAction::Report { to, body } => {
                    let options =
                        SendOptions { ack_within: Some(REPORT_WITHIN), no_upstream: false };
                    match self.driver.node().send(to, &body, options, now) {
                        Ok(seq) => self.report = Some(seq),
                        Err(_) => self.member.handle_reported(false, now),
                    }
                }
                MemberAction::Tell { to, body } => {
                    let _ = self.driver.node().send(to, &body, SendOptions::default(), now);
                }
            }
        }
    }
}
