//! Handles requests of memcached clients to pools that lead to others.

use crate::core::Connections;
use crate::core::Plane;
use crate::core::pools::memcached::state::Call;
use crate::core::pools::memcached::state::wire_of;
use crate::core::pools::routed::Destination;
use crate::core::pools::routed::Language;
use crate::core::pools::routed::PARTS_MAX;
use crate::core::pools::routed::Wants;
use crate::core::pools::routed::Whose;
use crate::core::pools::routed::above;
use crate::core::pools::routed::route_policy_of;
use crate::core::request::Step;
use crate::{Plan, PoolKind, PoolPlan, RoutePlan};
use keyway_base::Fault;
use keyway_memcache::{ErrorKind, Outcome, Verb};
use keyway_proxy::ReplyTo;
use keyway_proxy::route_policy::memcached::nature_of;
use keyway_proxy::route_policy::{
    AskOrder, KeyOwner, Nature, Part, RoutePolicy, RoutedRequest, Speech,
};
use keyway_topology::RoutedPool;

impl Call<'_> {
    /// Returns the protocol of the request.
    fn language(&self) -> Language {
        let item_len_max = self.session.memcached.map_or(0, |client| client.item_len_max);
        Language::Memcached { wire: wire_of(self.head()), item_len_max }
    }
}

impl Plane {
    /// Starts a request to a pool that leads to others.
    #[inline(never)]
    pub(super) fn route_memcached(
        &mut self,
        links: &mut Connections,
        plan: &Plan,
        pool: &PoolPlan,
        routes: &RoutePlan,
        call: &mut Call<'_>,
    ) -> Step {
        match call.head().verb {
            Verb::Stats => return self.tell_routes(routes, call),
            Verb::FlushAll => {
                let text = format!(
                    "flush_all is refused: [pool.{}] leads to other pools; empty those that are \
                     meant",
                    pool.name
                );
                self.deny_memcached(call, &text);
                return Step::Started;
            }
            _ => {}
        }
        let own = call.session.pool;
        let keys = call.request.keys(call.bytes);
        let reply_index = call.busy.order.next_index();
        let mut wants =
            Wants::of_memcached(call.request.head, &mut call.session.identity, reply_index);
        let step = match self.destination(plan, own, &mut wants, keys) {
            Destination::Leaf(leaf) => {
                // While the request starts, the session's pool is the one that answers.
                call.session.pool = leaf;
                let step = self.dispatch_led_memcached(links, &plan.pools[usize::from(leaf)], call);
                call.session.pool = own;
                step
            }
            Destination::Over(over) => self.start_memcached_routed_request(plan, over, call),
            Destination::NoPrefix(at) => {
                self.turn_back(plan);
                let name = &plan.pools[usize::from(at)].name;
                self.fail_routed(call, &format!(
                    "no route: the key begins with none of the prefixes of [pool.{name}], which has \
                     no default"
                ));
                Step::Started
            }
            Destination::Limited(at) => {
                self.turn_back(plan);
                let name = &plan.pools[usize::from(at)].name;
                self.fail_routed(
                    call,
                    &format!(
                        "rate limited: more requests come to [pool.{name}] than its \
                     requests_per_second allows; try again later"
                    ),
                );
                Step::Started
            }
        };
        match step {
            Step::Started => {
                let whose = Whose::of(call.key, call.session, call.language());
                self.note_passed(plan, call.counted(), whose, call.bytes);
            }
            _ => self.turn_back(plan),
        }
        step
    }

    fn dispatch_led_memcached(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        call: &mut Call<'_>,
    ) -> Step {
        if !pool.pause.is_unused() && self.holds_back_led_memcached(pool, call) {
            return Step::Wait;
        }
        self.dispatch_to(links, pool, call)
    }

    #[cold]
    fn fail_routed(&mut self, call: &mut Call<'_>, text: &str) {
        self.cells.pool(usize::from(call.session.pool)).refused.of(Fault::Denied).add(1);
        call.session.note_fault(Fault::Denied);
        let error = Outcome::Error { kind: ErrorKind::Server, text: text.as_bytes() };
        self.tell_memcached(call, &error);
    }

    fn start_memcached_routed_request(
        &mut self,
        plan: &Plan,
        over: u16,
        call: &mut Call<'_>,
    ) -> Step {
        let PoolKind::Routed(routes) = &plan.pools[usize::from(over)].kind else {
            return Step::Started;
        };
        let nature = nature_of(call.head());
        let count = call.request.keys.len();
        let (is_read, is_many) = (nature == Nature::Read, count > 1);
        if let Some(step) = self.may_travel(routes, call.session, call.busy, is_read, is_many) {
            return step;
        }
        let (parts, owners) = match &routes.pool {
            RoutedPool::Prefix(prefix) => {
                let children = call.request.keys(call.bytes).filter_map(|key| prefix.pick(key));
                Self::parts_by(children, |child| {
                    RoutePolicy::new(AskOrder::InTurn, nature, [child])
                })
            }
            RoutedPool::MissThen(_) if count > 1 => {
                let keys = (0..count as u32).collect();
                let owners = (0..count as u32).map(|index| KeyOwner::new(0, index)).collect();
                (vec![Part::new(route_policy_of(routes, nature), keys)], owners)
            }
            _ => (vec![Part::new(route_policy_of(routes, nature), Vec::new())], Vec::new()),
        };
        if parts.len() > PARTS_MAX {
            self.turn_back(plan);
            self.deny_memcached(call, "too many keys: ask for fewer at a time");
            return Step::Started;
        }
        let to = ReplyTo { pool: over, ..call.reply_to(self.clock.now) };
        if parts.len() > 1 {
            call.session.fence();
        }
        let client = call.session.memcached.unwrap_or_default();
        let (owner, level) = above(call.key, call.session);
        if let Some(sub_request) = &mut call.session.sub_request {
            sub_request.has_routed_request = true;
        }
        let routed_request = RoutedRequest {
            client: owner,
            level,
            lane: call.session.lane,
            speech: Speech::Memcached {
                wire: wire_of(call.head()),
                item_len_max: client.item_len_max,
                request: Box::new(call.request.clone()),
            },
            bytes: call.bytes.to_vec(),
            parts_left: parts.len() as u16,
            parts,
            owners,
            sub_requests: 0,
            counted: 0,
            is_told: false,
        };
        self.add_routed_request(to, routed_request);
        Step::Started
    }

    /// Answers `stats` with the pool's own figures.
    #[cold]
    fn tell_routes(&mut self, routes: &RoutePlan, call: &mut Call<'_>) -> Step {
        self.count_memcached(call);
        if !call.request.keys.is_empty() {
            self.deny_memcached(call, "only plain stats here; the admin's /metrics has more");
            return Step::Started;
        }
        let figures = routes.totals.figures();
        let mut lines = vec![
            ("version", super::local::VERSION.to_owned()),
            ("keyway_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("route_kind", routes.pool.kind().to_owned()),
        ];
        let children = routes.pool.children();
        let names = children.iter().map(|&child| self.plan.pools[usize::from(child)].name.as_str());
        lines.push(("route_children", names.collect::<Vec<_>>().join(",")));
        for (name, count) in [
            ("route_failovers", figures.failovers),
            ("route_child_failures", figures.child_failures),
            ("route_lookups", figures.lookups),
            ("route_fills", figures.fills),
            ("route_failed_fills", figures.failed_fills),
            ("route_shadowed", figures.shadowed),
            ("route_shadow_drops", figures.shadow_drops),
            ("route_rate_limited", figures.rate_limited),
        ] {
            lines.push((name, count.to_string()));
        }
        call.tell_stats(&lines);
        Step::Started
    }
}
