//! Inline requests: a line of words, as typed into telnet. Words may be quoted as in Redis: `"..."`
//! with `\n \r \t \b \a \xHH \"` escapes, `'...'` with `\'`. A closing quote must be followed by a
//! blank or the end of the line.

use crate::request::{ParseLimits, Parsed, RequestFault};
use keyway_base::ByteRange;

/// Reads one line from the start of `buf`. Writes its array form to `inline` and the ranges of the
/// arguments in it to `args`.
#[cold]
pub(crate) fn parse(
    buf: &[u8],
    limits: &ParseLimits,
    args: &mut Vec<ByteRange>,
    inline: &mut Vec<u8>,
) -> Result<Parsed, RequestFault> {
    let longest = limits.inline_len_max as usize;
    let Some(end) = memchr::memchr(b'\n', &buf[..buf.len().min(longest + 1)]) else {
        if buf.len() > longest {
            return Err(RequestFault::InlineTooLong);
        }
        return Ok(Parsed::NeedMore { at_least: buf.len() + 1 });
    };
    let line = buf[..end].strip_suffix(b"\r").unwrap_or(&buf[..end]);
    let mut words = Vec::new();
    split_words(line, &mut words)?;
    if words.len() > limits.args_max as usize {
        return Err(RequestFault::UnauthenticatedMultibulk);
    }
    compose(&words, args, inline);
    Ok(Parsed::Inline { consumed: end + 1 })
}

fn compose(words: &[Vec<u8>], args: &mut Vec<ByteRange>, inline: &mut Vec<u8>) {
    inline.clear();
    crate::reply::array(inline, words.len());
    for word in words {
        crate::reply::bulk(inline, word);
        let end = inline.len() - 2;
        args.push(ByteRange::new(end - word.len(), end));
    }
}

fn split_words(line: &[u8], words: &mut Vec<Vec<u8>>) -> Result<(), RequestFault> {
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(());
        }
        let mut word = Vec::new();
        rest = take_word(rest, &mut word)?;
        words.push(word);
    }
}

/// Moves one word from `rest` to `word`. Returns what follows it.
fn take_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], RequestFault> {
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'"' => return take_quoted(after, b'"', word),
            b'\'' => return take_quoted(after, b'\'', word),
            byte if byte.is_ascii_whitespace() || byte == 0 => return Ok(after),
            byte => word.push(byte),
        }
        rest = after;
    }
    Ok(rest)
}

fn take_quoted<'a>(
    mut rest: &'a [u8],
    quote: u8,
    word: &mut Vec<u8>,
) -> Result<&'a [u8], RequestFault> {
    loop {
        match rest {
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', byte, after @ ..] if quote == b'"' => {
                word.push(unescape(*byte));
                rest = after;
            }
            [b'\\', b'\'', after @ ..] if quote == b'\'' => {
                word.push(b'\'');
                rest = after;
            }
            [byte, after @ ..] if *byte == quote => {
                return match after.first() {
                    Some(next) if !next.is_ascii_whitespace() => Err(RequestFault::InlineQuotes),
                    _ => Ok(after),
                };
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return Err(RequestFault::InlineQuotes),
        }
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Limits;

    fn words(line: &[u8], limits: &ParseLimits) -> Result<Option<Vec<Vec<u8>>>, RequestFault> {
        let (mut args, mut inline) = (Vec::new(), Vec::new());
        Ok(match parse(line, limits, &mut args, &mut inline)? {
            Parsed::Inline { consumed } => {
                assert_eq!(consumed, line.len());
                Some(args.iter().map(|arg| arg.of(&inline).to_vec()).collect())
            }
            _ => None,
        })
    }

    fn limits() -> ParseLimits {
        ParseLimits::of(&Limits::default())
    }

    #[test]
    fn words_are_unquoted_as_redis_does() {
        for (line, expected) in [
            (&br#"a "\n\r\t\b\a\q\\""#[..], &[&b"a"[..], b"\n\r\t\x08\x07q\\"][..]),
            (br#""\x00\x09\x1a\x2B\xfA""#, &[b"\x00\x09\x1a\x2b\xfa"]),
            (br#""\xg0 \x0g \x""#, &[b"xg0 x0g x"]),
            (br"'\x41 \n \' \\ '", &[br"\x41 \n ' \\ "]),
            (br#""\' '""#, &[b"' '"]),
            (br#"'"' "" ''"#, &[b"\"", b"", b""]),
            (b"a\0b\tc", &[b"a", b"b", b"c"]),
            (b"   ", &[]),
        ] {
            let what = line.escape_ascii();
            let line = [line, b"\n"].concat();
            let expected = expected.iter().map(|word| word.to_vec()).collect();
            assert_eq!(words(&line, &limits()), Ok(Some(expected)), "{what}");
        }
        for line in [&b"\"a'\n"[..], b"'a\"\n", b"'a'b\n", b"\"a\"'b'\n", b"\"a\\\n"] {
            let what = line.escape_ascii();
            assert_eq!(words(line, &limits()), Err(RequestFault::InlineQuotes), "{what}");
        }
    }

    #[test]
    fn a_line_has_at_most_so_many_bytes_and_words() {
        let longest = limits().inline_len_max as usize;
        let line = vec![b'a'; longest];
        assert_eq!(words(&line, &limits()), Ok(None), "its end may be next");
        let whole = [line.as_slice(), b"\n"].concat();
        assert_eq!(words(&whole, &limits()), Ok(Some(vec![line.clone()])));
        for longer in [[line.as_slice(), b"a"].concat(), [line.as_slice(), b"a\n"].concat()] {
            assert_eq!(words(&longer, &limits()), Err(RequestFault::InlineTooLong));
        }
        let unauthenticated = limits().unauthenticated();
        let of_words =
            |count: usize| words(&[b"a ".repeat(count), b"\n".to_vec()].concat(), &unauthenticated);
        assert_eq!(of_words(10), Ok(Some(vec![b"a".to_vec(); 10])));
        assert_eq!(of_words(11), Err(RequestFault::UnauthenticatedMultibulk));
    }
}
