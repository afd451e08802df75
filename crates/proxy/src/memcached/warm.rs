//! Copies items from an old pool of memcached to a new one, while clients use the new one: one
//! [`ItemCopy`] for each key.
//!
//! ```text
//!  bring:  look up (old) ──► fill (new, add) ──► take (old, if unchanged) ──► Filled
//!             │ not there        │ is there          │ changed
//!             ▼                  ▼                   ▼
//!          Missing           Overtaken           withdraw (new, if unchanged) ──► Withdrawn
//!                              │ no reply
//!                              ▼
//!                            recheck (new): there ──► take, not there ──► fill, once more
//!  clear:  delete (old) ──► Cleared
//! ```
//!
//! An item stays in the old pool until it is certain that it is in the new one, and is then
//! removed. So an item that is later changed, expires or is evicted in the new pool can never
//! return from the old one. Writers delete in the old pool *before* they write in the new one. So a
//! fill that, after it was stored, finds its item unchanged in the old pool precedes every such
//! write. One that does not is removed again by the number with which it was stored.
//!
//! The worker sends what [`ItemCopy::compose`] writes to the pool of [`ItemCopy::next_pool`], and
//! passes the replies, until there is an [`ItemCopy::end`].

use super::{MemcachedJoin, wire_of};
use keyway_base::{Fault, Sent};
use keyway_memcache::{
    Dialect, Expect, Head, Item, Outcome, ReplyLimits, ReplyParsed, RequestFlags, Untranslatable,
    Verb, Wire, compose_request, parse_reply,
};
use keyway_metrics::WarmUpFigures;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Expiries above this number of seconds are times since 1970 in memcached.
const RELATIVE_MAX: i64 = 30 * 24 * 60 * 60;

/// One of the two pools of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUpPool {
    /// The one that items come from.
    Old,
    /// The pool that clients use.
    New,
}

/// The end of an [`ItemCopy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The old pool does not have it.
    Missing,
    /// It was copied.
    Filled,
    /// The new pool already had it.
    Overtaken,
    /// It was removed again: the old pool lost it meanwhile.
    Withdrawn,
    /// It should have been removed again, and the new server failed.
    Stranded,
    /// The new server did not store it.
    FillFailed,
    /// It is no longer in the old pool. The value says whether it was.
    Cleared(bool),
    /// The old pool cannot be asked.
    OldFailed(Fault),
}

/// The purpose of an item copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// A read that missed. A newer item in the new pool stays.
    Read,
    /// A write that needs the existing item. If the new pool has another item, the old one is
    /// removed.
    Modify,
    /// A write that does not need the existing item.
    Clear,
    /// The whole server is emptied, after this number of seconds.
    Flush(i64),
}

/// The protocols of both pools' servers, and the limit of an unknown expiry.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The protocol of the old pool.
    pub old: Dialect,
    /// The protocol of the new pool.
    pub new: Dialect,
    /// Expiry of items whose remaining time cannot be asked for, in seconds.
    pub ttl_max: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    LookUp,
    Fill,
    /// Old servers with the classic text protocol cannot delete conditionally.
    Check,
    Take,
    /// Compares the item in the new pool with the old one.
    Compare,
    Discard,
    /// Asks the new pool for the item and its number, after a fill whose reply did not contain
    /// them.
    Recheck(End),
    Withdraw(End),
    Clear,
    Over(End),
}

/// The copy of one key.
#[derive(Debug)]
pub struct ItemCopy {
    /// Its server in the old pool.
    pub from: u16,
    /// Its server in the new pool.
    pub to: u16,
    /// True if it counts among the worker's copies in progress.
    pub is_begun: bool,
    aim: Aim,
    terms: Terms,
    key: Vec<u8>,
    step: Step,
    /// True if the step's request is in flight.
    is_asked: bool,
    value: Vec<u8>,
    flags: u32,
    expiry: i64,
    /// The number of the item in the old pool.
    cas_old: Option<u64>,
    /// The number with which it was stored in the new pool, if that is known.
    cas_new: Option<u64>,
    was_found: bool,
    /// True if the item was sent to the new pool a second time.
    is_refilled: bool,
    old_errors: u8,
}

impl ItemCopy {
    /// Creates the copy of `key`, which belongs to the server `from` in the old pool and `to` in
    /// the new one.
    pub fn new(aim: Aim, terms: Terms, key: &[u8], from: u16, to: u16) -> ItemCopy {
        let step = match aim {
            Aim::Read | Aim::Modify => Step::LookUp,
            Aim::Clear | Aim::Flush(_) => Step::Clear,
        };
        ItemCopy {
            from,
            to,
            is_begun: false,
            aim,
            terms,
            key: key.to_vec(),
            step,
            is_asked: false,
            value: Vec::new(),
            flags: 0,
            expiry: 0,
            cas_old: None,
            cas_new: None,
            was_found: false,
            is_refilled: false,
            old_errors: 0,
        }
    }

    /// Returns the pool of the next request. Returns `None` while a request is in flight, and at the
    /// end.
    pub fn next_pool(&self) -> Option<WarmUpPool> {
        match self.step {
            _ if self.is_asked => None,
            Step::Over(_) => None,
            Step::LookUp | Step::Check | Step::Take | Step::Discard | Step::Clear => {
                Some(WarmUpPool::Old)
            }
            Step::Fill | Step::Compare | Step::Recheck(_) | Step::Withdraw(_) => {
                Some(WarmUpPool::New)
            }
        }
    }

    /// Returns whether the next request only reads the item: nothing was changed for it yet.
    pub fn is_looking_up(&self) -> bool {
        self.step == Step::LookUp
    }

    /// Returns how it ended, if it has.
    pub fn end(&self) -> Option<End> {
        match self.step {
            Step::Over(end) => Some(end),
            _ => None,
        }
    }

    /// Frees the value, which is not needed at the end.
    pub fn forget_value(&mut self) {
        self.value = Vec::new();
    }

    /// Returns whether the key was looked up in the old pool.
    fn has_looked(&self) -> bool {
        matches!(self.aim, Aim::Read | Aim::Modify)
    }

    /// Returns the protocol of the pool that [`ItemCopy::next_pool`] returns.
    fn dialect(&self) -> Dialect {
        match self.step {
            Step::Fill | Step::Compare | Step::Recheck(_) | Step::Withdraw(_) => self.terms.new,
            _ => self.terms.old,
        }
    }

    fn head(&self) -> Head {
        let dialect = self.dialect();
        let told =
            |asked: RequestFlags| if dialect == Dialect::Meta { asked } else { RequestFlags::CAS };
        let all = RequestFlags::VALUE | RequestFlags::FLAGS | RequestFlags::CAS;
        let blank = Head { dialect, ..Head::default() };
        let delete = |cas: Option<u64>| {
            // Classic text cannot express it.
            let cas = cas.filter(|_| dialect != Dialect::Text);
            Head { verb: Verb::Delete, cas, ..blank }
        };
        match self.step {
            Step::LookUp => Head { asked: told(all | RequestFlags::TTL), ..blank },
            Step::Check => Head { asked: told(RequestFlags::CAS), ..blank },
            Step::Compare | Step::Recheck(_) => Head { asked: told(all), ..blank },
            Step::Fill => {
                let asked =
                    if dialect == Dialect::Meta { RequestFlags::CAS } else { RequestFlags::NONE };
                let (flags, expiry) = (self.flags, self.expiry);
                Head { verb: Verb::Add, asked, flags, expiry, ..blank }
            }
            Step::Take | Step::Discard => delete(self.cas_old),
            // It is stored with an expiry in the past, which deletes conditionally.
            Step::Withdraw(_) if dialect == Dialect::Text => {
                Head { verb: Verb::Cas, cas: self.cas_new, expiry: -1, ..blank }
            }
            Step::Withdraw(_) => delete(self.cas_new),
            Step::Clear | Step::Over(_) => match self.aim {
                Aim::Flush(expiry) => Head { verb: Verb::FlushAll, expiry, ..blank },
                _ => delete(None),
            },
        }
    }

    /// Appends the next request to `out` and returns how its reply ends. Returns `None` if the
    /// protocol cannot express the key. The item copy continues without that request.
    pub fn compose(&mut self, out: &mut Vec<u8>) -> Option<Expect> {
        let keys = match self.aim {
            Aim::Flush(_) => &[][..],
            _ => &[&self.key[..]][..],
        };
        let value = if self.step == Step::Fill { &self.value[..] } else { b"" };
        let composed: Result<Expect, Untranslatable> =
            compose_request(out, self.dialect(), &self.head(), keys.iter().copied(), value);
        match composed {
            Ok(expect) => {
                self.is_asked = true;
                Some(expect)
            }
            Err(_) => {
                self.step = Step::Over(match self.step {
                    Step::Fill => End::FillFailed,
                    // No server with that protocol can have it.
                    Step::LookUp => End::Missing,
                    _ => End::Cleared(false),
                });
                None
            }
        }
    }

    /// Handles the reply to the last request, at `unix_secs` since 1970.
    pub fn on_reply(&mut self, reply: &[u8], unix_secs: i64) {
        const LIMITS: ReplyLimits = ReplyLimits { reply_len_max: u32::MAX };
        let parsed = parse_reply(reply, wire_of(self.dialect()), &LIMITS);
        let outcome = match &parsed {
            Ok(ReplyParsed::Ready { reply, .. }) => reply.outcome,
            _ => Outcome::End,
        };
        self.is_asked = false;
        self.step = match self.step {
            Step::LookUp => self.on_looked_up(&outcome, unix_secs),
            Step::Fill => self.on_filled(&outcome),
            Step::Check => match outcome {
                Outcome::Hit(item) | Outcome::Done(item) if item.cas == self.cas_old => Step::Take,
                _ => self.withdraw(End::Withdrawn),
            },
            Step::Take => self.on_taken(&outcome),
            Step::Compare => match outcome {
                // Another copy of the same item is in progress, and handles the old one.
                Outcome::Hit(item) if item.value == self.value && item.flags == self.flags => {
                    Step::Over(End::Overtaken)
                }
                Outcome::Hit(_) => Step::Discard,
                _ => Step::Over(End::Overtaken),
            },
            Step::Discard => Step::Over(End::Overtaken),
            Step::Recheck(end) => self.on_rechecked(&outcome, end),
            Step::Withdraw(end) => match outcome {
                Outcome::Error { .. } => Step::Over(End::Stranded),
                _ => Step::Over(end),
            },
            Step::Clear => match outcome {
                Outcome::Done(_) => Step::Over(End::Cleared(true)),
                Outcome::Error { .. } => self.old_failed(Fault::Denied),
                _ => Step::Over(End::Cleared(false)),
            },
            over @ Step::Over(_) => over,
        };
    }

    fn on_looked_up(&mut self, outcome: &Outcome<'_>, unix_secs: i64) -> Step {
        let item = match outcome {
            Outcome::Hit(item) => item,
            Outcome::Error { .. } => return self.old_failed(Fault::Denied),
            _ => return Step::Over(End::Missing),
        };
        // An item that its clients were told to fill again must not be copied.
        let is_fresh = !item.stale && !item.won && !item.sent;
        let Some(expiry) = self.expiry_of(item, unix_secs).filter(|_| is_fresh) else {
            return Step::Over(End::Missing);
        };
        self.was_found = true;
        self.expiry = expiry;
        self.flags = item.flags;
        self.cas_old = item.cas;
        self.value = item.value.to_vec();
        Step::Fill
    }

    /// Returns the expiry for the stored item, or `None` if its time is up.
    fn expiry_of(&self, item: &Item<'_>, unix_secs: i64) -> Option<i64> {
        match item.ttl {
            None => Some(self.terms.ttl_max),
            Some(..0) => Some(0),
            // Zero would mean no expiry.
            Some(0) => None,
            Some(left @ 1..=RELATIVE_MAX) => Some(left),
            Some(left) => Some(unix_secs + left),
        }
    }

    fn on_filled(&mut self, outcome: &Outcome<'_>) -> Step {
        match outcome {
            Outcome::Done(item) => {
                self.cas_new = item.cas;
                self.on_stored()
            }
            Outcome::NotStored | Outcome::Exists if self.aim == Aim::Modify => Step::Compare,
            Outcome::NotStored | Outcome::Exists => Step::Over(End::Overtaken),
            _ => Step::Over(End::FillFailed),
        }
    }

    /// Returns the next step after the item is in the new pool: the old one must remove it.
    fn on_stored(&self) -> Step {
        match self.terms.old {
            Dialect::Text => Step::Check,
            _ => Step::Take,
        }
    }

    fn on_taken(&mut self, outcome: &Outcome<'_>) -> Step {
        match outcome {
            Outcome::Done(_) => Step::Over(End::Filled),
            // It existed a moment ago. A client that has removed it since then will remove it from
            // the new pool next.
            Outcome::NotFound if self.terms.old == Dialect::Text => Step::Over(End::Filled),
            Outcome::Error { .. } => {
                self.old_errors += 1;
                self.withdraw(End::Withdrawn)
            }
            _ => self.withdraw(End::Withdrawn),
        }
    }

    /// Removes what was stored, and nothing that was written later.
    fn withdraw(&self, end: End) -> Step {
        match self.cas_new {
            Some(_) => Step::Withdraw(end),
            None => Step::Recheck(end),
        }
    }

    fn on_rechecked(&mut self, outcome: &Outcome<'_>, end: End) -> Step {
        match outcome {
            Outcome::Hit(item) if item.value == self.value && item.flags == self.flags => {
                self.cas_new = item.cas;
                match item.cas {
                    // The fill was stored, although there was no reply.
                    Some(_) if end == End::FillFailed => self.on_stored(),
                    Some(_) => Step::Withdraw(end),
                    None => Step::Over(End::Stranded),
                }
            }
            Outcome::Error { .. } => Step::Over(End::Stranded),
            Outcome::Hit(_) if end == End::FillFailed => match self.aim {
                Aim::Modify => Step::Discard,
                _ => Step::Over(End::Overtaken),
            },
            // The fill was lost, and the old pool still has the item: a client must not miss it.
            _ if end == End::FillFailed && !self.is_refilled => {
                self.is_refilled = true;
                Step::Fill
            }
            _ => Step::Over(end),
        }
    }

    fn old_failed(&mut self, fault: Fault) -> Step {
        self.old_errors += 1;
        Step::Over(End::OldFailed(fault))
    }

    /// Notes that the last question gets no reply, or could not be sent.
    pub fn on_fault(&mut self, fault: Fault) {
        let was_sent = !matches!(fault, Fault::Backend { sent: Sent::No, .. });
        self.is_asked = false;
        self.step = match self.step {
            Step::LookUp | Step::Clear => self.old_failed(fault),
            // The new server is asked whether it stored the item.
            Step::Fill if was_sent => Step::Recheck(End::FillFailed),
            Step::Fill => Step::Over(End::FillFailed),
            Step::Check | Step::Take => {
                self.old_errors += 1;
                self.withdraw(End::Withdrawn)
            }
            Step::Compare => Step::Over(End::Overtaken),
            Step::Discard => {
                self.old_errors += 1;
                Step::Over(End::Overtaken)
            }
            Step::Recheck(_) | Step::Withdraw(_) => Step::Over(End::Stranded),
            over @ Step::Over(_) => over,
        };
    }
}

/// A client's request that waits for item copies.
#[derive(Debug)]
pub struct WarmUpRead {
    /// Its bytes, to be sent when the item copies are over.
    pub request: Vec<u8>,
    /// Their protocol.
    pub wire: Wire,
    /// The copies that it needs.
    pub item_copies: Vec<ItemCopy>,
    /// The reply that it gets if nothing was copied, for a read that missed.
    pub missed: Option<Box<MemcachedJoin>>,
    /// True if it fails if the old pool fails.
    pub is_strict: bool,
    /// True if it was noted as having something to send.
    pub is_due: bool,
    /// True if it was noted as waiting until fewer items are being copied.
    pub is_held_up: bool,
}

impl WarmUpRead {
    /// Returns whether every item copy has ended.
    pub fn is_over(&self) -> bool {
        self.item_copies.iter().all(|item_copy| item_copy.end().is_some())
    }

    /// Returns the server and the fault of the old pool with which the request fails.
    pub fn refusal(&self) -> Option<(u16, Fault)> {
        self.item_copies.iter().filter(|_| self.is_strict).find_map(|item_copy| {
            match item_copy.end() {
                Some(End::OldFailed(fault)) => Some((item_copy.from, fault)),
                _ => None,
            }
        })
    }

    /// Returns whether the new pool may answer differently now. An item that is no longer in the
    /// old pool may have been copied by another request just before.
    pub fn has_news(&self) -> bool {
        let is_news = |item_copy: &ItemCopy| !matches!(item_copy.end(), Some(End::OldFailed(_)));
        self.missed.is_none() || self.item_copies.iter().any(is_news)
    }

    /// Returns whether the old pool had what was deleted.
    pub fn has_deleted(&self) -> bool {
        self.item_copies.iter().any(|item_copy| item_copy.end() == Some(End::Cleared(true)))
    }
}

/// The counters of a pool's warm-up, shared by the workers.
#[derive(Debug, Default)]
pub struct WarmUpTotals {
    new_hits: AtomicU64,
    lookups: AtomicU64,
    old_hits: AtomicU64,
    fills: AtomicU64,
    failed_fills: AtomicU64,
    withdrawn_fills: AtomicU64,
    stranded_fills: AtomicU64,
    old_errors: AtomicU64,
}

impl WarmUpTotals {
    /// Counts keys that were read and needed no lookup.
    pub fn note_new_hits(&self, count: u64) {
        self.new_hits.fetch_add(count, Relaxed);
    }

    /// Counts a key whose old servers are all out of use.
    pub fn note_unasked(&self) {
        self.old_errors.fetch_add(1, Relaxed);
    }

    /// Counts an item copy that has ended.
    pub fn note(&self, item_copy: &ItemCopy) {
        let add = |count: &AtomicU64, is_so: bool| {
            if is_so {
                count.fetch_add(1, Relaxed);
            }
        };
        let end = item_copy.end();
        add(&self.lookups, item_copy.has_looked());
        add(&self.old_hits, item_copy.was_found);
        add(&self.fills, end == Some(End::Filled));
        add(&self.failed_fills, end == Some(End::FillFailed));
        add(&self.withdrawn_fills, matches!(end, Some(End::Withdrawn | End::Stranded)));
        add(&self.stranded_fills, end == Some(End::Stranded));
        self.old_errors.fetch_add(u64::from(item_copy.old_errors), Relaxed);
    }

    /// Returns the counts so far.
    pub fn figures(&self, is_active: bool) -> WarmUpFigures {
        WarmUpFigures {
            new_hits: self.new_hits.load(Relaxed),
            lookups: self.lookups.load(Relaxed),
            old_hits: self.old_hits.load(Relaxed),
            fills: self.fills.load(Relaxed),
            failed_fills: self.failed_fills.load(Relaxed),
            withdrawn_fills: self.withdrawn_fills.load(Relaxed),
            stranded_fills: self.stranded_fills.load(Relaxed),
            old_errors: self.old_errors.load(Relaxed),
            is_active,
        }
    }
}

/// The effect of a request on an item in the old pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// Nothing.
    None,
    /// The item is copied if the new pool misses it.
    Read,
    /// The item is copied first.
    Modify {
        /// True if the request fails if the old pool fails, because the item must not be left
        /// behind.
        is_needed: bool,
    },
    /// The item is deleted first.
    Clear,
    /// All items are deleted.
    Flush,
}

/// Returns the effect of a request on an item in the old pool.
pub fn warmth_of(head: &Head) -> Warmth {
    use Verb::*;
    match head.verb {
        Get | GetTouch if head.vivify.is_some() => Warmth::Modify { is_needed: false },
        Get | GetTouch => Warmth::Read,
        Set if head.cas.is_none() => Warmth::Clear,
        Delete
            if head.cas.is_none()
                && !head.asked.any(RequestFlags::INVALIDATE | RequestFlags::REMOVE_VALUE) =>
        {
            Warmth::Clear
        }
        Set | Add | Replace | Append | Prepend | Cas | Delete | Incr | Decr | Touch => {
            Warmth::Modify { is_needed: true }
        }
        FlushAll => Warmth::Flush,
        _ => Warmth::None,
    }
}

#[cfg(test)]
mod tests;
