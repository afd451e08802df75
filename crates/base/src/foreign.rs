//! Recognises servers that answer in another protocol than that of the request.

use crate::printable;

/// Bytes of such a server's answer that are shown.
const SHOWN_LEN: usize = 60;

/// The protocol of such an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Records of TLS: an alert, or a part of a handshake.
    Tls,
    /// The banner of SSH.
    Ssh,
    /// A status line of HTTP.
    Http,
    /// A reply of memcached's text protocol.
    Memcached,
    /// A status or error of RESP.
    Redis,
}

impl Foreign {
    /// Returns the protocol that the bytes begin like; `None` if none is known.
    pub fn of(bytes: &[u8]) -> Option<Foreign> {
        const MEMCACHED: [&[u8]; 5] =
            [b"ERROR\r\n", b"CLIENT_ERROR ", b"SERVER_ERROR ", b"VERSION ", b"END\r\n"];
        match bytes {
            // This is an alert or a handshake of version 3, as TLS still calls itself.
            [0x15 | 0x16, 3, 0..=4, ..] => Some(Foreign::Tls),
            _ if bytes.starts_with(b"SSH-") => Some(Foreign::Ssh),
            _ if bytes.starts_with(b"HTTP/") => Some(Foreign::Http),
            _ if MEMCACHED.iter().any(|words| bytes.starts_with(words)) => Some(Foreign::Memcached),
            [b'-' | b'+', b'A'..=b'Z', ..] => Some(Foreign::Redis),
            _ => None,
        }
    }

    /// Returns its name for texts.
    pub fn name(self) -> &'static str {
        match self {
            Foreign::Tls => "TLS",
            Foreign::Ssh => "SSH",
            Foreign::Http => "HTTP",
            Foreign::Memcached => "the protocol of memcached",
            Foreign::Redis => "RESP, the protocol of Redis",
        }
    }
}

/// Returns the first line of such an answer, escaped and at most 60 bytes of it.
pub fn quoted(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    format!("'{}'", printable(&line[..line.len().min(SHOWN_LEN)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_known_by_their_first_bytes() {
        for (bytes, known) in [
            (&b"\x15\x03\x01\x00\x02\x02\x46"[..], Some(Foreign::Tls)),
            (b"SSH-2.0-OpenSSH_9.6\r\n", Some(Foreign::Ssh)),
            (b"HTTP/1.1 400 Bad Request\r\n", Some(Foreign::Http)),
            (b"ERROR\r\n", Some(Foreign::Memcached)),
            (b"CLIENT_ERROR bad data chunk\r\n", Some(Foreign::Memcached)),
            (b"-ERR unknown command 'version'\r\n", Some(Foreign::Redis)),
            (b"220 mail.example ESMTP\r\n", None),
            (b"", None),
        ] {
            assert_eq!(Foreign::of(bytes), known, "{}", quoted(bytes));
        }
    }

    #[test]
    fn what_is_shown_is_short_and_moves_no_cursor() {
        assert_eq!(quoted(b"ERROR\r\nERROR\r\n"), "'ERROR'");
        assert_eq!(quoted(b"\x15\x03\x1b[2J"), "'\\x15\\x03\\x1b[2J'");
        assert_eq!(quoted(&[b'x'; 1000]).len(), SHOWN_LEN + 2);
    }
}
