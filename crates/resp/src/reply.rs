//! Writes replies, and requests for backends. Each function appends one element to `out`. Both
//! versions of the protocol have the same elements, except for the nulls, which are those of RESP2.
//! See [`crate::Protocol`] for what differs.

/// Appends `+text\r\n`. `text` must contain no line end.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text.as_bytes());
}

/// Appends `-text\r\n`. `text` starts with the error's code (`ERR ...`). Line ends in `text` become
/// blanks, so that no text can break the framing.
pub fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// Appends `:value\r\n`.
#[inline]
pub fn integer(out: &mut Vec<u8>, value: i64) {
    let mut digits = itoa::Buffer::new();
    line(out, b':', digits.format(value).as_bytes());
}

/// Appends `$len\r\nbytes\r\n`.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    bulk_header(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends `$len\r\n`, the head of a bulk. The caller appends the bytes and `\r\n`.
#[inline]
pub fn bulk_header(out: &mut Vec<u8>, len: usize) {
    head(out, b'$', len);
}

/// Appends `*len\r\n`, the head of an array. The caller appends the elements.
#[inline]
pub fn array(out: &mut Vec<u8>, len: usize) {
    head(out, b'*', len);
}

/// Appends the null bulk, `$-1\r\n`.
#[inline]
pub fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

/// Appends the null array, `*-1\r\n`.
pub fn null_array(out: &mut Vec<u8>) {
    out.extend_from_slice(b"*-1\r\n");
}

/// Appends a line of `kind` and a length.
#[inline]
pub(crate) fn head(out: &mut Vec<u8>, kind: u8, len: usize) {
    let digit = |number: usize| b'0' + (number % 10) as u8;
    match len {
        0..10 => out.extend_from_slice(&[kind, digit(len), b'\r', b'\n']),
        10..100 => out.extend_from_slice(&[kind, digit(len / 10), digit(len), b'\r', b'\n']),
        100..1000 => out.extend_from_slice(&[
            kind,
            digit(len / 100),
            digit(len / 10),
            digit(len),
            b'\r',
            b'\n',
        ]),
        _ => {
            let mut digits = itoa::Buffer::new();
            line(out, kind, digits.format(len).as_bytes());
        }
    }
}

#[inline]
fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_look_as_the_specification_says() {
        let mut out = Vec::new();
        array(&mut out, 12);
        simple(&mut out, "OK");
        error(&mut out, "ERR a\r\nb");
        integer(&mut out, i64::MIN);
        bulk(&mut out, b"");
        bulk(&mut out, b"0123456789");
        null(&mut out);
        null_array(&mut out);
        let expected: &[u8] = b"*12\r\n+OK\r\n-ERR a  b\r\n:-9223372036854775808\r\n$0\r\n\r\n\
            $10\r\n0123456789\r\n$-1\r\n*-1\r\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn lengths_of_any_number_of_digits_are_written() {
        for len in (0..1200).chain([9999, 10_000, 123_456, usize::MAX]) {
            let mut out = Vec::new();
            head(&mut out, b'$', len);
            assert_eq!(out, format!("${len}\r\n").into_bytes());
        }
    }
}
