//! Large values that go into a store as they come, so that nothing is copied when the
//! last of them is here: a hundred megabytes would stop all clients of the worker.

use super::{Begun, head_of, is_plain, tail_limits, tail_of};
use crate::core::request::PoolInPlan;
use crate::core::request::{BusyClient, ClientMut, Step};
use crate::core::upstream::state::Landing;
use crate::core::{Connections, Plane};
use crate::{Plan, PoolKind, PoolPlan};
use keyway_base::{ByteRange, Limits};
use keyway_command::{Args, Counted, Request, Verb};
use keyway_proxy::hot_keys::Direction;
use keyway_proxy::{Identity, Session, Streaming};
use keyway_resp::{Parsed, parse_request, reply};
use keyway_store::{Context, OutOfMemory, Store, StreamedSet};
use std::sync::Arc;

/// How much of a value its request is shown with, where it is, in bytes.
const SHOWN_LEN: usize = 128;

impl Plane {
    /// The context in which a client's request is executed.
    pub(super) fn session_context(&self, session: &Session) -> Context {
        let Identity { database, protocol, .. } = session.identity;
        Context { database, clock: self.clock, protocol, worker: self.worker() }
    }

    /// Begins to take a request of which a part has come into a store: `args` are its
    /// arguments before the one that ends at `end`, beyond the bytes.
    pub(super) fn begin_landing(
        &mut self,
        pool: &PoolPlan,
        store: &Arc<Store>,
        BusyClient { key, session, busy }: BusyClient<'_>,
        (bytes, end): (&[u8], usize),
        args: &mut Vec<ByteRange>,
    ) -> Begun {
        let len_min = self.plan.limits.pass_len() / 2;
        let Some((tail, value_len)) = tail_of(bytes, args, end, len_min) else {
            return Begun::No;
        };
        if !may_land(pool, store, session) {
            return Begun::No;
        }
        let before = args.clone();
        // Empty ones stand for what is still to come.
        args.resize(args.len() + 1 + tail, ByteRange::new(0, 0));
        let Ok(request) = Request::resolve(Args::new(bytes, args)) else { return Begun::No };
        // The value is the last argument but for what SET has behind it.
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
        let Some(mut draft) = StreamedSet::new(store, &request.args[1], value_len) else {
            return Begun::No;
        };
        let counted = request.command.counted();
        self.last_verb = Some(request.command.verb);
        self.batch += 1;
        let (head, part) = bytes.split_at(end - "\r\n".len() - value_len);
        let line_end = draft.extend(part, self.session_context(session)).to_vec();
        let landing = Landing {
            draft: Box::new(draft),
            head: head.to_vec(),
            args: before,
            line_end,
            counted,
        };
        self.upstream.landings.insert(key, landing);
        session.streaming = Some(Box::new(Streaming {
            lands: true,
            left: end - bytes.len(),
            tail: head_of(tail),
            ..Streaming::default()
        }));
        Begun::Yes
    }

    /// Executes a request that has come whole.
    pub(super) fn land(
        &mut self,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        streaming: Streaming,
    ) {
        let Some(landing) = self.upstream.landings.remove(key) else { return };
        let Landing { draft, mut head, mut args, counted, .. } = *landing;
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[usize::from(session.pool)];
        let is_direct = match &pool.kind {
            PoolKind::Store(store) => {
                draft.is_for(store) && may_land(pool, store, session) && session.is_quiet(busy)
            }
            _ => false,
        };
        // A head of its own is in front of them.
        let tail = streaming.tail.get("*1\r\n".len()..).unwrap_or_default();
        if !is_direct {
            return self.land_whole(
                links,
                BusyClient { key, session, busy },
                (&draft, counted),
                [&head, tail],
            );
        }
        let (value, head_len) = (draft.bytes(), head.len());
        let value_len = value.len();
        head.extend_from_slice(&value[..value_len.min(SHOWN_LEN)]);
        args.push(ByteRange::new(head_len, head.len()));
        let behind = head.len();
        head.extend_from_slice(tail);
        args.extend(words_of(&streaming.tail, behind, &self.plan.limits));
        self.store.streamed_set = Some(draft);
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
            (None, _) => self.note_landed((&plan, pool, session), (&head, &args), value_len),
            // It was refused.
            (Some(_), Step::Started) => {}
            (Some(draft), _) => {
                let head = &head[..head_len];
                self.land_whole(
                    links,
                    BusyClient { key, session, busy },
                    (&draft, counted),
                    [head, tail],
                );
            }
        }
    }

    /// Notes the key of a request that was executed.
    fn note_landed(
        &mut self,
        (plan, pool, session): (&Plan, &PoolPlan, &Session),
        (frame, args): (&[u8], &[ByteRange]),
        value_len: usize,
    ) {
        let Ok(request) = Request::resolve(Args::new(frame, args)) else { return };
        let sight = (&request.args[1], request.command.name, Direction::Request);
        self.note_large(&pool.noted, sight, value_len);
        if self.observe.hot_keys.is_due(0) {
            self.note_request((plan.pools.as_slice(), session), frame, args);
        }
    }

    /// Has a request looked at like one that was kept until it was whole.
    #[cold]
    fn land_whole(
        &mut self,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        (draft, counted): (&StreamedSet, Counted),
        [head, tail]: [&[u8]; 2],
    ) {
        if draft.is_refused() {
            // The draft has freed the value.
            self.answer(session, busy, |out| reply::error(out, OutOfMemory::TEXT));
            self.request_cells(session.pool, counted).call();
            self.note_served(session.pool, counted);
            return self.note_store_error(session.pool, counted, true);
        }
        [head, draft.bytes(), b"\r\n", tail].iter().for_each(|bytes| busy.keep_input(bytes));
        busy.input_needed = 0;
        self.parse_kept(links, key, session, busy);
    }
}

/// The arguments behind a value, with a head of their own in `tail`, where they are when
/// they begin at `behind`.
fn words_of(tail: &[u8], behind: usize, limits: &Limits) -> Vec<ByteRange> {
    let mut words = Vec::new();
    if !tail.is_empty() {
        // It was looked at before.
        let parsed = parse_request(tail, &tail_limits(limits), &mut words, &mut Vec::new());
        debug_assert!(matches!(parsed, Ok(Parsed::Ready { .. })), "{parsed:?}");
    }
    let moved = |at: usize| at - "*1\r\n".len() + behind;
    words
        .iter()
        .map(|word| ByteRange::new(moved(word.start as usize), moved(word.end as usize)))
        .collect()
}

/// Whether nothing asks for the requests of a session to be looked at whole.
fn may_land(pool: &PoolPlan, store: &Store, session: &Session) -> bool {
    is_plain(session) && pool.pause.is_unused() && !store.has_script()
}
