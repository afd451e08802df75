//! The loop that starts the requests in a client's bytes, for both protocols.
//!
//! A [`Codec`] reads one request and starts it. The loop does the rest: it stops at a fence, where
//! the client has no room for another reply and where a request has to wait, and it keeps account
//! of how long the requests have waited.

use super::waits::{NextRequest, waited_for_room};
use crate::core::clients::WaitOn;
use crate::core::request::PoolInPlan;
use crate::core::request::{BusyClient, ClientMut, ClientRef, Step};
use crate::core::{Connections, Plane};
use keyway_base::Time;
use keyway_proxy::{Busy, Session};
use std::sync::Arc;

/// The result of a codec for the first bytes of a client.
pub(in crate::core) enum Taken {
    /// It started a request of this number of bytes.
    Request(usize),
    /// It skipped this number of bytes, without starting a request.
    Passed(usize),
    /// It refused a request of this number of bytes, which had found no room on a connection in
    /// time.
    Late(usize),
    /// A request could not be started, and stays in the buffer.
    Held(Step),
    /// The next request is incomplete: nothing was taken.
    Part,
    /// All bytes are taken, and none of them is a request to start.
    All,
}

/// The bytes of a client whose requests were not started yet.
#[derive(Clone, Copy)]
pub(in crate::core) struct Unread<'b> {
    pub(in crate::core) bytes: &'b [u8],
    /// Number of bytes that were taken before these.
    pub(in crate::core) pos: usize,
}

/// How the requests of one protocol are read and started.
pub(in crate::core) trait Codec {
    /// Reads the first of the unread requests and starts it.
    fn start(
        &mut self,
        plane: &mut Plane,
        links: &mut Connections,
        pool: PoolInPlan<'_>,
        client: BusyClient<'_>,
        unread: Unread<'_>,
        next: &mut NextRequest,
    ) -> Taken;

    /// Returns what it has borrowed from the worker, and notes the client's last request.
    fn end(self, plane: &mut Plane, session: &mut Session, busy: &Busy);
}

/// The progress of starting the requests in a client's bytes.
struct Reading {
    next: NextRequest,
    /// True if a request has waited, or requests of any client wait for a server.
    may_have_waited: bool,
    /// True if the last request found no room.
    is_full: bool,
    /// True if the client itself delays its next request.
    is_held_up: bool,
    /// Since when the first request that has waited did so.
    since: Option<Time>,
}

impl Plane {
    /// Starts the requests in `bytes`, as many as there is room for. Returns the number of bytes
    /// that they took.
    pub(in crate::core) fn read_requests<C: Codec>(
        &mut self,
        mut codec: C,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        bytes: &[u8],
    ) -> usize {
        let was_paused = std::mem::replace(&mut session.paused, false);
        // The plan is not cloned for each request, because the workers share its count.
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[session.pool as usize];
        self.choose_lane(links, ClientMut { key, session }, busy);
        let mut reading = self.begin_reading(ClientRef { key, session });
        let waited = self.waited_in_vain(key);
        let led_from = std::mem::replace(&mut self.cluster.waited, waited);
        busy.input_needed = 0;
        let mut pos = 0;
        while pos < bytes.len() {
            if session.closing {
                pos = bytes.len();
                break;
            }
            let is_held = session.is_held_by_fence(busy);
            if is_held || !busy.has_room(&plan.limits, session.reply_size) {
                self.hold_behind(session, is_held, &mut reading);
                break;
            }
            let client = BusyClient { key, session, busy };
            let rest = Unread { bytes: &bytes[pos..], pos };
            let next = &mut reading.next;
            match codec.start(self, links, PoolInPlan { plan: &plan, pool }, client, rest, next) {
                Taken::Request(consumed) => {
                    if pos == 0 && reading.may_have_waited {
                        reading.since = self.waited_since(ClientRef { key, session });
                        if self.cluster.waited.is_some() {
                            self.end_wait_in_vain(key);
                        }
                    } else if reading.next.was_full && reading.since.is_none() {
                        reading.since = waited_for_room(session);
                    }
                    pos += consumed;
                    reading.next.is_new = true;
                }
                Taken::Passed(consumed) => pos += consumed,
                Taken::Late(consumed) => {
                    pos += consumed;
                    reading.next = NextRequest::BEHIND_REFUSED;
                }
                Taken::Held(step) => {
                    reading.is_full = matches!(step, Step::Full(_) | Step::Crowded);
                    self.hold(links, ClientMut { key, session }, step);
                    break;
                }
                Taken::Part => break,
                Taken::All => {
                    pos = bytes.len();
                    break;
                }
            }
        }
        self.end_reading(links, ClientMut { key, session }, &reading, pos);
        self.cluster.waited = led_from;
        codec.end(self, session, busy);
        if session.paused && !was_paused {
            self.cells.pool(session.pool as usize).clients.pauses.add(1);
        }
        pos
    }

    #[inline]
    fn begin_reading(&self, ClientRef { key, session }: ClientRef<'_>) -> Reading {
        let next = NextRequest::of(session, self.clients.rereading == Some(key));
        Reading {
            may_have_waited: next.was_full || self.cluster.has_waiting(),
            next,
            is_full: false,
            is_held_up: false,
            since: None,
        }
    }

    /// Leaves the next request unparsed: it is after a fence, or there is no room for its reply.
    #[inline]
    fn hold_behind(&self, session: &mut Session, is_fenced: bool, reading: &mut Reading) {
        // The client itself delays its request now, for any length of time, unless the worker keeps
        // it from overtaking earlier ones.
        reading.is_held_up = !is_fenced || !self.waits_in_order(session);
        if reading.is_held_up {
            reading.next.is_new = true;
        } else if std::mem::take(&mut reading.next.is_new) {
            (session.full_since, reading.is_full) = (Some(self.clock.now), true);
        }
        session.paused = true;
    }

    /// Handles a request that could not be started. Its session is resumed when it can.
    fn hold(
        &mut self,
        links: &mut Connections,
        ClientMut { key, session }: ClientMut<'_>,
        step: Step,
    ) {
        self.retract_shown(key);
        session.paused = true;
        match step {
            Step::Started | Step::Wait => {}
            Step::Crowded => self.wait_among_routed_requests(key, session),
            Step::Full(link) => {
                self.wait_for(ClientMut { key, session }, WaitOn::Connection(&mut links[link]));
            }
        }
    }

    #[inline]
    fn end_reading(
        &mut self,
        links: &mut Connections,
        ClientMut { key, session }: ClientMut<'_>,
        reading: &Reading,
        pos: usize,
    ) {
        let Reading { next, since, .. } = reading;
        if let Some(since) = *since {
            self.bring_waited(links, key, since);
        }
        // The first request has waited, even if it was refused and the next one has started.
        let has_waited = since.is_some() || !next.is_new || (next.was_full && pos > 0);
        let is_over = next.is_new || (pos > 0 && !reading.is_full);
        self.settle_wait(ClientMut { key, session }, is_over, has_waited && !reading.is_held_up);
    }
}
