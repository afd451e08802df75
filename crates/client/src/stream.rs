//! Bytes to a server and back, whatever carries them.

use crate::connect::{connect_shared, connect_tcp, connect_unix};
use crate::endpoint::Endpoint;
use keyway_ring::{Pipe, Refusal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Nobody is connected to in no time at all.
const CONNECT_MIN: Duration = Duration::from_millis(1);

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
    way: Socket,
    timeout: Option<Duration>,
    refusal: Option<Refusal>,
}

#[derive(Debug)]
enum Socket {
    /// The sockets never wait by themselves.
    Tcp(TcpStream),
    Unix(UnixStream),
    Shared(Pipe),
}

impl Stream {
    /// Connects, within `timeout` (for each address of a host that has several).
    ///
    /// A server that gives no shared memory is spoken to over the unix socket: [`Stream::transport`]
    /// and [`Stream::refusal`] tell, and [`crate::on_fallback`] is told once.
    ///
    /// # Errors
    /// Of the system.
    pub fn connect(endpoint: &Endpoint, timeout: Option<Duration>) -> io::Result<Stream> {
        let mut refusal = None;
        let timeout = timeout.map(|timeout| timeout.max(CONNECT_MIN));
        let way = match endpoint {
            Endpoint::Tcp { host, port } => Socket::Tcp(connect_tcp(host, *port, timeout)?),
            Endpoint::Unix { path } => Socket::Unix(connect_unix(path, timeout)?),
            Endpoint::Shared { path, ring_len, spin } => {
                match connect_shared(path, *ring_len, *spin, timeout)? {
                    Ok(pipe) => Socket::Shared(pipe),
                    Err((why, socket)) => {
                        crate::fallback::tell(path, why);
                        refusal = Some(why);
                        Socket::Unix(socket)
                    }
                }
            }
        };
        match &way {
            Socket::Tcp(socket) => socket.set_nonblocking(true)?,
            Socket::Unix(socket) => socket.set_nonblocking(true)?,
            Socket::Shared(_) => {}
        }
        Ok(Stream { way, timeout: None, refusal })
    }

    /// What carries the bytes.
    pub fn transport(&self) -> Transport {
        match self.way {
            Socket::Tcp(_) => Transport::Tcp,
            Socket::Unix(_) => Transport::Unix,
            Socket::Shared(_) => Transport::Shared,
        }
    }

    /// Why no memory is shared although it was asked for.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Bounds how long a read or a write waits for the other side; without a bound, which is how
    /// it begins, it waits for ever.
    ///
    /// With a time of zero it does not wait: what cannot be done at once has timed out.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
        if let Socket::Shared(pipe) = &mut self.way {
            pipe.set_timeout(timeout);
        }
    }

    /// What [`Stream::set_timeout`] has set.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Writes what it can of `out`, and reads what there is into `into`; waits until one of both
    /// can be done. How much was written, and read: `(0, 0)` when the other side has ended and
    /// everything was read.
    ///
    /// # Errors
    /// Of the system; `TimedOut` when the other side did nothing for the time that was set. That
    /// nobody reads any more is no error while there is something to read.
    pub fn exchange(&mut self, out: &[u8], into: &mut [u8]) -> io::Result<(usize, usize)> {
        match &mut self.way {
            Socket::Tcp(socket) => exchange(socket, out, into, self.timeout),
            Socket::Unix(socket) => exchange(socket, out, into, self.timeout),
            Socket::Shared(pipe) => pipe.exchange(out, into),
        }
    }

    /// Says that nothing more will be written; what comes can still be read.
    ///
    /// # Errors
    /// Of the system.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.way {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Write),
            Socket::Shared(pipe) => {
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
            (Socket::Shared(pipe), _) => pipe.read(into),
            _ => Ok(self.exchange(&[], into)?.1),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (&mut self.way, bytes.is_empty()) {
            (_, true) => Ok(0),
            (Socket::Shared(pipe), _) => {
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
    let mut flags = if out.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
    flags |= if into.is_empty() { PollFlags::empty() } else { PollFlags::IN };
    let mut waiting = Waiting::new(timeout);
    loop {
        let written = if out.is_empty() { Ok(None) } else { attempt(|| socket.write(out)) };
        let read = if into.is_empty() { Ok(None) } else { attempt(|| socket.read(into)) };
        match (written, read) {
            // What the server said before it ended the connection comes first.
            (Err(_), Ok(Some(read @ 1..))) => return Ok((0, read)),
            (Err(error), _) => return Err(error),
            // What was written is told; the error stays for the next.
            (Ok(Some(written)), Err(_)) => return Ok((written, 0)),
            (Ok(None), Err(error)) => return Err(error),
            (Ok(None), Ok(None)) => waiting.wait(socket.as_fd(), flags)?,
            (Ok(written), Ok(read)) => return Ok((written.unwrap_or(0), read.unwrap_or(0))),
        }
    }
}

/// What is done by one call that does not wait; `None` when that is nothing yet.
fn attempt(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(len) => return Ok(Some(len)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A wait that has one end, however often it is woken before.
pub(crate) struct Waiting {
    timeout: Option<Duration>,
    /// Once it has begun.
    until: Option<Instant>,
}

impl Waiting {
    pub(crate) fn new(timeout: Option<Duration>) -> Waiting {
        Waiting { timeout, until: None }
    }

    /// How much longer it may be; `None` is for ever.
    pub(crate) fn left(&mut self) -> io::Result<Option<Duration>> {
        let Some(timeout) = self.timeout else { return Ok(None) };
        if timeout.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let now = Instant::now();
        // A time that there is not is for ever.
        let Some(until) = self.until.or_else(|| now.checked_add(timeout)) else {
            return Ok(None);
        };
        self.until = Some(until);
        match until.saturating_duration_since(now) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }

    /// Sleeps until the socket is ready for one of `flags`, or a signal came.
    pub(crate) fn wait(&mut self, socket: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
        let left = self.left()?.map(|left| Timespec {
            tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(&socket, flags)], left.as_ref()) {
            Ok(0) => Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
