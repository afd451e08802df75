//! The members of a fleet as one process: a control node passes a request on to them, and makes one
//! reply of their answers.
//!
//! ```text
//!   GET /v1/fleet/pools?zone=1 ──► Selection ──► FleetApi::pass_on ──► GET /v1/pools of each member
//!        one reply ◄── sums ◄── answers, and the members that have not answered ◄──┘
//! ```
//! A request below `/v1/fleet` has the path and the parameters that it has at a member, and two
//! parameters more: `members` and `zone` select. What a member answers is read as JSON from a
//! stranger: every field may be missing.

mod sums;

use crate::access::{Caller, Need};
use crate::api::{self, Call, Reply, json};
use crate::fleet::FleetApi;
use crate::fleet_api::refused;
use crate::problem::Problem;
use crate::resources::{self, takes_query};
use crate::routes;
use crate::state::AdminState;
use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use keyway_users::Operator;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Longest answer of a member, in bytes. The metrics of a process with 100 servers take 1 MiB.
pub const ANSWER_LEN_MAX: usize = 4 << 20;

/// Longest answers of members that are awaited at a time, in bytes. Those that come later are left out.
pub const ANSWERS_LEN_MAX: usize = 64 << 20;

/// Most members that a request names.
const NAMED_MAX: usize = 256;

/// Pages of a member that a control node shows as they are: those that viewers read.
const PAGES: [&str; 4] = ["/metrics", "/backends", "/readyz", "/v1/hot-keys"];

/// First word of the command of the bus that has a request.
const COMMAND: &[u8] = b"admin";

/// A request of the admin listener, as it goes to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedRequest {
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its query; empty without one.
    pub query: String,
    /// Its body, in JSON; empty without one.
    pub body: Vec<u8>,
    /// The operator that asks, and the address that it asks from, for the log of the member.
    pub by: String,
}

impl PassedRequest {
    /// Returns the words of the command of the bus.
    pub fn encode(&self) -> [&[u8]; 6] {
        let Self { method, path, query, body, by } = self;
        [COMMAND, method.as_bytes(), path.as_bytes(), query.as_bytes(), body, by.as_bytes()]
    }

    /// Reads a command of the bus. Returns `None` if it is another one.
    pub fn decode(words: Vec<Vec<u8>>) -> Option<PassedRequest> {
        let [name, method, path, query, body, by] = <[Vec<u8>; 6]>::try_from(words).ok()?;
        let text = |word| String::from_utf8(word).ok();
        if name != COMMAND {
            return None;
        }
        let (method, path, query) = (text(method)?, text(path)?, text(query)?);
        Some(Self { method, path, query, body, by: text(by)? })
    }

    /// Returns whether it may change something.
    pub fn is_change(&self) -> bool {
        self.method != "GET"
    }
}

/// The answer of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberReply {
    /// Its HTTP status.
    pub status: u16,
    /// The type of its body.
    pub content_type: String,
    /// Its body, of at most [`ANSWER_LEN_MAX`] bytes.
    pub body: Vec<u8>,
}

impl MemberReply {
    /// Returns the items of a result of the bus.
    pub fn encode(self) -> [Vec<u8>; 3] {
        [self.status.to_string().into_bytes(), self.content_type.into_bytes(), self.body]
    }

    /// Reads a result of the bus.
    pub fn decode(items: Vec<Vec<u8>>) -> Option<MemberReply> {
        let [status, content_type, body] = <[Vec<u8>; 3]>::try_from(items).ok()?;
        let status = String::from_utf8(status).ok()?.parse().ok()?;
        let is_status = (200..600).contains(&status) && body.len() <= ANSWER_LEN_MAX;
        let content_type = String::from_utf8(content_type).ok()?;
        is_status.then_some(Self { status, content_type, body })
    }
}

/// A member, and its answer or the reason why there is none.
#[derive(Clone, Debug)]
pub struct MemberAnswer {
    /// Its id.
    pub id: String,
    /// Its zone.
    pub zone: u64,
    /// Its answer.
    pub outcome: Result<MemberReply, String>,
}

/// The members that a request is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The ids of members; empty for all.
    pub ids: Vec<String>,
    /// The zone; `None` for all.
    pub zone: Option<u64>,
}

/// A resource that members answer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfMembers {
    Status,
    Pools,
    Servers,
    Connections,
    SlowLog,
    HotKeys,
    Config,
    /// A page of one member as it is: for viewers that read pages.
    Page,
    /// A change of a pool, at each of them.
    ChangeOfPool,
    /// A change of each process.
    Change,
    /// A change that nobody wants at all of them by mistake.
    NamedChange,
}

impl OfMembers {
    /// Returns the right that a request needs: that of the same request to one process.
    pub(crate) fn need(self) -> Need {
        match self {
            OfMembers::ChangeOfPool => Need::Pools,
            OfMembers::Change | OfMembers::NamedChange => Need::Admin,
            _ => Need::Read,
        }
    }
}

/// Answers a request that came to this process from a control node, which has checked the rights of
/// whoever asks there.
pub fn answer_passed(state: &dyn AdminState, request: &PassedRequest) -> MemberReply {
    let Ok(method) = Method::from_bytes(request.method.as_bytes()) else {
        return read_reply(refusal(StatusCode::METHOD_NOT_ALLOWED, "no such method"));
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let (path, query) = (request.path.as_str(), request.query.as_str());
    let caller = &Caller { operator: Operator::admin(), address: String::new() };
    let call =
        Call { method: &method, path, query, headers: &headers, body: &request.body, caller };
    read_reply(match resources::is_ours(path) {
        // A control node does not ask another one in the name of a third.
        true if path.starts_with("/v1/fleet") => refusal(StatusCode::NOT_FOUND, "ask control"),
        true => api::respond(state, &call),
        false if method == Method::GET => routes::page(state, path),
        false => refusal(StatusCode::METHOD_NOT_ALLOWED, "a page is read by GET"),
    })
}

fn refusal(status: StatusCode, what: &str) -> Reply {
    api::refuse(&Problem::new(status, what))
}

/// Reads a reply that is whole already.
fn read_reply(reply: Reply) -> MemberReply {
    let (head, body) = reply.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut bytes = Bytes::new();
    let frame = pin!(body).poll_frame(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(Some(Ok(frame))) = frame {
        bytes = frame.into_data().unwrap_or_default();
    }
    if bytes.len() > ANSWER_LEN_MAX {
        let what = format!("the answer has {} bytes: ask for less", bytes.len());
        return read_reply(refusal(StatusCode::PAYLOAD_TOO_LARGE, &what));
    }
    MemberReply {
        status: head.status.as_u16(),
        content_type: content_type.unwrap_or_default().to_owned(),
        body: bytes.to_vec(),
    }
}

/// Answers for the members that a request selects.
pub(crate) fn answer(
    fleet: &dyn FleetApi,
    resource: OfMembers,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let Asked { selection, is_named, query, page } = Asked::read(call.query)?;
    let of_member = call.path.strip_prefix("/v1/fleet").unwrap_or_default();
    let path = match (resource, page) {
        (OfMembers::Page, Some(page)) if PAGES.contains(&page.as_str()) => page,
        (OfMembers::Page, _) => {
            return Err(wrong(&format!("name the page as `page`: {}", PAGES.join(", "))));
        }
        (_, Some(_)) => return Err(wrong("there is no parameter `page`")),
        _ => format!("/v1{of_member}"),
    };
    if resource == OfMembers::NamedChange && !is_named {
        let what = "name the members: members=ID,ID or members=all, or zone=NUMBER";
        return Err(wrong(what));
    }
    if !query.is_empty() && !takes_query(&path) {
        return Err(wrong("there are no parameters but `members` and `zone`"));
    }
    let method = call.method.as_str().replace("HEAD", "GET");
    let by = format!("{} at {}", call.caller.operator.name(), call.caller.address);
    let request = PassedRequest { method, path, query, body: call.body.to_vec(), by };
    if resource == OfMembers::Page {
        return one_page(fleet, &selection, &request, call.caller);
    }
    if request.is_change() {
        api::check_body(&request.path, call)?;
    }
    let has_limit =
        matches!(resource, OfMembers::Connections | OfMembers::SlowLog | OfMembers::HotKeys);
    let (_, limit) = api::pool_and_limit(if has_limit { &request.query } else { "" })?;
    if resource == OfMembers::Servers {
        let [_pool] = api::queried(&request.query, ["pool"])?;
    }
    let answers = fleet.pass_on(&selection, &request, call.caller).map_err(refused)?;
    let whole = match resource {
        OfMembers::Status => sums::status(&answers),
        OfMembers::Pools => sums::pools(&answers),
        OfMembers::Servers => sums::servers(&answers),
        OfMembers::Connections => sums::connections(&answers, limit),
        OfMembers::SlowLog => sums::slow_log(&answers, limit),
        OfMembers::HotKeys => sums::hot_keys(&answers, limit),
        OfMembers::Config => sums::each(&answers),
        OfMembers::Page | OfMembers::ChangeOfPool | OfMembers::Change | OfMembers::NamedChange => {
            let changed = sums::changed(&answers);
            let mut reply = json(&changed);
            if changed["failed"] != 0 {
                *reply.status_mut() = StatusCode::MULTI_STATUS;
            }
            return Ok(reply);
        }
    };
    // A member that refuses what is asked, as a pool that it does not know, says why in its place.
    Ok(json(&whole))
}

fn wrong(what: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, what)
}

/// Answers with the page of one member, as it came.
fn one_page(
    fleet: &dyn FleetApi,
    selection: &Selection,
    request: &PassedRequest,
    by: &Caller,
) -> Result<Reply, Problem> {
    if selection.ids.len() != 1 || selection.zone.is_some() {
        return Err(wrong("name one member: members=ID"));
    }
    let mut answers = fleet.pass_on(selection, request, by).map_err(refused)?;
    let answer = answers.pop().ok_or_else(|| wrong("name one member: members=ID"))?;
    let reply = answer.outcome.map_err(|why| {
        Problem::new(StatusCode::BAD_GATEWAY, format!("{} has not answered: {why}", answer.id))
    })?;
    let mut page = Response::new(Full::new(reply.body.into()));
    *page.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::BAD_GATEWAY);
    // The member's content type becomes a header here. An invalid one is left out.
    if let Ok(kind) = HeaderValue::from_str(&reply.content_type) {
        page.headers_mut().insert(CONTENT_TYPE, kind);
    }
    Ok(api::finished(page))
}

/// The parameters of a request, apart from each other.
struct Asked {
    selection: Selection,
    /// True if the request says which members, all of them or some.
    is_named: bool,
    /// The parameters for the member.
    query: String,
    page: Option<String>,
}

impl Asked {
    fn read(query: &str) -> Result<Asked, Problem> {
        let (mut ids, mut zone, mut page) = (None, None, None);
        let mut left = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let is_twice = match &*name {
                "members" => ids.replace(members(&value)?).is_some(),
                "zone" => {
                    let number = value.parse().map_err(|_| wrong("zone is not a number"))?;
                    zone.replace(number).is_some()
                }
                "page" => page.replace(value.into_owned()).is_some(),
                _ => {
                    left.append_pair(&name, &value);
                    false
                }
            };
            if is_twice {
                return Err(wrong(&format!("`{name}` is given twice")));
            }
        }
        let is_named = ids.is_some() || zone.is_some();
        let selection = Selection { ids: ids.unwrap_or_default(), zone };
        Ok(Asked { selection, is_named, query: left.finish(), page })
    }
}

/// Reads the names of members; none for `all`.
fn members(text: &str) -> Result<Vec<String>, Problem> {
    if text == "all" {
        return Ok(Vec::new());
    }
    let ids: Vec<String> = text.split(',').map(|id| id.trim().to_owned()).collect();
    if ids.len() > NAMED_MAX || ids.iter().any(String::is_empty) {
        let what = format!("members is `all`, or at most {NAMED_MAX} ids with commas between");
        return Err(wrong(&what));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_taken_apart() {
        let asked = Asked::read("pool=a%26b&members=z1.p.0.1,z1.p.0.2&limit=5").ok().unwrap();
        let ids = vec!["z1.p.0.1".to_owned(), "z1.p.0.2".to_owned()];
        assert_eq!(asked.selection, Selection { ids, zone: None });
        assert_eq!(asked.query, "pool=a%26b&limit=5");
        let all = Asked::read("members=all").ok().unwrap();
        assert!(all.is_named && all.selection.ids.is_empty(), "all of them are named");
        assert!(!Asked::read("limit=5").ok().unwrap().is_named);
        assert_eq!(Asked::read("zone=3").ok().unwrap().selection.zone, Some(3));
        for query in ["members=", "members=a,,b", "zone=x", "zone=-1", "members=a&members=b"] {
            assert!(Asked::read(query).is_err(), "{query}");
        }
    }

    #[test]
    fn requests_and_replies_go_over_the_bus_whole() {
        let request = PassedRequest {
            method: "POST".into(),
            path: "/v1/reload".into(),
            query: "a=b".into(),
            body: b"{}".to_vec(),
            by: "ann at 127.0.0.1:1".into(),
        };
        let words = request.encode().map(<[u8]>::to_vec).to_vec();
        assert_eq!(PassedRequest::decode(words.clone()), Some(request));
        assert_eq!(PassedRequest::decode(words[..5].to_vec()), None);
        let reply =
            MemberReply { status: 404, content_type: "text/plain".into(), body: b"no".to_vec() };
        assert_eq!(MemberReply::decode(reply.clone().encode().to_vec()), Some(reply));
        for status in ["", "99", "600", "-1", "2000000"] {
            let items = vec![status.into(), b"text/plain".to_vec(), Vec::new()];
            assert_eq!(MemberReply::decode(items), None, "{status}");
        }
    }
}
