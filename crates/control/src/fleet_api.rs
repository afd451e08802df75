//! The answers of a control node: `/v1/fleet` and what is below it.

use crate::api::{Call, Reply, body, description, health, json, queried, ready};
use crate::backends::utc;
use crate::events::{EventLog, EventStatus};
use crate::fleet::{
    ApplyOrder, ApplyRefusal, Content, FleetApi, MemberState, MemberStatus, RolloutAction,
    RolloutAsk, RolloutStatus, ServingStatus,
};
use crate::groups::{FailoverOrder, GroupList};
use crate::members;
use crate::problem::Problem;
use crate::resources::Resource;
use crate::slots::{SlotsAsk, SlotsList};
use crate::state::AdminState;
use http_body_util::Full;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use keyway_fleet::{AuditEntry, AuditHead, AuditOutcome};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyBody {
    base: Option<u64>,
    document: Option<String>,
    revision: Option<u64>,
    #[serde(default)]
    dry_run: bool,
    rollout: Option<RolloutAsk>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SteerBody {
    action: RolloutAction,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForgetBody {
    member: String,
}

#[derive(Serialize)]
struct DocumentList {
    documents: Vec<crate::fleet::DocumentStatus>,
}

#[derive(Serialize)]
struct RolloutOf {
    rollout: Option<RolloutStatus>,
}

fn mute(what: String) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, what)
}

pub(crate) fn refused(refusal: ApplyRefusal) -> Problem {
    match refusal {
        ApplyRefusal::Invalid(errors) => {
            let what = "the document is wrong, and nothing was done: see errors";
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what).with_errors(errors)
        }
        ApplyRefusal::Forbidden(what) => Problem::new(StatusCode::FORBIDDEN, what),
        ApplyRefusal::Conflict(what) => Problem::new(StatusCode::CONFLICT, what),
        ApplyRefusal::Unavailable(what) => mute(what),
    }
}

/// Returns the problem of an order that has no document.
fn refused_order(refusal: ApplyRefusal) -> Problem {
    match refusal {
        ApplyRefusal::Invalid(errors) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, errors.join("; "))
        }
        refusal => refused(refusal),
    }
}

/// Answers for a control node, which has few of the resources of a process that serves.
pub(crate) fn answer(
    state: &dyn AdminState,
    fleet: &dyn FleetApi,
    resource: Resource,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    match resource {
        Resource::OfMembers(which) => return members::answer(fleet, which, call),
        Resource::Proxies => return proxies(fleet, call),
        _ => {}
    }
    // Another process has more parameters there than this one.
    let instead = resource.path_of_members().filter(|_| !resource.is_of_fleet());
    if instead.is_none() && !matches!(resource, Resource::Audit | Resource::Events) {
        queried(call.query, [])?;
    }
    match resource {
        Resource::Health => Ok(health(state)),
        Resource::Ready => ready(state),
        Resource::Description => Ok(description()),
        Resource::Fleet => Ok(json(&fleet.fleet().map_err(mute)?)),
        Resource::Documents => {
            Ok(json(&DocumentList { documents: fleet.documents(call.caller).map_err(mute)? }))
        }
        Resource::ReadDocument => read_document(fleet, call),
        Resource::ApplyDocument => apply(fleet, call),
        Resource::ReadRollout => rollout(fleet),
        Resource::Audit => audit(fleet, call),
        Resource::Events => events(fleet, call),
        Resource::SteerRollout => {
            let SteerBody { action } = body(call)?;
            fleet.steer(action, call.caller).map_err(refused)?;
            rollout(fleet)
        }
        Resource::Groups => Ok(json(&GroupList { groups: fleet.groups().map_err(mute)? })),
        Resource::FailOver => {
            let order: FailoverOrder = body(call)?;
            // A group of several is called POOL:GROUP.
            call.check_pool(order.pool.split(':').next().unwrap_or_default())?;
            fleet.fail_over(&order, call.caller).map_err(refused)?;
            Ok(json(&GroupList { groups: fleet.groups().map_err(mute)? }))
        }
        Resource::Slots => Ok(json(&SlotsList { pools: fleet.slots().map_err(mute)?, plan: None })),
        Resource::Forget => {
            let ForgetBody { member } = body(call)?;
            fleet.forget(&member, call.caller).map_err(refused_order)?;
            Ok(json(&fleet.fleet().map_err(mute)?))
        }
        Resource::MoveSlots => {
            let ask: SlotsAsk = body(call)?;
            call.check_pool(&ask.pool)?;
            let plan = Some(fleet.order_slots(ask, call.caller).map_err(refused_order)?);
            Ok(json(&SlotsList { pools: fleet.slots().map_err(mute)?, plan }))
        }
        _ => {
            let what = "this process is a control node: it serves no clients; see /v1/fleet";
            Err(Problem::new(StatusCode::NOT_FOUND, what).with_instead(instead))
        }
    }
}

/// An entry of the audit log.
#[derive(Serialize)]
struct EntryStatus {
    number: u64,
    /// When, in the form of RFC 3339; `null` if the entry cannot be read.
    time: Option<String>,
    /// The entry as it is stored, of which the next one has the hash.
    stored: String,
    #[serde(flatten)]
    entry: Option<EntryText>,
}

#[derive(Serialize)]
struct EntryText {
    by: String,
    from: String,
    what: String,
    outcome: AuditOutcome,
    before: Option<u64>,
    after: Option<u64>,
    changes: Vec<String>,
    changes_left_out: u64,
    why: String,
    unlisted: u64,
    node: String,
}

#[derive(Serialize)]
struct AuditStatus {
    /// The end of the chain; `null` if it cannot be read.
    head: Option<AuditHead>,
    /// The first thing that does not fit; `null` if the chain is whole.
    tampered: Option<String>,
    entries: Vec<EntryStatus>,
}

fn entry_status((number, stored): (u64, String)) -> EntryStatus {
    let entry = AuditEntry::decode(stored.as_bytes());
    let time = entry.as_ref().map(|entry| utc(entry.at));
    let entry = entry.map(|entry| EntryText {
        by: entry.by,
        from: entry.from,
        what: entry.what,
        outcome: entry.outcome,
        before: entry.before,
        after: entry.after,
        changes: entry.changes,
        changes_left_out: entry.changes_left_out,
        why: entry.why,
        unlisted: entry.unlisted,
        node: entry.node,
    });
    EntryStatus { number, time, stored, entry }
}

/// Largest number of a query: JSON numbers are exact up to it.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Returns a number of a query.
fn number(name: &str, text: Option<String>) -> Result<Option<u64>, Problem> {
    let what = || format!("{name} is not a number of 0 to {NUMBER_MAX}");
    let wrong = || Problem::new(StatusCode::BAD_REQUEST, what());
    let is_number = |text: &String| text.bytes().all(|byte| byte.is_ascii_digit());
    let known = |text: &String| text.parse().ok().filter(|number| *number <= NUMBER_MAX);
    text.map(|text| Some(&text).filter(|text| is_number(text)).and_then(known))
        .map(|number| number.ok_or_else(wrong))
        .transpose()
}

fn audit(fleet: &dyn FleetApi, call: &Call<'_>) -> Result<Reply, Problem> {
    let [since] = queried(call.query, ["since"])?;
    let since = number("since", since)?.unwrap_or_default();
    let log = fleet.audit().map_err(mute)?;
    let tampered = log.verify().err().map(|tampered| tampered.to_string());
    let is_later = |text: &str| {
        let entry = AuditEntry::decode(text.as_bytes());
        entry.is_none_or(|entry| entry.at >= since)
    };
    let entries = log.entries.into_iter().filter(|(_, text)| is_later(text));
    let entries = entries.map(entry_status).collect();
    Ok(json(&AuditStatus { head: log.head, tampered, entries }))
}

/// The parameters of a request for events.
#[derive(Debug)]
pub(crate) struct EventsAsk {
    /// The number of the event that the client has had last.
    pub(crate) after: Option<u64>,
    since: u64,
    limit: usize,
    /// The time to wait for an event, if there is none.
    pub(crate) wait: Duration,
    /// True if the answer is a stream of server-sent events.
    is_stream: bool,
}

/// Longest wait for an event, in seconds. A connection has 40 s altogether.
const WAIT_MAX: u64 = 25;

/// Most events in an answer, and how many without a limit.
const EVENTS_LIMIT: usize = 1000;

impl EventsAsk {
    /// Reads the query and the headers. A client of server-sent events waits, and names its last
    /// event in a header when it comes again.
    pub(crate) fn of(query: &str, headers: &HeaderMap) -> Result<EventsAsk, Problem> {
        let [after, since, limit, wait] = queried(query, ["after", "since", "limit", "wait"])?;
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let is_stream = header("accept").is_some_and(|kind| kind.contains(EVENT_STREAM));
        let last = header("last-event-id").map(str::to_owned);
        let after = number("after", after)?.or(number("last-event-id", last)?);
        let limit = number("limit", limit)?.unwrap_or(EVENTS_LIMIT as u64);
        let wait = number("wait", wait)?.unwrap_or(if is_stream { WAIT_MAX } else { 0 });
        let is_right = (1..=EVENTS_LIMIT as u64).contains(&limit) && wait <= WAIT_MAX;
        if !is_right {
            let what = format!("limit is 1 to {EVENTS_LIMIT}, and wait 0 to {WAIT_MAX} seconds");
            return Err(Problem::new(StatusCode::BAD_REQUEST, what));
        }
        Ok(EventsAsk {
            after,
            since: number("since", since)?.unwrap_or_default(),
            limit: usize::try_from(limit).unwrap_or(EVENTS_LIMIT),
            wait: Duration::from_secs(wait),
            is_stream,
        })
    }
}

impl EventsAsk {
    /// Returns whether the answer has an event already.
    pub(crate) fn has_any(&self, log: &EventLog) -> bool {
        !log.list(self.after, self.since, 1).is_empty()
    }
}

const EVENT_STREAM: &str = "text/event-stream";

#[derive(Serialize)]
struct EventList {
    /// The number for `after` of the next request.
    latest: u64,
    events: Vec<EventStatus>,
}

fn events(fleet: &dyn FleetApi, call: &Call<'_>) -> Result<Reply, Problem> {
    let ask = EventsAsk::of(call.query, call.headers)?;
    let log = fleet.events();
    let newest = log.latest();
    let events = log.list(ask.after, ask.since, ask.limit);
    if !ask.is_stream {
        let is_all = events.len() < ask.limit || ask.after.is_none();
        let last = events.last().map_or(newest, |event| event.number);
        let latest = if is_all { newest.max(last) } else { last };
        return Ok(json(&EventList { latest, events }));
    }
    // A client comes again a second after the end of an answer, as the standard says.
    let mut text = "retry: 1000\n\n".to_owned();
    for event in &events {
        let data = serde_json::to_string(event).unwrap_or_default();
        text += &format!("id: {}\nevent: {}\ndata: {data}\n\n", event.number, event.kind);
    }
    let mut reply = json(&());
    *reply.body_mut() = Full::new(text.into());
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    Ok(reply)
}

fn rollout(fleet: &dyn FleetApi) -> Result<Reply, Problem> {
    Ok(json(&RolloutOf { rollout: fleet.rollout().map_err(mute)? }))
}

#[derive(Serialize)]
struct Proxies {
    proxies: Vec<Proxy>,
}

/// An address at which clients find a pool, and whose it is.
#[derive(Serialize)]
struct Proxy {
    member: String,
    zone: u64,
    #[serde(flatten)]
    serving: ServingStatus,
}

/// Answers with the addresses of members that are on the bus, for clients.
fn proxies(fleet: &dyn FleetApi, call: &Call<'_>) -> Result<Reply, Problem> {
    let [pool, zone] = queried(call.query, ["pool", "zone"])?;
    let zone: Option<u64> = zone
        .map(|zone| zone.parse())
        .transpose()
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "zone is not a number"))?;
    let status = fleet.fleet().map_err(mute)?;
    // Another node does not know who is on the bus.
    if !status.leads {
        let admin = status.leader.and_then(|leader| leader.admin);
        let what = admin.map_or("nobody leads: try again".to_owned(), |admin| {
            format!("this node does not lead: ask the admin listener at {admin}")
        });
        return Err(mute(what));
    }
    let is_asked = |member: &MemberStatus| {
        member.state != MemberState::Silent && zone.is_none_or(|zone| zone == member.zone)
    };
    let asked = status.members.into_iter().filter(is_asked);
    let proxies = asked.flat_map(|MemberStatus { id, zone, serves, .. }| {
        serves.into_iter().map(move |serving| Proxy { member: id.clone(), zone, serving })
    });
    let is_of_pool = |one: &Proxy| pool.as_ref().is_none_or(|pool| one.serving.pool == *pool);
    Ok(json(&Proxies { proxies: proxies.filter(is_of_pool).collect() }))
}

/// Answers with the current document. A rollout that is going on has a later one.
fn read_document(fleet: &dyn FleetApi, call: &Call<'_>) -> Result<Reply, Problem> {
    let revision = fleet.fleet().map_err(mute)?.revision;
    let documents = fleet.documents(call.caller).map_err(mute)?;
    match documents.iter().find(|one| one.revision == revision) {
        Some(current) => Ok(json(current)),
        None => {
            let what = "there is no document yet: its revision is 0";
            Err(Problem::new(StatusCode::NOT_FOUND, what))
        }
    }
}

fn apply(fleet: &dyn FleetApi, call: &Call<'_>) -> Result<Reply, Problem> {
    let wrong = |what: &str| Problem::new(StatusCode::BAD_REQUEST, what);
    let ApplyBody { base, document, revision, dry_run, rollout } = body(call)?;
    let content = match (&document, revision) {
        (Some(text), None) => Content::Text(text),
        (None, Some(revision)) => Content::Revision(revision),
        _ => return Err(wrong("give either `document` or `revision`")),
    };
    if base.is_none() && !dry_run {
        return Err(wrong("name the revision that you have seen as `base`; the first one is 0"));
    }
    let order = ApplyOrder { by: call.caller, base, content, dry_run, rollout };
    fleet.apply(&order).map(|applied| json(&applied)).map_err(refused)
}
