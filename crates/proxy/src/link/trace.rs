//! The requests that were sent and not answered yet, to name a request that turns out to be slow.
//! By then its bytes have left the output.
//!
//! They are copied once for each write and not for each request, and only the first bytes. A slow
//! request that does not fit has no name.

use crate::slow_log::{is_fast, slow_part};
use keyway_base::Time;
use std::time::Duration;

/// Number of bytes that are kept for each connection. With fewer, requests behind a slow one would
/// have no name. More would take time for every write.
const KEPT_MAX: usize = 16 << 10;

/// A reply for which a server took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Time from when the server had nothing else to do for this connection to the first bytes of
    /// the reply.
    pub took: Duration,
    /// Time for which it waited before that, for its turn on the connection.
    pub queued: Duration,
    /// When the first bytes of the reply arrived.
    pub answered: Time,
    /// The first bytes of the request. Empty if they were not kept.
    pub request: Vec<u8>,
}

/// The requests in flight on one connection. Offsets count the bytes of requests since it was
/// established.
#[derive(Debug)]
pub(super) struct Trace {
    /// Silence of the server after which the current request counts as slow.
    pub(super) slower_than: Duration,
    /// True if large replies are to be reported with their request.
    pub(super) names_big: bool,
    kept: Vec<u8>,
    /// Offset of the first kept byte.
    base: u64,
    /// Offset of the oldest unanswered request.
    front: u64,
    /// Offset after the sent bytes.
    sent: u64,
    /// The wait of the oldest request, once that is long.
    waited: Option<Waited>,
    /// The request to report as slow, until the worker takes it.
    slow: Option<Slow>,
}

/// The times for which a request has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waited {
    took: Duration,
    queued: Duration,
    answered: Time,
}

impl Default for Trace {
    fn default() -> Self {
        let slower_than = Duration::MAX;
        let (kept, waited, slow) = (Vec::new(), None, None);
        Self { slower_than, names_big: false, kept, base: 0, front: 0, sent: 0, waited, slow }
    }
}

impl Trace {
    /// Resets the state for another connection.
    pub(super) fn restart(&mut self) {
        self.kept.clear();
        (self.base, self.front, self.sent) = (0, 0, 0);
        (self.waited, self.slow) = (None, None);
    }

    /// Notes that the socket took these bytes of requests.
    #[inline]
    pub(super) fn on_sent(&mut self, bytes: &[u8]) {
        if self.slower_than != Duration::MAX || self.names_big {
            self.keep(bytes);
        }
        self.sent += bytes.len() as u64;
    }

    fn keep(&mut self, bytes: &[u8]) {
        let end = self.base + self.kept.len() as u64;
        if self.front >= end {
            self.kept.clear();
            self.base = self.sent;
        } else if end != self.sent {
            // Something between them was not kept, so these are not kept before that is answered.
            return;
        } else if self.kept.len() + bytes.len() > KEPT_MAX {
            // Everything kept may be behind something that was not kept.
            let answered = self.front.saturating_sub(self.base);
            self.kept.drain(..answered as usize);
            self.base += answered;
        }
        let len = bytes.len().min(KEPT_MAX - self.kept.len());
        self.kept.extend_from_slice(&bytes[..len]);
    }

    /// Notes that bytes arrived for the oldest request, which was begun at `started`, after silence
    /// since `silent_since`.
    #[inline]
    pub(super) fn on_bytes(&mut self, now: Time, silent_since: Time, started: Option<Time>) {
        if now.since(silent_since) >= self.slower_than {
            self.note_wait(now, silent_since, started);
        }
    }

    #[cold]
    fn note_wait(&mut self, now: Time, silent_since: Time, started: Option<Time>) {
        let Some(started) = started else { return };
        let began = silent_since.max(started);
        let took = now.since(began);
        if took >= self.slower_than && self.waited.is_none() {
            self.waited = Some(Waited { took, queued: began.since(started), answered: now });
        }
    }

    /// Notes that the oldest request, of `len` bytes, has its reply. Returns whether it is the one
    /// to be reported as slow, as far as is known yet.
    #[inline]
    pub(super) fn on_answered(&mut self, len: u32) -> bool {
        let start = self.front;
        self.front += u64::from(len);
        self.waited.is_some_and(|waited| self.accuse(waited, start, len))
    }

    /// Decides which request was slow. A server answers requests together that arrived together.
    /// Any of them may have been slow, most likely the first one that Redis does not call fast.
    #[cold]
    fn accuse(&mut self, waited: Waited, start: u64, len: u32) -> bool {
        if self.slow.as_ref().is_some_and(|first| !is_fast(&first.request)) {
            return false;
        }
        let new = self.name(waited, start, len);
        let is_accused = self.slow.is_none() || !is_fast(&new.request);
        if is_accused {
            self.slow = Some(new);
        }
        is_accused
    }

    /// Takes the slow request among those answered since the last call.
    #[inline]
    pub(super) fn take_slow(&mut self) -> Option<Slow> {
        if self.slow.is_some() {
            self.waited = None;
        }
        self.slow.take()
    }

    fn request(&self, start: u64, len: u32) -> &[u8] {
        let from = start.checked_sub(self.base).unwrap_or(u64::MAX).min(self.kept.len() as u64);
        let rest = &self.kept[from as usize..];
        &rest[..rest.len().min(len as usize)]
    }

    /// Returns the request that was answered last, of `len` bytes, if it was kept whole.
    pub(super) fn answered_request(&self, len: u32) -> Option<&[u8]> {
        let request = self.request(self.front.checked_sub(u64::from(len))?, len);
        (request.len() == len as usize).then_some(request)
    }

    fn name(&self, waited: Waited, start: u64, len: u32) -> Slow {
        let request = slow_part(self.request(start, len)).to_vec();
        let Waited { took, queued, answered } = waited;
        Slow { took, queued, answered, request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn trace() -> Trace {
        Trace { slower_than: Duration::from_millis(10), ..Trace::default() }
    }

    #[test]
    fn the_one_a_server_was_silent_for_is_slow_and_not_those_behind_it() {
        let mut trace = trace();
        trace.on_sent(b"firstsecondthird");
        trace.on_bytes(at(5), at(0), Some(at(0)));
        assert!(!trace.on_answered(5));
        trace.on_bytes(at(25), at(5), Some(at(0)));
        // The rest of a long reply is not another slow one.
        trace.on_bytes(at(40), at(25), Some(at(0)));
        let (took, queued) = (Duration::from_millis(20), Duration::from_millis(5));
        assert!(trace.on_answered(6));
        assert_eq!(
            trace.take_slow(),
            Some(Slow { took, queued, answered: at(25), request: b"second".to_vec() })
        );
        assert!(!trace.on_answered(5));
        // No request was sent meanwhile.
        trace.on_sent(b"late");
        trace.on_bytes(at(1002), at(40), Some(at(1000)));
        assert!(!trace.on_answered(4));
        assert_eq!(trace.take_slow(), None);
    }

    #[test]
    fn of_what_is_answered_together_the_first_that_is_not_fast_is_slow() {
        let word = |word: &str| format!("*1\r\n${}\r\n{word}\r\n", word.len()).into_bytes();
        for (words, accused) in [
            (vec!["get", "keys", "eval", "get"], 1),
            (vec!["get", "incr", "get"], 0),
            (vec!["eval", "keys"], 0),
        ] {
            let requests: Vec<_> = words.into_iter().map(word).collect();
            let mut trace = trace();
            trace.on_sent(&requests.concat());
            trace.on_bytes(at(50), at(0), Some(at(0)));
            let told: Vec<_> =
                requests.iter().map(|one| trace.on_answered(one.len() as u32)).collect();
            assert_eq!(told.iter().rposition(|told| *told), Some(accused));
            assert_eq!(trace.take_slow().unwrap().request, requests[accused]);
            assert!(!trace.on_answered(0), "told once");
        }
    }

    #[test]
    fn requests_keep_their_names_whatever_was_sent_around_them() {
        let mut trace = trace();
        let mut waiting = std::collections::VecDeque::new();
        let (mut state, mut named, mut nameless) = (7u64, 0, 0);
        for round in 0..20_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let chance = state >> 33;
            let size = if chance % 50 == 0 { 9_000 } else { 20 + chance as usize % 60 };
            let request = format!("{round:0size$}");
            trace.on_sent(request.as_bytes());
            waiting.push_back(request);
            while waiting.len() > (chance % 900) as usize {
                let request = waiting.pop_front().unwrap();
                let took = Duration::from_millis(10);
                trace.waited = Some(Waited { took, queued: Duration::ZERO, answered: at(0) });
                assert!(trace.on_answered(request.len() as u32));
                let slow = trace.take_slow().unwrap();
                assert!(request.as_bytes().starts_with(&slow.request), "never another's");
                match slow.request.len() {
                    0 => nameless += 1,
                    _ => named += 1,
                }
            }
            assert!(trace.kept.len() <= KEPT_MAX);
        }
        assert!(named > nameless, "{named} of {}", named + nameless);
    }

    #[test]
    fn nothing_is_kept_while_nobody_wants_to_know() {
        let mut trace = Trace::default();
        trace.on_sent(b"request");
        trace.on_bytes(at(1_000_000), at(0), Some(at(0)));
        assert!(!trace.on_answered(7));
        assert_eq!(trace.kept.capacity(), 0);
    }
}
