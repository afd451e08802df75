//! The admin listener of a control node. It asks the node's thread, which knows everything.

use super::document::{
    changes, check, check_groups, check_rights, check_share, lacks_slots, lasting,
};
use super::inside::Desk;
use super::passing;
use crate::operators::RequestLog;
use keyway_bus::NodeId;
use keyway_config::Config;
use keyway_control::{
    AdminState, AppliedStatus, ApplyOrder, ApplyRefusal, Caller, Content, DocumentStatus, EventLog,
    FailoverOrder, FleetApi, FleetStatus, GroupStatus, MemberAnswer, NotedRequest, PassedRequest,
    PoolStatus, RolloutAction, RolloutAsk, RolloutStatus, ScriptKill, Selection, SlotsAction,
    SlotsAsk, SlotsStatus,
};
use keyway_fleet::limits::WATCH_DEFAULT;
use keyway_fleet::{
    Apply, ApplyFault, AuditLog, Author, Failover, GroupView, OrderId, PassedRequest as Passed,
    PlanPace, RefusedRequest, RolloutOrder, SlotsChange, SlotsOrder, SlotsView, Steer, Steering,
    StoredDocument, Version,
};
use keyway_metrics::{BusFigures, BusMetrics, FleetFigures, write_fleet};
use keyway_users::Role;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Longest wait for the node's thread, which answers within milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Time between two looks for a revision that an operator has seen.
const HEARD_EVERY: Duration = Duration::from_millis(50);

/// Number of these looks: for a second.
const HEARD_TRIES: u32 = 20;

/// Longest wait for a document to be stored: longer than the coordinator takes for a transaction
/// and a listing.
const STORED_WITHIN: Duration = Duration::from_secs(15);

/// A question to the node's thread, and where its answer goes.
pub struct Ask {
    pub question: Question,
    pub tell: SyncSender<Answer>,
}

/// A question to the node's thread.
pub enum Question {
    Metrics,
    Fleet,
    Documents,
    Rollout,
    Groups,
    Slots,
    /// A member that is to be forgotten, and the author.
    Forget(NodeId, u64, Author),
    /// An order about slots, and where its outcome goes.
    Move(SlotsOrder, Tell),
    /// An order to fail over, and where its outcome goes.
    Failover(Failover, Tell),
    Audit,
    /// An order, and where its outcome goes. The thread gives it its number.
    Apply(Apply, Tell),
    /// The same about the rollout.
    Steer(Steer, Tell),
    /// A request for members, and where their answers go.
    Pass(Selection, PassedRequest, passing::Tell),
}

/// A request that gets an entry of the audit log of its own.
pub enum Audited {
    Refused(RefusedRequest),
    Passed(Passed),
}

/// The channel for the outcome of an order.
pub type Tell = SyncSender<Result<Version, ApplyFault>>;

/// An answer of the node's thread.
pub enum Answer {
    Metrics(Box<BusFigures>, Box<FleetFigures>),
    Fleet(Box<FleetStatus>),
    Documents(Vec<StoredDocument>),
    Rollout(Option<Box<RolloutStatus>>),
    /// Members are asked, or no member is, for this reason.
    Passed(Result<(), ApplyRefusal>),
    Groups(Vec<GroupView>),
    /// The pools whose slots may move; or this node does not lead, for this reason.
    Slots(Result<Vec<SlotsView>, String>),
    Forgotten(Result<(), ApplyFault>),
    Audit(Box<AuditLog>),
}

/// Refused requests that wait for the node's thread. More are counted.
const REFUSED_MAX: usize = 64;

/// State of the node that is known without asking its thread.
#[derive(Debug, Default)]
pub struct State {
    is_leaving: AtomicBool,
    has_leader: AtomicBool,
    /// Refused requests for which there was no room.
    unlisted: AtomicU64,
}

impl State {
    /// Notes that the node is leaving.
    pub fn set_leaving(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Returns how many refused requests there was no room for since the last call.
    pub fn take_unlisted(&self) -> u64 {
        self.unlisted.swap(0, Ordering::Relaxed)
    }

    /// Notes whether a leader is known.
    pub fn set_leader(&self, has_leader: bool) {
        self.has_leader.store(has_leader, Ordering::Relaxed);
    }
}

/// The admin listener's side.
pub struct Asking {
    metrics: Arc<BusMetrics>,
    asked: Mutex<Sender<Ask>>,
    audited: SyncSender<Audited>,
    events: Arc<EventLog>,
    requests: RequestLog,
    /// Wakes the node's thread, as soon as the node is there.
    wake: OnceLock<Arc<OwnedFd>>,
    state: Arc<State>,
}

impl Asking {
    /// Creates it, with the node's side.
    pub fn new(metrics: Arc<BusMetrics>) -> (Self, Desk) {
        let (asked, asks) = channel();
        let (audited, noted) = sync_channel(REFUSED_MAX);
        let state = Arc::new(State::default());
        let events = Arc::new(EventLog::new(unix_seconds()));
        let desk = Desk {
            asks,
            noted,
            state: Arc::clone(&state),
            metrics: Arc::clone(&metrics),
            events: Arc::clone(&events),
        };
        let asking = Self {
            metrics,
            asked: Mutex::new(asked),
            audited,
            events,
            requests: RequestLog::default(),
            wake: OnceLock::new(),
            state,
        };
        (asking, desk)
    }

    /// Notes how the node's thread is woken. Earlier questions are refused.
    pub fn set_waker(&self, wake: Arc<OwnedFd>) {
        // There is one node, which is there once.
        let _ = self.wake.set(wake);
    }

    fn send(&self, question: Question) -> Receiver<Answer> {
        let (tell, told) = sync_channel(1);
        // If the node's thread has ended, the answer does not come.
        let _ = self.asked.lock().send(Ask { question, tell });
        self.wake();
        told
    }

    /// Wakes the node's thread, if the node is there.
    pub fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            let _ = rustix::io::write(&**wake, &1u64.to_ne_bytes());
        }
    }

    /// Takes a request that was refused, for the audit log of the fleet: one that changes the fleet,
    /// or for which the client has no right.
    pub fn note_refused(&self, request: &NotedRequest<'_>) {
        let NotedRequest { operator, address, method, path, status, detail } = *request;
        let is_of_fleet = path.starts_with("/v1/fleet") && (400..500).contains(&status);
        if !is_of_fleet && !matches!(status, 401 | 403) {
            return;
        }
        let by =
            Author { name: operator.unwrap_or_default().to_owned(), address: address.to_string() };
        let (what, why) = (format!("{method} {path}"), detail.to_owned());
        self.note(Audited::Refused(RefusedRequest { at: unix_seconds(), by, what, why }));
    }

    /// Takes a change that members were asked for, for the audit log.
    fn note_passed(&self, request: &PassedRequest, answers: &[MemberAnswer], by: &Caller) {
        let body = keyway_base::printable(&request.body);
        let outcome = |answer: &MemberAnswer| match &answer.outcome {
            Ok(reply) if (200..300).contains(&reply.status) => format!("{}: done", answer.id),
            Ok(reply) => format!("{}: HTTP status {}", answer.id, reply.status),
            Err(why) => format!("{}: {why}", answer.id),
        };
        self.note(Audited::Passed(Passed {
            at: unix_seconds(),
            by: author(by),
            what: format!("{} {} at members", request.method, request.path),
            outcomes: [body].into_iter().chain(answers.iter().map(outcome)).collect(),
        }));
    }

    fn note(&self, request: Audited) {
        match self.audited.try_send(request) {
            Ok(()) => self.wake(),
            Err(_) => drop(self.state.unlisted.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Appends the metrics of the node, without those of the process.
    pub fn write_metrics(&self, out: &mut String) {
        if let Ok(Answer::Metrics(bus, fleet)) = self.ask(Question::Metrics) {
            write_fleet(&fleet, out);
            self.metrics.write_bus(&bus, out);
        }
    }

    fn ask(&self, question: Question) -> Result<Answer, String> {
        self.check_runs()?;
        let told = self.send(question);
        told.recv_timeout(ANSWER_WITHIN).map_err(|_| "the control node does not answer".to_owned())
    }

    /// Refuses at once while there is no node, as in an upgrade.
    fn check_runs(&self) -> Result<(), String> {
        match self.wake.get() {
            Some(_) => Ok(()),
            None => Err("the control node of this process does not run yet: try again".to_owned()),
        }
    }

    fn stored(&self) -> Result<Vec<StoredDocument>, String> {
        match self.ask(Question::Documents)? {
            Answer::Documents(documents) => Ok(documents),
            _ => Err("the control node does not answer".to_owned()),
        }
    }

    /// Returns the current revision. An operator may have seen a later one than this node has heard of:
    /// the coordinator tells of a transaction a moment after it is done. It is waited for a little.
    fn revision_from(&self, seen: Option<u64>) -> Result<u64, String> {
        let mut revision = FleetApi::fleet(self)?.revision;
        for _ in 0..HEARD_TRIES {
            if seen.is_none_or(|seen| seen <= revision) {
                break;
            }
            std::thread::park_timeout(HEARD_EVERY);
            revision = FleetApi::fleet(self)?.revision;
        }
        Ok(revision)
    }

    /// Checks that each group of a document has the server that is its primary now. Without it, no
    /// server of the group would take writes.
    fn check_primaries(&self, text: &str) -> Result<(), ApplyRefusal> {
        let Ok(Answer::Groups(groups)) = self.ask(Question::Groups) else { return Ok(()) };
        let decided = groups.iter().filter_map(|view| Some((&*view.pool, view.group.as_ref()?)));
        let primaries: Vec<_> = decided.map(|(pool, group)| (pool, &*group.primary)).collect();
        match Config::group_without(text, &primaries) {
            None => Ok(()),
            Some((pool, primary)) => Err(ApplyRefusal::Conflict(format!(
                "pool {pool}: {primary} is its primary, and the document lacks it: hand over \
                 first, by keyway ctl failover {pool}, or apply a document without this pool, \
                 and then this one"
            ))),
        }
    }

    /// Checks that a document keeps the groups that have slots, or get some, by the map of control.
    fn check_slots(&self, text: &str) -> Result<(), ApplyRefusal> {
        let Ok(Answer::Slots(Ok(views))) = self.ask(Question::Slots) else { return Ok(()) };
        match views.iter().find_map(|view| lacks_slots(text, view)) {
            None => Ok(()),
            Some(what) => Err(ApplyRefusal::Conflict(what)),
        }
    }

    /// Checks that the rollout changes only what an operator may change. Returns its revision.
    fn check_rollout(&self, by: &Caller) -> Result<u64, ApplyRefusal> {
        let rollout = FleetApi::rollout(self).map_err(ApplyRefusal::Unavailable)?;
        let none = || ApplyRefusal::Conflict(ApplyFault::NoRollout.to_string());
        let rollout = rollout.ok_or_else(none)?;
        let stored = self.stored().map_err(ApplyRefusal::Unavailable)?;
        let of = |revision: u64| {
            let found = stored.iter().find(|one| one.revision == revision);
            found.map(|found| &*found.text).or((revision == 0).then_some(""))
        };
        let (base, new) = of(rollout.base).zip(of(rollout.revision)).ok_or_else(none)?;
        check_rights(&by.operator, base, new).map_err(ApplyRefusal::Forbidden)?;
        Ok(rollout.revision)
    }

    /// Has the node's thread carry out an order.
    fn order(&self, question: impl FnOnce(Tell) -> Question) -> Result<Version, ApplyRefusal> {
        self.check_runs().map_err(ApplyRefusal::Unavailable)?;
        let (tell, told) = sync_channel(1);
        drop(self.send(question(tell)));
        let outcome = told.recv_timeout(STORED_WITHIN).map_err(|_| {
            let what = "the coordinator has not answered: it may be done, or may still be; keyway \
                        ctl fleet tells which revision is current";
            ApplyRefusal::Unavailable(what.to_owned())
        })?;
        outcome.map_err(refusal)
    }
}

fn refusal(fault: ApplyFault) -> ApplyRefusal {
    match fault {
        ApplyFault::OtherBase(_)
        | ApplyFault::Changed
        | ApplyFault::RollingOut(_)
        | ApplyFault::NoRollout
        | ApplyFault::TooFew
        | ApplyFault::NotFit(_)
        | ApplyFault::NoGroup(_)
        | ApplyFault::OtherRollout(_)
        | ApplyFault::WentBack => ApplyRefusal::Conflict(fault.to_string()),
        ApplyFault::TooLong | ApplyFault::OutOfBounds => {
            ApplyRefusal::Invalid(vec![fault.to_string()])
        }
        _ => ApplyRefusal::Unavailable(fault.to_string()),
    }
}

fn author(caller: &Caller) -> Author {
    Author { name: caller.operator.name().to_owned(), address: caller.address.clone() }
}

fn unix_seconds() -> u64 {
    crate::serve::wall_clock().unix_micros / 1_000_000
}

/// Returns the rollout that is asked for.
fn rollout(ask: RolloutAsk) -> RolloutOrder {
    let watch = ask.watch_seconds.map_or(WATCH_DEFAULT, Duration::from_secs);
    RolloutOrder { percent: ask.percent, watch }
}

/// Returns the order that is asked for.
///
/// # Errors
/// Returns what it lacks, or has too much.
fn slots_change(ask: SlotsAsk) -> Result<SlotsChange, String> {
    let SlotsAsk { action, slots, to, plan, pace, .. } = ask;
    let is_paced = pace != PlanPace::default();
    if [pace.keys_per_second, pace.bytes_per_second].contains(&Some(0)) {
        return Err("a pace of 0 would never end: pause the plan instead".to_owned());
    }
    match (action, slots, to, plan) {
        (SlotsAction::Move, Some(slots), Some(to), None) => {
            Ok(SlotsChange::Move { slots, to, pace })
        }
        (SlotsAction::Move, ..) => Err("`move` takes `slots` and `to`, and no `plan`".to_owned()),
        (SlotsAction::Pace, None, None, Some(plan)) => Ok(SlotsChange::Pace(plan, pace)),
        (SlotsAction::Cancel, None, None, Some(plan)) if !is_paced => Ok(SlotsChange::Cancel(plan)),
        (SlotsAction::Pause, None, None, Some(plan)) if !is_paced => Ok(SlotsChange::Pause(plan)),
        (SlotsAction::Resume, None, None, Some(plan)) if !is_paced => Ok(SlotsChange::Resume(plan)),
        (SlotsAction::Pace, ..) => Err("`pace` takes `plan` and `pace` alone".to_owned()),
        _ => Err("an order about a plan takes `plan` alone".to_owned()),
    }
}

impl FleetApi for Asking {
    fn fleet(&self) -> Result<FleetStatus, String> {
        match self.ask(Question::Fleet)? {
            Answer::Fleet(status) => Ok(*status),
            _ => Err("the control node does not answer".to_owned()),
        }
    }

    fn documents(&self, by: &Caller) -> Result<Vec<DocumentStatus>, String> {
        // Operators go on from a document. Viewers have no use for its secrets.
        let is_masked = by.operator.role() < Role::Operator;
        let status = |document: StoredDocument| DocumentStatus {
            revision: document.revision,
            stored_unix_seconds: document.at,
            by: document.by,
            document: match is_masked {
                true => Config::masked_document(&document.text),
                false => document.text.to_string(),
            },
        };
        Ok(self.stored()?.into_iter().map(status).collect())
    }

    fn apply(&self, order: &ApplyOrder<'_>) -> Result<AppliedStatus, ApplyRefusal> {
        let revision = self.revision_from(order.base).map_err(ApplyRefusal::Unavailable)?;
        let stored = self.stored().map_err(ApplyRefusal::Unavailable)?;
        let of = |revision: u64| {
            let found = stored.iter().find(|one| one.revision == revision);
            found.map(|found| Arc::clone(&found.text))
        };
        let (text, back_to): (Arc<str>, _) = match order.content {
            Content::Text(text) => {
                check(text).map_err(ApplyRefusal::Invalid)?;
                (text.into(), None)
            }
            Content::Revision(wanted) => {
                let what =
                    format!("revision {wanted} is not kept: keyway ctl documents tells which");
                let text = of(wanted).ok_or(ApplyRefusal::Conflict(what))?;
                check_groups(&text).map_err(ApplyRefusal::Invalid)?;
                (text, Some(wanted))
            }
        };
        let current = of(revision).unwrap_or_else(|| "".into());
        let mut changes = changes(&current, &text).map_err(ApplyRefusal::Invalid)?;
        changes.extend(lasting(&current, &text));
        self.check_primaries(&text)?;
        self.check_slots(&text)?;
        if order.rollout.is_some() {
            check_share(&current, &text).map_err(ApplyRefusal::Conflict)?;
        }
        let base = order.base.unwrap_or(revision);
        if order.dry_run {
            return Ok(AppliedStatus { base: revision, version: None, changes });
        }
        if order.by.operator.role() < Role::Admin {
            // The leader compares only revisions. What differs is what differs from exactly the
            // document that is replaced.
            if base != revision {
                return Err(ApplyRefusal::Conflict(ApplyFault::OtherBase(revision).to_string()));
            }
            check_rights(&order.by.operator, &current, &text).map_err(ApplyRefusal::Forbidden)?;
        }
        let (at, by, rollout) = (unix_seconds(), author(order.by), order.rollout.map(rollout));
        let told = changes.clone();
        let apply = Apply { id: OrderId(0), base, text, at, by, back_to, changes: told, rollout };
        let version = self.order(|tell| Question::Apply(apply, tell))?;
        Ok(AppliedStatus { base, version: Some(version.to_string()), changes })
    }

    fn rollout(&self) -> Result<Option<RolloutStatus>, String> {
        match self.ask(Question::Rollout)? {
            Answer::Rollout(rollout) => Ok(rollout.map(|rollout| *rollout)),
            _ => Err("the control node does not answer".to_owned()),
        }
    }

    fn steer(&self, action: RolloutAction, by: &Caller) -> Result<(), ApplyRefusal> {
        let what = match action {
            RolloutAction::Pause => Steering::Pause,
            RolloutAction::Resume => Steering::Resume,
            RolloutAction::Abort => Steering::Abort,
            RolloutAction::Finish => Steering::Finish,
        };
        let is_bound = by.operator.role() < Role::Admin;
        let revision = is_bound.then(|| self.check_rollout(by)).transpose()?;
        let (at, by) = (unix_seconds(), author(by));
        let steer = Steer { id: OrderId(0), what, at, by, revision };
        self.order(|tell| Question::Steer(steer, tell)).map(|_| ())
    }

    fn pass_on(
        &self,
        to: &Selection,
        request: &PassedRequest,
        by: &Caller,
    ) -> Result<Vec<MemberAnswer>, ApplyRefusal> {
        let (tell, told) = sync_channel(1);
        let question = Question::Pass(to.clone(), request.clone(), tell);
        match self.ask(question).map_err(ApplyRefusal::Unavailable)? {
            Answer::Passed(outcome) => outcome?,
            _ => return Err(ApplyRefusal::Unavailable("the control node does not answer".into())),
        }
        let answers = told.recv_timeout(passing::within(request) + ANSWER_WITHIN);
        if request.is_change() {
            self.note_passed(request, answers.as_deref().unwrap_or_default(), by);
        }
        answers.map_err(|_| {
            ApplyRefusal::Unavailable("the members have not answered in time".to_owned())
        })
    }

    fn groups(&self) -> Result<Vec<GroupStatus>, String> {
        match self.ask(Question::Groups)? {
            Answer::Groups(groups) => Ok(groups.iter().map(super::show::group).collect()),
            _ => Err("the control node does not answer".to_owned()),
        }
    }

    fn audit(&self) -> Result<AuditLog, String> {
        match self.ask(Question::Audit)? {
            Answer::Audit(log) => Ok(*log),
            _ => Err("the control node does not answer".to_owned()),
        }
    }

    fn fail_over(&self, order: &FailoverOrder, by: &Caller) -> Result<(), ApplyRefusal> {
        let FailoverOrder { pool, to } = order.clone();
        let (at, by) = (unix_seconds(), author(by));
        let order = Failover { id: OrderId(0), pool, to, at, by };
        self.order(|tell| Question::Failover(order, tell)).map(|_| ())
    }

    fn slots(&self) -> Result<Vec<SlotsStatus>, String> {
        match self.ask(Question::Slots)? {
            Answer::Slots(views) => Ok(views?.iter().map(super::show::slots).collect()),
            _ => Err("the control node does not answer".to_owned()),
        }
    }

    fn order_slots(&self, ask: SlotsAsk, by: &Caller) -> Result<u64, ApplyRefusal> {
        let pool = ask.pool.clone();
        let what = slots_change(ask).map_err(|what| ApplyRefusal::Invalid(vec![what]))?;
        let (at, by) = (unix_seconds(), author(by));
        let order = SlotsOrder { id: OrderId(0), pool, what, at, by };
        self.order(|tell| Question::Move(order, tell)).map(|version| version.revision)
    }

    fn forget(&self, member: &str, by: &Caller) -> Result<(), ApplyRefusal> {
        let wrong = || format!("{member} is no id of a member: keyway ctl fleet lists them");
        let id = member.parse().map_err(|_| ApplyRefusal::Invalid(vec![wrong()]))?;
        let question = Question::Forget(id, unix_seconds(), author(by));
        match self.ask(question).map_err(ApplyRefusal::Unavailable)? {
            Answer::Forgotten(outcome) => outcome.map_err(refusal),
            _ => Err(ApplyRefusal::Unavailable("the control node does not answer".to_owned())),
        }
    }

    fn events(&self) -> Arc<EventLog> {
        Arc::clone(&self.events)
    }
}

impl AdminState for Asking {
    fn metrics(&self, out: &mut String) {
        match self.ask(Question::Metrics) {
            Ok(Answer::Metrics(bus, fleet)) => {
                write_fleet(&fleet, out);
                self.metrics.write_prometheus(&bus, out);
            }
            _ => out.push_str("# the control node does not answer\n"),
        }
    }

    fn draining(&self) -> bool {
        self.state.is_leaving.load(Ordering::Relaxed)
    }

    fn not_ready(&self) -> Vec<String> {
        match self.state.has_leader.load(Ordering::Relaxed) {
            true => Vec::new(),
            false => vec!["no leader is known: see /v1/fleet for the coordinator".to_owned()],
        }
    }

    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }

    fn restore_backend(&self, _pool: &str, _backend: &str) -> Result<bool, String> {
        Err("a control node has no backends".to_owned())
    }

    fn kill_script(&self, _pool: &str) -> Result<ScriptKill, String> {
        Err("a control node has no store".to_owned())
    }

    fn note_request(&self, request: &NotedRequest<'_>) {
        self.requests.note(request);
        self.note_refused(request);
    }

    fn fleet(&self) -> Option<&dyn FleetApi> {
        Some(self)
    }
}
