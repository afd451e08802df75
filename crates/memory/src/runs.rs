//! Blocks that are too long for a slot, up to [`RUN_LEN_MAX`]: runs of kibibytes in regions from
//! the system. The memory of freed runs is returned, so that a change of sizes leaves nothing
//! behind.
//!
//! A few freed runs of each length are kept warm for the next block of that length, which then
//! costs no system call and no page fault. If their total reaches the limit, runs of the length
//! that was used longest ago are released.

use crate::mapping::Region;
use std::ptr::NonNull;

/// A run's length is a multiple of this, in bytes. If it were smaller, less would be wasted at a
/// run's end, and the map of a region would be longer.
const UNIT_LEN: usize = 1 << 10;
/// Length of the system's pages, in units.
const PAGE_UNITS: usize = 4;
/// Length of the longest run, in bytes. The global allocator maps longer blocks separately.
pub const RUN_LEN_MAX: usize = 128 << 10;
const RUN_UNITS_MAX: usize = RUN_LEN_MAX / UNIT_LEN;
/// Largest total length of freed runs that keep their memory, in bytes.
const WARM_MAX: usize = 1 << 20;

/// Returns the bytes that a run of at least `len` bytes takes.
#[inline]
pub const fn run_len(len: usize) -> usize {
    len.next_multiple_of(UNIT_LEN)
}

struct Area {
    region: Region,
    /// One bit for each unit, set while it is taken.
    taken: Vec<u64>,
    /// No free run is longer than this, in units.
    free_max: usize,
    /// The word of `taken` where the last search ended.
    hand: usize,
}

/// All runs of a store.
pub struct Runs {
    areas: Vec<Area>,
    /// The warm runs by length in units.
    warm: Vec<Warm>,
    warm_len: usize,
    /// Counts the uses of warm runs.
    turn: u64,
}

/// Freed runs of one length that keep their memory.
#[derive(Default)]
struct Warm {
    runs: Vec<NonNull<u8>>,
    /// When one was last taken or freed.
    turn: u64,
}

// SAFETY: runs are plain memory; who has one is the only one to use it.
unsafe impl Send for Runs {}

/// The change of the held bytes of the system's pages.
pub type Held = i64;

impl Runs {
    pub const fn new() -> Self {
        Self { areas: Vec::new(), warm: Vec::new(), warm_len: 0, turn: 0 }
    }

    /// Returns a run of `len` bytes, which must be a multiple of [`UNIT_LEN`] and no more than
    /// [`RUN_LEN_MAX`]. It is aligned to 16, and its content is undefined.
    pub fn take(&mut self, len: usize) -> (NonNull<u8>, Held) {
        let units = len / UNIT_LEN;
        if let Some(run) = self.take_warm(units) {
            self.turn += 1;
            self.warm[units].turn = self.turn;
            return (run, 0);
        }
        let fits = |area: &&mut Area| area.free_max >= units;
        for area in self.areas.iter_mut().filter(fits) {
            if let Some(found) = area.take(units) {
                return found;
            }
        }
        let mapped: usize = self.areas.iter().map(|area| area.region.len()).sum();
        let mut area = Area::new(Region::map_small_pages(mapped));
        let found = area.take(units);
        self.areas.push(area);
        found.expect("a new region has room for the longest run")
    }

    /// Frees a run of `len` bytes.
    pub fn give(&mut self, run: NonNull<u8>, len: usize) -> Held {
        let units = len / UNIT_LEN;
        if self.warm.is_empty() {
            self.warm.resize_with(RUN_UNITS_MAX + 1, Warm::default);
        }
        self.turn += 1;
        self.warm[units].turn = self.turn;
        let mut held = 0;
        while self.warm_len + len > WARM_MAX {
            let oldest = self.oldest_but(units);
            let Some((old, old_units)) = oldest.and_then(|it| Some((self.take_warm(it)?, it)))
            else {
                return held + self.release(run, units);
            };
            held += self.release(old, old_units);
        }
        self.warm[units].runs.push(run);
        self.warm_len += len;
        held
    }

    fn take_warm(&mut self, units: usize) -> Option<NonNull<u8>> {
        let run = self.warm.get_mut(units)?.runs.pop()?;
        self.warm_len -= units * UNIT_LEN;
        Some(run)
    }

    /// Returns the length, other than `units`, with warm runs that was used longest ago.
    fn oldest_but(&self, units: usize) -> Option<usize> {
        let others = (0..self.warm.len()).filter(|other| *other != units);
        others
            .filter(|other| !self.warm[*other].runs.is_empty())
            .min_by_key(|other| self.warm[*other].turn)
    }

    /// Returns a run of `units` units to its region.
    fn release(&mut self, run: NonNull<u8>, units: usize) -> Held {
        let at = run.addr().get();
        let of = |area: &&mut Area| {
            let start = area.region.at(0).addr().get();
            (start..start + area.region.len()).contains(&at)
        };
        let area = self.areas.iter_mut().find(of).expect("a run lies in its region");
        area.give(at - area.region.at(0).addr().get(), units)
    }
}

impl Area {
    fn new(region: Region) -> Self {
        let units = region.len() / UNIT_LEN;
        Self { region, taken: vec![0; units / 64], free_max: units, hand: 0 }
    }

    fn is_taken(&self, unit: usize) -> bool {
        self.taken[unit / 64] >> (unit % 64) & 1 != 0
    }

    /// Returns the system's pages around these units that are completely free.
    fn free_pages(&self, units: std::ops::Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let pages = units.start / PAGE_UNITS..units.end.div_ceil(PAGE_UNITS);
        pages
            .map(|page| page * PAGE_UNITS)
            .filter(|first| self.taken[first / 64] >> (first % 64) & ((1 << PAGE_UNITS) - 1) == 0)
    }

    fn mark(&mut self, units: std::ops::Range<usize>, taken: bool) {
        for unit in units {
            let bit = 1 << (unit % 64);
            let word = &mut self.taken[unit / 64];
            *word = if taken { *word | bit } else { *word & !bit };
        }
    }

    fn take(&mut self, units: usize) -> Option<(NonNull<u8>, Held)> {
        let start = self.search(units);
        let Some(start) = start else {
            self.free_max = units - 1;
            return None;
        };
        let run = start..start + units;
        let pages = self.free_pages(run.clone()).count();
        self.mark(run, true);
        self.hand = start / 64;
        let held = (pages * PAGE_UNITS * UNIT_LEN) as Held;
        Some((self.region.at(start * UNIT_LEN), held))
    }

    /// Returns the first unit of a free run. The search begins at the hand and then at the start.
    fn search(&self, units: usize) -> Option<usize> {
        let all = self.taken.len() * 64;
        self.search_in(self.hand * 64..all, units)
            .or_else(|| self.search_in(0..all.min(self.hand * 64 + RUN_UNITS_MAX), units))
    }

    fn search_in(&self, range: std::ops::Range<usize>, units: usize) -> Option<usize> {
        let (mut unit, mut free) = (range.start, 0);
        while unit < range.end {
            let word = self.taken[unit / 64];
            if unit.is_multiple_of(64) && word == !0 {
                (unit, free) = (unit + 64, 0);
                continue;
            }
            free = if self.is_taken(unit) { 0 } else { free + 1 };
            unit += 1;
            if free == units {
                return Some(unit - units);
            }
        }
        None
    }

    fn give(&mut self, offset: usize, units: usize) -> Held {
        let start = offset / UNIT_LEN;
        self.mark(start..start + units, false);
        self.free_max = self.taken.len() * 64;
        let mut held = 0;
        let mut released: Option<std::ops::Range<usize>> = None;
        for first in self.free_pages(start..start + units) {
            let end = first + PAGE_UNITS;
            released = Some(released.map_or(first, |range| range.start)..end);
            held -= (PAGE_UNITS * UNIT_LEN) as Held;
        }
        if let Some(range) = released {
            let start = self.region.at(range.start * UNIT_LEN);
            // SAFETY: no run lies in these pages; all between the first and
            // the last lie in the run just freed.
            unsafe { Region::release(start, range.len() * UNIT_LEN) };
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    impl Runs {
        /// Returns the held bytes of the system's pages, counted again.
        pub fn held(&self) -> Held {
            let pages = |area: &Area| {
                area.taken.len() * 64 / PAGE_UNITS
                    - area.free_pages(0..area.taken.len() * 64).count()
            };
            (self.areas.iter().map(pages).sum::<usize>() * PAGE_UNITS * UNIT_LEN) as Held
        }
    }

    #[test]
    fn runs_in_use_never_overlap_and_what_is_held_is_told() {
        let mut runs = Runs::new();
        let mut live: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
        let (mut held, mut state) = (0, 3u64);
        let steps = if cfg!(miri) { 200 } else { 20_000 };
        for step in 0..steps {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (state >> 33) as usize;
            if live.is_empty() || pick % 5 < if step < steps / 2 { 3 } else { 2 } {
                let len = run_len([7200, 9000, 20_000, 131_000, 50_000][pick % 5]);
                let (run, change) = runs.take(len);
                held += change;
                assert!(run.addr().get().is_multiple_of(16));
                // SAFETY: the run has `len` bytes.
                unsafe { run.write_bytes(pick as u8, len) };
                live.push((run, len, pick as u8));
            } else {
                let (run, len, mark) = live.swap_remove(pick % live.len());
                // SAFETY: the run is live and was filled.
                let bytes = unsafe { std::slice::from_raw_parts(run.as_ptr(), len) };
                assert!(bytes.iter().all(|byte| *byte == mark));
                held += runs.give(run, len);
            }
            let used: usize = live.iter().map(|(_, len, _)| len).sum();
            assert!(held >= used as Held, "{held} bytes held of {used}");
            assert!(step % 16 != 0 || held == runs.held());
        }
        for (run, len, _) in live {
            held += runs.give(run, len);
        }
        assert!(held <= (2 * WARM_MAX) as Held, "{held} bytes held of nothing");
    }

    #[test]
    fn warm_runs_of_a_length_no_longer_in_use_make_room_for_others() {
        let mut runs = Runs::new();
        let (old, new) = (run_len(8000), run_len(20_000));
        let warm: Vec<_> = (0..2 * WARM_MAX / old).map(|_| runs.take(old).0).collect();
        warm.into_iter().for_each(|run| _ = runs.give(run, old));
        let (first, _) = runs.take(new);
        runs.give(first, new);
        for _ in 0..10 {
            let (run, taken) = runs.take(new);
            assert_eq!((taken, runs.give(run, new)), (0, 0), "pages came and went");
        }
        assert!(runs.warm_len <= WARM_MAX);
    }

    /// Returns whether `units` consecutive units are free, by trying each index.
    fn fits(area: &Area, units: usize) -> bool {
        let all = area.taken.len() * 64;
        (0..=all - units).any(|start| (start..start + units).all(|unit| !area.is_taken(unit)))
    }

    fn next(state: &mut u64) -> usize {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) as usize
    }

    #[test]
    fn a_search_finds_a_free_run_wherever_it_is_and_only_there() {
        let mut state = 11;
        let (mut found, mut refused) = (0, 0);
        for _ in 0..if cfg!(miri) { 20 } else { 4_000 } {
            let mut area = Area::new(Region::map_small_pages(0));
            let all = area.taken.len() * 64;
            // Nearly everything is taken except for a few holes, which may span the hand.
            area.mark(0..all, true);
            area.hand = next(&mut state) % area.taken.len();
            for _ in 0..3 {
                let len = 1 + next(&mut state) % RUN_UNITS_MAX;
                let place = next(&mut state) % (all - len);
                let at_hand = (area.hand * 64).saturating_sub(next(&mut state) % len);
                let start = if next(&mut state).is_multiple_of(2) { place } else { at_hand };
                area.mark(start..(start + len).min(all), false);
            }
            let units = 1 + next(&mut state) % RUN_UNITS_MAX;
            match area.search(units) {
                Some(start) => {
                    assert!(start + units <= all);
                    assert!((start..start + units).all(|unit| !area.is_taken(unit)));
                    found += 1;
                }
                None => {
                    assert!(!fits(&area, units), "{units} units, hand {}", area.hand);
                    assert!(area.take(units).is_none() && area.free_max < units);
                    refused += 1;
                }
            }
        }
        assert!(cfg!(miri) || found > 500 && refused > 500, "{found} found, {refused} refused");
    }

    #[test]
    fn a_search_goes_on_where_the_last_one_ended() {
        let mut area = Area::new(Region::map_small_pages(0));
        let start = |area: &Area, run: NonNull<u8>| {
            (run.addr().get() - area.region.at(0).addr().get()) / UNIT_LEN
        };
        for (nth, units) in [128, 128, 64, 128, 100].into_iter().enumerate() {
            let (run, _) = area.take(units).expect("room");
            assert_eq!(start(&area, run), [0, 128, 256, 320, 448][nth]);
        }
        // Holes behind the hand are used only after the search has reached the end of the region.
        area.give(0, 128);
        let (run, _) = area.take(100).expect("room");
        assert_eq!(start(&area, run), 548);
        area.give(256 * UNIT_LEN, 64);
        while let Some((run, _)) = area.take(128) {
            if start(&area, run) < 548 {
                assert_eq!(start(&area, run), 0);
                return;
            }
        }
        panic!("the hole at the start was not found");
    }

    #[test]
    fn what_a_run_leaves_free_is_found_again() {
        let mut runs = Runs::new();
        let count = Region::map_small_pages(0).len() / RUN_LEN_MAX;
        let all: Vec<_> = (0..count).map(|_| runs.take(RUN_LEN_MAX).0).collect();
        assert_eq!(runs.areas.len(), 1);
        // These are more than are kept warm, so that some are returned to the region.
        let mut held = runs.held();
        for run in &all {
            held += runs.give(*run, RUN_LEN_MAX);
            assert_eq!(runs.held(), held);
        }
        assert_eq!(held, WARM_MAX as Held, "as much as may is kept warm");
        for _ in 0..count {
            held += runs.take(RUN_LEN_MAX).1;
            assert_eq!(runs.held(), held);
        }
        assert_eq!(runs.areas.len(), 1);
        runs.take(UNIT_LEN);
        assert_eq!(runs.areas.len(), 2);
        // The first region was full when it was last searched.
        all.iter().for_each(|run| _ = runs.give(*run, RUN_LEN_MAX));
        let again: BTreeSet<_> = (0..count).map(|_| runs.take(RUN_LEN_MAX).0).collect();
        assert_eq!(again, all.into_iter().collect());
    }

    #[test]
    fn the_length_last_taken_or_given_longest_ago_makes_room() {
        let lens = [126, 127, 128].map(|units| units * UNIT_LEN);
        let warm = |runs: &Runs| lens.map(|len| runs.warm[len / UNIT_LEN].runs.len());
        // The last use of the first length is a take in one case and a free in the other.
        for last_is_take in [true, false] {
            let mut runs = Runs::new();
            let [first, second, third] = lens.map(|len| [(); 4].map(|()| runs.take(len).0));
            let kept = if last_is_take { 4 } else { 3 };
            first[..kept].iter().for_each(|run| _ = runs.give(*run, lens[0]));
            second.iter().for_each(|run| _ = runs.give(*run, lens[1]));
            match last_is_take {
                true => _ = runs.take(lens[0]),
                false => _ = runs.give(first[3], lens[0]),
            }
            let [kept, mut others, _] = warm(&runs);
            for run in third {
                runs.give(run, lens[2]);
                assert!(warm(&runs)[0] == kept && warm(&runs)[1] <= others);
                others = warm(&runs)[1];
            }
            assert!(others < 4, "some made room");
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn the_pages_of_a_freed_run_lose_their_bytes_and_the_others_keep_theirs() {
        let mut area = Area::new(Region::map_small_pages(0));
        // Runs of 1 to 40 consecutive units, each filled, of which every third is freed.
        let mut runs = Vec::new();
        for units in 1..=40 {
            let (run, _) = area.take(units).expect("room");
            // SAFETY: the run has that many bytes.
            unsafe { run.write_bytes(7, units * UNIT_LEN) };
            runs.push((run, units));
        }
        let start = area.region.at(0).addr().get();
        let mut held = 0;
        for (run, units) in runs.iter().skip(2).step_by(3) {
            held -= area.give(run.addr().get() - start, *units);
        }
        let mut lost = 0;
        for page in 0..runs.iter().map(|(_, units)| units).sum::<usize>() / PAGE_UNITS {
            let units = page * PAGE_UNITS..(page + 1) * PAGE_UNITS;
            let is_free = !units.clone().any(|unit| area.is_taken(unit));
            for unit in units {
                // SAFETY: the unit lies in the region.
                let byte = unsafe { area.region.at(unit * UNIT_LEN).read() };
                assert_eq!(byte, if is_free { 0 } else { 7 }, "unit {unit}");
            }
            lost += usize::from(is_free);
        }
        assert_eq!(held as usize, lost * PAGE_UNITS * UNIT_LEN);
        assert!(lost > 20, "{lost} pages");
    }
}
