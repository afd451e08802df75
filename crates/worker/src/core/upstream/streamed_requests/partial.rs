//! Large values that are streamed into a store, so that nothing is copied when the last byte has
//! arrived: copying a hundred megabytes would stop all clients of the worker.

use super::{Begun, PartialRequest, head_of, is_plain, tail_limits, tail_of};
use crate::core::observe::hot_keys::Sight;
use crate::core::request::PoolInPlan;
use crate::core::request::{BusyClient, ClientMut, Step};
use crate::core::upstream::state::PartialSet;
use crate::core::{Connections, Plane};
use crate::{PoolKind, PoolPlan};
use keyway_base::{ByteRange, Limits};
use keyway_command::{Args, Counted, Request, Verb};
use keyway_proxy::{Identity, Session, Streaming};
use keyway_resp::{Parsed, parse_request, reply};
use keyway_store::{Context, OutOfMemory, Store, StreamedSet};
use std::sync::Arc;

/// Number of bytes of a value with which its request is shown.
const SHOWN_LEN: usize = 128;

impl Plane {
    /// Returns the context in which a client's request is executed.
    pub(super) fn session_context(&self, session: &Session) -> Context {
        let Identity { database, protocol, .. } = session.identity;
        Context { database, clock: self.clock, protocol, worker: self.worker() }
    }

    /// Begins to stream a request of which a part has arrived into a store.
    pub(super) fn begin_partial_set(
        &mut self,
        pool: &PoolPlan,
        store: &Arc<Store>,
        BusyClient { key, session, busy }: BusyClient<'_>,
        PartialRequest { bytes, end, args }: PartialRequest<'_>,
    ) -> Begun {
        let len_min = self.plan.limits.pass_len() / 2;
        let Some((tail, value_len)) = tail_of(bytes, args, end, len_min) else {
            return Begun::No;
        };
        if !may_stream(pool, store, session) {
            return Begun::No;
        }
        let before = args.clone();
        // Empty ones represent those that have not arrived.
        args.resize(args.len() + 1 + tail, ByteRange::new(0, 0));
        let Ok(request) = Request::resolve(Args::new(bytes, args)) else { return Begun::No };
        // The value is the last argument, except for the options of SET after it.
        let is_set = request.command.verb == Verb::Set;
        let is_last = if is_set { before.len() == 2 } else { tail == 0 };
        let identity = &session.identity;
        let may = identity.is_free || identity.passes(&request);
        if !StreamedSet::suits(request.command.verb) || !is_last || !may {
            return Begun::No;
        }
        if !session.is_quiet(busy) {
            session.fence();
            return Begun::Wait;
        }
        let Some(mut set) = StreamedSet::new(store, &request.args[1], value_len) else {
            return Begun::No;
        };
        let counted = request.command.counted();
        self.last_verb = Some(request.command.verb);
        self.batch += 1;
        let (head, part) = bytes.split_at(end - "\r\n".len() - value_len);
        let line_end = set.extend(part, self.session_context(session)).to_vec();
        let partial =
            PartialSet { set: Box::new(set), head: head.to_vec(), args: before, line_end, counted };
        self.upstream.partial_sets.insert(key, partial);
        session.streaming = Some(Box::new(Streaming {
            lands: true,
            left: end - bytes.len(),
            tail: head_of(tail),
            ..Streaming::default()
        }));
        Begun::Yes
    }

    /// Executes a complete request.
    pub(super) fn land(
        &mut self,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        streaming: Streaming,
    ) {
        let Some(partial) = self.upstream.partial_sets.remove(key) else { return };
        let PartialSet { set, mut head, mut args, counted, .. } = *partial;
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[usize::from(session.pool)];
        let is_direct = match &pool.kind {
            PoolKind::Store(store) => {
                set.is_for(store) && may_stream(pool, store, session) && session.is_quiet(busy)
            }
            _ => false,
        };
        // They have a head of their own.
        let tail = streaming.tail.get("*1\r\n".len()..).unwrap_or_default();
        if !is_direct {
            return self.land_whole(
                links,
                BusyClient { key, session, busy },
                &set,
                counted,
                &head,
                tail,
            );
        }
        let (value, head_len) = (set.bytes(), head.len());
        let value_len = value.len();
        head.extend_from_slice(&value[..value_len.min(SHOWN_LEN)]);
        args.push(ByteRange::new(head_len, head.len()));
        let behind = head.len();
        head.extend_from_slice(tail);
        args.extend(words_of(&streaming.tail, behind, &self.plan.limits));
        self.store.streamed_set = Some(set);
        let step = self.dispatch(
            links,
            PoolInPlan { plan: &plan, pool },
            ClientMut { key, session },
            busy,
            &head,
            &args,
        );
        session.identity.live.note_request(self.last_verb, self.clock.now);
        match (self.store.streamed_set.take(), step) {
            (None, _) => {
                let pool = PoolInPlan { plan: &plan, pool };
                self.note_landed(pool, session, &head, &args, value_len);
            }
            // It was refused.
            (Some(_), Step::Started) => {}
            (Some(set), _) => {
                let head = &head[..head_len];
                self.land_whole(
                    links,
                    BusyClient { key, session, busy },
                    &set,
                    counted,
                    head,
                    tail,
                );
            }
        }
    }

    /// Notes the key of an executed request.
    fn note_landed(
        &mut self,
        PoolInPlan { plan, pool }: PoolInPlan<'_>,
        session: &Session,
        frame: &[u8],
        args: &[ByteRange],
        value_len: usize,
    ) {
        let Ok(request) = Request::resolve(Args::new(frame, args)) else { return };
        let sight = Sight::of_request(&request.args[1], request.command.name);
        self.note_large(&pool.key_stats, sight, value_len);
        if self.observe.hot_keys.is_due(0) {
            self.note_request(plan.pools.as_slice(), session, frame, args);
        }
    }

    /// Handles a request like one that was kept until it was complete.
    #[cold]
    fn land_whole(
        &mut self,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        set: &StreamedSet,
        counted: Counted,
        head: &[u8],
        tail: &[u8],
    ) {
        if set.is_refused() {
            // It has freed the value.
            self.answer(session, busy, |out| reply::error(out, OutOfMemory::TEXT));
            self.served(session.pool, counted);
            return self.note_store_error(session.pool, counted, true);
        }
        [head, set.bytes(), b"\r\n", tail].iter().for_each(|bytes| busy.keep_input(bytes));
        busy.input_needed = 0;
        self.parse_kept(links, key, session, busy);
    }
}

/// Returns the ranges of the arguments after a value, which are in `tail` with a head of their own,
/// as if they began at `behind`.
fn words_of(tail: &[u8], behind: usize, limits: &Limits) -> Vec<ByteRange> {
    let mut words = Vec::new();
    if !tail.is_empty() {
        // It was parsed before.
        let parsed = parse_request(tail, &tail_limits(limits), &mut words, &mut Vec::new());
        debug_assert!(matches!(parsed, Ok(Parsed::Ready { .. })), "{parsed:?}");
    }
    let moved = |at: usize| at - "*1\r\n".len() + behind;
    words
        .iter()
        .map(|word| ByteRange::new(moved(word.start as usize), moved(word.end as usize)))
        .collect()
}

/// Returns whether nothing needs complete requests of a session.
fn may_stream(pool: &PoolPlan, store: &Store, session: &Session) -> bool {
    is_plain(session) && pool.pause.is_unused() && !store.has_script()
}
