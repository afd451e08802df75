//! The codec of memcached's protocols, which reads one request and starts it.

use super::ahead::Ahead;
use crate::core::front::read::{Codec, Taken, Unread};
use crate::core::front::waits::{Late, NextRequest};
use crate::core::pools::memcached::state::Call;
use crate::core::pools::memcached::state::UNAUTHENTICATED_LEN_MAX;
use crate::core::pools::memcached::state::write_quiet_delete;
use crate::core::request::PoolInPlan;
use crate::core::request::{BusyClient, Step};
use crate::core::{Connections, Plane};
use keyway_base::Fault;
use keyway_memcache::{
    ErrorKind, Outcome, ParseLimits, Parsed, Request, RequestFault, Verb, Wire, parse_request,
};
use keyway_proxy::{Busy, Session};

/// Reads requests of memcached's protocols.
struct Memcached {
    requests: Ahead,
}

impl Codec for Memcached {
    #[inline(always)]
    fn start(
        &mut self,
        plane: &mut Plane,
        links: &mut Connections,
        PoolInPlan { plan, pool }: PoolInPlan<'_>,
        BusyClient { key, session, busy }: BusyClient<'_>,
        Unread { bytes, pos }: Unread<'_>,
        next: &mut NextRequest,
    ) -> Taken {
        let Some(client) = &mut session.memcached else { return Taken::Part };
        if client.skip > 0 {
            let skip = usize::try_from(client.skip).unwrap_or(usize::MAX).min(bytes.len());
            client.skip -= skip as u64;
            return Taken::Passed(skip);
        }
        let wire = *client.wire.get_or_insert_with(|| Wire::of(bytes[0]));
        let len_max = match session.identity.authenticated {
            true => client.item_len_max,
            false => client.item_len_max.min(UNAUTHENTICATED_LEN_MAX),
        };
        let limits = ParseLimits::of(&plan.limits, len_max);
        if pos > 0
            && session.identity.authenticated
            && let Some(store) = pool.kind.store()
        {
            self.requests.look_ahead(store, bytes, wire, &limits);
        }
        let consumed = match self.requests.next(bytes, wire, &limits) {
            Parsed::Ready { consumed } => consumed,
            Parsed::NeedMore { at_least } => {
                busy.input_needed = at_least;
                return Taken::Part;
            }
            Parsed::Refused { consumed, skip, fault } => {
                let refused = self.requests.request();
                if fault == RequestFault::ValueTooLarge {
                    let client = BusyClient { key, session, busy };
                    let step = plane.forget_refused(
                        links,
                        PoolInPlan { plan, pool },
                        client,
                        refused,
                        bytes,
                        next,
                    );
                    if !matches!(step, Step::Started) {
                        return Taken::Held(step);
                    }
                }
                if let Some(client) = &mut session.memcached {
                    client.skip = skip;
                }
                plane.refuse_memcached(session, busy, refused, fault);
                return Taken::Passed(consumed);
            }
        };
        let bytes = &bytes[..consumed];
        let request = self.requests.request();
        let mut call = Call { key, session, busy, request, bytes, warm: None };
        match plane.dispatch_memcached(links, PoolInPlan { plan, pool }, &mut call) {
            Step::Started => {
                if plane.observe.hot_keys.is_due(consumed) {
                    plane.note_memcached(pool, session, request, bytes);
                }
                Taken::Request(consumed)
            }
            step => {
                let late = plane.late(links, call.client(), &step, next);
                let Some(late) = late else { return Taken::Held(step) };
                match plane.refuse_late_memcached(links, &mut call, late) {
                    true => Taken::Late(consumed),
                    false => Taken::Passed(consumed),
                }
            }
        }
    }

    #[inline]
    fn end(self, plane: &mut Plane, session: &mut Session, _busy: &Busy) {
        session.identity.live.note_request(None, plane.clock.now);
        plane.memcached.ahead = self.requests;
    }
}

impl Plane {
    /// Starts the requests in `bytes` of a client of memcached, as many as there is room for.
    /// Returns how many bytes they took.
    #[inline(never)]
    pub(in crate::core) fn parse_memcached(
        &mut self,
        links: &mut Connections,
        client: BusyClient<'_>,
        bytes: &[u8],
    ) -> usize {
        let mut requests = std::mem::take(&mut self.memcached.ahead);
        requests.forget();
        self.read_requests(Memcached { requests }, links, client, bytes)
    }

    /// Refuses a request that has waited too long for room. Returns whether it found no room on a
    /// connection.
    #[cold]
    fn refuse_late_memcached(
        &mut self,
        links: &Connections,
        call: &mut Call<'_>,
        late: Late,
    ) -> bool {
        match late {
            Late::Full(link, fault) => {
                let backend = self.describe_backend(links[link].server_id);
                self.tell_failure(call, fault, &backend);
                true
            }
            Late::Crowded(text) => {
                self.cells.pool(usize::from(call.session.pool)).refused.of(Fault::Denied).add(1);
                let words = text.strip_prefix("ERR ").unwrap_or(&text);
                let error = Outcome::Error { kind: ErrorKind::Server, text: words.as_bytes() };
                self.tell_memcached(call, &error);
                false
            }
        }
    }

    /// Deletes the item whose new value is refused for its length, as memcached does, so that
    /// clients do not go on reading the old value.
    #[cold]
    fn forget_refused(
        &mut self,
        links: &mut Connections,
        PoolInPlan { plan, pool }: PoolInPlan<'_>,
        BusyClient { key, session, busy }: BusyClient<'_>,
        refused: &Request,
        bytes: &[u8],
        next: &mut NextRequest,
    ) -> Step {
        let is_wanted = refused.head.verb == Verb::Set && !refused.keys.is_empty();
        if !is_wanted || !session.identity.authenticated {
            return Step::Started;
        }
        let (mut request, mut line) = (Request::default(), Vec::new());
        let name = refused.key(bytes, 0);
        if !write_quiet_delete(&mut line, name) {
            return Step::Started;
        }
        let limits = ParseLimits::of(&plan.limits, 0);
        let parsed = parse_request(&line, Wire::Text, &limits, &mut request);
        let is_whole = parsed == Parsed::Ready { consumed: line.len() };
        if !is_whole || !request.keys(&line).eq([name]) {
            return Step::Started;
        }
        let mut call = Call { key, session, busy, request: &request, bytes: &line, warm: None };
        // The deletion is a part of the client's request.
        if !call.session.identity.is_free
            && let Some(step) = self.look_at_memcached(links, &mut call, &refused.head)
        {
            return step;
        }
        let step = self.start_memcached(links, PoolInPlan { plan, pool }, &mut call);
        // The deletion has no answer of its own: the value is refused all the same.
        let Some(late) = self.late(links, call.client(), &step, next) else { return step };
        self.refuse_late_memcached(links, &mut call, late);
        Step::Started
    }

    /// Answers bytes that are not a request.
    #[cold]
    fn refuse_memcached(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
        fault: RequestFault,
    ) {
        let cells = self.cells.pool(usize::from(session.pool));
        let reply_index = busy.order.reserve();
        busy.order.complete(reply_index, &mut busy.output, |out| fault.write(&request.head, out));
        if fault.closes() {
            cells.refused.of(Fault::Client).add(1);
            session.closing = true;
            session.broken = true;
        } else {
            cells.refused.of(Fault::Denied).add(1);
        }
    }
}
