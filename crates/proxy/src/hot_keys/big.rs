//! The largest values of a pool that were seen.

use super::name::Name;
use parking_lot::Mutex;

/// Number of keys that are kept for one pool. All are compared for each large value.
const KEPT_MAX: usize = 32;

/// Number of seconds after which a value that was not seen again is discarded.
const KEPT_SECONDS: u64 = 3600;

/// The direction of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// In a request: the value is written.
    Request,
    /// In a reply: the value is read.
    Reply,
}

/// A large value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BigKey {
    /// Its key, or the beginning of it.
    pub key: Vec<u8>,
    /// True if the key is longer.
    pub is_cut: bool,
    /// Number of bytes that were transferred at once, including framing.
    pub bytes: u64,
    /// The command that contained it.
    pub command: &'static str,
    /// Its direction.
    pub direction: Direction,
    /// When it was seen, in seconds of Unix time.
    pub unix_seconds: u64,
}

/// Something large that was seen.
#[derive(Clone, Copy, Debug)]
pub struct BigSight<'k> {
    /// Its key.
    pub key: &'k [u8],
    /// Its length.
    pub bytes: u64,
    /// The command that contains it.
    pub command: &'static str,
    /// Its direction.
    pub direction: Direction,
    /// When it was seen, in seconds of Unix time.
    pub unix_seconds: u64,
}

/// The largest value of each key in the last hour, and of these the largest few.
#[derive(Debug, Default)]
pub struct BigKeys {
    /// A thread on a request's path never waits for this lock.
    kept: Mutex<Vec<Kept>>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    hash: u64,
    name: Name,
    bytes: u64,
    command: &'static str,
    direction: Direction,
    unix_seconds: u64,
}

impl BigKeys {
    /// Largest memory of the list of one pool, in bytes.
    pub const BYTES_MAX: usize = KEPT_MAX * size_of::<Kept>();

    /// Notes a value, unless another worker has locked the list.
    pub fn note(&self, sight: &BigSight<'_>) {
        let Some(mut kept) = self.kept.try_lock() else { return };
        let (hash, oldest) =
            (Name::hash(sight.key), sight.unix_seconds.saturating_sub(KEPT_SECONDS));
        kept.retain(|it| it.unix_seconds >= oldest);
        let is_it = |it: &Kept| it.hash == hash && it.name.is_of(sight.key);
        let known = kept.iter().position(is_it);
        if known.is_some_and(|at| kept[at].bytes > sight.bytes) {
            return;
        }
        let at = match known {
            Some(at) => at,
            None if kept.len() < KEPT_MAX => kept.len(),
            None => match kept.iter().enumerate().min_by_key(|(_, it)| it.bytes) {
                Some((at, least)) if least.bytes < sight.bytes => at,
                _ => return,
            },
        };
        let new = Kept {
            hash,
            name: Name::new(sight.key),
            bytes: sight.bytes,
            command: sight.command,
            direction: sight.direction,
            unix_seconds: sight.unix_seconds,
        };
        match kept.get_mut(at) {
            Some(kept) => *kept = new,
            None => {
                kept.reserve_exact(KEPT_MAX - at);
                kept.push(new);
            }
        }
    }

    /// Returns the largest values, at most `count`, with the largest first.
    pub fn biggest(&self, count: usize, unix_seconds: u64) -> Vec<BigKey> {
        let mut kept = self.kept.lock().clone();
        kept.retain(|it| it.unix_seconds >= unix_seconds.saturating_sub(KEPT_SECONDS));
        kept.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.bytes().cmp(b.name.bytes())));
        let told = kept.iter().take(count).map(|it| BigKey {
            key: it.name.bytes().to_vec(),
            is_cut: it.name.is_cut(),
            bytes: it.bytes,
            command: it.command,
            direction: it.direction,
            unix_seconds: it.unix_seconds,
        });
        told.collect()
    }

    /// Removes all values.
    pub fn clear(&self) {
        self.kept.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(key: &str, bytes: u64, unix_seconds: u64) -> BigSight<'_> {
        let direction = Direction::Reply;
        BigSight { key: key.as_bytes(), bytes, command: "get", direction, unix_seconds }
    }

    fn names(big: &BigKeys, now: u64) -> Vec<(String, u64)> {
        let told = big.biggest(usize::MAX, now).into_iter();
        told.map(|it| (String::from_utf8(it.key).unwrap(), it.bytes)).collect()
    }

    #[test]
    fn the_largest_are_kept_each_key_once_with_its_largest() {
        let big = BigKeys::default();
        for nth in 0..1000u64 {
            let key = format!("k{}", nth % 200);
            big.note(&sight(&key, 1000 + (nth * 7919) % 5000, 1));
        }
        let mut largest = std::collections::BTreeMap::<String, u64>::new();
        for nth in 0..1000u64 {
            let size = largest.entry(format!("k{}", nth % 200)).or_default();
            *size = (*size).max(1000 + (nth * 7919) % 5000);
        }
        let mut expected: Vec<_> = largest.into_iter().collect();
        expected.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let told = names(&big, 1);
        assert_eq!(told.len(), KEPT_MAX);
        assert_eq!(told[..20], expected[..20]);
        assert!(big.kept.lock().capacity() <= KEPT_MAX);
    }

    #[test]
    fn what_was_not_seen_for_an_hour_is_forgotten() {
        let big = BigKeys::default();
        big.note(&sight("old", 9000, 100));
        big.note(&sight("both", 5000, 100));
        big.note(&sight("both", 4000, 3000));
        assert_eq!(names(&big, 3700), [("old".to_owned(), 9000), ("both".to_owned(), 5000)]);
        assert_eq!(names(&big, 3701), []);
        big.note(&sight("both", 4000, 3701));
        assert_eq!(names(&big, 3701), [("both".to_owned(), 4000)]);
    }
}
