//! Connecting, on a thread of its own: looking a name up and waiting for an answer take long.

use crate::rings::Rings;
use crate::stream::Stream;
use keyway_bus::{DialKey, Host, SocketName, Url};
use keyway_ring::{Hello, Shared, ask};
use rustix::fd::OwnedFd;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// For one address to answer. Longer keeps a node from its next address, shorter loses far ones.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What a dial came to, to be made a [`Stream`] by the thread that will have it.
pub(crate) enum Dialled {
    Tcp(TcpStream),
    Unix(UnixStream),
    Shared(Box<Shared>, UnixStream),
}

impl Dialled {
    pub fn into_stream(self) -> io::Result<Stream> {
        Ok(match self {
            Dialled::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Dialled::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Stream::Unix(stream)
            }
            Dialled::Shared(shared, stream) => {
                stream.set_nonblocking(true)?;
                Stream::Rings(Box::new(Rings::new(*shared, stream)))
            }
        })
    }
}

/// A dial and its outcome; the last address's error if there was none better.
pub(crate) type Outcome = (DialKey, io::Result<Dialled>);

/// Where the rings of one process meet: no other process knows that name, or may use it.
pub(crate) fn mem_name(name: &str) -> SocketName {
    SocketName::Abstract(format!("keyway.mem.{}.{name}", std::process::id()))
}

pub(crate) fn unix_addr(name: &SocketName) -> io::Result<UnixAddr> {
    match name {
        SocketName::Path(path) => UnixAddr::from_pathname(path),
        SocketName::Abstract(name) => UnixAddr::from_abstract_name(name),
    }
}

/// Connects to the first of `urls` that can be connected to, and sends what came of it.
pub(crate) fn start(
    dial: DialKey,
    urls: Vec<Url>,
    outcomes: Sender<Outcome>,
    wake: Arc<OwnedFd>,
) -> io::Result<()> {
    std::thread::Builder::new().name("keyway-bus-dial".to_owned()).spawn(move || {
        let outcome = first(&urls);
        // Nobody is there any more if the driver has ended.
        if outcomes.send((dial, outcome)).is_ok() {
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        }
    })?;
    Ok(())
}

fn first(urls: &[Url]) -> io::Result<Dialled> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address");
    for url in urls {
        match connect(url) {
            Ok(dialled) => return Ok(dialled),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect(url: &Url) -> io::Result<Dialled> {
    match url {
        Url::Tcp { host, port } => connect_tcp(host, *port).map(Dialled::Tcp),
        Url::Unix(at) => UnixStream::connect_addr(&unix_addr(at)?).map(Dialled::Unix),
        Url::Shm { at, ring_len } => connect_shm(at, *ring_len),
        Url::Mem(name) => connect_shm(&mem_name(name), 256 << 10),
    }
}

pub(crate) fn addresses(host: &Host, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, port)]),
        Host::Name(name) => Ok((name.as_str(), port).to_socket_addrs()?.collect()),
    }
}

fn connect_tcp(host: &Host, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses(host, port)? {
        match TcpStream::connect_timeout(&address, ANSWER_WITHIN) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// One that refuses to share memory is spoken to over the socket.
fn connect_shm(at: &SocketName, ring_len: usize) -> io::Result<Dialled> {
    let stream = UnixStream::connect_addr(&unix_addr(at)?)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    match ask(&stream, &Hello::new(ring_len, ring_len))? {
        Ok(shared) => Ok(Dialled::Shared(Box::new(shared), stream)),
        Err(_) => Ok(Dialled::Unix(stream)),
    }
}
