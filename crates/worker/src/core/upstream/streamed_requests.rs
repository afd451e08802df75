//! Large requests that go to their server, or into a store, as they come.
//!
//! ```text
//!   client ──► link of its own, as much as a window ──► server
//!     ▲                        │
//!     └── not read while that is full
//! ```
//! A client may stop in the middle of what it sends, so nobody shares the
//! connection with it: a private link is leased, and given back with the reply.
//! Its requests keep their order, as the first waits until every reply to those
//! before it is here, and those behind it wait for its own. While a server owes
//! the reply to a write of the client that has timed out, the request is kept until
//! it is whole, and goes by the connection of that write.
//!
//! What goes this way has its key in front and the value behind, as `SET` has. All
//! else is kept until it is whole, within `bulk_len_max` and `request_len_max`.

use crate::PoolPlan;
use crate::core::request::{BusyClient, ClientMut, ClientRef, RequestContext};
use crate::core::upstream::bypass::owes_late_write;
use crate::core::{Connection, ConnectionKey, Connections, Plane};
use keyway_base::{ByteRange, Key, Limits};
use keyway_command::{Args, Request, Verb};
use keyway_proxy::WaitFor;
use keyway_proxy::hot_keys::Direction;
use keyway_proxy::{Busy, Owner, Session, Streaming};
use keyway_resp::{ParseLimits, Parsed, RequestFault, parse_request};
use keyway_route::{Route, route};
use keyway_topology::{Distribution, ServerId};
use std::time::Duration;

/// Most arguments behind the value, such as `EX 10`.
const TAIL_ARGS_MAX: usize = 8;

/// Most arguments in all. Of more the end of the value may not be what is told.
const ARGS_MAX: usize = 1000;

/// Requests that a worker sends to one server as they come. Each has a connection of
/// its own; more of them take those of others, fewer have more kept until they are whole.
const PER_SERVER_MAX: usize = 64;

/// How long a server may take for a large request, beyond the time for others, when
/// it was sent whole: a part of it is still on its way.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// What became of a request that is large.
pub(in crate::core) enum Begun {
    /// It goes on as it comes; all that is here of it was taken.
    Yes,
    /// It is kept until it is whole.
    No,
    /// It is looked at again when what it waits for is over.
    Wait,
}

/// Whether the value of a command may be sent before it is whole: there is one key,
/// in front of it, and where the command goes depends on nothing else.
fn has_value_behind(verb: Verb) -> bool {
    use Verb::*;
    matches!(
        verb,
        Set | Setnx | Setex | Psetex | Getset | Append | Setrange | Hset | Hsetnx | Rpush | Lpush
    )
}

impl Plane {
    /// Begins to send a request of which a part has come: `args` are its arguments before
    /// the one that ends at `end`, beyond the bytes.
    #[cold]
    pub(in crate::core) fn begin_streaming(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        BusyClient { key, session, busy }: BusyClient<'_>,
        (bytes, end): (&[u8], usize),
        args: &mut Vec<ByteRange>,
    ) -> Begun {
        if let Some(store) = pool.kind.store() {
            return self.begin_landing(
                pool,
                store,
                BusyClient { key, session, busy },
                (bytes, end),
                args,
            );
        }
        let Some(sharded) = pool.kind.streams_to() else { return Begun::No };
        let Some((tail, value_len)) = tail_of(bytes, args, end, self.plan.limits.pass_len() / 2)
        else {
            return Begun::No;
        };
        let is_free = session.identity.is_free && is_plain(session);
        if !pool.pause.is_unused() || !is_free {
            return Begun::No;
        }
        // Empty ones stand for what is still to come.
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
        if !self.has_room_for_large(links, ServerId { pool: session.pool, server }) {
            return Begun::No;
        }
        if !session.is_quiet(busy) {
            session.fence();
            return Begun::Wait;
        }
        let shared = self.link_of(session, server);
        if self.waits_for_primary(links, shared, ClientMut { key, session }) {
            return Begun::Wait;
        }
        // The late write would be executed behind this request, which goes by another connection.
        if owes_late_write(links, ClientMut { key, session }) {
            return Begun::No;
        }
        let mut incoming = RequestContext { key, session, busy, request: &request };
        let left = end - bytes.len();
        self.last_verb = Some(verb);
        // Without one it was answered, and what is still to come of it is for nobody.
        let link = self.lease_for(links, &mut incoming, server);
        if let Some(index) = link {
            let sight = (&request.args[1], request.command.name, Direction::Request);
            self.note_large(&pool.noted, sight, value_len);
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

    /// Whether another large request may be sent to a server as it comes.
    fn has_room_for_large(&mut self, links: &Connections, server: ServerId) -> bool {
        let takes_large = |it: &Connection| it.takes_large && !it.is_free;
        self.upstream.streamed.retain(|&key| links.get(key).is_some_and(takes_large));
        let is_there = |&&index: &&ConnectionKey| links[index].server_id == server;
        self.upstream.streamed.iter().filter(is_there).count() < PER_SERVER_MAX
    }

    /// Whether clients that wait for room on a link may go on.
    pub(in crate::core::upstream) fn takes_more(&self, connection: &Connection) -> bool {
        let has_window = !connection.is_streamed
            || connection.link.unsent_len() <= self.plan.limits.pass_len() / 2;
        let is_gone = (connection.is_lost | connection.is_watched) && self.is_gone(connection);
        has_window
            && !is_gone
            && connection.link.has_drained(self.link_options(connection.server_id.pool))
    }

    /// Takes more of a request that is sent as it comes. Returns what came behind it.
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
        let lands = streaming.lands;
        if lands {
            let context = self.session_context(session);
            if !self.upstream.landings.take_part(key, part, context) {
                self.upstream.landings.remove(key);
                self.on_broken_frame(session, busy, |out| RequestFault::BulkEnd.write_error(out));
                return &[];
            }
        } else {
            if streaming.left == 0 && streaming.tail.is_empty() {
                self.cut_off_paused(links, ClientRef { key, session }, &mut streaming);
            }
            self.send_part(links, ClientMut { key, session }, &mut streaming, part);
        }
        if streaming.left > 0 {
            session.streaming = Some(streaming);
            return rest;
        }
        if !streaming.tail.is_empty() {
            let head_len = "*1\r\n".len();
            streaming.tail.extend_from_slice(rest);
            if streaming.tail.len() < streaming.tail_at_least {
                session.streaming = Some(streaming);
                return &[];
            }
            match tail_len(&streaming.tail, &self.plan.limits) {
                Tail::Whole(len) => {
                    let tail = std::mem::take(&mut streaming.tail);
                    rest = &rest[rest.len() - (tail.len() - len)..];
                    if lands {
                        streaming.tail = tail[..len].to_vec();
                    } else {
                        self.cut_off_paused(links, ClientRef { key, session }, &mut streaming);
                        self.send_part(
                            links,
                            ClientMut { key, session },
                            &mut streaming,
                            &tail[head_len..len],
                        );
                    }
                }
                Tail::Partial(at_least) => {
                    streaming.tail_at_least = at_least;
                    session.streaming = Some(streaming);
                    return &[];
                }
                Tail::Broken(fault) => {
                    session.streaming = Some(streaming);
                    self.cut_off_streaming(links, key, (session, Some(busy)));
                    self.on_broken_frame(session, busy, |out| fault.write_error(out));
                    return &[];
                }
            }
        }
        if lands {
            self.land(links, BusyClient { key, session, busy }, *streaming);
            return rest;
        }
        if let Some(index) = self.streamed_link(links, key, &streaming) {
            let until = self.answered_within(session.pool, Some(ANSWERED_WITHIN));
            links[index].is_streamed = false;
            links[index].awaited_keys.clear();
            links[index].link.blocks_until = until;
            links[index].link.stays_when_late = true;
            self.note_deadline(links[index].link.deadline(self.link_options(session.pool)));
        }
        // What follows waits for the reply, unless that is here.
        match session.is_quiet(busy) {
            true => session.lift_fence(),
            false => session.fence(),
        }
        rest
    }

    /// The link that a request is sent through, unless it was lost or has answered.
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
            session.waits_for = Some(WaitFor::Connection);
            connection.waiting.push(key);
        }
    }

    /// Ends the connection of a request that would be whole while its pool is paused: it
    /// must not be executed now, and its client is told that it failed.
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

    /// Ends the connection on which half a request was sent. It is not executed, and has no reply,
    /// like one of which a part was kept.
    #[cold]
    pub(in crate::core) fn cut_off_streaming(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        (session, mut busy): (&mut Session, Option<&mut Busy>),
    ) {
        let Some(streaming) = session.streaming.take() else { return };
        if streaming.lands {
            self.upstream.landings.remove(key);
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

/// The head of an array of what comes behind the value; nothing where nothing does.
fn head_of(tail: usize) -> Vec<u8> {
    match tail {
        0 => Vec::new(),
        _ => format!("*{tail}\r\n").into_bytes(),
    }
}

/// Whether nothing that a session has begun asks for its requests to be looked at whole.
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

/// How many arguments come behind the value that ends at `end`, and the length of that,
/// if there are few, it is long, and all before it is here.
fn tail_of(bytes: &[u8], args: &[ByteRange], end: usize, len_min: usize) -> Option<(usize, usize)> {
    let (count, _) = number(bytes, b'*')?;
    let tail = count.checked_sub(args.len() + 1)?;
    let before = args.get(1).and(args.last())?.end as usize + 2;
    let (len, head_len) = number(bytes.get(before..)?, b'$')?;
    // One byte more is what is asked for when nothing is known of the next.
    let is_known = end > bytes.len() + 1 && before + head_len + len + 2 == end;
    let is_fit = count <= ARGS_MAX && tail <= TAIL_ARGS_MAX && len >= len_min;
    (is_known && is_fit).then_some((tail, len))
}

/// The number in a line that begins with `sign`, and how long that is.
fn number(bytes: &[u8], sign: u8) -> Option<(usize, usize)> {
    let line = bytes.strip_prefix(&[sign])?;
    let at = line.iter().take(20).position(|&byte| byte == b'\r')?;
    let number = usize::try_from(keyway_resp::parse_integer(&line[..at])?).ok()?;
    (line.get(at + 1) == Some(&b'\n')).then_some((number, at + 3))
}

enum Tail {
    /// So long, with the head that was made for it.
    Whole(usize),
    /// There is no use in looking again before so much is here.
    Partial(usize),
    Broken(RequestFault),
}

/// What is looked at the arguments behind a value with.
fn tail_limits(limits: &Limits) -> ParseLimits {
    ParseLimits { inline_len_max: 0, ..ParseLimits::of(limits) }
}

fn tail_len(bytes: &[u8], limits: &Limits) -> Tail {
    match parse_request(bytes, &tail_limits(limits), &mut Vec::new(), &mut Vec::new()) {
        Ok(Parsed::Ready { consumed }) => Tail::Whole(consumed),
        Ok(Parsed::NeedMore { at_least }) => Tail::Partial(at_least),
        // It is cut from a frame that begins as arrays do.
        Ok(Parsed::Inline { .. }) => Tail::Broken(RequestFault::MultibulkLength),
        Err(fault) => Tail::Broken(fault),
    }
}

mod landing;

#[cfg(test)]
mod tests;
