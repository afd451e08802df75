//! HyperLogLogs: strings that estimate how many different elements were added
//! to them, in Redis's format, so that either side reads what the other wrote.
//!
//! ```text
//!  "HYLL"  encoding  0 0 0  count (8, little-endian)  registers
//!  dense:  16384 registers of 6 bits, the lowest bits first
//!  sparse: 00llllll           l + 1 registers that are zero
//!          01llllll llllllll  the same, of more
//!          1vvvvvll           l + 1 registers that are v + 1
//! ```
//! The top bit of the count says that it is out of date. The bytes may be a
//! client's own: anything but the header is only believed once it adds up.
//! The estimate is that of Otmar Ertl, "New cardinality estimation algorithms
//! for HyperLogLog sketches", arXiv:1702.01284.

use smallvec::SmallVec;

const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const ENCODING_AT: usize = 4;
const COUNT_AT: usize = 8;
const HEADER_LEN: usize = 16;

const INDEX_BITS: u32 = 14;
/// Registers of each.
pub(crate) const REGISTERS: usize = 1 << INDEX_BITS;
const REGISTER_BITS: usize = 6;
const REGISTER_MAX: u8 = (1 << REGISTER_BITS) - 1;
/// Bits of a hash that do not choose the register.
const RANK_BITS: u32 = 64 - INDEX_BITS;
const DENSE_LEN: usize = HEADER_LEN + REGISTERS * REGISTER_BITS / 8;

/// A sparse one that would grow beyond becomes dense: Redis's default.
const SPARSE_LEN_MAX: usize = 3000;
/// The highest rank that a sparse one can hold.
const SPARSE_RANK_MAX: u8 = 32;
const ZERO_RUN_MAX: usize = 64;
const VALUE_RUN_MAX: usize = 4;
/// Number of opcodes that are examined for neighbours to merge.
const MERGE_REACH: usize = 5;

/// Seed of the elements' hash.
const SEED: u64 = 0xadc8_3b19;
/// `1 / (2 ln 2)`.
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// The registers do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupted;

/// The registers of several, one byte each.
pub(crate) type Registers = [u8; REGISTERS];

/// Returns whether a string is to be taken for one.
pub(crate) fn is_one(value: &[u8]) -> bool {
    value.len() >= HEADER_LEN
        && value.starts_with(MAGIC)
        && match value[ENCODING_AT] {
            DENSE => value.len() == DENSE_LEN,
            encoding => encoding == SPARSE,
        }
}

/// Returns whether one is dense.
pub(crate) fn is_dense(value: &[u8]) -> bool {
    value[ENCODING_AT] == DENSE
}

/// One to which nothing was added.
pub(crate) fn empty() -> Vec<u8> {
    let mut value = MAGIC.to_vec();
    value.push(SPARSE);
    value.resize(HEADER_LEN, 0);
    push_zeros(&mut value, REGISTERS);
    value
}

/// The estimate that it holds, if it is up to date.
pub(crate) fn cached_count(value: &[u8]) -> Option<u64> {
    let count = value[COUNT_AT..HEADER_LEN].try_into().map_or(u64::MAX, u64::from_le_bytes);
    (count >> 63 == 0).then_some(count)
}

/// Puts an estimate into it.
pub(crate) fn cache_count(value: &mut [u8], count: u64) {
    value[COUNT_AT..HEADER_LEN].copy_from_slice(&count.to_le_bytes());
}

/// Notes that the estimate is out of date.
pub(crate) fn forget_count(value: &mut [u8]) {
    value[HEADER_LEN - 1] |= 0x80;
}

/// The 64-bit MurmurHash2 of an element.
fn hash(element: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = SEED ^ (element.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = element.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        hash = (hash ^ word).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

/// The register of an element, and its rank there: one more than the zeros at
/// the end of the rest of its hash.
pub(crate) fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let rest = hash >> INDEX_BITS | 1 << RANK_BITS;
    (hash as usize & (REGISTERS - 1), rest.trailing_zeros() as u8 + 1)
}

/// Raises a register to `rank`; whether that changed anything. A sparse one
/// may become dense.
pub(crate) fn raise(value: &mut Vec<u8>, (index, rank): (usize, u8)) -> Result<bool, Corrupted> {
    Raising::new(value).raise(index, rank)
}

/// As [`raise`], for a dense one.
pub(crate) fn raise_dense(value: &mut [u8], (index, rank): (usize, u8)) -> bool {
    let registers = &mut value[HEADER_LEN..];
    let (byte, shift) = (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    // The last register ends with its first byte.
    let high = registers.get(byte + 1).copied().unwrap_or(0);
    let pair = u16::from_le_bytes([registers[byte], high]);
    if rank <= (pair >> shift) as u8 & REGISTER_MAX {
        return false;
    }
    let pair = pair & !(u16::from(REGISTER_MAX) << shift) | u16::from(rank) << shift;
    let [low, high] = pair.to_le_bytes();
    registers[byte] = low;
    if let Some(byte) = registers.get_mut(byte + 1) {
        *byte = high;
    }
    true
}

/// Some registers in a row that are alike.
#[derive(Clone, Copy)]
struct Run {
    rank: u8,
    len: usize,
    /// Bytes of its opcode.
    width: usize,
}

/// The run whose opcode is at `at`. Bytes that are missing are zero.
fn run_at(opcodes: &[u8], at: usize) -> Run {
    let byte = opcodes[at];
    let low = usize::from(byte & 0x3f);
    match byte >> 6 {
        0 => Run { rank: 0, len: low + 1, width: 1 },
        1 => {
            let next = opcodes.get(at + 1).copied().unwrap_or(0);
            Run { rank: 0, len: (low << 8 | usize::from(next)) + 1, width: 2 }
        }
        _ => Run { rank: (byte >> 2 & 0x1f) + 1, len: usize::from(byte & 3) + 1, width: 1 },
    }
}

fn push_zeros(opcodes: &mut impl Extend<u8>, len: usize) {
    match len {
        0 => {}
        1..=ZERO_RUN_MAX => opcodes.extend([len as u8 - 1]),
        _ => opcodes.extend([0x40 | ((len - 1) >> 8) as u8, (len - 1) as u8]),
    }
}

fn value_opcode(rank: u8, len: usize) -> u8 {
    0x80 | (rank - 1) << 2 | (len as u8 - 1)
}

/// The opcodes that replace one opcode.
type Opcodes = SmallVec<[u8; 8]>;

/// A row of registers being raised in ascending order, which finds each from
/// where the one before was.
pub(crate) struct Raising<'a> {
    value: &'a mut Vec<u8>,
    /// An opcode of a sparse one, and the register it begins with.
    near: (usize, usize),
}

/// Where a register is.
struct Found {
    at: usize,
    before: Option<usize>,
    first: usize,
    run: Run,
}

impl<'a> Raising<'a> {
    pub(crate) fn new(value: &'a mut Vec<u8>) -> Self {
        Self { value, near: (HEADER_LEN, 0) }
    }

    /// See [`raise`].
    pub(crate) fn raise(&mut self, index: usize, rank: u8) -> Result<bool, Corrupted> {
        match is_dense(self.value) {
            true => Ok(raise_dense(self.value, (index, rank))),
            false => self.raise_sparse(index, rank),
        }
    }

    fn find(&mut self, index: usize) -> Result<Found, Corrupted> {
        let (mut at, mut first) = self.near;
        let mut before = None;
        while at < self.value.len() {
            let run = run_at(self.value, at);
            if index < first + run.len {
                return match before {
                    // The opcode before it is not known.
                    None if at > HEADER_LEN => {
                        self.near = (HEADER_LEN, 0);
                        self.find(index)
                    }
                    _ => Ok(Found { at, before, first, run }),
                };
            }
            // A change begins with this opcode at the earliest.
            self.near = (at, first);
            before = Some(at);
            at += run.width;
            first += run.len;
        }
        Err(Corrupted)
    }

    fn raise_sparse(&mut self, index: usize, rank: u8) -> Result<bool, Corrupted> {
        if rank > SPARSE_RANK_MAX {
            return self.raise_as_dense(index, rank);
        }
        let Found { at, before, first, run } = self.find(index)?;
        if rank <= run.rank {
            return Ok(false);
        }
        let mut opcodes = Opcodes::new();
        let push = |opcodes: &mut Opcodes, len| match (run.rank, len) {
            (0, len) => push_zeros(opcodes, len),
            (_, 0) => {}
            (rank, len) => opcodes.push(value_opcode(rank, len)),
        };
        push(&mut opcodes, index - first);
        opcodes.push(value_opcode(rank, 1));
        push(&mut opcodes, first + run.len - 1 - index);
        let len = self.value.len() + opcodes.len();
        if opcodes.len() > run.width && len - run.width > SPARSE_LEN_MAX {
            return self.raise_as_dense(index, rank);
        }
        let end = (at + run.width).min(self.value.len());
        self.value.splice(at..end, opcodes);
        self.merge(before.unwrap_or(HEADER_LEN));
        forget_count(self.value);
        Ok(true)
    }

    fn raise_as_dense(&mut self, index: usize, rank: u8) -> Result<bool, Corrupted> {
        make_dense(self.value)?;
        Ok(raise_dense(self.value, (index, rank)))
    }

    /// Merges neighbours of the same rank near `at`. The bytes are those of Redis only with this
    /// reach, and if a merged opcode is examined again.
    fn merge(&mut self, mut at: usize) {
        for _ in 0..MERGE_REACH {
            if at >= self.value.len() {
                return;
            }
            let run = run_at(self.value, at);
            let next = self.value.get(at + run.width).map(|_| run_at(self.value, at + run.width));
            match next {
                Some(next)
                    if run.rank != 0
                        && next.rank == run.rank
                        && run.len + next.len <= VALUE_RUN_MAX =>
                {
                    self.value[at] = value_opcode(run.rank, run.len + next.len);
                    self.value.remove(at + 1);
                }
                _ => at += run.width,
            }
        }
    }
}

/// Makes a sparse one dense.
pub(crate) fn make_dense(value: &mut Vec<u8>) -> Result<(), Corrupted> {
    if is_dense(value) {
        return Ok(());
    }
    let mut dense = value[..HEADER_LEN].to_vec();
    dense[ENCODING_AT] = DENSE;
    dense.resize(DENSE_LEN, 0);
    visit_sparse(value, |first, run| {
        if run.rank != 0 {
            for index in first..first + run.len {
                raise_dense(&mut dense, (index, run.rank));
            }
        }
    })?;
    *value = dense;
    Ok(())
}

/// Visits the runs of a sparse one, each with its first register.
fn visit_sparse(value: &[u8], mut visit: impl FnMut(usize, Run)) -> Result<(), Corrupted> {
    let (mut at, mut first) = (HEADER_LEN, 0);
    while at < value.len() {
        let run = run_at(value, at);
        if first + run.len > REGISTERS {
            return Err(Corrupted);
        }
        visit(first, run);
        at += run.width;
        first += run.len;
    }
    if first == REGISTERS { Ok(()) } else { Err(Corrupted) }
}

/// The registers of a dense one, in order.
fn dense_registers(value: &[u8]) -> impl Iterator<Item = u8> {
    let (groups, _) = value[HEADER_LEN..].as_chunks::<3>();
    groups.iter().flat_map(|[one, two, three]| {
        let group = u32::from_le_bytes([*one, *two, *three, 0]);
        [0, 6, 12, 18].map(|shift| (group >> shift) as u8 & REGISTER_MAX)
    })
}

/// Raises each register to what it is in `value`.
pub(crate) fn merge(registers: &mut Registers, value: &[u8]) -> Result<(), Corrupted> {
    if is_dense(value) {
        for (register, rank) in registers.iter_mut().zip(dense_registers(value)) {
            *register = rank.max(*register);
        }
        return Ok(());
    }
    visit_sparse(value, |first, run| {
        for register in &mut registers[first..first + run.len] {
            *register = run.rank.max(*register);
        }
    })
}

/// The number of registers of each rank.
type Histogram = [u32; REGISTER_MAX as usize + 1];

/// An estimate of how many different elements were added.
pub(crate) fn count(value: &[u8]) -> Result<u64, Corrupted> {
    let mut histogram: Histogram = [0; _];
    if is_dense(value) {
        dense_registers(value).for_each(|rank| histogram[usize::from(rank)] += 1);
    } else {
        visit_sparse(value, |_, run| histogram[usize::from(run.rank)] += run.len as u32)?;
    }
    Ok(estimate(&histogram))
}

/// As [`count`], of registers.
pub(crate) fn count_registers(registers: &Registers) -> u64 {
    let mut histogram: Histogram = [0; _];
    registers.iter().for_each(|rank| histogram[usize::from(*rank & REGISTER_MAX)] += 1);
    estimate(&histogram)
}

fn estimate(histogram: &Histogram) -> u64 {
    let registers = REGISTERS as f64;
    let full = f64::from(histogram[RANK_BITS as usize + 1]);
    let mut sum = registers * tau((registers - full) / registers);
    for count in histogram[1..=RANK_BITS as usize].iter().rev() {
        sum = (sum + f64::from(*count)) * 0.5;
    }
    sum += registers * sigma(f64::from(histogram[0]) / registers);
    let estimate = (ALPHA * registers * registers / sum).round();
    // Registers that no element can have make it too large for an integer:
    // what the processor makes of that is out of date at once.
    if estimate < (1u64 << 63) as f64 { estimate as u64 } else { 1 << 63 }
}

/// Corrects for registers that are zero.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

/// Corrects for registers that are as high as can be.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn registers_of(value: &[u8]) -> Box<Registers> {
        let mut registers = Box::new([0; REGISTERS]);
        merge(&mut registers, value).unwrap();
        registers
    }

    #[test]
    fn the_hash_is_murmur_hash_2() {
        assert_eq!(register_of(b"a"), (12_711, 2));
    }

    #[test]
    fn an_empty_one_takes_18_bytes_and_counts_nothing() {
        let value = empty();
        assert!(is_one(&value) && !is_dense(&value));
        assert_eq!((value.len(), &value[16..]), (18, &b"\x7f\xff"[..]));
        assert_eq!((cached_count(&value), count(&value)), (Some(0), Ok(0)));
    }

    #[test]
    fn estimates_are_within_three_standard_errors() {
        let mut value = empty();
        let mut added = 0;
        for wanted in [10u64, 100, 1000, 10_000, 100_000, 1_000_000] {
            for number in added..wanted {
                raise(&mut value, register_of(&number.to_le_bytes())).unwrap();
            }
            added = wanted;
            let estimate = count(&value).unwrap();
            assert!(estimate.abs_diff(wanted) as f64 <= wanted as f64 * 0.025, "{estimate}");
        }
        assert!(is_dense(&value));
    }

    #[test]
    fn a_count_too_large_is_out_of_date() {
        let mut value = empty();
        make_dense(&mut value).unwrap();
        value[HEADER_LEN..].fill(0xff);
        let estimate = count(&value).unwrap();
        cache_count(&mut value, estimate);
        assert_eq!((estimate, cached_count(&value)), (1 << 63, None));
    }

    proptest! {
        #[test]
        fn sparse_and_dense_ones_and_plain_registers_agree(
            registers in proptest::collection::vec((0..REGISTERS, 1..=51u8), 1..400),
            few in 1..20usize,
        ) {
            let (mut sparse, mut dense) = (empty(), empty());
            make_dense(&mut dense).unwrap();
            let mut plain = [0; REGISTERS];
            for (index, rank) in registers {
                // Close together, and low, so that runs split and merge.
                let (index, rank) = (index % (few * 40), rank % 34 + 1);
                let raised = plain[index] < rank;
                plain[index] = rank.max(plain[index]);
                prop_assert_eq!(raise(&mut sparse, (index, rank)), Ok(raised));
                prop_assert_eq!(raise(&mut dense, (index, rank)), Ok(raised));
            }
            prop_assert!(*registers_of(&sparse) == plain && *registers_of(&dense) == plain);
            prop_assert_eq!(count(&sparse), count(&dense));
            prop_assert_eq!(count(&sparse), Ok(count_registers(&plain)));
            make_dense(&mut sparse).unwrap();
            prop_assert!(sparse[HEADER_LEN..] == dense[HEADER_LEN..]);
        }

        #[test]
        fn raising_in_a_row_leaves_the_bytes_that_one_by_one_does(
            before in proptest::collection::vec((0..600usize, 1..5u8), 0..100),
            registers in proptest::collection::btree_map(0..600usize, 1..6u8, 1..200),
        ) {
            let mut alone = empty();
            for register in before {
                raise(&mut alone, register).unwrap();
            }
            let mut together = alone.clone();
            let mut raising = Raising::new(&mut together);
            for (index, rank) in registers {
                let one = raise(&mut alone, (index, rank));
                prop_assert_eq!(raising.raise(index, rank), one);
            }
            prop_assert!(alone == together);
        }

        #[test]
        fn any_bytes_are_survived(
            encoding in 0..3u8,
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            registers in proptest::collection::vec((0..REGISTERS, 1..=51u8), 1..40),
        ) {
            let mut value = empty()[..HEADER_LEN].to_vec();
            value[ENCODING_AT] = encoding;
            value.extend(bytes);
            if is_one(&value) {
                let is_whole = count(&value).is_ok();
                prop_assert_eq!(merge(&mut [0; REGISTERS], &value).is_ok(), is_whole);
                prop_assert_eq!(make_dense(&mut value.clone()).is_ok(), is_whole);
                for register in registers {
                    let _ = raise(&mut value, register);
                }
            }
        }
    }
}
