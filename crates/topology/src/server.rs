use std::borrow::Cow;
use std::fmt;

use crate::endpoint::{Endpoint, EndpointError, check_host, parse_port, shm_path, unix_path};

/// memcached's port. libmemcached leaves it out of the text that it hashes, so twemproxy and Keyway
/// leave it out too.
const PORT_LEFT_OUT_OF_RING_NAME: u16 = 11211;

/// One server of a pool, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address.
    pub endpoint: Endpoint,
    /// The name that is hashed onto the ring instead of the address, so that a server can move to
    /// another machine and keep its keys.
    pub name: Option<String>,
    /// Its share of the keys relative to the other servers', 1 to 2^31 - 1.
    pub weight: u32,
}

/// The reason why a text is not a [`Server`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// The address is invalid.
    Endpoint(EndpointError),
    /// The weight is not a number from 1 to 2^31 - 1.
    Weight,
    /// A blank is not followed by a name.
    Name,
    /// There are more colons than in `host:port:weight`, and no brackets to tell an IPv6 address
    /// from the rest.
    Colons,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Endpoint(error) => error.fmt(f),
            ServerError::Weight => f.write_str(
                "has no valid weight: write host:port:weight with a weight of 1 or more",
            ),
            ServerError::Name => {
                f.write_str("has no valid name: write \"host:port:weight name\", one blank between")
            }
            ServerError::Colons => {
                f.write_str("has too many colons: write host:port:weight, or [IPv6]:port:weight")
            }
        }
    }
}

impl std::error::Error for ServerError {}

impl From<EndpointError> for ServerError {
    fn from(error: EndpointError) -> Self {
        ServerError::Endpoint(error)
    }
}

impl Server {
    /// Creates a server of weight 1 without a name.
    pub fn new(endpoint: Endpoint) -> Server {
        Server { endpoint, name: None, weight: 1 }
    }

    /// Reads `host:port[:weight] [name]`, `[IPv6]:port[:weight] [name]` or `/path[:weight] [name]`
    /// (also with `unix://` or `shm://` before the path). The weight is 1 if it is left out. Every
    /// line that twemproxy accepts is accepted, including an IPv6 address without brackets, for
    /// which the weight must be given.
    ///
    /// # Errors
    /// Returns the part that is wrong.
    pub fn parse(text: &str) -> Result<Server, ServerError> {
        let (address, name) = match text.rsplit_once(' ') {
            None => (text, None),
            Some((_, "")) => return Err(ServerError::Name),
            Some((address, name)) => (address, Some(name.to_owned())),
        };
        if let Some(name) = &name
            && (address.ends_with(' ') || name.contains(char::is_control))
        {
            return Err(ServerError::Name);
        }
        if let Some(path) = unix_path(address) {
            return parse_path(path, Endpoint::unix, name);
        }
        if let Some(path) = shm_path(address) {
            return parse_path(path, Endpoint::shm, name);
        }
        parse_tcp(address, name)
    }

    /// Returns the text whose hash places the server on a ketama ring: its name, or twemproxy's
    /// text if it has none. That is `host:port` (`host` alone for port 11211), and for a unix
    /// socket the path followed by a colon.
    pub fn ring_name(&self) -> Cow<'_, str> {
        match (&self.name, &self.endpoint) {
            (Some(name), _) => Cow::Borrowed(name),
            (None, Endpoint::Tcp { host, port: PORT_LEFT_OUT_OF_RING_NAME }) => Cow::Borrowed(host),
            (None, Endpoint::Tcp { host, port }) => Cow::Owned(format!("{host}:{port}")),
            (None, Endpoint::Unix { path } | Endpoint::Shm { path }) => {
                Cow::Owned(format!("{}:", path.display()))
            }
        }
    }

    /// Returns the server's name, else its endpoint, for logs and metric labels.
    pub fn label(&self) -> Cow<'_, str> {
        match &self.name {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(self.endpoint.to_string()),
        }
    }

    /// Returns the first two servers with the same ring name, as indices. They would share every
    /// point of a ring, and one of them would get no key. A configuration with such a pair is
    /// refused, as twemproxy does.
    pub fn find_same_ring_name(servers: &[Server]) -> Option<(usize, usize)> {
        let mut names: Vec<_> = servers.iter().map(Server::ring_name).zip(0..).collect();
        names.sort();
        let pair = names.windows(2).find(|pair| pair[0].0 == pair[1].0)?;
        Some((pair[0].1, pair[1].1))
    }
}

/// Reads `path` or `path:weight`.
fn parse_path(
    address: &str,
    endpoint: impl Fn(&str) -> Result<Endpoint, EndpointError>,
    name: Option<String>,
) -> Result<Server, ServerError> {
    let (path, weight) = match address.rsplit_once(':') {
        None => (address, 1),
        Some((path, weight)) => (path, parse_weight(weight)?),
    };
    Ok(Server { endpoint: endpoint(path)?, name, weight })
}

/// Reads `host:port` or `host:port:weight`.
fn parse_tcp(address: &str, name: Option<String>) -> Result<Server, ServerError> {
    let (host, port, weight) = if let Some(rest) = address.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(EndpointError::Ipv6)?;
        if !host.contains(':') {
            return Err(EndpointError::Ipv6.into());
        }
        let rest = rest.strip_prefix(':').ok_or(EndpointError::Port)?;
        match rest.split_once(':') {
            None => (host, rest, None),
            Some((port, weight)) => (host, port, Some(weight)),
        }
    } else {
        let mut parts = address.rsplitn(3, ':');
        let last = parts.next().ok_or(EndpointError::Port)?;
        let middle = parts.next().ok_or(EndpointError::Port)?;
        match parts.next() {
            None => (middle, last, None),
            Some(host) => (host, middle, Some(last)),
        }
    };
    let weight = weight.map_or(Ok(1), parse_weight)?;
    let port_number = parse_port(port)?;
    check_host(host).map_err(|error| match error {
        EndpointError::Ipv6 if !address.starts_with('[') => ServerError::Colons,
        error => ServerError::Endpoint(error),
    })?;
    // twemproxy hashes the port as written: `h:06379` is not `h:6379` on its ring. The name keeps
    // the spelling.
    let name = match name {
        None if port.starts_with('0') && port_number != PORT_LEFT_OUT_OF_RING_NAME => {
            Some(format!("{host}:{port}"))
        }
        name => name,
    };
    Ok(Server { endpoint: Endpoint::tcp(host, port_number)?, name, weight })
}

fn parse_weight(text: &str) -> Result<u32, ServerError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ServerError::Weight);
    }
    match text.parse::<i32>() {
        Ok(weight) if weight > 0 => Ok(weight.unsigned_abs()),
        _ => Err(ServerError::Weight),
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.endpoint, self.weight)?;
        match &self.name {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Option<String>, u32, String) {
        let server = Server::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let ring_name = server.ring_name().into_owned();
        (server.endpoint.to_string(), server.name, server.weight, ring_name)
    }

    #[test]
    fn every_form_is_read() {
        for (text, endpoint, name, weight, ring_name) in [
            ("10.0.0.1:6379:1 alpha", "10.0.0.1:6379", Some("alpha"), 1, "alpha"),
            ("10.0.0.1:6379:7", "10.0.0.1:6379", None, 7, "10.0.0.1:6379"),
            ("10.0.0.1:6379", "10.0.0.1:6379", None, 1, "10.0.0.1:6379"),
            ("10.0.0.1:6379 beta", "10.0.0.1:6379", Some("beta"), 1, "beta"),
            ("mc.example:11211:1", "mc.example:11211", None, 1, "mc.example"),
            ("mc:11211:1 m", "mc:11211", Some("m"), 1, "m"),
            ("h:06379:1", "h:6379", Some("h:06379"), 1, "h:06379"),
            ("h:011211:1", "h:11211", None, 1, "h"),
            ("[::1]:6379", "[::1]:6379", None, 1, "::1:6379"),
            ("[::1]:6379:3 six", "[::1]:6379", Some("six"), 3, "six"),
            ("::1:6379:3", "[::1]:6379", None, 3, "::1:6379"),
            ("shm:///run/a.shm:2 s", "shm:///run/a.shm", Some("s"), 2, "s"),
            ("/run/a.sock:2", "unix:///run/a.sock", None, 2, "/run/a.sock:"),
            ("/run/a.sock:2 a", "unix:///run/a.sock", Some("a"), 2, "a"),
            ("unix:///run/a.sock", "unix:///run/a.sock", None, 1, "/run/a.sock:"),
            ("h:1:2147483647", "h:1", None, 2_147_483_647, "h:1"),
        ] {
            let expected =
                (endpoint.to_owned(), name.map(str::to_owned), weight, ring_name.to_owned());
            assert_eq!(parsed(text), expected, "{text}");
            let server = Server::parse(text).unwrap();
            assert_eq!(Server::parse(&server.to_string()), Ok(server), "{text}");
        }
    }

    #[test]
    fn refusals_name_the_part_that_is_wrong() {
        for (text, error) in [
            ("", ServerError::Endpoint(EndpointError::Port)),
            ("h", ServerError::Endpoint(EndpointError::Port)),
            ("h:x:1", ServerError::Endpoint(EndpointError::Port)),
            ("h:0:1", ServerError::Endpoint(EndpointError::Port)),
            (":6379:1", ServerError::Endpoint(EndpointError::Host)),
            ("h:6379:0", ServerError::Weight),
            ("h:6379:-1", ServerError::Weight),
            ("h:6379:", ServerError::Weight),
            ("h:6379:2147483648", ServerError::Weight),
            ("h:6379:1 ", ServerError::Name),
            ("h:6379:1  name", ServerError::Name),
            ("h:6379:1 two names", ServerError::Weight),
            ("::1:6379", ServerError::Colons),
            ("a:b:6379:1", ServerError::Colons),
            ("[h]:6379", ServerError::Endpoint(EndpointError::Ipv6)),
            ("/run/a:b", ServerError::Weight),
        ] {
            assert_eq!(Server::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn servers_of_one_ring_name_are_found() {
        let servers = |texts: &[&str]| -> Vec<Server> {
            texts.iter().map(|text| Server::parse(text).unwrap()).collect()
        };
        assert_eq!(Server::find_same_ring_name(&servers(&["a:1", "b:1", "c:1"])), None);
        assert_eq!(Server::find_same_ring_name(&servers(&["b:1 x", "a:1", "c:1 x"])), Some((0, 2)));
    }
}
