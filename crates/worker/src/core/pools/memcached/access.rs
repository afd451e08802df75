//! The rights of a memcached client, by the Redis commands that correspond to its requests.

use super::admission::credentials;
use crate::core::Connections;
use crate::core::Plane;
use crate::core::pools::memcached::state::Call;
use crate::core::request::{ClientMut, Step};
use keyway_command::Verb as Command;
use keyway_memcache::{Head, Request, Verb};
use keyway_proxy::Session;
use keyway_users::{Access, User};
use std::sync::Arc;

const READS: Access = Access { reads: true, writes: false };
const WRITES: Access = Access { reads: false, writes: true };
const BOTH: Access = Access { reads: true, writes: true };
const NEITHER: Access = Access { reads: false, writes: false };

/// Returns the Redis command whose rights decide, and the access to the keys. Returns `None` for
/// requests about the connection alone, which any client may make.
fn asked_by(head: &Head) -> Option<(Command, Access)> {
    use Verb::*;
    Some(match head.verb {
        // A miss creates an item.
        Get if head.vivify.is_some() => (Command::Getset, BOTH),
        Get | Debug => (Command::Get, READS),
        GetTouch => (Command::Getex, BOTH),
        Set | Replace | Cas => (Command::Set, WRITES),
        Add => (Command::Setnx, WRITES),
        Append | Prepend => (Command::Append, WRITES),
        Delete => (Command::Del, WRITES),
        Incr => (Command::Incrby, BOTH),
        Decr => (Command::Decrby, BOTH),
        Touch => (Command::Expire, WRITES),
        FlushAll => (Command::Flushall, NEITHER),
        Stats => (Command::Info, NEITHER),
        CacheMemlimit | Shutdown | Admin => (Command::Shutdown, NEITHER),
        Version | Verbosity | Quit | Noop | SaslList | SaslStart | SaslStep => return None,
    })
}

/// Returns whether a client may make a request with keys that was started. A refused request is not
/// counted.
#[cold]
pub(in crate::core) fn was_let(session: &Session, request: &Request, bytes: &[u8]) -> bool {
    let identity = &session.identity;
    let may = |user: &Arc<User>| match asked_by(&request.head) {
        None => false,
        Some((command, access)) => user.judge_keys(command, request.keys(bytes), access).is_ok(),
    };
    identity.authenticated && (identity.is_free || identity.user.as_ref().is_none_or(may))
}

impl Plane {
    /// Checks a request of a client with limited rights, by the head `judged`. Returns `None` if
    /// the client may make it.
    #[inline(never)]
    pub(super) fn look_at_memcached(
        &mut self,
        links: &Connections,
        call: &mut Call<'_>,
        judged: &Head,
    ) -> Option<Step> {
        let users = &self.plan.listeners[usize::from(call.session.listener)].users;
        let are_slow = users.are_slow();
        if are_slow {
            let credentials = credentials(call);
            if self.awaits_login(call.client(), credentials) {
                return Some(Step::Wait);
            }
        }
        if !call.session.identity.authenticated {
            self.admit_memcached(call);
            return Some(Step::Started);
        }
        let is_login = matches!(judged.verb, Verb::SaslStart | Verb::SaslStep);
        if !is_login
            && let Some(step) = self.bring_to_its_pool(
                links,
                ClientMut { key: call.key, session: call.session },
                call.busy,
            )
        {
            return Some(step);
        }
        let user = call.session.identity.user.as_ref()?;
        let (command, access) = asked_by(judged)?;
        let request = call.request;
        let is_one = request.keys.len() == 1 && access != NEITHER;
        if is_one && user.may_use(command, request.key(call.bytes, 0), access) {
            return None;
        }
        let keys = match access {
            NEITHER => 0,
            _ => request.keys.len(),
        };
        let keys = request.keys(call.bytes).take(keys);
        let text = match user.judge_keys(command, keys, access) {
            Ok(()) => return None,
            Err(keyway_users::Denied::Command) => {
                "NOPERM this user has no permissions to run this command"
            }
            Err(_) => "NOPERM this user has no permissions to access one of the keys",
        };
        self.count_memcached(call);
        self.deny_memcached(call, text);
        Some(Step::Started)
    }
}
