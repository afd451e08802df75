use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address to connect to or to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port of a host given by address or name.
    Tcp {
        /// IP address (without brackets) or host name.
        host: String,
        /// Port.
        port: u16,
    },
    /// A unix stream socket.
    Unix(PathBuf),
    /// Shared memory that is handed over through a unix stream socket.
    Shm(PathBuf),
}

impl Address {
    /// Returns the socket address, if the host is an IP address and needs no resolving.
    pub fn literal(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp { host, port } => {
                host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, *port))
            }
            Address::Unix(_) | Address::Shm(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Shm(path) => write!(f, "shm://{}", path.display()),
        }
    }
}

/// Longest path that the kernel takes for a unix socket: `sun_path` without its closing zero byte.
const PATH_LEN_MAX: usize = 107;

/// The reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    text: String,
    why: &'static str,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.text, self.why)
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads `host:port` or `[v6]:port`, optionally after `tcp://`, or `unix:///path` or
    /// `shm:///path`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |why| AddressError { text: text.to_owned(), why };
        let error =
            || wrong("is no address; write host:port, [v6]:port, unix:///path or shm:///path");
        let absolute = |path: &str| match path {
            path if path.len() > PATH_LEN_MAX => {
                Err(wrong("has too long a path; that of a socket has at most 107 bytes"))
            }
            path if path.starts_with('/') => Ok(PathBuf::from(path)),
            _ => Err(error()),
        };
        if let Some(path) = text.strip_prefix("unix://") {
            return absolute(path).map(Address::Unix);
        }
        if let Some(path) = text.strip_prefix("shm://") {
            if path.contains('?') {
                return Err(wrong("has options behind its path, which are for the client library"));
            }
            return absolute(path).map(Address::Shm);
        }
        let (host, port) =
            text.strip_prefix("tcp://").unwrap_or(text).rsplit_once(':').ok_or_else(error)?;
        let port = port.parse().map_err(|_| error())?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => inner,
            None if host.contains(':') => return Err(error()),
            None => host,
        };
        if host.is_empty() {
            return Err(error());
        }
        Ok(Address::Tcp { host: host.to_owned(), port })
    }
}

/// The other end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A TCP client.
    Tcp(SocketAddr),
    /// A process on the same host, through a unix socket.
    Unix,
    /// A process on the same host, at a listener with shared memory.
    Shm,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(addr) => addr.fmt(f),
            Peer::Unix => f.write_str("unix:0"),
            Peer::Shm => f.write_str("shm:0"),
        }
    }
}

/// Returns an IPv4 address in its own form, if an IPv6 socket reports it as `::ffff:192.0.2.1`.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, addr.port()),
        IpAddr::V6(_) => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_back_as_they_are_shown() {
        for text in [
            "127.0.0.1:80",
            "[::1]:80",
            "cache.example:6379",
            "unix:///run/k.sock",
            "shm:///run/k.shm",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        for text in
            ["", ":80", "host", "host:", "host:70000", "::1:80", "unix://rel", "shm://rel", "[]:1"]
        {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains("is no address; write host:port"), "{error}");
        }
        let long = format!("unix:///{}", "x".repeat(PATH_LEN_MAX));
        assert!(long[..long.len() - 1].parse::<Address>().is_ok());
        for (text, told) in [(&*long, "at most 107 bytes"), ("shm:///k?spin=0", "has options")] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
