//! Meta commands: mg, ms, md, ma, me and mn.

use crate::numbers::{signed_32, unsigned, unsigned_32};
use crate::text::{self, Outcome, Words, one_key};
use crate::{
    Dialect, KEY_LEN_MAX, ParseLimits, Parsed, Request, RequestFault, RequestFlags, Verb, base64,
};
use keyway_base::ByteRange;

/// Largest number of words of a meta command, including the verb and the key.
const WORDS_MAX: usize = 19;

/// Length of the longest opaque token, with its `O`, in bytes.
const OPAQUE_LEN_MAX: usize = 32;

pub(crate) fn parse(
    buf: &[u8],
    kind: u8,
    words: &Words,
    next: usize,
    limits: &ParseLimits,
    request: &mut Request,
) -> Outcome {
    request.head.dialect = Dialect::Meta;
    let line = Ok(Parsed::Ready { consumed: next });
    match kind {
        b'n' => {
            request.head.verb = Verb::Noop;
            return line;
        }
        b'e' => return debug(buf, words, request).and(line),
        b'g' | b's' | b'd' | b'a' => {}
        _ => return Err(RequestFault::Unknown),
    }
    if words.len() < 2 {
        return Err(RequestFault::Unknown);
    }
    one_key(words, request)?;
    if kind == b's' {
        return set(buf, words, next, limits, request);
    }
    if words.len() > WORDS_MAX {
        let get = kind == b'g';
        return Err(if get { RequestFault::MetaGetTooMany } else { RequestFault::MetaTooMany });
    }
    request.meta = words.rest(2);
    match kind {
        b'g' => get(buf, words, request)?,
        b'd' => {
            request.head.verb = Verb::Delete;
            flags(buf, words, 2, request).map_err(|_| RequestFault::MetaFlag)?;
        }
        _ => arithmetic(buf, words, request)?,
    }
    opaque_fits(buf, words, 2).and(line)
}

/// Parses `me KEY [b]`.
fn debug(buf: &[u8], words: &Words, request: &mut Request) -> Result<(), RequestFault> {
    request.head.verb = Verb::Debug;
    if words.len() < 2 {
        return Err(RequestFault::BadLine);
    }
    one_key(words, request)?;
    if words.len() >= 3 && words.get(buf, 2) == b"b" {
        decode_key(buf, request).map_err(|_| RequestFault::BadLine)?;
    }
    Ok(())
}

fn get(buf: &[u8], words: &Words, request: &mut Request) -> Result<(), RequestFault> {
    flags(buf, words, 2, request)?;
    let touches = request.head.asked.has(RequestFlags::EXPIRY);
    request.head.verb = if touches { Verb::GetTouch } else { Verb::Get };
    Ok(())
}

fn set(
    buf: &[u8],
    words: &Words,
    next: usize,
    limits: &ParseLimits,
    request: &mut Request,
) -> Outcome {
    request.head.verb = Verb::Set;
    if words.len() < 3 {
        return Err(RequestFault::BadLine);
    }
    if words.len() > WORDS_MAX {
        return Err(RequestFault::MetaTooMany);
    }
    let len = signed_32(words.get(buf, 2)).ok_or(RequestFault::BadLine)?;
    if !(0..=i32::MAX - 2).contains(&len) {
        return Err(RequestFault::BadLine);
    }
    request.meta = words.rest(3);
    let outcome = flags(buf, words, 3, request)
        .and_then(|mode| set_mode(mode, request))
        .and_then(|()| opaque_fits(buf, words, 3));
    match outcome {
        Ok(()) => text::value(buf, len, next, limits, request),
        // The length of the value was understood, so the value is dropped with the line.
        Err(fault) => Ok(Parsed::Refused { consumed: next, skip: len as u64 + 2, fault }),
    }
}

fn set_mode(mode: u8, request: &mut Request) -> Result<(), RequestFault> {
    let head = &mut request.head;
    head.verb = match mode {
        0 | b'S' | b'R' if head.cas.is_some() => Verb::Cas,
        0 | b'S' => Verb::Set,
        b'E' => Verb::Add,
        b'A' => Verb::Append,
        b'P' => Verb::Prepend,
        b'R' => Verb::Replace,
        _ => return Err(RequestFault::MetaSetMode),
    };
    Ok(())
}

fn arithmetic(buf: &[u8], words: &Words, request: &mut Request) -> Result<(), RequestFault> {
    request.head.delta = 1;
    let mode = flags(buf, words, 2, request).map_err(|_| RequestFault::MetaFlag)?;
    request.head.verb = match mode {
        0 | b'I' | b'+' => Verb::Incr,
        b'D' | b'-' => Verb::Decr,
        _ => return Err(RequestFault::MetaArithmeticMode),
    };
    Ok(())
}

fn opaque_fits(buf: &[u8], words: &Words, from: usize) -> Result<(), RequestFault> {
    let too_long = |index| {
        let word = words.get(buf, index);
        word[0] == b'O' && word.len() > OPAQUE_LEN_MAX
    };
    if (from..words.len()).any(too_long) { Err(RequestFault::MetaOpaque) } else { Ok(()) }
}

fn decode_key(buf: &[u8], request: &mut Request) -> Result<(), RequestFault> {
    let text = request.keys[0].of(buf);
    request.decoded.clear();
    if !base64::decode(text, &mut request.decoded) || request.decoded.len() > KEY_LEN_MAX {
        return Err(RequestFault::MetaKey);
    }
    request.keys[0] = ByteRange::new(0, request.decoded.len());
    request.head.asked |= RequestFlags::KEY_BASE64;
    Ok(())
}

/// Reads the flags from word `from` on. Returns the mode of `M`, or 0 if there is none. It stops at
/// a flag that is unknown or given twice. Of other errors it returns the last.
fn flags(
    buf: &[u8],
    words: &Words,
    from: usize,
    request: &mut Request,
) -> Result<u8, RequestFault> {
    let mut seen = 0u128;
    let mut mode = 0;
    let mut fault = None;
    for index in from..words.len() {
        let word = words.get(buf, index);
        let letter = word[0];
        if letter >= 127 || seen >> letter & 1 == 1 {
            return Err(RequestFault::MetaDuplicate);
        }
        seen |= 1 << letter;
        let outcome = match letter {
            b'b' => decode_key(buf, request),
            b'M' if word.len() != 2 => Err(RequestFault::MetaModeLength),
            b'M' => {
                mode = word[1];
                Ok(())
            }
            b'N' | b'T' | b'R' | b'F' | b'C' | b'E' | b'J' | b'D' => {
                number(letter, &word[1..], request)
            }
            _ => wish(letter, request),
        };
        match outcome {
            Err(RequestFault::MetaUnknown) => return Err(RequestFault::MetaUnknown),
            // memcached has no text of its own for client flags.
            Err(RequestFault::BadLine) => fault = fault.or(Some(RequestFault::BadLine)),
            Err(other) => fault = Some(other),
            Ok(()) => {}
        }
    }
    fault.map_or(Ok(mode), Err)
}

/// Reads a flag with a number.
fn number(letter: u8, text: &[u8], request: &mut Request) -> Result<(), RequestFault> {
    let head = &mut request.head;
    // memcached handles the flags in their order.
    if matches!(letter, b'N' | b'T') && head.asked.has(RequestFlags::TTL) {
        head.asked |= RequestFlags::TTL_BEFORE;
    }
    let seconds = || signed_32(text).map(i64::from).ok_or(RequestFault::MetaNumber);
    match letter {
        b'N' => head.vivify = Some(seconds()?),
        b'R' => head.recache = Some(seconds()?),
        b'T' => {
            head.expiry = seconds()?;
            head.asked |= RequestFlags::EXPIRY;
        }
        b'F' => head.flags = unsigned_32(text).ok_or(RequestFault::BadLine)?,
        b'C' => head.cas = Some(unsigned(text).ok_or(RequestFault::MetaNumber)?),
        b'E' => head.cas_new = Some(unsigned(text).ok_or(RequestFault::MetaNumber)?),
        b'J' => head.initial = unsigned(text).ok_or(RequestFault::MetaInitial)?,
        _ => head.delta = unsigned(text).ok_or(RequestFault::MetaDelta)?,
    }
    Ok(())
}

/// Reads a flag without a number.
fn wish(letter: u8, request: &mut Request) -> Result<(), RequestFault> {
    request.head.asked |= match letter {
        b'v' => RequestFlags::VALUE,
        b'f' => RequestFlags::FLAGS,
        b'c' => RequestFlags::CAS,
        b'k' => RequestFlags::KEY,
        b't' => RequestFlags::TTL,
        b's' => RequestFlags::SIZE,
        b'h' => RequestFlags::HIT,
        b'l' => RequestFlags::LAST_ACCESS,
        b'u' => RequestFlags::NO_BUMP,
        b'I' => RequestFlags::INVALIDATE,
        b'x' => RequestFlags::REMOVE_VALUE,
        b'O' => RequestFlags::OPAQUE,
        b'q' => {
            request.head.quiet = true;
            RequestFlags::NONE
        }
        // These are for proxies. memcached ignores them.
        b'P' | b'L' => RequestFlags::NONE,
        _ => return Err(RequestFault::MetaUnknown),
    };
    Ok(())
}
