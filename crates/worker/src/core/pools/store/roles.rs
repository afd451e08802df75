//! REPLICAOF and ROLE on the embedded store.
//!
//! A change of the role ends the thread that follows a primary, which may take a moment. The
//! client waits for it as for a snapshot; other clients are served meanwhile.

use crate::core::Plane;
use crate::core::pools::store::state::StorePool;
use crate::core::request::{RequestContext, Step};
use crate::handouts::Handout;
use crate::replication::{ReplicaFigures, RoleReply, Wish};
use keyway_command::Verb;
use keyway_proxy::Share;
use keyway_resp::reply;
use keyway_store::Who;
use std::sync::Arc;

/// The reply to a client of a pool without a role.
const NO_ROLE: &str = "ERR this pool cannot be a replica";

impl Plane {
    /// Starts a command about the role of a store.
    #[cold]
    pub(in crate::core) fn serve_role(
        &mut self,
        StorePool { pool, store }: StorePool<'_>,
        incoming: &mut RequestContext,
    ) -> Step {
        let Some(role) = pool.role.get() else {
            self.refuse(incoming.session, incoming.busy, |out| reply::error(out, NO_ROLE));
            return Step::Started;
        };
        if incoming.request.command.verb == Verb::Role {
            let figures = role.figures();
            self.answer_locally(incoming, |out| write_role(figures.as_ref(), out));
            return Step::Started;
        }
        if !incoming.busy.order.is_empty() {
            incoming.session.fence();
            return Step::Wait;
        }
        let args = &incoming.request.args;
        let wish = match wish_of(&args[1], &args[2]) {
            Ok(wish) => wish,
            Err(text) => {
                self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
                return Step::Started;
            }
        };
        let mut share = Share::new(&self.plan.transactions);
        if let Some(text) = self.refusal_to_wait(incoming, &mut share) {
            self.refuse(incoming.session, incoming.busy, |out| reply::error(out, &text));
            return Step::Started;
        }
        let (client, worker) = (incoming.session.identity.id, self.worker());
        let who = Who { client, worker, is_noloop: false };
        let waiter = store.wait_apart(incoming.request, self.context_of(incoming), who);
        self.begin_to_wait(incoming, Arc::clone(&waiter), 0, share);
        let (plan, store) = (Arc::clone(&self.plan), Arc::clone(store));
        let done = move |outcome: RoleReply| {
            if !store.cancel(&waiter) {
                return;
            }
            let mut reply = Vec::new();
            match outcome {
                Ok(text) => reply::simple(&mut reply, text),
                Err(text) => reply::error(&mut reply, &text),
            }
            if plan.handouts.post(worker, Handout { client, reply }) {
                plan.post_published(worker);
            }
        };
        role.change(wish, Box::new(done));
        Step::Started
    }
}

/// Appends the reply to ROLE.
fn write_role(replica: Option<&ReplicaFigures>, out: &mut Vec<u8>) {
    let Some(replica) = replica else {
        reply::array(out, 3);
        reply::bulk(out, b"master");
        reply::integer(out, 0);
        return reply::array(out, 0);
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
