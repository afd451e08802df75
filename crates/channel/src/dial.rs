//! Connecting, on a thread of its own: looking a name up and waiting for an answer take long.

use crate::listen::keep_alive;
use crate::rings::Rings;
use crate::secure::{self, Secured};
use crate::stream::Stream;
use crate::within::{self, Left, Pair};
use keyway_bus::{DialKey, Host, Reason, SocketName, Url};
use keyway_ring::{Hello, Refusal, Shared, ask};
use keyway_tls::PeerTls;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// For one address to answer. Nodes wait for a little longer; this ends the thread, too.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What a dial came to, to be made a [`Stream`] by the thread that will have it.
pub(crate) enum Dialled {
    Tcp(TcpStream),
    Unix(UnixStream),
    Shared(Box<Shared>, UnixStream),
    Within(Pair, Left, UnixStream),
    Tls(Box<Secured>),
}

impl Dialled {
    pub fn into_stream(self) -> io::Result<Stream> {
        Ok(match self {
            Dialled::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Stream::Tcp(stream)
            }
            Dialled::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Stream::Unix(stream)
            }
            Dialled::Tls(secured) => {
                secured.set_nonblocking()?;
                Stream::Tls(secured)
            }
            Dialled::Shared(shared, stream) => {
                stream.set_nonblocking(true)?;
                Stream::Rings(Box::new(Rings::shared(*shared, stream)))
            }
            Dialled::Within(pair, left, stream) => {
                stream.set_nonblocking(true)?;
                Stream::Within(Box::new(Rings::within(pair, Some(left), stream)))
            }
        })
    }
}

/// An address of shared memory whose listener gives none, and why: it is spoken to over its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unshared {
    /// The address.
    pub url: Url,
    /// Why.
    pub why: Refusal,
}

/// A dial and its outcome.
pub(crate) type Outcome = (DialKey, Result<Dialled, Reason>, Option<Unshared>);

/// Where the rings of one process meet. Others can see that name and use it: both sides look who is there.
pub(crate) fn mem_name(name: &str) -> SocketName {
    SocketName::Abstract(format!("keyway.mem.{}.{name}", std::process::id()))
}

pub(crate) fn unix_addr(name: &SocketName) -> io::Result<UnixAddr> {
    match name {
        SocketName::Path(path) => UnixAddr::from_pathname(path),
        SocketName::Abstract(name) => UnixAddr::from_abstract_name(name),
    }
}

/// Connects to `url`, and sends what came of it.
pub(crate) fn start(
    dial: DialKey,
    url: Url,
    tls: Option<PeerTls>,
    outcomes: Sender<Outcome>,
    wake: Arc<OwnedFd>,
) -> io::Result<()> {
    std::thread::Builder::new().name("keyway-bus-dial".to_owned()).spawn(move || {
        let mut refusal = None;
        let outcome = connect(&url, tls.as_ref(), &mut refusal);
        let unshared = refusal.map(|why| Unshared { url, why });
        // Nobody is there any more if the driver has ended.
        if outcomes.send((dial, outcome, unshared)).is_ok() {
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        }
    })?;
    Ok(())
}

fn connect(
    url: &Url,
    tls: Option<&PeerTls>,
    refusal: &mut Option<Refusal>,
) -> Result<Dialled, Reason> {
    match url {
        Url::Tcp { host, port } => {
            let tcp = connect_tcp(host, *port)?;
            match tls {
                Some(tls) => {
                    let secured = secure::dial(tcp, tls, ANSWER_WITHIN)?;
                    Ok(Dialled::Tls(Box::new(secured)))
                }
                None => Ok(Dialled::Tcp(tcp)),
            }
        }
        Url::Unix(at) => Ok(Dialled::Unix(connect_unix(at)?)),
        Url::Shm { at, ring_len } => share(connect_unix(at)?, *ring_len, refusal),
        Url::Mem(name) => {
            let stream = connect_unix(&mem_name(name))?;
            match is_ours(&stream) {
                Ok(true) => {
                    let (pair, left) = within::leave(&stream).map_err(|error| reason(&error))?;
                    Ok(Dialled::Within(pair, left, stream))
                }
                _ => Err(Reason::NoPermission),
            }
        }
    }
}

/// What an error of connecting says to who wrote the address.
fn reason(error: &io::Error) -> Reason {
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

pub(crate) fn addresses(host: &Host, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, port)]),
        Host::Name(name) => Ok((name.as_str(), port).to_socket_addrs()?.collect()),
    }
}

fn connect_tcp(host: &Host, port: u16) -> Result<TcpStream, Reason> {
    let mut last = Reason::NoName;
    let all = addresses(host, port).map_err(|_| Reason::NoName)?;
    // A name that has several gets no more time for that.
    let each = (ANSWER_WITHIN / all.len().max(1) as u32).max(ANSWER_WITHIN / 8);
    for address in all {
        match TcpStream::connect_timeout(&address, each) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = reason(&error),
        }
    }
    Err(last)
}

/// Never waits: where the backlog is full, as of a process that was stopped, the system says so at once.
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

/// Whether the other end is of this process. What is out of sight from here has the number 0.
pub(crate) fn is_ours(stream: &UnixStream) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.pid == rustix::process::getpid())
}

/// One that refuses to share memory, which is told in `refusal`, is spoken to over the socket.
fn share(
    stream: UnixStream,
    ring_len: usize,
    refusal: &mut Option<Refusal>,
) -> Result<Dialled, Reason> {
    let asked = stream
        .set_read_timeout(Some(ANSWER_WITHIN))
        .and_then(|()| ask(&stream, &Hello::new(ring_len, ring_len)));
    match asked {
        Ok(Ok(shared)) => Ok(Dialled::Shared(Box::new(shared), stream)),
        Ok(Err(why)) => {
            *refusal = Some(why);
            Ok(Dialled::Unix(stream))
        }
        // It connected: what is late is the answer.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Reason::NoAnswer),
        Err(error) => Err(reason(&error)),
    }
}
