//! Helpers for dialling, listening and TLS: socket addresses, keep-alive, and the owner of the
//! other end.

use keyway_bus::{Host, Reason, SocketName};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::time::Duration;

/// Returns the addresses of a host. A name is resolved.
pub(crate) fn addresses(host: &Host, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, port)]),
        Host::Name(name) => Ok((name.as_str(), port).to_socket_addrs()?.collect()),
    }
}

/// Returns the socket name for rings within one process. Other processes can see that name and use
/// it, so both sides check the other end.
pub(crate) fn mem_name(name: &str) -> SocketName {
    SocketName::Abstract(format!("keyway.mem.{}.{name}", std::process::id()))
}

/// Returns the address of a unix socket.
pub(crate) fn unix_addr(name: &SocketName) -> io::Result<UnixAddr> {
    match name {
        SocketName::Path(path) => UnixAddr::from_pathname(path),
        SocketName::Abstract(name) => UnixAddr::from_abstract_name(name),
    }
}

/// Connects without waiting. If the backlog is full, as with a stopped process, the system refuses
/// at once.
pub(crate) fn connect_unix(at: &SocketName) -> Result<UnixStream, Reason> {
    let connect = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let addr = match at {
            SocketName::Path(path) => SocketAddrUnix::new(path.as_str())?,
            SocketName::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        };
        rustix::net::connect(&socket, &addr)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(stream)
    };
    connect().map_err(|error: io::Error| reason(&error))
}

/// Returns whether the other end belongs to this process. A process in another namespace has the
/// number 0.
pub(crate) fn is_ours(stream: &UnixStream) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.pid == rustix::process::getpid())
}

/// Returns whether a connection leads back to this host by its addresses.
pub(crate) fn is_within_host(tcp: &TcpStream) -> bool {
    let (Ok(here), Ok(there)) = (tcp.local_addr(), tcp.peer_addr()) else { return false };
    there.ip().to_canonical().is_loopback() || there.ip() == here.ip()
}

/// Makes the system notice a dead host after three seconds on an idle connection.
pub(crate) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    // This host does not die without this process.
    if is_within_host(stream) {
        return Ok(());
    }
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 2)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

/// Returns the reason for operators for an error of connecting.
pub(crate) fn reason(error: &io::Error) -> Reason {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => Reason::NobodyListens,
        ErrorKind::TimedOut => Reason::NoAnswer,
        ErrorKind::WouldBlock => Reason::Backlog,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Reason::NoRoute,
        ErrorKind::PermissionDenied => Reason::NoPermission,
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            Reason::HungUp
        }
        ErrorKind::InvalidData => Reason::NotBus,
        _ => Reason::DialFailed,
    }
}
