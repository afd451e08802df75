//! CRC-16/XMODEM and CRC-32, eight bytes at a step ("slicing"). Table `n` holds the contribution of
//! a byte after which `n` more zero bytes have gone through the register. A byte-wise loop would
//! wait for a table load per byte.

use super::word;

/// The number of bytes of one step.
const SLICES: usize = 8;

static CRC32: [[u32; 256]; SLICES] = crc32_tables();
static CRC16: [[u16; 256]; SLICES] = crc16_tables();

const fn crc32_tables() -> [[u32; 256]; SLICES] {
    const POLYNOMIAL_REFLECTED: u32 = 0xedb8_8320;
    let mut tables = [[0u32; 256]; SLICES];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL_REFLECTED } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut slice = 1;
    while slice < SLICES {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[slice - 1][byte];
            tables[slice][byte] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

const fn crc16_tables() -> [[u16; 256]; SLICES] {
    const POLYNOMIAL: u16 = 0x1021;
    let mut tables = [[0u16; 256]; SLICES];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x8000 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut slice = 1;
    while slice < SLICES {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[slice - 1][byte];
            tables[slice][byte] = (crc << 8) ^ tables[0][(crc >> 8) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

/// CRC-32 as in zlib.
pub(super) fn crc32a(key: &[u8]) -> u32 {
    let table = |slice: usize, word: u32, shift: u32| CRC32[slice][(word >> shift & 0xff) as usize];
    let mut crc = u32::MAX;
    let mut rest = key;
    while rest.len() >= 8 {
        let low = crc ^ word(rest);
        let high = word(&rest[4..]);
        crc = table(7, low, 0)
            ^ table(6, low, 8)
            ^ table(5, low, 16)
            ^ table(4, low, 24)
            ^ table(3, high, 0)
            ^ table(2, high, 8)
            ^ table(1, high, 16)
            ^ table(0, high, 24);
        rest = &rest[8..];
    }
    if rest.len() >= 4 {
        let low = crc ^ word(rest);
        crc = table(3, low, 0) ^ table(2, low, 8) ^ table(1, low, 16) ^ table(0, low, 24);
        rest = &rest[4..];
    }
    for &byte in rest {
        crc = (crc >> 8) ^ table(0, crc ^ u32::from(byte), 0);
    }
    !crc
}

/// Returns the 15 bits of CRC-32 that libmemcached keeps.
pub(super) fn crc32(key: &[u8]) -> u32 {
    crc32a(key) >> 16 & 0x7fff
}

/// Returns a CRC-16 from a register of 32 bits that is never cut to 16. Above the CRC are the high
/// bytes that the CRC had one and two bytes earlier. So the CRC is taken of all but the last two
/// bytes, and those two go through the wide register.
pub(super) fn crc16(key: &[u8]) -> u32 {
    let (head, tail) = key.split_at(key.len().saturating_sub(2));
    let mut register = u32::from(crc16_narrow(head));
    for &byte in tail {
        let index = (register >> 8) as u8 ^ byte;
        register = (register << 8) ^ u32::from(CRC16[0][usize::from(index)]);
    }
    register
}

/// Returns CRC-16/XMODEM. Its register starts at 0, so leading zero bytes change nothing. The first
/// step therefore takes the bytes that do not fill a step of eight, with zeros before them.
#[inline]
pub(super) fn crc16_narrow(bytes: &[u8]) -> u16 {
    let over = bytes.len() % 8;
    let mut crc = 0;
    if over > 0 {
        crc = crc16_step(match bytes.first_chunk() {
            Some(&first) => u64::from_be_bytes(first) >> (64 - 8 * over),
            None => padded(bytes),
        });
    }
    for word in bytes[over..].chunks_exact(8) {
        let word = u64::from_be_bytes(word.try_into().expect("a chunk of eight"));
        crc = crc16_step(word ^ u64::from(crc) << 48);
    }
    crc
}

/// Returns the CRC of eight bytes; the first is the highest.
#[inline]
fn crc16_step(word: u64) -> u16 {
    let table = |slice: usize| CRC16[slice][usize::from((word >> (8 * slice)) as u8)];
    table(7) ^ table(6) ^ table(5) ^ table(4) ^ table(3) ^ table(2) ^ table(1) ^ table(0)
}

/// Packs fewer than eight bytes into a word, with zeros before them.
#[inline]
fn padded(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk(), bytes.last_chunk()) {
        // The two chunks may overlap; overlapping bytes are the same.
        (Some(&first), Some(&last)) => {
            let shift = 8 * (bytes.len() - 4);
            u64::from(u32::from_be_bytes(first)) << shift | u64::from(u32::from_be_bytes(last))
        }
        _ => bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::samples;

    /// Computes CRC-32 bit by bit.
    fn reference_crc32(key: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for &byte in key {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            }
        }
        !crc
    }

    /// Computes CRC-16 bit by bit.
    fn reference_crc16(key: &[u8]) -> u16 {
        let mut crc = 0u16;
        for &byte in key {
            crc ^= u16::from(byte) << 8;
            for _ in 0..8 {
                crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
            }
        }
        crc
    }

    #[test]
    fn published_check_values_hold() {
        assert_eq!(crc32a(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32a(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
        assert_eq!(crc16_narrow(b"123456789"), 0x31c3);
        assert_eq!((crc32a(b""), crc16(b"")), (0, 0));
    }

    #[test]
    fn crc32_is_fifteen_bits_of_crc32a() {
        assert_eq!(crc32(b"123456789"), 0x4bf4);
    }

    #[test]
    fn crc16_carries_the_high_bytes_of_the_two_crcs_before() {
        assert_eq!(crc16(b"123456789") & 0xffff, 0x31c3);
        for key in samples::keys().filter(|key| key.len() >= 2) {
            let before = |count: usize| reference_crc16(&key[..key.len() - count]);
            let expected = u32::from(before(0))
                | u32::from(before(1) >> 8) << 16
                | u32::from(before(2) >> 8) << 24;
            assert_eq!(crc16(&key), expected);
        }
    }

    #[test]
    fn slicing_agrees_with_shifting_bits() {
        for key in samples::keys() {
            assert_eq!(crc32a(&key), reference_crc32(&key));
            assert_eq!(crc16_narrow(&key), reference_crc16(&key));
            assert_eq!(crc16(&key) as u16, reference_crc16(&key));
        }
    }
}
