//! Addresses as they are written: of listeners, and of servers.

use crate::error::{Problem, quoted};
use keyway_topology::{Endpoint, EndpointError, Server, ServerError};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// The address at which a listener accepts connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddr {
    /// `tcp://127.0.0.1:6380`, `tcp://[::1]:6380`. With port 0 the kernel chooses a port.
    Tcp(SocketAddr),
    /// `unix:///run/keyway.sock`: an absolute path.
    Unix(PathBuf),
    /// `shm:///run/keyway.shm`: a unix socket through which memory is shared.
    Shm(PathBuf),
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddr::Tcp(addr) => write!(f, "tcp://{addr}"),
            ListenAddr::Unix(path) => write!(f, "unix://{}", path.display()),
            ListenAddr::Shm(path) => write!(f, "shm://{}", path.display()),
        }
    }
}

impl ListenAddr {
    /// Returns the scheme, which stands before `://`.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            ListenAddr::Tcp(_) => "tcp",
            ListenAddr::Unix(_) => "unix",
            ListenAddr::Shm(_) => "shm",
        }
    }

    /// Returns whether both cannot be listened on at once: they are the same socket, or one covers
    /// all addresses of the other's port and family.
    pub(crate) fn clashes_with(&self, other: &ListenAddr) -> bool {
        match (self, other) {
            (
                ListenAddr::Unix(a) | ListenAddr::Shm(a),
                ListenAddr::Unix(b) | ListenAddr::Shm(b),
            ) => a == b,
            (ListenAddr::Tcp(a), ListenAddr::Tcp(b)) => {
                let same_family = a.is_ipv4() == b.is_ipv4();
                let any = a.ip().is_unspecified() || b.ip().is_unspecified();
                a.port() != 0 && a.port() == b.port() && same_family && (any || a.ip() == b.ip())
            }
            _ => false,
        }
    }

    /// Returns whether this is `[::]` and the other an IPv4 address on the same port. Each then
    /// gets the clients of its own family.
    pub fn leaves_ipv4_to(&self, other: &ListenAddr) -> bool {
        match (self, other) {
            (ListenAddr::Tcp(own), ListenAddr::Tcp(other)) => {
                own.is_ipv6()
                    && own.ip().is_unspecified()
                    && other.is_ipv4()
                    && own.port() == other.port()
                    && own.port() != 0
            }
            _ => false,
        }
    }

    /// Returns whether connecting to `server` reaches this listener, as far as the text tells: no
    /// name is looked up. [`Addresses`](crate::addresses::Addresses) is tested against it.
    #[cfg(test)]
    pub(crate) fn is_reached_by(&self, server: &Endpoint) -> bool {
        match (self, server) {
            (
                ListenAddr::Unix(own) | ListenAddr::Shm(own),
                Endpoint::Unix { path } | Endpoint::Shm { path },
            ) => own == path,
            (ListenAddr::Tcp(own), Endpoint::Tcp { host, port }) => {
                let localhost = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                let ips = match host.parse::<IpAddr>() {
                    Ok(ip) => vec![ip],
                    Err(_) if host.eq_ignore_ascii_case("localhost") => localhost.to_vec(),
                    Err(_) => Vec::new(),
                };
                let is_own = |ip: &IpAddr| {
                    let is_local = ip.is_loopback() || ip.is_unspecified();
                    *ip == own.ip()
                        || (own.ip().is_unspecified() && is_local)
                        || (own.ip().is_loopback() && ip.is_unspecified())
                };
                own.port() == *port && ips.iter().any(is_own)
            }
            _ => false,
        }
    }
}

pub(crate) const LISTEN_HINT: &str =
    "write \"tcp://127.0.0.1:6380\", \"unix:///run/keyway.sock\" or \"shm:///run/keyway.shm\"";

pub(crate) const ADMIN_HINT: &str = "write \"tcp://127.0.0.1:9380\"";

/// Reads `tcp://HOST:PORT`, the address of an HTTP listener.
pub(crate) fn parse_admin(text: &str) -> Result<ListenAddr, Problem> {
    let tcp_only = "a unix socket cannot be scraped over HTTP";
    match parse_listen(text) {
        Ok(ListenAddr::Unix(_) | ListenAddr::Shm(_)) => Err(Problem::new(tcp_only, ADMIN_HINT)),
        Err(problem) if text.is_empty() || problem.hint.contains("unix:") => Err(Problem::new(
            problem.what.replace("tcp://, unix:// or shm://", "tcp://"),
            ADMIN_HINT,
        )),
        read => read,
    }
}

/// Longest path that the kernel takes for a unix socket: `sun_path` without its closing zero byte.
const UNIX_PATH_LEN_MAX: usize = 107;

/// Reads `tcp://HOST:PORT`, `unix:///PATH` or `shm:///PATH`.
pub(crate) fn parse_listen(text: &str) -> Result<ListenAddr, Problem> {
    if let Some(path) = text.strip_prefix("unix://") {
        return parse_unix_path(path).map(ListenAddr::Unix);
    }
    if let Some(path) = text.strip_prefix("shm://") {
        let three = "write three slashes: \"shm:///run/keyway.shm\"";
        if let Some((path, _)) = path.split_once('?') {
            let what = format!("{} has options behind its path", quoted(text));
            let hint = format!("write \"shm://{path}\"; the size of rings is `ring_max`");
            return Err(Problem::new(what, hint));
        }
        return parse_unix_path(path).map(ListenAddr::Shm).map_err(|problem| match problem {
            slashes if slashes.hint == SLASHES_HINT => Problem::new(slashes.what, three),
            other => other,
        });
    }
    if text.starts_with("udp://") {
        return Err(Problem::new(
            "UDP is not served: its senders can be forged, and replies aimed at others",
            "use \"tcp://…\"; memcached clients speak it as well",
        ));
    }
    if text.starts_with("tls://") || text.starts_with("rediss://") {
        return Err(Problem::new(
            "an address does not say that it is secured",
            "write \"tcp://…\", and a table [listener.tls] (docs/tls.md)",
        ));
    }
    let Some(rest) = text.strip_prefix("tcp://") else {
        let hint = if let Some(path) = absolute_path(text) {
            format!("write \"unix://{path}\"")
        } else if text.parse::<u16>().is_ok_and(|port| port > 0) {
            format!("write \"tcp://127.0.0.1:{text}\"")
        } else if parse_tcp_listen(text).is_ok() {
            format!("write \"tcp://{text}\"")
        } else {
            LISTEN_HINT.to_owned()
        };
        let what = format!("{} does not start with tcp://, unix:// or shm://", quoted(text));
        return Err(Problem::new(what, hint));
    };
    parse_tcp_listen(rest).map(ListenAddr::Tcp)
}

const HOST_PORT_HINT: &str = "write HOST:PORT, such as 127.0.0.1:6380 or [::1]:6380";

/// Reads an address typed on a command line: `HOST:PORT`, or any form that [`parse_listen`] reads.
pub(crate) fn parse_typed(text: &str) -> Result<ListenAddr, Problem> {
    if text.contains("://") {
        return parse_listen(text);
    }
    parse_tcp_listen(text).map(ListenAddr::Tcp).map_err(|problem| {
        let hint = match problem.hint.as_str() {
            LISTEN_HINT => HOST_PORT_HINT.to_owned(),
            hint => hint.replace("tcp://", ""),
        };
        Problem::new(problem.what, hint)
    })
}

/// Reads `IP:PORT`, `[IPv6]:PORT` or `localhost:PORT`. Other names are not looked up, because the
/// interface that is opened must not depend on a name server.
fn parse_tcp_listen(text: &str) -> Result<SocketAddr, Problem> {
    if let Ok(addr) = text.parse::<SocketAddr>() {
        return Ok(addr);
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(Problem::new(format!("{} has no port", quoted(text)), LISTEN_HINT));
    };
    let port = parse_port(port, text)?;
    if host == "localhost" {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    if host.is_empty() || host == "*" {
        return Err(Problem::new(
            format!("{} names no address", quoted(text)),
            format!("write \"tcp://0.0.0.0:{port}\" to listen on every IPv4 address"),
        ));
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return Err(Problem::new(
            format!("{} is an IPv6 address without brackets", quoted(text)),
            format!("write \"tcp://[{host}]:{port}\""),
        ));
    }
    Err(Problem::new(
        format!("{} is not an IP address", quoted(host)),
        "write the IP address of the interface to listen on",
    ))
}

fn parse_port(port: &str, whole: &str) -> Result<u16, Problem> {
    // `parse` alone would take "+6379".
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    port.parse().ok().filter(|_| digits).ok_or_else(|| {
        Problem::new(
            format!("{} has no valid port", quoted(whole)),
            "end it with \":PORT\", PORT from 1 to 65535",
        )
    })
}

const SLASHES_HINT: &str = "write three slashes: \"unix:///run/keyway.sock\"";

fn parse_unix_path(path: &str) -> Result<PathBuf, Problem> {
    if !path.starts_with('/') {
        return Err(Problem::new(
            format!("{} is not an absolute path", quoted(path)),
            SLASHES_HINT,
        ));
    }
    if path.len() > UNIX_PATH_LEN_MAX || path.ends_with('/') || path.contains('\0') {
        return Err(Problem::new(
            format!("{} cannot be the path of a socket", quoted(path)),
            format!("give the path of a file, at most {UNIX_PATH_LEN_MAX} bytes long"),
        ));
    }
    Ok(PathBuf::from(path))
}

/// Returns the path of `/PATH` or `unix:/PATH`, if a socket can have it.
fn absolute_path(text: &str) -> Option<&str> {
    let path = text.strip_prefix("unix:").unwrap_or(text);
    parse_unix_path(path).ok().filter(|_| !path.starts_with("//")).map(|_| path)
}

const SERVER_HINT: &str =
    "write \"HOST:PORT\", \"HOST:PORT:WEIGHT NAME\" or \"unix:///PATH:WEIGHT NAME\"";

/// Longest name of a server: it is part of every metric of that server.
const SERVER_NAME_LEN_MAX: usize = 255;

/// Reads `HOST:PORT[:WEIGHT] [NAME]` or `unix:///PATH[:WEIGHT] [NAME]`.
pub(crate) fn parse_server(text: &str) -> Result<Server, Problem> {
    let problem = |what: &str, hint: &str| Problem::new(format!("{} {what}", quoted(text)), hint);
    for scheme in ["tcp://", "redis://"] {
        if let Some(bare) = text.strip_prefix(scheme) {
            let hint = match Server::parse(bare) {
                Ok(_) => format!("write \"{bare}\""),
                Err(_) => SERVER_HINT.to_owned(),
            };
            return Err(problem("is not how a server is written", &hint));
        }
    }
    for scheme in ["unix:", "shm:"] {
        let Some(rest) = text.strip_prefix(scheme).filter(|rest| !rest.starts_with("///")) else {
            continue;
        };
        let meant = format!("{scheme}///{}", rest.trim_start_matches('/'));
        let hint = match Server::parse(&meant) {
            Ok(_) if !text.contains('@') => format!("write three slashes: \"{meant}\""),
            _ => format!("write three slashes: \"{scheme}///PATH:WEIGHT NAME\""),
        };
        return Err(problem("is not an absolute path", &hint));
    }
    if text.split(' ').filter(|part| !part.is_empty()).count() > 2 {
        return Err(problem(
            "has a space in its name",
            "put one space and a name without spaces after the address",
        ));
    }
    let server = Server::parse(text).map_err(|error| match error {
        ServerError::Weight => problem(
            "has no valid weight",
            "end the address with \":WEIGHT\", WEIGHT from 1 to 2147483647",
        ),
        ServerError::Name => problem(
            "has no valid name",
            "put one space and a name without spaces after the address, or nothing",
        ),
        ServerError::Colons | ServerError::Endpoint(EndpointError::Ipv6) => problem(
            "is not a valid IPv6 address, or has too many colons",
            "write IPv6 in brackets: \"[2001:db8::1]:6379:1\"",
        ),
        ServerError::Endpoint(EndpointError::Port) => {
            problem("has no valid port", "write \"HOST:PORT\", PORT from 1 to 65535")
        }
        ServerError::Endpoint(EndpointError::Path) => {
            problem("is not an absolute path", "write three slashes: \"unix:///PATH:WEIGHT NAME\"")
        }
        ServerError::Endpoint(EndpointError::Host) => problem("has no valid host", SERVER_HINT),
    })?;
    if let Endpoint::Unix { path } | Endpoint::Shm { path } = &server.endpoint {
        parse_unix_path(&path.to_string_lossy())?;
    }
    if server.name.as_ref().is_some_and(|name| name.len() > SERVER_NAME_LEN_MAX) {
        let hint = format!("names are at most {SERVER_NAME_LEN_MAX} bytes long");
        return Err(problem("has too long a name", &hint));
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_reads_back_as_written() {
        for text in [
            "tcp://127.0.0.1:6380",
            "tcp://0.0.0.0:0",
            "tcp://[::1]:6380",
            "unix:///run/keyway.sock",
            "shm:///run/keyway.shm",
        ] {
            assert_eq!(parse_listen(text).unwrap().to_string(), text);
        }
        assert_eq!(parse_listen("tcp://localhost:1").unwrap().to_string(), "tcp://127.0.0.1:1");
    }

    #[test]
    fn a_wrong_listen_address_is_told_the_right_one() {
        for (text, hint) in [
            ("127.0.0.1:6380", "write \"tcp://127.0.0.1:6380\""),
            ("/run/k.sock", "write \"unix:///run/k.sock\""),
            ("unix:/run/k.sock", "write \"unix:///run/k.sock\""),
            ("/run/", LISTEN_HINT),
            ("6380", "write \"tcp://127.0.0.1:6380\""),
            ("tcp://:6380", "write \"tcp://0.0.0.0:6380\" to listen on every IPv4 address"),
            ("tcp://*:6380", "write \"tcp://0.0.0.0:6380\" to listen on every IPv4 address"),
            ("tcp://::1:6380", "write \"tcp://[::1]:6380\""),
            ("unix://run/k.sock", "write three slashes: \"unix:///run/keyway.sock\""),
            ("shm:///k.shm?ring=1m", "write \"shm:///k.shm\"; the size of rings is `ring_max`"),
            ("shm://run/k.shm", "write three slashes: \"shm:///run/keyway.shm\""),
            ("tcp://example.com:1", "write the IP address of the interface to listen on"),
            ("tcp://127.0.0.1", LISTEN_HINT),
            ("tcp://127.0.0.1:65536", "end it with \":PORT\", PORT from 1 to 65535"),
            ("tcp://127.0.0.1:+1", "end it with \":PORT\", PORT from 1 to 65535"),
        ] {
            assert_eq!(parse_listen(text).unwrap_err().hint, hint, "{text}");
        }
    }

    #[test]
    fn a_typed_address_needs_no_scheme_and_no_hint_asks_for_one() {
        for text in ["127.0.0.1:6380", "tcp://127.0.0.1:6380", "localhost:6380"] {
            assert_eq!(parse_typed(text).unwrap().to_string(), "tcp://127.0.0.1:6380");
        }
        for (text, hint) in [
            ("foo", HOST_PORT_HINT),
            ("", HOST_PORT_HINT),
            ("foo:1", "write the IP address of the interface to listen on"),
            (":6380", "write \"0.0.0.0:6380\" to listen on every IPv4 address"),
            ("1.2.3.4:x", "end it with \":PORT\", PORT from 1 to 65535"),
        ] {
            assert_eq!(parse_typed(text).unwrap_err().hint, hint, "{text}");
        }
    }

    #[test]
    fn all_addresses_of_a_port_clash_with_one_of_them() {
        let clash =
            |a: &str, b: &str| parse_listen(a).unwrap().clashes_with(&parse_listen(b).unwrap());
        assert!(clash("tcp://0.0.0.0:6380", "tcp://127.0.0.1:6380"));
        assert!(clash("tcp://127.0.0.1:6380", "tcp://127.0.0.1:6380"));
        assert!(clash("unix:///a", "unix:///a"));
        assert!(clash("unix:///a", "shm:///a"));
        assert!(!clash("tcp://127.0.0.1:6380", "tcp://127.0.0.2:6380"));
        assert!(!clash("tcp://[::]:6380", "tcp://127.0.0.1:6380"));
        assert!(!clash("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"));
    }

    #[test]
    fn a_wrong_server_is_refused_with_a_remedy() {
        for (text, hint) in [
            ("10.0.0.1", "write \"HOST:PORT\", PORT from 1 to 65535"),
            ("10.0.0.1:0", "write \"HOST:PORT\", PORT from 1 to 65535"),
            ("10.0.0.1:6379:0", "end the address with \":WEIGHT\", WEIGHT from 1 to 2147483647"),
            ("[::g]:1", "write IPv6 in brackets: \"[2001:db8::1]:6379:1\""),
            ("tcp://10.0.0.1:6379", "write \"10.0.0.1:6379\""),
            ("redis://nowhere", SERVER_HINT),
            ("unix://run/r.sock", "write three slashes: \"unix:///run/r.sock\""),
            ("unix:/run/r.sock:2 r", "write three slashes: \"unix:///run/r.sock:2 r\""),
            ("unix://", "write three slashes: \"unix:///PATH:WEIGHT NAME\""),
            ("shm:/run/r.shm", "write three slashes: \"shm:///run/r.shm\""),
            ("10.0.0.1:1:1 a b", "put one space and a name without spaces after the address"),
            (
                "10.0.0.1:6379:1  a",
                "put one space and a name without spaces after the address, or nothing",
            ),
        ] {
            assert_eq!(parse_server(text).unwrap_err().hint, hint, "{text}");
        }
        let secret = parse_server("redis://:hunter2@10.0.0.1:6379").unwrap_err();
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert!(parse_server(&format!("unix:///{}", "x".repeat(200))).is_err());
    }
}
