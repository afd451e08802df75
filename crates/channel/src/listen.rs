//! Listening sockets, and the first bytes of connections that came through unix sockets.

use crate::rings::Rings;
use crate::secure::{Handshake, Securing};
use crate::sockets::{addresses, connect_unix, is_ours, keep_alive, mem_name, unix_addr};
use crate::stream::Stream;
use crate::within::{self, LEFT_MAGIC};
use keyway_bus::{Reason, SocketName, Url};
use keyway_ring::{HELLO_LEN, HELLO_MAGIC, Hello, Refusal, answer, peer_uid, refuse};
use keyway_tls::PeerTls;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};

/// Most bytes of both rings of an accepted connection.
const RINGS_LEN_MAX: usize = 128 << 20;

/// Listens on the first address that is free. `[::]` accepts IPv4 as well, unless `only_v6`. The
/// system's default does not matter.
fn listen_tcp(addresses: &[SocketAddr], only_v6: bool) -> io::Result<TcpListener> {
    let [any @ SocketAddr::V6(_)] = addresses else { return TcpListener::bind(addresses) };
    if !any.ip().is_unspecified() {
        return TcpListener::bind(addresses);
    }
    let (family, flags) = (AddressFamily::INET6, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_ipv6_v6only(&socket, only_v6)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, any)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Backlog: the most connections that wait to be accepted. The same number as in the standard
/// library.
const BACKLOG: i32 = 128;

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

pub(crate) struct Listener {
    socket: Socket,
    /// True if it shares memory on request.
    shares: bool,
    /// A path to be removed at the end.
    path: Option<String>,
    url: Url,
}

/// An accepted connection.
pub(crate) enum Came {
    Stream(Stream),
    /// Its first bytes decide what it becomes.
    Undecided(Greeting),
}

impl Listener {
    /// Listens on `url`. `[::]` accepts IPv4 as well, unless `only_v6`.
    pub fn bind(url: &Url, only_v6: bool) -> io::Result<Self> {
        let (socket, path, shares, url) = match url {
            Url::Tcp { host, port } => {
                let listener = listen_tcp(&addresses(host, *port)?, only_v6)?;
                let port = listener.local_addr()?.port();
                let url = Url::Tcp { host: host.clone(), port };
                (Socket::Tcp(listener), None, false, url)
            }
            Url::Unix(at) => (Socket::Unix(bind_unix(at)?), path_of(at), false, url.clone()),
            Url::Shm { at, .. } => (Socket::Unix(bind_unix(at)?), path_of(at), true, url.clone()),
            Url::Mem(name) => (Socket::Unix(bind_unix(&mem_name(name))?), None, true, url.clone()),
        };
        let listener = Self { socket, shares, path, url };
        match &listener.socket {
            Socket::Tcp(socket) => socket.set_nonblocking(true)?,
            Socket::Unix(socket) => socket.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    /// Returns its address, with the port it was given.
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }

    /// Accepts a connection. `tls` is for TCP connections.
    pub fn accept(&self, tls: Option<&PeerTls>) -> io::Result<Came> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Ok(match tls {
                    Some(tls) => Came::Undecided(Greeting::Tls(Securing::new(stream, tls)?)),
                    None => Came::Stream(Stream::Tcp(stream)),
                })
            }
            Socket::Unix(socket) => {
                let (stream, _) = socket.accept()?;
                let is_within = matches!(self.url, Url::Mem(_));
                if is_within && !is_ours(&stream)? {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                stream.set_nonblocking(true)?;
                Ok(match self.shares {
                    true => Came::Undecided(Greeting::Rings(Asking::new(stream, is_within))),
                    false => Came::Stream(Stream::Unix(stream)),
                })
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // It is gone already if another process has removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn path_of(at: &SocketName) -> Option<String> {
    match at {
        SocketName::Path(path) => Some(path.clone()),
        SocketName::Abstract(_) => None,
    }
}

/// Binds a unix socket. A socket file without a listener was left by a process that died, and is
/// replaced. Any other file stays as it is.
fn bind_unix(at: &SocketName) -> io::Result<UnixListener> {
    let addr = unix_addr(at)?;
    let bound = UnixListener::bind_addr(&addr);
    let is_taken = matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
    let Some(path) = path_of(at).filter(|_| is_taken) else { return bound };
    if !std::fs::symlink_metadata(&path)?.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is no socket is there; remove it, or choose another path",
        ));
    }
    // This never waits: a process that was stopped, and whose backlog is full, counts as listening.
    match connect_unix(at) {
        Err(Reason::NobodyListens) => {
            // Another process may have been quicker.
            let _ = std::fs::remove_file(&path);
        }
        _ => return bound,
    }
    UnixListener::bind_addr(&addr)
}

/// An accepted connection, before it is known what it becomes.
pub(crate) enum Greeting {
    /// Through a unix socket that shares memory on request.
    Rings(Asking),
    /// By TCP with TLS.
    Tls(Securing),
}

/// The result of a greeting.
pub(crate) enum Decided {
    /// More bytes are needed.
    NotYet(Greeting),
    /// A stream, and the bytes already read from it.
    Stream(Stream, Vec<u8>),
    /// The connection is refused: the reason, and the bytes to send.
    Over(Reason, Stream, Vec<u8>),
}

impl Greeting {
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Greeting::Rings(asking) => asking.stream.as_fd(),
            Greeting::Tls(securing) => securing.fd(),
        }
    }

    /// Reads the first bytes. `may_share` returns, by user, whether memory is shared.
    pub fn go_on(self, may_share: impl Fn(u32) -> bool) -> io::Result<Decided> {
        let securing = match self {
            Greeting::Rings(asking) => return asking.go_on(may_share),
            Greeting::Tls(securing) => securing,
        };
        Ok(match securing.go_on() {
            Handshake::NotYet(same) => Decided::NotYet(Greeting::Tls(same)),
            Handshake::Done(secured) => Decided::Stream(Stream::Tls(secured), Vec::new()),
            Handshake::Over(reason, tcp, words) => Decided::Over(reason, Stream::Tcp(tcp), words),
        })
    }
}

/// A connection of which it is not known yet whether it shares memory.
pub(crate) struct Asking {
    stream: UnixStream,
    /// True if it is of this process, which leaves rings and does not ask for any.
    is_within: bool,
    bytes: [u8; HELLO_LEN],
    len: usize,
}

impl Asking {
    fn new(stream: UnixStream, is_within: bool) -> Self {
        Self { stream, is_within, bytes: [0; HELLO_LEN], len: 0 }
    }

    fn go_on(mut self, may_share: impl Fn(u32) -> bool) -> io::Result<Decided> {
        use io::Read;
        loop {
            match self.stream.read(&mut self.bytes[self.len..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.len += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Decided::NotYet(Greeting::Rings(self)));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let said = &self.bytes[..self.len];
            if self.is_within {
                if self.len == HELLO_LEN {
                    return self.take();
                }
                continue;
            }
            if !HELLO_MAGIC.starts_with(&said[..self.len.min(HELLO_MAGIC.len())]) {
                let said = said.to_vec();
                return Ok(Decided::Stream(Stream::Unix(self.stream), said));
            }
            if self.len == HELLO_LEN {
                return self.share(may_share);
            }
        }
    }

    fn take(self) -> io::Result<Decided> {
        let pair = within::take(&self.bytes).filter(|_| self.bytes.starts_with(&LEFT_MAGIC));
        let pair = pair.ok_or(io::ErrorKind::InvalidData)?;
        let stream = Stream::Within(Box::new(Rings::within(pair, None, self.stream)));
        Ok(Decided::Stream(stream, Vec::new()))
    }

    fn share(self, may_share: impl Fn(u32) -> bool) -> io::Result<Decided> {
        let Some(hello) = Hello::decode(&self.bytes) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no hello of rings"));
        };
        if !may_share(peer_uid(&self.stream)?) {
            refuse(&self.stream, Refusal::User)?;
            return Ok(Decided::Stream(Stream::Unix(self.stream), Vec::new()));
        }
        let stream = match answer(&self.stream, &hello, RINGS_LEN_MAX)? {
            Ok(shared) => Stream::Rings(Box::new(Rings::shared(shared, self.stream))),
            Err(_) => Stream::Unix(self.stream),
        };
        Ok(Decided::Stream(stream, Vec::new()))
    }
}
