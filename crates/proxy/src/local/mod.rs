//! Commands that Keyway answers itself: about the connection, about Keyway, about the commands.
//!
//! [`answer`] depends only on the request, the client's [`Identity`] and [`Facts`]. Texts and
//! shapes of replies are those of redis-server 7.0 in the client's protocol. A client sees and
//! closes only clients of its own pool: another pool may have another password.

mod acl;
mod auth;
#[cfg(test)]
mod bench;
mod client;
mod client_entry;
mod client_filter;
mod cluster;
mod command_info;
mod config;
mod hello;
mod hotkeys;
mod info;
#[cfg(test)]
mod invariants;
mod latency;
mod memory;
mod misc;
mod pause;
mod registry;
mod slowlog;
mod wait;

pub use acl::refuse_denied;
pub use auth::credentials;
pub use client_entry::{ClientEntry, TrackingEntry};
pub use cluster::{DISABLED as NO_CLUSTER, EmulatedCluster, is_about_cluster};
pub use registry::ClientRegistry;
pub use wait::wait_refusal;

use crate::hot_keys::KeyStats;
use crate::{Identity, SlowLog};
use keyway_base::Clock;
use keyway_command::{Request, Verb};
use keyway_metrics::MemcachedTotals;
use keyway_resp::reply;
use keyway_users::Users;
use std::time::Duration;

/// The context that a local command may read besides the session.
pub struct LocalContext<'a> {
    /// The client that asks. Some commands change it.
    pub identity: &'a mut Identity,
    /// Both clocks, read once a turn.
    pub clock: Clock,
    /// The users of the client's listener.
    pub users: &'a Users,
    /// Databases that a client may select: `0..databases`.
    pub databases: u32,
    /// Every client of the process, of all workers.
    pub clients: &'a ClientRegistry,
    /// Facts about the process and its pools.
    pub facts: &'a dyn Facts,
    /// Index of the client's pool.
    pub pool: u16,
    /// Number of undelivered bytes above which the client would be disconnected. No reply may be
    /// longer.
    pub reply_len_max: usize,
    /// The cluster that clients of this listener see, if any.
    pub cluster: Option<&'a EmulatedCluster>,
}

/// The facts that the process knows about itself. The binary provides them.
pub trait Facts: Send + Sync {
    /// Appends the requested `INFO` sections (`default`, `all`, `everything` or names such as
    /// `server`, in any case), as lines of `field:value\r\n` under `# Section` heads. `is_cluster`
    /// is set for clients that see a cluster.
    fn info(&self, pool: u16, is_cluster: bool, sections: &[&str], out: &mut String);
    /// Returns the mean time of a server's replies so far, in microseconds, or `None` before the
    /// first one.
    fn backend_latency_micros(&self, _pool: u16, _backend: usize) -> Option<f64> {
        None
    }
    /// Returns how long requests of each class of commands took, over all workers.
    fn latencies(&self, _pool: u16) -> Vec<ClassLatencies> {
        Vec::new()
    }
    /// Notes the figures for the last seconds. It must be called about twice a second, with the
    /// time since the previous call.
    fn observe(&self, _elapsed: Duration) {}
    /// Returns the totals of the requests of memcached clients on a store.
    fn memcached_totals(&self, _pool: u16) -> MemcachedTotals {
        MemcachedTotals::default()
    }
    /// Resets the counters of `INFO` for a pool.
    fn reset(&self, _pool: u16) {}
    /// Returns the slow requests of a pool, if it logs them.
    fn slow_log(&self, _pool: u16) -> Option<&SlowLog> {
        None
    }
    /// Returns the conspicuous keys of a pool.
    fn key_stats(&self, _pool: u16) -> Option<&KeyStats> {
        None
    }
    /// Returns the names and values that `CONFIG GET` may show, in Redis's words.
    fn settings(&self, pool: u16) -> Vec<(&'static str, String)>;
}

/// The latencies of requests of one class of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassLatencies {
    /// The class, as in metrics.
    pub class: &'static str,
    /// Number of requests whose latency was measured.
    pub requests: u64,
    /// Ascending limits in microseconds, each with the number of requests that did not take longer.
    pub at_or_below_micros: Vec<(u64, u64)>,
}

/// The action of the worker after the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing more.
    Continue,
    /// Close the connection when the reply was sent (`QUIT`).
    Close,
    /// Close these clients, which `CLIENT KILL` has found. The caller itself is closed only after
    /// its reply.
    Kill(Vec<u64>),
    /// End the blocking command of this client.
    Unblock(Unblock),
    /// Hold back requests of the pool's clients.
    Pause {
        /// The duration in milliseconds.
        millis: u64,
        /// True if only commands that write are held back.
        writes_only: bool,
    },
    /// Hold back no requests any more.
    Unpause,
}

/// The early end of a blocking command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unblock {
    /// The client that waits.
    pub id: u64,
    /// The reason, which also decides the reply.
    pub reason: UnblockReason,
}

/// Why a blocking command is ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnblockReason {
    /// `CLIENT UNBLOCK id TIMEOUT`: it is answered as if its time were up.
    Timeout,
    /// `CLIENT UNBLOCK id ERROR`: it is answered with an error.
    Error,
    /// Other servers of the pool are in use, and its keys are on another one.
    Displaced,
    /// Its user may no longer do everything that it could when it asked.
    Denied,
    /// The process, or the client's listener, is to end.
    Stopping,
}

impl UnblockReason {
    /// Returns the client's error in place of the server's, if there is one.
    pub fn text(self) -> Option<&'static str> {
        match self {
            UnblockReason::Timeout | UnblockReason::Error => None,
            UnblockReason::Displaced => Some(
                "UNBLOCKED a server left the pool or came back, and the keys of this command live \
                 elsewhere now; ask again",
            ),
            UnblockReason::Denied => {
                Some("UNBLOCKED the rights of this user have changed; ask again")
            }
            UnblockReason::Stopping => Some(
                "UNBLOCKED Keyway is stopping, or listens there no more; connect again and ask again",
            ),
        }
    }

    /// Appends the reply to a command that waits at no server. `write_timeout` appends the reply
    /// for a timeout.
    pub fn write_end(self, out: &mut Vec<u8>, write_timeout: impl FnOnce(&mut Vec<u8>)) {
        match self.text() {
            Some(text) => reply::error(out, text),
            None if self == UnblockReason::Timeout => write_timeout(out),
            None => reply::error(out, "UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        }
    }
}

/// The version of Redis whose behaviour is reproduced. Clients compare it when they ask for a
/// version.
pub const REDIS_VERSION: &str = "7.0.15";

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// Appends the error for a subcommand that takes fewer arguments.
fn refuse_length(request: &Request, out: &mut Vec<u8>) {
    let args = &request.args;
    let subcommand = String::from_utf8_lossy(&args[1]);
    let command = String::from_utf8_lossy(&args[0]).to_uppercase();
    let text = format!(
        "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try {command} \
         HELP."
    );
    reply::error(out, &text);
}

/// Appends the reply to a request whose handling is local. Only `CLIENT REPLY OFF` and `SKIP` have
/// none: they leave `out` unchanged.
///
/// A command that is not local is answered with an error.
pub fn answer(request: &Request, context: &mut LocalContext, out: &mut Vec<u8>) -> After {
    let args = &request.args;
    match request.command.verb {
        Verb::ClientUnblock | Verb::ClientPause if args.len() > 4 => refuse_length(request, out),
        Verb::SlowlogGet if args.len() > 3 => refuse_length(request, out),
        Verb::Quit => {
            reply::simple(out, "OK");
            return After::Close;
        }
        Verb::ClientKill => return client::kill(args, context, out),
        Verb::ClientUnblock => return client::unblock(args, context, out),
        Verb::ClientPause => return pause::pause(args, out),
        Verb::ClientUnpause => return pause::unpause(out),
        Verb::AclCat
        | Verb::AclDryrun
        | Verb::AclGetuser
        | Verb::AclList
        | Verb::AclLog
        | Verb::AclUsers
        | Verb::AclWhoami => acl::answer(request, context, out),
        Verb::Auth => auth::auth(args, context, out),
        Verb::Hello => hello::hello(args, context, out),
        Verb::Reset => hello::reset(context, out),
        Verb::Ping => misc::ping(args, out),
        Verb::Echo => reply::bulk(out, &args[1]),
        Verb::Select => misc::select(args, context, out),
        Verb::Time => misc::time(context.clock, out),
        // The worker that shows requests starts to.
        Verb::Monitor => reply::simple(out, "OK"),
        Verb::Wait => wait::wait(args, out),
        Verb::Info => info::info(args, context, out),
        Verb::ConfigGet => config::get(args, context, out),
        Verb::ConfigResetstat => config::reset(context, out),
        Verb::ClientId
        | Verb::ClientGetname
        | Verb::ClientSetname
        | Verb::ClientSetinfo
        | Verb::ClientInfo
        | Verb::ClientList
        | Verb::ClientNoEvict
        | Verb::ClientNoTouch
        | Verb::ClientReply => client::answer(request, context, out),
        Verb::LatencyDoctor
        | Verb::LatencyGraph
        | Verb::LatencyHistogram
        | Verb::LatencyHistory
        | Verb::LatencyLatest
        | Verb::LatencyReset => latency::answer(request, context, out),
        Verb::SlowlogGet | Verb::SlowlogLen | Verb::SlowlogReset => {
            slowlog::answer(request, context, out)
        }
        Verb::Hotkeys => hotkeys::answer(request, context, out),
        Verb::MemoryDoctor | Verb::MemoryMallocStats | Verb::MemoryPurge | Verb::MemoryStats => {
            memory::answer(request, context, out)
        }
        verb if is_about_cluster(verb) => cluster::answer(request, context, out),
        Verb::AclHelp
        | Verb::ClientHelp
        | Verb::ConfigHelp
        | Verb::FunctionHelp
        | Verb::LatencyHelp
        | Verb::MemoryHelp
        | Verb::ObjectHelp
        | Verb::PubsubHelp
        | Verb::ScriptHelp
        | Verb::SlowlogHelp
        | Verb::XgroupHelp
        | Verb::XinfoHelp => misc::help(request, out),
        Verb::Command
        | Verb::CommandCount
        | Verb::CommandDocs
        | Verb::CommandGetkeys
        | Verb::CommandGetkeysandflags
        | Verb::CommandHelp
        | Verb::CommandInfo
        | Verb::CommandList => command_info::reply(args, context.identity.protocol, out),
        _ => misc::refuse(request, out),
    }
    After::Continue
}
