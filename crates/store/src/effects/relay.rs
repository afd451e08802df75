//! Relaying: while the store is a replica, its stream is that of its primary, byte for byte.
//!
//! ```text
//!  primary's unit ──► Relaying ──► the store executes it (nothing is told) ──► Backlog
//!  promotion ──► the store's own effects follow, at the offset that was reached
//! ```
//! Offsets are those of the primary. A replica of this replica, or of the primary, can thus go on
//! here. No cut is made between the execution of a unit and its bytes in the backlog.

use super::backlog::EffectLimits;
use super::{Effects, Keeping};
use keyway_memory::Guard;
use std::sync::atomic::Ordering;

impl Effects {
    /// Returns whether the stream is that of a primary.
    #[inline]
    pub(crate) fn is_relaying(&self) -> bool {
        self.is_relaying.load(Ordering::Relaxed)
    }

    /// Keeps cuts away while a unit of the primary is executed and appended.
    pub(crate) fn relay_order(&self) -> Guard<'_, ()> {
        self.relay_order.lock()
    }

    /// Begins to relay a stream at its offset, with nothing of it kept. Readers of the stream so
    /// far are lost. `database` is the one that the stream has selected. Returns the number of a
    /// reader of the new one.
    pub(crate) fn begin_relay(
        &self,
        limits: EffectLimits,
        offset: u64,
        database: Option<u32>,
    ) -> u64 {
        let mut backlog = self.backlog.lock();
        self.lose_all(&mut backlog);
        // The store's own effects are noted no more, also if a reader of them is to come.
        self.end(&mut backlog);
        self.account.set_room(limits.room);
        backlog.begin(self.tickets.load(Ordering::Relaxed), self.lanes.len(), &self.account);
        backlog.keep_history(limits.history);
        backlog.move_to(offset);
        backlog.select(database);
        self.is_relaying.store(true, Ordering::Relaxed);
        let (number, _) = backlog.join_relayed(Keeping::Newest);
        number
    }

    /// Appends a unit of the primary. `selected` is the database of what follows it. Returns
    /// whether there was room; if not, all readers are lost and nothing is relayed any more.
    pub(crate) fn relay(&self, unit: &[u8], selected: Option<u32>) -> bool {
        let mut backlog = self.backlog.lock();
        if !self.is_relaying() {
            return true;
        }
        backlog.select(selected);
        let has_room = backlog.push_relayed(unit, &self.account);
        match has_room {
            true => self.trim(&mut backlog),
            false => self.lose_all(&mut backlog),
        }
        has_room
    }

    /// Returns the database that the stream has selected at its end, as far as that is known.
    pub(crate) fn relayed_database(&self) -> Option<u32> {
        if self.is_relaying() { self.backlog.lock().selected() } else { None }
    }

    /// Ends telling effects, so that the stream goes on with those of a primary. Returns the offset
    /// that was reached; none if nobody follows. To be called with all shards locked.
    pub(crate) fn relay_on(&self) -> Option<u64> {
        let mut backlog = self.backlog.lock();
        if self.is_relaying() {
            return Some(backlog.end());
        }
        if !self.is_cut() {
            return None;
        }
        // A unit that comes into a lane later finds that nobody reads, in the lane's lock.
        self.is_on.store(false, Ordering::Relaxed);
        self.is_cut.store(false, Ordering::Relaxed);
        if !self.merge(&mut backlog) || !backlog.has_all(self.tickets.load(Ordering::Relaxed)) {
            self.lose_all(&mut backlog);
            return None;
        }
        self.is_relaying.store(true, Ordering::Relaxed);
        Some(backlog.end())
    }

    /// Tells the store's own effects from here on. Returns the offset that was reached; none if
    /// nothing was relayed. To be called with all shards locked.
    pub(crate) fn end_relay(&self) -> Option<u64> {
        let mut backlog = self.backlog.lock();
        if !self.is_relaying.swap(false, Ordering::Relaxed) {
            return None;
        }
        // A replica that goes on from here may not know what the primary before had selected.
        backlog.select(None);
        backlog.go_on(self.tickets.load(Ordering::Relaxed));
        self.life.fetch_add(1, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Relaxed);
        self.is_cut.store(true, Ordering::Relaxed);
        self.cuts.fetch_add(1, Ordering::Relaxed);
        Some(backlog.end())
    }

    /// Returns the offset behind the last unit that was merged.
    pub(crate) fn end_offset(&self) -> u64 {
        self.backlog.lock().end()
    }

    /// Returns the offsets between which the stream is kept; none if nobody follows. Everything
    /// that this thread has told is in front of the second one.
    pub(crate) fn kept(&self) -> Option<(u64, u64)> {
        let mut backlog = self.backlog.lock();
        (self.has_stream() && self.merge_or_end(&mut backlog)).then(|| backlog.kept())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EffectLimits = EffectLimits { room: 1 << 20, history: 1 << 16 };
    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
    const DEL: &[u8] = b"*2\r\n$3\r\nDEL\r\n$1\r\na\r\n";

    fn tell(effects: &Effects) {
        effects.tell_alone(0, [&b"DEL"[..], b"a"].into_iter());
    }

    fn read_all(effects: &Effects, reader: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while effects.read(reader, &mut out).expect("nothing is lost") > 0 {}
        out
    }

    #[test]
    fn a_relayed_stream_goes_on_with_own_effects_and_back_at_the_same_offsets() {
        let effects = Effects::new();
        let anchor = effects.begin_relay(LIMITS, 1000, Some(2));
        // A snapshot that is made now names it.
        assert_eq!(effects.relayed_database(), Some(2));
        tell(&effects);
        assert!(effects.relay(PING, Some(3)));
        assert_eq!(effects.relayed_database(), Some(3));
        assert_eq!(effects.kept(), Some((1000, 1014)));
        // The promotion.
        assert_eq!(effects.end_relay(), Some(1014));
        tell(&effects);
        let promoted = effects.kept().expect("somebody follows").1;
        // It becomes a replica again, and a replica of old goes on from where it was.
        assert_eq!(effects.relay_on(), Some(promoted));
        tell(&effects);
        assert!(effects.relay(PING, None));
        let late = effects.join_at(1000, Keeping::Newest).expect("everything is kept");
        let all = [PING, SELECT, DEL, PING].concat();
        assert_eq!(read_all(&effects, late), all);
        assert_eq!(read_all(&effects, anchor), all);
        effects.leave(late);
        assert!(effects.leave(anchor) && effects.held() == 0 && !effects.is_relaying());
        assert!(effects.relay(PING, None) && effects.end_relay().is_none());
    }

    #[test]
    fn a_unit_without_room_ends_relaying_and_no_later_stream_is_taken_for_the_old_one() {
        let effects = Effects::new();
        let anchor = effects.begin_relay(LIMITS, 7, None);
        assert!(!effects.relay(&vec![b'\n'; 2 << 20], None));
        assert!(effects.read(anchor, &mut Vec::new()).is_err() && effects.kept().is_none());
        effects.leave(anchor);
        assert_eq!(effects.held(), 0);
        let (reader, start) = effects.cut(LIMITS, Keeping::Newest);
        assert!(start > 7 && effects.join_at(7, Keeping::Newest).is_none());
        effects.leave(reader);
    }

    #[test]
    fn nothing_is_kept_for_a_reader_that_was_expected_and_has_not_come() {
        let effects = Effects::new();
        assert!(effects.expect(LIMITS));
        (0..1000).for_each(|_| tell(&effects));
        assert!(effects.held() > 0);
        effects.expect_less();
        assert!(effects.held() == 0 && !effects.is_on());
        let (reader, _) = effects.cut(LIMITS, Keeping::Newest);
        assert!(!effects.expect(LIMITS));
        effects.expect_less();
        assert!(effects.is_on());
        effects.leave(reader);
    }

    /// Returns numbers below a bound that are the same for the same `seed`.
    fn random_from(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        }
    }

    /// Law: while a reader is to come, every write is noted, whoever leaves or is lost meanwhile. So
    /// none that is under way at its cut is missing in its stream.
    #[test]
    fn effects_are_noted_for_a_reader_to_come_whatever_becomes_of_others() {
        for seed in 1..400_u64 {
            let mut random = random_from(seed);
            let effects = Effects::new();
            let mut readers = Vec::new();
            if random(2) == 0 {
                readers.push(effects.cut(LIMITS, Keeping::Newest).0);
            }
            assert_eq!(effects.expect(LIMITS), readers.is_empty());
            for _ in 0..random(30) {
                match random(6) {
                    0 => readers.push(effects.cut(LIMITS, Keeping::Newest).0),
                    1 if !readers.is_empty() => {
                        let reader = readers.swap_remove(random(readers.len() as u64) as usize);
                        effects.leave(reader);
                    }
                    2 => effects.overrun(),
                    3 => {
                        // Another one that is to come, and does not.
                        assert_eq!(effects.expect(LIMITS), !effects.is_cut());
                        effects.expect_less();
                    }
                    // Longer than the room together: readers of the newest are lost.
                    _ => (0..random(9000)).for_each(|_| tell(&effects)),
                }
                assert!(effects.is_on(), "seed {seed}");
            }
            let (reader, start) = effects.cut(LIMITS, Keeping::All);
            effects.expect_less();
            (0..100).for_each(|_| tell(&effects));
            let mut read = Vec::new();
            while effects.read(reader, &mut read).expect("it keeps all") > 0 {}
            assert_eq!(effects.position(reader), Ok(start + read.len() as u64));
            let commands = read.windows(3).filter(|three| three == b"DEL").count();
            assert_eq!(commands, 100, "seed {seed}");
            for reader in readers {
                effects.leave(reader);
            }
            assert!(effects.leave(reader));
            assert!(effects.held() == 0 && !effects.is_on(), "seed {seed}");
        }
    }

    /// Law: the stream has the store's own effects or those of its primary, and never both. When
    /// everybody has gone, nothing is noted and nothing is kept.
    #[test]
    fn own_effects_and_relayed_ones_are_never_in_one_stream_at_once() {
        for seed in 1..2000_u64 {
            let mut random = random_from(seed);
            let effects = Effects::new();
            let (mut readers, mut expected) = (Vec::new(), 0);
            for _ in 0..random(40) {
                match random(9) {
                    0 => readers.push(effects.cut(LIMITS, Keeping::Newest).0),
                    1 if !readers.is_empty() => {
                        let reader = readers.swap_remove(random(readers.len() as u64) as usize);
                        effects.leave(reader);
                    }
                    2 => effects.overrun(),
                    3 => {
                        effects.expect(LIMITS);
                        expected += 1;
                    }
                    4 if expected > 0 => {
                        effects.expect_less();
                        expected -= 1;
                    }
                    5 => readers.push(effects.begin_relay(LIMITS, random(5000), None)),
                    6 => drop(effects.relay_on()),
                    7 => drop(effects.end_relay()),
                    _ => (0..random(3000)).for_each(|_| {
                        tell(&effects);
                        effects.relay(PING, None);
                    }),
                }
                assert!(!(effects.is_on() && effects.is_relaying()), "seed {seed}");
                assert!(effects.is_on() || !effects.is_cut(), "seed {seed}");
            }
            for reader in readers {
                effects.leave(reader);
            }
            (0..expected).for_each(|_| effects.expect_less());
            let is_over = !effects.is_on() && !effects.is_relaying();
            assert!(is_over && effects.held() == 0, "seed {seed}");
        }
    }

    #[test]
    fn a_stream_that_was_lost_and_begun_again_has_no_offset_in_common_with_the_one_before() {
        let effects = Effects::new();
        let (_, start) = effects.cut(LIMITS, Keeping::Newest);
        tell(&effects);
        let end = effects.kept().expect("somebody follows").1;
        effects.overrun();
        tell(&effects);
        let (_, again) = effects.cut(LIMITS, Keeping::Newest);
        assert!(start < end && end < again);
        assert!(effects.join_at(end, Keeping::Newest).is_none());
    }
}
