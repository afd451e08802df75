//! When items expire, as memcached clients write it.

use super::call::Call;
use crate::entry::Entry;
use keyway_base::KeyspaceEvents;
use keyway_memcache::{Dialect, Item, Outcome};

/// Seconds up to which a number is from now on: thirty days. Above, it is
/// seconds since 1970.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// When an item expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    Never,
    /// In milliseconds since the Unix epoch; it is to come.
    At(u64),
    /// It has.
    Past,
}

impl Deadline {
    /// Returns the deadline that a client means by `seconds` at `now_millis`.
    pub(super) fn of(seconds: i64, now_millis: u64) -> Deadline {
        let millis = seconds.unsigned_abs().saturating_mul(1000);
        match seconds {
            0 => Deadline::Never,
            ..0 => Deadline::Past,
            1..=RELATIVE_MAX => Deadline::At(now_millis.saturating_add(millis)),
            _ if millis <= now_millis => Deadline::Past,
            _ => Deadline::At(millis),
        }
    }

    /// An item's own, which is there.
    pub(super) fn of_item(expiry: Option<u64>) -> Deadline {
        expiry.map_or(Deadline::Never, Deadline::At)
    }

    /// As an item keeps it, if there is still one to keep it.
    pub(super) fn expiry(self) -> Option<u64> {
        match self {
            Deadline::At(millis) => Some(millis),
            Deadline::Never | Deadline::Past => None,
        }
    }

    /// Seconds left, with the one that has begun; -1 for without end.
    pub(super) fn seconds_left(self, now_millis: u64) -> i64 {
        match self {
            Deadline::Never => -1,
            Deadline::At(millis) => millis.saturating_sub(now_millis).div_ceil(1000) as i64,
            Deadline::Past => 0,
        }
    }
}

/// The effect of the words of a meta command on an item, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    pub(super) deadline: Deadline,
    /// Seconds left where `t` stood.
    pub(super) seconds_left: Option<i64>,
    /// The client is to fill the item.
    pub(super) won: bool,
}

impl Walk {
    /// Goes through the words with an item that expires at `deadline`, was
    /// made by this request if `is_new`, and is being filled by somebody if
    /// `is_sent`.
    pub(super) fn of(call: &Call<'_>, deadline: Deadline, is_new: bool, is_sent: bool) -> Walk {
        let (head, now) = (call.head(), call.turn.now_millis);
        let mut walk = Walk { deadline, seconds_left: None, won: false };
        if head.dialect != Dialect::Meta {
            return walk;
        }
        for word in call.words().split(|byte| *byte == b' ') {
            match word.first() {
                Some(b'T') => walk.deadline = Deadline::of(head.expiry, now),
                Some(b'N') if is_new => {
                    walk.deadline = Deadline::of(head.vivify.unwrap_or(0), now);
                    walk.won = true;
                }
                Some(b'R') if !is_new && !is_sent => {
                    walk.won |= expires_before(walk.deadline, head.recache.unwrap_or(0), now);
                }
                Some(b't') => walk.seconds_left = Some(walk.deadline.seconds_left(now)),
                _ => {}
            }
        }
        walk
    }
}

/// Returns whether an item expires before what a client means by `seconds`, in whole
/// seconds.
fn expires_before(deadline: Deadline, seconds: i64, now_millis: u64) -> bool {
    let left = deadline.seconds_left(now_millis);
    left >= 0 && left < Deadline::of(seconds, now_millis).seconds_left(now_millis)
}

/// Gives an item that is there another deadline, and tells of it.
pub(super) fn set_deadline(entry: &mut Entry<'_>, deadline: Deadline) {
    let was_volatile = entry.item().is_some_and(|item| item.expiry().is_some());
    match deadline {
        Deadline::Never => {
            entry.set_expiry(None);
            if was_volatile {
                entry.notify(KeyspaceEvents::GENERIC, "persist");
            }
        }
        Deadline::At(millis) => {
            entry.set_expiry(Some(millis));
            entry.notify(KeyspaceEvents::GENERIC, "expire");
        }
        Deadline::Past => {
            entry.remove();
            entry.notify(KeyspaceEvents::GENERIC, "del");
        }
    }
}

/// `touch`: of a value of any type.
pub(super) fn touch(call: &Call<'_>, out: &mut Vec<u8>) {
    let deadline = Deadline::of(call.head().expiry, call.turn.now_millis);
    call.change(out, |entry| Ok(touch_entry(call, entry, deadline)));
}

fn touch_entry(call: &Call<'_>, entry: &mut Entry<'_>, deadline: Deadline) -> Outcome<'static> {
    if entry.read().is_none() {
        return Outcome::NotFound;
    }
    let is_text = entry.look().is_some_and(|item| item.encoding().is_text());
    let is_told = call.head().dialect == Dialect::Binary && is_text;
    let cas = is_told.then(|| entry.cas());
    let flags = entry.look().map_or(0, |item| item.meta().flags);
    set_deadline(entry, deadline);
    Outcome::Done(Item { flags, cas, ..Item::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_from_now_and_more_is_since_1970() {
        let now = 1_700_000_000_123;
        let of = |seconds| Deadline::of(seconds, now);
        assert_eq!(of(0), Deadline::Never);
        assert_eq!(of(1), Deadline::At(now + 1000));
        assert_eq!(of(RELATIVE_MAX), Deadline::At(now + 2_592_000_000));
        assert_eq!(of(RELATIVE_MAX + 1), Deadline::Past);
        assert_eq!(of(1_700_000_000), Deadline::Past);
        assert_eq!(of(1_700_000_001), Deadline::At(1_700_000_001_000));
        assert_eq!(of(-1), Deadline::Past);
        assert_eq!(of(i64::MIN), Deadline::Past);
        assert_eq!(of(i64::MAX), Deadline::At(u64::MAX));
    }

    #[test]
    fn a_second_that_has_begun_is_still_left() {
        assert_eq!(Deadline::At(5000).seconds_left(0), 5);
        assert_eq!(Deadline::At(5000).seconds_left(1), 5);
        assert_eq!(Deadline::At(5000).seconds_left(4999), 1);
        assert_eq!(Deadline::Never.seconds_left(0), -1);
    }
}
