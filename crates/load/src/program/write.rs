//! Numbers as text, without allocation.

/// How many digits a number has.
#[inline]
pub(super) fn digits_of(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Appends a number.
#[inline]
pub(super) fn push_number(number: u64, out: &mut Vec<u8>) {
    push_digits(number, 1, out);
}

/// Appends a number, with zeros in front to at least `least` digits.
#[inline]
pub(super) fn push_digits(mut number: u64, least: u8, out: &mut Vec<u8>) {
    let mut text = [b'0'; 32];
    let mut at = text.len();
    while number >= 100 {
        let pair = (number % 100) as u8;
        number /= 100;
        at -= 2;
        text[at] += pair / 10;
        text[at + 1] += pair % 10;
    }
    at -= 1;
    text[at] += (number % 10) as u8;
    if number >= 10 {
        at -= 1;
        text[at] += (number / 10) as u8;
    }
    let at = at.min(text.len() - usize::from(least).min(text.len()));
    out.extend_from_slice(&text[at..]);
}

/// Numbers below a hundred, two digits each.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Writes a number over the end of `room`, which holds zeros and is long enough.
#[inline]
pub(super) fn fill_digits(mut number: u64, room: &mut [u8]) {
    let mut rest = room;
    while number > 0 {
        match rest {
            [shorter @ .., tens, ones] => {
                [*tens, *ones] = PAIRS[(number % 100) as usize];
                rest = shorter;
            }
            [one] => {
                *one = b'0' + (number % 10) as u8;
                return;
            }
            [] => return,
        }
        number /= 100;
    }
}

/// Appends `$len\r\n`.
#[inline]
pub(super) fn push_bulk_head(len: usize, out: &mut Vec<u8>) {
    out.push(b'$');
    push_number(len as u64, out);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_anyone_does() {
        let all = (0..2000).chain([9_999, 10_000, 123_456_789, u64::MAX, u64::MAX / 10]);
        for number in all {
            for least in [0u8, 1, 2, 5, 12, 20] {
                let mut out = b"k".to_vec();
                push_digits(number, least, &mut out);
                let width = usize::from(least);
                let mut room = vec![b'0'; width];
                fill_digits(number, &mut room);
                let text = format!("{number:0width$}");
                assert_eq!(room, text.as_bytes()[text.len() - width..]);
                assert_eq!(out, format!("k{number:0width$}").into_bytes());
            }
            assert_eq!(digits_of(number), number.to_string().len());
        }
    }
}
