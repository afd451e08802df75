//! Values that can be verified, and a ledger of what was written.
//!
//! A value begins with a stamp: the run, the key, the version, and a checksum over these and all
//! bytes behind. Only one connection writes a key, so its versions come in order. A reader knows
//! the least version that a reply may carry: the last version that was acknowledged before the
//! request was sent.

use crate::outcome::Verification;
use std::sync::atomic::{AtomicU32, Ordering};

/// Length of a stamp, in bytes.
pub const STAMP_LEN: usize = 48;

/// The first bytes of a stamp.
const MARK: &[u8; 4] = b"kwl1";

/// Offset of the checksum in a stamp.
const SUM_AT: usize = STAMP_LEN - 8;

/// The versions of each key that were issued and acknowledged.
#[derive(Debug)]
pub struct Ledger {
    run: u32,
    issued: Vec<AtomicU32>,
    acknowledged: Vec<AtomicU32>,
}

/// What a request knows of a key at the time when it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The key's number.
    pub key: u64,
    /// The version that a write sets, or the least version that a read may return.
    pub version: u32,
}

/// The verdict on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The value is as it should be.
    Right,
    /// The value is damaged, belongs to another key, or has a version that was never issued.
    Wrong,
    /// The value is older than it may be.
    Stale,
    /// The value was written before this run.
    Foreign,
}

impl Ledger {
    /// Creates a ledger for this number of keys. The number `run` tells the values of this run from
    /// those of others.
    pub fn new(keys: u64, run: u32) -> Ledger {
        let zeros = || (0..keys).map(|_| AtomicU32::new(0)).collect();
        Ledger { run, issued: zeros(), acknowledged: zeros() }
    }

    /// Returns the version of the next write of `key`.
    pub fn issue(&self, key: u64) -> u32 {
        // ORDER: one connection writes a key; who judges reads after the reply, which the
        // server's answer puts behind this.
        self.issued[key as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a write was acknowledged.
    pub fn acknowledge(&self, check: Check) {
        // ORDER: pairs with `floor`: a request sent after it was seen is answered after the write.
        self.acknowledged[check.key as usize].fetch_max(check.version, Ordering::Release);
    }

    /// Returns the least version that the reply to a request for `key` may carry if the request is
    /// sent now.
    pub fn floor(&self, key: u64) -> u32 {
        // ORDER: pairs with `acknowledge`.
        self.acknowledged[key as usize].load(Ordering::Acquire)
    }

    /// Writes the stamp of a value into `out`. The value reserves its first [`STAMP_LEN`] bytes for
    /// it.
    pub fn stamp(&self, out: &mut [u8], key: u64, version: u32) {
        let (stamp, _) = out.split_at_mut(STAMP_LEN);
        stamp[..4].copy_from_slice(MARK);
        hex(&mut stamp[4..12], u64::from(self.run));
        hex(&mut stamp[12..28], key);
        hex(&mut stamp[28..36], u64::from(version));
        stamp[36..SUM_AT].copy_from_slice(b"0000");
        let sum = sum(out);
        hex(&mut out[SUM_AT..STAMP_LEN], u64::from(sum));
    }

    /// Returns the verdict on a value that was read for `check`.
    pub fn judge(&self, value: &[u8], check: Check) -> Verdict {
        // What was written without verification has no stamp, and is right until it is written over.
        if check.version == 0 && !value.starts_with(MARK) {
            return Verdict::Foreign;
        }
        let Some((run, key, version)) = read(value) else { return Verdict::Wrong };
        if key != check.key {
            return Verdict::Wrong;
        }
        if run != self.run {
            return if check.version > 0 { Verdict::Stale } else { Verdict::Foreign };
        }
        // ORDER: see `issue`.
        if version > self.issued[key as usize].load(Ordering::Acquire) || version == 0 {
            return Verdict::Wrong;
        }
        if version < check.version { Verdict::Stale } else { Verdict::Right }
    }

    /// Judges the reply to a read and counts the verdict. `None` means that the key is missing.
    pub fn count(&self, value: Option<&[u8]>, check: Check, counts: &mut Verification) {
        counts.checked += 1;
        let Some(value) = value else {
            counts.missing += u64::from(check.version > 0);
            return;
        };
        match self.judge(value, check) {
            Verdict::Right => {}
            Verdict::Wrong => counts.wrong += 1,
            Verdict::Stale => counts.stale += 1,
            Verdict::Foreign => counts.foreign += 1,
        }
    }
}

fn sum(value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&value[..SUM_AT]), &value[STAMP_LEN..])
}

fn read(value: &[u8]) -> Option<(u32, u64, u32)> {
    let stamp = value.get(..STAMP_LEN).filter(|stamp| stamp.starts_with(MARK))?;
    let number = |from: usize, to: usize| {
        let text = std::str::from_utf8(&stamp[from..to]).ok()?;
        u64::from_str_radix(text, 16).ok()
    };
    if number(SUM_AT, STAMP_LEN)? != u64::from(sum(value)) {
        return None;
    }
    Some((number(4, 12)? as u32, number(12, 28)?, number(28, 36)? as u32))
}

fn hex(out: &mut [u8], mut number: u64) {
    for place in out.iter_mut().rev() {
        *place = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// Adds the counts of one thread to the total.
pub fn add(total: &mut Verification, part: &Verification) {
    total.checked += part.checked;
    total.wrong += part.wrong;
    total.stale += part.stale;
    total.missing += part.missing;
    total.foreign += part.foreign;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(ledger: &Ledger, key: u64, version: u32) -> Vec<u8> {
        let mut value = vec![b'x'; 60];
        ledger.stamp(&mut value, key, version);
        value
    }

    #[test]
    fn only_what_may_come_is_right() {
        let ledger = Ledger::new(10, 7);
        for _ in 0..3 {
            ledger.issue(4);
        }
        let check = |version| Check { key: 4, version };
        assert_eq!(ledger.judge(&value(&ledger, 4, 2), check(2)), Verdict::Right);
        assert_eq!(ledger.judge(&value(&ledger, 4, 3), check(2)), Verdict::Right);
        assert_eq!(ledger.judge(&value(&ledger, 4, 1), check(2)), Verdict::Stale);
        assert_eq!(ledger.judge(&value(&ledger, 4, 4), check(2)), Verdict::Wrong);
        assert_eq!(ledger.judge(&value(&ledger, 5, 2), check(2)), Verdict::Wrong);
        let other = Ledger::new(10, 8);
        assert_eq!(ledger.judge(&value(&other, 4, 2), check(2)), Verdict::Stale);
        assert_eq!(ledger.judge(&value(&other, 4, 2), check(0)), Verdict::Foreign);
        let whole = value(&ledger, 4, 3);
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 1;
            // The four zeros are part of what is summed up.
            assert_eq!(ledger.judge(&broken, check(1)), Verdict::Wrong, "byte {at}");
            // As if it had no stamp: whose it is cannot be told.
            let unwritten = if at < MARK.len() { Verdict::Foreign } else { Verdict::Wrong };
            assert_eq!(ledger.judge(&broken, check(0)), unwritten, "byte {at}");
        }
        assert_eq!(ledger.judge(&whole[..59], check(0)), Verdict::Wrong);
    }

    #[test]
    fn what_has_no_stamp_is_wrong_once_a_write_was_acknowledged() {
        let ledger = Ledger::new(10, 7);
        ledger.issue(4);
        for value in [&b"plain"[..], b"", &[b'x'; 100]] {
            assert_eq!(ledger.judge(value, Check { key: 4, version: 0 }), Verdict::Foreign);
            assert_eq!(ledger.judge(value, Check { key: 4, version: 1 }), Verdict::Wrong);
        }
    }

    #[test]
    fn what_was_acknowledged_is_missed() {
        let (ledger, mut counts) = (Ledger::new(2, 1), Verification::default());
        ledger.count(None, Check { key: 0, version: ledger.floor(0) }, &mut counts);
        assert_eq!(counts.missing, 0);
        let version = ledger.issue(0);
        ledger.acknowledge(Check { key: 0, version });
        ledger.count(None, Check { key: 0, version: ledger.floor(0) }, &mut counts);
        assert_eq!((counts.checked, counts.missing), (2, 1));
    }
}
