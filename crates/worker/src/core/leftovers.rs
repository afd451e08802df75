use super::Core;

/// Counts of what a worker holds for its clients, by kind. All are zero once every client has left
/// and the requests of these clients have had their time. Any other value is a leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Sessions of clients.
    pub sessions: usize,
    /// Sockets of clients, with or without a session.
    pub sockets: usize,
    /// Entries of sessions in the worker's own lists: to be read, sent, parsed or ended.
    pub listed: usize,
    /// Sessions of sub-requests, and entries of their paths.
    pub sub_requests: usize,
    /// Bytes counted for routed requests and copies.
    pub routed_request_bytes: usize,
    /// Questions of routed requests that are still to be asked, and clients that wait for room.
    pub routed_requests_queued: usize,
    /// Requests on links whose reply a client waits for.
    pub exchanges: usize,
    /// Sessions in the waiting lists of links.
    pub link_waiters: usize,
    /// Private links leased to a session.
    pub leases: usize,
    /// Commands on private links that must be ended.
    pub unblocks: usize,
    /// Requests that take several exchanges.
    pub operations: usize,
    /// Items that are being copied from one pool to another, and requests that wait to copy more.
    pub item_copies: usize,
    /// Next steps that are due for them, and conclusions from their replies.
    pub operations_due: usize,
    /// Reads that were sent to two servers.
    pub hedges: usize,
    /// Requests that a cluster redirects, and sessions that wait for its map.
    pub cluster: usize,
    /// Sessions that a pause holds back, or whose login is being verified.
    pub held_back: usize,
    /// Large values that are streamed to clients.
    pub streamed_replies: usize,
    /// Slow requests whose reply has not reached the client.
    pub unwritten: usize,
    /// Subscribed names, and connections for them.
    pub subscriptions: usize,
    /// Clients that block on a store.
    pub blocked: usize,
    /// Clients that cache, and messages for them.
    pub tracked: usize,
    /// Clients in MONITOR.
    pub monitors: usize,
    /// Large values of which a store has a part.
    pub partial_sets: usize,
}

impl Leftovers {
    /// Returns whether nothing is left.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Core {
    /// Counts what is left of clients, except for their sockets.
    pub(crate) fn leftovers(&self) -> Leftovers {
        let plane = &self.plane;
        let links = || self.links.iter();
        let takes_large =
            links().filter(|connection| connection.takes_large && !connection.is_free);
        Leftovers {
            sessions: self.sessions.len() - plane.routes.sub_requests(),
            sockets: 0,
            listed: plane.clients.dirty.len()
                + plane.clients.resuming.len()
                + plane.clients.kills.len(),
            sub_requests: plane.routes.sub_requests(),
            routed_request_bytes: plane.routes.held(),
            routed_requests_queued: plane.routes.queued(),
            exchanges: links().map(|connection| connection.link.owned()).sum(),
            link_waiters: links().map(|connection| connection.waiting.len()).sum(),
            leases: self.leases(),
            unblocks: plane.clients.unblocks.len() + plane.upstream.unblocking.len(),
            operations: plane.pending.operations(),
            item_copies: plane.memcached.item_copies(),
            operations_due: plane.pending.due(),
            hedges: self.plane.cluster.hedges(),
            cluster: plane.cluster.held(),
            held_back: plane.clients.held_back.len() + plane.clients.logins.len(),
            streamed_replies: plane.upstream.streamed_replies.len() + takes_large.count(),
            unwritten: plane.observe.unwritten.len(),
            subscriptions: plane.pubsub.subscriptions()
                + plane.pubsub.waiting()
                + plane.pubsub.connections(),
            blocked: plane.store.blocking.len(),
            tracked: plane.servers.tracking.tracked_len()
                + plane.servers.tracking.untold()
                + plane.store.tracking.len()
                + plane.store.introduced.len(),
            monitors: plane.observe.monitoring.len(),
            partial_sets: plane.upstream.partial_sets.len(),
        }
    }
}
