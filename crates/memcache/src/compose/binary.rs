//! Binary operations.

use super::Untranslatable;
use crate::packet::{Header, NO_VIVIFY, Status, op};
use crate::{Expect, Head, KEY_LEN_MAX, RequestFlags, Verb, Wire};

/// An expiry in the past, for one that is negative in text. It is more than the 30 days below which
/// it would count from now.
const EXPIRED: u32 = 30 * 24 * 60 * 60 + 1;

/// A number that no value has. It replaces number 0 of a text client, which in binary would match
/// any number.
const CAS_OF_NONE: u64 = u64::MAX;

pub(super) fn compose<'a>(
    out: &mut Vec<u8>,
    head: &Head,
    keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    value: &[u8],
) -> Result<Expect, Untranslatable> {
    if !can_say(head) {
        return Err(Untranslatable::Request);
    }
    let mut extras = [0; 20];
    if head.verb.reads() && keys.len() != 1 {
        let extras_len = fill(&mut extras, head)?;
        let quiet = if head.verb == Verb::GetTouch { op::GATKQ } else { op::GETKQ };
        for key in keys {
            packet(out, quiet, head, &extras[..extras_len], key, &[])?;
        }
        packet(out, op::NOOP, head, &[], &[], &[])?;
        return Ok(Expect::UntilNoop);
    }
    let extras_len = fill(&mut extras, head)?;
    let extras = &extras[..extras_len];
    let opcode = opcode(head.verb).ok_or(Untranslatable::Request)?;
    if head.verb == Verb::Stats {
        let name = keys.collect::<Vec<_>>().join(&b' ');
        packet(out, opcode, head, &[], &name, &[])?;
        return Ok(Expect::List);
    }
    let key = keys.clone().next().unwrap_or_default();
    packet(out, opcode, head, extras, key, value)?;
    Ok(Expect::One)
}

fn opcode(verb: Verb) -> Option<u8> {
    Some(match verb {
        Verb::Get => op::GET,
        Verb::GetTouch => op::GAT,
        Verb::Set | Verb::Cas => op::SET,
        Verb::Add => op::ADD,
        Verb::Replace => op::REPLACE,
        Verb::Append => op::APPEND,
        Verb::Prepend => op::PREPEND,
        Verb::Delete => op::DELETE,
        Verb::Incr => op::INCREMENT,
        Verb::Decr => op::DECREMENT,
        Verb::Touch => op::TOUCH,
        Verb::FlushAll => op::FLUSH,
        Verb::Stats => op::STAT,
        Verb::Version => op::VERSION,
        Verb::Quit => op::QUIT,
        Verb::Noop => op::NOOP,
        Verb::SaslList => op::SASL_LIST,
        Verb::SaslStart => op::SASL_START,
        Verb::SaslStep => op::SASL_STEP,
        _ => return None,
    })
}

/// Returns whether operations can express everything that is asked.
fn can_say(head: &Head) -> bool {
    const READS: RequestFlags =
        RequestFlags::TTL.with(RequestFlags::HIT).with(RequestFlags::LAST_ACCESS);
    const CHANGES: RequestFlags = RequestFlags::INVALIDATE
        .with(RequestFlags::REMOVE_VALUE)
        .with(RequestFlags::TTL)
        .with(RequestFlags::SIZE);
    let asked = head.asked;
    let arithmetic = matches!(head.verb, Verb::Incr | Verb::Decr);
    let vivifies = head.vivify.is_some() && !arithmetic;
    if vivifies || head.recache.is_some() || head.cas_new.is_some() {
        return false;
    }
    match head.verb {
        Verb::Get | Verb::GetTouch => !asked.any(READS),
        Verb::Delete | Verb::Incr | Verb::Decr => !asked.any(CHANGES.with(RequestFlags::EXPIRY)),
        // These do not replace the item, so they have neither.
        Verb::Append | Verb::Prepend => !asked.any(CHANGES),
        verb if verb.stores() => !asked.any(CHANGES),
        _ => true,
    }
}

fn expiry(expiry: i64) -> u32 {
    if expiry < 0 { EXPIRED } else { expiry.min(i64::from(u32::MAX)) as u32 }
}

/// Writes the extras of the operation. Returns their length.
fn fill(extras: &mut [u8; 20], head: &Head) -> Result<usize, Untranslatable> {
    Ok(match head.verb {
        Verb::GetTouch | Verb::Touch => {
            extras[..4].copy_from_slice(&expiry(head.expiry).to_be_bytes());
            4
        }
        Verb::Set | Verb::Add | Verb::Replace | Verb::Cas => {
            extras[..4].copy_from_slice(&head.flags.to_be_bytes());
            extras[4..8].copy_from_slice(&expiry(head.expiry).to_be_bytes());
            8
        }
        Verb::Incr | Verb::Decr => {
            let created = head.vivify.map_or(NO_VIVIFY, expiry);
            if head.vivify.is_some() && created == NO_VIVIFY {
                return Err(Untranslatable::Request);
            }
            extras[..8].copy_from_slice(&head.delta.to_be_bytes());
            extras[8..16].copy_from_slice(&head.initial.to_be_bytes());
            extras[16..].copy_from_slice(&created.to_be_bytes());
            20
        }
        Verb::FlushAll if head.expiry > 0 => {
            extras[..4].copy_from_slice(&expiry(head.expiry).to_be_bytes());
            4
        }
        _ => 0,
    })
}

fn packet(
    out: &mut Vec<u8>,
    opcode: u8,
    head: &Head,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
) -> Result<(), Untranslatable> {
    let needs_key = head.verb.reads() && opcode != op::NOOP || head.verb.stores();
    if key.len() > KEY_LEN_MAX || (needs_key && key.is_empty()) {
        return Err(Untranslatable::Key);
    }
    let cas = match (head.verb, head.cas) {
        // An add with a number adds. With the number in its header it would not.
        (Verb::Get | Verb::GetTouch | Verb::Add, _) | (_, None) => 0,
        (_, Some(0)) => CAS_OF_NONE,
        (_, Some(cas)) => cas,
    };
    let header = Header {
        magic: Wire::BINARY_MAGIC,
        opcode,
        key_len: key.len(),
        extras_len: extras.len(),
        status: Status::OK,
        body_len: extras.len() + key.len() + value.len(),
        opaque: head.opaque,
        cas,
    };
    debug_assert!(header.body_len < u32::MAX as usize);
    header.write(out);
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    Ok(())
}
