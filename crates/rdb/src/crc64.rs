//! The checksum of RDB: CRC-64 with the polynomial of Jones.

use crc_fast::{CrcAlgorithm, Digest};

/// The polynomial, lowest bit first.
const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
/// Number of bytes that are added to the checksum at once.
const STRIDE: usize = 8;
/// Bytes from which on the processor's instructions are faster than the tables.
const LONG: usize = 64;

/// The effect of each byte on the checksum, by the number of bytes that follow it in a stride.
static TABLES: [[u64; 256]; STRIDE] = tables();

const fn tables() -> [[u64; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut following = 0;
        while following < STRIDE {
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
                bit += 1;
            }
            tables[following][byte] = sum;
            following += 1;
        }
        byte += 1;
    }
    tables
}

/// A checksum of bytes that arrive in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crc64(u64);

impl Crc64 {
    /// Adds the bytes that follow.
    pub fn update(&mut self, bytes: &[u8]) {
        if bytes.len() >= LONG {
            let mut sum = Digest::new_with_init_state(CrcAlgorithm::Crc64Redis, self.0);
            sum.update(bytes);
            self.0 = sum.finalize();
            return;
        }
        let (strides, rest) = bytes.as_chunks::<STRIDE>();
        let mut sum = self.0;
        for stride in strides {
            let word = (sum ^ u64::from_le_bytes(*stride)).to_le_bytes();
            let effects = word.iter().zip(TABLES.iter().rev());
            sum = effects.fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
        }
        self.0 =
            rest.iter().fold(sum, |sum, byte| sum >> 8 ^ TABLES[0][usize::from(sum as u8 ^ byte)]);
    }

    /// Returns the checksum of all bytes so far.
    pub fn sum(self) -> u64 {
        self.0
    }
}

/// Returns the checksum of these bytes.
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Crc64::default();
    sum.update(bytes);
    sum.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis_in_any_pieces() {
        assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(checksum(b""), 0);
        for len in [100, 3 * LONG, 1000] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * at / 7) as u8).collect();
            let mut short = Crc64::default();
            bytes.iter().for_each(|byte| short.update(&[*byte]));
            assert_eq!(short.sum(), checksum(&bytes));
            for cut in 0..bytes.len() {
                let mut sum = Crc64::default();
                sum.update(&bytes[..cut]);
                sum.update(&bytes[cut..]);
                assert_eq!(sum.sum(), short.sum());
            }
        }
    }
}
