//! The admin listener: metrics, health, readiness and the list of backends for people and scrapers,
//! and the API for programs under `/v1` ([`Api`]), over HTTP. A control node has two things more: the
//! fleet in its API ([`FleetApi`]), and the thread that speaks to the coordinator ([`Seat`]).
//!
//! The crate has async runtimes, each on a thread of its own. It never reaches into the
//! data plane: everything it knows and may do is behind [`AdminState`]. A client, however slow,
//! silent or wild, costs no more than [`AdminLimits`] says and never disturbs a worker.
//!
//! Read first: [`AdminState`], [`Admin::start`] and [`AdminHandle`].

#![forbid(unsafe_code)]

mod access;
mod admin;
mod api;
mod backends;
mod events;
mod fleet;
mod fleet_api;
mod groups;
mod key_stats;
mod limits;
mod members;
mod places;
mod problem;
mod process;
mod query;
mod resources;
mod routes;
mod seat;
mod secured;
mod slots;
mod state;

pub use access::{Access, CHANGE_HEADER, Caller, Credential};
pub use admin::{Admin, AdminError, AdminHandle, AdminOptions};
pub use api::OPENAPI;
pub use backends::{AWAY, BackendRoleStatus, BackendStatus, PoolStatus, utc};
pub use events::{EventLog, EventStatus};
pub use fleet::{
    AppliedStatus, ApplyOrder, ApplyRefusal, Content, DocumentStatus, FleetApi, FleetStatus,
    LeaderStatus, MemberState, MemberStatus, RolloutAction, RolloutAsk, RolloutPhase,
    RolloutStatus, ServingStatus, TallyStatus,
};
pub use groups::{FailoverOrder, GroupServerStatus, GroupStatus};
pub use key_stats::{BigKeyStatus, HotKeyList, HotKeyStatus, KeyStatsList, KeyStatsOfPool};
pub use limits::AdminLimits;
pub use members::{
    ANSWER_LEN_MAX, ANSWERS_LEN_MAX, MemberAnswer, MemberReply, PassedRequest, Selection,
    answer_passed,
};
pub use process::{
    AfterDrain, Api, ClientStatus, Connections, EffectiveConfig, LogLevel, ProcessStatus, Reloaded,
    SlowRequest, UpgradeState, UpgradeStatus,
};
pub use routes::MEMBERS_READ_MAX;
pub use seat::{Engine, Seat, Told};
pub use slots::{PlanProgress, PlanStatus, SlotsAction, SlotsAsk, SlotsOfGroup, SlotsStatus};
pub use state::{AdminState, NotedRequest, ScriptKill};
