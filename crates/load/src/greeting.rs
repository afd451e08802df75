//! The first requests of a connection.

use crate::target::{Protocol, Target};
use keyway_memcache::Wire;

/// Returns the framing of memcached's protocols. `None` means a protocol of Redis.
#[inline]
pub(crate) fn wire(protocol: Protocol) -> Option<Wire> {
    match protocol {
        Protocol::Resp2 | Protocol::Resp3 => None,
        Protocol::MemcachedText | Protocol::MemcachedMeta => Some(Wire::Text),
        Protocol::MemcachedBinary => Some(Wire::Binary),
    }
}

/// Returns a framer of replies of Redis.
pub(crate) fn framer(protocol: Protocol) -> keyway_resp::Framer {
    keyway_resp::Framer::new(match protocol {
        Protocol::Resp3 => keyway_resp::Protocol::Resp3,
        _ => keyway_resp::Protocol::Resp2,
    })
}

/// Appends the first requests of a connection to `target`. Returns the number of their replies.
pub(crate) fn compose(target: &Target, out: &mut Vec<u8>) -> usize {
    let password = target.password.as_deref();
    let user = target.user.as_deref();
    if let (Some(wire), Some(password)) = (wire(target.protocol), password) {
        match wire {
            Wire::Text => set_password(user, password, out),
            Wire::Binary => plain_password(user, password, out),
        }
        return 1;
    }
    let mut count = 0;
    let mut say = |words: &[&str]| {
        keyway_resp::reply::array(out, words.len());
        words.iter().for_each(|word| keyway_resp::reply::bulk(out, word.as_bytes()));
        count += 1;
    };
    match (target.protocol, password) {
        (Protocol::Resp3, None) => say(&["HELLO", "3"]),
        (Protocol::Resp3, Some(password)) => {
            say(&["HELLO", "3", "AUTH", user.unwrap_or("default"), password]);
        }
        (Protocol::Resp2, Some(password)) => match user {
            Some(user) => say(&["AUTH", user, password]),
            None => say(&["AUTH", password]),
        },
        _ => {}
    }
    if target.protocol.is_redis() && target.database > 0 {
        say(&["SELECT", &target.database.to_string()]);
    }
    count
}

/// Appends the password of memcached's text protocol: the value of a first `set` with any key.
fn set_password(user: Option<&str>, password: &str, out: &mut Vec<u8>) {
    let value = format!("{} {password}", user.unwrap_or("default"));
    out.extend_from_slice(format!("set auth 0 0 {}\r\n{value}\r\n", value.len()).as_bytes());
}

/// Appends the password of memcached's binary protocol: SASL PLAIN with an empty first word, which
/// would name another user to act for.
fn plain_password(user: Option<&str>, password: &str, out: &mut Vec<u8>) {
    const AUTHENTICATE: u8 = 0x21;
    const MECHANISM: &[u8] = b"PLAIN";
    let value = format!("\0{}\0{password}", user.unwrap_or("default"));
    let mut head = [0; 24];
    (head[0], head[1]) = (0x80, AUTHENTICATE);
    head[2..4].copy_from_slice(&(MECHANISM.len() as u16).to_be_bytes());
    head[8..12].copy_from_slice(&((MECHANISM.len() + value.len()) as u32).to_be_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(MECHANISM);
    out.extend_from_slice(value.as_bytes());
}

/// Returns a request that every server of the protocol answers with one short reply.
pub(crate) fn probe(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Resp2 | Protocol::Resp3 => b"*1\r\n$4\r\nPING\r\n",
        Protocol::MemcachedText => b"version\r\n",
        Protocol::MemcachedMeta => b"mn\r\n",
        Protocol::MemcachedBinary => {
            b"\x80\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        }
    }
}
