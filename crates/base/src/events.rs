//! The changes of keys that are published, in the letters of Redis's `notify-keyspace-events`.

use std::fmt;

/// A set of classes of keyspace events, and the channels on which they are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceEvents(u16);

/// The letters in the order of their bits. `A` means all letters before `K`.
const LETTERS: &[u8; 14] = b"g$lshzxetdKEnm";
const CLASSES: u16 = (1 << 10) - 1;
/// The bits in the order in which Redis writes the letters.
const TOLD: [usize; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11, 13];
/// The bits of the channels on which events are published.
const PLACES: u16 = 0b11 << 10;

/// A letter without a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLetter(pub char);

impl KeyspaceEvents {
    /// Nothing is published.
    pub const NONE: Self = Self(0);
    /// Every class, published nowhere.
    pub const ALL: Self = Self(CLASSES);
    /// `g`: commands that know no type, such as DEL and EXPIRE.
    pub const GENERIC: Self = Self(1);
    /// `$`: commands on strings.
    pub const STRING: Self = Self(1 << 1);
    /// `l`: commands on lists.
    pub const LIST: Self = Self(1 << 2);
    /// `s`: commands on sets.
    pub const SET: Self = Self(1 << 3);
    /// `h`: commands on hashes.
    pub const HASH: Self = Self(1 << 4);
    /// `z`: commands on sorted sets.
    pub const SORTED: Self = Self(1 << 5);
    /// `x`: a key has expired and was removed.
    pub const EXPIRED: Self = Self(1 << 6);
    /// `e`: a key was removed to make room.
    pub const EVICTED: Self = Self(1 << 7);
    /// `t`: commands on streams.
    pub const STREAM: Self = Self(1 << 8);
    /// `n`: a key was created. `A` leaves it out.
    pub const NEW: Self = Self(1 << 12);
    /// `m`: a key that was read does not exist. `A` leaves it out.
    pub const MISS: Self = Self(1 << 13);
    /// `K`: published in `__keyspace@db__:key`.
    pub const KEYSPACE: Self = Self(1 << 10);
    /// `E`: published in `__keyevent@db__:event`.
    pub const KEYEVENT: Self = Self(1 << 11);

    /// Reads the letters, in any order.
    ///
    /// # Errors
    /// Returns the first unknown letter.
    pub fn parse(text: &str) -> Result<Self, UnknownLetter> {
        let mut events = 0;
        for letter in text.chars() {
            let index = LETTERS.iter().position(|known| char::from(*known) == letter);
            events |= match (index, letter) {
                (Some(index), _) => 1 << index,
                (None, 'A') => CLASSES,
                (None, _) => return Err(UnknownLetter(letter)),
            };
        }
        Ok(Self(events))
    }

    /// Returns whether nothing is ever published, because there is no class or no channel.
    pub const fn is_off(self) -> bool {
        self.0 & !PLACES == 0 || self.0 & PLACES == 0
    }

    /// Returns the set as bits, for an atomic.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the set of these bits.
    #[inline]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns whether all of `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for KeyspaceEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut letters = self.0;
        if letters & CLASSES == CLASSES {
            letters &= !CLASSES;
            f.write_str("A")?;
        }
        for index in TOLD.into_iter().filter(|index| letters & 1 << index != 0) {
            write!(f, "{}", char::from(LETTERS[index]))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_told_in_the_order_of_redis() {
        for (given, told) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Exe", "xeE"),
            ("$gK", "g$K"),
            ("g$lshzxetdE", "AE"),
            ("mnKEx", "xnKEm"),
        ] {
            assert_eq!(KeyspaceEvents::parse(given).unwrap().to_string(), told, "{given}");
        }
        assert_eq!(KeyspaceEvents::parse("Kq"), Err(UnknownLetter('q')));
        let all = KeyspaceEvents::parse("KEA").unwrap();
        assert!(!all.contains(KeyspaceEvents::NEW) && !all.contains(KeyspaceEvents::MISS));
    }

    #[test]
    fn without_a_class_or_a_place_nothing_is_published() {
        for (letters, is_off) in
            [("", true), ("KE", true), ("A", true), ("Kx", false), ("Em", false)]
        {
            assert_eq!(KeyspaceEvents::parse(letters).unwrap().is_off(), is_off, "{letters}");
        }
    }
}
