//! Addresses of nodes.
//!
//! | written | means |
//! | --- | --- |
//! | `tcp://host:port` | TCP to an IPv4 or IPv6 address or a name; `ipv4:// ipv6:// dns:// atcp://` with what they promise |
//! | `unix:///path`, `unix://@name` | a unix socket, in the file system or Linux's abstract names; also `pipe://` |
//! | `shm:///path`, `shm://@name`, `shm://KEY` | shared memory handed over through that unix socket; `?ring=1m` |
//! | `mem://name` | within one process |

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Longest URL, in bytes: it is sent in announcements.
pub const URL_LEN_MAX: usize = 200;
/// Longest path of a unix socket, in bytes, for the system.
const PATH_LEN_MAX: usize = 107;
/// The default capacity of a ring, if the URL has none.
const RING_LEN: usize = 256 << 10;
const ACCEPTED: &str = "tcp://host:port, unix:///path, unix://@name, shm:///path, mem://name; \
    also ipv4://, ipv6://, dns://, atcp://, pipe://";

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Url {
    /// TCP.
    Tcp {
        /// An address or a name.
        host: Host,
        /// Its port; 0 to listen on any.
        port: u16,
    },
    /// A unix socket.
    Unix(SocketName),
    /// Rings in shared memory.
    Shm {
        /// The unix socket through which they are handed over.
        at: SocketName,
        /// Bytes of the ring in each direction: a power of two from 64 KiB to 64 MiB.
        ring_len: usize,
    },
    /// Within one process.
    Mem(String),
}

/// The host of a TCP address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name, which is resolved at each attempt.
    Name(String),
}

/// The address of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketName {
    /// A path in the file system.
    Path(String),
    /// A name in Linux's abstract namespace.
    Abstract(String),
}

/// The reason why a text is not an address, and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlFault(pub String);

impl fmt::Display for UrlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlFault {}

impl FromStr for Url {
    type Err = UrlFault;

    fn from_str(text: &str) -> Result<Self, UrlFault> {
        let shown: String = text.chars().take(URL_LEN_MAX).collect();
        let fault = |what: &str| UrlFault(format!("`{shown}` {what}"));
        if text.len() > URL_LEN_MAX || text.chars().any(|one| one.is_control() || one == ' ') {
            return Err(fault(&format!("is longer than {URL_LEN_MAX} bytes, or has spaces in it")));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(fault(&format!("is no address: {ACCEPTED}")));
        };
        let url = match scheme.to_ascii_lowercase().as_str() {
            "tcp" | "atcp" => tcp(rest, |_| true, "address or name"),
            "ipv4" => tcp(rest, |host| matches!(host, Host::Ip(IpAddr::V4(_))), "IPv4 address"),
            "ipv6" => tcp(rest, |host| matches!(host, Host::Ip(IpAddr::V6(_))), "IPv6 address"),
            "dns" => tcp(rest, |_| true, "name"),
            "unix" | "pipe" => unix(rest).map(Url::Unix),
            "shm" => shm(rest),
            "mem" => mem(rest),
            _ => Err(format!("begins with `{scheme}://`, which is not among {ACCEPTED}")),
        };
        url.map_err(|what| fault(&what))
    }
}

fn tcp(rest: &str, is_right: fn(&Host) -> bool, what: &str) -> Result<Url, String> {
    // libatbus writes IPv6 addresses without brackets: `ipv6://::1:16387`.
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| "has no port: host:port".to_owned())?;
    let port = decimal(port).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or_else(|| "has a port that is no number up to 65535".to_owned())?;
    let host = read_host(host)
        .filter(is_right)
        .ok_or_else(|| format!("has no {what} in front of its port"))?;
    Ok(Url::Tcp { host, port })
}

fn decimal(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

fn read_host(text: &str) -> Option<Host> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Ok(ip) = bare.unwrap_or(text).parse::<Ipv6Addr>() {
        return Some(Host::Ip(ip.into()));
    }
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Some(Host::Ip(ip.into()));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let last = text.rsplit('.').find(|part| !part.is_empty())?;
    // A text that ends in digits is an invalid address, such as `10.0.0.256`.
    let is_wrong = last.bytes().all(|byte| byte.is_ascii_digit());
    (text.len() <= 253 && !is_wrong && text.bytes().all(is_name))
        .then(|| Host::Name(text.to_owned()))
}

fn unix(rest: &str) -> Result<SocketName, String> {
    if let Some(name) = rest.strip_prefix('@') {
        let is_plain = !name.contains(['?', '#']);
        if name.is_empty() || name.len() >= PATH_LEN_MAX || !is_plain {
            return Err(format!(
                "has a name of no, or of {PATH_LEN_MAX} and more bytes, or with `?` or `#`"
            ));
        }
        return Ok(SocketName::Abstract(name.to_owned()));
    }
    Ok(SocketName::Path(read_path(rest)?))
}

fn read_path(rest: &str) -> Result<String, String> {
    if !rest.starts_with('/') {
        return Err("has no path that begins with a slash: three slashes in all".to_owned());
    }
    if rest.len() > PATH_LEN_MAX || rest.ends_with('/') || rest.contains(['?', '#']) {
        return Err(format!(
            "has no path of a socket: at most {PATH_LEN_MAX} bytes, no `?` or `#`, no slash at its end"
        ));
    }
    Ok(rest.to_owned())
}

fn shm(rest: &str) -> Result<Url, String> {
    let (name, query) =
        rest.split_once('?').map_or((rest, None), |(name, query)| (name, Some(query)));
    // libatbus has keys of System V shared memory here. Keyway's memory has no name in the system,
    // but the socket through which it is handed over has: a key is a name like any other.
    let hex = name.strip_prefix("0x").unwrap_or_default();
    let is_hex =
        !hex.is_empty() && hex.len() <= 16 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = match is_hex {
        true => u64::from_str_radix(hex, 16).ok(),
        false => decimal(name),
    };
    let at = match key {
        Some(key) => SocketName::Abstract(format!("keyway.shm.{key}")),
        None => unix(name)?,
    };
    let ring_len = match query {
        None => RING_LEN,
        Some(query) => query
            .strip_prefix("ring=")
            .and_then(read_len)
            .filter(|len| len.is_power_of_two() && (64 << 10..=64 << 20).contains(len))
            .ok_or("takes one option, ring=LENGTH: a power of two from 64k to 64m")?,
    };
    Ok(Url::Shm { at, ring_len })
}

fn read_len(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    usize::try_from(decimal(digits)?).ok()?.checked_mul(1 << shift)
}

fn mem(rest: &str) -> Result<Url, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if rest.is_empty() || rest.len() > 63 || !rest.bytes().all(is_plain) {
        return Err("has no name of 1 to 63 letters, digits and -_.".to_owned());
    }
    Ok(Url::Mem(rest.to_owned()))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Url::Tcp { host: Host::Ip(IpAddr::V6(ip)), port } => write!(f, "tcp://[{ip}]:{port}"),
            Url::Tcp { host: Host::Ip(ip), port } => write!(f, "tcp://{ip}:{port}"),
            Url::Tcp { host: Host::Name(name), port } => write!(f, "tcp://{name}:{port}"),
            Url::Unix(at) => write!(f, "unix://{at}"),
            Url::Shm { at, ring_len: RING_LEN } => write!(f, "shm://{at}"),
            Url::Shm { at, ring_len } => write!(f, "shm://{at}?ring={}k", ring_len >> 10),
            Url::Mem(name) => write!(f, "mem://{name}"),
        }
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketName::Path(path) => f.write_str(path),
            SocketName::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

/// The place of a process: two with the same place may share more than a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The boot id of the running system; zeros if it is not known.
    pub host: [u8; 16],
    /// The process on it, as a number drawn at its start; 0 if it is not known.
    pub process: u64,
}

impl Place {
    /// Returns whether `other` is on the same host, as far as both are known.
    pub fn is_host_of(self, other: Place) -> bool {
        self.host == other.host && self.host != [0; 16]
    }
}

/// Returns the addresses of a node at `there` for a node at `here`: nearest first, without
/// impossible ones. Only connecting shows whether an address works: the dialler tries them in this
/// order.
pub fn by_nearness(urls: &[Url], here: Place, there: Place) -> Vec<Url> {
    let same_host = here.is_host_of(there);
    let same_process = same_host && here.process == there.process && here.process != 0;
    let rank = |url: &Url| match url {
        Url::Mem(_) => same_process.then_some(0),
        Url::Shm { .. } => same_host.then_some(1),
        Url::Unix(_) => same_host.then_some(2),
        Url::Tcp { .. } => Some(3),
    };
    let mut ranked: Vec<(u8, &Url)> =
        urls.iter().filter_map(|url| Some((rank(url)?, url))).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, url)| url.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> String {
        text.parse::<Url>().unwrap_or_else(|fault| panic!("{fault}")).to_string()
    }

    #[test]
    fn urls_are_read_in_both_manners() {
        for (text, expected) in [
            ("tcp://127.0.0.1:6390", "tcp://127.0.0.1:6390"),
            ("tcp://[::1]:6390", "tcp://[::1]:6390"),
            ("ipv4://10.0.0.1:80", "tcp://10.0.0.1:80"),
            ("ipv6://::1:16387", "tcp://[::1]:16387"),
            ("ipv6://[::1]:16387", "tcp://[::1]:16387"),
            ("dns://cache-1.example:80", "tcp://cache-1.example:80"),
            ("atcp://localhost:80", "tcp://localhost:80"),
            ("unix:///run/a.sock", "unix:///run/a.sock"),
            ("pipe:///run/a.sock", "unix:///run/a.sock"),
            ("unix://@name", "unix://@name"),
            ("shm:///run/a.shm", "shm:///run/a.shm"),
            ("shm:///run/a.shm?ring=1m", "shm:///run/a.shm?ring=1024k"),
            ("shm://12345", "shm://@keyway.shm.12345"),
            ("shm://0x3039", "shm://@keyway.shm.12345"),
            ("mem://a", "mem://a"),
            ("mem://0x7f00", "mem://0x7f00"),
            ("TCP://h:1", "tcp://h:1"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_what_is() {
        for text in [
            "",
            "tcp",
            "tcp://",
            "tcp://a",
            "tcp://a:",
            "tcp://a:65536",
            "tcp://:1",
            "tcp://10.0.0.256:1",
            "ipv4://::1:1",
            "ipv6://1.2.3.4:1",
            "ipv4://name:1",
            "unix://",
            "unix://a",
            "unix://@",
            "unix:///a/",
            "shm://a",
            "shm://0xzz",
            "shm:///a?ring=3k",
            "shm:///a?spin=1",
            "mem://",
            "mem://a/b",
            "http://a:1",
            "tcp://a b:1",
            "tcp://a:+1",
        ] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
        let fault = "http://a:1".parse::<Url>().unwrap_err().to_string();
        assert!(fault.contains("tcp://host:port") && fault.contains("mem://name"), "{fault}");
        let fault = "shm://a".parse::<Url>().unwrap_err().to_string();
        assert!(fault.starts_with("`shm://a` has no path"), "{fault}");
    }

    #[test]
    fn the_nearest_way_comes_first_and_impossible_ones_not_at_all() {
        let urls: Vec<Url> = ["tcp://h:1", "unix:///u", "mem://m", "shm:///s"]
            .map(|url| url.parse().unwrap())
            .to_vec();
        let shown = |there: Place| -> Vec<String> {
            let here = Place { host: [1; 16], process: 5 };
            by_nearness(&urls, here, there).iter().map(|url| url.to_string()).collect()
        };
        assert_eq!(shown(Place { host: [2; 16], process: 5 }), ["tcp://h:1"]);
        assert_eq!(
            shown(Place { host: [1; 16], process: 6 }),
            ["shm:///s", "unix:///u", "tcp://h:1"]
        );
        assert_eq!(shown(Place { host: [1; 16], process: 5 })[0], "mem://m");
        assert_eq!(shown(Place::default()), ["tcp://h:1"]);
    }

    proptest! {
        #[test]
        fn a_url_reads_as_it_is_written(text in "(tcp|unix|shm|mem|dns|ipv6|pipe)://[/@a-z0-9:.?=\\[\\]k-]{0,40}") {
            if let Ok(url) = text.parse::<Url>() {
                prop_assert_eq!(url.to_string().parse::<Url>().unwrap(), url);
            }
        }

        #[test]
        fn no_text_is_a_panic(text in ".{0,80}") {
            let _ = text.parse::<Url>();
        }
    }
}
