//! Splits one request into one fragment for each server: with the server's share of the keys, or
//! whole. The bytes of each argument are copied as received, with their length line, so only the
//! head of each fragment is written anew.

use crate::Upstream;
use crate::core::pending::state::Scratch;
use crate::core::pools::SharedLinks;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::upstream::bypass::late_apart;
use crate::core::{ConnectionKey, Connections, Plane};
use keyway_base::Fault;
use keyway_command::{Join as Rule, Request, Split};
use keyway_proxy::{Join, Owner, ReplyTo, Session};
use keyway_resp::reply;
use keyway_route::place;
use std::sync::Arc;

const NO_FRAGMENT: u16 = u16::MAX;

/// The content of the fragments of a request.
#[derive(Clone, Copy)]
enum Cut {
    /// The keys of the server, each with this many arguments in total.
    Keys { args_per_key: usize },
    /// The whole request.
    Whole,
}

/// A request that is sent in fragments.
#[derive(Clone, Copy)]
struct Work {
    cut: Cut,
    rule: Rule,
    /// The links that clients share to the servers.
    shared: SharedLinks,
}

/// The servers that the keys of a request have.
struct Placed {
    /// Number of servers.
    used: usize,
    /// The links that clients share to all servers of the pool.
    shared: SharedLinks,
}

impl Plane {
    /// Splits a request over the servers of its keys.
    pub(in crate::core) fn split(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        split: Split,
    ) -> Step {
        let mut scratch = std::mem::take(&mut self.pending.fan_out);
        let step = self.split_with(&mut scratch, links, incoming, split);
        self.pending.fan_out = scratch;
        step
    }

    fn split_with(
        &mut self,
        scratch: &mut Scratch,
        links: &mut Connections,
        incoming: &mut RequestContext,
        split: Split,
    ) -> Step {
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[incoming.session.pool as usize];
        if pool.kind.finds_servers() {
            return self.split_by_slot(links, incoming, split);
        }
        let RequestContext { session, request, .. } = &*incoming;
        let stride = usize::from(split.args_per_key);
        debug_assert_eq!((request.args.len() - 1) % stride, 0, "resolving checks the arity");
        let Some(Placed { used, shared }) = self.place_keys(scratch, session.pool, request, stride)
        else {
            return self.answer_unrouted(incoming);
        };
        if used == 1 {
            let link = self.link_of(&shared, session, scratch.servers[0]);
            return self.forward(links, incoming, link);
        }
        let work = Work { cut: Cut::Keys { args_per_key: stride }, rule: split.join, shared };
        self.send_fragments(scratch, links, incoming, work)
    }

    /// Sends a request whole to every server in use.
    pub(in crate::core) fn send_everywhere(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        rule: Rule,
    ) -> Step {
        // A report also covers servers that cannot be asked.
        let pool = incoming.session.pool;
        if rule != Rule::Each && self.leaves_out(pool) {
            return self.answer_unrouted(incoming);
        }
        let servers = 0..self.plan.topology.pools()[usize::from(pool)].servers().len();
        let mut scratch = std::mem::take(&mut self.pending.fan_out);
        scratch.servers.clear();
        scratch.counts.clear();
        scratch.counts.extend(servers.map(|server| u32::from(self.is_server_used(pool, server))));
        let is_used = scratch.counts.iter().any(|&count| count > 0);
        let step = match self.pools[usize::from(pool)].shared().filter(|_| is_used) {
            Some(shared) => {
                let work = Work { cut: Cut::Whole, rule, shared };
                self.send_fragments(&mut scratch, links, incoming, work)
            }
            None => self.answer_unrouted(incoming),
        };
        self.pending.fan_out = scratch;
        step
    }

    /// Finds the server of each key. Returns `None` if no server is in use.
    fn place_keys(
        &mut self,
        scratch: &mut Scratch,
        pool: u16,
        request: &Request,
        stride: usize,
    ) -> Option<Placed> {
        let Upstream { servers: sharded, .. } = self.plan.pools[pool as usize].kind.upstream()?;
        let state = self.pools[pool as usize].servers()?;
        let shared = *state.shared();
        scratch.servers.clear();
        scratch.counts.clear();
        scratch.counts.resize(sharded.servers.len(), 0);
        let mut used = 0;
        let mut random = self.random;
        for index in (1..request.args.len()).step_by(stride) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let chance = (random >> 32) as u32;
            let server = place(sharded, state.ring(), &request.args[index], chance)?;
            scratch.servers.push(server);
            let count = &mut scratch.counts[usize::from(server)];
            used += usize::from(*count == 0);
            *count += 1;
        }
        self.random = random | 1;
        Some(Placed { used, shared })
    }

    /// Sends a fragment to each server in `scratch.counts`, if all of their links have room.
    fn send_fragments(
        &mut self,
        scratch: &mut Scratch,
        links: &mut Connections,
        incoming: &mut RequestContext,
        work: Work,
    ) -> Step {
        if let Some(link) = self.link_to_wait_for(scratch, links, incoming, work) {
            return Step::Full(link);
        }
        let (to, mut join) = self.begin_join(incoming, work.rule);
        join.is_whole = matches!(work.cut, Cut::Whole);
        let down = self.begin_fragments(scratch, links, incoming, work, &mut join);
        self.copy_keys(scratch, links, incoming, work, &mut join);
        let RequestContext { session, busy, .. } = incoming;
        let operation = self.pending.begin(to, join);
        if matches!(work.cut, Cut::Whole) {
            self.keep_conclusion(operation);
        }
        for server in 0..scratch.counts.len() {
            let fragment = scratch.fragments[server];
            if fragment != NO_FRAGMENT {
                let index = self.link_of(&work.shared, session, server as u16);
                let connection = &mut links[index];
                let len = connection.link.request_buf().len() - scratch.starts[server];
                let owner = Owner::Operation { operation, part: fragment.into() };
                connection.link.enqueue(owner, to.counted, len, self.clock.now);
                self.note_unsent(index, connection);
            }
        }
        for (fragment, fault) in down {
            let join = self.pending.get_mut::<Join>(operation);
            if join.is_some_and(|join| join.on_fault(fragment, fault)) {
                self.finish_join_now(operation, session, busy);
            }
        }
        Step::Started
    }

    /// Returns the first link without room for its fragment, or on which a late write of the client
    /// has not been answered yet.
    #[inline]
    fn link_to_wait_for(
        &self,
        scratch: &Scratch,
        links: &Connections,
        incoming: &mut RequestContext,
        work: Work,
    ) -> Option<ConnectionKey> {
        for (server, &count) in scratch.counts.iter().enumerate() {
            if count == 0 {
                continue;
            }
            let link = self.link_of(&work.shared, incoming.session, server as u16);
            let is_full = match work.rule {
                Rule::Each => self.has_no_room(&links[link]),
                _ => self.is_full(&links[link]),
            };
            if is_full {
                return Some(link);
            }
            if let Some(late) = late_apart(links, incoming, link) {
                return Some(late);
            }
        }
        None
    }

    /// Begins a fragment for each server: its head, or all of it if it is whole. Returns those
    /// whose servers cannot be reached, with the faults.
    #[inline]
    fn begin_fragments(
        &mut self,
        scratch: &mut Scratch,
        links: &mut Connections,
        incoming: &RequestContext,
        work: Work,
        join: &mut Join,
    ) -> Vec<(u16, Fault)> {
        let RequestContext { session, request, .. } = incoming;
        scratch.fragments.clear();
        scratch.fragments.resize(scratch.counts.len(), NO_FRAGMENT);
        scratch.starts.clear();
        scratch.starts.resize(scratch.counts.len(), 0);
        let mut down = Vec::new();
        for server in 0..scratch.counts.len() {
            let count = scratch.counts[server];
            if count == 0 {
                continue;
            }
            let fragment = join.add_fragment(server as u16, count);
            let index = self.link_of(&work.shared, session, server as u16);
            let connection = &mut links[index];
            if let Some(fault) = self.refused(connection) {
                down.push((fragment, fault));
                continue;
            }
            scratch.fragments[server] = fragment;
            self.prepare_link(index, connection, session.identity.database);
            let out = connection.link.request_buf();
            scratch.starts[server] = out.len();
            match work.cut {
                Cut::Whole => out.extend_from_slice(request.args.buf()),
                Cut::Keys { args_per_key } => {
                    reply::array(out, 1 + count as usize * args_per_key);
                    reply::bulk(out, request.command.name.as_bytes());
                }
            }
        }
        down
    }

    /// Creates the join of a request that is about to be sent in fragments, and reserves the index
    /// of its reply.
    pub(in crate::core) fn begin_join(
        &mut self,
        incoming: &mut RequestContext,
        rule: Rule,
    ) -> (ReplyTo, Box<Join>) {
        self.started(incoming.session.pool, incoming.request.command.counted());
        let to = self.reply_to_request(incoming);
        let mut join = self.pending.joins_free.take();
        join.restart(rule);
        join.command = incoming.request.command.name;
        (to, join)
    }

    /// Copies each key (with its value) behind the head of its fragment, if the request is cut.
    fn copy_keys(
        &mut self,
        scratch: &Scratch,
        links: &mut Connections,
        incoming: &RequestContext,
        work: Work,
        join: &mut Join,
    ) {
        let Cut::Keys { args_per_key: stride } = work.cut else { return };
        let RequestContext { session, request, .. } = incoming;
        let ranges = request.args.ranges();
        let buf = request.args.buf();
        for (position, &server) in scratch.servers.iter().enumerate() {
            let fragment = scratch.fragments[usize::from(server)];
            join.add_owner(if fragment == NO_FRAGMENT { 0 } else { fragment });
            if fragment == NO_FRAGMENT {
                continue;
            }
            let first = 1 + position * stride;
            // The range starts after the previous argument and ends after this one's line end.
            let start = ranges[first - 1].end as usize + 2;
            let end = ranges[first + stride - 1].end as usize + 2;
            let index = self.link_of(&work.shared, session, server);
            links[index].link.request_buf().extend_from_slice(&buf[start..end]);
        }
    }

    /// Returns the link of a session to a server of its pool: its own one, or one of those that
    /// clients share.
    pub(in crate::core) fn link_of(
        &self,
        shared: &SharedLinks,
        session: &Session,
        server: u16,
    ) -> ConnectionKey {
        let own = self.own_link(session, server);
        own.unwrap_or_else(|| shared.link(server, session.lane, session.identity.protocol))
    }
}
