//! Versions of RDB, and what each of them supports.

use crate::kind;

/// A version of the format.
///
/// Up to version 11, Redis and Valkey are the same. Redis continues with 12. Valkey has left that
/// range to Redis and continues with 80, with other meanings of types above 21.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Redis 5.0 to 6.2.
    Redis9,
    /// Redis 7.0.
    Redis10,
    /// Redis 7.2, Valkey 7.2 to 8.1.
    Redis11,
    /// Redis 7.4 to 8.2.
    Redis12,
    /// Valkey 9.0 and 9.1.
    Valkey80,
    /// Valkey 9.2.
    Valkey81,
}

impl Version {
    /// Every version, the oldest first.
    pub const ALL: [Self; 6] =
        [Self::Redis9, Self::Redis10, Self::Redis11, Self::Redis12, Self::Valkey80, Self::Valkey81];

    /// Returns the version with this number.
    pub fn of_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }

    /// Returns the number in headers and footers.
    pub fn number(self) -> u16 {
        match self {
            Self::Redis9 => 9,
            Self::Redis10 => 10,
            Self::Redis11 => 11,
            Self::Redis12 => 12,
            Self::Valkey80 => 80,
            Self::Valkey81 => 81,
        }
    }

    /// Returns whether types above 21 have Valkey's meaning.
    pub fn is_of_valkey(self) -> bool {
        self >= Self::Valkey80
    }

    /// Returns whether the version has this type.
    pub fn knows(self, kind: u8) -> bool {
        match kind {
            kind::HASH_TIMES_EARLY if self.is_of_valkey() => true,
            _ => Self::oldest_with(kind).is_some_and(|oldest| {
                oldest <= self && !(kind > kind::STREAM_72 && self.is_of_valkey())
            }),
        }
    }

    /// Returns the oldest version that has this type, or `None` if no version has it. A hash with
    /// expiring fields belongs to [`Version::Redis12`]: Valkey's form of it has a number that no
    /// release of Redis ever wrote.
    pub fn oldest_with(kind: u8) -> Option<Self> {
        Some(match kind {
            kind::STRING..=kind::SORTED | kind::HASH_ZIPMAP..=kind::STREAM_5 => Self::Redis9,
            kind::HASH_LISTPACK..=kind::STREAM => Self::Redis10,
            kind::SET_LISTPACK | kind::STREAM_72 => Self::Redis11,
            kind::HASH_TIMES_EARLY..=kind::HASH_TIMES_LISTPACK => Self::Redis12,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_versions_and_nothing_else_does() {
        for number in 0..=300 {
            let version = Version::of_number(number);
            assert_eq!(version.is_some(), matches!(number, 9..=12 | 80 | 81), "{number}");
            assert!(version.is_none_or(|version| version.number() == number));
        }
    }

    #[test]
    fn every_type_has_an_oldest_version() {
        let oldest: Vec<u16> =
            (0..=30).map(|kind| Version::oldest_with(kind).map_or(0, Version::number)).collect();
        let expected = [
            9, 9, 9, 9, 9, 9, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 10, 10, 10, 10, 11, 11, 12, 12, 12, 12,
            0, 0, 0, 0, 0,
        ];
        assert_eq!(oldest, expected);
    }
}
