//! Large requests that are streamed to their server, or into a store.
//!
//! ```text
//!   client ──► link of its own, as much as a window ──► server
//!     ▲                        │
//!     └── not read while that is full
//! ```
//! A client may stop in the middle of a request, so no other client shares the connection: a
//! private link is leased, and returned with the reply. The client's requests keep their order,
//! because the large one waits for every earlier reply, and later ones wait for its reply. While a
//! server owes the reply to one of the client's writes that has timed out, the request is kept
//! until it is complete, and uses the connection of that write.
//!
//! A streamed request has its key first and then the value, like `SET`. All others are kept until
//! they are complete, within `bulk_len_max` and `request_len_max`.

use crate::PoolPlan;
use crate::core::clients::WaitOn;
use crate::core::observe::hot_keys::Sight;
use crate::core::request::{BusyClient, ClientMut, ClientRef, RequestContext};
use crate::core::upstream::bypass::owes_late_write;
use crate::core::{Connection, ConnectionKey, Connections, Plane};
use keyway_base::{ByteRange, Key, Limits};
use keyway_command::{Args, Request, Verb};
use keyway_proxy::{Busy, Owner, Session, Streaming};
use keyway_resp::{ParseLimits, Parsed, RequestFault, parse_request};
use keyway_route::{Route, route};
use keyway_topology::{Distribution, ServerId};
use std::time::Duration;

/// Largest number of arguments after the value, such as `EX 10`.
const TAIL_ARGS_MAX: usize = 8;

/// Largest number of arguments in total. With more, the end of the value may not be the announced
/// one.
const ARGS_MAX: usize = 1000;

/// Number of requests that a worker streams to one server. Each has a connection of its own. More
/// would take the connections of others. With fewer, more requests would be kept until they are
/// complete.
const PER_SERVER_MAX: usize = 64;

/// How long a server may take for a large request, in addition to the usual time, when it was sent
/// completely: a part of it is still in flight.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// A request of which a part has arrived.
pub(in crate::core) struct PartialRequest<'a> {
    /// The bytes that have arrived.
    pub(in crate::core) bytes: &'a [u8],
    /// Where the argument ends that is incomplete, counted from the request's first byte.
    pub(in crate::core) end: usize,
    /// The arguments before that one.
    pub(in crate::core) args: &'a mut Vec<ByteRange>,
}

/// The result for a large request.
pub(in crate::core) enum Begun {
    /// It is streamed. Everything that has arrived of it was taken.
    Yes,
    /// It is kept until it is complete.
    No,
    /// It is handled again when its wait is over.
    Wait,
}

/// Returns whether the value of a command may be sent before it is complete: there is one key,
/// before the value, and nothing else decides where the command goes.
fn has_value_behind(verb: Verb) -> bool {
    use Verb::*;
    matches!(
        verb,
        Set | Setnx | Setex | Psetex | Getset | Append | Setrange | Hset | Hsetnx | Rpush | Lpush
    )
}

impl Plane {
    /// Begins to send a request of which a part has arrived.
    #[cold]
    pub(in crate::core) fn begin_streaming(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        BusyClient { key, session, busy }: BusyClient<'_>,
        part: PartialRequest<'_>,
    ) -> Begun {
        if let Some(store) = pool.kind.store() {
            return self.begin_partial_set(pool, store, BusyClient { key, session, busy }, part);
        }
        let PartialRequest { bytes, end, args } = part;
        let Some(sharded) = pool.kind.streams_to() else { return Begun::No };
        let Some((tail, value_len)) = tail_of(bytes, args, end, self.plan.limits.pass_len() / 2)
        else {
            return Begun::No;
        };
        let is_free = session.identity.is_free && is_plain(session);
        if !pool.pause.is_unused() || !is_free {
            return Begun::No;
        }
        // Empty ones represent those that have not arrived.
        args.resize(args.len() + 1 + tail, ByteRange::new(0, 0));
        let Ok(request) = Request::resolve(Args::new(bytes, args)) else { return Begun::No };
        let verb = request.command.verb;
        if !has_value_behind(verb) || (tail > 0 && verb != Verb::Set) {
            return Begun::No;
        }
        let random = match sharded.distribution {
            Distribution::Random => self.next_random() as u32,
            _ => 0,
        };
        let Some(state) = self.pools[usize::from(session.pool)].servers() else {
            return Begun::No;
        };
        let Route::One(server) = route(&request, sharded, state.ring(), random, &mut self.keys)
        else {
            return Begun::No;
        };
        let row = *state.shared();
        if !self.has_room_for_large(links, ServerId { pool: session.pool, server }) {
            return Begun::No;
        }
        if !session.is_quiet(busy) {
            session.fence();
            return Begun::Wait;
        }
        let shared = self.link_of(&row, session, server);
        if self.waits_for_primary(links, shared, ClientMut { key, session }) {
            return Begun::Wait;
        }
        // The late write would be executed after this request, which uses another connection.
        if owes_late_write(links, ClientMut { key, session }) {
            return Begun::No;
        }
        let mut incoming = RequestContext { key, session, busy, request: &request };
        let left = end - bytes.len();
        self.last_verb = Some(verb);
        // Without a link the request was answered, and the rest of it is dropped.
        let link = self.lease_for(links, &mut incoming, server);
        if let Some(index) = link {
            let sight = Sight::of_request(&request.args[1], request.command.name);
            self.note_large(&pool.key_stats, sight, value_len);
            self.send_begun(links, &mut incoming, index);
        }
        let streaming = Streaming { link, left, tail: head_of(tail), ..Streaming::default() };
        session.streaming = Some(Box::new(streaming));
        Begun::Yes
    }

    fn send_begun(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        index: ConnectionKey,
    ) {
        self.note_write(incoming.session, incoming.busy);
        links[index].link.is_blocking = true;
        links[index].is_streamed = true;
        links[index].takes_large = true;
        links[index].awaited_keys = self.hashes_of(incoming);
        self.send_private(links, incoming, index);
        self.note_deadline(links[index].link.deadline(self.link_options(incoming.session.pool)));
        self.upstream.streamed.push(index);
        self.batch += 1;
    }

    /// Returns whether another large request may be streamed to a server.
    fn has_room_for_large(&mut self, links: &Connections, server: ServerId) -> bool {
        let takes_large = |it: &Connection| it.takes_large && !it.is_free;
        self.upstream.streamed.retain(|&key| links.get(key).is_some_and(takes_large));
        let is_there = |&&index: &&ConnectionKey| links[index].server_id == server;
        self.upstream.streamed.iter().filter(is_there).count() < PER_SERVER_MAX
    }

    /// Returns whether clients that wait for room on a link may continue.
    pub(super) fn takes_more(&self, connection: &Connection) -> bool {
        let has_window = !connection.is_streamed
            || connection.link.unsent_len() <= self.plan.limits.pass_len() / 2;
        let is_gone = (connection.is_lost | connection.is_watched) && self.is_gone(connection);
        has_window
            && !is_gone
            && connection.link.has_drained(self.link_options(connection.server_id.pool))
    }

    /// Takes more of a streamed request. Returns the bytes after it.
    #[cold]
    pub(in crate::core) fn stream_on<'b>(
        &mut self,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        bytes: &'b [u8],
    ) -> &'b [u8] {
        let Some(mut streaming) = session.streaming.take() else { return bytes };
        if !bytes.is_empty() {
            session.identity.live.note_request(None, self.clock.now);
        }
        let (part, mut rest) = bytes.split_at(bytes.len().min(streaming.left));
        streaming.left -= part.len();
        let client = BusyClient { key, session: &mut *session, busy: &mut *busy };
        if !self.take_value_part(links, client, &mut streaming, part) {
            return &[];
        }
        if streaming.left > 0 {
            session.streaming = Some(streaming);
            return rest;
        }
        if !streaming.tail.is_empty() {
            match extend_tail(&mut streaming, rest, &self.plan.limits) {
                Tail::Whole(len) => {
                    rest = &rest[rest.len() - (streaming.tail.len() - len)..];
                    streaming.tail.truncate(len);
                    if !streaming.lands {
                        self.send_tail(links, ClientMut { key, session }, &mut streaming);
                    }
                }
                Tail::Partial(at_least) => {
                    streaming.tail_at_least = at_least;
                    session.streaming = Some(streaming);
                    return &[];
                }
                Tail::Broken(fault) => {
                    session.streaming = Some(streaming);
                    self.cut_off_streaming(links, ClientMut { key, session }, Some(busy));
                    self.on_broken_frame(session, busy, |out| fault.write_error(out));
                    return &[];
                }
            }
        }
        let client = BusyClient { key, session, busy };
        match streaming.lands {
            true => self.land(links, client, *streaming),
            false => self.end_streaming(links, client, &streaming),
        }
        rest
    }

    /// Takes a part of the value of a streamed request. Returns false if the value does not end
    /// as announced: then the client got an error.
    fn take_value_part(
        &mut self,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        streaming: &mut Streaming,
        part: &[u8],
    ) -> bool {
        if streaming.lands {
            let context = self.session_context(session);
            let is_sound = self.upstream.partial_sets.take_part(key, part, context);
            if !is_sound {
                self.upstream.partial_sets.remove(key);
                self.on_broken_frame(session, busy, |out| RequestFault::BulkEnd.write_error(out));
            }
            return is_sound;
        }
        if streaming.left == 0 && streaming.tail.is_empty() {
            self.cut_off_paused(links, ClientRef { key, session }, streaming);
        }
        self.send_part(links, ClientMut { key, session }, streaming, part);
        true
    }

    /// Sends the arguments after the value, which are complete, without the head of their array.
    fn send_tail(
        &mut self,
        links: &mut Connections,
        client: ClientMut<'_>,
        streaming: &mut Streaming,
    ) {
        let tail = std::mem::take(&mut streaming.tail);
        let ClientMut { key, session } = client;
        self.cut_off_paused(links, ClientRef { key, session }, streaming);
        self.send_part(links, ClientMut { key, session }, streaming, &tail["*1\r\n".len()..]);
    }

    /// Notes that a request was sent completely. Its server has `ANSWERED_WITHIN` more for it.
    fn end_streaming(
        &mut self,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        streaming: &Streaming,
    ) {
        if let Some(index) = self.streamed_link(links, key, streaming) {
            let until = self.answered_within(session.pool, Some(ANSWERED_WITHIN));
            links[index].is_streamed = false;
            links[index].awaited_keys.clear();
            links[index].link.blocks_until = until;
            links[index].link.stays_when_late = true;
            self.note_deadline(links[index].link.deadline(self.link_options(session.pool)));
        }
        // Later requests wait for the reply, unless it has arrived.
        match session.is_quiet(busy) {
            true => session.lift_fence(),
            false => session.fence(),
        }
    }

    /// Returns the link through which a request is sent, unless it was lost or has answered.
    fn streamed_link(
        &self,
        links: &Connections,
        key: Key<Session>,
        streaming: &Streaming,
    ) -> Option<ConnectionKey> {
        let index = streaming.link?;
        let connection = links.get(index)?;
        (connection.lease == Some(key) && connection.is_streamed).then_some(index)
    }

    fn send_part(
        &mut self,
        links: &mut Connections,
        ClientMut { key, session }: ClientMut<'_>,
        streaming: &mut Streaming,
        part: &[u8],
    ) {
        let Some(index) = self.streamed_link(links, key, streaming) else {
            streaming.link = None;
            return;
        };
        let connection = &mut links[index];
        if connection.link.unsent_len() == 0 && !part.is_empty() {
            connection.link.note_progress(self.clock.now);
        }
        connection.link.extend_last(part);
        self.note_deadline(connection.link.deadline(self.link_options(connection.server_id.pool)));
        self.mark_link_dirty(index, connection);
        if connection.link.unsent_len() >= self.plan.limits.pass_len()
            && session.waits_for.is_none()
        {
            session.paused = true;
            self.wait_for(ClientMut { key, session }, WaitOn::Connection(connection));
        }
    }

    /// Ends the connection of a request that would be complete while its pool is paused: it must
    /// not be executed now, and its client gets an error.
    fn cut_off_paused(
        &mut self,
        links: &mut Connections,
        ClientRef { key, session }: ClientRef<'_>,
        streaming: &mut Streaming,
    ) {
        let pause = &self.plan.pools[usize::from(session.pool)].pause;
        if pause.is_unused() || pause.end(self.clock.now).is_none() {
            return;
        }
        if let Some(index) = self.streamed_link(links, key, streaming) {
            streaming.link = None;
            links[index].lease = None;
            self.upstream.discards.push(index);
        }
    }

    /// Ends the connection on which half of a request was sent. It is not executed, and has no
    /// reply, like one of which a part was kept.
    #[cold]
    pub(in crate::core) fn cut_off_streaming(
        &mut self,
        links: &mut Connections,
        ClientMut { key, session }: ClientMut<'_>,
        mut busy: Option<&mut Busy>,
    ) {
        let Some(streaming) = session.streaming.take() else { return };
        if streaming.lands {
            self.upstream.partial_sets.remove(key);
        }
        if let Some(index) = self.streamed_link(links, key, &streaming) {
            links[index].link.abandon(|exchange| {
                if let (Owner::Session { sequence, .. }, Some(busy)) = (exchange.owner, &mut busy) {
                    busy.order.withdraw(sequence);
                }
            });
            links[index].lease = None;
            self.upstream.discards.push(index);
        }
    }
}

/// Returns the head of an array of the arguments after the value. It is empty if there are none.
fn head_of(tail: usize) -> Vec<u8> {
    match tail {
        0 => Vec::new(),
        _ => format!("*{tail}\r\n").into_bytes(),
    }
}

/// Returns whether nothing that a session has begun needs complete requests.
fn is_plain(session: &Session) -> bool {
    !Plane::is_silent(session)
        && !session.is_special()
        && session.subscriptions.is_none()
        && !session.is_monitor
        && session.sub_request.is_none()
        && session.memcached.is_none()
        && !session.closing
        && !session.ended
}

/// Returns the number of arguments after the value that ends at `end`, and the length of the value,
/// if there are few arguments, the value is long, and all before it has arrived.
fn tail_of(bytes: &[u8], args: &[ByteRange], end: usize, len_min: usize) -> Option<(usize, usize)> {
    let (count, _) = number(bytes, b'*')?;
    let tail = count.checked_sub(args.len() + 1)?;
    let before = args.get(1).and(args.last())?.end as usize + 2;
    let (len, head_len) = number(bytes.get(before..)?, b'$')?;
    // One more byte is requested if nothing is known of the next argument.
    let is_known = end > bytes.len() + 1 && before + head_len + len + 2 == end;
    let is_fit = count <= ARGS_MAX && tail <= TAIL_ARGS_MAX && len >= len_min;
    (is_known && is_fit).then_some((tail, len))
}

/// Returns the number in a line that begins with `sign`, and the length of the line.
fn number(bytes: &[u8], sign: u8) -> Option<(usize, usize)> {
    let line = bytes.strip_prefix(&[sign])?;
    let at = line.iter().take(20).position(|&byte| byte == b'\r')?;
    let number = usize::try_from(keyway_resp::parse_integer(&line[..at])?).ok()?;
    (line.get(at + 1) == Some(&b'\n')).then_some((number, at + 3))
}

enum Tail {
    /// The arguments are complete, with this length including their own head.
    Whole(usize),
    /// They need not be parsed again before this many bytes have arrived.
    Partial(usize),
    Broken(RequestFault),
}

/// Returns the limits with which the arguments after a value are parsed.
fn tail_limits(limits: &Limits) -> ParseLimits {
    ParseLimits { inline_len_max: 0, ..ParseLimits::of(limits) }
}

/// Adds what has arrived of the arguments after the value, and returns what is known of them.
fn extend_tail(streaming: &mut Streaming, bytes: &[u8], limits: &Limits) -> Tail {
    streaming.tail.extend_from_slice(bytes);
    match streaming.tail.len() < streaming.tail_at_least {
        true => Tail::Partial(streaming.tail_at_least),
        false => tail_len(&streaming.tail, limits),
    }
}

fn tail_len(bytes: &[u8], limits: &Limits) -> Tail {
    match parse_request(bytes, &tail_limits(limits), &mut Vec::new(), &mut Vec::new()) {
        Ok(Parsed::Ready { consumed }) => Tail::Whole(consumed),
        Ok(Parsed::NeedMore { at_least }) => Tail::Partial(at_least),
        // It is cut from a frame that begins like an array.
        Ok(Parsed::Inline { .. }) => Tail::Broken(RequestFault::MultibulkLength),
        Err(fault) => Tail::Broken(fault),
    }
}

mod partial;

#[cfg(test)]
mod tests;
