//! A connection: a socket that does not block, TLS over it if wanted, and the
//! bytes on their way.

use crate::fault::Cause;
use crate::wake::{Waited, Wake};
use keyway_tls::{Channel, ClientTls};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::time::Instant;

/// Bytes read at once. Fewer make more calls of the system, more hold more of a
/// stream that the target has not taken.
const READ_LEN: usize = 64 << 10;
/// Bytes that may wait for a primary that does not read. Everything that a
/// replica says later is worth nothing once the next is said.
const UNSENT_LEN_MAX: usize = 4 << 10;
/// Memory that is kept for input while there is none.
const KEPT_LEN: usize = 2 * READ_LEN;

/// TLS, and whom to name when it fails.
struct Secured {
    channel: Box<Channel>,
    tls: ClientTls,
    host: String,
    /// What is to be encrypted once the handshake is over.
    plain: Vec<u8>,
}

/// A connection.
pub(crate) struct Wire {
    socket: OwnedFd,
    secured: Option<Secured>,
    scratch: Box<[u8]>,
    /// What came, from `start` on.
    input: Vec<u8>,
    start: usize,
    /// What the system has not taken yet.
    out: Vec<u8>,
}

/// What [`Wire::wait`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There is more input.
    Input,
    /// Time is up.
    Late,
    /// The thread is to stop.
    Stop,
}

impl Wire {
    /// Over a connected socket that does not block.
    pub(crate) fn new(socket: OwnedFd, tls: Option<(&ClientTls, &str)>) -> Result<Self, Cause> {
        let secure = |(tls, host): (&ClientTls, &str)| {
            let channel =
                tls.connect(host).map_err(|fault| Cause::Tls(tls.explain(fault, host)))?;
            let (tls, host) = (tls.clone(), host.to_owned());
            Ok(Secured { channel: Box::new(channel), tls, host, plain: Vec::new() })
        };
        let secured = tls.map(secure).transpose()?;
        let scratch = vec![0; READ_LEN].into_boxed_slice();
        let (input, out) = (Vec::new(), Vec::new());
        Ok(Self { socket, secured, scratch, input, start: 0, out })
    }

    /// What came and was not consumed.
    pub(crate) fn input(&self) -> &[u8] {
        self.input.get(self.start..).unwrap_or_default()
    }

    /// The first bytes of the input are done with.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.input.len());
    }

    /// Returns whether the handshake of TLS goes on.
    pub(crate) fn is_securing(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.channel.is_handshaking())
    }

    /// Sends these bytes, as far as the system takes them now; the rest while
    /// waiting.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Cause> {
        match &mut self.secured {
            Some(secured) => secured.plain.extend_from_slice(bytes),
            None => self.out.extend_from_slice(bytes),
        }
        self.flush()
    }

    /// Sends these bytes unless others still wait; whether it did.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> Result<bool, Cause> {
        self.flush()?;
        let waiting = self.secured.as_ref().map_or(0, |secured| secured.plain.len());
        if self.out.len() + waiting > UNSENT_LEN_MAX {
            return Ok(false);
        }
        self.send(bytes).map(|()| true)
    }

    /// Waits for more input until a time.
    pub(crate) fn wait(&mut self, wake: &Wake, until: Instant) -> Result<Woken, Cause> {
        self.make_room();
        loop {
            if wake.is_stopping() {
                return Ok(Woken::Stop);
            }
            self.flush()?;
            if self.receive()? {
                return Ok(Woken::Input);
            }
            // TLS may have something to answer.
            self.flush()?;
            let events = match self.out.is_empty() {
                true => PollFlags::IN,
                false => PollFlags::IN | PollFlags::OUT,
            };
            match wake.wait(Some((self.socket.as_fd(), events)), until) {
                Waited::Ready | Waited::Nudged => {}
                Waited::Late => return Ok(Woken::Late),
                Waited::Stop => return Ok(Woken::Stop),
            }
        }
    }

    /// Forgets what was consumed.
    fn make_room(&mut self) {
        if self.start == 0 {
            return;
        }
        self.input.drain(..self.start);
        self.start = 0;
        if self.input.len() < KEPT_LEN {
            self.input.shrink_to(KEPT_LEN);
        }
    }

    /// Reads what there is, up to [`READ_LEN`]; whether there is more input now.
    fn receive(&mut self) -> Result<bool, Cause> {
        loop {
            let len = match recv(&self.socket, &mut *self.scratch, RecvFlags::empty()) {
                Ok((0, _)) => return Err(Cause::Closed),
                Ok((len, _)) => len.min(self.scratch.len()),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(system(error)),
            };
            let bytes = &self.scratch[..len];
            let Some(secured) = &mut self.secured else {
                self.input.extend_from_slice(bytes);
                return Ok(true);
            };
            let before = self.input.len();
            if let Err(fault) = secured.channel.handle_input(bytes, &mut self.input) {
                let text = secured.tls.explain(fault, &secured.host);
                // The other side is told why, if it still listens.
                let _ = self.flush();
                return Err(Cause::Tls(text));
            }
            if self.input.len() > before {
                return Ok(true);
            }
            if secured.channel.has_ended() {
                return Err(Cause::Closed);
            }
            self.flush()?;
        }
    }

    /// Sends as much as the system takes.
    fn flush(&mut self) -> Result<(), Cause> {
        if let Some(secured) = &mut self.secured {
            let mut taken = 0;
            while taken < secured.plain.len() {
                match secured.channel.encrypt(&secured.plain[taken..]) {
                    0 => break,
                    len => taken += len,
                }
            }
            secured.plain.drain(..taken);
            secured.channel.take_output(&mut self.out);
        }
        while !self.out.is_empty() {
            match send(&self.socket, &self.out, SendFlags::NOSIGNAL) {
                Ok(len) => drop(self.out.drain(..len.min(self.out.len()))),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(system(error)),
            }
        }
        Ok(())
    }
}

/// What the system says, in words.
pub(crate) fn system(error: Errno) -> Cause {
    Cause::System(match error {
        Errno::CONNREFUSED | Errno::NOENT => "nobody listens there".to_owned(),
        Errno::CONNRESET | Errno::PIPE => "the connection was reset".to_owned(),
        Errno::TIMEDOUT => "the host does not answer".to_owned(),
        Errno::HOSTUNREACH | Errno::NETUNREACH => "no route to the host".to_owned(),
        Errno::AGAIN => "the primary accepts no more connections now".to_owned(),
        other => std::io::Error::from(other).to_string(),
    })
}
