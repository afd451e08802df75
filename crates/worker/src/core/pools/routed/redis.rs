//! Requests of Redis clients to pools that lead to others.

use super::Wants;
use super::above;
use crate::core::pools::routed::state::Destination;
use crate::core::pools::routed::state::Language;
use crate::core::pools::routed::state::Lots;
use crate::core::pools::routed::state::Whose;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::{Connections, Plane};
use crate::{Plan, PoolKind, PoolPlan, RoutePlan};
use keyway_base::Fault;
use keyway_command::{Handling, Verb};
use keyway_proxy::ReplyTo;
use keyway_proxy::route_policy::redis::nature_of;
use keyway_proxy::route_policy::{
    AskOrder, KeyOwner, Nature, Part, RoutePolicy, RouteTotals, RoutedRequest, Speech,
};
use keyway_resp::reply;
use keyway_topology::{RoutedPool, Wait};

/// Largest number of keys of one request that go different ways. Each is a request by itself.
pub(in crate::core) const PARTS_MAX: usize = 4096;

impl Plane {
    /// Starts a request to a pool that leads to others.
    #[inline(never)]
    pub(in crate::core) fn dispatch_routed(
        &mut self,
        links: &mut Connections,
        plan: &Plan,
        pool: &PoolPlan,
        routes: &RoutePlan,
        incoming: &mut RequestContext,
    ) -> Step {
        if incoming.session.is_multi_refused && self.refuse_behind_multi(incoming) {
            return Step::Started;
        }
        match incoming.request.handling() {
            Handling::Forward | Handling::Split(_) => {}
            Handling::Local if incoming.request.command.verb != Verb::Wait => {
                return self.answer_routed(pool, incoming);
            }
            _ => {
                if let Some(step) = self.take_to_writers(links, plan, routes, incoming) {
                    return step;
                }
                incoming.session.is_multi_refused = incoming.request.command.verb == Verb::Multi;
                self.refuse_routed(pool, routes, incoming);
                return Step::Started;
            }
        }
        let mut keys = std::mem::take(&mut self.routes.keys);
        let step = self.follow_routes(links, plan, incoming, &mut keys);
        self.routes.keys = keys;
        step
    }

    fn follow_routes(
        &mut self,
        links: &mut Connections,
        plan: &Plan,
        incoming: &mut RequestContext,
        keys: &mut Vec<u32>,
    ) -> Step {
        let request = incoming.request;
        if let Err(fault) = request.keys(keys) {
            let text = request.keys_error(fault);
            return self.refuse_request(incoming, &text);
        }
        if keys.is_empty() {
            let text = format!("ERR '{}' names no key: no pool is chosen by it", name_of(incoming));
            return self.refuse_request(incoming, &text);
        }
        let named = keys.iter().map(|&index| &request.args[index as usize]);
        let own = incoming.session.pool;
        let reply_index = incoming.busy.order.next_index();
        let mut wants = Wants::of(request, &mut incoming.session.identity, reply_index);
        let step = match self.destination(plan, own, &mut wants, named) {
            Destination::Leaf(leaf) => {
                // The client's pool is the one that answers while the request starts.
                incoming.session.pool = leaf;
                let step = self.dispatch_led(links, &plan.pools[usize::from(leaf)], incoming);
                incoming.session.pool = own;
                step
            }
            Destination::Over(over) => self.start_routed_request(plan, over, incoming, keys),
            Destination::NoPrefix(at) => {
                let name = &plan.pools[usize::from(at)].name;
                self.turn_back(plan);
                let text = format!(
                    "ERR no route: the key of this {} begins with none of the prefixes of \
                     [pool.{name}], which has no default",
                    name_of(incoming)
                );
                self.deny_routed(incoming, &text);
                Step::Started
            }
            Destination::Limited(at) => {
                let name = &plan.pools[usize::from(at)].name;
                self.turn_back(plan);
                let text = format!(
                    "ERR rate limited: more requests come to [pool.{name}] than its \
                     requests_per_second allows; try again later"
                );
                self.deny_routed(incoming, &text);
                Step::Started
            }
        };
        match step {
            Step::Started => {
                let counted = request.command.counted();
                let language = Language::Redis(incoming.session.identity.protocol);
                let whose = Whose::of(incoming.key, incoming.session, language);
                self.note_passed(plan, counted, whose, request.args.buf());
            }
            _ => self.turn_back(plan),
        }
        step
    }

    #[cold]
    fn deny_routed(&mut self, incoming: &mut RequestContext, text: &str) {
        incoming.session.note_fault(Fault::Denied);
        self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
    }

    fn start_routed_request(
        &mut self,
        plan: &Plan,
        over: u16,
        incoming: &mut RequestContext,
        keys: &[u32],
    ) -> Step {
        let PoolKind::Routed(routes) = &plan.pools[usize::from(over)].kind else {
            return Step::Started;
        };
        let request = incoming.request;
        let nature = nature_of(request);
        let is_read = nature == Nature::Read;
        let RequestContext { session, busy, .. } = &mut *incoming;
        if let Some(step) = self.may_travel(routes, session, busy, is_read, keys.len() > 1) {
            return step;
        }
        let cut = match request.handling() {
            Handling::Split(split) => Some((usize::from(split.args_per_key), split.join)),
            _ => None,
        };
        let many = cut.is_some() && keys.len() > 1;
        let Some((parts, owners)) = self.parts_of(routes, incoming, keys, nature, many) else {
            let name = &plan.pools[usize::from(over)].name;
            let text = format!(
                "CROSSSLOT keys of this {} begin with prefixes of different pools of [pool.{name}]",
                name_of(incoming).to_ascii_uppercase()
            );
            self.turn_back(plan);
            self.deny_routed(incoming, &text);
            return Step::Started;
        };
        // Keys that are written to a gutter are made to expire one by one.
        let is_capped = !is_read
            && matches!(&routes.pool,
            RoutedPool::Failover(pool) if pool.gutter.is_some());
        if parts.len() > PARTS_MAX || (is_capped && keys.len() > PARTS_MAX) {
            self.turn_back(plan);
            let text = format!("ERR too many keys: name {PARTS_MAX} at most to this pool");
            self.deny_routed(incoming, &text);
            return Step::Started;
        }
        let to = ReplyTo { pool: over, ..self.reply_to_request(incoming) };
        // The keys may be asked for one by one at the end of the turn.
        if parts.len() > 1 {
            incoming.session.fence();
        }
        let (client, level) = above(incoming.key, incoming.session);
        if let Some(sub_request) = &mut incoming.session.sub_request {
            sub_request.has_routed_request = true;
        }
        let routed_request = RoutedRequest {
            client,
            level,
            lane: incoming.session.lane,
            speech: Speech::Redis {
                protocol: incoming.session.identity.protocol,
                command: request.command,
                args: request.args.ranges().to_vec(),
                cut,
            },
            bytes: request.args.buf().to_vec(),
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

    /// Divides a request by the ways that its keys go. Returns `None` if the keys must stay
    /// together.
    fn parts_of(
        &self,
        routes: &RoutePlan,
        incoming: &RequestContext,
        keys: &[u32],
        nature: Nature,
        many: bool,
    ) -> Option<Lots> {
        let is_read = nature == Nature::Read;
        let per_key = |route_policy: RoutePolicy| {
            let parts = (0..keys.len().min(PARTS_MAX + 1))
                .map(|index| Part::new(route_policy.clone(), vec![index as u32]));
            let owners = (0..keys.len()).map(|index| KeyOwner::new(index as u16, 0));
            (parts.collect(), owners.collect())
        };
        let whole =
            |route_policy: RoutePolicy| (vec![Part::new(route_policy, Vec::new())], Vec::new());
        Some(match &routes.pool {
            RoutedPool::Prefix(prefix) => {
                if !many {
                    return None;
                }
                let key = |index: &u32| &incoming.request.args[*index as usize];
                let children = keys.iter().filter_map(|index| prefix.pick(key(index)));
                Self::parts_by(children, |child| {
                    RoutePolicy::new(AskOrder::InTurn, nature, [child])
                })
            }
            RoutedPool::Failover(_) => {
                let route_policy = route_policy_of(routes, nature);
                // If one server of several fails, its keys go on by themselves. A write cannot be
                // sent again as a whole and still get a true reply.
                if many && !is_read { per_key(route_policy) } else { whole(route_policy) }
            }
            RoutedPool::MissThen(_) => {
                let route_policy = route_policy_of(routes, nature);
                match incoming.request.command.verb {
                    Verb::Mget if many => {
                        let mut part = Part::new(route_policy, Vec::new());
                        part.keys = (0..keys.len() as u32).collect();
                        (
                            vec![part],
                            (0..keys.len() as u32).map(|index| KeyOwner::new(0, index)).collect(),
                        )
                    }
                    // The reply of any child counts, for each key.
                    _ if many && !matches!(incoming.request.command.verb, Verb::Mset) => {
                        per_key(route_policy)
                    }
                    _ => whole(route_policy),
                }
            }
            _ => whole(route_policy_of(routes, nature)),
        })
    }

    /// Answers commands about the connection or about Keyway.
    #[cold]
    pub(super) fn answer_routed(&mut self, pool: &PoolPlan, incoming: &mut RequestContext) -> Step {
        match incoming.request.command.verb {
            Verb::Monitor => return self.start_monitor(incoming),
            // Replies in flight are in the protocol that is spoken so far.
            Verb::Hello | Verb::Reset | Verb::ClientReply
                if !incoming.session.is_quiet(incoming.busy) =>
            {
                incoming.session.fence();
                return Step::Wait;
            }
            _ => {}
        }
        self.answer_without_server(incoming, pool)
    }

    /// After a refused MULTI, refuses every request until the transaction that was meant ends.
    /// Otherwise a client that pipelines it would see an error for commands that were executed.
    /// Returns false if the request goes on.
    #[cold]
    fn refuse_behind_multi(&mut self, incoming: &mut RequestContext) -> bool {
        let text = match incoming.request.command.verb {
            Verb::Quit => return false,
            Verb::Reset => {
                incoming.session.is_multi_refused = false;
                return false;
            }
            Verb::Exec => "EXECABORT Transaction discarded because of previous errors.",
            Verb::Discard => {
                incoming.session.is_multi_refused = false;
                self.refuse(incoming.session, incoming.busy, |out| reply::simple(out, "OK"));
                return true;
            }
            _ => "ERR not executed: the MULTI before it was refused; end with EXEC or DISCARD",
        };
        incoming.session.is_multi_refused = incoming.request.command.verb != Verb::Exec;
        self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
        true
    }

    #[cold]
    fn refuse_routed(
        &mut self,
        pool: &PoolPlan,
        routes: &RoutePlan,
        incoming: &mut RequestContext,
    ) {
        let text = format!(
            "ERR '{}' is refused: [pool.{}] is of kind \"{}\", which leads requests with keys to \
             other pools; use a listener of the pool that is meant",
            name_of(incoming),
            pool.name,
            routes.pool.kind()
        );
        self.refuse(incoming.session, incoming.busy, |out| reply::error(out, &text));
    }
}

fn name_of(incoming: &RequestContext) -> String {
    incoming.request.command.name.replace('|', " ")
}

/// Returns the order in which a request asks the children of a pool.
pub(in crate::core::pools) fn route_policy_of(routes: &RoutePlan, nature: Nature) -> RoutePolicy {
    let is_read = nature == Nature::Read;
    match &routes.pool {
        RoutedPool::Failover(pool) => {
            let gutter = pool.gutter.iter().map(|gutter| gutter.pool);
            RoutePolicy::new(AskOrder::InTurn, nature, pool.children.iter().copied().chain(gutter))
        }
        RoutedPool::Mirror(pool) => {
            let lead = usize::from(pool.read_from);
            let others = pool.children.iter().enumerate().filter(|(index, _)| *index != lead);
            let order = pool.children.get(lead).copied().into_iter();
            let order = order.chain(others.map(|(_, child)| *child));
            let all = AskOrder::All { wait: pool.wait, prefers_found: false };
            RoutePolicy::new(if is_read { AskOrder::InTurn } else { all }, nature, order)
        }
        RoutedPool::MissThen(pool) => {
            let all = AskOrder::All { wait: Wait::All, prefers_found: true };
            let order = if is_read { AskOrder::UntilFound } else { all };
            RoutePolicy::new(order, nature, pool.children.iter().copied())
        }
        RoutedPool::ReadWriteSplit(pool) if is_read => {
            RoutePolicy::new(AskOrder::InTurn, nature, [pool.read, pool.write])
        }
        others => RoutePolicy::new(AskOrder::InTurn, nature, others.children()),
    }
}

/// Counts a step from one child to the next.
pub(super) fn note_step(routes: &RoutePlan) {
    match routes.pool {
        RoutedPool::MissThen(_) => RouteTotals::note(&routes.totals.lookups),
        _ => RouteTotals::note(&routes.totals.failovers),
    }
}
