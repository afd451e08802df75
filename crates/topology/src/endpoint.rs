use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

/// The address at which a backend listens.
///
/// The text form, for reading and printing, is `host:port` with an IPv6 address in brackets,
/// `unix:///path` or `shm:///path`. Reading also takes a bare absolute path. A host name is kept as
/// written: it is resolved anew for every connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// A TCP address.
    Tcp {
        /// Host name, IPv4 address, or IPv6 address without brackets.
        host: String,
        /// 1 to 65535.
        port: u16,
    },
    /// A unix stream socket.
    Unix {
        /// Absolute path of the socket file.
        path: PathBuf,
    },
    /// Memory shared with a process on this host.
    Shm {
        /// Absolute path of the socket file through which the memory is handed over.
        path: PathBuf,
    },
}

/// The reason why a text is not an [`Endpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointError {
    /// The host is missing, or holds a blank, a slash or a stray bracket.
    Host,
    /// The port is missing, or is not a number from 1 to 65535.
    Port,
    /// The bracketed host is not an IPv6 address, or there is more than one colon outside brackets.
    Ipv6,
    /// The path of a unix socket is not absolute.
    Path,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndpointError::Host => "has no valid host: write host:port, such as 10.0.0.1:6379",
            EndpointError::Port => "has no valid port: write host:port with a port of 1 to 65535",
            EndpointError::Ipv6 => "is not a valid IPv6 address: write [address]:port",
            EndpointError::Path => "is not an absolute path: write unix:///path/to/socket",
        })
    }
}

impl std::error::Error for EndpointError {}

/// Returns the path in `unix:///path`, or a bare absolute path.
pub(crate) fn unix_path(text: &str) -> Option<&str> {
    match text.strip_prefix("unix://") {
        Some(path) => Some(path),
        None => text.starts_with('/').then_some(text),
    }
}

/// Returns the path in `shm:///path`.
pub(crate) fn shm_path(text: &str) -> Option<&str> {
    text.strip_prefix("shm://")
}

/// Reads a port from 1 to 65535, in decimal digits only. Leading zeros are accepted, because
/// twemproxy accepts them.
pub(crate) fn parse_port(text: &str) -> Result<u16, EndpointError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EndpointError::Port);
    }
    match text.parse() {
        Ok(0) | Err(_) => Err(EndpointError::Port),
        Ok(port) => Ok(port),
    }
}

/// Checks a host given without brackets: a name, an IPv4 or an IPv6 address.
pub(crate) fn check_host(host: &str) -> Result<(), EndpointError> {
    let stray = |char: char| {
        char.is_whitespace() || char.is_control() || matches!(char, '/' | '[' | ']' | '@')
    };
    if host.is_empty() || host.contains(stray) {
        return Err(EndpointError::Host);
    }
    if host.contains(':') {
        // The zone (`fe80::1%eth0`) is resolved for each connection.
        let address = host.split_once('%').map_or(host, |(address, _)| address);
        Ipv6Addr::from_str(address).map_err(|_| EndpointError::Ipv6)?;
    }
    Ok(())
}

fn checked_path(path: &str) -> Result<PathBuf, EndpointError> {
    if path.len() < 2 || !path.starts_with('/') || path.contains('\0') {
        return Err(EndpointError::Path);
    }
    Ok(PathBuf::from(path))
}

impl Endpoint {
    /// Creates a TCP endpoint. `host` has no brackets.
    ///
    /// # Errors
    /// Returns an error if `host` is not a possible host name or address, or if `port` is 0.
    pub fn tcp(host: &str, port: u16) -> Result<Endpoint, EndpointError> {
        check_host(host)?;
        if port == 0 {
            return Err(EndpointError::Port);
        }
        Ok(Endpoint::Tcp { host: host.to_owned(), port })
    }

    /// Creates a unix socket endpoint.
    ///
    /// # Errors
    /// Returns an error if `path` is not absolute or holds a NUL byte.
    pub fn unix(path: &str) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint::Unix { path: checked_path(path)? })
    }

    /// Creates an endpoint in shared memory.
    ///
    /// # Errors
    /// Returns an error as [`Endpoint::unix`] does.
    pub fn shm(path: &str) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint::Shm { path: checked_path(path)? })
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        if let Some(path) = unix_path(text) {
            return Endpoint::unix(path);
        }
        if let Some(path) = shm_path(text) {
            return Endpoint::shm(path);
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or(EndpointError::Ipv6)?;
            if !host.contains(':') {
                return Err(EndpointError::Ipv6);
            }
            let port = port.strip_prefix(':').ok_or(EndpointError::Port)?;
            return Endpoint::tcp(host, parse_port(port)?);
        }
        let (host, port) = text.rsplit_once(':').ok_or(EndpointError::Port)?;
        if host.contains(':') {
            return Err(EndpointError::Ipv6);
        }
        Endpoint::tcp(host, parse_port(port)?)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix { path } => write!(f, "unix://{}", path.display()),
            Endpoint::Shm { path } => write!(f, "shm://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_survives_a_round_trip() {
        for text in [
            "10.0.0.1:6379",
            "cache-1.example.net:1",
            "localhost:65535",
            "[::1]:6379",
            "[2001:db8::7]:11211",
            "[fe80::1%eth0]:6379",
            "unix:///run/redis.sock",
            "unix:///tmp/a:b c",
            "shm:///run/keyway.shm",
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
        }
        assert_eq!("/run/r".parse::<Endpoint>(), Endpoint::unix("/run/r"));
        assert_eq!("h:06379".parse::<Endpoint>().unwrap().to_string(), "h:6379");
    }

    #[test]
    fn refusals_name_the_part_that_is_wrong() {
        for (text, error) in [
            ("", EndpointError::Port),
            ("host", EndpointError::Port),
            ("host:", EndpointError::Port),
            ("host:0", EndpointError::Port),
            ("host:65536", EndpointError::Port),
            ("host:+1", EndpointError::Port),
            ("host:6379x", EndpointError::Port),
            ("[::1]", EndpointError::Port),
            ("[::1]6379", EndpointError::Port),
            (":6379", EndpointError::Host),
            ("a b:6379", EndpointError::Host),
            ("redis://h:6379", EndpointError::Ipv6),
            ("a/b:6379", EndpointError::Host),
            ("::1:6379", EndpointError::Ipv6),
            ("[::1:6379", EndpointError::Ipv6),
            ("[host]:6379", EndpointError::Ipv6),
            ("[1:2]:6379", EndpointError::Ipv6),
            ("/", EndpointError::Path),
            ("unix://run/x", EndpointError::Path),
            ("unix://", EndpointError::Path),
            ("shm://run/x", EndpointError::Path),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(error), "{text}");
        }
    }
}
