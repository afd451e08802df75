//! Requests built before a run, laid end to end so that a batch of any depth
//! is one slice and one write.

use std::ops::Range;

/// How many requests one [`Requests`] holds: enough that two connections rarely
/// send the same keys in the same order, few enough to build in milliseconds.
const COUNT: usize = 65_536;
/// The most bytes one [`Requests`] takes: requests with large values are fewer.
const BYTES_MAX: usize = 16 << 20;

/// A set of keys and the size of their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// What every key starts with; also what keeps two sets apart.
    pub prefix: &'static str,
    /// Number of keys.
    pub keys: u32,
    /// Bytes of every value.
    pub value_bytes: u32,
}

impl Dataset {
    /// 100,000 keys of 16 bytes with values of 100 bytes.
    pub const SMALL: Dataset = Dataset { prefix: "key:", keys: 100_000, value_bytes: 100 };
    /// 2,000 keys of 16 bytes with values of 16 KiB: few, so that the servers'
    /// memory stays small.
    pub const LARGE: Dataset = Dataset { prefix: "big:", keys: 2_000, value_bytes: 16_384 };

    fn push_key(self, index: u32, out: &mut Vec<u8>) {
        let key = format!("{}{index:012}", self.prefix);
        push_bulk(key.as_bytes(), out);
    }

    fn push_set(self, index: u32, value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        self.push_key(index, out);
        push_bulk(value, out);
    }

    fn value(self) -> Vec<u8> {
        (b'a'..=b'z').cycle().take(self.value_bytes as usize).collect()
    }
}

/// What one request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// GET of a random key.
    Get,
    /// SET of a random key.
    Set,
    /// SET and GET in turn.
    Mixed,
    /// MGET of this many random keys: one request, one reply.
    Mget(u32),
}

/// Prebuilt requests, sent round and round.
#[derive(Debug)]
pub struct Requests {
    bytes: Vec<u8>,
    /// Where each request starts, and after the last one the end of all.
    starts: Vec<usize>,
}

impl Requests {
    /// Random requests for `work` over `dataset`. The same seed gives the same
    /// requests, so every system of a round gets the same work.
    pub fn random(work: Work, dataset: Dataset, seed: u64) -> Requests {
        let value = dataset.value();
        let mut random = SplitMix(seed);
        Requests::build(COUNT, |position, out| {
            let mut key = || random.below(dataset.keys);
            match work {
                Work::Set => dataset.push_set(key(), &value, out),
                Work::Mixed if position % 2 == 0 => dataset.push_set(key(), &value, out),
                Work::Get | Work::Mixed => {
                    out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
                    dataset.push_key(key(), out);
                }
                Work::Mget(keys) => {
                    out.extend_from_slice(format!("*{}\r\n$4\r\nMGET\r\n", keys + 1).as_bytes());
                    (0..keys).for_each(|_| dataset.push_key(key(), out));
                }
            }
        })
    }

    /// One SET per key of `dataset`, in order, starting at key `first`, for at
    /// most the memory one instance may take: [`Requests::count`] says how many
    /// keys that is.
    pub fn fill(dataset: Dataset, first: u32) -> Requests {
        let value = dataset.value();
        let left = dataset.keys.saturating_sub(first) as usize;
        Requests::build(left, |position, out| {
            dataset.push_set(first + position as u32, &value, out);
        })
    }

    fn build(count: usize, mut push: impl FnMut(usize, &mut Vec<u8>)) -> Requests {
        let mut bytes = Vec::new();
        let mut starts = vec![0];
        for position in 0..count {
            push(position, &mut bytes);
            starts.push(bytes.len());
            if bytes.len() >= BYTES_MAX {
                break;
            }
        }
        Requests { bytes, starts }
    }

    /// Number of requests.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Where the bytes of up to `depth` requests from number `first` on lie,
    /// and how many they are: fewer only at the end, after which the next
    /// batch starts from 0 again.
    pub fn batch(&self, first: usize, depth: usize) -> (Range<usize>, usize) {
        let end = self.count().min(first + depth);
        (self.starts[first]..self.starts[end], end - first)
    }

    /// The bytes at `range`, as given by [`Requests::batch`].
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

fn push_bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Steele, Lea and Flood's SplitMix64: eight lines are enough for picking keys.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero.
    fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Dataset = Dataset { prefix: "t:", keys: 5, value_bytes: 3 };

    fn batch(requests: &Requests, first: usize, depth: usize) -> (&[u8], usize) {
        let (range, count) = requests.batch(first, depth);
        (requests.bytes(range), count)
    }

    #[test]
    fn a_fill_writes_every_key_once() {
        let fill = Requests::fill(TINY, 0);
        assert_eq!(fill.count(), 5);
        let (bytes, count) = batch(&fill, 4, 100);
        assert_eq!(count, 1);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$14\r\nt:000000000004\r\n$3\r\nabc\r\n");
    }

    #[test]
    fn a_large_fill_goes_on_where_the_memory_bound_cut_it() {
        let (mut first, mut parts) = (0, 0);
        while first < Dataset::LARGE.keys {
            first += Requests::fill(Dataset::LARGE, first).count() as u32;
            parts += 1;
        }
        assert_eq!((first, parts), (Dataset::LARGE.keys, 2));
    }

    #[test]
    fn mixed_work_is_half_sets_half_gets() {
        let mixed = Requests::random(Work::Mixed, TINY, 1);
        assert!(batch(&mixed, 0, 1).0.starts_with(b"*3\r\n$3\r\nSET"));
        assert!(batch(&mixed, 1, 1).0.starts_with(b"*2\r\n$3\r\nGET"));
        assert_eq!(mixed.count() % 2, 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let one = Requests::random(Work::Get, Dataset::SMALL, 7);
        let two = Requests::random(Work::Get, Dataset::SMALL, 7);
        let other = Requests::random(Work::Get, Dataset::SMALL, 8);
        assert_eq!(batch(&one, 0, 50), batch(&two, 0, 50));
        assert_ne!(batch(&one, 0, 50), batch(&other, 0, 50));
    }

    #[test]
    fn an_mget_is_one_request_with_all_its_keys() {
        let mget = Requests::random(Work::Mget(20), TINY, 1);
        let (bytes, count) = batch(&mget, 0, 1);
        assert_eq!(count, 1);
        assert!(bytes.starts_with(b"*21\r\n$4\r\nMGET\r\n"));
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'$').count(), 21);
    }

    #[test]
    fn keys_are_drawn_from_the_whole_space_evenly() {
        let mut random = SplitMix(3);
        let mut seen = [0u32; 8];
        (0..8_000).for_each(|_| seen[random.below(8) as usize] += 1);
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
    }
}
