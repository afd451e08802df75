//! EXPIRE and its kin, TTL and its kin, PERSIST; and the times in SET and GETEX.

use super::call::{Call, Fault, NOT_AN_INTEGER, Outcome};
use crate::algorithms::number::parse_integer;
use keyway_base::KeyspaceEvents;
use keyway_resp::reply;

/// The unit of a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
}

/// Where a time counts from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Now,
    Epoch,
}

/// When to expire, as an argument told it.
#[derive(Clone, Copy)]
pub(super) struct Deadline<'a> {
    pub(super) text: &'a [u8],
    pub(super) unit: Unit,
    pub(super) base: Base,
}

impl Deadline<'_> {
    /// Milliseconds since the epoch, more than 0: SET and GETEX take no time
    /// that has passed by definition.
    pub(super) fn positive_millis(self, call: &Call<'_>) -> Result<u64, Fault> {
        let count = parse_integer(self.text).ok_or(NOT_AN_INTEGER)?;
        if count <= 0 {
            return Err(Fault::ExpireTime);
        }
        let millis = self.millis(count, call)?;
        u64::try_from(millis).ok().filter(|millis| *millis > 0).ok_or(Fault::ExpireTime)
    }

    fn millis(self, count: i64, call: &Call<'_>) -> Result<i64, Fault> {
        let factor = if self.unit == Unit::Seconds { 1000 } else { 1 };
        let base = if self.base == Base::Now { call.turn.now_millis as i64 } else { 0 };
        count
            .checked_mul(factor)
            .and_then(|millis| millis.checked_add(base))
            .ok_or(Fault::ExpireTime)
    }
}

/// When EXPIRE may set what it is told to.
#[derive(Clone, Copy, Default)]
struct Conditions {
    if_none: bool,
    if_any: bool,
    if_later: bool,
    if_sooner: bool,
}

impl Conditions {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        let mut conditions = Self::default();
        for index in 3..call.args.len() {
            match () {
                () if call.is(index, "nx") => conditions.if_none = true,
                () if call.is(index, "xx") => conditions.if_any = true,
                () if call.is(index, "gt") => conditions.if_later = true,
                () if call.is(index, "lt") => conditions.if_sooner = true,
                () => return Err(Fault::Option(call.arg(index).to_vec())),
            }
        }
        let Self { if_none, if_any, if_later, if_sooner } = conditions;
        if if_none && (if_any || if_later || if_sooner) {
            return Err(Fault::Text(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if if_later && if_sooner {
            return Err(Fault::Text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// No expiry counts as the latest of all.
    fn allow(self, current: Option<u64>, wanted: i64) -> bool {
        let current = current.map(|millis| millis as i64);
        !(self.if_none && current.is_some()
            || self.if_any && current.is_none()
            || self.if_later && current.is_none_or(|current| wanted <= current)
            || self.if_sooner && current.is_some_and(|current| wanted >= current))
    }
}

/// EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
pub(super) fn expire(call: &Call<'_>, base: Base, unit: Unit, out: &mut Vec<u8>) -> Outcome {
    let conditions = Conditions::parse(call)?;
    let deadline = Deadline { text: call.arg(2), unit, base };
    let count = call.integer(2)?;
    let wanted = deadline.millis(count, call)?;
    let done = call.with_key(|mut entry| {
        let Some(item) = entry.item() else { return false };
        if !conditions.allow(item.expiry(), wanted) {
            return false;
        }
        match u64::try_from(wanted) {
            Ok(millis) if millis > call.turn.now_millis => {
                entry.set_expiry(Some(millis));
                entry.notify(KeyspaceEvents::GENERIC, "expire");
            }
            _ => {
                entry.remove();
                entry.notify(KeyspaceEvents::GENERIC, "del");
            }
        }
        true
    });
    reply::integer(out, i64::from(done));
    Ok(())
}

/// TTL, PTTL, EXPIRETIME and PEXPIRETIME.
pub(super) fn ttl(call: &Call<'_>, base: Base, unit: Unit, out: &mut Vec<u8>) -> Outcome {
    let found = call.with_key(|mut entry| entry.peek().map(|item| item.expiry()));
    let answer = match found {
        None => -2,
        Some(None) => -1,
        Some(Some(expiry)) => {
            let from = if base == Base::Now { call.turn.now_millis } else { 0 };
            let millis = expiry.saturating_sub(from);
            let count = if unit == Unit::Seconds { (millis + 500) / 1000 } else { millis };
            count as i64
        }
    };
    reply::integer(out, answer);
    Ok(())
}

/// PERSIST.
pub(super) fn persist(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let done = call.with_key(|mut entry| {
        let volatile = entry.item().is_some_and(|item| item.expiry().is_some());
        entry.set_expiry(None);
        if volatile {
            entry.notify(KeyspaceEvents::GENERIC, "persist");
        }
        volatile
    });
    reply::integer(out, i64::from(done));
    Ok(())
}
