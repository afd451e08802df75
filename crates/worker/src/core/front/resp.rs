//! Requests of clients with Redis's protocol.

use super::read::{Codec, Taken, Unread};
use super::waits::{Late, NextRequest};
use crate::core::pools::servers::tracking::forget_caching;
use crate::core::request::PoolInPlan;
use crate::core::request::{BusyClient, ClientMut, RequestBuffers, Step};
use crate::core::upstream::streamed_requests::{Begun, PartialRequest};
use crate::core::{Connections, Plane};
use keyway_base::{Fault, Limits};
use keyway_command::Verb;
use keyway_proxy::{Busy, Session, write_fault};
use keyway_resp::{ParseLimits, Parsed, parse_request, reply};

/// Reads requests of Redis's protocol.
pub(in crate::core) struct Resp {
    buffers: Box<RequestBuffers>,
    /// Index up to which the store knows the next keys.
    ahead: usize,
}

impl Resp {
    /// Creates a codec, with buffers of the worker.
    #[inline]
    pub(super) fn new(plane: &mut Plane) -> Resp {
        plane.last_verb = None;
        Resp { buffers: plane.buffers.take().unwrap_or_default(), ahead: 0 }
    }
}

impl Codec for Resp {
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
        let limits = parse_limits(&plane.plan.limits, session);
        if pos > 0 && pos >= self.ahead {
            self.ahead = pos + plane.look_ahead(session, bytes, &limits);
        }
        let RequestBuffers { args, inline } = &mut *self.buffers;
        let (consumed, frame) = match parse_request(bytes, &limits, args, inline) {
            Ok(Parsed::Ready { consumed }) => (consumed, &bytes[..consumed]),
            Ok(Parsed::Inline { consumed }) => (consumed, &inline[..]),
            Ok(Parsed::NeedMore { at_least }) => {
                busy.input_needed = at_least;
                if at_least < plan.limits.pass_len() {
                    return Taken::Part;
                }
                let part = PartialRequest { bytes, end: at_least, args };
                match plane.begin_streaming(links, pool, BusyClient { key, session, busy }, part) {
                    Begun::Yes => return Taken::All,
                    Begun::Wait => session.paused = true,
                    Begun::No => {}
                }
                return Taken::Part;
            }
            Err(fault) => {
                plane.on_broken_frame(session, busy, |out| fault.write_error(out));
                return Taken::All;
            }
        };
        match plane.dispatch(
            links,
            PoolInPlan { plan, pool },
            ClientMut { key, session },
            busy,
            frame,
            args,
        ) {
            Step::Started => {
                if plane.observe.hot_keys.is_due(consumed) {
                    plane.note_request(plan.pools.as_slice(), session, frame, args);
                }
                Taken::Request(consumed)
            }
            step => {
                let Some(late) = plane.late(links, ClientMut { key, session }, &step, next) else {
                    return Taken::Held(step);
                };
                plane.refuse_late(links, BusyClient { key, session, busy }, late, consumed)
            }
        }
    }

    #[inline]
    fn end(self, plane: &mut Plane, session: &mut Session, busy: &Busy) {
        session.identity.live.note_request(plane.last_verb, plane.clock.now);
        // It is useless to read what cannot be started.
        session.paused |= session.is_fenced(busy);
        plane.buffers = Some(self.buffers);
    }
}

impl Plane {
    /// Refuses a request of `len` bytes whose time to find room is over.
    #[cold]
    fn refuse_late(
        &mut self,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        late: Late,
        len: usize,
    ) -> Taken {
        let (link, fault) = match late {
            Late::Crowded(text) => {
                self.refuse(session, busy, |out| reply::error(out, &text));
                return Taken::Passed(len);
            }
            Late::Full(link, fault) => (link, fault),
        };
        session.note_fault(fault);
        let backend = self.describe_backend(links[link].server_id);
        match self.last_verb {
            // Its commands are dropped, because nothing of them was sent.
            Some(Verb::Exec) => self.end_transaction(links, key, session),
            _ => session.stateful.iter_mut().for_each(|stateful| stateful.refuse()),
        }
        forget_caching(session);
        self.answer(session, busy, |out| write_fault(fault, &backend, out));
        Taken::Late(len)
    }

    #[cold]
    pub(in crate::core) fn on_broken_frame(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.cells.pool(session.pool as usize).refused.of(Fault::Client).add(1);
        let reply_index = busy.order.reserve();
        let errors = &self.plan.pools[usize::from(session.pool)].errors;
        busy.order.complete(reply_index, &mut busy.output, |out| errors.watch(out, write));
        session.closing = true;
        session.broken = true;
    }
}

#[inline]
fn parse_limits(limits: &Limits, session: &Session) -> ParseLimits {
    let limits = ParseLimits::of(limits);
    if session.identity.authenticated { limits } else { limits.unauthenticated() }
}
