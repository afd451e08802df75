use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use keyway_tls::PeerCertificate;
use keyway_users::Operator;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::access::{Access, Caller, Kind, Need, RequestParts};
use crate::api::{self, Call};
use crate::backends;
use crate::fleet_api::EventsAsk;
use crate::places::{Place, Stage};
use crate::problem::{Detail, Problem};
use crate::query::required;
use crate::resources;
use crate::state::{AdminState, NotedRequest, Readiness, ScriptKill};

const GET: &str = "GET";
const POST: &str = "POST";

/// Every resource: method, path, the right that a request needs, and purpose.
const ROUTES: [(&str, &str, Need, &str); 9] = [
    (GET, "/", Need::Read, "this list"),
    (GET, "/metrics", Need::Read, "all metrics in the Prometheus text format"),
    (GET, "/healthz", Need::Nothing, "200 while serving, 503 while draining"),
    (GET, "/readyz", Need::Nothing, "200 when every pool can serve, else 503 and why not"),
    (GET, "/servers", Need::Read, "every server and its state, as JSON; ?format=text for a table"),
    (GET, "/backends", Need::Read, "the same"),
    (
        POST,
        "/servers/restore",
        Need::Pools,
        "?pool=NAME&server=NAME: end an ejection or quarantine",
    ),
    (POST, "/backends/restore", Need::Pools, "?pool=NAME&backend=NAME: the same"),
    (
        POST,
        "/scripts/kill",
        Need::Pools,
        "?pool=NAME: end the script or function that runs on a store",
    ),
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

/// Most of these of one operator, so that others have some. Clients of an address without operators
/// are all the same one, and have all.
const SLOW_OF_ONE_MAX: usize = 4;

/// Most requests that members answer at a time. More wait.
const MEMBERS_ASKED_MAX: usize = 4;

/// Most of these, with those that wait: `keyway top` reads the pages of so many members at once. Each
/// keeps its place, and others need some.
pub const MEMBERS_READ_MAX: usize = 48;

/// Most requests that wait for an event at a time. Each keeps its place meanwhile, and a quarter of
/// the places are enough for people who look on.
const FOLLOWERS_MAX: usize = 16;

const PLAIN: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

type Reply = Response<Full<Bytes>>;

/// A connected client.
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// Its checked certificate, after the handshake, if it has shown one.
    pub(crate) certificate: Arc<OnceLock<PeerCertificate>>,
}

/// A request that may have to be noted: a change, or one that is refused.
struct Asked {
    is_change: bool,
    method: Method,
    path: String,
}

/// Longest path that is noted, in bytes. Paths of Keyway are shorter.
const NOTED_PATH_LEN_MAX: usize = 100;

impl Asked {
    fn of(request: &Request<Incoming>) -> Asked {
        let method = request.method().clone();
        let path = request.uri().path().chars().take(NOTED_PATH_LEN_MAX).collect();
        Asked { is_change: method != Method::GET && method != Method::HEAD, method, path }
    }

    fn note(self, state: &dyn AdminState, client: &Client, caller: Option<&Caller>, reply: &Reply) {
        let status = reply.status();
        let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if self.is_change || is_refused {
            let detail = reply.extensions().get::<Detail>();
            state.note_request(&NotedRequest {
                operator: caller.map(|caller| caller.operator.name()),
                address: client.address,
                method: self.method.as_str(),
                path: &self.path,
                status: status.as_u16(),
                detail: detail.map_or("", |detail| detail.0.as_str()),
            });
        }
    }
}

/// The parts that answer requests, and the rules of access.
#[derive(Clone)]
pub(crate) struct Answering {
    pub(crate) state: Arc<dyn AdminState>,
    pub(crate) access: Arc<Access>,
    pub(crate) slow: Arc<Slow>,
}

/// Permits for requests that take long.
pub(crate) struct Slow {
    /// For those that run, or wait for others.
    orders: Arc<Semaphore>,
    /// The operators who have some of these, with their number.
    of_operators: Arc<Mutex<BTreeMap<String, usize>>>,
    /// For those that read from members, and for those of them that are answered.
    members: [Arc<Semaphore>; 2],
    /// For those that wait for an event.
    followers: Semaphore,
}

/// The permits of a request. The thread that answers has them until it is done: its client may leave
/// earlier, and begin another one.
struct Permits {
    _of_all: Vec<OwnedSemaphorePermit>,
    _of_one: Option<Share>,
}

/// One of the requests of an operator.
struct Share {
    all: Arc<Mutex<BTreeMap<String, usize>>>,
    name: String,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        match all.get_mut(&self.name) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(all.remove(&self.name)),
        }
    }
}

impl Slow {
    /// Returns the permits of a change, unless too many take long already.
    fn order(&self, operator: &Operator) -> Option<Permits> {
        let permit = Arc::clone(&self.orders).try_acquire_owned().ok()?;
        let name = operator.name().to_owned();
        let mut all = self.of_operators.lock();
        let count = all.get(&name).copied().unwrap_or_default();
        if count >= SLOW_OF_ONE_MAX && name != Operator::ANONYMOUS {
            return None;
        }
        all.insert(name.clone(), count + 1);
        let share = Share { all: Arc::clone(&self.of_operators), name };
        Some(Permits { _of_all: vec![permit], _of_one: Some(share) })
    }

    /// Returns the permits of a request that members answer, unless too many wait already.
    async fn members(&self) -> Option<Permits> {
        let [read, asked] = &self.members;
        let read = Arc::clone(read).try_acquire_owned().ok()?;
        let asked = Arc::clone(asked).acquire_owned().await.ok()?;
        Some(Permits { _of_all: vec![read, asked], _of_one: None })
    }
}

/// Returns a permit for each of the [`SLOW_WAITING_MAX`] and [`FOLLOWERS_MAX`] requests that take
/// long.
pub(crate) fn slow() -> Arc<Slow> {
    let [orders, read, asked] = [SLOW_WAITING_MAX, MEMBERS_READ_MAX, MEMBERS_ASKED_MAX]
        .map(|count| Arc::new(Semaphore::new(count)));
    Arc::new(Slow {
        orders,
        of_operators: Arc::default(),
        members: [read, asked],
        followers: Semaphore::new(FOLLOWERS_MAX),
    })
}

/// Answers one request. Never fails: a request that cannot be executed gets a status.
pub(crate) async fn respond(
    answering: Answering,
    (place, client): (Arc<Place>, Arc<Client>),
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let state = Arc::clone(&answering.state);
    let asked = Asked::of(&request);
    let (reply, caller) = reply_to(answering, (&place, &client), request).await;
    asked.note(&*state, &client, caller.as_ref(), &reply);
    place.enter(Stage::Replying);
    Ok(reply)
}

/// Answers a request. Returns its sender, if that one may ask at all.
async fn reply_to(
    answering: Answering,
    (place, client): (&Place, &Client),
    request: Request<Incoming>,
) -> (Reply, Option<Caller>) {
    let Answering { state, access, slow } = answering;
    let (head, body) = request.into_parts();
    // Access is checked before the body is read: a sender without access is not read for much
    // longer than that.
    let (caller, refusal) = match admit(&access, &head, client) {
        Ok(caller) => (Some(caller), None),
        Err(refused) => (refused.0, Some(refused.1)),
    };
    let patience = if refusal.is_some() { REFUSED_BODY_TIME } else { BODY_TIME };
    let of_document = resources::body_len_max(&head.method, head.uri.path());
    let longest = of_document.filter(|_| refusal.is_none()).unwrap_or(BODY_LEN_MAX);
    let body = timeout(patience, Limited::new(body, longest).collect()).await;
    place.enter(Stage::Working);
    let (caller, body) = match (caller, refusal, body) {
        (caller, Some(problem), _) => return (api::refuse(&problem), caller),
        (Some(caller), None, Ok(Ok(body))) => (caller, body.to_bytes()),
        (caller, None, Ok(_)) => {
            let (whose, len_max) = match of_document {
                Some(_) => ("its document is ", keyway_fleet::limits::DOCUMENT_LEN_MAX),
                None => ("", longest),
            };
            let what = format!("the body is broken, or {whose}longer than {len_max} bytes");
            return (api::refuse(&Problem::new(StatusCode::PAYLOAD_TOO_LARGE, what)), caller);
        }
        (caller, None, Err(_)) => {
            let what = format!("the body has not come within {} s", BODY_TIME.as_secs());
            return (api::refuse(&Problem::new(StatusCode::REQUEST_TIMEOUT, what)), caller);
        }
    };
    if resources::is_ours(head.uri.path()) {
        wait_for_event(&*state, &head, &slow).await;
        let reply = respond_api(state, &slow, (head, body, caller.clone())).await;
        return (reply, Some(caller));
    }
    let accept = head.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let target = Target {
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        accept: accept.unwrap_or_default(),
        caller: &caller,
    };
    let reply = route(&*state, &head.method, &target);
    (reply, Some(caller))
}

/// Waits for an event, if the request asks for that and there is none. More requests than
/// [`FOLLOWERS_MAX`] are answered at once.
async fn wait_for_event(state: &dyn AdminState, head: &Parts, slow: &Slow) {
    let is_asked = head.method == Method::GET && head.uri.path() == resources::EVENTS;
    let Some(fleet) = state.fleet().filter(|_| is_asked) else { return };
    let query = head.uri.query().unwrap_or_default();
    // If the query is wrong, the answer says so.
    let Ok(ask) = EventsAsk::of(query, &head.headers) else { return };
    let log = fleet.events();
    if ask.wait.is_zero() || ask.has_any(&log) {
        return;
    }
    let Ok(_permit) = slow.followers.try_acquire() else { return };
    let after = ask.after.unwrap_or_else(|| log.latest());
    let _ = timeout(ask.wait, log.wait_after(after)).await;
}

/// Checks whether a request may be answered. Returns its sender, also with a refusal if that one is
/// known.
fn admit(
    access: &Access,
    head: &Parts,
    client: &Client,
) -> Result<Caller, Box<(Option<Caller>, Problem)>> {
    let path = head.uri.path();
    let (kind, need) = match resources::is_ours(path) {
        true => (resources::kind(&head.method, path), resources::need(&head.method, path)),
        false => (kind(head), need(&head.method, path)),
    };
    let certificate = client.certificate.get();
    let asked = RequestParts { headers: &head.headers, uri: &head.uri, certificate };
    let operator = access.check(kind, &asked).map_err(|problem| Box::new((None, problem)))?;
    let caller = Caller { operator, address: client.address.to_string() };
    match need.check(&caller.operator) {
        Ok(()) => Ok(caller),
        Err(problem) => Err(Box::new((Some(caller), problem))),
    }
}

/// Returns the right that a request outside the API needs. A path that is not there needs what a
/// read needs.
fn need(method: &Method, path: &str) -> Need {
    let asked = if method == Method::HEAD { GET } else { method.as_str() };
    let there = ROUTES.iter().find(|(known, there, ..)| *known == asked && *there == path);
    there.map_or(Need::Read, |(_, _, need, _)| *need)
}

/// Answers a request of the API. A request that takes long gets a thread of its own, so that others
/// are answered meanwhile.
async fn respond_api(
    state: Arc<dyn AdminState>,
    slow: &Slow,
    (head, body, caller): (Parts, Bytes, Caller),
) -> Reply {
    let takes_long = resources::takes_long(&head.method, head.uri.path());
    let reads_members = resources::reads_members(&head.method, head.uri.path());
    let operator = caller.operator.clone();
    let answer = move || {
        let call = Call {
            method: &head.method,
            path: head.uri.path(),
            query: head.uri.query().unwrap_or_default(),
            headers: &head.headers,
            body: &body,
            caller: &caller,
        };
        api::respond(&*state, &call)
    };
    if !takes_long {
        return answer();
    }
    let permits = match reads_members {
        true => slow.members().await,
        false => slow.order(&operator),
    };
    let Some(permits) = permits else {
        let what = "other requests that take long wait already: try again when they are done";
        return api::refuse(&Problem::new(StatusCode::SERVICE_UNAVAILABLE, what));
    };
    let answered = tokio::task::spawn_blocking(move || {
        let _permits = permits;
        answer()
    });
    answered.await.unwrap_or_else(|_| {
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

/// The target of a request, and its sender.
struct Target<'r> {
    path: &'r str,
    query: &'r str,
    accept: &'r str,
    caller: &'r Caller,
}

impl Target<'_> {
    /// Returns the refusal of a change of a pool that the sender may not change.
    fn refusal(&self, pool: &str) -> Option<Reply> {
        let operator = &self.caller.operator;
        let what = || operator.refusal(&format!("pool {pool}")) + "\n";
        let refuse = || reply(StatusCode::FORBIDDEN, what());
        (!operator.may_change(pool)).then(refuse)
    }
}

/// Returns a page as it is without parameters.
pub(crate) fn page(state: &dyn AdminState, path: &str) -> Reply {
    let caller = &Caller { operator: Operator::admin(), address: String::new() };
    route(state, &Method::GET, &Target { path, query: "", accept: "", caller })
}

fn route(state: &dyn AdminState, method: &Method, target: &Target<'_>) -> Reply {
    let path = target.path;
    let Some((allowed, ..)) = ROUTES.iter().find(|(_, known, ..)| *known == path) else {
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
        "/scripts/kill" => kill_script(state, target),
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
    for (method, path, _, what) in ROUTES {
        let _ = writeln!(text, "{method:4} {path:20} {what}");
    }
    if state.api().is_some() || state.fleet().is_some() {
        text.push_str("\nThe API, which /v1/openapi.json describes and keyway ctl uses:\n");
        for (method, path) in resources::listed() {
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
    if let Some(refusal) = target.refusal(&pool) {
        return refusal;
    }
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

fn kill_script(state: &dyn AdminState, target: &Target<'_>) -> Reply {
    let pool = match required(target.query, ["pool"]) {
        Ok([pool]) => pool,
        Err(wrong) => {
            let text = format!("{wrong}; write POST /scripts/kill?pool=NAME\n");
            return reply(StatusCode::BAD_REQUEST, text);
        }
    };
    if let Some(refusal) = target.refusal(&pool) {
        return refusal;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_users::Role;

    #[test]
    fn one_operator_leaves_some_requests_to_others() {
        let of = |name: &str| Operator::new(name, Role::Operator, None).expect("a name");
        let (ann, bob, slow) = (of("ann"), of("bob"), slow());
        let take = |operator: &Operator| slow.order(operator);
        let mut of_ann: Vec<_> = (0..SLOW_OF_ONE_MAX).map(|_| take(&ann)).collect();
        assert!(of_ann.iter().all(Option::is_some) && take(&ann).is_none());
        let of_bob: Vec<_> = (0..SLOW_OF_ONE_MAX).map(|_| take(&bob)).collect();
        assert!(of_bob.iter().all(Option::is_some));
        assert!(take(&of("eve")).is_none(), "there are {SLOW_WAITING_MAX} altogether");
        drop(of_ann.pop());
        assert!(take(&bob).is_none() && take(&ann).is_some());
        drop((of_ann, of_bob));
        assert!(slow.of_operators.lock().is_empty());
        let anybody = Operator::anonymous();
        let all: Vec<_> = (0..SLOW_WAITING_MAX).map(|_| take(&anybody)).collect();
        assert!(all.iter().all(Option::is_some) && take(&anybody).is_none());
        drop(all);
        assert!(slow.of_operators.lock().is_empty());
    }
}
