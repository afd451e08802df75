//! The loop that starts the requests among a client's bytes, for both protocols.
//!
//! A [`Codec`] reads one request and starts it. The loop does the rest: it stops at a fence, where
//! the client has no room for another reply and where a request has to wait, and it keeps account
//! of how long the requests have waited.

use super::waits::{NextRequest, waited_for_room};
use crate::core::request::PoolInPlan;
use crate::core::request::{BusyClient, ClientMut, ClientRef, Step};
use crate::core::{Connections, Plane};
use keyway_base::Time;
use keyway_proxy::{Busy, Session, WaitFor};
use std::sync::Arc;

/// The outcome of a codec's look at the first bytes of a client.
pub(in crate::core) enum Taken {
    /// It started a request of so many bytes.
    Request(usize),
    /// It passed over so many bytes, without starting a request.
    Passed(usize),
    /// It refused a request of so many bytes, which had found no room on a connection in time.
    Late(usize),
    /// A request could not be started, and stays among the bytes.
    Held(Step),
    /// The next request is not whole: nothing was taken.
    Part,
    /// All bytes are taken, and no request among them is to be started.
    All,
}

/// How the requests of one protocol are read and started.
pub(in crate::core) trait Codec {
    /// Reads the first request of `bytes` and starts it. `pos` bytes were taken before it.
    fn start(
        &mut self,
        plane: &mut Plane,
        links: &mut Connections,
        pool: PoolInPlan<'_>,
        client: BusyClient<'_>,
        bytes: (&[u8], usize),
        next: &mut NextRequest,
    ) -> Taken;

    /// Gives back what it has borrowed from the worker, and notes the client's last request.
    fn end(self, plane: &mut Plane, session: &mut Session, busy: &Busy);
}

/// How far the requests among a client's bytes were started.
struct Reading {
    next: NextRequest,
    /// A request has waited, or somebody's requests wait for a server.
    may_have_waited: bool,
    /// The last request found no room.
    is_full: bool,
    /// The client itself holds its next request up.
    is_held_up: bool,
    /// Since when the first request that has waited did so.
    since: Option<Time>,
}

impl Plane {
    /// Starts the requests in `bytes`, as many as there is room for. Returns
    /// how many bytes they took.
    pub(in crate::core) fn read_requests<C: Codec>(
        &mut self,
        mut codec: C,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        bytes: &[u8],
    ) -> usize {
        let was_paused = std::mem::replace(&mut session.paused, false);
        // Not one by one: it is shared by the workers.
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
            let is_held = session.is_fenced(busy);
            if is_held || !busy.has_room(&plan.limits, session.reply_size) {
                self.hold_behind(session, is_held, &mut reading);
                break;
            }
            session.lift_fence();
            let client = BusyClient { key, session, busy };
            let rest = (&bytes[pos..], pos);
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

    /// The next request stays unparsed: it is behind a fence, or there is no room for its reply.
    #[inline]
    fn hold_behind(&self, session: &mut Session, is_fenced: bool, reading: &mut Reading) {
        // The client itself holds its request up now, for as long as it likes, unless the worker
        // keeps it from overtaking those before it.
        reading.is_held_up = !is_fenced || !self.waits_in_order(session);
        if reading.is_held_up {
            reading.next.is_new = true;
        } else if std::mem::take(&mut reading.next.is_new) {
            (session.full_since, reading.is_full) = (Some(self.clock.now), true);
        }
        session.paused = true;
    }

    /// A request could not be started; its session is resumed when it can.
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
                if session.waits_for.is_none() {
                    session.waits_for = Some(WaitFor::Connection);
                    links[link].waiting.push(key);
                }
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
        // The first request has waited, also if it was refused and the next one has started.
        let has_waited = since.is_some() || !next.is_new || (next.was_full && pos > 0);
        let is_over = next.is_new || (pos > 0 && !reading.is_full);
        self.settle_wait(ClientMut { key, session }, is_over, has_waited && !reading.is_held_up);
    }
}
