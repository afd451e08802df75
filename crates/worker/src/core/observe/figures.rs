use crate::Upstream;
use crate::core::Core;
use keyway_base::Time;
use std::time::Duration;

/// The amounts that a worker holds at one time, for tests that check its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of connected clients.
    pub sessions: usize,
    /// Number of clients that hold buffers.
    pub sessions_busy: usize,
    /// Largest number of requests of one client in flight.
    pub session_in_flight_max: usize,
    /// Largest number of bytes of one client that were received and not parsed.
    pub session_input_max: usize,
    /// Largest number of bytes of one client that wait to be sent.
    pub session_output_max: usize,
    /// Number of bytes that wait for clients that have taken nothing of large replies for long,
    /// without the window of each.
    pub stalled_output: usize,
    /// Number of requests in flight on all links.
    pub in_flight: usize,
    /// Largest number of requests in flight on one link.
    pub link_in_flight_max: usize,
    /// Largest number of bytes of one link that wait to be sent.
    pub link_output_max: usize,
    /// Largest number of bytes of one link that are part of a reply.
    pub link_input_max: usize,
    /// Number of requests that take several exchanges.
    pub operations: usize,
    /// Number of reads that were sent to two servers, of which neither has answered.
    pub hedges: usize,
    /// Number of sessions of sub-requests.
    pub sub_requests: usize,
    /// Number of links that only one client at a time uses, in use or idle.
    pub private_links: usize,
    /// Number of those that are in use.
    pub leases: usize,
    /// Number of names to which clients subscribe or wait to, and of subscriptions at servers.
    pub subscriptions: usize,
    /// Number of connections to servers for subscriptions.
    pub subscriber_links: usize,
    /// Number of clients with links of their own, because they are tracked.
    pub tracked: usize,
    /// How far the most overdue link is past its deadline.
    pub overdue: Duration,
}

impl Core {
    /// Returns what the worker holds, as of `now`.
    pub fn figures(&self, now: Time) -> Figures {
        let mut figures = Figures {
            sessions: self.sessions.len(),
            operations: self.plane.pending.operations(),
            hedges: self.plane.cluster.hedges(),
            sub_requests: self.plane.routes.sub_requests(),
            private_links: self.private_links(),
            leases: self.leases(),
            subscriptions: self.plane.pubsub.subscriptions(),
            subscriber_links: self.plane.pubsub.connections(),
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
