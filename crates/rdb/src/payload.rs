//! The payload that DUMP returns and RESTORE accepts: a value with a footer.
//!
//! ```text
//!  payload: type, value │ version, 2 bytes │ checksum, 8 bytes
//! ```
//! (`createDumpPayload` of Redis 7.0.) `FUNCTION DUMP` has libraries in place of the value.

use crate::crc64::checksum;
use crate::version::Version;

/// The version of functions, and the oldest one that [`seal`] writes.
const VERSION_LEAST: Version = Version::Redis10;
const VERSION_LEN: usize = 2;
const CHECKSUM_LEN: usize = 8;
/// Number of bytes of version and checksum.
pub const FOOTER_LEN: usize = VERSION_LEN + CHECKSUM_LEN;

/// Returns the value in a payload without its footer, and its version. Returns `None` if the
/// checksum is wrong or the version is unknown. Versions that are older than all known ones are
/// read as the oldest.
pub fn open(payload: &[u8]) -> Option<(&[u8], Version)> {
    let (checked, sum) = payload.split_last_chunk::<CHECKSUM_LEN>()?;
    let (value, version) = checked.split_last_chunk::<VERSION_LEN>()?;
    let oldest = Version::Redis9.number();
    let version = Version::of_number(u16::from_le_bytes(*version).max(oldest))?;
    (checksum(checked) == u64::from_le_bytes(*sum)).then_some((value, version))
}

/// Appends the footer to a value, which makes it a payload. The version is that of Redis 7.0, or
/// the oldest one that has the value's type.
pub fn seal(value: &mut Vec<u8>) {
    seal_as(oldest_of(value).max(VERSION_LEAST), value);
}

/// Appends the footer with the oldest version that has the value's type, so that old servers accept
/// the payload as well.
pub fn seal_oldest(value: &mut Vec<u8>) {
    seal_as(oldest_of(value), value);
}

fn oldest_of(value: &[u8]) -> Version {
    let version = value.first().and_then(|kind| Version::oldest_with(*kind));
    version.unwrap_or(VERSION_LEAST)
}

/// Appends the footer of a version.
pub fn seal_as(version: Version, value: &mut Vec<u8>) {
    value.extend_from_slice(&version.number().to_le_bytes());
    let sum = checksum(value);
    value.extend_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind;

    #[test]
    fn a_payload_opens_unless_it_was_changed_or_is_too_new() {
        let mut payload = b"\0\x01x".to_vec();
        seal(&mut payload);
        assert_eq!(open(&payload), Some((&b"\0\x01x"[..], Version::Redis10)));
        for at in 0..payload.len() {
            let mut other = payload.clone();
            other[at] ^= 0x10;
            assert_eq!(open(&other), None, "{at}");
            assert_eq!(open(&payload[..at]), None);
        }
        for (version, known) in [
            (0, Some(Version::Redis9)),
            (8, Some(Version::Redis9)),
            (11, Some(Version::Redis11)),
            (12, Some(Version::Redis12)),
            (13, None),
            (79, None),
            (80, Some(Version::Valkey80)),
            (81, Some(Version::Valkey81)),
            (82, None),
            (0x10b, None),
        ] {
            let mut newer = b"\0\x01x".to_vec();
            newer.extend_from_slice(&u16::to_le_bytes(version));
            newer.extend_from_slice(&checksum(&newer).to_le_bytes());
            assert_eq!(open(&newer).map(|(_, version)| version), known, "{version}");
        }
    }

    #[test]
    fn the_footer_is_the_oldest_that_knows_the_type() {
        for (kind, version) in [
            (kind::STRING, 9),
            (kind::SORTED, 9),
            (kind::LIST_LISTPACKS, 10),
            (kind::STREAM_72, 11),
            (kind::HASH_TIMES, 12),
            (245, 10),
        ] {
            let mut value = vec![kind];
            seal_oldest(&mut value);
            assert_eq!(value[1..3], [version, 0]);
            let mut value = vec![kind];
            seal(&mut value);
            assert_eq!(value[1..3], [version.max(10), 0]);
        }
    }
}
