//! Bringing items from an old pool of memcached into a new one, while clients
//! use the new one: one [`ItemCopy`] for a key.
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
//! An item is in the old pool until it is certain that it is in the new one, and
//! then no more: what is changed, expires or is evicted in the new pool later can
//! never come back from the old one. Writers delete in the old pool *before* they
//! write in the new one, so a fill that finds its item unchanged in the old pool
//! after it was stored precedes every such write, and one that does not is taken
//! back by the number it was stored with.
//!
//! The worker sends what [`ItemCopy::compose`] writes to where [`ItemCopy::place`] says, and
//! hands the replies in, until there is an [`ItemCopy::end`].

use super::{MemcachedJoin, wire_of};
use keyway_base::{Fault, Sent};
use keyway_memcache::{
    Dialect, Expect, Head, Item, Outcome, ReplyLimits, ReplyParsed, RequestFlags, Untranslatable,
    Verb, Wire, compose_request, parse_reply,
};
use keyway_metrics::WarmUpFigures;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Expiries above so many seconds are times since 1970 to memcached.
const RELATIVE_MAX: i64 = 30 * 24 * 60 * 60;

/// One of the two pools of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUpPool {
    /// The one that items come from.
    Old,
    /// The one that clients use.
    New,
}

/// How a [`ItemCopy`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The old pool does not have it.
    Missing,
    /// It was brought over.
    Filled,
    /// The new pool had it by then.
    Overtaken,
    /// It was taken back: the old pool lost it meanwhile.
    Withdrawn,
    /// It was to be taken back, and the new server failed.
    Stranded,
    /// The new server did not take it.
    FillFailed,
    /// It is in the old pool no more; whether it was.
    Cleared(bool),
    /// The old pool cannot be asked.
    OldFailed(Fault),
}

/// What a item copy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// A read that missed: what is newer there already is none of its business.
    Read,
    /// A write that needs what is there: if the new pool has something else, the old
    /// item goes.
    Modify,
    /// A write that needs nothing of what is there.
    Clear,
    /// The whole server is emptied, after so many seconds.
    Flush(i64),
}

/// What both pools' servers are asked in, and what bounds an expiry nobody can tell.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The old pool's words.
    pub old: Dialect,
    /// The new pool's words.
    pub new: Dialect,
    /// Expiry of items whose time left cannot be asked for, in seconds.
    pub ttl_max: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    LookUp,
    Fill,
    /// Old servers of classic text cannot delete on a condition.
    Check,
    Take,
    /// Whether the new pool has the same.
    Compare,
    Discard,
    /// Asks the new pool for the item and its number, after a fill whose reply did not tell them.
    Recheck(End),
    Withdraw(End),
    Clear,
    Over(End),
}

/// One key on its way.
#[derive(Debug)]
pub struct ItemCopy {
    /// Its server in the old pool.
    pub from: u16,
    /// Its server in the new pool.
    pub to: u16,
    /// It counts among the worker's that are on their way.
    pub is_begun: bool,
    aim: Aim,
    terms: Terms,
    key: Vec<u8>,
    step: Step,
    /// The step's request is on its way.
    is_asked: bool,
    value: Vec<u8>,
    flags: u32,
    expiry: i64,
    /// The number of the item in the old pool.
    cas_old: Option<u64>,
    /// The number it was stored with in the new pool, where that was told.
    cas_new: Option<u64>,
    was_found: bool,
    /// The item was sent to the new pool a second time.
    is_refilled: bool,
    old_errors: u8,
}

impl ItemCopy {
    /// One for `key`, which lies with the server `from` in the old pool and `to`
    /// in the new one.
    pub fn new(aim: Aim, terms: Terms, key: &[u8], (from, to): (u16, u16)) -> ItemCopy {
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

    /// Where the next request goes; `None` while one is on its way, or at the end.
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

    /// Whether the next request only asks for the item: nothing was changed for it yet.
    pub fn is_looking_up(&self) -> bool {
        self.step == Step::LookUp
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<End> {
        match self.step {
            Step::Over(end) => Some(end),
            _ => None,
        }
    }

    /// Lets go of the value, which nobody needs once it is over.
    pub fn forget_value(&mut self) {
        self.value = Vec::new();
    }

    /// Whether the key was looked for in the old pool.
    fn has_looked(&self) -> bool {
        matches!(self.aim, Aim::Read | Aim::Modify)
    }

    /// What [`ItemCopy::place`] is asked in.
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
            // Classic text cannot say it.
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
            // Stored as expired already, which deletes on a condition.
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

    /// Appends the next request to `out` and tells how its reply ends. `None` when
    /// the protocol there has no way to name the key: the item copy goes on without.
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
                    // No server there can have it.
                    Step::LookUp => End::Missing,
                    _ => End::Cleared(false),
                });
                None
            }
        }
    }

    /// Takes the reply to what was composed last, at `unix_secs` since 1970.
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
                // Another brings the same over just now, and sees to the old one.
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
        // What its clients were told to fill again is no value to go on with.
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

    /// The expiry to store it with; `None` when its time is up.
    fn expiry_of(&self, item: &Item<'_>, unix_secs: i64) -> Option<i64> {
        match item.ttl {
            None => Some(self.terms.ttl_max),
            Some(..0) => Some(0),
            // Zero would be for ever.
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

    /// The item is in the new pool: the old one lets go of it.
    fn on_stored(&self) -> Step {
        match self.terms.old {
            Dialect::Text => Step::Check,
            _ => Step::Take,
        }
    }

    fn on_taken(&mut self, outcome: &Outcome<'_>) -> Step {
        match outcome {
            Outcome::Done(_) => Step::Over(End::Filled),
            // It was there a moment ago; whoever has removed it since removes it from
            // the new pool next.
            Outcome::NotFound if self.terms.old == Dialect::Text => Step::Over(End::Filled),
            Outcome::Error { .. } => {
                self.old_errors += 1;
                self.withdraw(End::Withdrawn)
            }
            _ => self.withdraw(End::Withdrawn),
        }
    }

    /// Takes back what was stored, and nothing that was written since.
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
                    // The fill was stored, though nobody told.
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

    /// What was asked last gets no reply, or could not be asked.
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

/// A request of a client that waits for item copies.
#[derive(Debug)]
pub struct WarmUpRead {
    /// Its bytes, to be sent when the item copies are over.
    pub request: Vec<u8>,
    /// What they are in.
    pub wire: Wire,
    /// What it needs.
    pub item_copies: Vec<ItemCopy>,
    /// The reply that it gets when nothing was brought over: of a read that missed.
    pub missed: Option<Box<MemcachedJoin>>,
    /// It fails where the old pool does.
    pub is_strict: bool,
    /// It was noted as having something to send.
    pub is_due: bool,
    /// It was noted as waiting until fewer items are on their way.
    pub is_held_up: bool,
}

impl WarmUpRead {
    /// Whether every item copy has ended.
    pub fn is_over(&self) -> bool {
        self.item_copies.iter().all(|item_copy| item_copy.end().is_some())
    }

    /// The fault of the old pool that the request fails with, and of which server.
    pub fn refusal(&self) -> Option<(u16, Fault)> {
        self.item_copies.iter().filter(|_| self.is_strict).find_map(|item_copy| {
            match item_copy.end() {
                Some(End::OldFailed(fault)) => Some((item_copy.from, fault)),
                _ => None,
            }
        })
    }

    /// Whether the new pool may answer other than it did. What is in the old pool no
    /// more may have been brought over by another just before.
    pub fn has_news(&self) -> bool {
        let is_news = |item_copy: &ItemCopy| !matches!(item_copy.end(), Some(End::OldFailed(_)));
        self.missed.is_none() || self.item_copies.iter().any(is_news)
    }

    /// Whether the old pool had what was deleted.
    pub fn has_deleted(&self) -> bool {
        self.item_copies.iter().any(|item_copy| item_copy.end() == Some(End::Cleared(true)))
    }
}

/// What the workers count of a pool's warm-up, together.
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
    /// Counts keys that were read and needed no looking for.
    pub fn note_new_hits(&self, count: u64) {
        self.new_hits.fetch_add(count, Relaxed);
    }

    /// Counts a key whose old servers are all out of use.
    pub fn note_unasked(&self) {
        self.old_errors.fetch_add(1, Relaxed);
    }

    /// Counts a item copy that has ended.
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

    /// The counts so far.
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

/// What a request means for an item in the old pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// Nothing.
    None,
    /// It is brought over where the new pool misses it.
    Read,
    /// It is brought over first; `is_needed` when it must not be left behind.
    Modify {
        /// The request fails where the old pool does.
        is_needed: bool,
    },
    /// It is deleted first.
    Clear,
    /// All of them are.
    Flush,
}

/// What a request means for an item in the old pool.
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
