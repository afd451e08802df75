use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Where to connect to or listen on.
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
    /// The socket address, when the host is an IP address and needs no
    /// resolving.
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

/// Why text is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no address; write host:port, [v6]:port, unix:///path or shm:///path",
            self.0
        )
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads `host:port`, `[v6]:port`, either after `tcp://`, or
    /// `unix:///path` or `shm:///path`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError(text.to_owned());
        let absolute = |path: &str| {
            let path = path.starts_with('/').then(|| PathBuf::from(path));
            path.ok_or_else(error)
        };
        if let Some(path) = text.strip_prefix("unix://") {
            return absolute(path).map(Address::Unix);
        }
        if let Some(path) = text.strip_prefix("shm://") {
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

/// Who is at the other end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A TCP client.
    Tcp(SocketAddr),
    /// A process on the same host, through a unix socket.
    Unix,
    /// A process on the same host that has come in where memory is shared.
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
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
