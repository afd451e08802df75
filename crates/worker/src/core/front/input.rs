//! Handles the bytes of clients, from their sockets to the loop that reads requests.

use super::resp::Resp;
use crate::core::request::{BusyClient, ClientMut};
use crate::core::sessions::reads_on;
use crate::core::{Connections, Core, Plane};
use keyway_base::Key;
use keyway_proxy::{Busy, Session};

/// Capacity of the input that is kept once everything is parsed, in bytes.
const INPUT_KEPT_MAX: usize = 32 << 10;

impl Core {
    /// Handles bytes that a client sent.
    pub(crate) fn on_client_bytes(&mut self, key: Key<Session>, bytes: &[u8]) {
        let Core { sessions, links, plane } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let clients = &plane.cells.pool(session.pool as usize).clients;
        clients.received_bytes.add(bytes.len() as u64);
        let mut busy = session.busy.take().unwrap_or_else(|| plane.clients.busy_pool.take());
        busy.hold.note_asked(plane.clock.now);
        let mut bytes = bytes;
        while !bytes.is_empty() {
            bytes = plane.take_input(links, key, session, &mut busy, bytes);
        }
        if !busy.unparsed().is_empty() {
            // A part of a request is a sign of life as well.
            session.identity.live.note_request(None, plane.clock.now);
        }
        plane.settle(key, session, busy);
    }

    /// Parses kept input of the sessions that have room again. Returns those whose socket may have
    /// unread bytes, in `reread`.
    pub(crate) fn resume_sessions(&mut self, reread: &mut Vec<Key<Session>>) {
        let mut resumes = std::mem::take(&mut self.plane.clients.resuming);
        for key in resumes.drain(..) {
            let Core { sessions, links, plane } = self;
            let Some(session) = sessions.get_mut(key) else { continue };
            session.is_resuming = false;
            let Some(mut busy) = session.busy.take() else {
                // The replies for which it waited arrived, and were sent, in the previous turn.
                session.lift_fence();
                session.paused = false;
                if session.ended {
                    session.closing = true;
                    plane.mark_session_dirty(key, session);
                }
                if session.unread && !std::mem::replace(&mut session.is_reread, true) {
                    reread.push(key);
                }
                continue;
            };
            if session.paused {
                busy.input_needed = 0;
                plane.parse_kept(links, key, session, &mut busy);
                if session.sub_request.is_some() && busy.unparsed().is_empty() {
                    plane.note_unstalled(session);
                }
            }
            let may_read = session.unread && (!session.paused || reads_on(session, Some(&busy)));
            if may_read && !std::mem::replace(&mut session.is_reread, true) {
                reread.push(key);
            }
            plane.settle(key, session, busy);
        }
        if self.plane.clients.resuming.is_empty() {
            self.plane.clients.resuming = resumes;
        }
    }

    /// Notes that the client sends no more. Its replies are still due.
    pub(crate) fn on_client_end(&mut self, key: Key<Session>) {
        let Core { sessions, links, plane } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        if session.streaming.is_some() {
            let mut busy = session.busy.take();
            plane.cut_off_streaming(links, ClientMut { key, session }, busy.as_deref_mut());
            session.busy = busy;
            session.closing = true;
        }
        // Requests that wait for room were received completely and are answered. A request that was
        // cut off by the end can never be completed.
        if !session.paused {
            session.closing = true;
        }
        session.unread = false;
        session.ended = true;
        plane.mark_session_dirty(key, session);
    }
}

impl Plane {
    fn settle(&mut self, key: Key<Session>, session: &mut Session, busy: Box<Busy>) {
        session.note_state();
        if !busy.output.is_empty() || busy.is_empty() || session.closing {
            session.busy = Some(busy);
            self.mark_session_dirty(key, session);
        } else {
            session.busy = Some(busy);
        }
    }

    /// Handles bytes of a client, or the first of them. Returns the rest, to be handled next.
    fn take_input<'b>(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        bytes: &'b [u8],
    ) -> &'b [u8] {
        if session.streaming.is_some() {
            return self.stream_on(links, BusyClient { key, session, busy }, bytes);
        }
        let kept = busy.unparsed().len();
        if kept == 0 {
            let parsed = self.parse(links, key, session, busy, bytes);
            if parsed < bytes.len() {
                busy.keep_input(&bytes[parsed..]);
            }
            return &[];
        }
        // A request of which only a small part is missing is completed. Bytes after it are not
        // copied.
        let missing = busy.input_needed.saturating_sub(kept);
        let is_completed = !session.paused && (1..bytes.len()).contains(&missing);
        let (joined, rest) = bytes.split_at(if is_completed { missing } else { bytes.len() });
        busy.keep_input(joined);
        self.parse_kept(links, key, session, busy);
        if rest.is_empty() || busy.unparsed().is_empty() {
            return rest;
        }
        busy.keep_input(rest);
        if !session.paused {
            self.parse_kept(links, key, session, busy);
        }
        &[]
    }

    /// Parses the kept input of the session.
    pub(in crate::core) fn parse_kept(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
    ) {
        if busy.unparsed().len() < busy.input_needed {
            return;
        }
        let mut input = std::mem::take(&mut busy.input);
        let start = busy.parsed;
        busy.parsed = 0;
        let parsed = start + self.parse(links, key, session, busy, &input[start..]);
        debug_assert!(busy.input.is_empty());
        if parsed == input.len() {
            input.clear();
            if input.capacity() > INPUT_KEPT_MAX {
                input = Vec::new();
            }
        } else {
            busy.parsed = parsed;
        }
        busy.input = input;
        if session.ended && !session.paused {
            session.closing = true;
        }
    }

    /// Starts the requests in `bytes`, as many as there is room for. Returns the number of bytes
    /// that they took.
    pub(in crate::core) fn parse(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        bytes: &[u8],
    ) -> usize {
        let client = BusyClient { key, session, busy };
        if client.session.memcached.is_some() {
            return self.parse_memcached(links, client, bytes);
        }
        let codec = Resp::new(self);
        self.read_requests(codec, links, client, bytes)
    }
}
