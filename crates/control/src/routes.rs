use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::access::{Access, Kind, RequestParts};
use crate::api::{self, Call};
use crate::backends;
use crate::places::{Place, Stage};
use crate::problem::Problem;
use crate::query::required;
use crate::state::{AdminState, Readiness, ScriptKill};

const GET: &str = "GET";
const POST: &str = "POST";

/// Every resource: method, path, and purpose.
const ROUTES: [(&str, &str, &str); 9] = [
    (GET, "/", "this list"),
    (GET, "/metrics", "all metrics in the Prometheus text format"),
    (GET, "/healthz", "200 while serving, 503 while draining"),
    (GET, "/readyz", "200 when every pool can serve, else 503 and why not"),
    (GET, "/servers", "every server and its state, as JSON; ?format=text for a table"),
    (GET, "/backends", "the same"),
    (POST, "/servers/restore", "?pool=NAME&server=NAME: end an ejection or quarantine"),
    (POST, "/backends/restore", "?pool=NAME&backend=NAME: the same"),
    (POST, "/scripts/kill", "?pool=NAME: end the script or function that runs on a store"),
];

/// Longest body of a request, in bytes: two names of 512 characters, for each of which JSON may
/// take twelve bytes. A body that no resource wants is read to its end all the same, so that its
/// sender sees the reply and not a reset.
const BODY_LEN_MAX: usize = 16 << 10;

/// Time for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(5);

/// Time for the body of a refused request: it is read so that its sender sees the reason.
const REFUSED_BODY_TIME: Duration = Duration::from_secs(1);

/// Most requests that take long at a time, running or waiting: reloads, upgrades, and those that members
/// answer. More are refused: each keeps its place as long as it takes, and too few would be left for
/// other requests.
const SLOW_WAITING_MAX: usize = 8;

const PLAIN: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

type Reply = Response<Full<Bytes>>;

/// The parts that answer requests, and the rules of access.
#[derive(Clone)]
pub(crate) struct Answering {
    pub(crate) state: Arc<dyn AdminState>,
    pub(crate) access: Arc<Access>,
    /// Permits for requests that take long, running or waiting.
    pub(crate) slow: Arc<Semaphore>,
}

/// Returns a permit for each of the [`SLOW_WAITING_MAX`] requests that take long.
pub(crate) fn slow() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(SLOW_WAITING_MAX))
}

/// Answers one request. Never fails: a request that cannot be executed gets a status.
pub(crate) async fn respond(
    answering: Answering,
    place: Arc<Place>,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let reply = reply_to(answering, &place, request).await;
    place.enter(Stage::Replying);
    Ok(reply)
}

async fn reply_to(answering: Answering, place: &Place, request: Request<Incoming>) -> Reply {
    let Answering { state, access, slow } = answering;
    let (head, body) = request.into_parts();
    let is_api = api::is_ours(head.uri.path());
    // Access is checked before the body is read: a sender without access is not read for much
    // longer than that.
    let asked = RequestParts { headers: &head.headers, uri: &head.uri };
    let kind = if is_api { api::kind(&head.method, head.uri.path()) } else { kind(&head) };
    let refusal = access.check(kind, &asked).err();
    let patience = if refusal.is_some() { REFUSED_BODY_TIME } else { BODY_TIME };
    let longest = api::body_len_max(&head.method, head.uri.path()).filter(|_| refusal.is_none());
    let longest = longest.unwrap_or(BODY_LEN_MAX);
    let body = timeout(patience, Limited::new(body, longest).collect()).await;
    place.enter(Stage::Working);
    if let Some(problem) = refusal {
        return api::refuse(&problem);
    }
    let body = match body {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let what = format!("the body is broken, or longer than {longest} bytes");
            return api::refuse(&Problem::new(StatusCode::PAYLOAD_TOO_LARGE, what));
        }
        Err(_) => {
            let what = format!("the body has not come within {} s", BODY_TIME.as_secs());
            return api::refuse(&Problem::new(StatusCode::REQUEST_TIMEOUT, what));
        }
    };
    if is_api {
        return respond_api(state, &slow, (head, body)).await;
    }
    let accept = head.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let target = Target {
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        accept: accept.unwrap_or_default(),
    };
    route(&*state, &head.method, &target)
}

/// Answers a request of the API. A request that takes long gets a thread of its own, so that others
/// are answered meanwhile.
async fn respond_api(
    state: Arc<dyn AdminState>,
    slow: &Semaphore,
    (head, body): (Parts, Bytes),
) -> Reply {
    let takes_long = api::takes_long(&head.method, head.uri.path());
    let answer = move || {
        let call = Call {
            method: &head.method,
            path: head.uri.path(),
            query: head.uri.query().unwrap_or_default(),
            headers: &head.headers,
            body: &body,
        };
        api::respond(&*state, &call)
    };
    if !takes_long {
        return answer();
    }
    let Ok(_permit) = slow.try_acquire() else {
        let what = "other requests that take long wait already: try again when they are done";
        return api::refuse(&Problem::new(StatusCode::SERVICE_UNAVAILABLE, what));
    };
    tokio::task::spawn_blocking(answer).await.unwrap_or_else(|_| {
        let what = "it has failed; the log says why";
        api::refuse(&Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what))
    })
}

/// Returns the kind of a request outside the API, for the access rules.
fn kind(head: &Parts) -> Kind {
    match (head.method == Method::GET || head.method == Method::HEAD, head.uri.path()) {
        (true, "/healthz" | "/readyz") => Kind::Probe,
        (true, _) => Kind::Read,
        (false, _) => Kind::Change,
    }
}

/// The target of a request.
struct Target<'r> {
    path: &'r str,
    query: &'r str,
    accept: &'r str,
}

/// Returns a page as it is without parameters.
pub(crate) fn page(state: &dyn AdminState, path: &str) -> Reply {
    route(state, &Method::GET, &Target { path, query: "", accept: "" })
}

fn route(state: &dyn AdminState, method: &Method, target: &Target<'_>) -> Reply {
    let path = target.path;
    let Some((allowed, ..)) = ROUTES.iter().find(|(_, known, _)| *known == path) else {
        let text = format!("there is no {path} here; there are:\n{}", listing(state));
        return reply(StatusCode::NOT_FOUND, text);
    };
    // The HTTP library sends the reply to a HEAD without its body.
    let asked = if method == Method::HEAD { GET } else { method.as_str() };
    if asked != *allowed {
        let text = format!("{path} takes {allowed} only\n");
        let mut refusal = reply(StatusCode::METHOD_NOT_ALLOWED, text);
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        return refusal;
    }
    match path {
        "/" => reply(StatusCode::OK, listing(state)),
        "/metrics" => metrics(state),
        "/healthz" => healthz(state),
        "/readyz" => readyz(state),
        "/servers" | "/backends" => backends(state, target),
        "/scripts/kill" => kill_script(state, target.query),
        "/servers/restore" => restore(state, target, "server"),
        _ => restore(state, target, "backend"),
    }
}

fn reply(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(text.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PLAIN));
    reply
}

/// Returns a line for each page and each path of the API.
fn listing(state: &dyn AdminState) -> String {
    let mut text = String::new();
    for (method, path, what) in ROUTES {
        let _ = writeln!(text, "{method:4} {path:20} {what}");
    }
    if state.api().is_some() || state.fleet().is_some() {
        text.push_str("\nThe API, which /v1/openapi.json describes and keyway ctl uses:\n");
        for (method, path) in api::listed() {
            let _ = writeln!(text, "{method:4} {path}");
        }
    }
    text
}

fn metrics(state: &dyn AdminState) -> Reply {
    let mut text = String::new();
    state.metrics(&mut text);
    let mut reply = reply(StatusCode::OK, text);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROMETHEUS));
    reply
}

fn healthz(state: &dyn AdminState) -> Reply {
    if state.draining() {
        reply(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else {
        reply(StatusCode::OK, "ok\n")
    }
}

fn readyz(state: &dyn AdminState) -> Reply {
    let Readiness { reasons: mut lines, failing, unknown } = Readiness::of(state);
    let status = match lines.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    if lines.is_empty() {
        lines.push("ready".into());
    }
    lines.extend(failing);
    lines.extend(unknown);
    reply(status, lines.join("\n") + "\n")
}

fn backends(state: &dyn AdminState, target: &Target<'_>) -> Reply {
    let is_text = match target.query {
        "" => target.accept.contains("text/plain"),
        "format=text" => true,
        "format=json" => false,
        _ => {
            let text = format!("write GET {}, with ?format=text or ?format=json\n", target.path);
            return reply(StatusCode::BAD_REQUEST, text);
        }
    };
    let pools = state.pools();
    if is_text {
        return reply(StatusCode::OK, backends::as_text(&pools));
    }
    let mut reply = reply(StatusCode::OK, backends::as_json(&pools));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// Puts a server back into use. The path decides whether its parameter is called `server`.
fn restore(state: &dyn AdminState, target: &Target<'_>, parameter: &str) -> Reply {
    let [pool, backend] = match required(target.query, ["pool", parameter]) {
        Ok(names) => names,
        Err(wrong) => {
            let usage = format!("write POST {}?pool=NAME&{parameter}=NAME", target.path);
            return reply(StatusCode::BAD_REQUEST, format!("{wrong}; {usage}\n"));
        }
    };
    match state.restore_backend(&pool, &backend) {
        Ok(was_out) => {
            let word = if was_out { "again" } else { "already" };
            let backend = backends::shown(&state.pools(), &pool, &backend);
            reply(
                StatusCode::OK,
                format!("{parameter} {backend} of pool {pool} is in use {word}\n"),
            )
        }
        Err(text) => reply(StatusCode::NOT_FOUND, text + "\n"),
    }
}

fn kill_script(state: &dyn AdminState, query: &str) -> Reply {
    let pool = match required(query, ["pool"]) {
        Ok([pool]) => pool,
        Err(wrong) => {
            let text = format!("{wrong}; write POST /scripts/kill?pool=NAME\n");
            return reply(StatusCode::BAD_REQUEST, text);
        }
    };
    match state.kill_script(&pool) {
        Ok(ScriptKill::Ends) => reply(StatusCode::OK, format!("the script of pool {pool} ends\n")),
        Ok(ScriptKill::NoneRuns) => reply(StatusCode::OK, format!("pool {pool} runs no script\n")),
        Ok(ScriptKill::HasWritten) => {
            let text = format!(
                "the script of pool {pool} has written: it ends by itself or by script_time_max\n"
            );
            reply(StatusCode::CONFLICT, text)
        }
        Err(text) => reply(StatusCode::NOT_FOUND, text + "\n"),
    }
}
