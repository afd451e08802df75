use crate::TlsFault;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};
use std::io::{BufRead, Write};
use std::sync::Arc;

/// What the other side of a connection has shown of itself, checked.
#[derive(Clone, Debug)]
pub struct PeerCertificate(CertificateDer<'static>);

impl PeerCertificate {
    /// Whether it is made out to `name`, a host's.
    pub fn has_name(&self, name: &str) -> bool {
        crate::peers::has_name(&self.0, name)
    }
}

/// Bytes of a record that tell that it is one: its kind, version and length.
const RECORD_START_LEN: usize = 5;

/// One secured connection, without its socket.
///
/// What arrived goes into [`Channel::handle_input`], which appends what it says
/// to a buffer of the caller's; what is to be said into [`Channel::encrypt`]; and
/// [`Channel::take_output`] gives what is to be sent. All that is kept here
/// between calls is the beginning of a record whose end has not come: at most
/// 64 KiB during the handshake, 17 KiB later.
pub struct Channel {
    connection: Connection,
    /// Bytes that came and were TLS, up to [`RECORD_START_LEN`].
    heard: usize,
    has_ended: bool,
}

impl Channel {
    /// Plain bytes taken at once by [`Channel::encrypt`]. Larger makes what waits for a
    /// socket that takes no more larger; smaller makes more calls of large values.
    pub const ENCRYPT_LEN_MAX: usize = 32 << 10;

    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, TlsFault> {
        let connection =
            ClientConnection::new(config, name).map_err(|error| TlsFault::from(&error))?;
        Ok(Channel::of(connection.into()))
    }

    pub(crate) fn of(connection: Connection) -> Self {
        Channel { connection, heard: 0, has_ended: false }
    }

    /// Bytes that both sides of this connection know and nobody else, other ones for another
    /// label (RFC 5705); `None` during the handshake.
    pub fn export(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.connection.export_keying_material([0; 32], label, None).ok()
    }

    /// The certificate that the other side has shown, if it has.
    pub fn peer_certificate(&self) -> Option<PeerCertificate> {
        let certificate = self.connection.peer_certificates()?.first()?;
        Some(PeerCertificate(certificate.clone().into_owned()))
    }

    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, TlsFault> {
        let connection = ServerConnection::new(config).map_err(|error| TlsFault::from(&error))?;
        Ok(Channel::of(connection.into()))
    }

    /// Whether the handshake goes on.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the peer has said that it says no more.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes what arrived, all of it, and appends what it says to `plain`: never
    /// more bytes than it is given now and has kept from before.
    ///
    /// # Errors
    /// Why the connection is of no use any more. There may be something to send
    /// all the same, which tells the peer why.
    pub fn handle_input(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), TlsFault> {
        let mut left = bytes;
        while !left.is_empty() && !self.has_ended {
            match self.connection.read_tls(&mut left) {
                Ok(0) | Err(_) => return Err(TlsFault::Broken),
                Ok(_) => {}
            }
            let state = match self.connection.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Err(self.fault(&error)),
            };
            self.heard = RECORD_START_LEN.min(self.heard + bytes.len());
            self.has_ended = state.peer_has_closed();
            if state.plaintext_bytes_to_read() > 0 {
                self.read_plain(plain);
            }
        }
        Ok(())
    }

    fn read_plain(&mut self, plain: &mut Vec<u8>) {
        let mut reader = self.connection.reader();
        // Errors say that there is no more now, or at all.
        while let Ok(chunk) = reader.fill_buf() {
            let len = chunk.len();
            if len == 0 {
                return;
            }
            plain.extend_from_slice(chunk);
            reader.consume(len);
        }
    }

    /// A peer whose first word is no record has never heard of TLS.
    #[cold]
    fn fault(&mut self, error: &Error) -> TlsFault {
        match error {
            Error::InvalidMessage(_) if !self.has_spoken() && self.is_handshaking() => {
                TlsFault::NotTls
            }
            error => TlsFault::from(error),
        }
    }

    /// Whether the beginning of a record has come, which nothing else reads like.
    fn has_spoken(&self) -> bool {
        self.heard == RECORD_START_LEN
    }

    /// Encrypts the beginning of `plain`, at most [`Channel::ENCRYPT_LEN_MAX`];
    /// returns how much. Nothing during the handshake.
    pub fn encrypt(&mut self, plain: &[u8]) -> usize {
        if self.is_handshaking() {
            return 0;
        }
        let len = plain.len().min(Self::ENCRYPT_LEN_MAX);
        self.connection.writer().write(&plain[..len]).unwrap_or(0)
    }

    /// Whether there is something to send.
    pub fn wants_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Moves everything there is to send to the end of `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // A vector takes everything.
            if self.connection.write_tls(out).is_err() {
                return;
            }
        }
    }

    /// Tells the peer that nothing more is said.
    pub fn end(&mut self) {
        self.connection.send_close_notify();
    }
}
