//! Client-side caching: who is told which keys have changed.
//!
//! A client of the embedded store is told by the store; one of a sharded pool by
//! the servers, see `links`.

use super::input::Step;
use super::stateful::Asked;
use super::{LinkSlot, Plane};
use keyway_command::Verb;
use keyway_proxy::tracking::{self, Change, Tracking};
use keyway_resp::reply;

impl Plane {
    /// Answers a command about tracking that changes nothing, or only what is
    /// said of the next request; `None` for `CLIENT TRACKING` itself.
    pub(super) fn answer_tracking(&mut self, asked: &mut Asked) -> Option<Step> {
        let protocol = asked.session.identity.protocol;
        match asked.request.command.verb {
            Verb::ClientTracking => return None,
            Verb::ClientCaching => {
                let tracking = asked.session.tracking.as_deref_mut();
                match tracking::caching(&asked.request.args, tracking) {
                    Ok(()) => self.answer_locally(asked, |out| reply::simple(out, "OK")),
                    Err(text) => self.refuse(asked.session, asked.busy, |out| {
                        reply::error(out, text);
                    }),
                }
            }
            verb => {
                let mut out = Vec::new();
                let tracking = asked.session.tracking.as_deref();
                match verb {
                    Verb::ClientGetredir => tracking::write_redirection(tracking, &mut out),
                    _ => tracking::write_info(tracking, protocol, &mut out),
                }
                self.answer_locally(asked, |dest| dest.extend_from_slice(&out));
            }
        }
        Some(Step::Started)
    }

    /// What `CLIENT TRACKING` asks for; `None` when it was refused.
    pub(super) fn read_tracking(&mut self, asked: &mut Asked) -> Option<Change> {
        let pool = asked.session.pool;
        let clients = &self.plan.clients;
        let current = asked.session.tracking.as_deref();
        let exists = |id| clients.is_of_pool(id, pool);
        match tracking::parse(&asked.request.args, current, exists) {
            Ok(change) => Some(change),
            Err(text) => {
                self.refuse(asked.session, asked.busy, |out| reply::error(out, &text));
                None
            }
        }
    }

    /// Notes what a session is told of from now on, for others to see.
    pub(super) fn set_tracking(&mut self, asked: &mut Asked, tracking: Option<Box<Tracking>>) {
        self.plan.clients.set_tracking(asked.session.identity.id, tracking.as_deref());
        asked.session.tracking = tracking;
    }

    /// Starts a command about tracking for a client of a sharded pool.
    #[cold]
    pub(super) fn track(&mut self, _links: &mut Vec<LinkSlot>, asked: &mut Asked) -> Step {
        if let Some(step) = self.answer_tracking(asked) {
            return step;
        }
        match self.read_tracking(asked) {
            Some(Change::On(tracking)) => self.set_tracking(asked, Some(tracking)),
            Some(Change::Off) => self.set_tracking(asked, None),
            None => return Step::Started,
        }
        self.answer_locally(asked, |out| reply::simple(out, "OK"));
        Step::Started
    }
}
