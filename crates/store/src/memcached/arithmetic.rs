//! Numbers in values.

use super::call::{Call, wrong_kind};
use super::expiry::{Deadline, Walk, set_deadline};
use crate::entry::Entry;
use crate::items::{Encoding, Kind, Meta};
use keyway_base::KeyspaceEvents;
use keyway_memcache::{Dialect, ErrorKind, Item, Outcome, Verb};

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

/// The result of the arithmetic.
enum Counted {
    Number { value: u64, cas: Option<u64>, seconds_left: Option<i64> },
    Not(Outcome<'static>),
}

/// `incr`, `decr` and `ma`.
pub(super) fn arithmetic(call: &Call<'_>, out: &mut Vec<u8>) {
    let key = call.key();
    let counted = call.store.with_key(call.turn, key, |mut entry| count(call, &mut entry));
    let mut buffer = [0; DIGITS_MAX];
    let outcome = match counted {
        Counted::Not(outcome) => outcome,
        Counted::Number { value, cas, seconds_left: None } => Outcome::Number { value, cas },
        Counted::Number { value, cas, seconds_left: ttl } => {
            Outcome::Hit(Item { value: digits(value, &mut buffer), cas, ttl, ..Item::default() })
        }
    };
    call.tell(key, &outcome, out);
}

fn count(call: &Call<'_>, entry: &mut Entry<'_>) -> Counted {
    let head = call.head();
    let Some(item) = entry.look() else { return begin(call, entry) };
    let (meta, kind) = (item.meta(), item.encoding().kind());
    if kind != Kind::Text {
        return Counted::Not(wrong_kind(kind));
    }
    let not_number = Counted::Not(Outcome::Error { kind: ErrorKind::NotNumber, text: b"" });
    let len = item.value().len();
    if len == 0 {
        return not_number;
    }
    if head.cas.is_some_and(|cas| cas != 0 && cas != meta.cas) {
        return Counted::Not(Outcome::Exists);
    }
    let Some(old) = parse(item.value()) else { return not_number };
    let value = match head.verb {
        Verb::Incr => old.wrapping_add(head.delta),
        _ => old.saturating_sub(head.delta),
    };
    let cas = match call.number(entry) {
        // Marks are kept with a number.
        0 if meta.marks != 0 => entry.next_cas(),
        cas => cas,
    };
    let mut buffer = [0; DIGITS_MAX];
    write(entry, digits(value, &mut buffer), len, &Meta { cas, encoding: Encoding::Text, ..meta });
    entry.notify(KeyspaceEvents::STRING, "incrby");
    finish(call, entry, value, cas, Deadline::of_item(meta.expiry), false)
}

/// Puts a number in the place of a value of `len` bytes. A shorter one is
/// padded with blanks, which is what memcached does.
fn write(entry: &mut Entry<'_>, digits: &[u8], len: usize, meta: &Meta) {
    if digits.len() == len {
        return entry.put(digits, meta);
    }
    if digits.len() > len {
        return entry.put(digits, &Meta { marks: 0, fresh: true, ..*meta });
    }
    let changed = entry.change_value(len, |bytes| {
        bytes[..digits.len()].copy_from_slice(digits);
        bytes[digits.len()..].fill(b' ');
    });
    if changed.is_ok() {
        entry.set_meta(meta);
    }
}

/// Begins with the initial value, if there shall be one.
fn begin(call: &Call<'_>, entry: &mut Entry<'_>) -> Counted {
    let head = call.head();
    let Some(seconds) = head.vivify else { return Counted::Not(Outcome::NotFound) };
    let cas = call.number(entry);
    let mut buffer = [0; DIGITS_MAX];
    let meta = Meta { cas, ..Meta::new(Encoding::Text, None) };
    entry.put(digits(head.initial, &mut buffer), &meta);
    entry.notify(KeyspaceEvents::STRING, "set");
    let mut deadline = Deadline::Never;
    if head.dialect == Dialect::Binary {
        deadline = Deadline::of(seconds, call.turn.now_millis);
        if deadline != Deadline::Never {
            set_deadline(entry, deadline);
        }
    }
    finish(call, entry, head.initial, cas, deadline, true)
}

/// Does what a meta command wants besides.
fn finish(
    call: &Call<'_>,
    entry: &mut Entry<'_>,
    value: u64,
    cas: u64,
    deadline: Deadline,
    is_new: bool,
) -> Counted {
    let walk = Walk::of(call, deadline, is_new, true);
    if walk.deadline != deadline {
        set_deadline(entry, walk.deadline);
    }
    let cas = (cas != 0).then_some(cas);
    Counted::Number { value, cas, seconds_left: walk.seconds_left }
}

/// The number that a value is, as C reads it: blanks and a sign before it, and
/// a blank or nothing behind, are let pass.
fn parse(text: &[u8]) -> Option<u64> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_blank(byte))?;
    let (is_negative, text) = match &text[start..] {
        [b'-', text @ ..] => (true, text),
        [b'+', text @ ..] => (false, text),
        text => (false, text),
    };
    let len = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    if len == 0 || text.get(len).is_some_and(|byte| *byte != 0 && !is_blank(byte)) {
        return None;
    }
    let step = |value: u64, digit: &u8| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let value = text[..len].iter().try_fold(0, step)?;
    let value = if is_negative { value.wrapping_neg() } else { value };
    (!is_negative || value >> 63 == 0).then_some(value)
}

/// The decimal digits of `value`, in `buffer`.
fn digits(value: u64, buffer: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let (mut at, mut rest) = (buffer.len(), value);
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &buffer[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_reads_back_as_written(value: u64) {
            let mut buffer = [0; DIGITS_MAX];
            let text = digits(value, &mut buffer);
            prop_assert_eq!(std::str::from_utf8(text), Ok(&*value.to_string()));
            prop_assert_eq!(parse(text), Some(value));
        }
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, value) in [
            ("12", Some(12)),
            (" 12 x", Some(12)),
            ("+12\r\n", Some(12)),
            ("12\0x", Some(12)),
            ("-0", Some(0)),
            ("-1", None),
            ("12x", None),
            ("", None),
            ("   ", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
        ] {
            assert_eq!(parse(text.as_bytes()), value, "{text:?}");
        }
    }
}
