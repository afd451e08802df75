//! Ids of a stream's entries.

/// Longest id that is read as one, as in Redis.
const TEXT_LEN_MAX: usize = 127;
/// Longest id that is written: two numbers of 20 digits.
pub(crate) const ID_LEN_MAX: usize = 41;

/// The id of an entry, by which entries are ordered: milliseconds, then a number within them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

/// The id that a new entry is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// `*`: of the clock.
    Next,
    /// `ms-*`: the next one of a millisecond.
    NextIn(u64),
    This(Id),
}

impl Id {
    pub(crate) const ZERO: Self = Self { ms: 0, seq: 0 };
    pub(crate) const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The id behind this one, unless it is the last.
    pub(crate) fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => self.ms.checked_add(1).map(|ms| Self { ms, seq: 0 }),
        }
    }

    /// The id before this one, unless it is the first.
    pub(crate) fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => self.ms.checked_sub(1).map(|ms| Self { ms, seq: u64::MAX }),
        }
    }

    /// The id of `text`, `ms-seq` or `ms` alone.
    pub(crate) fn parse(text: &[u8], missing_seq: u64) -> Option<Self> {
        let (ms, seq) = halves(text)?;
        let seq = seq.map_or(Some(missing_seq), parse_number)?;
        Some(Self { ms: parse_number(ms)?, seq })
    }

    /// Its text, in `buffer`.
    pub(crate) fn format(self, buffer: &mut [u8; ID_LEN_MAX]) -> &[u8] {
        let mut at = buffer.len();
        for (nth, mut rest) in [self.seq, self.ms].into_iter().enumerate() {
            if nth > 0 {
                at -= 1;
                buffer[at] = b'-';
            }
            loop {
                at -= 1;
                buffer[at] = b'0' + (rest % 10) as u8;
                rest /= 10;
                if rest == 0 {
                    break;
                }
            }
        }
        &buffer[at..]
    }
}

impl Wanted {
    /// Parses the id, or the request for a generated id, in `text`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (ms, seq) = halves(text)?;
        match seq {
            None if ms == b"*" => Some(Self::Next),
            Some(b"*") => parse_number(ms).map(Self::NextIn),
            _ => Id::parse(text, 0).map(Self::This),
        }
    }
}

/// Returns the parts before and behind the dash of an id. Redis reads an id as a string of C, which
/// ends at a zero.
fn halves(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    if text.len() > TEXT_LEN_MAX {
        return None;
    }
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = &text[..end];
    Some(match text.iter().position(|byte| *byte == b'-') {
        Some(dash) => (&text[..dash], Some(&text[dash + 1..])),
        None => (text, None),
    })
}

/// A number in the forms that C's `strtoull` reads: blanks and a sign may come
/// first, and a negative one counts from the end of the range. Only the plain
/// form of a negative number is refused.
fn parse_number(text: &[u8]) -> Option<u64> {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !blank(byte))?;
    let (negative, digits) = match &text[start..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    let is_plain = crate::algorithms::number::parse_integer(text).is_some();
    match (negative, is_plain) {
        (true, true) => None,
        (true, false) => Some(value.wrapping_neg()),
        (false, _) => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_reads_back_as_formatted(ms: u64, seq: u64) {
            let (id, mut buffer) = (Id { ms, seq }, [0; ID_LEN_MAX]);
            let text = id.format(&mut buffer).to_vec();
            prop_assert_eq!(&text, &format!("{ms}-{seq}").into_bytes());
            prop_assert_eq!(Id::parse(&text, 7), Some(id));
            prop_assert_eq!(Wanted::parse(&text), Some(Wanted::This(id)));
        }

        #[test]
        fn any_bytes_are_an_id_or_none(text: Vec<u8>) {
            let _ = (Id::parse(&text, 0), Wanted::parse(&text));
        }

        #[test]
        fn the_next_id_is_just_behind(ms: u64, seq in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()]) {
            let id = Id { ms, seq };
            if let Some(next) = id.next() {
                prop_assert!(next > id);
                prop_assert_eq!(next.previous(), Some(id));
            }
        }
    }

    #[test]
    fn numbers_are_those_that_strtoull_reads() {
        for (text, value) in [
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("007", Some(7)),
            (" +7", Some(7)),
            ("-7", None),
            ("-07", Some(7u64.wrapping_neg())),
            (" -7", Some(7u64.wrapping_neg())),
            ("7 ", None),
            ("+-7", None),
            ("", None),
            (" ", None),
            ("x", None),
        ] {
            assert_eq!(parse_number(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn there_is_no_id_beyond_the_ends() {
        assert_eq!((Id::MAX.next(), Id::ZERO.previous()), (None, None));
        let last = Id { ms: 3, seq: u64::MAX };
        assert_eq!(last.next(), Some(Id { ms: 4, seq: 0 }));
        assert_eq!(Id::parse(&[b'1'; 128], 0), None);
        assert_eq!(Id::parse(b"5\0junk", 9), Some(Id { ms: 5, seq: 9 }));
        assert_eq!(Wanted::parse(b"5-*"), Some(Wanted::NextIn(5)));
        assert_eq!(Wanted::parse(b"*"), Some(Wanted::Next));
        assert_eq!(Wanted::parse(b"*-5"), None);
    }
}
