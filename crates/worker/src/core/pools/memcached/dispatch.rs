//! Sends a request of a memcached client to its store or to its servers.

use crate::core::clients::WaitOn;
use crate::core::pools::cluster::FENCE_LOOK;
use crate::core::pools::memcached::state::Call;
use crate::core::pools::memcached::state::PoolServers;
use crate::core::pools::memcached::state::writes;
use crate::core::pools::store::state::StorePool;
use crate::core::request::PoolInPlan;
use crate::core::request::{ClientMut, ClientRef, Step};
use crate::core::{Connections, Plane};
use crate::{MemcachedPlan, PoolKind, PoolPlan, ShardedPlan};
use keyway_base::Fault;
use keyway_memcache::{Asker, ErrorKind, Outcome, write_reply};

impl Plane {
    /// Starts one request.
    #[inline]
    pub(super) fn dispatch_memcached(
        &mut self,
        links: &mut Connections,
        PoolInPlan { plan, pool }: PoolInPlan<'_>,
        call: &mut Call<'_>,
    ) -> Step {
        let request = call.request;
        if !call.session.identity.is_free
            && let Some(step) = self.look_at_memcached(links, call, &request.head)
        {
            return step;
        }
        self.start_memcached(links, PoolInPlan { plan, pool }, call)
    }

    /// Starts a request that the client may make.
    #[inline]
    pub(super) fn start_memcached(
        &mut self,
        links: &mut Connections,
        PoolInPlan { plan, pool }: PoolInPlan<'_>,
        call: &mut Call<'_>,
    ) -> Step {
        if !pool.pause.is_unused() && self.holds_back_memcached(pool, call) {
            return Step::Wait;
        }
        self.batch += 1;
        if let Some(step) = self.answer_memcached_locally(pool, call) {
            return step;
        }
        if let PoolKind::Routed(routes) = &pool.kind {
            return self.route_memcached(links, plan, pool, routes, call);
        }
        self.dispatch_to(links, pool, call)
    }

    /// Starts a request to a store or to servers.
    #[inline]
    pub(super) fn dispatch_to(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        call: &mut Call<'_>,
    ) -> Step {
        let (upstream, memcached) = match &pool.kind {
            PoolKind::Store(store) => return self.serve_memcached(StorePool { pool, store }, call),
            PoolKind::Sharded(ShardedPlan { upstream, .. }) | PoolKind::Sentinels(upstream) => {
                (upstream, None)
            }
            PoolKind::Memcached(plan) => (&plan.upstream, Some(plan)),
            PoolKind::Cluster(plan) | PoolKind::Replicated(plan) | PoolKind::Slots(plan) => {
                if self.awaits_map_for(call.client()) {
                    return Step::Wait;
                }
                (&plan.upstream, None)
            }
            // Pools that lead to others were followed to their ends.
            PoolKind::Routed(_) => return self.tell_unrouted(pool, call),
        };
        let Some(shared) = self.pools[usize::from(call.session.pool)].shared() else {
            return self.tell_unrouted(pool, call);
        };
        let at = PoolServers { pool, servers: &upstream.servers, shared };
        match memcached {
            None => self.send_to_redis(links, at, call),
            Some(MemcachedPlan { dialect, warm_up: Some(warm_up), .. }) => {
                self.warm_memcached(links, at, warm_up, *dialect, call)
            }
            Some(MemcachedPlan { dialect, .. }) => self.send_memcached(links, at, *dialect, call),
        }
    }

    /// Returns whether a pause of the pool holds a request back. The session is then resumed at its
    /// end.
    #[cold]
    fn holds_back_memcached(&mut self, pool: &PoolPlan, call: &mut Call<'_>) -> bool {
        self.commit_shown();
        self.holds_back_led_memcached(pool, call)
    }

    /// Does the same for a pool to which other pools led the request.
    #[cold]
    pub(super) fn holds_back_led_memcached(
        &mut self,
        pool: &PoolPlan,
        call: &mut Call<'_>,
    ) -> bool {
        let verb = call.request.head.verb;
        let held = pool.pause.holds_plain(writes(verb), self.clock.now);
        let held = held
            .filter(|_| !self.spares_keys(pool, call.session.pool, call.request.keys(call.bytes)));
        let held = held.or_else(|| {
            let keys = call.request.keys(call.bytes);
            let is_fenced = self.is_fenced_for(pool, call.session.pool, keys);
            is_fenced.then(|| self.clock.now + FENCE_LOOK)
        });
        let Some(until) = held else {
            if pool.pause.is_monitored() {
                self.show_memcached(
                    ClientRef { key: call.key, session: call.session },
                    call.request,
                    call.bytes,
                );
            }
            return false;
        };
        let client = ClientMut { key: call.key, session: call.session };
        self.wait_for(client, WaitOn::pause_of(pool, until));
        true
    }

    pub(super) fn count_memcached(&mut self, call: &Call<'_>) {
        if !call.is_resumed() {
            self.started(call.session.pool, call.counted());
        }
    }

    /// Answers a request whose reply is known at once.
    pub(super) fn tell_memcached(&mut self, call: &mut Call<'_>, outcome: &Outcome<'_>) {
        let reply_index = call.reserve();
        let asker = Asker {
            head: &call.request.head,
            key: if call.request.keys.is_empty() { b"" } else { call.request.key(call.bytes, 0) },
            meta: call.request.meta.of(call.bytes),
        };
        call.busy.order.complete(reply_index, &mut call.busy.output, |out| {
            write_reply(out, &asker, outcome);
        });
    }

    /// Answers with an error of the client's own making.
    #[cold]
    pub(super) fn deny_memcached(&mut self, call: &mut Call<'_>, text: &str) {
        self.cells.pool(usize::from(call.session.pool)).refused.of(Fault::Denied).add(1);
        let error = Outcome::Error { kind: ErrorKind::Client, text: text.as_bytes() };
        self.tell_memcached(call, &error);
    }
}
