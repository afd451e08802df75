use crate::Upstream;
use crate::core::Core;
use keyway_base::Time;
use std::time::Duration;

/// What a worker holds at one moment, for tests that hold it to its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Clients connected.
    pub sessions: usize,
    /// Clients that hold buffers.
    pub sessions_busy: usize,
    /// Most requests of one client in flight.
    pub session_in_flight_max: usize,
    /// Most bytes of one client that were received and not parsed.
    pub session_input_max: usize,
    /// Most bytes of one client that wait to be sent.
    pub session_output_max: usize,
    /// Bytes that wait for clients that have taken nothing of large replies for long, without the
    /// window of each.
    pub stalled_output: usize,
    /// Requests in flight on all links.
    pub in_flight: usize,
    /// Most requests in flight on one link.
    pub link_in_flight_max: usize,
    /// Most bytes of one link that wait to be sent.
    pub link_output_max: usize,
    /// Most bytes of one link that are part of a reply.
    pub link_input_max: usize,
    /// Requests that take several exchanges.
    pub operations: usize,
    /// Reads that two servers were sent, of which neither has answered.
    pub hedges: usize,
    /// Sessions of sub-requests.
    pub sub_requests: usize,
    /// Links that one client at a time has for itself, in use or idle.
    pub private_links: usize,
    /// Of these, the ones in use.
    pub leases: usize,
    /// Names that clients subscribe to or wait to, and subscriptions at servers.
    pub subscriptions: usize,
    /// Connections to servers for subscriptions.
    pub subscriber_links: usize,
    /// Clients with links of their own, as they are tracked.
    pub tracked: usize,
    /// How far past its deadline the most overdue link is.
    pub overdue: Duration,
}

impl Core {
    /// What the worker holds, as of `now`.
    pub fn figures(&self, now: Time) -> Figures {
        let mut figures = Figures {
            sessions: self.sessions.len(),
            operations: self.plane.pending.operations(),
            hedges: self.hedges(),
            sub_requests: self.plane.routes.sub_requests(),
            private_links: self.private_links(),
            leases: self.leases(),
            subscriptions: self.plane.servers.pubsub.subscriptions(),
            subscriber_links: self.plane.servers.pubsub.connections(),
            tracked: self.plane.servers.tracking.tracked_len(),
            ..Figures::default()
        };
        for (_, session) in self.sessions.iter() {
            let Some(busy) = &session.busy else { continue };
            figures.sessions_busy += 1;
            raise(&mut figures.session_in_flight_max, busy.order.len());
            raise(&mut figures.session_input_max, busy.unparsed().len());
            raise(&mut figures.session_output_max, busy.undelivered());
            figures.stalled_output += self.stalled_output(session, now);
        }
        for connection in self.links.iter() {
            let link = &connection.link;
            figures.in_flight += link.in_flight();
            raise(&mut figures.link_in_flight_max, link.in_flight());
            raise(&mut figures.link_output_max, link.unsent_len());
            raise(&mut figures.link_input_max, link.input_len());
            let Some(Upstream { options, .. }) =
                self.plane.plan.pools[usize::from(connection.server_id.pool)].kind.upstream()
            else {
                continue;
            };
            let overdue = link.deadline(options).map_or(Duration::ZERO, |due| now.since(due));
            figures.overdue = figures.overdue.max(overdue);
        }
        figures
    }
}

fn raise(most: &mut usize, value: usize) {
    *most = (*most).max(value);
}
