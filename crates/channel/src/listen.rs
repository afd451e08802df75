//! Listening sockets, and what those that came through unix sockets want.

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

/// Bytes of both rings of a connection at most, for who asks for them.
const RINGS_LEN_MAX: usize = 128 << 20;

/// Listens at the first address that is free. `[::]` accepts IPv4 as well, unless `only_v6`,
/// whatever the setting of the system.
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

/// Backlog: connections that wait to be accepted. The same number as in the standard library.
const BACKLOG: i32 = 128;

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

pub(crate) struct Listener {
    socket: Socket,
    /// Whether memory is shared with who asks for it.
    shares: bool,
    /// A path to be removed at the end.
    path: Option<String>,
    url: Url,
}

/// Somebody who has connected.
pub(crate) enum Came {
    Stream(Stream),
    /// What comes first says what this becomes.
    Undecided(Greeting),
}

impl Listener {
    /// Listens at `url`. `[::]` accepts IPv4 as well, unless `only_v6`.
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

    /// Where it listens: with the port it was given.
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }

    /// `tls` is for who comes by TCP.
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
            // Gone already if somebody else has removed it.
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

/// A socket's file on which nobody listens is what a process that died has left, and is replaced. Any other file
/// stays as it is.
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
    // Never waits: a process that was stopped, and whose backlog is full, is there all the same.
    match connect_unix(at) {
        Err(Reason::NobodyListens) => {
            // Another process may have been as quick.
            let _ = std::fs::remove_file(&path);
        }
        _ => return bound,
    }
    UnixListener::bind_addr(&addr)
}

/// One who has connected, before it is known what the connection becomes.
pub(crate) enum Greeting {
    /// Through a unix socket where memory is shared with who asks for it.
    Rings(Asking),
    /// By TCP, where TLS is spoken.
    Tls(Securing),
}

/// What a greeting came to.
pub(crate) enum Decided {
    /// More must come.
    NotYet(Greeting),
    /// A stream, and what was read of it already.
    Stream(Stream, Vec<u8>),
    /// Nobody to be let in: why, and what is to be said to him.
    Over(Reason, Stream, Vec<u8>),
}

impl Greeting {
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Greeting::Rings(asking) => asking.stream.as_fd(),
            Greeting::Tls(securing) => securing.fd(),
        }
    }

    /// Reads what it says. `may_share` tells by user whether memory is shared.
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

/// One of whom it is not known yet whether memory is to be shared.
pub(crate) struct Asking {
    stream: UnixStream,
    /// Of this process, which leaves rings and does not ask for any.
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
