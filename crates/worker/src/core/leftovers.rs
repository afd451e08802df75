use super::Core;

/// What a worker holds of its clients, by kind. All of it is zero once every client has left and
/// what they had asked for has had its time: anything else is a leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Sessions of clients.
    pub sessions: usize,
    /// Sockets of clients, of sessions or not.
    pub sockets: usize,
    /// Places of sessions in the worker's own lists: to be read, sent, parsed or ended.
    pub listed: usize,
    /// Sessions of relays, and places of their paths.
    pub relays: usize,
    /// Requests that led on to other pools.
    pub trips: usize,
    /// Bytes counted for these and for copies.
    pub trip_bytes: usize,
    /// What is still to be asked for them, and clients that wait for room.
    pub trips_queued: usize,
    /// Requests on links that somebody waits for.
    pub exchanges: usize,
    /// Sessions in the waiting lists of links.
    pub link_waiters: usize,
    /// Private links that a session has.
    pub leases: usize,
    /// Commands on private links that are to be ended.
    pub unblocks: usize,
    /// Split requests.
    pub joins: usize,
    /// Requests of clients of memcached that are answered by more than a server's bytes.
    pub gathers: usize,
    /// Requests for which items are brought over, and items on their way.
    pub warmings: usize,
    /// Requests in several steps, and what is due for these or for joins.
    pub errands: usize,
    /// Reads that two servers were sent.
    pub hedges: usize,
    /// Requests that a cluster sends elsewhere, and sessions that wait for its map.
    pub cluster: usize,
    /// Sessions that a pause holds back, or whose login is looked at.
    pub held_back: usize,
    /// Large values that pass as they come.
    pub passing: usize,
    /// Slow requests whose reply is not with its client.
    pub unwritten: usize,
    /// Names subscribed to, and connections for them.
    pub subscriptions: usize,
    /// Clients that wait on a store.
    pub blocked: usize,
    /// Clients that cache, and what they are to be told.
    pub tracked: usize,
    /// Clients that watch requests.
    pub monitors: usize,
}

impl Leftovers {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Core {
    /// What is left of clients, but for their sockets.
    pub(crate) fn leftovers(&self) -> Leftovers {
        let plane = &self.plane;
        let links = || self.links.iter();
        let takes_large = links().filter(|slot| slot.takes_large && !slot.is_free);
        Leftovers {
            sessions: self.sessions.len() - plane.routes.relays(),
            sockets: 0,
            listed: plane.dirty_sessions.len() + plane.resumes.len() + plane.kills.len(),
            relays: plane.routes.relays(),
            trips: plane.routes.trips() - plane.routes.relays(),
            trip_bytes: plane.routes.held(),
            trips_queued: plane.routes.queued(),
            exchanges: links().map(|slot| slot.link.owned()).sum(),
            link_waiters: links().map(|slot| slot.waiting.len()).sum(),
            leases: self.leases(),
            unblocks: plane.unblocks.len() + plane.unblocking.len(),
            joins: plane.joins.len(),
            gathers: plane.memcached.gathers(),
            warmings: plane.memcached.warmings(),
            errands: plane.across.len(),
            hedges: self.hedges(),
            cluster: plane.cluster.held(),
            held_back: plane.held_back.len() + plane.logins.len(),
            passing: plane.passing.len() + takes_large.count(),
            unwritten: plane.unwritten.len(),
            subscriptions: plane.pubsub.subscriptions()
                + plane.pubsub.waiting()
                + plane.pubsub.connections(),
            blocked: plane.store_blocking.len(),
            tracked: plane.tracking.tracked_len()
                + plane.tracking.untold()
                + plane.store_tracking.len(),
            monitors: plane.monitoring.len(),
        }
    }
}
