use std::fmt;

/// Number of characters of an id.
const LEN: usize = 40;

/// The name of a history of writes. Two servers with the same name have the same commands at the
/// same offsets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReplicationId([u8; LEN]);

impl ReplicationId {
    /// Parses its 40 characters. Servers use hexadecimal digits. Any visible characters are
    /// accepted, and case does not matter.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let id: [u8; LEN] = text.try_into().ok()?;
        let is_visible = id.iter().all(u8::is_ascii_graphic);
        is_visible.then(|| Self(id.map(|letter| letter.to_ascii_lowercase())))
    }

    /// Creates an id from 20 random bytes.
    pub fn of_random(bytes: [u8; LEN / 2]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |at: usize| {
            let byte = bytes[at / 2];
            DIGITS[usize::from(if at.is_multiple_of(2) { byte >> 4 } else { byte & 0xf })]
        };
        Self(std::array::from_fn(digit))
    }

    /// Returns its 40 characters.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

impl fmt::Debug for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
