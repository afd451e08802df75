//! Bytes to a server and back, whatever carries them.

use crate::endpoint::Endpoint;
use keyway_ring::{CAPACITY_MIN, Hello, Pipe, Refusal, Shared, Spin, ask};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What carries the bytes of a [`Stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// A unix socket.
    Unix,
    /// Shared memory.
    Shared,
}

/// A connection without a protocol. Its reads and writes wait, for as long as it is told to.
#[derive(Debug)]
pub struct Stream {
    way: Way,
    timeout: Option<Duration>,
    refusal: Option<Refusal>,
}

#[derive(Debug)]
enum Way {
    /// The sockets never wait by themselves.
    Tcp(TcpStream),
    Unix(UnixStream),
    Shared(Pipe),
}

impl Stream {
    /// Connects, within `timeout` (for each address of a host that has several).
    ///
    /// A server that gives no shared memory is spoken to over the unix socket: [`Stream::transport`]
    /// and [`Stream::refusal`] tell.
    ///
    /// # Errors
    /// Of the system.
    pub fn connect(endpoint: &Endpoint, timeout: Option<Duration>) -> io::Result<Stream> {
        let mut refusal = None;
        let way = match endpoint {
            Endpoint::Tcp { host, port } => Way::Tcp(connect_tcp(host, *port, timeout)?),
            Endpoint::Unix { path } => Way::Unix(connect_unix(path, timeout)?),
            Endpoint::Shared { path, ring_len, spin } => {
                match connect_shared(path, *ring_len, *spin, timeout)? {
                    Ok(pipe) => Way::Shared(pipe),
                    Err((why, socket)) => {
                        refusal = Some(why);
                        Way::Unix(socket)
                    }
                }
            }
        };
        match &way {
            Way::Tcp(socket) => socket.set_nonblocking(true)?,
            Way::Unix(socket) => socket.set_nonblocking(true)?,
            Way::Shared(_) => {}
        }
        Ok(Stream { way, timeout: None, refusal })
    }

    /// What carries the bytes.
    pub fn transport(&self) -> Transport {
        match self.way {
            Way::Tcp(_) => Transport::Tcp,
            Way::Unix(_) => Transport::Unix,
            Way::Shared(_) => Transport::Shared,
        }
    }

    /// Why no memory is shared although it was asked for.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Bounds how long a read or a write waits for the other side; without a bound, which is how
    /// it begins, it waits for ever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        // None at all would be to look once.
        self.timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        if let Way::Shared(pipe) = &mut self.way {
            pipe.set_timeout(self.timeout);
        }
    }

    /// Writes what it can of `out`, and reads what there is into `into`; waits until one of both
    /// can be done. How much was written, and read: `(0, 0)` when the other side has ended and
    /// everything was read.
    ///
    /// # Errors
    /// Of the system; `TimedOut` when the other side did nothing for the time that was set.
    pub fn exchange(&mut self, out: &[u8], into: &mut [u8]) -> io::Result<(usize, usize)> {
        match &mut self.way {
            Way::Tcp(socket) => exchange(socket, out, into, self.timeout),
            Way::Unix(socket) => exchange(socket, out, into, self.timeout),
            Way::Shared(pipe) => pipe.exchange(out, into),
        }
    }

    /// Says that nothing more will be written; what comes can still be read.
    ///
    /// # Errors
    /// Of the system.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.way {
            Way::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Way::Unix(socket) => socket.shutdown(Shutdown::Write),
            Way::Shared(pipe) => {
                pipe.finish();
                Ok(())
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match (&mut self.way, into.is_empty()) {
            (_, true) => Ok(0),
            (Way::Shared(pipe), _) => pipe.read(into),
            _ => Ok(self.exchange(&[], into)?.1),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (&mut self.way, bytes.is_empty()) {
            (_, true) => Ok(0),
            (Way::Shared(pipe), _) => {
                let written = pipe.write(bytes)?;
                pipe.flush()?;
                Ok(written)
            }
            _ => Ok(self.exchange(bytes, &mut [])?.0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// [`Stream::exchange`] over a socket that does not wait.
fn exchange(
    socket: &mut (impl Read + Write + AsFd),
    out: &[u8],
    into: &mut [u8],
    timeout: Option<Duration>,
) -> io::Result<(usize, usize)> {
    loop {
        let written = if out.is_empty() { None } else { attempt(socket.write(out))? };
        let read = if into.is_empty() { None } else { attempt(socket.read(into))? };
        if written.is_some() || read.is_some() {
            return Ok((written.unwrap_or(0), read.unwrap_or(0)));
        }
        wait(socket.as_fd(), !out.is_empty(), timeout)?;
    }
}

fn attempt(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(len) => Ok(Some(len)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn wait(socket: BorrowedFd<'_>, wants_room: bool, timeout: Option<Duration>) -> io::Result<()> {
    let flags = if wants_room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut [PollFd::new(&socket, flags)], timeout.as_ref()) {
        Ok(0) => Err(ErrorKind::TimedOut.into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn connect_tcp(host: &str, port: u16, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let connected = match timeout {
            Some(timeout) => TcpStream::connect_timeout(&address, timeout),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_unix(path: &Path, timeout: Option<Duration>) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // A server whose backlog is full lets who connects wait for as long as who sends.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, timeout)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(late)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(socket.into())
}

/// Shared memory, or the socket that is left when there is none.
fn connect_shared(
    path: &Path,
    ring_len: usize,
    spin: Duration,
    timeout: Option<Duration>,
) -> io::Result<Result<Pipe, (Refusal, UnixStream)>> {
    let socket = connect_unix(path, timeout)?;
    socket.set_read_timeout(timeout)?;
    let shared = match ask_for_less_and_less(&socket, ring_len) {
        Ok(Ok(shared)) => shared,
        Ok(Err(why)) => {
            socket.set_read_timeout(None)?;
            return Ok(Err((why, socket)));
        }
        // What listens there has taken the hello for a request of another protocol.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::WouldBlock) => {
            let what =
                "who listens there knows nothing of shared memory: is it a listener of shm://?";
            return Err(io::Error::new(error.kind(), what));
        }
        Err(error) => return Err(error),
    };
    socket.set_read_timeout(None)?;
    let spin = if spin.is_zero() { Spin::never() } else { Spin::adaptive(spin) };
    Ok(Ok(Pipe::new(shared, socket, spin)))
}

/// Asks for rings of `ring_len` bytes each, and for half of that while they are too large for the
/// server.
fn ask_for_less_and_less(
    socket: &UnixStream,
    ring_len: usize,
) -> io::Result<Result<Shared, Refusal>> {
    let mut hello = Hello::new(ring_len, ring_len);
    loop {
        match ask(socket, &hello)? {
            Err(Refusal::Capacity) if hello.up > CAPACITY_MIN => {
                hello = Hello::new(hello.up / 2, hello.up / 2);
            }
            outcome => return Ok(outcome),
        }
    }
}

fn late(error: rustix::io::Errno) -> io::Error {
    match error {
        rustix::io::Errno::AGAIN => ErrorKind::TimedOut.into(),
        other => other.into(),
    }
}
