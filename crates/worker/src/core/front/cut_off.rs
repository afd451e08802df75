//! Replies to requests for which a worker no longer waits.

use crate::core::Core;
use keyway_base::{ByteRange, Key};
use keyway_memcache::Wire;
use keyway_proxy::{ReplyMode, Session};
use keyway_resp::{ParseLimits, Parsed, parse_request, reply};

/// Number of further requests that get an error that they were not executed. If a client has more
/// of them in memory, the others get none.
const UNSTARTED_MAX: usize = 1 << 16;

/// Why a worker no longer waits for a client's requests.
#[derive(Clone, Copy, Debug)]
pub enum CutOff {
    /// The worker ends.
    Drained,
    /// A reload has replaced or removed the client's pool.
    Retired,
}

impl CutOff {
    fn text(self) -> &'static str {
        match self {
            CutOff::Drained => "Keyway is stopping, and drain_timeout is over",
            CutOff::Retired => "a reload has replaced this pool, and drain_timeout is over",
        }
    }
}

impl Core {
    /// Answers each request of a client that has no reply yet with an error, in their order. The
    /// client must be closed right after its output was sent.
    ///
    /// A client gets no error in the middle of a reply, and none by the binary protocol of
    /// memcached, whose errors name their request.
    #[cold]
    pub(crate) fn answer_unanswered(&mut self, key: Key<Session>, why: CutOff) {
        let Core { sessions, plane, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let wire = session.memcached.map(|client| client.wire);
        let is_binary = wire.is_some_and(|wire| wire != Some(Wire::Text));
        if session.streamed_reply.is_some() || session.sub_request.is_some() || is_binary {
            return;
        }
        let Some(busy) = session.busy.as_deref_mut() else { return };
        let why = why.text();
        let begun = format!("{why}; the request may have been executed");
        busy.order.complete_rest(&mut busy.output, |out| match wire {
            Some(_) => out.extend_from_slice(format!("SERVER_ERROR {begun}\r\n").as_bytes()),
            None => reply::error(out, &format!("ERR {begun}")),
        });
        if wire.is_none() && session.identity.reply_mode == ReplyMode::On {
            let limits = ParseLimits::of(&plane.plan.limits);
            let count = whole_requests(busy.unparsed(), &limits);
            let text = format!("ERR {why}; the request was not executed");
            (0..count).for_each(|_| reply::error(busy.output.buf(), &text));
        }
        plane.mark_session_dirty(key, session);
    }
}

/// Returns how many complete requests are at the start of `bytes`, at most [`UNSTARTED_MAX`].
fn whole_requests(mut bytes: &[u8], limits: &ParseLimits) -> usize {
    let (mut args, mut inline): (Vec<ByteRange>, Vec<u8>) = Default::default();
    let mut count = 0;
    while count < UNSTARTED_MAX {
        match parse_request(bytes, limits, &mut args, &mut inline) {
            Ok(Parsed::Ready { consumed } | Parsed::Inline { consumed }) => {
                // An empty line is no request.
                count += usize::from(!args.is_empty());
                bytes = &bytes[consumed..];
            }
            Ok(Parsed::NeedMore { .. }) | Err(_) => break,
        }
    }
    count
}
