//! The most requested keys of a pool, estimated from a sample of its requests.

use super::name::Name;
use super::sketch::{Fading, HALF_LIFE, Sketch};
use keyway_base::Time;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Number of sketches of a pool. With more workers, some share one. More would take memory if there
/// are that many workers.
const SKETCHES_MAX: usize = 16;

/// Number of standard deviations on either side of an estimate. An estimate is outside once in
/// twenty times.
const DEVIATIONS: f64 = 2.0;

/// The kind of access to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its value is read.
    Read,
    /// It is changed, or may be.
    Write,
}

/// Counts the reads and writes of the keys of one pool.
#[derive(Debug, Default)]
pub struct HotKeys {
    /// The sketches by worker. A lock is held while a key is counted, and while the sketch is read.
    /// A thread on a request's path never waits for one.
    sketches: [Mutex<Option<Box<Sketches>>>; SKETCHES_MAX],
}

#[derive(Debug)]
struct Sketches {
    begun: Time,
    fading: Fading,
    reads: Sketch,
    writes: Sketch,
}

/// A frequently accessed key.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// Its name, or the beginning of it.
    pub key: Vec<u8>,
    /// True if the name is longer.
    pub is_cut: bool,
    /// Its part of all such accesses to the pool, from 0 to 1.
    pub share: f64,
    /// The error of the share in either direction. The error is larger once in twenty times.
    pub share_error: f64,
    /// Number of accesses in a second.
    pub rate: f64,
}

/// The most frequently accessed keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hottest {
    /// Number of accesses to any key in a second.
    pub rate: f64,
    /// The keys, with the hottest first. Keys of which it is only known that they occurred are left
    /// out.
    pub keys: Vec<HotKey>,
}

impl HotKeys {
    /// Returns the largest memory of all sketches of a pool, with this number of workers.
    pub fn bytes_max(workers: usize) -> usize {
        workers.min(SKETCHES_MAX) * size_of::<Sketches>()
    }

    /// Counts what one request does with keys, where each counts for several requests. It counts
    /// nothing while the counts are being read.
    pub fn note<'k>(
        &self,
        worker: u16,
        now: Time,
        keys: impl Iterator<Item = (&'k [u8], Access, f64)>,
    ) {
        let slot = &self.sketches[usize::from(worker) % SKETCHES_MAX];
        let Some(mut slot) = slot.try_lock() else { return };
        let sketches = slot.get_or_insert_with(|| Sketches::new(now));
        if let Some(by) = sketches.fading.restart(now) {
            sketches.reads.scale(by);
            sketches.writes.scale(by);
        }
        let scale = sketches.fading.weight(now);
        for (key, access, weight) in keys {
            sketches.of_mut(access).add(key, weight * scale);
        }
    }

    /// Returns the hottest keys, at most `count`.
    pub fn hottest(&self, access: Access, count: usize, now: Time) -> Hottest {
        let mut sum = Sum::default();
        for slot in &self.sketches {
            // The sketch is copied, so that its worker can soon use it again.
            let copy = slot.lock().as_ref().map(|it| (it.begun, it.fading, it.of(access).clone()));
            if let Some((begun, fading, sketch)) = copy {
                sum.add(&sketch, 1.0 / fading.weight(now), now.since(begun).as_secs_f64());
            }
        }
        sum.hottest(count)
    }

    /// Removes all counts.
    pub fn clear(&self) {
        self.sketches.iter().for_each(|slot| *slot.lock() = None);
    }
}

impl Sketches {
    fn new(now: Time) -> Box<Sketches> {
        let (reads, writes) = (Sketch::default(), Sketch::default());
        Box::new(Sketches { begun: now, fading: Fading::new(now), reads, writes })
    }

    fn of(&self, access: Access) -> &Sketch {
        match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        }
    }

    fn of_mut(&mut self, access: Access) -> &mut Sketch {
        match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        }
    }
}

/// The sum of the sketches of several workers.
#[derive(Default)]
struct Sum {
    total: f64,
    squares: f64,
    rate: f64,
    /// The largest possible count of a key that no sketch counts.
    uncounted: f64,
    keys: BTreeMap<(u64, Vec<u8>), Merged>,
}

#[derive(Default)]
struct Merged {
    is_cut: bool,
    least: f64,
    most: f64,
    /// The part of the largest uncounted amount that belongs to sketches which do count the key.
    known: f64,
}

impl Sum {
    fn add(&mut self, sketch: &Sketch, scale: f64, seconds: f64) {
        let (total, squares) = sketch.totals();
        let (total, squares) = (total * scale, squares * scale * scale);
        self.total += total;
        self.squares += squares;
        self.rate += rate_of(total, seconds);
        let uncounted = sketch.uncounted_max() * scale;
        self.uncounted += uncounted;
        for counter in sketch.counters() {
            let name: &Name = counter.name;
            let merged = self.keys.entry((counter.hash, name.bytes().to_vec())).or_default();
            merged.is_cut = name.is_cut();
            merged.most += counter.count * scale;
            merged.least += (counter.count - counter.error) * scale;
            merged.known += uncounted;
        }
    }

    fn hottest(self, count: usize) -> Hottest {
        // Everything is so old that less than one request is left.
        if self.total < 1.0 {
            return Hottest::default();
        }
        let samples = self.total * self.total / self.squares;
        let estimate = |((_, key), it): ((u64, Vec<u8>), Merged)| {
            let least = it.least / self.total;
            let most = (it.most + self.uncounted - it.known) / self.total;
            let share = ((least + most) / 2.0).min(1.0);
            let share_error = (most - least) / 2.0 + chance_error(share, samples);
            HotKey { key, is_cut: it.is_cut, share, share_error, rate: share * self.rate }
        };
        let known = self.keys.into_iter().map(estimate);
        let mut keys: Vec<_> = known.filter(|it| it.share > it.share_error).collect();
        keys.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.key.cmp(&b.key)));
        keys.truncate(count);
        Hottest { rate: self.rate, keys }
    }
}

/// Returns the rate in a second for something that has reached `total` faded counts in `seconds`.
fn rate_of(total: f64, seconds: f64) -> f64 {
    let half_life = HALF_LIFE.as_secs_f64();
    // Shortly after the beginning the rate cannot be estimated.
    let seconds = seconds.max(1.0);
    total * std::f64::consts::LN_2 / half_life / (1.0 - (-seconds / half_life).exp2())
}

/// Returns how far a share of this number of samples may be off by chance (Wilson's interval).
fn chance_error(share: f64, samples: f64) -> f64 {
    let spread = share * (1.0 - share) / samples + (DEVIATIONS / (2.0 * samples)).powi(2);
    let shift = DEVIATIONS * DEVIATIONS / (2.0 * samples);
    DEVIATIONS * spread.sqrt() + shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Keys with a Zipf distribution: the nth key occurs as often as 1/n.
    struct Zipf {
        sums: Vec<f64>,
        state: u64,
    }

    impl Zipf {
        fn new(keys: usize, exponent: f64) -> Zipf {
            let mut sum = 0.0;
            let sums = (1..=keys).map(|nth| {
                sum += (nth as f64).powf(-exponent);
                sum
            });
            Zipf { sums: sums.collect(), state: 0x9e37_79b9_7f4a_7c15 }
        }

        fn chance(&mut self) -> f64 {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            (self.state >> 11) as f64 / (1u64 << 53) as f64
        }

        fn draw(&mut self) -> usize {
            let at = self.chance() * self.sums[self.sums.len() - 1];
            self.sums.partition_point(|sum| *sum < at)
        }

        fn share(&self, nth: usize) -> f64 {
            let before = if nth == 0 { 0.0 } else { self.sums[nth - 1] };
            (self.sums[nth] - before) / self.sums[self.sums.len() - 1]
        }
    }

    fn at(seconds: f64) -> Time {
        Time(0) + Duration::from_secs_f64(seconds)
    }

    fn name(nth: usize) -> String {
        format!("key:{nth}")
    }

    #[test]
    fn the_hottest_keys_of_a_zipf_stream_are_found_with_shares_and_rates_that_are_true() {
        const PER_SECOND: f64 = 100_000.0;
        const EVERY: f64 = 100.0;
        let mut zipf = Zipf::new(100_000, 1.0);
        let hot = HotKeys::default();
        let end = 120.0;
        let samples = (end * PER_SECOND / EVERY) as usize;
        for nth in 0..samples {
            let now = at(nth as f64 * EVERY / PER_SECOND);
            let key = name(zipf.draw());
            let worker = (nth % 3) as u16;
            // One in ten requests is a write, and all writes are to one key.
            hot.note(worker, now, [(key.as_bytes(), Access::Read, EVERY)].into_iter());
            if nth % 10 == 0 {
                hot.note(worker, now, [(&b"w"[..], Access::Write, EVERY)].into_iter());
            }
        }
        let reads = hot.hottest(Access::Read, 10, at(end));
        assert!((reads.rate / PER_SECOND - 1.0).abs() < 0.05, "{}", reads.rate);
        assert_eq!(reads.keys.len(), 10);
        let mut off = 0;
        for (nth, key) in reads.keys.iter().enumerate() {
            let real: usize = String::from_utf8_lossy(&key.key)[4..].parse().unwrap();
            let truth = zipf.share(real);
            assert!(real <= nth + 6, "{real} is at {nth}");
            off += u32::from((key.share - truth).abs() > key.share_error);
            assert!(key.share_error < 0.02, "{key:?}");
            assert!((key.rate - key.share * reads.rate).abs() < 1.0);
        }
        assert!(off <= 1, "{off} of 10 are farther off than is said");
        assert_eq!(reads.keys[0].key, b"key:0");
        let writes = hot.hottest(Access::Write, 10, at(end));
        assert_eq!(writes.keys.len(), 1);
        assert_eq!((writes.keys[0].key.as_slice(), writes.keys[0].share), (&b"w"[..], 1.0));
        assert!((writes.rate / (PER_SECOND / 10.0) - 1.0).abs() < 0.05, "{}", writes.rate);
    }

    #[test]
    fn keys_that_come_once_are_not_told_of_and_take_no_more_memory() {
        let hot = HotKeys::default();
        for nth in 0..300_000usize {
            let key = format!("unique:{nth}:{}", "x".repeat(nth % 2000));
            let now = at(nth as f64 / 10_000.0);
            hot.note((nth % 40) as u16, now, [(key.as_bytes(), Access::Read, 1.0)].into_iter());
        }
        let told = hot.hottest(Access::Read, 100, at(30.0));
        assert_eq!(told.keys, []);
        assert!(told.rate > 9000.0, "{}", told.rate);
        let held: usize = hot
            .sketches
            .iter()
            .map(|slot| slot.lock().as_ref().map_or(0, |it| size_of_val(&**it)))
            .sum();
        assert_eq!(held, HotKeys::bytes_max(1000));
        // This is the size that `keyway check` reports, with the large values.
        let of_one = HotKeys::bytes_max(1) + crate::hot_keys::BigKeys::BYTES_MAX;
        assert!(of_one < 48 << 10, "{of_one} bytes");
        hot.clear();
        assert_eq!(hot.hottest(Access::Read, 100, at(30.0)), Hottest::default());
    }

    #[test]
    fn what_was_hot_is_forgotten_and_what_is_hot_now_is_seen() {
        let hot = HotKeys::default();
        let note = |key: &[u8], second: usize, times: usize| {
            for nth in 0..times {
                let now = at(second as f64 + nth as f64 / times as f64);
                hot.note(0, now, [(key, Access::Read, 1.0)].into_iter());
            }
        };
        (0..60).for_each(|second| note(b"before", second, 1000));
        assert_eq!(hot.hottest(Access::Read, 1, at(60.0)).keys[0].key, b"before");
        (60..150).for_each(|second| note(b"now", second, 500));
        let told = hot.hottest(Access::Read, 2, at(150.0)).keys;
        assert_eq!(told[0].key, b"now");
        assert!(told[0].share > 0.7, "{told:?}");
        // After days at rest the numbers are still valid.
        let late = at(1e7);
        let rest = hot.hottest(Access::Read, 2, late);
        assert!(rest.rate < 1e-6 && rest.keys.iter().all(|it| it.share.is_finite()), "{rest:?}");
        hot.note(0, late, [(&b"again"[..], Access::Read, 1.0)].into_iter());
        (0..100).for_each(|_| hot.note(0, late, [(&b"again"[..], Access::Read, 1.0)].into_iter()));
        assert_eq!(hot.hottest(Access::Read, 1, late).keys[0].key, b"again");
    }
}
