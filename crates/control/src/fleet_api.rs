//! The answers of a control node: `/v1/fleet` and what is below it.

use crate::api::{Call, Reply, Resource, body, description, health, json, queried, ready};
use crate::fleet::{
    ApplyOrder, ApplyRefusal, Content, FleetApi, MemberState, MemberStatus, RolloutAction,
    RolloutAsk, RolloutStatus, ServingStatus,
};
use crate::groups::{FailoverOrder, GroupList};
use crate::members;
use crate::problem::Problem;
use crate::state::AdminState;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};

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
            let what = "it is wrong, and nothing was done: see errors";
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what).with_errors(errors)
        }
        ApplyRefusal::Conflict(what) => Problem::new(StatusCode::CONFLICT, what),
        ApplyRefusal::Unavailable(what) => mute(what),
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
    if instead.is_none() {
        queried(call.query, [])?;
    }
    match resource {
        Resource::Health => Ok(health(state)),
        Resource::Ready => ready(state),
        Resource::Description => Ok(description()),
        Resource::Fleet => Ok(json(&fleet.fleet().map_err(mute)?)),
        Resource::Documents => {
            Ok(json(&DocumentList { documents: fleet.documents().map_err(mute)? }))
        }
        Resource::ReadDocument => read_document(fleet),
        Resource::ApplyDocument => apply(fleet, call),
        Resource::ReadRollout => rollout(fleet),
        Resource::SteerRollout => {
            let SteerBody { action } = body(call)?;
            fleet.steer(action).map_err(refused)?;
            rollout(fleet)
        }
        Resource::Groups => Ok(json(&GroupList { groups: fleet.groups().map_err(mute)? })),
        Resource::FailOver => {
            let order: FailoverOrder = body(call)?;
            fleet.fail_over(&order).map_err(refused)?;
            Ok(json(&GroupList { groups: fleet.groups().map_err(mute)? }))
        }
        _ => {
            let what = "this process is a control node: it serves no clients; see /v1/fleet";
            Err(Problem::new(StatusCode::NOT_FOUND, what).with_instead(instead))
        }
    }
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
fn read_document(fleet: &dyn FleetApi) -> Result<Reply, Problem> {
    let revision = fleet.fleet().map_err(mute)?.revision;
    let documents = fleet.documents().map_err(mute)?;
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
    let order = ApplyOrder { base, content, dry_run, rollout };
    fleet.apply(&order).map(|applied| json(&applied)).map_err(refused)
}
