//! Libraries of functions: the name in a library's first line, and the payload of `FUNCTION DUMP`
//! that `FUNCTION RESTORE` accepts.
//!
//! A payload is a piece of an RDB file: for each library the byte 245 and its code as an RDB
//! string, plain or compressed with LZF, and at the end the version of the format in 2 bytes and a
//! checksum in 8 (`src/rdb.h`, `functionDumpCommand` of Redis 7.0).

use crate::scripts::LIBRARIES_LEN_MAX;
use keyway_rdb::format::{Cursor, Encoded};
use keyway_rdb::payload::FOOTER_LEN;
use keyway_rdb::{kind, lzf};

/// Returns the name in the first line of a library, `#!engine name=...`.
pub fn library_name(code: &[u8]) -> Option<&[u8]> {
    let line = code.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    line.split(u8::is_ascii_whitespace).find_map(|word| word.strip_prefix(b"name="))
}

/// Why a payload contains no usable libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpFault {
    /// It is no dump, or one in an unknown format.
    Unknown,
    /// Its libraries are longer than the limit of those that are kept.
    TooLong,
}

/// Returns the code of every library in a payload of `FUNCTION DUMP`.
///
/// # Errors
/// Returns [`DumpFault`].
pub fn dumped_libraries(payload: &[u8]) -> Result<Vec<Vec<u8>>, DumpFault> {
    let end = payload.len().checked_sub(FOOTER_LEN).ok_or(DumpFault::Unknown)?;
    let mut cursor = Cursor::new(&payload[..end]);
    let (mut libraries, mut left) = (Vec::new(), LIBRARIES_LEN_MAX);
    while let Ok(kind) = cursor.byte() {
        if kind != kind::OPCODE_LIBRARY {
            return Err(DumpFault::Unknown);
        }
        let code = take_string(&mut cursor, left)?;
        left -= code.len();
        libraries.push(code);
    }
    Ok(libraries)
}

fn take_string(cursor: &mut Cursor<'_>, len_max: usize) -> Result<Vec<u8>, DumpFault> {
    let unknown = DumpFault::Unknown;
    match cursor.read_string(u64::MAX).map_err(|_| unknown)? {
        Encoded::Plain(string) if string.len() <= len_max => Ok(string.to_vec()),
        Encoded::Packed { packed, len } if len <= len_max => {
            let mut string = Vec::new();
            lzf::unpack(packed, len, &mut string).map_err(|_| unknown)?;
            Ok(string)
        }
        Encoded::Plain(_) | Encoded::Packed { .. } => Err(DumpFault::TooLong),
        Encoded::Integer(_) => Err(unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_named_in_its_first_line() {
        for (code, name) in [
            (&b"#!lua name=mylib\nreturn name=other"[..], Some(&b"mylib"[..])),
            (b"#!lua  name=a_1\r\n", Some(b"a_1")),
            (b"#!js name=x", Some(b"x")),
            (b"#!lua\nname=late", None),
            (b"return 1", None),
            (b"", None),
        ] {
            assert_eq!(library_name(code), name);
        }
    }

    fn payload(strings: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for string in strings {
            bytes.push(kind::OPCODE_LIBRARY);
            bytes.extend_from_slice(string);
        }
        bytes.extend_from_slice(&[10, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        bytes
    }

    #[test]
    fn a_dump_gives_its_libraries_back_plain_and_packed() {
        let medium = [&[0x41, 0x00][..], &[b'm'; 256]].concat();
        let long = [&[0x80, 0, 1, 0, 0][..], &[b'l'; 65_536]].concat();
        // "abc", then nine bytes from three bytes before.
        let packed = [0xc3, 7, 12, 2, b'a', b'b', b'c', 0xe0, 0, 2];
        let dump = payload(&[b"\x05plain", &medium, &long, &packed]);
        let libraries = dumped_libraries(&dump).unwrap();
        assert_eq!(libraries[0], b"plain");
        assert_eq!((libraries[1].len(), libraries[2].len()), (256, 65_536));
        assert_eq!(libraries[3], b"abcabcabcabc");
        assert_eq!(dumped_libraries(&payload(&[])), Ok(vec![]));
    }

    #[test]
    fn a_dump_is_no_longer_than_what_is_kept_whatever_it_says_of_its_length() {
        let len = u32::try_from(LIBRARIES_LEN_MAX + 1).unwrap().to_be_bytes();
        let packed = [&[0xc3, 1, 0x80][..], &len, b"\0"].concat();
        assert_eq!(dumped_libraries(&payload(&[&packed])), Err(DumpFault::TooLong));
        let plain = [&[0x80][..], &len, &vec![b' '; LIBRARIES_LEN_MAX + 1]].concat();
        assert_eq!(dumped_libraries(&payload(&[&plain])), Err(DumpFault::TooLong));
    }

    #[test]
    fn whatever_is_cut_off_or_wrong_is_no_dump() {
        let packed = [0xc3, 7, 12, 2, b'a', b'b', b'c', 0xe0, 0, 2];
        let dump = payload(&[b"\x05plain", &packed]);
        // At 10 there is no library, at 17 there is one.
        for len in (0..dump.len()).filter(|&len| len != 10 && len != 17) {
            assert_eq!(dumped_libraries(&dump[..len]), Err(DumpFault::Unknown), "{len}");
        }
        for offset in 0..dump.len() {
            for byte in [0, 31, 127, 128, 129, 130, 192, 195, 255] {
                let mut other = dump.clone();
                other[offset] = byte;
                let _ = dumped_libraries(&other);
            }
        }
        for wrong in [&[0xc0, 1][..], &[0x82], &[0xc3, 2, 9, 0x20, 9], &[0xc3, 1, 0xc0]] {
            assert_eq!(dumped_libraries(&payload(&[wrong])), Err(DumpFault::Unknown));
        }
    }
}
