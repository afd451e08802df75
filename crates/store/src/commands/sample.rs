//! Random picks and walks, which commands on several types of collection have in common.

use super::call::{Call, Fault, OUT_OF_LONG_RANGE, Outcome, SYNTAX};
use keyway_base::glob;
use keyway_resp::reply;

/// Longest reply to a request for elements over and over again, in bytes: a
/// single line must not take all memory there is.
const REPLY_LEN_MAX: usize = 512 << 20;
/// Elements looked at when COUNT is not given.
const COUNT_DEFAULT: u64 = 10;
/// A sample of at most one element in this many is drawn one by one, a larger
/// one in one go over all.
const SPARSE: usize = 3;

const OUT_OF_RANGE: Fault = Fault::Text("ERR value is out of range");

/// The number of elements that a request asks for.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// Different ones, all of them if there are no more.
    Distinct(usize),
    /// So many, the same ones again if it comes to that.
    Repeated(usize),
}

impl Wanted {
    /// Argument `index`: negative for repeated ones, at most `limit` either way.
    pub(super) fn parse(call: &Call<'_>, index: usize, limit: i64) -> Result<Self, Fault> {
        let count = call.integer(index)?;
        if count < -limit || count > limit {
            return Err(if limit == i64::MAX { OUT_OF_LONG_RANGE } else { OUT_OF_RANGE });
        }
        let magnitude = count.unsigned_abs() as usize;
        Ok(if count < 0 { Self::Repeated(magnitude) } else { Self::Distinct(magnitude) })
    }

    pub(super) fn count(self) -> usize {
        let (Self::Distinct(count) | Self::Repeated(count)) = self;
        count
    }

    /// Returns whether of so many elements those that are wanted are drawn one by one.
    pub(super) fn is_sparse(self, len: usize) -> bool {
        match self {
            Self::Distinct(count) => count.saturating_mul(SPARSE) <= len,
            Self::Repeated(_) => true,
        }
    }
}

/// Calls `write` with elements as wanted: `pick` takes a random one of `len`,
/// `visit` goes over all.
pub(super) fn sample<T: Ord + Copy>(
    call: &Call<'_>,
    wanted: Wanted,
    len: usize,
    pick: impl Fn() -> Option<T>,
    visit: impl FnOnce(&mut dyn FnMut(T)),
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) -> Outcome {
    let start = out.len();
    match wanted {
        Wanted::Repeated(count) => {
            for element in std::iter::repeat_with(pick).take(count).flatten() {
                write(element, out);
                if out.len() - start > REPLY_LEN_MAX {
                    return Err(OUT_OF_RANGE);
                }
            }
        }
        Wanted::Distinct(count) if wanted.is_sparse(len) => {
            let mut chosen = std::collections::BTreeSet::new();
            while chosen.len() < count {
                let Some(element) = pick() else { break };
                if chosen.insert(element) {
                    write(element, out);
                }
            }
        }
        Wanted::Distinct(count) => {
            // Each element is taken with the chance that is left for it.
            let (mut needed, mut left) = (count.min(len) as u64, len as u64);
            visit(&mut |element| {
                if left > 0 && call.store.random() % left < needed {
                    write(element, out);
                    needed -= 1;
                }
                left = left.saturating_sub(1);
            });
        }
    }
    Ok(())
}

/// Elements that the reply of [`sample`] has.
pub(super) fn sample_len(wanted: Wanted, len: usize) -> usize {
    match wanted {
        Wanted::Distinct(count) => count.min(len),
        Wanted::Repeated(count) => count,
    }
}

/// The options of HSCAN, SSCAN and ZSCAN.
pub(super) struct Walk<'a> {
    pub(super) count: u64,
    pattern: Option<&'a [u8]>,
}

impl<'a> Walk<'a> {
    pub(super) fn parse(call: &Call<'a>) -> Result<Self, Fault> {
        let mut walk = Self { count: COUNT_DEFAULT, pattern: None };
        let mut index = 3;
        while index < call.args.len() {
            let has_value = index + 1 < call.args.len();
            if call.is(index, "count") && has_value {
                let count = call.integer(index + 1)?;
                walk.count = u64::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            } else if call.is(index, "match") && has_value {
                walk.pattern = Some(call.arg(index + 1)).filter(|pattern| *pattern != b"*");
            } else {
                return Err(SYNTAX);
            }
            index += 2;
        }
        Ok(walk)
    }

    pub(super) fn wants(&self, element: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, element))
    }
}

/// Appends the reply of a walk: the next cursor, and strings that were
/// composed already.
pub(super) fn walk_reply(out: &mut Vec<u8>, cursor: u64, count: usize, strings: &[u8]) {
    reply::array(out, 2);
    reply::bulk(out, cursor.to_string().as_bytes());
    reply::array(out, count);
    out.extend_from_slice(strings);
}
