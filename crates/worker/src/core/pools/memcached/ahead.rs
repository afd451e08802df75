//! Parsed requests of a client: one request, or the requests of a pipeline on the store. The memory
//! for those is fetched while the requests before them are served ([`crate::core::ahead`]). No
//! complete request is parsed twice.

use keyway_memcache::{ParseLimits, Parsed, Request, Wire, parse_request};
use keyway_store::{KeyHint, Store};

/// Number of requests that are looked at in one go.
const REQUESTS_MAX: usize = 16;
/// Number of keys of one request for which memory is kept.
const KEYS_KEPT_MAX: usize = 1024;

/// Requests in order. One is current, and those behind it were looked at.
#[derive(Default)]
pub(super) struct Ahead {
    /// The requests, each with its length in bytes. The memory is used again.
    parsed: Vec<(Request, usize)>,
    /// Number of entries that hold a request.
    count: usize,
    /// Number of these that were current.
    taken: usize,
    hints: Vec<KeyHint>,
}

impl Ahead {
    /// Forgets the requests that were looked at.
    pub(super) fn forget(&mut self) {
        (self.count, self.taken) = (0, 0);
    }

    /// Looks at the requests at the start of `bytes`, unless some are left, and tells the store
    /// which keys they name.
    #[inline]
    pub(super) fn look_ahead(
        &mut self,
        store: &Store,
        bytes: &[u8],
        wire: Wire,
        limits: &ParseLimits,
    ) {
        if self.taken < self.count {
            return;
        }
        self.forget();
        self.hints.clear();
        let mut end = 0;
        while self.count < REQUESTS_MAX {
            let rest = &bytes[end..];
            let (request, len) = self.room();
            let Parsed::Ready { consumed } = parse_request(rest, wire, limits, request) else {
                break;
            };
            *len = consumed;
            end += consumed;
            if !request.keys.is_empty() {
                let hint = store.hint(request.key(rest, 0));
                self.hints.push(hint);
            }
            self.count += 1;
        }
        if self.hints.len() > 1 {
            store.prefetch(0, &self.hints);
        }
    }

    /// Makes the next request current: one that was looked at, or the first of `bytes`.
    #[inline]
    pub(super) fn next(&mut self, bytes: &[u8], wire: Wire, limits: &ParseLimits) -> Parsed {
        if self.taken < self.count {
            self.taken += 1;
            return Parsed::Ready { consumed: self.parsed[self.taken - 1].1 };
        }
        self.forget();
        let (request, _) = self.room();
        let parsed = parse_request(bytes, wire, limits, request);
        (self.count, self.taken) = (1, 1);
        parsed
    }

    /// Returns the current request.
    ///
    /// # Panics
    /// Panics if there is none.
    #[inline]
    pub(super) fn request(&self) -> &Request {
        &self.parsed[self.taken - 1].0
    }

    /// Returns an entry for one more request.
    #[inline]
    fn room(&mut self) -> &mut (Request, usize) {
        if self.parsed.len() == self.count {
            self.parsed.push(Default::default());
        }
        let room = &mut self.parsed[self.count];
        if room.0.keys.capacity() > KEYS_KEPT_MAX {
            room.0.keys = Vec::new();
        }
        room
    }
}
