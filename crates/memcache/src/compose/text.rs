//! Classic commands.

use super::{Untranslatable, expiry_32, fits_line, number};
use crate::{Dialect, Expect, Head, ParseLimits, RequestFlags, Verb};

pub(super) fn compose<'a>(
    out: &mut Vec<u8>,
    head: &Head,
    keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    value: &[u8],
) -> Result<Expect, Untranslatable> {
    if !can_say(head) {
        return Err(Untranslatable::Request);
    }
    let single = keys.clone().next();
    let start = out.len();
    out.extend_from_slice(verb(head, keys.len()).as_bytes());
    match head.verb {
        Verb::Get | Verb::GetTouch => {
            if head.verb == Verb::GetTouch {
                number(out, expiry_32(head.expiry));
            }
            keys.clone().try_for_each(|each| key(out, each))?;
            if head.verb == Verb::GetTouch && out.len() - start > ParseLimits::LINE_LEN_MAX - 2 {
                return Err(Untranslatable::Line);
            }
        }
        Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas => {
            key(out, single.unwrap_or_default())?;
            number(out, head.flags);
            number(out, expiry_32(head.expiry));
            number(out, value.len());
            if let (Verb::Cas, Some(cas)) = (head.verb, head.cas) {
                number(out, cas);
            }
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(value);
        }
        Verb::Delete | Verb::Debug => key(out, single.unwrap_or_default())?,
        Verb::Incr | Verb::Decr => {
            key(out, single.unwrap_or_default())?;
            number(out, head.delta);
        }
        Verb::Touch => {
            key(out, single.unwrap_or_default())?;
            number(out, expiry_32(head.expiry));
        }
        Verb::FlushAll if head.expiry > 0 => number(out, expiry_32(head.expiry)),
        Verb::Verbosity | Verb::CacheMemlimit => number(out, head.delta),
        Verb::Stats | Verb::Shutdown => keys.clone().try_for_each(|each| key(out, each))?,
        Verb::Admin => {
            keys.clone().try_for_each(|each| key(out, each))?;
            // The first word is the command, which has no blank before it.
            out.remove(start);
        }
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
    Ok(match head.verb {
        Verb::Get | Verb::GetTouch | Verb::Stats => Expect::List,
        Verb::Quit | Verb::Shutdown => Expect::Nothing,
        _ => Expect::One,
    })
}

fn key(out: &mut Vec<u8>, key: &[u8]) -> Result<(), Untranslatable> {
    if !fits_line(key) {
        return Err(Untranslatable::Key);
    }
    out.push(b' ');
    out.extend_from_slice(key);
    Ok(())
}

fn verb(head: &Head, keys: usize) -> &'static str {
    let cas = head.asked.has(RequestFlags::CAS);
    match head.verb {
        Verb::Get if cas => "gets",
        Verb::Get => "get",
        Verb::GetTouch if cas => "gats",
        Verb::GetTouch => "gat",
        Verb::Set => "set",
        Verb::Add => "add",
        Verb::Replace => "replace",
        Verb::Append => "append",
        Verb::Prepend => "prepend",
        Verb::Cas => "cas",
        Verb::Delete => "delete",
        Verb::Incr => "incr",
        Verb::Decr => "decr",
        Verb::Touch => "touch",
        Verb::FlushAll => "flush_all",
        Verb::Stats => "stats",
        Verb::Version => "version",
        Verb::Verbosity => "verbosity",
        Verb::Quit => "quit",
        Verb::Noop => "mn",
        Verb::Debug if keys > 0 => "me",
        Verb::CacheMemlimit => "cache_memlimit",
        Verb::Shutdown => "shutdown",
        // The words of Admin include its verb. The other verbs were refused before.
        _ => "",
    }
}

/// Returns whether classic commands can express everything that is asked.
fn can_say(head: &Head) -> bool {
    const READS: RequestFlags =
        RequestFlags::TTL.with(RequestFlags::HIT).with(RequestFlags::LAST_ACCESS);
    const CHANGES: RequestFlags =
        RequestFlags::INVALIDATE.with(RequestFlags::REMOVE_VALUE).with(RequestFlags::TTL);
    let asked = head.asked;
    if head.vivify.is_some() || head.recache.is_some() || head.cas_new.is_some() {
        return false;
    }
    // A binary reply has a field for a number but can do without it. A meta client asks for it and
    // would miss it.
    let told = RequestFlags::CAS.with(RequestFlags::SIZE);
    let wants_told = head.dialect == Dialect::Meta && asked.any(told);
    match head.verb {
        Verb::Get | Verb::GetTouch => !asked.any(READS),
        Verb::Cas => !asked.any(CHANGES) && !wants_told,
        Verb::Add => !asked.any(CHANGES) && !wants_told,
        Verb::Set | Verb::Replace | Verb::Append | Verb::Prepend => {
            !asked.any(CHANGES) && !wants_told && head.cas.is_none()
        }
        Verb::Delete | Verb::Incr | Verb::Decr => {
            let changes = asked.any(CHANGES.with(RequestFlags::EXPIRY));
            let number = asked.has(RequestFlags::CAS) && head.dialect == Dialect::Meta;
            !changes && head.cas.is_none() && !(number && head.verb != Verb::Delete)
        }
        Verb::SaslList | Verb::SaslStart | Verb::SaslStep => false,
        _ => true,
    }
}
