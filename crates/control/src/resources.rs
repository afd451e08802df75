//! The resources of the API: their methods and paths, and the right that each of them needs.

use crate::access::{Kind, Need};
use crate::members::OfMembers;
use hyper::Method;

/// Something that requests ask for or change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Health,
    Ready,
    Status,
    Pools,
    Servers,
    Eject,
    Restore,
    Connections,
    SlowLog,
    HotKeys,
    Config,
    ReadLogLevel,
    SetLogLevel,
    Drain,
    Reload,
    Upgrade,
    KillScript,
    Fleet,
    ReadDocument,
    ApplyDocument,
    Documents,
    ReadRollout,
    SteerRollout,
    Proxies,
    OfMembers(OfMembers),
    Groups,
    FailOver,
    Slots,
    MoveSlots,
    Forget,
    Audit,
    Events,
    Description,
}

impl Resource {
    /// Returns the right that a request for it needs. A resource that needs [`Need::Pools`] checks
    /// the pools itself, by [`Call::check_pool`] or by what a document changes.
    fn need(self) -> Need {
        match self {
            Self::Health | Self::Ready => Need::Nothing,
            Self::Status
            | Self::Pools
            | Self::Servers
            | Self::Connections
            | Self::SlowLog
            | Self::HotKeys
            | Self::Config
            | Self::ReadLogLevel
            | Self::Fleet
            | Self::ReadDocument
            | Self::Documents
            | Self::ReadRollout
            | Self::Proxies
            | Self::Groups
            | Self::Slots
            | Self::Audit
            | Self::Events
            | Self::Description => Need::Read,
            Self::Eject
            | Self::Restore
            | Self::KillScript
            | Self::ApplyDocument
            | Self::SteerRollout
            | Self::FailOver
            | Self::MoveSlots => Need::Pools,
            Self::Forget | Self::SetLogLevel | Self::Drain | Self::Reload | Self::Upgrade => {
                Need::Admin
            }
            Self::OfMembers(which) => which.need(),
        }
    }

    /// Returns whether a control node answers for it, in whatever process it runs.
    pub(crate) fn is_of_fleet(self) -> bool {
        matches!(
            self,
            Self::Fleet
                | Self::ReadDocument
                | Self::ApplyDocument
                | Self::Documents
                | Self::ReadRollout
                | Self::SteerRollout
                | Self::Proxies
                | Self::OfMembers(_)
                | Self::Groups
                | Self::FailOver
                | Self::Slots
                | Self::MoveSlots
                | Self::Forget
                | Self::Audit
                | Self::Events
        )
    }

    /// Returns the path of the same for all members of a fleet, if there is one.
    pub(crate) fn path_of_members(self) -> Option<String> {
        let of_process = ROUTES.iter().find(|(.., resource)| *resource == self)?.1;
        let path = of_process.replacen("/v1/", "/v1/fleet/", 1);
        ROUTES.iter().any(|(_, known, _)| *known == path).then_some(path)
    }
}

/// Every resource, with its method and path.
pub(crate) const ROUTES: [(Method, &str, Resource); 47] = [
    (Method::GET, "/v1/health", Resource::Health),
    (Method::GET, "/v1/ready", Resource::Ready),
    (Method::GET, "/v1/status", Resource::Status),
    (Method::GET, "/v1/pools", Resource::Pools),
    (Method::GET, "/v1/servers", Resource::Servers),
    (Method::POST, "/v1/servers/eject", Resource::Eject),
    (Method::POST, "/v1/servers/restore", Resource::Restore),
    (Method::GET, "/v1/connections", Resource::Connections),
    (Method::GET, "/v1/slow-log", Resource::SlowLog),
    (Method::GET, "/v1/hot-keys", Resource::HotKeys),
    (Method::GET, "/v1/config", Resource::Config),
    (Method::GET, "/v1/log-level", Resource::ReadLogLevel),
    (Method::PUT, "/v1/log-level", Resource::SetLogLevel),
    (Method::POST, "/v1/drain", Resource::Drain),
    (Method::POST, "/v1/reload", Resource::Reload),
    (Method::POST, "/v1/upgrade", Resource::Upgrade),
    (Method::POST, "/v1/scripts/kill", Resource::KillScript),
    (Method::GET, "/v1/fleet", Resource::Fleet),
    (Method::GET, "/v1/fleet/document", Resource::ReadDocument),
    (Method::POST, "/v1/fleet/document", Resource::ApplyDocument),
    (Method::GET, "/v1/fleet/documents", Resource::Documents),
    (Method::GET, ROLLOUT, Resource::ReadRollout),
    (Method::POST, ROLLOUT, Resource::SteerRollout),
    (Method::GET, "/v1/fleet/proxies", Resource::Proxies),
    (Method::GET, "/v1/fleet/status", Resource::OfMembers(OfMembers::Status)),
    (Method::GET, "/v1/fleet/pools", Resource::OfMembers(OfMembers::Pools)),
    (Method::GET, "/v1/fleet/servers", Resource::OfMembers(OfMembers::Servers)),
    (Method::POST, "/v1/fleet/servers/eject", Resource::OfMembers(OfMembers::ChangeOfPool)),
    (Method::POST, "/v1/fleet/servers/restore", Resource::OfMembers(OfMembers::ChangeOfPool)),
    (Method::GET, "/v1/fleet/connections", Resource::OfMembers(OfMembers::Connections)),
    (Method::GET, "/v1/fleet/slow-log", Resource::OfMembers(OfMembers::SlowLog)),
    (Method::GET, "/v1/fleet/hot-keys", Resource::OfMembers(OfMembers::HotKeys)),
    (Method::GET, "/v1/fleet/config", Resource::OfMembers(OfMembers::Config)),
    (Method::PUT, "/v1/fleet/log-level", Resource::OfMembers(OfMembers::Change)),
    (Method::POST, "/v1/fleet/drain", Resource::OfMembers(OfMembers::NamedChange)),
    (Method::POST, "/v1/fleet/reload", Resource::OfMembers(OfMembers::Change)),
    (Method::POST, "/v1/fleet/upgrade", Resource::OfMembers(OfMembers::NamedChange)),
    (Method::POST, "/v1/fleet/scripts/kill", Resource::OfMembers(OfMembers::ChangeOfPool)),
    (Method::GET, "/v1/fleet/page", Resource::OfMembers(OfMembers::Page)),
    (Method::GET, "/v1/fleet/groups", Resource::Groups),
    (Method::POST, FAILOVER, Resource::FailOver),
    (Method::GET, SLOTS, Resource::Slots),
    (Method::POST, SLOTS, Resource::MoveSlots),
    (Method::POST, "/v1/fleet/forget", Resource::Forget),
    (Method::GET, "/v1/fleet/audit", Resource::Audit),
    (Method::GET, EVENTS, Resource::Events),
    (Method::GET, "/v1/openapi.json", Resource::Description),
];

/// Returns every method and path of the API.
pub(crate) fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|(method, path, _)| (method.as_str(), *path))
}

/// Returns whether a path is one of the API's.
pub(crate) fn is_ours(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/")
}

/// Returns the kind of an API request, for the access rules.
pub(crate) fn kind(method: &Method, path: &str) -> Kind {
    let asked = if method == Method::HEAD { &Method::GET } else { method };
    let is_there = ROUTES.iter().any(|(known, there, _)| known == asked && *there == path);
    match (asked == Method::GET, path) {
        (true, "/v1/health" | "/v1/ready") => Kind::Probe,
        (false, _) if is_there => Kind::ApiChange,
        // If there is no such change, the reply says so.
        _ => Kind::ApiRead,
    }
}

/// Returns the right that an API request needs. A path that is not there needs what a read needs.
pub(crate) fn need(method: &Method, path: &str) -> Need {
    let asked = if method == Method::HEAD { &Method::GET } else { method };
    let there = ROUTES.iter().find(|(known, there, _)| known == asked && *there == path);
    there.map_or(Need::Read, |(.., resource)| resource.need())
}

/// Returns whether an answer may take seconds: a reload waits for every worker, an upgrade for a
/// reload before it, and what is of members for the slowest of them.
pub(crate) fn takes_long(method: &Method, path: &str) -> bool {
    is_of_members(path)
        || method == Method::POST
            && matches!(path, "/v1/reload" | "/v1/upgrade" | DOCUMENT | ROLLOUT | FAILOVER | SLOTS)
}

/// Returns whether members answer a request, which changes nothing.
pub(crate) fn reads_members(method: &Method, path: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && is_of_members(path)
}

fn is_of_members(path: &str) -> bool {
    ROUTES
        .iter()
        .any(|(_, known, resource)| *known == path && matches!(resource, Resource::OfMembers(_)))
}

/// Returns whether what has this path takes parameters.
pub(crate) fn takes_query(path: &str) -> bool {
    matches!(path, "/v1/servers" | "/v1/connections" | "/v1/slow-log" | "/v1/hot-keys")
}

const DOCUMENT: &str = "/v1/fleet/document";

const ROLLOUT: &str = "/v1/fleet/rollout";

const FAILOVER: &str = "/v1/fleet/groups/failover";

const SLOTS: &str = "/v1/fleet/slots";

/// The path of the fleet's events, whose answer may wait for the next one.
pub(crate) const EVENTS: &str = "/v1/fleet/events";

/// Longest body of a request with a document, in bytes: each of its bytes may take two in JSON.
const DOCUMENT_BODY_LEN_MAX: usize = 2 * keyway_fleet::limits::DOCUMENT_LEN_MAX + 1024;

/// Returns the longest body of a request that has more than others.
pub(crate) fn body_len_max(method: &Method, path: &str) -> Option<usize> {
    (method == Method::POST && path == DOCUMENT).then_some(DOCUMENT_BODY_LEN_MAX)
}
