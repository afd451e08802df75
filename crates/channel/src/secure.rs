//! TLS over TCP: both sides have certificates, and each certificate has the id of its node.

use crate::sockets::keep_alive;
use keyway_bus::{Reason, Vouch, certificate_name};
use keyway_tls::{Channel, PeerTls, Refusal, TlsFault};
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The label that makes the bytes of a connection's binding unique.
const BINDING_LABEL: &[u8] = b"EXPORTER-keyway-bus";
/// Bytes read at once: one record.
const READ_LEN: usize = 17 << 10;
/// Memory that a connection at rest keeps for reading and writing.
const KEPT_LEN: usize = 4 << 10;

/// Returns the reason for operators of the bus for a TLS fault.
pub(crate) fn reason(fault: TlsFault) -> Reason {
    match fault {
        TlsFault::NotTls => Reason::NotTls,
        TlsFault::Closed => Reason::HungUp,
        TlsFault::UnknownIssuer => Reason::Untrusted,
        TlsFault::Expired | TlsFault::NotYetValid => Reason::Expired,
        TlsFault::RefusedIdentity(Refusal::Expired) => Reason::CertificateExpired,
        TlsFault::RefusedIdentity(_) | TlsFault::NoIdentity => Reason::CertificateRefused,
        TlsFault::IsAuthority
        | TlsFault::WrongPurpose
        | TlsFault::Revoked
        | TlsFault::BadCertificate => Reason::BadCertificate,
        _ => Reason::TlsFailed,
    }
}

/// Returns a fault as an error of reading or writing; [`reason_of`] finds it again.
fn broken(fault: TlsFault) -> io::Error {
    io::Error::other(reason(fault))
}

/// Returns the reason why a connection ended, if it was TLS.
pub(crate) fn reason_of(error: &io::Error) -> Option<Reason> {
    error.get_ref()?.downcast_ref::<Reason>().copied()
}

/// A connection after its handshake.
pub(crate) struct Secured {
    tcp: TcpStream,
    channel: Box<Channel>,
    /// Decrypted bytes that are unread, from `plain_start` on.
    plain: Vec<u8>,
    plain_start: usize,
    /// Encrypted bytes that the system has not accepted, from `out_start` on.
    out: Vec<u8>,
    out_start: usize,
    is_finished: bool,
}

impl Secured {
    fn new(tcp: TcpStream, channel: Box<Channel>, plain: Vec<u8>, out: Vec<u8>) -> Self {
        let (plain_start, out_start) = (0, 0);
        Self { tcp, channel, plain, plain_start, out, out_start, is_finished: false }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }

    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub fn set_nonblocking(&self) -> io::Result<()> {
        self.tcp.set_read_timeout(None)?;
        keep_alive(&self.tcp)?;
        self.tcp.set_nonblocking(true)
    }

    /// Returns bytes that both ends of this connection know and no one else.
    pub fn binding(&self) -> Vec<u8> {
        self.channel.export(BINDING_LABEL).unwrap_or_default().to_vec()
    }

    /// Returns a check of the other side's certificate.
    pub fn vouch(&self) -> Vouch {
        let certificate = self.channel.peer_certificate();
        Vouch::new(move |id| {
            let name = certificate_name(id);
            certificate.as_ref().is_some_and(|certificate| certificate.has_name(&name))
        })
    }

    /// Reads what there is. Returns `WouldBlock` when everything was read, and 0 at the end.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut bytes = [0; READ_LEN];
        while self.plain_start == self.plain.len() {
            self.plain.clear();
            self.plain.shrink_to(KEPT_LEN);
            self.plain_start = 0;
            if self.channel.has_ended() {
                return Ok(0);
            }
            let len = self.tcp.read(&mut bytes)?;
            if len == 0 {
                return Ok(0);
            }
            let outcome = self.channel.handle_input(&bytes[..len], &mut self.plain);
            self.channel.take_output(&mut self.out);
            let _ = self.flush();
            outcome.map_err(broken)?;
        }
        let left = &self.plain[self.plain_start..];
        let len = left.len().min(into.len());
        into[..len].copy_from_slice(&left[..len]);
        self.plain_start += len;
        Ok(len)
    }

    /// Encrypts as many bytes as possible. Returns `WouldBlock` while earlier bytes are not sent.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let len = self.channel.encrypt(bytes);
        self.channel.take_output(&mut self.out);
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(len),
        }
    }

    /// Sends encrypted bytes. Returns `WouldBlock` if some remain.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.out_start < self.out.len() {
            match self.tcp.write(&self.out[self.out_start..]) {
                Ok(len) => self.out_start += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.out.shrink_to(KEPT_LEN);
        self.out_start = 0;
        Ok(())
    }

    /// Tells that nothing more will be written, once everything is sent.
    pub fn finish(&mut self) {
        if !std::mem::replace(&mut self.is_finished, true) {
            self.channel.end();
            self.channel.take_output(&mut self.out);
        }
        if self.flush().is_ok() {
            // A peer that is gone already need not be told.
            let _ = self.tcp.shutdown(Shutdown::Write);
        }
    }
}

/// An accepted connection whose other side is not known yet.
pub(crate) struct Securing {
    tcp: TcpStream,
    channel: Box<Channel>,
}

/// The result of a handshake.
pub(crate) enum Handshake {
    /// More bytes are needed.
    NotYet(Securing),
    Done(Box<Secured>),
    /// The connection is refused: the reason, and the bytes to send before the end.
    Over(Reason, TcpStream, Vec<u8>),
}

impl Securing {
    pub fn new(tcp: TcpStream, tls: &PeerTls) -> io::Result<Self> {
        Ok(Self { tcp, channel: Box::new(tls.accept().map_err(broken)?) })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }

    /// Goes on with received bytes.
    pub fn go_on(mut self) -> Handshake {
        let (mut bytes, mut plain) = ([0; READ_LEN], Vec::new());
        loop {
            let len = match self.tcp.read(&mut bytes) {
                Ok(0) => return Handshake::Over(Reason::HungUp, self.tcp, Vec::new()),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Handshake::NotYet(self);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Handshake::Over(Reason::HungUp, self.tcp, Vec::new()),
            };
            let outcome = self.channel.handle_input(&bytes[..len], &mut plain);
            let mut out = Vec::new();
            self.channel.take_output(&mut out);
            if let Err(fault) = outcome {
                return Handshake::Over(reason(fault), self.tcp, out);
            }
            // A socket accepts the few kilobytes of a handshake at once.
            let is_sent = self.tcp.write(&out).is_ok_and(|len| len == out.len());
            if !is_sent && !out.is_empty() {
                return Handshake::Over(Reason::TlsFailed, self.tcp, Vec::new());
            }
            if !self.channel.is_handshaking() {
                let secured = Secured::new(self.tcp, self.channel, plain, Vec::new());
                return Handshake::Done(Box::new(secured));
            }
        }
    }
}

/// Does the handshake of a dialled connection, on a thread that may wait.
#[allow(clippy::disallowed_methods, reason = "a thread of its own, which may look at the clock")]
pub(crate) fn dial(mut tcp: TcpStream, tls: &PeerTls, within: Duration) -> Result<Secured, Reason> {
    let end = Instant::now() + within;
    let mut channel = Box::new(tls.dial().map_err(reason)?);
    let (mut bytes, mut plain, mut out) = ([0; READ_LEN], Vec::new(), Vec::new());
    let late = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Reason::NoAnswer,
        _ => Reason::HungUp,
    };
    tcp.set_nodelay(true).map_err(late)?;
    loop {
        channel.take_output(&mut out);
        tcp.write_all(&out).map_err(late)?;
        out.clear();
        if !channel.is_handshaking() {
            return Ok(Secured::new(tcp, channel, plain, out));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Reason::NoAnswer);
        }
        tcp.set_read_timeout(Some(left)).map_err(late)?;
        let len = tcp.read(&mut bytes).map_err(late)?;
        if len == 0 {
            return Err(Reason::HungUp);
        }
        let outcome = channel.handle_input(&bytes[..len], &mut plain);
        if let Err(fault) = outcome {
            channel.take_output(&mut out);
            // This tells the peer the reason, if it still listens.
            let _ = tcp.write_all(&out);
            return Err(reason(fault));
        }
    }
}
