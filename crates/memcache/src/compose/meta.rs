//! Meta commands.

use super::{Untranslatable, expiry_32, fits_line};
use crate::{Expect, Head, KEY_LEN_MAX, RequestFlags, Verb, base64};

pub(super) fn compose<'a>(
    out: &mut Vec<u8>,
    head: &Head,
    keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    value: &[u8],
) -> Result<Expect, Untranslatable> {
    if head.verb.reads() && keys.len() != 1 {
        // The server does not report misses, so each item has to contain its key.
        let asked = head.asked | RequestFlags::KEY;
        for each in keys {
            get(out, head, asked, each)?;
            out.extend_from_slice(b" q\r\n");
        }
        out.extend_from_slice(b"mn\r\n");
        return Ok(Expect::UntilNoop);
    }
    let key = keys.clone().next().unwrap_or_default();
    match head.verb {
        Verb::Get | Verb::GetTouch => get(out, head, head.asked.without(RequestFlags::KEY), key)?,
        Verb::Delete => delete(out, head, key)?,
        Verb::Incr | Verb::Decr => arithmetic(out, head, key)?,
        Verb::Touch => {
            begin(out, b"mg", key, None)?;
            flag(out, b'T', expiry_32(head.expiry));
            out.extend_from_slice(b" f c");
        }
        // The reply repeats the key, in some releases unencoded.
        Verb::Debug if !fits_line(key) => return Err(Untranslatable::Key),
        Verb::Debug => begin(out, b"me", key, None)?,
        _ => return set(out, head, key, value),
    }
    out.extend_from_slice(b"\r\n");
    Ok(Expect::One)
}

/// Appends the verb and the key, the length after it if the command has one, and the flag of a key
/// that had to be encoded.
fn begin(
    out: &mut Vec<u8>,
    verb: &[u8],
    key: &[u8],
    len: Option<usize>,
) -> Result<(), Untranslatable> {
    out.extend_from_slice(verb);
    out.push(b' ');
    let plain = fits_line(key);
    if plain {
        out.extend_from_slice(key);
    } else if key.is_empty() || base64::encoded_len(key.len()) > KEY_LEN_MAX {
        return Err(Untranslatable::Key);
    } else {
        base64::encode(key, out);
    }
    if let Some(len) = len {
        super::number(out, len);
    }
    out.extend_from_slice(if plain { b"" } else { b" b" });
    Ok(())
}

fn flag(out: &mut Vec<u8>, letter: u8, value: impl itoa::Integer) {
    out.extend_from_slice(&[b' ', letter]);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn wishes(out: &mut Vec<u8>, asked: RequestFlags, letters: &[(RequestFlags, u8)]) {
    for &(wish, letter) in letters {
        if asked.has(wish) {
            out.extend_from_slice(&[b' ', letter]);
        }
    }
}

fn get(
    out: &mut Vec<u8>,
    head: &Head,
    asked: RequestFlags,
    key: &[u8],
) -> Result<(), Untranslatable> {
    begin(out, b"mg", key, None)?;
    wishes(
        out,
        asked,
        &[
            (RequestFlags::VALUE, b'v'),
            (RequestFlags::FLAGS, b'f'),
            (RequestFlags::CAS, b'c'),
            (RequestFlags::KEY, b'k'),
            (RequestFlags::TTL_BEFORE, b't'),
            (RequestFlags::SIZE, b's'),
            (RequestFlags::HIT, b'h'),
            (RequestFlags::LAST_ACCESS, b'l'),
            (RequestFlags::NO_BUMP, b'u'),
        ],
    );
    if head.verb == Verb::GetTouch {
        flag(out, b'T', expiry_32(head.expiry));
    }
    common(out, head);
    ttl_after(out, asked);
    Ok(())
}

/// Appends the flag for the remaining seconds, as they are with the new expiry.
fn ttl_after(out: &mut Vec<u8>, asked: RequestFlags) {
    if asked.has(RequestFlags::TTL) && !asked.has(RequestFlags::TTL_BEFORE) {
        out.extend_from_slice(b" t");
    }
}

/// Appends the flags with numbers that several commands have.
fn common(out: &mut Vec<u8>, head: &Head) {
    if let Some(expiry) = head.vivify {
        flag(out, b'N', expiry_32(expiry));
    }
    if let Some(seconds) = head.recache {
        flag(out, b'R', expiry_32(seconds));
    }
    if let Some(cas) = head.cas_new {
        flag(out, b'E', cas);
    }
    if let (Some(cas), false) = (head.cas, head.verb.reads()) {
        flag(out, b'C', cas);
    }
}

fn set(out: &mut Vec<u8>, head: &Head, key: &[u8], value: &[u8]) -> Result<Expect, Untranslatable> {
    begin(out, b"ms", key, Some(value.len()))?;
    if head.flags != 0 {
        flag(out, b'F', head.flags);
    }
    if head.expiry != 0 {
        flag(out, b'T', expiry_32(head.expiry));
    }
    common(out, head);
    let letters =
        [(RequestFlags::CAS, b'c'), (RequestFlags::SIZE, b's'), (RequestFlags::INVALIDATE, b'I')];
    wishes(out, head.asked, &letters);
    out.extend_from_slice(match head.verb {
        Verb::Add => b" ME",
        Verb::Replace => b" MR",
        Verb::Append => b" MA",
        Verb::Prepend => b" MP",
        _ => b"",
    });
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(Expect::One)
}

fn delete(out: &mut Vec<u8>, head: &Head, key: &[u8]) -> Result<(), Untranslatable> {
    begin(out, b"md", key, None)?;
    common(out, head);
    if head.asked.has(RequestFlags::EXPIRY) {
        flag(out, b'T', expiry_32(head.expiry));
    }
    if head.flags != 0 {
        flag(out, b'F', head.flags);
    }
    wishes(
        out,
        head.asked,
        &[(RequestFlags::INVALIDATE, b'I'), (RequestFlags::REMOVE_VALUE, b'x')],
    );
    Ok(())
}

/// Appends an arithmetic command. It always asks for the value, which is the reply to all clients
/// except meta clients.
fn arithmetic(out: &mut Vec<u8>, head: &Head, key: &[u8]) -> Result<(), Untranslatable> {
    begin(out, b"ma", key, None)?;
    out.extend_from_slice(if head.verb == Verb::Decr { b" MD v" } else { b" v" });
    if head.delta != 1 {
        flag(out, b'D', head.delta);
    }
    if head.initial != 0 {
        flag(out, b'J', head.initial);
    }
    wishes(out, head.asked, &[(RequestFlags::TTL_BEFORE, b't')]);
    if head.asked.has(RequestFlags::EXPIRY) {
        flag(out, b'T', expiry_32(head.expiry));
    }
    common(out, head);
    ttl_after(out, head.asked);
    wishes(out, head.asked, &[(RequestFlags::CAS, b'c')]);
    Ok(())
}
