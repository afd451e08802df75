//! Binary requests.

use crate::packet::{self, HEADER_LEN, Header, NO_VIVIFY};
use crate::{
    Dialect, Head, KEY_LEN_MAX, ParseLimits, Parsed, Request, RequestFault, RequestFlags, Verb,
    Wire,
};
use keyway_base::ByteRange;

/// Length of the longest name of an authentication mechanism, in bytes.
const MECHANISM_LEN_MAX: usize = 32;

#[inline]
pub(crate) fn parse(buf: &[u8], limits: &ParseLimits, request: &mut Request) -> Parsed {
    request.clear(Dialect::Binary);
    if buf.first().is_some_and(|&magic| magic != Wire::BINARY_MAGIC) {
        return refused(1, 0, RequestFault::Magic);
    }
    let Some(header) = Header::read(buf) else {
        return Parsed::NeedMore { at_least: HEADER_LEN };
    };
    request.head.opcode = header.opcode;
    request.head.opaque = header.opaque;
    if header.key_len + header.extras_len > header.body_len {
        return refused(HEADER_LEN, 0, RequestFault::Lengths);
    }
    if header.key_len > KEY_LEN_MAX {
        return refused(HEADER_LEN, 0, RequestFault::Arguments);
    }
    let Some((verb, quiet, gives_key)) = packet::verb(header.opcode) else {
        return refused(HEADER_LEN, header.body_len, RequestFault::Opcode);
    };
    let head = &mut request.head;
    head.verb = verb;
    head.quiet = quiet;
    if gives_key {
        head.asked |= RequestFlags::KEY;
    }
    if !lengths_fit(verb, &header) {
        return refused(HEADER_LEN, 0, RequestFault::Arguments);
    }
    let key_at = HEADER_LEN + header.extras_len;
    let value_at = key_at + header.key_len;
    let carries_value = verb.stores() || matches!(verb, Verb::SaslStart | Verb::SaslStep);
    let value_len = header.body_len - header.extras_len - header.key_len;
    if carries_value && value_len > limits.value_len_max as usize {
        // The key says which item to remove.
        if buf.len() < value_at {
            return Parsed::NeedMore { at_least: value_at };
        }
        request.keys.push(ByteRange::new(key_at, value_at));
        return refused(value_at, value_len, RequestFault::ValueTooLarge);
    }
    // Bytes that follow the key of any other operation do not belong to it. They are read as the
    // next packet, which ends the connection.
    let end = value_at + if carries_value { value_len } else { 0 };
    if buf.len() < end {
        return Parsed::NeedMore { at_least: end };
    }
    fill(&mut request.head, &buf[HEADER_LEN..key_at], header.cas);
    if verb == Verb::Stats {
        words(buf, key_at, value_at, &mut request.keys);
    } else if header.key_len > 0 {
        request.keys.push(ByteRange::new(key_at, value_at));
    }
    request.value = ByteRange::new(value_at, end);
    Parsed::Ready { consumed: end }
}

#[cold]
fn refused(consumed: usize, skip: usize, fault: RequestFault) -> Parsed {
    Parsed::Refused { consumed, skip: skip as u64, fault }
}

/// Returns whether the lengths in the header are right for the operation.
#[inline]
fn lengths_fit(verb: Verb, header: &Header) -> bool {
    let Header { key_len, extras_len, body_len, .. } = *header;
    let bare = body_len == key_len + extras_len;
    match verb {
        Verb::Get | Verb::Delete => extras_len == 0 && key_len > 0 && bare,
        Verb::GetTouch | Verb::Touch => extras_len == 4 && key_len > 0,
        Verb::Set | Verb::Add | Verb::Replace => extras_len == 8 && key_len > 0,
        Verb::Append | Verb::Prepend => extras_len == 0 && key_len > 0,
        Verb::Incr | Verb::Decr => extras_len == 20 && key_len > 0 && bare,
        Verb::FlushAll => key_len == 0 && bare && matches!(extras_len, 0 | 4),
        Verb::Stats => extras_len == 0,
        Verb::SaslStart | Verb::SaslStep => {
            extras_len == 0 && (1..=MECHANISM_LEN_MAX).contains(&key_len)
        }
        _ => body_len == 0,
    }
}

/// Fills `head` from the extras, whose length is right, and from the number that the value must
/// have. 0 means any number.
#[inline]
fn fill(head: &mut Head, extras: &[u8], cas: u64) {
    let word = |at: usize| match extras.get(at..at + 4) {
        Some(bytes) => u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        None => 0,
    };
    let double = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    match head.verb {
        Verb::Get | Verb::GetTouch => {
            head.asked |= RequestFlags::VALUE.with(RequestFlags::FLAGS).with(RequestFlags::CAS);
        }
        Verb::Set | Verb::Add | Verb::Replace => {
            head.flags = word(0);
            head.expiry = i64::from(word(4));
            head.asked |= RequestFlags::CAS;
        }
        Verb::Append | Verb::Prepend | Verb::Delete => head.asked |= RequestFlags::CAS,
        Verb::Incr | Verb::Decr => {
            head.delta = double(0);
            head.initial = double(8);
            let expiry = word(16);
            head.vivify = (expiry != NO_VIVIFY).then_some(i64::from(expiry));
            head.asked |= RequestFlags::CAS;
        }
        Verb::FlushAll => head.expiry = i64::from(word(0)),
        _ => {}
    }
    if matches!(head.verb, Verb::GetTouch | Verb::Touch) {
        head.expiry = i64::from(word(0));
        head.asked |= RequestFlags::EXPIRY;
    }
    let has_cas = cas != 0 && (head.verb.stores() || changes(head.verb));
    if has_cas {
        head.cas = Some(cas);
        if matches!(head.verb, Verb::Set | Verb::Add | Verb::Replace) {
            // With a number, memcached treats all three the same.
            head.verb = Verb::Cas;
        }
    }
}

fn changes(verb: Verb) -> bool {
    matches!(verb, Verb::Delete | Verb::Incr | Verb::Decr)
}

/// Collects the words of the key of a stat request.
fn words(buf: &[u8], start: usize, end: usize, keys: &mut Vec<ByteRange>) {
    let mut at = start;
    for word in buf[start..end].split(|&byte| byte == b' ') {
        if !word.is_empty() {
            keys.push(ByteRange::new(at, at + word.len()));
        }
        at += word.len() + 1;
    }
}
