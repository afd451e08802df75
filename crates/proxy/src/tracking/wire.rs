use keyway_resp::{Protocol, reply};

/// The channel on which a client with RESP2 and subscriptions gets invalidations, whatever it has
/// subscribed to.
pub const CHANNEL: &[u8] = b"__redis__:invalidate";

/// The beginning of an invalidation. The keys, or a null, follow.
const INVALIDATE: &[u8] = b">2\r\n$10\r\ninvalidate\r\n";

/// Returns whether a push of a server is an invalidation.
pub fn is_invalidation(push: &[u8]) -> bool {
    push.starts_with(INVALIDATE)
}

/// Appends the push that `keys` have changed.
pub fn write_invalidation<'a>(out: &mut Vec<u8>, keys: impl ExactSizeIterator<Item = &'a [u8]>) {
    out.extend_from_slice(INVALIDATE);
    reply::array(out, keys.len());
    keys.for_each(|key| reply::bulk(out, key));
}

/// Appends the push that everything may have changed.
pub fn write_everything(out: &mut Vec<u8>) {
    out.extend_from_slice(INVALIDATE);
    Protocol::Resp3.null(out);
}

/// Appends an invalidation for a client that is told in place of another: unchanged in RESP3, as a
/// message in RESP2. A client with RESP2 must have subscriptions. Otherwise it cannot be told.
///
/// # Panics
/// Panics if `push` is no invalidation.
pub fn write_redirected(out: &mut Vec<u8>, protocol: Protocol, push: &[u8]) {
    assert!(is_invalidation(push), "only invalidations are redirected");
    if protocol == Protocol::Resp3 {
        return out.extend_from_slice(push);
    }
    reply::array(out, 3);
    reply::bulk(out, b"message");
    reply::bulk(out, CHANNEL);
    match &push[INVALIDATE.len()..] {
        [b'_', ..] => Protocol::Resp2.null(out),
        keys => out.extend_from_slice(keys),
    }
}

/// Appends the push that the client `id`, which was told in place of this one, has left.
pub fn write_broken(out: &mut Vec<u8>, id: u64) {
    out.extend_from_slice(b">2\r\n");
    reply::bulk(out, b"tracking-redir-broken");
    reply::integer(out, id as i64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalidation_is_spelt_as_redis_spells_it() {
        let (mut keys, mut all) = (Vec::new(), Vec::new());
        write_invalidation(&mut keys, [&b"a"[..], b"bc"].into_iter());
        write_everything(&mut all);
        assert_eq!(keys, b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$2\r\nbc\r\n");
        assert_eq!(all, b">2\r\n$10\r\ninvalidate\r\n_\r\n");
        assert!(is_invalidation(&keys) && is_invalidation(&all));
        assert!(!is_invalidation(b">2\r\n$21\r\ntracking-redir-broken\r\n:4\r\n"));
        for (push, told) in [(&keys, "*2\r\n$1\r\na\r\n$2\r\nbc\r\n"), (&all, "$-1\r\n")] {
            let (mut old, mut new) = (Vec::new(), Vec::new());
            write_redirected(&mut old, Protocol::Resp2, push);
            write_redirected(&mut new, Protocol::Resp3, push);
            let head = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";
            assert_eq!(String::from_utf8(old).unwrap(), format!("{head}{told}"));
            assert_eq!(&new, push);
        }
    }

    #[test]
    fn a_broken_redirection_names_who_left() {
        let mut out = Vec::new();
        write_broken(&mut out, 6);
        assert_eq!(out, b">2\r\n$21\r\ntracking-redir-broken\r\n:6\r\n");
    }
}
