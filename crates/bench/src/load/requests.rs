//! Requests built before a run, laid end to end so that a batch of any depth
//! is one slice and one write.

use std::ops::Range;

/// How many requests one [`Requests`] holds: enough that two connections rarely
/// send the same keys in the same order, few enough to build in milliseconds.
const COUNT: usize = 65_536;
/// The most bytes one [`Requests`] takes: requests with large values are fewer.
const BYTES_MAX: usize = 16 << 20;

/// How requests are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// RESP2 arrays.
    #[default]
    Redis,
    /// memcached's classic text.
    Memcached,
}

/// What the value of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A string.
    String,
    /// A hash of one field, as YCSB writes it.
    Hash,
}

/// A set of keys and the size of their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// What every key starts with; also what keeps two sets apart.
    pub prefix: &'static str,
    /// Number of keys.
    pub keys: u32,
    /// Bytes of every value.
    pub value_bytes: u32,
    /// What the values are.
    pub shape: Shape,
}

impl Dataset {
    /// 100,000 keys of 16 bytes with values of 100 bytes.
    pub const SMALL: Dataset = Dataset::strings("key:", 100_000, 100);
    /// 2,000 keys of 16 bytes with values of 16 KiB: few, so that the servers'
    /// memory stays small.
    pub const LARGE: Dataset = Dataset::strings("big:", 2_000, 16_384);
    /// 100,000 keys of 16 bytes with values of 64 bytes.
    pub const ITEMS: Dataset = Dataset::strings("itm:", 100_000, 64);
    /// 100,000 hashes of one field with 64 bytes.
    pub const RECORDS: Dataset =
        Dataset { shape: Shape::Hash, ..Dataset::strings("rec:", 100_000, 64) };

    /// A set of strings.
    pub const fn strings(prefix: &'static str, keys: u32, value_bytes: u32) -> Dataset {
        Dataset { prefix, keys, value_bytes, shape: Shape::String }
    }

    /// Whether a server of this dialect can have it.
    pub fn fits(self, dialect: Dialect) -> bool {
        dialect == Dialect::Redis || self.shape == Shape::String
    }

    fn key(self, index: u32) -> String {
        format!("{}{index:012}", self.prefix)
    }

    fn push_get(self, dialect: Dialect, index: u32, out: &mut Vec<u8>) {
        let key = self.key(index);
        match (dialect, self.shape) {
            (Dialect::Memcached, _) => {
                out.extend_from_slice(format!("get {key}\r\n").as_bytes());
            }
            (Dialect::Redis, Shape::String) => push_command(&[b"GET", key.as_bytes()], out),
            (Dialect::Redis, Shape::Hash) => push_command(&[b"HGETALL", key.as_bytes()], out),
        }
    }

    fn push_set(self, dialect: Dialect, index: u32, value: &[u8], out: &mut Vec<u8>) {
        let key = self.key(index);
        match (dialect, self.shape) {
            (Dialect::Memcached, _) => {
                let len = value.len();
                out.extend_from_slice(format!("set {key} 0 0 {len}\r\n").as_bytes());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            (Dialect::Redis, Shape::String) => {
                push_command(&[b"SET", key.as_bytes(), value], out);
            }
            (Dialect::Redis, Shape::Hash) => {
                push_command(&[b"HMSET", key.as_bytes(), b"field0", value], out);
            }
        }
    }

    fn value(self) -> Vec<u8> {
        (b'a'..=b'z').cycle().take(self.value_bytes as usize).collect()
    }
}

/// What one request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// GET of a random key, HGETALL if it is a hash.
    Get,
    /// SET of a random key, HMSET of its one field if it is a hash.
    Set,
    /// SET and GET in turn.
    Mixed,
    /// MGET of this many random keys: one request, one reply.
    Mget(u32),
    /// MSET of this many random keys.
    Mset(u32),
    /// ZADD of a new member to one sorted set, members in no order.
    SortedLoad,
    /// EVAL of a script that gets a random key.
    Script,
}

/// The script of [`Work::Script`].
const SCRIPT: &[u8] = b"return redis.call('get', KEYS[1])";

impl Work {
    /// Whether a server of this dialect can do it.
    pub fn fits(self, dialect: Dialect) -> bool {
        dialect == Dialect::Redis
            || !matches!(self, Work::SortedLoad | Work::Script | Work::Mset(_))
    }
}

/// The sorted set of [`Work::SortedLoad`].
const SORTED_KEY: &[u8] = b"_indices";
/// Members that [`Work::SortedLoad`] gives it.
const SORTED_MEMBERS: usize = 1_000_000;

/// Prebuilt requests, sent round and round.
#[derive(Debug)]
pub struct Requests {
    bytes: Vec<u8>,
    /// Where each request starts, and after the last one the end of all.
    starts: Vec<usize>,
    dialect: Dialect,
}

impl Requests {
    /// Random requests for `work` over `dataset`. The same seed gives the same
    /// requests, so every system of a round gets the same work.
    pub fn random(work: Work, dataset: Dataset, dialect: Dialect, seed: u64) -> Requests {
        let value = dataset.value();
        let mut random = SplitMix(seed);
        let (count, bytes_max) = match work {
            Work::SortedLoad => (SORTED_MEMBERS, usize::MAX),
            _ => (COUNT, BYTES_MAX),
        };
        Requests::build(dialect, count, bytes_max, |position, out| {
            let mut key = || random.below(dataset.keys);
            match work {
                Work::Set => dataset.push_set(dialect, key(), &value, out),
                Work::Mixed if position % 2 == 0 => {
                    dataset.push_set(dialect, key(), &value, out);
                }
                Work::Get | Work::Mixed => dataset.push_get(dialect, key(), out),
                Work::Mget(keys) => {
                    let keys: Vec<String> = (0..keys).map(|_| dataset.key(key())).collect();
                    if dialect == Dialect::Memcached {
                        out.extend_from_slice(format!("get {}\r\n", keys.join(" ")).as_bytes());
                        return;
                    }
                    let keys = keys.iter().map(String::as_bytes);
                    push_command(&[&b"MGET"[..]].into_iter().chain(keys).collect::<Vec<_>>(), out);
                }
                Work::Mset(keys) => {
                    let keys: Vec<String> = (0..keys).map(|_| dataset.key(key())).collect();
                    let pairs = keys.iter().flat_map(|key| [key.as_bytes(), &value[..]]);
                    push_command(&[&b"MSET"[..]].into_iter().chain(pairs).collect::<Vec<_>>(), out);
                }
                Work::Script => {
                    push_command(&[b"EVAL", SCRIPT, b"1", dataset.key(key()).as_bytes()], out);
                }
                Work::SortedLoad => push_member(&mut random, out),
            }
        })
    }

    /// One request that takes away what [`Work::SortedLoad`] made.
    pub fn end_of_sorted_load() -> Requests {
        Requests::build(Dialect::Redis, 1, BYTES_MAX, |_, out| {
            push_command(&[b"DEL", SORTED_KEY], out);
        })
    }

    /// One SET per key of `dataset`, in order, starting at key `first`, for at
    /// most the memory one instance may take: [`Requests::count`] says how many
    /// keys that is.
    pub fn fill(dataset: Dataset, dialect: Dialect, first: u32) -> Requests {
        let value = dataset.value();
        let left = dataset.keys.saturating_sub(first) as usize;
        Requests::build(dialect, left, BYTES_MAX, |position, out| {
            dataset.push_set(dialect, first + position as u32, &value, out);
        })
    }

    fn build(
        dialect: Dialect,
        count: usize,
        bytes_max: usize,
        mut push: impl FnMut(usize, &mut Vec<u8>),
    ) -> Requests {
        let mut bytes = Vec::new();
        let mut starts = vec![0];
        for position in 0..count {
            push(position, &mut bytes);
            starts.push(bytes.len());
            if bytes.len() >= bytes_max {
                break;
            }
        }
        Requests { bytes, starts, dialect }
    }

    /// How the requests are written, and the replies with them.
    pub fn dialect(&self) -> Dialect {
        self.dialect
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

/// A score and a name as YCSB makes them of the hash of a record's number.
fn push_member(random: &mut SplitMix, out: &mut Vec<u8>) {
    let hash = random.next();
    let (score, member) = ((hash >> 33).to_string(), format!("user{:019}", hash >> 2));
    push_command(&[b"ZADD", SORTED_KEY, score.as_bytes(), member.as_bytes()], out);
}

fn push_command(args: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    args.iter().for_each(|arg| push_bulk(arg, out));
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

    const TINY: Dataset = Dataset::strings("t:", 5, 3);
    const REDIS: Dialect = Dialect::Redis;

    fn batch(requests: &Requests, first: usize, depth: usize) -> (&[u8], usize) {
        let (range, count) = requests.batch(first, depth);
        (requests.bytes(range), count)
    }

    #[test]
    fn a_fill_writes_every_key_once() {
        let fill = Requests::fill(TINY, REDIS, 0);
        assert_eq!(fill.count(), 5);
        let (bytes, count) = batch(&fill, 4, 100);
        assert_eq!(count, 1);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$14\r\nt:000000000004\r\n$3\r\nabc\r\n");
    }

    #[test]
    fn a_large_fill_goes_on_where_the_memory_bound_cut_it() {
        let (mut first, mut parts) = (0, 0);
        while first < Dataset::LARGE.keys {
            first += Requests::fill(Dataset::LARGE, REDIS, first).count() as u32;
            parts += 1;
        }
        assert_eq!((first, parts), (Dataset::LARGE.keys, 2));
    }

    #[test]
    fn mixed_work_is_half_sets_half_gets() {
        let mixed = Requests::random(Work::Mixed, TINY, REDIS, 1);
        assert!(batch(&mixed, 0, 1).0.starts_with(b"*3\r\n$3\r\nSET"));
        assert!(batch(&mixed, 1, 1).0.starts_with(b"*2\r\n$3\r\nGET"));
        assert_eq!(mixed.count() % 2, 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let one = Requests::random(Work::Get, Dataset::SMALL, REDIS, 7);
        let two = Requests::random(Work::Get, Dataset::SMALL, REDIS, 7);
        let other = Requests::random(Work::Get, Dataset::SMALL, REDIS, 8);
        assert_eq!(batch(&one, 0, 50), batch(&two, 0, 50));
        assert_ne!(batch(&one, 0, 50), batch(&other, 0, 50));
    }

    #[test]
    fn an_mget_is_one_request_with_all_its_keys() {
        let mget = Requests::random(Work::Mget(20), TINY, REDIS, 1);
        let (bytes, count) = batch(&mget, 0, 1);
        assert_eq!(count, 1);
        assert!(bytes.starts_with(b"*21\r\n$4\r\nMGET\r\n"));
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'$').count(), 21);
    }

    #[test]
    fn hashes_and_memcached_have_their_own_words() {
        let hashes = Dataset { shape: Shape::Hash, ..TINY };
        let set = Requests::fill(hashes, REDIS, 0);
        assert!(batch(&set, 0, 1).0.starts_with(b"*4\r\n$5\r\nHMSET\r\n"));
        let text = Requests::fill(TINY, Dialect::Memcached, 4);
        assert_eq!(batch(&text, 0, 1).0, b"set t:000000000004 0 0 3\r\nabc\r\n");
        assert!(!hashes.fits(Dialect::Memcached) && TINY.fits(Dialect::Memcached));
        assert!(!Work::SortedLoad.fits(Dialect::Memcached));
        let scripts = Requests::random(Work::Script, TINY, REDIS, 1);
        let (bytes, count) = batch(&scripts, 0, 1);
        assert!(count == 1 && bytes.starts_with(b"*4\r\n$4\r\nEVAL\r\n"));
        assert!(!Work::Script.fits(Dialect::Memcached));
    }

    #[test]
    fn a_sorted_load_names_every_member_once() {
        let load = Requests::random(Work::SortedLoad, TINY, REDIS, 1);
        assert_eq!(load.count(), SORTED_MEMBERS);
        let mut members: Vec<&[u8]> =
            (0..load.count()).map(|index| batch(&load, index, 1).0).collect();
        members.sort_unstable();
        members.dedup();
        assert_eq!(members.len(), SORTED_MEMBERS);
    }

    #[test]
    fn keys_are_drawn_from_the_whole_space_evenly() {
        let mut random = SplitMix(3);
        let mut seen = [0u32; 8];
        (0..8_000).for_each(|_| seen[random.below(8) as usize] += 1);
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
    }
}
