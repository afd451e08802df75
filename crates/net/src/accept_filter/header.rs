//! The header of a connection that comes through a proxy, which announces the client (HAProxy's
//! "The PROXY protocol", versions 1 and 2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest header of version 1, with its line end, in bytes.
const TEXT_LEN_MAX: usize = 107;

/// Longest header of version 2, in bytes. The protocol would allow 64 KiB. What proxies send about
/// certificates takes a few hundred bytes.
pub const HEADER_LEN_MAX: usize = 4096;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const TEXT_START: &[u8; 6] = b"PROXY ";

/// Length of the fixed part of version 2, in bytes.
const FIXED_LEN: usize = 16;

/// Type of the field that holds the checksum of the whole header.
const CHECKSUM: u8 = 3;

/// The announced client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// The client at this address.
    Client(SocketAddr),
    /// A process on the proxy's host.
    Local,
    /// The proxy itself, for a health check.
    Own,
    /// Unknown to the proxy.
    Unknown,
}

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The header is incomplete.
    NeedMore,
    /// The header is complete.
    Whole {
        /// The announced client.
        announced: Announced,
        /// Length of the header. The bytes after it are the client's.
        len: usize,
    },
}

/// The reason why there is no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// The bytes are something else.
    Absent,
    /// It violates the protocol.
    Broken,
    /// It is longer than [`HEADER_LEN_MAX`].
    TooLong,
    /// Its checksum is wrong.
    Checksum,
}

impl HeaderFault {
    /// Returns its text for logs.
    pub fn text(self) -> &'static str {
        match self {
            HeaderFault::Absent => "its first bytes are no header of the PROXY protocol",
            HeaderFault::Broken => "its header of the PROXY protocol breaks the rules",
            HeaderFault::TooLong => "its header of the PROXY protocol is longer than 4096 bytes",
            HeaderFault::Checksum => "its header of the PROXY protocol has a wrong checksum",
        }
    }
}

/// Reads the header at the beginning of `bytes`.
///
/// # Errors
/// Returns an error if the bytes are not the beginning of a header.
pub fn parse_header(bytes: &[u8]) -> Result<Header, HeaderFault> {
    if begins_as(bytes, SIGNATURE) {
        binary(bytes)
    } else if begins_as(bytes, TEXT_START) {
        text(bytes)
    } else {
        Err(HeaderFault::Absent)
    }
}

/// Returns whether `bytes` begin with `start`, or `start` begins with them.
fn begins_as(bytes: &[u8], start: &[u8]) -> bool {
    let len = bytes.len().min(start.len());
    bytes[..len] == start[..len]
}

fn text(bytes: &[u8]) -> Result<Header, HeaderFault> {
    let window = &bytes[..bytes.len().min(TEXT_LEN_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        let is_full = window.len() == TEXT_LEN_MAX;
        return if is_full { Err(HeaderFault::Broken) } else { Ok(Header::NeedMore) };
    };
    let line = window[..end].strip_suffix(b"\r").ok_or(HeaderFault::Broken)?;
    let line = std::str::from_utf8(line).map_err(|_| HeaderFault::Broken)?;
    let announced = announced_by_text(line).ok_or(HeaderFault::Broken)?;
    Ok(Header::Whole { announced, len: end + 1 })
}

fn announced_by_text(line: &str) -> Option<Announced> {
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    if family == "UNKNOWN" {
        // The protocol says that the rest is to be ignored.
        return Some(Announced::Unknown);
    }
    let (source, destination) = (words.next()?, words.next()?);
    let (port, destination_port) = (port(words.next()?)?, port(words.next()?)?);
    if words.next().is_some() {
        return None;
    }
    let source: IpAddr = source.parse().ok()?;
    let destination: IpAddr = destination.parse().ok()?;
    let is_right = match family {
        "TCP4" => source.is_ipv4() && destination.is_ipv4(),
        "TCP6" => source.is_ipv6() && destination.is_ipv6(),
        _ => false,
    };
    let _ = destination_port;
    is_right.then(|| Announced::Client(SocketAddr::new(source, port)))
}

/// Parses a decimal number without leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_plain = text == "0" || !text.starts_with('0');
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain && is_number)
}

fn binary(bytes: &[u8]) -> Result<Header, HeaderFault> {
    let Some(fixed) = bytes.first_chunk::<FIXED_LEN>() else {
        // A wrong byte is refused at once, because it will not be right later.
        let is_right = bytes.get(12).is_none_or(|version| version >> 4 == 2);
        return if is_right { Ok(Header::NeedMore) } else { Err(HeaderFault::Broken) };
    };
    let (command, family) = (fixed[12], fixed[13]);
    let len = FIXED_LEN + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if !matches!(command, 0x20 | 0x21) || family >> 4 > 3 || family & 15 > 2 {
        return Err(HeaderFault::Broken);
    }
    if len > HEADER_LEN_MAX {
        return Err(HeaderFault::TooLong);
    }
    let Some(header) = bytes.get(..len) else { return Ok(Header::NeedMore) };
    if command == 0x20 {
        return Ok(Header::Whole { announced: Announced::Own, len });
    }
    let said = &header[FIXED_LEN..];
    let (announced, addresses_len) = match family {
        0x11 => (addr_v4(said), 12),
        0x21 => (addr_v6(said), 36),
        0x31 => (said.get(..216).map(|_| Announced::Local), 216),
        // Datagrams and unspecified protocols: the address of the connection itself counts.
        _ => return Ok(Header::Whole { announced: Announced::Unknown, len }),
    };
    let announced = announced.ok_or(HeaderFault::Broken)?;
    check_fields(header, FIXED_LEN + addresses_len)?;
    Ok(Header::Whole { announced, len })
}

fn addr_v4(said: &[u8]) -> Option<Announced> {
    let said = said.first_chunk::<12>()?;
    let addr = Ipv4Addr::new(said[0], said[1], said[2], said[3]);
    let port = u16::from_be_bytes([said[8], said[9]]);
    Some(Announced::Client(SocketAddr::new(addr.into(), port)))
}

fn addr_v6(said: &[u8]) -> Option<Announced> {
    let said = said.first_chunk::<36>()?;
    let addr = Ipv6Addr::from(*said.first_chunk::<16>()?);
    let port = u16::from_be_bytes([said[32], said[33]]);
    Some(Announced::Client(SocketAddr::new(addr.into(), port)))
}

/// Checks the fields after the addresses, which begin at `at`.
fn check_fields(header: &[u8], mut at: usize) -> Result<(), HeaderFault> {
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else {
            return Err(HeaderFault::Broken);
        };
        let (from, len) = (at + 3, usize::from(u16::from_be_bytes([high, low])));
        let value = header.get(from..from + len).ok_or(HeaderFault::Broken)?;
        if kind == CHECKSUM {
            let told: [u8; 4] = value.try_into().map_err(|_| HeaderFault::Broken)?;
            if crc32c(header, from..from + 4) != u32::from_be_bytes(told) {
                return Err(HeaderFault::Checksum);
            }
        }
        at = from + len;
    }
    Ok(())
}

/// Returns CRC-32C of `bytes`, with zeros in place of those in `blank`.
fn crc32c(bytes: &[u8], blank: std::ops::Range<usize>) -> u32 {
    let one = |crc: u32, byte: u8| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    };
    let bytes = bytes.iter().enumerate();
    !bytes.fold(u32::MAX, |crc, (at, &byte)| one(crc, if blank.contains(&at) { 0 } else { byte }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(bytes: &[u8]) -> (Announced, usize) {
        match parse_header(bytes) {
            Ok(Header::Whole { announced, len }) => (announced, len),
            other => panic!("{other:?} of {bytes:?}"),
        }
    }

    fn client(text: &str) -> Announced {
        Announced::Client(text.parse().unwrap())
    }

    fn v2(command: u8, family: u8, said: &[u8]) -> Vec<u8> {
        let len = (said.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, said].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0xdc, 0x04, 0x18, 0xeb];

    #[test]
    fn the_lines_of_the_protocols_own_text_are_read() {
        for (line, announced) in [
            ("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", client("192.168.0.1:56324")),
            (
                "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
                client("255.255.255.255:65535"),
            ),
            (
                "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                client("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
            ),
            ("PROXY UNKNOWN\r\n", Announced::Unknown),
            (
                "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                Announced::Unknown,
            ),
        ] {
            let bytes = [line.as_bytes(), b"GET / HTTP/1.1\r\nHost: 192.168.0.11\r\n\r\n"].concat();
            assert_eq!(whole(&bytes), (announced, line.len()));
        }
    }

    #[test]
    fn headers_of_version_2_are_read() {
        assert_eq!(whole(&v2(0x21, 0x11, &V4)), (client("192.0.2.7:56324"), 28));
        let mut v6 = [0; 36];
        (v6[0], v6[15], v6[33]) = (0x20, 9, 80);
        assert_eq!(whole(&v2(0x21, 0x21, &v6)).0, client("[2000::9]:80"));
        assert_eq!(whole(&v2(0x21, 0x31, &[1; 216])).0, Announced::Local);
        assert_eq!(whole(&v2(0x20, 0, &[])), (Announced::Own, 16));
        assert_eq!(whole(&v2(0x20, 0x11, &V4)).0, Announced::Own);
        assert_eq!(whole(&v2(0x21, 0, b"whatever")).0, Announced::Unknown);
        assert_eq!(whole(&v2(0x21, 0x12, &V4)).0, Announced::Unknown);
        // A server's name and an unknown field follow the addresses.
        let fields = [&V4[..], &[2, 0, 3, b'a', b'.', b'b'], &[0xea, 0, 0]].concat();
        assert_eq!(whole(&v2(0x21, 0x11, &fields)), (client("192.0.2.7:56324"), 37));
    }

    #[test]
    fn a_checksum_that_is_there_must_be_right() {
        // This is the check value of CRC-32C.
        assert_eq!(crc32c(b"123456789", 0..0), 0xe306_9283);
        let fields = [&V4[..], &[CHECKSUM, 0, 4, 0, 0, 0, 0]].concat();
        let mut header = v2(0x21, 0x11, &fields);
        assert_eq!(parse_header(&header), Err(HeaderFault::Checksum));
        let (from, to) = (header.len() - 4, header.len());
        let sum = crc32c(&header, from..to);
        header[from..].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(whole(&header).0, client("192.0.2.7:56324"));
        header[17] ^= 1;
        assert_eq!(parse_header(&header), Err(HeaderFault::Checksum));
    }

    #[test]
    fn what_is_no_header_or_a_wrong_one_is_refused() {
        for bytes in
            [&b"*1\r\n$4\r\nPING\r\n"[..], b"PING\r\n", b"\x16\x03\x01", b"PROXZ ", b"\r\n\r\nX"]
        {
            assert_eq!(parse_header(bytes), Err(HeaderFault::Absent), "{bytes:?}");
        }
        for line in [
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
            "PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY \r\n",
        ] {
            assert_eq!(parse_header(line.as_bytes()), Err(HeaderFault::Broken), "{line}");
        }
        let endless = [b"PROXY UNKNOWN ", &[b'x'; 107][..]].concat();
        assert_eq!(parse_header(&endless), Err(HeaderFault::Broken));
        assert_eq!(parse_header(&v2(0x11, 0x11, &V4)), Err(HeaderFault::Broken));
        assert_eq!(parse_header(&v2(0x22, 0x11, &V4)), Err(HeaderFault::Broken));
        assert_eq!(parse_header(&v2(0x21, 0x41, &V4)), Err(HeaderFault::Broken));
        assert_eq!(parse_header(&v2(0x21, 0x13, &V4)), Err(HeaderFault::Broken));
        assert_eq!(parse_header(&v2(0x21, 0x11, &V4[..11])), Err(HeaderFault::Broken));
        assert_eq!(parse_header(&v2(0x21, 0x21, &V4)), Err(HeaderFault::Broken));
        let cut = [&V4[..], &[2, 0, 9, b'a']].concat();
        assert_eq!(parse_header(&v2(0x21, 0x11, &cut)), Err(HeaderFault::Broken));
        assert_eq!(parse_header(&v2(0x21, 0, &[0; 4081])), Err(HeaderFault::TooLong));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// A header that is cut anywhere is waited for, and bytes after it change nothing.
        #[test]
        fn where_a_header_is_cut_makes_no_difference(tail in prop::collection::vec(any::<u8>(), 0..40)) {
            let fields = [&V4[..], &[2, 0, 1, b'a']].concat();
            for header in [v2(0x21, 0x11, &fields), b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n".to_vec()] {
                for len in 0..header.len() {
                    prop_assert_eq!(parse_header(&header[..len]), Ok(Header::NeedMore));
                }
                let expected = parse_header(&header);
                prop_assert_eq!(parse_header(&[&header[..], &tail].concat()), expected);
            }
        }

        #[test]
        fn whatever_comes_is_a_header_or_a_fault(start in 0usize..3, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let starts = [&b""[..], SIGNATURE, TEXT_START];
            let bytes = [starts[start], &bytes].concat();
            if let Ok(Header::Whole { len, .. }) = parse_header(&bytes) {
                prop_assert!(len <= bytes.len() && len <= HEADER_LEN_MAX);
            }
        }
    }
}
