//! Where to connect to.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Capacity of each ring where a URL says nothing, in bytes.
const RING_LEN: usize = 256 << 10;

/// How long who waits looks at a ring before it sleeps, where a URL says nothing.
const SPIN: Duration = Duration::from_micros(20);

/// A place that a server listens at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `tcp://host:port`; an IPv6 address stands in brackets.
    Tcp {
        /// Name or address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// `unix:///path`.
    Unix {
        /// Of the socket.
        path: PathBuf,
    },
    /// `shm:///path?ring=256k&spin=20us`.
    Shared {
        /// Of the socket through which the memory is handed over.
        path: PathBuf,
        /// Capacity of each of the two rings, in bytes.
        ring_len: usize,
        /// For how long who waits looks at a ring before it sleeps; none at all when zero.
        spin: Duration,
    },
}

/// Why a text is no [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointError(String);

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EndpointError {}

const KNOWN: &str = "shm:///path, unix:///path or tcp://host:port";

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let wrong = |what: &str| EndpointError(format!("\"{text}\": {what}"));
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong(&format!("expected {KNOWN}")));
        };
        match scheme {
            "tcp" => tcp(rest).map_err(|what| wrong(&what)),
            "unix" => Ok(Endpoint::Unix { path: path(rest).map_err(|what| wrong(&what))? }),
            "shm" => shared(rest).map_err(|what| wrong(&what)),
            other => Err(wrong(&format!("nothing is called {other}://, expected {KNOWN}"))),
        }
    }
}

fn tcp(rest: &str) -> Result<Endpoint, String> {
    let expected = "expected tcp://host:port";
    let (host, port) = rest.rsplit_once(':').ok_or(format!("no port, {expected}"))?;
    let port = port.parse().map_err(|_| format!("\"{port}\" is no port from 0 to 65535"))?;
    let host = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
        Some(Some(host)) => host,
        Some(None) => return Err(format!("a bracket that does not end, {expected}")),
        None if host.contains(':') => {
            return Err(format!("an IPv6 address stands in brackets: tcp://[{host}]:{port}"));
        }
        None => host,
    };
    if host.is_empty() || host.contains(['/', '@', '?']) {
        return Err(format!("\"{host}\" is no host, {expected}"));
    }
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

fn path(rest: &str) -> Result<PathBuf, String> {
    if rest.starts_with('/') {
        return Ok(PathBuf::from(rest));
    }
    Err("a path begins with a slash, so that there are three".to_owned())
}

fn shared(rest: &str) -> Result<Endpoint, String> {
    let (at, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (path, mut ring_len, mut spin) = (path(at)?, RING_LEN, SPIN);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("ring", len)) => {
                ring_len = size(len).ok_or(format!("ring=\"{len}\" is no size, as 64k or 1m"))?;
            }
            Some(("spin", text)) => {
                spin = micros(text).ok_or(format!("spin=\"{text}\" is no time, as 0 or 20us"))?;
            }
            _ => {
                return Err(format!("\"{option}\" is not known here, ring=256k and spin=20us are"));
            }
        }
    }
    Ok(Endpoint::Shared { path, ring_len, spin })
}

fn size(text: &str) -> Option<usize> {
    let (number, unit) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 1 << 10),
        b'm' => (&text[..text.len() - 1], 1 << 20),
        b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<usize>().ok().filter(|&len| len > 0)?.checked_mul(unit)
}

fn micros(text: &str) -> Option<Duration> {
    let number = text.strip_suffix("us").unwrap_or(text);
    number.parse().ok().filter(|&number| number <= 1_000_000).map(Duration::from_micros)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => {
                write!(f, "tcp://[{host}]:{port}")
            }
            Endpoint::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Endpoint::Unix { path } => write!(f, "unix://{}", path.display()),
            Endpoint::Shared { path, .. } => write!(f, "shm://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Endpoint, String> {
        text.parse().map_err(|error: EndpointError| error.to_string())
    }

    #[test]
    fn each_form_is_read_and_told_again() {
        let texts =
            ["tcp://cache:6379", "tcp://[::1]:1", "unix:///run/a b.sock", "shm:///run/keyway.shm"];
        for text in texts {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        let Endpoint::Shared { path, ring_len, spin } = parse("shm:///k?ring=1m&spin=0").unwrap()
        else {
            panic!("shared memory was asked for")
        };
        assert_eq!((path, ring_len, spin), (PathBuf::from("/k"), 1 << 20, Duration::ZERO));
    }

    #[test]
    fn what_is_wrong_is_told_with_what_is_expected() {
        for (text, told) in [
            ("", "expected shm:///path"),
            ("127.0.0.1:6379", "expected shm:///path"),
            ("redis://a:1", "nothing is called redis://"),
            ("tcp://a", "no port"),
            ("tcp://a:b", "\"b\" is no port"),
            ("tcp://a:70000", "\"70000\" is no port"),
            ("tcp://:1", "is no host"),
            ("tcp://user@a:1", "is no host"),
            ("tcp://::1:1", "tcp://[::1]:1"),
            ("tcp://[::1:1", "a bracket that does not end"),
            ("unix://run/a", "begins with a slash"),
            ("shm://", "begins with a slash"),
            ("shm:///a?ring=0", "is no size"),
            ("shm:///a?ring=99999999999999999999g", "is no size"),
            ("shm:///a?ring=18446744073709551615g", "is no size"),
            ("shm:///a?ring=", "is no size"),
            ("shm:///a?ring=\u{e9}", "is no size"),
            ("shm:///a?spin=x", "is no time"),
            ("shm:///a?spin", "\"spin\" is not known"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
