use super::slot::SLOT_COUNT;
use keyway_resp::parse_integer;

/// The kind of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectKind {
    /// The slot belongs to another node from now on.
    Moved,
    /// The client asks the other node this once, after ASKING.
    Ask,
}

/// A redirect: `-MOVED slot host:port` or `-ASK slot host:port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect<'a> {
    /// MOVED or ASK.
    pub kind: RedirectKind,
    /// The slot of the requested key.
    pub slot: u16,
    /// The other node's host, an IPv6 address without brackets. `None` if the server gives no host,
    /// or `?`: then it is the host that was asked.
    pub host: Option<&'a str>,
    /// Its port.
    pub port: u16,
}

impl<'a> Redirect<'a> {
    /// Reads an error reply, with or without its leading dash and its line end. Returns `None` for
    /// any other error. Allocates nothing.
    pub fn parse(error: &'a [u8]) -> Option<Redirect<'a>> {
        let text = error.strip_prefix(b"-").unwrap_or(error);
        let (kind, rest) = match text.strip_prefix(b"MOVED ") {
            Some(rest) => (RedirectKind::Moved, rest),
            None => (RedirectKind::Ask, text.strip_prefix(b"ASK ")?),
        };
        let blank = rest.iter().position(|&byte| byte == b' ')?;
        let slot = u16::try_from(parse_integer(&rest[..blank])?).ok()?;
        let address = str::from_utf8(&rest[blank + 1..]).ok()?.trim_ascii();
        let (host, port) = address.rsplit_once(':')?;
        let port = u16::try_from(parse_integer(port.as_bytes())?).ok()?;
        if usize::from(slot) >= SLOT_COUNT || port == 0 {
            return None;
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = Some(bare).filter(|host| !crate::reply_reader::is_unknown_host(host));
        Some(Redirect { kind, slot, host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_name_a_slot_and_a_node() {
        let moved =
            |slot, host, port| Some(Redirect { kind: RedirectKind::Moved, slot, host, port });
        for (text, redirect) in [
            ("-MOVED 3999 127.0.0.1:6381\r\n", moved(3999, Some("127.0.0.1"), 6381)),
            ("MOVED 0 ::1:7000", moved(0, Some("::1"), 7000)),
            ("MOVED 0 [::1]:7000", moved(0, Some("::1"), 7000)),
            ("MOVED 16383 :7000", moved(16383, None, 7000)),
            ("MOVED 1 ?:7000", moved(1, None, 7000)),
            ("MOVED 1 a.example.net:7000", moved(1, Some("a.example.net"), 7000)),
            ("MOVED 16384 :7000", None),
            ("MOVED -1 :7000", None),
            ("MOVED 1 h:0", None),
            ("MOVED 1 h:65536", None),
            ("MOVED 1 h", None),
            ("MOVED 1", None),
            ("MOVED", None),
            ("ERR no", None),
            ("", None),
        ] {
            assert_eq!(Redirect::parse(text.as_bytes()), redirect, "{text}");
        }
        let ask = Redirect::parse(b"-ASK 7 h:1\r\n").unwrap();
        assert_eq!((ask.kind, ask.slot), (RedirectKind::Ask, 7));
    }
}
