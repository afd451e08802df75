//! The commands of client-side caching, as far as servers and the store handle them alike.

use crate::core::Plane;
use crate::core::request::{RequestContext, Step};
use keyway_command::Verb;
use keyway_proxy::tracking::{self, Change};
use keyway_resp::reply;

impl Plane {
    /// Answers a command about tracking that changes nothing, or only concerns the next request.
    /// Returns `None` for `CLIENT TRACKING` itself.
    pub(in crate::core) fn answer_tracking(
        &mut self,
        incoming: &mut RequestContext,
    ) -> Option<Step> {
        let protocol = incoming.session.identity.protocol;
        match incoming.request.command.verb {
            Verb::ClientTracking => return None,
            Verb::ClientCaching => {
                let tracking = incoming.session.tracking.as_deref_mut();
                match tracking::caching(&incoming.request.args, tracking) {
                    Ok(()) => self.answer_locally(incoming, |out| reply::simple(out, "OK")),
                    Err(text) => {
                        self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
                    }
                }
            }
            verb => {
                let mut out = Vec::new();
                let tracking = incoming.session.tracking.as_deref();
                match verb {
                    Verb::ClientGetredir => tracking::write_redirection(tracking, &mut out),
                    _ => tracking::write_info(tracking, protocol, &mut out),
                }
                self.answer_locally(incoming, |dest| dest.extend_from_slice(&out));
            }
        }
        Some(Step::Started)
    }

    /// Returns the tracking that `CLIENT TRACKING` asks for, or `None` if the command was refused.
    pub(in crate::core) fn read_tracking(
        &mut self,
        incoming: &mut RequestContext,
    ) -> Option<Change> {
        let pool = incoming.session.pool;
        let clients = &self.plan.clients;
        let current = incoming.session.tracking.as_deref();
        let exists = |id| clients.is_of_pool(id, pool);
        match tracking::parse(&incoming.request.args, current, exists) {
            Ok(change) => Some(change),
            Err(text) => {
                self.refuse(incoming.session, incoming.busy, |out| reply::error(out, &text));
                None
            }
        }
    }
}
