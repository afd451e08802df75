//! The API for programs: JSON in and out, under `/v1`. `docs/openapi.json` describes it, and a test
//! compares the two. docs/admin.md is for people.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::access::Caller;
use crate::backends::{self, AWAY, PoolStatus};
use crate::fleet_api;
use crate::problem::Problem;
use crate::process::{AfterDrain, Api, LogLevel, SlowRequest, UpgradeState};
use crate::query::parameters;
use crate::resources::{ROUTES, Resource, takes_query};
use crate::state::{AdminState, Readiness, ScriptKill};

/// The served description of the API.
pub const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// Longest name of a pool or server in a request, in characters. Names come from a configuration
/// file, where they are shorter.
const NAME_LEN_MAX: usize = 512;

/// Most clients, or slow requests of 32 arguments of 128 bytes, in one reply: about 300 KiB or 5
/// MiB.
const LIMIT_MAX: usize = 1000;

const LIMIT_DEFAULT: usize = 100;

pub(crate) type Reply = Response<Full<Bytes>>;

/// One request, with its body.
pub(crate) struct Call<'r> {
    pub(crate) method: &'r Method,
    pub(crate) path: &'r str,
    pub(crate) query: &'r str,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) body: &'r [u8],
    pub(crate) caller: &'r Caller,
}

impl Call<'_> {
    /// Refuses a change of a pool that the sender may not change.
    pub(crate) fn check_pool(&self, pool: &str) -> Result<(), Problem> {
        let operator = &self.caller.operator;
        match operator.may_change(pool) {
            true => Ok(()),
            false => {
                let what = operator.refusal(&format!("pool {pool}"));
                Err(Problem::new(StatusCode::FORBIDDEN, what))
            }
        }
    }
}

/// Answers a request whose sender has access.
pub(crate) fn respond(state: &dyn AdminState, call: &Call<'_>) -> Reply {
    let outcome = find(call).and_then(|resource| answer(state, resource, call));
    outcome.unwrap_or_else(|problem| refuse(&problem))
}

/// Returns the reply for a refusal.
pub(crate) fn refuse(problem: &Problem) -> Reply {
    let mut reply = finished(problem.reply());
    if reply.status() == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer realm=\"keyway\"");
        reply.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    reply
}

fn find(call: &Call<'_>) -> Result<Resource, Problem> {
    // The HTTP library sends the reply to a HEAD without its body.
    let asked = if call.method == Method::HEAD { &Method::GET } else { call.method };
    let there = || ROUTES.iter().filter(|(_, path, _)| *path == call.path);
    if let Some((.., resource)) = there().find(|(method, ..)| method == asked) {
        return Ok(*resource);
    }
    let methods: Vec<&str> = there().map(|(method, ..)| method.as_str()).collect();
    if methods.is_empty() {
        let paths: Vec<String> =
            ROUTES.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
        let what = format!("there is no {}; there are: {}", call.path, paths.join(", "));
        return Err(Problem::new(StatusCode::NOT_FOUND, what));
    }
    let allowed = methods.join(", ");
    let what = format!("{} takes {allowed}", call.path);
    Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, what).with_allow(&allowed))
}

fn answer(state: &dyn AdminState, resource: Resource, call: &Call<'_>) -> Result<Reply, Problem> {
    if let Some(fleet) = state.fleet()
        && (resource.is_of_fleet() || state.api().is_none())
    {
        return fleet_api::answer(state, fleet, resource, call);
    }
    let Some(api) = state.api() else {
        let what = "this process has no API: it serves /metrics, /healthz and /readyz";
        return Err(Problem::new(StatusCode::NOT_FOUND, what));
    };
    if resource.is_of_fleet() {
        return Err(no_control());
    }
    if !takes_query(call.path) {
        queried(call.query, [])?;
    }
    match resource {
        Resource::Health => Ok(health(state)),
        Resource::Ready => ready(state),
        Resource::Status => Ok(json(&api.status())),
        Resource::Pools => Ok(json(&PoolList { pools: state.pools().iter().collect() })),
        Resource::Servers => servers(state, call),
        Resource::Eject => eject(state, api, call),
        Resource::Restore => restore(state, call),
        Resource::Connections => connections(api, call),
        Resource::SlowLog => slow_log(api, call),
        Resource::HotKeys => hot_keys(api, call),
        Resource::Config => Ok(json(&api.config())),
        Resource::ReadLogLevel => Ok(json(&Level { level: api.log_level() })),
        Resource::SetLogLevel => {
            let Level { level } = body(call)?;
            api.set_log_level(level);
            Ok(json(&Level { level }))
        }
        Resource::Drain => {
            let Drain { then } = body(call)?;
            api.drain(then);
            let mut reply = json(&Draining { draining: true, then });
            *reply.status_mut() = StatusCode::ACCEPTED;
            Ok(reply)
        }
        Resource::Reload => reload(api),
        Resource::Upgrade => upgrade(api),
        Resource::KillScript => kill_script(state, call),
        Resource::Fleet
        | Resource::ReadDocument
        | Resource::ApplyDocument
        | Resource::Documents
        | Resource::ReadRollout
        | Resource::SteerRollout
        | Resource::Proxies
        | Resource::OfMembers(_)
        | Resource::Groups
        | Resource::FailOver
        | Resource::Slots
        | Resource::MoveSlots
        | Resource::Forget
        | Resource::Audit
        | Resource::Events => Err(no_control()),
        Resource::Description => Ok(description()),
    }
}

fn no_control() -> Problem {
    let what = "this process is no control node: ask one of `keyway control`";
    Problem::new(StatusCode::NOT_FOUND, what)
}

pub(crate) fn description() -> Reply {
    let mut reply = json(&());
    *reply.body_mut() = Full::new(Bytes::from_static(OPENAPI.as_bytes()));
    reply
}

#[derive(Serialize)]
struct PoolList<'p> {
    pools: Vec<&'p PoolStatus>,
}

#[derive(Serialize)]
struct ServerList<'p> {
    servers: Vec<ServerOfPool<'p>>,
}

#[derive(Serialize)]
struct ServerOfPool<'p> {
    pool: &'p str,
    #[serde(flatten)]
    server: &'p crate::backends::BackendStatus,
}

#[derive(Serialize)]
struct SlowRequests {
    requests: Vec<SlowRequest>,
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    /// A line for each pool with servers that have neither answered nor failed yet.
    unknown: Vec<String>,
    /// A line for each pool that serves although servers are failing or out of use.
    failing: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    level: LogLevel,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    then: AfterDrain,
}

#[derive(Serialize)]
struct Draining {
    draining: bool,
    then: AfterDrain,
}

#[derive(Serialize)]
struct Upgrading {
    state: UpgradeState,
    /// The process that is to be replaced.
    pid: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerName {
    pool: String,
    server: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolName {
    pool: String,
}

/// The result of an order.
#[derive(Serialize)]
struct Outcome {
    /// True if anything has changed.
    changed: bool,
    /// The same in words.
    message: String,
}

pub(crate) fn health(state: &dyn AdminState) -> Reply {
    if !state.draining() {
        return json(&Health { status: "ok" });
    }
    let mut reply = json(&Health { status: "draining" });
    *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    reply
}

pub(crate) fn ready(state: &dyn AdminState) -> Result<Reply, Problem> {
    let Readiness { reasons, failing, unknown } = Readiness::of(state);
    if reasons.is_empty() {
        return Ok(json(&Ready { ready: true, unknown, failing }));
    }
    let more = match reasons.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more: see errors)"),
    };
    let what = format!("Keyway is not ready: {}{more}", reasons[0]);
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, what).with_errors(reasons);
    Err(problem.with_servers(failing, unknown))
}

fn servers(state: &dyn AdminState, call: &Call<'_>) -> Result<Reply, Problem> {
    let [pool] = queried(call.query, ["pool"])?;
    let pools = state.pools();
    if let Some(name) = &pool
        && !pools.iter().any(|pool| pool.name == *name)
    {
        let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        let what = format!("no pool {name:?}; there are: {}", names.join(", "));
        return Err(Problem::new(StatusCode::NOT_FOUND, what));
    }
    let asked = pools.iter().filter(|one| pool.as_ref().is_none_or(|name| one.name == *name));
    let servers = asked.flat_map(|pool| {
        pool.backends.iter().map(|server| ServerOfPool { pool: &pool.name, server })
    });
    Ok(json(&ServerList { servers: servers.collect() }))
}

/// Returns the pool and the limit of a query.
pub(crate) fn pool_and_limit(query: &str) -> Result<(Option<String>, usize), Problem> {
    let [pool, limit] = queried(query, ["pool", "limit"])?;
    let limit = limit.map_or(Some(LIMIT_DEFAULT), |text| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        number.filter(|limit| (1..=LIMIT_MAX).contains(limit))
    });
    let what = || format!("limit is not a number from 1 to {LIMIT_MAX}");
    let limit = limit.ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, what()))?;
    Ok((pool, limit))
}

fn connections(api: &dyn Api, call: &Call<'_>) -> Result<Reply, Problem> {
    let (pool, limit) = pool_and_limit(call.query)?;
    match api.connections(pool.as_deref(), limit) {
        Ok(connections) => Ok(json(&connections)),
        Err(what) => Err(Problem::new(StatusCode::NOT_FOUND, what)),
    }
}

fn slow_log(api: &dyn Api, call: &Call<'_>) -> Result<Reply, Problem> {
    let (pool, limit) = pool_and_limit(call.query)?;
    match api.slow_log(pool.as_deref(), limit) {
        Ok(requests) => Ok(json(&SlowRequests { requests })),
        Err(what) => Err(Problem::new(StatusCode::NOT_FOUND, what)),
    }
}

fn hot_keys(api: &dyn Api, call: &Call<'_>) -> Result<Reply, Problem> {
    let (pool, limit) = pool_and_limit(call.query)?;
    match api.key_stats(pool.as_deref(), limit) {
        Ok(keys) => Ok(json(&keys)),
        Err(what) => Err(Problem::new(StatusCode::NOT_FOUND, what)),
    }
}

fn eject(state: &dyn AdminState, api: &dyn Api, call: &Call<'_>) -> Result<Reply, Problem> {
    let ServerName { pool, server } = body(call)?;
    checked_name("pool", &pool)?;
    checked_name("server", &server)?;
    call.check_pool(&pool)?;
    let found = api.eject(&pool, &server);
    let changed = found.map_err(|what| Problem::new(StatusCode::NOT_FOUND, what))?;
    let word = if changed { "is ejected" } else { "was ejected already" };
    let pools = state.pools();
    let server = backends::shown(&pools, &pool, &server);
    let mut message = format!("server {server} of pool {pool} {word}, until it is restored");
    if let Some(pool) = pools.iter().find(|one| one.name == pool)
        && pool.backends.iter().all(|server| matches!(server.state, "ejected" | AWAY))
    {
        message.push_str("; no other server of the pool is in use");
    }
    Ok(json(&Outcome { changed, message }))
}

fn restore(state: &dyn AdminState, call: &Call<'_>) -> Result<Reply, Problem> {
    let ServerName { pool, server } = body(call)?;
    checked_name("pool", &pool)?;
    checked_name("server", &server)?;
    call.check_pool(&pool)?;
    let is_away = state.pools().iter().filter(|one| one.name == pool).any(|one| {
        let mut servers = one.backends.iter();
        servers.any(|one| one.name == server && one.state == AWAY)
    });
    let found = state.restore_backend(&pool, &server);
    let changed = found.map_err(|what| Problem::new(StatusCode::NOT_FOUND, what))?;
    let what = match (changed, is_away) {
        (true, true) => "is away, and is in use when it comes back",
        (true, false) => "is in use again",
        (false, _) => "is in use already",
    };
    let server = backends::shown(&state.pools(), &pool, &server);
    Ok(json(&Outcome { changed, message: format!("server {server} of pool {pool} {what}") }))
}

fn reload(api: &dyn Api) -> Result<Reply, Problem> {
    if api.status().draining {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "it drains: nothing was changed",
        ));
    }
    match api.reload() {
        Ok(reloaded) => Ok(json(&reloaded)),
        Err(faults) => {
            let what = "the reload was refused, and nothing has changed";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what).with_errors(faults))
        }
    }
}

fn upgrade(api: &dyn Api) -> Result<Reply, Problem> {
    match api.upgrade() {
        Ok(()) => {
            let state = UpgradeState::Starting;
            let mut reply = json(&Upgrading { state, pid: api.status().pid });
            *reply.status_mut() = StatusCode::ACCEPTED;
            Ok(reply)
        }
        Err(reasons) => {
            let what = "the upgrade was refused: no process was started";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what).with_errors(reasons))
        }
    }
}

fn kill_script(state: &dyn AdminState, call: &Call<'_>) -> Result<Reply, Problem> {
    let PoolName { pool } = body(call)?;
    checked_name("pool", &pool)?;
    call.check_pool(&pool)?;
    let killed = state.kill_script(&pool);
    match killed.map_err(|what| Problem::new(StatusCode::NOT_FOUND, what))? {
        ScriptKill::Ends => {
            let message = format!("the script of pool {pool} ends");
            Ok(json(&Outcome { changed: true, message }))
        }
        ScriptKill::NoneRuns => {
            let message = format!("pool {pool} runs no script");
            Ok(json(&Outcome { changed: false, message }))
        }
        ScriptKill::HasWritten => {
            let what = format!(
                "the script of pool {pool} has written: it ends by itself or by script_time_max"
            );
            Err(Problem::new(StatusCode::CONFLICT, what))
        }
    }
}

/// Returns the body of a request. It must be JSON and declared as such, which a page of another
/// origin cannot do.
pub(crate) fn body<T: DeserializeOwned>(call: &Call<'_>) -> Result<T, Problem> {
    let kind = call.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        let what = "send JSON, with the header Content-Type: application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    serde_json::from_slice(call.body).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, format!("the body is not what is asked for: {error}"))
    })
}

/// Checks the body of a change that members are to carry out, as each of them does.
pub(crate) fn check_body(path: &str, call: &Call<'_>) -> Result<(), Problem> {
    match path {
        "/v1/servers/eject" | "/v1/servers/restore" => {
            let ServerName { pool, server } = body(call)?;
            checked_name("pool", &pool)?;
            checked_name("server", &server)?;
            call.check_pool(&pool)
        }
        "/v1/scripts/kill" => {
            let PoolName { pool } = body(call)?;
            checked_name("pool", &pool)?;
            call.check_pool(&pool)
        }
        "/v1/log-level" => body::<Level>(call).map(drop),
        "/v1/drain" => body::<Drain>(call).map(drop),
        _ => Ok(()),
    }
}

fn checked_name(what: &str, name: &str) -> Result<(), Problem> {
    if (1..=NAME_LEN_MAX).contains(&name.chars().count()) {
        return Ok(());
    }
    let what = format!("{what} is not a name of 1 to {NAME_LEN_MAX} characters");
    Err(Problem::new(StatusCode::BAD_REQUEST, what))
}

/// Returns the parameters of a query. Each may be given at most once, and must not be empty.
pub(crate) fn queried<const N: usize>(
    query: &str,
    names: [&str; N],
) -> Result<[Option<String>; N], Problem> {
    let values =
        parameters(query, names).map_err(|what| Problem::new(StatusCode::BAD_REQUEST, what))?;
    for (name, value) in names.iter().zip(&values) {
        if let Some(value) = value {
            checked_name(name, value)?;
        }
    }
    Ok(values)
}

pub(crate) fn json(value: &impl Serialize) -> Reply {
    // These are texts, numbers and lists of them, all of which can be written.
    let text = serde_json::to_string(value).unwrap_or_default() + "\n";
    let mut reply = Response::new(Full::new(text.into()));
    let kind = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    finished(reply)
}

/// Adds the headers of every reply: it must not be cached, and its type must not be guessed.
pub(crate) fn finished(mut reply: Reply) -> Reply {
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let options = HeaderName::from_static("x-content-type-options");
    headers.insert(options, HeaderValue::from_static("nosniff"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Kind;
    use crate::resources::kind;
    use std::collections::BTreeSet;

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let description: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        assert_eq!(description["openapi"], "3.1.0");
        assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
        let mut described = BTreeSet::new();
        for (path, methods) in description["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                described.insert((method.to_uppercase(), path.clone()));
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                let named = operation["parameters"].as_array();
                let has = |what: &str| {
                    named.is_some_and(|all| {
                        all.iter()
                            .any(|one| one["$ref"].as_str().is_some_and(|it| it.ends_with(what)))
                    })
                };
                let is_change = kind(&method, path) == Kind::ApiChange;
                assert_eq!(has("/KeywayChange"), is_change, "{method} {path}");
                let is_probe = kind(&method, path) == Kind::Probe;
                assert_eq!(operation["security"].is_array(), is_probe, "{method} {path}");
                let replies = operation["responses"].as_object().unwrap();
                assert_eq!(replies.contains_key("401"), !is_probe, "{method} {path}");
                assert!(replies.contains_key("403"), "{method} {path}");
            }
        }
        let there: BTreeSet<_> =
            ROUTES.iter().map(|(method, path, _)| (method.to_string(), path.to_string())).collect();
        assert_eq!(described, there);
    }
}
