//! Client-side caching: invalidations for clients that track keys at servers.
//!
//! ```text
//!  session ──requests──► its own link to each server ──► server
//!     ▲                      │ invalidations          (CLIENT TRACKING ON)
//!     └── replies, pushes ◄──┘
//! ```
//! A tracked client of a sharded pool has links of its own. The same tracking is switched on there
//! after the handshake. So the servers know which keys it has read, and every mode is as exact as
//! theirs. The servers cannot know that a link was lost, or that keys belong to other servers now.
//! Then the client is told to forget everything.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `links` | the links: when they are made, established, lost and given up |
//! | `tell` | the invalidations, and the replies that they follow |

mod links;
pub(in crate::core) mod state;
mod tell;

pub(in crate::core) use links::lose_watch_on;
pub(crate) use state::State;

use crate::PoolPlan;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::{ConnectionKey, Connections, Plane};
use keyway_command::{Handling, Request, Verb};
use keyway_proxy::tracking::{Change, Tracking};
use keyway_proxy::{Busy, Session};
use keyway_resp::{Protocol, reply};
use keyway_topology::ServerSet;

/// Number of unsent bytes on a link of one session above which none of its requests is started.
/// With more, each tracked client could hold as much for each server. With less, a pipeline of
/// medium values would stop.
const UNSENT_MAX: usize = 256 << 10;

impl Plane {
    /// Publishes a session's tracking in the registry of clients.
    fn set_tracking(&mut self, session: &mut Session, tracking: Option<Box<Tracking>>) {
        self.plan.clients.set_tracking(session.identity.id, tracking.as_deref());
        session.tracking = tracking;
    }

    /// Starts a command about tracking for a client of a sharded pool. A command that changes its
    /// links waits until every earlier reply has arrived.
    #[cold]
    pub(in crate::core) fn track(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Step {
        if let Some(step) = self.answer_tracking(incoming) {
            return step;
        }
        let pool = usize::from(incoming.session.pool);
        if self.pools[pool].found().is_some() {
            let kind = self.plan.pools[pool].kind.name();
            let text = format!(
                "ERR client-side caching is not for pools of kind \"{kind}\" yet: use a pool of \
                 kind \"sharded\" or \"store\""
            );
            return self.refuse_request(incoming, &text);
        }
        if !incoming.session.is_quiet(incoming.busy) {
            incoming.session.fence();
            return Step::Wait;
        }
        match self.read_tracking(incoming) {
            Some(Change::On(tracking)) => self.begin_tracking(links, incoming, tracking),
            Some(Change::Off) => {
                self.end_tracking(links, incoming.key, incoming.session);
                self.answer_locally(incoming, |out| reply::simple(out, "OK"));
            }
            None => {}
        }
        Step::Started
    }

    /// Starts a request of a tracked client on its own links, after the `CLIENT CACHING` that
    /// concerns it.
    pub(in crate::core) fn dispatch_tracked(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        sharded: &ServerSet,
        incoming: &mut RequestContext,
    ) -> Step {
        let (session, request) = (&*incoming.session, incoming.request);
        let word = match is_about_client(request) {
            true => None,
            false => session.tracking.as_ref().and_then(|tracking| tracking.caching_word()),
        };
        let tracked = session.tracking.as_ref().and_then(|tracking| tracking.links.as_ref());
        let own: &[ConnectionKey] = tracked.map_or(&[], |tracked| &tracked.links);
        if let Some(&full) = own.iter().find(|&&one| links[one].link.unsent_len() > UNSENT_MAX) {
            return Step::Full(full);
        }
        let Some(word) = word else {
            let step = self.send_on_own(links, pool, sharded, incoming);
            note_fragments(incoming.session, incoming.busy, request);
            return step;
        };
        let own = own.to_vec();
        let before: Vec<usize> = own.iter().map(|&index| links[index].link.in_flight()).collect();
        self.servers.tracking.caching = Some(word);
        let step = self.send_on_own(links, pool, sharded, incoming);
        self.servers.tracking.caching = None;
        if !matches!(step, Step::Started) {
            return step;
        }
        for (&index, before) in own.iter().zip(before) {
            if links[index].link.in_flight() > before {
                links[index].link.precede_last(&caching_request(word));
            }
        }
        forget_caching(incoming.session);
        note_fragments(incoming.session, incoming.busy, request);
        step
    }

    fn send_on_own(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        sharded: &ServerSet,
        incoming: &mut RequestContext,
    ) -> Step {
        match self.dispatch_stateful(links, incoming) {
            Some(step) => step,
            None => self.send_on::<true>(links, pool, sharded, incoming),
        }
    }

    /// Ends the tracking that a session had with its last protocol, and begins it anew. If there is
    /// no room, the client is closed, because it relies on invalidations.
    pub(super) fn change_tracking(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) {
        let Some(tracking) = incoming.session.tracking.take() else { return };
        let is_reset = incoming.request.command.verb == Verb::Reset;
        incoming.session.tracking = Some(tracking.clone());
        self.end_tracking(links, incoming.key, incoming.session);
        if is_reset {
            return;
        }
        if !self.has_own(self.links_needed(incoming.session, &tracking)) {
            let text = "ERR too many clients are tracked, watch keys or wait in blocking commands: \
                        tracking has ended with its protocol, and so does this connection";
            incoming.session.closing = true;
            return self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
        }
        self.resume_tracking(links, incoming, tracking);
        self.renew_links(incoming);
    }
}

/// Returns the `CLIENT CACHING` request that precedes another.
pub(in crate::core) fn caching_request(word: &str) -> Vec<u8> {
    let mut out = Vec::new();
    reply::array(&mut out, 3);
    for part in ["CLIENT", "CACHING", word] {
        reply::bulk(&mut out, part.as_bytes());
    }
    out
}

/// Ends the effect of `CLIENT CACHING`, which concerns one request or one transaction.
pub(in crate::core) fn forget_caching(session: &mut Session) {
    let is_open = session.stateful.as_ref().is_some_and(|it| it.transaction.is_some());
    if let (false, Some(tracking)) = (is_open, &mut session.tracking) {
        tracking.caching = false;
    }
}

/// Returns whether a request is a subcommand of CLIENT, which `CLIENT CACHING` outlives.
fn is_about_client(request: &Request) -> bool {
    request.command.name.starts_with("client")
}

/// Notes that a reply in fragments is due, which no push may overtake.
fn note_fragments(session: &mut Session, busy: &Busy, request: &Request) {
    if let (Handling::Split(_), Some(tracking)) = (request.command.handling, &mut session.tracking)
    {
        tracking.held.note_fragments(busy.order.next_index());
    }
}

/// Returns whether a tracked session's invalidations can be sent. Those of a client with RESP2 must
/// be redirected to another connection.
fn hears(tracking: &Tracking, protocol: Protocol) -> bool {
    protocol == Protocol::Resp3 || tracking.redirect.is_some()
}

#[cfg(test)]
mod invariants;
