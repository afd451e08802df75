//! A connection to a server: a socket that does not block, and TLS over it if wanted.

use crate::access::{Access, Failure};
use crate::commands::command;
use crate::pace::now;
use keyway_resp::{Framing, frame_reply};
use keyway_tls::{Channel, ClientTls};
use keyway_topology::Endpoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes read at once.
const READ_LEN: usize = 64 << 10;

/// Longest wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Longest reply that is kept: CLIENT LIST of a server with many clients.
const REPLY_LEN_MAX: u32 = 64 << 20;

/// Bytes that TLS encrypts before they are sent.
const SEALED_LEN: usize = 256 << 10;

struct Secured {
    channel: Box<Channel>,
    tls: ClientTls,
    host: String,
    /// Encrypted bytes that the system has not taken yet.
    sealed: Vec<u8>,
}

/// A connection.
pub(crate) struct Wire {
    server: Endpoint,
    socket: OwnedFd,
    secured: Option<Secured>,
    scratch: Box<[u8]>,
    /// The bytes to send, from `sent` on.
    out: Vec<u8>,
    sent: usize,
}

impl Wire {
    /// Connects, says the password, and tells the server the name of the connection.
    pub(crate) fn connect(access: &Access, name: &str, within: Duration) -> Result<Wire, Failure> {
        let server = &access.endpoint;
        let away = |why: &str| Failure::passing(format!("{server} is not reached: {why}"));
        let (socket, host) = match server {
            Endpoint::Tcp { host, port } => (dial(host, *port).map_err(|why| away(&why))?, &**host),
            Endpoint::Unix { path } => {
                let socket = UnixStream::connect(path).map_err(|error| away(&error.to_string()))?;
                socket.set_nonblocking(true).map_err(|error| away(&error.to_string()))?;
                (socket.into(), "localhost")
            }
            Endpoint::Shm { .. } => return Err(Failure::lasting(format!("{server} is no server"))),
        };
        let secure = |tls: &ClientTls| {
            let channel = tls.connect(host).map_err(|fault| away(&tls.explain(fault, host)))?;
            let (tls, host) = (tls.clone(), host.to_owned());
            Ok(Secured { channel: Box::new(channel), tls, host, sealed: Vec::new() })
        };
        let secured = access.tls.as_ref().map(secure).transpose()?;
        let scratch = vec![0; READ_LEN].into_boxed_slice();
        let server = server.clone();
        let mut wire = Wire { server, socket, secured, scratch, out: Vec::new(), sent: 0 };
        if let Some(password) = &access.password {
            let said = wire.ask(&[b"AUTH", password.as_bytes()], within)?;
            // A server without a password refuses AUTH, and answers all else.
            if said.starts_with(b"-") && !said.starts_with(b"-ERR") {
                return Err(Failure::of_error(&wire.server, said.get(1..).unwrap_or_default()));
            }
        }
        // Only people look at the name, and at who holds on to an old connection.
        let said = wire.ask(&[b"CLIENT", b"SETNAME", name.as_bytes()], within)?;
        if said.starts_with(b"-NOAUTH") {
            return Err(Failure::of_error(&wire.server, said.get(1..).unwrap_or_default()));
        }
        Ok(wire)
    }

    /// The server at the other end.
    pub(crate) fn server(&self) -> &Endpoint {
        &self.server
    }

    /// Adds bytes to those that are to be sent. The buffer is left empty.
    pub(crate) fn queue(&mut self, bytes: &mut Vec<u8>) {
        if self.sent >= self.out.len() {
            self.out.clear();
            self.sent = 0;
            std::mem::swap(&mut self.out, bytes);
            return;
        }
        self.out.append(bytes);
    }

    /// Waits until something can be read, or sent if not all is sent, for `wake`, or until a time.
    pub(crate) fn wait(&self, is_sent: bool, wake: Option<BorrowedFd<'_>>, until: Instant) {
        let is_sealed = self.secured.as_ref().is_some_and(|secured| !secured.sealed.is_empty());
        let events = match is_sent && !is_sealed {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        };
        let mut fds = vec![PollFd::from_borrowed_fd(self.socket.as_fd(), events)];
        fds.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
        let left = until.saturating_duration_since(now());
        let left = Timespec {
            tv_sec: left.as_secs().min(1 << 20) as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        // A fault of the socket is told by its next use.
        let _ = poll(&mut fds, Some(&left));
    }

    /// Has the system drop what it has not sent when the connection is closed.
    pub(crate) fn forget_at_close(&self) {
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
    }

    /// Sends a command, and returns the bytes of its reply.
    pub(crate) fn ask(&mut self, words: &[&[u8]], within: Duration) -> Result<Vec<u8>, Failure> {
        let mut request = Vec::new();
        command(&mut request, words);
        self.queue(&mut request);
        self.answer(&mut Vec::new(), within)
    }

    /// Waits for the next reply, and takes it out of what has come.
    pub(crate) fn answer(
        &mut self,
        input: &mut Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let until = now() + within;
        loop {
            match frame_reply(input, REPLY_LEN_MAX, 8) {
                Ok(Framing::Ready { len, .. }) => {
                    let rest = input.split_off(len.min(input.len()));
                    return Ok(std::mem::replace(input, rest));
                }
                Ok(_) => {}
                Err(_) => return Err(self.away("it answers in another protocol")),
            }
            if now() >= until {
                return Err(self.away("it does not answer in time"));
            }
            let has_sent = self.send_queued()?;
            if !self.receive(input)? && !has_sent {
                self.wait(self.sent >= self.out.len(), None, until);
            }
        }
    }

    fn away(&self, why: &str) -> Failure {
        Failure::passing(format!("{}: {why}", self.server))
    }

    /// Sends what the system takes of these bytes, which follow all others. Returns how many it took.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let Some(secured) = &mut self.secured else {
            let taken = send_some(&self.socket, bytes);
            return taken.map_err(|error| self.away(&words(error)));
        };
        let mut taken = 0;
        while taken < bytes.len() && secured.sealed.len() < SEALED_LEN {
            match secured.channel.encrypt(bytes.get(taken..).unwrap_or_default()) {
                0 => break,
                len => taken += len,
            }
            secured.channel.take_output(&mut secured.sealed);
        }
        self.flush()?;
        Ok(taken)
    }

    /// Sends what waits because of TLS. Returns whether the system took something.
    pub(crate) fn flush(&mut self) -> Result<bool, Failure> {
        let Some(secured) = &mut self.secured else { return Ok(false) };
        secured.channel.take_output(&mut secured.sealed);
        let mut has_sent = false;
        loop {
            match send_some(&self.socket, &secured.sealed) {
                Ok(0) => return Ok(has_sent),
                Ok(len) => {
                    has_sent = true;
                    secured.sealed.drain(..len);
                }
                Err(error) => return Err(self.away(&words(error))),
            }
        }
    }

    fn send_queued(&mut self) -> Result<bool, Failure> {
        let mut has_sent = self.flush()?;
        while self.sent < self.out.len() {
            let out = std::mem::take(&mut self.out);
            let taken = self.send(out.get(self.sent..).unwrap_or_default());
            self.out = out;
            match taken? {
                0 => break,
                len => self.sent += len,
            }
            has_sent = true;
        }
        Ok(has_sent)
    }

    /// Reads what there is, into `input`. Returns whether something came.
    pub(crate) fn receive(&mut self, input: &mut Vec<u8>) -> Result<bool, Failure> {
        let len = match recv(&self.socket, &mut *self.scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Err(self.away("it has closed the connection")),
            Ok((len, _)) => len.min(self.scratch.len()),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(self.away(&words(error))),
        };
        let bytes = self.scratch.get(..len).unwrap_or_default();
        let Some(secured) = &mut self.secured else {
            input.extend_from_slice(bytes);
            return Ok(true);
        };
        if let Err(fault) = secured.channel.handle_input(bytes, input) {
            let why = secured.tls.explain(fault, &secured.host);
            // The server learns why.
            let _ = self.flush();
            return Err(self.away(&why));
        }
        Ok(true)
    }
}

/// Returns how many bytes the system has taken: 0 if it takes none now.
fn send_some(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    if bytes.is_empty() {
        return Ok(0);
    }
    match send(socket, bytes, SendFlags::NOSIGNAL) {
        Ok(len) => Ok(len.min(bytes.len())),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error),
    }
}

fn words(error: Errno) -> String {
    match error {
        Errno::CONNRESET | Errno::PIPE => "the connection was reset".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

fn dial(host: &str, port: u16) -> Result<OwnedFd, String> {
    let mut why = "its name has no address".to_owned();
    for address in (host, port).to_socket_addrs().map_err(|error| error.to_string())? {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(socket) => {
                // A command of several segments would wait for an acknowledgement otherwise.
                let _ = socket.set_nodelay(true);
                socket.set_nonblocking(true).map_err(|error| error.to_string())?;
                return Ok(socket.into());
            }
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}
