//! The role of the embedded store: REPLICAOF and ROLE, and the way to what is about its replicas.
//!
//! A change of the role ends the thread that follows a primary, which may take a moment. The
//! client waits for it as for a snapshot; other clients are served meanwhile. In a transaction, as
//! sentinels send it, the change is only begun.

use crate::PoolPlan;
use crate::core::Plane;
use crate::core::pools::store::feeding::{wait_of, write_role_reply};
use crate::core::pools::store::state::StorePool;
use crate::core::request::{RequestContext, Step};
use crate::replication::{FeedFigures, ReplicaFigures, Wish};
use keyway_command::{Request, Verb};
use keyway_resp::reply;

/// The reply to a client of a pool without a role.
const NO_ROLE: &str = "ERR this pool cannot be a replica";

impl Plane {
    /// Starts a command about the role of a store.
    #[cold]
    pub(super) fn serve_role(&mut self, of: StorePool<'_>, incoming: &mut RequestContext) -> Step {
        let Some(role) = of.pool.role.get() else {
            self.refuse(incoming.session, incoming.busy, |out| reply::error(out, NO_ROLE));
            return Step::Started;
        };
        match incoming.request.command.verb {
            Verb::Role | Verb::ConfigRewrite => {
                let request = incoming.request;
                self.answer_locally(incoming, |out| write_at_once(of.pool, request, out));
                return Step::Started;
            }
            Verb::Replconf => return self.introduce(incoming),
            _ => {}
        }
        if !incoming.busy.order.is_empty() {
            incoming.session.fence();
            return Step::Wait;
        }
        match incoming.request.command.verb {
            Verb::Psync | Verb::Sync => return self.begin_feeding(of, incoming),
            Verb::Wait => return self.wait_for_replicas(of, &*role, incoming),
            Verb::Failover => return self.begin_failover(of, &*role, incoming),
            _ => {}
        }
        let args = &incoming.request.args;
        let wish = match wish_of(&args[1], &args[2]) {
            Ok(wish) => wish,
            Err(text) => {
                self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
                return Step::Started;
            }
        };
        if let Some(waiter) = self.begin_to_wait_apart(of, incoming) {
            role.change(wish, self.answering(of, waiter, write_role_reply));
        }
        Step::Started
    }
}

/// Appends the reply to a command about the role that is served at once, as in a transaction.
pub(super) fn write_at_once(pool: &PoolPlan, request: &Request<'_>, out: &mut Vec<u8>) {
    let Some(role) = pool.role.get() else { return reply::error(out, NO_ROLE) };
    let args = &request.args;
    match request.command.verb {
        Verb::Role => write_role(role.figures().as_ref(), &role.feed(), out),
        // The file of a Keyway is its operator's. Sentinels repeat the role after a restart.
        Verb::ConfigRewrite => reply::simple(out, "OK"),
        Verb::Wait => match wait_of(args) {
            Ok(_) => reply::integer(out, role.acknowledged() as i64),
            Err(text) => reply::error(out, text),
        },
        _ => match wish_of(&args[1], &args[2]) {
            Ok(wish) => {
                role.change(wish, Box::new(|_| ()));
                reply::simple(out, "OK");
            }
            Err(text) => reply::error(out, text),
        },
    }
}

/// Returns whether [`write_at_once`] serves a command in a transaction.
pub(super) fn is_served_at_once(verb: Verb) -> bool {
    use Verb::{ConfigRewrite, Replicaof, Role, Slaveof, Wait};
    matches!(verb, ConfigRewrite | Replicaof | Role | Slaveof | Wait)
}

/// Appends the reply to ROLE.
fn write_role(replica: Option<&ReplicaFigures>, feed: &FeedFigures, out: &mut Vec<u8>) {
    let Some(replica) = replica else {
        reply::array(out, 3);
        reply::bulk(out, b"master");
        reply::integer(out, i64::try_from(feed.offset).unwrap_or(i64::MAX));
        let online = || feed.replicas.iter().filter(|it| it.is_online());
        reply::array(out, online().count());
        for replica in online() {
            reply::array(out, 3);
            reply::bulk(out, replica.address.as_bytes());
            reply::bulk(out, replica.port.to_string().as_bytes());
            reply::bulk(out, replica.offset.to_string().as_bytes());
        }
        return;
    };
    reply::array(out, 5);
    reply::bulk(out, b"slave");
    reply::bulk(out, replica.host.as_bytes());
    reply::integer(out, replica.port.into());
    reply::bulk(out, replica.state.as_bytes());
    // As Redis, which knows the offset of a link, and none without one.
    let is_linked = replica.is_up() && replica.id.is_some();
    let offset = i64::try_from(replica.offset).ok().filter(|_| is_linked);
    reply::integer(out, offset.unwrap_or(-1));
}

fn wish_of(host: &[u8], port: &[u8]) -> Result<Wish, &'static str> {
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        return Ok(Wish::Primary);
    }
    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok());
    let port = port.filter(|port| *port > 0).ok_or("ERR Invalid master port")?;
    let host = std::str::from_utf8(host).map_err(|_| "ERR Invalid master host")?;
    Ok(Wish::ReplicaOf { host: host.to_owned(), port })
}
