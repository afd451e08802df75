//! The answers of a control node: `/v1/fleet` and what is below it.

use crate::api::{Call, Reply, Resource, body, description, health, json, queried, ready};
use crate::fleet::{
    ApplyOrder, ApplyRefusal, Content, FleetApi, RolloutAction, RolloutAsk, RolloutStatus,
};
use crate::groups::{FailoverOrder, GroupList};
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

fn refused(refusal: ApplyRefusal) -> Problem {
    match refusal {
        ApplyRefusal::Invalid(errors) => {
            let what = "the document is wrong, and nothing was stored: see errors";
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
    queried(call.query, [])?;
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
            Err(Problem::new(StatusCode::NOT_FOUND, what))
        }
    }
}

fn rollout(fleet: &dyn FleetApi) -> Result<Reply, Problem> {
    Ok(json(&RolloutOf { rollout: fleet.rollout().map_err(mute)? }))
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
