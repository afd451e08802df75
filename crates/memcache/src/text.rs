//! Classic text commands, and the lines that meta commands share with them.

use crate::numbers::{signed_32, unsigned, unsigned_32};
use crate::{
    Dialect, KEY_LEN_MAX, ParseLimits, Parsed, Request, RequestFault, RequestFlags, Verb, meta,
    usual,
};
use keyway_base::ByteRange;
use memchr::memchr;

/// Largest number of words of a line that are read, in commands without a list of keys. memcached
/// ignores the rest.
const WORDS_MAX: usize = 23;

/// The words of one line.
pub(crate) struct Words {
    list: [ByteRange; WORDS_MAX],
    count: usize,
    /// The end of the last word.
    end: usize,
}

impl Words {
    fn split(buf: &[u8], line_end: usize) -> Words {
        let mut words = Words { list: [ByteRange::default(); WORDS_MAX], count: 0, end: 0 };
        let mut at = 0;
        while words.count < WORDS_MAX {
            let Some(word) = next_word(buf, at, line_end) else { break };
            words.list[words.count] = word;
            words.count += 1;
            at = word.end as usize;
        }
        words.end = at;
        words
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn range(&self, index: usize) -> ByteRange {
        self.list[..self.count][index]
    }

    pub(crate) fn get<'a>(&self, buf: &'a [u8], index: usize) -> &'a [u8] {
        self.range(index).of(buf)
    }

    /// Returns the range from word `index` to the last one, including the blanks between them. It
    /// is empty if there is no such word.
    pub(crate) fn rest(&self, index: usize) -> ByteRange {
        let start = if index < self.count { self.list[index].start as usize } else { self.end };
        ByteRange::new(start, self.end)
    }
}

/// Returns the next word from `at` on. A NUL ends the line, as it ends a string in C.
#[inline(always)]
fn next_word(buf: &[u8], at: usize, line_end: usize) -> Option<ByteRange> {
    let line = &buf[..line_end];
    let mut start = at;
    while *line.get(start)? == b' ' {
        start += 1;
    }
    let mut end = start;
    loop {
        end += usual::printed_len(&line[end..]);
        if matches!(line.get(end), None | Some(b' ' | 0)) {
            break;
        }
        end += 1;
    }
    (end > start).then(|| ByteRange::new(start, end))
}

/// Returns where the first line's text ends, and where the next line begins.
#[inline(always)]
fn line_of(buf: &[u8]) -> Option<(usize, usize)> {
    let newline = memchr(b'\n', buf)?;
    // For memcached, a single "\r" before the line end is a word of its own.
    let stripped = newline > 1 && buf[newline - 1] == b'\r';
    Some((newline - usize::from(stripped), newline + 1))
}

pub(crate) type Outcome = Result<Parsed, RequestFault>;

#[inline]
pub(crate) fn parse(buf: &[u8], limits: &ParseLimits, request: &mut Request) -> Parsed {
    request.clear(Dialect::Text);
    if let Some(consumed) = usual::parse(buf, limits, request) {
        return Parsed::Ready { consumed };
    }
    parse_any(buf, limits, request)
}

/// Reads a request that does not have the usual form.
fn parse_any(buf: &[u8], limits: &ParseLimits, request: &mut Request) -> Parsed {
    let Some((line_end, next)) = line_of(buf) else { return incomplete(buf, limits) };
    if next > ParseLimits::LINE_LEN_MAX && next > line_len_max(buf, limits) {
        return too_long(next);
    }
    let outcome = match buf {
        [b'g', b'e', b't', b' ', ..] => keys(buf, 4, line_end, next, limits, request),
        _ => command(buf, line_end, next, limits, request),
    };
    outcome.unwrap_or_else(|fault| Parsed::Refused { consumed: next, skip: 0, fault })
}

/// Returns the largest length of the line at the start of `buf`, including its end.
fn line_len_max(buf: &[u8], limits: &ParseLimits) -> usize {
    const KEYS: [&[u8]; 4] = [b"get ", b"gets ", b"gat ", b"gats "];
    let long = KEYS.iter().any(|verb| buf.starts_with(verb));
    let longer = (limits.keys_line_len_max as usize).max(ParseLimits::LINE_LEN_MAX);
    if long { longer } else { ParseLimits::LINE_LEN_MAX }
}

#[cold]
fn incomplete(buf: &[u8], limits: &ParseLimits) -> Parsed {
    if buf.len() >= ParseLimits::LINE_LEN_MAX && buf.len() >= line_len_max(buf, limits) {
        return too_long(buf.len());
    }
    Parsed::NeedMore { at_least: buf.len() + 1 }
}

#[cold]
fn too_long(consumed: usize) -> Parsed {
    Parsed::Refused { consumed, skip: 0, fault: RequestFault::LineTooLong }
}

/// Reads the keys from `at` to the end of the line.
#[inline]
fn keys(
    buf: &[u8],
    at: usize,
    line_end: usize,
    next: usize,
    limits: &ParseLimits,
    request: &mut Request,
) -> Outcome {
    request.head.asked |= RequestFlags::VALUE.with(RequestFlags::FLAGS).with(RequestFlags::KEY);
    let mut at = at;
    while let Some(key) = next_word(buf, at, line_end) {
        if key.len() > KEY_LEN_MAX {
            return Err(RequestFault::BadLine);
        }
        if request.keys.len() >= limits.keys_max as usize {
            return Err(RequestFault::TooManyKeys);
        }
        request.keys.push(key);
        at = key.end as usize;
    }
    if request.keys.is_empty() && request.head.verb == Verb::Get {
        return Err(RequestFault::Unknown);
    }
    Ok(Parsed::Ready { consumed: next })
}

fn command(
    buf: &[u8],
    line_end: usize,
    next: usize,
    limits: &ParseLimits,
    request: &mut Request,
) -> Outcome {
    let words = Words::split(buf, line_end);
    if words.len() == 0 {
        return Err(RequestFault::Unknown);
    }
    let verb = words.get(buf, 0);
    if let [b'm', kind] = verb {
        return meta::parse(buf, *kind, &words, next, limits, request);
    }
    let count = words.len();
    let within = |least: usize, most: usize| {
        if (least..=most).contains(&count) { Ok(()) } else { Err(RequestFault::Unknown) }
    };
    let stores = match verb {
        b"set" => Some(Verb::Set),
        b"add" => Some(Verb::Add),
        b"replace" => Some(Verb::Replace),
        b"append" => Some(Verb::Append),
        b"prepend" => Some(Verb::Prepend),
        _ => None,
    };
    if let Some(verb) = stores {
        within(5, 6)?;
        return store(buf, verb, &words, next, limits, request);
    }
    match verb {
        b"get" | b"gets" | b"gat" | b"gats" | b"bget" => {
            within(2, WORDS_MAX)?;
            let keys_from = get(buf, &words, request)?;
            return keys(buf, keys_from, line_end, next, limits, request);
        }
        b"cas" => {
            within(6, 7)?;
            return store(buf, Verb::Cas, &words, next, limits, request);
        }
        b"delete" => within(2, 4).and_then(|()| delete(buf, &words, request))?,
        b"incr" => within(3, 4).and_then(|()| arithmetic(buf, Verb::Incr, &words, request))?,
        b"decr" => within(3, 4).and_then(|()| arithmetic(buf, Verb::Decr, &words, request))?,
        b"touch" => within(3, 4).and_then(|()| touch(buf, &words, request))?,
        _ => rare(buf, verb, &words, request)?,
    }
    Ok(Parsed::Ready { consumed: next })
}

/// Reads the head of a command with many keys. Returns where the keys begin.
fn get(buf: &[u8], words: &Words, request: &mut Request) -> Result<usize, RequestFault> {
    let verb = words.get(buf, 0);
    if verb.last() == Some(&b's') {
        request.head.asked |= RequestFlags::CAS;
    }
    if !verb.starts_with(b"ga") {
        return Ok(words.range(0).end as usize);
    }
    let expiry = signed_32(words.get(buf, 1)).ok_or(RequestFault::BadExpiry)?;
    request.head.verb = Verb::GetTouch;
    request.head.asked |= RequestFlags::EXPIRY;
    request.head.expiry = i64::from(expiry);
    Ok(words.range(1).end as usize)
}

/// Returns whether the last word asks for no reply. memcached accepts it in any place.
fn is_quiet(buf: &[u8], words: &Words) -> bool {
    words.get(buf, words.len() - 1) == b"noreply"
}

/// Reads the key, which is the first word after the verb.
pub(crate) fn one_key(words: &Words, request: &mut Request) -> Result<(), RequestFault> {
    let key = words.range(1);
    if key.len() > KEY_LEN_MAX {
        return Err(RequestFault::BadLine);
    }
    request.keys.push(key);
    Ok(())
}

fn store(
    buf: &[u8],
    verb: Verb,
    words: &Words,
    next: usize,
    limits: &ParseLimits,
    request: &mut Request,
) -> Outcome {
    let word = |index| words.get(buf, index);
    request.head.verb = verb;
    request.head.quiet = is_quiet(buf, words);
    one_key(words, request)?;
    let bad = RequestFault::BadLine;
    request.head.flags = unsigned_32(word(2)).ok_or(bad)?;
    request.head.expiry = i64::from(signed_32(word(3)).ok_or(bad)?);
    let len = signed_32(word(4)).ok_or(bad)?;
    if verb == Verb::Cas {
        request.head.cas = Some(unsigned(word(5)).ok_or(bad)?);
    }
    value(buf, len, next, limits, request)
}

/// Reads the value of `len` bytes that begins at `start`.
#[inline]
pub(crate) fn value(
    buf: &[u8],
    len: i32,
    start: usize,
    limits: &ParseLimits,
    request: &mut Request,
) -> Outcome {
    // Two more bytes have to fit into memcached's 32-bit length.
    if !(0..=i32::MAX - 2).contains(&len) {
        return Err(RequestFault::BadLine);
    }
    let len = len as usize;
    if len > limits.value_len_max as usize {
        let fault = RequestFault::ValueTooLarge;
        return Ok(Parsed::Refused { consumed: start, skip: len as u64 + 2, fault });
    }
    let end = start + len;
    let Some(line_end) = buf.get(end..end + 2) else {
        return Ok(Parsed::NeedMore { at_least: end + 2 });
    };
    if line_end != b"\r\n" {
        let fault = RequestFault::BadChunk;
        return Ok(Parsed::Refused { consumed: end + 2, skip: 0, fault });
    }
    request.value = ByteRange::new(start, end);
    Ok(Parsed::Ready { consumed: end + 2 })
}

fn delete(buf: &[u8], words: &Words, request: &mut Request) -> Result<(), RequestFault> {
    request.head.verb = Verb::Delete;
    if words.len() > 2 {
        let quiet = is_quiet(buf, words);
        request.head.quiet = quiet;
        // An obsolete delay of zero is accepted.
        let no_delay = words.get(buf, 2) == b"0";
        let valid = if words.len() == 3 { no_delay || quiet } else { no_delay && quiet };
        if !valid {
            return Err(RequestFault::DeleteUsage);
        }
    }
    one_key(words, request)?;
    Ok(())
}

fn arithmetic(
    buf: &[u8],
    verb: Verb,
    words: &Words,
    request: &mut Request,
) -> Result<(), RequestFault> {
    request.head.verb = verb;
    request.head.quiet = is_quiet(buf, words);
    one_key(words, request)?;
    request.head.delta = unsigned(words.get(buf, 2)).ok_or(RequestFault::BadDelta)?;
    Ok(())
}

fn touch(buf: &[u8], words: &Words, request: &mut Request) -> Result<(), RequestFault> {
    request.head.verb = Verb::Touch;
    request.head.quiet = is_quiet(buf, words);
    request.head.asked |= RequestFlags::EXPIRY;
    one_key(words, request)?;
    let expiry = signed_32(words.get(buf, 2)).ok_or(RequestFault::BadExpiry)?;
    request.head.expiry = i64::from(expiry);
    Ok(())
}

/// Reads commands that are not about an item.
#[cold]
fn rare(buf: &[u8], verb: &[u8], words: &Words, request: &mut Request) -> Result<(), RequestFault> {
    let count = words.len();
    let head = &mut request.head;
    let mut args_from = count;
    match verb {
        b"version" => head.verb = Verb::Version,
        b"quit" => head.verb = Verb::Quit,
        b"flush_all" if count <= 3 => {
            head.verb = Verb::FlushAll;
            head.quiet = is_quiet(buf, words);
            if count > 1 + usize::from(head.quiet) {
                let delay = signed_32(words.get(buf, 1)).ok_or(RequestFault::BadExpiry)?;
                head.expiry = i64::from(delay);
            }
        }
        b"verbosity" if (2..=3).contains(&count) => {
            head.verb = Verb::Verbosity;
            head.quiet = is_quiet(buf, words);
            let level = unsigned_32(words.get(buf, 1)).ok_or(RequestFault::BadLine)?;
            head.delta = u64::from(level);
        }
        b"stats" => {
            head.verb = Verb::Stats;
            args_from = 1;
        }
        b"shutdown" => {
            head.verb = Verb::Shutdown;
            args_from = 1;
        }
        b"cache_memlimit" if (2..=3).contains(&count) => {
            head.verb = Verb::CacheMemlimit;
            head.quiet = is_quiet(buf, words);
            head.delta = u64::from(unsigned_32(words.get(buf, 1)).ok_or(RequestFault::Unknown)?);
        }
        b"slabs" | b"lru" | b"lru_crawler" | b"watch" | b"extstore" | b"refresh_certs" => {
            head.verb = Verb::Admin;
            args_from = 0;
        }
        _ if names_http(buf, verb, words) => return Err(RequestFault::Http),
        _ => return Err(RequestFault::Unknown),
    }
    request.keys.extend((args_from..count).map(|index| words.range(index)));
    Ok(())
}

/// Returns whether the line is the first of an HTTP request. memcached checks only words whose
/// first letter begins none of its usual commands.
fn names_http(buf: &[u8], verb: &[u8], words: &Words) -> bool {
    let usual = matches!(verb[0], b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't');
    verb.len() > 1 && !usual && words.get(buf, words.len() - 1).starts_with(b"HTTP/")
}
