use crate::entry::Entry;
use crate::items::{Kind, STRING_LEN_MAX};
use crate::store::{Context, Store, Transfer, Turn};
use keyway_base::{Clock, KeyspaceEvents};
use keyway_memcache::{Asker, ErrorKind, Head, Outcome, Request, RequestFlags, Verb, write_reply};
use keyway_resp::Protocol;

/// The context of a request of a memcached client.
#[derive(Clone, Copy, Debug)]
pub struct MemcachedContext {
    /// The database that the client's listener is for.
    pub database: u32,
    /// Both clocks of the worker's turn.
    pub clock: Clock,
    /// The worker whose [`Store::take_events`] returns the events of the request.
    pub worker: u16,
    /// Longest item, in bytes, counted as memcached counts for its `-I`: key,
    /// value, and some 60 more.
    pub item_len_max: u32,
}

impl From<MemcachedContext> for Context {
    /// As [`Store::hold`] wants it.
    fn from(context: MemcachedContext) -> Self {
        let MemcachedContext { database, clock, worker, .. } = context;
        Self { database, clock, protocol: Protocol::default(), worker }
    }
}

/// A request being executed.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) store: &'a Store,
    pub(super) turn: Turn,
    pub(super) request: &'a Request,
    pub(super) bytes: &'a [u8],
    pub(super) item_len_max: u32,
    /// Takes long values without a copy. `None` if all are copied.
    pub(super) transfer: Option<&'a Transfer<'a>>,
}

/// The outcome of what was done with one key, or the type of value that it was
/// not to be done with.
pub(super) type Done = Result<Outcome<'static>, Kind>;

impl<'a> Call<'a> {
    #[inline]
    pub(super) fn new(
        store: &'a Store,
        request: &'a Request,
        bytes: &'a [u8],
        context: MemcachedContext,
    ) -> Self {
        let item_len_max = context.item_len_max;
        let turn = Turn::of(context.into());
        Self { store, turn, request, bytes, item_len_max, transfer: None }
    }

    #[inline]
    pub(super) fn head(&self) -> &'a Head {
        &self.request.head
    }

    /// The only key.
    #[inline]
    pub(super) fn key(&self) -> &'a [u8] {
        self.request.key(self.bytes, 0)
    }

    #[inline]
    pub(super) fn value(&self) -> &'a [u8] {
        self.request.value.of(self.bytes)
    }

    /// The words behind a meta command's key.
    #[inline]
    pub(super) fn words(&self) -> &'a [u8] {
        self.request.meta.of(self.bytes)
    }

    /// Appends what the client is told of a key.
    #[inline]
    pub(super) fn tell(&self, key: &[u8], outcome: &Outcome<'_>, out: &mut Vec<u8>) {
        let asker = Asker { head: self.head(), key, meta: self.words() };
        write_reply(out, &asker, outcome);
    }

    /// Works on the only key, and tells what came of it.
    pub(super) fn change(&self, out: &mut Vec<u8>, work: impl FnOnce(&mut Entry<'_>) -> Done) {
        let key = self.key();
        let done = self.store.with_key(self.turn, key, |mut entry| work(&mut entry));
        self.tell(key, &done.unwrap_or_else(wrong_kind), out);
    }

    pub(super) fn fail(&self, kind: ErrorKind, text: &[u8], out: &mut Vec<u8>) {
        let key = if self.request.keys.is_empty() { &[] } else { self.key() };
        self.tell(key, &Outcome::Error { kind, text }, out);
    }

    /// The number that a value gets which is written now: one that the client
    /// gives, one that it is to be told, or none.
    pub(super) fn number(&self, entry: &mut Entry<'_>) -> u64 {
        let head = self.head();
        match head.cas_new {
            Some(cas) if cas != 0 => cas,
            _ if head.asked.has(RequestFlags::CAS) && !head.quiet => entry.next_cas(),
            _ => 0,
        }
    }

    /// Returns whether the request may make the store larger.
    pub(super) fn grows(&self) -> bool {
        let head = self.head();
        let changes = head.verb.stores() || matches!(head.verb, Verb::Incr | Verb::Decr);
        changes || head.vivify.is_some()
    }

    pub(super) fn bytes_written(&self) -> u64 {
        (self.key().len() + self.value().len()) as u64
    }

    /// Returns whether an item with a value of so many bytes is not too long. The overhead that
    /// memcached counts is the same in all its 64-bit builds.
    pub(super) fn fits(&self, flags: u32, value_len: usize) -> bool {
        const HEADER_LEN: usize = 48 + 8;
        let flags_len = if flags != 0 { 4 } else { 0 };
        let len = HEADER_LEN + self.key().len() + 1 + flags_len + value_len + 2;
        let value_len_max = STRING_LEN_MAX as usize;
        len <= self.item_len_max as usize && value_len <= value_len_max
    }
}

/// Returns the error for a value that is not a string.
#[cold]
pub(super) fn wrong_kind(kind: Kind) -> Outcome<'static> {
    let text: &[u8] = match kind {
        Kind::Text => b"value is a string",
        Kind::Hash => b"key holds a Redis hash: use Redis commands for it, or set it anew",
        Kind::List => b"key holds a Redis list: use Redis commands for it, or set it anew",
        Kind::Set => b"key holds a Redis set: use Redis commands for it, or set it anew",
        Kind::Sorted => b"key holds a Redis sorted set: use Redis commands for it, or set it anew",
        Kind::Stream => b"key holds a Redis stream: use Redis commands for it, or set it anew",
    };
    Outcome::Error { kind: ErrorKind::Server, text }
}

/// Deletes what a value was to be set for that there is no room for: nobody is
/// to go on reading what is out of date.
pub(super) fn forget_replaced(call: &Call<'_>) {
    if call.head().verb == Verb::Set {
        call.store.with_key(call.turn, call.key(), |mut entry| {
            if entry.remove() {
                entry.notify(KeyspaceEvents::GENERIC, "del");
            }
        });
    }
}
