//! Replies of servers in binary.

use crate::Verb;
use crate::outcome::{ErrorKind, Item, Outcome, Reply, ReplyFault, ReplyLimits, ReplyParsed};
use crate::packet::{self, HEADER_LEN, Header, REPLY_MAGIC, Status};

pub(crate) fn parse<'a>(
    buf: &'a [u8],
    limits: &ReplyLimits,
) -> Result<ReplyParsed<'a>, ReplyFault> {
    if buf.first().is_some_and(|&magic| magic != REPLY_MAGIC) {
        return Err(ReplyFault::Protocol);
    }
    let Some(header) = Header::read(buf) else {
        return Ok(ReplyParsed::NeedMore { at_least: HEADER_LEN });
    };
    let Header { key_len, extras_len, body_len, .. } = header;
    if key_len + extras_len > body_len {
        return Err(ReplyFault::Protocol);
    }
    if body_len as u64 + HEADER_LEN as u64 > u64::from(limits.reply_len_max) {
        return Err(ReplyFault::TooLong);
    }
    let len = HEADER_LEN + body_len;
    let Some(body) = buf.get(HEADER_LEN..len) else {
        return Ok(ReplyParsed::NeedMore { at_least: len });
    };
    let (extras, rest) = body.split_at(extras_len);
    let (key, value) = rest.split_at(key_len);
    let outcome = if header.status == Status::OK {
        success(&header, extras, key, value)?
    } else {
        failure(&header, value)
    };
    let reply = Reply { outcome, opcode: header.opcode, opaque: header.opaque };
    Ok(ReplyParsed::Ready { len, reply })
}

fn success<'a>(
    header: &Header,
    extras: &[u8],
    key: &'a [u8],
    value: &'a [u8],
) -> Result<Outcome<'a>, ReplyFault> {
    let (verb, ..) = packet::verb(header.opcode).ok_or(ReplyFault::Protocol)?;
    let cas = Some(header.cas);
    let flags = match extras {
        [a, b, c, d] => u32::from_be_bytes([*a, *b, *c, *d]),
        _ => 0,
    };
    let item = Item { key, value, flags, cas, ..Item::default() };
    Ok(match verb {
        Verb::Get | Verb::GetTouch if extras.len() == 4 => Outcome::Hit(item),
        Verb::Get | Verb::GetTouch => return Err(ReplyFault::Protocol),
        Verb::Incr | Verb::Decr => {
            let number = value.try_into().map_err(|_| ReplyFault::Protocol)?;
            Outcome::Number { value: u64::from_be_bytes(number), cas }
        }
        Verb::Stats if key.is_empty() => Outcome::End,
        Verb::Stats => Outcome::Stat { name: key, value },
        Verb::Version | Verb::SaslList | Verb::SaslStart | Verb::SaslStep => Outcome::Text(value),
        Verb::Noop => Outcome::Noop,
        _ => Outcome::Done(item),
    })
}

fn failure<'a>(header: &Header, text: &'a [u8]) -> Outcome<'a> {
    let verb = packet::verb(header.opcode).map(|(verb, ..)| verb);
    let kind = match header.status {
        // For NOT_STORED of the text protocol, binary has the code of the reason.
        Status::NOT_FOUND if verb == Some(Verb::Replace) => return Outcome::NotStored,
        Status::EXISTS if verb == Some(Verb::Add) => return Outcome::NotStored,
        Status::NOT_FOUND => return Outcome::NotFound,
        Status::EXISTS => return Outcome::Exists,
        Status::NOT_STORED => return Outcome::NotStored,
        Status::AUTH_CONTINUE => return Outcome::Continue(text),
        Status::TOO_LARGE => ErrorKind::TooLarge,
        Status::INVALID => ErrorKind::Client,
        Status::NOT_NUMBER => ErrorKind::NotNumber,
        Status::AUTH_ERROR => ErrorKind::Auth,
        Status::UNKNOWN_COMMAND => ErrorKind::Unknown,
        Status::OUT_OF_MEMORY => ErrorKind::OutOfMemory,
        _ => ErrorKind::Server,
    };
    Outcome::Error { kind, text }
}
